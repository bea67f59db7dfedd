/* SPDX-License-Identifier: Apache-2.0 */
/* A job's figures from its steps', on cases worked out by hand. */
#include "config.h"

#include "accounting/report.h"
#include "tests/unit/check_main.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEPS 16
static struct report_step steps[STEPS];
static struct report_job job;

static void setup(void)
{
	memset(steps, 0, sizeof(steps));
	memset(&job, 0, sizeof(job));
	job.steps = steps;
}

/* A job from second 1000 on. */
static void a_job(uint32_t nnodes, int64_t ngpus, int64_t seconds)
{
	job.nnodes = nnodes;
	job.ngpus = ngpus;
	job.start = 1000;
	job.end = 1000 + seconds;
	job.seconds = (double)seconds;
}

static struct report_step *a_step(enum report_kind kind, int64_t from,
				  int64_t to, int64_t ngpus)
{
	struct report_step *s = &steps[job.nsteps];

	ck_assert_uint_lt(job.nsteps, STEPS);
	s->kind = kind;
	s->start = 1000 + from;
	s->end = 1000 + to;
	s->seconds = (double)(to - from);
	s->ngpus = ngpus;
	s->nnodes = s->ntasks = 1;
	snprintf(s->id, sizeof(s->id), "%zu", job.nsteps++);
	return s;
}

static void set(struct report_step *s, int m, double v)
{
	s->values.known |= REPORT_BIT(m);
	s->values.v[m] = v;
}

static void rollup(void)
{
	ck_assert_int_eq(report_rollup(&job), 0);
}

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

#define TOTAL job.total
#define ck_figure(m, want) do { \
	ck_assert(report_known(&TOTAL.values, m)); \
	ck_assert_msg(near(TOTAL.values.v[m], want), "%s: %.10g, not %.10g", \
		      #m, TOTAL.values.v[m], (double)(want)); \
} while (0)
#define ck_unknown(m) ck_assert(!report_known(&TOTAL.values, m))
#define ck_near(got, want) ck_assert_msg(near(got, want), "%s: %.10g, not " \
	"%.10g", #got, (double)(got), (double)(want))

START_TEST(nothing)
{
	a_job(1, 4, 100);
	rollup();
	for (int m = 0; m < REPORT_METRICS; m++)
		ck_unknown(m);
	ck_near(TOTAL.gpu_seconds, 400);
	/* An allocation without a step, as of salloc. */
	ck_near(TOTAL.unused, 400);
	ck_near(TOTAL.idle, 400);
	ck_assert(!TOTAL.idle_at_least);
}
END_TEST

START_TEST(no_gpus)
{
	a_job(1, 0, 100);
	a_step(REPORT_STEP, 0, 100, 0);
	rollup();
	ck_assert(TOTAL.unused < 0 && TOTAL.idle < 0);
	job.ngpus = REPORT_GPUS_UNKNOWN;
	steps[0].ngpus = REPORT_GPUS_UNKNOWN;
	rollup();
	ck_assert(TOTAL.gpu_seconds < 0 && TOTAL.unused < 0 && TOTAL.idle < 0);
}
END_TEST

/* The batch step saw all: the steps inside it would count twice. */
START_TEST(batch_and_nested)
{
	struct report_step *b, *s;

	a_job(1, 4, 100);
	b = a_step(REPORT_BATCH, 0, 100, 4);
	set(b, REPORT_SM, 40);
	set(b, REPORT_SM_PEAK, 97);
	set(b, REPORT_ENERGY, 5000);
	set(b, REPORT_IDLE, 150);
	s = a_step(REPORT_STEP, 10, 60, 4);
	set(s, REPORT_SM, 75);
	set(s, REPORT_SM_PEAK, 96);
	set(s, REPORT_ENERGY, 4500);
	set(s, REPORT_IDLE, 10);
	/* Only the step has it. */
	set(s, REPORT_PCIE_IN, 1e9);
	rollup();
	ck_figure(REPORT_SM, 40);
	ck_figure(REPORT_SM_PEAK, 97);
	ck_figure(REPORT_ENERGY, 5000);
	ck_figure(REPORT_IDLE, 150);
	ck_assert_int_eq(TOTAL.source[REPORT_SM], REPORT_BY_BATCH);
	ck_near(TOTAL.covered[REPORT_SM], 400);
	ck_near(TOTAL.seconds[REPORT_ENERGY], 100);
	ck_figure(REPORT_PCIE_IN, 1e9);
	ck_assert_int_eq(TOTAL.source[REPORT_PCIE_IN], REPORT_BY_STEPS);
	ck_near(TOTAL.seconds[REPORT_PCIE_IN], 50);
	ck_unknown(REPORT_DRAM);
	ck_assert_uint_eq(TOTAL.partial, 0);
	ck_assert_uint_eq(TOTAL.shared, 0);
	ck_near(TOTAL.unused, 0);
	ck_near(TOTAL.idle, 150);
}
END_TEST

/* Two nodes: the batch step saw half of it. */
START_TEST(two_nodes)
{
	struct report_step *s;

	a_job(2, 8, 100);
	s = a_step(REPORT_BATCH, 0, 100, 4);
	set(s, REPORT_SM, 30);
	set(s, REPORT_SM_PEAK, 100);
	set(s, REPORT_IDLE, 220);	/* busy 180, in 60 s of steps */
	s = a_step(REPORT_STEP, 0, 20, 8);
	set(s, REPORT_SM, 90);
	set(s, REPORT_SM_PEAK, 98);
	set(s, REPORT_NVLINK_OUT, 3e9);
	set(s, REPORT_IDLE, 4);
	s = a_step(REPORT_STEP, 20, 60, 8);
	set(s, REPORT_SM, 30);
	set(s, REPORT_SM_PEAK, 99);
	set(s, REPORT_NVLINK_OUT, 6e9);
	set(s, REPORT_IDLE, 6);
	rollup();
	ck_figure(REPORT_SM, (90. * 20 + 30. * 40) / 60);
	ck_figure(REPORT_SM_PEAK, 99);
	ck_figure(REPORT_NVLINK_OUT, 9e9);
	ck_near(TOTAL.seconds[REPORT_NVLINK_OUT], 60);
	ck_near(TOTAL.covered[REPORT_SM], 480);
	ck_figure(REPORT_IDLE, 10);
	ck_near(TOTAL.unused, 8 * 40);
	ck_near(TOTAL.idle, 330);
	ck_assert_uint_eq(TOTAL.partial | TOTAL.shared, 0);
	ck_assert(!TOTAL.idle_at_least);
}
END_TEST

/* The script itself used GPUs, more than steps can have: say less. */
START_TEST(script_on_two_nodes)
{
	struct report_step *s;

	a_job(2, 8, 100);
	s = a_step(REPORT_BATCH, 0, 100, 4);
	set(s, REPORT_IDLE, 100);	/* busy 300; steps explain 80 */
	s = a_step(REPORT_STEP, 0, 20, 8);
	set(s, REPORT_SM, 90);
	set(s, REPORT_IDLE, 4);
	rollup();
	ck_figure(REPORT_SM, 90);
	ck_assert(TOTAL.partial & REPORT_BIT(REPORT_SM));
	ck_assert(TOTAL.unused < 0);
	ck_near(TOTAL.idle, 4);
	ck_assert(TOTAL.idle_at_least);
}
END_TEST

/* No step of srun at all: what the batch step saw is a part. */
START_TEST(batch_alone_on_two_nodes)
{
	struct report_step *b;

	a_job(2, 8, 100);
	b = a_step(REPORT_BATCH, 0, 100, 4);
	set(b, REPORT_SM, 80);
	set(b, REPORT_ENERGY, 1000);
	set(b, REPORT_IDLE, 40);
	rollup();
	ck_figure(REPORT_SM, 80);
	ck_figure(REPORT_ENERGY, 1000);
	ck_assert_int_eq(TOTAL.source[REPORT_SM], REPORT_BY_HOST);
	ck_assert_uint_eq(TOTAL.partial, TOTAL.values.known);
	ck_near(TOTAL.covered[REPORT_SM], 400);
	ck_assert(TOTAL.unused < 0);
	ck_near(TOTAL.idle, 40);
	ck_assert(TOTAL.idle_at_least);
	/* Hardly busy: then nobody used any. */
	set(b, REPORT_IDLE, 398);
	rollup();
	ck_near(TOTAL.unused, 800);
	ck_near(TOTAL.idle, 800);
	ck_assert(!TOTAL.idle_at_least);
}
END_TEST

/* Steps at the same time on GPUs of their own add up. */
START_TEST(side_by_side)
{
	struct report_step *s;

	a_job(1, 4, 100);
	for (int i = 0; i < 4; i++) {
		s = a_step(REPORT_STEP, 0, i < 2 ? 100 : 50, 1);
		set(s, REPORT_SM, 20 * (i + 1));
		set(s, REPORT_ENERGY, 100);
		set(s, REPORT_IDLE, 1);
	}
	rollup();
	ck_figure(REPORT_SM, (20. * 100 + 40 * 100 + 60 * 50 + 80 * 50) / 300);
	ck_figure(REPORT_ENERGY, 400);
	ck_near(TOTAL.seconds[REPORT_ENERGY], 100);
	ck_near(TOTAL.unused, 100);
	ck_near(TOTAL.idle, 104);
	ck_assert_uint_eq(TOTAL.shared, 0);
	for (int i = 0; i < 4; i++)
		ck_assert(!steps[i].shares);
}
END_TEST

/* srun --overlap: both saw the same GPUs, and count once. */
START_TEST(overlap)
{
	struct report_step *s;

	a_job(1, 4, 100);
	for (int i = 0; i < 2; i++) {
		s = a_step(REPORT_STEP, 0, 100, 4);
		set(s, REPORT_SM, 60);
		set(s, REPORT_SM_PEAK, 90 + i);
		set(s, REPORT_ENERGY, 7000);
		set(s, REPORT_IDLE, 50);
	}
	rollup();
	ck_figure(REPORT_SM, 60);
	ck_figure(REPORT_SM_PEAK, 91);
	ck_figure(REPORT_ENERGY, 7000);
	ck_figure(REPORT_IDLE, 50);
	ck_near(TOTAL.covered[REPORT_SM], 400);
	ck_near(TOTAL.unused, 0);
	ck_near(TOTAL.idle, 50);
	ck_assert(TOTAL.shared & REPORT_BIT(REPORT_ENERGY));
	ck_assert(!(TOTAL.shared & REPORT_BIT(REPORT_SM_PEAK)));
	ck_assert(steps[0].shares && steps[1].shares);
}
END_TEST

/* One looks on for a while: 25 s of 100 each count half. */
START_TEST(overlap_in_part)
{
	struct report_step *s;

	a_job(1, 2, 100);
	s = a_step(REPORT_STEP, 0, 100, 2);
	set(s, REPORT_ENERGY, 1000);
	s = a_step(REPORT_STEP, 50, 75, 2);
	set(s, REPORT_ENERGY, 250);
	/* and one that shares with nobody */
	s = a_step(REPORT_STEP, 100, 101, 2);
	set(s, REPORT_ENERGY, 10);
	job.end++;
	job.seconds++;
	rollup();
	ck_figure(REPORT_ENERGY, 1000 * 0.875 + 250 * 0.5 + 10);
	ck_near(TOTAL.covered[REPORT_ENERGY], 202);
	ck_assert(steps[0].shares && steps[1].shares && !steps[2].shares);
}
END_TEST

/* The part that is shared weighs less in a mean too. */
START_TEST(overlapping_means)
{
	struct report_step *s;

	a_job(1, 2, 100);
	s = a_step(REPORT_STEP, 0, 100, 2);
	set(s, REPORT_SM, 80);
	s = a_step(REPORT_STEP, 50, 75, 2);
	set(s, REPORT_SM, 20);
	rollup();
	ck_figure(REPORT_SM, (80 * 0.875 * 200 + 20 * 0.5 * 50) /
		  (0.875 * 200 + 0.5 * 50));
	/* A third that has no figure takes no part of theirs. */
	a_step(REPORT_STEP, 0, 100, 2);
	rollup();
	ck_figure(REPORT_SM, (80 * 0.875 * 200 + 20 * 0.5 * 50) /
		  (0.875 * 200 + 0.5 * 50));
}
END_TEST

/* Rates are over the time in which steps with the figure ran. */
START_TEST(gaps)
{
	struct report_step *s;

	a_job(1, 4, 100);
	for (int i = 0; i < 3; i++) {
		s = a_step(REPORT_STEP, 30 * i, 30 * i + 10, 2);
		if (i < 2)
			set(s, REPORT_PCIE_IN, 100);
	}
	rollup();
	ck_figure(REPORT_PCIE_IN, 200);
	ck_near(TOTAL.seconds[REPORT_PCIE_IN], 20);
	ck_near(TOTAL.unused, 400 - 60);
}
END_TEST

/* Steps ran on all GPUs, but nobody knows how idle they were. */
START_TEST(idle_unknown)
{
	a_job(1, 2, 100);
	set(a_step(REPORT_STEP, 0, 60, 2), REPORT_SM, 50);
	rollup();
	ck_near(TOTAL.unused, 80);
	ck_assert(TOTAL.idle < 0);
	ck_assert(!TOTAL.idle_at_least);
}
END_TEST

/* A second of overlap is how records are rounded. */
START_TEST(rounded_times)
{
	struct report_step *s;

	a_job(1, 2, 20);
	s = a_step(REPORT_STEP, 0, 11, 2);
	set(s, REPORT_ENERGY, 100);
	s = a_step(REPORT_STEP, 10, 20, 2);
	set(s, REPORT_ENERGY, 200);
	rollup();
	ck_figure(REPORT_ENERGY, 300);
	ck_assert_uint_eq(TOTAL.shared, 0);
	ck_assert(!steps[0].shares && !steps[1].shares);
}
END_TEST

/* Means without their weight would be wrong; sums need none. */
START_TEST(unknown_gpus)
{
	struct report_step *s;

	a_job(2, REPORT_GPUS_UNKNOWN, 100);
	s = a_step(REPORT_STEP, 0, 100, REPORT_GPUS_UNKNOWN);
	set(s, REPORT_SM, 50);
	set(s, REPORT_ENERGY, 10);
	rollup();
	ck_figure(REPORT_SM, 50);
	ck_figure(REPORT_ENERGY, 10);
	s = a_step(REPORT_STEP, 0, 100, 3);
	set(s, REPORT_SM, 10);
	set(s, REPORT_SM_PEAK, 12);
	set(s, REPORT_ENERGY, 5);
	rollup();
	ck_unknown(REPORT_SM);
	ck_figure(REPORT_SM_PEAK, 12);
	ck_figure(REPORT_ENERGY, 15);
	ck_assert(TOTAL.unused < 0);
}
END_TEST

/* Unknown is not zero: a sum that lacks a step is a part of the sum. */
START_TEST(partial)
{
	struct report_step *s;

	a_job(1, 2, 100);
	s = a_step(REPORT_STEP, 0, 60, 2);
	set(s, REPORT_SM, 50);
	set(s, REPORT_IDLE, 20);
	a_step(REPORT_STEP, 60, 100, 2);
	a_step(REPORT_STEP, 60, 100, 0);	/* had no GPUs: lacks nothing */
	rollup();
	ck_figure(REPORT_SM, 50);
	ck_assert(TOTAL.partial & REPORT_BIT(REPORT_SM));
	ck_near(TOTAL.covered[REPORT_SM], 120);
	ck_near(TOTAL.unused, 0);
	ck_near(TOTAL.idle, 20);
	ck_assert(TOTAL.idle_at_least);
	/* A step too short to be seen does not matter. */
	steps[1].end = steps[1].start + 1;
	steps[1].seconds = 1;
	steps[0].seconds = 600;
	steps[0].end = steps[0].start + 600;
	rollup();
	ck_assert_uint_eq(TOTAL.partial, 0);
}
END_TEST

/* A step in which one of four nodes could not measure. */
START_TEST(node_missing)
{
	struct report_step *s;

	a_job(4, 8, 200);
	s = a_step(REPORT_STEP, 0, 100, 8);
	set(s, REPORT_SM, 50);
	set(s, REPORT_ENERGY, 3000);
	s->missing = 0.25;
	ck_assert(report_step_partial(s));
	s = a_step(REPORT_STEP, 100, 200, 8);
	set(s, REPORT_SM, 90);
	set(s, REPORT_ENERGY, 9000);
	ck_assert(!report_step_partial(s));
	rollup();
	ck_figure(REPORT_SM, (50 * 0.75 + 90) / 1.75);
	ck_figure(REPORT_ENERGY, 12000);
	ck_near(TOTAL.covered[REPORT_SM], 1400);
	ck_assert_uint_eq(TOTAL.partial, REPORT_BIT(REPORT_SM) |
			  REPORT_BIT(REPORT_ENERGY));
}
END_TEST

/* A batch step whose figures are missing may have used what no step did. */
START_TEST(batch_without_figures)
{
	struct report_step *s;

	a_job(1, 4, 100);
	a_step(REPORT_BATCH, 0, 100, 4);
	rollup();
	ck_assert(TOTAL.unused < 0 && TOTAL.idle < 0);
	s = a_step(REPORT_STEP, 0, 50, 4);
	set(s, REPORT_IDLE, 30);
	rollup();
	ck_assert(TOTAL.unused < 0);
	ck_near(TOTAL.idle, 30);
	ck_assert(TOTAL.idle_at_least);
	/* One that had no GPUs cannot have. */
	steps[0].ngpus = 0;
	rollup();
	ck_near(TOTAL.unused, 200);
	ck_near(TOTAL.idle, 230);
	ck_assert(!TOTAL.idle_at_least);
}
END_TEST

START_TEST(extern_counts_nothing)
{
	struct report_step *s;

	a_job(1, 2, 100);
	s = a_step(REPORT_EXTERN, 0, 100, 2);
	set(s, REPORT_SM, 77);
	rollup();
	ck_unknown(REPORT_SM);
	ck_near(TOTAL.unused, 200);
}
END_TEST

/* Suspended: elapsed is less than end - start. Less than a second: 0. */
START_TEST(odd_times)
{
	struct report_step *s;

	a_job(1, 2, 40);
	job.end = 1100;
	s = a_step(REPORT_STEP, 0, 100, 2);
	s->seconds = 40;
	set(s, REPORT_SM, 30);
	s = a_step(REPORT_STEP, 100, 100, 2);
	set(s, REPORT_SM, 90);
	rollup();
	ck_figure(REPORT_SM, (30 * 80 + 90 * 1) / 81.);
	/* An end before the start is none. */
	steps[1].end = 0;
	rollup();
	ck_figure(REPORT_SM, (30 * 80 + 90 * 1) / 81.);
	ck_near(TOTAL.unused, 0);
}
END_TEST

/* Garbage of a 22.05 whose daemons were not all restarted, and rounding. */
START_TEST(implausible)
{
	struct report_values v = { 0 };

	v.known = (1U << REPORT_METRICS) - 1;
	for (int m = 0; m < REPORT_METRICS; m++)
		v.v[m] = 18446744073709551614.;
	report_values_check(&v, 4, 100);
	ck_assert_uint_eq(v.known, 0);
	v.known = (1U << REPORT_METRICS) - 1;
	for (int m = 0; m < REPORT_METRICS; m++)
		v.v[m] = 100.4;
	v.v[REPORT_IDLE] = 401;
	v.v[REPORT_ENERGY] = 4 * 700 * 100;
	v.v[REPORT_NVLINK_IN] = 4 * 900e9 * 100;
	report_values_check(&v, 4, 100);
	ck_assert_uint_eq(v.known, (1U << REPORT_METRICS) - 1);
	ck_near(v.v[REPORT_SM], 100);
	ck_near(v.v[REPORT_SM_PEAK], 100);
	ck_near(v.v[REPORT_PCIE_IN], 100.4);
	v.v[REPORT_IDLE] = 500;
	v.v[REPORT_SM] = 101.5;
	v.v[REPORT_DRAM] = NAN;
	v.v[REPORT_ENERGY] = 1e9;
	report_values_check(&v, 4, 100);
	ck_assert(!report_known(&v, REPORT_IDLE));
	ck_assert(!report_known(&v, REPORT_SM));
	ck_assert(!report_known(&v, REPORT_DRAM));
	ck_assert(!report_known(&v, REPORT_ENERGY));
	ck_assert(report_known(&v, REPORT_SM_PEAK));
	/* Where the GPUs are not known, only percentages have a limit. */
	v.known = REPORT_BIT(REPORT_ENERGY) | REPORT_BIT(REPORT_SM);
	report_values_check(&v, REPORT_GPUS_UNKNOWN, 100);
	ck_assert_uint_eq(v.known, REPORT_BIT(REPORT_ENERGY));
}
END_TEST

/* Whatever the steps, a job has not more GPU time behind it than it had. */
START_TEST(never_more_than_all)
{
	srand(7);
	for (int round = 0; round < 2000; round++) {
		double most;

		setup();
		a_job(1 + (uint32_t)rand() % 3, 1 + rand() % 8, 200);
		for (int n = rand() % STEPS; n; n--) {
			int64_t from = rand() % 200;
			struct report_step *s;

			s = a_step(rand() % 8 ? REPORT_STEP : REPORT_BATCH,
				   from, from + rand() % (201 - (int)from),
				   1 + rand() % (int)job.ngpus);
			set(s, REPORT_SM, rand() % 101);
			/* every GPU burns one joule a second */
			set(s, REPORT_ENERGY, s->seconds * (double)s->ngpus);
			if (rand() % 4)
				set(s, REPORT_IDLE, s->seconds *
				    (double)s->ngpus / 3);
		}
		rollup();
		/* A second of each may be taken for rounding. */
		most = TOTAL.gpu_seconds + 8 * STEPS;
		if (report_known(&TOTAL.values, REPORT_ENERGY))
			ck_assert(TOTAL.values.v[REPORT_ENERGY] <= most);
		ck_assert(TOTAL.covered[REPORT_ENERGY] <= most);
		ck_assert(TOTAL.unused <= TOTAL.gpu_seconds);
		ck_assert(TOTAL.idle <= most);
		if (report_known(&TOTAL.values, REPORT_SM))
			ck_assert(TOTAL.values.v[REPORT_SM] >= 0 &&
				  TOTAL.values.v[REPORT_SM] <= 100);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { nothing, no_gpus,
		batch_and_nested, two_nodes, script_on_two_nodes,
		batch_alone_on_two_nodes, side_by_side, overlap,
		overlap_in_part, overlapping_means, gaps, idle_unknown,
		rounded_times, unknown_gpus, partial, node_missing,
		batch_without_figures, extern_counts_nothing, odd_times,
		implausible, never_more_than_all };

	return check_run("report", tests, CHECK_COUNT(tests), setup);
}
