/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/src_dcgm.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A string of a value, or "". */
static const char *text(struct dc_value *v)
{
	if (v->status != DC_OK || v->type != 's')
		return "";
	v->value.s[sizeof(v->value.s) - 1] = '\0';
	return v->value.s;
}

static bool same_pci(const char *bus_id, const struct gpu_ask *ask)
{
	unsigned domain, bus, device;

	return sscanf(bus_id, "%8x:%2x:%2x.", &domain, &bus, &device) == 3 &&
	       domain == ask->pci.domain && bus == ask->pci.bus &&
	       device == ask->pci.device;
}

static bool same(const struct gpu_ask *ask, struct dc_value *uuid,
		 const struct dc_value *minor, struct dc_value *pci)
{
	switch (ask->kind) {
	case GPU_ASK_UUID:
		return !strcasecmp(text(uuid), ask->uuid);
	case GPU_ASK_MINOR:
		return minor->status == DC_OK && minor->type == 'i' &&
		       minor->value.i == (int64_t)ask->minor;
	case GPU_ASK_PCI:
		return same_pci(text(pci), ask);
	}
	return false;
}

static void match_one(struct dcgm *d, unsigned id)
{
	unsigned short fields[] = { DC_FI_UUID, DC_FI_MINOR, DC_FI_PCI };
	struct dc_entity gpu = { DC_ENTITY_GPU, id };
	struct dc_value *v = d->value;
	unsigned k;

	memset(v, 0, 3 * sizeof(*v));
	if (d->api.latest(d->handle, &gpu, 1, fields, 3, DC_LIVE, v))
		return;
	for (k = 0; k < d->req->ngpus; k++) {
		if (d->gpu[k].found ||
		    !same(&d->req->ask[k], &v[0], &v[1], &v[2]))
			continue;
		d->gpu[k].found = true;
		d->gpu[k].id = id;
		if (d->api.group_add(d->handle, d->group, DC_ENTITY_GPU, id))
			d->gpu[k].found = false;
	}
}

int dcgm_match(struct dcgm *d, struct ddp_err *err)
{
	unsigned ids[DC_GPUS_MAX], k, found = 0;
	int n = 0, i;

	if (d->api.devices(d->handle, ids, &n) || n < 0 || n > DC_GPUS_MAX)
		return ddp_err_set(err, DDP_ESYS, "DCGM lists no GPUs");
	for (i = 0; i < n; i++)
		match_one(d, ids[i]);
	for (k = 0; k < d->req->ngpus; k++) {
		found += d->gpu[k].found;
		if (!d->gpu[k].found)
			gpu_integ_lose(d->in, k);
	}
	if (!found)
		return ddp_err_set(err, DDP_EINCONS,
			"DCGM knows none of the step's %u GPUs (%s%s) among its %d; of MIG devices it does not tell the UUIDs: use DdpGpuSource=nvml for them",
			d->req->ngpus, d->req->ask[0].name,
			d->req->ngpus > 1 ? ", ..." : "", n);
	return 0;
}
