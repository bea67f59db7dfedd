/* SPDX-License-Identifier: Apache-2.0 */
/* What the node's slurm.conf knows, and what only slurmctld knows. */
#include "config.h"

#include "launcher/launch.h"

#include "compat/ddp_compat.h"
#include "core/ddp_master.h"
#include "core/ddp_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

bool launch_slurm_built(void)
{
	return true;
}

/* Ids of a heterogeneous job's components from the job's environment. */
static unsigned het_jobs(uint32_t *jobs)
{
	static const char *const kinds[] = { "HET", "PACK" };
	char name[64];

	for (unsigned k = 0; k < 2; k++) {
		unsigned n = 0;

		for (; n < DDP_HET_MAX; n++) {
			const char *text;

			snprintf(name, sizeof(name),
				 "SLURM_JOB_ID_%s_GROUP_%u", kinds[k], n);
			text = getenv(name);
			if (!text || ddp_text_u32(text, 1, UINT32_MAX,
						  &jobs[n]))
				break;
		}
		if (n)
			return n;
	}
	return 0;
}

/* The components of a het job that have this step, or the one at hand. */
static int get_step(const struct launch_step *s, bool tf,
		    struct ddp_compat_step *step, struct ddp_err *err)
{
	uint32_t jobs[DDP_HET_MAX];
	unsigned njobs = s->het && getenv("SLURM_HET_SIZE") ?
		het_jobs(jobs) : 0;

	if (!s->het)
		return ddp_compat_step_get(s->job, s->step, tf, step, err);
	if (!ddp_compat_het_get(jobs, njobs, s->job, s->step, tf, step, err) &&
	    step->layout.ntasks == s->ntasks)
		return 0;
	/* --het-group=N: a step of one component in a heterogeneous job. */
	ddp_compat_step_clear(step);
	return ddp_compat_step_get(s->job, s->step, tf, step, err);
}

static int get_layout(struct ddp_plan *plan, const struct launch_step *s,
		      struct ddp_compat_step *step, struct ddp_err *err)
{
	bool tf = plan->frameworks & DDP_FW_BIT(DDP_FW_TF);

	if (plan->layout.nnodes) {
		step->nodes = strdup(s->nodes);
		return step->nodes ? 0 :
			ddp_err_set(err, DDP_ENOMEM, "out of memory");
	}
	if (get_step(s, tf, step, err))
		return -1;
	if (step->layout.ntasks != s->ntasks ||
	    step->layout.nnodes != s->nnodes)
		return ddp_err_set(err, DDP_EINCONS, "slurmctld has %u tasks "
			"on %u nodes in step %u.%u, srun's variables say %u on "
			"%u", step->layout.ntasks, step->layout.nnodes, s->job,
			s->step, s->ntasks, s->nnodes);
	plan->layout = step->layout;
	memset(&step->layout, 0, sizeof(step->layout));
	plan->tf_map = step->map;
	step->map = NULL;
	return 0;
}

static int get_addr(struct ddp_plan *plan, const char *nodes,
		    struct ddp_err *err)
{
	struct ddp_compat_node node;
	char name[256];

	if (plan->addr[0])
		return 0;
	if (ddp_compat_node_name(nodes, plan->layout.first, name, sizeof(name),
				 err))
		return -1;
	/* What the configuration does not know, slurmctld does. */
	if (ddp_compat_node_conf(name, &node, NULL) &&
	    ddp_compat_node(name, &node, err))
		return -1;
	if (!ddp_text_is_addr(node.addr))
		return ddp_err_set(err, DDP_EINVAL, "the NodeAddr of node %s "
				   "is no address; use --master-addr=ADDR",
				   name);
	if (!ddp_text_is_addr(node.host) ||
	    ddp_text_copy(plan->host, sizeof(plan->host), node.host))
		plan->host[0] = '\0';
	return ddp_text_copy(plan->addr, sizeof(plan->addr), node.addr);
}

/*
 * Every node must come to the same ports without a word to the others: only
 * facts that are the same everywhere count, and nothing is probed.
 */
static int get_ports(struct ddp_plan *plan, struct ddp_err *err)
{
	struct ddp_portset set;
	uint16_t lo, hi;

	ddp_portset_init(&set, 20000, 65535);
	ddp_portset_exclude(&set, 32768, 60999);
	if (ddp_compat_srun_ports(&lo, &hi))
		ddp_portset_exclude(&set, lo, hi);
	return ddp_master_choose(plan, &set, false, err);
}

char *launch_slurm_plan(struct ddp_plan *plan, const struct launch_step *s,
			struct ddp_err *err)
{
	struct ddp_compat_step step;
	char *text = NULL;

	memset(&step, 0, sizeof(step));
	slurm_init(NULL);
	if (!get_layout(plan, s, &step, err) &&
	    !get_addr(plan, step.nodes, err)) {
		(void)ddp_probe_resolve(plan->addr, plan->ip);
		if (plan->frameworks & DDP_FW_BIT(DDP_FW_TF)) {
			plan->tf_addrs = ddp_compat_node_addrs(step.nodes,
					plan->layout.nnodes, false, err);
			if (!plan->tf_addrs)
				goto out;
		}
		if (!get_ports(plan, err))
			text = ddp_plan_format(plan, err);
	}
out:
	ddp_compat_step_clear(&step);
	return text;
}
