/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake: each side proves that it knows the step's key. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"
#include "launcher/net_auth.h"

#include <stdlib.h>
#include <string.h>

/* A handshake on a busy host says little about the clocks. */
#define SLACK_MAX_US 20000

/* HELLO as the agent said it; its job and step are ours, or it is refused. */
static void hello_of(const struct ctl_peer *p, struct ddp_msg *m)
{
	memset(m, 0, sizeof(*m));
	m->type = DDP_MSG_HELLO;
	m->u.hello.version = DDP_WIRE_VERSION;
	m->u.hello.job = p->ctl->conf.job;
	m->u.hello.step = p->ctl->conf.step;
	memcpy(m->u.hello.name, p->shake->name, sizeof(m->u.hello.name));
	memcpy(m->u.hello.nonce, p->shake->theirs, DDP_NONCE_BYTES);
}

static int hello(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ctl *ctl = p->ctl;
	struct ddp_msg out = { .type = DDP_MSG_CHALLENGE };

	if (m->type != DDP_MSG_HELLO ||
	    m->u.hello.version != DDP_WIRE_VERSION ||
	    m->u.hello.job != ctl->conf.job ||
	    m->u.hello.step != ctl->conf.step)
		return -1;
	p->shake = calloc(1, sizeof(*p->shake));
	if (!p->shake)
		return -1;
	memcpy(p->shake->name, m->u.hello.name, sizeof(p->shake->name));
	memcpy(p->shake->theirs, m->u.hello.nonce, DDP_NONCE_BYTES);
	net_auth_nonce(p->shake->ours, DDP_NONCE_BYTES);
	memcpy(out.u.challenge.nonce, p->shake->ours, DDP_NONCE_BYTES);
	net_auth_mac(ctl->conf.key, NET_CONTROLLER, m, p->shake->ours,
		     out.u.challenge.mac);
	TAILQ_REMOVE(&ctl->strangers, p, link);
	ctl->nstrangers--;
	p->state = PEER_SHAKING;
	TAILQ_INSERT_TAIL(&ctl->shaking, p, link);
	ctl->nshaking++;
	p->shake->sent_us = ddp_io_now_us();
	ctl_peer_send(p, &out);
	return 0;
}

static void welcome(struct ctl_peer *p)
{
	struct ctl *ctl = p->ctl;
	struct ddp_msg out = { .type = DDP_MSG_WELCOME };
	int64_t trip;

	p->heard_us = ddp_io_now_us();
	trip = p->heard_us - p->shake->sent_us;
	p->slack_us = (uint32_t)(trip / 2 < SLACK_MAX_US ? trip / 2 :
				 SLACK_MAX_US);
	p->name = ctl_conf_node(ctl, p->shake->name);
	if (p->name != CTL_NONE) {
		ctl->nodes[p->name].seen = true;
		ctl->nodes[p->name].agents++;
	}
	free(p->shake);
	p->shake = NULL;
	TAILQ_REMOVE(&ctl->shaking, p, link);
	ctl->nshaking--;
	p->state = PEER_WELCOME;
	TAILQ_INSERT_TAIL(&ctl->agents, p, link);
	out.u.welcome.ping_ms = ctl->ping_ms;
	out.u.welcome.silence_ms = ctl->conf.node_ms;
	out.u.welcome.signal = ctl->conf.signal;
	out.u.welcome.grace_ms = ctl->conf.grace_ms;
	ctl_peer_send(p, &out);
	ctl_watch_start(ctl);
}

static int auth(struct ctl_peer *p, const struct ddp_msg *m)
{
	struct ddp_msg said;
	uint8_t mac[DDP_MAC_BYTES];

	if (m->type != DDP_MSG_AUTH)
		return -1;
	hello_of(p, &said);
	net_auth_mac(p->ctl->conf.key, NET_AGENT, &said, p->shake->ours, mac);
	if (!net_auth_equal(mac, m->u.auth.mac))
		return -1;
	welcome(p);
	return 0;
}

int ctl_auth_message(struct ctl_peer *p, const struct ddp_msg *m)
{
	return p->state == PEER_NEW ? hello(p, m) : auth(p, m);
}
