/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More GPUs than ranks, and the ranks' CPUs are given. One cheapest flow has
 * potentials that describe all of them (ddp_bind_face.c): how many GPUs of
 * each class a rank has may be anything that uses arcs of reduced cost 0
 * alone. These ways are enumerated, ranks of a row in falling order of their
 * counts, and for each of them ddp_bind_group.c knows the least D2. Where
 * the work runs out, the best so far is improved by exchanging GPUs.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

/* Ranks are named by their places in a->order. */
struct sets {
	struct ddp_bind_assign *a;
	struct ddp_bind_prob *p;
	struct ddp_bind_net net;
	struct ddp_bind_best cur, best;
	unsigned q;			/* the smaller number of GPUs */
	unsigned left[DDP_BIND_GPUS];	/* of each class */
	uint64_t tight[DDP_BIND_GPUS];	/* classes that the rank can use */
	uint64_t later[DDP_BIND_GPUS + 1]; /* that it or a later one can */
	int8_t force[DDP_BIND_GPUS];	/* -1: q, 1: q + 1, 0: either */
	uint64_t floor;
	bool done;
};

static const uint32_t *costs(const struct sets *s, unsigned i)
{
	return s->a->w + (size_t)s->a->order[i] * s->p->ng;
}

static void solve(struct sets *s)
{
	struct ddp_bind_prob *p = s->p;
	struct ddp_bind_net *net = &s->net;

	net->nc = p->ng;
	net->nt = p->n;
	for (unsigned j = 0; j < p->ng; j++)
		net->supply[j] = p->size[j];
	for (unsigned i = 0; i < p->n; i++) {
		net->lo[i] = s->q;
		net->hi[i] = s->q + (p->g % p->n > 0);
		for (unsigned j = 0; j < p->ng; j++)
			net->cost[(size_t)j * p->n + i] = costs(s, i)[j];
	}
	s->a->d1 = (uint64_t)ddp_bind_net_solve(net, &p->work);
	ddp_bind_net_duals(net, &p->work);
	for (unsigned i = p->n; i-- > 0;) {
		for (unsigned j = 0; j < p->ng; j++)
			if (net->pc[j] + costs(s, i)[j] == net->pt[i])
				s->tight[i] |= (uint64_t)1 << j;
		s->later[i] = s->later[i + 1] | s->tight[i];
		if (net->pt[i] != net->ps)
			s->force[i] = net->load[i] > s->q ? 1 : -1;
	}
}

static uint64_t d2_of(const struct sets *s, const uint64_t *gpus)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < s->p->n; i++)
		for (uint64_t m = gpus[i]; m; m &= m - 1)
			sum += ddp_bind_to_set(s->p, (unsigned)__builtin_ctzll(m),
				     m & (m - 1));
	return sum;
}

/* How many GPUs of each class each rank has is chosen. */
static void try_counts(struct sets *s)
{
	(void)ddp_bind_group(s->p, &s->cur);
	s->cur.d2 = d2_of(s, s->cur.gpus);
	if (s->best.found && s->best.d2 <= s->cur.d2)
		return;
	s->best = s->cur;
	s->best.found = true;
	s->done = s->best.d2 <= s->floor;
}

static void next_rank(struct sets *s, unsigned i, unsigned big);

/*
 * Rank i still needs that many GPUs, of class j and later ones; below: it is
 * in another row than the rank before it, or its counts so far are less.
 */
static void fill(struct sets *s, unsigned i, unsigned big, unsigned j,
		 unsigned need, bool below)
{
	struct ddp_bind_prob *p = s->p;
	uint8_t *x = s->cur.x[i];
	const uint8_t *y = s->cur.x[i ? i - 1 : 0];	/* the one before */
	unsigned most = need, all = 0;

	p->work--;
	s->done = s->done || p->work < 0;
	if (j == p->ng) {
		if (!need)
			next_rank(s, i + 1, big);
		return;
	}
	for (unsigned b = j + 1; b < p->ng; b++)
		if (s->tight[i] >> b & 1)
			all += s->left[b];
	if (s->left[j] < most)
		most = s->left[j];
	if (!(s->tight[i] >> j & 1))
		most = 0;
	if (!below && y[j] < most)
		most = y[j];
	for (unsigned n = most + 1; n-- > 0 && !s->done && need - n <= all;) {
		x[j] = (uint8_t)n;
		s->left[j] -= n;
		/* What no later rank can use must be used up. */
		if (!s->left[j] || s->later[i + 1] >> j & 1)
			fill(s, i, big, j + 1, need - n, below || n < y[j]);
		s->left[j] += n;
		x[j] = 0;
	}
}

/* Rank i and later ones, of which so many have one more. */
static void next_rank(struct sets *s, unsigned i, unsigned big)
{
	const struct ddp_bind_assign *a = s->a;
	bool below;

	if (i == s->p->n) {
		try_counts(s);
		return;
	}
	below = !i || a->row[a->order[i]] != a->row[a->order[i - 1]];
	if (big && s->force[i] >= 0)
		fill(s, i, big - 1, 0, s->q + 1, below);
	if (s->p->n - i > big && s->force[i] <= 0)
		fill(s, i, big, 0, s->q, below);
}

/* Do ranks r and t gain if GPU x of r goes to t, and y, or none, back? */
static bool exchange(struct sets *s, unsigned r, unsigned t, uint64_t x,
		     uint64_t y, const unsigned *class)
{
	uint64_t *gpus = s->best.gpus, mine = gpus[r] & ~x, its = gpus[t] & ~y;
	unsigned a = (unsigned)__builtin_ctzll(x), b = 0;
	uint64_t now = costs(s, r)[class[a]], then = costs(s, t)[class[a]];
	uint64_t now2 = ddp_bind_to_set(s->p, a, mine), then2 = ddp_bind_to_set(s->p, a, its);

	if (y) {
		b = (unsigned)__builtin_ctzll(y);
		now += costs(s, t)[class[b]];
		then += costs(s, r)[class[b]];
		now2 += ddp_bind_to_set(s->p, b, its);
		then2 += ddp_bind_to_set(s->p, b, mine);
	}
	if (then > now || then2 >= now2)
		return false;
	gpus[r] = mine | y;
	gpus[t] = its | x;
	return true;
}

/* The first exchange of two ranks that gains something. */
static bool exchange_ranks(struct sets *s, unsigned r, unsigned t,
			   const unsigned *class)
{
	const uint64_t *gpus = s->best.gpus;
	bool larger = __builtin_popcountll(gpus[r]) >
		__builtin_popcountll(gpus[t]);

	for (uint64_t m = gpus[r]; m; m &= m - 1) {
		if (larger && exchange(s, r, t, m & -m, 0, class))
			return true;
		for (uint64_t o = gpus[t]; o && t > r; o &= o - 1)
			if (exchange(s, r, t, m & -m, o & -o, class))
				return true;
	}
	return false;
}

/* Each exchange makes D2 less; should there be very many, some will do. */
static void exchange_all(struct sets *s)
{
	unsigned class[DDP_BIND_GPUS], turns = DDP_BIND_GPUS;
	bool again = true;

	for (unsigned j = 0; j < s->p->ng; j++)
		for (uint64_t m = s->p->members[j]; m; m &= m - 1)
			class[__builtin_ctzll(m)] = j;
	while (again && turns--) {
		again = false;
		for (unsigned r = 0; r < s->p->n; r++)
			for (unsigned t = 0; t < s->p->n; t++)
				if (t != r && exchange_ranks(s, r, t, class))
					again = true;
	}
	s->best.d2 = d2_of(s, s->best.gpus);
}

/* The counts of the flow first, so that there is a plan in any case. */
static void search(struct sets *s)
{
	struct ddp_bind_prob *p = s->p;
	struct ddp_bind_assign *a = s->a;

	s->cur.ngroups = p->n;
	for (unsigned i = 0; i < p->n; i++)
		for (unsigned j = 0; j < p->ng; j++)
			s->cur.x[i][j] = (uint8_t)
				s->net.flow[(size_t)j * p->n + i];
	try_counts(s);
	memset(s->cur.x, 0, sizeof(s->cur.x));
	memcpy(s->left, p->size, sizeof(s->left));
	if (!s->done)
		next_rank(s, 0, p->g % p->n);
	if (p->work < 0 && s->best.d2 > s->floor)
		exchange_all(s);
	a->proven = a->proven && (p->work >= 0 || s->best.d2 <= s->floor);
	a->d2 = s->best.d2;
	for (unsigned i = 0; i < p->n; i++)
		a->gpus[a->order[i]] = s->best.gpus[i];
}

int ddp_bind_assign_sets(struct ddp_bind_assign *a)
{
	struct sets *s = calloc(1, sizeof(*s));
	int rc = -1;

	if (!s || ddp_bind_net_init(&s->net, a->p->ng, a->p->n))
		goto out;
	s->a = a;
	s->p = a->p;
	s->q = a->p->g / a->p->n;
	s->floor = ddp_bind_group_floor(a->p);
	solve(s);
	search(s);
	rc = 0;
out:
	if (s)
		ddp_bind_net_free(&s->net);
	free(s);
	return rc;
}
