/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes are symmetric, so most splits are another one with the names of
 * sockets, NUMA nodes or GPUs changed. What a split costs is a matrix of
 * types and classes; it is written down with its rows and columns sorted by
 * colours that do not depend on names. Two splits with the same text cost the
 * same. (Where colours leave a choice, a split may get another text than its
 * mirror image: then it is only tried once more.)
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 256
#define WORDS 512
#define POINTS 64	/* most types, and most classes */
#define ROUNDS 3

struct ddp_bind_seen {
	unsigned turn;			/* which of them count */
	unsigned words[SLOTS], turns[SLOTS];
	uint32_t text[SLOTS][WORDS];
};

struct paint {
	const struct ddp_bind_prob *p;
	const struct ddp_bind_net *net;
	uint64_t c[POINTS], t[POINTS], dom[DDP_BIND_NUMA];
	unsigned corder[POINTS], torder[POINTS];
	unsigned words;
	uint32_t text[WORDS];
};

int ddp_bind_seen_init(struct ddp_bind_prob *p)
{
	p->seen = calloc(1, sizeof(*p->seen));
	return p->seen ? 0 : -1;
}

void ddp_bind_seen_forget(struct ddp_bind_prob *p)
{
	p->seen->turn++;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	a = (a ^ b) * 0x9e3779b97f4a7c15U;
	return a ^ a >> 29;
}

/* One more round: the colour of a point hears those of all others. */
static void repaint(struct paint *w)
{
	const struct ddp_bind_net *net = w->net;
	uint64_t c2[POINTS] = { 0 }, t2[POINTS] = { 0 };

	memset(w->dom, 0, sizeof(w->dom));
	for (unsigned c = 0; c < net->nc; c++) {
		w->dom[w->p->dom_of[c]] += mix(w->c[c], 1);
		for (unsigned t = 0; t < net->nt; t++) {
			uint32_t cost = net->cost[(size_t)c * net->nt + t];

			c2[c] += mix(mix(w->t[t], cost), 2);
			t2[t] += mix(mix(w->c[c], cost), 3);
		}
	}
	for (unsigned c = 0; c < net->nc; c++)
		w->c[c] = mix(mix(w->c[c], c2[c]), w->dom[w->p->dom_of[c]]);
	for (unsigned t = 0; t < net->nt; t++)
		w->t[t] = mix(w->t[t], t2[t]);
}

static void sort(const uint64_t *colour, unsigned n, unsigned *order)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned at = i;

		while (at && colour[order[at - 1]] > colour[i]) {
			order[at] = order[at - 1];
			at--;
		}
		order[at] = i;
	}
}

/* All that costs depend on, in the order of the colours. */
static void write_text(struct paint *w)
{
	const struct ddp_bind_net *net = w->net;
	unsigned name[DDP_BIND_NUMA], names = 0;

	memset(name, 0xff, sizeof(name));
	w->text[w->words++] = net->nc << 16 | net->nt;
	for (unsigned i = 0; i < net->nt; i++)
		w->text[w->words++] = net->lo[w->torder[i]];
	for (unsigned i = 0; i < net->nc; i++) {
		unsigned c = w->corder[i], dom = w->p->dom_of[c];

		if (name[dom] == UINT32_MAX)
			name[dom] = names++;
		w->text[w->words++] = name[dom] << 8 | (unsigned)
			__builtin_popcountll(w->p->dom[dom]);
		w->text[w->words++] = net->supply[c];
		for (unsigned t = 0; t < net->nt; t++)
			w->text[w->words++] = net->cost[(size_t)c * net->nt +
							w->torder[t]];
	}
}

static bool disjoint(const struct ddp_bind_prob *p)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < p->ndom; all |= p->dom[i++])
		if (all & p->dom[i])
			return false;
	return true;
}

bool ddp_bind_seen(struct ddp_bind_prob *p, const struct ddp_bind_net *net)
{
	struct paint w = { .p = p, .net = net };
	uint64_t h = 0;
	unsigned slot;

	if (net->nc > POINTS || net->nt > POINTS || !disjoint(p) ||
	    1 + net->nt + net->nc * (2 + net->nt) > WORDS)
		return false;
	for (unsigned c = 0; c < net->nc; c++)
		w.c[c] = mix(net->supply[c], (unsigned)
			     __builtin_popcountll(p->numa[c]));
	for (unsigned t = 0; t < net->nt; t++)
		w.t[t] = mix(net->lo[t], 7);
	for (unsigned i = 0; i < ROUNDS; i++)
		repaint(&w);
	p->work -= (int64_t)ROUNDS * net->nc * net->nt;
	sort(w.c, net->nc, w.corder);
	sort(w.t, net->nt, w.torder);
	write_text(&w);
	for (unsigned i = 0; i < w.words; i++)
		h = mix(h, w.text[i]);
	slot = (unsigned)(h >> 32) % SLOTS;
	if (p->seen->words[slot] == w.words &&
	    p->seen->turns[slot] == p->seen->turn &&
	    !memcmp(p->seen->text[slot], w.text, w.words * sizeof(*w.text)))
		return true;
	p->seen->words[slot] = w.words;
	p->seen->turns[slot] = p->seen->turn;
	memcpy(p->seen->text[slot], w.text, w.words * sizeof(*w.text));
	return false;
}
