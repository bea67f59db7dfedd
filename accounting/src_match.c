/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML's order of GPUs is not that of the device files, nor CUDA's: a GPU is
 * known by its minor number, PCI address or UUID.
 */
#include "config.h"

#include "accounting/src_nvml.h"

#include <string.h>
#include <strings.h>

#define DEVICES_MAX 256		/* of a node; more is a broken driver */

static bool same_pci(const struct nvml *n, nv_device dev,
		     const struct gpu_ask *ask)
{
	struct nv_pci pci;

	memset(&pci, 0, sizeof(pci));
	if (!n->api.pci || n->api.pci(dev, &pci))
		return false;
	return pci.domain == ask->pci.domain && pci.bus == ask->pci.bus &&
	       pci.device == ask->pci.device;
}

static bool same_uuid(const struct nvml *n, nv_device dev,
		      const struct gpu_ask *ask)
{
	char uuid[NV_UUID_SIZE] = "";

	if (!n->api.uuid || n->api.uuid(dev, uuid, sizeof(uuid)))
		return false;
	uuid[sizeof(uuid) - 1] = '\0';
	return !strcasecmp(uuid, ask->uuid);
}

static bool same(const struct nvml *n, nv_device dev,
		 const struct gpu_ask *ask)
{
	unsigned minor;

	switch (ask->kind) {
	case GPU_ASK_MINOR:
		return n->api.minor && !n->api.minor(dev, &minor) &&
		       minor == ask->minor;
	case GPU_ASK_PCI:
		return same_pci(n, dev, ask);
	case GPU_ASK_UUID:
		return same_uuid(n, dev, ask);
	}
	return false;
}

/* A MIG device is none of the indexed ones; the library finds it. */
static bool find_uuid(const struct nvml *n, const struct gpu_ask *ask,
		      struct nvml_gpu *g)
{
	unsigned mig = 0;
	nv_device dev;

	if (!n->api.by_uuid || n->api.by_uuid(ask->uuid, &dev))
		return false;
	if (n->api.is_mig && n->api.is_mig(dev, &mig))
		mig = 0;
	g->dev = dev;
	g->mig_dev = dev;
	g->mig = mig != 0;
	if (!g->mig)
		return true;
	return n->api.mig_instance && !n->api.mig_instance(dev, &g->gi) &&
	       n->api.mig_parent && !n->api.mig_parent(dev, &g->dev);
}

static void find_indexed(struct nvml *n, unsigned count)
{
	unsigned i, k;

	for (i = 0; i < count; i++) {
		nv_device dev;

		/* One that we may not open, or that is broken: not ours. */
		if (n->api.by_index(i, &dev))
			continue;
		for (k = 0; k < n->req->ngpus; k++) {
			struct nvml_gpu *g = &n->gpu[k];

			if (g->found || !same(n, dev, &n->req->ask[k]))
				continue;
			g->dev = dev;
			g->found = true;
		}
	}
}

int nvml_match(struct nvml *n, struct ddp_err *err)
{
	unsigned k, missing = 0, found = 0, count = 0;
	int rc;

	for (k = 0; k < n->req->ngpus; k++) {
		const struct gpu_ask *ask = &n->req->ask[k];

		if (ask->kind == GPU_ASK_UUID)
			n->gpu[k].found = find_uuid(n, ask, &n->gpu[k]);
		missing += !n->gpu[k].found;
	}
	rc = missing ? n->api.count(&count) : 0;
	if (rc)
		return ddp_err_set(err, DDP_ESYS, "NVML counts no GPUs: %s",
				   nvml_api_error(&n->api, rc));
	if (missing)
		find_indexed(n, count < DEVICES_MAX ? count : DEVICES_MAX);
	for (k = 0; k < n->req->ngpus; k++) {
		found += n->gpu[k].found;
		if (!n->gpu[k].found)
			gpu_integ_lose(n->in, k);
	}
	if (!found)
		return ddp_err_set(err, DDP_EINCONS,
			"NVML knows none of the step's %u GPUs (%s%s) among its %u; may user 65533 open /dev/nvidia*?",
			n->req->ngpus, n->req->ask[0].name,
			n->req->ngpus > 1 ? ", ..." : "", count);
	return 0;
}
