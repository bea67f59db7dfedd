/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGTERM and SIGINT end a process that has communicators in order. Only where
 * the program leaves the signal to the kernel: with a handler of its own, or
 * ignored, nothing changes, and a handler that it sets later replaces ours
 * (and may call ours as the one that was there before).
 */
#include "config.h"

#include "launcher/life.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static const int taken[] = { SIGTERM, SIGINT };
#define TAKEN (sizeof(taken) / sizeof(taken[0]))

static void leave_to_kernel(int sig)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };

	(void)sigaction(sig, &dfl, NULL);
}

/*
 * Only what is safe here. In a child that shares or copies our memory (vfork,
 * clone), or where the program has closed our pipe, the signal does what it
 * would do without us.
 */
static void on_signal(int sig)
{
	int saved = errno;

	if (atomic_load(&ddp_life.owner) != getpid() ||
	    ddp_life_wake((unsigned char)sig)) {
		leave_to_kernel(sig);
		(void)raise(sig);
	}
	errno = saved;
}

void ddp_life_signals_take(void)
{
	struct sigaction ours = { .sa_handler = on_signal,
				  .sa_flags = SA_RESTART }, now;

	/* The kernel spares process 1 what it has no handler for. */
	if (getpid() == 1)
		return;
	sigemptyset(&ours.sa_mask);
	for (size_t i = 0; i < TAKEN; i++)
		if (!sigaction(taken[i], NULL, &now) &&
		    !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
			(void)sigaction(taken[i], &ours, NULL);
}

void ddp_life_signals_leave(void)
{
	struct sigaction now;

	for (size_t i = 0; i < TAKEN; i++)
		if (!sigaction(taken[i], NULL, &now) &&
		    !(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_signal)
			leave_to_kernel(taken[i]);
}

void ddp_life_signals_die(int sig)
{
	sigset_t set;

	leave_to_kernel(sig);
	sigemptyset(&set);
	sigaddset(&set, sig);
	(void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	(void)raise(sig);
	_exit(128 + sig);
}
