/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status socket: in the abstract name space, so that there is no file to
 * leave behind, with a name that nobody can take before. Each question is
 * answered by a child process, which may be as slow as the asker.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"
#include "launcher/net_auth.h"
#include "core/ddp_child.h"
#include "core/ddp_control.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_S 10
#define MAX_ANSWERS (sizeof(((struct ctl *)0)->status_pids) / sizeof(pid_t))

static void __attribute__((noreturn)) answer(const struct ctl *ctl, int fd)
{
	static const int caught[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT,
		SIGCHLD };
	FILE *f;
	int rc = 1;

	/* libevent's handlers would tell the parent; and connections that
	 * it closes must not stay open here. */
	for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
		(void)signal(caught[i], SIG_DFL);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)alarm(ANSWER_S);
	if (dup2(fd, DDP_CTL_FD_LISTEN) < 0)
		_exit(1);
	ddp_child_close_from(DDP_CTL_FD_LISTEN + 1);
	f = fdopen(DDP_CTL_FD_LISTEN, "w");
	if (f && !ctl_json_write(ctl, f, true) && !fflush(f))
		rc = 0;
	_exit(rc);
}

static pid_t *free_slot(struct ctl *ctl)
{
	for (size_t i = 0; i < MAX_ANSWERS; i++)
		if (!ctl->status_pids[i])
			return &ctl->status_pids[i];
	return NULL;
}

static void on_asked(evutil_socket_t listener, short what, void *arg)
{
	struct ctl *ctl = arg;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	struct ucred who;
	socklen_t len = sizeof(who);
	pid_t *slot = free_slot(ctl), pid;

	(void)what;
	if (fd < 0)
		return;
	if (slot && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) &&
	    (who.uid == getuid() || who.uid == 0)) {
		pid = fork();
		if (!pid)
			answer(ctl, fd);
		if (pid > 0)
			*slot = pid;
	}
	close(fd);
}

void ctl_status_start(struct ctl *ctl)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	uint8_t random[8];
	char hex[2 * sizeof(random) + 1];
	int fd, n;

	net_auth_nonce(random, sizeof(random));
	ddp_hex(random, sizeof(random), hex);
	n = snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1,
		     "slurm-ddp/%u/%" PRIu32 ".%" PRIu32 "/%s", getuid(),
		     ctl->conf.job, ctl->conf.step, hex);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (!bind(fd, (struct sockaddr *)&addr,
		  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			      (size_t)n)) && !listen(fd, 16))
		ctl->status_ev = event_new(ctl->base, fd,
					   EV_READ | EV_PERSIST, on_asked,
					   ctl);
	if (ctl->status_ev)
		event_add(ctl->status_ev, NULL);
	else
		close(fd);
}

void ctl_status_reaped(struct ctl *ctl, pid_t pid)
{
	for (size_t i = 0; i < MAX_ANSWERS; i++)
		if (ctl->status_pids[i] == pid)
			ctl->status_pids[i] = 0;
}

void ctl_status_stop(struct ctl *ctl)
{
	if (ctl->status_ev) {
		close(event_get_fd(ctl->status_ev));
		event_free(ctl->status_ev);
		ctl->status_ev = NULL;
	}
	for (size_t i = 0; i < MAX_ANSWERS; i++)
		if (ctl->status_pids[i] > 0)
			kill(ctl->status_pids[i], SIGKILL);
}
