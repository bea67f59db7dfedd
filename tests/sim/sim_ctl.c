/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller's process. It is started as srun's plugin does it: a
 * listening socket on descriptor 3, srun's socket on 4, nothing else.
 */
#define _GNU_SOURCE
#include "config.h"

#include "tests/sim/sim.h"

#include "core/ddp_control.h"
#include "core/ddp_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ns(clockid_t clock)
{
	struct timespec t = { 0, 0 };

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t sim_now(void)
{
	return clock_ns(CLOCK_REALTIME);
}

struct sim_time sim_ctl_time(const struct sim *s)
{
	struct sim_time t = { sim_now(), clock_ns(CLOCK_PROCESS_CPUTIME_ID),
			      0 };
	clockid_t clock;

	if (!clock_getcpuclockid(s->ctl, &clock))
		t.ctl_ns = clock_ns(clock);
	return t;
}

long sim_ctl_status(const struct sim *s, const char *field)
{
	size_t n = strlen(field);
	char path[64], line[256];
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)s->ctl);
	f = fopen(path, "r");
	while (f && value < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, field, n) && line[n] == ':')
			value = strtol(line + n + 1, NULL, 10);
	if (f)
		fclose(f);
	return value;
}

static int make_listener(struct sim *s)
{
	socklen_t len = sizeof(s->to);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	s->to.sin_family = AF_INET;
	s->to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)&s->to, len) ||
	    listen(fd, SOMAXCONN) ||
	    getsockname(fd, (struct sockaddr *)&s->to, &len)) {
		sim_fail(s, "listening socket: %s", strerror(errno));
		return -1;
	}
	return fd;
}

/* All nodes are called n0, n1, …; NULL without memory. */
static char *node_names(uint32_t n)
{
	char *text = malloc((size_t)n * 12 + 1);
	size_t pos = 0;

	for (uint32_t i = 0; text && i < n; i++)
		pos += (size_t)sprintf(text + pos, "%sn%u", i ? "," : "", i);
	return text;
}

static char *config_text(struct sim *s)
{
	char plan[256], *nodes = node_names(s->conf.nodes), *text;
	struct ddp_ctlconf c = { .srun = getpid(), .job = 7, .step = 0,
		.signal = SIGTERM, .grace_ms = 5000, .start_ms = 600000,
		.node_ms = s->conf.node_ms, .launcher = "/bin/false",
		.nodes = nodes, .plan = plan };
	struct ddp_err err;

	if (!nodes)
		return NULL;
	memcpy(c.key, s->key, sizeof(c.key));
	snprintf(plan, sizeof(plan), "v=1;job=7;step=0;restart=0;mode=full;"
		 "fw=torch,jax;given=0;addr=n0;port=%u;verify=0;iface=none;"
		 "tasks=%u(x%u)", s->conf.port, s->conf.tasks, s->conf.nodes);
	text = ddp_ctlconf_format(&c, &err);
	if (!text)
		sim_fail(s, "%s", err.text);
	free(nodes);
	return text;
}

static void run_controller(const struct sim *s, int listener, int srun)
{
	const char *base = strrchr(s->conf.controller, '/');
	char *argv[] = { (char *)(base ? base + 1 : s->conf.controller),
			 NULL };
	char *envp[] = { (char *)"PATH=/usr/bin:/bin", NULL, NULL };
	const char *options = getenv("ASAN_OPTIONS");
	int in = open("/dev/null", O_RDWR);

	/* Out of the way of 3 and 4, where either may be already. */
	listener = fcntl(listener, F_DUPFD, 10);
	srun = fcntl(srun, F_DUPFD, 10);
	dup2(in, 0);
	dup2(in, 1);
	if (!options)	/* a sanitizer's report must be seen */
		dup2(in, 2);
	else if (asprintf(&envp[1], "ASAN_OPTIONS=%s", options) < 0)
		_exit(127);
	if (listener < 0 || srun < 0 || dup2(listener, 3) < 0 ||
	    dup2(srun, 4) < 0 || syscall(SYS_close_range, 5, ~0U, 0))
		_exit(127);
	setsid();
	execve(s->conf.controller, argv, envp);
	_exit(127);
}

int sim_ctl_start(struct sim *s)
{
	int pair[2] = { -1, -1 }, listener = make_listener(s), rc = -1;
	char *text = config_text(s);

	if (!text || listener < 0)
		goto out;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		sim_fail(s, "socketpair: %s", strerror(errno));
		goto out;
	}
	s->ctl = fork();
	if (!s->ctl)
		run_controller(s, listener, pair[1]);
	s->srun = pair[0];
	close(pair[1]);
	if (s->ctl < 0 || ddp_io_write_all(s->srun, text))
		sim_fail(s, "the controller does not start: %s",
			 strerror(errno));
	else
		rc = fcntl(s->srun, F_SETFL, O_NONBLOCK);
out:
	if (listener >= 0)
		close(listener);
	free(text);
	return rc;
}

static void run_command(const struct sim *s, const char *phase)
{
	char port[8], key[2 * DDP_KEY_BYTES + 1];

	ddp_hex(s->key, sizeof(s->key), key);
	snprintf(port, sizeof(port), "%u", ntohs(s->to.sin_port));
	dup2(2, 1);	/* our stdout is for the result */
	if (!setenv("SIM_PORT", port, 1) && !setenv("SIM_KEY", key, 1) &&
	    !setenv("SIM_PHASE", phase, 1))
		execl("/bin/sh", "sh", "-c", s->conf.during, NULL);
	_exit(127);
}

static void on_command(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	event_base_loopbreak(arg);
}

void sim_ctl_during(struct sim *s, const char *phase)
{
	struct event *e = NULL;
	struct timeval limit = { 300, 0 };
	int fd, status = -1;
	pid_t pid;

	if (!s->conf.during)
		return;
	event_add(s->timer, &limit);
	pid = fork();
	if (!pid)
		run_command(s, phase);
	fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (fd >= 0)
		e = event_new(s->base, fd, EV_READ, on_command, s->base);
	if (!e || event_add(e, NULL) || event_base_dispatch(s->base) < 0)
		sim_fail(s, "%s: cannot be run", s->conf.during);
	if (s->wrong[0] && pid > 0)
		kill(pid, SIGTERM);
	if (pid > 0 && (ddp_io_wait(pid, &status) || status))
		sim_fail(s, "%s (%s): wait status %d", s->conf.during, phase,
			 status);
	if (e)
		event_free(e);
	if (fd >= 0)
		close(fd);
}

int sim_ctl_end(struct sim *s, int timeout_ms, long *peak_kb)
{
	struct rusage u;
	int status, fd = (int)syscall(SYS_pidfd_open, s->ctl, 0);
	struct pollfd p = { fd, POLLIN, 0 };
	int done = fd >= 0 ? poll(&p, 1, timeout_ms) : -1;

	if (done <= 0)
		kill(s->ctl, SIGKILL);
	if (fd >= 0)
		close(fd);
	if (wait4(s->ctl, &status, 0, &u) != s->ctl)
		return -1;
	*peak_kb = u.ru_maxrss;
	return done > 0 ? status : -1;
}
