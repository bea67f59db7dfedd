/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher/life_nccl.h against the real nccl.h, where there is one: compiled
 * by tests/life/test_life.py, never run. Its prototypes clash with NCCL's, so
 * they are put out of the way; what they must agree on is passed by address.
 */
#define ncclGetUniqueId ddp_ncclGetUniqueId
#define ncclCommInitRank ddp_ncclCommInitRank
#define ncclCommInitRankConfig ddp_ncclCommInitRankConfig
#define ncclCommInitRankScalable ddp_ncclCommInitRankScalable
#define ncclCommInitAll ddp_ncclCommInitAll
#define ncclCommSplit ddp_ncclCommSplit
#define ncclCommShrink ddp_ncclCommShrink
#define ncclCommGrow ddp_ncclCommGrow
#define ncclCommRevoke ddp_ncclCommRevoke
#define ncclCommFinalize ddp_ncclCommFinalize
#define ncclCommDestroy ddp_ncclCommDestroy
#define ncclCommAbort ddp_ncclCommAbort
#define ncclCommGetAsyncError ddp_ncclCommGetAsyncError
#define ncclGroupStart ddp_ncclGroupStart
#define ncclGroupEnd ddp_ncclGroupEnd
#define ncclReduce ddp_ncclReduce
#define ncclBcast ddp_ncclBcast
#define ncclBroadcast ddp_ncclBroadcast
#define ncclAllReduce ddp_ncclAllReduce
#define ncclReduceScatter ddp_ncclReduceScatter
#define ncclAllGather ddp_ncclAllGather
#define ncclAlltoAll ddp_ncclAlltoAll
#define ncclGather ddp_ncclGather
#define ncclScatter ddp_ncclScatter
#define ncclSend ddp_ncclSend
#define ncclRecv ddp_ncclRecv
#include "launcher/life_nccl.h"
#undef ncclGetUniqueId
#undef ncclCommInitRank
#undef ncclCommInitRankConfig
#undef ncclCommInitRankScalable
#undef ncclCommInitAll
#undef ncclCommSplit
#undef ncclCommShrink
#undef ncclCommGrow
#undef ncclCommRevoke
#undef ncclCommFinalize
#undef ncclCommDestroy
#undef ncclCommAbort
#undef ncclCommGetAsyncError
#undef ncclGroupStart
#undef ncclGroupEnd
#undef ncclReduce
#undef ncclBcast
#undef ncclBroadcast
#undef ncclAllReduce
#undef ncclReduceScatter
#undef ncclAllGather
#undef ncclAlltoAll
#undef ncclGather
#undef ncclScatter
#undef ncclSend
#undef ncclRecv
#include <nccl.h>

#define SAME(what, a, b) _Static_assert((a) == (b), what)
SAME("id", sizeof(struct ddp_nccl_id), sizeof(ncclUniqueId));
SAME("result", sizeof(int), sizeof(ncclResult_t));
SAME("type", sizeof(int), sizeof(ncclDataType_t));
SAME("op", sizeof(int), sizeof(ncclRedOp_t));
SAME("success", DDP_NCCL_SUCCESS, ncclSuccess);
SAME("system", DDP_NCCL_SYSTEM_ERROR, ncclSystemError);
SAME("argument", DDP_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME("usage", DDP_NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME("progress", DDP_NCCL_IN_PROGRESS, ncclInProgress);
SAME("uint8", DDP_NCCL_UINT8, ncclUint8);
SAME("sum", DDP_NCCL_SUM, ncclSum);
SAME("magic", offsetof(struct ddp_nccl_config, magic),
     offsetof(ncclConfig_t, magic));
SAME("version", offsetof(struct ddp_nccl_config, version),
     offsetof(ncclConfig_t, version));
SAME("blocking", offsetof(struct ddp_nccl_config, blocking),
     offsetof(ncclConfig_t, blocking));

/* The number of parameters: a call with as many must compile. */
extern void *c, *p;
extern ncclUniqueId id;
void check(void);
void check(void)
{
	ncclComm_t one = c;

	(void)ncclCommInitRankScalable(&one, 1, 0, 1, &id, p);
	(void)ncclCommSplit(one, 0, 0, &one, p);
	(void)ncclCommInitRankConfig(&one, 1, id, 0, p);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
	(void)ncclCommShrink(one, p, 1, &one, p, 0);
	(void)ncclGather(p, p, 1, ncclUint8, 0, one, p);
	(void)ncclScatter(p, p, 1, ncclUint8, 0, one, p);
	(void)ncclAlltoAll(p, p, 1, ncclUint8, one, p);
#endif
	(void)ncclReduce(p, p, 1, ncclUint8, ncclSum, 0, one, p);
	(void)ncclBcast(p, 1, ncclUint8, 0, one, p);
	(void)ncclSend(p, 1, ncclUint8, 0, one, p);
}
