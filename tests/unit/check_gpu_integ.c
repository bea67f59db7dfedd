/* SPDX-License-Identifier: Apache-2.0 */
/* Integrals of what GPUs report, by hand and against curves known exactly. */
#include "config.h"

#include "accounting/gpu_integ.h"
#include "tests/unit/check_main.h"

#include <math.h>
#include <string.h>

#define S 1000000000LL
#define ALL ((1u << GPU_METRICS) - 1)
#define BIT(m) (1u << (m))

static struct gpu_totals t;

static struct gpu_integ *make(unsigned ngpus)
{
	struct gpu_integ *in = gpu_integ_create(ngpus, 1, 1);

	ck_assert_ptr_nonnull(in);
	return in;
}

static void totals(const struct gpu_integ *in)
{
	memset(&t, 0xff, sizeof(t));
	gpu_integ_totals(in, ALL, &t);
}

static bool known(enum gpu_metric m)
{
	return t.known_in & BIT(m);
}

static void near(double got, double want)
{
	ck_assert_msg(fabs(got - want) <= 1e-9 * fmax(1, fabs(want)),
		      "%.12g instead of %.12g", got, want);
}

static bool count(struct gpu_integ *in, int64_t at, uint64_t raw, unsigned bits)
{
	struct gpu_count c = { .raw = raw, .bits = bits, .unit = 1,
			       .top = bits == 64 ? INFINITY : 1e9,
			       .hint = NAN };

	return gpu_integ_count(in, 0, GPU_CHAN_PCIE_IN, at, &c);
}

static double pcie_in(const struct gpu_integ *in)
{
	totals(in);
	return known(GPU_PCIE) ? t.in[GPU_PCIE] : -1;
}

START_TEST(nothing)
{
	struct gpu_integ *in = make(2);

	totals(in);
	ck_assert_uint_eq(t.known_in | t.known_out, 0);
	ck_assert_uint_eq(t.ngpus, 2);
	ck_assert_uint_eq(t.readings, 0);
	gpu_integ_tick(in, 5 * S);
	gpu_integ_tick(in, 7 * S);
	totals(in);
	ck_assert_uint_eq(t.known_in | t.known_out, 0);
	ck_assert_int_eq(t.first, 5 * S);
	ck_assert_int_eq(t.last, 7 * S);
	ck_assert_uint_eq(t.readings, 2);
	gpu_integ_destroy(in);
	gpu_integ_destroy(NULL);
}
END_TEST

/* Four GPUs at 99 % are 99 %, and intervals weigh as they last. */
START_TEST(means)
{
	struct gpu_integ *in = make(4);
	unsigned g;

	for (g = 0; g < 4; g++)
		ck_assert(gpu_integ_mean(in, g, GPU_CHAN_SM, 0, S, 99));
	totals(in);
	ck_assert(known(GPU_SM) && known(GPU_IDLE) && !known(GPU_MEMBW));
	near(t.in[GPU_SM], 99);
	near(t.out[GPU_SM], 99);
	near(t.in[GPU_IDLE], 0);
	/* One of them idle for 6 s more: 4 s at 99 and 6 at 0.5. */
	ck_assert(gpu_integ_mean(in, 3, GPU_CHAN_SM, S, 7 * S, 0.5));
	totals(in);
	near(t.in[GPU_SM], (4 * 99 + 6 * 0.5) / 10);
	near(t.out[GPU_SM], 99);
	near(t.in[GPU_IDLE], 6);
	gpu_integ_destroy(in);
}
END_TEST

/* A longer interval from the same beginning takes the last one's place. */
START_TEST(replaced)
{
	struct gpu_integ *in = make(1);

	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, 0, S, 10));
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, S, 2 * S, 90));
	totals(in);
	near(t.in[GPU_SM], 50);
	near(t.out[GPU_SM], 90);
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, S, 3 * S, 45));
	totals(in);
	near(t.in[GPU_SM], 100.0 / 3);
	near(t.out[GPU_SM], 45);
	/* Nor shorter, nor overlapping, nor backwards, nor empty. */
	ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_SM, S, 3 * S, 99));
	ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_SM, S, 2 * S, 99));
	ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_SM, 2 * S, 4 * S, 99));
	ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_SM, 0, 4 * S, 99));
	ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_SM, 5 * S, 4 * S, 99));
	ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_SM, 5 * S, 5 * S, 99));
	totals(in);
	near(t.in[GPU_SM], 100.0 / 3);
	near(t.out[GPU_SM], 45);
	gpu_integ_destroy(in);
}
END_TEST

START_TEST(absurd)
{
	static const double bad[] = { NAN, INFINITY, -INFINITY, -0.1, 110.1,
		18446744073709551614.0 };
	static const double rates[] = { NAN, INFINITY, -1, 1e15, 1.8e19 };
	struct gpu_integ *in = make(1);
	unsigned i;

	for (i = 0; i < CHECK_COUNT(bad); i++) {
		ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_SM, 0, S, bad[i]));
		ck_assert(!gpu_integ_gauge(in, 0, GPU_CHAN_BUSY, S, bad[i]));
	}
	for (i = 0; i < CHECK_COUNT(rates); i++)
		ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_PCIE_IN, 0, S,
					  rates[i]));
	ck_assert(!gpu_integ_mean(in, 1, GPU_CHAN_SM, 0, S, 50));
	totals(in);
	ck_assert_uint_eq(t.known_in | t.known_out, 0);
	/* Dust is no absurdity, and 0 to 100 is what comes out. */
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, 0, S, 100.0000001));
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_MEMBW, 0, S, -1e-9));
	totals(in);
	ck_assert(t.in[GPU_SM] <= 100 && t.out[GPU_SM] <= 100);
	ck_assert(t.in[GPU_MEMBW] >= 0 && t.out[GPU_MEMBW] >= 0);
	gpu_integ_destroy(in);
}
END_TEST

START_TEST(gauges)
{
	struct gpu_integ *in = make(1);

	/* Nothing before the second reading. */
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_IN, 0, 100));
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_OUT, 0, 0));
	totals(in);
	ck_assert(!known(GPU_PCIE));
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_IN, 2 * S, 300));
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_OUT, 2 * S, 10));
	ck_assert(!gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_IN, 2 * S, 300));
	totals(in);
	near(t.in[GPU_PCIE], 400);
	near(t.out[GPU_PCIE], 10);
	/* 5 s are no gap yet, 6 s are: nobody knows what was between. */
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_IN, 7 * S, 300));
	near(pcie_in(in), 400 + 1500);
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_IN, 13 * S, 900));
	near(pcie_in(in), 400 + 1500);
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_IN, 14 * S, 100));
	near(pcie_in(in), 400 + 1500 + 500);
	gpu_integ_destroy(in);
}
END_TEST

/* Of slow readings 6 s apart nothing is a gap. */
START_TEST(slow_gauges)
{
	struct gpu_integ *in = gpu_integ_create(1, 60, 1);

	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_IN, 0, 10));
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_IN, 170 * S, 10));
	near(pcie_in(in), 1700);
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_PCIE_IN, 370 * S, 10));
	near(pcie_in(in), 1700);
	gpu_integ_destroy(in);
}
END_TEST

START_TEST(counter_wraps)
{
	struct gpu_integ *in = make(1);

	ck_assert(count(in, 0, 4294967000u, 32));
	ck_assert(pcie_in(in) < 0);
	ck_assert(count(in, S, 704, 32));
	near(pcie_in(in), 1000);
	ck_assert(count(in, 2 * S, 704, 32));
	near(pcie_in(in), 1000);
	ck_assert(!count(in, 2 * S, 900, 32));
	ck_assert(count(in, 3 * S, 900, 32));
	near(pcie_in(in), 1196);
	gpu_integ_destroy(in);

	in = make(1);
	ck_assert(count(in, 0, UINT64_MAX - 9, 64));
	ck_assert(count(in, S, 90, 64));
	near(pcie_in(in), 100);
	gpu_integ_destroy(in);
}
END_TEST

START_TEST(counter_resets)
{
	struct gpu_integ *in = make(1);

	ck_assert(count(in, 0, 1000000, 64));
	ck_assert(count(in, S, 2000000, 64));
	/* The driver was loaded anew: it began at 0 at some time. */
	ck_assert(count(in, 2 * S, 500, 64));
	near(pcie_in(in), 1000000);
	ck_assert(count(in, 3 * S, 700, 64));
	near(pcie_in(in), 1000200);
	gpu_integ_destroy(in);

	/* 32 bits: faster than the link can be is a reset, too. */
	in = make(1);
	ck_assert(count(in, 0, 4000000000u, 32));
	ck_assert(count(in, S, 3900000000u, 32));
	ck_assert(pcie_in(in) < 0);
	ck_assert(count(in, 2 * S, 3900000001u, 32));
	near(pcie_in(in), 1);
	/* It can tell rounds within 4 s, not within 5. */
	ck_assert(count(in, 7 * S, 3900000002u, 32));
	ck_assert(pcie_in(in) < 0);
	ck_assert(count(in, 8 * S, 3900000004u, 32));
	ck_assert(pcie_in(in) < 0);
	ck_assert(count(in, 11 * S, 3900000007u, 32));
	near(pcie_in(in), 6);
	gpu_integ_destroy(in);
}
END_TEST

/* How often a narrow counter went round, as samples of the rate tell. */
START_TEST(counter_hints)
{
	static const double rates[] = { 0, 1e6, 3e9, 4.3e9, 15e9, 31e9 };
	struct gpu_count c = { .bits = 32, .unit = 1, .top = INFINITY };
	unsigned i, off;

	for (i = 0; i < CHECK_COUNT(rates); i++)
		for (off = 0; off < 3; off++) {
			struct gpu_integ *in = make(1);

			c.raw = 123456789;
			c.hint = NAN;
			gpu_integ_count(in, 0, GPU_CHAN_PCIE_IN, 0, &c);
			c.raw = (uint32_t)(c.raw + (uint64_t)rates[i]);
			gpu_integ_count(in, 0, GPU_CHAN_PCIE_IN, S, &c);
			ck_assert(pcie_in(in) < 0);
			c.raw = (uint32_t)(c.raw + (uint64_t)rates[i]);
			/* Off by less than half a round. */
			c.hint = fmax(0, rates[i] + (off - 1.0) * 2e9);
			gpu_integ_count(in, 0, GPU_CHAN_PCIE_IN, 2 * S, &c);
			near(pcie_in(in), rates[i]);
			gpu_integ_destroy(in);
		}
}
END_TEST

START_TEST(bad_counters)
{
	struct gpu_count c = { .raw = 1, .unit = 1, .top = INFINITY };
	struct gpu_integ *in = make(1);

	ck_assert(!gpu_integ_count(in, 0, GPU_CHAN_PCIE_IN, 0, &c));
	c.bits = 65;
	ck_assert(!gpu_integ_count(in, 0, GPU_CHAN_PCIE_IN, 0, &c));
	c.bits = 64;
	ck_assert(!gpu_integ_count(in, 1, GPU_CHAN_PCIE_IN, 0, &c));
	/* What a broken driver says of a hint. */
	c.bits = 32;
	c.hint = 1e300;
	ck_assert(gpu_integ_count(in, 0, GPU_CHAN_PCIE_IN, 0, &c));
	ck_assert(gpu_integ_count(in, 0, GPU_CHAN_PCIE_IN, S, &c));
	ck_assert(pcie_in(in) < 0);
	gpu_integ_destroy(in);
}
END_TEST

/* Joules from millijoules, and what was the last power. */
START_TEST(energy)
{
	struct gpu_count c = { .raw = 5000, .bits = 64, .unit = 1e-3,
			       .top = INFINITY };
	struct gpu_integ *in = make(1);

	gpu_integ_tick(in, 0);
	ck_assert(gpu_integ_count(in, 0, GPU_CHAN_POWER, 0, &c));
	totals(in);
	ck_assert(!known(GPU_ENERGY) && !(t.gpu[0].known & BIT(GPU_ENERGY)));
	gpu_integ_tick(in, 2 * S);
	c.raw = 705000;
	ck_assert(gpu_integ_count(in, 0, GPU_CHAN_POWER, 2 * S, &c));
	totals(in);
	near(t.in[GPU_ENERGY], 700);
	ck_assert(!(t.known_out & BIT(GPU_ENERGY)));
	ck_assert(t.gpu[0].known & BIT(GPU_ENERGY));
	near(t.gpu[0].power, 350);
	/* A reading without it has no latest value. */
	gpu_integ_tick(in, 3 * S);
	totals(in);
	ck_assert(!(t.gpu[0].known & BIT(GPU_ENERGY)));
	near(t.in[GPU_ENERGY], 700);
	gpu_integ_destroy(in);
}
END_TEST

START_TEST(lost_gpu)
{
	struct gpu_integ *in = make(2);
	unsigned g;

	for (g = 0; g < 2; g++)
		ck_assert(gpu_integ_mean(in, g, GPU_CHAN_SM, 0, S, 100));
	gpu_integ_lose(in, 1);
	ck_assert(gpu_integ_is_lost(in, 1) && !gpu_integ_is_lost(in, 0));
	ck_assert(!gpu_integ_mean(in, 1, GPU_CHAN_SM, S, 2 * S, 0));
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, S, 3 * S, 40));
	totals(in);
	/* Its time has ended: 100, 100, and 2 s of 40. */
	near(t.in[GPU_SM], (100 + 100 + 80) / 4.0);
	ck_assert_uint_eq(t.gpu[1].lost, 1);
	ck_assert_uint_eq(t.gpu[0].lost, 0);
	/* It never gave this one: unknown for all. */
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_MEMBW, S, 3 * S, 40));
	totals(in);
	ck_assert(!known(GPU_MEMBW));
	gpu_integ_destroy(in);
}
END_TEST

START_TEST(late_metric)
{
	struct gpu_integ *in = make(2);

	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, 0, 10 * S, 50));
	totals(in);
	ck_assert(!known(GPU_SM) && !known(GPU_IDLE));
	ck_assert(!(t.known_out & BIT(GPU_SM)));
	ck_assert(gpu_integ_mean(in, 1, GPU_CHAN_SM, 8 * S, 10 * S, 80));
	totals(in);
	ck_assert(known(GPU_SM) && known(GPU_IDLE));
	near(t.in[GPU_SM], (500 + 160) / 12.0);
	near(t.out[GPU_SM], 80);
	gpu_integ_destroy(in);
}
END_TEST

/* By SM activity where that is known, else by busy time. */
START_TEST(idle)
{
	struct gpu_integ *in = gpu_integ_create(2, 1, 5);

	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, 0, S, 4.9));
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, S, 3 * S, 5));
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_BUSY, 0, 0));
	ck_assert(gpu_integ_gauge(in, 0, GPU_CHAN_BUSY, 3 * S, 0));
	totals(in);
	ck_assert(!known(GPU_IDLE));
	ck_assert(gpu_integ_gauge(in, 1, GPU_CHAN_BUSY, 0, 0));
	ck_assert(gpu_integ_gauge(in, 1, GPU_CHAN_BUSY, 2 * S, 0));
	ck_assert(gpu_integ_gauge(in, 1, GPU_CHAN_BUSY, 4 * S, 100));
	ck_assert(gpu_integ_gauge(in, 1, GPU_CHAN_BUSY, 5 * S, 100));
	totals(in);
	near(t.in[GPU_IDLE], 1 + 2 + 1);
	ck_assert(!known(GPU_SM));
	gpu_integ_destroy(in);
}
END_TEST

START_TEST(wanted)
{
	struct gpu_integ *in = make(1);

	gpu_integ_tick(in, S);
	gpu_integ_mean(in, 0, GPU_CHAN_SM, 0, S, 50);
	gpu_integ_mean(in, 0, GPU_CHAN_MEMBW, 0, S, 50);
	gpu_integ_totals(in, BIT(GPU_IDLE) | BIT(GPU_MEMBW), &t);
	ck_assert_uint_eq(t.known_in, BIT(GPU_IDLE) | BIT(GPU_MEMBW));
	ck_assert_uint_eq(t.known_out, BIT(GPU_MEMBW));
	ck_assert_uint_eq(t.gpu[0].known, BIT(GPU_MEMBW));
	gpu_integ_destroy(in);
}
END_TEST

/* --- against the truth of random curves ---------------------------------- */

#define PIECES 40

static uint64_t seed;

static double uniform(double low, double high)
{
	/* xorshift64: the same on every machine. */
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return low + (high - low) * (double)(seed >> 11) * 0x1p-53;
}

/* Constant pieces; the last one lasts for ever. */
struct curve {
	double from[PIECES], value[PIECES];
};

static void random_curve(struct curve *c, double high)
{
	double at = 0;
	int i;

	for (i = 0; i < PIECES; i++) {
		c->from[i] = at;
		c->value[i] = uniform(0, 1) < 0.3 ? 0 : uniform(0, high);
		at += uniform(0.01, 3);
	}
}

/* The integral over [a, b], seconds. */
static double integral(const struct curve *c, double a, double b)
{
	double sum = 0, from, to;
	int i;

	for (i = 0; i < PIECES; i++) {
		from = fmax(a, i ? c->from[i] : 0);
		to = fmin(b, i + 1 < PIECES ? c->from[i + 1] : b);
		if (to > from)
			sum += (to - from) * c->value[i];
	}
	return sum;
}

struct truth {
	double sm, time, peak, idle, bytes;
};

static void feed_random(struct gpu_integ *in, unsigned gpu, struct truth *sum)
{
	double at = 0, next, mean, bytes = uniform(0, 4e9), start = bytes;
	struct gpu_count c = { .bits = 32, .unit = 1, .top = 2e8 };
	struct curve sm, rate;
	int64_t t0 = 0, t1;

	random_curve(&sm, 100);
	random_curve(&rate, 2e8);
	c.raw = (uint32_t)(uint64_t)bytes;
	ck_assert(gpu_integ_count(in, gpu, GPU_CHAN_PCIE_IN, 0, &c));
	while (at < 60) {
		next = at + uniform(0.1, 2.5);
		t1 = (int64_t)(next * 1e9);
		next = (double)t1 * 1e-9;
		mean = integral(&sm, at, next) / (next - at);
		ck_assert(gpu_integ_mean(in, gpu, GPU_CHAN_SM, t0, t1, mean));
		sum->sm += integral(&sm, at, next);
		sum->time += next - at;
		sum->peak = fmax(sum->peak, mean);
		sum->idle += mean < 1 ? next - at : 0;
		bytes = start + integral(&rate, 0, next);
		c.raw = (uint32_t)(uint64_t)bytes;
		ck_assert(gpu_integ_count(in, gpu, GPU_CHAN_PCIE_IN, t1, &c));
		at = next;
		t0 = t1;
	}
	sum->bytes += floor(bytes) - floor(start);
}

START_TEST(random_curves)
{
	struct truth sum;
	unsigned round, g, ngpus;

	for (round = 0; round < 200; round++) {
		struct gpu_integ *in;

		seed = 88172645463325252u + round;
		ngpus = 1 + round % 8;
		in = make(ngpus);
		memset(&sum, 0, sizeof(sum));
		for (g = 0; g < ngpus; g++)
			feed_random(in, g, &sum);
		totals(in);
		near(t.in[GPU_SM], sum.sm / sum.time);
		near(t.out[GPU_SM], sum.peak);
		near(t.in[GPU_IDLE], sum.idle);
		near(t.in[GPU_PCIE], sum.bytes);
		gpu_integ_destroy(in);
	}
}
END_TEST

/* Many small intervals: rounding stays dust. */
START_TEST(long_step)
{
	struct gpu_integ *in = make(1);
	uint64_t raw = UINT64_MAX - 12345;
	int64_t at = 0;
	unsigned i;

	ck_assert(count(in, 0, raw, 64));
	for (i = 0; i < 1000000; i++) {
		ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, at, at + S / 10,
					 100));
		at += S / 10;
		raw += 100000000007u;
		ck_assert(count(in, at, raw, 64));
	}
	near(pcie_in(in), 100000000007e6);
	near(t.in[GPU_SM], 100);
	ck_assert(t.in[GPU_SM] <= 100);
	gpu_integ_destroy(in);
}
END_TEST

/* The step began before the first reading. */
START_TEST(since)
{
	struct gpu_integ *in = make(1);

	gpu_integ_since(in, 10 * S);
	gpu_integ_tick(in, 10 * S + S / 2);
	ck_assert(count(in, 10 * S + S / 2, 1000, 64));
	gpu_integ_tick(in, 14 * S);
	ck_assert(count(in, 14 * S, 8000, 64));
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, 10 * S + S / 2, 14 * S, 0));
	near(pcie_in(in), 8000);
	near(t.in[GPU_IDLE], 4);
	ck_assert_int_eq(t.first, 10 * S);
	near(t.gpu[0].sm, 0);
	gpu_integ_tick(in, 14 * S + 1);
	/* The same interval with a later end, and then another one. */
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, 10 * S + S / 2, 15 * S, 30));
	totals(in);
	near(t.in[GPU_SM], 27);
	near(t.in[GPU_IDLE], 0.5);
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, 15 * S, 16 * S, 70));
	ck_assert(count(in, 16 * S, 9000, 64));
	near(pcie_in(in), 9000);
	near(t.in[GPU_SM], (27 * 5 + 70) / 6.0);
	/* What is fed later only was not there before. */
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_MEMBW, 15 * S, 16 * S, 50));
	gpu_integ_tick(in, 17 * S);
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_BUSY, 16 * S, 17 * S, 50));
	gpu_integ_destroy(in);

	/* More than a second is not made up, nor is the future. */
	for (int64_t at = 8; at <= 11; at += 3) {
		in = make(1);
		gpu_integ_since(in, at * S);
		gpu_integ_tick(in, 10 * S);
		(void)count(in, 10 * S, 0, 64);
		gpu_integ_tick(in, 13 * S);
		ck_assert(count(in, 13 * S, 1000, 64));
		near(pcie_in(in), 1000);
		ck_assert_int_eq(t.first, 10 * S);
		gpu_integ_destroy(in);
	}

	/* How much of it is an estimate. */
	in = make(1);
	gpu_integ_since(in, 10 * S);
	gpu_integ_tick(in, 10 * S + S / 10);
	ck_assert(count(in, 10 * S + S / 10, 0, 64));
	gpu_integ_until(in, 13 * S);
	gpu_integ_tick(in, 13 * S);
	ck_assert(count(in, 13 * S, 2900, 64));
	near(pcie_in(in), 3000);
	ck_assert_int_eq(t.first, 10 * S);
	ck_assert_int_eq(t.began, 10 * S + S / 10);
	gpu_integ_destroy(in);
}
END_TEST

/* The step ended before the last reading, or before the one before it. */
START_TEST(until)
{
	struct gpu_integ *in = make(1);

	for (int64_t at = 0; at <= 3; at++) {
		gpu_integ_tick(in, at * S);
		(void)count(in, at * S, 1000 * (uint64_t)at, 64);
		if (at)
			ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM,
						 (at - 1) * S, at * S, 0.5));
	}
	near(pcie_in(in), 3000);
	gpu_integ_until(in, 2 * S + S / 2);
	near(pcie_in(in), 2500);
	near(t.in[GPU_IDLE], 2.5);
	ck_assert_int_eq(t.last, 2 * S + S / 2);
	gpu_integ_tick(in, 4 * S);
	(void)count(in, 4 * S, 9000, 64);
	ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_SM, 3 * S, 4 * S, 100));
	near(pcie_in(in), 2500);
	near(t.in[GPU_SM], 0.5);
	gpu_integ_destroy(in);

	/* The last interval goes beyond the end. */
	in = make(1);
	gpu_integ_tick(in, 0);
	(void)count(in, 0, 0, 64);
	gpu_integ_until(in, S);
	gpu_integ_tick(in, 4 * S);
	(void)count(in, 4 * S, 4000, 64);
	ck_assert(gpu_integ_mean(in, 0, GPU_CHAN_SM, 0, 4 * S, 0));
	near(pcie_in(in), 1000);
	near(t.in[GPU_IDLE], 1);
	gpu_integ_destroy(in);

	/* All of it was after the end: nothing is known. */
	in = make(1);
	gpu_integ_tick(in, 2 * S);
	(void)count(in, 2 * S, 0, 64);
	gpu_integ_until(in, S);
	gpu_integ_tick(in, 3 * S);
	(void)count(in, 3 * S, 4000, 64);
	ck_assert(!gpu_integ_mean(in, 0, GPU_CHAN_SM, 2 * S, 3 * S, 0));
	ck_assert(pcie_in(in) < 0);
	ck_assert(!known(GPU_SM) && !known(GPU_IDLE));
	ck_assert_int_eq(t.last, t.first);
	gpu_integ_destroy(in);
}
END_TEST

int main(void)
{
	const TTest *tests[] = {
		nothing, means, replaced, absurd, gauges, slow_gauges,
		counter_wraps, counter_resets, counter_hints, bad_counters,
		energy, lost_gpu, late_metric, idle, wanted, random_curves,
		long_step, since, until,
	};

	return check_run("gpu_integ", tests, CHECK_COUNT(tests), NULL);
}
