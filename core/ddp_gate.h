/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate of a node and step: between slurmstepd, its tasks and the agent.
 *
 * slurmstepd makes it before anything else runs and every task inherits it:
 * an anonymous file with the agent's answer, an event that says the answer
 * is there, and a socket on which slurmstepd and the tasks tell the agent
 * what happens. All are closed at the exec of the program. A task that waits
 * sleeps in poll() until the answer, the agent's death or the time limit;
 * nobody polls by time. It works when Slurm calls the plugin in short-lived
 * children (contain_spank): these inherit the same files.
 *
 * The agent is the user's, so nothing here is believed by root: slurmstepd
 * only writes.
 */
#ifndef DDP_GATE_H
#define DDP_GATE_H

#include "core/ddp_err.h"
#include "core/ddp_place.h"
#include "core/ddp_wire.h"

#include <sys/types.h>

/* Descriptors of the agent program. */
#define DDP_GATE_FD_SOCK 3
#define DDP_GATE_FD_FILE 4
#define DDP_GATE_FD_EVENT 5

#define DDP_GATE_DIR_MAX 128

struct ddp_gate {
	int file, event;	/* -1: there is no gate */
	int ours, agents;	/* the two ends of the socket */
};

#define DDP_GATE_NONE { -1, -1, -1, -1 }

enum ddp_gate_state {
	DDP_GATE_WAIT,		/* no answer yet */
	DDP_GATE_OPEN,		/* port and text are those of the launch */
	DDP_GATE_STATELESS,	/* start by the plan of srun alone */
	DDP_GATE_REFUSED	/* text: why */
};

/* The answer. text: malloc'ed; a whole plan ("": srun's, with this port),
 * or why the launch is refused. */
struct ddp_gate_answer {
	enum ddp_gate_state state;
	uint16_t port;		/* 0: as in the plan */
	char dir[DDP_GATE_DIR_MAX]; /* for error files, "" if there is none */
	char life[DDP_GATE_DIR_MAX]; /* socket for the life-cycle library, "" */
	char *text;
};

/* What the agent must know, as slurmstepd has it. */
struct ddp_gate_conf {
	uint32_t job, step;
	uint32_t tasks;		/* on this node and in this component */
	pid_t stepd;
	bool place;		/* ranks are to be placed */
	char name[DDP_WIRE_NAME];	/* the node's */
	char control[1024];	/* DDP_CONTROL_ENV, not yet looked at; "": this
				 * step has no controller */
	char helpers[256], topology[256], sysroot[256];	/* the site's */
};

enum ddp_gate_kind {
	DDP_GATE_CONF = 1,	/* the first message: a ddp_gate_conf */
	DDP_GATE_TASK,		/* slurmstepd forked a task; with its pidfd */
	DDP_GATE_HERE,		/* a task waits at the gate */
	DDP_GATE_EXITED,	/* slurmstepd saw a task's end */
	DDP_GATE_WHY		/* a task ends before its program; with a text */
};

/* In the status of HERE: the task has put a question; and it has GPUs. */
#define DDP_GATE_ASKS 1U
#define DDP_GATE_GPUS 2U

#define DDP_GATE_WHY_MAX 256

struct ddp_gate_msg {
	uint32_t kind;
	uint32_t local, rank, node, pid, status;
};

/* Make everything, close-on-exec. 0, or -1 with *err and no gate. */
int ddp_gate_make(struct ddp_gate *g, struct ddp_err *err);
void ddp_gate_close(struct ddp_gate *g);

/*
 * Who is the agent: its pid, or why there is none (0 and an errno). Said by
 * whoever started it, before the first task can wait.
 */
void ddp_gate_started(const struct ddp_gate *g, pid_t agent, int error);

/* Never blocks; pidfd -1 for none; 0, or -1 where nobody will read it. */
int ddp_gate_send(int sock, const struct ddp_gate_msg *m, int pidfd);
int ddp_gate_send_conf(int sock, const struct ddp_gate_conf *conf);
/* The text is cut at DDP_GATE_WHY_MAX - 1 bytes. -1: or there is no agent. */
int ddp_gate_send_why(const struct ddp_gate *g, uint32_t local,
		      const char *text);

/*
 * The agent's side. recv: 1 and a message (*conf is filled for DDP_GATE_CONF,
 * why for DDP_GATE_WHY; *pidfd is -1 or the caller's to close; kind 0 is for
 * nobody), 0 if there is none now, -1 at the end of the stream.
 */
int ddp_gate_recv(int sock, struct ddp_gate_msg *m,
		  struct ddp_gate_conf *conf, char why[DDP_GATE_WHY_MAX],
		  int *pidfd);
/* A directory for error files; said before the answer. */
void ddp_gate_dir(const struct ddp_gate *g, const char *dir);
/* The socket for the life-cycle library; said before the answer. */
void ddp_gate_life(const struct ddp_gate *g, const char *name);
/* Its name as the gate has it, the user's text; "" if there is none. */
void ddp_gate_get_dir(const struct ddp_gate *g, char dir[DDP_GATE_DIR_MAX]);
/* Give the answer to all tasks at once. 0, or -1 if it does not fit. */
int ddp_gate_answer(const struct ddp_gate *g, enum ddp_gate_state state,
		    uint16_t port, const char *text, size_t len);

/*
 * A task's question about its place, and the answer to it; see ddp_place.h.
 * The answers are there before the gate's. 0, or -1: too many tasks, or no
 * room for a file of that size; get: also if nothing was written.
 */
int ddp_gate_put_ask(const struct ddp_gate *g, uint32_t local,
		     const struct ddp_ask *ask);
int ddp_gate_get_ask(const struct ddp_gate *g, uint32_t local,
		     struct ddp_ask *ask);
int ddp_gate_put_placed(const struct ddp_gate *g, uint32_t local,
			const struct ddp_placed *placed);
int ddp_gate_get_placed(const struct ddp_gate *g, uint32_t local,
			struct ddp_placed *placed);

/*
 * A task: wait for the answer. Returns 0, or -1 with *err (no agent, the
 * agent died, the time is over). Free out->text in either case.
 */
int ddp_gate_wait(const struct ddp_gate *g, int timeout_ms,
		  struct ddp_gate_answer *out, struct ddp_err *err);

#endif
