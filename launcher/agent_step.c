/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step's processes on this node. One is of the step if its environment
 * says so (job, step and node: on one host several nodes can run), if it is
 * in a group or session of a task, if it is a task, or the child of one that
 * is of the step. Only this user's, and only what is not older than the
 * step's slurmstepd; never this process. A TaskEpilog has the environment of
 * its task, but is slurmstepd's child, and begun after a task's end: it, and
 * what it starts, are slurmstepd's to end.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"

#include "core/ddp_proc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More processes than this are seen in later rounds. */
#define PROCS_MAX 65536
#define DEPTH_MAX 64
/* On a busy node an end is noticed later than slurmstepd has begun what
 * follows it; in ticks, hundredths of a second. */
#define NOTICE_TICKS 20

struct agent_pid *agent_pids_find(const struct agent_pids *p, pid_t pid)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->v[i].pid == pid)
			return &p->v[i];
	return NULL;
}

void agent_pids_add(struct agent_pids *p, pid_t pid, uint64_t until)
{
	struct agent_pid *had = agent_pids_find(p, pid);

	if (had) {
		had->until = until;
		return;
	}
	if (p->n == p->size) {
		unsigned size = p->size ? 2 * p->size : 8;
		struct agent_pid *v = size > 4 * DDP_WIRE_TASKS ? NULL :
				      realloc(p->v, size * sizeof(*v));

		if (!v)
			return;
		p->v = v;
		p->size = size;
	}
	p->v[p->n].pid = pid;
	p->v[p->n++].until = until;
}

/*
 * Is a process that began then, in this group or session, of the step? A
 * number is free again once its last process is gone: who began after the
 * last task in it was seen may be a stranger. (The children of those that
 * did not are found by their parents.)
 */
static bool is_in(const struct agent_pids *p, pid_t number, uint64_t start)
{
	const struct agent_pid *known = agent_pids_find(p, number);

	return known && start <= known->until;
}

/* A process that was seen to be of the step is so without its parent, too. */
static bool was_ours(const struct agent_procs *l, pid_t pid, uint64_t start)
{
	const struct agent_proc *old = agent_procs_find(l, pid);

	return old && old->ours && old->start == start;
}

/* The main thread has ended, others have not. */
static bool is_dead(const struct ddp_proc_stat *st)
{
	return st->state == 'X' || (st->state == 'Z' && st->threads <= 1);
}

struct walk {
	struct agent *a;
	struct agent_procs *list;
	uid_t uid;
	pid_t self;
};

static bool is_task(const struct agent *a, pid_t pid, uint64_t start)
{
	for (uint32_t i = 0; i < a->ntasks; i++)
		if (a->tasks[i].pid == pid && a->tasks[i].life == TASK_LIVE &&
		    (!a->tasks[i].start || a->tasks[i].start == start))
			return true;
	return false;
}

static struct agent_proc *append(struct agent_procs *l)
{
	if (l->n == l->size) {
		size_t size = l->size ? 2 * l->size : 128;
		struct agent_proc *v = size > PROCS_MAX ? NULL :
				       realloc(l->v, size * sizeof(*v));

		if (!v)
			return NULL;
		l->v = v;
		l->size = size;
	}
	return &l->v[l->n++];
}

static int visit(pid_t pid, void *arg)
{
	struct walk *w = arg;
	struct agent *a = w->a;
	struct ddp_proc_step step = { a->conf.job, a->conf.step,
				      a->conf.name };
	struct ddp_proc_status status;
	struct ddp_proc_stat st;
	struct agent_proc *p;

	if (pid == w->self || pid == a->conf.stepd ||
	    ddp_proc_stat(pid, &st) || is_dead(&st) || st.start < a->oldest ||
	    ddp_proc_status(pid, &status) ||
	    (status.uid[0] != w->uid && status.uid[2] != w->uid))
		return 0;
	p = append(w->list);
	if (!p)
		return 1;
	p->pid = pid;
	p->ppid = st.ppid;
	p->start = st.start;
	p->rank = is_task(a, pid, st.start);
	p->spared = !p->rank && st.ppid == a->conf.stepd && a->first_end &&
		    st.start + NOTICE_TICKS >= a->first_end;
	p->ours = p->rank || is_in(&a->groups, st.pgrp, st.start) ||
		  is_in(&a->sessions, st.session, st.start) ||
		  was_ours(&a->abort.seen, pid, st.start) ||
		  was_ours(&a->abort.last, pid, st.start) ||
		  (st.state == 'Z' ? ddp_proc_thread_in_step(pid, &step) :
		   ddp_proc_in_step(pid, &step));
	return 0;
}

static int by_pid(const void *a, const void *b)
{
	const struct agent_proc *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

const struct agent_proc *agent_procs_find(const struct agent_procs *list,
					  pid_t pid)
{
	struct agent_proc key = { .pid = pid };

	if (!list->n)
		return NULL;
	return bsearch(&key, list->v, list->n, sizeof(key), by_pid);
}

/* Children of the step's processes, and theirs. */
static void add_children(struct agent_procs *l)
{
	bool more = true;

	for (unsigned depth = 0; more && depth < DEPTH_MAX; depth++) {
		more = false;
		for (size_t i = 0; i < l->n; i++) {
			struct agent_proc *p = &l->v[i];
			const struct agent_proc *parent =
				agent_procs_find(l, p->ppid);

			if (!parent)
				continue;
			if (parent->spared && !p->spared)
				more = p->spared = true;
			if (parent->ours && !p->ours)
				more = p->ours = true;
		}
	}
	for (size_t i = 0; i < l->n; i++)
		l->v[i].ours &= !l->v[i].spared;
}

int agent_step_list(struct agent *a, struct agent_procs *list)
{
	struct agent_procs now = { NULL, 0, 0 };
	struct walk w = { a, &now, getuid(), getpid() };

	if (!a->oldest) {
		list->n = 0;
		return 0;
	}
	agent_task_groups(a);
	a->walk_from = agent_now_ticks();
	/* Into a list of its own: the old one is looked at meanwhile. */
	if (ddp_proc_walk(w.uid, visit, &w) < 0) {
		free(now.v);
		return -1;
	}
	if (now.n)
		qsort(now.v, now.n, sizeof(*now.v), by_pid);
	add_children(&now);
	a->walk_to = agent_now_ticks();
	free(list->v);
	*list = now;
	return 0;
}
