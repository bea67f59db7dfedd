/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-launch: `srun … ddp-launch CMD` gives a task the launch environment
 * without the plugin, or, under the plugin and inside a container, once more.
 *
 *   launch_step.c    what the task's environment and slurmstepd say
 *   launch_slurm.c   what only slurm.conf or slurmctld know (not in the
 *                    static build)
 *   launch_once.c    one answer for all tasks of a node
 *   ddp_launch.c     options, order of things, exec
 */
#ifndef LAUNCH_H
#define LAUNCH_H

#include "core/ddp_plan.h"

#include <sys/types.h>

#define LAUNCH_MSG "ddp: "

/* A task's own view of its step. Texts point into the environment. */
struct launch_step {
	uint32_t job, step;	/* as slurmctld knows them */
	uint32_t global_job;	/* SLURM_JOB_ID: a het job's first */
	uint32_t procid, localid, nodeid;
	uint32_t ntasks, nnodes;
	const char *counts;	/* SLURM_STEP_TASKS_PER_NODE */
	const char *nodes;	/* SLURM_STEP_NODELIST */
	const char *nodename;	/* SLURMD_NODENAME */
	pid_t stepd;	/* slurmstepd, if it is among the ancestors, or 0 */
	bool seen;	/* it is, and what it says of the step is known */
	bool het;	/* one component of several */
	bool arbitrary;	/* the order of ranks is the user's */
};

/*
 * Reads the environment and the title of the slurmstepd above this process.
 * Returns 0; 1 with *err if this is not inside a step; -1 with *err if the
 * facts contradict each other.
 */
int launch_step_read(struct launch_step *s, struct ddp_err *err);

/*
 * The part in brackets of a slurmstepd's title: "JOB.STEP",
 * "JOB.STEP+COMPONENT", also "JOB+OFFSET.STEP"; "JOB.batch" and the like are
 * no step. id is changed. Returns as launch_step_read().
 */
int launch_step_title(struct launch_step *s, char *id, struct ddp_err *err);

/* Can the layout be known from these facts alone? */
bool launch_step_layout_known(const struct launch_step *s, unsigned frameworks);

/* The layout from the facts; only if it is known. 0 or -1. */
int launch_step_layout(const struct launch_step *s, struct ddp_layout *l,
		       struct ddp_err *err);

/* Does this build know Slurm? */
bool launch_slurm_built(void);

/*
 * Complete a plan by slurm.conf, and by slurmctld where the layout is not
 * known. Returns its text, malloc'ed, or NULL with *err. The call may end
 * the process if Slurm's library finds no configuration: call it in a child.
 */
char *launch_slurm_plan(struct ddp_plan *plan, const struct launch_step *s,
			struct ddp_err *err);

/*
 * For the controller: prints the state of step "JOB.STEP", or ends the step.
 * Returns the exit code of the program.
 */
int launch_slurm_state(const char *step);
int launch_slurm_kill(const char *step);

/*
 * One answer for all tasks of a node and step that ask the same question
 * (the text that everything the answer depends on is part of): the first
 * caller makes it with make(arg, err) in a child process, the others get it
 * from there. Returns the malloc'ed text, or NULL with *err.
 */
char *launch_once(const struct launch_step *s, const char *question,
		  uint32_t local_tasks,
		  char *(*make)(void *arg, struct ddp_err *err), void *arg,
		  struct ddp_err *err);

#endif
