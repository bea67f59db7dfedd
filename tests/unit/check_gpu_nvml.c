/* SPDX-License-Identifier: Apache-2.0 */
/* The NVML source over a driver that does as it is told. */
#include "config.h"

#include "tests/unit/check_main.h"
#include "tests/unit/nvml_run.h"

#include <math.h>
#include <string.h>

static void one_gpu(void)
{
	ask_minor(0);
	model_add();
	memcpy(model.gpu[0].load, (double[]){ 40, 20, 100, 1e9, 2e9, 3e9, 4e9,
					       500 }, sizeof(double[M_LOADS]));
}

START_TEST(hopper)
{
	unsigned i;

	one_gpu();
	ck_assert(!start());
	readings(5, 1);
	ck_assert_uint_eq(t.known_in, ALL);
	near(t.in[GPU_SM], 40);
	near(t.out[GPU_SM], 40);
	near(t.in[GPU_MEMBW], 20);
	near(t.in[GPU_NVLINK], 5e9);
	near(t.out[GPU_NVLINK], 10e9);
	near(t.in[GPU_PCIE], 15e9);
	near(t.out[GPU_PCIE], 20e9);
	near(t.in[GPU_ENERGY], 2500);
	near(t.in[GPU_IDLE], 0);
	ck_assert_uint_eq(t.gpu[0].known, ALL & ~BIT(GPU_IDLE));
	near(t.gpu[0].pcie_out, 4e9);
	ck_assert_str_eq(nvml_from(&n, 0, GPU_PCIE), "GPM");
	ck_assert_str_eq(nvml_from(&n, 0, GPU_NVLINK), "NVML fields 138/139");
	/* From now on four calls a reading. */
	memset(model.calls, 0, sizeof(model.calls));
	model_step(1);
	reading(false);
	for (i = 0; i < F_FNS; i++)
		ck_assert_uint_eq(model.calls[i],
			i == F_GPM_SAMPLE || i == F_GPM_METRICS ||
			i == F_FIELDS || i == F_ENERGY);
	stop();
}
END_TEST

/* The last reading comes 20 ms after the one before. */
START_TEST(last_is_close)
{
	one_gpu();
	ck_assert(!start());
	readings(2, 1);
	model.gpu[0].load[M_SM] = 100;
	model_step(0.02);
	reading(true);
	near(t.in[GPU_SM], (2 * 40 + 0.02 * 100) / 2.02);
	near(t.out[GPU_SM], (40 + 0.02 * 100) / 1.02);
	near(t.in[GPU_PCIE], 2.02 * 3e9);
	near(t.in[GPU_NVLINK], 2.02e9);
	stop();
}
END_TEST

START_TEST(short_step)
{
	one_gpu();
	ck_assert(!start());
	reading(false);
	model_step(0.09);
	reading(true);
	/* Too short for GPM: unknown. Counters are good. */
	ck_assert_uint_eq(t.known_in, BIT(GPU_NVLINK) | BIT(GPU_ENERGY));
	near(t.in[GPU_ENERGY], 45);
	stop();
}
END_TEST

START_TEST(close_readings)
{
	one_gpu();
	/* Of a longer interval an early second reading would be a part. */
	req.interval_ms = 100;
	ck_assert(!start());
	readings(10, 0.08);
	near(t.in[GPU_SM], 40);
	near(t.in[GPU_PCIE], 0.8 * 3e9);
	ck_assert_uint_eq(model.calls[F_GPM_METRICS], 5);
	stop();
	ck_assert_uint_ge(n.least_ms, 101);
}
END_TEST

/* What fails once is made good by the next reading. */
START_TEST(transient)
{
	static const enum model_fn fn[] = { F_GPM_SAMPLE, F_GPM_METRICS,
					     F_FIELDS, F_ENERGY };
	unsigned i, at;

	for (i = 0; i < CHECK_COUNT(fn); i++)
		for (at = 0; at < 6; at++) {
			run_setup();
			one_gpu();
			ck_assert(!start());
			readings(at, 1);
			model.fail[fn[i]] = NV_UNKNOWN;
			model.times[fn[i]] = at % 2 + 1;
			model_step(1);
			model.gpu[0].load[M_SM] = 10;
			readings(6, 1);
			ck_assert_uint_eq(t.known_in, ALL);
			near(t.in[GPU_SM], (40.0 * (at + 1) + 60) / (at + 7));
			near(t.in[GPU_NVLINK], (at + 7) * 1e9);
			near(t.in[GPU_ENERGY], (at + 7) * 500);
			stop();
		}
}
END_TEST

/* One metric of several without an answer. */
START_TEST(gpm_holes)
{
	one_gpu();
	ck_assert(!start());
	readings(1, 1);
	model.gpm_fail = NV_GPM_DRAM;
	model.gpm_value = NAN;
	model_step(1);
	reading(false);
	model.gpm_code = NV_UNKNOWN;
	model_step(1);
	reading(false);
	near(t.in[GPU_SM], 40);
	model.gpm_fail = 0;
	model.gpu[0].load[M_MEMBW] = 80;
	model_step(1);
	reading(false);
	near(t.in[GPU_MEMBW], (3 * 20 + 80) / 4.0);
	near(t.in[GPU_PCIE], 4 * 3e9);
	/* For good: nothing waits for it, and it keeps what it had. */
	model.gpm_fail = NV_GPM_DRAM;
	readings(5, 1);
	near(t.in[GPU_MEMBW], (3 * 20 + 80) / 4.0);
	near(t.in[GPU_PCIE], 9 * 3e9);
	near(t.gpu[0].sm, 40);
	ck_assert_uint_eq(t.gpu[0].known & BIT(GPU_MEMBW), 0);
	stop();
}
END_TEST

START_TEST(lost)
{
	unsigned i, calls = 0;

	one_gpu();
	ask_minor(1);
	model_add()->load[M_SM] = 100;
	ck_assert(!start());
	readings(2, 1);
	model.gpu[1].lost = true;
	readings(1, 1);
	near(t.in[GPU_SM], (3 * 40 + 2 * 100) / 5.0);
	ck_assert(t.gpu[1].lost && !t.gpu[0].lost);
	/* Nobody asks it any more. */
	memset(model.calls, 0, sizeof(model.calls));
	model_step(1);
	reading(false);
	for (i = 0; i < F_FNS; i++)
		calls += model.calls[i];
	ck_assert_uint_eq(calls, 4);
	stop();
}
END_TEST

START_TEST(three_errors)
{
	unsigned i;

	one_gpu();
	ck_assert(!start());
	readings(2, 1);
	for (i = 0; i < F_FNS; i++) {
		model.fail[i] = NV_UNKNOWN;
		model.times[i] = 2;
	}
	for (i = 0; i < 3; i++) {
		model_step(1);
		reading(false);
	}
	ck_assert(!t.gpu[0].lost);
	near(t.in[GPU_SM], 40);
	near(t.in[GPU_ENERGY], 2500);
	for (i = 0; i < F_FNS; i++)
		model.times[i] = 3;
	for (i = 0; i < 3; i++) {
		ck_assert(!t.gpu[0].lost);
		model_step(1);
		reading(false);
	}
	ck_assert(t.gpu[0].lost);
	near(t.in[GPU_ENERGY], 2500);
	ck_assert_uint_eq(t.known_in, ALL);
	stop();
}
END_TEST

/* Kernel-active time is no SM activity; idle is by it. */
START_TEST(before_hopper)
{
	one_gpu();
	model.gpu[0].gpm = false;
	ck_assert(!start());
	readings(3, 1);
	ck_assert_uint_eq(t.known_in, ALL & ~BIT(GPU_SM) & ~BIT(GPU_MEMBW));
	near(t.in[GPU_IDLE], 0);
	model.gpu[0].load[M_UTIL] = 0;
	model_step(1);
	readings(3, 1);
	/* It is known at the readings only: half of the first second. */
	near(t.in[GPU_IDLE], 3.5);
	near(t.in[GPU_PCIE], 7 * 3e9);
	ck_assert_ptr_null(nvml_from(&n, 0, GPU_SM));
	ck_assert_str_eq(nvml_from(&n, 0, GPU_IDLE), "kernel-active time");
	ck_assert_ptr_nonnull(strstr(nvml_from(&n, 0, GPU_PCIE), "20 ms"));
	stop();
}
END_TEST

/* GPM says that it works, but has not everything. */
START_TEST(gpm_without_pcie)
{
	one_gpu();
	model.gpu[0].gpm_pcie = false;
	model.gpu[0].load[M_PCIE_RX] = 1e9;
	model.gpu[0].sum[M_PCIE_RX] = 4294967000.0;
	ck_assert(!start());
	readings(4, 1);
	/* From the first reading on. */
	near(t.in[GPU_PCIE], 4e9);
	near(t.out[GPU_PCIE], 16e9);
	near(t.in[GPU_SM], 40);
	ck_assert_uint_eq(model.calls[F_UTIL], 1);
	stop();
}
END_TEST

START_TEST(gpm_breaks_at_once)
{
	static const enum model_fn fn[] = { F_GPM_SAMPLE, F_GPM_METRICS };
	unsigned i;

	for (i = 0; i < CHECK_COUNT(fn); i++) {
		run_setup();
		one_gpu();
		ck_assert(!start());
		model.fail[fn[i]] = NV_NOT_SUPPORTED;
		model.times[fn[i]] = 1;
		model.gpu[0].load[M_UTIL] = 0;
		readings(4, 1);
		ck_assert_uint_eq(t.known_in, ALL & ~BIT(GPU_SM) &
				  ~BIT(GPU_MEMBW));
		near(t.in[GPU_PCIE], 12e9);
		near(t.in[GPU_IDLE], 4);
		ck_assert_uint_eq(model.calls[fn[i]], 1);
		stop();
	}
}
END_TEST

static const char *pcie_of(double *received)
{
	ck_assert(!start());
	readings(4, 1);
	*received = t.known_in & BIT(GPU_PCIE) ? t.in[GPU_PCIE] : -1;
	return nvml_from(&n, 0, GPU_PCIE);
}

START_TEST(pcie_sources)
{
	struct model_gpu *g = &model.gpu[0];
	double in_;

	one_gpu();
	g->gpm = false;
	g->samples = false;
	/* Nobody can tell how often 32 bits went round. */
	ck_assert_str_eq(pcie_of(&in_), "NVML fields 197/198");
	near(in_, -1);
	stop();

	/* One that goes beyond them. */
	run_setup();
	one_gpu();
	g->gpm = g->samples = false;
	g->wide = true;
	g->sum[M_PCIE_RX] = g->sum[M_PCIE_TX] = 1e15;
	ck_assert_str_eq(pcie_of(&in_), "NVML fields 197/198");
	near(in_, 12e9);
	stop();

	/* PCIe 3.0 x2 cannot go round. */
	run_setup();
	one_gpu();
	g->gpm = false;
	g->gen = 3;
	g->lanes = 2;
	g->load[M_PCIE_RX] = g->load[M_PCIE_TX] = 1.9e9;
	g->sum[M_PCIE_RX] = 4294967000.0;
	ck_assert_str_eq(pcie_of(&in_), "NVML fields 197/198");
	near(in_, 7.6e9);
	ck_assert_uint_eq(model.calls[F_PCIE], 0);
	stop();

	/* Samples alone. */
	run_setup();
	one_gpu();
	g->gpm = g->pcie = false;
	ck_assert_str_eq(pcie_of(&in_), "NVML samples of 20 ms");
	near(in_, 12e9);
	stop();

	/* Nothing, and asked once. */
	run_setup();
	one_gpu();
	g->gpm = g->pcie = g->samples = false;
	ck_assert_ptr_null(pcie_of(&in_));
	near(in_, -1);
	ck_assert_uint_eq(model.calls[F_PCIE], 1);
	stop();
}
END_TEST

static const char *nvlink_of(double *received, double *sent)
{
	ck_assert(!start());
	readings(4, 1);
	*received = t.known_in & BIT(GPU_NVLINK) ? t.in[GPU_NVLINK] : -1;
	*sent = t.known_out & BIT(GPU_NVLINK) ? t.out[GPU_NVLINK] : -1;
	return nvml_from(&n, 0, GPU_NVLINK);
}

START_TEST(nvlink_sources)
{
	struct model_gpu *g = &model.gpu[0];
	double rx, tx;

	one_gpu();
	g->nvlink = false;
	ck_assert_str_eq(nvlink_of(&rx, &tx), "GPM");
	near(rx, 4e9);
	near(tx, 8e9);
	stop();

	run_setup();
	one_gpu();
	g->nvlink = false;
	g->nvlink5 = true;
	ck_assert_str_eq(nvlink_of(&rx, &tx), "NVML fields 202/204");
	near(rx, 4e9);
	near(tx, 8e9);
	stop();

	/* It has no links: GPM's 0 is no value. */
	run_setup();
	one_gpu();
	g->nvlink = false;
	g->links = 0;
	ck_assert_ptr_null(nvlink_of(&rx, &tx));
	near(rx, -1);
	stop();

	run_setup();
	one_gpu();
	g->nvlink = g->gpm_nvlink = false;
	g->links = -1;
	ck_assert_ptr_null(nvlink_of(&rx, &tx));
	near(tx, -1);
	stop();
}
END_TEST

/* A driver whose "no" is another code is not asked for ever. */
START_TEST(strange_no)
{
	struct model_gpu *g = &model.gpu[0];

	one_gpu();
	g->gpm = g->nvlink = false;
	model.no = NV_UNKNOWN;
	ck_assert(!start());
	readings(6, 1);
	near(t.in[GPU_PCIE], 4 * 3e9);
	ck_assert(!(t.known_in & BIT(GPU_NVLINK)) && !t.gpu[0].lost);
	memset(model.calls, 0, sizeof(model.calls));
	readings(0, 1);
	ck_assert_uint_eq(model.calls[F_FIELDS], 1);
	stop();
}
END_TEST

int main(void)
{
	const TTest *tests[] = {
		hopper, last_is_close, short_step, close_readings, transient,
		gpm_holes, lost, three_errors, before_hopper,
		gpm_without_pcie, gpm_breaks_at_once, pcie_sources,
		nvlink_sources, strange_no,
	};

	return check_run("gpu_nvml", tests, CHECK_COUNT(tests), run_setup);
}
