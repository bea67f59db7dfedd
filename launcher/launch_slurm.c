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
#include <unistd.h>

#include <slurm/slurm.h>

bool launch_slurm_built(void)
{
	return true;
}

/* The components of a het job that have this step, or the one at hand. */
static int get_step(const struct launch_step *s, bool tf,
		    struct ddp_compat_step *step, struct ddp_err *err)
{
	uint32_t jobs[DDP_HET_MAX];
	unsigned njobs = ddp_compat_het_jobs(jobs);

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
			"%u: a component of the step has ended already; look "
			"for its message", step->layout.ntasks,
			step->layout.nnodes, s->job, s->step, s->ntasks,
			s->nnodes);
	plan->layout = step->layout;
	memset(&step->layout, 0, sizeof(step->layout));
	plan->tf_map = step->map;
	step->map = NULL;
	return 0;
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
	    !ddp_compat_master_addr(plan, step.nodes, false, err)) {
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

/* "JOB.STEP"; a component behind it ("+1") says nothing more. */
static int read_step(const char *text, uint32_t *job, uint32_t *step)
{
	size_t n = strcspn(text, ".");

	if (!text[n] || ddp_text_u32_n(text, n, 1, UINT32_MAX, job))
		return -1;
	text += n + 1;
	return ddp_text_u32_n(text, strcspn(text, "+"), 0, UINT32_MAX, step);
}

int launch_slurm_state(const char *text)
{
	static const char *const names[] = { "unknown", "running",
		"cancelled", "gone" };
	uint32_t job, step;

	if (read_step(text, &job, &step))
		return 2;
	/* Whoever asks does not wait longer. */
	(void)alarm(5);
	slurm_init(NULL);
	puts(names[ddp_compat_step_state(job, step)]);
	return fflush(stdout) ? 1 : 0;
}

int launch_slurm_kill(const char *text)
{
	uint32_t job, step;
	struct ddp_err err;

	if (read_step(text, &job, &step))
		return 2;
	(void)alarm(30);
	slurm_init(NULL);
	if (!ddp_compat_step_kill(job, step, &err))
		return 0;
	fprintf(stderr, LAUNCH_MSG "error: %s\n", err.text);
	return 1;
}
