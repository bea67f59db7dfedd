/* SPDX-License-Identifier: Apache-2.0 */
/* How many GPUs the steps of a job hold, and when. No I/O. */
#ifndef REPORT_USE_H
#define REPORT_USE_H

#include "accounting/report.h"

/* Records have whole seconds: steps may touch without having overlapped. */
#define REPORT_OVERLAP 1.0

/* What holds from `at` to the next point. */
struct report_point {
	int64_t at;
	double gpus;
	double reduced;		/* integral of min(1, all / gpus) up to at */
};

struct report_use {
	struct report_point *point;
	size_t n;
	double over;		/* seconds in which more than all are held */
	double used;		/* GPU-seconds, of at most all at a time */
	double wall;		/* seconds in which some are held */
};

/*
 * What the steps i with use[i] hold, beside the `all` GPUs that there are (0:
 * not known). Steps whose GPUs are not known hold none. 0, or -1: out of
 * memory. Free with report_use_clear().
 */
int report_use_make(const struct report_job *job, const bool *use, double all,
		    struct report_use *u);
void report_use_clear(struct report_use *u);

/* The part of its figures that a step keeps: 1, and less if it shared GPUs
 * for more than REPORT_OVERLAP seconds. */
double report_use_part(const struct report_use *u, const struct report_step *s);

#endif
