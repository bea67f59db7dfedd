/* SPDX-License-Identifier: Apache-2.0 */
/* The first task of the step runs: what is to be measured, and by whom. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct_watch.h"
#include "core/ddp_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

static struct acct_watch *const w = &acct_watch;

static const struct {
	const char *type, *name, *word;
} tres[GPU_METRICS] = {
	[GPU_SM] = { "gres", "gpusm", "sm" },
	[GPU_MEMBW] = { "gres", "gpumembw", "membw" },
	[GPU_NVLINK] = { "ic", "nvlink", "nvlink" },
	[GPU_PCIE] = { "ic", "pcie", "pcie" },
	[GPU_ENERGY] = { "gres", "gpuenergy", "energy" },
	[GPU_IDLE] = { "gres", "gpuidle", "idle" },
};

/* Which of the TRES are in AccountingStorageTRES; as a list of words. */
static unsigned find_tres(char *want, size_t size)
{
	unsigned n = 0;
	size_t pos = 0;

	want[0] = '\0';
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		w->pos[m] = ddp_gather_pos(tres[m].type, tres[m].name);
		if (w->pos[m] < 0)
			continue;
		(void)ddp_text_add(want, size, &pos, "%s%s", n ? "," : "",
				   tres[m].word);
		n++;
	}
	return n;
}

static int find_record(const struct ddp_gather_task *task)
{
	struct ddp_err err;

	w->nodeid = task->nodeid;
	if (ddp_gather_record_find(task, w->step.job, w->step.step, &w->rec,
				   &err)) {
		acct_say("no GPU accounting: %s: this Slurm is not one that "
			 "slurm-ddp knows", err.text);
		return -1;
	}
	w->put = w->conf.write;
	if (w->put || ddp_gather_polls_by_task())
		return 0;
	acct_say("no GPU accounting: this release of Slurm needs "
		 "DdpGpuStepRecord=write");
	return -1;
}

/* "12.0@n1": for ps and the logs. */
static void make_label(char *label, size_t size)
{
	char *node = w->node[0] ? NULL :
		acct_environ(w->tasks.v[0].id.pid, "SLURMD_NODENAME");
	const char *name = node ? node : w->node;

	snprintf(label, size, "%s@%s", w->step.name,
		 ddp_text_is_addr(name) ? name : "?");
	free(node);
}

struct args {
	char *v[32 + 2 * GPU_MAX];
	unsigned n;
	char text[8][336];
};

static void add(struct args *a, const char *option, const char *value)
{
	/* execve() takes them as not const. */
	a->v[a->n++] = (char *)(uintptr_t)option;
	a->v[a->n++] = (char *)(uintptr_t)value;
}

static void make_args(struct args *a, const char *want,
		      const struct acct_gpus *gpus)
{
	memset(a, 0, sizeof(*a));
	a->v[a->n++] = w->conf.sampler;
	snprintf(a->text[0], sizeof(a->text[0]), "%u", w->conf.interval_ms);
	add(a, "--interval", a->text[0]);
	snprintf(a->text[1], sizeof(a->text[1]), "%g", w->conf.idle);
	add(a, "--idle", a->text[1]);
	add(a, "--source", w->conf.dcgm ? "dcgm" : "auto");
	if (w->conf.library)
		add(a, "--library", w->conf.library);
	add(a, "--want", want);
	snprintf(a->text[3], sizeof(a->text[3]), "%lld", (long long)w->since);
	add(a, "--since", a->text[3]);
	make_label(a->text[2], sizeof(a->text[2]));
	add(a, "--label", a->text[2]);
	for (unsigned i = 0; i < gpus->n; i++)
		add(a, "--gpu", gpus->arg[i]);
}

static int start_sampler(const char *want, const struct acct_gpus *gpus)
{
	struct args *a = calloc(1, sizeof(*a));
	struct ddp_err err;
	int rc = -1;

	if (!a)
		return -1;
	if (!w->conf.sampler) {
		ddp_err_set(&err, DDP_ENOMEM, "out of memory");
	} else {
		make_args(a, want, gpus);
		rc = acct_sampler_start(&w->sampler, a->v, &err);
	}
	free(a);
	if (rc)
		acct_say("no GPU accounting: %s", err.text);
	return rc;
}

int acct_watch_begin(void)
{
	const struct ddp_gather_task *task = &w->tasks.v[0].id;
	struct acct_gpus gpus;
	struct ddp_err err;
	char want[64];

	w->begun = true;
	acct_watch_take_conf();
	if (w->step.kind == ACCT_UNKNOWN) {
		acct_say("no GPU accounting: slurmstepd's title does not say "
			 "which step it runs");
		return -1;
	}
	if (!find_tres(want, sizeof(want)) || find_record(task))
		return -1;
	if (acct_gpus_find(&w->step, &w->rec, &gpus, &err)) {
		acct_say("no GPU accounting: %s", err.text);
		return -1;
	}
	if (!gpus.n || start_sampler(want, &gpus))
		return -1;
	w->ngpus = gpus.n;
	pthread_mutex_lock(&w->lock);
	w->sampling = true;
	pthread_mutex_unlock(&w->lock);
	return 0;
}
