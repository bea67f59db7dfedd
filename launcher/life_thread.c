/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that acts. It sleeps on a pipe, which signal handlers and other
 * threads write to, and on the agent's socket. When there is a cause it ends
 * the process: communicators first, then MPI, then all of it.
 *
 * Time: half of DDP_LIFECYCLE_TIMEOUT for the communicators, half for MPI.
 *
 * With an agent, MPI is not asked to end the other ranks: it would have them
 * killed while they still abort their communicators. The agents end them.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/life.h"
#include "launcher/life_real.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
	int fds[2];
	dev_t dev;
	ino_t ino;
} channel = { .fds = { -1, -1 } };

static _Atomic bool acting;
/* The agent has said "abort". */
static _Atomic bool ordered;
/* Until when the API may block (ms), 0 for no limit; and in what. */
static _Atomic int64_t limit_at;
static _Atomic(const char *) limit_what;

/* No communicator is left: the thread in MPI_Abort() goes on. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
static bool is_free;

static bool is_ours(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_dev == channel.dev &&
	       st.st_ino == channel.ino;
}

/* The program may have closed it, and opened something else there. */
static bool channel_is_ours(void)
{
	return is_ours(channel.fds[0]) && is_ours(channel.fds[1]);
}

int ddp_life_wake(unsigned char byte)
{
	if (!channel_is_ours())
		return -1;
	/* A full pipe wakes as well. */
	return write(channel.fds[1], &byte, 1) == 1 || errno == EAGAIN ? 0 : -1;
}

void ddp_life_park(void)
{
	for (;;)
		(void)pause();
}

void ddp_life_check(void)
{
	if ((atomic_load(&ddp_life.hot) & DDP_HOT_ABORT) &&
	    !(ddp_life_self & (DDP_SELF_LIBRARY | DDP_SELF_ENDING)))
		ddp_life_park();
}

/* MPI_Abort() in a thread of its own: it may not return, or hang. */
static void *end_mpi(void *arg)
{
	int (*end)(void *, int) = (int (*)(void *, int))ddp_life_found(
		DDP_FN_MPI_Abort);
	int code = ddp_life_blamed(&ddp_life.machine)->code;

	ddp_life_self |= DDP_SELF_LIBRARY;
	(void)end(ddp_life_mpi_world(), code);
	_exit(code);
	return arg;
}

static void free_user(void)
{
	(void)pthread_mutex_lock(&lock);
	is_free = true;
	(void)pthread_cond_broadcast(&freed);
	(void)pthread_mutex_unlock(&lock);
}

/* Somebody ends the process now, or a signal does, or the time is over. */
static void wait_for_mpi(int code)
{
	struct pollfd p = { .fd = channel.fds[0], .events = POLLIN };
	int64_t until = ddp_life_now() + ddp_life.limit_ms / 2, now;
	unsigned char byte;

	while ((now = ddp_life_now()) < until) {
		if (poll(&p, 1, (int)(until - now)) <= 0)
			continue;
		/* MPI's launcher ends its ranks by signal. */
		if (!channel_is_ours())
			p.fd = -1;
		else if (read(p.fd, &byte, 1) == 1 && byte)
			break;
	}
	ddp_life_note("end with code %d", code);
	_exit(code);
}

/* So long the controller may take to have all ranks told. */
#define ORDER_MS 1000

/* Will the agents end all ranks? Then they say so to this one, too. */
static bool agents_end_all(const struct ddp_life_cause *cause)
{
	int64_t until = ddp_life_now() + ORDER_MS, now;
	struct ddp_life_cause order;
	struct pollfd p = { .events = POLLIN };

	if (cause->source == DDP_LIFE_BY_AGENT)
		return true;
	while (!atomic_load(&ordered) && (p.fd = ddp_life_link_fd()) >= 0 &&
	       (now = ddp_life_now()) < until)
		if (poll(&p, 1, (int)(until - now)) > 0 &&
		    ddp_life_link_read(&order))
			return true;
	return atomic_load(&ordered);
}

__attribute__((noreturn)) static void act(void)
{
	const struct ddp_life_cause *cause;

	if (atomic_exchange(&acting, true))
		ddp_life_park();
	cause = ddp_life_blamed(&ddp_life.machine);
	ddp_life_link_state(DDP_LIFE_ABORTING);
	/* Death by a signal tells itself; it may be Slurm's. */
	if (cause->source != DDP_LIFE_BY_SIGNAL)
		ddp_life_link_cause(cause);
	ddp_life_note("aborting: %s", cause->text);
	(void)ddp_life_abort_all(ddp_life.limit_ms / 2);
	ddp_life_link_state(DDP_LIFE_GONE);
	if (cause->source == DDP_LIFE_BY_SIGNAL)
		ddp_life_signals_die(cause->code);
	if (agents_end_all(cause))
		_exit(cause->code & 255 ? cause->code : 1);
	if (cause->source == DDP_LIFE_BY_USER)
		free_user();
	else if (!ddp_life_mpi_active() || !ddp_life_found(DDP_FN_MPI_Abort) ||
		 !ddp_life_mpi_world() || ddp_life_spawn(end_mpi, NULL))
		_exit(cause->code);
	wait_for_mpi(cause->code);
	_exit(cause->code);
}

static void *act_main(void *arg)
{
	ddp_life_self |= DDP_SELF_LIBRARY;
	act();
	return arg;
}

static bool blame(const struct ddp_life_cause *cause)
{
	struct ddp_life_cause c = *cause;

	/* An abort that looks like success helps nobody. */
	if (c.source != DDP_LIFE_BY_USER && !(c.code & 255))
		c.code = 1;
	if (!ddp_life_blame(&ddp_life.machine, &c))
		return false;
	atomic_fetch_or(&ddp_life.hot, DDP_HOT_ABORT);
	/* What the agent wants srun has said. */
	if (c.source == DDP_LIFE_BY_API || c.source == DDP_LIFE_BY_ERROR)
		ddp_life_say("aborting: %s", c.text);
	return true;
}

void ddp_life_abort_async(const struct ddp_life_cause *cause)
{
	/* With its pipe gone the thread does not wake: another one acts. */
	if (blame(cause) && ddp_life_wake(0) && ddp_life_spawn(act_main, NULL))
		_exit(cause->code);
}

void ddp_life_abort(const struct ddp_life_cause *cause)
{
	if (!blame(cause))
		ddp_life_park();
	if (ddp_life_wake(0) && ddp_life_spawn(act_main, NULL))
		_exit(cause->code);
	if (cause->source != DDP_LIFE_BY_USER)
		ddp_life_park();
	(void)pthread_mutex_lock(&lock);
	while (!is_free)
		(void)pthread_cond_wait(&freed, &lock);
	(void)pthread_mutex_unlock(&lock);
	ddp_life_self |= DDP_SELF_ENDING;
}

void ddp_life_limit(unsigned ms, const char *what)
{
	atomic_store(&limit_what, what);
	atomic_store(&limit_at, ms ? ddp_life_now() + ms : 0);
	(void)ddp_life_wake(0);
}

static void on_signal_byte(int sig)
{
	struct ddp_life_cause cause = { .source = DDP_LIFE_BY_SIGNAL,
					.code = sig };

	(void)snprintf(cause.text, sizeof(cause.text), "signal %d", sig);
	/* Not blamed: all has ended already, or ends for another cause. */
	if (!blame(&cause) &&
	    !(atomic_load(&ddp_life.hot) & DDP_HOT_ABORT))
		ddp_life_signals_die(sig);
}

static void on_limit(void)
{
	struct ddp_life_cause cause = { .source = DDP_LIFE_BY_API, .code = 75 };
	int64_t at = atomic_load(&limit_at);
	const char *what = atomic_load(&limit_what);

	if (!at || ddp_life_now() < at)
		return;
	(void)snprintf(cause.text, sizeof(cause.text),
		       "%s took longer than it may", what ? what : "a call");
	(void)blame(&cause);
}

static int next_wait(void)
{
	int64_t at = atomic_load(&limit_at), left;

	if (!at)
		return -1;
	left = at - ddp_life_now();
	return left < 0 ? 0 : left > 60000 ? 60000 : (int)left + 1;
}

static void *life_main(void *arg)
{
	struct pollfd p[2] = { { .events = POLLIN }, { .events = POLLIN } };
	struct ddp_life_cause cause;
	unsigned char byte;

	ddp_life_self |= DDP_SELF_LIBRARY;
	for (;;) {
		p[0].fd = channel.fds[0];
		p[1].fd = ddp_life_link_fd();
		p[0].revents = p[1].revents = 0;
		(void)poll(p, 2, next_wait());
		/* Closed by the program: others act, this one has no use. */
		if (!channel_is_ours())
			return arg;
		while ((p[0].revents & POLLIN) &&
		       read(channel.fds[0], &byte, 1) == 1)
			if (byte)
				on_signal_byte(byte);
		if (p[1].revents && ddp_life_link_read(&cause)) {
			atomic_store(&ordered, true);
			(void)blame(&cause);
		}
		on_limit();
		if (ddp_life_blamed(&ddp_life.machine))
			act();
	}
}

int ddp_life_thread_start(void)
{
	struct stat st;

	(void)pthread_mutex_init(&lock, NULL);
	(void)pthread_cond_init(&freed, NULL);
	is_free = false;
	atomic_store(&acting, false);
	atomic_store(&ordered, false);
	atomic_store(&limit_at, 0);
	if (pipe2(channel.fds, O_CLOEXEC | O_NONBLOCK))
		return -1;
	if (fstat(channel.fds[1], &st))
		goto error;
	channel.dev = st.st_dev;
	channel.ino = st.st_ino;
	if (!ddp_life_spawn(life_main, NULL))
		return 0;
error:
	ddp_life_thread_forget();
	return -1;
}

void ddp_life_thread_forget(void)
{
	for (int i = 0; i < 2; i++) {
		if (is_ours(channel.fds[i]))
			(void)close(channel.fds[i]);
		channel.fds[i] = -1;
	}
}
