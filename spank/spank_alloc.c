/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbatch and salloc: nothing is launched here. The options become the
 * default of every srun inside the job; the job's script stays as it is.
 */
#define _GNU_SOURCE
#include "config.h"

#include "spank/spank_ddp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

void ddp_alloc_init(spank_t sp)
{
	const char *prefix = strcmp(program_invocation_short_name, "salloc") ?
		"SBATCH_" : "SALLOC_";

	/* Inside a job: what the outer job was given is not for the inner. */
	if (getenv("SLURM_JOB_ID"))
		ddp_spank_options_forget();
	ddp_spank_options_register(sp, prefix);
}

int ddp_alloc_post_opt(struct ddp_spank *state)
{
	struct ddp_err err;

	if (ddp_spank_options_resolve(state, &err)) {
		slurm_spank_log(DDP_MSG "error: %s", err.text);
		/* A return code would be ignored where the plugin's line
		 * says "optional", and the job would run without it. */
		exit(1);
	}
	if (ddp_spank_options_export(state)) {
		slurm_spank_log(DDP_MSG "error: out of memory");
		exit(1);
	}
	return 0;
}
