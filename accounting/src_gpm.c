/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPM, from Hopper on: each metric is the mean between two samples of the
 * GPU's counters, which must be more than 100 ms apart. Rates are MiB a
 * second. In a MIG instance only SM and DRAM are its own.
 *
 * Three samples are kept. The last reading of a step may come sooner than
 * 100 ms after the one before; then the interval before that is taken anew,
 * with a later end; so it is after one that came much sooner than the interval
 * asks for. A reading that fails leaves the base where it was, so
 * that the next one covers the gap.
 */
#include "config.h"

#include "accounting/src_nvml.h"

#include <math.h>
#include <string.h>

#define LEAST_NS 100000000
#define LEAST_MS 105	/* between readings, with some room for jitter */
#define NS_A_MS 1000000LL
#define MIB 1048576.0

static bool alloc_samples(struct nvml *n, struct nvml_gpm *p)
{
	unsigned i;

	for (i = 0; i < NVML_GPM_SAMPLES; i++)
		if (n->api.gpm_alloc(&p->sample[i]) || !p->sample[i])
			return false;
	return true;
}

/* The library says whether it can; old ones have none of the functions. */
void nvml_gpm_open(struct nvml *n, struct nvml_gpu *g)
{
	struct nv_gpm_support support = { .version = NV_GPM_SUPPORT_VERSION };
	struct nvml_gpm *p = &g->gpm;

	p->base = p->before = -1;
	if (!n->api.gpm_support || !n->api.gpm_alloc || !n->api.gpm_free ||
	    !n->api.gpm_metrics || (g->mig ? !n->api.gpm_mig_sample :
				    !n->api.gpm_sample))
		return;
	if (n->api.gpm_support(g->mig ? g->mig_dev : g->dev, &support) ||
	    !support.supported)
		return;
	p->on = alloc_samples(n, p);
	if (!p->on)
		nvml_gpm_close(n, g);
	else if (n->least_ms < LEAST_MS)
		n->least_ms = LEAST_MS;
}

void nvml_gpm_close(struct nvml *n, struct nvml_gpu *g)
{
	unsigned i;

	for (i = 0; i < NVML_GPM_SAMPLES; i++) {
		if (g->gpm.sample[i])
			(void)n->api.gpm_free(g->gpm.sample[i]);
		g->gpm.sample[i] = NULL;
	}
	g->gpm.on = false;
}

static void want(struct nvml_gpm *p, unsigned id, enum gpu_chan chan,
		 double unit)
{
	p->metric[p->n++] = (struct nvml_gpm_metric){ .id = id, .chan = chan,
						      .unit = unit };
}

void nvml_gpm_want(struct nvml_gpu *g, enum gpu_metric metric)
{
	struct nvml_gpm *p = &g->gpm;

	switch (metric) {
	case GPU_SM:
		want(p, NV_GPM_SM, GPU_CHAN_SM, 1);
		break;
	case GPU_MEMBW:
		want(p, NV_GPM_DRAM, GPU_CHAN_MEMBW, 1);
		break;
	case GPU_NVLINK:
		want(p, NV_GPM_NVLINK_RX, GPU_CHAN_NVLINK_IN, MIB);
		want(p, NV_GPM_NVLINK_TX, GPU_CHAN_NVLINK_OUT, MIB);
		break;
	case GPU_PCIE:
		want(p, NV_GPM_PCIE_RX, GPU_CHAN_PCIE_IN, MIB);
		want(p, NV_GPM_PCIE_TX, GPU_CHAN_PCIE_OUT, MIB);
		break;
	default:
		break;
	}
}

bool nvml_gpm_asks(const struct nvml_gpu *g, enum gpu_chan chan)
{
	unsigned k;

	for (k = 0; k < g->gpm.n; k++)
		if (g->gpm.metric[k].chan == chan)
			return true;
	return false;
}

static enum nvml_from *origin(struct nvml_gpu *g, enum gpu_chan chan)
{
	switch (chan) {
	case GPU_CHAN_SM:
		return &g->sm;
	case GPU_CHAN_MEMBW:
		return &g->membw;
	case GPU_CHAN_PCIE_IN:
	case GPU_CHAN_PCIE_OUT:
		return &g->pcie;
	default:
		return &g->nvlink;
	}
}

/* GPM does not have it: of what has another source, that one's turn. */
static void settle_without(struct nvml *n, struct nvml_gpu *g,
			   enum gpu_chan chan)
{
	enum nvml_from *from = origin(g, chan);

	*from = from == &g->pcie ? g->fields.pcie : NVML_NONE;
	n->changes++;
}

static void drop_all(struct nvml *n, struct nvml_gpu *g)
{
	unsigned k;

	for (k = 0; k < g->gpm.n; k++)
		settle_without(n, g, g->gpm.metric[k].chan);
	g->gpm.n = 0;
	nvml_gpm_close(n, g);
}

/* Drops metric k with its answer, and the other direction of it. */
static void drop(struct nvml *n, struct nvml_gpu *g, unsigned k)
{
	struct nvml_gpm *p = &g->gpm;
	const enum nvml_from *from = origin(g, p->metric[k].chan);
	unsigned i, kept = 0;

	settle_without(n, g, p->metric[k].chan);
	for (i = 0; i < p->n; i++) {
		if (origin(g, p->metric[i].chan) == from)
			continue;
		p->metric[kept] = p->metric[i];
		n->get.metric[kept++] = n->get.metric[i];
	}
	p->n = kept;
}

static bool take_sample(struct nvml *n, struct nvml_gpu *g, int slot)
{
	struct nvml_gpm *p = &g->gpm;
	int64_t t = n->now();
	int rc;

	rc = g->mig ? n->api.gpm_mig_sample(g->dev, g->gi, p->sample[slot]) :
		      n->api.gpm_sample(g->dev, p->sample[slot]);
	/* The counters were read somewhere between. */
	p->at[slot] = t + (n->now() - t) / 2;
	if (nvml_ok(g, rc))
		return true;
	if (p->base < 0 && nvml_unsupported(rc))
		drop_all(n, g);
	return false;
}

/* Answers for [sample from, sample slot] into n->get. */
static bool ask(struct nvml *n, struct nvml_gpu *g, int from, int slot)
{
	struct nvml_gpm *p = &g->gpm;
	struct nv_gpm_get *get = &n->get;
	bool gave = false;
	unsigned k;
	int rc;

	get->version = NV_GPM_GET_VERSION;
	get->count = p->n;
	get->sample1 = p->sample[from];
	get->sample2 = p->sample[slot];
	memset(get->metric, 0, p->n * sizeof(get->metric[0]));
	for (k = 0; k < p->n; k++) {
		get->metric[k].id = p->metric[k].id;
		get->metric[k].status = NV_UNKNOWN;
		gave |= p->metric[k].gave;
	}
	rc = n->api.gpm_metrics(get);
	if (nvml_ok(g, rc))
		return true;
	if (!gave && nvml_unsupported(rc))
		drop_all(n, g);
	return false;
}

static bool usable(const struct nv_gpm_metric *m)
{
	return m->status == NV_OK && isfinite(m->value);
}

/* What the driver does not have is never asked for again. */
static void drop_unsupported(struct nvml *n, struct nvml_gpu *g)
{
	struct nvml_gpm *p = &g->gpm;
	unsigned k = 0;

	while (k < p->n) {
		if (!p->metric[k].gave &&
		    nvml_unsupported(n->get.metric[k].status)) {
			drop(n, g, k);
			k = 0;
		} else {
			k++;
		}
	}
}

/* True if all answered, or have not for so long that nothing waits for them. */
static bool complete(struct nvml *n, struct nvml_gpu *g)
{
	struct nvml_gpm *p = &g->gpm;
	bool whole = true;
	unsigned k;

	for (k = 0; k < p->n; k++) {
		const struct nv_gpm_metric *a = &n->get.metric[k];

		if (a->status == NV_GPU_IS_LOST)
			g->tally.lost = true;
		if (usable(a))
			p->metric[k].misses = 0;
		else if (p->metric[k].misses < NVML_MISSES)
			whole = ++p->metric[k].misses == NVML_MISSES && whole;
	}
	return whole;
}

static void feed(struct nvml *n, unsigned gpu, int from, int slot)
{
	struct nvml_gpu *g = &n->gpu[gpu];
	struct nvml_gpm *p = &g->gpm;
	unsigned k;

	for (k = 0; k < p->n; k++) {
		struct nvml_gpm_metric *m = &p->metric[k];
		const struct nv_gpm_metric *a = &n->get.metric[k];

		if (!usable(a) ||
		    !gpu_integ_mean(n->in, gpu, m->chan, p->at[from],
				    p->at[slot], a->value * m->unit))
			continue;
		if (!m->gave)
			n->changes++;
		m->gave = true;
		*origin(g, m->chan) = NVML_GPM;
	}
}

static int free_slot(const struct nvml_gpm *p)
{
	int i = 0;

	while (i == p->base || i == p->before)
		i++;
	return i;
}

void nvml_gpm_read(struct nvml *n, unsigned gpu, bool last)
{
	struct nvml_gpu *g = &n->gpu[gpu];
	struct nvml_gpm *p = &g->gpm;
	int from = p->base, slot;

	if (!p->on || !p->n)
		return;
	if (from >= 0 && n->now() - p->at[from] <= LEAST_NS) {
		from = p->before;
		if (!last || from < 0)
			return;
	}
	slot = free_slot(p);
	if (!take_sample(n, g, slot))
		return;
	if (from < 0) {
		p->base = slot;
		return;
	}
	if (!ask(n, g, from, slot))
		return;
	drop_unsupported(n, g);
	if (!complete(n, g) && !last)
		return;
	feed(n, gpu, from, slot);
	/* The sampler's early second reading: the interval goes on. */
	if (p->before < 0 && p->at[slot] - p->at[from] <
	    n->req->interval_ms * (NS_A_MS / 2))
		return;
	p->before = from;
	p->base = slot;
}
