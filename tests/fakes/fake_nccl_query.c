/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that only ask, and those for memory.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdlib.h>

/* FAKE_NCCL_VERSION, or that of the interface. */
FAKE_NCCL(GetVersion, (int *version))
{
	const char *text = getenv("FAKE_NCCL_VERSION");
	ncclResult_t result = fake_inject("ncclGetVersion", NULL);

	if (result == ncclSuccess && !version)
		result = ncclInvalidArgument;
	if (result == ncclSuccess)
		*version = text ? atoi(text) : 22809;
	return result;
}

FAKE_TWO(const char *, GetErrorString, (ncclResult_t result))
{
	static const char *const texts[] = {
		[ncclSuccess] = "no error",
		[ncclUnhandledCudaError] = "fake: CUDA error",
		[ncclSystemError] = "fake: system error",
		[ncclInternalError] = "fake: internal error",
		[ncclInvalidArgument] = "fake: invalid argument",
		[ncclInvalidUsage] = "fake: invalid usage",
		[ncclRemoteError] = "fake: a remote process is gone",
		[ncclInProgress] = "fake: in progress"
	};

	return (unsigned)result < ncclNumResults ? texts[result] :
		"fake: not a result";
}

FAKE_TWO(const char *, GetLastError, (ncclComm_t comm))
{
	(void)comm;
	return "fake: see FAKE_NCCL_LOG";
}

FAKE_NCCL(CommGetAsyncError, (ncclComm_t wanted, ncclResult_t *error))
{
	static const char name[] = "ncclCommGetAsyncError";
	struct ncclComm *comm;
	ncclResult_t result;

	if (!error)
		return ncclInvalidArgument;
	result = fake_comm_enter(name, wanted, false, &comm);
	if (result != ncclSuccess)
		return result;
	result = fake_inject(name, comm);
	pthread_mutex_lock(&comm->lock);
	*error = comm->busy ? ncclInProgress :
		 comm->result != ncclSuccess ? comm->result : comm->async;
	comm->users--;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
	/* Called so often that it is not logged. */
	return result;
}

enum what { COUNT, RANK, DEVICE };

static ncclResult_t ask(const char *name, ncclComm_t wanted, enum what what,
			int *out)
{
	struct ncclComm *comm;
	ncclResult_t result;

	result = fake_comm_enter(name, wanted, false, &comm);
	if (result != ncclSuccess)
		return result;
	result = fake_inject(name, comm);
	if (result == ncclSuccess && !out)
		result = ncclInvalidArgument;
	if (result == ncclSuccess)
		*out = what == COUNT ? comm->nranks :
		       what == RANK ? comm->rank : comm->device;
	return fake_comm_leave(name, comm, result);
}

FAKE_NCCL(CommCount, (const ncclComm_t comm, int *count))
{
	return ask("ncclCommCount", comm, COUNT, count);
}

FAKE_NCCL(CommUserRank, (const ncclComm_t comm, int *rank))
{
	return ask("ncclCommUserRank", comm, RANK, rank);
}

FAKE_NCCL(CommCuDevice, (const ncclComm_t comm, int *device))
{
	return ask("ncclCommCuDevice", comm, DEVICE, device);
}

FAKE_NCCL(MemAlloc, (void **out, size_t size))
{
	ncclResult_t result = fake_inject("ncclMemAlloc", NULL);

	if (result == ncclSuccess && !out)
		result = ncclInvalidArgument;
	if (result == ncclSuccess && cudaMalloc(out, size) != cudaSuccess)
		result = ncclUnhandledCudaError;
	fake_log("ncclMemAlloc", NULL, result, NULL);
	return result;
}

FAKE_NCCL(MemFree, (void *memory))
{
	ncclResult_t result = fake_inject("ncclMemFree", NULL);

	if (result == ncclSuccess)
		free(memory);
	fake_log("ncclMemFree", NULL, result, NULL);
	return result;
}

/* Host memory needs no registration: the handle is the memory. */
FAKE_NCCL(CommRegister, (const ncclComm_t wanted, void *memory, size_t size,
			 void **handle))
{
	struct ncclComm *comm;
	ncclResult_t result;

	result = fake_comm_enter("ncclCommRegister", wanted, true, &comm);
	if (result != ncclSuccess)
		return result;
	result = fake_inject("ncclCommRegister", comm);
	if (result == ncclSuccess && (!memory || !size || !handle))
		result = ncclInvalidArgument;
	if (result == ncclSuccess)
		*handle = memory;
	return fake_comm_leave("ncclCommRegister", comm, result);
}

FAKE_NCCL(CommDeregister, (const ncclComm_t wanted, void *handle))
{
	struct ncclComm *comm;
	ncclResult_t result;

	(void)handle;
	result = fake_comm_enter("ncclCommDeregister", wanted, false, &comm);
	if (result != ncclSuccess)
		return result;
	result = fake_inject("ncclCommDeregister", comm);
	return fake_comm_leave("ncclCommDeregister", comm, result);
}
