/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that make communicators from unique ids.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_MAGIC 0xcafebeef

FAKE_NCCL(GetUniqueId, (ncclUniqueId *id))
{
	ncclResult_t result = fake_inject("ncclGetUniqueId", NULL);

	if (result == ncclSuccess)
		result = id ? fake_id_make(id) : ncclInvalidArgument;
	fake_log("ncclGetUniqueId", NULL, result, NULL);
	return result;
}

/* Whether init shall block; a shorter config is an older program's. */
static ncclResult_t read_config(const ncclConfig_t *config, bool *blocking)
{
	if (!config)
		return ncclSuccess;
	if (config->magic != CONFIG_MAGIC)
		return ncclInvalidArgument;
	if (config->size < offsetof(ncclConfig_t, blocking) + sizeof(int) ||
	    config->blocking == NCCL_CONFIG_UNDEF_INT)
		return ncclSuccess;
	if (config->blocking != 0 && config->blocking != 1)
		return ncclInvalidArgument;
	*blocking = config->blocking;
	return ncclSuccess;
}

/* Another thread may look at it, to abort an init that hangs. */
static void set_out(ncclComm_t *out, ncclComm_t comm)
{
	__atomic_store_n(out, comm, __ATOMIC_RELEASE);
}

void fake_init_done(const char *name, struct ncclComm *comm,
		    ncclResult_t result, bool blocking, ncclComm_t *out)
{
	bool failed = false;

	pthread_mutex_lock(&comm->lock);
	if (result == ncclSuccess && comm->aborted)
		result = ncclInternalError;
	comm->result = result;
	comm->busy = false;
	if (result == ncclSuccess)
		comm->state = FAKE_READY;
	/* Of a blocking init that fails nothing is left, unless somebody
	 * aborts it: then that one frees it. */
	else if (comm->state == FAKE_STARTING && blocking) {
		comm->state = FAKE_FAILED;
		failed = true;
	}
	pthread_mutex_unlock(&comm->lock);
	if (result == ncclSuccess)
		fake_inject_async(comm);
	if (failed)
		fake_comm_close(comm);
	if (result != ncclSuccess && blocking)
		set_out(out, NULL);
	fake_comm_leave(name, comm, result);
}

static ncclResult_t init_run(struct fake_job *job)
{
	ncclResult_t result = fake_inject(job->name, job->comm);

	if (result == ncclSuccess)
		result = fake_boot(job->comm, &job->id);
	fake_init_done(job->name, job->comm, result, job->blocking, job->out);
	return result;
}

/* device: -1 is the thread's. */
static ncclResult_t init(const char *name, ncclComm_t *out, int nranks,
			 const ncclUniqueId *id, int rank, bool blocking,
			 int device)
{
	struct fake_job job = {
		.run = init_run, .name = name, .out = out, .id = *id,
		.blocking = blocking
	};

	if (!out || nranks < 1 || nranks > FAKE_MAX_RANKS || rank < 0 ||
	    rank >= nranks)
		return ncclInvalidArgument;
	job.comm = fake_comm_new(rank, nranks, blocking);
	if (!job.comm)
		return ncclSystemError;
	if (device >= 0)
		job.comm->device = device;
	/* Nobody else knows it yet. */
	job.comm->users = 1;
	job.comm->busy = !blocking;
	set_out(out, job.comm);
	fake_log_enter(name, job.comm);
	return fake_job_start(&job);
}

FAKE_NCCL(CommInitRank, (ncclComm_t *comm, int nranks, ncclUniqueId id,
			 int rank))
{
	return init("ncclCommInitRank", comm, nranks, &id, rank, true, -1);
}

FAKE_NCCL(CommInitRankConfig, (ncclComm_t *comm, int nranks, ncclUniqueId id,
			       int rank, ncclConfig_t *config))
{
	bool blocking = true;
	ncclResult_t result = read_config(config, &blocking);

	if (result != ncclSuccess)
		return result;
	return init("ncclCommInitRankConfig", comm, nranks, &id, rank,
		    blocking, -1);
}

/* One rendezvous is enough here. */
FAKE_NCCL(CommInitRankScalable, (ncclComm_t *comm, int nranks, int rank,
				 int nid, ncclUniqueId *ids,
				 ncclConfig_t *config))
{
	bool blocking = true;
	ncclResult_t result = read_config(config, &blocking);

	if (result != ncclSuccess)
		return result;
	if (nid < 1 || nid > nranks || !ids)
		return ncclInvalidArgument;
	return init("ncclCommInitRankScalable", comm, nranks, &ids[0], rank,
		    blocking, -1);
}

FAKE_NCCL(CommInitAll, (ncclComm_t *comms, int ndev, const int *devices))
{
	ncclResult_t result = ncclSuccess, ended;
	ncclUniqueId id;
	int i, count;

	cudaGetDeviceCount(&count);
	if (!comms || ndev < 1 || ndev > count)
		return ncclInvalidArgument;
	result = fake_id_make(&id);
	if (result != ncclSuccess)
		return result;
	pncclGroupStart();
	for (i = 0; i < ndev && result == ncclSuccess; i++)
		result = init("ncclCommInitAll", &comms[i], ndev, &id, i, true,
			      devices ? devices[i] : i);
	ended = pncclGroupEnd();
	return result == ncclSuccess ? ended : result;
}
