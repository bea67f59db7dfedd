/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes with the life-cycle library (core/ddp_life.h; agent_meet.c has let
 * them in) say what they do, and are told to abort. All that they say may be
 * anything: so many lines of each are read, and nothing here waits for one.
 *
 * A rank's state is that of its lead: the process that is nearest to the task
 * itself, of several the one that came first. Children, as loaders of data
 * are, do not change it.
 *
 * A task may run several programs, one after the other, each with communicators
 * of its own: what one of them has left says nothing about the next. Numbers of
 * collectives are compared among the first ones only.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"

#include "core/ddp_proc.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Lines of one process, in its whole life. */
#define LINES 4096U
/* Taken at once, of one process; the others' turn then. */
#define AT_ONCE 16
/* Changes are collected for so long. */
#define FLUSH_MS 20

static struct agent_task *task_of(const struct agent_mate *m)
{
	return &m->a->tasks[m->local];
}

static void send_line(const struct agent_mate *m, const struct ddp_life_msg *l)
{
	char line[DDP_LIFE_LINE];
	int n = ddp_life_format(l, line, sizeof(line), NULL);

	/* One that does not read is ended like one that does not listen. */
	if (n > 0)
		(void)send(m->fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* --- what the controller is told ------------------------------------------ */

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;
	struct ddp_msg m = { .type = DDP_MSG_STATES };
	struct ddp_wire_state *list = calloc(a->ntasks, sizeof(*list));
	uint32_t n = 0;

	(void)fd;
	(void)what;
	for (uint32_t i = 0; list && i < a->ntasks; i++) {
		struct agent_task *t = &a->tasks[i];

		if (t->state == t->state_told)
			continue;
		t->state_told = t->state;
		list[n].rank = t->rank;
		list[n++].state = t->state;
	}
	m.u.states.n = n;
	m.u.states.list = list;
	if (n)
		agent_link_send(a, &m);
	free(list);
}

static void take_state(struct agent_mate *m, enum ddp_life_state state)
{
	struct agent *a = m->a;
	struct agent_task *t = task_of(m);

	if (t->lead != m || t->state == state)
		return;
	t->state = (uint8_t)state;
	if (!a->life.flush || !event_pending(a->life.flush, EV_TIMEOUT, NULL))
		agent_timer(a, &a->life.flush, FLUSH_MS, on_flush, a);
}

/* Why a process aborts, unless it was told to. */
static void take_cause(struct agent_mate *m, const struct ddp_life_msg *l)
{
	struct agent *a = m->a;
	struct agent_task *t = task_of(m);
	struct ddp_msg out = { .type = DDP_MSG_BLAME };

	if (m->blamed || m->ordered || a->abort.state != ABORT_NO)
		return;
	m->blamed = true;
	out.u.blame.rank = t->rank;
	out.u.blame.pid = (uint32_t)m->pid;
	out.u.blame.when_us = agent_now_us();
	out.u.blame.code = (uint8_t)l->code;
	out.u.blame.flags = t->flags;
	(void)ddp_text_copy(out.u.blame.text, sizeof(out.u.blame.text),
			    l->text);
	agent_link_send(a, &out);
}

static void take_left(struct agent_mate *m, const struct ddp_life_msg *l)
{
	struct ddp_msg out = { .type = DDP_MSG_LEFT };

	if (m->left || task_of(m)->lead != m || (!l->mpi && !m->first))
		return;
	m->left = true;
	out.u.left.rank = task_of(m)->rank;
	out.u.left.count = l->count;
	out.u.left.mpi = l->mpi;
	agent_link_send(m->a, &out);
}

static void take_waits(struct agent_mate *m, const struct ddp_life_msg *l)
{
	struct ddp_msg out = { .type = DDP_MSG_WAITS };

	if (m->waits || !m->first)
		return;
	m->waits = true;
	out.u.waits.rank = task_of(m)->rank;
	out.u.waits.count = l->count;
	agent_link_send(m->a, &out);
}

/* --- one process ---------------------------------------------------------- */

static void mate_free(struct agent_mate *m)
{
	struct agent *a = m->a;
	bool greeted = m->greeted;

	/* Its last state stays: a process that is gone is the task's to tell. */
	if (task_of(m)->lead == m)
		task_of(m)->lead = NULL;
	TAILQ_REMOVE(&a->life.mates, m, link);
	a->life.nmates--;
	task_of(m)->nmates--;
	a->life.work += m->lines;
	agent_event_free(&m->event);
	close(m->fd);
	free(m);
	if (greeted)
		agent_abort_ordered(a);
}

static void order(struct agent_mate *m)
{
	struct ddp_life_msg l = { .kind = DDP_LIFE_MSG_ABORT };

	if (m->ordered)
		return;
	m->ordered = true;
	l.code = m->a->life.code;
	(void)ddp_text_safe(m->a->life.why, l.text, sizeof(l.text));
	send_line(m, &l);
}

/* One that is stopped does not read what it is told. */
static void wake(const struct agent_mate *m)
{
	struct ddp_proc_stat st;
	int fd;

	if (ddp_proc_stat(m->pid, &st) || st.state != 'T')
		return;
	fd = (int)syscall(SYS_pidfd_open, m->pid, 0);
	if (fd < 0)
		return;
	/* The process that connected, not one that has its number now. */
	if (!ddp_proc_stat(m->pid, &st) && st.start == m->start)
		(void)syscall(SYS_pidfd_send_signal, fd, SIGCONT, NULL, 0);
	close(fd);
}

static void tell_left(struct agent_mate *m)
{
	struct ddp_life_msg l = { .kind = DDP_LIFE_MSG_LEFT,
				  .count = m->a->life.left_at };

	send_line(m, &l);
}

static void greet(struct agent_mate *m, const struct ddp_life_msg *l)
{
	struct agent_task *t = task_of(m);

	if (m->greeted)
		return;
	m->greeted = true;
	m->limit_ms = l->limit_ms ? l->limit_ms : DDP_LIFE_LIMIT_MS;
	if (m->depth < t->lead_depth || (m->depth == t->lead_depth &&
					 !t->lead)) {
		t->lead = m;
		t->lead_depth = m->depth;
		t->leads++;
	}
	m->first = t->leads == 1;
	/* Too late to be told with the others. */
	if (m->first && m->a->life.left_at != UINT64_MAX)
		tell_left(m);
	if (m->a->abort.state != ABORT_NO && m->a->life.wanted)
		order(m);
}

static void take(struct agent_mate *m, const struct ddp_life_msg *l)
{
	if (l->kind == DDP_LIFE_MSG_LIFE)
		greet(m, l);
	if (!m->greeted)
		return;
	switch (l->kind) {
	case DDP_LIFE_MSG_STATE:
		take_state(m, l->state);
		break;
	case DDP_LIFE_MSG_CAUSE:
		take_cause(m, l);
		break;
	case DDP_LIFE_MSG_LEFT:
		take_left(m, l);
		break;
	case DDP_LIFE_MSG_WAITS:
		take_waits(m, l);
		break;
	case DDP_LIFE_MSG_PUT:
	case DDP_LIFE_MSG_GET:
		agent_pair_take(m, l);
		break;
	default:
		break;
	}
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
	struct agent_mate *m = arg;
	char line[DDP_LIFE_LINE + 1];
	struct ddp_life_msg l;
	ssize_t n;

	(void)what;
	for (int i = 0; i < AT_ONCE; i++) {
		n = recv((int)fd, line, sizeof(line), MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0 || ++m->lines > LINES) {
			mate_free(m);
			return;
		}
		/* A line that is none is left out: a later version's. */
		if (!ddp_life_parse(line, (size_t)n, &l, NULL))
			take(m, &l);
	}
}

/* --- the socket ----------------------------------------------------------- */

void agent_life_new(struct agent *a, int fd, pid_t pid, uint32_t local,
		    uint32_t depth)
{
	struct agent_mate *m = calloc(1, sizeof(*m));
	struct ddp_proc_stat st;

	if (!m) {
		close(fd);
		return;
	}
	m->a = a;
	m->fd = fd;
	m->pid = pid;
	m->local = local;
	m->depth = depth;
	m->start = ddp_proc_stat(pid, &st) ? 0 : st.start;
	TAILQ_INSERT_TAIL(&a->life.mates, m, link);
	a->life.nmates++;
	task_of(m)->nmates++;
	m->event = event_new(a->base, fd, EV_READ | EV_PERSIST, on_read, m);
	if (!m->event || event_add(m->event, NULL))
		mate_free(m);
}

void agent_life_init(struct agent *a)
{
	TAILQ_INIT(&a->life.mates);
	a->life.fd = -1;
	a->life.left_at = UINT64_MAX;
	a->life.code = 75;
	a->life.wait_ms = DDP_LIFE_LIMIT_MS;
}

void agent_life_free(struct agent *a)
{
	struct agent_mate *m, *next;

	for (m = TAILQ_FIRST(&a->life.mates); m; m = next) {
		next = TAILQ_NEXT(m, link);
		m->greeted = false;	/* nothing follows from its end */
		mate_free(m);
	}
	agent_event_free(&a->life.event);
	agent_event_free(&a->life.flush);
	agent_event_free(&a->life.rest);
	if (a->life.fd >= 0)
		close(a->life.fd);
	a->life.fd = -1;
	agent_pair_free(a);
}

/* --- what the controller says --------------------------------------------- */

void agent_life_on_order(struct agent *a, const struct ddp_msg *m)
{
	a->life.wanted = true;
	a->life.code = m->u.order.code;
	a->life.wait_ms = m->u.order.wait_ms;
}

void agent_life_why(struct agent *a, const char *why)
{
	size_t pos = 0;

	a->life.why[0] = '\0';
	(void)ddp_text_add(a->life.why, sizeof(a->life.why), &pos, "%.*s",
			   (int)sizeof(a->life.why) - 1, why);
}

void agent_life_on_left(struct agent *a, const struct ddp_msg *m)
{
	struct agent_mate *mate;

	if (m->u.left.count >= a->life.left_at)
		return;
	a->life.left_at = m->u.left.count;
	TAILQ_FOREACH(mate, &a->life.mates, link)
		if (mate->first)
			tell_left(mate);
}

bool agent_life_any(const struct agent *a)
{
	const struct agent_mate *m;

	TAILQ_FOREACH(m, &a->life.mates, link)
		if (m->greeted)
			return true;
	return false;
}

uint32_t agent_life_order(struct agent *a)
{
	struct agent_mate *m;
	uint32_t ms = 0;

	if (!a->life.wanted)
		return 0;
	TAILQ_FOREACH(m, &a->life.mates, link) {
		if (!m->greeted)
			continue;
		order(m);
		wake(m);
		ms = m->limit_ms > ms ? m->limit_ms : ms;
	}
	return ms < a->life.wait_ms ? ms : a->life.wait_ms;
}
