/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values by name that processes of the step hand to each other (NCCL's unique
 * ids, where there is no MPI). The first value of a name is its value; nodes
 * that have asked before it came get it then.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <stdlib.h>
#include <string.h>

#define PAIRS_MAX 256U

struct ctl_pair {
	char name[DDP_WIRE_KEY], value[DDP_WIRE_VALUE];
	uint8_t *waiting;	/* a bit a node */
};

static struct ctl_pair *find(struct ctl *ctl, const char *name)
{
	struct ctl_pair *p;

	for (unsigned i = 0; i < ctl->npairs; i++)
		if (!strcmp(ctl->pairs[i].name, name))
			return &ctl->pairs[i];
	if (ctl->npairs == PAIRS_MAX)
		return NULL;
	if (!ctl->pairs)
		ctl->pairs = calloc(PAIRS_MAX, sizeof(*ctl->pairs));
	if (!ctl->pairs)
		return NULL;
	p = &ctl->pairs[ctl->npairs];
	p->waiting = calloc((ctl->nnodes + 7) / 8, 1);
	if (!p->waiting)
		return NULL;
	(void)ddp_text_copy(p->name, sizeof(p->name), name);
	ctl->npairs++;
	return p;
}

static struct ctl_frame *frame_of(const struct ctl_pair *p)
{
	struct ddp_msg m = { .type = DDP_MSG_VALUE };

	memcpy(m.u.pair.name, p->name, sizeof(p->name));
	memcpy(m.u.pair.value, p->value, sizeof(p->value));
	return ctl_frame_new(&m);
}

static void put(struct ctl *ctl, struct ctl_pair *p, const char *value)
{
	struct ctl_frame *f;

	if (p->value[0] || !value[0])
		return;
	(void)ddp_text_copy(p->value, sizeof(p->value), value);
	f = frame_of(p);
	for (uint32_t i = 0; f && i < ctl->nnodes; i++)
		if (p->waiting[i / 8] >> i % 8 & 1 && ctl->nodes[i].peer)
			ctl_peer_send_frame(ctl->nodes[i].peer, f);
	ctl_frame_put(f);
}

int ctl_pair_message(struct ctl_peer *peer, const struct ddp_msg *m)
{
	struct ctl *ctl = peer->ctl;
	struct ctl_pair *p;
	struct ctl_frame *f;

	if (!ddp_life_is_name(m->u.pair.name))
		return -1;
	p = find(ctl, m->u.pair.name);
	if (!p) {
		if (!ctl->pairs_said++)
			ctl_say(ctl, "warning: more than %u names of values "
				"(ddp_comm): who waits for one more waits in "
				"vain", PAIRS_MAX);
		return 0;
	}
	if (m->type == DDP_MSG_PUT) {
		put(ctl, p, m->u.pair.value);
	} else if (p->value[0]) {
		f = frame_of(p);
		if (f)
			ctl_peer_send_frame(peer, f);
		ctl_frame_put(f);
	} else {
		p->waiting[peer->node / 8] |= (uint8_t)(1U << peer->node % 8);
	}
	return 0;
}

void ctl_pair_clear(struct ctl *ctl)
{
	for (unsigned i = 0; i < ctl->npairs; i++)
		free(ctl->pairs[i].waiting);
	free(ctl->pairs);
	ctl->pairs = NULL;
	ctl->npairs = 0;
}
