/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/src_nvml.h"

#include "core/ddp_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MILLI 1e-3	/* of a joule, the unit of the energy counter */

bool nvml_unsupported(int rc)
{
	return rc == NV_NOT_SUPPORTED || rc == NV_FUNCTION_NOT_FOUND ||
	       rc == NV_INVALID_ARGUMENT || rc == NV_NO_PERMISSION ||
	       rc == NV_ARGUMENT_VERSION_MISMATCH || rc == NV_DEPRECATED;
}

bool nvml_ok(struct nvml_gpu *g, int rc)
{
	g->tally.calls++;
	g->tally.ok += rc == NV_OK;
	if (rc == NV_GPU_IS_LOST)
		g->tally.lost = true;
	return rc == NV_OK;
}

bool nvml_wants(const struct nvml *n, enum gpu_metric metric)
{
	uint32_t want = n->req->want;

	if (metric == GPU_SM && (want & 1u << GPU_IDLE))
		return true;
	return want & 1u << metric;
}

/* Energy, NVLink, PCIe and busy time are those of the whole GPU. */
static void open_gpu(struct nvml *n, struct nvml_gpu *g)
{
	static const enum gpu_metric gpm[] = { GPU_SM, GPU_MEMBW, GPU_PCIE };
	unsigned i;

	nvml_gpm_open(n, g);
	for (i = 0; g->gpm.on && i < 2u + !g->mig; i++)
		if (nvml_wants(n, gpm[i]))
			nvml_gpm_want(g, gpm[i]);
	if (!g->gpm.on)
		g->sm = g->membw = NVML_NONE;
	if (g->mig)
		g->nvlink = g->pcie = NVML_NONE;
	g->energy = !g->mig && n->api.energy && nvml_wants(n, GPU_ENERGY);
	g->util = !g->mig && n->api.util && nvml_wants(n, GPU_IDLE);
}

static void note_version(struct nvml *n)
{
	char lib[NV_VERSION_SIZE] = "", drv[NV_VERSION_SIZE] = "";
	char text[2][NV_VERSION_SIZE];

	if (n->api.nvml_version && n->api.nvml_version(lib, sizeof(lib)))
		lib[0] = '\0';
	if (n->api.driver_version && n->api.driver_version(drv, sizeof(drv)))
		drv[0] = '\0';
	lib[sizeof(lib) - 1] = drv[sizeof(drv) - 1] = '\0';
	(void)snprintf(n->version, sizeof(n->version), "NVML %s, driver %s",
		lib[0] ? ddp_text_safe(lib, text[0], sizeof(text[0])) : "?",
		drv[0] ? ddp_text_safe(drv, text[1], sizeof(text[1])) : "?");
}

int nvml_start(struct nvml *n, const struct gpu_request *req,
	       struct gpu_integ *in, struct ddp_err *err)
{
	unsigned k;
	int rc;

	n->req = req;
	n->in = in;
	rc = n->api.init();
	if (rc)
		return ddp_err_set(err, DDP_ESYS,
			"NVML does not start: %s; see nvidia-smi on this node",
			nvml_api_error(&n->api, rc));
	n->inited = true;
	note_version(n);
	if (nvml_match(n, err))
		return -1;
	for (k = 0; k < req->ngpus; k++)
		if (n->gpu[k].found)
			open_gpu(n, &n->gpu[k]);
	return 0;
}

static void read_energy(struct nvml *n, unsigned gpu)
{
	struct nvml_gpu *g = &n->gpu[gpu];
	struct gpu_count c = { .bits = 64, .unit = MILLI, .top = INFINITY };
	unsigned long long mj = 0;
	int64_t t;
	int rc;

	if (!g->energy)
		return;
	t = n->now();
	rc = n->api.energy(g->dev, &mj);
	if (nvml_ok(g, rc)) {
		c.raw = mj;
		t += (n->now() - t) / 2;
		(void)gpu_integ_count(n->in, gpu, GPU_CHAN_POWER, t, &c);
		n->changes += !g->energy_gave;
		g->energy_gave = true;
	} else if (!g->energy_gave && nvml_unsupported(rc)) {
		g->energy = false;
		n->changes++;
	}
}

/* As long as GPM may still give SM activity: once, for the first interval. */
static void read_util(struct nvml *n, unsigned gpu)
{
	struct nvml_gpu *g = &n->gpu[gpu];
	struct nv_util u = { 0 };
	int64_t t;
	int rc;

	if (!g->util || g->sm == NVML_GPM ||
	    (g->sm == NVML_OPEN && g->util_gave))
		return;
	t = n->now();
	rc = n->api.util(g->dev, &u);
	if (nvml_ok(g, rc)) {
		t += (n->now() - t) / 2;
		(void)gpu_integ_gauge(n->in, gpu, GPU_CHAN_BUSY, t, u.gpu);
		n->changes += !g->util_gave;
		g->util_gave = true;
	} else if (!g->util_gave && nvml_unsupported(rc)) {
		g->util = false;
		n->changes++;
	}
}

/*
 * A GPU is lost when the driver says so, or when nothing that it was asked
 * worked at a few readings in a row.
 */
static void judge(struct nvml *n, unsigned gpu)
{
	struct nvml_gpu *g = &n->gpu[gpu];

	if (g->tally.ok)
		g->bad = 0;
	else if (g->tally.calls)
		g->bad++;
	if (!g->tally.lost && g->bad < NVML_MISSES)
		return;
	gpu_integ_lose(n->in, gpu);
	nvml_gpm_close(n, g);
	n->changes++;
}

void nvml_read(struct nvml *n, bool last)
{
	unsigned k;

	for (k = 0; k < n->req->ngpus; k++) {
		struct nvml_gpu *g = &n->gpu[k];

		if (gpu_integ_is_lost(n->in, k))
			continue;
		memset(&g->tally, 0, sizeof(g->tally));
		nvml_field_probe(n, g);
		if (!g->tally.lost)
			nvml_gpm_read(n, k, last);
		if (!g->tally.lost)
			nvml_field_read(n, k);
		if (!g->tally.lost)
			read_energy(n, k);
		if (!g->tally.lost)
			read_util(n, k);
		judge(n, k);
	}
}

/* Before its first answer GPM is expected to give what it is asked for. */
static bool by_gpm(const struct nvml_gpu *g, enum nvml_from from,
		   enum gpu_chan chan)
{
	return from == NVML_GPM ||
	       (from == NVML_OPEN && nvml_gpm_asks(g, chan));
}

static const char *from_pcie(const struct nvml_gpu *g)
{
	if (by_gpm(g, g->pcie, GPU_CHAN_PCIE_IN))
		return "GPM";
	switch (g->pcie) {
	case NVML_SAMPLED:
		return "NVML samples of 20 ms";
	case NVML_FIELDS:
		if (g->fields.pcie_hint)
			return "NVML fields 197/198, rounds by samples of 20 ms";
		return "NVML fields 197/198";
	default:
		return NULL;
	}
}

static const char *from_nvlink(const struct nvml_gpu *g)
{
	if (by_gpm(g, g->nvlink, GPU_CHAN_NVLINK_IN))
		return "GPM";
	if (g->nvlink != NVML_FIELDS)
		return NULL;
	return g->fields.received == NV_FI_NVLINK5_RX ?
		"NVML fields 202/204" : "NVML fields 138/139";
}

const char *nvml_from(struct nvml *n, unsigned gpu, enum gpu_metric metric)
{
	const struct nvml_gpu *g = &n->gpu[gpu];

	switch (metric) {
	case GPU_SM:
		return by_gpm(g, g->sm, GPU_CHAN_SM) ? "GPM" : NULL;
	case GPU_MEMBW:
		return by_gpm(g, g->membw, GPU_CHAN_MEMBW) ? "GPM" : NULL;
	case GPU_NVLINK:
		return from_nvlink(g);
	case GPU_PCIE:
		return from_pcie(g);
	case GPU_ENERGY:
		return g->energy && g->energy_gave ? "NVML" : NULL;
	case GPU_IDLE:
		if (by_gpm(g, g->sm, GPU_CHAN_SM))
			return "SM activity";
		return g->util && g->util_gave && g->sm == NVML_NONE ?
			"kernel-active time" : NULL;
	default:
		return NULL;
	}
}

void nvml_stop(struct nvml *n)
{
	unsigned k;

	for (k = 0; n->req && k < n->req->ngpus; k++)
		nvml_gpm_close(n, &n->gpu[k]);
	if (n->inited)
		(void)n->api.shutdown();
	n->inited = false;
}
