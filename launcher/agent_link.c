/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the controller, and the framing of all connections. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

/* A timer this late was not slow: this process was stopped. */
#define STOPPED_US 1000000U

int agent_link_next(struct bufferevent *bev, size_t limit, struct ddp_msg *m,
		    size_t *drop)
{
	struct evbuffer *in = bufferevent_get_input(bev);
	uint8_t head[DDP_WIRE_HEAD];
	uint32_t len;
	uint8_t *p;

	if (evbuffer_copyout(in, head, sizeof(head)) != sizeof(head))
		return 0;
	len = ddp_wire_length(head);
	if (!len || len > limit)
		return -1;
	*drop = sizeof(head) + len;
	if (evbuffer_get_length(in) < *drop)
		return 0;
	p = evbuffer_pullup(in, (ev_ssize_t)*drop);
	if (!p || ddp_wire_decode(m, p + sizeof(head), len, NULL))
		return -1;
	return 1;
}

int agent_link_put(struct bufferevent *bev, const struct ddp_msg *m)
{
	size_t size = ddp_wire_bound(m), len;
	uint8_t *buf = malloc(size);
	int rc = -1;

	len = buf ? ddp_wire_encode(m, buf, size) : 0;
	if (len)
		rc = bufferevent_write(bev, buf, len);
	free(buf);
	return rc;
}

static void lost(struct agent *a, const char *why)
{
	if (a->link.state != LINK_UP)
		return;
	agent_link_close(a);
	agent_on_lost(a, why);
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct agent *a = arg;
	struct ddp_msg m;
	size_t drop = 0;
	int rc = 1;

	a->link.heard_us = agent_now_us();
	while (a->link.bev == bev &&
	       (rc = agent_link_next(bev, DDP_WIRE_MAX, &m, &drop)) > 0) {
		agent_on_message(a, &m);
		if (a->link.bev == bev)
			evbuffer_drain(bufferevent_get_input(bev), drop);
	}
	if (rc < 0)
		lost(a, "srun's controller sent what is no message");
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	(void)bev;
	(void)what;
	lost(arg, "the connection to srun's controller was lost");
}

static void arm(struct agent *a);

/* The next PING, or silence. Between pings nothing wakes this process. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;
	struct ddp_msg ping = { .type = DDP_MSG_PING };
	uint64_t now = agent_now_us();

	(void)fd;
	(void)what;
	if (a->link.state != LINK_UP)
		return;
	/* The srun and controller of a suspended batch job stand still too. */
	if (now > a->link.wake_us + STOPPED_US ||
	    (now > a->link.heard_us + a->link.silence_ms * 500ULL &&
	     agent_task_suspended(a)))
		a->link.heard_us = now;
	if (now >= a->link.heard_us + a->link.silence_ms * 1000ULL) {
		lost(a, "srun's controller does not answer any more");
		return;
	}
	if (now >= a->link.ping_us) {
		ping.u.ping.now_us = now;
		agent_link_send(a, &ping);
		agent_task_sample(a);
		a->link.ping_us = now + a->link.ping_ms * 1000ULL;
	}
	arm(a);
}

static void arm(struct agent *a)
{
	uint64_t silent = a->link.heard_us + a->link.silence_ms * 1000ULL;
	uint64_t at = silent < a->link.ping_us ? silent : a->link.ping_us;
	uint64_t now = agent_now_us();

	a->link.wake_us = at > now ? at : now;
	agent_timer(a, &a->link.timer,
		    (uint32_t)((a->link.wake_us - now + 999) / 1000),
		    on_timer, a);
}

static uint32_t within(uint32_t v, uint32_t min, uint32_t max)
{
	return v < min ? min : v > max ? max : v;
}

void agent_link_take(struct agent *a, struct bufferevent *bev,
		     const struct ddp_msg *m)
{
	int fd = bufferevent_getfd(bev), on = 1;
	unsigned ms;

	a->link.bev = bev;
	a->link.state = LINK_UP;
	a->link.silence_ms = within(m->u.welcome.silence_ms, 100, 86400000);
	a->link.ping_ms = within(m->u.welcome.ping_ms, 10, 86400000);
	a->link.heard_us = agent_now_us();
	a->link.ping_us = a->link.heard_us;
	if (m->u.welcome.signal)
		a->end_signal = m->u.welcome.signal;
	a->end_grace_ms = m->u.welcome.grace_ms;
	ms = a->link.silence_ms;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	bufferevent_set_timeouts(bev, NULL, NULL);
	bufferevent_setcb(bev, on_read, NULL, on_event, a);
	bufferevent_setwatermark(bev, EV_READ, 0,
				 DDP_WIRE_HEAD + DDP_WIRE_MAX);
	arm(a);
	agent_on_up(a);
	/* What came with WELCOME is in the buffer already. */
	if (a->link.bev == bev)
		bufferevent_trigger(bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS |
				    BEV_TRIG_DEFER_CALLBACKS);
}

void agent_link_send(struct agent *a, const struct ddp_msg *m)
{
	if (a->link.state == LINK_UP)
		(void)agent_link_put(a->link.bev, m);
}

void agent_link_note(struct agent *a, enum ddp_note kind, const char *text)
{
	struct ddp_msg m = { .type = DDP_MSG_NOTE };
	size_t pos = 0;

	m.u.note.kind = (uint8_t)kind;
	(void)ddp_text_add(m.u.note.text, sizeof(m.u.note.text), &pos, "%s",
			   text);
	agent_link_send(a, &m);
}

void agent_link_close(struct agent *a)
{
	agent_event_free(&a->link.timer);
	if (a->link.bev)
		bufferevent_free(a->link.bev);
	a->link.bev = NULL;
	if (a->link.state == LINK_UP)
		a->link.state = LINK_CLOSED;
}
