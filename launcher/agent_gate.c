/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: what slurmstepd and the tasks say, and the answer to them. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"

#include "core/ddp_proc.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* After a stateless start there is nothing to watch for. */
#define STATELESS_MS 1000

static void on_done(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	event_base_loopbreak(((struct agent *)arg)->base);
}

static void take_conf(struct agent *a)
{
	struct ddp_proc_stat st;
	struct ddp_err err = { DDP_OK, "" };

	if (a->have_conf)
		return;
	a->have_conf = true;
	event_del(a->end_timer);
	a->stepd = (int)syscall(SYS_pidfd_open, a->conf.stepd, 0);
	if (!ddp_proc_stat(a->conf.stepd, &st)) {
		a->stepd_pgrp = st.pgrp;
		a->stepd_session = st.session;
		a->oldest = st.start;
	}
	a->alone = !a->conf.control[0];
	if (!a->alone &&
	    ddp_control_parse(&a->control, a->conf.control, &err))
		agent_gate_refuse(a, err.text);
	else if (agent_gate_start(a))
		agent_gate_refuse(a, "ddp-agent could not start");
	explicit_bzero(a->conf.control, sizeof(a->conf.control));
	if (a->answered)
		event_base_loopbreak(a->base);
}

static void take(struct agent *a, const struct ddp_gate_msg *m, int pidfd)
{
	if (m->kind == DDP_GATE_CONF) {
		take_conf(a);
	} else if (a->tasks && m->local < a->ntasks) {
		if (m->kind == DDP_GATE_TASK) {
			agent_task_add(a, m, pidfd);
			return;
		}
		if (m->kind == DDP_GATE_HERE)
			agent_task_here(a, m);
		else if (m->kind == DDP_GATE_EXITED)
			agent_task_exited(a, m);
	}
	if (pidfd >= 0)
		close(pidfd);
}

void agent_gate_drain(struct agent *a)
{
	struct ddp_gate_conf conf;
	struct ddp_gate_msg m;
	char why[DDP_GATE_WHY_MAX];
	int pidfd, rc;

	if (!a->gate_event)
		return;
	/* No more at once than a node's tasks can have to say. */
	for (unsigned i = 0; i < 3 * DDP_WIRE_TASKS; i++) {
		rc = ddp_gate_recv(a->gate.agents, &m, &conf, why, &pidfd);
		if (rc <= 0)
			break;
		if (m.kind == DDP_GATE_CONF && !a->have_conf)
			a->conf = conf;
		if (m.kind == DDP_GATE_WHY && a->tasks && m.local < a->ntasks)
			agent_task_why(a, m.local, why);
		take(a, &m, pidfd);
	}
	if (rc >= 0)
		return;
	/* slurmstepd's end is its pidfd's to tell. */
	agent_event_free(&a->gate_event);
	if (!a->have_conf)
		event_base_loopbreak(a->base);
}

static void answer(struct agent *a, enum ddp_gate_state state, uint16_t port,
		   const char *text, size_t len)
{
	a->answered = true;
	if (ddp_gate_answer(&a->gate, state, port, text, len))
		event_base_loopbreak(a->base);
}

void agent_gate_open(struct agent *a, const struct ddp_msg *plan)
{
	a->opened = true;
	answer(a, DDP_GATE_OPEN, plan->u.plan.port, plan->u.plan.text,
	       plan->u.plan.len);
}

void agent_gate_stateless(struct agent *a, uint16_t port, const char *text,
			  size_t len)
{
	struct ddp_msg bye = { .type = DDP_MSG_BYE };

	if (a->answered)
		return;
	answer(a, DDP_GATE_STATELESS, port, text, len);
	if (a->link.state != LINK_UP) {
		event_base_loopbreak(a->base);
		return;
	}
	agent_link_send(a, &bye);
	a->link.bye = a->ending = true;
	agent_timer(a, &a->end_timer, STATELESS_MS, on_done, a);
}

void agent_gate_refuse(struct agent *a, const char *text)
{
	if (!a->answered)
		answer(a, DDP_GATE_REFUSED, 0, text, strlen(text));
}
