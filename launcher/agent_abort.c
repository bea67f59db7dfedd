/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the step on this node: processes that use the life-cycle library
 * are told, and end by themselves, in a bounded time; then the signal once to
 * every task and its group, SIGKILL after the grace or as soon as the tasks
 * are gone, to all that is left of the step; again until nothing is left.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"

#include "core/ddp_proc.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tasks at the gate that were just refused may take this long. */
#define LATER_MS 1000
#define SWEEP_US 5000000U
#define ROUND_MAX_MS 64
/* Who ends at the signal has ended by then. */
#define LOOK_MS 20
/* A process in the middle of an exec shows no environment: so many rounds in
 * a row must find nothing. */
#define QUIET 3

static void sweep(struct agent *a);

static void on_timer(evutil_socket_t fd, short what, void *arg);

/* What is already being ended by a signal did not fail because of us. */
static void find_dying(struct agent *a)
{
	struct ddp_msg m = { .type = DDP_MSG_DYING };

	for (uint32_t i = 0; i < a->ntasks; i++) {
		struct agent_task *t = &a->tasks[i];
		struct ddp_proc_status more;
		struct ddp_proc_stat st;

		if (t->life != TASK_LIVE || ddp_proc_stat(t->pid, &st) ||
		    (t->start && st.start != t->start))
			continue;
		if (!(st.flags & (DDP_PROC_DUMPCORE | DDP_PROC_SIGNALED)) &&
		    (ddp_proc_status(t->pid, &more) || !more.dumping))
			continue;
		t->dying = true;
		t->dying_of = st.status;
		m.u.dying.rank = t->rank;
		m.u.dying.when_us = agent_now_us();
		agent_link_send(a, &m);
	}
}

static void signal_task(const struct agent_task *t, int sig)
{
	if (t->pidfd >= 0)
		(void)syscall(SYS_pidfd_send_signal, t->pidfd, sig, NULL, 0);
	else if (t->start)
		(void)kill(t->pid, sig);
}

/*
 * One signal to each process: a task in a group that gets it gets it there.
 * A group is only signalled while a live task is in it.
 */
static void signal_tasks(struct agent *a, int sig)
{
	struct agent_pids done = { NULL, 0, 0 };

	for (uint32_t i = 0; i < a->ntasks; i++) {
		struct agent_task *t = &a->tasks[i];
		struct ddp_proc_stat st;

		if (t->life != TASK_LIVE || ddp_proc_stat(t->pid, &st) ||
		    (t->start && st.start != t->start))
			continue;
		if (st.pgrp <= 1 || st.pgrp == a->stepd_pgrp ||
		    st.pgrp == getpgrp()) {
			signal_task(t, sig);
		} else if (!agent_pids_find(&done, st.pgrp)) {
			agent_pids_add(&done, st.pgrp, 0);
			if (kill(-st.pgrp, sig) && errno != EPERM)
				signal_task(t, sig);
		}
	}
	free(done.v);
}

static uint32_t count_live(const struct agent *a, bool dying_too)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < a->ntasks; i++)
		n += a->tasks[i].life == TASK_LIVE &&
		     (dying_too || !a->tasks[i].dying);
	return n;
}

/* Tasks that take their time: what they have started is known by them, and
 * will not be without them. */
static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	agent_task_poll(a);
	if (a->abort.state == ABORT_GRACE || a->abort.state == ABORT_ORDER)
		(void)agent_step_list(a, &a->abort.seen);
}

/* What is live now is what is stopped. */
static void count_stopped(struct agent *a)
{
	if (!a->abort.counted)
		a->abort.stopped += count_live(a, false);
	a->abort.counted = true;
}

static void first_signal(struct agent *a)
{
	a->abort.state = ABORT_GRACE;
	count_stopped(a);
	if (!count_live(a, true) || !a->abort.grace_ms) {
		sweep(a);
		return;
	}
	agent_task_groups(a);
	signal_tasks(a, a->abort.signal);
	signal_tasks(a, SIGCONT);
	agent_timer(a, &a->abort.look, LOOK_MS, on_look, a);
	agent_timer(a, &a->abort.timer, a->abort.grace_ms, on_timer, a);
}

/* True if there are processes that end by themselves. */
static bool order(struct agent *a)
{
	uint32_t ms = count_live(a, true) ? agent_life_order(a) : 0;

	if (!ms)
		return false;
	a->abort.state = ABORT_ORDER;
	count_stopped(a);
	agent_task_groups(a);
	agent_timer(a, &a->abort.look, LOOK_MS, on_look, a);
	agent_timer(a, &a->abort.timer, ms, on_timer, a);
	return true;
}

void agent_abort_ordered(struct agent *a)
{
	if (a->abort.state == ABORT_ORDER && !agent_life_any(a))
		first_signal(a);
}

void agent_abort_start(struct agent *a, int sig, uint32_t grace_ms,
		       bool later)
{
	struct agent_abort *b = &a->abort;

	if (b->state == ABORT_DONE) {	/* whatever has come since */
		b->stopped = b->others = 0;
		b->counted = false;
	} else if (b->state != ABORT_NO) {
		if (!grace_ms && b->state != ABORT_SWEEP)
			sweep(a);
		return;
	}
	b->signal = sig;
	b->grace_ms = grace_ms;
	find_dying(a);
	if (later && count_live(a, true)) {
		b->state = ABORT_LATER;
		agent_timer(a, &b->timer, LATER_MS, on_timer, a);
	} else if (!order(a)) {
		first_signal(a);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	if (a->abort.state == ABORT_LATER || a->abort.state == ABORT_ORDER)
		first_signal(a);
	else
		sweep(a);
}

void agent_abort_check(struct agent *a)
{
	enum agent_abort_state s = a->abort.state;

	if ((s == ABORT_LATER || s == ABORT_ORDER || s == ABORT_GRACE) &&
	    !count_live(a, true))
		sweep(a);
	else if (s == ABORT_SWEEP && agent_task_all_gone(a))
		agent_timer(a, &a->abort.timer, 0, on_timer, a);
}

/* The process that was listed, not one that has its number now. */
static void kill_proc(const struct agent_proc *p)
{
	int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	struct ddp_proc_stat st;

	if (fd < 0)
		return;
	if (!ddp_proc_stat(p->pid, &st) && st.start == p->start)
		(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	close(fd);
}

/* Returns how many were there; each is counted once as one of `others`. */
static uint32_t kill_all(struct agent *a)
{
	struct agent_procs now = { NULL, 0, 0 };
	uint32_t n = 0;

	if (agent_step_list(a, &now)) {
		free(now.v);
		return 0;
	}
	for (size_t i = 0; i < now.n; i++) {
		const struct agent_proc *p = &now.v[i], *old;

		if (!p->ours)
			continue;
		kill_proc(p);
		n++;
		old = agent_procs_find(&a->abort.last, p->pid);
		if (!p->rank && (!old || !old->ours || old->start != p->start))
			a->abort.others++;
	}
	free(a->abort.last.v);
	a->abort.last = now;
	return n;
}

static void done(struct agent *a, uint32_t left)
{
	struct ddp_msg m = { .type = DDP_MSG_GONE };

	a->abort.state = ABORT_DONE;
	agent_event_free(&a->abort.timer);
	m.u.gone.stopped = a->abort.stopped;
	m.u.gone.others = a->abort.others;
	m.u.gone.left = left;
	agent_link_send(a, &m);
	a->ending = false;	/* it begins anew */
	agent_check(a);
}

static void sweep(struct agent *a)
{
	struct agent_abort *b = &a->abort;
	uint64_t now = agent_now_us();
	uint32_t n, ms;

	if (b->state != ABORT_SWEEP) {
		b->state = ABORT_SWEEP;
		b->give_up_us = now + SWEEP_US;
		b->round = b->quiet = 0;
		agent_task_poll(a);
		if (count_live(a, true))
			(void)agent_step_list(a, &b->seen);
	}
	for (uint32_t i = 0; i < a->ntasks; i++)
		if (a->tasks[i].life == TASK_LIVE)
			signal_task(&a->tasks[i], SIGKILL);
	n = kill_all(a);
	b->quiet = n ? 0 : b->quiet + 1;
	if (b->quiet >= QUIET && agent_task_all_gone(a)) {
		done(a, 0);
	} else if (now >= b->give_up_us) {
		/* A task can be root's still, before its program starts. */
		done(a, n ? n : count_live(a, true));
	} else {
		ms = b->quiet ? 2 : 1U << (b->round < 6 ? b->round++ : 6);
		agent_timer(a, &b->timer, ms < ROUND_MAX_MS ? ms :
			    ROUND_MAX_MS, on_timer, a);
	}
}

void agent_abort_free(struct agent *a)
{
	agent_event_free(&a->abort.timer);
	agent_event_free(&a->abort.look);
	free(a->abort.last.v);
	free(a->abort.seen.v);
	memset(&a->abort.last, 0, sizeof(a->abort.last));
	memset(&a->abort.seen, 0, sizeof(a->abort.seen));
}
