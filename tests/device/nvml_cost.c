/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call of NVML's costs on this machine: median and 99th percentile in
 * microseconds of each call that the sampler makes, for the GPU number 0.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/nvml_abi.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMES 300

static void *lib;

static void *need(const char *name)
{
	void *p = dlsym(lib, name);

	if (!p) {
		printf("%-40s not in this library\n", name);
		exit(1);
	}
	return p;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double us[TIMES];

static void show(const char *name, int rc)
{
	qsort(us, TIMES, sizeof(*us), by_value);
	printf("%-40s %9.1f %9.1f   rc %d\n", name, us[TIMES / 2],
	       us[TIMES * 99 / 100], rc);
}

#define MEASURE(name, call) do { \
	int rc_ = 0; \
	for (unsigned i_ = 0; i_ < TIMES; i_++) { \
		double t_ = now_us(); \
		rc_ = (call); \
		us[i_] = now_us() - t_; \
	} \
	show(name, rc_); \
} while (0)

int main(void)
{
	int (*init)(void), (*handle)(unsigned, void **);
	int (*alloc)(void **), (*sample)(void *, void *);
	int (*energy)(void *, unsigned long long *), (*util)(void *, void *);
	unsigned long long mj;
	unsigned rates[2];
	void *dev, *gpm;
	double t = now_us();

	lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (!lib) {
		puts("no libnvidia-ml.so.1 here");
		return 77;
	}
	*(void **)&init = need("nvmlInit_v2");
	*(void **)&handle = need("nvmlDeviceGetHandleByIndex_v2");
	*(void **)&alloc = need("nvmlGpmSampleAlloc");
	*(void **)&sample = need("nvmlGpmSampleGet");
	*(void **)&energy = need("nvmlDeviceGetTotalEnergyConsumption");
	*(void **)&util = need("nvmlDeviceGetUtilizationRates");
	if (init() || handle(0, &dev) || alloc(&gpm))
		return 1;
	printf("load and nvmlInit: %.0f us\n", now_us() - t);
	printf("%-40s %9s %9s\n", "call", "median us", "p99 us");
	MEASURE("nvmlGpmSampleGet", sample(dev, gpm));
	MEASURE("nvmlDeviceGetTotalEnergyConsumption", energy(dev, &mj));
	MEASURE("nvmlDeviceGetUtilizationRates", util(dev, rates));
	return 0;
}
