/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun and the controller of its step: the listening socket and the key,
 * the controller's process, and what it is told. The controller is the
 * user's own program with the user's rights; it holds nothing of srun but
 * the socket and one end of the channel, and ends when srun does.
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_child.h"
#include "core/ddp_control.h"
#include "core/ddp_ctlconf.h"
#include "core/ddp_io.h"
#include "core/ddp_life.h"
#include "core/ddp_probe.h"
#include "spank/spank_ddp.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <slurm/slurm.h>

/* Every node may dial at once. */
#define BACKLOG 16384
/* Longest wait for the controller to take its configuration. */
#define TELL_SECONDS 10

/* What the announcement made, until the controller has it. */
static struct {
	int listener, channel;
	struct ddp_control control;
} ctl = { .listener = -1, .channel = -1 };

static int bind_any(int fd, int family, uint16_t port)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6,
				    .sin6_port = htons(port) };
	struct sockaddr_in four = { .sin_family = AF_INET,
				    .sin_port = htons(port) };
	int off = 0;

	if (family == AF_INET)
		return bind(fd, (struct sockaddr *)&four, sizeof(four));
	(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	return bind(fd, (struct sockaddr *)&six, sizeof(six));
}

/* A listener on any address and one of lo…hi (0, 0: the kernel's choice). */
static int listen_on(int family, uint16_t lo, uint16_t hi)
{
	uint32_t n = hi ? (uint32_t)hi - lo + 1 : 1, first = 0;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (getrandom(&first, sizeof(first), 0) != sizeof(first))
		first = (uint32_t)getpid();
	for (uint32_t i = 0; fd >= 0 && i < n; i++) {
		uint16_t port = hi ? (uint16_t)(lo + (first + i) % n) : 0;

		if (!bind_any(fd, family, port) && !listen(fd, BACKLOG))
			return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len))
		return 0;
	return ntohs(ss.ss_family == AF_INET6 ?
		     ((struct sockaddr_in6 *)&ss)->sin6_port :
		     ((struct sockaddr_in *)&ss)->sin_port);
}

static int make_listener(struct ddp_err *err)
{
	uint16_t lo = 0, hi = 0;

	(void)ddp_compat_srun_ports(&lo, &hi);
	ctl.listener = listen_on(AF_INET6, lo, hi);
	if (ctl.listener < 0)
		ctl.listener = listen_on(AF_INET, lo, hi);
	if (ctl.listener < 0)
		return ddp_err_set(err, DDP_ESYS, "no port for the control "
			"channel%s: %s", hi ? " is free in SrunPortRange" : "",
			strerror(errno));
	ctl.control.port = port_of(ctl.listener);
	return 0;
}

/* The address towards slurmctld first: nodes are most likely there too. */
static void list_addresses(void)
{
	char ctld[DDP_ADDR_MAX];
	bool known = !ddp_compat_controller(ctld, sizeof(ctld));

	ctl.control.naddrs = ddp_probe_all(known ? ctld : NULL,
					   ctl.control.addr);
}

int ddp_ctl_announce(const struct ddp_spank *state, struct ddp_err *err)
{
	const struct ddp_options *o = &state->options;
	char text[DDP_CONTROL_MAX];
	int rc;

	if (ctl.listener >= 0)
		return 0;
	ctl.control.required = !o->prefer;
	ctl.control.start_ms = o->start_ms;
	if (make_listener(err))
		return -1;
	list_addresses();
	if (getrandom(ctl.control.key, sizeof(ctl.control.key), 0) !=
	    sizeof(ctl.control.key))
		return ddp_err_set(err, DDP_ESYS, "no random numbers");
	rc = ddp_control_format(&ctl.control, text, err);
	if (!rc && setenv(DDP_CONTROL_ENV, text, 1))
		rc = ddp_err_set(err, DDP_ENOMEM, "out of memory");
	explicit_bzero(text, sizeof(text));
	return rc;
}

static void __attribute__((noreturn))
become_controller(const char *path, char *const *env, int listener,
		  int channel)
{
	char *argv[] = { (char *)"ddp-controller", NULL };
	const int fds[] = { [DDP_CTL_FD_LISTEN - 3] = listener,
			    [DDP_CTL_FD_SRUN - 3] = channel };

	if (!ddp_child_detach(fds, 2))
		execve(path, argv, env);
	_exit(127);
}

/* What the controller's own children (ddp-launch) need, and no more. */
static void controller_env(char *env[8])
{
	static const char *const names[] = { "SLURM_CONF", "TZ",
		"LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS" };
	unsigned n = 0;

	env[n++] = (char *)"PATH=/usr/bin:/bin";
	for (unsigned i = 0; environ && environ[i]; i++)
		for (unsigned k = 0; k < sizeof(names) / sizeof(names[0]); k++)
			if (n < 7 && !strncmp(environ[i], names[k],
					      strlen(names[k])) &&
			    environ[i][strlen(names[k])] == '=')
				env[n++] = environ[i];
	env[n] = NULL;
}

int ddp_ctl_spawn(const struct ddp_spank *state, struct ddp_err *err)
{
	struct timeval limit = { .tv_sec = TELL_SECONDS };
	char path[sizeof(state->site.helpers) + 32], *env[8];
	int pair[2];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/ddp-controller", state->site.helpers);
	if (access(path, X_OK))
		return ddp_err_set(err, DDP_ESYS, "%s: %s; install it, or "
			"name its folder by helpers= in plugstack.conf", path,
			strerror(errno));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return ddp_err_set(err, DDP_ESYS, "socketpair: %s",
				   strerror(errno));
	controller_env(env);
	pid = fork();
	if (!pid)
		become_controller(path, env, ctl.listener, pair[1]);
	close(pair[1]);
	close(ctl.listener);
	ctl.listener = -1;
	if (pid < 0) {
		close(pair[0]);
		return ddp_err_set(err, DDP_ESYS, "fork: %s", strerror(errno));
	}
	ctl.channel = pair[0];
	(void)setsockopt(ctl.channel, SOL_SOCKET, SO_SNDTIMEO, &limit,
			 sizeof(limit));
	return 0;
}

/* %j and %s become the job's and the step's id, %% a %. */
static int report_name(const char *name, const struct ddp_ctlconf *c,
		       char *out, size_t size, struct ddp_err *err)
{
	char cwd[DDP_PATH_MAX];
	size_t pos = 0;
	int rc = 0;

	out[0] = '\0';
	if (!name[0])
		return 0;
	if (name[0] != '/')
		rc = !getcwd(cwd, sizeof(cwd)) ||
			ddp_text_add(out, size, &pos, "%s/", cwd);
	for (const char *p = name; !rc && *p; p++) {
		if (*p == '%' && (p[1] == 'j' || p[1] == 's'))
			rc = ddp_text_add(out, size, &pos, "%u",
					  *++p == 'j' ? c->job : c->step);
		else
			rc = ddp_text_add(out, size, &pos, "%c", *p);
		if (*p == '%' && p[1] == '%')
			p++;
	}
	return rc ? ddp_err_set(err, DDP_EINVAL, "--ddp-report-file: the path "
				"is too long") : 0;
}

static int fill_conf(struct ddp_ctlconf *c, const struct ddp_spank *state,
		     const struct ddp_plan *plan, const char *nodes,
		     struct ddp_err *err)
{
	const struct ddp_options *o = &state->options;

	memset(c, 0, sizeof(*c));
	memcpy(c->key, ctl.control.key, sizeof(c->key));
	c->srun = getpid();
	c->job = plan->job;
	c->step = plan->step;
	c->lo = state->site.port_lo;
	c->hi = state->site.port_hi;
	c->abort = o->abort;
	c->signal = o->signal;
	c->grace_ms = o->grace_ms;
	c->exit_grace_ms = o->exit_grace_ms;
	c->start_ms = o->start_ms;
	c->node_ms = o->node_ms;
	c->prefer = o->prefer;
	c->ready_ms = o->ready_ms;
	if (report_name(o->report, c, c->report, sizeof(c->report), err) ||
	    ddp_text_copy(c->launcher, sizeof(c->launcher),
			  state->site.launcher))
		return -1;
	c->plan = ddp_plan_format(plan, err);
	c->nodes = c->plan ? ddp_compat_node_names(nodes, err) : NULL;
	return c->nodes ? 0 : -1;
}

int ddp_ctl_tell(const struct ddp_spank *state, const struct ddp_plan *plan,
		 const char *nodes, struct ddp_err *err)
{
	struct ddp_ctlconf conf;
	char *text = NULL;
	int rc = fill_conf(&conf, state, plan, nodes, err);

	if (!rc)
		text = ddp_ctlconf_format(&conf, err);
	if (!text)
		rc = -1;
	else if (ddp_io_write_all(ctl.channel, text))
		rc = ddp_err_set(err, DDP_ESYS, "ddp-controller ended before "
				 "the step began; try %s/ddp-controller "
				 "--version", state->site.helpers);
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
	explicit_bzero(conf.key, sizeof(conf.key));
	ddp_ctlconf_clear(&conf);
	if (!rc)
		rc = ddp_channel_start(ctl.channel, state->options.grace_ms +
				       (plan->life ? DDP_LIFE_LIMIT_MS : 0),
				       err);
	if (!rc)
		ctl.channel = -1;	/* the channel's now */
	return rc;
}

void ddp_ctl_drop(void)
{
	(void)unsetenv(DDP_CONTROL_ENV);
	explicit_bzero(&ctl.control, sizeof(ctl.control));
	if (ctl.listener >= 0)
		close(ctl.listener);
	if (ctl.channel >= 0)
		close(ctl.channel);
	ctl.listener = ctl.channel = -1;
}
