/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fewest NUMA nodes that ranks touch, among the cheapest ways to hand out
 * the cores (ddp_bind_face.c).
 *
 * Take a way, and draw a line between each rank and each domain that it has
 * cores of. What hangs together is a block: some domains whose cores go to
 * some ranks, all of them and to no others. A connected graph has at least
 * as many lines as points less one, so with N domains and n ranks
 *
 *	U >= N + n - blocks.
 *
 * Where every domain is one column ("regular"), this many suffice: a circle
 * of lines has only tight arcs, and moving cores around it changes neither
 * cost nor shares, until a line is gone. So the most blocks are wanted, and
 * they are found by trying: a block of the first domain that is left, small
 * ones first, then the rest. U rises by one until there is a way; what is
 * known to be impossible is remembered. Domains that are alike are tried
 * once. The same holds for a single block in which the columns of a domain
 * are open to the same ranks of the block. Other blocks of several domains
 * are searched by themselves (ddp_bind_pattern.c); a block of one domain
 * costs a domain a rank.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 512

/* What is known to be impossible. */
struct ddp_bind_fail {
	unsigned turn, spare;	/* not even with so many lines */
	uint64_t rest;
	uint16_t left[DDP_BIND_TYPES];
};

struct seek {
	struct ddp_bind_face *f;
	uint16_t left[DDP_BIND_TYPES];
	unsigned nleft, nblocks;
	struct ddp_bind_block *blocks;
	bool gave_up;
};

/* A block that is being made, and how many lines there may be. */
struct making {
	struct ddp_bind_block b;
	uint64_t rest;
	unsigned spare, ranks;
	uint32_t supply;
	unsigned open[DDP_BIND_TYPES + 1];
};

static bool seek(struct seek *s, uint64_t rest, unsigned spare);

bool ddp_bind_fills(const struct ddp_bind_prob *p, uint32_t supply)
{
	unsigned most = p->k + (p->kx > 0);

	return supply && (supply + most - 1) / most <= supply / p->k;
}

/*
 * Fewest lines for so many domains, of which some can be filled by whole
 * ranks, and so many ranks: a block of others has at least two of them.
 */
static unsigned lines(unsigned doms, unsigned single, unsigned ranks)
{
	unsigned blocks = single + (doms - single) / 2;

	if (doms && !blocks)
		blocks = 1;
	if (blocks > ranks)
		blocks = ranks;
	return doms + ranks - blocks;
}

/* Fewest NUMA nodes for these domains and so many ranks. */
static unsigned least_lines(const struct ddp_bind_face *f, uint64_t rest,
			    unsigned ranks)
{
	unsigned single = 0;

	if (!f->disjoint)
		return ranks * f->weight;
	for (uint64_t m = rest; m; m &= m - 1)
		single += f->single[__builtin_ctzll(m)];
	return lines((unsigned)__builtin_popcountll(rest), single, ranks) *
		f->weight;
}

/* The same with all that can be counted. */
static unsigned count_lines(struct ddp_bind_face *f, uint64_t rest,
			    unsigned ranks)
{
	int blocks = ddp_bind_count_blocks(f, rest, ranks);

	if (blocks < 0)
		return least_lines(f, rest, ranks);
	if (!blocks)
		return UINT32_MAX;
	return ((unsigned)__builtin_popcountll(rest) + ranks + 1 -
		(unsigned)blocks) * f->weight;
}

unsigned ddp_bind_face_floor(const struct ddp_bind_face *f)
{
	return least_lines(f, UINT64_MAX >> (64 - f->ndom), f->n);
}

unsigned ddp_bind_numa_floor(const struct ddp_bind_prob *p)
{
	unsigned weight = DDP_BIND_NUMA, single = 0;
	bool disjoint = true;
	uint64_t all = 0;

	for (unsigned i = 0; i < p->ndom; i++) {
		unsigned w = (unsigned)__builtin_popcountll(p->dom[i]);
		uint32_t supply = 0;

		for (unsigned c = 0; c < p->nc; c++)
			if (p->dom_of[c] == i)
				supply += p->supply[c];
		single += ddp_bind_fills(p, supply);
		if (w < weight)
			weight = w;
		disjoint = disjoint && !(all & p->dom[i]);
		all |= p->dom[i];
	}
	return (disjoint ? lines(p->ndom, single, p->n) : p->n) * weight;
}

bool ddp_bind_block_fits(struct ddp_bind_face *f,
			 const struct ddp_bind_block *b)
{
	struct ddp_bind_net *net = &f->net;
	unsigned t, c, i;

	net->nt = net->nc = 0;
	for (t = 0; t < f->nt; t++) {
		if (!b->a[t])
			continue;
		i = net->nt++;
		ddp_bind_face_bounds(f, t, b->a[t], &net->lo[i], &net->hi[i]);
	}
	for (c = 0; c < f->ncol; c++) {
		if (!(b->doms >> f->dom[c] & 1))
			continue;
		for (t = i = 0; t < f->nt; t++)
			if (b->a[t])
				net->cost[(size_t)net->nc * net->nt + i++] =
					f->arc[(size_t)c * f->nt + t] ? 0 :
					DDP_BIND_FORBID;
		net->supply[net->nc++] = f->supply[c];
	}
	return ddp_bind_net_solve(net, &f->p->work) >= 0;
}

bool ddp_bind_block_regular(const struct ddp_bind_face *f,
			    const struct ddp_bind_block *b)
{
	int first[DDP_BIND_NUMA];

	if (f->regular)
		return true;
	for (unsigned i = 0; i < f->ndom; i++)
		first[i] = -1;
	for (unsigned c = 0; c < f->ncol; c++) {
		unsigned dom = f->dom[c];

		if (!(b->doms >> dom & 1))
			continue;
		if ((unsigned)__builtin_popcountll(f->numa[dom]) != f->weight)
			return false;
		if (first[dom] < 0)
			first[dom] = (int)c;
		for (unsigned t = 0; t < f->nt; t++)
			if (b->a[t] && f->arc[(size_t)c * f->nt + t] !=
			    f->arc[(size_t)first[dom] * f->nt + t])
				return false;
	}
	return f->disjoint;
}

unsigned ddp_bind_block_cost(struct ddp_bind_face *f,
			     const struct ddp_bind_block *b, unsigned cap)
{
	unsigned doms = (unsigned)__builtin_popcountll(b->doms), ranks = 0;
	bool regular = doms == 1 || ddp_bind_block_regular(f, b);
	unsigned cost;

	for (unsigned t = 0; t < f->nt; t++)
		ranks += b->a[t];
	cost = doms + ranks - 1;
	if (doms == 1)
		cost *= (unsigned)__builtin_popcountll(
			f->numa[__builtin_ctzll(b->doms)]);
	else if (regular)
		cost *= f->weight;
	else
		cost = least_lines(f, b->doms, ranks);
	if (cost > cap || !ddp_bind_block_fits(f, b))
		return cap + 1;
	return regular ? cost :
		ddp_bind_pattern_cost(f, b, cap);
}

/* The domains and ranks are chosen: does it fit, and the rest too? */
static bool try_block(struct seek *s, const struct making *m)
{
	uint64_t rest = m->rest & ~m->b.doms;
	unsigned after = count_lines(s->f, rest, s->nleft - m->ranks), cost;
	uint32_t lo = 0, hi = 0, a, z;
	bool found;

	s->f->p->work -= s->f->nt / 4;
	if (after > m->spare || !rest != (s->nleft == m->ranks))
		return false;
	for (unsigned t = 0; t < s->f->nt; t++) {
		ddp_bind_face_bounds(s->f, t, m->b.a[t], &a, &z);
		lo += a;
		hi += z;
	}
	if (m->supply < lo || m->supply > hi)
		return false;
	cost = ddp_bind_block_cost(s->f, &m->b, m->spare - after);
	if (cost > m->spare - after)
		return false;
	s->blocks[s->nblocks++] = m->b;
	for (unsigned t = 0; t < s->f->nt; t++)
		s->left[t] = (uint16_t)(s->left[t] - m->b.a[t]);
	s->nleft -= m->ranks;
	found = seek(s, rest, m->spare - cost);
	s->nleft += m->ranks;
	for (unsigned t = 0; t < s->f->nt; t++)
		s->left[t] = (uint16_t)(s->left[t] + m->b.a[t]);
	s->nblocks -= !found;
	return found;
}

/* need more ranks, of type t and later ones. */
static bool pick_ranks(struct seek *s, struct making *m, unsigned t,
		       unsigned need)
{
	unsigned later, most, least;
	bool found = false;

	if (!need)
		return !s->gave_up && try_block(s, m);
	if (t == s->f->nt || need > m->open[t])
		return false;
	later = m->open[t + 1];
	most = m->open[t] - later < need ? m->open[t] - later : need;
	least = need > later ? need - later : 0;
	for (unsigned a = most + 1; a-- > least && !found && !s->gave_up;) {
		s->f->p->work--;
		s->gave_up = s->f->p->work < 0;
		m->b.a[t] = (uint16_t)a;
		found = pick_ranks(s, m, t + 1, need - a);
		m->b.a[t] = 0;
	}
	return found;
}

/* The ranks that are left and can use the domains, of each type and later
 * ones. */
static void find_open(const struct seek *s, struct making *m)
{
	m->open[s->f->nt] = 0;
	for (unsigned t = s->f->nt; t-- > 0;)
		m->open[t] = m->open[t + 1] +
			(s->f->reach[t] & m->b.doms ? s->left[t] : 0);
}

/* All numbers of ranks that k to k + 1 units each make up the block. */
static bool count_ranks(struct seek *s, struct making *m)
{
	unsigned k = s->f->p->k, k1 = k + (s->f->p->kx > 0);
	unsigned lo = (m->supply + k1 - 1) / k1, hi = m->supply / k;
	bool found = false;

	if (lo > hi)
		return false;
	s->f->p->work -= s->f->nt / 4;
	find_open(s, m);
	if (hi > m->open[0])
		hi = m->open[0];
	for (unsigned r = lo; r <= hi && !found && !s->gave_up; r++) {
		uint64_t rest = m->rest & ~m->b.doms;
		unsigned after = count_lines(s->f, rest, s->nleft - r);

		m->ranks = r;
		if (after <= m->spare &&
		    least_lines(s->f, m->b.doms, r) <= m->spare - after)
			found = pick_ranks(s, m, 0, r);
	}
	return found;
}

/* need more domains out of open; of a kind, the first. */
static bool pick_doms(struct seek *s, struct making *m, uint64_t open,
		      unsigned need)
{
	const struct ddp_bind_face *f = s->f;
	unsigned many = (unsigned)__builtin_popcountll(open);
	uint64_t skipped = 0;	/* kinds */
	bool found = false;

	if (!need)
		return count_ranks(s, m);
	for (; many >= need && !found && !s->gave_up; many--) {
		unsigned i = (unsigned)__builtin_ctzll(open);
		uint64_t bit = open & -open;

		open ^= bit;
		f->p->work--;
		s->gave_up = f->p->work < 0;
		if (skipped >> f->kind[i] & 1)
			continue;
		m->b.doms |= bit;
		m->supply += f->dom_supply[i];
		found = pick_doms(s, m, open, need - 1);
		m->supply -= f->dom_supply[i];
		m->b.doms &= ~bit;
		skipped |= (uint64_t)1 << f->kind[i];
	}
	return found;
}

static struct ddp_bind_fail *slot_of(struct seek *s, uint64_t rest)
{
	uint64_t h = rest * 0x9e3779b97f4a7c15U;

	for (unsigned t = 0; t < s->f->nt; t++)
		h = (h ^ s->left[t]) * 0x9e3779b97f4a7c15U;
	return &s->f->p->fails[(h >> 40) % SLOTS];
}

/* Blocks for the domains in rest and the ranks that are left. */
static bool seek(struct seek *s, uint64_t rest, unsigned spare)
{
	struct ddp_bind_face *f = s->f;
	struct making m = { .rest = rest, .spare = spare };
	unsigned first, most = (unsigned)__builtin_popcountll(rest);
	struct ddp_bind_fail *fail = slot_of(s, rest);
	size_t size = f->nt * sizeof(s->left[0]);

	if (!rest)
		return !s->nleft;
	if (count_lines(f, rest, s->nleft) > spare || s->gave_up)
		return false;
	if (fail->turn == f->p->turn && fail->rest == rest &&
	    fail->spare >= spare && !memcmp(fail->left, s->left, size))
		return false;
	first = (unsigned)__builtin_ctzll(rest);
	m.b.doms = (uint64_t)1 << first;
	m.supply = f->dom_supply[first];
	for (unsigned n = 1; n <= most; n++)
		if (pick_doms(s, &m, rest & (rest - 1), n - 1))
			return true;
	if (!s->gave_up) {
		fail->turn = f->p->turn;
		fail->rest = rest;
		fail->spare = spare;
		memcpy(fail->left, s->left, size);
	}
	return false;
}

unsigned ddp_bind_numa(struct ddp_bind_face *f, unsigned cap,
		       struct ddp_bind_block *blocks, unsigned *nblocks,
		       bool *proven)
{
	struct seek s = { .f = f, .blocks = blocks, .nleft = f->n };
	uint64_t all = UINT64_MAX >> (64 - f->ndom);
	bool found = false;
	unsigned u;

	f->p->turn++;
	ddp_bind_count_start(f);
	u = count_lines(f, all, f->n);
	memcpy(s.left, f->ranks, f->nt * sizeof(s.left[0]));
	while (u <= cap) {
		found = seek(&s, all, u);
		if (found || s.gave_up)
			break;
		u++;
	}
	*nblocks = s.nblocks;
	if (found || u > cap)
		return u;
	/* The work ran out: one block of all always fits. */
	*proven = false;
	memset(blocks, 0, sizeof(*blocks));
	blocks->doms = all;
	memcpy(blocks->a, f->ranks, f->nt * sizeof(s.left[0]));
	*nblocks = 1;
	return cap;
}

int ddp_bind_numa_init(struct ddp_bind_prob *p)
{
	p->fails = calloc(SLOTS, sizeof(*p->fails));
	return p->fails && !ddp_bind_count_init(p) ? 0 : -1;
}
