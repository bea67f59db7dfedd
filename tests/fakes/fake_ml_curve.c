/* SPDX-License-Identifier: Apache-2.0 */
/* Curves over time: values, means and cumulative counters. */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#include <math.h>
#include <time.h>

long double fake_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (long double)now.tv_sec - fake_scenario.origin +
		(long double)now.tv_nsec / 1e9L;
}

void fake_curve_set(struct fake_curve *curve, struct fake_point *first,
		    unsigned count)
{
	unsigned i;

	curve->point = first;
	curve->count = count;
	first[0].before = (long double)first[0].value * first[0].t;
	for (i = 1; i < count; i++)
		first[i].before = first[i - 1].before +
			(long double)first[i - 1].value *
			((long double)first[i].t - first[i - 1].t);
}

/* The last point at or before t, else the first. */
static const struct fake_point *point_at(const struct fake_curve *curve,
					 long double t)
{
	unsigned low = 0, high = curve->count, middle;

	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (curve->point[middle].t <= t)
			low = middle;
		else
			high = middle;
	}
	return &curve->point[low];
}

/* t within its period; *round is which one. */
static long double in_period(long double t, long double *round)
{
	*round = 0;
	if (fake_scenario.period > 0) {
		*round = floorl(t / fake_scenario.period);
		t -= *round * fake_scenario.period;
	}
	return t;
}

/* From 0 to t within one period. */
static long double integral_once(const struct fake_curve *curve, long double t)
{
	const struct fake_point *point = point_at(curve, t);

	return point->before + (t - point->t) * point->value;
}

static long double integral(const struct fake_curve *curve, long double t)
{
	long double round, rest = in_period(t, &round), sum;

	if (!curve->count)
		return 0;
	sum = integral_once(curve, rest);
	if (round < 0 || round > 0)
		sum += round * integral_once(curve, fake_scenario.period);
	return sum;
}

double fake_value(const struct fake_unit *unit, enum fake_curve_id id,
		  long double t)
{
	const struct fake_curve *curve = &unit->curve[id];
	long double round, rest = in_period(t, &round);

	return curve->count ? point_at(curve, rest)->value : 0;
}

/*
 * From one time to a later one in the same period. No difference of two big
 * sums: far from the origin it would lose the digits that matter.
 */
static long double between(const struct fake_curve *curve, long double from,
			   long double to)
{
	const struct fake_point *first = point_at(curve, from);
	const struct fake_point *last = point_at(curve, to);

	if (first == last)
		return (to - from) * first->value;
	return (first[1].t - from) * first->value +
		(last->before - first[1].before) + (to - last->t) * last->value;
}

double fake_mean(const struct fake_unit *unit, enum fake_curve_id id,
		 long double from, long double to)
{
	const struct fake_curve *curve = &unit->curve[id];
	long double begin, end, rounds, sum, period = fake_scenario.period;
	long double seconds = to - from;

	if (!curve->count)
		return 0;
	from = in_period(from, &begin);
	to = in_period(to, &end);
	rounds = end - begin;
	if (rounds > 0)
		sum = between(curve, from, period) + between(curve, 0, to) +
			(rounds - 1) * between(curve, 0, period);
	else
		sum = between(curve, from, to);
	return (double)(sum / seconds);
}

uint64_t fake_counter(const struct fake_gpu *gpu, enum fake_curve_id id,
		      long double t, double scale)
{
	const struct fake_curve *curve = &gpu->unit.curve[id];
	long double sum = integral(curve, t) * scale;

	if (t >= gpu->reset)
		sum -= integral(curve, gpu->reset) * scale;
	else
		sum += gpu->base[id] * scale;
	/* Times before the origin, and curves that run since 1970. */
	sum = fmodl(floorl(sum), 0x1p64L);
	return (uint64_t)(sum < 0 ? sum + 0x1p64L : sum);
}
