/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of NCCL's interface, printed one a line: built once with an
 * installed nccl.h (REAL_NCCL) and once without, both must print the same.
 * With it, the compiler also compares the prototypes. What nccl.h has only
 * since a release is left out before it (WITH_VERSION).
 */
#ifdef REAL_NCCL
#include <nccl.h>
#endif
#include "tests/fakes/fake_nccl.h"

#include <stdio.h>

#define SHOW(what) printf("%s %lld\n", #what, (long long)(what))
#define FIELD(name) SHOW(offsetof(ncclConfig_t, name))

static void show_config(void)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

	FIELD(size);
	FIELD(magic);
	FIELD(version);
	FIELD(blocking);
	FIELD(cgaClusterSize);
	FIELD(minCTAs);
	FIELD(maxCTAs);
	FIELD(netName);
	FIELD(splitShare);
	SHOW(config.magic);
	SHOW(config.blocking);
	SHOW(NCCL_CONFIG_UNDEF_INT);
#if WITH_VERSION >= 22800
	FIELD(trafficClass);
	FIELD(commName);
	FIELD(collnetEnable);
	FIELD(CTAPolicy);
	FIELD(shrinkShare);
	FIELD(nvlsCTAs);
	FIELD(nChannelsPerNetPeer);
	FIELD(nvlinkCentricSched);
	SHOW(sizeof(ncclConfig_t));
	SHOW(config.size);
	SHOW(NCCL_SHRINK_DEFAULT);
	SHOW(NCCL_SHRINK_ABORT);
#endif
}

static void show_types(void)
{
	SHOW(ncclInt8);
	SHOW(ncclUint8);
	SHOW(ncclInt32);
	SHOW(ncclUint32);
	SHOW(ncclInt64);
	SHOW(ncclUint64);
	SHOW(ncclFloat16);
	SHOW(ncclFloat32);
	SHOW(ncclFloat64);
	SHOW(ncclBfloat16);
	SHOW(sizeof(ncclDataType_t));
	SHOW(ncclSum);
	SHOW(ncclProd);
	SHOW(ncclMax);
	SHOW(ncclMin);
	SHOW(ncclAvg);
	SHOW(ncclNumOps);
	SHOW(ncclMaxRedOp);
	SHOW(sizeof(ncclRedOp_t));
	SHOW(ncclScalarDevice);
	SHOW(ncclScalarHostImmediate);
#if WITH_VERSION >= 22800
	SHOW(ncclFloat8e4m3);
	SHOW(ncclFloat8e5m2);
	SHOW(ncclNumTypes);
#endif
}

static void show_results(void)
{
	SHOW(ncclSuccess);
	SHOW(ncclUnhandledCudaError);
	SHOW(ncclSystemError);
	SHOW(ncclInternalError);
	SHOW(ncclInvalidArgument);
	SHOW(ncclInvalidUsage);
	SHOW(ncclRemoteError);
	SHOW(ncclInProgress);
	SHOW(ncclNumResults);
	SHOW(sizeof(ncclResult_t));
	SHOW(sizeof(ncclUniqueId));
	SHOW(_Alignof(ncclUniqueId));
	SHOW(sizeof(ncclComm_t));
	SHOW(NCCL_SPLIT_NOCOLOR);
}

static void show_cuda(void)
{
	SHOW(cudaSuccess);
	SHOW(cudaErrorInvalidValue);
	SHOW(cudaErrorMemoryAllocation);
	SHOW(cudaErrorInvalidDevice);
	SHOW(cudaErrorInvalidResourceHandle);
	SHOW(cudaErrorNotReady);
	SHOW(cudaMemcpyHostToHost);
	SHOW(cudaMemcpyDeviceToHost);
	SHOW(cudaMemcpyDefault);
	SHOW(sizeof(cudaError_t));
	SHOW(sizeof(cudaStream_t));
}

int main(void)
{
	show_results();
	show_types();
	show_config();
	show_cuda();
	return 0;
}
