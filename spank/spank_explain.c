/* SPDX-License-Identifier: Apache-2.0 */
/* --ddp-explain: what the launch decided and why, once a step, from srun. */
#include "config.h"

#include "compat/ddp_compat.h"
#include "spank/spank_ddp.h"

#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

static int explain_var(void *arg, const struct ddp_var *v)
{
	const char *had = ddp_cmdline_task_env(v->name);
	const char *value = v->flags & DDP_VAR_ON_NODE ? "(node)" : v->value;
	bool kept = (v->flags & DDP_VAR_DEFAULT) && had;
	char shown[48];

	(void)arg;
	if (v->unless && ddp_cmdline_task_env(v->unless))
		kept = true;
	slurm_spank_log(DDP_MSG "  %-31s %c %-22s %-42s %s",
			v->name, v->flags & DDP_VAR_PER_RANK ? '*' : ' ',
			kept ? "(user's)" : value, v->source,
			had ? ddp_text_safe(had, shown, sizeof(shown)) : "-");
	return 0;
}

void ddp_explain(const struct ddp_plan *plan, const char *nodes)
{
	struct ddp_rank r = { .node = plan->layout.first, .threads = 1 };
	char counts[512], order[512], fw[DDP_FW_TEXT], shown[256];

	if (ddp_layout_format(&plan->layout, counts, sizeof(counts), order,
			      sizeof(order), NULL))
		strcpy(counts, "irregular");
	if (plan->iface != DDP_IFACE_NONE)
		r.ifname = plan->iface == DDP_IFACE_NAME ? plan->ifname :
			"auto";
	slurm_spank_log(DDP_MSG "step %u.%u (restart %u): mode %s%s, frameworks "
			"%s", plan->job, plan->step, plan->restart,
			ddp_mode_name(plan->mode),
			plan->mode == DDP_MODE_FULL ?
			" (stateless in this version)" : "",
			ddp_frameworks_text(plan->frameworks, fw, sizeof(fw)));
	slurm_spank_log(DDP_MSG "%u tasks on %u nodes: %s, tasks a node %s%s",
			plan->layout.ntasks, plan->layout.nnodes,
			ddp_text_safe(nodes, shown, sizeof(shown)), counts,
			order[0] ? ", rank 0 is not on the first" : "");
	slurm_spank_log(DDP_MSG "  %-31s   %-22s %-42s %s", "VARIABLE",
			"RANK 0", "FROM", "USER HAD");
	(void)ddp_env_each(plan, &r, explain_var, NULL);
	slurm_spank_log(DDP_MSG "  * differs between ranks; (node): decided on "
			"the node");
}
