/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start, fork and exit. A process is started by its first call of MPI or NCCL
 * that matters.
 *
 * exit() with communicators left: after success (code 0) they are finalized
 * and destroyed as in MPI_Finalize(), since peers may still need what this
 * process has sent; but not for long, since a rank that ends early is often
 * the fault itself. After a failure they are aborted at once. The exit code
 * stays the program's. MPI is left as it is: to finalize it is a collective,
 * and its launcher notices.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/life.h"
#include "launcher/life_comm.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S 10
#define LIMIT_MAX_S 3600
/* Of a finalize that the program has not asked for. */
#define EXIT_MS 300U
/* Longest wait of other threads for an exit() that goes on. */
#define FAILING_S 1

struct ddp_life ddp_life;
_Thread_local unsigned ddp_life_self
	__attribute__((tls_model("initial-exec")));

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t refused;	/* the process that has found it off */
static _Atomic bool exiting;
static _Atomic bool failing;	/* in it, with communicators aborted */
static bool fork_known;
static pid_t loaded_by;

int64_t ddp_life_now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void __attribute__((format(printf, 2, 0)))
print(const char *head, const char *fmt, va_list ap)
{
	char line[DDP_LIFE_LINE];
	int n = snprintf(line, sizeof(line), "slurm-ddp: %s", head), m;

	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	if (m < 0)
		return;
	n = n + m < (int)sizeof(line) - 1 ? n + m : (int)sizeof(line) - 2;
	line[n++] = '\n';
	/* One write, past stdio's locks: others may hold them for good. */
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

void ddp_life_say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print("", fmt, ap);
	va_end(ap);
}

void ddp_life_note(const char *fmt, ...)
{
	char head[32];
	va_list ap;

	if (!ddp_life.verbose)
		return;
	(void)snprintf(head, sizeof(head), "life %d: ", (int)getpid());
	va_start(ap, fmt);
	print(head, fmt, ap);
	va_end(ap);
}

int ddp_life_spawn(void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	if (pthread_attr_init(&attr))
		return -1;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	/* Signals are for the program's threads, as without this library. */
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, &attr, run, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return rc ? -1 : 0;
}

void ddp_life_event(enum ddp_life_event event)
{
	(void)pthread_mutex_lock(&event_lock);
	if (ddp_life_take(&ddp_life.machine, event)) {
		enum ddp_life_state state = (enum ddp_life_state)
			atomic_load(&ddp_life.machine.state);

		ddp_life_note("%s", ddp_life_state_name(state));
		ddp_life_link_state(state);
	}
	(void)pthread_mutex_unlock(&event_lock);
}

void ddp_life_begun(void)
{
	if (!ddp_life_comms_starting() && !ddp_life_mpi_starting())
		ddp_life_event(DDP_LIFE_BEGUN);
}

/* All that a process has of the library, as if it had never been started. */
static void forget(void)
{
	atomic_store(&ddp_life.owner, 0);
	atomic_store(&ddp_life.hot, DDP_HOT_FIRST);
	memset(&ddp_life.machine.cause, 0, sizeof(ddp_life.machine.cause));
	atomic_store(&ddp_life.machine.state, DDP_LIFE_NONE);
	atomic_store(&ddp_life.machine.cause_set, 0);
	atomic_store(&exiting, false);
	atomic_store(&failing, false);
	ddp_life_self = 0;
	ddp_life_left_forget();
	(void)pthread_mutex_init(&event_lock, NULL);
	ddp_life_comms_reset();
	ddp_life_watch_forget();
	ddp_life_mpi_forget();
}

/*
 * The child has none of the threads, so locks may be held for good; and its
 * descriptors are the parent's pipe and socket, which it must not touch.
 */
static void in_child(void)
{
	(void)pthread_mutex_init(&start_lock, NULL);
	if (!atomic_load(&ddp_life.owner))
		return;
	ddp_life_signals_leave();
	ddp_life_thread_forget();
	ddp_life_link_forget();
	forget();
}

void ddp_life_exit_check(void)
{
	struct timespec t = { .tv_sec = FAILING_S };

	if (atomic_load(&failing) && !(ddp_life_self &
	    (DDP_SELF_LIBRARY | DDP_SELF_EXITING)))
		(void)nanosleep(&t, NULL);
}

static void at_exit(int status, void *arg)
{
	(void)arg;
	if (!ddp_life_on())
		return;
	if (atomic_load(&ddp_life.hot) & DDP_HOT_ABORT) {
		if (ddp_life_self & DDP_SELF_ENDING)
			return;
		/* exit() of MPI_Abort() in a thread of ours: what the program
		 * has registered is not meant to run there. */
		if (ddp_life_self & DDP_SELF_LIBRARY)
			_exit(status);
		ddp_life_park();
	}
	if (atomic_exchange(&exiting, true)) {
		ddp_life_exit_check();
		return;
	}
	ddp_life_self |= DDP_SELF_EXITING;
	if (!status)
		ddp_life_leave();
	if (ddp_life_comms_left(false)) {
		ddp_life_event(DDP_LIFE_STOP);
		ddp_life_note("exit(%d) with communicators left", status);
		atomic_store(&failing, status != 0);
		if (status)
			(void)ddp_life_abort_all(ddp_life.limit_ms / 2);
		else
			(void)ddp_life_end_all(ddp_life.limit_ms < EXIT_MS ?
					       ddp_life.limit_ms : EXIT_MS);
	}
	ddp_life_unseen(true);
	/* A signal or another cause has come meanwhile: that is how it ends. */
	ddp_life_check();
	ddp_life_event(DDP_LIFE_END);
}

void ddp_life_at_exit(void)
{
	static _Atomic bool again;

	if (!atomic_exchange(&again, true))
		(void)on_exit(at_exit, NULL);
}

static bool is_off(void)
{
	const char *text = getenv("DDP_LIFECYCLE");

	return getauxval(AT_SECURE) ||
	       (text && (!strcmp(text, "off") || !strcmp(text, "no") ||
			 !strcmp(text, "0")));
}

static void read_settings(void)
{
	const char *text = getenv("DDP_LIFECYCLE_TIMEOUT");
	const char *verbose = getenv("DDP_LIFECYCLE_VERBOSE");
	char *end = NULL;
	double s = text && *text ? strtod(text, &end) : LIMIT_S;

	if (end && (*end || !(s >= 0.1 && s <= LIMIT_MAX_S))) {
		ddp_life_say("DDP_LIFECYCLE_TIMEOUT=%.32s: not a number of seconds from 0.1 to %d; it is %d",
			     text, LIMIT_MAX_S, LIMIT_S);
		s = LIMIT_S;
	}
	ddp_life.limit_ms = (unsigned)(s * 1000);
	ddp_life.verbose = verbose && *verbose && strcmp(verbose, "0");
}

/* With start_lock held. */
static bool start(void)
{
	static bool exit_known;
	pid_t self = getpid();

	if (is_off())
		return false;
	/* A child of clone() comes here with its parent's state. */
	if (atomic_load(&ddp_life.owner))
		in_child();
	forget();
	read_settings();
	if (!fork_known && pthread_atfork(NULL, NULL, in_child))
		return false;
	fork_known = true;
	if (ddp_life_thread_start()) {
		ddp_life_say("cannot start a thread: MPI and NCCL are not ended in order");
		return false;
	}
	ddp_life_link_open();
	if (!exit_known)
		exit_known = !on_exit(at_exit, NULL);
	atomic_store(&ddp_life.owner, self);
	(void)ddp_life_wake(0);
	ddp_life_signals_take();
	return true;
}

bool ddp_life_on(void)
{
	pid_t owner = atomic_load(&ddp_life.owner);

	return owner && owner == getpid();
}

bool ddp_life_start(void)
{
	bool good;

	if (ddp_life_on())
		return true;
	if (atomic_load(&refused) == getpid())
		return false;
	(void)pthread_mutex_lock(&start_lock);
	good = ddp_life_on() || start();
	if (!good)
		atomic_store(&refused, getpid());
	(void)pthread_mutex_unlock(&start_lock);
	return good;
}

__attribute__((constructor)) static void at_load(void)
{
	loaded_by = getpid();
	atomic_store(&ddp_life.hot, DDP_HOT_FIRST);
}

/* Where nothing was ever called: a NCCL that is not seen may be why. */
__attribute__((destructor)) static void at_unload(void)
{
	if (!atomic_load(&ddp_life.owner) && loaded_by == getpid() &&
	    !is_off())
		ddp_life_unseen(false);
}
