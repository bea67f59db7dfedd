/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Integrals over time of what GPUs report: no I/O, no clock of its own.
 *
 * Each GPU has a few channels. A channel is fed in one of three forms, and may
 * change from one to another:
 *	mean	the mean over [t0, t1], of a percentage or of a rate
 *	gauge	the value at t; the trapezoid between two of them counts
 *	counter	a cumulative counter at t; the difference of two counts
 * Times are nanoseconds of one monotonic clock. What is not fed is unknown
 * time and is in no mean. A value that cannot be (NaN, infinite, negative,
 * more than 110 %, faster than any link) is refused as if it had not been fed;
 * 0 to 100 % is only restored where rounding left it.
 */
#ifndef GPU_INTEG_H
#define GPU_INTEG_H

#include <stdbool.h>
#include <stdint.h>

#include "accounting/gpu_shm.h"

enum gpu_chan {
	GPU_CHAN_SM,			/* SM activity, % */
	GPU_CHAN_MEMBW,			/* DRAM bandwidth in use, % */
	GPU_CHAN_BUSY,			/* time in which a kernel ran, % */
	GPU_CHAN_NVLINK_IN,		/* bytes a second */
	GPU_CHAN_NVLINK_OUT,
	GPU_CHAN_PCIE_IN,
	GPU_CHAN_PCIE_OUT,
	GPU_CHAN_POWER,			/* W */
	GPU_CHANS
};

/* A reading of a cumulative counter. */
struct gpu_count {
	uint64_t raw;
	unsigned bits;		/* it wraps at 1 << bits; up to 64 */
	double unit;		/* bytes or joules a count */
	double top;		/* the most a second, INFINITY: not known */
	/* The rate since the reading before as another source saw it, to tell
	 * how often a narrow counter went round; NAN: not known. */
	double hint;
};

struct gpu_integ;

/*
 * For ngpus (1 … GPU_MAX) GPUs read every interval seconds, with idle being
 * an SM activity below idle percent. NULL: no memory. Nothing below allocates.
 */
struct gpu_integ *gpu_integ_create(unsigned ngpus, double interval,
				   double idle);
void gpu_integ_destroy(struct gpu_integ *in);

/*
 * What is measured began at t already, before the first reading. If that is
 * not more than a second, the time between is taken to be as the first
 * interval after it was, on each channel that is fed from the first reading on;
 * a short one says more of it. If it is more than 50 ms and the whole is less
 * than 2.5 s, nothing is known once it is over.
 */
void gpu_integ_since(struct gpu_integ *in, int64_t t);

/* What is measured ended at t: of intervals that go beyond it, only the part
 * before it counts, of those that begin later nothing. */
void gpu_integ_until(struct gpu_integ *in, int64_t t);

/* A reading begins, at t. What was fed before it is no longer "the latest". */
void gpu_integ_tick(struct gpu_integ *in, int64_t t);

/*
 * The mean over [t0, t1]. One that begins where the latest of this channel
 * began and ends later replaces it; one that overlaps it otherwise is refused.
 * All three return false if they refuse the value.
 */
bool gpu_integ_mean(struct gpu_integ *in, unsigned gpu, enum gpu_chan chan,
		    int64_t t0, int64_t t1, double value);

/*
 * The value at t. Between two that are more than 5 s and 3 intervals apart is
 * unknown time.
 */
bool gpu_integ_gauge(struct gpu_integ *in, unsigned gpu, enum gpu_chan chan,
		     int64_t t, double value);

/*
 * A counter at t; the first one is the base. If it fell by more than a wrap
 * can explain, this one is the new base and nothing is counted for the time
 * between. The same if it cannot be told how often it went round; where that is
 * so for most of the time, the metric is unknown.
 */
bool gpu_integ_count(struct gpu_integ *in, unsigned gpu, enum gpu_chan chan,
		     int64_t t, const struct gpu_count *count);

/* True once the channel has given an interval. */
bool gpu_integ_known(const struct gpu_integ *in, unsigned gpu,
		     enum gpu_chan chan);

/* The GPU is gone: it keeps what it has, and is fed no more. */
void gpu_integ_lose(struct gpu_integ *in, unsigned gpu);
bool gpu_integ_is_lost(const struct gpu_integ *in, unsigned gpu);

/*
 * All numbers of *out but for its state, text and names, which are left as
 * they are; of the metrics only those in the mask want (1 << enum gpu_metric).
 */
void gpu_integ_totals(const struct gpu_integ *in, uint32_t want,
		      struct gpu_totals *out);

#endif
