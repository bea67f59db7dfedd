/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of ddp_lifecycle.h: the same order, asked for by name. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ddp_lifecycle.h"
#include "launcher/life.h"
#include "launcher/life_comm.h"
#include "launcher/life_nccl.h"
#include "launcher/life_real.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The same in MPICH and Open MPI. */
#define THREAD_MULTIPLE 3

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Finalize(void);

static _Thread_local char error[256];

/* What rank 0 tells the others. */
struct id_message {
	int rc;
	struct ddp_nccl_id id;
};

static int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(error, sizeof(error), fmt, ap);
	va_end(ap);
	return -1;
}

DDP_EXPORT const char *ddp_life_error(void)
{
	return error;
}

DDP_EXPORT enum ddp_lifecycle_state ddp_state(void)
{
	if (!ddp_life_on())
		return DDP_STATE_NONE;
	return (enum ddp_lifecycle_state)atomic_load(&ddp_life.machine.state);
}

DDP_EXPORT const char *ddp_state_name(enum ddp_lifecycle_state state)
{
	return ddp_life_state_name((enum ddp_life_state)state);
}

static int start(void)
{
	if (ddp_life_start())
		return 0;
	return fail("the life-cycle library is switched off (DDP_LIFECYCLE), or cannot start a thread");
}

DDP_EXPORT int ddp_init(int *argc, char ***argv)
{
	int (*initialized)(int *) = (int (*)(int *))ddp_life_find(
		DDP_FN_MPI_Initialized, DDP_CALLER);
	int is = 0, provided, rc;

	if (start())
		return -1;
	if (!ddp_life_is_first(DDP_FN_MPI_Init_thread))
		return fail("link -lddp_lifecycle before MPI");
	if (!ddp_life_is_first(DDP_FN_ncclCommInitRank))
		return fail("link -lddp_lifecycle before NCCL");
	if (!initialized || !ddp_life_find(DDP_FN_MPI_Init_thread, DDP_CALLER))
		return 0;
	if (initialized(&is) || is)
		return 0;
	rc = MPI_Init_thread(argc, argv, THREAD_MULTIPLE, &provided);
	return rc ? fail("MPI_Init_thread: error %d", rc) : 0;
}

/* MPI's functions with one handle in them, as they are called here. */
static int call_int(enum ddp_life_fn fn, void *comm, int *value)
{
	int (*real)(void *, int *) =
		(int (*)(void *, int *))ddp_life_find(fn, NULL);

	return real ? real(comm, value) : -1;
}

static int broadcast(void *comm, void *data, int size)
{
	int (*real)(void *, int, void *, int, void *) =
		(int (*)(void *, int, void *, int, void *))ddp_life_find(
			DDP_FN_MPI_Bcast, NULL);

	return real ? real(data, size, ddp_life_mpi_byte(), 0, comm) : -1;
}

static int unknown_mpi(void)
{
	return fail("the handles of this MPI are not known to the library: make the communicator with ncclCommInitRank(), and wait with MPI_Barrier()");
}

static int make_comm(void **nccl, void *mpi)
{
	struct id_message m;
	int rank, size, rc;

	mpi = mpi ? mpi : ddp_life_mpi_world();
	if (!mpi || !ddp_life_mpi_byte())
		return unknown_mpi();
	memset(&m, 0, sizeof(m));
	rc = call_int(DDP_FN_MPI_Comm_rank, mpi, &rank);
	if (!rc)
		rc = call_int(DDP_FN_MPI_Comm_size, mpi, &size);
	if (rc)
		return fail("MPI_Comm_rank or _size: error %d", rc);
	if (!rank)
		m.rc = ncclGetUniqueId(&m.id);
	rc = broadcast(mpi, &m, (int)sizeof(m));
	if (rc)
		return fail("MPI_Bcast of the unique id: error %d", rc);
	if (m.rc)
		return fail("ncclGetUniqueId on rank 0: error %d", m.rc);
	rc = ncclCommInitRank(nccl, size, m.id, rank);
	return rc ? fail("ncclCommInitRank: error %d", rc) : 0;
}

/* What the launch says of this process; -1: it says nothing. */
static int number_of(const char *name)
{
	const char *text = getenv(name);
	char *end = NULL;
	long n = text && *text ? strtol(text, &end, 10) : -1;

	return end && !*end && n >= 0 && n < INT32_MAX ? (int)n : -1;
}

/* Without MPI, all ranks of the step: the controller carries the id. */
static int make_world(void **nccl)
{
	static unsigned made;
	int rank = number_of("RANK"), size = number_of("WORLD_SIZE"), rc = 0;
	struct ddp_nccl_id id;
	char name[DDP_LIFE_NAME];

	if (ddp_life_link_fd() < 0)
		return fail("MPI is not initialised, and there is no agent: nothing carries NCCL's unique id (start it by srun --ddp-launch=full --ddp-lifecycle, or call MPI_Init() before)");
	if (rank < 0 || size < 1 || rank >= size)
		return fail("MPI is not initialised, and RANK and WORLD_SIZE are not set");
	(void)snprintf(name, sizeof(name), "nccl.%u", made++);
	if (!rank) {
		rc = ncclGetUniqueId(&id);
		if (rc)
			return fail("ncclGetUniqueId: error %d", rc);
		rc = ddp_life_link_put(name, &id, sizeof(id));
	} else {
		ddp_life_event(DDP_LIFE_START);
		rc = ddp_life_link_get(name, &id, sizeof(id));
	}
	if (rc)
		return fail("the node's agent is gone: nothing carries NCCL's unique id");
	rc = ncclCommInitRank(nccl, size, id, rank);
	return rc ? fail("ncclCommInitRank: error %d", rc) : 0;
}

DDP_EXPORT int ddp_comm(void **nccl, void *mpi, unsigned seconds)
{
	int rc;

	*nccl = NULL;
	if (start())
		return -1;
	if (mpi && !ddp_life_mpi_active())
		return fail("MPI is not initialised");
	if (seconds > INT32_MAX / 1000)
		return fail("%u seconds are too many", seconds);
	ddp_life_limit(seconds * 1000, "making a NCCL communicator");
	rc = ddp_life_mpi_active() ? make_comm(nccl, mpi) : make_world(nccl);
	ddp_life_limit(0, NULL);
	return rc;
}

/* Wait for the default stream, where there is CUDA. */
static int synchronize(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int (*sync)(void *) = NULL;
	int rc = 0;

	if (!cuda)
		return 0;
	*(void **)&sync = dlsym(cuda, "cuStreamSynchronize");
	if (sync)
		rc = sync(NULL);
	(void)dlclose(cuda);
	return rc;
}

static int reduce_byte(void *nccl)
{
	int (*alloc)(void **, size_t) = (int (*)(void **, size_t))
		ddp_life_find(DDP_FN_ncclMemAlloc, NULL);
	int (*release)(void *) = (int (*)(void *))
		ddp_life_find(DDP_FN_ncclMemFree, NULL);
	const struct timespec pause = { .tv_nsec = 1000000 };
	void *byte = NULL;
	int rc;

	if (!alloc || !release)
		return fail("a barrier over NCCL needs version 2.19 of it");
	rc = alloc(&byte, 1);
	if (rc)
		return fail("ncclMemAlloc: error %d", rc);
	rc = ncclAllReduce(byte, byte, 1, DDP_NCCL_UINT8, DDP_NCCL_SUM, nccl,
			   NULL);
	while (rc == DDP_NCCL_IN_PROGRESS) {
		(void)nanosleep(&pause, NULL);
		if (ncclCommGetAsyncError(nccl, &rc))
			rc = DDP_NCCL_SYSTEM_ERROR;
	}
	if (!rc)
		rc = synchronize();
	(void)release(byte);
	return rc ? fail("ncclAllReduce of the ready barrier: error %d", rc)
		  : 0;
}

static int mpi_barrier(void *mpi)
{
	int (*real)(void *) = (int (*)(void *))ddp_life_find(
		DDP_FN_MPI_Barrier, NULL);
	int rc;

	mpi = mpi ? mpi : ddp_life_mpi_world();
	if (!mpi)
		return unknown_mpi();
	rc = real ? real(mpi) : -1;
	return rc ? fail("MPI_Barrier: error %d", rc) : 0;
}

DDP_EXPORT int ddp_ready(void *mpi, void *nccl, unsigned seconds)
{
	int rc;

	if (start())
		return -1;
	if (seconds > INT32_MAX / 1000)
		return fail("%u seconds are too many", seconds);
	if (!ddp_life_mpi_active() && !nccl)
		return fail("neither MPI nor a NCCL communicator to wait over");
	ddp_life_limit(seconds * 1000, "the ready barrier");
	if (ddp_life_mpi_active())
		rc = mpi_barrier(mpi);
	else
		rc = reduce_byte(nccl);
	ddp_life_limit(0, NULL);
	if (!rc)
		ddp_life_event(DDP_LIFE_RUN);
	return rc;
}

DDP_EXPORT void ddp_abort(int code, const char *why)
{
	struct ddp_life_cause cause = { .source = DDP_LIFE_BY_API,
					.code = code & 255 };

	if (!start()) {
		(void)snprintf(cause.text, sizeof(cause.text), "%s",
			       why ? why : "ddp_abort");
		ddp_life_abort(&cause);
	}
	exit(code & 255 ? code & 255 : 1);
}

DDP_EXPORT int ddp_finalize(void)
{
	int rc;

	if (start())
		return -1;
	/* What it does besides is done without MPI as well. */
	if (ddp_life_mpi_active()) {
		rc = MPI_Finalize();
		return rc ? fail("MPI_Finalize: error %d", rc) : 0;
	}
	ddp_life_event(DDP_LIFE_STOP);
	(void)ddp_life_end_all(ddp_life.limit_ms);
	ddp_life_unseen(true);
	return 0;
}
