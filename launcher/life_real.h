/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real functions behind the names that the life-cycle library takes over,
 * and a few that it calls itself.
 *
 * A function is looked for when it is called first: behind this library in the
 * program's own search order, so that other libraries that take over the same
 * name still see the call; else in what the caller was linked with, for a
 * library that was opened with RTLD_LOCAL; else in a libnccl or libmpi that is
 * loaded; and at last under its profiling name (PMPI_…, pnccl…). What is
 * needed to end things is looked for when they begin (ddp_life_find_ends()):
 * the dynamic linker's lock may be held by somebody who hangs, later.
 */
#ifndef DDP_LIFE_REAL_H
#define DDP_LIFE_REAL_H

#include <stdatomic.h>

#define DDP_LIFE_FUNCTIONS(X) \
	X(ncclGetUniqueId) X(ncclCommInitRank) X(ncclCommInitRankConfig) \
	X(ncclCommInitRankScalable) X(ncclCommInitAll) X(ncclCommSplit) \
	X(ncclCommShrink) X(ncclCommGrow) X(ncclCommRevoke) \
	X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort) \
	X(ncclCommGetAsyncError) X(ncclGroupStart) X(ncclGroupEnd) \
	X(ncclReduce) X(ncclBcast) X(ncclBroadcast) X(ncclAllReduce) \
	X(ncclReduceScatter) X(ncclAllGather) X(ncclAlltoAll) X(ncclGather) \
	X(ncclScatter) X(ncclSend) X(ncclRecv) X(ncclMemAlloc) X(ncclMemFree) \
	X(MPI_Init) X(MPI_Init_thread) X(MPI_Finalize) X(MPI_Abort) \
	X(mpi_init_) X(mpi_init_thread_) X(mpi_finalize_) X(mpi_abort_) \
	X(mpi_init_f08_) X(mpi_init_thread_f08_) X(mpi_finalize_f08_) \
	X(mpi_abort_f08_) X(MPI_Initialized) X(MPI_Comm_rank) \
	X(MPI_Comm_size) X(MPI_Bcast) X(MPI_Barrier) \
	X(MPI_Get_library_version) X(PMPI_Abort) \
	X(ompi_mpi_comm_world) X(ompi_mpi_byte)

#define DDP_LIFE_ENUM(name) DDP_FN_##name,
enum ddp_life_fn { DDP_LIFE_FUNCTIONS(DDP_LIFE_ENUM) DDP_LIFE_NFN };
#undef DDP_LIFE_ENUM

extern _Atomic(void *) ddp_life_real[DDP_LIFE_NFN];

/* One that was found already, or NULL. */
static inline void *ddp_life_found(enum ddp_life_fn fn)
{
	return atomic_load_explicit(&ddp_life_real[fn], memory_order_acquire);
}

/*
 * Find it; caller is an address in the code that called, or NULL. NULL if
 * there is none. Not in signal handlers: takes the dynamic linker's lock.
 */
void *ddp_life_find(enum ddp_life_fn fn, void *caller);

/*
 * A name in the object that the function fn is in, or in what that one was
 * linked with; NULL if there is none. Takes the dynamic linker's lock.
 */
void *ddp_life_find_beside(void *fn, const char *name);

/* Whether the file that fn is in has a name that begins so. */
int ddp_life_is_in(void *fn, const char *prefix);

/* All that ends communicators, or MPI. */
void ddp_life_find_ends(void *caller);

/*
 * Whether the program's search order finds this library's name first: not if
 * it was linked behind the real one.
 */
int ddp_life_is_first(enum ddp_life_fn fn);

#endif
