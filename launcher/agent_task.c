/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks of this node. A pidfd says at once that one has ended; its wait
 * status is in /proc until slurmstepd reaps it, and else comes from
 * slurmstepd, a little later. Messages may be missing or come in any order.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"

#include "core/ddp_cgmem.h"
#include "core/ddp_proc.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* slurmstepd has reaped the task and will tell its status: on a busy machine
 * late, and after its epilogs. When it dies there is nothing to wait for. */
#define STATUS_MS 3600000

int agent_task_init(struct agent *a)
{
	if (!a->conf.tasks || a->conf.tasks > DDP_WIRE_TASKS)
		return -1;
	a->tasks = calloc(a->conf.tasks, sizeof(*a->tasks));
	if (!a->tasks)
		return -1;
	a->ntasks = a->conf.tasks;
	for (uint32_t i = 0; i < a->ntasks; i++) {
		a->tasks[i].a = a;
		a->tasks[i].local = i;
		a->tasks[i].pidfd = -1;
		a->tasks[i].status = DDP_STATUS_UNKNOWN;
		a->tasks[i].lead_depth = UINT32_MAX;
	}
	return 0;
}

void agent_task_free(struct agent *a)
{
	for (uint32_t i = 0; i < a->ntasks; i++) {
		agent_event_free(&a->tasks[i].event);
		if (a->tasks[i].pidfd >= 0)
			close(a->tasks[i].pidfd);
		free(a->tasks[i].cgmem);
		free(a->tasks[i].why);
	}
	free(a->tasks);
	free(a->groups.v);
	free(a->sessions.v);
	a->tasks = NULL;
	a->ntasks = 0;
}

bool agent_task_all_gone(const struct agent *a)
{
	for (uint32_t i = 0; i < a->ntasks; i++) {
		enum agent_life l = a->tasks[i].life;

		if (l != TASK_ENDED && (l != TASK_NONE || !a->stepd_gone))
			return false;
	}
	return a->have_conf;
}

static void send_exit(struct agent_task *t)
{
	struct ddp_msg m = { .type = DDP_MSG_EXIT };

	m.u.exit.rank = t->rank;
	m.u.exit.pid = (uint32_t)t->pid;
	m.u.exit.status = t->status;
	m.u.exit.when_us = t->when_us;
	m.u.exit.flags = t->flags;
	if (t->why)
		(void)ddp_text_copy(m.u.exit.text, sizeof(m.u.exit.text),
				    t->why);
	else if (t->status)
		agent_dir_message(t->a, t->rank, m.u.exit.text,
				  sizeof(m.u.exit.text));
	agent_link_send(t->a, &m);
	t->told = true;
}

static void send_ready(struct agent *a)
{
	struct ddp_msg m = { .type = DDP_MSG_READY };
	struct ddp_wire_task *list = calloc(a->ntasks, sizeof(*list));

	for (uint32_t i = 0; list && i < a->ntasks; i++) {
		list[i].rank = a->tasks[i].rank;
		list[i].local = i;
		list[i].pid = (uint32_t)a->tasks[i].pid;
	}
	m.u.ready.node = a->node;
	m.u.ready.now_us = agent_now_us();
	m.u.ready.ntasks = a->ntasks;
	m.u.ready.tasks = list;
	if (list)
		agent_link_send(a, &m);
	a->ready_sent = true;
	free(list);
}

static bool can_be_ready(const struct agent *a)
{
	if (a->ready_sent || a->answered || a->nhere < a->ntasks ||
	    agent_place_pending(a))
		return false;
	for (uint32_t i = 0; i < a->ntasks; i++)
		if (a->tasks[i].life == TASK_ENDED)
			return false;
	return true;
}

void agent_task_tell(struct agent *a)
{
	if (a->link.state != LINK_UP)
		return;
	if (can_be_ready(a))
		send_ready(a);
	for (uint32_t i = 0; i < a->ntasks; i++)
		if (a->tasks[i].life == TASK_ENDED && !a->tasks[i].told)
			send_exit(&a->tasks[i]);
}

void agent_task_why(struct agent *a, uint32_t local, const char *why)
{
	if (!a->tasks[local].why)
		a->tasks[local].why = strdup(why);
}

uint64_t agent_now_ticks(void)
{
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * hz + (uint64_t)t.tv_nsec * hz / 1000000000;
}

/* slurmstepd's own group and session are not the step's. */
static void note_groups(struct agent *a, const struct ddp_proc_stat *st)
{
	uint64_t now = agent_now_ticks();

	if (st->pgrp > 1 && st->pgrp != a->stepd_pgrp &&
	    st->pgrp != getpgrp())
		agent_pids_add(&a->groups, st->pgrp, now);
	if (st->session > 1 && st->session != a->stepd_session &&
	    st->session != getsid(0))
		agent_pids_add(&a->sessions, st->session, now);
}

static void note_handlers(struct agent_task *t,
			  const struct ddp_proc_status *st)
{
	if (st->have_caught && st->caught >> (SIGTERM - 1) & 1)
		t->flags |= DDP_EXIT_CAUGHT_TERM;
}

/* A zombie tells it too, but slurmstepd may have been quicker. */
void agent_task_sample(struct agent *a)
{
	struct ddp_proc_status st;

	agent_task_groups(a);
	for (uint32_t i = 0; a->opened && i < a->ntasks; i++) {
		struct agent_task *t = &a->tasks[i];

		if (t->life == TASK_LIVE &&
		    !(t->flags & DDP_EXIT_CAUGHT_TERM) &&
		    !ddp_proc_status(t->pid, &st))
			note_handlers(t, &st);
	}
}

void agent_task_groups(struct agent *a)
{
	struct ddp_proc_stat st;

	for (uint32_t i = 0; i < a->ntasks; i++) {
		const struct agent_task *t = &a->tasks[i];

		if (t->life == TASK_LIVE && !ddp_proc_stat(t->pid, &st) &&
		    st.start == t->start)
			note_groups(a, &st);
	}
}

static void note_oom(struct agent_task *t)
{
	if (t->cgmem && WIFSIGNALED(t->status) &&
	    WTERMSIG(t->status) == SIGKILL &&
	    !(t->flags & DDP_EXIT_AFTER_ABORT) &&
	    ddp_cgmem_kills(t->cgmem) > t->kills)
		t->flags |= DDP_EXIT_OOM;
}

static bool is_signal(uint32_t status)
{
	return status != DDP_STATUS_UNKNOWN && WIFSIGNALED(status);
}

static void ended(struct agent_task *t)
{
	struct agent *a = t->a;

	agent_event_free(&t->event);
	if (t->pidfd >= 0)
		close(t->pidfd);
	t->pidfd = -1;
	t->life = TASK_ENDED;
	/* SIGKILL that cuts a core dump short takes the cause's place. */
	if (t->dying && is_signal(t->dying_of) && is_signal(t->status) &&
	    WTERMSIG(t->status) == SIGKILL)
		t->status = t->dying_of & ~0x80U;
	if (t->status != DDP_STATUS_UNKNOWN)
		note_oom(t);
	/* The reason, if there is one, comes before what it led to. */
	if (!t->rank && t->status)
		agent_port_failed(a);
	agent_task_tell(a);
	agent_abort_check(a);
	agent_check(a);
}

/* When a task ended that is seen to have ended now: perhaps while all
 * processes were looked at. */
static uint64_t end_ticks(const struct agent *a)
{
	uint64_t now = agent_now_ticks();

	return a->walk_to && now <= a->walk_to + 1 ? a->walk_from : now;
}

static void set_when(struct agent_task *t)
{
	if (t->when_us)
		return;
	t->when_us = agent_now_us();
	if (!t->a->first_end)
		t->a->first_end = end_ticks(t->a);
	if (t->a->abort.state != ABORT_NO)
		t->flags |= DDP_EXIT_AFTER_ABORT;
	if (!t->a->opened)
		t->flags |= DDP_EXIT_BEFORE_PLAN;
}

/*
 * Status and signal handlers of a zombie; 0 or -1. The kernel shows status 0
 * where we may not see it: after a setuid program, before the exec.
 */
static int read_zombie(struct agent_task *t)
{
	struct ddp_proc_status more;
	struct ddp_proc_stat st;

	if (ddp_proc_stat(t->pid, &st) || (st.state != 'Z' && st.state != 'X')
	    || (t->start && st.start != t->start))
		return -1;
	note_groups(t->a, &st);
	if (!ddp_proc_status(t->pid, &more))
		note_handlers(t, &more);
	if (!st.status && !ddp_proc_open_to_us(t->pid))
		return -1;
	t->status = st.status;
	return 0;
}

static void on_no_status(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	ended(arg);
}

/* Its pidfd says that it has ended. */
static void on_pidfd(evutil_socket_t fd, short what, void *arg)
{
	struct agent_task *t = arg;
	struct agent *a = t->a;

	(void)fd;
	(void)what;
	/* Its last word may be waiting there. */
	agent_gate_drain(a);
	if (t->life != TASK_LIVE)
		return;
	set_when(t);
	agent_event_free(&t->event);
	t->life = TASK_REAPED;
	if (!read_zombie(t) || !ddp_proc_reaped(t->pidfd, &t->status) ||
	    a->stepd_gone) {
		ended(t);
		return;
	}
	agent_timer(a, &t->event, STATUS_MS, on_no_status, t);
	agent_abort_check(a);
}

static void watch(struct agent_task *t)
{
	struct agent *a = t->a;

	if (t->pidfd < 0)
		return;
	t->event = event_new(a->base, t->pidfd, EV_READ, on_pidfd, t);
	if (!t->event || event_add(t->event, NULL))
		event_base_loopbreak(a->base);
}

/* `sure`: slurmstepd holds it by its pidfd; else it must be its child. */
static void meet(struct agent_task *t, pid_t pid, bool sure)
{
	struct ddp_proc_stat st;

	t->life = TASK_LIVE;
	t->pid = pid;
	if (!ddp_proc_stat(pid, &st) && (sure || st.ppid == t->a->conf.stepd))
		t->start = st.start;
}

void agent_task_add(struct agent *a, const struct ddp_gate_msg *m, int pidfd)
{
	struct agent_task *t = &a->tasks[m->local];

	if (t->life != TASK_NONE) {
		if (pidfd >= 0)
			close(pidfd);
		return;
	}
	meet(t, (pid_t)m->pid, pidfd >= 0);
	t->rank = m->rank;
	t->pidfd = pidfd;
	if (pidfd < 0 && t->start)
		t->pidfd = (int)syscall(SYS_pidfd_open, t->pid, 0);
	watch(t);
}

void agent_task_here(struct agent *a, const struct ddp_gate_msg *m)
{
	struct agent_task *t = &a->tasks[m->local];
	struct ddp_proc_stat st;

	if (t->here)
		return;
	if (t->life == TASK_NONE)
		agent_task_add(a, m, -1);
	t->here = true;
	t->rank = m->rank;
	a->node = m->node;
	if (!ddp_proc_stat(t->pid, &st) && st.start == t->start)
		note_groups(a, &st);
	a->nhere++;
	agent_place_here(a, m->status & DDP_GATE_ASKS,
			 m->status & DDP_GATE_GPUS);
	agent_task_tell(a);
}

/* slurmstepd has reaped it: the exact status, but not the exact time. */
void agent_task_exited(struct agent *a, const struct ddp_gate_msg *m)
{
	struct agent_task *t = &a->tasks[m->local];

	if (t->life == TASK_ENDED)
		return;
	if (t->life == TASK_NONE) {
		t->pid = (pid_t)m->pid;
		t->rank = m->rank;
	}
	set_when(t);
	t->status = m->status;
	ended(t);
}

void agent_task_poll(struct agent *a)
{
	for (uint32_t i = 0; i < a->ntasks; i++) {
		struct agent_task *t = &a->tasks[i];
		struct pollfd p = { t->pidfd, POLLIN, 0 };

		if (t->life == TASK_LIVE && t->pidfd >= 0 &&
		    poll(&p, 1, 0) == 1)
			on_pidfd(-1, 0, t);
	}
}

void agent_task_orphans(struct agent *a)
{
	for (uint32_t i = 0; i < a->ntasks; i++) {
		struct agent_task *t = &a->tasks[i];
		struct ddp_proc_stat st;

		if (t->life == TASK_REAPED ||
		    (t->life == TASK_LIVE && t->pidfd < 0 &&
		     (ddp_proc_stat(t->pid, &st) || !t->start ||
		      st.start != t->start || st.state == 'Z'))) {
			set_when(t);
			ended(t);
		}
	}
}

void agent_task_opened(struct agent *a)
{
	char path[DDP_CGMEM_PATH];

	for (uint32_t i = 0; i < a->ntasks; i++) {
		struct agent_task *t = &a->tasks[i];

		if (t->life != TASK_LIVE ||
		    ddp_cgmem_path(t->pid, path, sizeof(path)))
			continue;
		t->cgmem = strdup(path);
		t->kills = ddp_cgmem_kills(path);
	}
}

bool agent_task_suspended(const struct agent *a)
{
	bool any = false;

	for (uint32_t i = 0; i < a->ntasks; i++) {
		const struct agent_task *t = &a->tasks[i];
		struct ddp_proc_stat st;

		if (t->life != TASK_LIVE)
			continue;
		if (ddp_proc_stat(t->pid, &st) ||
		    (st.state != 'T' && !ddp_cgmem_frozen(t->pid)))
			return false;
		any = true;
	}
	return any;
}
