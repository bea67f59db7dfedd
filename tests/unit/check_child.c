/* SPDX-License-Identifier: Apache-2.0 */
/* What a process that is to hold nothing of its parent holds. */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_child.h"
#include "tests/unit/check_main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OK, NO_DETACH, NO_SESSION, BAD_STDIO, BAD_SWAP, LEAKED, BAD_SIGNAL };

static bool same(int fd, const struct stat *want)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_dev == want->st_dev &&
		st.st_ino == want->st_ino;
}

static bool signals_default(void)
{
	sigset_t now;

	if (sigprocmask(SIG_BLOCK, NULL, &now))
		return false;
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction sa;

		if (sigismember(&now, sig) == 1 ||
		    (!sigaction(sig, NULL, &sa) && sa.sa_handler != SIG_DFL))
			return false;
	}
	return true;
}

/* The two ends of a pipe in each other's place: 4 becomes 3, and 3, 4. */
static int child(void)
{
	int p[2], q[2], fds[2] = { 4, 3 };
	struct stat null, first, second;

	if (pipe(p) || pipe(q) || fstat(p[0], &first) || fstat(q[1], &second) ||
	    stat("/dev/null", &null) || dup2(p[0], 100) < 0 ||
	    dup2(q[1], 101) < 0 || dup2(100, 4) < 0 || dup2(101, 3) < 0 ||
	    dup2(100, 200) < 0 || ddp_child_detach(fds, 2))
		return NO_DETACH;
	if (getsid(0) != getpid())
		return NO_SESSION;
	for (int i = 0; i < 3; i++)
		if (!same(i, &null))
			return BAD_STDIO;
	if (!same(3, &first) || !same(4, &second))
		return BAD_SWAP;
	for (int fd = 5; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			return LEAKED;
	return signals_default() ? OK : BAD_SIGNAL;
}

START_TEST(detach)
{
	sigset_t all;
	int status;
	pid_t pid;

	sigfillset(&all);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		(void)signal(SIGPIPE, SIG_IGN);
		(void)signal(SIGTERM, SIG_IGN);
		(void)sigprocmask(SIG_SETMASK, &all, NULL);
		_exit(child());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), OK);
}
END_TEST

START_TEST(too_many)
{
	int fds[9] = { 0 }, status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(ddp_child_detach(fds, 9) != EINVAL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { detach, too_many };

	return check_run("child", tests, CHECK_COUNT(tests), NULL);
}
