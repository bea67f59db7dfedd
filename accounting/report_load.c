/* SPDX-License-Identifier: Apache-2.0 */
/* From the accounting's records to the numbers that the rest works on. */
#include "config.h"

#include "accounting/report_app.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void put(struct report_values *v, int m, uint64_t raw, double divisor)
{
	if (raw == DDP_ACCT_UNKNOWN)
		return;
	v->known |= REPORT_BIT(m);
	v->v[m] = (double)raw / divisor;
}

/*
 * Every task has the mean, in whole percent: what TRESUsageInAve shows. The
 * sum is made for a division without remainder (half a point a task is added
 * to it), so decimals of it would say something wrong.
 */
static void put_mean(struct report_values *v, int m, uint64_t raw,
		     uint32_t ntasks)
{
	if (raw != DDP_ACCT_UNKNOWN && ntasks)
		put(v, m, raw / ntasks, 1);
}

/*
 * Of how many of the step's tasks the values are: nodes that could not measure
 * are not in them, and TRESUsageOutTot says how many are, of each metric that
 * has nothing else to say there. Where Slurm's polls deal the values
 * (DdpGpuStepRecord=read) it does not, but is unset, or of percentages the sum
 * of the tasks' peaks, which is mostly more than the tasks.
 */
static uint32_t measured_tasks(const struct ddp_acct_usage *u, uint32_t ntasks)
{
	static const int says[] = { DDP_ACCT_ENERGY, DDP_ACCT_IDLE,
				    DDP_ACCT_SM, DDP_ACCT_MEMBW };

	for (unsigned i = 0; i < sizeof(says) / sizeof(*says); i++) {
		uint64_t n = u->out_tot[says[i]];

		if (u->in_tot[says[i]] != DDP_ACCT_UNKNOWN)
			return n && n < ntasks ? (uint32_t)n : ntasks;
	}
	return ntasks;
}

/* The meaning of each TRES: ddp-report(1), "FIGURES". */
static void read_usage(const struct ddp_acct_usage *u, uint32_t ntasks,
		       struct report_values *v)
{
	memset(v, 0, sizeof(*v));
	put_mean(v, REPORT_SM, u->in_tot[DDP_ACCT_SM], ntasks);
	put_mean(v, REPORT_DRAM, u->in_tot[DDP_ACCT_MEMBW], ntasks);
	put(v, REPORT_SM_PEAK, u->out_max[DDP_ACCT_SM], 1);
	put(v, REPORT_DRAM_PEAK, u->out_max[DDP_ACCT_MEMBW], 1);
	put(v, REPORT_NVLINK_IN, u->in_tot[DDP_ACCT_NVLINK], 1);
	put(v, REPORT_NVLINK_OUT, u->out_tot[DDP_ACCT_NVLINK], 1);
	put(v, REPORT_PCIE_IN, u->in_tot[DDP_ACCT_PCIE], 1);
	put(v, REPORT_PCIE_OUT, u->out_tot[DDP_ACCT_PCIE], 1);
	put(v, REPORT_ENERGY, u->in_tot[DDP_ACCT_ENERGY], 1);
	put(v, REPORT_IDLE, u->in_tot[DDP_ACCT_IDLE], 1);
}

static int64_t gpus(uint64_t raw)
{
	return raw > INT32_MAX ? REPORT_GPUS_UNKNOWN : (int64_t)raw;
}

static uint32_t count(uint32_t raw)
{
	return raw == DDP_ACCT_NONE ? 0 : raw;
}

/*
 * A step that has figures had GPUs, whatever its record says: those of its
 * part of the job's nodes, if the job's can be divided by them.
 */
static void find_gpus(const struct report_job *job, struct report_step *s)
{
	if (s->ngpus > 0 || !s->values.known)
		return;
	s->ngpus = REPORT_GPUS_UNKNOWN;
	if (job->ngpus > 0 && job->nnodes && s->nnodes &&
	    s->nnodes <= job->nnodes && job->ngpus % job->nnodes == 0)
		s->ngpus = job->ngpus / job->nnodes * s->nnodes;
}

static void name_step(const struct ddp_acct_step *r, struct report_step *s)
{
	static const char *const kinds[] = {
		[DDP_ACCT_BATCH] = "batch",
		[DDP_ACCT_INTERACTIVE] = "interactive",
		[DDP_ACCT_EXTERN] = "extern",
	};

	if (r->kind != DDP_ACCT_STEP)
		snprintf(s->id, sizeof(s->id), "%s", kinds[r->kind]);
	else if (r->comp != DDP_ACCT_NONE)
		snprintf(s->id, sizeof(s->id), "%u+%u", r->id, r->comp);
	else
		snprintf(s->id, sizeof(s->id), "%u", r->id);
	snprintf(s->state, sizeof(s->state), "%s", r->state);
	s->name = r->name;
}

/* slurmdbd hears of a job's end before it hears what the job's last step used,
 * and shows that step as ended from then on. */
static bool is_awaited(const struct ddp_acct_step *r, int64_t end, int64_t now)
{
	return r->phase == DDP_ACCT_ENDED && r->kind != DDP_ACCT_EXTERN &&
		!r->recorded && now - end < REPORT_AWAIT_S;
}

static void read_step(const struct report_job *job,
		      const struct ddp_acct_step *r, int64_t now,
		      struct report_step *s)
{
	uint32_t tasks = count(r->ntasks);

	s->kind = r->kind == DDP_ACCT_STEP ? REPORT_STEP :
		r->kind == DDP_ACCT_EXTERN ? REPORT_EXTERN : REPORT_BATCH;
	s->running = r->phase == DDP_ACCT_RUNNING;
	s->start = r->start;
	/* A step whose end nobody has recorded ended with its job. */
	s->end = r->end ? r->end : job->end;
	s->awaited = is_awaited(r, s->end, now);
	s->seconds = r->elapsed;
	s->nnodes = count(r->nnodes);
	s->ntasks = tasks;
	s->ngpus = gpus(r->ngpus);
	if (!s->running)
		tasks = measured_tasks(&r->usage, s->ntasks);
	s->missing = tasks < s->ntasks ? 1 - (double)tasks / s->ntasks : 0;
	read_usage(&r->usage, tasks, &s->values);
	find_gpus(job, s);
	report_values_check(&s->values, s->ngpus, s->seconds);
	name_step(r, s);
}

static void name_job(const struct ddp_acct_job *r, struct report_job *j)
{
	bool array = r->array_id != DDP_ACCT_NONE;

	if (array && r->array_task != DDP_ACCT_NONE)
		snprintf(j->id, sizeof(j->id), "%u_%u", r->array_id,
			 r->array_task);
	else if (array)
		snprintf(j->id, sizeof(j->id), "%u_*", r->array_id);
	else if (r->het_id != DDP_ACCT_NONE)
		snprintf(j->id, sizeof(j->id), "%u+%u", r->het_id,
			 r->het_offset);
	else
		snprintf(j->id, sizeof(j->id), "%u", r->id);
	snprintf(j->state, sizeof(j->state), "%s", r->state);
	j->job_id = r->id;
	j->array_id = r->array_id;
	j->array_task = array ? r->array_task : DDP_ACCT_NONE;
	j->het_id = r->het_id;
	j->het_offset = r->het_id != DDP_ACCT_NONE ? r->het_offset :
		DDP_ACCT_NONE;
	j->uid = r->uid;
	j->submit = r->submit;
	j->name = r->name;
	j->user = r->user;
	j->account = r->account;
	j->partition = r->partition;
	j->cluster = r->cluster;
}

/*
 * slurmdbd names only users whom it knows; others have a number, as on a
 * cluster that limits nobody. 0 or -1.
 */
static int find_user(struct ddp_acct_job *r)
{
	static uint32_t uid = UINT32_MAX;
	static char *name;
	const struct passwd *pw;

	if (r->user && *r->user)
		return 0;
	if (uid != r->uid) {
		free(name);
		pw = getpwuid(r->uid);
		name = pw ? strdup(pw->pw_name) : NULL;
		if (pw && !name)
			return -1;
		uid = r->uid;
	}
	free(r->user);
	r->user = name ? strdup(name) : NULL;
	return name && !r->user ? -1 : 0;
}

static int read_job(const struct ddp_acct_job *r, int64_t now,
		    struct report_job *j)
{
	memset(j, 0, sizeof(*j));
	j->running = r->phase == DDP_ACCT_RUNNING;
	j->pending = r->phase == DDP_ACCT_PENDING;
	j->start = j->pending ? 0 : r->start;
	j->end = j->running ? now : r->end;
	j->seconds = j->pending ? 0 : r->elapsed;
	j->nnodes = count(r->nnodes);
	j->ngpus = j->pending ? REPORT_GPUS_UNKNOWN : gpus(r->ngpus);
	name_job(r, j);
	if (r->nsteps) {
		j->steps = calloc(r->nsteps, sizeof(*j->steps));
		if (!j->steps)
			return -1;
	}
	for (; j->nsteps < r->nsteps; j->nsteps++)
		read_step(j, &r->steps[j->nsteps], now, &j->steps[j->nsteps]);
	return report_rollup(j);
}

static int ask(struct ddp_acct *a, const struct report_call *c,
	       struct ddp_acct_jobs *out, struct ddp_err *err)
{
	struct ddp_acct_query q = {
		.cluster = c->cluster, .since = c->since, .until = c->until,
		.users = c->users, .nusers = c->nusers,
		.accounts = c->accounts, .naccounts = c->naccounts,
	};
	struct ddp_acct_id *ids = calloc(c->nids + 1, sizeof(*ids));
	int rc;

	if (!ids)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	for (size_t i = 0; i < c->nids; i++)
		ids[i] = c->ids[i].id;
	q.ids = ids;
	q.nids = c->nids;
	rc = ddp_acct_jobs_get(a, &q, out, err);
	free(ids);
	return rc;
}

int report_load(struct ddp_acct *a, const struct report_call *c,
		struct report_data *d, struct ddp_err *err)
{
	int64_t now = time(NULL);

	memset(d, 0, sizeof(*d));
	d->has_metrics = ddp_acct_has_metrics(a);
	if (ask(a, c, &d->raw, err))
		return -1;
	d->jobs = calloc(d->raw.n + 1, sizeof(*d->jobs));
	if (!d->jobs)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	for (; d->njobs < d->raw.n; d->njobs++) {
		struct ddp_acct_job *r = &d->raw.job[d->njobs];

		if (!c->many)
			ddp_acct_live(a, r);
		if (find_user(r) || read_job(r, now, &d->jobs[d->njobs])) {
			free(d->jobs[d->njobs].steps);
			return ddp_err_set(err, DDP_ENOMEM, "out of memory");
		}
	}
	return report_views(d, c, err);
}

void report_data_clear(struct report_data *d)
{
	for (size_t i = 0; i < d->njobs; i++)
		free(d->jobs[i].steps);
	free(d->jobs);
	free(d->views);
	ddp_acct_jobs_clear(&d->raw);
	memset(d, 0, sizeof(*d));
}
