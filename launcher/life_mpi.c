/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI's start and end. Handles are taken as void *: a pointer in Open MPI, an
 * int in MPICH, which travels in the same register on the machines that NCCL
 * runs on. What is called with a handle of the library's own: life_mpi_abi.c.
 * Fortran's functions call the profiling interface of C's in Open MPI
 * and must be taken over themselves; where they call MPI_Init() and the like,
 * the inner call passes through.
 *
 * Not taken over: MPI's sessions, and MPI_Abort() of MPI itself after an error
 * (exit() comes by).
 */
#include "config.h"

#include "launcher/life.h"
#include "launcher/life_comm.h"
#include "launcher/life_real.h"

#include <stdio.h>
#include <stdlib.h>

enum { NOT_YET, STARTING, ACTIVE, STOPPING, STOPPED };
static _Atomic int phase;

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Finalize(void);
int MPI_Abort(void *comm, int code);
void mpi_init_(int *ierr);
void mpi_init_thread_(int *required, int *provided, int *ierr);
void mpi_finalize_(int *ierr);
void mpi_abort_(int *comm, int *code, int *ierr);
void mpi_init_f08_(int *ierr);
void mpi_init_thread_f08_(int *required, int *provided, int *ierr);
void mpi_finalize_f08_(int *ierr);
void mpi_abort_f08_(int *comm, int *code, int *ierr);

static void *find(enum ddp_life_fn fn, const char *name, void *caller)
{
	void *p = ddp_life_find(fn, caller);

	if (p)
		return p;
	ddp_life_say("%s: there is no MPI library behind libddp_lifecycle.so",
		     name);
	abort();
}
#define REAL(name) ((__typeof__(&name))find(DDP_FN_##name, #name, DDP_CALLER))

bool ddp_life_mpi_active(void)
{
	return atomic_load(&phase) == ACTIVE;
}

bool ddp_life_mpi_starting(void)
{
	return atomic_load(&phase) == STARTING;
}

void ddp_life_mpi_forget(void)
{
	atomic_store(&phase, NOT_YET);
}

/* Whether this call is to be accounted for; it is in progress then. */
static bool enter(void)
{
	if (ddp_life_self & (DDP_SELF_LIBRARY | DDP_SELF_NESTED) ||
	    !ddp_life_start())
		return false;
	ddp_life_check();
	ddp_life_self |= DDP_SELF_NESTED;
	return true;
}

static bool enter_init(void *caller)
{
	if (!enter())
		return false;
	/* Needed at the end, perhaps by another thread. */
	(void)ddp_life_find(DDP_FN_MPI_Abort, caller);
	ddp_life_mpi_look(caller);
	atomic_store(&phase, STARTING);
	ddp_life_event(DDP_LIFE_START);
	return true;
}

static void leave_init(bool entered, int rc)
{
	if (!entered)
		return;
	ddp_life_self &= ~(unsigned)DDP_SELF_NESTED;
	atomic_store(&phase, rc ? NOT_YET : ACTIVE);
	ddp_life_begun();
	ddp_life_check();
}

static bool enter_finalize(void)
{
	if (!enter())
		return false;
	ddp_life_event(DDP_LIFE_STOP);
	(void)ddp_life_end_all(ddp_life.limit_ms);
	ddp_life_unseen(true);
	ddp_life_check();
	atomic_store(&phase, STOPPING);
	return true;
}

static void leave_finalize(bool entered)
{
	if (!entered)
		return;
	ddp_life_self &= ~(unsigned)DDP_SELF_NESTED;
	atomic_store(&phase, STOPPED);
	ddp_life_check();
}

/* Returns when no communicator is left, to the one thread that ends MPI. */
static void enter_abort(int code)
{
	struct ddp_life_cause cause = { .source = DDP_LIFE_BY_USER,
					.code = code };

	if (ddp_life_self & (DDP_SELF_LIBRARY | DDP_SELF_NESTED |
			     DDP_SELF_ENDING) || !ddp_life_start())
		return;
	ddp_life_exit_check();
	(void)snprintf(cause.text, sizeof(cause.text), "MPI_Abort, code %d",
		       code);
	ddp_life_unseen(true);
	ddp_life_abort(&cause);
}

DDP_EXPORT int MPI_Init(int *argc, char ***argv)
{
	__typeof__(&MPI_Init) real = REAL(MPI_Init);
	bool entered = enter_init(DDP_CALLER);
	int rc = real(argc, argv);

	leave_init(entered, rc);
	return rc;
}

DDP_EXPORT int MPI_Init_thread(int *argc, char ***argv, int required,
			       int *provided)
{
	__typeof__(&MPI_Init_thread) real = REAL(MPI_Init_thread);
	bool entered = enter_init(DDP_CALLER);
	int rc = real(argc, argv, required, provided);

	leave_init(entered, rc);
	return rc;
}

DDP_EXPORT int MPI_Finalize(void)
{
	__typeof__(&MPI_Finalize) real = REAL(MPI_Finalize);
	bool entered = enter_finalize();
	int rc = real();

	leave_finalize(entered);
	return rc;
}

DDP_EXPORT int MPI_Abort(void *comm, int code)
{
	__typeof__(&MPI_Abort) real = REAL(MPI_Abort);

	enter_abort(code);
	return real(comm, code);
}

/* Fortran 2008's ierror is optional: NULL. */
static int value(const int *ierr)
{
	return ierr ? *ierr : 0;
}

DDP_EXPORT void mpi_init_(int *ierr)
{
	__typeof__(&mpi_init_) real = REAL(mpi_init_);
	bool entered = enter_init(DDP_CALLER);

	real(ierr);
	leave_init(entered, value(ierr));
}

DDP_EXPORT void mpi_init_f08_(int *ierr)
{
	__typeof__(&mpi_init_f08_) real = REAL(mpi_init_f08_);
	bool entered = enter_init(DDP_CALLER);

	real(ierr);
	leave_init(entered, value(ierr));
}

DDP_EXPORT void mpi_init_thread_(int *required, int *provided, int *ierr)
{
	__typeof__(&mpi_init_thread_) real = REAL(mpi_init_thread_);
	bool entered = enter_init(DDP_CALLER);

	real(required, provided, ierr);
	leave_init(entered, value(ierr));
}

DDP_EXPORT void mpi_init_thread_f08_(int *required, int *provided, int *ierr)
{
	__typeof__(&mpi_init_thread_f08_) real = REAL(mpi_init_thread_f08_);
	bool entered = enter_init(DDP_CALLER);

	real(required, provided, ierr);
	leave_init(entered, value(ierr));
}

DDP_EXPORT void mpi_finalize_(int *ierr)
{
	__typeof__(&mpi_finalize_) real = REAL(mpi_finalize_);
	bool entered = enter_finalize();

	real(ierr);
	leave_finalize(entered);
}

DDP_EXPORT void mpi_finalize_f08_(int *ierr)
{
	__typeof__(&mpi_finalize_f08_) real = REAL(mpi_finalize_f08_);
	bool entered = enter_finalize();

	real(ierr);
	leave_finalize(entered);
}

DDP_EXPORT void mpi_abort_(int *comm, int *code, int *ierr)
{
	__typeof__(&mpi_abort_) real = REAL(mpi_abort_);

	enter_abort(value(code));
	real(comm, code, ierr);
}

DDP_EXPORT void mpi_abort_f08_(int *comm, int *code, int *ierr)
{
	__typeof__(&mpi_abort_f08_) real = REAL(mpi_abort_f08_);

	enter_abort(value(code));
	real(comm, code, ierr);
}
