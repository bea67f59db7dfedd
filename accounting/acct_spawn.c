/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler is nobody's child here: a child of slurmstepd would get the
 * user's `scancel --signal`, would be counted among the step's processes, and
 * slurmstepd's main thread would wait for it as for a task. So two processes
 * are forked. The first one is made without SIGCHLD, so that a wait for any
 * child passes over it, forks the second one, says its pid, and ends once a
 * pidfd of it is open here.
 *
 * All in between is system calls alone: other threads of slurmstepd may hold
 * any lock.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct.h"
#include "accounting/gpu_path.h"
#include "core/ddp_child.h"
#include "core/ddp_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 2000

static pid_t raw_fork(int sig)
{
	return (pid_t)syscall(SYS_clone, (unsigned long)sig, 0, 0, 0, 0);
}

/*
 * Root in all ids, not only in some: slurmstepd's threads have the user's for
 * moments, and this one may have been forked in such a one. The system calls
 * themselves: the C library's would want to do it in threads that are not here.
 */
static int be_root(void)
{
	return syscall(SYS_setresuid, 0, 0, 0) ||
		syscall(SYS_setresgid, 0, 0, 0) ||
		syscall(SYS_setgroups, 0, NULL) ? errno : 0;
}

/* The second process. */
static void run_sampler(int shm, int control, char *const argv[])
{
	static char *const no_env[] = { NULL };
	const int fds[] = { shm, control };
	int error = ddp_child_detach(fds, 2);

	if (!error)
		error = be_root();
	if (!error) {
		execve(argv[0], argv, no_env);
		error = errno;
	}
	/* Descriptor 4 is the control socket, if we came so far. */
	(void)!write(4, &error, sizeof(error));
	_exit(127);
}

/* The first process. */
static void run_between(int boot, int shm, int control, char *const argv[])
{
	pid_t pid = raw_fork(SIGCHLD);
	char byte;

	if (!pid)
		run_sampler(shm, control, argv);
	(void)!write(boot, &pid, sizeof(pid));
	(void)!read(boot, &byte, 1);
	_exit(0);
}

/* Waits for the word of the process between, and for the pidfd of the second. */
static int take_pidfd(int boot, struct acct_sampler *s)
{
	struct pollfd p = { .fd = boot, .events = POLLIN };
	int64_t end = ddp_io_now_ms() + START_MS;
	int rc;

	do
		rc = poll(&p, 1, (int)(end - ddp_io_now_ms()));
	while (rc < 0 && errno == EINTR && ddp_io_now_ms() < end);
	if (rc != 1 ||
	    read(boot, &s->pid, sizeof(s->pid)) != sizeof(s->pid) ||
	    s->pid <= 0) {
		errno = ETIMEDOUT;
		return -1;
	}
	s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
	if (s->pidfd < 0)
		s->pidfd = fcntl(s->control, F_DUPFD_CLOEXEC, 0);
	return s->pidfd < 0 ? -1 : 0;
}

static int fork_twice(int shm, int control, char *const argv[],
		      struct acct_sampler *s)
{
	int boot[2], rc, saved;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, boot))
		return -1;
	pid = raw_fork(0);
	if (!pid) {
		close(boot[0]);
		run_between(boot[1], shm, control, argv);
	}
	rc = pid < 0 ? -1 : 0;
	saved = errno;
	close(boot[1]);
	if (!rc && (rc = take_pidfd(boot[0], s)))
		saved = errno;
	close(boot[0]);		/* and lets it end */
	while (pid > 0 && waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
		;
	errno = saved;
	return rc;
}

int acct_sampler_start(struct acct_sampler *s, char *const argv[],
		       struct ddp_err *err)
{
	char resolved[PATH_MAX];
	int ctl[2] = { -1, -1 }, shm = -1, rc = -1;

	*s = (struct acct_sampler){ .control = -1, .pidfd = -1 };
	/* Root runs it: it must be root's, and so must be the way to it. */
	if (gpu_path_check(argv[0], 0, resolved, err))
		return -1;
	shm = gpu_shm_create(&s->shm);
	if (shm < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ctl)) {
		ddp_err_set(err, DDP_ESYS, "cannot start %s: %s", argv[0],
			    strerror(errno));
		goto out;
	}
	s->control = ctl[0];
	rc = fork_twice(shm, ctl[1], argv, s);
	if (rc)
		ddp_err_set(err, DDP_ESYS, "cannot start %s: %s", argv[0],
			    strerror(errno));
out:
	if (ctl[1] >= 0)
		close(ctl[1]);
	if (shm >= 0)
		close(shm);
	if (rc)
		acct_sampler_free(s);
	return rc;
}

static bool ended(int pidfd, int ms)
{
	int64_t end = ddp_io_now_ms() + ms;
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	int rc, left = ms;

	while ((rc = poll(&p, 1, left)) < 0 && errno == EINTR) {
		left = (int)(end - ddp_io_now_ms());
		if (left < 0)
			left = 0;
	}
	return rc == 1;
}

static void end_it(const struct acct_sampler *s)
{
	if (!syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0) ||
	    errno == ESRCH)
		return;
	/* As long as its end of the socket is open, the pid is its own. */
	if (!ended(s->pidfd, 0))
		kill(s->pid, SIGKILL);
}

bool acct_sampler_stop(struct acct_sampler *s, int64_t until, int ms)
{
	struct gpu_last_call call;
	struct gpu_totals now;

	/* With what is between its members: it leaves this process. */
	memset(&call, 0, sizeof(call));
	call.what = GPU_LAST_CALL;
	call.until = until;

	if (s->pidfd < 0)
		return false;
	if (s->control < 0 ||
	    send(s->control, &call, sizeof(call),
		 MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(call) ||
	    !ended(s->pidfd, ms))
		end_it(s);
	close(s->pidfd);
	s->pidfd = -1;
	return gpu_shm_read(s->shm, &now) && now.state == GPU_DONE;
}

void acct_sampler_free(struct acct_sampler *s)
{
	if (s->control >= 0)
		close(s->control);
	if (s->pidfd >= 0)
		close(s->pidfd);
	gpu_shm_unmap(s->shm);
	*s = (struct acct_sampler){ .control = -1, .pidfd = -1 };
}
