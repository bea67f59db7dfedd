/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of the life-cycle library say, as the agents hand it on:
 * states, why a process aborts, and ranks that leave while others need them.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <stdio.h>
#include <string.h>

/* Others that end without MPI_Finalize() come this soon after the first. */
#define LEFT_MS 100
/* Lower and lower numbers that the agents are told. */
#define LEFT_TOLD_MAX 16U
#define NAMES_SHOWN 8U

/* What to add to the grace: until processes have ended by themselves. */
uint32_t ctl_life_ms(const struct ctl *ctl)
{
	return ctl->plan.life ? DDP_LIFE_LIMIT_MS : 0;
}

/* --- states --------------------------------------------------------------- */

/* "rank 3 on node n2" and more of those in this state. */
static void list_ranks(const struct ctl *ctl, uint8_t state, char *buf,
		       size_t size)
{
	uint32_t n = 0;
	size_t pos = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < ctl->nranks; i++) {
		const struct ctl_rank *r = &ctl->ranks[i];

		if (r->life != state || r->state != RANK_RUNNING ||
		    r->node == CTL_NONE || n++ >= NAMES_SHOWN)
			continue;
		(void)ddp_text_add(buf, size, &pos, "%srank %u on %.60s",
				   pos ? ", " : "", i,
				   ctl->nodes[r->node].name);
	}
	if (n > NAMES_SHOWN)
		(void)ddp_text_add(buf, size, &pos, " and %u more",
				   n - NAMES_SHOWN);
}

/*
 * Whose fault it is: who has not even begun holds up those that wait for it.
 * An initialisation is joint: where most are in it, those that are ready with
 * the one before (MPI's) have not come to it; where few are, they hang in it.
 */
static uint8_t faulty_state(const struct ctl *ctl)
{
	uint32_t ready = ctl->life[DDP_LIFE_READY];

	if (ctl->life[DDP_LIFE_NONE])
		return DDP_LIFE_NONE;
	return ready && ready < ctl->life[DDP_LIFE_STARTING] ?
		DDP_LIFE_READY : DDP_LIFE_STARTING;
}

static uint32_t first_in(const struct ctl *ctl, uint8_t state)
{
	for (uint32_t i = 0; i < ctl->nranks; i++)
		if (ctl->ranks[i].life == state && ctl->ranks[i].node !=
		    CTL_NONE && ctl->ranks[i].state == RANK_RUNNING)
			return i;
	return CTL_NONE;
}

static void on_ready_timer(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;
	struct ddp_cause c = {
		.kind = DDP_CAUSE_NOT_READY, .status = DDP_STATUS_UNKNOWN,
		.when_us = ddp_io_now_us(),
	};
	char list[700], begun[700], text[1600];
	uint8_t state = faulty_state(ctl);

	(void)fd, (void)what;
	c.rank = first_in(ctl, state);
	if (ctl->phase != CTL_RUN || c.rank == CTL_NONE)
		return;
	c.node = ctl->ranks[c.rank].node;
	c.pid = ctl->ranks[c.rank].pid;
	list_ranks(ctl, state, list, sizeof(list));
	list_ranks(ctl, DDP_LIFE_STARTING, begun, sizeof(begun));
	snprintf(text, sizeof(text), "%.4g s after the first one had begun to "
		 "initialise MPI or NCCL (--ddp-ready-timeout); %s: %s%s%s",
		 ctl->conf.ready_ms / 1000.0, state == DDP_LIFE_NONE ?
		 "not begun" : state == DDP_LIFE_READY ?
		 "not in the next initialisation" : "not through", list,
		 state != DDP_LIFE_STARTING && begun[0] ? "; waiting: " : "",
		 state != DDP_LIFE_STARTING ? begun : "");
	ctl_fail(ctl, &c, text);
	ctl_end_check(ctl);
}

/* From the first rank that begins until all are ready. */
static void watch_ready(struct ctl *ctl)
{
	bool any = ctl->life[DDP_LIFE_STARTING];

	if (!ctl->conf.ready_ms)
		return;
	if (!any && !ctl->life[DDP_LIFE_NONE]) {
		if (ctl->ready_timer)
			event_del(ctl->ready_timer);
		ctl->ready_armed = false;
	} else if (any && !ctl->ready_armed) {
		ctl->ready_armed = true;
		ctl_timer(ctl, &ctl->ready_timer, on_ready_timer,
			  ctl->conf.ready_ms);
	}
}

void ctl_life_set(struct ctl *ctl, uint32_t rank, uint8_t state)
{
	struct ctl_rank *r = &ctl->ranks[rank];

	if (!ctl->plan.life || r->life == state)
		return;
	ctl->life[r->life]--;
	ctl->life[state]++;
	r->life = state;
	if (ctl->phase == CTL_RUN)
		watch_ready(ctl);
}

/* Is it one of the peer's, and does the plan say that it may speak of it? */
static struct ctl_rank *rank_of(const struct ctl_peer *p, uint32_t rank)
{
	struct ctl *ctl = p->ctl;

	return ctl->plan.life && ctl->plan_us && p->node != CTL_NONE &&
	       rank < ctl->nranks && ctl->ranks[rank].node == p->node ?
		&ctl->ranks[rank] : NULL;
}

static int states(struct ctl_peer *p, const struct ddp_msg *m)
{
	for (uint32_t i = 0; i < m->u.states.n; i++) {
		struct ddp_wire_state s = ddp_wire_state(m, i);
		const struct ctl_rank *r = rank_of(p, s.rank);

		if (!r || s.state >= DDP_LIFE_NSTATES)
			return -1;
		if (r->state != RANK_ENDED)
			ctl_life_set(p->ctl, s.rank, s.state);
	}
	return 0;
}

/* --- causes --------------------------------------------------------------- */

static int blame(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl_rank *r = rank_of(p, m->u.blame.rank);
	struct ddp_cause c = {
		.kind = DDP_CAUSE_PROGRAM, .rank = m->u.blame.rank,
		.node = p->node, .pid = m->u.blame.pid,
		.status = (uint32_t)m->u.blame.code << 8,
		.flags = m->u.blame.flags & DDP_EXIT_CAUGHT_TERM,
		.when_us = ctl_watch_time(p, m->u.blame.when_us),
		.slack_us = p->slack_us,
	};

	if (!r)
		return -1;
	if (r->blamed || r->state == RANK_ENDED || p->aborted)
		return 0;
	r->blamed = true;	/* its end is no failure more */
	snprintf(p->ctl->last_event, sizeof(p->ctl->last_event),
		 "rank %u aborts", c.rank);
	ctl_fail(p->ctl, &c, m->u.blame.text);
	return 0;
}

/* Ended with 0, and others cannot go on without it. */
static void fail_left(struct ctl *ctl, uint32_t rank, const char *text)
{
	const struct ctl_rank *r = &ctl->ranks[rank];
	struct ddp_cause c = {
		.kind = DDP_CAUSE_EARLY, .rank = rank, .node = r->node,
		.pid = r->pid, .when_us = r->left_us,
	};

	ctl_fail(ctl, &c, text);
	ctl_end_check(ctl);
}

static void on_left_timer(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;
	uint32_t n = 0;
	char text[128];

	(void)fd, (void)what;
	if (ctl->phase != CTL_RUN || ctl->nevents)
		return;
	/* Who has never begun MPI does not wait in it: it may not use it. */
	for (uint32_t i = 0; i < ctl->nranks; i++)
		n += ctl->ranks[i].state != RANK_ENDED &&
		     !ctl->ranks[i].left_us &&
		     ctl->ranks[i].life != DDP_LIFE_NONE;
	if (!n)
		return;
	snprintf(text, sizeof(text), "it has not called MPI_Finalize, and %u "
		 "rank%s still run%s", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
	fail_left(ctl, ctl->left_mpi, text);
}

static void tell_left(struct ctl *ctl, const struct ddp_msg *m)
{
	struct ctl_frame *f;

	if (ctl->left_told == LEFT_TOLD_MAX ||
	    (ctl->left_told && m->u.left.count >= ctl->left_count))
		return;
	ctl->left_told++;
	ctl->left_count = m->u.left.count;
	ctl->left_rank = m->u.left.rank;
	f = ctl_frame_new(m);
	for (uint32_t i = 0; f && i < ctl->nnodes; i++)
		if (ctl->nodes[i].peer)
			ctl_peer_send_frame(ctl->nodes[i].peer, f);
	ctl_frame_put(f);
}

static int left(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl *ctl = p->ctl;
	struct ctl_rank *r = rank_of(p, m->u.left.rank);

	if (!r)
		return -1;
	if (r->left_us || ctl->phase != CTL_RUN)
		return 0;
	r->left_us = ddp_io_now_us();
	if (!m->u.left.mpi) {
		tell_left(ctl, m);
	} else if (ctl->left_mpi == CTL_NONE) {
		ctl->left_mpi = m->u.left.rank;
		ctl_timer(ctl, &ctl->left_timer, on_left_timer, LEFT_MS);
	}
	return 0;
}

static int waits(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl *ctl = p->ctl;
	char text[128];

	if (!rank_of(p, m->u.waits.rank))
		return -1;
	if (ctl->phase != CTL_RUN || !ctl->left_told || ctl->left_blamed ||
	    m->u.waits.count < ctl->left_count ||
	    m->u.waits.rank == ctl->left_rank)
		return 0;
	ctl->left_blamed = true;
	snprintf(text, sizeof(text), "rank %u waits for it in a collective of "
		 "NCCL", m->u.waits.rank);
	fail_left(ctl, ctl->left_rank, text);
	return 0;
}

int ctl_life_message(struct ctl_peer *p, const struct ddp_msg *m)
{
	switch (m->type) {
	case DDP_MSG_STATES:
		return states(p, m);
	case DDP_MSG_BLAME:
		return blame(p, m);
	case DDP_MSG_LEFT:
		return left(p, m);
	case DDP_MSG_WAITS:
		return waits(p, m);
	case DDP_MSG_PUT:
	case DDP_MSG_GET:
		return p->ctl->plan.life && p->node != CTL_NONE ?
			ctl_pair_message(p, m) : -1;
	default:
		return -1;
	}
}

struct ctl_frame *ctl_life_order(const struct ctl *ctl)
{
	struct ddp_msg m = { .type = DDP_MSG_ORDER };
	size_t pick = ddp_cause_pick(ctl->events, ctl->nevents);
	int code = pick < ctl->nevents ? ddp_cause_code(&ctl->events[pick]) :
		   DDP_EXIT_MACHINE;

	if (!ctl->plan.life)
		return NULL;
	m.u.order.code = (uint8_t)(code & 255 ? code & 255 : 1);
	m.u.order.wait_ms = DDP_LIFE_LIMIT_MS;
	return ctl_frame_new(&m);
}
