/* SPDX-License-Identifier: Apache-2.0 */
/* The library as a whole, and what identifies a GPU. See fake_ml.h. */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LEGACY_BUS = 16, BUS = 32, ARCH_AMPERE = 7, ARCH_HOPPER = 9,
	ARCH_BLACKWELL = 10 };

struct ml_pci {
	char legacy[LEGACY_BUS];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[BUS];
};

struct ml_memory {
	unsigned long long total, free, used;
};

struct ml_memory2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

_Static_assert(sizeof(struct ml_pci) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(struct ml_memory2) == 40, "nvmlMemory_v2_t");

FAKE_API int nvmlInit_v2(void);
FAKE_API int nvmlInitWithFlags(unsigned flags);
FAKE_API int nvmlShutdown(void);
FAKE_API const char *nvmlErrorString(int code);
FAKE_API int nvmlSystemGetDriverVersion(char *text, unsigned size);
FAKE_API int nvmlSystemGetNVMLVersion(char *text, unsigned size);
FAKE_API int nvmlDeviceGetCount_v2(unsigned *count);
FAKE_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle);
FAKE_API int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle);
FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **handle);
FAKE_API int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor);
FAKE_API int nvmlDeviceGetUUID(void *handle, char *text, unsigned size);
FAKE_API int nvmlDeviceGetName(void *handle, char *text, unsigned size);
FAKE_API int nvmlDeviceGetPciInfo_v3(void *handle, struct ml_pci *pci);
FAKE_API int nvmlDeviceGetArchitecture(void *handle, unsigned *arch);
FAKE_API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major,
						int *minor);
FAKE_API int nvmlDeviceGetMemoryInfo(void *handle, struct ml_memory *memory);
FAKE_API int nvmlDeviceGetMemoryInfo_v2(void *handle,
					struct ml_memory2 *memory);
FAKE_API int nvmlDeviceGetComputeRunningProcesses_v3(void *handle,
						     unsigned *count,
						     void *infos);

int nvmlInit_v2(void)
{
	return fake_init(FN_nvmlInit_v2);
}

int nvmlInitWithFlags(unsigned flags)
{
	/* 1: no GPUs is no error; 2: do not attach to them. */
	return flags > 3 ? ML_INVALID : fake_init(FN_nvmlInitWithFlags);
}

int nvmlShutdown(void)
{
	return fake_done();
}

const char *nvmlErrorString(int code)
{
	static const struct {
		int code;
		const char *text;
	} known[] = {
		{ ML_OK, "fake: no error" },
		{ ML_UNINITIALIZED, "fake: not initialised" },
		{ ML_INVALID, "fake: bad argument" },
		{ ML_NOT_SUPPORTED, "fake: not supported" },
		{ ML_NOT_FOUND, "fake: not found" },
		{ ML_SIZE, "fake: buffer too small" },
		{ ML_NO_DRIVER, "fake: no driver" },
		{ ML_LOST, "fake: GPU lost" },
		{ ML_MEMORY, "fake: no memory" },
		{ ML_NO_DATA, "fake: no data" },
		{ ML_VERSION, "fake: wrong version of an argument" },
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].code == code)
			return known[i].text;
	return "fake: some other error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
	int code = fake_enter_any(FN_nvmlSystemGetDriverVersion, NULL);

	return code ? code : fake_text(text, size, fake_scenario.driver);
}

int nvmlSystemGetNVMLVersion(char *text, unsigned size)
{
	int code = fake_enter_any(FN_nvmlSystemGetNVMLVersion, NULL);

	return code ? code : fake_text(text, size, fake_scenario.nvml);
}

/* The GPU at an index among those that are not hidden; NULL: none. */
static struct fake_gpu *visible(unsigned index, unsigned *count)
{
	struct fake_gpu *gpu = NULL;
	unsigned i;

	for (i = *count = 0; i < fake_scenario.ngpus; i++) {
		if (fake_scenario.gpu[i].hidden)
			continue;
		if ((*count)++ == index)
			gpu = &fake_scenario.gpu[i];
	}
	return gpu;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	int code = fake_enter_any(FN_nvmlDeviceGetCount_v2, NULL);

	if (!code && !count)
		code = ML_INVALID;
	if (!code)
		visible(0, count);
	return code;
}

static bool lost(const struct fake_gpu *gpu)
{
	return fake_now() >= gpu->lost;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
	unsigned count;
	struct fake_gpu *gpu = visible(index, &count);
	int code = fake_enter_any(FN_nvmlDeviceGetHandleByIndex_v2, gpu);

	if (code)
		return code;
	if (!gpu || !handle)
		return ML_INVALID;
	*handle = &gpu->unit;
	return lost(gpu) ? ML_LOST : ML_OK;
}

/* The GPU or MIG device that match()es what; NULL for none, or hidden. */
static struct fake_unit *search(bool (*match)(const struct fake_unit *,
					      const void *), const void *what)
{
	struct fake_gpu *gpu;
	unsigned i, j;

	for (i = 0; i < fake_scenario.ngpus; i++) {
		gpu = &fake_scenario.gpu[i];
		if (gpu->hidden)
			continue;
		if (match(&gpu->unit, what))
			return &gpu->unit;
		for (j = 0; j < gpu->nmigs; j++)
			if (match(&gpu->migs[j], what))
				return &gpu->migs[j];
	}
	return NULL;
}

static int found(struct fake_unit *unit, void **handle)
{
	if (!unit)
		return ML_NOT_FOUND;
	*handle = unit;
	return lost(unit->gpu) ? ML_LOST : ML_OK;
}

static bool has_uuid(const struct fake_unit *unit, const void *uuid)
{
	return !strcmp(unit->uuid, uuid);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
	struct fake_unit *unit = uuid ? search(has_uuid, uuid) : NULL;
	int code = fake_enter_any(FN_nvmlDeviceGetHandleByUUID,
				  unit ? unit->gpu : NULL);

	if (!code && (!uuid || !handle))
		code = ML_INVALID;
	return code ? code : found(unit, handle);
}

/* domain, bus and device */
static bool is_at(const struct fake_unit *unit, const void *where)
{
	const unsigned *at = where;

	return !unit->is_mig && unit->gpu->domain == at[0] &&
		unit->gpu->bus == at[1] && unit->gpu->device == at[2];
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **handle)
{
	unsigned at[3], function;
	bool good = bus && sscanf(bus, "%8x:%2x:%2x.%1x", &at[0], &at[1],
				  &at[2], &function) == 4 && !function;
	struct fake_unit *unit = good ? search(is_at, at) : NULL;
	int code = fake_enter_any(FN_nvmlDeviceGetHandleByPciBusId_v2,
				  unit ? unit->gpu : NULL);

	if (!code && (!good || !handle))
		code = ML_INVALID;
	return code ? code : found(unit, handle);
}

int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor)
{
	struct fake_gpu *gpu;
	int code = fake_enter_gpu(FN_nvmlDeviceGetMinorNumber, handle, &gpu);

	if (!code && !minor)
		code = ML_INVALID;
	if (!code)
		*minor = gpu->minor;
	return code;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlDeviceGetUUID, handle, &unit);

	return code ? code : fake_text(text, size, unit->uuid);
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlDeviceGetName, handle, &unit);
	char name[FAKE_NAME + 8];

	if (code)
		return code;
	snprintf(name, sizeof(name), "%s%s", unit->gpu->name,
		 unit->is_mig ? " MIG" : "");
	return fake_text(text, size, name);
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct ml_pci *pci)
{
	struct fake_gpu *gpu;
	int code = fake_enter_gpu(FN_nvmlDeviceGetPciInfo_v3, handle, &gpu);

	if (!code && !pci)
		code = ML_INVALID;
	if (code)
		return code;
	memset(pci, 0, sizeof(*pci));
	pci->domain = gpu->domain;
	pci->bus = gpu->bus;
	pci->device = gpu->device;
	pci->id = 0x233510de;
	/* The old form has room for four digits only. */
	snprintf(pci->legacy, sizeof(pci->legacy), "%04X:%02X:%02X.0",
		 gpu->domain & 0xffff, gpu->bus & 0xff, gpu->device & 0x1f);
	snprintf(pci->bus_id, sizeof(pci->bus_id), "%08X:%02X:%02X.0",
		 gpu->domain, gpu->bus, gpu->device);
	return ML_OK;
}

/* With NVLink 5 it is a Blackwell, with GPM a Hopper. */
static unsigned generation(const struct fake_gpu *gpu)
{
	if (gpu->nvlink & FROM_V5)
		return ARCH_BLACKWELL;
	return gpu->unit.gpm ? ARCH_HOPPER : ARCH_AMPERE;
}

int nvmlDeviceGetArchitecture(void *handle, unsigned *arch)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlDeviceGetArchitecture, handle, &unit);

	if (!code && !arch)
		code = ML_INVALID;
	if (!code)
		*arch = generation(unit->gpu);
	return code;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlDeviceGetCudaComputeCapability,
				   handle, &unit);

	if (!code && (!major || !minor))
		code = ML_INVALID;
	if (code)
		return code;
	*major = generation(unit->gpu) == ARCH_AMPERE ? 8 :
		(int)generation(unit->gpu);
	*minor = 0;
	return ML_OK;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct ml_memory *memory)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlDeviceGetMemoryInfo, handle, &unit);

	if (!code && !memory)
		code = ML_INVALID;
	if (!code)
		*memory = (struct ml_memory){ .total = 80ULL << 30,
			.free = 79ULL << 30, .used = 1ULL << 30 };
	return code;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct ml_memory2 *memory)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlDeviceGetMemoryInfo_v2, handle,
				   &unit);

	if (!code && !memory)
		code = ML_INVALID;
	/* The second version, and its size. */
	if (!code && memory->version != (sizeof(*memory) | 2U << 24))
		code = ML_VERSION;
	if (!code)
		*memory = (struct ml_memory2){ .version = memory->version,
			.total = 80ULL << 30, .reserved = 1ULL << 29,
			.free = 78ULL << 30, .used = 3ULL << 29 };
	return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count,
					    void *infos)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlDeviceGetComputeRunningProcesses_v3,
				   handle, &unit);

	(void)infos;
	if (!code && !count)
		code = ML_INVALID;
	if (!code)
		*count = 0;
	return code;
}
