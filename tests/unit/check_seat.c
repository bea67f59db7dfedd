/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task takes its place: on this machine's CPUs, in processes of their own.
 * And the slots of the gate, in which questions and answers are.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_gate.h"
#include "core/ddp_io.h"
#include "core/ddp_seat.h"
#include "tests/unit/check_main.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static ddp_cpus before;		/* may be used */
static unsigned first, second;	/* two of them; the same if there is one */
static struct ddp_placed placed;
static struct ddp_ask ask;
static struct ddp_err err;

static bool in(const ddp_cpus set, unsigned cpu)
{
	return CPU_ISSET_S(cpu, sizeof(ddp_cpus), (const cpu_set_t *)set);
}

static void put(ddp_cpus set, unsigned cpu)
{
	CPU_SET_S(cpu, sizeof(ddp_cpus), (cpu_set_t *)set);
}

static void now(ddp_cpus set)
{
	memset(set, 0, sizeof(ddp_cpus));
	ck_assert(!sched_getaffinity(0, sizeof(ddp_cpus), (cpu_set_t *)set));
}

static void setup(void)
{
	unsigned cpu = 0;

	memset(before, 0, sizeof(before));
	(void)sched_getaffinity(0, sizeof(before), (cpu_set_t *)before);
	while (cpu < DDP_PLACE_CPUS - 1 && !in(before, cpu))
		cpu++;
	first = second = cpu;
	while (++cpu < DDP_PLACE_CPUS && second == first)
		if (in(before, cpu))
			second = cpu;
	memset(&placed, 0, sizeof(placed));
	memset(&ask, 0, sizeof(ask));
	memset(&err, 0, sizeof(err));
}

static void is_now(unsigned cpu)
{
	ddp_cpus want = { 0 }, got;

	put(want, cpu);
	now(got);
	ck_assert_mem_eq(want, got, sizeof(got));
}

START_TEST(taken)
{
	placed.set_cpus = true;
	put(placed.cpus, second);
	ck_assert_msg(!ddp_seat_take(&placed, &err), "%s", err.text);
	is_now(second);
	/* Those that may not be used are left out. */
	put(placed.cpus, DDP_PLACE_CPUS - 1);
	ck_assert_msg(!ddp_seat_take(&placed, &err), "%s", err.text);
	is_now(second);
}
END_TEST

START_TEST(nothing_to_take)
{
	ddp_cpus got;

	put(placed.cpus, first);	/* but set_cpus is not set */
	ck_assert(!ddp_seat_take(&placed, &err));
	now(got);
	ck_assert_mem_eq(before, got, sizeof(got));
	memset(placed.cpus, 0, sizeof(placed.cpus));
	placed.set_cpus = true;
	ck_assert(!ddp_seat_take(&placed, &err));
	now(got);
	ck_assert_mem_eq(before, got, sizeof(got));
}
END_TEST

START_TEST(no_cpu_of_it)
{
	ddp_cpus got;

	placed.set_cpus = placed.set_nodes = true;
	put(placed.cpus, DDP_PLACE_CPUS - 1);
	placed.nodes[0] = 1;
	ck_assert_int_eq(ddp_seat_take(&placed, &err), -1);
	ck_assert(strstr(err.text, "cannot be taken"));
	now(got);
	ck_assert_mem_eq(before, got, sizeof(got));
}
END_TEST

START_TEST(looked)
{
	ddp_cpus one = { 0 }, got;
	char dir[] = "/tmp/ddp-seat-XXXXXX", path[64];
	static const char *const files[] = { "nvidia0", "nvidia3", "nvidia63",
		"nvidia64", "nvidiactl", "dri/renderD128", "dri/renderD191",
		"dri/renderD192" };

	put(one, second);
	ck_assert(!sched_setaffinity(0, sizeof(one), (cpu_set_t *)one));
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_msg(!ddp_seat_look(&ask, dir, &err), "%s", err.text);
	is_now(second);
	ck_assert_mem_eq(ask.cpus, one, sizeof(one));
	ck_assert(in(ask.widest, first) && in(ask.widest, second));
	ck_assert(!ask.there && !ask.open && !ask.render_there);
	(void)snprintf(path, sizeof(path), "%s/dev", dir);
	ck_assert(!mkdir(path, 0755));
	(void)snprintf(path, sizeof(path), "%s/dev/dri", dir);
	ck_assert(!mkdir(path, 0755));
	for (unsigned i = 0; i < CHECK_COUNT(files); i++) {
		int fd;

		(void)snprintf(path, sizeof(path), "%s/dev/%s", dir, files[i]);
		fd = open(path, O_CREAT | O_WRONLY, i == 1 ? 0444 : 0666);
		ck_assert_int_ge(fd, 0);
		close(fd);
	}
	/* Looked for only by who has GPUs. */
	ck_assert(!ddp_seat_look(&ask, dir, &err) && !ask.there);
	ask.list_set = true;
	ck_assert(!ddp_seat_look(&ask, dir, &err));
	ck_assert(ask.there == (1 | 1 << 3 | 1ULL << 63));
	ck_assert(ask.open == (geteuid() ? 1 | 1ULL << 63 : ask.there));
	ck_assert(ask.render_there == (1 | 1ULL << 63));
	ck_assert(ask.render_open == ask.render_there);
	now(got);
	ck_assert_mem_eq(got, one, sizeof(one));
	for (unsigned i = 0; i < CHECK_COUNT(files); i++) {
		(void)snprintf(path, sizeof(path), "%s/dev/%s", dir, files[i]);
		(void)unlink(path);
	}
	(void)snprintf(path, sizeof(path), "%s/dev/dri", dir);
	(void)rmdir(path);
	(void)snprintf(path, sizeof(path), "%s/dev", dir);
	(void)rmdir(path);
	(void)rmdir(dir);
}
END_TEST

/* In the process itself: policy and first node, as an exit code. -1: none. */
static int policy_now(void)
{
	ddp_nodes nodes = { 0 };
	int policy = -1;

	if (syscall(SYS_get_mempolicy, &policy, nodes, DDP_PLACE_NODES, NULL,
		    0))
		return -1;
	return policy * 16 + (nodes[0] ? __builtin_ctzl(nodes[0]) : 15);
}

static int in_child(int (*act)(void))
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(act());
	ck_assert(!ddp_io_wait(pid, &status));
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int take_and_tell(void)
{
	return ddp_seat_take(&placed, &err) ? 255 : policy_now();
}

/* 1: preferred; 5: the same of many; 0: the default. */
START_TEST(memory)
{
	int got;

	if (policy_now() < 0) {
		puts("# get_mempolicy() is forbidden here: not tested");
		return;
	}
	placed.set_cpus = placed.set_nodes = true;
	put(placed.cpus, first);
	placed.nodes[0] = 1;
	got = in_child(take_and_tell);
	ck_assert_msg(got == 16 || got == 5 * 16, "%d", got);
	/* A node that there is not changes nothing. */
	memset(placed.nodes, 0, sizeof(placed.nodes));
	placed.nodes[DDP_PLACE_WORDS(DDP_PLACE_NODES) - 1] = 1UL << 62;
	ck_assert_int_eq(in_child(take_and_tell), 15);
	/* With one that there is, it is left out. */
	placed.nodes[0] = 1;
	got = in_child(take_and_tell);
	ck_assert_msg(got == 16 || got == 5 * 16, "%d", got);
	placed.set_nodes = false;
	ck_assert_int_eq(in_child(take_and_tell), 15);
}
END_TEST

/* A child that has taken the place, or not; its /proc directory. */
static int child_at(bool take, pid_t *pid)
{
	char path[32];
	int p[2], fd;
	char c;

	ck_assert(!pipe(p));
	*pid = fork();
	if (!*pid) {
		if (take && ddp_seat_take(&placed, &err))
			_exit(1);
		(void)!write(p[1], "", 1);
		for (;;)
			pause();
	}
	close(p[1]);
	ck_assert_int_eq(read(p[0], &c, 1), 1);
	close(p[0]);
	(void)snprintf(path, sizeof(path), "/proc/%d", (int)*pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void end(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	ck_assert(!ddp_io_wait(pid, &status));
}

START_TEST(verified)
{
	pid_t pid;
	int fd;

	placed.set_cpus = placed.set_nodes = true;
	put(placed.cpus, second);
	placed.nodes[0] = 1;
	fd = child_at(true, &pid);
	ck_assert_msg(ddp_seat_verify(fd, &placed, &err) == 0, "%s", err.text);
	memset(placed.cpus, 0, sizeof(placed.cpus));
	put(placed.cpus, second ? second - 1 : second + 1);
	ck_assert_int_eq(ddp_seat_verify(fd, &placed, &err), -1);
	ck_assert(strstr(err.text, "which are not those of its place"));
	end(pid);
	ck_assert_int_eq(ddp_seat_verify(fd, &placed, &err), 1);
	ck_assert(strstr(err.text, "/proc does not show"));
	close(fd);
	/* Not moved. */
	memset(placed.cpus, 0, sizeof(placed.cpus));
	memcpy(placed.cpus, before, sizeof(placed.cpus));
	fd = child_at(false, &pid);
	if (policy_now() >= 0) {
		ck_assert_int_eq(ddp_seat_verify(fd, &placed, &err), -1);
		ck_assert(strstr(err.text, "memory policy is default"));
	}
	placed.set_nodes = false;
	ck_assert_int_eq(ddp_seat_verify(fd, &placed, &err), 0);
	placed.set_cpus = false;
	memset(placed.cpus, 0, sizeof(placed.cpus));
	ck_assert_int_eq(ddp_seat_verify(fd, &placed, &err), 0);
	end(pid);
	close(fd);
	placed.set_cpus = true;		/* no directory of a process */
	ck_assert_int_eq(ddp_seat_verify(-1, &placed, &err), 1);
}
END_TEST

static struct ddp_gate g;

START_TEST(slots)
{
	struct ddp_gate none = DDP_GATE_NONE;

	ck_assert_msg(!ddp_gate_make(&g, &err), "%s", err.text);
	ck_assert_int_eq(ddp_gate_get_ask(&g, 0, &ask), -1);
	ck_assert_int_eq(ddp_gate_get_placed(&g, 0, &placed), -1);
	memset(&ask, 'x', sizeof(ask));
	ask.valid = 1;
	ask.rank = 7;
	ck_assert(!ddp_gate_put_ask(&g, 3, &ask));
	memset(&ask, 0, sizeof(ask));
	ck_assert_int_eq(ddp_gate_get_ask(&g, 2, &ask), -1);
	ck_assert(!ddp_gate_get_ask(&g, 3, &ask));
	ck_assert_uint_eq(ask.rank, 7);
	ck_assert_uint_eq(strlen(ask.list), DDP_PLACE_LIST - 1);
	ck_assert_uint_eq(strlen(ask.cores), sizeof(ask.cores) - 1);
	ck_assert(ask.list_set && ask.req.explain);
	memset(&placed, 'x', sizeof(placed));
	ck_assert(!ddp_gate_put_placed(&g, 3, &placed));
	ck_assert_int_eq(ddp_gate_get_placed(&g, 3, &placed), -1);
	for (unsigned s = DDP_PLACE_NOTHING; s <= DDP_PLACE_REFUSED + 1; s++) {
		placed.state = s;
		ck_assert(!ddp_gate_put_placed(&g, 3, &placed));
		ck_assert_int_eq(ddp_gate_get_placed(&g, 3, &placed),
				 s == DDP_PLACE_DONE || s == DDP_PLACE_REFUSED ?
				 0 : -1);
	}
	ask.valid = 2;
	ck_assert(!ddp_gate_put_ask(&g, 3, &ask));
	ck_assert_int_eq(ddp_gate_get_ask(&g, 3, &ask), -1);
	/* The last, and beyond. */
	ask.valid = 1;
	placed.state = DDP_PLACE_DONE;
	ck_assert(!ddp_gate_put_ask(&g, DDP_PLACE_RANKS - 1, &ask));
	ck_assert(!ddp_gate_put_placed(&g, DDP_PLACE_RANKS - 1, &placed));
	ck_assert(!ddp_gate_get_placed(&g, DDP_PLACE_RANKS - 1, &placed));
	ck_assert(!ddp_gate_get_ask(&g, DDP_PLACE_RANKS - 1, &ask));
	ck_assert(ddp_gate_put_ask(&g, DDP_PLACE_RANKS, &ask));
	ck_assert(ddp_gate_put_placed(&g, UINT32_MAX, &placed));
	ck_assert(ddp_gate_get_ask(&g, DDP_PLACE_RANKS, &ask));
	ck_assert(ddp_gate_get_placed(&g, UINT32_MAX, &placed));
	ddp_gate_close(&g);
	ck_assert(ddp_gate_put_ask(&none, 0, &ask));
	ck_assert(ddp_gate_get_placed(&none, 0, &placed));
}
END_TEST

static int limited(void)
{
	struct rlimit r = { 1 << 20, 1 << 20 };

	if (setrlimit(RLIMIT_FSIZE, &r))
		return 2;
	ask.valid = 1;
	placed.state = DDP_PLACE_DONE;
	if (!ddp_gate_put_ask(&g, DDP_PLACE_RANKS - 1, &ask) ||
	    !ddp_gate_put_placed(&g, DDP_PLACE_RANKS - 1, &placed))
		return 3;
	return 0;
}

static int limited_before(void)
{
	struct rlimit r = { 16 << 20, 16 << 20 };

	if (setrlimit(RLIMIT_FSIZE, &r) || ddp_gate_make(&g, &err))
		return 2;
	ask.valid = 1;
	placed.state = DDP_PLACE_DONE;
	if (!ddp_gate_put_ask(&g, 0, &ask) || !ddp_gate_get_ask(&g, 0, &ask) ||
	    !ddp_gate_put_placed(&g, 0, &placed) ||
	    !ddp_gate_get_placed(&g, 0, &placed))
		return 3;
	return ddp_gate_answer(&g, DDP_GATE_STATELESS, 0, "", 0) ? 4 : 0;
}

/* SIGXFSZ would end the task, or the agent. */
START_TEST(file_size_limit)
{
	ck_assert_msg(!ddp_gate_make(&g, &err), "%s", err.text);
	ck_assert_int_eq(in_child(limited), 0);
	ck_assert_int_eq(in_child(limited_before), 0);
	ddp_gate_close(&g);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { slots, file_size_limit, memory,
		nothing_to_take, no_cpu_of_it, taken, looked, verified };
	size_t n = CHECK_COUNT(tests);

	setup();
	if (first != second)
		return check_run("seat", tests, n, setup);
	/* The last three want a second CPU. */
	if (check_run("seat", tests, n - 3, setup))
		return EXIT_FAILURE;
	puts("one CPU only may be used here: moves are not tested");
	return 77;
}
