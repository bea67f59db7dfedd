/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: what a thread calls between ncclGroupStart and ncclGroupEnd is
 * done at the end. Calls that make or end communicators go on at the same
 * time, each in a thread; then the operations are launched.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdlib.h>

static _Thread_local unsigned depth;
static _Thread_local struct fake_op *ops;
static _Thread_local struct fake_job *jobs;

bool fake_group_open(void)
{
	return depth > 0;
}

void fake_group_add_op(struct fake_op *op)
{
	struct fake_op **at;

	op->next = op->more = NULL;
	for (at = &ops; *at; at = &(*at)->next)
		;
	*at = op;
}

static void *job_main(void *data)
{
	struct fake_job *job = data;

	job->result = job->run(job);
	return NULL;
}

static void job_free(struct fake_job *job)
{
	free(job->excluded);
	free(job);
}

static void *background_main(void *data)
{
	job_main(data);
	job_free(data);
	return NULL;
}

static ncclResult_t job_begin(struct fake_job *job)
{
	pthread_t thread;

	if (job->blocking) {
		job_main(job);
		return job->result;
	}
	/* From here on job is the thread's. */
	if (pthread_create(&thread, NULL, background_main, job) != 0)
		abort();
	pthread_detach(thread);
	return ncclInProgress;
}

ncclResult_t fake_job_start(const struct fake_job *given)
{
	struct fake_job *job = malloc(sizeof(*job)), **at;
	ncclResult_t result;

	if (!job)
		abort();
	*job = *given;
	job->next = NULL;
	if (depth) {
		for (at = &jobs; *at; at = &(*at)->next)
			;
		*at = job;
		return ncclSuccess;
	}
	result = job_begin(job);
	if (given->blocking)
		job_free(job);
	return result;
}

/* All blocking ones at once; the first error counts. */
static ncclResult_t run_jobs(struct fake_job *list)
{
	ncclResult_t result = ncclSuccess;
	struct fake_job *job, *next, *wait = NULL;

	for (job = list; job; job = next) {
		next = job->next;
		if (!job->blocking) {
			job_begin(job);
			result = ncclInProgress;
			continue;
		}
		if (pthread_create(&job->thread, NULL, job_main, job) != 0)
			abort();
		job->next = wait;
		wait = job;
	}
	for (job = wait; job; job = next) {
		next = job->next;
		pthread_join(job->thread, NULL);
		if (job->result != ncclSuccess &&
		    (result == ncclSuccess || result == ncclInProgress))
			result = job->result;
		job_free(job);
	}
	return result;
}

/* Sends and receives of a communicator become one operation. */
static void launch_ops(struct fake_op *list)
{
	struct fake_op *op, *next, *p2p = NULL, **at, *first;

	for (op = list; op; op = next) {
		next = op->next;
		op->next = NULL;
		if (op->fn != FAKE_SEND && op->fn != FAKE_RECV) {
			fake_op_launch(op);
			continue;
		}
		for (first = p2p; first && first->comm != op->comm;
		     first = first->next)
			;
		if (first) {
			for (at = &first->more; *at; at = &(*at)->more)
				;
			*at = op;
		} else {
			op->next = p2p;
			p2p = op;
		}
	}
	for (op = p2p; op; op = next) {
		next = op->next;
		fake_op_launch(op);
	}
}

FAKE_NCCL(GroupStart, (void))
{
	ncclResult_t result = fake_inject("ncclGroupStart", NULL);

	if (result == ncclSuccess)
		depth++;
	fake_log("ncclGroupStart", NULL, result, NULL);
	return result;
}

FAKE_NCCL(GroupEnd, (void))
{
	ncclResult_t result = fake_inject("ncclGroupEnd", NULL);
	struct fake_job *do_jobs = jobs;
	struct fake_op *do_ops = ops;

	if (!depth) {
		fake_misuse("ncclGroupEnd", NULL, "without ncclGroupStart");
		return ncclInvalidUsage;
	}
	if (--depth == 0) {
		jobs = NULL;
		ops = NULL;
		fake_log_enter("ncclGroupEnd", NULL);
		if (do_jobs)
			result = run_jobs(do_jobs);
		launch_ops(do_ops);
	}
	fake_log("ncclGroupEnd", NULL, result, NULL);
	return result;
}
