/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the NVML source over nvml_model, for the tests of it. */
#ifndef NVML_RUN_H
#define NVML_RUN_H

#include "tests/unit/check_main.h"
#include "tests/unit/nvml_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ALL ((1u << GPU_METRICS) - 1)
#define BIT(m) (1u << (m))

static struct gpu_request req;
static struct nvml n;
static struct gpu_integ *in;
static struct gpu_totals t;
static struct ddp_err err;

__attribute__((unused)) static void run_setup(void)
{
	memset(&model, 0, sizeof(model));
	memset(&req, 0, sizeof(req));
	memset(&n, 0, sizeof(n));
	model.now = 1000000000;
	req.want = ALL;
	req.interval_ms = 1000;
	req.idle = 1;
}

__attribute__((unused)) static void ask_minor(unsigned minor)
{
	struct gpu_ask *a = &req.ask[req.ngpus++];

	a->kind = GPU_ASK_MINOR;
	a->minor = minor;
	snprintf(a->name, sizeof(a->name), "minor=%u", minor);
}

__attribute__((unused)) static void ask_uuid(const char *uuid)
{
	struct gpu_ask *a = &req.ask[req.ngpus++];

	a->kind = GPU_ASK_UUID;
	snprintf(a->uuid, sizeof(a->uuid), "%s", uuid);
	snprintf(a->name, sizeof(a->name), "uuid=%.80s", uuid);
}

__attribute__((unused)) static int start(void)
{
	if (!n.api.init)
		model_api(&n.api);
	n.now = model_now;
	in = gpu_integ_create(req.ngpus, req.interval_ms * 1e-3, req.idle);
	ck_assert_ptr_nonnull(in);
	return nvml_start(&n, &req, in, &err);
}

__attribute__((unused)) static void reading(bool last)
{
	gpu_integ_tick(in, model.now);
	nvml_read(&n, last);
	gpu_integ_totals(in, req.want, &t);
}

/* A reading, and times more, each after so many seconds. */
__attribute__((unused)) static void readings(unsigned times, double seconds)
{
	reading(false);
	while (times--) {
		model_step(seconds);
		reading(false);
	}
}

__attribute__((unused)) static void stop(void)
{
	nvml_stop(&n);
	ck_assert_uint_eq(model.samples, 0);
	ck_assert_uint_eq(model.close, 0);
	gpu_integ_destroy(in);
}

__attribute__((unused)) static void near(double got, double want)
{
	ck_assert_msg(fabs(got - want) <= 1e-6 * fmax(1, fabs(want)),
		      "%.12g instead of %.12g", got, want);
}

#endif
