/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spank_ddp.so: entry points that Slurm calls, in the order of a launch.
 *
 *   srun      init → init_post_opt → local_user_init
 *   sbatch    init → init_post_opt
 *   node      init (root) → task_init (each task, the user's ids)
 *
 * On the nodes nothing the user chose is read before task_init: until then
 * the code runs as root inside slurmstepd.
 */
#include "config.h"

#include "spank/spank_ddp.h"

#include <slurm/slurm.h>

SPANK_PLUGIN(ddp, 1)

static struct ddp_spank state;

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
	switch (spank_context()) {
	case S_CTX_LOCAL:
		read_site(argc, argv);
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
	(void)sp;
	(void)argc;
	(void)argv;
	switch (spank_context()) {
	case S_CTX_LOCAL:
		return ddp_srun_post_opt(&state);
	case S_CTX_ALLOCATOR:
		return ddp_alloc_post_opt(&state);
	default:
		return 0;
	}
}

int slurm_spank_local_user_init(spank_t sp, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return ddp_srun_user_init(sp, &state);
}

int slurm_spank_task_init(spank_t sp, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return ddp_step_task_init(sp, &state);
}
