/* SPDX-License-Identifier: Apache-2.0 */
/* Who is still there: silence, lost connections, ranks that left early. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

/* Later than this, a timer tells that this process did not run. */
#define STILL_MIN_US 50000
/* Agents that closed their connection in this time did so because of that. */
#define STILL_US 2000000

static void on_silence(evutil_socket_t fd, short what, void *arg);

void ctl_timer(struct ctl *ctl, struct event **ev, event_callback_fn fn,
	       int64_t ms)
{
	struct timeval tv;

	if (ms < 0)
		ms = 0;
	tv.tv_sec = (time_t)(ms / 1000);
	tv.tv_usec = (suseconds_t)(ms % 1000 * 1000);
	if (!*ev)
		*ev = event_new(ctl->base, -1, 0, fn, ctl);
	if (*ev)
		event_add(*ev, &tv);
}

/* Sets a node's state, and counts whether more is to come from it. */
void ctl_watch_node(struct ctl *ctl, uint32_t node, enum ctl_node_state state)
{
	struct ctl_node *n = &ctl->nodes[node];
	bool settled;

	if (state == NODE_LOST && n->state != NODE_LOST)
		ctl->lost++;
	n->state = (uint8_t)state;
	settled = state == NODE_LOST ||
		  (state == NODE_DONE && (!n->aborted || n->gone || !n->peer));
	if (settled && !n->settled)
		ctl->settled++;
	else if (!settled && n->settled)
		ctl->settled--;
	n->settled = settled;
}

void ctl_watch_heard(struct ctl_peer *p, uint64_t now_us)
{
	int64_t offset;

	/* A clock this far off is a lie, and would overflow. */
	if (now_us > INT64_MAX / 4)
		return;
	offset = p->heard_us - (int64_t)now_us;
	if (offset < p->offset_us)
		p->offset_us = offset;
}

int64_t ctl_watch_time(const struct ctl_peer *p, uint64_t when_us)
{
	int64_t now = ddp_io_now_us(), when;

	if (p->offset_us == INT64_MAX || when_us > INT64_MAX / 4)
		return now;
	when = (int64_t)when_us + p->offset_us;
	return when < p->ctl->start_us || when > now ? now : when;
}

/* An agent that comes back in this time had only lost its way. */
#define VANISHED_MS 1000

static void on_vanished(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;
	const struct ctl_node *n = &ctl->nodes[ctl->vanished];

	(void)fd, (void)what;
	/* With "prefer" it may have begun without us; the start timer says. */
	if (ctl->phase == CTL_WAIT && !ctl->conf.prefer &&
	    n->state == NODE_ABSENT && !n->agents)
		ctl_fail_launch(ctl, ctl->vanished, "node %s was lost before "
				"the start: its agent went away", n->name);
	ctl_end_check(ctl);
}

static void lost_before_plan(struct ctl_peer *p, const char *why)
{
	struct ctl *ctl = p->ctl;

	if (p->node != CTL_NONE) {
		ctl_fail_launch(ctl, p->node, "node %s was lost before the "
				"start: %s", ctl->nodes[p->node].name, why);
	} else if (p->name != CTL_NONE) {
		ctl->vanished = p->name;
		ctl_timer(ctl, &ctl->vanished_timer, on_vanished,
			  VANISHED_MS);
	}
}

void ctl_watch_lost(struct ctl_peer *p, const char *why, int64_t when_us)
{
	struct ctl *ctl = p->ctl;
	uint32_t node = p->node;
	bool aborted = p->aborted;
	struct ddp_cause c = {
		.kind = DDP_CAUSE_NODE, .rank = DDP_CAUSE_NONE, .node = node,
		.pid = DDP_CAUSE_NONE, .status = DDP_STATUS_UNKNOWN,
		.when_us = when_us, .slack_us = p->slack_us,
		/* It may have heard us, and ended because of it. */
		.flags = aborted && when_us > ctl->abort_us ?
			DDP_EXIT_AFTER_ABORT : 0,
	};

	if (ctl->phase == CTL_WAIT && !aborted && !ctl->finished)
		lost_before_plan(p, why);
	ctl_peer_free(p);
	if (node == CTL_NONE)
		return;
	ctl->live -= ctl->nodes[node].live;
	ctl->nodes[node].live = 0;
	ctl_watch_node(ctl, node, NODE_LOST);
	if (ctl->phase == CTL_RUN || (ctl->phase == CTL_ABORT &&
				      !ctl->launch_failed))
		ctl_fail(ctl, &c, why);
	ctl_fail_progress(ctl);
}

void ctl_watch_awake(struct ctl *ctl)
{
	int64_t now = ddp_io_now_us(), late = now - ctl->silence_due_us;

	if (!ctl->silence_due_us || late < STILL_MIN_US ||
	    late < 125 * (int64_t)ctl->conf.node_ms)	/* an eighth */
		return;
	ctl->still_us = now;
	ctl->still_for_us = late;
}

void ctl_watch_closed(struct ctl_peer *p, const char *why)
{
	struct ctl *ctl = p->ctl;
	int64_t now = ddp_io_now_us();
	struct ddp_cause c = {
		.kind = DDP_CAUSE_CONTROLLER, .rank = DDP_CAUSE_NONE,
		.node = DDP_CAUSE_NONE, .pid = DDP_CAUSE_NONE,
		.status = DDP_STATUS_UNKNOWN, .when_us = now,
	};
	char text[160];

	if (ctl->still_us && now - ctl->still_us < STILL_US && !ctl->nevents &&
	    ctl->phase == CTL_RUN) {
		snprintf(text, sizeof(text), "stood still for %.1f s or more "
			 "(stopped, or its host was), and the agents gave it "
			 "up", (double)ctl->still_for_us / 1e6);
		ctl_fail(ctl, &c, text);
	}
	ctl_watch_lost(p, why, now);
}

static void arm_silence(struct ctl *ctl, int64_t ms)
{
	ctl->silence_due_us = ddp_io_now_us() + 1000 * ms;
	ctl_timer(ctl, &ctl->silence_timer, on_silence, ms);
}

/* It may be this process that did not run: then there is something to read. */
static bool has_input(const struct ctl_peer *p)
{
	int n = 0;

	return !ioctl(p->fd, FIONREAD, &n) && n > 0;
}

static void on_silence(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;
	int64_t now = ddp_io_now_us(), oldest = now;
	int64_t limit = (int64_t)ctl->conf.node_ms * 1000;
	struct ctl_peer *p, *next;
	char why[96];

	(void)fd, (void)what;
	ctl_watch_awake(ctl);
	snprintf(why, sizeof(why), "nothing heard from its agent for %.4g s",
		 ctl->conf.node_ms / 1000.0);
	for (p = TAILQ_FIRST(&ctl->agents); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->bye)
			continue;
		if (now - p->heard_us >= limit && !has_input(p))
			ctl_watch_lost(p, why, p->heard_us);
		else if (p->heard_us < oldest)
			oldest = p->heard_us;
	}
	if (oldest < now - limit)
		oldest = now - limit;
	ctl->silence_due_us = 0;
	if (!TAILQ_EMPTY(&ctl->agents))
		arm_silence(ctl, (oldest + limit - now) / 1000 + 1);
	ctl_end_check(ctl);
}

void ctl_watch_start(struct ctl *ctl)
{
	if (!ctl->silence_timer ||
	    !event_pending(ctl->silence_timer, EV_TIMEOUT, NULL))
		arm_silence(ctl, ctl->conf.node_ms);
}

static void on_early(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;
	const struct ctl_rank *r = &ctl->ranks[ctl->early_rank];
	uint32_t grace = ctl->conf.exit_grace_ms;
	struct ddp_cause c = {
		.kind = DDP_CAUSE_EARLY, .rank = ctl->early_rank,
		.node = r->node, .pid = r->pid, .status = r->status,
		.when_us = r->when_us,
	};
	int64_t past = (ddp_io_now_us() - r->when_us) / 1000;
	char text[96];

	(void)fd, (void)what;
	if (ctl->phase != CTL_RUN || !ctl->live || ctl->nevents)
		return;
	if (grace && past >= grace) {
		snprintf(text, sizeof(text), "%u rank%s ran on for %.4g s "
			 "(--ddp-exit-grace)", ctl->live,
			 ctl->live == 1 ? "" : "s", grace / 1000.0);
		ctl_fail(ctl, &c, text);
		ctl_end_check(ctl);
		return;
	}
	if (past >= CTL_EARLY_MS && !ctl->early_said) {
		ctl_say(ctl, "rank %u on node %s ended with exit code 0 %.0f s "
			"ago, %u rank%s still run%s", ctl->early_rank,
			ctl->nodes[r->node].name, past / 1000.0, ctl->live,
			ctl->live == 1 ? "" : "s", ctl->live == 1 ? "s" : "");
		ctl->early_said = true;
	}
	if (grace)
		ctl_timer(ctl, &ctl->early_timer, on_early, grace - past + 1);
}

/* The first exit code 0 while others run. */
void ctl_watch_early(struct ctl *ctl, uint32_t rank)
{
	uint32_t grace = ctl->conf.exit_grace_ms;

	if (ctl->early_rank != CTL_NONE || !ctl->live ||
	    ctl->phase != CTL_RUN)
		return;
	ctl->early_rank = rank;
	ctl_timer(ctl, &ctl->early_timer, on_early,
		  grace && grace < CTL_EARLY_MS ? grace + 1 :
		  CTL_EARLY_MS + 1);
}
