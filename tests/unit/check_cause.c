/* SPDX-License-Identifier: Apache-2.0 */
/* Who failed first, among ends that are reported in any order. */
#include "config.h"

#include "core/ddp_cause.h"
#include "core/ddp_ctlconf.h"
#include "tests/unit/check_main.h"

#include <signal.h>
#include <string.h>

#define MS 1000

static struct ddp_cause ev[8];
static size_t nev;

static void reset(void)
{
	memset(ev, 0, sizeof(ev));
	nev = 0;
}

static struct ddp_cause *add(enum ddp_cause_kind kind, uint32_t rank,
			     uint32_t status, int64_t when_us)
{
	struct ddp_cause *c = &ev[nev++];

	c->kind = kind;
	c->rank = rank;
	c->status = status;
	c->when_us = when_us;
	return c;
}

static struct ddp_cause *exits(uint32_t rank, int code, int64_t when_us)
{
	return add(DDP_CAUSE_EXIT, rank, (uint32_t)code << 8, when_us);
}

static struct ddp_cause *dies(uint32_t rank, int sig, int64_t when_us)
{
	return add(DDP_CAUSE_SIGNAL, rank, (uint32_t)sig, when_us);
}

/* The rank named, in any order of the events. */
static uint32_t named(void)
{
	uint32_t rank = DDP_CAUSE_NONE;

	for (size_t turn = 0; turn < nev; turn++) {
		struct ddp_cause first = ev[0];
		size_t i = ddp_cause_pick(ev, nev);

		ck_assert_uint_lt(i, nev);
		if (turn)
			ck_assert_uint_eq(ev[i].rank, rank);
		rank = ev[i].rank;
		memmove(ev, ev + 1, (nev - 1) * sizeof(*ev));
		ev[nev - 1] = first;
	}
	return rank;
}

START_TEST(nothing)
{
	ck_assert_uint_eq(ddp_cause_pick(ev, 0), 0);
	exits(1, 1, 5)->flags = DDP_EXIT_AFTER_ABORT;
	dies(2, SIGTERM, 6)->flags = DDP_EXIT_AFTER_ABORT;
	ck_assert_uint_eq(ddp_cause_pick(ev, nev), nev);
}
END_TEST

START_TEST(earliest_wins)
{
	exits(3, 7, 1000 * MS);
	exits(1, 1, 1020 * MS);
	exits(2, 1, 1003 * MS);
	ck_assert_uint_eq(named(), 3);
}
END_TEST

/* Two within the window: the signal, whichever came first. */
START_TEST(two_within_10_ms)
{
	exits(1, 1, 1000 * MS);
	dies(2, SIGSEGV, 1009 * MS);
	ck_assert_uint_eq(named(), 2);
	reset();
	dies(1, SIGBUS, 1000 * MS);
	dies(2, SIGSEGV, 1009 * MS);
	ck_assert_uint_eq(named(), 1);
	reset();
	exits(5, 9, 1000 * MS);
	exits(4, 9, 1000 * MS);
	ck_assert_uint_eq(named(), 4);
}
END_TEST

/* An exception about a broken connection ends with 1, and may be seen first. */
START_TEST(code_1_is_weaker)
{
	exits(4, 1, 100 * MS);
	exits(3, 7, 102 * MS);
	exits(5, 1, 103 * MS);
	ck_assert_uint_eq(named(), 3);
	reset();
	exits(4, 1, 100 * MS);
	exits(3, 7, 120 * MS);
	ck_assert_uint_eq(named(), 4);
}
END_TEST

/* Even just after ABORT: SIGTERM is not answered with a SIGSEGV. */
START_TEST(fault_beside_an_exit)
{
	exits(1, 5, 100 * MS);
	dies(2, SIGSEGV, 102 * MS)->flags = DDP_EXIT_AFTER_ABORT;
	dies(3, SIGABRT, 102 * MS)->flags = DDP_EXIT_AFTER_ABORT;
	ck_assert_uint_eq(named(), 2);
	reset();
	exits(1, 5, 100 * MS);
	dies(2, SIGSEGV, 400 * MS)->flags = DDP_EXIT_AFTER_ABORT;
	ck_assert_uint_eq(named(), 1);
}
END_TEST

START_TEST(signal_later_is_a_reaction)
{
	exits(1, 7, 1000 * MS);
	dies(2, SIGABRT, 1040 * MS);
	ck_assert_uint_eq(named(), 1);
	reset();
	exits(1, 7, 1000 * MS);
	dies(2, SIGABRT, 1040 * MS)->slack_us = 35 * MS;
	ck_assert_uint_eq(named(), 2);
}
END_TEST

/* Its core took 3 s; DYING said so when ABORT came 20 ms after exit 1. */
START_TEST(slow_core)
{
	struct ddp_cause *c;

	exits(1, 1, 1010 * MS);
	exits(2, 1, 1012 * MS);
	c = dies(0, SIGSEGV | 0x80, 1035 * MS);
	c->flags = DDP_EXIT_AFTER_ABORT;
	c->dying = true;
	dies(3, SIGTERM, 1030 * MS)->flags = DDP_EXIT_AFTER_ABORT;
	ck_assert_uint_eq(named(), 0);
	ck_assert_int_eq(ddp_cause_code(&ev[ddp_cause_pick(ev, nev)]), 139);
}
END_TEST

/* Without DYING the same end is an effect. */
START_TEST(after_abort)
{
	exits(1, 3, 1010 * MS);
	dies(0, SIGABRT, 1011 * MS)->flags = DDP_EXIT_AFTER_ABORT;
	ck_assert_uint_eq(named(), 1);
}
END_TEST

START_TEST(sigpipe_is_weak)
{
	dies(1, SIGPIPE, 1000 * MS);
	exits(2, 4, 1006 * MS);
	ck_assert_uint_eq(named(), 2);
	reset();
	dies(1, SIGPIPE, 1000 * MS);
	ck_assert_uint_eq(named(), 1);
	ck_assert_int_eq(ddp_cause_code(&ev[0]), 141);
}
END_TEST

START_TEST(node_lost)
{
	add(DDP_CAUSE_NODE, 100, DDP_STATUS_UNKNOWN, 1000 * MS);
	exits(1, 1, 1002 * MS);
	exits(2, 1, 1500 * MS);
	ck_assert_uint_eq(named(), 100);
	ck_assert_int_eq(ddp_cause_code(&ev[0]), DDP_EXIT_MACHINE);
	reset();
	/* Seen a little late. */
	exits(1, 1, 1000 * MS);
	add(DDP_CAUSE_NODE, 100, DDP_STATUS_UNKNOWN, 1004 * MS);
	ck_assert_uint_eq(named(), 100);
	reset();
	exits(1, 1, 1000 * MS);
	add(DDP_CAUSE_STEPD, 100, DDP_STATUS_UNKNOWN, 1400 * MS);
	ck_assert_uint_eq(named(), 1);
}
END_TEST

START_TEST(port_stolen)
{
	exits(0, 1, 1000 * MS);
	add(DDP_CAUSE_PORT, 100, DDP_STATUS_UNKNOWN, 1300 * MS);
	ck_assert_uint_eq(named(), 100);
	reset();
	dies(0, SIGSEGV, 1000 * MS);
	add(DDP_CAUSE_PORT, 100, DDP_STATUS_UNKNOWN, 1300 * MS);
	ck_assert_uint_eq(named(), 0);
	reset();
	exits(0, 1, 1000 * MS);
	add(DDP_CAUSE_PORT, 100, DDP_STATUS_UNKNOWN, 9300 * MS);
	ck_assert_uint_eq(named(), 0);
}
END_TEST

START_TEST(early_exit)
{
	ck_assert_uint_eq(ddp_cause_of_status(0), 0);
	add(DDP_CAUSE_EARLY, 0, 0, 1000 * MS);
	exits(3, 1, 31050 * MS);
	ck_assert_uint_eq(named(), 0);
	ck_assert_int_eq(ddp_cause_code(&ev[0]), 1);
}
END_TEST

/* srun was killed, its shepherd kills the step, and that is seen first. */
START_TEST(shepherd)
{
	dies(0, SIGKILL, 100 * MS);
	add(DDP_CAUSE_SRUN, DDP_CAUSE_NONE, DDP_STATUS_UNKNOWN, 150 * MS);
	ck_assert_int_eq(ev[ddp_cause_pick(ev, nev)].kind, DDP_CAUSE_SRUN);
	reset();
	dies(0, SIGSEGV, 100 * MS);
	add(DDP_CAUSE_SRUN, DDP_CAUSE_NONE, DDP_STATUS_UNKNOWN, 150 * MS);
	ck_assert_int_eq(ev[ddp_cause_pick(ev, nev)].kind, DDP_CAUSE_SIGNAL);
	reset();
	dies(0, SIGKILL, 100 * MS);
	add(DDP_CAUSE_SRUN, DDP_CAUSE_NONE, DDP_STATUS_UNKNOWN, 1200 * MS);
	ck_assert_int_eq(ev[ddp_cause_pick(ev, nev)].kind, DDP_CAUSE_SIGNAL);
	reset();
	dies(0, SIGKILL, 100 * MS)->flags = DDP_EXIT_OOM;
	add(DDP_CAUSE_SRUN, DDP_CAUSE_NONE, DDP_STATUS_UNKNOWN, 150 * MS);
	ck_assert_int_eq(ev[ddp_cause_pick(ev, nev)].kind, DDP_CAUSE_SIGNAL);
}
END_TEST

START_TEST(codes)
{
	ck_assert_int_eq(ddp_cause_code(exits(0, 255, 1)), 255);
	ck_assert_int_eq(ddp_cause_code(dies(0, SIGKILL, 1)), 137);
	ck_assert_int_eq(ddp_cause_code(add(DDP_CAUSE_UNKNOWN, 0,
					    DDP_STATUS_UNKNOWN, 1)), 1);
	ck_assert_int_eq(ddp_cause_code(add(DDP_CAUSE_LAUNCH, 0,
					    DDP_STATUS_UNKNOWN, 1)), 75);
	ck_assert_int_eq(ddp_cause_code(add(DDP_CAUSE_SRUN, 0,
					    DDP_STATUS_UNKNOWN, 1)), 1);
	ck_assert_uint_eq(ddp_cause_of_status(DDP_STATUS_UNKNOWN),
			  DDP_CAUSE_UNKNOWN);
	ck_assert_uint_eq(ddp_cause_of_status(9), DDP_CAUSE_SIGNAL);
	ck_assert_uint_eq(ddp_cause_of_status(256), DDP_CAUSE_EXIT);
}
END_TEST

START_TEST(suspects)
{
	static const int by_slurm[] = { SIGTERM, SIGKILL, SIGINT, SIGHUP,
		SIGUSR1, SIGUSR2, SIGXCPU };

	for (size_t i = 0; i < CHECK_COUNT(by_slurm); i++) {
		reset();
		ck_assert(ddp_cause_is_suspect(dies(0, by_slurm[i], 1)));
	}
	reset();
	ck_assert(!ddp_cause_is_suspect(dies(0, SIGSEGV, 1)));
	ck_assert(!ddp_cause_is_suspect(dies(0, SIGABRT, 1)));
	ck_assert(!ddp_cause_is_suspect(exits(0, 1, 1)));
	dies(0, SIGKILL, 1)->flags = DDP_EXIT_OOM;
	ck_assert(!ddp_cause_is_suspect(&ev[nev - 1]));
	exits(0, 1, 1)->flags = DDP_EXIT_CAUGHT_TERM;
	ck_assert(ddp_cause_is_suspect(&ev[nev - 1]));
	exits(0, 1, 1)->flags = DDP_EXIT_BEFORE_PLAN;
	ck_assert(ddp_cause_is_suspect(&ev[nev - 1]));
	ck_assert(!ddp_cause_is_suspect(add(DDP_CAUSE_SRUN, 0,
					   DDP_STATUS_UNKNOWN, 1)));
}
END_TEST

/* A rank that says that it aborts. MPI_Abort() has the others killed. */
START_TEST(program_aborts)
{
	add(DDP_CAUSE_PROGRAM, 2, 7 << 8, 1000 * MS);
	dies(1, SIGKILL, 1003 * MS);
	dies(3, SIGTERM, 1004 * MS);
	ck_assert_uint_eq(named(), 2);
	ck_assert_int_eq(ddp_cause_code(&ev[0]), 7);
	ck_assert(!ddp_cause_is_suspect(&ev[0]));
	ck_assert(!ddp_cause_is_machine(&ev[0]));
	reset();	/* NCCL's error about a rank that was killed before */
	add(DDP_CAUSE_PROGRAM, 2, 1 << 8, 1000 * MS);
	dies(1, SIGKILL, 997 * MS);
	ck_assert_uint_eq(named(), 1);
	reset();	/* or that has exited, and is seen a little later */
	add(DDP_CAUSE_PROGRAM, 2, 1 << 8, 1000 * MS);
	exits(1, 7, 1002 * MS);
	ck_assert_uint_eq(named(), 1);
	reset();	/* a fault is nobody's doing */
	add(DDP_CAUSE_PROGRAM, 2, 7 << 8, 1000 * MS);
	dies(1, SIGSEGV, 1002 * MS);
	ck_assert_uint_eq(named(), 1);
	reset();	/* an abort is no success */
	ck_assert_int_eq(ddp_cause_code(add(DDP_CAUSE_PROGRAM, 0, 0, 1)), 1);
	ck_assert_int_eq(ddp_cause_code(add(DDP_CAUSE_NOT_READY, 0,
					   DDP_STATUS_UNKNOWN, 1)),
			 DDP_EXIT_MACHINE);
}
END_TEST

START_TEST(texts)
{
	char buf[64];

	ck_assert_str_eq(ddp_cause_status_text(7 << 8, 0, buf, sizeof(buf)),
			 "exited with code 7");
	ck_assert_str_eq(ddp_cause_status_text(SIGSEGV | 0x80, 0, buf,
					       sizeof(buf)),
			 "killed by SIGSEGV (core dumped)");
	ck_assert_str_eq(ddp_cause_status_text(SIGKILL, DDP_EXIT_OOM, buf,
					       sizeof(buf)),
			 "killed by SIGKILL (out of memory)");
	ck_assert_str_eq(ddp_cause_status_text(DDP_STATUS_UNKNOWN, 0, buf,
					       sizeof(buf)),
			 "ended, nobody could tell how");
	for (unsigned k = 0; k <= DDP_CAUSE_LAST + 1U; k++)
		ck_assert_ptr_nonnull(ddp_cause_name((enum ddp_cause_kind)k));
	ck_assert_str_eq(ddp_cause_name(DDP_CAUSE_NODE), "node-lost");
	ck_assert_str_eq(ddp_cause_name(DDP_CAUSE_PROGRAM), "abort");
	ck_assert_str_eq(ddp_cause_name(DDP_CAUSE_NOT_READY), "not-ready");
	ck_assert_str_eq(ddp_cause_name(DDP_CAUSE_LAST), "controller-stalled");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { nothing, earliest_wins,
		two_within_10_ms, code_1_is_weaker,
		fault_beside_an_exit, signal_later_is_a_reaction, slow_core,
		after_abort, sigpipe_is_weak, node_lost, port_stolen,
		early_exit, shepherd, codes, suspects, program_aborts, texts };

	return check_run("cause", tests, CHECK_COUNT(tests), reset);
}
