/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heterogeneous steps. srun calls the plugin once all components exist, but
 * what it sets then reaches the tasks of one component only; what it set
 * before reaches all. So srun announces its choices early, port included,
 * and every node completes them by itself with the components' layouts: one
 * process a node asks slurmctld, the tasks find the answer in memory they
 * share. Global ids are Slurm's own, component after component.
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_master.h"
#include "core/ddp_probe.h"
#include "spank/spank_ddp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <slurm/slurm.h>

/* First byte of the shared memory: what follows it. */
#define PAGE_EMPTY '\0'
#define PAGE_PLAN 'P'
#define PAGE_ERROR 'E'

static char *page;

/* The value of an environment variable, in srun or of the job on a node. */
static bool get_env(spank_t sp, bool remote, const char *name, char *buf,
		    size_t size)
{
	const char *text;

	if (remote)
		return spank_getenv(sp, name, buf, (int)size) ==
			ESPANK_SUCCESS;
	text = getenv(name);
	return text && !ddp_text_copy(buf, size, text);
}

/*
 * Ids of the jobs of a heterogeneous job, in order; 0 if the components are
 * of one job. srun exports them under one or the other name.
 */
static unsigned het_jobs(spank_t sp, bool remote, uint32_t *jobs)
{
	static const char *const kinds[] = { "HET", "PACK" };
	char name[64], text[32];

	if (!get_env(sp, remote, "SLURM_HET_SIZE", text, sizeof(text)))
		return 0;
	for (unsigned k = 0; k < 2; k++) {
		unsigned n = 0;

		for (; n < DDP_HET_MAX; n++) {
			snprintf(name, sizeof(name),
				 "SLURM_JOB_ID_%s_GROUP_%u", kinds[k], n);
			if (!get_env(sp, remote, name, text, sizeof(text)) ||
			    ddp_text_u32(text, 1, UINT32_MAX, &jobs[n]))
				break;
		}
		if (n)
			return n;
	}
	return 0;
}

/* Layout, address and, for tf, all addresses into an announced plan. */
static int het_fill(spank_t sp, bool remote, struct ddp_plan *plan,
		    struct ddp_compat_step *step, struct ddp_err *err)
{
	bool tf = plan->frameworks & DDP_FW_BIT(DDP_FW_TF);
	uint32_t jobs[DDP_HET_MAX], job = 0;
	unsigned njobs = het_jobs(sp, remote, jobs);
	char text[32];

	(void)spank_get_item(sp, S_JOB_ID, &job);
	(void)spank_get_item(sp, S_JOB_STEPID, &plan->step);
	plan->job = njobs ? jobs[0] : job;
	if (remote && (!get_env(sp, true, "SLURM_JOB_ID", text, sizeof(text)) ||
		       ddp_text_u32(text, 1, UINT32_MAX, &plan->job)))
		plan->job = job;
	ddp_layout_clear(&plan->layout);
	if (ddp_compat_het_get(jobs, njobs, job, plan->step, tf, step, err))
		return -1;
	plan->layout = step->layout;
	memset(&step->layout, 0, sizeof(step->layout));
	if (ddp_srun_addr(plan, step->nodes, false, err))
		return -1;
	if (!tf)
		return 0;
	plan->tf_map = step->map;
	step->map = NULL;
	plan->tf_addrs = ddp_compat_node_addrs(step->nodes,
					       plan->layout.nnodes, true, err);
	return plan->tf_addrs ? 0 : -1;
}

int ddp_het_announce(const struct ddp_spank *state, struct ddp_err *err)
{
	struct ddp_plan plan;
	struct ddp_portset set;
	uint32_t seed[2] = { 1, 1 };
	char *text = NULL;
	int rc;

	ddp_cmdline_read(0);
	ddp_srun_plan_init(state, &plan);
	ddp_cmdline_clear();
	/* Job and step do not exist yet: any candidate is as good. */
	if (getrandom(seed, sizeof(seed), 0) != sizeof(seed))
		seed[0] = 1;
	plan.het = true;
	plan.job = seed[0] ? seed[0] : 1;
	plan.step = seed[1];
	if (!plan.addr[0])
		strcpy(plan.addr, "auto");
	rc = ddp_layout_parse(&plan.layout, "1", NULL, err);
	ddp_srun_pool(state, &set);
	if (!rc && plan.frameworks & DDP_FW_BIT(DDP_FW_TF))
		rc = ddp_err_set(err, DDP_EINVAL, "--ddp-frameworks=tf is not "
				 "available for heterogeneous steps; leave tf "
				 "out and set TF_CONFIG in the program");
	if (!rc)
		rc = ddp_master_choose(&plan, &set, false, err);
	if (!rc)
		rc = ddp_site_check(&state->site, plan.given, plan.port, err);
	if (!rc && (text = ddp_plan_format(&plan, err)))
		rc = setenv(DDP_HET_ENV, text, 1);
	for (unsigned i = 0; !rc && text && ddp_env_sentinels[i]; i++)
		if (!getenv(ddp_env_sentinels[i]))
			rc = setenv(ddp_env_sentinels[i], DDP_SENTINEL, 1);
	free(text);
	ddp_plan_clear(&plan);
	return rc || !text ? -1 : 0;
}

int ddp_het_launch(spank_t sp, const struct ddp_spank *state,
		   struct ddp_err *err)
{
	const char *text = getenv(DDP_HET_ENV);
	struct ddp_compat_step step;
	struct ddp_portset none;
	struct ddp_plan plan;
	int rc;

	memset(&step, 0, sizeof(step));
	if (!text || ddp_plan_parse(&plan, text, err))
		return ddp_err_set(err, DDP_EINCONS, "the announced plan of "
				   "this heterogeneous step is gone");
	rc = het_fill(sp, false, &plan, &step, err);
	ddp_portset_init(&none, 1, 0);
	if (!rc)	/* the port stands; is it free on rank 0's node? */
		rc = ddp_master_choose(&plan, &none, true, err);
	if (!rc)
		rc = ddp_srun_publish(state, &plan, step.nodes, err);
	ddp_compat_step_clear(&step);
	ddp_plan_clear(&plan);
	return rc;
}

void ddp_het_prepare(spank_t sp)
{
	uint32_t step = 0;
	void *p;

	if (spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
	    !ddp_compat_step_is_normal(step))
		return;
	/* Untouched until a heterogeneous step writes to it. */
	p = mmap(NULL, DDP_PLAN_MAX, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	page = p == MAP_FAILED ? NULL : p;
}

static void page_write(char kind, const char *text)
{
	snprintf(page + 1, DDP_PLAN_MAX - 1, "%s", text);
	page[0] = kind;
}

void ddp_het_complete(spank_t sp)
{
	char *text = page ? malloc(DDP_PLAN_MAX) : NULL, *done = NULL;
	struct ddp_compat_step step;
	struct ddp_plan plan;
	struct ddp_err err;

	if (!text)
		return;
	if (spank_getenv(sp, DDP_HET_ENV, text, (int)DDP_PLAN_MAX) !=
	    ESPANK_SUCCESS)
		goto out;
	memset(&step, 0, sizeof(step));
	if (!ddp_plan_parse(&plan, text, &err) &&
	    !het_fill(sp, true, &plan, &step, &err))
		done = ddp_plan_format(&plan, &err);
	page_write(done ? PAGE_PLAN : PAGE_ERROR, done ? done : err.text);
	ddp_compat_step_clear(&step);
	ddp_plan_clear(&plan);
	free(done);
out:
	free(text);
}

char *ddp_het_plan(struct ddp_err *err)
{
	char *text;

	if (!page || page[0] == PAGE_EMPTY)
		return NULL;
	page[DDP_PLAN_MAX - 1] = '\0';
	if (page[0] != PAGE_PLAN) {
		ddp_err_set(err, DDP_EINCONS, "%s", page + 1);
		return NULL;
	}
	text = strdup(page + 1);
	if (!text)
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
	return text;
}

void ddp_het_clear(void)
{
	if (page)
		munmap(page, DDP_PLAN_MAX);
	page = NULL;
}
