/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends the communicators that are left. Each is ended by a thread of its own
 * (64 at once, more where these are stuck): aborting one may wait for a kernel
 * of another on the same device, and finalizing one for peers that do it in
 * another order. The caller only waits, and not longer than it was told to.
 */
#include "config.h"

#include "launcher/life.h"
#include "launcher/life_comm.h"
#include "launcher/life_nccl.h"
#include "launcher/life_real.h"

#include <time.h>

#define AT_ONCE 64U
#define THREADS 1024U
/* No progress for so long: what runs is stuck, the others get threads too. */
#define STUCK_MS 200
/* So long an abort waits for communicators that are being initialised. */
#define INIT_MS 100
/* How often a communicator that does not block is asked. */
#define POLL_MS 2

typedef int end_fn(void *comm);
typedef int error_fn(void *comm, int *error);

static void sleep_ms(unsigned ms)
{
	struct timespec t = { .tv_sec = ms / 1000,
			      .tv_nsec = (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&t, NULL);
}

/*
 * Until a communicator that does not block is through; rc is what the call
 * has returned. Ends too if somebody has aborted it.
 */
static int settle(const struct ddp_life_comm *c, int rc)
{
	error_fn *get = (error_fn *)ddp_life_found(
		DDP_FN_ncclCommGetAsyncError);

	while (rc == DDP_NCCL_IN_PROGRESS && get) {
		sleep_ms(POLL_MS);
		if (!ddp_life_comm_move(c->ticket, DDP_COMM_FINALIZING,
					DDP_COMM_FINALIZING) ||
		    get(c->comm, &rc))
			return DDP_NCCL_SYSTEM_ERROR;
	}
	return rc;
}

static void finalize_one(const struct ddp_life_comm *c)
{
	end_fn *finalize = (end_fn *)ddp_life_found(DDP_FN_ncclCommFinalize);
	end_fn *destroy = (end_fn *)ddp_life_found(DDP_FN_ncclCommDestroy);
	int rc = DDP_NCCL_SUCCESS;

	if (finalize && !c->finalized)
		rc = settle(c, finalize(c->comm));
	/* Aborted meanwhile: it is not there any more. */
	if (!ddp_life_comm_move(c->ticket, DDP_COMM_FINALIZING,
				DDP_COMM_DESTROYING))
		return;
	if (rc)
		ddp_life_note("communicator %llu: ncclCommFinalize: error %d",
			      (unsigned long long)c->ticket, rc);
	if (destroy)
		rc = destroy(c->comm);
	ddp_life_note("communicator %llu: destroyed (%d)",
		      (unsigned long long)c->ticket, rc);
	ddp_life_comm_ended(c->ticket);
}

static void abort_one(const struct ddp_life_comm *c)
{
	end_fn *end = (end_fn *)ddp_life_found(DDP_FN_ncclCommAbort);
	int rc = end ? end(c->comm) : DDP_NCCL_SYSTEM_ERROR;

	ddp_life_note("communicator %llu: aborted (%d)",
		      (unsigned long long)c->ticket, rc);
	ddp_life_comm_ended(c->ticket);
}

static void *finalize_worker(void *arg)
{
	struct ddp_life_comm c;

	while (ddp_life_comm_next(DDP_COMM_FINALIZING, &c))
		finalize_one(&c);
	return arg;
}

static void *abort_worker(void *arg)
{
	struct ddp_life_comm c;

	while (ddp_life_comm_next(DDP_COMM_ABORTING, &c))
		abort_one(&c);
	return arg;
}

/* Threads for n communicators, of which `made` were made already. */
static unsigned more_workers(void *(*work)(void *), unsigned n, unsigned made)
{
	n = n < AT_ONCE ? n : AT_ONCE;
	for (; n && made < THREADS; n--, made++)
		if (ddp_life_spawn(work, NULL))
			break;
	return made;
}

static int64_t sooner(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/*
 * Until nothing is left, or the time is over. What is still beginning is
 * waited for until init_until.
 */
static void run_workers(void *(*work)(void *), bool aborts, int64_t until,
			int64_t init_until)
{
	unsigned n = ddp_life_comms_untaken(aborts), before;
	unsigned made = more_workers(work, n, 0);
	int64_t now, progress = ddp_life_now();
	uint64_t seen;

	before = ~0U;
	while ((now = ddp_life_now()) < until) {
		unsigned left;

		seen = ddp_life_comms_changes();
		left = ddp_life_comms_left(now < init_until);
		if (!left)
			return;
		if (left != before)
			progress = now;
		before = left;
		n = ddp_life_comms_untaken(aborts);
		/* What has just begun has no worker yet; nor have the many. */
		if (n && (now - progress >= STUCK_MS || now < init_until)) {
			made = more_workers(work, n, made);
			progress = now;
		}
		(void)ddp_life_comms_wait(&seen, sooner(until,
			now < init_until ? init_until : now + STUCK_MS / 4));
	}
}

unsigned ddp_life_abort_all(unsigned limit_ms)
{
	int64_t now = ddp_life_now();
	unsigned left;

	atomic_fetch_or(&ddp_life.hot, DDP_HOT_ENDED);
	run_workers(abort_worker, true, now + limit_ms,
		    sooner(now + INIT_MS, now + limit_ms));
	left = ddp_life_comms_left(false);
	if (left)
		ddp_life_say("%u NCCL communicator%s did not end within %u ms of ncclCommAbort",
			     left, left == 1 ? "" : "s", limit_ms);
	ddp_life_comms_give_up();
	return left;
}

unsigned ddp_life_end_all(unsigned limit_ms)
{
	unsigned left, all = ddp_life_comms_left(false);

	if (!all)
		return 0;
	atomic_fetch_or(&ddp_life.hot, DDP_HOT_ENDED);
	ddp_life_note("ending %u NCCL communicator%s", all,
		      all == 1 ? "" : "s");
	ddp_life_comms_ending(true);
	run_workers(finalize_worker, false, ddp_life_now() + limit_ms, 0);
	ddp_life_comms_ending(false);
	left = ddp_life_comms_left(false);
	if (left) {
		ddp_life_say("%u NCCL communicator%s did not end within %u ms: aborted",
			     left, left == 1 ? "" : "s", limit_ms);
		(void)ddp_life_abort_all(limit_ms / 2);
	}
	return all;
}
