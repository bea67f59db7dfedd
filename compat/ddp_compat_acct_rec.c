/* SPDX-License-Identifier: Apache-2.0 */
/* Records of slurmdbd as plain values: the fields that we read of them. */
#include "config.h"

#include "compat/ddp_compat_acct_rec.h"
#include "compat/ddp_compat_gather.h"
#include "core/ddp_tres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern slurm_conf_t slurm_conf __attribute__((weak));

/* As squeue and sacct write them; Slurm's own tables have no header. */
static const struct {
	uint32_t state;
	const char *name, *letters;
} states[] = {
	{ JOB_PENDING, "PENDING", "PD" },
	{ JOB_RUNNING, "RUNNING", "R" },
	{ JOB_SUSPENDED, "SUSPENDED", "S" },
	{ JOB_COMPLETE, "COMPLETED", "CD" },
	{ JOB_CANCELLED, "CANCELLED", "CA" },
	{ JOB_FAILED, "FAILED", "F" },
	{ JOB_TIMEOUT, "TIMEOUT", "TO" },
	{ JOB_NODE_FAIL, "NODE_FAIL", "NF" },
	{ JOB_PREEMPTED, "PREEMPTED", "PR" },
	{ JOB_BOOT_FAIL, "BOOT_FAIL", "BF" },
	{ JOB_DEADLINE, "DEADLINE", "DL" },
	{ JOB_OOM, "OUT_OF_MEMORY", "OOM" },
	/* Flags that the accounting keeps of runs that were not the last. */
	{ JOB_REQUEUE, "REQUEUED", "RQ" },
	{ JOB_RESIZING, "RESIZING", "RS" },
	{ JOB_REVOKED, "REVOKED", "RV" },
};

#define NSTATES (sizeof(states) / sizeof(states[0]))
#define FLAGS (JOB_REQUEUE | JOB_RESIZING | JOB_REVOKED)

/* Index into states; one that we do not know is -1. */
static int state_index(uint32_t state)
{
	for (size_t i = 0; i < NSTATES; i++)
		if (state & FLAGS ? (states[i].state & state & FLAGS) != 0 :
		    states[i].state == (state & JOB_STATE_BASE))
			return (int)i;
	return -1;
}

const char *ddp_acct_state_name(int state)
{
	return state >= 0 && (size_t)state < NSTATES ? states[state].name :
		"UNKNOWN";
}

int ddp_acct_state_parse(const char *name)
{
	for (size_t i = 0; i < NSTATES; i++)
		if (!strcasecmp(name, states[i].name) ||
		    !strcasecmp(name, states[i].letters))
			return (int)i;
	return -1;
}

static enum ddp_acct_phase phase_of(uint32_t state)
{
	if (state & FLAGS)
		return DDP_ACCT_ENDED;
	switch (state & JOB_STATE_BASE) {
	case JOB_PENDING:
		return DDP_ACCT_PENDING;
	case JOB_RUNNING:
	case JOB_SUSPENDED:
		return DDP_ACCT_RUNNING;
	default:
		return DDP_ACCT_ENDED;
	}
}

void ddp_acct_usage_init(struct ddp_acct_usage *u)
{
	for (unsigned m = 0; m < DDP_ACCT_METRICS; m++)
		u->in_tot[m] = u->out_tot[m] = u->out_max[m] =
			DDP_ACCT_UNKNOWN;
}

enum ddp_acct_kind ddp_acct_step_kind(uint32_t id)
{
	if (id == SLURM_BATCH_SCRIPT)
		return DDP_ACCT_BATCH;
	if (id == SLURM_INTERACTIVE_STEP)
		return DDP_ACCT_INTERACTIVE;
	if (id == SLURM_EXTERN_CONT)
		return DDP_ACCT_EXTERN;
	return DDP_ACCT_STEP;
}

/*
 * GPUs in a list of what was allocated. A list that names none is of a job or
 * step without GPUs; without any list nobody knows, nor where GPUs are not in
 * AccountingStorageTRES.
 */
static uint64_t gpus_of(const struct ddp_acct *a, const char *alloc)
{
	uint64_t sum = 0, one;

	if (!alloc || !*alloc || (!a->gpu && !a->ngpu_types))
		return DDP_ACCT_UNKNOWN;
	if (a->gpu && !ddp_tres_count(alloc, a->gpu, &one))
		return one;
	for (unsigned i = 0; i < a->ngpu_types; i++)
		if (!ddp_tres_count(alloc, a->gpu_type[i], &one))
			sum += one;
	return sum;
}

static void usage_of(const struct ddp_acct *a, const slurmdb_stats_t *s,
		     struct ddp_acct_usage *u)
{
	ddp_acct_usage_init(u);
	for (unsigned m = 0; m < DDP_ACCT_METRICS; m++) {
		uint32_t id = a->metric[m];

		if (!id)
			continue;
		(void)ddp_tres_count(s->tres_usage_in_tot, id, &u->in_tot[m]);
		(void)ddp_tres_count(s->tres_usage_out_tot, id,
				     &u->out_tot[m]);
		(void)ddp_tres_count(s->tres_usage_out_max, id,
				     &u->out_max[m]);
	}
}

/* Does the Slurm that this program is configured for? */
static bool gathers(void)
{
	return !&slurm_conf ||
		ddp_gather_type_gathers(slurm_conf.job_acct_gather_type);
}

/* Slurm's marks for "no number" are our NONE. */
static uint32_t number(uint32_t v)
{
	return v == NO_VAL || v == INFINITE ? DDP_ACCT_NONE : v;
}

static void copy_state(char *buf, size_t size, uint32_t state)
{
	snprintf(buf, size, "%s", ddp_acct_state_name(state_index(state)));
}

static int copy_text(char **out, const char *text)
{
	*out = text ? strdup(text) : NULL;
	return text && !*out ? -1 : 0;
}

static int read_step(const struct ddp_acct *a, const slurmdb_step_rec_t *r,
		     struct ddp_acct_step *s)
{
	s->kind = ddp_acct_step_kind(r->step_id.step_id);
	s->phase = phase_of(r->state);
	s->id = r->step_id.step_id;
	s->comp = number(r->step_id.step_het_comp);
	copy_state(s->state, sizeof(s->state), r->state);
	s->start = r->start;
	s->end = r->end;
	s->elapsed = number(r->elapsed) == DDP_ACCT_NONE ? 0 : r->elapsed;
	s->nnodes = number(r->nnodes);
	s->ntasks = number(r->ntasks);
	s->ngpus = gpus_of(a, r->tres_alloc_str);
	usage_of(a, &r->stats, &s->usage);
	/* Whatever else it has or lacks, Slurm's own are always in it. */
	s->recorded = (r->stats.tres_usage_in_tot &&
		       *r->stats.tres_usage_in_tot) || !gathers();
	return copy_text(&s->name, r->stepname);
}

static int step_order(const void *x, const void *y)
{
	const struct ddp_acct_step *a = x, *b = y;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	return a->comp < b->comp ? -1 : a->comp > b->comp;
}

static int read_steps(const struct ddp_acct *a, ddp_acct_list list,
		      struct ddp_acct_job *j)
{
	size_t n = list ? (size_t)slurm_list_count(list) : 0;
	const slurmdb_step_rec_t *r;
	ddp_acct_iter it;
	int rc = 0;

	if (!n)
		return 0;
	j->steps = calloc(n, sizeof(*j->steps));
	if (!j->steps)
		return -1;
	it = slurm_list_iterator_create(list);
	while (!rc && j->nsteps < n && (r = slurm_list_next(it)))
		/* A step that only waits has no number. */
		if (r->step_id.step_id != SLURM_PENDING_STEP)
			rc = read_step(a, r, &j->steps[j->nsteps++]);
	slurm_list_iterator_destroy(it);
	qsort(j->steps, j->nsteps, sizeof(*j->steps), step_order);
	return rc;
}

static int read_job(const struct ddp_acct *a, const slurmdb_job_rec_t *r,
		    struct ddp_acct_job *j)
{
	j->id = r->jobid;
	j->array_id = r->array_job_id ? r->array_job_id : DDP_ACCT_NONE;
	j->array_task = number(r->array_task_id);
	j->het_id = r->het_job_id && number(r->het_job_offset) !=
		DDP_ACCT_NONE ? r->het_job_id : DDP_ACCT_NONE;
	j->het_offset = number(r->het_job_offset);
	j->uid = r->uid;
	j->phase = phase_of(r->state);
	copy_state(j->state, sizeof(j->state), r->state);
	j->submit = r->submit;
	j->start = r->start;
	j->end = r->end;
	j->elapsed = number(r->elapsed) == DDP_ACCT_NONE ? 0 : r->elapsed;
	j->nnodes = number(r->alloc_nodes);
	j->ngpus = gpus_of(a, r->tres_alloc_str);
	if (copy_text(&j->cluster, r->cluster) ||
	    copy_text(&j->name, r->jobname) || copy_text(&j->user, r->user) ||
	    copy_text(&j->account, r->account) ||
	    copy_text(&j->partition, r->partition))
		return -1;
	return read_steps(a, r->steps, j);
}

/* The id that its user knows it by: of the array, or of the whole. */
static uint32_t family(const struct ddp_acct_job *j)
{
	return j->array_id != DDP_ACCT_NONE ? j->array_id :
		j->het_id != DDP_ACCT_NONE ? j->het_id : j->id;
}

static uint32_t member(const struct ddp_acct_job *j)
{
	return j->array_id != DDP_ACCT_NONE ? j->array_task :
		j->het_id != DDP_ACCT_NONE ? j->het_offset : 0;
}

/* The last element of an array has the array's id, and would come first. */
static int job_order(const void *x, const void *y)
{
	const struct ddp_acct_job *a = x, *b = y;

	if (family(a) != family(b))
		return family(a) < family(b) ? -1 : 1;
	if (member(a) != member(b))
		return member(a) < member(b) ? -1 : 1;
	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	if (a->submit != b->submit)
		return a->submit < b->submit ? -1 : 1;
	return a->start < b->start ? -1 : a->start > b->start;
}

int ddp_acct_records(const struct ddp_acct *a, ddp_acct_list list,
		     struct ddp_acct_jobs *out, struct ddp_err *err)
{
	size_t n = (size_t)slurm_list_count(list);
	const slurmdb_job_rec_t *r;
	ddp_acct_iter it;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	out->job = calloc(n + 1, sizeof(*out->job));
	if (!out->job)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	it = slurm_list_iterator_create(list);
	while (!rc && out->n < n && (r = slurm_list_next(it)))
		rc = read_job(a, r, &out->job[out->n++]);
	slurm_list_iterator_destroy(it);
	if (rc) {
		ddp_acct_jobs_clear(out);
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	}
	qsort(out->job, out->n, sizeof(*out->job), job_order);
	return 0;
}

void ddp_acct_jobs_clear(struct ddp_acct_jobs *jobs)
{
	for (size_t i = 0; i < jobs->n; i++) {
		struct ddp_acct_job *j = &jobs->job[i];

		for (size_t k = 0; k < j->nsteps; k++)
			free(j->steps[k].name);
		free(j->steps);
		free(j->cluster);
		free(j->name);
		free(j->user);
		free(j->account);
		free(j->partition);
	}
	free(jobs->job);
	memset(jobs, 0, sizeof(*jobs));
}
