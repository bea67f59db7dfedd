/* SPDX-License-Identifier: Apache-2.0 */
/* ddp-controller: start, event loop, end. See ctl.h. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"
#include "launcher/net_auth.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <event2/bufferevent.h>

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
	struct ctl *ctl = arg;
	struct ddp_cause c = {
		.kind = DDP_CAUSE_TOLD, .rank = DDP_CAUSE_NONE,
		.node = DDP_CAUSE_NONE, .pid = DDP_CAUSE_NONE,
		.status = DDP_STATUS_UNKNOWN, .when_us = ddp_io_now_us(),
	};
	char name[24];

	(void)what;
	if (sig == SIGCHLD) {
		ctl_helper_reap(ctl);
		return;
	}
	/* Slurm ends a whole batch job so: ctl_fail() asks it first. */
	ctl_fail(ctl, &c, ddp_text_signame((int)sig, name, sizeof(name)));
	ctl_end_check(ctl);
}

static int start_signals(struct ctl *ctl)
{
	static const int list[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT,
		SIGCHLD };

	for (unsigned i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		ctl->signals[i] = evsignal_new(ctl->base, list[i], on_signal,
					       ctl);
		if (!ctl->signals[i] || event_add(ctl->signals[i], NULL))
			return -1;
	}
	return 0;
}

static bool is_socket(int fd, bool listening)
{
	int on = 0;
	socklen_t len = sizeof(on);

	return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) &&
		(!listening || on);
}

/* The rest was done between fork and exec: ddp_child_detach(). */
static void harden(void)
{
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);	/* the report is an error, then */
	(void)prctl(PR_SET_DUMPABLE, 0);
	(void)fcntl(DDP_CTL_FD_LISTEN, F_SETFD, FD_CLOEXEC);
	(void)fcntl(DDP_CTL_FD_SRUN, F_SETFD, FD_CLOEXEC);
	if (chdir("/"))
		(void)0;
}

static int64_t real_offset(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 - ddp_io_now_us();
}

static uint32_t ping_ms(const struct ctl *ctl)
{
	uint32_t ms = ctl->conf.node_ms / 4;

	return ms > 5000 ? 5000 : ms ? ms : 1;
}

static int start(struct ctl *ctl, const char *rest)
{
	ctl->base = event_base_new();
	if (!ctl->base)
		return -1;
	ctl->real_us = real_offset();
	ctl->ping_ms = ping_ms(ctl);
	if (ctl_srun_start(ctl, DDP_CTL_FD_SRUN, rest) ||
	    ctl_accept_start(ctl, DDP_CTL_FD_LISTEN) || start_signals(ctl))
		return -1;
	ctl_json_check(ctl);
	ctl_plan_start(ctl);
	ctl_status_start(ctl);
	return 0;
}

static void event_drop(struct event **ev)
{
	if (*ev)
		event_free(*ev);
	*ev = NULL;
}

static void stop(struct ctl *ctl)
{
	struct event **timers[] = { &ctl->start_timer, &ctl->early_timer,
		&ctl->recheck_timer, &ctl->kill_timer, &ctl->end_timer,
		&ctl->quit_timer, &ctl->last_timer, &ctl->silence_timer,
		&ctl->vanished_timer, &ctl->ready_timer, &ctl->left_timer,
		&ctl->srun_pid };

	if (ctl->base) {
		ctl_status_stop(ctl);
		ctl_helper_stop(ctl);
		ctl_accept_stop(ctl);
	}
	for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
		event_drop(timers[i]);
	for (size_t i = 0; i < 5; i++)
		event_drop(&ctl->signals[i]);
	if (ctl->srun)
		bufferevent_free(ctl->srun);
	if (ctl->base)
		event_base_free(ctl->base);
	ctl_conf_clear(ctl);
}

/* Run by hand? Then say so; true if the program must not go on. */
static bool called_wrong(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--version")) {
		printf("ddp-controller %s\n", PACKAGE_VERSION);
		exit(fflush(stdout) ? 1 : 0);
	}
	if (argc == 1 && is_socket(DDP_CTL_FD_LISTEN, true) &&
	    is_socket(DDP_CTL_FD_SRUN, false))
		return false;
	fprintf(stderr, "ddp-controller: run by srun --ddp-launch, not by "
		"hand\n");
	return true;
}

int main(int argc, char **argv)
{
	static struct ctl ctl;
	char rest[DDP_CTL_LINE];
	struct ddp_err err;
	int rc = 2;

	if (called_wrong(argc, argv))
		return 2;
	harden();
	ctl.start_us = ddp_io_now_us();
	if (!net_auth_init() &&
	    !ctl_conf_read(&ctl, DDP_CTL_FD_SRUN, rest, sizeof(rest), &err) &&
	    !ctl_conf_tables(&ctl, &err) && !start(&ctl, rest)) {
		rc = 0;
		ctl_end_check(&ctl);
		if (event_base_dispatch(ctl.base) < 0)
			rc = 1;
	}
	stop(&ctl);
	return rc;
}
