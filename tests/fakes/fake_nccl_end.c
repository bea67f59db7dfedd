/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that end communicators. Finalize waits for what was launched,
 * and for all peers to finalize too; destroy does that first where it was
 * not done; abort waits for nobody else's process.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdio.h>

void fake_revoke(struct ncclComm *comm)
{
	pthread_mutex_lock(&comm->lock);
	comm->revoked = true;
	pthread_cond_broadcast(&comm->changed);
	while (comm->ops)
		pthread_cond_wait(&comm->changed, &comm->lock);
	/* What was wrong with the operations is over with them. */
	comm->async = ncclSuccess;
	pthread_mutex_unlock(&comm->lock);
}

FAKE_NCCL(CommRevoke, (ncclComm_t wanted, int flags))
{
	struct ncclComm *comm;
	ncclResult_t result;

	result = fake_comm_enter("ncclCommRevoke", wanted, true, &comm);
	if (result != ncclSuccess)
		return result;
	fake_log_enter("ncclCommRevoke", comm);
	result = fake_inject("ncclCommRevoke", comm);
	if (result == ncclSuccess && flags != 0)
		result = ncclInvalidArgument;
	if (result == ncclSuccess)
		fake_revoke(comm);
	return fake_comm_leave("ncclCommRevoke", comm, result);
}

static bool all_fin(const struct ncclComm *comm)
{
	int i;

	for (i = 0; i < comm->nranks; i++)
		if (i != comm->rank && !comm->peers[i].fin)
			return false;
	return true;
}

/* Until nothing is left to do, here and at the peers. Operations that wait
 * for somebody who is gone are waited for. */
static ncclResult_t settle(struct ncclComm *comm)
{
	struct fake_frame fin = { .kind = FAKE_FIN };
	ncclResult_t result = ncclSuccess;
	int i;

	pthread_mutex_lock(&comm->lock);
	while (!comm->aborted && comm->ops)
		pthread_cond_wait(&comm->changed, &comm->lock);
	pthread_mutex_unlock(&comm->lock);
	for (i = 0; i < comm->nranks; i++)
		if (i != comm->rank && fake_send(comm, i, &fin, NULL) < 0)
			break;
	pthread_mutex_lock(&comm->lock);
	while (!comm->aborted && comm->async == ncclSuccess && !all_fin(comm))
		pthread_cond_wait(&comm->changed, &comm->lock);
	if (comm->aborted)
		result = ncclInternalError;
	else if (!all_fin(comm))
		result = comm->async;
	pthread_mutex_unlock(&comm->lock);
	return result;
}

static ncclResult_t finalize_run(struct fake_job *job)
{
	struct ncclComm *comm = job->comm;
	ncclResult_t result = fake_inject(job->name, comm);

	if (result == ncclSuccess)
		result = settle(comm);
	pthread_mutex_lock(&comm->lock);
	if (comm->state == FAKE_FINALIZING)
		comm->state = FAKE_FINALIZED;
	comm->busy = false;
	comm->result = result;
	pthread_mutex_unlock(&comm->lock);
	return fake_comm_leave(job->name, comm, result);
}

FAKE_NCCL(CommFinalize, (ncclComm_t wanted))
{
	struct fake_job job = {
		.run = finalize_run, .name = "ncclCommFinalize"
	};
	ncclResult_t result;

	result = fake_comm_enter(job.name, wanted, true, &job.comm);
	if (result != ncclSuccess)
		return result;
	fake_log_enter(job.name, job.comm);
	pthread_mutex_lock(&job.comm->lock);
	job.blocking = job.comm->blocking;
	if (job.comm->revoked || job.comm->state != FAKE_READY) {
		result = ncclInvalidUsage;
	} else {
		job.comm->state = FAKE_FINALIZING;
		job.comm->busy = !job.blocking;
	}
	pthread_mutex_unlock(&job.comm->lock);
	if (result != ncclSuccess)
		return fake_comm_leave(job.name, job.comm, result);
	return fake_job_start(&job);
}

/* Until no other thread is in a call, and no operation in a stream. */
static void await_others(struct ncclComm *comm)
{
	pthread_mutex_lock(&comm->lock);
	while (comm->users > 1 || comm->ops)
		pthread_cond_wait(&comm->changed, &comm->lock);
	pthread_mutex_unlock(&comm->lock);
}

static ncclResult_t destroy_run(struct fake_job *job)
{
	struct ncclComm *comm = job->comm;
	bool whole;

	pthread_mutex_lock(&comm->lock);
	whole = job->flags == FAKE_READY && !comm->revoked &&
		comm->async == ncclSuccess && comm->result == ncclSuccess;
	pthread_mutex_unlock(&comm->lock);
	if (whole)
		settle(comm);
	await_others(comm);
	fake_comm_close(comm);
	fake_log(job->name, comm, ncclSuccess, NULL);
	fake_comm_gone(comm, FAKE_DESTROYED);
	return ncclSuccess;
}

/* The end of a communicator begins, and is not the second one. */
static ncclResult_t begin_end(struct fake_job *job, ncclComm_t wanted,
			      enum fake_state *before)
{
	ncclResult_t result = fake_comm_inject(job->name, wanted);

	if (result == ncclSuccess)
		result = fake_comm_enter_end(job->name, wanted, &job->comm,
					     before);
	return result;
}

FAKE_NCCL(CommDestroy, (ncclComm_t wanted))
{
	struct fake_job job = {
		.run = destroy_run, .name = "ncclCommDestroy", .blocking = true
	};
	enum fake_state before;
	ncclResult_t result;

	if (!wanted)
		return ncclSuccess;
	result = begin_end(&job, wanted, &before);
	if (result != ncclSuccess)
		return result;
	job.flags = (int)before;
	fake_log_enter(job.name, job.comm);
	return fake_job_start(&job);
}

static ncclResult_t abort_run(struct fake_job *job)
{
	struct ncclComm *comm = job->comm;

	await_others(comm);
	fake_comm_close(comm);
	fake_log(job->name, comm, ncclSuccess, NULL);
	fake_comm_gone(comm, FAKE_ABORTED);
	return ncclSuccess;
}

/* Also in a group operations end at once; the rest comes at its end. */
FAKE_NCCL(CommAbort, (ncclComm_t wanted))
{
	struct fake_job job = {
		.run = abort_run, .name = "ncclCommAbort", .blocking = true
	};
	enum fake_state before;
	ncclResult_t result;

	if (!wanted)
		return ncclSuccess;
	result = begin_end(&job, wanted, &before);
	if (result != ncclSuccess)
		return result;
	fake_log_enter(job.name, job.comm);
	pthread_mutex_lock(&job.comm->lock);
	job.comm->aborted = true;
	if (job.comm->making) {
		pthread_mutex_lock(&job.comm->making->lock);
		job.comm->making->aborted = true;
		pthread_cond_broadcast(&job.comm->making->changed);
		fake_comm_wake(job.comm->making);
		pthread_mutex_unlock(&job.comm->making->lock);
	}
	pthread_cond_broadcast(&job.comm->changed);
	pthread_mutex_unlock(&job.comm->lock);
	fake_comm_wake(job.comm);
	return fake_job_start(&job);
}
