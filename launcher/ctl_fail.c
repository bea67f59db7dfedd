/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A failure: it is recorded, Slurm is asked where Slurm may be behind it,
 * then the others are ended at once. Who was first is found out later, when
 * everything has been said (core/ddp_cause.h).
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define EVENTS_MAX 65536
#define TEXTS_MAX 64

/* Slurm's answer counts for this long. */
#define RUNNING_US 1000000
/* Slurm's own kill reaches the nodes one after the other. */
#define RECHECK_MS 100
/* Of tasks that wait for the start only slurmstepd tells, in batches. */
#define RECHECK_WAIT_MS 500
/* The same signal ends one rank after the other: longest pause, and all. */
#define SAME_US 500000
#define SAME_MAX_US 5000000
/* Lost nodes are ended through Slurm this long after the others' grace. */
#define LOST_MS 100

static void judge(struct ctl *ctl);

/* Only the text of who would be named now is kept. */
static void drop_texts(struct ctl *ctl)
{
	size_t pick = ddp_cause_pick(ctl->events, ctl->nevents);

	for (size_t i = 0; i < ctl->nevents; i++)
		if (i != pick && ctl->texts[i]) {
			free(ctl->texts[i]);
			ctl->texts[i] = NULL;
			ctl->ntexts--;
		}
}

static int grow(struct ctl *ctl)
{
	size_t max = ctl->max_events ? 2 * ctl->max_events : 64;
	void *events, *texts;

	if (ctl->nevents < ctl->max_events)
		return 0;
	if (max > EVENTS_MAX)
		return -1;
	events = realloc(ctl->events, max * sizeof(*ctl->events));
	if (!events)
		return -1;
	ctl->events = events;
	texts = realloc(ctl->texts, max * sizeof(*ctl->texts));
	if (!texts)
		return -1;
	ctl->texts = texts;
	ctl->max_events = max;
	return 0;
}

static int record(struct ctl *ctl, const struct ddp_cause *c,
		  const char *text)
{
	if (grow(ctl))
		return -1;
	ctl->events[ctl->nevents] = *c;
	ctl->texts[ctl->nevents] = text && text[0] ? strdup(text) : NULL;
	if (ctl->texts[ctl->nevents++] && ++ctl->ntexts > TEXTS_MAX)
		drop_texts(ctl);
	return 0;
}

static struct ctl_frame *abort_frame(struct ctl *ctl)
{
	struct ddp_msg m = { .type = DDP_MSG_ABORT };
	size_t pick = ddp_cause_pick(ctl->events, ctl->nevents);

	m.u.abort.signal = ctl->conf.signal;
	m.u.abort.grace_ms = ctl->conf.grace_ms;
	if (pick < ctl->nevents)
		ctl_report_line(ctl, pick, m.u.abort.text,
				sizeof(m.u.abort.text));
	return ctl_frame_new(&m);
}

/* first: what goes before ABORT, or NULL. */
static void abort_peer(struct ctl_peer *p, struct ctl_frame *first,
		       struct ctl_frame *f)
{
	if (p->aborted)
		return;
	p->aborted = true;
	if (first)
		ctl_peer_send_frame(p, first);
	ctl_peer_send_frame(p, f);
	if (p->node == CTL_NONE)
		return;
	p->ctl->nodes[p->node].aborted = true;
	ctl_watch_node(p->ctl, p->node, p->ctl->nodes[p->node].state);
}

static void on_kill_timer(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;

	(void)fd, (void)what;
	if (!ctl->killed && !ctl->finished &&
	    (ctl->live || ctl->lost || ctl->launch_failed ||
	     !ctl_end_settled(ctl))) {
		ctl->killed = true;
		(void)ctl_helper_start(ctl, &ctl->kill, "--kill-step", NULL);
	}
	ctl_end_check(ctl);
}

/* When the step is killed through Slurm if it is still there. */
static void last_resort(struct ctl *ctl)
{
	int64_t past = (ddp_io_now_us() - ctl->abort_us) / 1000;

	ctl_timer(ctl, &ctl->kill_timer, on_kill_timer, ctl->conf.grace_ms +
		  ctl_life_ms(ctl) + (ctl->lost ? LOST_MS : CTL_KILL_MS) - past);
}

void ctl_fail_abort_node(struct ctl *ctl, uint32_t node)
{
	struct ctl_frame *f, *first;

	if (!ctl->nodes[node].peer || ctl->nodes[node].aborted)
		return;
	f = abort_frame(ctl);
	if (!f)
		return;
	first = ctl_life_order(ctl);
	if (!ctl->abort_us)
		ctl->abort_us = ddp_io_now_us();
	abort_peer(ctl->nodes[node].peer, first, f);
	ctl_frame_put(first);
	ctl_frame_put(f);
}

static void abort_all(struct ctl *ctl)
{
	struct ctl_frame *f = abort_frame(ctl), *first = ctl_life_order(ctl);
	struct ctl_peer *p;

	if (ctl->phase == CTL_WAIT)
		ctl->launch_failed = true;
	ctl->phase = CTL_ABORT;
	ctl->abort_us = ddp_io_now_us();
	TAILQ_FOREACH(p, &ctl->agents, link)
		if (f)
			abort_peer(p, first, f);
	ctl_frame_put(first);
	ctl_frame_put(f);
	last_resort(ctl);
	ctl_fail_progress(ctl);
}

static bool for_all(const struct ctl *ctl, const struct ddp_cause *c)
{
	return ctl->phase == CTL_WAIT || ctl->conf.abort == DDP_ABORT_GANG ||
		c->kind >= DDP_CAUSE_SRUN;
}

/* Do what --ddp-abort says about every failure since the last time. */
static void act(struct ctl *ctl)
{
	while (ctl->acted < ctl->nevents) {
		const struct ddp_cause *c = &ctl->events[ctl->acted++];

		if (for_all(ctl, c)) {
			abort_all(ctl);
			return;
		}
		if (ctl->conf.abort == DDP_ABORT_NODE &&
		    c->node != DDP_CAUSE_NONE)
			ctl_fail_abort_node(ctl, c->node);
	}
}

/*
 * Did one signal end the ranks that have failed so far, with none of ours
 * sent? SIGKILL of one rank is a failure; a signal to every rank was
 * somebody's decision about the step (scancel of a step and srun's Ctrl-C
 * leave no other trace in Slurm). Slurm sends SIGKILL to who has not ended by
 * another one. Returns that signal, or 0; *ended: ranks that have ended,
 * *killed: by it.
 */
static int same_signal(const struct ctl *ctl, uint32_t *ended,
		       uint32_t *killed)
{
	int same = 0;

	*ended = *killed = 0;
	for (uint32_t i = 0; i < ctl->nranks; i++) {
		const struct ctl_rank *r = &ctl->ranks[i];
		int sig;

		if (r->state != RANK_ENDED)
			continue;
		(*ended)++;
		if (!r->status && ctl->phase == CTL_RUN)
			continue;	/* had ended well, or did now */
		if (r->status == DDP_STATUS_UNKNOWN ||
		    !WIFSIGNALED((int)r->status) ||
		    r->flags & (DDP_EXIT_OOM | DDP_EXIT_AFTER_ABORT))
			return 0;
		sig = WTERMSIG((int)r->status);
		if (same && same != sig && same != SIGKILL && sig != SIGKILL)
			return 0;
		if (!same || same == SIGKILL)
			same = sig;
		(*killed)++;
	}
	return same;
}

/* Does a rank wait for the start? */
static bool one_waits(const struct ctl *ctl)
{
	for (uint32_t i = 0; i < ctl->nnodes; i++)
		if (ctl->nodes[i].state == NODE_READY && ctl->nodes[i].live)
			return true;
	return false;
}

/*
 * Slurm ends the step. A node whose ranks are gone has had Slurm's time; what
 * has left their process groups is still there, and Slurm may not see it.
 */
void ctl_fail_sweep(struct ctl_peer *p)
{
	struct ddp_msg m = { .type = DDP_MSG_ABORT };
	struct ctl_frame *f;

	m.u.abort.signal = SIGKILL;
	snprintf(m.u.abort.text, sizeof(m.u.abort.text),
		 "the step was cancelled");
	f = ctl_frame_new(&m);
	if (f)
		abort_peer(p, NULL, f);
	ctl_frame_put(f);
}

static void cancelled(struct ctl *ctl)
{
	struct ctl_peer *p;

	TAILQ_FOREACH(p, &ctl->agents, link)
		if (p->bye)
			ctl_fail_sweep(p);
	ctl->phase = CTL_CANCELLED;
	while (ctl->nevents)
		free(ctl->texts[--ctl->nevents]);
	ctl->ntexts = ctl->acted = 0;
	snprintf(ctl->last_event, sizeof(ctl->last_event),
		 "the step was cancelled");
}

static void on_recheck(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;

	(void)fd, (void)what;
	ctl->asking = false;
	judge(ctl);
	ctl_end_check(ctl);
}

/*
 * Is it worth a while to see whether the same befalls all? A program takes
 * its time for a signal that it may handle (Python raises KeyboardInterrupt),
 * each rank its own; SIGKILL comes to all at once.
 */
static bool wait_for_more(struct ctl *ctl, int sig, uint32_t killed)
{
	int64_t now = ddp_io_now_us();

	if (ctl->phase == CTL_WAIT || sig == SIGKILL) {
		if (ctl->rechecked || (ctl->phase == CTL_RUN && killed < 2))
			return false;
		return ctl->rechecked = true;
	}
	if (!ctl->same_us)
		ctl->same_us = now;
	if (killed > ctl->same_killed)
		ctl->same_grown_us = now;
	ctl->same_killed = killed;
	return now - ctl->same_grown_us < SAME_US &&
		now - ctl->same_us < SAME_MAX_US;
}

/* Slurm knows of no reason: is it a failure? */
static void judge(struct ctl *ctl)
{
	uint32_t ended, killed;
	bool wait = ctl->phase == CTL_WAIT;
	int sig = 0;

	/* One that was a failure before stays one, whatever ends the others. */
	if ((ctl->phase == CTL_RUN || wait) && ctl->nevents && !ctl->acted &&
	    ddp_cause_is_suspect(&ctl->events[0]))
		sig = same_signal(ctl, &ended, &killed);
	if (sig && (wait ? !one_waits(ctl) :
		    !ctl->live && ended == ctl->nranks &&
		    (killed > 1 || sig != SIGKILL))) {
		cancelled(ctl);
	} else if (sig && wait_for_more(ctl, sig, killed)) {
		ctl->asking = true;
		ctl_timer(ctl, &ctl->recheck_timer, on_recheck,
			  wait ? RECHECK_WAIT_MS : RECHECK_MS);
	} else {
		act(ctl);
	}
}

static void on_state(struct ctl *ctl, const char *answer)
{
	ctl->asking = false;
	if (ctl->finished || ctl->phase == CTL_ABORT)
		return;
	/* A step whose srun is ending is gone in any case: that says nothing
	 * about nodes that never came. */
	if (!strcmp(answer, "cancelled") ||
	    (!strcmp(answer, "gone") && ctl->live &&
	     !(ctl->exit_asked && ctl->nevents &&
	       ctl->events[0].kind == DDP_CAUSE_LAUNCH))) {
		cancelled(ctl);
		return;
	}
	if (!strcmp(answer, "running"))
		ctl->running_us = ddp_io_now_us();
	judge(ctl);
}

static void ask(struct ctl *ctl)
{
	if (ctl->running_us && ddp_io_now_us() - ctl->running_us < RUNNING_US) {
		judge(ctl);
		return;
	}
	ctl_helper_reap(ctl);
	ctl->asking = true;
	if (ctl_helper_start(ctl, &ctl->ask, "--step-state", on_state))
		on_state(ctl, "unknown");
}

void ctl_fail(struct ctl *ctl, const struct ddp_cause *c, const char *text)
{
	if (ctl->finished || ctl->phase == CTL_CANCELLED ||
	    ctl->phase == CTL_STATELESS)
		return;
	(void)record(ctl, c, text);
	if (ctl->phase == CTL_ABORT || ctl->asking)
		return;
	if (ddp_cause_is_effect(c))
		return;
	if (ddp_cause_is_suspect(c))
		ask(ctl);
	else
		act(ctl);
}

void ctl_fail_launch(struct ctl *ctl, uint32_t node, const char *fmt, ...)
{
	struct ddp_cause c = {
		.kind = DDP_CAUSE_LAUNCH, .rank = DDP_CAUSE_NONE,
		.node = node, .pid = DDP_CAUSE_NONE,
		.status = DDP_STATUS_UNKNOWN, .when_us = ddp_io_now_us(),
	};
	char text[DDP_WIRE_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ctl_fail(ctl, &c, text);
}

/* An agent said BYE before the step was started. */
void ctl_fail_peer(struct ctl_peer *p)
{
	uint32_t node = p->node != CTL_NONE ? p->node : p->name;
	struct ddp_cause c = {
		.kind = DDP_CAUSE_LAUNCH, .rank = DDP_CAUSE_NONE,
		.node = node, .pid = DDP_CAUSE_NONE,
		.status = DDP_STATUS_UNKNOWN, .when_us = ddp_io_now_us(),
		.flags = DDP_EXIT_BEFORE_PLAN,
	};
	char text[256];

	snprintf(text, sizeof(text), "the tasks of node %.100s ended before "
		 "the start", node == CTL_NONE ? "?" :
		 p->ctl->nodes[node].name);
	ctl_fail(p->ctl, &c, text);
}

static void on_quit_timer(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;

	(void)fd, (void)what;
	if (ctl->exit_asked || ctl->srun_gone || ctl->finished)
		return;
	ctl->quit_sent = true;
	ctl_end_check(ctl);
}

/* Something more is known: is it only what srun will never hear of that is
 * left? */
void ctl_fail_progress(struct ctl *ctl)
{
	if (ctl->phase == CTL_STATELESS || ctl->finished)
		return;
	if (!ctl->launch_failed && ((!ctl->lost && !ctl->mute) ||
				    ctl->conf.abort == DDP_ABORT_NONE))
		return;
	if (!ctl_end_settled(ctl)) {
		if (ctl->phase == CTL_ABORT && !ctl->killed)
			last_resort(ctl);
		return;
	}
	if (ctl->phase != CTL_CANCELLED && !ctl->killed)
		ctl_timer(ctl, &ctl->kill_timer, on_kill_timer, 0);
	if (!ctl->quit_timer)
		ctl_timer(ctl, &ctl->quit_timer, on_quit_timer, CTL_QUIT_MS);
}
