/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which MPI a process has. Its functions have the same names everywhere, but
 * what MPI_COMM_WORLD and MPI_BYTE are differs, and the library must hand both
 * over where it calls MPI itself (ddp_comm(), ddp_ready(), and MPI_Abort() for
 * a cause of its own):
 *
 *	Open MPI   addresses of its variables ompi_mpi_comm_world, ompi_mpi_byte
 *	MPICH      integers, the same since MPICH 3.1 in all that is derived
 *	           from it and keeps its binary interface
 *	MPI 5.0    integers of the standard, in any libmpi_abi.so
 *
 * It is the MPI of which the program calls MPI_Init() that counts, not one that
 * happens to be loaded besides. A handle of one is a wild pointer to another,
 * so that one which is not known gets none: it is said, and then communicators
 * are ended in order, but a cause of the library's own ends this process alone,
 * by its exit code.
 */
#include "config.h"

#include "launcher/life.h"
#include "launcher/life_real.h"

#include <stdio.h>
#include <string.h>

#define MPICH_WORLD 0x44000000
#define MPICH_BYTE 0x4c00010d
#define STANDARD_WORLD 0x101
#define STANDARD_BYTE 0x247
/* MPI_MAX_LIBRARY_VERSION_STRING of MPICH; Open MPI's is shorter. */
#define VERSION_SIZE 8192

static _Atomic int abi;		/* enum ddp_life_mpi_abi */

/* Names in the version of MPIs that have MPICH's binary interface. */
static const char *const like_mpich[] = {
	"MPICH", "MVAPICH", "Intel(R) MPI", "ParaStation MPI",
};

static enum ddp_life_mpi_abi of_version(const char *version)
{
	for (size_t i = 0; i < sizeof(like_mpich) / sizeof(like_mpich[0]); i++)
		if (strstr(version, like_mpich[i]))
			return DDP_MPI_MPICH;
	return DDP_MPI_UNKNOWN;
}

static void say_unknown(const char *version)
{
	int n = (int)strcspn(version, "\r\n");

	ddp_life_say("this MPI (%.*s) is neither Open MPI nor like MPICH: NCCL is ended in order, but the library cannot call MPI_Abort itself (use the launcher's own end of a step: srun -K1)",
		     n < 80 ? n : 80, n ? version : "no version");
}

static enum ddp_life_mpi_abi look(void *caller)
{
	int (*get)(char *, int *);
	void *end = ddp_life_find(DDP_FN_PMPI_Abort, caller);
	char version[VERSION_SIZE] = "";
	enum ddp_life_mpi_abi found;
	int len = 0;

	if (!end)
		end = ddp_life_find(DDP_FN_MPI_Abort, caller);
	/* First: Open MPI's stands on a library with Open MPI's own names. */
	if (end && ddp_life_is_in(end, "libmpi_abi"))
		return DDP_MPI_STANDARD;
	if (end && ddp_life_find_beside(end, "ompi_mpi_comm_world")) {
		/* Where the program has its copy, that one is meant. */
		(void)ddp_life_find(DDP_FN_ompi_mpi_comm_world, caller);
		(void)ddp_life_find(DDP_FN_ompi_mpi_byte, caller);
		return DDP_MPI_OPEN;
	}
	/* One of the few that may be called before MPI_Init(). */
	get = (int (*)(char *, int *))ddp_life_find(
		DDP_FN_MPI_Get_library_version, caller);
	if (get && get(version, &len))
		version[0] = '\0';
	version[sizeof(version) - 1] = '\0';
	found = of_version(version);
	if (found == DDP_MPI_UNKNOWN)
		say_unknown(version);
	return found;
}

void ddp_life_mpi_look(void *caller)
{
	static const char *const names[] = {
		[DDP_MPI_OPEN] = "Open MPI", [DDP_MPI_MPICH] = "MPICH",
		[DDP_MPI_STANDARD] = "MPI's standard", [DDP_MPI_UNKNOWN] = "no",
	};
	enum ddp_life_mpi_abi found;

	if (atomic_load(&abi) != DDP_MPI_NOT_SEEN)
		return;
	found = look(caller);
	ddp_life_note("MPI with %s binary interface", names[found]);
	atomic_store(&abi, found);
}

/* The handle, by the interface; NULL where it is not known. */
static void *handle(enum ddp_life_fn open_mpi, int mpich, int standard)
{
	switch ((enum ddp_life_mpi_abi)atomic_load(&abi)) {
	case DDP_MPI_OPEN:
		return ddp_life_found(open_mpi);
	case DDP_MPI_MPICH:
		return (void *)(intptr_t)mpich;
	case DDP_MPI_STANDARD:
		return (void *)(intptr_t)standard;
	case DDP_MPI_NOT_SEEN:
	case DDP_MPI_UNKNOWN:
		break;
	}
	return NULL;
}

void *ddp_life_mpi_world(void)
{
	return handle(DDP_FN_ompi_mpi_comm_world, MPICH_WORLD, STANDARD_WORLD);
}

void *ddp_life_mpi_byte(void)
{
	return handle(DDP_FN_ompi_mpi_byte, MPICH_BYTE, STANDARD_BYTE);
}
