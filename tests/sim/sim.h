/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of many nodes without any: one process plays srun and the agent of
 * every node against a real ddp-controller, over loopback. Each agent comes
 * from an address of its own, as it would from its own node.
 *
 *	sim_agents.c	options, results, limits
 *	sim_step.c	the phases of a step
 *	sim_agent.c	one agent's side of the protocol
 *	sim_ctl.c	the controller's process: start, use of memory and CPU
 */
#ifndef SIM_H
#define SIM_H

#include "core/ddp_ctlconf.h"
#include "core/ddp_wire.h"

#include <event2/event.h>
#include <netinet/in.h>

/* Longest frame that a controller sends in a step with one plan for all. */
#define SIM_FRAME 4096

enum sim_state {
	SIM_OUT,		/* no connection yet */
	SIM_CONNECTING,
	SIM_HELLO,		/* waits for CHALLENGE, then WELCOME, … */
	SIM_AUTH,
	SIM_READY,
	SIM_PLAN,		/* has the plan: its ranks run */
	SIM_ABORT,
	SIM_BYE,		/* has said it; the controller closes */
	SIM_CLOSED,
	SIM_STATES
};

struct sim_agent {
	struct sim *sim;
	struct event *event;
	int fd;
	uint32_t node;
	enum sim_state state;
	struct ddp_msg *hello;	/* until it has authenticated itself */
	size_t used;
	uint8_t *buf;		/* what came of a frame that is not whole */
};

struct sim_conf {
	uint32_t nodes, tasks, heartbeats, window;
	uint32_t plan_limit_ms, abort_limit_ms, rss_limit_kb, growth_limit_kb;
	uint32_t node_ms, port;
	const char *controller, *during;
};

/* A moment: wall clock, and the CPU time so far of the two programs. */
struct sim_time {
	int64_t wall_ns, self_ns, ctl_ns;
};

struct sim_results {
	struct sim_time hello, plan, pinged, aborted, ended;
	long rss, grown, peak, switches;
	int64_t abort_ns;
	int status;
	bool complete;		/* all phases */
};

struct sim {
	struct sim_conf conf;
	struct event_base *base;
	struct event *timer, *srun_event;
	struct sockaddr_in to;
	uint8_t key[DDP_KEY_BYTES];
	pid_t ctl;
	int srun;		/* srun's end of the pair; non-blocking */
	struct sim_agent *agents;
	uint32_t count[SIM_STATES];
	uint32_t dialled, pings, pongs, gone;
	int64_t last_ns;	/* arrival of the latest PLAN or ABORT */
	bool hold;		/* keep the answers to ABORT back */
	char line[DDP_CTL_LINE];
	size_t line_used;
	unsigned says;
	int code;		/* of "end", INT32_MIN before it */
	char wrong[512];	/* the first thing that was wrong */
};

/* Remember what is wrong, and leave the event loop. */
void sim_fail(struct sim *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* sim_step.c: all phases, or less if something is wrong; the callbacks for
 * srun's socket and for the time limit. */
void sim_step_play(struct sim *s, struct sim_results *r);
void sim_step_srun(evutil_socket_t fd, short what, void *arg);
void sim_step_timer(evutil_socket_t fd, short what, void *arg);

/* sim_agent.c: dial; send one message; the answers to ABORT. */
void sim_agent_dial(struct sim_agent *a);
void sim_agent_send(struct sim_agent *a, const struct ddp_msg *m);
void sim_agent_ended(struct sim_agent *a);
/* Rank `local` of this node has ended. */
void sim_agent_exit(struct sim_agent *a, uint32_t local, uint32_t status,
		    uint8_t flags);

/* Nanoseconds of the wall clock, as the kernel stamps what arrives. */
int64_t sim_now(void);

/* sim_ctl.c: start it (0 or -1), measure it, see how it ended (-1: it still
 * runs after timeout_ms and was killed) and what it used at most. */
int sim_ctl_start(struct sim *s);
struct sim_time sim_ctl_time(const struct sim *s);
/* Run the command of --during, with SIM_PORT, SIM_KEY and SIM_PHASE (barrier
 * or running) in its environment, while the step goes on; it must exit 0. */
void sim_ctl_during(struct sim *s, const char *phase);
/* A field of /proc/PID/status in kB, or a count; -1 if it is not there. */
long sim_ctl_status(const struct sim *s, const char *field);
int sim_ctl_end(struct sim *s, int timeout_ms, long *peak_kb);

#endif
