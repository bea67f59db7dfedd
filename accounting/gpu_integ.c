/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/gpu_integ.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DUST 1e-6		/* of a percentage: rounding, not a value */
#define PERCENT_MOST 110.0	/* more is not a percentage */
#define BYTES_MOST 1e14		/* a second; NVLink is at 1e12 */
#define POWER_MOST 1e5		/* W; a GPU is at 1e3 */
#define EARLY_MOST 1000000000	/* ns before the first reading */

/* The latest interval is kept apart: a longer one may replace it. */
struct interval {
	int64_t t0, t1;
	int64_t early;		/* ns before t0 that it stands for, too */
	double early_amount, early_below;
	double amount;		/* the integral over it */
	double below;		/* of it, seconds below the idle threshold */
	double peak;
};

struct channel {
	double sum, time, below, peak;	/* of all but the latest interval */
	struct interval latest;
	bool have;		/* a latest interval: the channel is known */
	bool fresh;		/* the latest is of this reading */
	double vague;		/* seconds whose counts cannot be told */

	bool have_gauge, have_count;
	int64_t gauge_t, count_t;
	double gauge;
	uint64_t count;
};

struct gpu {
	bool lost;
	struct channel chan[GPU_CHANS];
};

struct gpu_integ {
	unsigned ngpus;
	double interval, idle;
	uint64_t readings;
	int64_t since, until, first, last;
	struct gpu gpu[];
};

struct gpu_integ *gpu_integ_create(unsigned ngpus, double interval, double idle)
{
	struct gpu_integ *in;

	in = calloc(1, sizeof(*in) + ngpus * sizeof(in->gpu[0]));
	if (!in)
		return NULL;
	in->ngpus = ngpus;
	in->interval = interval;
	in->idle = idle;
	return in;
}

void gpu_integ_destroy(struct gpu_integ *in)
{
	free(in);
}

void gpu_integ_since(struct gpu_integ *in, int64_t t)
{
	in->since = t;
}

static double seconds(int64_t t0, int64_t t1)
{
	return (double)(t1 - t0) * 1e-9;
}

static bool is_percent(enum gpu_chan chan)
{
	return chan == GPU_CHAN_SM || chan == GPU_CHAN_MEMBW ||
	       chan == GPU_CHAN_BUSY;
}

static double most(enum gpu_chan chan)
{
	if (is_percent(chan))
		return PERCENT_MOST;
	return chan == GPU_CHAN_POWER ? POWER_MOST : BYTES_MOST;
}

/* False: no value at all. Rounding dust at the ends is taken off. */
static bool sane(enum gpu_chan chan, double *v)
{
	if (!isfinite(*v) || *v < -DUST || *v > most(chan))
		return false;
	if (*v < 0)
		*v = 0;
	if (is_percent(chan) && *v > 100)
		*v = 100;
	return true;
}

/* The channel to feed, or NULL. */
static struct channel *find(struct gpu_integ *in, unsigned gpu,
			    enum gpu_chan chan)
{
	if (gpu >= in->ngpus || in->gpu[gpu].lost)
		return NULL;
	return &in->gpu[gpu].chan[chan];
}

static void settle(struct channel *c)
{
	c->sum += c->latest.amount + c->latest.early_amount;
	c->time += seconds(c->latest.t0 - c->latest.early, c->latest.t1);
	c->below += c->latest.below + c->latest.early_below;
	c->peak = fmax(c->peak, c->latest.peak);
}

/* Of the interval that begins with the first reading: what was before it is
 * as it was in the first time after it, also when that has grown longer. */
static void look_back(const struct gpu_integ *in, const struct channel *c,
		      struct interval *i)
{
	int64_t early = i->t0 - in->since;
	double by;

	if (c->have && i->t0 == c->latest.t0) {
		i->early = c->latest.early;
		i->early_amount = c->latest.early_amount;
		i->early_below = c->latest.early_below;
	}
	if (c->have || !in->since || in->readings > 2 || early < 0 ||
	    early > EARLY_MOST)
		return;
	by = seconds(in->since, i->t0) / seconds(i->t0, i->t1);
	i->early = early;
	i->early_amount = i->amount * by;
	i->early_below = i->below * by;
}

/* What is after the end does not count. */
static void clip(const struct gpu_integ *in, struct interval *i)
{
	double by;

	if (!in->until || i->t1 <= in->until || i->t1 <= i->t0)
		return;
	by = i->t0 < in->until ?
		seconds(i->t0, in->until) / seconds(i->t0, i->t1) : 0;
	i->amount *= by;
	i->below *= by;
	i->t1 = i->t0 < in->until ? in->until : i->t0;
}

void gpu_integ_until(struct gpu_integ *in, int64_t t)
{
	in->until = t;
	/* A reading may have come between the end and the word of it. */
	for (unsigned g = 0; g < in->ngpus; g++)
		for (unsigned c = 0; c < GPU_CHANS; c++)
			if (in->gpu[g].chan[c].have)
				clip(in, &in->gpu[g].chan[c].latest);
}

static bool add(const struct gpu_integ *in, struct channel *c,
		struct interval *i)
{
	clip(in, i);
	if (i->t1 <= i->t0)
		return false;
	look_back(in, c, i);
	if (c->have && i->t0 < c->latest.t1) {
		if (i->t0 != c->latest.t0 || i->t1 <= c->latest.t1)
			return false;
	} else if (c->have) {
		settle(c);
	}
	c->latest = *i;
	c->have = true;
	c->fresh = true;
	return true;
}

void gpu_integ_tick(struct gpu_integ *in, int64_t t)
{
	unsigned g, c;

	if (!in->readings++)
		in->first = t;
	in->last = t;
	for (g = 0; g < in->ngpus; g++)
		for (c = 0; c < GPU_CHANS; c++)
			in->gpu[g].chan[c].fresh = false;
}

bool gpu_integ_mean(struct gpu_integ *in, unsigned gpu, enum gpu_chan chan,
		    int64_t t0, int64_t t1, double value)
{
	struct channel *c = find(in, gpu, chan);
	struct interval i = { .t0 = t0, .t1 = t1 };

	if (!c || !sane(chan, &value))
		return false;
	i.amount = value * seconds(t0, t1);
	i.below = value < in->idle ? seconds(t0, t1) : 0;
	i.peak = value;
	return add(in, c, &i);
}

static bool gap(const struct gpu_integ *in, double dt)
{
	return dt > 5 && dt > 3 * in->interval;
}

bool gpu_integ_gauge(struct gpu_integ *in, unsigned gpu, enum gpu_chan chan,
		     int64_t t, double value)
{
	struct channel *c = find(in, gpu, chan);
	struct interval i = { .t1 = t };
	double dt;

	if (!c || !sane(chan, &value))
		return false;
	if (c->have_gauge) {
		if (t <= c->gauge_t)
			return false;
		i.t0 = c->gauge_t;
		dt = seconds(i.t0, t);
		i.amount = (c->gauge + value) / 2 * dt;
		i.below = ((c->gauge < in->idle) + (value < in->idle)) * dt / 2;
		i.peak = fmax(c->gauge, value);
		if (!gap(in, dt))
			(void)add(in, c, &i);
	}
	c->have_gauge = true;
	c->gauge_t = t;
	c->gauge = value;
	return true;
}

/*
 * What was counted in dt seconds: the difference, and for a narrow counter
 * the rounds it may have made. NAN: that cannot be told; negative: the counter
 * was reset.
 */
static double counted(uint64_t from, const struct gpu_count *n, double dt,
		      double limit)
{
	uint64_t diff = n->raw - from;
	double amount, span;

	if (n->bits < 64)
		diff &= ((uint64_t)1 << n->bits) - 1;
	amount = (double)diff * n->unit;
	span = ldexp(n->unit, (int)n->bits);
	if (n->bits < 64 && !(n->top * dt < span)) {
		if (!isfinite(n->hint))
			return NAN;
		amount += fmax(0, round((n->hint * dt - amount) / span)) * span;
	}
	/* Twice: a driver may refresh its counters in steps of its own. */
	return amount > 2 * fmin(n->top, limit) * dt ? -1 : amount;
}

bool gpu_integ_count(struct gpu_integ *in, unsigned gpu, enum gpu_chan chan,
		     int64_t t, const struct gpu_count *count)
{
	struct channel *c = find(in, gpu, chan);
	struct interval i = { .t1 = t };
	double dt;

	if (!c || !count->bits || count->bits > 64)
		return false;
	if (c->have_count) {
		if (t <= c->count_t)
			return false;
		i.t0 = c->count_t;
		dt = seconds(i.t0, t);
		i.amount = counted(c->count, count, dt, most(chan));
		i.peak = i.amount / dt;
		if (isnan(i.amount))
			c->vague += dt;
		else if (i.amount >= 0)
			(void)add(in, c, &i);
	}
	c->have_count = true;
	c->count_t = t;
	c->count = count->raw;
	return true;
}

bool gpu_integ_known(const struct gpu_integ *in, unsigned gpu,
		     enum gpu_chan chan)
{
	return gpu < in->ngpus && in->gpu[gpu].chan[chan].have;
}

void gpu_integ_lose(struct gpu_integ *in, unsigned gpu)
{
	if (gpu < in->ngpus)
		in->gpu[gpu].lost = true;
}

bool gpu_integ_is_lost(const struct gpu_integ *in, unsigned gpu)
{
	return gpu < in->ngpus && in->gpu[gpu].lost;
}

/* All of one channel over the GPUs; false unless each GPU has given it. */
static bool all(const struct gpu_integ *in, enum gpu_chan chan,
		struct channel *total)
{
	unsigned g;

	memset(total, 0, sizeof(*total));
	for (g = 0; g < in->ngpus; g++) {
		struct channel c = in->gpu[g].chan[chan];

		if (!c.have)
			return false;
		settle(&c);
		/* What is left is no measure of the whole. */
		if (c.vague > c.time)
			return false;
		total->sum += c.sum;
		total->time += c.time;
		total->peak = fmax(total->peak, c.peak);
	}
	return true;
}

static void total_percent(const struct gpu_integ *in, enum gpu_chan chan,
			  enum gpu_metric m, struct gpu_totals *out)
{
	struct channel c;

	if (!all(in, chan, &c))
		return;
	out->in[m] = fmin(c.sum / c.time, 100);
	out->out[m] = c.peak;
	out->known_in |= 1u << m;
	out->known_out |= 1u << m;
}

static void total_bytes(const struct gpu_integ *in, enum gpu_chan rx,
			enum gpu_chan tx, enum gpu_metric m,
			struct gpu_totals *out)
{
	struct channel c;

	if (all(in, rx, &c)) {
		out->in[m] = c.sum;
		out->known_in |= 1u << m;
	}
	if (tx != rx && all(in, tx, &c)) {
		out->out[m] = c.sum;
		out->known_out |= 1u << m;
	}
}

/* By SM activity, and of a GPU that does not give it by its busy time. */
static void total_idle(const struct gpu_integ *in, struct gpu_totals *out)
{
	double idle = 0;
	unsigned g;

	for (g = 0; g < in->ngpus; g++) {
		struct channel c = in->gpu[g].chan[GPU_CHAN_SM];

		if (!c.have)
			c = in->gpu[g].chan[GPU_CHAN_BUSY];
		if (!c.have)
			return;
		settle(&c);
		idle += c.below;
	}
	out->in[GPU_IDLE] = idle;
	out->known_in |= 1u << GPU_IDLE;
}

static bool rate(const struct channel *c, double *v)
{
	if (!c->fresh)
		return false;
	*v = c->latest.amount / seconds(c->latest.t0, c->latest.t1);
	return true;
}

static void last_values(const struct gpu *g, uint32_t want, struct gpu_last *l)
{
	const struct channel *c = g->chan;
	uint32_t known = 0;

	if (rate(&c[GPU_CHAN_SM], &l->sm))
		known |= 1u << GPU_SM;
	if (rate(&c[GPU_CHAN_MEMBW], &l->membw))
		known |= 1u << GPU_MEMBW;
	if (rate(&c[GPU_CHAN_NVLINK_IN], &l->nvlink_in) &&
	    rate(&c[GPU_CHAN_NVLINK_OUT], &l->nvlink_out))
		known |= 1u << GPU_NVLINK;
	if (rate(&c[GPU_CHAN_PCIE_IN], &l->pcie_in) &&
	    rate(&c[GPU_CHAN_PCIE_OUT], &l->pcie_out))
		known |= 1u << GPU_PCIE;
	if (rate(&c[GPU_CHAN_POWER], &l->power))
		known |= 1u << GPU_ENERGY;
	l->known = known & want;
	l->lost = g->lost;
}

void gpu_integ_totals(const struct gpu_integ *in, uint32_t want,
		      struct gpu_totals *out)
{
	unsigned g;

	out->ngpus = in->ngpus;
	out->known_in = out->known_out = 0;
	out->first = out->began = in->first;
	if (in->since && in->first >= in->since &&
	    in->first - in->since <= EARLY_MOST)
		out->first = in->since;
	out->last = in->until && in->until < in->last ? in->until : in->last;
	if (out->last < out->first)
		out->last = out->first;
	out->readings = in->readings;
	total_percent(in, GPU_CHAN_SM, GPU_SM, out);
	total_percent(in, GPU_CHAN_MEMBW, GPU_MEMBW, out);
	total_bytes(in, GPU_CHAN_NVLINK_IN, GPU_CHAN_NVLINK_OUT, GPU_NVLINK,
		    out);
	total_bytes(in, GPU_CHAN_PCIE_IN, GPU_CHAN_PCIE_OUT, GPU_PCIE, out);
	total_bytes(in, GPU_CHAN_POWER, GPU_CHAN_POWER, GPU_ENERGY, out);
	total_idle(in, out);
	out->known_in &= want;
	out->known_out &= want;
	for (g = 0; g < in->ngpus; g++)
		last_values(&in->gpu[g], want, &out->gpu[g]);
}
