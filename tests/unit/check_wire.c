/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the control channel: the way there and back, and refusals. */
#include "config.h"

#include "core/ddp_wire.h"
#include "tests/unit/check_main.h"

#include <string.h>

#define NTASKS 3

static uint8_t frame[DDP_WIRE_HEAD + DDP_WIRE_MAX + 64];
static uint8_t again[sizeof(frame)];
static struct ddp_msg msg, back;
static struct ddp_err err;

static const struct ddp_wire_task tasks[NTASKS] = {
	{ 7, 0, 4711 }, { UINT32_MAX, UINT32_MAX, UINT32_MAX }, { 9, 2, 1 }
};

static void nonce(uint8_t *buf, uint8_t from)
{
	for (unsigned i = 0; i < DDP_NONCE_BYTES; i++)
		buf[i] = (uint8_t)(from + i);
}

static const struct ddp_wire_state states[2] = {
	{ 3, 1 }, { UINT32_MAX, UINT8_MAX }
};

static void fill_life(struct ddp_msg *m)
{
	switch (m->type) {
	case DDP_MSG_STATES:
		m->u.states.n = 2;
		m->u.states.list = states;
		break;
	case DDP_MSG_BLAME:
		m->u.blame.rank = 5;
		m->u.blame.pid = 6;
		m->u.blame.when_us = UINT64_MAX - 2;
		m->u.blame.code = 7;
		m->u.blame.flags = DDP_EXIT_CAUGHT_TERM;
		strcpy(m->u.blame.text, "MPI_Abort, code 7");
		break;
	case DDP_MSG_LEFT:
		m->u.left.rank = 8;
		m->u.left.count = UINT64_MAX - 3;
		m->u.left.mpi = 1;
		break;
	case DDP_MSG_WAITS:
		m->u.waits.rank = 9;
		m->u.waits.count = 0x0102030405060708;
		break;
	case DDP_MSG_ORDER:
		m->u.order.code = 143;
		m->u.order.wait_ms = 10000;
		break;
	case DDP_MSG_PUT:
	case DDP_MSG_GET:
	case DDP_MSG_VALUE:
		strcpy(m->u.pair.name, "nccl.0");
		if (m->type != DDP_MSG_GET)
			memset(m->u.pair.value, 'f',
			       sizeof(m->u.pair.value) - 1);
		break;
	default:
		break;
	}
}

static void fill_late(struct ddp_msg *m)
{
	switch (m->type) {
	case DDP_MSG_EXIT:
		m->u.exit.rank = 5;
		m->u.exit.pid = 6;
		m->u.exit.status = DDP_STATUS_UNKNOWN;
		m->u.exit.when_us = UINT64_MAX - 1;
		m->u.exit.flags = DDP_EXIT_AFTER_ABORT | DDP_EXIT_OOM;
		strcpy(m->u.exit.text, "ValueError: \xc3\xa9\n  at line 3");
		break;
	case DDP_MSG_DYING:
		m->u.dying.rank = 12;
		m->u.dying.when_us = 13;
		break;
	case DDP_MSG_NOTE:
		m->u.note.kind = DDP_NOTE_PORT_STOLEN;
		strcpy(m->u.note.text, "pid 7");
		break;
	case DDP_MSG_ABORT:
		m->u.abort.signal = 15;
		m->u.abort.grace_ms = 5000;
		strcpy(m->u.abort.text, "rank 3 failed");
		break;
	case DDP_MSG_GONE:
		m->u.gone.stopped = 1;
		m->u.gone.others = 2;
		m->u.gone.left = 3;
		break;
	default:
		fill_life(m);
	}
}

/* A message of this type in which every field has a value of its own. */
static void fill(struct ddp_msg *m, enum ddp_msg_type type)
{
	memset(m, 0, sizeof(*m));
	m->type = type;
	switch (type) {
	case DDP_MSG_HELLO:
		m->u.hello.version = DDP_WIRE_VERSION;
		m->u.hello.job = 0x01020304;
		m->u.hello.step = 0xfffffffb;
		strcpy(m->u.hello.name, "node-0001");
		nonce(m->u.hello.nonce, 1);
		break;
	case DDP_MSG_CHALLENGE:
		nonce(m->u.challenge.nonce, 40);
		nonce(m->u.challenge.mac, 90);
		break;
	case DDP_MSG_AUTH:
		nonce(m->u.auth.mac, 200);
		break;
	case DDP_MSG_WELCOME:
		m->u.welcome.ping_ms = 5000;
		m->u.welcome.silence_ms = 20000;
		m->u.welcome.signal = 15;
		m->u.welcome.grace_ms = UINT32_MAX;
		break;
	case DDP_MSG_RESERVE:
		m->u.reserve.port = 1;
		m->u.reserve.lo = 0x0203;
		m->u.reserve.hi = UINT16_MAX;
		break;
	case DDP_MSG_PORT:
		m->u.port.port = 29500;
		strcpy(m->u.port.text, "in use");
		break;
	case DDP_MSG_READY:
		m->u.ready.node = 3;
		m->u.ready.now_us = 0x0102030405060708;
		m->u.ready.ntasks = NTASKS;
		m->u.ready.tasks = tasks;
		break;
	case DDP_MSG_PLAN:
		m->u.plan.flags = DDP_PLAN_STATELESS;
		m->u.plan.port = 29500;
		m->u.plan.text = "v=1;job=7";
		m->u.plan.len = 9;
		break;
	case DDP_MSG_PING:
	case DDP_MSG_PONG:
		m->u.ping.now_us = 0xf1f2f3f4f5f6f7f8;
		break;
	default:
		fill_late(m);
	}
}

/* The payload's length; its frame is in `frame`. */
static size_t encoded(enum ddp_msg_type type)
{
	size_t n;

	fill(&msg, type);
	memset(frame, 0xee, sizeof(frame));
	n = ddp_wire_encode(&msg, frame, sizeof(frame));
	ck_assert_msg(n > DDP_WIRE_HEAD, "%s", ddp_wire_name(type));
	ck_assert_uint_le(n, ddp_wire_bound(&msg));
	ck_assert_uint_eq(ddp_wire_length(frame), n - DDP_WIRE_HEAD);
	ck_assert_uint_eq(frame[n], 0xee);
	return n - DDP_WIRE_HEAD;
}

static int decode(size_t len)
{
	return ddp_wire_decode(&back, frame + DDP_WIRE_HEAD, len, &err);
}

static void same_pointers(void)
{
	if (msg.type == DDP_MSG_READY) {
		for (uint32_t i = 0; i < NTASKS; i++) {
			struct ddp_wire_task t = ddp_wire_task(&back, i);

			ck_assert_mem_eq(&t, &tasks[i], sizeof(t));
		}
		back.u.ready.raw = NULL;
		back.u.ready.tasks = tasks;
	} else if (msg.type == DDP_MSG_STATES) {
		for (uint32_t i = 0; i < 2; i++) {
			struct ddp_wire_state s = ddp_wire_state(&back, i);

			ck_assert_uint_eq(s.rank, states[i].rank);
			ck_assert_uint_eq(s.state, states[i].state);
		}
		back.u.states.raw = NULL;
		back.u.states.list = states;
	} else if (msg.type == DDP_MSG_PLAN) {
		ck_assert_mem_eq(back.u.plan.text, msg.u.plan.text,
				 msg.u.plan.len);
		back.u.plan.text = msg.u.plan.text;
	}
}

START_TEST(round_trip)
{
	for (unsigned t = 1; t <= DDP_MSG_LAST; t++) {
		size_t n = encoded((enum ddp_msg_type)t), m;

		memcpy(again, frame, DDP_WIRE_HEAD + n);
		ck_assert_msg(!decode(n), "%s", err.text);
		same_pointers();
		ck_assert_msg(!memcmp(&msg, &back, sizeof(msg)), "%s",
			      ddp_wire_name(msg.type));
		m = ddp_wire_encode(&back, frame, sizeof(frame));
		ck_assert_uint_eq(m, DDP_WIRE_HEAD + n);
		ck_assert_mem_eq(frame, again, m);
	}
}
END_TEST

/* Copied to the heap, so that ASan sees a read behind the end. */
static int decode_cut(size_t len)
{
	uint8_t *cut = malloc(len ? len : 1);
	int rc;

	ck_assert_ptr_nonnull(cut);
	memcpy(cut, frame + DDP_WIRE_HEAD, len);
	rc = ddp_wire_decode(&back, cut, len, &err);
	free(cut);
	return rc;
}

START_TEST(truncated)
{
	for (unsigned t = 1; t <= DDP_MSG_LAST; t++) {
		size_t n = encoded((enum ddp_msg_type)t);

		for (size_t len = 0; len < n; len++) {
			err.text[0] = '\0';
			ck_assert_msg(decode_cut(len) == -1, "%s: %zu of %zu",
				      ddp_wire_name(msg.type), len, n);
			ck_assert_str_ne(err.text, "");
		}
	}
}
END_TEST

START_TEST(trailing)
{
	for (unsigned t = 1; t <= DDP_MSG_LAST; t++) {
		size_t n = encoded((enum ddp_msg_type)t);

		ck_assert_msg(decode(n + 1) == -1, "%s",
			      ddp_wire_name(msg.type));
		frame[DDP_WIRE_HEAD + n] = 0;
		ck_assert(decode(n + 1) == -1);
		ck_assert(decode(n + 40) == -1);
	}
}
END_TEST

/* A frame that does not fit is not written, and nothing behind its end. */
START_TEST(small_buffer)
{
	for (unsigned t = 1; t <= DDP_MSG_LAST; t++) {
		size_t n = encoded((enum ddp_msg_type)t) + DDP_WIRE_HEAD;

		for (size_t size = 0; size < n; size++) {
			uint8_t *buf = malloc(size ? size : 1);

			ck_assert_ptr_nonnull(buf);
			ck_assert_uint_eq(ddp_wire_encode(&msg, buf, size), 0);
			free(buf);
		}
		ck_assert_uint_eq(ddp_wire_encode(&msg, again, n), n);
	}
}
END_TEST

START_TEST(unknown_type)
{
	static const uint8_t bad[] = { 0, DDP_MSG_LAST + 1, 255 };

	for (unsigned i = 0; i < sizeof(bad); i++) {
		memset(frame, 0, 64);
		frame[DDP_WIRE_HEAD] = bad[i];
		ck_assert(decode(1) == -1);
		ck_assert(decode(60) == -1);
		ck_assert(strstr(err.text, "unknown"));
		memset(&msg, 0, sizeof(msg));
		msg.type = (enum ddp_msg_type)bad[i];
		ck_assert_uint_eq(ddp_wire_encode(&msg, frame, sizeof(frame)),
				  0);
	}
	ck_assert_str_eq(ddp_wire_name((enum ddp_msg_type)0), "?");
	ck_assert_str_eq(ddp_wire_name((enum ddp_msg_type)99), "?");
	ck_assert_str_eq(ddp_wire_name(DDP_MSG_BYE), "BYE");
}
END_TEST

START_TEST(magic)
{
	size_t n = encoded(DDP_MSG_HELLO);

	for (unsigned i = 1; i <= 4; i++) {
		frame[DDP_WIRE_HEAD + i] ^= 1;
		ck_assert(decode(n) == -1);
		frame[DDP_WIRE_HEAD + i] ^= 1;
	}
	ck_assert(!decode(n));
	frame[DDP_WIRE_HEAD + 5] = 77;	/* another version is seen as such */
	ck_assert(!decode(n));
	ck_assert_uint_eq(back.u.hello.version, 77);
}
END_TEST

/* Where a message has its last text: the offset of the length. */
static const struct {
	enum ddp_msg_type type;
	size_t at, size;
} texts[] = {
	{ DDP_MSG_HELLO, 14, DDP_WIRE_NAME },
	{ DDP_MSG_PORT, 3, DDP_WIRE_TEXT },
	{ DDP_MSG_EXIT, 22, DDP_WIRE_TEXT },
	{ DDP_MSG_NOTE, 2, DDP_WIRE_TEXT },
	{ DDP_MSG_ABORT, 6, DDP_WIRE_TEXT },
};

/* The message with a text of n bytes; the payload's length. */
static size_t with_text(unsigned i, size_t n)
{
	size_t old, len = encoded(texts[i].type);
	uint8_t *at = frame + DDP_WIRE_HEAD + texts[i].at;

	old = (size_t)at[0] << 8 | at[1];
	memmove(at + 2 + n, at + 2 + old, len - texts[i].at - 2 - old);
	memset(at + 2, 'x', n);
	at[0] = (uint8_t)(n >> 8);
	at[1] = (uint8_t)n;
	return len - old + n;
}

START_TEST(text_limits)
{
	for (unsigned i = 0; i < CHECK_COUNT(texts); i++) {
		size_t max = texts[i].size - 1;

		ck_assert(!decode(with_text(i, 0)));
		ck_assert(!decode(with_text(i, max)));
		ck_assert_msg(decode(with_text(i, max + 1)) == -1, "%s",
			      ddp_wire_name(texts[i].type));
		ck_assert(decode(with_text(i, 65535)) == -1);
	}
}
END_TEST

START_TEST(text_nul)
{
	for (unsigned i = 0; i < CHECK_COUNT(texts); i++)
		for (unsigned at = 0; at < 5; at++) {
			size_t n = with_text(i, 5);

			ck_assert(!decode(n));
			frame[DDP_WIRE_HEAD + texts[i].at + 2 + at] = 0;
			ck_assert_msg(decode(n) == -1, "%s, byte %u",
				      ddp_wire_name(texts[i].type), at);
		}
}
END_TEST

/* A sender's text that is too long is cut, not refused. */
START_TEST(text_cut)
{
	size_t n;

	fill(&msg, DDP_MSG_EXIT);
	memset(msg.u.exit.text, 'y', sizeof(msg.u.exit.text));
	n = ddp_wire_encode(&msg, frame, sizeof(frame));
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_le(n, ddp_wire_bound(&msg));
	ck_assert(!decode(n - DDP_WIRE_HEAD));
	ck_assert_uint_eq(strlen(back.u.exit.text), DDP_WIRE_TEXT - 1);
	fill(&msg, DDP_MSG_HELLO);
	memset(msg.u.hello.name, 'n', sizeof(msg.u.hello.name));
	n = ddp_wire_encode(&msg, frame, sizeof(frame));
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_le(n, DDP_WIRE_HEAD + DDP_WIRE_FIRST_MAX);
}
END_TEST

START_TEST(ready_limits)
{
	struct ddp_wire_task *many = calloc(DDP_WIRE_TASKS + 1, sizeof(*many));
	size_t n;

	ck_assert_ptr_nonnull(many);
	fill(&msg, DDP_MSG_READY);
	msg.u.ready.tasks = many;
	many[DDP_WIRE_TASKS - 1].rank = 99;
	msg.u.ready.ntasks = DDP_WIRE_TASKS;
	n = ddp_wire_encode(&msg, frame, sizeof(frame));
	ck_assert_uint_gt(n, DDP_WIRE_TASKS * 12);
	ck_assert_uint_le(n, ddp_wire_bound(&msg));
	ck_assert(!decode(n - DDP_WIRE_HEAD));
	ck_assert_uint_eq(ddp_wire_task(&back, DDP_WIRE_TASKS - 1).rank, 99);
	msg.u.ready.ntasks++;
	ck_assert_uint_eq(ddp_wire_encode(&msg, frame, sizeof(frame)), 0);
	msg.u.ready.ntasks = 0;
	ck_assert_uint_eq(ddp_wire_encode(&msg, frame, sizeof(frame)), 0);
	free(many);
}
END_TEST

/* Counts that promise more, or overflow when multiplied by 12. */
START_TEST(ready_counts)
{
	static const uint32_t bad[] = { 0, NTASKS - 1, NTASKS + 1,
		DDP_WIRE_TASKS, DDP_WIRE_TASKS + 1, 0x15555556, 0x40000000,
		UINT32_MAX };
	size_t n = encoded(DDP_MSG_READY);
	uint8_t *at = frame + DDP_WIRE_HEAD + 13;

	ck_assert_uint_eq(at[3], NTASKS);
	for (unsigned i = 0; i < CHECK_COUNT(bad); i++) {
		for (unsigned k = 0; k < 4; k++)
			at[k] = (uint8_t)(bad[i] >> (24 - 8 * k));
		ck_assert_msg(decode(n) == -1, "%u", bad[i]);
	}
}
END_TEST

START_TEST(plan_limits)
{
	size_t room = DDP_WIRE_MAX - 8, n;
	char *text = malloc(room + 1);

	ck_assert_ptr_nonnull(text);
	memset(text, 'p', room + 1);
	fill(&msg, DDP_MSG_PLAN);
	msg.u.plan.text = text;
	msg.u.plan.len = (uint32_t)room;
	n = ddp_wire_encode(&msg, frame, sizeof(frame));
	ck_assert_uint_eq(n, DDP_WIRE_HEAD + DDP_WIRE_MAX);
	ck_assert(!decode(n - DDP_WIRE_HEAD));
	ck_assert_uint_eq(back.u.plan.len, room);
	msg.u.plan.len++;
	ck_assert_uint_eq(ddp_wire_encode(&msg, frame, sizeof(frame)), 0);
	msg.u.plan.len = 0;
	msg.u.plan.text = NULL;
	n = ddp_wire_encode(&msg, frame, sizeof(frame));
	ck_assert(!decode(n - DDP_WIRE_HEAD));
	ck_assert_uint_eq(back.u.plan.len, 0);
	free(text);
	n = encoded(DDP_MSG_PLAN);
	frame[DDP_WIRE_HEAD + n - 1] = 0;
	ck_assert(decode(n) == -1);
	frame[DDP_WIRE_HEAD + 4] = 0xff;
	ck_assert(decode(n) == -1);
}
END_TEST

START_TEST(note_kinds)
{
	size_t n = encoded(DDP_MSG_NOTE);

	for (unsigned kind = 0; kind < 256; kind++) {
		frame[DDP_WIRE_HEAD + 1] = (uint8_t)kind;
		ck_assert_int_eq(decode(n), kind && kind <= DDP_NOTE_LAST ?
				 0 : -1);
	}
	msg.u.note.kind = 0;
	ck_assert_uint_eq(ddp_wire_encode(&msg, frame, sizeof(frame)), 0);
}
END_TEST

/* All that an unknown peer may say fits into the first limit. */
START_TEST(first_frames)
{
	static const enum ddp_msg_type first[] = { DDP_MSG_HELLO,
		DDP_MSG_CHALLENGE, DDP_MSG_AUTH, DDP_MSG_WELCOME };

	for (unsigned i = 0; i < CHECK_COUNT(first); i++)
		ck_assert_uint_le(encoded(first[i]), DDP_WIRE_FIRST_MAX);
}
END_TEST

int main(void)
{
	const TTest *const list[] = { round_trip, truncated, trailing,
		small_buffer, unknown_type, magic, text_limits, text_nul,
		text_cut, ready_limits, ready_counts, plan_limits, note_kinds,
		first_frames };

	return check_run("wire", list, CHECK_COUNT(list), NULL);
}
