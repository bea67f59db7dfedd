/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master port, on the node of rank 0. It is bound here and never
 * listened on: no other socket gets it by chance, and the program, which
 * binds with SO_REUSEADDR as every framework's store does, can. So can a
 * stranger who wants to: once somebody listens, it is looked up who.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"
#include "launcher/net_auth.h"

#include "core/ddp_proc.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How often to look: soon at first, as long as a program may take. */
#define LOOK_MIN_MS 10
#define LOOK_MAX_MS 30000
/* A port that is in use by nobody who listens is tried so often again. */
#define AGAIN 10
#define AGAIN_MS 10
#define LOOK_END_US 600000000U

enum owner { OWNER_UNKNOWN, OWNER_STEP, OWNER_OTHER };

static int bind_one(int family, uint16_t port)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
				    .sin6_port = htons(port) };
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(port) };
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1, off = 0, rc, error;

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (family == AF_INET6) {
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off,
				 sizeof(off));
		rc = bind(fd, (struct sockaddr *)&in6, sizeof(in6));
	} else {
		rc = bind(fd, (struct sockaddr *)&in, sizeof(in));
	}
	if (!rc)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Both families, or IPv4 where there is no IPv6. */
static int bind_port(uint16_t port)
{
	int fd = bind_one(AF_INET6, port);

	return fd < 0 && errno != EADDRINUSE && errno != EACCES ?
		bind_one(AF_INET, port) : fd;
}

static int bind_range(uint16_t lo, uint16_t hi)
{
	uint32_t n = (uint32_t)hi - lo + 1, at;
	int fd = -1;

	net_auth_nonce((uint8_t *)&at, sizeof(at));
	for (uint32_t i = 0; fd < 0 && i < n; i++) {
		fd = bind_port((uint16_t)(lo + (at % n + i) % n));
		if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
			break;
	}
	return fd;
}

/*
 * In use, but nobody listens: who has it may be about to let it go, and could
 * not be named. *who: the listener, if there is one; inode 0: none was seen.
 */
static int bind_named(uint16_t port, struct agent_listener *who)
{
	int fd = bind_port(port), error = errno;

	who->inode = 0;
	for (int i = 0; i < AGAIN && fd < 0 && error == EADDRINUSE; i++) {
		if (agent_diag_listeners(port, who, 1) > 0)
			break;
		(void)poll(NULL, 0, AGAIN_MS);
		fd = bind_port(port);
		error = errno;
	}
	errno = error;
	return fd;
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

struct search {
	uint64_t inode;
	pid_t pid, skip;
};

static int has_it(pid_t pid, void *arg)
{
	struct search *s = arg;

	if (pid == s->skip || !ddp_proc_has_socket(pid, s->inode))
		return 0;
	s->pid = pid;
	return 1;
}

/* The process that holds a socket, among all of this user; 0: not seen. */
static pid_t find_holder(uint64_t inode)
{
	struct search s = { inode, 0, getpid() };

	(void)ddp_proc_walk(getuid(), has_it, &s);
	return s.pid;
}

/* "python3 (pid 12, user id 1000)", or as much as can be seen. */
static void describe(const struct agent_listener *l, pid_t pid, char *buf,
		     size_t size)
{
	char comm[DDP_PROC_COMM];

	if (pid)
		(void)snprintf(buf, size, "%s (pid %d, user id %u)",
			       ddp_proc_comm(pid, comm, sizeof(comm)),
			       (int)pid, (unsigned)l->uid);
	else
		(void)snprintf(buf, size, "a process of user id %u",
			       (unsigned)l->uid);
}

static void why_not(const struct ddp_msg *m, int error,
		    const struct agent_listener *listener, char *buf,
		    size_t size)
{
	uint16_t port = m->u.reserve.lo ? 0 : m->u.reserve.port;
	char who[160] = "another process";

	if (port && error == EADDRINUSE) {
		if (listener->inode)
			describe(listener, find_holder(listener->inode), who,
				 sizeof(who));
		(void)snprintf(buf, size, "port %u is in use by %s; "
			"--ddp-master-port=auto finds a free one", port, who);
	} else if (port) {
		(void)snprintf(buf, size, "port %u: %s", port,
			       strerror(error));
	} else if (m->u.reserve.lo) {
		(void)snprintf(buf, size, "no port of %u-%u is free (%s)",
			       m->u.reserve.lo, m->u.reserve.hi,
			       strerror(error));
	} else {
		(void)snprintf(buf, size, "no port is free (%s)",
			       strerror(error));
	}
}

void agent_port_reserve(struct agent *a, const struct ddp_msg *m)
{
	struct ddp_msg out = { .type = DDP_MSG_PORT };
	uint16_t lo = m->u.reserve.lo, hi = m->u.reserve.hi;
	struct agent_listener who = { 0, 0 };

	if (a->answered)
		return;
	agent_port_free(a);
	if (m->u.reserve.port || !lo || hi < lo)
		a->port.fd = bind_named(m->u.reserve.port, &who);
	if (a->port.fd < 0 && lo && hi >= lo)
		a->port.fd = bind_range(lo, hi);
	if (a->port.fd >= 0)
		a->port.port = out.u.port.port = port_of(a->port.fd);
	else
		why_not(m, errno, &who, out.u.port.text, sizeof(out.u.port.text));
	agent_link_send(a, &out);
}

/* The listener's process is looked for in the step, then anywhere. */
static enum owner owner_of(struct agent *a, const struct agent_listener *l,
			   pid_t *pid)
{
	struct ddp_proc_step step = { a->conf.job, a->conf.step, NULL };
	struct agent_procs list = { NULL, 0, 0 };
	enum owner owner = OWNER_UNKNOWN;

	*pid = 0;
	if (l->uid != getuid())
		return OWNER_OTHER;
	if (agent_step_list(a, &list)) {
		free(list.v);
		return OWNER_UNKNOWN;
	}
	for (size_t i = 0; i < list.n && owner == OWNER_UNKNOWN; i++)
		if (list.v[i].ours &&
		    ddp_proc_has_socket(list.v[i].pid, l->inode))
			owner = OWNER_STEP;
	free(list.v);
	if (owner == OWNER_UNKNOWN)
		*pid = find_holder(l->inode);
	/* A node of the same step on this host is no stranger. */
	if (*pid)
		owner = ddp_proc_in_step(*pid, &step) ? OWNER_STEP
						      : OWNER_OTHER;
	return owner;
}

void agent_port_free(struct agent *a)
{
	agent_event_free(&a->port.timer);
	if (a->port.fd >= 0)
		close(a->port.fd);
	a->port.fd = -1;
	a->port.port = 0;
}

static void stolen(struct agent *a, const struct agent_listener *l, pid_t pid)
{
	char who[160], text[400];

	describe(l, pid, who, sizeof(who));
	(void)snprintf(text, sizeof(text), "%s listens on the master port %u, "
		       "which was reserved for this step", who, a->port.port);
	agent_link_note(a, DDP_NOTE_PORT_STOLEN, text);
	agent_port_free(a);
}

/* True once it is known who listens. */
static bool look(struct agent *a)
{
	struct agent_listener l[AGENT_LISTENERS];
	int n = agent_diag_listeners(a->port.port, l, AGENT_LISTENERS);
	int thief = -1;
	pid_t pid, thief_pid = 0;

	for (int i = 0; i < n; i++) {
		enum owner owner = owner_of(a, &l[i], &pid);

		if (owner == OWNER_STEP) {
			agent_link_note(a, DDP_NOTE_PORT_USED, "");
			agent_port_free(a);
			return true;
		}
		if (owner == OWNER_OTHER) {
			thief = i;
			thief_pid = pid;
		}
	}
	if (thief >= 0)
		stolen(a, &l[thief], thief_pid);
	return thief >= 0;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;
	struct agent_port *p = &a->port;

	(void)fd;
	(void)what;
	if (!p->port || look(a))
		return;
	if (agent_now_us() >= p->give_up_us) {
		agent_port_free(a);
		return;
	}
	p->wait_ms *= 2;
	if (p->wait_ms > LOOK_MAX_MS)
		p->wait_ms = LOOK_MAX_MS;
	agent_timer(a, &p->timer, p->wait_ms, on_timer, a);
}

void agent_port_watch(struct agent *a)
{
	if (!a->port.port)
		return;
	a->port.wait_ms = LOOK_MIN_MS;
	a->port.give_up_us = agent_now_us() + LOOK_END_US;
	agent_timer(a, &a->port.timer, a->port.wait_ms, on_timer, a);
}

void agent_port_failed(struct agent *a)
{
	if (a->port.port && a->opened && a->link.state == LINK_UP)
		(void)look(a);
}
