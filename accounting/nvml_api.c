/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/nvml_api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct symbol {
	const char *name;
	size_t offset;		/* of the pointer in struct nvml_api */
	bool needed;
};

#define NEEDED(field, name) { name, offsetof(struct nvml_api, field), true }
#define USED(field, name) { name, offsetof(struct nvml_api, field), false }

static const struct symbol symbols[] = {
	NEEDED(init, "nvmlInit_v2"),
	NEEDED(shutdown, "nvmlShutdown"),
	NEEDED(count, "nvmlDeviceGetCount_v2"),
	NEEDED(by_index, "nvmlDeviceGetHandleByIndex_v2"),
	USED(error_text, "nvmlErrorString"),
	USED(driver_version, "nvmlSystemGetDriverVersion"),
	USED(nvml_version, "nvmlSystemGetNVMLVersion"),
	USED(by_uuid, "nvmlDeviceGetHandleByUUID"),
	USED(minor, "nvmlDeviceGetMinorNumber"),
	USED(uuid, "nvmlDeviceGetUUID"),
	USED(pci, "nvmlDeviceGetPciInfo_v3"),
	USED(is_mig, "nvmlDeviceIsMigDeviceHandle"),
	USED(mig_parent, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"),
	USED(mig_instance, "nvmlDeviceGetGpuInstanceId"),
	USED(fields, "nvmlDeviceGetFieldValues"),
	USED(energy, "nvmlDeviceGetTotalEnergyConsumption"),
	USED(util, "nvmlDeviceGetUtilizationRates"),
	USED(pcie, "nvmlDeviceGetPcieThroughput"),
	USED(pcie_gen, "nvmlDeviceGetMaxPcieLinkGeneration"),
	USED(pcie_width, "nvmlDeviceGetMaxPcieLinkWidth"),
	USED(gpm_support, "nvmlGpmQueryDeviceSupport"),
	USED(gpm_alloc, "nvmlGpmSampleAlloc"),
	USED(gpm_free, "nvmlGpmSampleFree"),
	USED(gpm_sample, "nvmlGpmSampleGet"),
	USED(gpm_mig_sample, "nvmlGpmMigSampleGet"),
	USED(gpm_metrics, "nvmlGpmMetricsGet"),
};

int nvml_api_load(void *library, struct nvml_api *api, struct ddp_err *err)
{
	size_t i;

	memset(api, 0, sizeof(*api));
	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		const struct symbol *s = &symbols[i];
		void *p = dlsym(library, s->name);

		if (!p && s->needed)
			return ddp_err_set(err, DDP_ESYS,
				"the library has no %s: not an NVML of driver 450 or later",
				s->name);
		/* POSIX lets a function's address pass through void *. */
		memcpy((char *)api + s->offset, &p, sizeof(p));
	}
	return 0;
}

const char *nvml_api_error(const struct nvml_api *api, int rc)
{
	const char *text = api->error_text ? api->error_text(rc) : NULL;

	return text ? text : "unknown error";
}
