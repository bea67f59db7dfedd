/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An MPI library of one rank, with Open MPI's names; with MINI_CONSTANTS one
 * whose handles are numbers, as MPICH's.
 *
 *	MINI_MPI_VERSION=TEXT    what it says it is (MINI_CONSTANTS)
 *	MINI_MPI_WORLD=N, MINI_MPI_BYTE=N    what its handles are
 *	MINI_MPI_ABORT=hang      MPI_Abort() never returns
 *	MINI_MPI_ABORT=exit      it calls exit(), not _exit()
 *	MINI_MPI_BARRIER=hang    MPI_Barrier() never returns
 */
#include "mini.h"

#include <stdint.h>

/* The C names are weak, those of the profiling interface are not. */
#define MPI(type, name, params) \
	MINI_API type P##name params; \
	MINI_API __attribute__((weak, alias("P" #name))) type name params; \
	MINI_API type P##name params

#ifdef MINI_CONSTANTS
static int is_handle(void *handle, const char *name, int mpich)
{
	const char *text = getenv(name);

	/* It takes an int: the upper half of the register is anything. */
	return (int)(intptr_t)handle == (text ? (int)strtol(text, NULL, 0)
					      : mpich);
}
#define IS_WORLD(comm) is_handle(comm, "MINI_MPI_WORLD", 0x44000000)
#define IS_BYTE(type) is_handle(type, "MINI_MPI_BYTE", 0x4c00010d)
#define WORLD NULL
#else
MINI_API char ompi_mpi_comm_world[64];
MINI_API char ompi_mpi_byte[64];
#define IS_WORLD(comm) ((comm) == ompi_mpi_comm_world)
#define IS_BYTE(type) ((type) == ompi_mpi_byte)
#define WORLD ompi_mpi_comm_world
#endif

MINI_API void mpi_init_(int *ierr);
MINI_API void mpi_finalize_(int *ierr);
MINI_API void mpi_abort_(int *comm, int *code, int *ierr);

MPI(int, MPI_Init, (int *argc, char ***argv))
{
	(void)argc, (void)argv;
	mini_log("MPI_Init");
	return 0;
}

MPI(int, MPI_Init_thread, (int *argc, char ***argv, int need, int *got))
{
	(void)argc, (void)argv;
	mini_log("MPI_Init_thread %d", need);
	*got = need;
	return 0;
}

#ifdef MINI_CONSTANTS
MPI(int, MPI_Get_library_version, (char *text, int *len))
{
	const char *version = getenv("MINI_MPI_VERSION");

	*len = sprintf(text, "%.200s\n",
		       version ? version : "MPICH Version:\t4.0.2");
	return 0;
}
#endif

MPI(int, MPI_Initialized, (int *is))
{
	*is = 0;
	return 0;
}

MPI(int, MPI_Finalize, (void))
{
	mini_log("MPI_Finalize");
	return 0;
}

MPI(int, MPI_Abort, (void *comm, int code))
{
	mini_log("MPI_Abort %d%s", code,
		 IS_WORLD(comm) ? "" : " BAD comm");
	while (mini_is("MINI_MPI_ABORT", "hang"))
		(void)pause();
	if (mini_is("MINI_MPI_ABORT", "exit"))
		exit(code);
	_exit(code);
}

MPI(int, MPI_Comm_rank, (void *comm, int *rank))
{
	*rank = IS_WORLD(comm) ? 0 : -1;
	return 0;
}

MPI(int, MPI_Comm_size, (void *comm, int *size))
{
	*size = IS_WORLD(comm) ? 1 : -1;
	return 0;
}

MPI(int, MPI_Bcast, (void *buf, int n, void *type, int root, void *comm))
{
	(void)buf, (void)root;
	mini_log("MPI_Bcast %d%s", n,
		 IS_BYTE(type) && IS_WORLD(comm) ? "" : " BAD");
	return 0;
}

MPI(int, MPI_Barrier, (void *comm))
{
	(void)comm;
	mini_log("MPI_Barrier");
	while (mini_is("MINI_MPI_BARRIER", "hang"))
		(void)pause();
	return 0;
}

/* Open MPI's Fortran calls the profiling interface: nothing sees it there. */
MINI_API void mpi_init_(int *ierr)
{
	*ierr = PMPI_Init(NULL, NULL);
}

MINI_API void mpi_finalize_(int *ierr)
{
	*ierr = PMPI_Finalize();
}

MINI_API void mpi_abort_(int *comm, int *code, int *ierr)
{
	(void)comm;
	*ierr = PMPI_Abort(WORLD, *code);
}
