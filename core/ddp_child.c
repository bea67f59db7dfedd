/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Without close_range(), Linux before 5.9: so many tried one by one. */
#define TRIED 65536

void ddp_child_close_from(int first)
{
#ifdef SYS_close_range
	if (!syscall(SYS_close_range, first, ~0U, 0))
		return;
#endif
	for (int fd = first; fd < TRIED; fd++)
		(void)close(fd);
}

void ddp_child_signals(void)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		(void)sigaction(sig, &dfl, NULL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

int ddp_child_detach(const int *fds, unsigned n)
{
	int high[8], null;

	(void)setsid();
	if (n > sizeof(high) / sizeof(high[0]))
		return EINVAL;
	null = open("/dev/null", O_RDWR);
	if (null < 0)
		return errno;
	/* Above their places, so that none is in the way of another; no higher:
	 * a user's limit may be low. */
	for (unsigned i = 0; i < n; i++)
		if ((high[i] = fcntl(fds[i], F_DUPFD, 3 + (int)n)) < 0)
			return errno;
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return errno;
	for (unsigned i = 0; i < n; i++)
		if (dup2(high[i], 3 + (int)i) < 0)
			return errno;
	ddp_child_close_from(3 + (int)n);
	ddp_child_signals();
	return 0;
}
