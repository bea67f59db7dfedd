/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many blocks there can be at most, by counting alone: the units of a
 * block must be what some whole number of ranks can have, k to k + 1 each,
 * and all ranks must be used up. Who may have which unit is ignored, so this
 * is an upper bound, and it depends only on how many domains of each size are
 * left and on the number of ranks: a table, filled as it is asked.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

#define TABLE 65536
#define UNKNOWN 255	/* in the table; else blocks + 1, 0: impossible */

struct ddp_bind_count {
	bool on;
	unsigned nsizes, ranks;
	uint32_t size[DDP_BIND_NUMA];
	unsigned stride[DDP_BIND_NUMA], many[DDP_BIND_NUMA];
	unsigned size_of[DDP_BIND_NUMA];	/* of each domain */
	uint8_t table[TABLE];
};

/* A block that is being made of the domains that are left. */
struct making {
	unsigned left[DDP_BIND_NUMA];
	unsigned state, ranks, first;
	unsigned best;
};

static unsigned most_blocks(struct ddp_bind_face *f, unsigned state,
			    unsigned ranks);

int ddp_bind_count_init(struct ddp_bind_prob *p)
{
	p->count = calloc(1, sizeof(*p->count));
	return p->count ? 0 : -1;
}

void ddp_bind_count_start(struct ddp_bind_face *f)
{
	struct ddp_bind_count *w = f->p->count;
	size_t states = 1;

	w->nsizes = 0;
	w->ranks = f->n;
	for (unsigned i = 0; i < f->ndom; i++) {
		unsigned s = 0;

		while (s < w->nsizes && w->size[s] != f->dom_supply[i])
			s++;
		if (s == w->nsizes) {
			w->size[w->nsizes++] = f->dom_supply[i];
			w->many[s] = 0;
		}
		w->many[s]++;
		w->size_of[i] = s;
	}
	w->on = f->disjoint;
	for (unsigned s = 0; s < w->nsizes && w->on; s++) {
		w->stride[s] = (unsigned)states;
		states *= w->many[s] + 1;
		w->on = states * (f->n + 1) <= TABLE;
	}
	if (!w->on)
		return;
	memset(w->table, UNKNOWN, states * (f->n + 1));
	f->p->work -= (int64_t)states * (f->n + 1) / 64;
}

/* The block has this supply: all numbers of ranks that fit, and the rest. */
static void close_block(struct ddp_bind_face *f, struct making *m,
			unsigned state, uint32_t supply)
{
	unsigned k = f->p->k, most = k + (f->p->kx > 0);

	for (unsigned r = (supply + most - 1) / most;
	     r <= supply / k && r <= m->ranks; r++) {
		unsigned rest = most_blocks(f, state, m->ranks - r);

		if (rest && rest + 1 > m->best)
			m->best = rest + 1;
	}
}

static void add_size(struct ddp_bind_face *f, struct making *m, unsigned s,
		     unsigned state, uint32_t supply)
{
	const struct ddp_bind_count *w = f->p->count;

	f->p->work--;
	if (f->p->work < 0)
		return;
	if (s == w->nsizes) {
		close_block(f, m, state, supply);
		return;
	}
	for (unsigned n = s == m->first; n <= m->left[s]; n++)
		add_size(f, m, s + 1, state - n * w->stride[s],
			 supply + n * w->size[s]);
}

/* Blocks and 1; 0: there is no way. */
static unsigned most_blocks(struct ddp_bind_face *f, unsigned state,
			    unsigned ranks)
{
	struct ddp_bind_count *w = f->p->count;
	uint8_t *cell = &w->table[(size_t)state * (w->ranks + 1) + ranks];
	struct making m = { .state = state, .ranks = ranks };
	unsigned rest = state;

	if (!state || !ranks)
		return !state && !ranks;
	if (*cell != UNKNOWN)
		return *cell;
	f->p->work -= 4;
	m.first = w->nsizes;
	for (unsigned s = w->nsizes; s-- > 0;) {
		m.left[s] = rest / w->stride[s];
		rest %= w->stride[s];
		if (m.left[s])
			m.first = s;
	}
	add_size(f, &m, 0, state, 0);
	*cell = (uint8_t)m.best;
	return m.best;
}

int ddp_bind_count_blocks(struct ddp_bind_face *f, uint64_t doms,
			  unsigned ranks)
{
	struct ddp_bind_count *w = f->p->count;
	unsigned state = 0, blocks;

	if (!w->on)
		return -1;
	for (; doms; doms &= doms - 1)
		state += w->stride[w->size_of[__builtin_ctzll(doms)]];
	blocks = most_blocks(f, state, ranks);
	/* Without work the table is not what it says. */
	w->on = f->p->work >= 0;
	return w->on ? (int)blocks : -1;
}
