/* SPDX-License-Identifier: Apache-2.0 */
/* The static build: for images without Slurm. */
#include "config.h"

#include "launcher/launch.h"

#include "core/ddp_master.h"
#include "core/ddp_probe.h"

#include <stdio.h>
#include <string.h>

bool launch_slurm_built(void)
{
	return false;
}

/* Without slurm.conf only one node, or the user, can say who is the master. */
char *launch_slurm_plan(struct ddp_plan *plan, const struct launch_step *s,
			struct ddp_err *err)
{
	struct ddp_portset set;

	if (!plan->layout.nnodes || (!plan->addr[0] && s->nnodes > 1)) {
		ddp_err_set(err, DDP_EINVAL, "this ddp-launch was built "
			"without Slurm and cannot know %s; start the step "
			"with \"srun --ddp-launch\" (the plugin hands it "
			"over)%s", plan->layout.nnodes ?
			"the address of rank 0's node" : "in which order this "
			"step's ranks lie on its nodes", plan->layout.nnodes ?
			", or use --master-addr=ADDR" : "");
		return NULL;
	}
	if (!plan->addr[0])
		strcpy(plan->addr, "127.0.0.1");
	(void)ddp_probe_resolve(plan->addr, plan->ip);
	ddp_portset_init(&set, 20000, 65535);
	ddp_portset_exclude(&set, 32768, 60999);
	return ddp_master_choose(plan, &set, false, err) ? NULL :
		ddp_plan_format(plan, err);
}

int launch_slurm_state(const char *step)
{
	(void)step;
	puts("unknown");
	return fflush(stdout) ? 1 : 0;
}

int launch_slurm_kill(const char *step)
{
	(void)step;
	return 1;
}
