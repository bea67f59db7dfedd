/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end. srun says "exit" when it is about to end; the answer waits for
 * what the agents still have to say, but not long. Without srun the
 * controller ends when the agents have.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

bool ctl_end_settled(const struct ctl *ctl)
{
	uint32_t n = ctl->settled;

	/* Nodes that never came are not waited for when all is over. */
	if (ctl->phase == CTL_ABORT || ctl->phase == CTL_CANCELLED)
		n += ctl->needed - ctl->ready;
	return n >= ctl->needed;
}

/* The agents wait for this: nothing more is to be said to them. */
static void release_agents(struct ctl *ctl)
{
	struct ctl_peer *p, *next;

	for (p = TAILQ_FIRST(&ctl->agents); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->bye)
			ctl_peer_free(p);
	}
}

/*
 * A node that has not answered ABORT, and was silent since before the first
 * failure: it was the first.
 */
static void find_silent(struct ctl *ctl)
{
	size_t pick = ddp_cause_pick(ctl->events, ctl->nevents);
	int64_t now = ddp_io_now_us(), first;
	struct ctl_peer *p, *next;

	if (pick == ctl->nevents || ctl->phase != CTL_ABORT)
		return;
	first = ctl->events[pick].when_us;
	for (p = TAILQ_FIRST(&ctl->agents); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->bye || p->node == CTL_NONE || p->heard_us >= first ||
		    now - p->heard_us < 2000 * (int64_t)ctl->ping_ms)
			continue;
		ctl_watch_lost(p, "nothing heard from its agent since then",
			       p->heard_us);
	}
}

static void on_last(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;

	(void)fd, (void)what;
	event_base_loopbreak(ctl->base);
}

/* What is left to do once all was said. */
static void leave(struct ctl *ctl)
{
	if (ctl->phase == CTL_CANCELLED && !ctl_end_settled(ctl)) {
		/* The program has Slurm's own time; the agents would end it
		 * if they lost us. */
		ctl_timer(ctl, &ctl->last_timer, on_last, CTL_CANCEL_MS);
		return;
	}
	if (ctl->srun_gone)
		event_base_loopbreak(ctl->base);
	else
		ctl_srun_drain(ctl);
}

static void report(struct ctl *ctl)
{
	const struct ddp_cause *c;

	if (ctl->reported)
		return;
	ctl->reported = true;
	find_silent(ctl);
	c = ctl_report_cause(ctl, NULL);
	ctl->code = c ? ddp_cause_code(c) : -1;
	ctl_report_say(ctl);
	ctl_json_report(ctl);
}

static void finish(struct ctl *ctl)
{
	report(ctl);
	ctl->finished = true;
	release_agents(ctl);
	if (ctl->exit_asked)
		ctl_srun_tell(ctl, "end", ctl->code);
	leave(ctl);
}

static void quit(struct ctl *ctl)
{
	report(ctl);
	ctl_srun_tell(ctl, "quit", ctl->code < 0 ? DDP_EXIT_MACHINE :
		      ctl->code);
}

static void on_end(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	finish(arg);
}

void ctl_end_check(struct ctl *ctl)
{
	bool settled;

	if (ctl->finished) {
		if (ctl->phase == CTL_CANCELLED && ctl_end_settled(ctl)) {
			release_agents(ctl);
			if (ctl->srun_gone)
				event_base_loopbreak(ctl->base);
			else
				ctl_srun_drain(ctl);
		}
		return;
	}
	if (ctl->asking)
		return;
	settled = ctl->phase == CTL_STATELESS || ctl_end_settled(ctl);
	if (settled)
		release_agents(ctl);
	if (ctl->quit_sent && !ctl->reported)
		quit(ctl);
	if ((ctl->exit_asked || ctl->srun_gone) && settled)
		finish(ctl);
}

/* How long may what is outstanding take? */
static int64_t patience(const struct ctl *ctl)
{
	int64_t ms = CTL_EXIT_MS;

	if (ctl->abort_us)
		ms = ctl->conf.grace_ms + ctl_life_ms(ctl) + CTL_KILL_MS +
			CTL_EXIT_MS - (ddp_io_now_us() - ctl->abort_us) / 1000;
	if (ctl->asking && ms < CTL_ASK_MS + CTL_EXIT_MS)
		ms = CTL_ASK_MS + CTL_EXIT_MS;
	return ms < CTL_EXIT_MS ? CTL_EXIT_MS : ms;
}

void ctl_end_exit(struct ctl *ctl, int status)
{
	if (ctl->exit_asked)
		return;
	ctl->exit_asked = true;
	ctl->exit_status = status;
	ctl_srun_tell(ctl, "wait", 0);
	ctl_plan_over(ctl);
	if (!ctl->finished)
		ctl_timer(ctl, &ctl->end_timer, on_end, patience(ctl));
	ctl_end_check(ctl);
}

void ctl_end_srun_gone(struct ctl *ctl)
{
	struct ddp_cause c = {
		.kind = DDP_CAUSE_SRUN, .rank = DDP_CAUSE_NONE,
		.node = DDP_CAUSE_NONE, .pid = DDP_CAUSE_NONE,
		.status = DDP_STATUS_UNKNOWN, .when_us = ddp_io_now_us(),
	};

	if (ctl->srun_gone)
		return;
	ctl->srun_gone = true;
	if (ctl->finished) {
		leave(ctl);
		return;
	}
	if (!ctl->exit_asked && !ctl_end_settled(ctl))
		ctl_fail(ctl, &c, NULL);
	ctl_timer(ctl, &ctl->end_timer, on_end,
		  ctl->conf.grace_ms + ctl_life_ms(ctl) + CTL_ASK_MS +
		  CTL_KILL_MS + CTL_EXIT_MS);
	ctl_end_check(ctl);
}
