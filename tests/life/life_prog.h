/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs as users write them, that break where they are told to: parts that
 * life_mpi, life_nccl and life_mpi_nccl share.
 */
#ifndef LIFE_PROG_H
#define LIFE_PROG_H

#include <stdbool.h>
#include <stdint.h>

/* Where a rank is when it breaks. */
enum life_point {
	AT_NONE,
	AT_START,	/* before any call of MPI or NCCL */
	AT_BEFORE_ID,	/* MPI is up; the unique id is not known yet */
	AT_AFTER_ID,	/* all know the id; the others go into NCCL's init */
	AT_NCCL,	/* inside a collective of NCCL's */
	AT_MPI,		/* inside MPI_Allreduce */
	AT_BETWEEN,	/* between both */
	AT_FINALIZE,	/* the others destroy their communicators */
	AT_MPI_FINALIZE	/* the others are in MPI_Finalize */
};

/* How. */
enum life_kind {
	BY_KILL,	/* SIGKILL */
	BY_TERM,	/* SIGTERM */
	BY_SEGV,
	BY_ABORT,	/* abort() */
	BY_EXIT,	/* exit() with --code, without finalize */
	BY_QUICK_EXIT,	/* _exit() */
	BY_MPI_ABORT,
	BY_STALL	/* it lives, but does not go on */
};

#define LIFE_ALL (-1)

struct life {
	enum life_point at;
	enum life_kind by;
	int victim;		/* LIFE_ALL: every rank */
	bool two;		/* the rank after the victim breaks too */
	bool threaded;		/* breaks in a thread, while another is in */
	bool forget;		/* destroys no communicator */
	bool second;		/* has two communicators, and aborts one */
	int children;		/* forked after init */
	int code;
	int iteration, iterations;	/* of the fault; of all */
	const char *id_file, *pids;
	int rank, nranks;
};

int life_parse(struct life *life, int argc, char **argv);
/* Notes a process, or what happened to it, in the file of --pids. */
void life_note(const struct life *life, const char *what);
/* Breaks here, if this rank shall; threaded, while it goes on and its
 * neighbour comes late. */
void life_here(const struct life *life, enum life_point at);
/* The same, while the thread that calls goes on into what point names; the
 * rank after the victim is late, so that the victim has to wait. */
void life_inside(const struct life *life, enum life_point at, int iteration);
bool life_is_victim(const struct life *life);
/* Processes that wait for work from a pipe, as loaders of data do. */
void life_fork(const struct life *life);

/* In life_run.c. */
void life_mpi_abort(int code);

#endif
