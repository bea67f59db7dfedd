/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "spank/spank_ddp.h"
#include "spank/spank_facts.h"

#include <string.h>

static bool get_u32(spank_t sp, spank_item_t item, uint32_t *out)
{
	return spank_get_item(sp, item, out) == ESPANK_SUCCESS;
}

/* slurmstepd has set its variables in the task's environment just before. */
int ddp_facts_get(spank_t sp, struct ddp_facts *f, struct ddp_err *err)
{
	int local = 0;

	if (spank_getenv(sp, "SLURMD_NODENAME", f->name, sizeof(f->name)) !=
	    ESPANK_SUCCESS)
		strcpy(f->name, "?");
	if (!get_u32(sp, S_TASK_GLOBAL_ID, &f->rank) ||
	    !get_u32(sp, S_JOB_ID, &f->job) ||
	    !get_u32(sp, S_JOB_STEPID, &f->step) ||
	    !get_u32(sp, S_JOB_NNODES, &f->nnodes) ||
	    !get_u32(sp, S_JOB_TOTAL_TASK_COUNT, &f->ntasks) ||
	    !get_u32(sp, S_JOB_NODEID, &f->node) ||
	    !get_u32(sp, S_JOB_LOCAL_TASK_COUNT, &f->local_tasks) ||
	    spank_get_item(sp, S_TASK_ID, &local) != ESPANK_SUCCESS)
		return ddp_err_set(err, DDP_ESYS, "slurmstepd does not say "
				   "which task this is");
	f->local = (uint32_t)local;
	if (!ddp_spank_env_u32(sp, "SLURM_PROCID", &f->shown))
		f->shown = f->rank;
	/* In a heterogeneous job the first component's, as tasks see it. */
	(void)ddp_spank_env_u32(sp, "SLURM_JOB_ID", &f->job);
	return 0;
}

/* SPANK's ids are of one component; the environment has the global ones. */
int ddp_facts_globalize(spank_t sp, struct ddp_facts *f,
			const struct ddp_layout *l, struct ddp_err *err)
{
	if (!ddp_spank_env_u32(sp, "SLURM_PROCID", &f->rank) ||
	    !ddp_spank_env_u32(sp, "SLURM_NODEID", &f->node))
		return ddp_err_set(err, DDP_ESYS, "slurmstepd does not say "
				   "which task this is");
	f->nnodes = l->nnodes;
	f->ntasks = l->ntasks;
	return 0;
}

/* slurmstepd's counts decide over the plan's. */
int ddp_facts_check(const struct ddp_facts *f, const struct ddp_plan *plan,
		    struct ddp_err *err)
{
	const struct ddp_layout *l = &plan->layout;

	if (f->job != plan->job || f->step != plan->step)
		return ddp_err_set(err, DDP_EINCONS, "the launch plan is for "
			"step %u.%u, this is %u.%u; unset " DDP_PLAN_ENV,
			plan->job, plan->step, f->job, f->step);
	if (f->nnodes != l->nnodes || f->ntasks != l->ntasks ||
	    f->node >= l->nnodes || f->rank >= l->ntasks ||
	    l->tasks[f->node] != f->local_tasks ||
	    f->local >= f->local_tasks || (!f->rank && f->node != l->first))
		return ddp_err_set(err, DDP_EINCONS, "the launch plan has %u "
			"tasks on %u nodes, slurmstepd has %u on %u (node %u: "
			"%u tasks)", l->ntasks, l->nnodes, f->ntasks,
			f->nnodes, f->node, f->local_tasks);
	return 0;
}
