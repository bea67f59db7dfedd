/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spank_ddp.so: entry points that Slurm calls, in the order of a launch.
 *
 *   srun      init → init_post_opt → local_user_init
 *   sbatch    init → init_post_opt
 *   node      init, init_post_opt (root) → user_init (the user's effective
 *             ids) → task_post_fork (root, each task) and task_init (in the
 *             task, the user's ids) → task_exit (root)
 *
 * On the nodes nothing the user chose is looked at before task_init: until
 * then the code runs as root inside slurmstepd. It only hands bytes on.
 */
#include "config.h"

#include "core/ddp_control.h"
#include "spank/spank_ddp.h"

#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

SPANK_PLUGIN(ddp, 1)

static struct ddp_spank state;

/*
 * A plugin that plugstack.conf lists twice is called twice, with the same
 * memory. inits: how often it is listed; the callbacks work once for each
 * round of that many calls.
 */
static unsigned inits, post_opts, user_inits, task_inits, forks, exits;

static bool repeated(unsigned *calls)
{
	return inits > 1 && (*calls)++ % inits;
}

/* plugstack.conf's arguments: a bad one is one line in the log, no more. */
static void read_site(int argc, char **argv)
{
	struct ddp_err err;

	ddp_site_init(&state.site);
	for (int i = 0; i < argc; i++)
		if (ddp_site_set(&state.site, argv[i], &err))
			slurm_error(DDP_MSG "%s", err.text);
}

int slurm_spank_init(spank_t sp, int argc, char **argv)
{
	if (++inits > 1) {
		if (inits == 2 && spank_context() != S_CTX_SLURMD)
			slurm_error(DDP_MSG "plugstack.conf lists "
				    "spank_ddp.so twice; the first line holds");
		return 0;
	}
	switch (spank_context()) {
	case S_CTX_LOCAL:
		read_site(argc, argv);
		/* Only a launch of this srun may put these there; later
		 * Slurm has copied the environment. */
		(void)unsetenv(DDP_PLAN_ENV);
		(void)unsetenv(DDP_HET_ENV);
		(void)unsetenv(DDP_CONTROL_ENV);
		(void)unsetenv(DDP_PLACE_ENV);
		ddp_channel_init();
		ddp_cmdline_init();
		ddp_spank_options_register(sp, "SLURM_");
		return 0;
	case S_CTX_ALLOCATOR:
		read_site(argc, argv);
		ddp_alloc_init(sp);
		return 0;
	case S_CTX_REMOTE:
		read_site(argc, argv);
		ddp_spank_options_register(sp, NULL);
		return 0;
	default:
		return 0;
	}
}

int slurm_spank_init_post_opt(spank_t sp, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (repeated(&post_opts))
		return 0;
	switch (spank_context()) {
	case S_CTX_LOCAL:
		return ddp_srun_post_opt(&state);
	case S_CTX_ALLOCATOR:
		return ddp_alloc_post_opt(&state);
	case S_CTX_REMOTE:
		ddp_agent_gate(sp);
		return 0;
	default:
		return 0;
	}
}

int slurm_spank_local_user_init(spank_t sp, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return repeated(&user_inits) ? 0 : ddp_srun_user_init(sp, &state);
}

/* On a node: a failure is the tasks' to report, see ddp_agent_wait(). */
int slurm_spank_user_init(spank_t sp, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (!repeated(&user_inits))
		ddp_agent_start(sp, &state);
	return 0;
}

int slurm_spank_task_post_fork(spank_t sp, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (!repeated(&forks))
		ddp_agent_task(sp);
	return 0;
}

int slurm_spank_task_exit(spank_t sp, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (!repeated(&exits))
		ddp_agent_exited(sp);
	return 0;
}

int slurm_spank_task_init(spank_t sp, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return repeated(&task_inits) ? 0 : ddp_step_task_init(sp, &state);
}

/* Once a listing, in every context: leave nothing behind. */
int slurm_spank_exit(spank_t sp, int argc, char **argv)
{
	(void)sp;
	(void)argc;
	(void)argv;
	ddp_spank_options_clear();
	ddp_agent_clear();
	memset(&state, 0, sizeof(state));
	inits = post_opts = user_inits = task_inits = forks = exits = 0;
	return 0;
}
