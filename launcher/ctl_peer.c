/* SPDX-License-Identifier: Apache-2.0 */
/* Frames in and out of one connection, without a buffer of its own. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* More that the kernel did not take: the peer does not read. */
#define OUT_MAX 64

/* All peers are read through it, one after the other. */
static uint8_t input[DDP_WIRE_HEAD + DDP_WIRE_MAX + 65536];

static void on_event(evutil_socket_t fd, short what, void *arg);

struct ctl_peer *ctl_peer_new(struct ctl *ctl, int fd)
{
	struct ctl_peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->ctl = ctl;
	p->fd = fd;
	p->node = p->name = CTL_NONE;
	p->offset_us = INT64_MAX;
	p->heard_us = ddp_io_now_us();
	STAILQ_INIT(&p->out);
	event_assign(&p->ev, ctl->base, fd, EV_READ | EV_PERSIST, on_event, p);
	if (event_add(&p->ev, NULL)) {
		free(p);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&ctl->strangers, p, link);
	ctl->nstrangers++;
	return p;
}

static void out_pop(struct ctl_peer *p)
{
	struct ctl_out *o = STAILQ_FIRST(&p->out);

	STAILQ_REMOVE_HEAD(&p->out, link);
	ctl_frame_put(o->frame);
	free(o);
	p->nout--;
}

void ctl_peer_free(struct ctl_peer *p)
{
	struct ctl *ctl = p->ctl;

	event_del(&p->ev);
	close(p->fd);
	while (!STAILQ_EMPTY(&p->out))
		out_pop(p);
	if (p->state == PEER_NEW) {
		TAILQ_REMOVE(&ctl->strangers, p, link);
		ctl->nstrangers--;
	} else if (p->state == PEER_SHAKING) {
		TAILQ_REMOVE(&ctl->shaking, p, link);
		ctl->nshaking--;
	} else {
		TAILQ_REMOVE(&ctl->agents, p, link);
		if (p->name != CTL_NONE)
			ctl->nodes[p->name].agents--;
	}
	if (p->node != CTL_NONE && ctl->nodes[p->node].peer == p)
		ctl->nodes[p->node].peer = NULL;
	free(p->shake);
	free(p->in);
	free(p);
}

struct ctl_frame *ctl_frame_new(const struct ddp_msg *m)
{
	size_t size = ddp_wire_bound(m);
	struct ctl_frame *f = malloc(sizeof(*f) + size);

	if (!f)
		return NULL;
	f->refs = 1;
	f->len = ddp_wire_encode(m, f->data, size);
	if (!f->len) {
		free(f);
		return NULL;
	}
	return f;
}

void ctl_frame_put(struct ctl_frame *f)
{
	if (f && !--f->refs)
		free(f);
}

/* Bytes the kernel took; -1: the connection is of no more use. */
static ssize_t push(struct ctl_peer *p, const uint8_t *data, size_t len)
{
	ssize_t n = send(p->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	return n;
}

static void want_write(struct ctl_peer *p, bool on)
{
	short events = EV_READ | EV_PERSIST;

	event_del(&p->ev);
	event_assign(&p->ev, p->ctl->base, p->fd,
		     on ? events | EV_WRITE : events, on_event, p);
	event_add(&p->ev, NULL);
}

/*
 * Sending never frees the peer: callers walk over many. A broken connection
 * shows up as readable.
 */
static void keep(struct ctl_peer *p, struct ctl_frame *f, size_t done)
{
	struct ctl_out *o = p->nout < OUT_MAX ? malloc(sizeof(*o)) : NULL;

	if (!o) {
		shutdown(p->fd, SHUT_RDWR);
		return;
	}
	o->frame = f;
	o->done = done;
	f->refs++;
	if (!p->nout++)
		want_write(p, true);
	STAILQ_INSERT_TAIL(&p->out, o, link);
}

void ctl_peer_send_frame(struct ctl_peer *p, struct ctl_frame *f)
{
	ssize_t n = 0;

	if (!p->nout) {
		n = push(p, f->data, f->len);
		if (n < 0)
			return;
	}
	if ((size_t)n < f->len)
		keep(p, f, (size_t)n);
}

void ctl_peer_send(struct ctl_peer *p, const struct ddp_msg *m)
{
	uint8_t buf[DDP_WIRE_HEAD + DDP_WIRE_FIRST_MAX];
	struct ctl_frame *f;
	ssize_t n = 0;
	size_t len = ddp_wire_encode(m, buf, sizeof(buf));

	if (len && !p->nout) {
		n = push(p, buf, len);
		if (n < 0 || (size_t)n == len)
			return;
	}
	f = ctl_frame_new(m);
	if (f)
		keep(p, f, (size_t)n);
	else
		shutdown(p->fd, SHUT_RDWR);
	ctl_frame_put(f);
}

static int flush_out(struct ctl_peer *p)
{
	while (p->nout) {
		struct ctl_out *o = STAILQ_FIRST(&p->out);
		ssize_t n = push(p, o->frame->data + o->done,
				 o->frame->len - o->done);

		if (n < 0)
			return -1;
		o->done += (size_t)n;
		if (o->done < o->frame->len)
			return 0;
		out_pop(p);
	}
	want_write(p, false);
	return 0;
}

void ctl_peer_drop(struct ctl_peer *p, const char *why)
{
	struct ctl *ctl = p->ctl;
	uint32_t node = p->node;

	if (p->state < PEER_WELCOME) {
		ctl_accept_refuse(p);
		ctl_peer_free(p);
		return;
	}
	if (!p->bye) {
		ctl_watch_closed(p, why);
		return;
	}
	ctl_peer_free(p);
	if (node == CTL_NONE)
		return;
	/* If ABORT crossed its BYE there will be no GONE. */
	ctl_watch_node(ctl, node, NODE_DONE);
	ctl_fail_progress(ctl);
}

static int message(struct ctl_peer *p, const uint8_t *payload, size_t len)
{
	struct ddp_msg m;

	if (ddp_wire_decode(&m, payload, len, NULL))
		return -1;
	return p->state < PEER_WELCOME ? ctl_auth_message(p, &m) :
		ctl_msg_message(p, &m);
}

/*
 * All whole frames of `len` bytes. Returns how many bytes they were, or -1.
 * The peer stays: only `closing` is set by messages that end it.
 */
static ssize_t frames(struct ctl_peer *p, size_t len)
{
	size_t pos = 0;

	while (len - pos >= DDP_WIRE_HEAD && !p->closing) {
		size_t n = ddp_wire_length(input + pos);

		if (!n || n > (p->state < PEER_WELCOME ? DDP_WIRE_FIRST_MAX :
			       p->ctl->frame_max))
			return -1;
		if (len - pos - DDP_WIRE_HEAD < n)
			break;
		pos += DDP_WIRE_HEAD;
		if (message(p, input + pos, n))
			return -1;
		pos += n;
	}
	return (ssize_t)pos;
}

/* Keep the begin of a frame until the rest comes. */
static int keep_input(struct ctl_peer *p, size_t pos, size_t len)
{
	free(p->in);
	p->in = NULL;
	p->in_len = (uint32_t)(len - pos);
	if (!p->in_len)
		return 0;
	p->in = malloc(p->in_len);
	if (!p->in)
		return -1;
	memcpy(p->in, input + pos, p->in_len);
	return 0;
}

static const char *receive(struct ctl_peer *p)
{
	size_t len = p->in_len;
	ssize_t n, used;

	if (len)
		memcpy(input, p->in, len);
	n = recv(p->fd, input + len, sizeof(input) - len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return NULL;
	if (!n)
		return "its agent closed the connection";
	if (n < 0)
		return "its agent's connection was reset";
	/* A stranger's time is counted from its arrival. */
	if (p->state >= PEER_WELCOME)
		p->heard_us = ddp_io_now_us();
	len += (size_t)n;
	used = frames(p, len);
	if (used < 0 || keep_input(p, (size_t)used, len))
		return "its agent broke the protocol";
	return NULL;
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
	struct ctl_peer *p = arg;
	struct ctl *ctl = p->ctl;
	const char *why = NULL;

	(void)fd;
	ctl_watch_awake(ctl);
	if (what & EV_WRITE && flush_out(p))
		why = "its agent's connection was reset";
	if (!why && what & EV_READ)
		why = receive(p);
	if (why)
		ctl_peer_drop(p, why);
	else if (p->closing)
		ctl_peer_free(p);
	ctl_end_check(ctl);
}
