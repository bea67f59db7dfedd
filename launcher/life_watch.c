/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the asynchronous errors of NCCL's communicators, ten times a second,
 * in a thread that is there as long as there are communicators. Those that
 * were made not to block are left to the program, which has to ask for their
 * state itself: asking ends a step of theirs, which two must not do at once.
 *
 * A program that asks for the errors of the others, too, may mean to abort the
 * communicator and to go on: it has GRACE_MS to do so.
 */
#include "config.h"

#include "launcher/life.h"
#include "launcher/life_comm.h"
#include "launcher/life_nccl.h"
#include "launcher/life_real.h"

#include <pthread.h>
#include <stdio.h>

#define EVERY_MS 100
#define GRACE_MS 5000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool running;
static _Atomic bool program_asks;

static const char *error_text(int error)
{
	static const char *const texts[] = {
		"no error", "a CUDA call failed", "a system call failed",
		"an internal error", "an invalid argument", "an invalid use",
		"a peer has ended or its network failed", "in progress",
	};

	return (unsigned)error < sizeof(texts) / sizeof(texts[0])
		       ? texts[error] : "unknown";
}

static void report(const struct ddp_life_comm *c, int error)
{
	struct ddp_life_cause cause = { .source = DDP_LIFE_BY_ERROR,
					.code = 1 };

	(void)snprintf(cause.text, sizeof(cause.text),
		       "NCCL: asynchronous error %d (%s) of communicator %llu",
		       error, error_text(error), (unsigned long long)c->ticket);
	ddp_life_abort_async(&cause);
}

static void look(void)
{
	int (*get)(void *, int *) = (int (*)(void *, int *))ddp_life_found(
		DDP_FN_ncclCommGetAsyncError);
	struct ddp_life_comm c;
	uint64_t after = 0;

	while (get && ddp_life_comm_pin(&after, &c)) {
		int error = 0;
		bool bad = !get(c.comm, &error) && error &&
			   error != DDP_NCCL_IN_PROGRESS;
		int64_t now = ddp_life_now(), since;

		since = ddp_life_comm_unpin(c.ticket, bad, now);
		if (since && (!atomic_load(&program_asks) ||
			      now - since >= GRACE_MS))
			report(&c, error);
	}
}

/* Ends with the last communicator; the next one starts it anew. */
static bool goes_on(void)
{
	bool more;

	(void)pthread_mutex_lock(&lock);
	more = ddp_life_comms_any();
	running = more;
	(void)pthread_mutex_unlock(&lock);
	return more;
}

static void *watch_main(void *arg)
{
	while (goes_on()) {
		int64_t until = ddp_life_now() + EVERY_MS;
		uint64_t seen = 0;

		look();
		while (ddp_life_comms_any() &&
		       ddp_life_comms_wait(&seen, until))
			;
	}
	return arg;
}

void ddp_life_watch_start(void)
{
	(void)pthread_mutex_lock(&lock);
	if (!running && ddp_life_found(DDP_FN_ncclCommGetAsyncError))
		running = !ddp_life_spawn(watch_main, NULL);
	(void)pthread_mutex_unlock(&lock);
}

void ddp_life_watch_forget(void)
{
	(void)pthread_mutex_init(&lock, NULL);
	running = false;
	atomic_store(&program_asks, false);
}

void ddp_life_watch_program(void)
{
	/* Written once: a busy loop of a program's must not share the line. */
	if (!atomic_load_explicit(&program_asks, memory_order_relaxed))
		atomic_store(&program_asks, true);
}
