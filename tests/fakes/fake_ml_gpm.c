/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPM: means between two samples. FAKE_ML_NO_GPM leaves it out, as drivers
 * before it do.
 */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#ifndef FAKE_ML_NO_GPM

#include <pthread.h>

enum { SAMPLES = 512, METRICS_MAX = 333 };

enum {
	METRIC_GRAPHICS = 1,		/* % */
	METRIC_SM = 2,
	METRIC_OCCUPANCY = 3,
	METRIC_DRAM = 10,
	METRIC_PCIE_TX = 20,		/* MiB/s */
	METRIC_PCIE_RX = 21,
	METRIC_NVLINK_RX = 60,
	METRIC_NVLINK_TX = 61
};

struct ml_metric {
	unsigned id;
	int code;
	double value;
	struct {
		const char *name, *long_name, *unit;
	} info;
};

struct ml_metrics {
	unsigned version, count;
	void *sample[2];
	struct ml_metric metric[METRICS_MAX];
};

struct ml_support {
	unsigned version, supported;
};

_Static_assert(sizeof(void *) != 8 || sizeof(struct ml_metric) == 40,
	       "nvmlGpmMetric_t");
_Static_assert(sizeof(void *) != 8 ||
	       offsetof(struct ml_metrics, metric) == 24,
	       "nvmlGpmMetricsGet_t");

struct sample {
	bool used;
	const struct fake_unit *unit;	/* NULL: not filled */
	long double t;
};

static struct sample pool[SAMPLES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

FAKE_API int nvmlGpmQueryDeviceSupport(void *handle,
				       struct ml_support *support);
FAKE_API int nvmlGpmSampleAlloc(void **sample);
FAKE_API int nvmlGpmSampleFree(void *sample);
FAKE_API int nvmlGpmSampleGet(void *handle, void *sample);
FAKE_API int nvmlGpmMigSampleGet(void *handle, unsigned gi, void *sample);
FAKE_API int nvmlGpmMetricsGet(struct ml_metrics *metrics);

int nvmlGpmQueryDeviceSupport(void *handle, struct ml_support *support)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlGpmQueryDeviceSupport, handle, &unit);

	if (!code && !support)
		code = ML_INVALID;
	if (!code && support->version != 1)
		code = ML_VERSION;
	if (!code)
		support->supported = unit->gpm;
	return code;
}

/* The sample that a pointer stands for; NULL: none that is in use. */
static struct sample *look_up(const void *pointer)
{
	unsigned i;

	for (i = 0; i < SAMPLES; i++)
		if (pointer == &pool[i])
			return pool[i].used ? &pool[i] : NULL;
	return NULL;
}

int nvmlGpmSampleAlloc(void **sample)
{
	int code = fake_enter_any(FN_nvmlGpmSampleAlloc, NULL);
	unsigned i;

	if (!code && !sample)
		code = ML_INVALID;
	if (code)
		return code;
	pthread_mutex_lock(&lock);
	for (i = 0; i < SAMPLES && pool[i].used; i++)
		;
	if (i < SAMPLES) {
		pool[i].used = true;
		pool[i].unit = NULL;
		*sample = &pool[i];
	}
	pthread_mutex_unlock(&lock);
	return i < SAMPLES ? ML_OK : ML_MEMORY;
}

int nvmlGpmSampleFree(void *pointer)
{
	int code = fake_enter_any(FN_nvmlGpmSampleFree, NULL);
	struct sample *sample = look_up(pointer);

	if (!code && !sample)
		code = ML_INVALID;
	if (!code)
		sample->used = false;
	return code;
}

static int take(const struct fake_unit *unit, void *pointer)
{
	struct sample *sample = look_up(pointer);

	if (!sample)
		return ML_INVALID;
	if (!unit->gpm)
		return ML_NOT_SUPPORTED;
	sample->unit = unit;
	sample->t = fake_now();
	return ML_OK;
}

int nvmlGpmSampleGet(void *handle, void *sample)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlGpmSampleGet, handle, &unit);

	return code ? code : take(unit, sample);
}

int nvmlGpmMigSampleGet(void *handle, unsigned gi, void *sample)
{
	struct fake_gpu *gpu;
	int code = fake_enter_gpu(FN_nvmlGpmMigSampleGet, handle, &gpu);
	unsigned i;

	if (code)
		return code;
	for (i = 0; i < gpu->nmigs; i++)
		if (gpu->migs[i].gi == gi)
			return take(&gpu->migs[i], sample);
	return ML_INVALID;
}

static int mean(const struct sample *from, const struct sample *to,
		enum fake_curve_id id, double scale, double *value)
{
	*value = fake_mean(to->unit, id, from->t, to->t) * scale;
	return ML_OK;
}

static int metric_value(unsigned id, const struct sample *from,
			const struct sample *to, double *value)
{
	const struct fake_gpu *gpu = to->unit->gpu;
	bool pcie = gpu->pcie & FROM_GPM, nvlink = gpu->nvlink & FROM_GPM;
	const double mib = 1.0 / (1 << 20);

	switch (id) {
	case METRIC_GRAPHICS:
		return mean(from, to, CURVE_UTIL, 1, value);
	case METRIC_SM:
		return mean(from, to, CURVE_SM, 1, value);
	case METRIC_OCCUPANCY:
		/* Not the same as activity, and never above it. */
		return mean(from, to, CURVE_SM, 0.5, value);
	case METRIC_DRAM:
		return mean(from, to, CURVE_MEMBW, 1, value);
	case METRIC_PCIE_TX:
		return pcie ? mean(from, to, CURVE_PCIE_TX, mib, value) :
			ML_NOT_SUPPORTED;
	case METRIC_PCIE_RX:
		return pcie ? mean(from, to, CURVE_PCIE_RX, mib, value) :
			ML_NOT_SUPPORTED;
	case METRIC_NVLINK_RX:
		return nvlink ? mean(from, to, CURVE_NVLINK_RX, mib, value) :
			ML_NOT_SUPPORTED;
	case METRIC_NVLINK_TX:
		return nvlink ? mean(from, to, CURVE_NVLINK_TX, mib, value) :
			ML_NOT_SUPPORTED;
	default:
		return ML_NOT_SUPPORTED;
	}
}

int nvmlGpmMetricsGet(struct ml_metrics *metrics)
{
	const struct sample *from = metrics ? look_up(metrics->sample[0]) :
		NULL;
	const struct sample *to = metrics ? look_up(metrics->sample[1]) : NULL;
	const struct fake_unit *unit = from ? from->unit : NULL;
	struct ml_metric *metric;
	int code = fake_enter_any(FN_nvmlGpmMetricsGet,
				  unit ? unit->gpu : NULL);
	unsigned i;

	if (code)
		return code;
	if (metrics && metrics->version != 1)
		return ML_VERSION;
	if (!metrics || !metrics->count || metrics->count > METRICS_MAX ||
	    !unit || !to || unit != to->unit || from->t >= to->t)
		return ML_INVALID;
	/* The hardware's own period. */
	if (to->t - from->t < 0.1L)
		code = ML_NO_DATA;
	for (i = 0; i < metrics->count; i++) {
		metric = &metrics->metric[i];
		metric->info.name = metric->info.long_name =
			metric->info.unit = NULL;
		metric->code = code ? code :
			metric_value(metric->id, from, to, &metric->value);
	}
	return code;
}

#else
/* A file with nothing in it is no C. */
typedef int fake_ml_gpm_none;
#endif
