/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the life-cycle library must know of NCCL's binary interface, version 2:
 * it is built where there is none. tests/life/life_abi.c compares this with
 * nccl.h where there is one. Enumerations are ints, handles are pointers.
 */
#ifndef DDP_LIFE_NCCL_H
#define DDP_LIFE_NCCL_H

#include <stddef.h>

#define DDP_NCCL_SUCCESS 0
#define DDP_NCCL_SYSTEM_ERROR 2
#define DDP_NCCL_INVALID_ARGUMENT 4
#define DDP_NCCL_INVALID_USAGE 5
#define DDP_NCCL_IN_PROGRESS 7
#define DDP_NCCL_UINT8 1
#define DDP_NCCL_SUM 0

struct ddp_nccl_id {
	char bytes[128];
};

/* The beginning of ncclConfig_t, the same since NCCL 2.14. */
struct ddp_nccl_config {
	size_t size;
	unsigned magic, version;
	int blocking;
};
#define DDP_NCCL_MAGIC 0xcafebeefU

/* Names that are interposed, with what they take and what is handed on. */
int ncclGetUniqueId(struct ddp_nccl_id *id);
int ncclCommInitRank(void **comm, int n, struct ddp_nccl_id id, int rank);
int ncclCommInitRankConfig(void **comm, int n, struct ddp_nccl_id id, int rank,
			   struct ddp_nccl_config *config);
int ncclCommInitRankScalable(void **comm, int n, int rank, int nids,
			     struct ddp_nccl_id *ids,
			     struct ddp_nccl_config *config);
int ncclCommInitAll(void **comms, int n, const int *devices);
int ncclCommSplit(void *comm, int color, int key, void **child,
		  struct ddp_nccl_config *config);
int ncclCommShrink(void *comm, int *ranks, int n, void **child,
		   struct ddp_nccl_config *config, int flags);
int ncclCommGrow(void *comm, int n, const struct ddp_nccl_id *id, int rank,
		 void **child, struct ddp_nccl_config *config);
int ncclCommRevoke(void *comm, int flags);
int ncclCommFinalize(void *comm);
int ncclCommDestroy(void *comm);
int ncclCommAbort(void *comm);
int ncclCommGetAsyncError(void *comm, int *error);
int ncclGroupStart(void);
int ncclGroupEnd(void);

int ncclReduce(const void *from, void *to, size_t n, int type, int op,
	       int root, void *comm, void *stream);
int ncclBcast(void *buf, size_t n, int type, int root, void *comm,
	      void *stream);
int ncclBroadcast(const void *from, void *to, size_t n, int type, int root,
		  void *comm, void *stream);
int ncclAllReduce(const void *from, void *to, size_t n, int type, int op,
		  void *comm, void *stream);
int ncclReduceScatter(const void *from, void *to, size_t n, int type, int op,
		      void *comm, void *stream);
int ncclAllGather(const void *from, void *to, size_t n, int type, void *comm,
		  void *stream);
int ncclAlltoAll(const void *from, void *to, size_t n, int type, void *comm,
		 void *stream);
int ncclGather(const void *from, void *to, size_t n, int type, int root,
	       void *comm, void *stream);
int ncclScatter(const void *from, void *to, size_t n, int type, int root,
		void *comm, void *stream);
int ncclSend(const void *from, size_t n, int type, int peer, void *comm,
	     void *stream);
int ncclRecv(void *to, size_t n, int type, int peer, void *comm, void *stream);

#endif
