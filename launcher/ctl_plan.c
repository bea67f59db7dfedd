/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The barrier: every node is there, rank 0's node holds the master port,
 * then all may start at once.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_SHOWN 8

unsigned ctl_plan_names(const struct ctl *ctl,
			bool (*fits)(const struct ctl_node *n), char *buf,
			size_t size)
{
	unsigned n = 0;
	size_t pos = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < ctl->nnodes; i++) {
		if (!ctl->plan.layout.tasks[i] || !fits(&ctl->nodes[i]))
			continue;
		if (n++ < NAMES_SHOWN)
			(void)ddp_text_add(buf, size, &pos, "%s%.60s",
					   n > 1 ? ", " : "",
					   ctl->nodes[i].name);
	}
	if (n > NAMES_SHOWN)
		(void)ddp_text_add(buf, size, &pos, " and %u more",
				   n - NAMES_SHOWN);
	return n;
}

static bool never_seen(const struct ctl_node *n)
{
	return n->state == NODE_ABSENT && !n->seen;
}

static bool not_ready(const struct ctl_node *n)
{
	return n->state == NODE_ABSENT && n->seen;
}

/* Who is missing, and what is known of them. */
static void missing(const struct ctl *ctl, char *buf, size_t size)
{
	char names[600];
	size_t pos = 0;
	unsigned n = ctl_plan_names(ctl, never_seen, names, sizeof(names));

	buf[0] = '\0';
	if (n)
		(void)ddp_text_add(buf, size, &pos, "no connection from %s "
			"(are they up? If a firewall is between, open it for "
			"SrunPortRange, or use %s--ddp-launch=stateless)",
			names, ctl->conf.prefer ? "" :
			"--ddp-control=prefer or ");
	n = ctl_plan_names(ctl, not_ready, names, sizeof(names));
	if (n)
		(void)ddp_text_add(buf, size, &pos, "%sconnected, but tasks "
				   "not ready: %s", pos ? "; " : "", names);
	if (!pos)
		(void)ddp_text_add(buf, size, &pos, "no master port from %s",
				   ctl->nodes[ctl->plan.layout.first].name);
}

static void send_plan(struct ctl *ctl, const struct ddp_msg *m)
{
	struct ctl_frame *f = ctl_frame_new(m);

	for (uint32_t i = 0; f && i < ctl->nnodes; i++)
		if (ctl->nodes[i].peer)
			ctl_peer_send_frame(ctl->nodes[i].peer, f);
	ctl_frame_put(f);
}

static void stateless(struct ctl *ctl, struct ctl_peer *only)
{
	struct ddp_msg m = { .type = DDP_MSG_PLAN };

	m.u.plan.flags = DDP_PLAN_STATELESS;
	m.u.plan.port = ctl->plan.port;
	if (only)
		ctl_peer_send(only, &m);
	else
		send_plan(ctl, &m);
}

/* From here on nobody watches; what agents still say changes nothing. */
static void go_stateless(struct ctl *ctl, const char *who)
{
	ctl->phase = CTL_STATELESS;
	ctl->port = 0;		/* whatever was reserved: srun's is used */
	snprintf(ctl->last_event, sizeof(ctl->last_event),
		 "started in stateless mode, nobody watches the ranks");
	ctl_say(ctl, "warning: %u of %u nodes reached the controller in "
		"%.4g s (%s): the step starts in stateless mode, failures are "
		"not watched", ctl->ready, ctl->needed,
		(ddp_io_now_us() - ctl->start_us) / 1e6, who);
}

void ctl_plan_over(struct ctl *ctl)
{
	struct ddp_cause c = {
		.kind = DDP_CAUSE_LAUNCH, .rank = DDP_CAUSE_NONE,
		.node = CTL_NONE, .pid = DDP_CAUSE_NONE,
		.status = DDP_STATUS_UNKNOWN, .when_us = ddp_io_now_us(),
		/* Slurm may have ended it: it is asked. */
		.flags = DDP_EXIT_BEFORE_PLAN,
	};
	char who[1400], text[1600];

	if (ctl->phase != CTL_WAIT || ctl->finished || ctl->nevents ||
	    ctl->ready == ctl->needed)
		return;
	missing(ctl, who, sizeof(who));
	if (ctl->conf.prefer) {
		go_stateless(ctl, who);
		return;
	}
	snprintf(text, sizeof(text), "srun has ended the step, but %u of %u "
		 "nodes had no agent (see its errors above; if there are none, "
		 "is spank_ddp.so loaded there?): %s",
		 ctl->needed - ctl->ready, ctl->needed, who);
	ctl_fail(ctl, &c, text);
}

static void on_start_timer(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;
	char who[1536];

	(void)fd, (void)what;
	if (ctl->phase != CTL_WAIT)
		return;
	missing(ctl, who, sizeof(who));
	if (!ctl->conf.prefer) {
		ctl_fail_launch(ctl, CTL_NONE, "%u of %u nodes ready after "
				"%.4g s (--ddp-start-timeout): %s", ctl->ready,
				ctl->needed, ctl->conf.start_ms / 1000.0, who);
		ctl_end_check(ctl);
		return;
	}
	go_stateless(ctl, who);
	ctl->plan_us = ddp_io_now_us();
	stateless(ctl, NULL);
	ctl_end_check(ctl);
}

void ctl_plan_start(struct ctl *ctl)
{
	ctl_timer(ctl, &ctl->start_timer, on_start_timer, ctl->conf.start_ms);
}

/* The whole plan, where srun did not know the layout in time. */
static char *plan_text(struct ctl *ctl)
{
	struct ddp_err err;
	char *text;

	if (!ctl->plan.het)
		return NULL;
	ctl->plan.port = ctl->port;
	text = ddp_plan_format(&ctl->plan, &err);
	if (!text)
		ctl_fail_launch(ctl, CTL_NONE, "%s", err.text);
	return text;
}

static void start_all(struct ctl *ctl)
{
	struct ddp_msg m = { .type = DDP_MSG_PLAN };
	char *text;

	if (ctl->phase != CTL_WAIT || ctl->asking || !ctl->port_known ||
	    ctl->ready < ctl->needed || ctl->nevents)
		return;
	text = plan_text(ctl);
	if (ctl->plan.het && !text)
		return;
	m.u.plan.flags = ctl->plan.life ? DDP_PLAN_LIFE : 0;
	m.u.plan.port = ctl->port;
	m.u.plan.text = text ? text : "";
	m.u.plan.len = text ? (uint32_t)strlen(text) : 0;
	ctl->phase = CTL_RUN;
	ctl->plan_us = ddp_io_now_us();
	event_del(ctl->start_timer);
	for (uint32_t i = 0; i < ctl->nranks; i++)
		if (ctl->ranks[i].state == RANK_WAITING)
			ctl->ranks[i].state = RANK_RUNNING;
	send_plan(ctl, &m);
	free(text);
}

static void reserve(struct ctl *ctl, struct ctl_peer *p)
{
	struct ddp_msg m = { .type = DDP_MSG_RESERVE };

	if (ctl->plan.given & 1U << DDP_OPT_MASTER_PORT) {
		m.u.reserve.port = ctl->plan.port;
	} else {
		/* srun's choice first: it knows of other ports of the step's
		 * in that range (TF_CONFIG's). */
		m.u.reserve.port = ctl->conf.lo ? ctl->plan.port : 0;
		m.u.reserve.lo = ctl->conf.lo;
		m.u.reserve.hi = ctl->conf.hi;
	}
	ctl->port_asked = true;
	ctl_peer_send(p, &m);
}

/* Every rank of the node once. 0, or -1 with the launch failed. */
static int take_ranks(struct ctl *ctl, uint32_t node, const struct ddp_msg *m)
{
	uint32_t n = m->u.ready.ntasks;

	if (n != ctl->plan.layout.tasks[node]) {
		ctl_fail_launch(ctl, node, "node %s has %u tasks where the "
				"plan has %u", ctl->nodes[node].name, n,
				ctl->plan.layout.tasks[node]);
		return -1;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct ddp_wire_task t = ddp_wire_task(m, i);

		if (t.rank >= ctl->nranks ||
		    ctl->ranks[t.rank].node != CTL_NONE) {
			ctl_fail_launch(ctl, node, "node %s has rank %u, which "
					"is %s", ctl->nodes[node].name, t.rank,
					t.rank < ctl->nranks ?
					"another task's too" :
					"none of this step");
			return -1;
		}
		ctl->ranks[t.rank].node = node;
		ctl->ranks[t.rank].pid = t.pid;
	}
	return 0;
}

int ctl_plan_ready(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl *ctl = p->ctl;
	uint32_t node = m->u.ready.node;

	if (node >= ctl->nnodes || !ctl->plan.layout.tasks[node] ||
	    ctl->nodes[node].state != NODE_ABSENT)
		return -1;
	if (p->name == CTL_NONE || strcmp(ctl->nodes[p->name].name,
					  ctl->nodes[node].name)) {
		ctl_fail_launch(ctl, node, "node number %u is %s for srun, "
				"but %s says it is that one", node,
				ctl->nodes[node].name, p->name == CTL_NONE ?
				"a node that is not in the step" :
				ctl->nodes[p->name].name);
		return -1;
	}
	p->node = node;
	p->state = PEER_READY;
	ctl->nodes[node].peer = p;
	ctl->nodes[node].state = NODE_READY;
	ctl->nodes[node].seen = true;
	ctl->ready++;
	ctl_watch_heard(p, m->u.ready.now_us);
	if (take_ranks(ctl, node, m))
		return 0;
	if (ctl->phase == CTL_STATELESS)
		stateless(ctl, p);
	else if (ctl->phase == CTL_ABORT)
		ctl_fail_abort_node(ctl, node);
	else if (ctl->phase == CTL_WAIT && node == ctl->plan.layout.first)
		reserve(ctl, p);
	start_all(ctl);
	return 0;
}

/* Is this the port that was asked for? */
static bool port_fits(const struct ctl *ctl, uint16_t port)
{
	if (ctl->plan.given & 1U << DDP_OPT_MASTER_PORT)
		return port == ctl->plan.port;
	return !ctl->conf.lo || (port >= ctl->conf.lo && port <= ctl->conf.hi);
}

int ctl_plan_port(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl *ctl = p->ctl;
	char why[512];

	if (p->node != ctl->plan.layout.first || !ctl->port_asked ||
	    ctl->port_known)
		return -1;
	if (!m->u.port.port) {
		ddp_errfile_plain(m->u.port.text, why, sizeof(why));
		ctl_fail_launch(ctl, p->node, "no master port on node %s: %s",
				ctl->nodes[p->node].name, why);
		return 0;
	}
	if (!port_fits(ctl, m->u.port.port))
		return -1;
	ctl->port = m->u.port.port;
	ctl->port_known = true;
	start_all(ctl);
	return 0;
}
