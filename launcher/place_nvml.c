/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one question that only NVML answers: of which GPU a MIG device is a
 * part. The library is the driver's, loaded when a list has such a name, from
 * where the system's loader finds it (this process has no environment of the
 * user's). The declarations are NVML's published interface.
 */
#include "config.h"

#include "core/ddp_text.h"
#include "launcher/place.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void *nvml_device;

struct nvml_pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
	char room[64];		/* should it ever grow */
};

struct nvml {
	void *lib;
	int (*init)(void);
	int (*shutdown)(void);
	int (*by_uuid)(const char *uuid, nvml_device *dev);
	int (*parent)(nvml_device mig, nvml_device *dev);
	int (*pci)(nvml_device dev, struct nvml_pci *pci);
};

static int load(struct nvml *n)
{
	n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!n->lib)
		return -1;
	*(void **)&n->init = dlsym(n->lib, "nvmlInit_v2");
	*(void **)&n->shutdown = dlsym(n->lib, "nvmlShutdown");
	*(void **)&n->by_uuid = dlsym(n->lib, "nvmlDeviceGetHandleByUUID");
	*(void **)&n->parent = dlsym(n->lib, "nvmlDeviceGetDeviceHandleFrom"
				     "MigDeviceHandle");
	*(void **)&n->pci = dlsym(n->lib, "nvmlDeviceGetPciInfo_v3");
	return n->init && n->shutdown && n->by_uuid && n->parent && n->pci ?
		0 : -1;
}

/* NVML writes "00000000:3B:00.0": a longer domain than the kernel's. */
static int kernel_bus(const struct nvml_pci *pci, char *buf, size_t size)
{
	size_t pos = 0;

	if (size)
		buf[0] = '\0';
	return ddp_text_add(buf, size, &pos, "%04x:%02x:%02x.0", pci->domain,
			    pci->bus, pci->device);
}

static struct nvml nvml;
static bool asked, works;

static bool start(void)
{
	if (!asked) {
		asked = true;
		works = !load(&nvml) && !nvml.init();
	}
	return works;
}

void place_mig_end(void)
{
	if (works)
		(void)nvml.shutdown();
	if (nvml.lib)
		dlclose(nvml.lib);
	memset(&nvml, 0, sizeof(nvml));
	asked = works = false;
}

int place_mig_bus(const char *word, char *buf, size_t size)
{
	nvml_device mig, dev;
	struct nvml_pci pci;

	memset(&pci, 0, sizeof(pci));
	if (!start() || nvml.by_uuid(word, &mig) || nvml.parent(mig, &dev) ||
	    nvml.pci(dev, &pci))
		return -1;
	return kernel_bus(&pci, buf, size);
}
