/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a step failed: which of many ends was the first one, and which are
 * only what the others did about it. Pure logic over events of one step.
 *
 * Times are the controller's clock; those of the nodes were converted, so an
 * event has a slack. Within DDP_CAUSE_WINDOW_US of the earliest failure the
 * kind decides, since a peer's exit 1 about a broken connection may be seen
 * before the death that broke it: death by a signal, then loss of a machine,
 * then an exit code, then SIGPIPE. Outside of it the earliest wins.
 */
#ifndef DDP_CAUSE_H
#define DDP_CAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DDP_CAUSE_WINDOW_US 10000

/*
 * A rank that was dying when ABORT reached its node began to die at some
 * time before: its event is as late as ABORT's way to it.
 */
#define DDP_CAUSE_DYING_US 250000

/* A port's thief is noticed a while after rank 0 failed because of it. */
#define DDP_CAUSE_THIEF_US 5000000

/* srun's shepherd kills the step when srun was killed: the ranks' end may be
 * seen before srun's. */
#define DDP_CAUSE_SRUN_US 1000000

/* For rank, node and pid: there is none. */
#define DDP_CAUSE_NONE UINT32_MAX

enum ddp_cause_kind {
	DDP_CAUSE_EXIT = 1,	/* an exit code other than 0 */
	DDP_CAUSE_SIGNAL,
	DDP_CAUSE_UNKNOWN,	/* a rank ended, nobody knows how */
	DDP_CAUSE_EARLY,	/* exit code 0 while others ran on */
	DDP_CAUSE_PROGRAM,	/* a rank says that it aborts, and its code */
	DDP_CAUSE_NOT_READY,	/* a rank did not get ready in time */
	DDP_CAUSE_NODE,		/* node or agent lost */
	DDP_CAUSE_STEPD,	/* a node's slurmstepd died */
	DDP_CAUSE_PORT,		/* a stranger listens on the master port */
	DDP_CAUSE_LAUNCH,	/* the step did not come together */
	DDP_CAUSE_SRUN,		/* srun ended */
	DDP_CAUSE_TOLD,		/* a signal to the controller */
	DDP_CAUSE_CONTROLLER,	/* it stood still, the agents gave it up */
	DDP_CAUSE_LAST = DDP_CAUSE_CONTROLLER
};

struct ddp_cause {
	enum ddp_cause_kind kind;
	uint32_t rank, node, pid;
	uint32_t status;	/* wait status, or DDP_STATUS_UNKNOWN */
	uint8_t flags;		/* DDP_EXIT_… */
	bool dying;		/* by a signal, when ABORT came */
	int64_t when_us;
	uint32_t slack_us;	/* when_us may be this much too late */
};

/* The kind of a rank's end; 0 for exit code 0, which is no failure. */
enum ddp_cause_kind ddp_cause_of_status(uint32_t status);

/* Came after ABORT had reached the node: what we did, not what happened. A
 * fault (SIGSEGV and the like) is no answer to a signal of ours. */
bool ddp_cause_is_effect(const struct ddp_cause *c);

/*
 * May Slurm itself be behind this end (scancel, time limit, preemption,
 * requeue)? Then it must be asked before anything is done about it.
 */
bool ddp_cause_is_suspect(const struct ddp_cause *c);

/* The machine's fault, not the program's. */
bool ddp_cause_is_machine(const struct ddp_cause *c);

/* Index of the cause among n events, or n if there is none. */
size_t ddp_cause_pick(const struct ddp_cause *c, size_t n);

/* srun's exit code for this cause. */
int ddp_cause_code(const struct ddp_cause *c);

/* "exit", "signal", … as the report has it. */
const char *ddp_cause_name(enum ddp_cause_kind kind);

/*
 * "exited with code 7", "killed by SIGSEGV (core dumped)", … into buf (64
 * bytes suffice). Returns buf.
 */
const char *ddp_cause_status_text(uint32_t status, uint8_t flags, char *buf,
				  size_t size);

#endif
