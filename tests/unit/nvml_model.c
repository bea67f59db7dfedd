/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/nvml_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model model;

struct sample {
	struct model_gpu *gpu;
	double sum[M_LOADS];
	int64_t at;
};

static uint64_t random64(void)
{
	model.garble ^= model.garble << 13;
	model.garble ^= model.garble >> 7;
	model.garble ^= model.garble << 17;
	return model.garble;
}

/* Half of the answers are wrong; the other ones are as they should be. */
static int chance(void)
{
	static const int codes[] = { 1, 2, 3, 4, 6, 13, 15, 21, 25, 999, -1,
				     12345 };
	uint64_t r;

	if (!model.garble)
		return 0;
	r = random64();
	return r % 2 ? 0 : codes[r / 2 % (sizeof(codes) / sizeof(codes[0]))];
}

static int enter(enum model_fn fn, const struct model_gpu *g)
{
	model.calls[fn]++;
	if (model.times[fn]) {
		model.times[fn]--;
		return model.fail[fn];
	}
	if (g && (g->lost || (g->parent && g->parent->lost)))
		return NV_GPU_IS_LOST;
	return chance();
}

struct model_gpu *model_add(void)
{
	struct model_gpu *g = &model.gpu[model.ngpus++];

	*g = (struct model_gpu){ .minor = model.ngpus - 1,
		.bus = 0x10 * model.ngpus, .uuid = "GPU-0", .gpm = true,
		.gpm_nvlink = true, .gpm_pcie = true, .nvlink = true,
		.links = 18, .pcie = true, .samples = true, .energy = true,
		.util = true };
	return g;
}

void model_step(double seconds)
{
	unsigned k, i;

	model.now += (int64_t)llround(seconds * 1e9);
	for (k = 0; k < MODEL_GPUS; k++)
		for (i = 0; i < M_LOADS; i++)
			model.gpu[k].sum[i] += model.gpu[k].load[i] * seconds;
}

int64_t model_now(void)
{
	return model.now;
}

static int m_init(void)
{
	return enter(F_INIT, NULL);
}

static int m_shutdown(void)
{
	return 0;
}

static const char *m_error(int rc)
{
	return rc == NV_DRIVER_NOT_LOADED ? "Driver Not Loaded" : NULL;
}

static int m_version(char *buf, unsigned size)
{
	snprintf(buf, size, "58\n0.9");
	return 0;
}

static int m_count(unsigned *n)
{
	*n = model.ngpus;
	return enter(F_COUNT, NULL);
}

static int m_by_index(unsigned i, nv_device *dev)
{
	*dev = &model.gpu[i];
	return enter(F_BY_INDEX, &model.gpu[i]);
}

static int m_by_uuid(const char *uuid, nv_device *dev)
{
	int rc = enter(F_BY_UUID, NULL);
	unsigned k;

	for (k = 0; !rc && k < MODEL_GPUS; k++)
		if (model.gpu[k].uuid && !strcmp(model.gpu[k].uuid, uuid)) {
			*dev = &model.gpu[k];
			return 0;
		}
	return rc ? rc : NV_NOT_FOUND;
}

static int m_minor(nv_device dev, unsigned *minor)
{
	*minor = ((struct model_gpu *)dev)->minor;
	return 0;
}

static int m_uuid(nv_device dev, char *buf, unsigned size)
{
	snprintf(buf, size, "%s", ((struct model_gpu *)dev)->uuid);
	return 0;
}

static int m_pci(nv_device dev, struct nv_pci *pci)
{
	memset(pci, 0, sizeof(*pci));
	pci->bus = ((struct model_gpu *)dev)->bus;
	return 0;
}

static int m_is_mig(nv_device dev, unsigned *yes)
{
	*yes = ((struct model_gpu *)dev)->parent != NULL;
	return 0;
}

static int m_parent(nv_device mig, nv_device *dev)
{
	*dev = ((struct model_gpu *)mig)->parent;
	return 0;
}

static int m_instance(nv_device mig, unsigned *gi)
{
	*gi = ((struct model_gpu *)mig)->gi;
	return 0;
}

static int give(struct nv_field *f, bool yes, double value)
{
	if (!yes)
		return model.no ? model.no : NV_NOT_SUPPORTED;
	f->type = NV_ULLONG;
	f->value.ull = (unsigned long long)value;
	return NV_OK;
}

/* One of 18 links; the first one is down. */
static int give_link(struct nv_field *f, bool yes, double total)
{
	if (!yes || f->scope < 1 || f->scope > 17)
		return NV_NOT_SUPPORTED;
	return give(f, true, total / 17);
}

static int give_pcie(struct nv_field *f, const struct model_gpu *g, double sum)
{
	int rc = give(f, g->pcie, sum);

	if (rc || g->wide)
		return rc;
	f->type = NV_UINT;
	f->value.u = (unsigned)f->value.ull;
	return 0;
}

static int field(const struct model_gpu *g, struct nv_field *f)
{
	bool all = f->scope == NV_SCOPE_ALL;

	switch (f->id) {
	case NV_FI_NVLINK_LINK_COUNT:
		return give(f, g->links >= 0, g->links);
	case NV_FI_NVLINK_DATA_RX:
		return give(f, g->nvlink && all, g->sum[M_NV_RX] / 1024);
	case NV_FI_NVLINK_DATA_TX:
		return give(f, g->nvlink && all, g->sum[M_NV_TX] / 1024);
	case NV_FI_NVLINK5_RX:
		return give_link(f, g->nvlink5, g->sum[M_NV_RX]);
	case NV_FI_NVLINK5_TX:
		return give_link(f, g->nvlink5, g->sum[M_NV_TX]);
	case NV_FI_PCIE_RX:
		return give_pcie(f, g, g->sum[M_PCIE_RX]);
	case NV_FI_PCIE_TX:
		return give_pcie(f, g, g->sum[M_PCIE_TX]);
	default:
		return NV_INVALID_ARGUMENT;
	}
}

static int m_fields(nv_device dev, int n, struct nv_field *f)
{
	const struct model_gpu *g = dev;
	int i, rc = enter(F_FIELDS, g);

	for (i = 0; !rc && i < n; i++) {
		f[i].status = field(g, &f[i]);
		if (!model.garble)
			continue;
		f[i].status = chance();
		f[i].type = (int)(random64() % 9);
		f[i].value.ull = random64();
	}
	return rc;
}

static int m_energy(nv_device dev, unsigned long long *mj)
{
	const struct model_gpu *g = dev;
	int rc = enter(F_ENERGY, g);

	*mj = model.garble ? random64() :
	      (unsigned long long)(g->sum[M_WATT] * 1000);
	return rc ? rc : g->energy ? NV_OK : NV_NOT_SUPPORTED;
}

static int m_util(nv_device dev, struct nv_util *u)
{
	const struct model_gpu *g = dev;
	int rc = enter(F_UTIL, g);

	u->gpu = model.garble ? (unsigned)random64() :
		 (unsigned)g->load[M_UTIL];
	return rc ? rc : g->util ? NV_OK : NV_NOT_SUPPORTED;
}

static int m_pcie(nv_device dev, int which, unsigned *kb)
{
	const struct model_gpu *g = dev;
	int rc = enter(F_PCIE, g);

	*kb = model.garble ? (unsigned)random64() :
	      (unsigned)(g->load[which == NV_PCIE_RECEIVED ? M_PCIE_RX :
				 M_PCIE_TX] / 1000);
	return rc ? rc : g->samples ? NV_OK : NV_NOT_SUPPORTED;
}

static int m_gen(nv_device dev, unsigned *gen)
{
	*gen = ((struct model_gpu *)dev)->gen;
	return *gen ? NV_OK : NV_NOT_SUPPORTED;
}

static int m_width(nv_device dev, unsigned *lanes)
{
	*lanes = ((struct model_gpu *)dev)->lanes;
	return *lanes ? NV_OK : NV_NOT_SUPPORTED;
}

static int m_support(nv_device dev, struct nv_gpm_support *s)
{
	const struct model_gpu *g = dev;

	s->supported = g->gpm;
	return s->version == 1 ? enter(F_GPM_SUPPORT, g) :
		NV_ARGUMENT_VERSION_MISMATCH;
}

static int m_alloc(nv_sample *s)
{
	int rc = enter(F_GPM_ALLOC, NULL);

	*s = rc ? NULL : calloc(1, sizeof(struct sample));
	model.samples += *s != NULL;
	return rc;
}

static int m_free(nv_sample s)
{
	model.samples--;
	free(s);
	return 0;
}

static int take(struct model_gpu *g, struct sample *s)
{
	s->gpu = g;
	s->at = model.now;
	memcpy(s->sum, g->sum, sizeof(s->sum));
	return g->gpm ? NV_OK : NV_NOT_SUPPORTED;
}

static int m_sample(nv_device dev, nv_sample s)
{
	int rc = enter(F_GPM_SAMPLE, dev);

	return rc ? rc : take(dev, s);
}

static int m_mig_sample(nv_device dev, unsigned gi, nv_sample s)
{
	int rc = enter(F_GPM_MIG, dev);
	unsigned k;

	for (k = 0; !rc && k < MODEL_GPUS; k++)
		if (model.gpu[k].parent == dev && model.gpu[k].gi == gi)
			return take(&model.gpu[k], s);
	return rc ? rc : NV_INVALID_ARGUMENT;
}

static int metric(const struct sample *a, const struct sample *b,
		  struct nv_gpm_metric *m)
{
	static const struct { unsigned id; enum model_load load; } ids[] = {
		{ 2, M_SM }, { 10, M_MEMBW }, { 20, M_PCIE_TX },
		{ 21, M_PCIE_RX }, { 60, M_NV_RX }, { 61, M_NV_TX },
	};
	const struct model_gpu *g = b->gpu;
	double dt = (double)(b->at - a->at) * 1e-9;
	unsigned k;

	for (k = 0; ids[k].id != m->id; k++)
		;
	m->value = (b->sum[ids[k].load] - a->sum[ids[k].load]) / dt;
	if (m->id >= 20)
		m->value /= 1048576;
	if (m->id == model.gpm_fail) {
		m->value = model.gpm_value;
		return (int)model.gpm_code;
	}
	if (model.garble) {
		uint64_t r = random64();

		memcpy(&m->value, &r, sizeof(r));
		return chance();
	}
	return (m->id >= 60 && !g->gpm_nvlink) ||
	       ((m->id == 20 || m->id == 21) && !g->gpm_pcie) ?
		NV_NOT_SUPPORTED : NV_OK;
}

static int m_metrics(struct nv_gpm_get *get)
{
	const struct sample *a = get->sample1, *b = get->sample2;
	int rc = enter(F_GPM_METRICS, b->gpu);
	unsigned k;

	model.close += b->at - a->at <= 100000000;
	for (k = 0; !rc && k < get->count; k++)
		get->metric[k].status = metric(a, b, &get->metric[k]);
	return rc;
}

void model_api(struct nvml_api *api)
{
	*api = (struct nvml_api){
		.init = m_init, .shutdown = m_shutdown, .error_text = m_error,
		.driver_version = m_version, .nvml_version = m_version,
		.count = m_count, .by_index = m_by_index,
		.by_uuid = m_by_uuid, .minor = m_minor, .uuid = m_uuid,
		.pci = m_pci, .is_mig = m_is_mig, .mig_parent = m_parent,
		.mig_instance = m_instance, .fields = m_fields,
		.energy = m_energy, .util = m_util, .pcie = m_pcie,
		.pcie_gen = m_gen, .pcie_width = m_width,
		.gpm_support = m_support, .gpm_alloc = m_alloc,
		.gpm_free = m_free, .gpm_sample = m_sample,
		.gpm_mig_sample = m_mig_sample, .gpm_metrics = m_metrics,
	};
}
