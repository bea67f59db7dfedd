/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DCGM's host engine on this node, for GPUs without GPM: Volta to Ada. It
 * measures on its own every interval and keeps the values; a reading asks for
 * the latest, one call a GPU. Its profiling values are means since the one
 * before, with the time when they were taken. What was taken before this step
 * began is nobody's: the first value is only where the next one begins.
 *
 * Identity is by UUID, minor or PCI address of whole GPUs.
 */
#include "config.h"

#include "accounting/gpu_library.h"
#include "accounting/src_dcgm.h"

#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_MS 3000
#define BAD_MAX 3		/* as with NVML */
#define KEEP 10			/* values; we take each as it comes */

/* In the order in which they are given up, from the end, where the GPU or
 * the engine cannot measure all at once. */
static const struct field {
	unsigned short id;
	enum gpu_metric metric;
	enum gpu_chan chan;
	double unit;
} table[DCGM_FIELDS] = {
	{ DC_FI_ENERGY, GPU_ENERGY, GPU_CHAN_POWER, 1e-3 },
	{ DC_FI_SM, GPU_SM, GPU_CHAN_SM, 100 },
	{ DC_FI_DRAM, GPU_MEMBW, GPU_CHAN_MEMBW, 100 },
	{ DC_FI_PCIE_RX, GPU_PCIE, GPU_CHAN_PCIE_IN, 1 },
	{ DC_FI_PCIE_TX, GPU_PCIE, GPU_CHAN_PCIE_OUT, 1 },
	{ DC_FI_NVLINK_RX, GPU_NVLINK, GPU_CHAN_NVLINK_IN, 1 },
	{ DC_FI_NVLINK_TX, GPU_NVLINK, GPU_CHAN_NVLINK_OUT, 1 },
};

static const struct {
	const char *name;
	size_t offset;
} symbols[] = {
	{ "dcgmInit", offsetof(struct dcgm_api, init) },
	{ "dcgmShutdown", offsetof(struct dcgm_api, shutdown) },
	{ "dcgmConnect_v2", offsetof(struct dcgm_api, connect) },
	{ "dcgmDisconnect", offsetof(struct dcgm_api, disconnect) },
	{ "errorString", offsetof(struct dcgm_api, error_text) },
	{ "dcgmGetAllDevices", offsetof(struct dcgm_api, devices) },
	{ "dcgmGroupCreate", offsetof(struct dcgm_api, group) },
	{ "dcgmGroupAddEntity", offsetof(struct dcgm_api, group_add) },
	{ "dcgmFieldGroupCreate", offsetof(struct dcgm_api, fields) },
	{ "dcgmFieldGroupDestroy", offsetof(struct dcgm_api, fields_free) },
	{ "dcgmWatchFields", offsetof(struct dcgm_api, watch) },
	{ "dcgmEntitiesGetLatestValues", offsetof(struct dcgm_api, latest) },
};

static int64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	(void)clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int load(const struct gpu_request *req, struct dcgm_api *api,
		struct ddp_err *err)
{
	static const char *const names[] = { "libdcgm.so.4", "libdcgm.so.3",
					     NULL };
	struct ddp_err why = { .code = DDP_OK };
	void *library, *p;
	size_t i;

	library = gpu_library_open(req->library, req->owner, names, &why);
	if (!library)
		return ddp_err_set(err, why.code,
			"no DCGM: %s; install datacenter-gpu-manager 3 or 4, set DdpGpuLibrary, or DdpGpuSource=nvml",
			why.text);
	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		p = dlsym(library, symbols[i].name);
		if (!p)
			return ddp_err_set(err, DDP_ESYS,
				"the library has no %s: not DCGM 3 or 4",
				symbols[i].name);
		memcpy((char *)api + symbols[i].offset, &p, sizeof(p));
	}
	return 0;
}

static const char *words(const struct dcgm *d, int rc)
{
	const char *text = d->api.error_text(rc);

	return text ? text : "unknown error";
}

static int dial(struct dcgm *d, struct ddp_err *err)
{
	struct dc_connect how = { .version = DC_VERSION(struct dc_connect, 2),
				  .timeout_ms = CONNECT_MS };
	int rc;

	if (dcgm_port_check("/proc/net/tcp", DC_PORT, err) ||
	    dcgm_port_check("/proc/net/tcp6", DC_PORT, err))
		return -1;
	rc = d->api.init();
	if (rc)
		return ddp_err_set(err, DDP_ESYS, "DCGM does not start: %s",
				   words(d, rc));
	d->inited = true;
	rc = d->api.connect("127.0.0.1", &how, &d->handle);
	if (rc)
		return ddp_err_set(err, DDP_ESYS,
			"no DCGM host engine on this node: %s; start nvidia-dcgm",
			words(d, rc));
	d->connected = true;
	return 0;
}

static int watch_some(struct dcgm *d, unsigned n)
{
	long long us = d->req->interval_ms * 1000LL;
	unsigned short ids[DCGM_FIELDS];
	uintptr_t fields;
	char name[64];
	unsigned k;
	int rc;

	for (k = 0; k < n; k++)
		ids[k] = table[d->field[k]].id;
	(void)snprintf(name, sizeof(name), "ddp-%d-%u", (int)getpid(), n);
	rc = d->api.fields(d->handle, (int)n, ids, name, &fields);
	if (rc)
		return rc;
	rc = d->api.watch(d->handle, d->group, fields, us,
			  1 + KEEP * (double)us * 1e-6, KEEP);
	if (rc)
		(void)d->api.fields_free(d->handle, fields);
	return rc;
}

/* As many of the wanted fields as can be had at once. */
static int watch(struct dcgm *d, struct ddp_err *err)
{
	uint32_t want = d->req->want;
	unsigned k;
	int rc = 0;

	/* An idle GPU is one whose SMs are. */
	if (want & 1u << GPU_IDLE)
		want |= 1u << GPU_SM;
	for (k = 0; k < DCGM_FIELDS; k++)
		if (want & 1u << table[k].metric)
			d->field[d->n++] = k;
	while (d->n) {
		rc = watch_some(d, d->n);
		if (!rc)
			return 0;
		d->n--;
		/* Both directions, or none. */
		if (d->n && table[d->field[d->n - 1]].metric ==
		    table[d->field[d->n]].metric)
			d->n--;
	}
	return ddp_err_set(err, DDP_ESYS,
		"DCGM measures none of the metrics on these GPUs: %s",
		words(d, rc));
}

static void op_close(void *state)
{
	struct dcgm *d = state;

	/* What it watched for us ends with the connection. */
	if (d->connected)
		(void)d->api.disconnect(d->handle);
	if (d->inited)
		(void)d->api.shutdown();
	free(d);
}

static int op_open(const struct gpu_request *req, struct gpu_integ *in,
		   void **state, struct ddp_err *err)
{
	struct dcgm *d = calloc(1, sizeof(*d));
	char name[32];

	if (!d)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	d->req = req;
	d->in = in;
	d->start = clock_ns(CLOCK_MONOTONIC);
	(void)snprintf(name, sizeof(name), "ddp-%d", (int)getpid());
	if (load(req, &d->api, err) || dial(d, err))
		goto error;
	if (d->api.group(d->handle, DC_GROUP_EMPTY, name, &d->group)) {
		(void)ddp_err_set(err, DDP_ESYS,
				  "DCGM makes no group: has it 64 already?");
		goto error;
	}
	if (dcgm_match(d, err) || watch(d, err))
		goto error;
	*state = d;
	return 0;
error:
	op_close(d);
	return -1;
}

/* False: blank, of another type, or not there. */
static bool number(const struct dc_value *v, double *x)
{
	if (v->status != DC_OK || v->ts <= 0)
		return false;
	if (v->type == 'd' && v->value.d < DC_BLANK_DOUBLE)
		*x = v->value.d;
	else if (v->type == 'i' && v->value.i >= 0 &&
		 v->value.i < DC_BLANK_INT)
		*x = (double)v->value.i;
	else
		return false;
	return isfinite(*x);
}

/*
 * Where the value of field k begins and ends in our clock; false if it is not
 * a new one, or the first. A value or two that we missed are taken to have
 * been as this one; of a longer time nothing is known.
 */
static bool span(struct dcgm *d, struct dcgm_gpu *g, unsigned k, int64_t ts,
		 int64_t *t0, int64_t *t1)
{
	int64_t every = (int64_t)d->req->interval_ms * 1000, step;
	int64_t old = g->ts[k];

	step = ts - old;
	if (!step)
		return false;
	*t0 = g->at[k];
	*t1 = *t0 + step * 1000;
	if (!old || step < 0 || step > 3 * every) {
		*t1 = clock_ns(CLOCK_MONOTONIC) -
		      (clock_ns(CLOCK_REALTIME) - ts * 1000);
		*t0 = *t1 - every * 1000;
	}
	g->ts[k] = ts;
	g->at[k] = *t1;
	/* Others may have had it watched before. */
	if (*t0 < d->start)
		*t0 = d->start;
	return old && step > 0;
}

static void feed(struct dcgm *d, unsigned gpu, unsigned k,
		 const struct dc_value *v)
{
	const struct field *f = &table[d->field[k]];
	struct dcgm_gpu *g = &d->gpu[gpu];
	struct gpu_count c = { .bits = 64, .unit = f->unit, .top = INFINITY };
	int64_t t0, t1;
	bool fed;
	double x;

	if (!number(v, &x))
		return;
	if (f->chan == GPU_CHAN_POWER) {
		(void)span(d, g, k, v->ts, &t0, &t1);
		c.raw = (uint64_t)x;
		fed = g->at[k] >= d->start &&
		      gpu_integ_count(d->in, gpu, f->chan, g->at[k], &c);
	} else {
		fed = span(d, g, k, v->ts, &t0, &t1) &&
		      gpu_integ_mean(d->in, gpu, f->chan, t0, t1, x * f->unit);
	}
	if (fed && !g->gave[k]) {
		g->gave[k] = true;
		d->changes++;
	}
}

/* The one of the watched fields that v is of; d->n for none. */
static unsigned which(const struct dcgm *d, const struct dc_value *v)
{
	unsigned k;

	for (k = 0; k < d->n; k++)
		if (table[d->field[k]].id == v->field)
			break;
	return k;
}

static void read_gpu(struct dcgm *d, unsigned gpu)
{
	unsigned short ids[DCGM_FIELDS];
	struct dcgm_gpu *g = &d->gpu[gpu];
	struct dc_entity entity = { DC_ENTITY_GPU, g->id };
	bool lost = false;
	unsigned i, k;
	int rc;

	for (k = 0; k < d->n; k++) {
		ids[k] = table[d->field[k]].id;
		d->value[k].field = 0;
	}
	rc = d->api.latest(d->handle, &entity, 1, ids, d->n, 0, d->value);
	for (i = 0; !rc && i < d->n; i++) {
		k = which(d, &d->value[i]);
		if (k == d->n)
			continue;
		lost |= d->value[i].status == DC_GPU_IS_LOST;
		feed(d, gpu, k, &d->value[i]);
	}
	g->bad = rc ? g->bad + 1 : 0;
	if (!lost && rc != DC_GPU_IS_LOST && g->bad < BAD_MAX)
		return;
	gpu_integ_lose(d->in, gpu);
	d->changes++;
}

static void op_read(void *state, bool last)
{
	struct dcgm *d = state;
	unsigned g;

	(void)last;
	for (g = 0; g < d->req->ngpus; g++)
		if (!gpu_integ_is_lost(d->in, g))
			read_gpu(d, g);
}

/* From when it is watched: the first value is there after two intervals. */
static const char *op_from(void *state, unsigned gpu, enum gpu_metric metric)
{
	struct dcgm *d = state;
	enum gpu_metric by = metric == GPU_IDLE ? GPU_SM : metric;
	unsigned k;

	for (k = 0; d->gpu[gpu].found && k < d->n; k++)
		if (table[d->field[k]].metric == by)
			return metric == GPU_IDLE ? "SM activity" : "DCGM";
	return NULL;
}

static const char *op_version(void *state)
{
	(void)state;
	return "DCGM's host engine";
}

static unsigned op_changes(void *state)
{
	return ((struct dcgm *)state)->changes;
}

static unsigned op_least_ms(void *state)
{
	(void)state;
	return 100;
}

const struct gpu_source gpu_source_dcgm = {
	.name = "dcgm",
	.open = op_open,
	.read = op_read,
	.from = op_from,
	.version = op_version,
	.changes = op_changes,
	.least_ms = op_least_ms,
	.close = op_close,
};
