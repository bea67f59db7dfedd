/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which children of slurmstepd are tasks, and when the first one began: this
 * process plays slurmstepd, its children are real ones. A task waits before its
 * exec; slurmstepd also runs programs that are none.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct.h"
#include "compat/ddp_compat_jobacct.h"
#include "core/ddp_io.h"
#include "tests/unit/check_main.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY (ACCT_SEEN_MAX + 44)
#define WAIT_MS 20000

static struct acct_tasks tasks;
static struct child {
	pid_t pid;
	int go;			/* it execs when this is closed */
	bool task;
} child[MANY];
static unsigned nchild, asked;

/* --- what slurmstepd brings --- */

struct gather_jobacct *jobacct_gather_stat_task(pid_t pid, bool update);
void jobacctinfo_destroy(void *p);

struct gather_jobacct *jobacct_gather_stat_task(pid_t pid, bool update)
{
	static uint32_t ids[1];
	struct gather_jobacct *copy;

	(void)update;
	asked++;
	for (unsigned i = 0; i < nchild; i++) {
		if (child[i].pid != pid || !child[i].task)
			continue;
		copy = calloc(1, sizeof(*copy));
		ck_assert_ptr_nonnull(copy);
		copy->tres_ids = ids;
		copy->ntres = 1;
		return copy;
	}
	return NULL;
}

void jobacctinfo_destroy(void *p)
{
	free(p);
}

/* --- children --- */

static unsigned forked(bool task)
{
	int fds[2];
	pid_t pid;

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		char byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[1]);
		for (unsigned i = 0; i < nchild; i++)
			close(child[i].go);
		(void)!read(fds[0], &byte, 1);
		execl("/bin/sleep", "sleep", "60", (char *)NULL);
		_exit(127);
	}
	ck_assert_int_gt(pid, 0);
	close(fds[0]);
	child[nchild] = (struct child){ pid, fds[1], task };
	return nchild++;
}

/* Until its exec is over. */
static void released(unsigned i)
{
	int64_t end = ddp_io_now_ms() + WAIT_MS;
	char path[64], theirs[256], ours[256];
	ssize_t n, m = readlink("/proc/self/exe", ours, sizeof(ours));

	close(child[i].go);
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)child[i].pid);
	do {
		ck_assert_int_lt(ddp_io_now_ms(), end);
		usleep(500);
		n = readlink(path, theirs, sizeof(theirs));
	} while (n == m && !memcmp(theirs, ours, (size_t)n));
}

static void killed(unsigned i)
{
	ck_assert_int_eq(kill(child[i].pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child[i].pid, NULL, 0), child[i].pid);
}

/* Looks until there is a task. */
static unsigned looked(unsigned node_tasks)
{
	int64_t end = ddp_io_now_ms() + WAIT_MS;
	unsigned found;

	while (!(found = acct_tasks_look(&tasks, node_tasks))) {
		ck_assert_int_lt(ddp_io_now_ms(), end);
		usleep(1000);
	}
	return found;
}

/* --- tests --- */

/* The agent of ddp-launch, say: it has run, and is gone, before the tasks. */
START_TEST(a_program_before_the_tasks)
{
	unsigned agent = forked(false), rank;
	int64_t before;

	released(agent);
	for (int i = 0; i < 40; i++) {
		ck_assert_uint_eq(acct_tasks_look(&tasks, 0), 0);
		usleep(1000);
	}
	ck_assert_uint_eq(tasks.nseen, 1);
	killed(agent);
	rank = forked(true);
	ck_assert_uint_eq(acct_tasks_look(&tasks, 0), 0);
	ck_assert_uint_eq(tasks.nseen, 0);
	ck_assert(tasks.pending);
	before = tasks.looked;
	released(rank);
	ck_assert_uint_eq(looked(0), 1);
	ck_assert_int_eq(tasks.v[0].id.pid, child[rank].pid);
	ck_assert_int_ge(tasks.v[0].exec, before);
	ck_assert_int_le(tasks.v[0].exec, ddp_io_now_us());
}
END_TEST

/* One that lives on is asked about now and then, not at every look. */
START_TEST(a_program_that_stays)
{
	unsigned other = forked(false), rank = forked(true);
	int64_t before;

	released(other);
	do {
		ck_assert_uint_eq(acct_tasks_look(&tasks, 0), 0);
	} while (!asked);
	before = tasks.looked;
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(acct_tasks_look(&tasks, 0), 0);
	ck_assert_int_le(asked, 1 + (tasks.looked - before) / 100000);
	ck_assert_int_gt(acct_tasks_look_in(&tasks), 0);
	before = tasks.looked;
	released(rank);
	ck_assert_uint_eq(looked(0), 1);
	ck_assert_int_eq(tasks.v[0].id.pid, child[rank].pid);
	ck_assert_int_ge(tasks.v[0].exec, before);
}
END_TEST

/* Before 23.02 the question is a poll: not while it may be over soon. */
START_TEST(not_asked_at_once_where_that_is_a_poll)
{
	unsigned rank = forked(true), found;

	ck_assert_int_eq(acct_tasks_look_in(&tasks), -1);
	released(rank);
	found = acct_tasks_look(&tasks, 0);
	if (ddp_gather_polls_by_task()) {
		ck_assert_uint_eq(found, 1);
		return;
	}
	ck_assert_uint_eq(found, 0);
	ck_assert_uint_eq(asked, 0);
	ck_assert_int_gt(acct_tasks_look_in(&tasks), 0);
	ck_assert_int_le(acct_tasks_look_in(&tasks), 10);
	ck_assert_uint_eq(looked(0), 1);
	ck_assert_uint_eq(asked, 1);
	ck_assert_int_eq(acct_tasks_look_in(&tasks), -1);
}
END_TEST

START_TEST(the_others_and_who_comes_later)
{
	unsigned first = forked(true), second = forked(true), epilog;

	released(first);
	ck_assert_uint_eq(looked(2), 1);
	released(second);
	ck_assert_uint_eq(looked(2), 1);
	ck_assert_uint_eq(tasks.n, 2);
	/* Of another start time, in clock ticks. */
	usleep(30000);
	epilog = forked(false);
	released(epilog);
	ck_assert_uint_eq(acct_tasks_look(&tasks, 2), 0);
	ck_assert_uint_eq(acct_tasks_look(&tasks, 2), 0);
	ck_assert_uint_eq(tasks.n, 2);
}
END_TEST

/* Where each is asked about: because a release does, or as there are more
 * children than the step has tasks. */
START_TEST(none_of_many_is_passed_over)
{
	for (unsigned i = 0; i < MANY; i++)
		(void)forked(true);
	for (unsigned i = 0; i < MANY; i++)
		released(i);
	ck_assert_uint_eq(looked(1), 1);
	ck_assert_uint_eq(acct_tasks_look(&tasks, 1), MANY - 1);
	ck_assert(!tasks.pending);
	for (unsigned i = 0; i < MANY; i++)
		killed(i);
}
END_TEST

int main(void)
{
	const TTest *const list[] = {
		a_program_before_the_tasks,
		a_program_that_stays,
		not_asked_at_once_where_that_is_a_poll,
		the_others_and_who_comes_later,
		none_of_many_is_passed_over,
	};

	return check_run("acct_tasks", list, CHECK_COUNT(list), NULL);
}
