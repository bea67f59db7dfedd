/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of several domains where lines cannot be traded freely, for example
 * where GPUs hang below parts of a NUMA node: rank after rank is given a set
 * of domains that it may use, the small sets first; a flow says whether the
 * ranks that have none yet can still be served. With all sets given the flow
 * is the answer. Ranks of a type take their sets in one order.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

struct pattern {
	struct ddp_bind_face *f;
	const struct ddp_bind_block *b;
	unsigned ranks;
};

static unsigned nodes_of(const struct ddp_bind_face *f, uint64_t doms)
{
	uint64_t set = 0;

	for (; doms; doms &= doms - 1)
		set |= f->numa[__builtin_ctzll(doms)];
	return (unsigned)__builtin_popcountll(set);
}

/* One more consumer of the net: a ranks of type t, from these domains. */
static void add_type(const struct pattern *s, unsigned i, unsigned t,
		     unsigned a, uint64_t doms)
{
	struct ddp_bind_face *f = s->f;
	struct ddp_bind_net *net = &f->net;
	unsigned at = 0;

	ddp_bind_face_bounds(f, t, a, &net->lo[i], &net->hi[i]);
	for (unsigned c = 0; c < f->ncol; c++) {
		if (!(s->b->doms >> f->dom[c] & 1))
			continue;
		net->cost[(size_t)at++ * net->nt + i] =
			doms >> f->dom[c] & 1 &&
			f->arc[(size_t)c * f->nt + t] ? 0 : DDP_BIND_FORBID;
	}
}

/*
 * The consumers: seats below done, those with the same type and set as one,
 * and what is left of each type. Fills the net if fill; returns their number.
 */
static unsigned consumers(const struct pattern *s, unsigned done, bool fill)
{
	const uint64_t *set = s->f->pattern;
	unsigned n = 0, seat = 0;

	for (unsigned t = 0; t < s->f->nt; t++) {
		unsigned end = seat + s->b->a[t], a;

		for (; seat < end; seat += a, n++) {
			a = 1;
			if (seat >= done)
				a = end - seat;
			else
				while (seat + a < end && seat + a < done &&
				       set[seat + a] == set[seat])
					a++;
			if (fill)
				add_type(s, n, t, a, seat < done ? set[seat] :
					 UINT64_MAX);
		}
	}
	return n;
}

static bool feasible(const struct pattern *s, unsigned done)
{
	struct ddp_bind_face *f = s->f;

	f->net.nt = consumers(s, done, false);
	f->net.nc = 0;
	for (unsigned c = 0; c < f->ncol; c++)
		if (s->b->doms >> f->dom[c] & 1)
			f->net.supply[f->net.nc++] = f->supply[c];
	(void)consumers(s, done, true);
	return ddp_bind_net_solve(&f->net, &f->p->work) >= 0;
}

static unsigned type_of(const struct pattern *s, unsigned seat)
{
	unsigned t = 0;

	while (seat >= s->b->a[t])
		seat -= s->b->a[t++];
	return t;
}

/* The domains of the block that type t can use. */
static uint64_t usable(const struct pattern *s, unsigned t)
{
	const struct ddp_bind_face *f = s->f;
	uint64_t set = 0;

	for (unsigned c = 0; c < f->ncol; c++)
		if (f->arc[(size_t)c * f->nt + t])
			set |= (uint64_t)1 << f->dom[c];
	return set & s->b->doms;
}

static bool give(struct pattern *s, unsigned seat, unsigned spare);

/* All sets of size domains from open, added to have. */
static bool sets(struct pattern *s, unsigned seat, unsigned spare,
		 uint64_t open, uint64_t have, unsigned size)
{
	unsigned cost;

	s->f->p->work--;
	if (s->f->p->work < 0)
		return false;
	if (size) {
		for (; open; open &= open - 1) {
			uint64_t bit = open & -open;

			if (sets(s, seat, spare, open ^ bit, have | bit,
				 size - 1))
				return true;
		}
		return false;
	}
	cost = nodes_of(s->f, have);
	if (cost + (s->ranks - seat - 1) * s->f->weight > spare)
		return false;
	s->f->pattern[seat] = have;
	return feasible(s, seat + 1) && give(s, seat + 1, spare - cost);
}

/* In the order of sets(): by size, then by the first domain that differs. */
static bool before(uint64_t a, uint64_t b)
{
	int na = __builtin_popcountll(a), nb = __builtin_popcountll(b);
	uint64_t diff = a ^ b;

	return na != nb ? na < nb : (a & diff & -diff) != 0;
}

static bool give(struct pattern *s, unsigned seat, unsigned spare)
{
	unsigned t, most;
	uint64_t open;

	if (seat == s->ranks)
		return true;
	if (seat > 1 && type_of(s, seat - 1) == type_of(s, seat - 2) &&
	    before(s->f->pattern[seat - 1], s->f->pattern[seat - 2]))
		return false;
	t = type_of(s, seat);
	open = usable(s, t);
	most = (unsigned)__builtin_popcountll(open);
	for (unsigned size = 1; size <= most && s->f->p->work >= 0; size++)
		if (sets(s, seat, spare, open, 0, size))
			return true;
	return false;
}

unsigned ddp_bind_pattern_cost(struct ddp_bind_face *f,
			       const struct ddp_bind_block *b, unsigned cap)
{
	struct pattern s = { .f = f, .b = b };
	unsigned cost, doms = (unsigned)__builtin_popcountll(b->doms);

	for (unsigned t = 0; t < f->nt; t++)
		s.ranks += b->a[t];
	if (s.ranks > DDP_BIND_PATTERN)
		f->p->work = -1;
	cost = f->disjoint ? (doms + s.ranks - 1) * f->weight :
		s.ranks * f->weight;
	for (; cost <= cap; cost++)
		if (f->p->work < 0 || give(&s, 0, cost))
			break;
	return f->p->work < 0 ? cap + 1 : cost;
}

int ddp_bind_pattern_seats(struct ddp_bind_face *f,
			   const struct ddp_bind_block *b, uint32_t *y)
{
	unsigned n = 0, seat = 0;

	if (ddp_bind_pattern_cost(f, b, UINT32_MAX - 1) == UINT32_MAX)
		return -1;
	for (unsigned t = 0; t < f->nt; t++) {
		unsigned end = seat + b->a[t], a;

		for (; seat < end; seat += a, n++) {
			for (a = 1; seat + a < end &&
			     f->pattern[seat + a] == f->pattern[seat];)
				a++;
			ddp_bind_seats_fill(f, b, n, a,
					    y + (size_t)seat * f->ncol);
		}
	}
	return 0;
}
