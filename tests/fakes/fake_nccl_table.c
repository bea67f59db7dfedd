/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All communicators of the process, also those that are gone: who may call
 * what on which, and what is a misuse.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *table;
static unsigned numbers;

static void before_fork(void)
{
	pthread_mutex_lock(&table_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&table_lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static bool gone(enum fake_state state)
{
	return state == FAKE_DESTROYED || state == FAKE_ABORTED ||
	       state == FAKE_FAILED;
}

/* Locked: one that is gone, and that no thread is in any more. */
static struct ncclComm *reusable(void)
{
	struct ncclComm *comm;
	bool free_now;

	if (!fake_flag("FAKE_NCCL_REUSE"))
		return NULL;
	for (comm = table; comm; comm = comm->next) {
		if (comm->pid != getpid())
			continue;
		pthread_mutex_lock(&comm->lock);
		free_now = gone(comm->state) && !comm->users && !comm->busy;
		pthread_mutex_unlock(&comm->lock);
		if (free_now)
			return comm;
	}
	return NULL;
}

static struct ncclComm *add(void)
{
	struct ncclComm *comm = calloc(1, sizeof(*comm));

	if (!comm)
		return NULL;
	pthread_mutex_init(&comm->lock, NULL);
	pthread_cond_init(&comm->changed, NULL);
	comm->next = table;
	table = comm;
	return comm;
}

/* Locked by its lock: as calloc() would give it. */
static int fill(struct ncclComm *comm, int rank, int nranks, bool blocking)
{
	int i;

	comm->peers = calloc((size_t)nranks, sizeof(*comm->peers));
	comm->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!comm->peers || comm->wake < 0)
		return -1;
	for (i = 0; i < nranks; i++) {
		comm->peers[i].fd = -1;
		comm->peers[i].last = &comm->peers[i].first;
		pthread_mutex_init(&comm->peers[i].writer, NULL);
	}
	comm->pid = getpid();
	comm->rank = rank;
	comm->nranks = nranks;
	comm->blocking = blocking;
	cudaGetDevice(&comm->device);
	comm->state = FAKE_STARTING;
	comm->aborted = comm->revoked = comm->stopping = comm->busy = false;
	comm->result = comm->async = ncclSuccess;
	comm->users = comm->ops = 0;
	comm->tickets = comm->serving = comm->colls = comm->ctrls = 0;
	comm->reading = false;
	comm->making = NULL;
	return 0;
}

struct ncclComm *fake_comm_new(int rank, int nranks, bool blocking)
{
	struct ncclComm *comm;
	int rc = -1;

	pthread_mutex_lock(&table_lock);
	comm = reusable();
	if (!comm)
		comm = add();
	if (comm) {
		pthread_mutex_lock(&comm->lock);
		rc = fill(comm, rank, nranks, blocking);
		comm->number = ++numbers;
		if (rc < 0)
			comm->state = FAKE_FAILED;
		pthread_mutex_unlock(&comm->lock);
	}
	pthread_mutex_unlock(&table_lock);
	return rc < 0 ? NULL : comm;
}

/* Locked on success: the communicator, if it is one of this process. */
static ncclResult_t find(const char *name, ncclComm_t wanted,
			 struct ncclComm **out)
{
	struct ncclComm *comm;

	if (!wanted) {
		fake_log(name, NULL, ncclInvalidArgument, "no communicator");
		return ncclInvalidArgument;
	}
	pthread_mutex_lock(&table_lock);
	for (comm = table; comm && comm != wanted; comm = comm->next)
		;
	pthread_mutex_unlock(&table_lock);
	if (!comm) {
		fake_misuse(name, NULL, "not a communicator");
		return ncclInvalidArgument;
	}
	if (comm->pid != getpid()) {
		/* Its locks may be held by threads that this one lacks. */
		fake_misuse(name, comm, "communicator of the parent process");
		return ncclInvalidUsage;
	}
	pthread_mutex_lock(&comm->lock);
	*out = comm;
	return ncclSuccess;
}

static const char *why_not(enum fake_state state, bool end)
{
	switch (state) {
	case FAKE_DESTROYED:
		return "after destroy";
	case FAKE_ABORTED:
		return "after abort";
	case FAKE_FAILED:
		return "after init failed";
	case FAKE_ENDING:
		return end ? "while another thread ends it" :
			"while a thread ends it";
	default:
		return NULL;
	}
}

ncclResult_t fake_comm_enter(const char *name, ncclComm_t wanted, bool ready,
			     struct ncclComm **out)
{
	struct ncclComm *comm;
	ncclResult_t result = find(name, wanted, &comm);
	const char *why;

	if (result != ncclSuccess)
		return result;
	why = why_not(comm->state, false);
	if (!why && ready && comm->busy)
		why = "before ncclCommGetAsyncError said ncclSuccess";
	if (!why && ready && comm->state == FAKE_STARTING)
		why = "before its init was done";
	if (!why && ready && comm->state >= FAKE_FINALIZING)
		why = "after finalize";
	/* Nobody can know the moment when another thread aborts. */
	if (why && comm->state == FAKE_ENDING) {
		pthread_mutex_unlock(&comm->lock);
		fake_log(name, comm, ncclInvalidUsage, why);
		return ncclInvalidUsage;
	}
	if (!why)
		comm->users++;
	pthread_mutex_unlock(&comm->lock);
	if (why) {
		fake_misuse(name, comm, why);
		fake_log(name, comm, ncclInvalidArgument, NULL);
		return ncclInvalidArgument;
	}
	*out = comm;
	return ncclSuccess;
}

ncclResult_t fake_comm_leave(const char *name, struct ncclComm *comm,
			     ncclResult_t result)
{
	fake_log(name, comm, result, NULL);
	pthread_mutex_lock(&comm->lock);
	comm->users--;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
	return result;
}

ncclResult_t fake_comm_enter_end(const char *name, ncclComm_t wanted,
				 struct ncclComm **out, enum fake_state *before)
{
	struct ncclComm *comm;
	ncclResult_t result = find(name, wanted, &comm);
	const char *why;

	if (result != ncclSuccess)
		return result;
	why = why_not(comm->state, true);
	if (!why) {
		*before = comm->state;
		comm->users++;
		comm->state = FAKE_ENDING;
	}
	pthread_mutex_unlock(&comm->lock);
	if (why) {
		fake_misuse(name, comm, why);
		fake_log(name, comm, ncclInvalidArgument, NULL);
		return ncclInvalidArgument;
	}
	*out = comm;
	return ncclSuccess;
}

ncclResult_t fake_comm_inject(const char *name, ncclComm_t wanted)
{
	struct ncclComm *comm;

	pthread_mutex_lock(&table_lock);
	for (comm = table; comm && comm != wanted; comm = comm->next)
		;
	pthread_mutex_unlock(&table_lock);
	/* One of the parent process is refused anyway. */
	if (!comm || comm->pid != getpid())
		return ncclSuccess;
	return fake_inject(name, comm);
}

void fake_comm_wake(struct ncclComm *comm)
{
	uint64_t one = 1;

	if (write(comm->wake, &one, sizeof(one)) < 0)
		fake_log("wake", comm, -1, "eventfd");
}

void fake_comm_gone(struct ncclComm *comm, enum fake_state state)
{
	pthread_mutex_lock(&comm->lock);
	comm->state = state;
	comm->users--;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
}

/* The process ends. A lock may be held for ever by then: that one is left. */
static void left(struct ncclComm *comm)
{
	struct timespec until;
	unsigned ops;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (pthread_mutex_timedlock(&comm->lock, &until) != 0) {
		fake_left("LEFT_WAITING", comm, 0);
		return;
	}
	ops = comm->ops;
	if (ops)
		fake_left("LEFT_WAITING", comm, ops);
	else if (!gone(comm->state))
		fake_left("LEFT_ALIVE", comm, 0);
	pthread_mutex_unlock(&comm->lock);
}

/*
 * Some drivers let a process not go before its kernels have ended: so with
 * FAKE_NCCL_EXIT_WAIT=1.
 */
static void exit_now(void)
{
	struct ncclComm *comm;

	for (comm = table; comm; comm = comm->next)
		if (comm->pid == getpid())
			left(comm);
	if (fake_flag("FAKE_NCCL_EXIT_WAIT"))
		cudaDeviceSynchronize();
}

__attribute__((destructor)) static void at_exit(void)
{
	exit_now();
}
