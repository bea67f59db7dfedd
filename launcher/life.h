/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libddp_lifecycle.so: how its files go together.
 *
 *	life_mpi.c, life_nccl.c,   the names that programs call; what the call
 *	life_coll.c, life_api.c    means for the tables below
 *	life_real.c                the functions behind them
 *	life_mpi_abi.c             whose MPI it is: what its handles are
 *	life_comm*.c               the table of communicators
 *	life_state.c               states and the first cause
 *	life_end.c                 ends what is in the table, within a time
 *	life_thread.c              the thread that acts
 *	life_watch.c               the thread that reads asynchronous errors
 *	life_signal.c              handlers
 *	life_link.c                the socket to the agent
 *	life_left.c                ranks that leave while others wait for them
 *	life_start.c               settings, start, fork, exit
 *	life_unseen.c              a NCCL whose calls do not come by here
 *
 * Rules that hold in all of them:
 *
 * - Nothing happens before the program calls MPI or NCCL: no thread, no
 *   handler, no descriptor. A forked child owns nothing until it does the same.
 * - No lock is held while a function of MPI or NCCL runs.
 * - A communicator is ended by whoever moves it out of its stage in the table:
 *   once.
 * - Who wants an abort sets the cause and sleeps. One thread acts, and never
 *   calls MPI or NCCL itself: threads that may get stuck do, and it has a
 *   deadline for them.
 */
#ifndef DDP_LIFE_INTERNAL_H
#define DDP_LIFE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/ddp_life.h"

#define DDP_EXPORT __attribute__((visibility("default")))
#define DDP_CALLER __builtin_return_address(0)

/* --- states (life_state.c) ------------------------------------------------ */
enum ddp_life_event {
	DDP_LIFE_START,		/* MPI or a communicator begins */
	DDP_LIFE_BEGUN,		/* nothing is beginning any more */
	DDP_LIFE_RUN,		/* a collective */
	DDP_LIFE_STOP,		/* MPI_Finalize, exit() */
	DDP_LIFE_ABORT,
	DDP_LIFE_END,		/* nothing is left */
	DDP_LIFE_NEVENTS
};

enum ddp_life_source {
	DDP_LIFE_BY_USER,	/* MPI_Abort: its own thread ends MPI */
	DDP_LIFE_BY_API,	/* ddp_abort(), or a limit of the API's */
	DDP_LIFE_BY_ERROR,	/* NCCL's asynchronous error */
	DDP_LIFE_BY_AGENT,
	DDP_LIFE_BY_SIGNAL	/* code is the signal's number */
};

struct ddp_life_cause {
	enum ddp_life_source source;
	int code;
	char text[DDP_LIFE_TEXT];
};

struct ddp_life_machine {
	_Atomic int state;		/* enum ddp_life_state */
	_Atomic int cause_set;		/* 1: being written, 2: there */
	struct ddp_life_cause cause;
};

/* Where an event leads to; the same state where it changes nothing. */
enum ddp_life_state ddp_life_next(enum ddp_life_state state,
				  enum ddp_life_event event);

/* Takes the event; from any thread. Returns whether the state has changed. */
bool ddp_life_take(struct ddp_life_machine *m, enum ddp_life_event event);

/*
 * Keeps the first cause and makes the state ABORTING. Returns whether it was
 * the first; false too if all is over already.
 */
bool ddp_life_blame(struct ddp_life_machine *m,
		    const struct ddp_life_cause *cause);

/* The first cause, or NULL if there is none (yet). */
const struct ddp_life_cause *ddp_life_blamed(struct ddp_life_machine *m);

/* --- the process (life_start.c) ------------------------------------------- */
/* Why collectives may not just go on; 0 while all is well. */
enum {
	DDP_HOT_FIRST = 1,	/* not seen to run yet */
	DDP_HOT_ABORT = 2,	/* aborting: threads sleep */
	DDP_HOT_ENDED = 4,	/* we have ended communicators */
	DDP_HOT_LEFT = 8	/* a rank has left: see ddp_life_left() */
};

struct ddp_life {
	_Atomic pid_t owner;	/* who has started it; else nobody's */
	_Atomic unsigned hot;
	struct ddp_life_machine machine;
	unsigned limit_ms;	/* DDP_LIFECYCLE_TIMEOUT */
	unsigned world_size;	/* WORLD_SIZE; 0: not known */
	/* The first communicator of so many ranks, as long as it lives, and
	 * the collectives that were called on it. */
	_Atomic(void *) world;
	_Atomic uint64_t calls;
	bool verbose;
};
extern struct ddp_life ddp_life;

/* What a thread is to the library. */
enum {
	DDP_SELF_LIBRARY = 1,	/* its own thread: calls pass through */
	DDP_SELF_ENDING = 2,	/* a thread of the program that ends MPI */
	DDP_SELF_NESTED = 4,	/* in an MPI call that is accounted for */
	DDP_SELF_EXITING = 8	/* in exit() */
};
extern _Thread_local unsigned ddp_life_self
	__attribute__((tls_model("initial-exec")));

/* Starts what is needed, once a process. False: switched off, or no way to. */
bool ddp_life_start(void);
/* Whether it is started, in this process. */
bool ddp_life_on(void);
/*
 * Another thread ends the process by exit() with a failure, for which all
 * communicators were aborted: what this one sees of that shall not decide the
 * exit code. Waits, bounded, since a handler of exit() may wait for it.
 */
void ddp_life_exit_check(void);
/* Once more, so that it runs before what CUDA registers. */
void ddp_life_at_exit(void);

int64_t ddp_life_now(void);	/* ms, the monotonic clock */
/* One line on stderr; and the same only with DDP_LIFECYCLE_VERBOSE. */
void ddp_life_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void ddp_life_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A detached thread of the library, all signals blocked. 0 or -1. */
int ddp_life_spawn(void *(*run)(void *), void *arg);

/* An event of the machine; tells the agent if the state has changed. */
void ddp_life_event(enum ddp_life_event event);
/* STARTING to READY, if neither MPI nor a communicator is being initialised. */
void ddp_life_begun(void);

/* --- ranks that leave (life_left.c) ---------------------------------------- */
/* A communicator of n ranks is there, or comm has ended. */
void ddp_life_world_begun(void *comm, int n);
void ddp_life_world_ended(void *comm);
/* exit(0): tell the agent if others may wait for this process in vain. */
void ddp_life_leave(void);
/* Another process has left after so many collectives. */
void ddp_life_left(uint64_t count);
/* Tell the agent, once, if this one has called more than that. */
void ddp_life_left_look(void);
void ddp_life_left_forget(void);

/* --- the acting thread (life_thread.c) ------------------------------------ */
/* Creates it, with its pipe. 0 or -1. */
int ddp_life_thread_start(void);
/* In a forked child: nothing of it is there. */
void ddp_life_thread_forget(void);
/* Async-signal-safe: 0, or -1 if the pipe is not ours any more. */
int ddp_life_wake(unsigned char byte);
/* From ms from now on the process is aborted as too late; 0 takes it back. */
void ddp_life_limit(unsigned ms, const char *what);

/*
 * Abort for this cause. The caller sleeps until the process is gone; for
 * DDP_LIFE_BY_USER it returns, when no communicator is left, to end MPI.
 */
void ddp_life_abort(const struct ddp_life_cause *cause);
/* The same for one that cannot wait. */
void ddp_life_abort_async(const struct ddp_life_cause *cause);
/* Sleep: this thread must not go on while another ends the process. */
void ddp_life_park(void) __attribute__((noreturn));
/* Park, if the process is being aborted, in a thread of the program. */
void ddp_life_check(void);

/* --- MPI (life_mpi.c) ----------------------------------------------------- */
bool ddp_life_mpi_active(void);		/* from MPI_Init to Finalize */
bool ddp_life_mpi_starting(void);
void ddp_life_mpi_forget(void);

/* --- which MPI (life_mpi_abi.c) ------------------------------------------- */
enum ddp_life_mpi_abi {
	DDP_MPI_NOT_SEEN,
	DDP_MPI_OPEN,		/* Open MPI */
	DDP_MPI_MPICH,		/* MPICH and what is derived from it */
	DDP_MPI_STANDARD,	/* that of MPI 5.0 */
	DDP_MPI_UNKNOWN
};
/*
 * Finds it out, once a process; caller is an address in the code that calls
 * MPI_Init(). One that is not known is said. Not in signal handlers.
 */
void ddp_life_mpi_look(void *caller);
/* MPI_COMM_WORLD as the library takes it; NULL where it is not known. */
void *ddp_life_mpi_world(void);
/* MPI_BYTE likewise. */
void *ddp_life_mpi_byte(void);

/* --- ending (life_end.c) -------------------------------------------------- */
/*
 * Finalize and destroy every communicator, abort what has not ended at the
 * deadline (it may take half as long again). Returns how many were left.
 */
unsigned ddp_life_end_all(unsigned limit_ms);
/* Abort every communicator. Returns how many have not ended in time. */
unsigned ddp_life_abort_all(unsigned limit_ms);

/* --- signals (life_signal.c) ---------------------------------------------- */
/* SIGTERM and SIGINT, where the program leaves them to the kernel. */
void ddp_life_signals_take(void);
/* The kernel's again, where they are still ours. */
void ddp_life_signals_leave(void);
/* End this process by a signal, as without the library. */
void ddp_life_signals_die(int sig) __attribute__((noreturn));

/* --- asynchronous errors (life_watch.c) ----------------------------------- */
/* Runs as long as there are communicators. */
void ddp_life_watch_start(void);
void ddp_life_watch_forget(void);
/* The program asks itself, and may want to go on after an error. */
void ddp_life_watch_program(void);

/* --- the agent (life_link.c) ---------------------------------------------- */
/* Connects, where DDP_LIFECYCLE_SOCKET is set. */
void ddp_life_link_open(void);
/* To be polled for reading; -1 if there is none. */
int ddp_life_link_fd(void);
/* Never blocks; what does not fit is lost with the link. */
void ddp_life_link_state(enum ddp_life_state state);
void ddp_life_link_cause(const struct ddp_life_cause *cause);
void ddp_life_link_left(uint64_t count, bool mpi);
void ddp_life_link_waits(uint64_t count);
/*
 * A value for the whole step, once a name; and one that a process of it has
 * put or will put: get blocks until it is there. 0, or -1: there is no agent
 * (any more), or the value has another size.
 */
int ddp_life_link_put(const char *name, const void *value, size_t size);
int ddp_life_link_get(const char *name, void *value, size_t size);
/* Reads what there is. True: the agent wants an abort, *cause tells why. */
bool ddp_life_link_read(struct ddp_life_cause *cause);
void ddp_life_link_forget(void);

/* --- a NCCL behind our back (life_unseen.c) ------------------------------- */
/* Says so, once. deep: looks into files, too; only in a program with MPI. */
void ddp_life_unseen(bool deep);

#endif
