/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice where the numbers call for it. The rules and their thresholds are in
 * ddp-report(1), one by one; a rule that needs a figure which is not known
 * says nothing.
 */
#include "config.h"

#include "accounting/report.h"
#include "core/ddp_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOUR 3600.0
#define GB 1e9

/* What the rules look at: a step, or the whole job. */
struct subject {
	const struct report_values *v;
	double gpu_seconds, seconds, ngpus, nnodes;
	double idle;		/* share of the GPU time; < 0: not known */
};

struct found {
	bool yes;
	double weight;		/* GPU-seconds that this may cost */
	double best;
	double idle;		/* GPU-seconds that are explained by it */
	unsigned n;
	const struct report_step *step;
	char text[256];
};

static const char *const names[REPORT_RULES] = {
	[REPORT_ONE_BUSY] = "one-gpu-busy",
	[REPORT_NO_STEP] = "no-step",
	[REPORT_INPUT_BOUND] = "input-bound",
	[REPORT_COMM_BOUND] = "communication-bound",
	[REPORT_IDLE_GPUS] = "idle-gpus",
};

const char *report_rule_name(enum report_rule rule)
{
	return names[rule];
}

static bool has(const struct subject *s, int m)
{
	return report_known(s->v, m);
}

/* Bytes a second and GPU. */
static double rate(const struct subject *s, int m)
{
	return s->v->v[m] / s->gpu_seconds;
}

/*
 * Is it as if `busy` of all GPUs had worked and the others had not? By half
 * a GPU at most, and never with less than 45 % idle: two GPUs that wait now
 * and then are no idle one.
 */
static bool only_busy(const struct subject *s, double busy)
{
	double n = s->ngpus, peak = s->v->v[REPORT_SM_PEAK];
	double least = (n - 1.5 * busy) / n;

	return n >= 2 * busy && s->v->v[REPORT_SM] <= 1.5 * busy * peak / n &&
		s->idle >= (least > 0.45 ? least : 0.45);
}

static bool one_busy(const struct subject *s, char *text, size_t size)
{
	if (!has(s, REPORT_SM) || !has(s, REPORT_SM_PEAK) || s->idle < 0 ||
	    s->v->v[REPORT_SM_PEAK] < 50)
		return false;
	if (only_busy(s, 1))
		snprintf(text, size, "it looks as if one GPU of %.0f worked "
			 "and the others were idle: does every rank use a GPU "
			 "of its own?", s->ngpus);
	else if (s->nnodes > 1 && only_busy(s, s->nnodes))
		snprintf(text, size, "it looks as if one GPU a node worked, "
			 "%.0f of %.0f, and the others were idle: does every "
			 "rank use a GPU of its own?", s->nnodes, s->ngpus);
	else
		return false;
	return true;
}

/* Gaps without work, and little traffic: waiting for data or for the CPU. */
static bool input_bound(const struct subject *s, char *text, size_t size)
{
	if (!has(s, REPORT_SM) || !has(s, REPORT_SM_PEAK) ||
	    !has(s, REPORT_PCIE_IN) || s->idle < 0)
		return false;
	if (s->v->v[REPORT_SM] >= 40 || s->v->v[REPORT_SM_PEAK] < 60 ||
	    s->idle < 0.2 || s->idle > 0.8 ||
	    rate(s, REPORT_PCIE_IN) >= 1 * GB)
		return false;
	/* Where there is no NVLink it is not known. */
	if (has(s, REPORT_NVLINK_IN) && rate(s, REPORT_NVLINK_IN) >= 5 * GB)
		return false;
	snprintf(text, size, "the GPUs work in bursts (SM %.0f %%, idle %.0f "
		 "%%) and little data comes in (PCIe %.2f GB/s a GPU): they "
		 "wait for input; more or faster data loading may help",
		 s->v->v[REPORT_SM], 100 * s->idle,
		 rate(s, REPORT_PCIE_IN) / GB);
	return true;
}

static bool link_busy(const struct subject *s, int in, int out, double least,
		      double *most)
{
	double a = has(s, in) ? rate(s, in) : 0;
	double b = has(s, out) ? rate(s, out) : 0;

	*most = a > b ? a : b;
	return *most >= least * GB;
}

/* Never idle, but neither cores nor memory have much to do: links do. */
static bool comm_bound(const struct subject *s, char *text, size_t size)
{
	const char *link = "NVLink";
	double most;

	if (!has(s, REPORT_SM) || !has(s, REPORT_DRAM) || s->idle < 0 ||
	    s->v->v[REPORT_SM] >= 50 || s->v->v[REPORT_DRAM] >= 50 ||
	    s->idle >= 0.2)
		return false;
	if (!link_busy(s, REPORT_NVLINK_IN, REPORT_NVLINK_OUT, 50, &most)) {
		link = "PCIe";
		if (!link_busy(s, REPORT_PCIE_IN, REPORT_PCIE_OUT, 8, &most))
			return false;
	}
	snprintf(text, size, "the GPUs are hardly idle (%.0f %%) but SM %.0f "
		 "%% and %s %.1f GB/s a GPU say that they wait for transfers: "
		 "larger batches or fewer, overlapped exchanges may help",
		 100 * s->idle, s->v->v[REPORT_SM], link, most / GB);
	return true;
}

static bool idle_gpus(const struct subject *s, char *text, size_t size)
{
	if (s->idle <= 0.5)
		return false;
	snprintf(text, size, "the GPUs were idle for %.0f %% of their time, "
		 "%.1f of %.1f GPU-hours: fewer GPUs, or more work for them",
		 100 * s->idle, s->idle * s->gpu_seconds / HOUR,
		 s->gpu_seconds / HOUR);
	return true;
}

typedef bool rule_fn(const struct subject *s, char *text, size_t size);

/* Those that hold for a step by itself. */
static rule_fn *const rules[REPORT_RULES] = {
	[REPORT_ONE_BUSY] = one_busy,
	[REPORT_INPUT_BOUND] = input_bound,
	[REPORT_COMM_BOUND] = comm_bound,
	[REPORT_IDLE_GPUS] = idle_gpus,
};

static double clip(double share)
{
	return share > 1 ? 1 : share;
}

/* false: nothing can be said of this step. */
static bool step_subject(const struct report_step *s, double min_seconds,
			 struct subject *out)
{
	memset(out, 0, sizeof(*out));
	if (s->ngpus <= 0 || s->seconds < min_seconds || s->seconds <= 0 ||
	    s->shares)
		return false;
	out->v = &s->values;
	out->gpu_seconds = report_step_gpu_seconds(s);
	out->seconds = s->seconds;
	out->ngpus = (double)s->ngpus;
	out->nnodes = s->nnodes;
	out->idle = report_known(&s->values, REPORT_IDLE) ?
		clip(s->values.v[REPORT_IDLE] / out->gpu_seconds) : -1;
	return true;
}

static void note(struct found *f, const struct report_step *s,
		 const char *text, double weight)
{
	f->n++;
	f->weight += weight;
	if (f->yes && weight <= f->best)
		return;
	f->yes = true;
	f->best = weight;
	f->step = s;
	snprintf(f->text, sizeof(f->text), "%s", text);
}

static void try_step(const struct report_step *s, bool alone,
		     double min_seconds, struct found *f)
{
	struct subject sub;
	char text[256];

	if (!step_subject(s, min_seconds, &sub))
		return;
	for (int r = 0; r < REPORT_RULES; r++) {
		double idle = sub.idle > 0 ? sub.idle : 0;
		double lost = report_known(&s->values, REPORT_SM) ?
			1 - s->values.v[REPORT_SM] / 100 : idle;

		if (!rules[r] || (r == REPORT_IDLE_GPUS && !alone) ||
		    !rules[r](&sub, text, sizeof(text)))
			continue;
		if (r == REPORT_ONE_BUSY || r == REPORT_IDLE_GPUS)
			lost = idle;
		note(&f[r], s, text, lost * sub.gpu_seconds);
		f[r].idle += idle * sub.gpu_seconds;
		/* The first rule that fits explains the step. */
		return;
	}
}

/* Idle GPUs of the whole job, if that is not explained by a step already. */
static void try_job(const struct report_job *job, double min_seconds,
		    struct found *f)
{
	const struct report_total *t = &job->total;
	struct subject sub = { .v = &t->values };
	char text[256];

	if (t->gpu_seconds <= 0 || job->seconds < min_seconds)
		return;
	sub.gpu_seconds = t->gpu_seconds;
	if (t->unused > 0.5 * t->gpu_seconds) {
		snprintf(text, sizeof(text), "no step ran on the GPUs for "
			 "%.1f of %.1f GPU-hours: end the job, or ask for "
			 "fewer GPUs", t->unused / HOUR, t->gpu_seconds / HOUR);
		note(&f[REPORT_NO_STEP], NULL, text, t->unused);
		return;
	}
	sub.idle = t->idle < 0 ? -1 : clip(t->idle / t->gpu_seconds);
	if (f[REPORT_ONE_BUSY].idle + f[REPORT_INPUT_BOUND].idle >=
	    0.5 * t->idle || !idle_gpus(&sub, text, sizeof(text)))
		return;
	note(&f[REPORT_IDLE_GPUS], NULL, text, t->idle);
}

/* Steps of srun, and where none has values the batch step. */
static void try_steps(const struct report_job *job, double min_seconds,
		      struct found *f)
{
	bool any = false;

	for (size_t i = 0; i < job->nsteps; i++)
		any = any || (job->steps[i].kind == REPORT_STEP &&
			      job->steps[i].values.known);
	for (size_t i = 0; i < job->nsteps; i++)
		if (job->steps[i].kind == (any ? REPORT_STEP : REPORT_BATCH))
			try_step(&job->steps[i], false, min_seconds, f);
}

static void put(struct report_advice *out, int rule, const struct found *f)
{
	size_t pos = 0;

	memset(out, 0, sizeof(*out));
	out->rule = (enum report_rule)rule;
	out->step = f->step;
	out->more = f->n - 1;
	if (f->step)
		(void)ddp_text_add(out->text, sizeof(out->text), &pos,
				   "step %s: ", f->step->id);
	(void)ddp_text_add(out->text, sizeof(out->text), &pos, "%s", f->text);
	if (out->more)
		(void)ddp_text_add(out->text, sizeof(out->text), &pos,
				   " (and %u more steps)", out->more);
}

unsigned report_advise(const struct report_job *job,
		       const struct report_step *only, double min_seconds,
		       struct report_advice out[REPORT_ADVICE_MAX])
{
	struct found f[REPORT_RULES];
	unsigned n = 0;

	memset(f, 0, sizeof(f));
	if (only) {
		try_step(only, true, min_seconds, f);
	} else {
		try_steps(job, min_seconds, f);
		try_job(job, min_seconds, f);
	}
	while (n < REPORT_ADVICE_MAX) {
		int best = -1;

		for (int r = 0; r < REPORT_RULES; r++)
			if (f[r].yes &&
			    (best < 0 || f[r].weight > f[best].weight))
				best = r;
		if (best < 0)
			break;
		put(&out[n++], best, &f[best]);
		f[best].yes = false;
	}
	return n;
}
