/* SPDX-License-Identifier: Apache-2.0 */
/* NVML's functions, as found in a library: NULL is one that it lacks. */
#ifndef NVML_API_H
#define NVML_API_H

#include "accounting/nvml_abi.h"
#include "core/ddp_err.h"

struct nvml_api {
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error_text)(int rc);
	int (*driver_version)(char *buf, unsigned int size);
	int (*nvml_version)(char *buf, unsigned int size);

	int (*count)(unsigned int *n);
	int (*by_index)(unsigned int i, nv_device *dev);
	int (*by_uuid)(const char *uuid, nv_device *dev);
	int (*minor)(nv_device dev, unsigned int *minor);
	int (*uuid)(nv_device dev, char *buf, unsigned int size);
	int (*pci)(nv_device dev, struct nv_pci *pci);
	int (*is_mig)(nv_device dev, unsigned int *yes);
	int (*mig_parent)(nv_device mig, nv_device *dev);
	int (*mig_instance)(nv_device mig, unsigned int *gi);

	int (*fields)(nv_device dev, int n, struct nv_field *f);
	int (*energy)(nv_device dev, unsigned long long *mj);
	int (*util)(nv_device dev, struct nv_util *u);
	int (*pcie)(nv_device dev, int which, unsigned int *kb_s);
	int (*pcie_gen)(nv_device dev, unsigned int *gen);
	int (*pcie_width)(nv_device dev, unsigned int *lanes);

	int (*gpm_support)(nv_device dev, struct nv_gpm_support *s);
	int (*gpm_alloc)(nv_sample *s);
	int (*gpm_free)(nv_sample s);
	int (*gpm_sample)(nv_device dev, nv_sample s);
	int (*gpm_mig_sample)(nv_device dev, unsigned int gi, nv_sample s);
	int (*gpm_metrics)(struct nv_gpm_get *get);
};

/*
 * Fills *api from a library that is open (dlopen). -1 if it lacks what nothing
 * works without; *err then names it.
 */
int nvml_api_load(void *library, struct nvml_api *api, struct ddp_err *err);

/* In words; never NULL. */
const char *nvml_api_error(const struct nvml_api *api, int rc);

#endif
