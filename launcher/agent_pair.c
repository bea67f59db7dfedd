/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values by name that processes of the step hand to each other, as NCCL's
 * unique ids: through the controller, each once a node. A process waits for
 * one at a time.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Kept here; more come from the controller each time. */
#define KEPT_MAX 64U

struct agent_pair {
	char name[DDP_WIRE_KEY], value[DDP_WIRE_VALUE];
};

static const struct agent_pair *find(const struct agent *a, const char *name)
{
	for (unsigned i = 0; i < a->life.npairs; i++)
		if (!strcmp(a->life.pairs[i].name, name))
			return &a->life.pairs[i];
	return NULL;
}

/* Returns whether it is one. */
static bool answer(struct agent_mate *m, const char *name, const char *value)
{
	struct ddp_life_msg l = { .kind = DDP_LIFE_MSG_VALUE };
	char line[DDP_LIFE_LINE];
	size_t len = strlen(value);
	int n;

	if (len % 2 || len / 2 > sizeof(l.value) ||
	    ddp_unhex(value, len, l.value, len / 2) ||
	    ddp_text_copy(l.name, sizeof(l.name), name))
		return false;
	l.size = (uint32_t)(len / 2);
	n = ddp_life_format(&l, line, sizeof(line), NULL);
	if (n > 0)
		(void)send(m->fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n > 0;
}

static bool is_asked(const struct agent_mate *self, const char *name)
{
	const struct agent_mate *m;

	TAILQ_FOREACH(m, &self->a->life.mates, link)
		if (m != self && !strcmp(m->wants, name))
			return true;
	return false;
}

static void get(struct agent_mate *m, const char *name)
{
	struct ddp_msg out = { .type = DDP_MSG_GET };
	const struct agent_pair *known = find(m->a, name);

	m->wants[0] = '\0';
	if (known) {
		(void)answer(m, name, known->value);
		return;
	}
	(void)ddp_text_copy(m->wants, sizeof(m->wants), name);
	(void)ddp_text_copy(out.u.pair.name, sizeof(out.u.pair.name), name);
	if (!is_asked(m, name))
		agent_link_send(m->a, &out);
}

void agent_pair_take(struct agent_mate *m, const struct ddp_life_msg *l)
{
	struct ddp_msg out = { .type = DDP_MSG_PUT };

	if (l->kind == DDP_LIFE_MSG_GET) {
		get(m, l->name);
		return;
	}
	(void)ddp_text_copy(out.u.pair.name, sizeof(out.u.pair.name), l->name);
	ddp_hex(l->value, l->size, out.u.pair.value);
	agent_link_send(m->a, &out);
}

static void keep(struct agent *a, const char *name, const char *value)
{
	struct agent_pair *p;

	if (find(a, name) || a->life.npairs == KEPT_MAX)
		return;
	if (!a->life.pairs)
		a->life.pairs = calloc(KEPT_MAX, sizeof(*a->life.pairs));
	if (!a->life.pairs)
		return;
	p = &a->life.pairs[a->life.npairs++];
	(void)ddp_text_copy(p->name, sizeof(p->name), name);
	(void)ddp_text_copy(p->value, sizeof(p->value), value);
}

void agent_pair_on_value(struct agent *a, const struct ddp_msg *m)
{
	struct agent_mate *mate;

	keep(a, m->u.pair.name, m->u.pair.value);
	TAILQ_FOREACH(mate, &a->life.mates, link)
		if (m->u.pair.name[0] && !strcmp(mate->wants, m->u.pair.name)) {
			mate->wants[0] = '\0';
			(void)answer(mate, m->u.pair.name, m->u.pair.value);
		}
}

void agent_pair_free(struct agent *a)
{
	free(a->life.pairs);
	a->life.pairs = NULL;
	a->life.npairs = 0;
}
