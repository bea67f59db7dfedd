/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm is asked by another process, ddp-launch: its library is not linked
 * here, may wait for minutes, and may end the process that uses it.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void finish(struct ctl_helper *h, const char *answer)
{
	if (h->ev) {
		event_free(h->ev);
		h->ev = NULL;
		close(h->fd);
	}
	if (h->timer)
		event_del(h->timer);
	h->answer[strcspn(h->answer, " \n")] = '\0';
	if (h->done)
		h->done(h->ctl, answer);
	ctl_end_check(h->ctl);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct ctl_helper *h = arg;

	(void)fd, (void)what;
	if (h->pid > 0)
		kill(h->pid, SIGKILL);
	finish(h, "unknown");
}

static void on_answer(evutil_socket_t fd, short what, void *arg)
{
	struct ctl_helper *h = arg;
	ssize_t n = read(fd, h->answer + h->len,
			 sizeof(h->answer) - 1 - h->len);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		h->len += (size_t)n;
		if (h->len < sizeof(h->answer) - 1)
			return;
	}
	h->answer[h->len] = '\0';
	finish(h, h->answer);
}

static int spawn(struct ctl *ctl, struct ctl_helper *h, const char *option,
		 int out)
{
	char step[40];
	char *argv[] = { ctl->conf.launcher, (char *)option, step, NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none, all;
	int rc;

	snprintf(step, sizeof(step), "%" PRIu32 ".%" PRIu32, ctl->conf.job,
		 ctl->conf.step);
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, out, STDOUT_FILENO);
	posix_spawnattr_init(&at);
	posix_spawnattr_setsigmask(&at, &none);
	posix_spawnattr_setsigdefault(&at, &all);
	posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK |
				 POSIX_SPAWN_SETSIGDEF);
	rc = posix_spawn(&h->pid, ctl->conf.launcher, &fa, &at, argv, environ);
	if (rc)
		h->pid = 0;
	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&at);
	return rc ? -1 : 0;
}

int ctl_helper_start(struct ctl *ctl, struct ctl_helper *h,
		     const char *option,
		     void (*done)(struct ctl *ctl, const char *answer))
{
	const struct timeval tv = { CTL_ASK_MS / 1000,
				    CTL_ASK_MS % 1000 * 1000 };
	int fds[2];

	if (h->pid > 0 || !ctl->conf.launcher[0] ||
	    pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return -1;
	h->ctl = ctl;
	h->done = done;
	h->len = 0;
	h->fd = fds[0];
	h->ev = event_new(ctl->base, h->fd, EV_READ | EV_PERSIST, on_answer,
			  h);
	if (!h->timer)
		h->timer = event_new(ctl->base, -1, 0, on_timer, h);
	if (!h->ev || !h->timer || spawn(ctl, h, option, fds[1])) {
		if (h->ev)
			event_free(h->ev);
		h->ev = NULL;
		close(fds[0]);
		close(fds[1]);
		return -1;
	}
	close(fds[1]);
	event_add(h->ev, NULL);
	event_add(h->timer, &tv);
	return 0;
}

void ctl_helper_reap(struct ctl *ctl)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		if (pid == ctl->ask.pid)
			ctl->ask.pid = 0;
		else if (pid == ctl->kill.pid)
			ctl->kill.pid = 0;
		else
			ctl_status_reaped(ctl, pid);
	}
}

static void stop(struct ctl_helper *h)
{
	if (h->ev) {
		event_free(h->ev);
		close(h->fd);
	}
	if (h->timer)
		event_free(h->timer);
	h->ev = h->timer = NULL;
	if (h->pid > 0)
		kill(h->pid, SIGKILL);
}

/* Ends and reaps them; one that cannot be killed yet is left to init. */
void ctl_helper_stop(struct ctl *ctl)
{
	const struct timespec ms = { 0, 1000000 };

	stop(&ctl->ask);
	stop(&ctl->kill);
	for (int i = 0; i < 100; i++) {
		ctl_helper_reap(ctl);
		if (ctl->ask.pid <= 0 && ctl->kill.pid <= 0)
			break;
		nanosleep(&ms, NULL);
	}
}
