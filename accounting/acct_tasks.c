/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks are children of slurmstepd's main thread that Slurm accounts and that
 * run another program than slurmstepd. Before their exec they may wait for
 * long, for ddp-launch's agent for instance; slurmstepd has forked all of them
 * before it lets the first one go.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct.h"
#include "core/ddp_io.h"
#include "core/ddp_proc.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TASKS_MAX 4096
/* Before 23.02 the question who is a task is a poll, and one that is on its way
 * when a very short step ends puts an error on the user's terminal. So it waits
 * for longer than `true` takes; and where the program says that it has GPUs, not
 * for so much longer that what they do meanwhile counts. */
#define QUIET_US 10000
#define QUIET_GPUS_US 3000
/* Who is no task is asked about so often, at most. */
#define AGAIN_US 100000
/* Who has not looked for longer knows nothing. */
#define GAP_MOST_US 100000
#define CHILDREN_TEXT 32768

/* Of this process's main thread; room for their text is the caller's. */
static const char *children(char *buf, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/children",
		 (int)getpid());
	if (ddp_io_read_file(path, buf, size) < 0)
		buf[0] = '\0';
	return buf;
}

static struct acct_task *known(const struct acct_tasks *t, pid_t pid,
			       uint64_t start)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->v[i].id.pid == pid && t->v[i].start == start)
			return &t->v[i];
	return NULL;
}

/* 1: another program than ours, 0: ours, -1: it has none, or it is hidden. */
static int exec_done(pid_t pid)
{
	char path[64], theirs[PATH_MAX], ours[PATH_MAX];
	ssize_t n, m;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, theirs, sizeof(theirs));
	m = readlink("/proc/self/exe", ours, sizeof(ours));
	if (n < 0 || m < 0)
		return -1;
	return n != m || memcmp(theirs, ours, (size_t)n) ? 1 : 0;
}

static int add(struct acct_tasks *t, const struct ddp_gather_task *id,
	       uint64_t start, int64_t exec)
{
	struct acct_task *v;
	int pidfd;
	bool ended;

	if (t->n == t->room) {
		unsigned room = t->room ? 2 * t->room : 16;

		if (room > TASKS_MAX)
			return -1;
		v = realloc(t->v, room * sizeof(*v));
		if (!v)
			return -1;
		t->v = v;
		t->room = room;
	}
	pidfd = (int)syscall(SYS_pidfd_open, id->pid, 0);
	ended = pidfd < 0 && errno == ESRCH;
	t->v[t->n++] = (struct acct_task){ .id = *id, .start = start,
					   .exec = exec, .pidfd = pidfd,
					   .ended = ended };
	return 0;
}

/* It can say what it likes: only how soon it is asked about depends on that. */
static bool says_gpus(pid_t pid)
{
	char *gpus = acct_environ(pid, "SLURM_STEP_GPUS");
	bool any;

	if (!gpus)
		gpus = acct_environ(pid, "SLURM_JOB_GPUS");
	any = gpus != NULL;
	free(gpus);
	return any;
}

/* When to ask about it. Those of one look are alike: one environment is read,
 * not hundreds. */
static int64_t ask_at(const struct acct_tasks *t, pid_t pid, int64_t exec)
{
	const struct acct_seen *last = t->nseen ? &t->seen[t->nseen - 1] : NULL;

	if (ddp_gather_polls_by_task())
		return t->looked;
	if (last && last->exec == exec)
		return last->ask;
	return t->looked + (says_gpus(pid) ? QUIET_GPUS_US : QUIET_US);
}

/* It runs another program; that was not so at the look before, gap us ago.
 * NULL: there is no room. */
static struct acct_seen *note(struct acct_tasks *t, pid_t pid, uint64_t start,
			      int64_t gap)
{
	int64_t exec = t->looked - (gap < GAP_MOST_US ? gap : GAP_MOST_US) / 2;
	struct acct_seen s = { .pid = pid, .start = start, .exec = exec };
	unsigned i;

	for (i = 0; i < t->nseen; i++)
		if (t->seen[i].pid == pid && t->seen[i].start == start)
			break;
	if (i == ACCT_SEEN_MAX)
		return NULL;
	if (i == t->nseen) {
		s.ask = ask_at(t, pid, exec);
		t->seen[t->nseen++] = s;
	}
	t->seen[i].looked = t->looked;
	return &t->seen[i];
}

/* Who is gone was no task: slurmstepd, or a plugin of it, ran a program. */
static void forget_gone(struct acct_tasks *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->nseen; i++)
		if (t->seen[i].looked == t->looked)
			t->seen[n++] = t->seen[i];
	t->nseen = n;
}

/* A program that slurmstepd has started: the first task, or ddp-launch's agent,
 * or a plugin's? True if it is the task. */
static bool is_first(struct acct_tasks *t, pid_t pid, uint64_t start,
		     int64_t gap)
{
	struct acct_seen *s = note(t, pid, start, gap);
	struct ddp_gather_task id;

	if (!s || t->looked < s->ask)
		return false;
	s->ask = t->looked + AGAIN_US;
	return ddp_gather_is_task(pid, &id) && !add(t, &id, start, s->exec);
}

/*
 * Another one of the tasks, or an epilog? To ask is a poll before 23.02, too
 * much for each of hundreds; but all tasks were there when the first one had
 * exec'd, and mostly nobody else.
 */
static bool is_another(struct acct_tasks *t, pid_t pid, uint64_t start,
		       unsigned node_tasks)
{
	struct ddp_gather_task id;

	if (ddp_gather_polls_by_task() || t->children > node_tasks)
		return ddp_gather_is_task(pid, &id) && !add(t, &id, start, 0);
	id = t->v[0].id;
	id.pid = pid;
	return start <= t->newest && !add(t, &id, start, 0);
}

/* Looks at one child. True if it is a new task. */
static bool look_at(struct acct_tasks *t, pid_t pid, unsigned node_tasks,
		    int64_t gap)
{
	struct ddp_proc_stat st;

	if (ddp_proc_stat(pid, &st) || st.ppid != getpid() ||
	    known(t, pid, st.start))
		return false;
	switch (exec_done(pid)) {
	case 0:
		t->pending = true;
		return false;
	case 1:
		return t->n ? is_another(t, pid, st.start, node_tasks) :
			is_first(t, pid, st.start, gap);
	default:
		return false;
	}
}

/* The next pid of a list of children; 0 at its end. */
static pid_t next_pid(const char **s)
{
	char *end;
	long pid = strtol(*s, &end, 10);

	if (end == *s || pid <= 0)
		return 0;
	*s = end;
	return (pid_t)pid;
}

static void note_children(struct acct_tasks *t, const char *s)
{
	struct ddp_proc_stat st;
	pid_t pid;

	while ((pid = next_pid(&s))) {
		if (ddp_proc_stat(pid, &st))
			continue;
		t->children++;
		if (st.start > t->newest)
			t->newest = st.start;
	}
}

unsigned acct_tasks_look(struct acct_tasks *t, unsigned node_tasks)
{
	char text[CHILDREN_TEXT];
	int64_t now = ddp_io_now_us(), gap = t->looked ? now - t->looked : 0;
	const char *s = children(text, sizeof(text));
	unsigned found = 0;
	bool first = !t->n;
	pid_t pid;

	t->looked = now;
	t->pending = false;
	while ((pid = next_pid(&s))) {
		found += look_at(t, pid, node_tasks, gap);
		if (!first || !found)
			continue;
		/* What there is to do then does not wait for the others. */
		note_children(t, text);
		t->pending = true;
		return found;
	}
	forget_gone(t);
	return found;
}

int acct_tasks_look_in(const struct acct_tasks *t)
{
	int64_t now = ddp_io_now_us(), us = INT64_MAX;

	for (unsigned i = 0; i < t->nseen && !t->n; i++)
		if (t->seen[i].ask < us)
			us = t->seen[i].ask;
	if (us == INT64_MAX)
		return -1;
	return us <= now ? 1 : (int)((us - now + 999) / 1000);
}

enum life { ALIVE, ZOMBIE, GONE };

static enum life life(const struct acct_task *k)
{
	struct ddp_proc_stat st;

	if (ddp_proc_stat(k->id.pid, &st) || st.start != k->start ||
	    st.ppid != getpid())
		return GONE;
	return st.state == 'Z' || st.state == 'X' ? ZOMBIE : ALIVE;
}

bool acct_tasks_look_again(struct acct_tasks *t)
{
	bool any = false;

	for (unsigned i = 0; i < t->n; i++) {
		if (t->v[i].ended || t->v[i].pidfd >= 0)
			continue;
		t->v[i].ended = life(&t->v[i]) != ALIVE;
		any = any || !t->v[i].ended;
	}
	return any;
}

void acct_tasks_count(const struct acct_tasks *t, struct acct_count *c)
{
	memset(c, 0, sizeof(*c));
	for (unsigned i = 0; i < t->n; i++)
		switch (life(&t->v[i])) {
		case ALIVE:
			c->alive++;
			break;
		case ZOMBIE:
			c->zombies++;
			break;
		default:
			c->gone++;
		}
}
