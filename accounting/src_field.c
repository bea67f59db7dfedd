/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVLink and PCIe without GPM.
 *
 * NVLink: cumulative counters, of all links together in KiB up to NVLink 4,
 * of each link in bytes on NVLink 5. A GPU that does not have them has
 * no NVLink that we know of: unknown, not 0.
 *
 * PCIe: the counters are of 32 bits, as far as is known ("may wrap" is all
 * that NVML says). At the speed of PCIe 4.0 x16 that is once round in 136 ms,
 * so at 1 s it cannot be told how often one went round. Hence
 *	- GPM is preferred, where there is GPM;
 *	- a counter that was seen beyond 32 bits is taken as one of 64;
 *	- one that cannot go round once at the link's top speed is taken as is;
 *	- else the driver's samples of 20 ms say which number of rounds comes
 *	  nearest, and the label says so;
 *	- without those nothing is counted, and PCIe stays unknown.
 * Where the driver has no counters there are the samples alone.
 */
#include "config.h"

#include "accounting/src_nvml.h"

#include <math.h>
#include <string.h>

#define KIB 1024.0
#define KB 1000.0
#define PCIE_MOST 5e11	/* bytes a second; PCIe 7.0 x16 is at half of it */

static void set(struct nv_field *f, unsigned id, unsigned scope)
{
	memset(f, 0, sizeof(*f));
	f->id = id;
	f->scope = scope;
	f->status = NV_UNKNOWN;
}

/* False: no value, or none that counts. */
static bool value(struct nvml_gpu *g, const struct nv_field *f, uint64_t *raw)
{
	long long ll = 0;

	if (f->status == NV_GPU_IS_LOST)
		g->tally.lost = true;
	if (f->status != NV_OK)
		return false;
	*raw = 0;
	switch (f->type) {
	case NV_UINT:
		*raw = f->value.u;
		return true;
	case NV_ULONG:
		*raw = f->value.ul;
		return true;
	case NV_ULLONG:
		*raw = f->value.ull;
		return true;
	case NV_USHORT:
		*raw = f->value.us;
		return true;
	case NV_LLONG:
		ll = f->value.ll;
		break;
	case NV_INT:
		ll = f->value.i;
		break;
	case NV_DOUBLE:
		if (!(f->value.d >= 0 && f->value.d < 9e18))
			return false;
		ll = (long long)f->value.d;
		break;
	default:
		return false;
	}
	*raw = (uint64_t)ll;
	return ll >= 0;
}

static bool pair(struct nvml_gpu *g, const struct nv_field *f, uint64_t raw[2])
{
	return value(g, &f[0], &raw[0]) && value(g, &f[1], &raw[1]);
}

/* The most that a lane can carry in one direction, bytes a second. */
static double lane_top(unsigned gen)
{
	static const double gt_s[] = { 0, 2.5, 5, 8, 16, 32, 64, 128 };

	if (!gen || gen >= sizeof(gt_s) / sizeof(gt_s[0]))
		return INFINITY;
	return gt_s[gen] * 1e9 / 8;
}

static double link_top(const struct nvml *n, nv_device dev)
{
	unsigned gen = 0, lanes = 0;

	if (!n->api.pcie_gen || n->api.pcie_gen(dev, &gen) ||
	    !n->api.pcie_width || n->api.pcie_width(dev, &lanes) || !lanes)
		return INFINITY;
	return lane_top(gen) * lanes;
}

/* The 32 bits are enough, with room for a reading that is late by half. */
static bool tells_rounds(const struct nvml *n, double top)
{
	return top * n->req->interval_ms * 1.5e-3 < ldexp(1, 32);
}

/* NVLink 5: which links have both counters. */
static void probe_links(struct nvml *n, struct nvml_gpu *g)
{
	struct nvml_fields *f = &g->fields;
	uint64_t raw[2];
	unsigned i;

	for (i = 0; i < NV_LINKS; i++) {
		set(&n->field[2 * i], NV_FI_NVLINK5_RX, i);
		set(&n->field[2 * i + 1], NV_FI_NVLINK5_TX, i);
	}
	if (!nvml_ok(g, n->api.fields(g->dev, 2 * NV_LINKS, n->field)))
		return;
	for (i = 0; i < NV_LINKS; i++)
		if (pair(g, &n->field[2 * i], raw))
			f->link[f->links++] = i;
	f->received = NV_FI_NVLINK5_RX;
	f->sent = NV_FI_NVLINK5_TX;
	f->unit = 1;
}

static void found_nvlink(struct nvml *n, struct nvml_gpu *g)
{
	struct nvml_fields *f = &g->fields;

	if (f->links)
		g->nvlink = NVML_FIELDS;
	else if (g->gpm.on && !f->no_nvlink)
		nvml_gpm_want(g, GPU_NVLINK);
	else
		g->nvlink = NVML_NONE;
	n->changes++;
}

static void found_pcie(struct nvml *n, struct nvml_gpu *g, bool counters)
{
	struct nvml_fields *f = &g->fields;

	f->pcie = counters ? NVML_FIELDS :
		  n->api.pcie ? NVML_SAMPLED : NVML_NONE;
	f->pcie_bits = 32;
	f->pcie_top = link_top(n, g->dev);
	f->pcie_hint = counters && n->api.pcie && !tells_rounds(n, f->pcie_top);
	f->pcie_rate[0] = f->pcie_rate[1] = NAN;
	if (!nvml_gpm_asks(g, GPU_CHAN_PCIE_IN))
		g->pcie = f->pcie;
	n->changes++;
}

static bool all_settled(const struct nv_field *f, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		if (f[i].status != NV_OK && !nvml_unsupported(f[i].status))
			return false;
	return true;
}

/*
 * What the GPU has, from one call: n->field 0, 2 and 4 are NVLink's, NVLink
 * 5's and PCIe's received bytes, each followed by those sent. False: something
 * failed by chance, and is to be asked for again at the next reading; but not
 * for ever, as some driver may have a code of its own for "no".
 */
static bool probe(struct nvml *n, struct nvml_gpu *g)
{
	struct nv_field *v = n->field;
	int rc = NV_FUNCTION_NOT_FOUND;
	unsigned i;

	set(&v[0], NV_FI_NVLINK_DATA_RX, NV_SCOPE_ALL);
	set(&v[1], NV_FI_NVLINK_DATA_TX, NV_SCOPE_ALL);
	set(&v[2], NV_FI_NVLINK5_RX, 0);
	set(&v[3], NV_FI_NVLINK5_TX, 0);
	set(&v[4], NV_FI_PCIE_RX, 0);
	set(&v[5], NV_FI_PCIE_TX, 0);
	set(&v[6], NV_FI_NVLINK_LINK_COUNT, 0);
	if (n->api.fields)
		rc = n->api.fields(g->dev, 7, v);
	for (i = 0; rc && i < 7; i++)
		v[i].status = rc;
	if (!n->api.fields)
		return true;
	return (nvml_ok(g, rc) && all_settled(v, 6)) || nvml_unsupported(rc) ||
	       ++g->fields.probes == NVML_MISSES;
}

void nvml_field_probe(struct nvml *n, struct nvml_gpu *g)
{
	struct nvml_fields *f = &g->fields;
	bool links, links5, pcie;
	uint64_t raw[2];

	if (f->probed || g->mig || !(nvml_wants(n, GPU_NVLINK) ||
				     nvml_wants(n, GPU_PCIE)) || !probe(n, g))
		return;
	links = pair(g, &n->field[0], raw);
	links5 = pair(g, &n->field[2], raw);
	pcie = pair(g, &n->field[4], raw);
	f->no_nvlink = value(g, &n->field[6], raw) && !raw[0];
	f->probed = true;
	if (nvml_wants(n, GPU_PCIE))
		found_pcie(n, g, pcie);
	if (!nvml_wants(n, GPU_NVLINK))
		return;
	/* On NVLink 5 its own counters are the better ones; there the first
	 * link may be down. */
	if (n->api.fields && !f->no_nvlink && (links5 || !links))
		probe_links(n, g);
	if (!f->links && links) {
		f->link[f->links++] = NV_SCOPE_ALL;
		f->received = NV_FI_NVLINK_DATA_RX;
		f->sent = NV_FI_NVLINK_DATA_TX;
		f->unit = KIB;
	}
	found_nvlink(n, g);
}

static void feed_nvlink(struct nvml *n, unsigned gpu, int64_t t)
{
	struct nvml_gpu *g = &n->gpu[gpu];
	const struct nvml_fields *f = &g->fields;
	struct gpu_count c = { .bits = 64, .unit = f->unit, .top = INFINITY };
	uint64_t sum[2] = { 0, 0 }, raw[2];
	unsigned i;

	for (i = 0; i < f->links; i++) {
		if (!pair(g, &n->field[2 * i], raw))
			return;
		sum[0] += raw[0];
		sum[1] += raw[1];
	}
	c.raw = sum[0];
	(void)gpu_integ_count(n->in, gpu, GPU_CHAN_NVLINK_IN, t, &c);
	c.raw = sum[1];
	(void)gpu_integ_count(n->in, gpu, GPU_CHAN_NVLINK_OUT, t, &c);
}

/* The driver's samples over 20 ms, received and sent, in bytes a second. */
static bool sample(struct nvml *n, struct nvml_gpu *g, double rate[2])
{
	static const int which[2] = { NV_PCIE_RECEIVED, NV_PCIE_SENT };
	struct nvml_fields *f = &g->fields;
	unsigned i, kb;

	for (i = 0; i < 2; i++) {
		int rc = n->api.pcie(g->dev, which[i], &kb);

		if (!nvml_ok(g, rc)) {
			if (!f->sampled && nvml_unsupported(rc))
				f->no_samples = true;
			return false;
		}
		rate[i] = kb * KB;
		if (rate[i] > fmin(1.1 * f->pcie_top, PCIE_MOST))
			return false;
	}
	f->sampled = true;
	return true;
}

/* The mean rates since the reading before, as the samples have them. */
static void hints(struct nvml *n, struct nvml_gpu *g, double hint[2])
{
	struct nvml_fields *f = &g->fields;
	double now[2] = { NAN, NAN };
	unsigned i;

	hint[0] = hint[1] = NAN;
	if (!f->pcie_hint)
		return;
	if (!sample(n, g, now)) {
		now[0] = now[1] = NAN;
		if (f->no_samples) {
			f->pcie_hint = false;
			n->changes++;
		}
	}
	for (i = 0; i < 2; i++) {
		hint[i] = isnan(f->pcie_rate[i]) ? now[i] :
			  (f->pcie_rate[i] + now[i]) / 2;
		f->pcie_rate[i] = now[i];
	}
}

static void feed_pcie(struct nvml *n, unsigned gpu, int64_t t,
		      const struct nv_field *v)
{
	static const enum gpu_chan chan[2] = { GPU_CHAN_PCIE_IN,
					       GPU_CHAN_PCIE_OUT };
	struct nvml_gpu *g = &n->gpu[gpu];
	struct nvml_fields *f = &g->fields;
	struct gpu_count c = { .unit = 1, .top = fmin(f->pcie_top, PCIE_MOST) };
	double hint[2];
	uint64_t raw[2];
	unsigned i;

	if (!pair(g, v, raw))
		return;
	if (f->pcie_bits == 32 && (raw[0] | raw[1]) > UINT32_MAX) {
		f->pcie_bits = 64;
		f->pcie_hint = false;
		n->changes++;
	}
	hints(n, g, hint);
	c.bits = f->pcie_bits;
	for (i = 0; i < 2; i++) {
		c.raw = raw[i];
		c.hint = hint[i];
		(void)gpu_integ_count(n->in, gpu, chan[i], t, &c);
	}
	f->pcie_base = true;
}

static void read_samples(struct nvml *n, unsigned gpu)
{
	struct nvml_gpu *g = &n->gpu[gpu];
	int64_t t = n->now();
	double rate[2];

	if (sample(n, g, rate)) {
		t += (n->now() - t) / 2;
		(void)gpu_integ_gauge(n->in, gpu, GPU_CHAN_PCIE_IN, t, rate[0]);
		(void)gpu_integ_gauge(n->in, gpu, GPU_CHAN_PCIE_OUT, t,
				      rate[1]);
	} else if (g->fields.no_samples) {
		g->pcie = NVML_NONE;
		n->changes++;
	}
}

void nvml_field_read(struct nvml *n, unsigned gpu)
{
	struct nvml_gpu *g = &n->gpu[gpu];
	struct nvml_fields *f = &g->fields;
	struct nv_field *v = n->field;
	unsigned i, links = g->nvlink == NVML_FIELDS ? f->links : 0;
	bool pcie = g->pcie == NVML_FIELDS ||
		    (g->pcie == NVML_OPEN && f->pcie == NVML_FIELDS &&
		     !f->pcie_base);
	int64_t t;

	if (g->pcie == NVML_SAMPLED)
		read_samples(n, gpu);
	if (!links && !pcie)
		return;
	for (i = 0; i < links; i++) {
		set(v++, f->received, f->link[i]);
		set(v++, f->sent, f->link[i]);
	}
	if (pcie) {
		set(v++, NV_FI_PCIE_RX, 0);
		set(v++, NV_FI_PCIE_TX, 0);
	}
	t = n->now();
	if (!nvml_ok(g, n->api.fields(g->dev, (int)(v - n->field), n->field)))
		return;
	t += (n->now() - t) / 2;
	if (links)
		feed_nvlink(n, gpu, t);
	if (pcie)
		feed_pcie(n, gpu, t, v - 2);
}
