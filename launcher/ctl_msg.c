/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent says after the handshake. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* Lines that agents may have printed, all together. */
#define WARNINGS_MAX 16

static void event_note(struct ctl *ctl, const char *what, uint32_t rank,
		       uint32_t node)
{
	if (ctl->phase == CTL_STATELESS)
		return;
	if (rank != CTL_NONE)
		snprintf(ctl->last_event, sizeof(ctl->last_event),
			 "rank %u %s", rank, what);
	else
		snprintf(ctl->last_event, sizeof(ctl->last_event),
			 "node %.100s %s", ctl->nodes[node].name, what);
}

static int ping(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ddp_msg out = { .type = DDP_MSG_PONG };

	ctl_watch_heard(p, m->u.ping.now_us);
	out.u.pong.now_us = m->u.ping.now_us;
	ctl_peer_send(p, &out);
	return 0;
}

/* An end before the program was started: whatever it was, no launch. */
static void ended_early(struct ctl_peer *p, const struct ddp_msg *m,
			struct ddp_cause *c)
{
	char how[64], text[DDP_WIRE_TEXT], why[1024];
	uint32_t node = p->node != CTL_NONE ? p->node : p->name;

	ddp_errfile_plain(m->u.exit.text, why, sizeof(why));
	ddp_cause_status_text(c->status, c->flags, how, sizeof(how));
	snprintf(text, sizeof(text), "a task on node %.100s (rank %u) %s "
		 "before its program was started%s%s", node == CTL_NONE ? "?" :
		 p->ctl->nodes[node].name, m->u.exit.rank, how,
		 why[0] ? ": " : "", why);
	c->kind = DDP_CAUSE_LAUNCH;
	/* One that has said why itself was not ended by Slurm: that the step
	 * is over by the time Slurm is asked says nothing then. */
	if (why[0] && WIFEXITED(c->status))
		c->flags &= (uint8_t)~DDP_EXIT_BEFORE_PLAN;
	else
		c->flags |= DDP_EXIT_BEFORE_PLAN;
	c->node = node;
	ctl_fail(p->ctl, c, text);
}

static void rank_ended(struct ctl_peer *p, const struct ddp_msg *m,
		       struct ddp_cause *c)
{
	struct ctl *ctl = p->ctl;
	struct ctl_rank *r = &ctl->ranks[m->u.exit.rank];
	char how[64];

	r->state = RANK_ENDED;
	ctl_life_set(ctl, m->u.exit.rank, DDP_LIFE_GONE);
	r->status = c->status;
	r->flags = c->flags;
	if (!r->dying)
		r->when_us = c->when_us;
	if (m->u.exit.pid)
		r->pid = m->u.exit.pid;
	if (ctl->nodes[p->node].live) {
		ctl->nodes[p->node].live--;
		ctl->live--;
	}
	if (c->when_us > ctl->last_end_us)
		ctl->last_end_us = c->when_us;
	c->dying = r->dying;
	c->pid = r->pid;
	if (r->dying)
		c->when_us = r->when_us;
	event_note(ctl, ddp_cause_status_text(c->status, c->flags, how,
					      sizeof(how)),
		   m->u.exit.rank, p->node);
}

static int rank_exit(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl *ctl = p->ctl;
	uint32_t rank = m->u.exit.rank;
	struct ddp_cause c = {
		.rank = rank, .node = p->node, .pid = m->u.exit.pid,
		.status = m->u.exit.status, .flags = m->u.exit.flags,
		.when_us = ctl_watch_time(p, m->u.exit.when_us),
		.slack_us = p->slack_us,
	};

	if (rank >= ctl->nranks || (p->node != CTL_NONE &&
				    ctl->ranks[rank].node != p->node))
		return -1;
	if (p->node != CTL_NONE) {
		if (ctl->ranks[rank].state == RANK_ENDED)
			return 0;
		rank_ended(p, m, &c);
	}
	if (!p->aborted)
		c.flags &= (uint8_t)~DDP_EXIT_AFTER_ABORT;
	if (ctl->phase == CTL_WAIT || p->node == CTL_NONE) {
		ended_early(p, m, &c);
		return 0;
	}
	c.kind = ddp_cause_of_status(c.status);
	if (c.kind && ctl->ranks[rank].blamed)
		return 0;	/* it has said so before */
	if (c.kind)
		ctl_fail(ctl, &c, m->u.exit.text);
	else
		ctl_watch_early(ctl, rank);
	return 0;
}

static int dying(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl *ctl = p->ctl;
	uint32_t rank = m->u.dying.rank;
	struct ctl_rank *r = rank < ctl->nranks ? &ctl->ranks[rank] : NULL;

	if (!r || p->node == CTL_NONE || r->node != p->node)
		return -1;
	if (r->state == RANK_ENDED || !p->aborted)
		return 0;
	r->dying = true;
	r->when_us = ctl_watch_time(p, m->u.dying.when_us);
	return 0;
}

static void warning(struct ctl_peer *p, const char *text)
{
	struct ctl *ctl = p->ctl;
	uint32_t node = p->node != CTL_NONE ? p->node : p->name;
	char plain[600];

	if (ctl->warnings++ >= WARNINGS_MAX)
		return;
	ddp_errfile_plain(text, plain, sizeof(plain));
	ctl_say(ctl, "warning: node %s: %s", node == CTL_NONE ? "?" :
		ctl->nodes[node].name, plain);
}

static int note(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl *ctl = p->ctl;
	uint8_t kind = m->u.note.kind;
	struct ddp_cause c = {
		.kind = kind == DDP_NOTE_STEPD_DIED ? DDP_CAUSE_STEPD :
			DDP_CAUSE_PORT,
		.rank = DDP_CAUSE_NONE, .node = p->node,
		.pid = DDP_CAUSE_NONE, .status = DDP_STATUS_UNKNOWN,
		.when_us = ddp_io_now_us(), .slack_us = p->slack_us,
	};

	if (kind == DDP_NOTE_WARNING) {
		warning(p, m->u.note.text);
		return 0;
	}
	if (kind == DDP_NOTE_STEPD_DIED) {
		ctl->mute++;
		if (ctl->phase == CTL_WAIT)
			ctl_fail_launch(ctl, p->node, "slurmstepd of node %s "
					"died before the start",
					p->name == CTL_NONE ? "?" :
					ctl->nodes[p->name].name);
		else if (p->node != CTL_NONE)
			ctl_fail(ctl, &c, m->u.note.text);
		ctl_fail_progress(ctl);
		return 0;
	}
	if (p->node != ctl->plan.layout.first || !ctl->plan_us)
		return -1;
	if (kind == DDP_NOTE_PORT_USED)
		ctl->port_used = true;
	else
		ctl_fail(ctl, &c, m->u.note.text);
	return 0;
}

static int gone(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl *ctl = p->ctl;
	struct ctl_node *n;

	/* Without ABORT: its slurmstepd died, and it acted by itself. */
	if (!p->aborted || p->node == CTL_NONE)
		return 0;
	n = &ctl->nodes[p->node];
	n->gone = true;
	n->stopped = m->u.gone.stopped;
	n->others = m->u.gone.others;
	n->left = m->u.gone.left;
	ctl_watch_node(ctl, p->node, n->state);
	ctl_fail_progress(ctl);
	return 0;
}

static int bye(struct ctl_peer *p)
{
	struct ctl *ctl = p->ctl;
	uint32_t node = p->node;

	p->bye = true;
	if (node == CTL_NONE) {
		/* Its tasks ended before they were ready. */
		if (ctl->phase == CTL_WAIT)
			ctl_fail_peer(p);
		p->closing = true;
		return 0;
	}
	if (ctl->phase == CTL_WAIT)
		ctl_fail_peer(p);
	ctl->live -= ctl->nodes[node].live;
	ctl->nodes[node].live = 0;
	event_note(ctl, "has ended", CTL_NONE, node);
	if (ctl->phase == CTL_CANCELLED && !p->aborted)
		ctl_fail_sweep(p);
	ctl_watch_node(ctl, node, NODE_DONE);
	ctl_fail_progress(ctl);
	return 0;
}

int ctl_msg_message(struct ctl_peer *p, const struct ddp_msg *m)
{
	switch (m->type) {
	case DDP_MSG_READY:
		return p->state == PEER_WELCOME ? ctl_plan_ready(p, m) : -1;
	case DDP_MSG_PORT:
		return ctl_plan_port(p, m);
	case DDP_MSG_PING:
		return ping(p, m);
	case DDP_MSG_EXIT:
		return rank_exit(p, m);
	case DDP_MSG_DYING:
		return dying(p, m);
	case DDP_MSG_NOTE:
		return note(p, m);
	case DDP_MSG_GONE:
		return gone(p, m);
	case DDP_MSG_BYE:
		return bye(p);
	default:
		return ctl_life_message(p, m);
	}
}
