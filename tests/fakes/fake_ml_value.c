/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Utilisation, counters and energy without GPM. FAKE_ML_NO_FIELDS leaves out
 * nvmlDeviceGetFieldValues.
 */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#include <time.h>

enum { LINKS = 18 };

/* Fields, and types of values. */
enum {
	FIELD_ENERGY = 83,		/* mJ */
	FIELD_NVLINK_TX = 138,		/* KiB */
	FIELD_NVLINK_RX = 139,
	FIELD_PCIE_TX = 197,		/* bytes */
	FIELD_PCIE_RX = 198,
	FIELD_NVLINK5_TX = 202,		/* bytes */
	FIELD_NVLINK5_RX = 204,
	TYPE_UNSIGNED = 1,
	TYPE_ULL = 3
};

struct ml_rates {
	unsigned gpu, memory;
};

struct ml_field {
	unsigned id, scope;
	long long stamp, latency;	/* microseconds */
	int type, code;
	union {
		unsigned u;
		unsigned long long ull;
	} value;
};

_Static_assert(sizeof(struct ml_field) == 40, "nvmlFieldValue_t");
_Static_assert(offsetof(struct ml_field, type) == 24, "nvmlFieldValue_t");
_Static_assert(offsetof(struct ml_field, value) == 32, "nvmlFieldValue_t");

FAKE_API int nvmlDeviceGetUtilizationRates(void *handle,
					   struct ml_rates *rates);
FAKE_API int nvmlDeviceGetPcieThroughput(void *handle, int counter,
					 unsigned *value);
FAKE_API int nvmlDeviceGetTotalEnergyConsumption(void *handle,
						 unsigned long long *energy);

/*
 * Per cent of the time that a kernel ran, and that memory was in use: neither
 * SM activity nor bandwidth, and so half of the one is as good a fake as any
 * for the other.
 */
int nvmlDeviceGetUtilizationRates(void *handle, struct ml_rates *rates)
{
	struct fake_gpu *gpu;
	int code = fake_enter_gpu(FN_nvmlDeviceGetUtilizationRates, handle,
				  &gpu);
	double util;

	if (code)
		return code;
	if (!rates)
		return ML_INVALID;
	if (!gpu->util || gpu->mig)
		return ML_NOT_SUPPORTED;
	util = fake_value(&gpu->unit, CURVE_UTIL, fake_now());
	rates->gpu = (unsigned)(util + 0.5);
	rates->memory = (unsigned)(util / 2 + 0.5);
	return ML_OK;
}

/* KB/s of the last 20 ms; 0: sent, 1: received. */
int nvmlDeviceGetPcieThroughput(void *handle, int counter, unsigned *value)
{
	struct fake_gpu *gpu;
	int code = fake_enter_gpu(FN_nvmlDeviceGetPcieThroughput, handle, &gpu);
	long double now = fake_now();

	if (code)
		return code;
	if (!value || counter < 0 || counter > 1)
		return ML_INVALID;
	if (!(gpu->pcie & FROM_THROUGHPUT))
		return ML_NOT_SUPPORTED;
	*value = (unsigned)(fake_mean(&gpu->unit, counter ? CURVE_PCIE_RX :
				      CURVE_PCIE_TX, now - 0.02L, now) / 1000 +
			    0.5);
	return ML_OK;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle,
					unsigned long long *energy)
{
	struct fake_gpu *gpu;
	int code = fake_enter_gpu(FN_nvmlDeviceGetTotalEnergyConsumption,
				  handle, &gpu);

	if (code)
		return code;
	if (!energy)
		return ML_INVALID;
	if (!gpu->energy)
		return ML_NOT_SUPPORTED;
	*energy = fake_counter(gpu, CURVE_POWER, fake_now(), 1000);
	return ML_OK;
}

#ifndef FAKE_ML_NO_FIELDS
static const double KIB = 1.0 / 1024;

FAKE_API int nvmlDeviceGetFieldValues(void *handle, int count,
				      struct ml_field *fields);

/* A share of a total for one link; scope UINT_MAX: all of them. */
static int nvlink(struct ml_field *field, uint64_t total)
{
	if (field->scope != UINT_MAX && field->scope >= LINKS)
		return ML_INVALID;
	field->value.ull = field->scope == UINT_MAX ? total : total / LINKS;
	return ML_OK;
}

static int pcie(struct ml_field *field, const struct fake_gpu *gpu,
		uint64_t total)
{
	if (!(gpu->pcie & FROM_FIELDS))
		return ML_NOT_SUPPORTED;
	if (gpu->wrap32) {
		field->type = TYPE_UNSIGNED;
		field->value.u = (unsigned)(total & UINT32_MAX);
	} else {
		field->value.ull = total;
	}
	return ML_OK;
}

/* One value, of a whole GPU. */
static int field_value(struct ml_field *field, const struct fake_gpu *gpu,
		       long double now)
{
	bool links = gpu->nvlink & FROM_FIELDS, v5 = gpu->nvlink & FROM_V5;

	field->type = TYPE_ULL;
	switch (field->id) {
	case FIELD_ENERGY:
		field->value.ull = fake_counter(gpu, CURVE_POWER, now, 1000);
		return gpu->energy ? ML_OK : ML_NOT_SUPPORTED;
	case FIELD_NVLINK_TX:
		return links ? nvlink(field, fake_counter(gpu, CURVE_NVLINK_TX,
			now, KIB)) : ML_NOT_SUPPORTED;
	case FIELD_NVLINK_RX:
		return links ? nvlink(field, fake_counter(gpu, CURVE_NVLINK_RX,
			now, KIB)) : ML_NOT_SUPPORTED;
	case FIELD_NVLINK5_TX:
		return v5 ? nvlink(field, fake_counter(gpu, CURVE_NVLINK_TX,
			now, 1)) : ML_NOT_SUPPORTED;
	case FIELD_NVLINK5_RX:
		return v5 ? nvlink(field, fake_counter(gpu, CURVE_NVLINK_RX,
			now, 1)) : ML_NOT_SUPPORTED;
	case FIELD_PCIE_TX:
		return pcie(field, gpu, fake_counter(gpu, CURVE_PCIE_TX, now,
						     1));
	case FIELD_PCIE_RX:
		return pcie(field, gpu, fake_counter(gpu, CURVE_PCIE_RX, now,
						     1));
	default:
		return ML_NOT_SUPPORTED;
	}
}

int nvmlDeviceGetFieldValues(void *handle, int count, struct ml_field *fields)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlDeviceGetFieldValues, handle, &unit);
	struct timespec stamp;
	long double now;
	int i;

	if (code)
		return code;
	if (!fields || count <= 0)
		return ML_INVALID;
	clock_gettime(CLOCK_REALTIME, &stamp);
	now = fake_now();
	for (i = 0; i < count; i++) {
		fields[i].stamp = stamp.tv_sec * 1000000LL +
			stamp.tv_nsec / 1000;
		fields[i].latency = 0;
		fields[i].code = unit->is_mig ? ML_NOT_SUPPORTED :
			field_value(&fields[i], unit->gpu, now);
	}
	return ML_OK;
}
#endif
