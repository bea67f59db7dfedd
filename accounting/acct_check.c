/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler has a library of the driver's in it, which may break anything
 * there, or another program may have been put in its place. Numbers that no GPU
 * can have are worse than none: they stay in slurmdbd for good.
 */
#include "config.h"

#include "accounting/acct.h"

/* Of a GPU; each more than ten times what one does today, and twice what the
 * sampler itself lets through. */
#define BYTES_MOST 2e14		/* a second */
#define WATTS_MOST 2e5
#define CLOCK_SLACK 1e-3	/* of GPU-seconds: rounding */

/* The most that metric m can be after so many GPU-seconds. */
static double most(unsigned m, double gpu_seconds)
{
	switch (m) {
	case GPU_SM:
	case GPU_MEMBW:
		return 100;
	case GPU_ENERGY:
		return WATTS_MOST * gpu_seconds;
	case GPU_IDLE:
		return gpu_seconds + CLOCK_SLACK;
	default:
		return BYTES_MOST * gpu_seconds;
	}
}

static bool sane(const struct gpu_totals *t, unsigned n, int64_t from,
		 int64_t to)
{
	if (t->ngpus != n || t->first < from || t->last < t->first ||
	    t->last > to || t->began < t->first)
		return false;
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		double top = most(m, (double)(t->last - t->first) * 1e-9 * n);

		if ((gpu_metric_in(t->known_in, m) && !(t->in[m] <= top)) ||
		    (gpu_metric_in(t->known_out, m) && !(t->out[m] <= top)))
			return false;
	}
	return true;
}

bool acct_totals_check(struct gpu_totals *t, unsigned n, int64_t from,
		       int64_t to)
{
	bool ok = true;

	if (t->state == GPU_SAMPLING || t->state == GPU_DONE) {
		ok = sane(t, n, from, to);
		if (ok)
			return true;
	}
	t->known_in = t->known_out = 0;
	for (unsigned i = 0; i < GPU_MAX; i++)
		t->gpu[i].known = 0;
	return ok;
}
