/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NCCL's interface that the fake library offers, for programs of
 * the tests that are built without NCCL's headers. Names, values and sizes
 * are those of NCCL 2.28; tests/life/check_nccl_abi compares them with an
 * installed nccl.h. Where nccl.h was included first, only the prototypes are
 * declared once more: the compiler then says where they differ.
 */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <limits.h>
#include <stddef.h>

#include "tests/fakes/fake_cuda.h"

#ifndef NCCL_MAJOR

typedef struct ncclComm *ncclComm_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
	char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
	ncclSuccess,
	ncclUnhandledCudaError,
	ncclSystemError,
	ncclInternalError,
	ncclInvalidArgument,
	ncclInvalidUsage,
	ncclRemoteError,
	ncclInProgress,
	ncclNumResults
} ncclResult_t;

typedef enum {
	ncclSum,
	ncclProd,
	ncclMax,
	ncclMin,
	ncclAvg,
	ncclNumOps,
	ncclMaxRedOp = INT_MAX
} ncclRedOp_t;

typedef enum {
	ncclInt8,
	ncclUint8,
	ncclInt32,
	ncclUint32,
	ncclInt64,
	ncclUint64,
	ncclFloat16,
	ncclFloat32,
	ncclFloat64,
	ncclBfloat16,
	ncclFloat8e4m3,
	ncclFloat8e5m2,
	ncclNumTypes
} ncclDataType_t;

typedef enum {
	ncclScalarDevice,
	ncclScalarHostImmediate
} ncclScalarResidence_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_SHRINK_ABORT 1

/* A program of an older release passes a shorter one, and says so in size. */
typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int blocking;
	int cgaClusterSize;
	int minCTAs;
	int maxCTAs;
	const char *netName;
	int splitShare;
	int trafficClass;
	const char *commName;
	int collnetEnable;
	int CTAPolicy;
	int shrinkShare;
	int nvlsCTAs;
	int nChannelsPerNetPeer;
	int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER {					\
	.size = sizeof(ncclConfig_t),					\
	.magic = 0xcafebeef,						\
	.version = 22809,						\
	.blocking = NCCL_CONFIG_UNDEF_INT,				\
	.cgaClusterSize = NCCL_CONFIG_UNDEF_INT,			\
	.minCTAs = NCCL_CONFIG_UNDEF_INT,				\
	.maxCTAs = NCCL_CONFIG_UNDEF_INT,				\
	.netName = NULL,						\
	.splitShare = NCCL_CONFIG_UNDEF_INT,				\
	.trafficClass = NCCL_CONFIG_UNDEF_INT,				\
	.commName = NULL,						\
	.collnetEnable = NCCL_CONFIG_UNDEF_INT,				\
	.CTAPolicy = NCCL_CONFIG_UNDEF_INT,				\
	.shrinkShare = NCCL_CONFIG_UNDEF_INT,				\
	.nvlsCTAs = NCCL_CONFIG_UNDEF_INT,				\
	.nChannelsPerNetPeer = NCCL_CONFIG_UNDEF_INT,			\
	.nvlinkCentricSched = NCCL_CONFIG_UNDEF_INT,			\
}

#endif /* NCCL_MAJOR */

/*
 * Both names of each function. As in the real library ncclX is a weak alias
 * of pncclX, so that a profiler may take its place.
 */
#define FAKE_NCCL_BOTH(type, name, args)				\
	type nccl##name args;						\
	type pnccl##name args
#define FAKE_NCCL_FN(name, args) FAKE_NCCL_BOTH(ncclResult_t, name, args)

FAKE_NCCL_FN(GetVersion, (int *version));
FAKE_NCCL_FN(GetUniqueId, (ncclUniqueId *id));
FAKE_NCCL_FN(MemAlloc, (void **out, size_t size));
FAKE_NCCL_FN(MemFree, (void *memory));
FAKE_NCCL_BOTH(const char *, GetErrorString, (ncclResult_t result));
FAKE_NCCL_BOTH(const char *, GetLastError, (ncclComm_t comm));

FAKE_NCCL_FN(CommInitRank, (ncclComm_t *comm, int nranks, ncclUniqueId id,
			    int rank));
FAKE_NCCL_FN(CommInitRankConfig, (ncclComm_t *comm, int nranks,
				  ncclUniqueId id, int rank,
				  ncclConfig_t *config));
FAKE_NCCL_FN(CommInitRankScalable, (ncclComm_t *comm, int nranks, int rank,
				    int nid, ncclUniqueId *ids,
				    ncclConfig_t *config));
FAKE_NCCL_FN(CommInitAll, (ncclComm_t *comms, int ndev, const int *devices));
FAKE_NCCL_FN(CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *out,
			 ncclConfig_t *config));
FAKE_NCCL_FN(CommShrink, (ncclComm_t comm, int *exclude, int nexclude,
			  ncclComm_t *out, ncclConfig_t *config, int flags));
FAKE_NCCL_FN(CommRevoke, (ncclComm_t comm, int flags));
FAKE_NCCL_FN(CommFinalize, (ncclComm_t comm));
FAKE_NCCL_FN(CommDestroy, (ncclComm_t comm));
FAKE_NCCL_FN(CommAbort, (ncclComm_t comm));
FAKE_NCCL_FN(CommGetAsyncError, (ncclComm_t comm, ncclResult_t *error));
FAKE_NCCL_FN(CommCount, (const ncclComm_t comm, int *count));
FAKE_NCCL_FN(CommUserRank, (const ncclComm_t comm, int *rank));
FAKE_NCCL_FN(CommCuDevice, (const ncclComm_t comm, int *device));
FAKE_NCCL_FN(CommRegister, (const ncclComm_t comm, void *memory, size_t size,
			    void **handle));
FAKE_NCCL_FN(CommDeregister, (const ncclComm_t comm, void *handle));

FAKE_NCCL_FN(RedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar,
				    ncclDataType_t type,
				    ncclScalarResidence_t where,
				    ncclComm_t comm));
FAKE_NCCL_FN(RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

FAKE_NCCL_FN(AllReduce, (const void *from, void *to, size_t count,
			 ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
			 cudaStream_t stream));
FAKE_NCCL_FN(Broadcast, (const void *from, void *to, size_t count,
			 ncclDataType_t type, int root, ncclComm_t comm,
			 cudaStream_t stream));
FAKE_NCCL_FN(Bcast, (void *memory, size_t count, ncclDataType_t type, int root,
		     ncclComm_t comm, cudaStream_t stream));
FAKE_NCCL_FN(Reduce, (const void *from, void *to, size_t count,
		      ncclDataType_t type, ncclRedOp_t op, int root,
		      ncclComm_t comm, cudaStream_t stream));
FAKE_NCCL_FN(AllGather, (const void *from, void *to, size_t count,
			 ncclDataType_t type, ncclComm_t comm,
			 cudaStream_t stream));
FAKE_NCCL_FN(ReduceScatter, (const void *from, void *to, size_t count,
			     ncclDataType_t type, ncclRedOp_t op,
			     ncclComm_t comm, cudaStream_t stream));
FAKE_NCCL_FN(Send, (const void *from, size_t count, ncclDataType_t type,
		    int peer, ncclComm_t comm, cudaStream_t stream));
FAKE_NCCL_FN(Recv, (void *to, size_t count, ncclDataType_t type, int peer,
		    ncclComm_t comm, cudaStream_t stream));
FAKE_NCCL_FN(GroupStart, (void));
FAKE_NCCL_FN(GroupEnd, (void));

#endif
