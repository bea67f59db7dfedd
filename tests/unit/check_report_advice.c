/* SPDX-License-Identifier: Apache-2.0 */
/* Advice: each rule just over and just under its thresholds. */
#include "config.h"

#include "accounting/report.h"
#include "tests/unit/check_main.h"

#include <stdio.h>
#include <string.h>

#define STEPS 8
static struct report_step steps[STEPS];
static struct report_job job;
static struct report_advice advice[REPORT_ADVICE_MAX];
static unsigned n;

static void setup(void)
{
	memset(steps, 0, sizeof(steps));
	memset(&job, 0, sizeof(job));
	job.steps = steps;
	job.nnodes = 1;
}

static struct report_step *a_step(enum report_kind kind, uint32_t nnodes,
				  int64_t ngpus, int64_t seconds)
{
	struct report_step *s = &steps[job.nsteps];

	s->kind = kind;
	s->start = 1000;
	s->end = 1000 + seconds;
	s->seconds = (double)seconds;
	s->ngpus = ngpus;
	s->nnodes = nnodes;
	snprintf(s->id, sizeof(s->id), "%zu", job.nsteps++);
	return s;
}

static void set(struct report_step *s, int m, double v)
{
	s->values.known |= REPORT_BIT(m);
	s->values.v[m] = v;
}

/* Idle as a share, traffic in bytes a second and GPU. */
static void set_share(struct report_step *s, int m, double v)
{
	set(s, m, v * (double)s->ngpus * s->seconds);
}

/* One step with a training's figures that nothing is to be said of. */
static struct report_step *fine(uint32_t nnodes, int64_t ngpus)
{
	struct report_step *s;

	setup();
	s = a_step(REPORT_STEP, nnodes, ngpus, 3600);
	job.nnodes = nnodes;
	job.ngpus = ngpus;
	job.start = 1000;
	job.end = 4600;
	job.seconds = 3600;
	set(s, REPORT_SM, 85);
	set(s, REPORT_SM_PEAK, 99);
	set(s, REPORT_DRAM, 60);
	set(s, REPORT_DRAM_PEAK, 80);
	set_share(s, REPORT_NVLINK_IN, 30e9);
	set_share(s, REPORT_NVLINK_OUT, 30e9);
	set_share(s, REPORT_PCIE_IN, 2e9);
	set_share(s, REPORT_PCIE_OUT, 1e9);
	set_share(s, REPORT_IDLE, 0.05);
	return s;
}

static void advise(const struct report_step *only, double after)
{
	ck_assert_int_eq(report_rollup(&job), 0);
	memset(advice, 0, sizeof(advice));
	n = report_advise(&job, only, after, advice);
}

/* The first piece of advice, of the job and, if `of`, of the step alone. */
static void ck_rule(const struct report_step *of, enum report_rule rule)
{
	advise(NULL, 60);
	ck_assert_uint_ge(n, 1);
	ck_assert_int_eq(advice[0].rule, rule);
	ck_assert_uint_gt(strlen(advice[0].text), 20);
	if (!of)
		return;
	advise(of, 60);
	ck_assert_uint_ge(n, 1);
	ck_assert_int_eq(advice[0].rule, rule);
}

/* None of this rule, in the job nor in the step. */
static void ck_not(const struct report_step *of, enum report_rule rule)
{
	advise(NULL, 60);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_ne(advice[i].rule, rule);
	advise(of, 60);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_ne(advice[i].rule, rule);
}

START_TEST(nothing_to_say)
{
	struct report_step *s = fine(1, 8);

	advise(NULL, 60);
	ck_assert_uint_eq(n, 0);
	advise(s, 60);
	ck_assert_uint_eq(n, 0);
}
END_TEST

static struct report_step *one_of(uint32_t nnodes, int64_t ngpus, double busy)
{
	struct report_step *s = fine(nnodes, ngpus);

	set(s, REPORT_SM_PEAK, 96);
	set(s, REPORT_SM, 90 * busy / (double)ngpus);
	set_share(s, REPORT_IDLE, 1 - busy / (double)ngpus);
	return s;
}

START_TEST(one_gpu_of_eight)
{
	struct report_step *s = one_of(1, 8, 1);

	ck_rule(s, REPORT_ONE_BUSY);
	ck_assert_ptr_nonnull(strstr(advice[0].text, "one GPU of 8 "));
	ck_rule(one_of(1, 2, 1), REPORT_ONE_BUSY);
	ck_rule(one_of(1, 4, 1), REPORT_ONE_BUSY);
	/* Only idle is said besides, and that is the same. */
	advise(NULL, 60);
	ck_assert_uint_eq(n, 1);
	/* Two of eight are no longer one. */
	ck_not(one_of(1, 8, 2), REPORT_ONE_BUSY);
	/* Each limit by itself. */
	s = one_of(1, 8, 1);
	set(s, REPORT_SM_PEAK, 49);
	ck_not(s, REPORT_ONE_BUSY);
	s = one_of(1, 8, 1);
	set(s, REPORT_SM, 1.51 * 96 / 8);
	ck_not(s, REPORT_ONE_BUSY);
	set(s, REPORT_SM, 1.49 * 96 / 8);
	set_share(s, REPORT_IDLE, 6.51 / 8);
	ck_rule(s, REPORT_ONE_BUSY);
	set_share(s, REPORT_IDLE, 6.49 / 8);
	ck_not(s, REPORT_ONE_BUSY);
	/* Two GPUs that wait a third of the time. */
	s = one_of(1, 2, 1);
	set_share(s, REPORT_IDLE, 0.44);
	ck_not(s, REPORT_ONE_BUSY);
	/* One GPU is all there is. */
	s = one_of(1, 1, 1);
	ck_not(s, REPORT_ONE_BUSY);
}
END_TEST

START_TEST(one_gpu_a_node)
{
	ck_rule(one_of(4, 32, 4), REPORT_ONE_BUSY);
	ck_assert_ptr_nonnull(strstr(advice[0].text, "4 of 32"));
	ck_not(one_of(4, 32, 8), REPORT_ONE_BUSY);
	ck_rule(one_of(4, 32, 1), REPORT_ONE_BUSY);
	ck_assert_ptr_nonnull(strstr(advice[0].text, "one GPU of 32"));
	/* All of them are one a node here. */
	ck_not(one_of(4, 4, 4), REPORT_ONE_BUSY);
}
END_TEST

START_TEST(input_bound)
{
	struct report_step *s = fine(1, 4);

	set(s, REPORT_SM, 30);
	set_share(s, REPORT_IDLE, 0.4);
	set_share(s, REPORT_PCIE_IN, 0.2e9);
	set_share(s, REPORT_NVLINK_IN, 1e9);
	ck_rule(s, REPORT_INPUT_BOUND);
	set(s, REPORT_SM, 40);
	ck_not(s, REPORT_INPUT_BOUND);
	set(s, REPORT_SM, 39);
	set_share(s, REPORT_IDLE, 0.19);
	ck_not(s, REPORT_INPUT_BOUND);
	set_share(s, REPORT_IDLE, 0.81);
	ck_not(s, REPORT_INPUT_BOUND);
	set_share(s, REPORT_IDLE, 0.21);
	ck_rule(s, REPORT_INPUT_BOUND);
	ck_assert_ptr_nonnull(strstr(advice[0].text, "(SM 39 %, idle 21 %)"));
	ck_assert_ptr_nonnull(strstr(advice[0].text, "(PCIe 0.20 GB/s a GPU)"));
	set_share(s, REPORT_IDLE, 0.2);
	ck_rule(s, REPORT_INPUT_BOUND);
	/* It explains why the job is idle for more than half of its time. */
	set_share(s, REPORT_IDLE, 0.6);
	ck_rule(s, REPORT_INPUT_BOUND);
	advise(NULL, 60);
	ck_assert_uint_eq(n, 1);
	set_share(s, REPORT_IDLE, 0.21);
	set(s, REPORT_SM_PEAK, 59);
	ck_not(s, REPORT_INPUT_BOUND);
	set(s, REPORT_SM_PEAK, 61);
	set_share(s, REPORT_PCIE_IN, 1e9);
	ck_not(s, REPORT_INPUT_BOUND);
	set_share(s, REPORT_PCIE_IN, 0.9e9);
	set_share(s, REPORT_NVLINK_IN, 5e9);
	ck_not(s, REPORT_INPUT_BOUND);
	/* A GPU without NVLink has no figure of it. */
	s->values.known &= ~REPORT_BIT(REPORT_NVLINK_IN);
	ck_rule(s, REPORT_INPUT_BOUND);
}
END_TEST

START_TEST(communication_bound)
{
	struct report_step *s = fine(1, 4);

	set(s, REPORT_SM, 30);
	set(s, REPORT_DRAM, 20);
	set_share(s, REPORT_NVLINK_IN, 60e9);
	ck_rule(s, REPORT_COMM_BOUND);
	ck_assert_ptr_nonnull(strstr(advice[0].text, "NVLink 60.0 GB/s"));
	set_share(s, REPORT_NVLINK_IN, 49e9);
	ck_not(s, REPORT_COMM_BOUND);
	set_share(s, REPORT_PCIE_OUT, 8.1e9);
	ck_rule(s, REPORT_COMM_BOUND);
	ck_assert_ptr_nonnull(strstr(advice[0].text, "PCIe 8.1 GB/s"));
	ck_assert_ptr_nonnull(strstr(advice[0].text, "idle (5 %)"));
	set(s, REPORT_DRAM, 50);
	ck_not(s, REPORT_COMM_BOUND);
	set(s, REPORT_DRAM, 49);
	set(s, REPORT_SM, 50);
	ck_not(s, REPORT_COMM_BOUND);
	set(s, REPORT_SM, 49);
	set_share(s, REPORT_IDLE, 0.2);
	ck_not(s, REPORT_COMM_BOUND);
	set_share(s, REPORT_IDLE, 0.19);
	ck_rule(s, REPORT_COMM_BOUND);
}
END_TEST

START_TEST(idle)
{
	struct report_step *s = fine(1, 4);

	set_share(s, REPORT_IDLE, 0.51);
	ck_rule(s, REPORT_IDLE_GPUS);
	set_share(s, REPORT_IDLE, 0.5);
	ck_not(s, REPORT_IDLE_GPUS);
	set_share(s, REPORT_IDLE, 0.75);
	ck_rule(s, REPORT_IDLE_GPUS);
	ck_assert_ptr_nonnull(strstr(advice[0].text, "75 % of their time, "
				     "3.0 of 4.0 GPU-hours"));
	/* The job's: a quarter idle in the step, and half of it unused. */
	set_share(s, REPORT_IDLE, 0.1);
	job.seconds = 7000;
	job.end = 8000;
	ck_rule(NULL, REPORT_IDLE_GPUS);
	ck_assert_ptr_null(advice[0].step);
	ck_assert_ptr_nonnull(strstr(advice[0].text, " of 7.8 GPU-hours"));
	advise(s, 60);
	ck_assert_uint_eq(n, 0);
}
END_TEST

/* A step that idles is no matter for the job, unless it is most of it. */
START_TEST(idle_step)
{
	struct report_step *s;

	fine(1, 4);
	job.seconds += 400;
	job.end += 400;
	s = a_step(REPORT_STEP, 1, 4, 400);
	s->start = 4600;
	s->end = 5000;
	set_share(s, REPORT_IDLE, 0.9);
	advise(NULL, 60);
	ck_assert_uint_eq(n, 0);
	advise(s, 60);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(advice[0].rule, REPORT_IDLE_GPUS);
	/* A step with one busy GPU explains its own idle time only. */
	set(s, REPORT_SM, 25);
	set(s, REPORT_SM_PEAK, 99);
	set_share(s, REPORT_IDLE, 0.75);
	set_share(&steps[0], REPORT_IDLE, 0.6);
	advise(NULL, 60);
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(advice[0].rule, REPORT_IDLE_GPUS);
	ck_assert_int_eq(advice[1].rule, REPORT_ONE_BUSY);
}
END_TEST

START_TEST(no_step)
{
	fine(1, 4);
	job.seconds = 7300;
	job.end = 8300;
	ck_rule(NULL, REPORT_NO_STEP);
	ck_assert_uint_eq(n, 1);
	setup();
	job.ngpus = 2;
	job.seconds = 100;
	ck_rule(NULL, REPORT_NO_STEP);
	job.seconds = 59;
	advise(NULL, 60);
	ck_assert_uint_eq(n, 0);
}
END_TEST

/* Each figure that a rule needs, taken away: it says nothing. */
START_TEST(never_from_unknown)
{
	static const struct {
		enum report_rule rule;
		unsigned needs;
	} cases[] = {
		{ REPORT_ONE_BUSY, REPORT_BIT(REPORT_SM) |
			REPORT_BIT(REPORT_SM_PEAK) | REPORT_BIT(REPORT_IDLE) },
		{ REPORT_INPUT_BOUND, REPORT_BIT(REPORT_SM) |
			REPORT_BIT(REPORT_SM_PEAK) | REPORT_BIT(REPORT_IDLE) |
			REPORT_BIT(REPORT_PCIE_IN) },
		{ REPORT_COMM_BOUND, REPORT_BIT(REPORT_SM) |
			REPORT_BIT(REPORT_DRAM) | REPORT_BIT(REPORT_IDLE) |
			REPORT_BIT(REPORT_NVLINK_IN) },
		{ REPORT_IDLE_GPUS, REPORT_BIT(REPORT_IDLE) },
	};

	for (size_t i = 0; i < CHECK_COUNT(cases); i++)
		for (int m = 0; m < REPORT_METRICS; m++) {
			struct report_step *s = one_of(1, 4, 1);

			if (cases[i].rule == REPORT_IDLE_GPUS) {
				s->values.known = 0;
				set_share(s, REPORT_IDLE, 0.9);
			} else if (cases[i].rule != REPORT_ONE_BUSY) {
				bool in = cases[i].rule == REPORT_INPUT_BOUND;

				set(s, REPORT_SM, 30);
				set(s, REPORT_DRAM, 30);
				set_share(s, REPORT_IDLE, in ? 0.4 : 0.1);
				set_share(s, REPORT_PCIE_IN, 0.1e9);
				set_share(s, REPORT_NVLINK_IN, in ? 0 : 70e9);
			}
			ck_rule(s, cases[i].rule);
			s->values.known &= ~REPORT_BIT(m);
			if (cases[i].needs & REPORT_BIT(m))
				ck_not(s, cases[i].rule);
			else
				ck_rule(s, cases[i].rule);
		}
}
END_TEST

START_TEST(short_steps)
{
	struct report_step *s = one_of(1, 8, 1);

	s->seconds = job.seconds = 59;
	set_share(s, REPORT_IDLE, 0.88);
	advise(NULL, 60);
	ck_assert_uint_eq(n, 0);
	advise(s, 60);
	ck_assert_uint_eq(n, 0);
	advise(s, 59);
	ck_assert_uint_eq(n, 1);
	/* No time at all is no base for a share, whatever is asked for. */
	s->seconds = 0;
	advise(s, 0);
	ck_assert_uint_eq(n, 0);
}
END_TEST

/* Many steps with the same trouble are one line; two lines at most. */
START_TEST(grouped)
{
	fine(1, 2);
	job.nsteps = 0;
	job.seconds = 6 * 600 + 300;
	for (int i = 0; i < 6; i++) {
		struct report_step *s = a_step(REPORT_STEP, 1, 2, 600 + i);

		s->start = 1000 + 600 * i;
		s->end = s->start + 600;
		set(s, REPORT_SM, i < 3 ? 45 : 30);
		set(s, REPORT_SM_PEAK, 90);
		set(s, REPORT_DRAM, 10);
		set_share(s, REPORT_PCIE_IN, 0.1e9);
		set_share(s, REPORT_IDLE, i < 3 ? 0.5 : 0.7);
		if (i == 5) {
			set_share(s, REPORT_NVLINK_IN, 90e9);
			set_share(s, REPORT_IDLE, 0.01);
		}
	}
	advise(NULL, 60);
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(advice[0].rule, REPORT_ONE_BUSY);
	ck_assert_uint_eq(advice[0].more, 4);
	ck_assert_str_eq(advice[0].step->id, "4");
	ck_assert_ptr_nonnull(strstr(advice[0].text, "(and 4 more steps)"));
	ck_assert_int_eq(advice[1].rule, REPORT_COMM_BOUND);
	ck_assert_str_eq(report_rule_name(advice[1].rule),
			 "communication-bound");
}
END_TEST

/* The batch step is looked at only where no step of srun has figures. */
START_TEST(batch)
{
	struct report_step *s = one_of(1, 8, 1);

	s->kind = REPORT_BATCH;
	ck_rule(NULL, REPORT_ONE_BUSY);
	ck_assert_ptr_eq(advice[0].step, s);
	s = a_step(REPORT_STEP, 1, 8, 3600);
	ck_rule(NULL, REPORT_ONE_BUSY);
	set(s, REPORT_SM, 50);
	advise(NULL, 60);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(advice[0].rule, REPORT_IDLE_GPUS);
	ck_assert_ptr_null(advice[0].step);
}
END_TEST

/* What is another's figure too is no ground for advice. */
START_TEST(shared)
{
	struct report_step *s = one_of(1, 8, 1);

	*a_step(REPORT_STEP, 1, 8, 3600) = *s;
	advise(NULL, 60);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(advice[0].rule, REPORT_IDLE_GPUS);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { nothing_to_say, one_gpu_of_eight,
		one_gpu_a_node, input_bound, communication_bound, idle,
		idle_step, no_step, never_from_unknown, short_steps, grouped,
		batch, shared };

	return check_run("report_advice", tests, CHECK_COUNT(tests), setup);
}
