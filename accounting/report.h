/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-report: what the GPUs of jobs and steps did. The records come from
 * compat/ddp_compat_acct.h; report_load.c makes the numbers below of them,
 * report_rollup.c and report_advice.c work on these alone, without Slurm and
 * without I/O, and the rest shows them.
 */
#ifndef REPORT_H
#define REPORT_H

#include "core/ddp_err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All GPUs of a step (or job) together; percentages are of one GPU. */
enum report_metric {
	REPORT_SM,		/* %, mean over GPUs and time */
	REPORT_SM_PEAK,		/* %, highest sample of a GPU */
	REPORT_DRAM,		/* % of the memory bandwidth */
	REPORT_DRAM_PEAK,
	REPORT_NVLINK_IN,	/* bytes received */
	REPORT_NVLINK_OUT,	/* bytes sent */
	REPORT_PCIE_IN,
	REPORT_PCIE_OUT,
	REPORT_ENERGY,		/* J */
	REPORT_IDLE,		/* GPU-seconds, in steps */
	REPORT_METRICS
};

#define REPORT_BIT(m) (1U << (m))

/* v[m] means something where known has the metric's bit, else nothing. */
struct report_values {
	uint32_t known;
	double v[REPORT_METRICS];
};

static inline bool report_known(const struct report_values *v, int m)
{
	return v->known & REPORT_BIT(m);
}

enum report_kind {
	REPORT_STEP,		/* of srun */
	REPORT_BATCH,		/* or interactive: on the first node */
	REPORT_EXTERN
};

#define REPORT_GPUS_UNKNOWN (-1)

struct report_step {
	enum report_kind kind;
	bool running;
	bool awaited;		/* ended just now: its values may still come */
	int64_t start, end;	/* Unix time; a running step's end is now */
	double seconds;		/* elapsed, less suspension */
	int64_t ngpus;		/* or REPORT_GPUS_UNKNOWN */
	uint32_t nnodes, ntasks;	/* 0: not known */
	struct report_values values;
	/* Share of the tasks of whose nodes the values lack all, 0 to 1; 0
	 * where the record does not say. */
	double missing;
	bool shares;		/* filled by report_rollup(): held GPUs that
				 * other steps held too */
	/* to show; name may be NULL */
	char id[32];		/* "batch", "0", "0+1" */
	char state[32];
	const char *name;
};

/* What the job's figures were made of. */
enum report_source {
	REPORT_NONE,		/* nothing */
	REPORT_BY_BATCH,	/* the batch step saw all GPUs */
	REPORT_BY_STEPS,	/* sum of the steps of srun */
	REPORT_BY_HOST		/* the batch step: GPUs of its node only */
};

struct report_total {
	struct report_values values;
	enum report_source source[REPORT_METRICS];
	double covered[REPORT_METRICS];	/* GPU-seconds behind the figure */
	double seconds[REPORT_METRICS];	/* wall time behind it, for rates */
	uint32_t partial;	/* bits: steps lack it, the job has more */
	uint32_t shared;	/* bits: steps shared GPUs: estimated */
	double gpu_seconds;	/* allocated; < 0: not known */
	double unused;		/* GPU-seconds without a step; < 0: not known */
	/* Idle in steps and unused; < 0: not known. at_least: and more. */
	double idle;
	bool idle_at_least;
};

struct report_job {
	bool running, pending;
	int64_t start, end;	/* a running job's end is now; 0: not begun */
	double seconds;
	int64_t ngpus;
	uint32_t nnodes;
	struct report_step *steps;
	size_t nsteps;
	struct report_total total;
	/* to show; texts may be NULL */
	uint32_t job_id;
	uint32_t array_id, array_task, het_id, het_offset; /* UINT32_MAX: no */
	int64_t submit;
	uint32_t uid;
	char id[48];		/* "12", "12_3", "12+1" */
	char state[32];
	const char *name, *user, *account, *partition, *cluster;
};

/* --- report_rollup.c ----------------------------------------------------- */

/*
 * Values that no GPU can have (more than 100 %, more idle time than time)
 * become unknown: they come from a database that older Slurm has written
 * garbage to.
 */
void report_values_check(struct report_values *v, int64_t ngpus,
			 double seconds);

/* Fills job->total from the steps. Returns 0, or -1: out of memory. */
int report_rollup(struct report_job *job);

/* The values are not those of all of its nodes. */
static inline bool report_step_partial(const struct report_step *s)
{
	return s->values.known && s->missing > 0;
}

/* Some figure of the job is that of a part, or at least so much. */
static inline bool report_total_partial(const struct report_total *t)
{
	return t->idle_at_least || (t->partial & t->values.known);
}

/* Seconds of GPUs that a step held; < 0: not known. */
double report_step_gpu_seconds(const struct report_step *s);

/* --- report_advice.c ----------------------------------------------------- */

enum report_rule {
	REPORT_ONE_BUSY,
	REPORT_NO_STEP,
	REPORT_INPUT_BOUND,
	REPORT_COMM_BOUND,
	REPORT_IDLE_GPUS,
	REPORT_RULES
};

#define REPORT_ADVICE_MAX 2

struct report_advice {
	enum report_rule rule;
	const struct report_step *step;	/* NULL: the whole job */
	unsigned more;		/* steps besides it of which this holds */
	char text[320];
};

/*
 * At most REPORT_ADVICE_MAX pieces of advice, the one that would save most
 * first. only: a step that was asked for alone, or NULL. Nothing is said of
 * less than min_seconds. Returns their number.
 */
unsigned report_advise(const struct report_job *job,
		       const struct report_step *only, double min_seconds,
		       struct report_advice out[REPORT_ADVICE_MAX]);

const char *report_rule_name(enum report_rule rule);

#endif
