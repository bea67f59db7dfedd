/* SPDX-License-Identifier: Apache-2.0 */
/* MIG: GPUs that are cut into devices. */
#include "config.h"

#include "tests/fakes/fake_ml.h"

FAKE_API int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *next);
FAKE_API int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count);
FAKE_API int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index,
						 void **mig);
FAKE_API int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is);
FAKE_API int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id);
FAKE_API int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id);
FAKE_API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *mig,
							  void **handle);

int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *next)
{
	struct fake_gpu *gpu;
	int code = fake_enter_gpu(FN_nvmlDeviceGetMigMode, handle, &gpu);

	if (!code && (!now || !next))
		code = ML_INVALID;
	if (!code)
		*now = *next = gpu->mig;
	return code;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count)
{
	struct fake_gpu *gpu;
	int code = fake_enter_gpu(FN_nvmlDeviceGetMaxMigDeviceCount, handle,
				  &gpu);

	if (!code && !count)
		code = ML_INVALID;
	if (!code)
		*count = gpu->mig ? FAKE_MIGS : 0;
	return code;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index,
					void **mig)
{
	struct fake_gpu *gpu;
	int code = fake_enter_gpu(FN_nvmlDeviceGetMigDeviceHandleByIndex,
				  handle, &gpu);

	if (code)
		return code;
	if (!mig || index >= FAKE_MIGS)
		return ML_INVALID;
	if (index >= gpu->nmigs)
		return ML_NOT_FOUND;
	*mig = &gpu->migs[index];
	return ML_OK;
}

int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(FN_nvmlDeviceIsMigDeviceHandle, handle,
				   &unit);

	if (!code && !is)
		code = ML_INVALID;
	if (!code)
		*is = unit->is_mig;
	return code;
}

/* A call that only a MIG device answers. */
static int enter_mig(enum fake_fn fn, void *handle, const void *out,
		     struct fake_unit **unit)
{
	int code = fake_enter_unit(fn, handle, unit);

	if (!code && !out)
		code = ML_INVALID;
	return !code && !(*unit)->is_mig ? ML_INVALID : code;
}

int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id)
{
	struct fake_unit *unit;
	int code = enter_mig(FN_nvmlDeviceGetGpuInstanceId, handle, id, &unit);

	if (!code)
		*id = unit->gi;
	return code;
}

int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id)
{
	struct fake_unit *unit;
	int code = enter_mig(FN_nvmlDeviceGetComputeInstanceId, handle, id,
			     &unit);

	if (!code)
		*id = unit->ci;
	return code;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *mig, void **handle)
{
	struct fake_unit *unit;
	int code = enter_mig(FN_nvmlDeviceGetDeviceHandleFromMigDeviceHandle,
			     mig, handle, &unit);

	if (!code)
		*handle = &unit->gpu->unit;
	return code;
}
