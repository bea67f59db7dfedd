/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp_lifecycle.h: MPI and NCCL start and stop in order. For programs that
 * are written for it; others get the same order by
 *
 *	LD_PRELOAD=libddp_lifecycle.so
 *
 * Link with -lddp_lifecycle, before -lmpi and -lnccl: the names of both that
 * it takes over must be found in it first. The library itself needs neither:
 * it takes what the program has. See ddp_lifecycle(3).
 *
 * Functions return 0, or -1 with a line of text in ddp_life_error(). All may
 * be called from any thread, but each of ddp_init(), ddp_comm(), ddp_ready()
 * and ddp_finalize() by one thread at a time, as MPI's own rules are.
 */
#ifndef DDP_LIFECYCLE_H
#define DDP_LIFECYCLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ddp_lifecycle_state {
	DDP_STATE_NONE,		/* neither MPI nor NCCL used so far */
	DDP_STATE_STARTING,	/* MPI or a communicator is initialised */
	DDP_STATE_READY,	/* that is done */
	DDP_STATE_RUNNING,	/* all are ready, or a collective was called */
	DDP_STATE_STOPPING,	/* what is left is finalized */
	DDP_STATE_ABORTING,	/* what is left is aborted; the end is near */
	DDP_STATE_GONE		/* nothing is left */
};

/* An MPI communicator as these functions take it; NULL is MPI_COMM_WORLD. */
#define DDP_MPI_COMM(comm) ((void *)(intptr_t)(comm))

/* The exit code of a process that has waited in vain. */
#define DDP_EXIT_TIMEOUT 75

/*
 * Starts the library's thread, and MPI where the program is linked with it
 * and has not initialised it: MPI_Init_thread(argc, argv,
 * MPI_THREAD_MULTIPLE). Both may be NULL. Call it once, first, from the main
 * thread. Blocks as long as MPI_Init_thread() does. Fails if the library is
 * switched off, or is found behind MPI or NCCL.
 */
int ddp_init(int *argc, char ***argv);

/*
 * Makes a NCCL communicator of all members of the MPI communicator mpi, each
 * with its rank there: rank 0's ncclGetUniqueId(), MPI_Bcast() of it, and
 * ncclCommInitRank() on the calling thread's current device. *nccl is an
 * ncclComm_t. All members must call it. Where MPI is not used, mpi is NULL and
 * the members are all ranks of the step, by RANK and WORLD_SIZE; the agents of
 * srun --ddp-launch --ddp-lifecycle carry the id. It fails without an agent.
 *
 * Blocks until all members have called it. If that takes longer than seconds
 * (0: no limit), the process ends as by ddp_abort(DDP_EXIT_TIMEOUT, …): NCCL
 * has no way back out of an initialisation that is stuck.
 */
int ddp_comm(void **nccl, void *mpi, unsigned seconds);

/*
 * The joint ready barrier: returns when all members of the communicator mpi
 * (MPI_Barrier()), or where MPI is not used of the NCCL communicator nccl
 * (an ncclAllReduce() of one byte, waited for), have called it. nccl may be
 * NULL where MPI is used. The state is "running" then.
 *
 * Blocks until then. If that takes longer than seconds (0: no limit), the
 * process ends as by ddp_abort(DDP_EXIT_TIMEOUT, …).
 */
int ddp_ready(void *mpi, void *nccl, unsigned seconds);

/*
 * Ends this process with exit code `code` (1 to 255), in order: all its NCCL
 * communicators are aborted, so that no kernel waits on the GPU, then MPI_Abort()
 * ends the other ranks, then the process. Does not return. `why` (may be NULL)
 * is printed. If the process is aborting already it has that cause's code.
 *
 * The calling thread sleeps; the library's threads act, for as long as
 * DDP_LIFECYCLE_TIMEOUT at most. Not to be called in a signal handler.
 */
void ddp_abort(int code, const char *why)
#if defined(__GNUC__)
	__attribute__((noreturn))
#endif
	;

/*
 * Finalizes and destroys all NCCL communicators that are left, each in a
 * thread of the library; those that have not ended after
 * DDP_LIFECYCLE_TIMEOUT are aborted. Then, where MPI was initialised and not
 * finalized, MPI_Finalize(), which blocks as long as it does. MPI_Finalize()
 * called by the program does the same.
 */
int ddp_finalize(void);

/* What this process is doing. Never blocks; also for signal handlers. */
enum ddp_lifecycle_state ddp_state(void);

/* "starting", "ready", … */
const char *ddp_state_name(enum ddp_lifecycle_state state);

/* Why the calling thread's last function of this header failed. */
const char *ddp_life_error(void);

#ifdef __cplusplus
}
#endif

#endif
