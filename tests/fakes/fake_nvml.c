/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 that knows one MIG device, MIG-1, of the GPU at
 * 0000:30:00.0. FAKE_NVML_FAILS in the environment names the call that fails.
 * With FAKE_NVML_OLD defined it lacks a function.
 */
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

struct pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **dev);
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *mig, void **dev);
int nvmlDeviceGetPciInfo_v3(void *dev, struct pci *pci);

static int gpu, part;

/* NVML's codes are positive; 3: not supported. */
static int fails(const char *call)
{
	const char *name = getenv("FAKE_NVML_FAILS");

	return name && !strcmp(name, call) ? 3 : 0;
}

int nvmlInit_v2(void)
{
	return fails("init");
}

int nvmlShutdown(void)
{
	return fails("shutdown");
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **dev)
{
	*dev = &part;
	return strcmp(uuid, "MIG-1") ? 6 : fails("uuid");
}

#ifndef FAKE_NVML_OLD
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *mig, void **dev)
{
	*dev = &gpu;
	return mig == &part ? fails("parent") : 2;
}
#endif

int nvmlDeviceGetPciInfo_v3(void *dev, struct pci *pci)
{
	if (dev != &gpu)
		return 2;
	memset(pci, 0, sizeof(*pci));
	strcpy(pci->legacy, "0000:30:00.0");
	strcpy(pci->bus_id, "00000000:30:00.0");
	pci->bus = 0x30;
	return fails("pci");
}
