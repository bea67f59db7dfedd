/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reading of the sampler costs beside the driver, for an instruction
 * counter (tests/acct/check_sampler_cost):
 *
 *	gpu_cost GPUS TIMES	a reading of so many GPUs with all metrics
 *
 * The driver here does next to nothing. Prints the driver's calls a reading
 * and GPU, and the median and the 99th percentile of a reading's time in
 * microseconds.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/src_nvml.h"
#include "core/ddp_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMES_MAX 100000

void gpu_cost_reading(void);

static struct nvml n;
static struct gpu_request req;
static struct gpu_integ *in;
static struct gpu_totals totals;
static struct gpu_shm *shm;
static int64_t clock_ns = 1;
static uint64_t ticks;
static unsigned calls;
static char devices[GPU_MAX];

static int64_t now(void)
{
	return clock_ns;
}

static int nothing(void)
{
	return 0;
}

static int count(unsigned *c)
{
	*c = GPU_MAX;
	return 0;
}

static int by_index(unsigned i, nv_device *dev)
{
	*dev = &devices[i];
	return 0;
}

static int minor(nv_device dev, unsigned *m)
{
	*m = (unsigned)((char *)dev - devices);
	return 0;
}

static int fields(nv_device dev, int k, struct nv_field *f)
{
	(void)dev;
	calls++;
	while (k--) {
		f[k].type = NV_ULLONG;
		f[k].value.ull = ticks;
		f[k].status = f[k].id == NV_FI_NVLINK5_RX ? NV_NOT_SUPPORTED :
			      NV_OK;
	}
	return 0;
}

static int energy(nv_device dev, unsigned long long *mj)
{
	(void)dev;
	calls++;
	*mj = ticks;
	return 0;
}

static int support(nv_device dev, struct nv_gpm_support *s)
{
	(void)dev;
	s->supported = 1;
	return 0;
}

static int gpm_alloc(nv_sample *s)
{
	*s = devices;
	return 0;
}

static int gpm_free(nv_sample s)
{
	(void)s;
	return 0;
}

static int gpm_sample(nv_device dev, nv_sample s)
{
	(void)dev;
	(void)s;
	calls++;
	return 0;
}

static int gpm_metrics(struct nv_gpm_get *get)
{
	unsigned k;

	calls++;
	for (k = 0; k < get->count; k++) {
		get->metric[k].value = 50;
		get->metric[k].status = 0;
	}
	return 0;
}

/* As in sampler_main.c; a name that callgrind can be told. */
__attribute__((noinline)) void gpu_cost_reading(void)
{
	gpu_integ_tick(in, now());
	nvml_read(&n, false);
	gpu_integ_totals(in, req.want, &totals);
	gpu_shm_publish(shm, &totals);
}

static int64_t real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void begin(uint32_t gpus)
{
	struct ddp_err err;
	unsigned k;

	n.api = (struct nvml_api){ .init = nothing, .shutdown = nothing,
		.count = count, .by_index = by_index, .minor = minor,
		.fields = fields, .energy = energy, .gpm_support = support,
		.gpm_alloc = gpm_alloc, .gpm_free = gpm_free,
		.gpm_sample = gpm_sample, .gpm_metrics = gpm_metrics };
	n.now = now;
	req.want = (1u << GPU_METRICS) - 1;
	req.interval_ms = 1000;
	req.ngpus = gpus;
	for (k = 0; k < gpus; k++)
		req.ask[k].minor = k;
	in = gpu_integ_create(gpus, 1, 1);
	if (!in || gpu_shm_create(&shm) < 0 ||
	    nvml_start(&n, &req, in, &err)) {
		fprintf(stderr, "gpu_cost: no start\n");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static int64_t took[TIMES_MAX];
	uint32_t gpus, times, i;

	if (argc != 3 || ddp_text_u32(argv[1], 1, GPU_MAX, &gpus) ||
	    ddp_text_u32(argv[2], 1, TIMES_MAX, &times)) {
		fprintf(stderr, "usage: gpu_cost GPUS TIMES\n");
		return 2;
	}
	begin(gpus);
	for (i = 0; i < times; i++) {
		calls = 0;
		clock_ns += 1000000000;
		ticks += 1000000;
		took[i] = real_ns();
		gpu_cost_reading();
		took[i] = real_ns() - took[i];
	}
	qsort(took, times, sizeof(took[0]), by_value);
	printf("%u %.1f %.1f\n", calls / gpus, (double)took[times / 2] * 1e-3,
	       (double)took[(times - 1) * 99 / 100] * 1e-3);
	return totals.known_in == req.want || times < 2 ? 0 : 1;
}
