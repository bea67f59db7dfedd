/* SPDX-License-Identifier: Apache-2.0 */
/* One agent's side of the protocol. Whatever is not as it must be ends all. */
#define _GNU_SOURCE
#include "config.h"

#include "tests/sim/sim.h"

#include "launcher/net_auth.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void enter(struct sim_agent *a, enum sim_state state)
{
	a->sim->count[a->state]--;
	a->sim->count[state]++;
	a->state = state;
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Small enough for the socket's buffer, or the controller reads nothing. */
static void send_bytes(struct sim_agent *a, const uint8_t *data, size_t n)
{
	ssize_t sent = send(a->fd, data, n, MSG_NOSIGNAL);

	if (sent != (ssize_t)n)
		sim_fail(a->sim, "node %u, state %d: %zd of %zu bytes sent: "
			 "%s", a->node, a->state, sent, n, strerror(errno));
}

void sim_agent_send(struct sim_agent *a, const struct ddp_msg *m)
{
	uint8_t buf[SIM_FRAME];
	size_t n = ddp_wire_encode(m, buf, sizeof(buf));

	if (n)
		send_bytes(a, buf, n);
	else
		sim_fail(a->sim, "%s does not fit", ddp_wire_name(m->type));
}

static void say_hello(struct sim_agent *a)
{
	struct ddp_msg *m = calloc(1, sizeof(*m));

	if (!m) {
		sim_fail(a->sim, "out of memory");
		return;
	}
	m->type = DDP_MSG_HELLO;
	m->u.hello.version = DDP_WIRE_VERSION;
	m->u.hello.job = 7;
	snprintf(m->u.hello.name, sizeof(m->u.hello.name), "n%u", a->node);
	net_auth_nonce(m->u.hello.nonce, DDP_NONCE_BYTES);
	a->hello = m;
	enter(a, SIM_HELLO);
	sim_agent_send(a, m);
}

static void on_challenge(struct sim_agent *a, const struct ddp_msg *m)
{
	struct ddp_msg auth = { .type = DDP_MSG_AUTH };
	uint8_t mac[DDP_MAC_BYTES];

	net_auth_mac(a->sim->key, NET_CONTROLLER, a->hello,
		     m->u.challenge.nonce, mac);
	if (!net_auth_equal(mac, m->u.challenge.mac)) {
		sim_fail(a->sim, "the controller's proof is wrong");
		return;
	}
	net_auth_mac(a->sim->key, NET_AGENT, a->hello, m->u.challenge.nonce,
		     auth.u.auth.mac);
	free(a->hello);
	a->hello = NULL;
	enter(a, SIM_AUTH);
	sim_agent_send(a, &auth);
}

/* The ranks of a node are those of a block distribution. */
static void on_welcome(struct sim_agent *a)
{
	uint32_t n = a->sim->conf.tasks;
	struct ddp_wire_task *t = calloc(n, sizeof(*t));
	struct ddp_msg m = { .type = DDP_MSG_READY };
	uint8_t *buf = NULL;
	size_t bound;

	m.u.ready.node = a->node;
	m.u.ready.now_us = now_us();
	m.u.ready.ntasks = n;
	m.u.ready.tasks = t;
	for (uint32_t i = 0; t && i < n; i++)
		t[i] = (struct ddp_wire_task){ a->node * n + i, i,
			100000 + i };
	bound = ddp_wire_bound(&m);
	buf = malloc(bound);
	enter(a, SIM_READY);
	if (t && buf)
		send_bytes(a, buf, ddp_wire_encode(&m, buf, bound));
	else
		sim_fail(a->sim, "out of memory");
	free(buf);
	free(t);
}

static void on_reserve(struct sim_agent *a, const struct ddp_msg *m)
{
	struct ddp_msg port = { .type = DDP_MSG_PORT };

	if (a->node || (a->state != SIM_READY && a->state != SIM_AUTH))
		sim_fail(a->sim, "RESERVE for node %u in state %d", a->node,
			 a->state);
	port.u.port.port = m->u.reserve.port ? m->u.reserve.port : 29500;
	sim_agent_send(a, &port);
}

void sim_agent_exit(struct sim_agent *a, uint32_t local, uint32_t status,
		    uint8_t flags)
{
	struct ddp_msg m = { .type = DDP_MSG_EXIT };

	m.u.exit.rank = a->node * a->sim->conf.tasks + local;
	m.u.exit.pid = 100000 + local;
	m.u.exit.status = status;
	m.u.exit.when_us = now_us();
	m.u.exit.flags = flags;
	sim_agent_send(a, &m);
}

/* All ranks were ended by SIGTERM, but the one that had failed: rank 0 of
 * the last node. */
void sim_agent_ended(struct sim_agent *a)
{
	uint32_t from = a->node + 1 == a->sim->conf.nodes;
	struct ddp_msg gone = { .type = DDP_MSG_GONE }, bye = {
		.type = DDP_MSG_BYE };

	for (uint32_t i = from; i < a->sim->conf.tasks; i++)
		sim_agent_exit(a, i, SIGTERM, DDP_EXIT_AFTER_ABORT);
	gone.u.gone.stopped = a->sim->conf.tasks - from;
	sim_agent_send(a, &gone);
	enter(a, SIM_BYE);
	sim_agent_send(a, &bye);
}

static void on_plan(struct sim_agent *a, const struct ddp_msg *m)
{
	if (a->state != SIM_READY)
		sim_fail(a->sim, "PLAN for node %u in state %d", a->node,
			 a->state);
	if (m->u.plan.flags || m->u.plan.len || m->u.plan.port != 29500)
		sim_fail(a->sim, "PLAN: flags %u, port %u, %u bytes of text",
			 m->u.plan.flags, m->u.plan.port, m->u.plan.len);
	enter(a, SIM_PLAN);
}

static void on_abort(struct sim_agent *a)
{
	struct sim *s = a->sim;

	/* It may hear it or not: nothing of it is left. */
	if (a->node + 1 == s->conf.nodes && s->conf.tasks == 1)
		return;
	if (a->state != SIM_PLAN)
		sim_fail(s, "ABORT for node %u in state %d", a->node,
			 a->state);
	enter(a, SIM_ABORT);
	if (!s->hold)
		sim_agent_ended(a);
}

static void on_message(struct sim_agent *a, const struct ddp_msg *m)
{
	if (m->type == DDP_MSG_CHALLENGE && a->state == SIM_HELLO)
		on_challenge(a, m);
	else if (m->type == DDP_MSG_WELCOME && a->state == SIM_AUTH)
		on_welcome(a);
	else if (m->type == DDP_MSG_RESERVE)
		on_reserve(a, m);
	else if (m->type == DDP_MSG_PLAN)
		on_plan(a, m);
	else if (m->type == DDP_MSG_PONG)
		a->sim->pongs++;
	else if (m->type == DDP_MSG_ABORT)
		on_abort(a);
	else
		sim_fail(a->sim, "%s for node %u in state %d",
			 ddp_wire_name(m->type), a->node, a->state);
}

/* Whole frames of data; returns the bytes used. */
static size_t take_frames(struct sim_agent *a, const uint8_t *data, size_t n)
{
	struct ddp_msg m;
	struct ddp_err err;
	size_t at = 0;

	while (n - at >= DDP_WIRE_HEAD) {
		uint32_t len = ddp_wire_length(data + at);

		if (!len || len > SIM_FRAME - DDP_WIRE_HEAD) {
			sim_fail(a->sim, "node %u: a frame of %u bytes",
				 a->node, len);
			return n;
		}
		if (n - at - DDP_WIRE_HEAD < len)
			break;
		if (ddp_wire_decode(&m, data + at + DDP_WIRE_HEAD, len, &err))
			sim_fail(a->sim, "node %u: %s", a->node, err.text);
		else
			on_message(a, &m);
		at += DDP_WIRE_HEAD + len;
	}
	return at;
}

/* The kernel's time stamp of what arrived last, or now. */
static int64_t arrival(struct msghdr *msg)
{
	struct timespec t;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c;
	     c = CMSG_NXTHDR(msg, c))
		if (c->cmsg_level == SOL_SOCKET &&
		    c->cmsg_type == SCM_TIMESTAMPNS) {
			memcpy(&t, CMSG_DATA(c), sizeof(t));
			return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
		}
	return sim_now();
}

static void closed(struct sim_agent *a)
{
	if (a->state != SIM_BYE)
		sim_fail(a->sim, "the controller closed node %u in state %d: "
			 "%s", a->node, a->state, strerror(errno));
	event_free(a->event);
	a->event = NULL;
	close(a->fd);
	a->fd = -1;
	enter(a, SIM_CLOSED);
}

static void on_readable(struct sim_agent *a)
{
	static uint8_t buf[2 * SIM_FRAME];
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(struct timespec))];
	} control;
	struct iovec iov = { buf + a->used, SIM_FRAME };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control) };
	enum sim_state before = a->state;
	size_t n, at;
	ssize_t got;

	if (a->used)
		memcpy(buf, a->buf, a->used);
	errno = 0;
	got = recvmsg(a->fd, &msg, 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		closed(a);
		return;
	}
	n = a->used + (size_t)got;
	at = take_frames(a, buf, n);
	a->used = n - at;
	if (a->used && !a->buf && !(a->buf = malloc(SIM_FRAME)))
		sim_fail(a->sim, "out of memory");
	else if (a->used)
		memcpy(a->buf, buf + at, a->used);
	if (a->state != before && (a->state == SIM_PLAN ||
				   a->state == SIM_ABORT)) {
		int64_t t = arrival(&msg);

		if (t > a->sim->last_ns)
			a->sim->last_ns = t;
	}
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
	struct sim_agent *a = arg;
	int error = 0;
	socklen_t len = sizeof(error);

	if (what & EV_READ) {
		on_readable(a);
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) || error) {
		sim_fail(a->sim, "connect: %s", strerror(error));
		return;
	}
	event_del(a->event);
	if (event_assign(a->event, a->sim->base, fd, EV_READ | EV_PERSIST,
			 on_event, a) || event_add(a->event, NULL))
		sim_fail(a->sim, "no event");
	say_hello(a);
}

/* 127.1.0.1, 127.1.0.2, …: one address a node. */
static int bind_node(int fd, uint32_t node)
{
	struct sockaddr_in from = { .sin_family = AF_INET };
	int on = 1;

	from.sin_addr.s_addr = htonl(0x7f010000 + (node / 250 << 8) +
				     node % 250 + 1);
	return setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on,
			  sizeof(on)) ||
	       setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	       setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) ||
	       bind(fd, (struct sockaddr *)&from, sizeof(from));
}

void sim_agent_dial(struct sim_agent *a)
{
	struct sim *s = a->sim;

	a->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
		       0);
	if (a->fd < 0 || bind_node(a->fd, a->node) ||
	    (connect(a->fd, (struct sockaddr *)&s->to, sizeof(s->to)) &&
	     errno != EINPROGRESS)) {
		sim_fail(s, "connection %u: %s", a->node, strerror(errno));
		return;
	}
	enter(a, SIM_CONNECTING);
	a->event = event_new(s->base, a->fd, EV_WRITE, on_event, a);
	if (!a->event || event_add(a->event, NULL))
		sim_fail(s, "no event");
}
