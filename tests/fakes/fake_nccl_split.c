/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators made from others. The ranks tell each other over the parent
 * who comes along and where it listens; the child then has connections of
 * its own. It can be seen by the program only when it is done.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
	int32_t color, key;
	uint16_t port, zero;
};

struct plan {
	struct entry all[FAKE_MAX_RANKS];
	uint16_t ports[FAKE_MAX_RANKS];	/* by rank in the child */
	int rank, nranks;
};

static bool excluded(const struct fake_job *job, int rank)
{
	return job->excluded && job->excluded[rank];
}

/* Everybody's entry to everybody, but those who are excluded. */
static int exchange(struct fake_job *job, struct plan *plan)
{
	struct ncclComm *parent = job->parent;
	struct fake_frame head = {
		.kind = FAKE_CTRL, .size = sizeof(plan->all[0])
	};
	int i;

	pthread_mutex_lock(&parent->lock);
	head.tag = parent->ctrls++;
	pthread_mutex_unlock(&parent->lock);
	for (i = 0; i < parent->nranks; i++)
		if (i != parent->rank && !excluded(job, i) &&
		    fake_send(parent, i, &head, &plan->all[parent->rank]) < 0)
			return -1;
	for (i = 0; i < parent->nranks; i++)
		if (i != parent->rank && !excluded(job, i) &&
		    fake_wait_ctrl(parent, i, head.tag, &plan->all[i],
				   sizeof(plan->all[i])) < 0)
			return -1;
	return 0;
}

/* Ordered by key, then by rank in the parent. */
static bool before(const struct plan *plan, int a, int b)
{
	if (plan->all[a].key != plan->all[b].key)
		return plan->all[a].key < plan->all[b].key;
	return a < b;
}

static void arrange(struct fake_job *job, struct plan *plan)
{
	int i, j, place, n = job->parent->nranks, me = job->parent->rank;

	for (i = 0; i < n; i++) {
		if (excluded(job, i) || plan->all[i].color != job->color)
			continue;
		for (place = 0, j = 0; j < n; j++)
			if (!excluded(job, j) &&
			    plan->all[j].color == job->color &&
			    before(plan, j, i))
				place++;
		plan->ports[place] = plan->all[i].port;
		if (i == me)
			plan->rank = place;
		plan->nranks++;
	}
}

/* While the child is made, who aborts the parent ends that too. */
static bool set_making(struct ncclComm *parent, struct ncclComm *child)
{
	bool aborted;

	pthread_mutex_lock(&parent->lock);
	aborted = parent->aborted;
	parent->making = child;
	pthread_mutex_unlock(&parent->lock);
	return !aborted;
}

static ncclResult_t make(struct fake_job *job, struct plan *plan, int listener)
{
	struct ncclComm *child = fake_comm_new(plan->rank, plan->nranks,
					       job->parent->blocking);
	ncclResult_t result = ncclInternalError;

	if (!child)
		return ncclSystemError;
	child->users = 1;
	child->device = job->parent->device;
	/* The same for all of a color, and another for each call. */
	child->cookie = job->parent->cookie * 6364136223846793005u +
		(job->parent->ctrls << 32 | (uint32_t)job->color);
	if (set_making(job->parent, child))
		result = fake_mesh(child, listener, plan->ports);
	set_making(job->parent, NULL);
	if (result == ncclSuccess)
		*job->out = child;
	fake_init_done(job->name, child, result, true, job->out);
	return result;
}

static ncclResult_t run(struct fake_job *job)
{
	struct plan *plan = calloc(1, sizeof(*plan));
	struct ncclComm *parent = job->parent;
	struct entry *own = plan ? &plan->all[parent->rank] : NULL;
	ncclResult_t result = fake_inject(job->name, parent);
	int listener = -1;

	if (result != ncclSuccess)
		goto out;
	result = ncclSystemError;
	if (!plan || (listener = fake_listen(&own->port)) < 0)
		goto out;
	own->color = job->color;
	own->key = job->key;
	result = ncclInternalError;
	if (exchange(job, plan) < 0)
		goto out;
	arrange(job, plan);
	result = job->color == NCCL_SPLIT_NOCOLOR ? ncclSuccess :
		make(job, plan, listener);
out:
	if (listener >= 0)
		close(listener);
	free(plan);
	pthread_mutex_lock(&parent->lock);
	if (result != ncclSuccess && parent->async != ncclSuccess)
		result = parent->async;
	parent->busy = false;
	parent->result = result;
	pthread_mutex_unlock(&parent->lock);
	return fake_comm_leave(job->name, parent, result);
}

static ncclResult_t start(struct fake_job *job, ncclComm_t comm)
{
	ncclResult_t result = fake_comm_enter(job->name, comm, true,
					      &job->parent);

	if (result != ncclSuccess)
		return result;
	*job->out = NULL;
	job->run = run;
	pthread_mutex_lock(&comm->lock);
	job->blocking = comm->blocking;
	comm->busy = !comm->blocking;
	pthread_mutex_unlock(&comm->lock);
	fake_log_enter(job->name, comm);
	return ncclSuccess;
}

FAKE_NCCL(CommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *out,
		      ncclConfig_t *config))
{
	struct fake_job job = {
		.name = "ncclCommSplit", .out = out, .color = color, .key = key
	};
	ncclResult_t result;

	(void)config;
	if (!out || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
		return ncclInvalidArgument;
	result = start(&job, comm);
	return result != ncclSuccess ? result : fake_job_start(&job);
}

/* Who is left out; false: not a list of others' ranks. */
static bool *read_list(const struct ncclComm *comm, const int *list, int count)
{
	bool *out = calloc((size_t)comm->nranks, sizeof(*out));
	int i;

	for (i = 0; out && i < count; i++) {
		if (list[i] < 0 || list[i] >= comm->nranks ||
		    list[i] == comm->rank) {
			free(out);
			return NULL;
		}
		out[list[i]] = true;
	}
	return out;
}

FAKE_NCCL(CommShrink, (ncclComm_t comm, int *exclude, int nexclude,
		       ncclComm_t *out, ncclConfig_t *config, int flags))
{
	struct fake_job job = {
		.name = "ncclCommShrink", .out = out, .flags = flags
	};
	ncclResult_t result;

	(void)config;
	if (!out || !exclude || nexclude < 1 ||
	    (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT))
		return ncclInvalidArgument;
	result = start(&job, comm);
	if (result != ncclSuccess)
		return result;
	job.excluded = read_list(comm, exclude, nexclude);
	if (!job.excluded) {
		pthread_mutex_lock(&comm->lock);
		comm->busy = false;
		pthread_mutex_unlock(&comm->lock);
		return fake_comm_leave(job.name, comm, ncclInvalidArgument);
	}
	if (flags == NCCL_SHRINK_ABORT)
		fake_revoke(comm);
	return fake_job_start(&job);
}
