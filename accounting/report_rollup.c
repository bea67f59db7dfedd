/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's figures from those of its steps. Every step's figures are those of
 * the whole GPUs that it held, so that steps which held the same GPUs at the
 * same time count them twice: the batch step and all steps inside it, and
 * steps of srun --overlap. The rules, which ddp-report(1) explains:
 *
 * 1. A batch step that has a figure saw all GPUs of the first node from the
 *    job's begin to its end. In a job of one node its figure is the job's.
 * 2. Otherwise the steps of srun are put together: sums are added, means
 *    weighted with GPU time, of peaks the highest is taken. While more GPUs
 *    are in use than the job has, steps share some; each one's part is then
 *    reduced in that proportion, and the figure is marked.
 * 3. If no step of srun has the figure, that of the batch step is a part.
 */
#include "config.h"

#include "accounting/report.h"
#include "accounting/report_use.h"

#include <stdlib.h>
#include <string.h>

/* Far above what any GPU has, and far below garbage. */
#define BYTES_PER_SECOND 1e13
#define WATT 1e4

/* What may be missing before a figure is called partial. */
#define COMPLETE 0.99

static bool is_peak(int m)
{
	return m == REPORT_SM_PEAK || m == REPORT_DRAM_PEAK;
}

static bool is_mean(int m)
{
	return m == REPORT_SM || m == REPORT_DRAM;
}

double report_step_gpu_seconds(const struct report_step *s)
{
	return s->ngpus < 0 ? -1 : (double)s->ngpus * s->seconds;
}

/* The most that a metric can be in so much GPU time; < 0: no limit known. */
static double limit_of(int m, double gpu_seconds)
{
	if (is_peak(m) || is_mean(m))
		return 101;	/* sums of rounded values */
	if (gpu_seconds < 0)
		return -1;
	if (m == REPORT_ENERGY)
		return gpu_seconds * WATT;
	return m == REPORT_IDLE ? gpu_seconds * 1.1 :
		gpu_seconds * BYTES_PER_SECOND;
}

void report_values_check(struct report_values *v, int64_t ngpus,
			 double seconds)
{
	/* Times are cut to whole seconds at both ends. */
	double gpu_seconds = ngpus < 0 ? -1 : (double)ngpus * (seconds + 2);

	for (int m = 0; m < REPORT_METRICS; m++) {
		double limit = limit_of(m, gpu_seconds);

		if (!report_known(v, m))
			continue;
		if (!(v->v[m] >= 0) || (limit >= 0 && v->v[m] > limit))
			v->known &= ~REPORT_BIT(m);
		else if ((is_peak(m) || is_mean(m)) && v->v[m] > 100)
			v->v[m] = 100;
	}
}

/* --- putting steps together ---------------------------------------------- */

static const struct report_step *find_batch(const struct report_job *job)
{
	for (size_t i = 0; i < job->nsteps; i++)
		if (job->steps[i].kind == REPORT_BATCH)
			return &job->steps[i];
	return NULL;
}

static bool holds_gpus(const struct report_step *s)
{
	return s->kind == REPORT_STEP && s->ngpus != 0;
}

/* One figure, from one step alone. */
static void take_step(struct report_job *job, const struct report_step *s,
		      int m, enum report_source source)
{
	struct report_total *t = &job->total;

	t->values.known |= REPORT_BIT(m);
	t->values.v[m] = s->values.v[m];
	t->source[m] = source;
	t->seconds[m] = s->seconds;
	t->covered[m] = s->ngpus < 0 ? 0 : (1 - s->missing) *
		report_step_gpu_seconds(s);
	if (source == REPORT_BY_HOST || report_step_partial(s))
		t->partial |= REPORT_BIT(m);
}

struct sum {
	double value, weight;	/* of a mean: value * weight summed up */
	double covered, missing;
	unsigned n;
	bool part;		/* a step that some of its nodes are missing in */
	bool no_weight;		/* a step of which nobody knows how many GPUs */
};

static void sum_step(struct sum *sum, const struct report_step *s, int m,
		     double part)
{
	/* A step of less than a second has 0 of them. */
	double measured = part * (1 - s->missing);
	double weight = (double)s->ngpus * measured *
		(s->seconds > 0.5 ? s->seconds : 0.5);

	if (!report_known(&s->values, m)) {
		sum->missing += s->ngpus > 0 ? report_step_gpu_seconds(s) : 0;
		return;
	}
	sum->n++;
	if (s->ngpus < 0) {
		sum->no_weight = true;
		weight = 1;
	}
	sum->part = sum->part || report_step_partial(s);
	sum->covered += s->ngpus > 0 ? report_step_gpu_seconds(s) * measured :
		0;
	sum->weight += weight;
	if (is_mean(m))
		sum->value += s->values.v[m] * weight;
	else if (!is_peak(m))
		sum->value += s->values.v[m] * part;
	else if (s->values.v[m] > sum->value)
		sum->value = s->values.v[m];
}

static void sum_store(struct report_total *t, const struct sum *sum,
		      const struct report_use *u, int m)
{
	t->source[m] = REPORT_BY_STEPS;
	/* One step needs no weight; of several, all must have one. */
	if (is_mean(m) && sum->n > 1 && sum->no_weight)
		return;
	t->values.known |= REPORT_BIT(m);
	t->values.v[m] = is_mean(m) ? sum->value / sum->weight : sum->value;
	t->covered[m] = sum->covered;
	t->seconds[m] = u->wall;
	if (sum->part ||
	    sum->covered < COMPLETE * (sum->covered + sum->missing))
		t->partial |= REPORT_BIT(m);
	if (u->over > REPORT_OVERLAP && !is_peak(m))
		t->shared |= REPORT_BIT(m);
}

static int sum_steps(struct report_job *job, int m, bool *use)
{
	struct sum sum = { 0 };
	struct report_use u;

	for (size_t i = 0; i < job->nsteps; i++)
		use[i] = holds_gpus(&job->steps[i]) &&
			report_known(&job->steps[i].values, m);
	if (report_use_make(job, use, job->ngpus > 0 ? (double)job->ngpus : 0,
			    &u))
		return -1;
	for (size_t i = 0; i < job->nsteps; i++) {
		const struct report_step *s = &job->steps[i];

		if (holds_gpus(s))
			sum_step(&sum, s, m, use[i] ? report_use_part(&u, s) :
				 1);
	}
	if (sum.n)
		sum_store(&job->total, &sum, &u, m);
	report_use_clear(&u);
	return 0;
}

static int one_metric(struct report_job *job, int m, bool *use)
{
	const struct report_step *batch = find_batch(job);
	bool has = batch && report_known(&batch->values, m);

	if (has && job->nnodes == 1) {
		take_step(job, batch, m, REPORT_BY_BATCH);
		return 0;
	}
	if (sum_steps(job, m, use))
		return -1;
	if (has && job->total.source[m] == REPORT_NONE)
		take_step(job, batch, m, REPORT_BY_HOST);
	return 0;
}

/* --- GPUs that nobody used ----------------------------------------------- */

/*
 * Did the batch script itself use GPUs, outside of steps? Its step says how
 * long the first node's GPUs were busy; steps explain as much as they can
 * have held there.
 */
static int batch_used_gpus(const struct report_job *job,
			   const struct report_step *batch, const bool *use,
			   bool *used)
{
	double busy = report_step_gpu_seconds(batch) -
		batch->values.v[REPORT_IDLE];
	struct report_use u;

	if (report_use_make(job, use, (double)batch->ngpus, &u))
		return -1;
	*used = busy > u.used + 0.05 * report_step_gpu_seconds(batch);
	report_use_clear(&u);
	return 0;
}

/* GPU time of the job in which no step held the GPU, where that is known. */
static int find_unused(struct report_job *job, bool *use)
{
	const struct report_step *batch = find_batch(job);
	struct report_total *t = &job->total;
	bool used = false;
	struct report_use u;

	if (t->gpu_seconds <= 0)
		return 0;
	if (t->source[REPORT_IDLE] == REPORT_BY_BATCH) {
		t->unused = 0;	/* the batch step is a step, and saw all */
		return 0;
	}
	for (size_t i = 0; i < job->nsteps; i++) {
		use[i] = holds_gpus(&job->steps[i]);
		if (use[i] && job->steps[i].ngpus < 0)
			return 0;
	}
	if (batch && batch->ngpus) {
		if (batch->ngpus < 0 ||
		    !report_known(&batch->values, REPORT_IDLE))
			return 0;
		if (batch_used_gpus(job, batch, use, &used))
			return -1;
	}
	if (used) {
		/* And what it did is not in the steps' figures. */
		t->partial |= t->values.known;
		return 0;
	}
	if (report_use_make(job, use, (double)job->ngpus, &u))
		return -1;
	t->unused = t->gpu_seconds > u.used ? t->gpu_seconds - u.used : 0;
	report_use_clear(&u);
	return 0;
}

/* Idle in steps, and unused; both are parts of the job's GPU time. */
static void find_idle(struct report_job *job)
{
	struct report_total *t = &job->total;
	bool known = report_known(&t->values, REPORT_IDLE);
	bool steps = false;
	double idle = known ? t->values.v[REPORT_IDLE] : 0;

	for (size_t i = 0; i < job->nsteps; i++)
		steps = steps || holds_gpus(&job->steps[i]);
	if (!known && (steps || t->unused < 0))
		return;
	t->idle_at_least = known && (t->unused < 0 ||
				     t->partial & REPORT_BIT(REPORT_IDLE));
	if (t->source[REPORT_IDLE] == REPORT_BY_HOST) {
		/* Unused are the first node's GPUs too: each is a part. */
		t->idle = t->unused > idle ? t->unused : idle;
		t->idle_at_least = steps || t->unused < 0;
		return;
	}
	t->idle = idle + (t->unused > 0 ? t->unused : 0);
}

/* Which steps held GPUs that others held too. */
static int find_shared(struct report_job *job, bool *use)
{
	struct report_use u;

	for (size_t i = 0; i < job->nsteps; i++)
		use[i] = holds_gpus(&job->steps[i]);
	if (report_use_make(job, use, job->ngpus > 0 ? (double)job->ngpus : 0,
			    &u))
		return -1;
	for (size_t i = 0; i < job->nsteps; i++)
		job->steps[i].shares = use[i] &&
			report_use_part(&u, &job->steps[i]) < 1;
	report_use_clear(&u);
	return 0;
}

int report_rollup(struct report_job *job)
{
	bool *use = calloc(job->nsteps + 1, sizeof(*use));
	int rc = use ? 0 : -1;

	memset(&job->total, 0, sizeof(job->total));
	job->total.gpu_seconds = job->ngpus < 0 ? -1 :
		(double)job->ngpus * job->seconds;
	job->total.unused = job->total.idle = -1;
	for (int m = 0; !rc && m < REPORT_METRICS; m++)
		rc = one_metric(job, m, use);
	if (!rc)
		rc = find_shared(job, use);
	if (!rc)
		rc = find_unused(job, use);
	if (!rc)
		find_idle(job);
	free(use);
	return rc;
}
