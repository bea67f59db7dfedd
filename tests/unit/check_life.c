/* SPDX-License-Identifier: Apache-2.0 */
/* The life-cycle library's states, its table and its messages. */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/ddp_life.h"
#include "launcher/life.h"
#include "launcher/life_comm.h"
#include "tests/unit/check_main.h"

#define S(name) DDP_LIFE_##name

/* Row: state, column: event (start begun run stop abort end). */
static const enum ddp_life_state expected[DDP_LIFE_NSTATES][DDP_LIFE_NEVENTS] = {
	{ S(STARTING), S(NONE), S(RUNNING), S(STOPPING), S(ABORTING), S(GONE) },
	{ S(STARTING), S(READY), S(RUNNING), S(STOPPING), S(ABORTING),
	  S(GONE) },
	{ S(STARTING), S(READY), S(RUNNING), S(STOPPING), S(ABORTING),
	  S(GONE) },
	{ S(RUNNING), S(RUNNING), S(RUNNING), S(STOPPING), S(ABORTING),
	  S(GONE) },
	{ S(STARTING), S(STOPPING), S(STOPPING), S(STOPPING), S(ABORTING),
	  S(GONE) },
	{ S(ABORTING), S(ABORTING), S(ABORTING), S(ABORTING), S(ABORTING),
	  S(GONE) },
	{ S(GONE), S(GONE), S(GONE), S(GONE), S(GONE), S(GONE) },
};

START_TEST(test_states)
{
	for (int s = 0; s < DDP_LIFE_NSTATES; s++)
		for (int e = 0; e < DDP_LIFE_NEVENTS; e++)
			ck_assert_msg(ddp_life_next((enum ddp_life_state)s,
						    (enum ddp_life_event)e) ==
				      expected[s][e], "state %d event %d", s, e);
}
END_TEST

START_TEST(test_first_cause)
{
	struct ddp_life_machine m = { 0 };
	struct ddp_life_cause one = { DDP_LIFE_BY_USER, 7, "one" };
	struct ddp_life_cause two = { DDP_LIFE_BY_SIGNAL, 15, "two" };

	ck_assert_ptr_null(ddp_life_blamed(&m));
	ck_assert(ddp_life_take(&m, DDP_LIFE_START));
	ck_assert(!ddp_life_take(&m, DDP_LIFE_START));
	ck_assert(ddp_life_blame(&m, &one));
	ck_assert(!ddp_life_blame(&m, &two));
	ck_assert_int_eq(ddp_life_blamed(&m)->code, 7);
	ck_assert_str_eq(ddp_life_blamed(&m)->text, "one");
	ck_assert_int_eq(m.state, DDP_LIFE_ABORTING);
}
END_TEST

START_TEST(test_no_cause_after_the_end)
{
	struct ddp_life_machine m = { 0 };
	struct ddp_life_cause one = { DDP_LIFE_BY_USER, 7, "one" };

	ck_assert(ddp_life_take(&m, DDP_LIFE_END));
	ck_assert(!ddp_life_blame(&m, &one));
	ck_assert_ptr_null(ddp_life_blamed(&m));
}
END_TEST

static struct ddp_life_machine shared;
static _Atomic int winners;

static void *blame_it(void *arg)
{
	struct ddp_life_cause c = { DDP_LIFE_BY_API, (int)(intptr_t)arg, "" };

	if (ddp_life_blame(&shared, &c))
		atomic_store(&winners, c.code + 1000 * (winners != 0));
	return NULL;
}

START_TEST(test_one_of_many_threads)
{
	pthread_t t[16];

	for (intptr_t i = 0; i < 16; i++)
		ck_assert(!pthread_create(&t[i], NULL, blame_it,
					  (void *)(i + 1)));
	for (int i = 0; i < 16; i++)
		ck_assert(!pthread_join(t[i], NULL));
	ck_assert_int_lt(winners, 1000);
	ck_assert_int_eq(ddp_life_blamed(&shared)->code, winners);
}
END_TEST

/* --- table ---------------------------------------------------------------- */
static void *handle(uintptr_t n)
{
	return (void *)(n * 64);
}

static uint64_t add(uintptr_t n)
{
	uint64_t t = ddp_life_comm_begin(NULL, false);

	ck_assert_uint_ne(t, 0);
	ddp_life_comm_done(t, handle(n));
	return t;
}

START_TEST(test_claim_once)
{
	uint64_t t, made = add(1);

	ck_assert_int_eq(ddp_life_comm_claim(handle(2), DDP_COMM_ABORTING, 0,
					     &t), DDP_CLAIM_UNKNOWN);
	ck_assert_int_eq(ddp_life_comm_claim(handle(1), DDP_COMM_ABORTING, 0,
					     &t), DDP_CLAIM_YOURS);
	ck_assert_uint_eq(t, made);
	/* Another thread, while it runs: waits, and does not get it. */
	ck_assert_int_eq(ddp_life_comm_claim(handle(1), DDP_COMM_DESTROYING, 20,
					     &t), DDP_CLAIM_THEIRS);
	ddp_life_comm_ended(t);
	ck_assert_int_eq(ddp_life_comm_claim(handle(1), DDP_COMM_DESTROYING, 0,
					     &t), DDP_CLAIM_THEIRS);
	ck_assert(!ddp_life_comms_any());
}
END_TEST

START_TEST(test_library_takes)
{
	struct ddp_life_comm c;
	uint64_t t;

	add(1);
	add(2);
	ck_assert_uint_eq(ddp_life_comms_left(false), 2);
	/* A thread that comes when all is over takes nothing. */
	ck_assert(!ddp_life_comm_next(DDP_COMM_FINALIZING, &c));
	ddp_life_comms_ending(true);
	ck_assert(ddp_life_comm_next(DDP_COMM_FINALIZING, &c));
	ddp_life_comms_ending(false);
	ck_assert(!ddp_life_comm_next(DDP_COMM_FINALIZING, &c));
	ck_assert_ptr_eq(c.comm, handle(1));
	/* The program's own destroy comes too late, and is none. */
	ck_assert_int_eq(ddp_life_comm_claim(handle(1), DDP_COMM_DESTROYING, 20,
					     &t), DDP_CLAIM_OURS);
	/* An abort of ours may take what we are finalizing. */
	ck_assert(ddp_life_comm_next(DDP_COMM_ABORTING, &c));
	ck_assert_ptr_eq(c.comm, handle(1));
	ck_assert(!ddp_life_comm_move(c.ticket, DDP_COMM_FINALIZING,
				      DDP_COMM_DESTROYING));
	ddp_life_comm_ended(c.ticket);
	ck_assert(ddp_life_comm_next(DDP_COMM_ABORTING, &c));
	ck_assert_ptr_eq(c.comm, handle(2));
	ck_assert(!ddp_life_comm_next(DDP_COMM_ABORTING, &c));
	ck_assert_uint_eq(ddp_life_comms_left(false), 1);
	ddp_life_comms_give_up();
	ck_assert_uint_eq(ddp_life_comms_left(false), 0);
	ck_assert(ddp_life_comm_is_ours(handle(2)));
}
END_TEST

START_TEST(test_address_again)
{
	uint64_t t, again;

	add(1);
	ck_assert_int_eq(ddp_life_comm_claim(handle(1), DDP_COMM_DESTROYING, 0,
					     &t), DDP_CLAIM_YOURS);
	ddp_life_comm_ended(t);
	again = add(1);
	ck_assert_int_eq(ddp_life_comm_claim(handle(1), DDP_COMM_DESTROYING, 0,
					     &t), DDP_CLAIM_YOURS);
	ck_assert_uint_eq(t, again);
}
END_TEST

START_TEST(test_group)
{
	void *slot = NULL, *early = NULL, *failed = NULL;
	uint64_t a = ddp_life_comm_begin(&slot, false);
	uint64_t b = ddp_life_comm_begin(&early, false);

	/* One whose handle is there at once, and its variable reused. */
	early = handle(8);
	ddp_life_comm_grouped(a);
	ddp_life_comm_grouped(b);
	early = handle(9);
	slot = handle(7);
	ck_assert(ddp_life_comms_starting());
	ck_assert_uint_eq(ddp_life_comms_left(false), 0);
	ck_assert_uint_eq(ddp_life_comms_left(true), 2);
	ddp_life_comms_group_end(true);
	ck_assert(!ddp_life_comms_starting());
	ck_assert_uint_eq(ddp_life_comms_left(false), 2);
	ck_assert_int_eq(ddp_life_comm_claim(handle(7), DDP_COMM_ABORTING, 0,
					     &a), DDP_CLAIM_YOURS);
	ck_assert_int_eq(ddp_life_comm_claim(handle(8), DDP_COMM_ABORTING, 0,
					     &a), DDP_CLAIM_YOURS);
	a = ddp_life_comm_begin(&failed, false);
	ddp_life_comm_grouped(a);
	ddp_life_comms_group_end(false);
	ck_assert(!ddp_life_comms_starting());
}
END_TEST

START_TEST(test_bounded)
{
	uint64_t t, n = 0;

	/* As many as one likes, one after the other. */
	for (unsigned i = 1; i <= 1000; i++) {
		add(i);
		ck_assert_int_eq(ddp_life_comm_claim(handle(i),
						     DDP_COMM_DESTROYING, 0,
						     &t), DDP_CLAIM_YOURS);
		ddp_life_comm_ended(t);
	}
	/* At once there is a limit; beyond it they are not known. (Waiting in
	 * a group, they are not looked for by their handle.) */
	while (n < DDP_LIFE_COMMS * 2 && ddp_life_comm_begin(NULL, false))
		n++;
	ck_assert_uint_gt(n, 1000);
	ck_assert_uint_lt(n, DDP_LIFE_COMMS * 2);
}
END_TEST

START_TEST(test_pin)
{
	struct ddp_life_comm c;
	uint64_t after = 0, t, one = add(1), two;

	t = ddp_life_comm_begin(NULL, true);
	ddp_life_comm_done(t, handle(2));
	two = add(3);
	ck_assert(ddp_life_comm_pin(&after, &c));
	ck_assert_uint_eq(c.ticket, one);
	ck_assert_int_eq(ddp_life_comm_unpin(one, true, 100), 100);
	ck_assert(ddp_life_comm_pin(&after, &c));
	ck_assert_uint_eq(c.ticket, two);
	ck_assert_int_eq(ddp_life_comm_unpin(two, false, 100), 0);
	ck_assert(!ddp_life_comm_pin(&after, &c));
	after = 0;
	ck_assert(ddp_life_comm_pin(&after, &c));
	ck_assert_int_eq(ddp_life_comm_unpin(one, true, 300), 100);
	ddp_life_comm_revoked(handle(1));
	after = 0;
	ck_assert(ddp_life_comm_pin(&after, &c));
	ck_assert_uint_eq(c.ticket, two);
}
END_TEST

/* --- messages ------------------------------------------------------------- */
static int parse(const char *line, struct ddp_life_msg *m)
{
	return ddp_life_parse(line, strlen(line), m, NULL);
}

START_TEST(test_messages)
{
	struct ddp_life_msg m = { .kind = DDP_LIFE_MSG_CAUSE, .code = 143,
				  .text = "a\nb" }, back;
	char line[DDP_LIFE_LINE];
	int n = ddp_life_format(&m, line, sizeof(line), NULL);

	ck_assert_str_eq(line, "cause 143 a b\n");
	ck_assert(!ddp_life_parse(line, (size_t)n, &back, NULL));
	ck_assert_int_eq(back.code, 143);
	ck_assert_str_eq(back.text, "a b");
	ck_assert(!parse("life 1 4711", &back));
	ck_assert_uint_eq(back.pid, 4711);
	for (int s = 0; s < DDP_LIFE_NSTATES; s++) {
		m.kind = DDP_LIFE_MSG_STATE;
		m.state = (enum ddp_life_state)s;
		n = ddp_life_format(&m, line, sizeof(line), NULL);
		ck_assert(!ddp_life_parse(line, (size_t)n, &back, NULL));
		ck_assert_int_eq(back.state, s);
	}
	ck_assert(!parse("news of tomorrow", &back));
	ck_assert_int_eq(back.kind, DDP_LIFE_MSG_OTHER);
	ck_assert(!parse("abort 1", &back));
	ck_assert_str_eq(back.text, "");
}
END_TEST

/* There and back, less the newline; in another spelling if `as` says so. */
static struct ddp_life_msg again(const char *text, const char *as)
{
	struct ddp_life_msg m, back;
	char line[DDP_LIFE_LINE];
	int n;

	ck_assert_msg(!parse(text, &m), "%s", text);
	n = ddp_life_format(&m, line, sizeof(line), NULL);
	ck_assert_msg(n > 0, "%s", text);
	ck_assert(!ddp_life_parse(line, (size_t)n, &back, NULL));
	ck_assert_mem_eq(&m, &back, sizeof(m));
	line[n - 1] = '\0';
	ck_assert_str_eq(line, as ? as : text);
	return m;
}

START_TEST(test_messages_of_the_step)
{
	struct ddp_life_msg m = again("life 1 4711 10000", NULL);
	char value[2 * DDP_LIFE_VALUE + 1], text[DDP_LIFE_LINE];

	ck_assert_uint_eq(m.limit_ms, 10000);
	m = again("life 1 4711 soon", "life 1 4711");
	ck_assert_uint_eq(m.limit_ms, 0);
	m = again("left 12 1", NULL);
	ck_assert(m.mpi && m.count == 12);
	m = again("left 999999999999999999 0 and more",
		  "left 999999999999999999 0");
	ck_assert(!m.mpi && m.count == 999999999999999999U);
	m = again("waits 3", NULL);
	ck_assert_uint_eq(m.count, 3);
	m = again("get nccl.0", NULL);
	ck_assert_str_eq(m.name, "nccl.0");
	m = again("put a-b_C 00ff7f", NULL);
	ck_assert_uint_eq(m.size, 3);
	ck_assert_mem_eq(m.value, "\0\377\177", 3);
	memset(value, 'e', sizeof(value));
	value[sizeof(value) - 1] = '\0';
	(void)snprintf(text, sizeof(text), "value %.31s %s",
		       "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", value);
	m = again(text, NULL);
	ck_assert_uint_eq(m.size, DDP_LIFE_VALUE);
	ck_assert(ddp_life_is_name(m.name) && !ddp_life_is_name(""));
}
END_TEST

START_TEST(test_bad_messages)
{
	static const char *const bad[] = {
		"", " ", "\n", "abort", "abort x", "abort -1 y", "abort 256 y",
		"abort 99999999999999999999 y", "state", "state lost",
		"life", "life 1", "life 1 0", "life x 3", "life 1 99999999999",
		"left", "left 1", "left 1 2", "left -1 0", "left x 0",
		"left 1000000000000000000 0", "waits", "waits 0x1", "get",
		"get a/b", "get nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", "put a",
		"put a 0", "put a 0g", "put a FF", "put a/b 00", "value a",
	};
	struct ddp_life_msg m = { .kind = DDP_LIFE_MSG_ABORT, .code = 256 };
	char line[DDP_LIFE_LINE + 8];

	for (size_t i = 0; i < CHECK_COUNT(bad); i++)
		ck_assert_msg(parse(bad[i], &m) == -1 && !m.kind, "%s", bad[i]);
	memset(line, 'a', sizeof(line));
	ck_assert_int_eq(ddp_life_parse(line, sizeof(line), &m, NULL), -1);
	m = (struct ddp_life_msg){ .kind = DDP_LIFE_MSG_ABORT, .code = 256 };
	ck_assert_int_eq(ddp_life_format(&m, line, sizeof(line), NULL), -1);
	m.code = 1;
	ck_assert_int_eq(ddp_life_format(&m, line, 4, NULL), -1);
	m.kind = DDP_LIFE_MSG_OTHER;
	ck_assert_int_eq(ddp_life_format(&m, line, sizeof(line), NULL), -1);
	/* Without a name, without a value, with one that is too long. */
	m.kind = DDP_LIFE_MSG_PUT;
	m.size = 1;
	ck_assert_int_eq(ddp_life_format(&m, line, sizeof(line), NULL), -1);
	m.name[0] = 'n';
	m.size = 0;
	ck_assert_int_eq(ddp_life_format(&m, line, sizeof(line), NULL), -1);
	m.size = DDP_LIFE_VALUE + 1;
	ck_assert_int_eq(ddp_life_format(&m, line, sizeof(line), NULL), -1);
	memset(line, 'e', sizeof(line));
	memcpy(line, "put a ", 6);
	ck_assert_int_eq(ddp_life_parse(line, 6 + 2 * DDP_LIFE_VALUE + 2, &m,
					NULL), -1);
}
END_TEST

static void setup(void)
{
	ddp_life_comms_reset();
}

int main(void)
{
	const TTest *const tests[] = {
		test_states, test_first_cause, test_no_cause_after_the_end,
		test_one_of_many_threads, test_claim_once, test_library_takes,
		test_address_again, test_group, test_bounded, test_pin,
		test_messages, test_messages_of_the_step, test_bad_messages,
	};

	return check_run("life", tests, CHECK_COUNT(tests), setup);
}
