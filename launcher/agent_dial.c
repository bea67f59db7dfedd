/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the controller: srun's host may have several addresses, some of
 * them unreachable from here, some another host's. A round tries them all,
 * the next one after a quarter of a second or at once after a failure; the
 * first that proves to know the step's key is taken, the others are closed
 * before this side has proved anything. Rounds go on until the time for the
 * start of the step is over.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"
#include "launcher/net_auth.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define NEXT_MS 250
#define TRY_S 5
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 2000

struct try {
	struct agent *a;
	struct bufferevent *bev;	/* NULL: not under way */
	bool connected, proved;
	struct ddp_msg hello;
	char error[96];		/* of its last attempt */
};

struct agent_dial {
	struct try tries[DDP_CONTROL_ADDRS];
	unsigned next;		/* the next address of this round */
	uint32_t pause_ms;
	struct event *timer;
};

static void start_next(struct agent *a);
static void on_timer(evutil_socket_t fd, short what, void *arg);

static void set_error(struct try *t, const char *text)
{
	size_t pos = 0;

	t->error[0] = '\0';
	(void)ddp_text_add(t->error, sizeof(t->error), &pos, "%.90s", text);
}

/* The round is over when no attempt is left; then there is a pause. */
static void failed(struct try *t, const char *why)
{
	struct agent *a = t->a;
	struct agent_dial *d = a->link.dial;

	set_error(t, why);
	bufferevent_free(t->bev);
	t->bev = NULL;
	if (d->next < a->control.naddrs) {
		start_next(a);
		return;
	}
	for (unsigned i = 0; i < a->control.naddrs; i++)
		if (d->tries[i].bev)
			return;
	d->next = 0;
	agent_timer(a, &d->timer, d->pause_ms, on_timer, a);
	d->pause_ms *= 2;
	if (d->pause_ms > PAUSE_MAX_MS)
		d->pause_ms = PAUSE_MAX_MS;
}

static void send_hello(struct try *t)
{
	struct agent *a = t->a;
	struct ddp_msg *m = &t->hello;

	memset(m, 0, sizeof(*m));
	m->type = DDP_MSG_HELLO;
	m->u.hello.version = DDP_WIRE_VERSION;
	m->u.hello.job = a->conf.job;
	m->u.hello.step = a->conf.step;
	memcpy(m->u.hello.name, a->conf.name, sizeof(m->u.hello.name));
	net_auth_nonce(m->u.hello.nonce, DDP_NONCE_BYTES);
	t->connected = true;
	(void)agent_link_put(t->bev, m);
}

/* Only this attempt goes on. */
static void choose(struct try *t)
{
	struct agent_dial *d = t->a->link.dial;

	agent_event_free(&d->timer);
	d->next = t->a->control.naddrs;
	for (unsigned i = 0; i < t->a->control.naddrs; i++) {
		if (&d->tries[i] == t || !d->tries[i].bev)
			continue;
		bufferevent_free(d->tries[i].bev);
		d->tries[i].bev = NULL;
	}
}

static int on_challenge(struct try *t, const struct ddp_msg *m)
{
	struct ddp_msg auth = { .type = DDP_MSG_AUTH };
	uint8_t mac[DDP_MAC_BYTES];

	net_auth_mac(t->a->control.key, NET_CONTROLLER, &t->hello,
		     m->u.challenge.nonce, mac);
	if (!net_auth_equal(mac, m->u.challenge.mac))
		return -1;
	choose(t);
	t->proved = true;
	net_auth_mac(t->a->control.key, NET_AGENT, &t->hello,
		     m->u.challenge.nonce, auth.u.auth.mac);
	return agent_link_put(t->bev, &auth);
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct try *t = arg;
	struct agent *a = t->a;
	struct ddp_msg m;
	size_t drop = 0;
	int rc;

	while ((rc = agent_link_next(bev, DDP_WIRE_FIRST_MAX, &m, &drop)) > 0) {
		evbuffer_drain(bufferevent_get_input(bev), drop);
		if (m.type == DDP_MSG_CHALLENGE && !t->proved) {
			if (!on_challenge(t, &m))
				continue;
			failed(t, "it does not know the step's key");
			return;
		}
		if (m.type != DDP_MSG_WELCOME || !t->proved) {
			rc = -1;
			break;
		}
		t->bev = NULL;
		agent_dial_stop(a);
		agent_link_take(a, bev, &m);
		return;
	}
	if (rc < 0)
		failed(t, "what answers is no controller of ddp");
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct try *t = arg;
	int on = 1, error = EVUTIL_SOCKET_ERROR();

	if (what & BEV_EVENT_CONNECTED) {
		(void)setsockopt(bufferevent_getfd(bev), IPPROTO_TCP,
				 TCP_NODELAY, &on, sizeof(on));
		send_hello(t);
	} else if (what & BEV_EVENT_TIMEOUT) {
		failed(t, t->connected ? "it accepts but does not answer"
			: strerror(ETIMEDOUT));
	} else if (what & BEV_EVENT_EOF) {
		failed(t, "it closed the connection before the step's key "
			  "was proved");
	} else {
		failed(t, strerror(error));
	}
}

static socklen_t address(const struct ddp_control *c, unsigned i,
			 struct sockaddr_storage *ss)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (inet_pton(AF_INET, c->addr[i], &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(c->port);
		return sizeof(*in);
	}
	(void)inet_pton(AF_INET6, c->addr[i], &in6->sin6_addr);
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(c->port);
	return sizeof(*in6);
}

static void start_next(struct agent *a)
{
	static const struct timeval limit = { TRY_S, 0 };
	struct agent_dial *d = a->link.dial;
	unsigned i = d->next++;
	struct try *t = &d->tries[i];
	struct sockaddr_storage ss;
	socklen_t len = address(&a->control, i, &ss);

	t->a = a;
	t->connected = t->proved = false;
	t->bev = bufferevent_socket_new(a->base, -1, BEV_OPT_CLOSE_ON_FREE |
					BEV_OPT_DEFER_CALLBACKS);
	if (!t->bev) {
		event_base_loopbreak(a->base);
		return;
	}
	bufferevent_setcb(t->bev, on_read, NULL, on_event, t);
	bufferevent_set_timeouts(t->bev, &limit, &limit);
	bufferevent_setwatermark(t->bev, EV_READ, 0, 4096);
	(void)bufferevent_enable(t->bev, EV_READ | EV_WRITE);
	if (d->next < a->control.naddrs)
		agent_timer(a, &d->timer, NEXT_MS, on_timer, a);
	/* Some failures come at once, others through on_event(). */
	if (bufferevent_socket_connect(t->bev, (struct sockaddr *)&ss,
				       (int)len))
		failed(t, strerror(EVUTIL_SOCKET_ERROR()));
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	if (a->link.dial && a->link.dial->next < a->control.naddrs)
		start_next(a);
}

int agent_dial_start(struct agent *a)
{
	a->link.dial = calloc(1, sizeof(*a->link.dial));
	if (!a->link.dial)
		return -1;
	a->link.dial->pause_ms = PAUSE_MIN_MS;
	a->link.state = LINK_DIALS;
	start_next(a);
	return 0;
}

void agent_dial_stop(struct agent *a)
{
	struct agent_dial *d = a->link.dial;

	if (!d)
		return;
	a->link.dial = NULL;
	agent_event_free(&d->timer);
	for (unsigned i = 0; i < DDP_CONTROL_ADDRS; i++)
		if (d->tries[i].bev)
			bufferevent_free(d->tries[i].bev);
	free(d);
}

void agent_dial_report(const struct agent *a, char *buf, size_t size)
{
	const struct agent_dial *d = a->link.dial;
	size_t pos = 0;

	buf[0] = '\0';
	for (unsigned i = 0; d && i < a->control.naddrs; i++) {
		const struct try *t = &d->tries[i];

		(void)ddp_text_add(buf, size, &pos, "%s%s port %u: %s",
			i ? "; " : "", a->control.addr[i], a->control.port,
			t->error[0] ? t->error : "no answer");
	}
}
