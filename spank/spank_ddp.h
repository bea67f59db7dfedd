/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adapter between Slurm's SPANK and the core, one file a context:
 * spank_srun.c (srun), spank_alloc.c (sbatch, salloc), spank_step.c (the
 * tasks on the nodes). spank_ddp.c only dispatches.
 */
#ifndef SPANK_DDP_H
#define SPANK_DDP_H

#include "core/ddp_env.h"
#include "core/ddp_gate.h"
#include "core/ddp_place.h"
#include "core/ddp_port.h"
#include "core/ddp_site.h"

#include <slurm/spank.h>

/* All messages to people start like this. */
#define DDP_MSG "ddp: "

/* Slurm's switch for one line an ended node instead of one a task; srun sets
 * it with this value where the user did not, and the tasks take it out. */
#define DDP_REDUCE_ENV "SLURM_SRUN_REDUCE_TASK_EXIT_MSG"
#define DDP_REDUCE_OURS "1ddp"

/* What the plugin learns before a launch, in every context. */
struct ddp_spank {
	struct ddp_site site;
	struct ddp_options options;	/* after ddp_spank_options_resolve() */
	unsigned given;			/* bits 1 << ddp_opt of the user's */
	unsigned components;		/* of a heterogeneous srun */
};

/* spank_options.c */

/*
 * Register the options with Slurm; environment twins start with prefix
 * ("SLURM_", "SBATCH_", "SALLOC_"), NULL where options are not read (on the
 * nodes, whose callbacks ignore what they are handed).
 */
void ddp_spank_options_register(spank_t sp, const char *prefix);

/*
 * Options from all sources into state->options and ->given, later ones win:
 * site, what sbatch or salloc was given, environment, command line. Also
 * checks the site's policy. Returns 0, or -1 with *err.
 */
int ddp_spank_options_resolve(struct ddp_spank *state, struct ddp_err *err);

/* Hand options->given on to every srun of the job, by environment. */
int ddp_spank_options_export(const struct ddp_spank *state);

/* Forget what an enclosing job's sbatch or salloc handed on. */
void ddp_spank_options_forget(void);

/*
 * Take Slurm's own variables for our options out of a task's environment;
 * 24.11 and 26.05 leave every second one there.
 */
void ddp_spank_options_unset(spank_t sp);

/* Free what the callbacks kept. */
void ddp_spank_options_clear(void);

/* One warning for options that do nothing because the launch is off. */
void ddp_spank_options_idle(const struct ddp_spank *state);

/* spank_alloc.c: sbatch and salloc */
void ddp_alloc_init(spank_t sp);
int ddp_alloc_post_opt(struct ddp_spank *state);

/* spank_srun.c */
int ddp_srun_post_opt(struct ddp_spank *state);
int ddp_srun_user_init(spank_t sp, struct ddp_spank *state);
/* Explain, warn of and announce a finished plan; 0, or -1 with *err. */
int ddp_srun_publish(const struct ddp_spank *state,
		     const struct ddp_plan *plan, const char *nodes,
		     struct ddp_err *err);
/* Put the plan, and sentinels for nodes without the plugin, into the
 * environment of the launch. 0, or -1 with *err. */
int ddp_srun_publish_env(const struct ddp_plan *plan, struct ddp_err *err);
/* Start the controller, or make *plan stateless where that is allowed. 0, or
 * -1 with *err. */
int ddp_srun_controller(struct ddp_spank *state, struct ddp_plan *plan,
			struct ddp_err *err);
/* What the options say, into an empty plan. */
void ddp_srun_plan_init(const struct ddp_spank *state, struct ddp_plan *plan);
/* MASTER_ADDR of a plan: the user's, or the NodeAddr of rank 0's node. */
int ddp_srun_addr(struct ddp_plan *plan, const char *nodes, bool rpc,
		  struct ddp_err *err);
/* Ports that are candidates for this site and configuration. */
void ddp_srun_pool(const struct ddp_spank *state, struct ddp_portset *set);

/* spank_het.c: heterogeneous steps */

/* srun, once it sees a second component: tell the nodes of all of them. */
int ddp_het_announce(const struct ddp_spank *state, struct ddp_err *err);
/* srun, when the step exists: check, explain; the nodes do the same. */
int ddp_het_launch(spank_t sp, struct ddp_spank *state, struct ddp_err *err);
/*
 * A task: the announced plan, completed by the launcher program (which asks
 * slurmctld once a node), malloc'ed; NULL with *err. slurmstepd itself must
 * not ask: it holds a lock against that while it carries the user's ids.
 */
char *ddp_het_plan(spank_t sp, const struct ddp_spank *state,
		   struct ddp_err *err);

/* spank_cmdline.c: how srun itself was called */

/* Before srun sets variables of its own step. */
void ddp_cmdline_init(void);
/* The program's arguments are the last nprog of srun's own; 0 for several
 * components, whose programs are then guessed. */
void ddp_cmdline_read(int nprog);
/* The value a variable will have in the tasks if nothing sets it; or NULL. */
const char *ddp_cmdline_task_env(const char *name);
/* Was --task-prolog or SLURM_TASK_PROLOG given? */
bool ddp_cmdline_task_prolog(void);
/* Did the user say --kill-on-bad-exit=0, or its twin in the environment? */
bool ddp_cmdline_keep_running(void);
/* Did the user ask Slurm itself to bind CPUs; GPUs? */
bool ddp_cmdline_cpu_bind(void);
enum ddp_gpu_said ddp_cmdline_gpu_bind(void);
void ddp_cmdline_clear(void);

/* spank_ctl.c: srun and its controller */

/*
 * Make the listening socket and the key, and put them into the environment
 * of the launch; does nothing the second time. 0, or -1 with *err.
 */
int ddp_ctl_announce(const struct ddp_spank *state, struct ddp_err *err);
/* Start the controller; after ddp_ctl_announce(). 0, or -1 with *err. */
int ddp_ctl_spawn(const struct ddp_spank *state, struct ddp_err *err);
/* Tell it what the step is, and listen to it from now on. nodes: Slurm's
 * list. 0, or -1 with *err. */
int ddp_ctl_tell(const struct ddp_spank *state, const struct ddp_plan *plan,
		 const char *nodes, struct ddp_err *err);
/* Go on without: the nodes will not look for a controller. */
void ddp_ctl_drop(void);

/* spank_channel.c: what the controller says, and srun's exit code */

/* Once, before anything of Slurm's registers a handler. */
void ddp_channel_init(void);
/* Takes the socket over. 0, or -1 with *err. */
int ddp_channel_start(int fd, uint32_t grace_ms, struct ddp_err *err);

/* spank_agent.c: slurmstepd, the agent and the tasks */

/* slurmstepd, as root, before anything else: the gate, if srun has a
 * controller or ranks are to be placed. Looks at no byte of the user's. */
void ddp_agent_gate(spank_t sp);
/* slurmstepd with the user's effective ids: start the agent. */
void ddp_agent_start(spank_t sp, const struct ddp_spank *state);
/* slurmstepd: a task was forked and waits; a task has ended. */
void ddp_agent_task(spank_t sp);
void ddp_agent_exited(spank_t sp);
void ddp_agent_clear(void);
/* spank_drain.c: wait, bounded, until what tasks have printed has left. */
void ddp_drain(void);
/* In slurmstepd itself, before it. */
void ddp_drain_init(void);
/* A task that ends before its program: the reason goes to the agent, and from
 * it to the user. 0, or -1: nobody would tell it. */
int ddp_agent_why(uint32_t local, const char *text);
/*
 * A task: wait for the whole step, if srun has a controller, and for its
 * place, if ask->valid. Returns 0 and the answer (state DDP_GATE_WAIT: no
 * controller and no place), or -1 with *err; free out->text. placed->state
 * tells whether there is a place. Takes the key out of the environment. Does
 * not return if another rank of this node was refused its place: the agent
 * has the reason, and ends this one.
 */
int ddp_agent_wait(spank_t sp, const struct ddp_ask *ask,
		   struct ddp_gate_answer *out, struct ddp_placed *placed,
		   struct ddp_err *err);

/* spank_place.c: CPUs, memory and GPUs of a task */

/* Why the agent knows nothing of a task's wishes. */
#define DDP_PLACE_NO_ROOM "no room to ask ddp-agent: too many tasks on a " \
	"node, or too low a limit on the size of files (ulimit -f)"

/* srun: what is wanted, into the environment of the launch. After
 * ddp_cmdline_read(). 0, or -1 with *err. */
int ddp_place_announce(const struct ddp_spank *state, struct ddp_err *err);
/*
 * A task: what Slurm has given it; ask->valid stays 0 where nobody is to be
 * placed. Takes the announcement out of the environment. 0, or -1 with *err.
 */
int ddp_place_ask(spank_t sp, const struct ddp_spank *state, uint32_t rank,
		  struct ddp_ask *ask, struct ddp_err *err);
/* For messages. first: this is rank 0's node. */
struct ddp_place_facts {
	const char *node;
	uint32_t rank, local;
	bool first;
};
/* A task: take the place, and say what is to be said of it. 0, or -1 with
 * *err. */
int ddp_place_take(spank_t sp, const struct ddp_ask *ask,
		   struct ddp_placed *placed, const struct ddp_place_facts *f,
		   struct ddp_err *err);

/* spank_env.c: a task's environment */

/* Set to anything? The value is not looked at. */
bool ddp_spank_is_set(spank_t sp, const char *name);
/* A number from 0; false, and *out as it was: not set, or none. */
bool ddp_spank_env_u32(spank_t sp, const char *name, uint32_t *out);

/* spank_hint.c: a batch script that was given a launch, and has no srun in it,
 * is told so. With the user's ids. */
void ddp_hint_batch(spank_t sp);

/* spank_step.c: a task, with the user's ids, before its exec */
int ddp_step_task_init(spank_t sp, const struct ddp_spank *state);

/*
 * spank_verify.c: watch the calling process until it has become the user's
 * program and compare its environment with the plan's; a difference is
 * reported and the process killed. env: for hosts where a TaskProlog can
 * change the environment after us; place: also r->placed, for
 * --ddp-bind=…,verify. command: what Slurm will exec; a program that it
 * starts in its own place is not judged. A program that is over within
 * milliseconds may go unseen. Returns 0, or -1 with *err.
 */
int ddp_verify_start(const struct ddp_plan *plan, const struct ddp_rank *r,
		     const char *command, bool env, bool place,
		     struct ddp_err *err);

#endif
