/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ways to split the classes of GPUs into groups. Groups are listed in
 * falling lexicographic order of their counts, so each way appears once. With
 * fewer GPUs than ranks a group is one GPU, and what is enumerated is how
 * many GPUs of each class have one rank more.
 *
 * A lower bound cuts the enumeration: a group costs at least what its k
 * nearest units would if it had the node for itself, and a GPU that is in no
 * group yet at least the same for a group of one.
 *
 * With fewer GPUs than ranks, splits are cheap and many. So there are two turns,
 * the first without U: what it costs to prove U is then spent on the least D1
 * alone, and that is there when the work runs out.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <string.h>
#include <stdlib.h>

struct split {
	struct ddp_bind_prob *p;
	struct ddp_bind_best *best, cur;
	struct ddp_bind_net net;
	unsigned q, big;		/* smallest group; how many larger */
	unsigned left[DDP_BIND_GPUS];	/* of each class */
	uint64_t alone[DDP_BIND_GPUS];	/* bound for one GPU of the class */
	struct ddp_bind_faces faces;
	uint64_t floor1, floor2, floor3;
	bool first;			/* D1 alone is sought */
	bool done;
};

bool ddp_bind_one_each(const struct ddp_bind_prob *p)
{
	return p->gpu_of || p->g < p->n;
}

static uint64_t cost_of(const struct ddp_bind_prob *p, unsigned c,
			const uint8_t *x)
{
	uint64_t sum = 0;

	for (unsigned j = 0; j < p->ng; j++)
		sum += (uint64_t)x[j] * p->d[(size_t)c * p->ng + j];
	return sum;
}

/* Shared: what the ranks of such a group cost and touch, exactly. */
static uint64_t shared_cost(const struct ddp_bind_prob *p, const uint8_t *x,
			    unsigned *touch)
{
	uint64_t near = 0, all = 0, numa = 0, sum = 0;

	for (unsigned j = 0; j < p->ng; j++)
		near |= x[j] ? p->gnuma[j] : 0;
	for (unsigned c = 0; c < p->nc; c++)
		all |= p->numa[c];
	near &= all;
	for (unsigned c = 0; c < p->nc; c++) {
		if (near && !(near & p->numa[c]))
			continue;
		numa |= p->numa[c];
		sum += p->supply[c] * cost_of(p, c, x);
	}
	*touch = (unsigned)__builtin_popcountll(numa);
	return sum;
}

/* Has a GPU of the class units at its own NUMA nodes? */
static bool is_near(const struct ddp_bind_prob *p, unsigned j)
{
	for (unsigned c = 0; c < p->nc; c++)
		if (p->numa[c] & p->gnuma[j])
			return true;
	return false;
}

/* The k nearest units of a group that has the node for itself. */
static uint64_t alone_cost(struct ddp_bind_prob *p, const uint8_t *x)
{
	uint64_t sum = 0;
	unsigned need = p->k, touch;

	if (p->unit == DDP_BIND_SHARED)
		return shared_cost(p, x, &touch);
	p->work -= (int64_t)p->nc * p->ng;
	for (unsigned c = 0; c < p->nc; c++) {
		uint32_t w = (uint32_t)cost_of(p, c, x);
		unsigned at = c;

		for (; at && p->near[at - 1].cost > w; at--)
			p->near[at] = p->near[at - 1];
		p->near[at].cost = w;
		p->near[at].supply = p->supply[c];
	}
	for (unsigned i = 0; i < p->nc && need; i++) {
		unsigned n = p->near[i].supply < need ? p->near[i].supply :
			need;

		sum += (uint64_t)n * p->near[i].cost;
		need -= n;
	}
	return sum;
}

void ddp_bind_net_types(struct ddp_bind_net *net,
			const struct ddp_bind_prob *p,
			const struct ddp_bind_type *types, unsigned nt)
{
	net->nc = p->nc;
	net->nt = nt;
	for (unsigned c = 0; c < p->nc; c++)
		net->supply[c] = p->supply[c];
	for (unsigned t = 0; t < nt; t++) {
		net->lo[t] = p->k * types[t].ranks;
		net->hi[t] = (p->k + (p->kx > 0)) * types[t].ranks;
		for (unsigned c = 0; c < p->nc; c++)
			net->cost[(size_t)c * nt + t] =
				(uint32_t)cost_of(p, c, types[t].x);
	}
}

/*
 * What the units cost with the types of s->cur; the flow stays in s->net.
 * UINT64_MAX: no better than what was tried before.
 */
static uint64_t unit_cost(struct split *s)
{
	struct ddp_bind_prob *p = s->p;
	uint64_t sum = 0;

	if (p->unit == DDP_BIND_SHARED) {
		s->cur.u = 0;
		for (unsigned t = 0; t < s->cur.ntypes; t++) {
			const struct ddp_bind_type *y = &s->cur.types[t];
			unsigned touch;

			sum += y->ranks * shared_cost(p, y->x, &touch);
			s->cur.u += (uint64_t)y->ranks * touch;
		}
		return sum;
	}
	ddp_bind_net_types(&s->net, p, s->cur.types, s->cur.ntypes);
	/* One GPU a rank: D2 is 0, so there is nothing else to compare. */
	if (ddp_bind_one_each(p) && ddp_bind_seen(p, &s->net))
		return UINT64_MAX;
	return (uint64_t)ddp_bind_net_solve(&s->net, &p->work);
}

/* The third stage; true if the way is better than the best. */
static bool fewer_numa(struct split *s, bool tie)
{
	unsigned cap = tie ? (unsigned)s->best->u - 1 : UINT32_MAX - 1, u;

	if (s->p->unit == DDP_BIND_SHARED)
		return !tie || s->cur.u < s->best->u;
	/* Of those that were tried with another D2, U may be what counts. */
	if (!ddp_bind_one_each(s->p) && !tie)
		ddp_bind_seen_forget(s->p);
	if (!ddp_bind_one_each(s->p) && ddp_bind_seen(s->p, &s->net))
		return false;
	ddp_bind_faces_find(&s->faces, &s->net, s->cur.types);
	u = ddp_bind_numa_all(&s->faces, cap);
	s->cur.u = u;
	/* Nothing can be better: the floors hold for every split. */
	if (s->cur.d1 == s->floor1 && s->cur.d2 == s->floor2 && u <= s->floor3)
		s->done = true;
	return u <= cap;
}

static void try_way(struct split *s)
{
	struct ddp_bind_best *cur = &s->cur, *best = s->best;
	bool tie;

	cur->d1 = unit_cost(s);
	if (cur->d1 == UINT64_MAX || (best->found && cur->d1 > best->d1))
		return;
	cur->d2 = ddp_bind_one_each(s->p) ? 0 : ddp_bind_group(s->p, cur);
	if (best->found && cur->d1 == best->d1 && cur->d2 > best->d2)
		return;
	tie = best->found && cur->d1 == best->d1 && cur->d2 == best->d2;
	if (s->first) {
		cur->u = UINT32_MAX;	/* more than any */
		s->done = cur->d1 == s->floor1;
	}
	if (s->first ? tie : !fewer_numa(s, tie))
		return;
	*best = *cur;
	best->found = true;
}

/* Do two groups cost the same wherever their CPUs are? */
static bool same_cost(const struct ddp_bind_prob *p, const uint8_t *x,
		      const uint8_t *y)
{
	bool same = p->unit != DDP_BIND_SHARED ||
		!memcmp(x, y, DDP_BIND_GPUS);

	for (unsigned c = 0; c < p->nc && same; c++)
		same = cost_of(p, c, x) == cost_of(p, c, y);
	return same;
}

/* All groups are chosen: gather those that are alike. */
static void try_groups(struct split *s)
{
	struct ddp_bind_best *cur = &s->cur;
	unsigned n = s->p->n;

	cur->ntypes = 0;
	cur->ngroups = n;
	for (unsigned i = 0; i < n; i++) {
		unsigned t = 0;

		while (t < cur->ntypes &&
		       !same_cost(s->p, cur->types[t].x, cur->x[i]))
			t++;
		if (t == cur->ntypes) {
			memcpy(cur->types[t].x, cur->x[i], sizeof(cur->x[i]));
			cur->types[t].ranks = 0;
			cur->ntypes++;
		}
		cur->types[t].ranks++;
		cur->type[i] = t;
		cur->ranks[i] = 1;
	}
	try_way(s);
}

/* The first turn may have half of it. */
static bool out_of_work(const struct split *s)
{
	return s->p->work < (s->first ? s->p->budget / 2 : 0);
}

static void next_group(struct split *s, unsigned i, unsigned big,
		       uint64_t bound);

/*
 * Group i still needs that many GPUs, of class j and later ones; below: its
 * counts so far are less than those of the group before it.
 */
static void fill(struct split *s, unsigned i, unsigned big, unsigned j,
		 unsigned need, bool below, uint64_t bound)
{
	struct ddp_bind_prob *p = s->p;
	unsigned most = need, all = 0;

	if (j == p->ng) {
		if (!need)
			next_group(s, i + 1, big,
				   bound + alone_cost(p, s->cur.x[i]));
		return;
	}
	for (unsigned b = j + 1; b < p->ng; b++)
		all += s->left[b];
	if (s->left[j] < most)
		most = s->left[j];
	if (!below && s->cur.x[i - 1][j] < most)
		most = s->cur.x[i - 1][j];
	for (unsigned n = most + 1; n-- > 0 && !s->done && need - n <= all;) {
		s->cur.x[i][j] = (uint8_t)n;
		s->left[j] -= n;
		fill(s, i, big, j + 1, need - n,
		     below || n < s->cur.x[i - 1][j],
		     bound - n * s->alone[j]);
		s->left[j] += n;
		s->cur.x[i][j] = 0;
	}
}

/* bound: of the groups before i and the GPUs that are left. */
static void next_group(struct split *s, unsigned i, unsigned big,
		       uint64_t bound)
{
	unsigned n = s->p->n;

	s->p->work--;
	if (out_of_work(s) && s->best->found)
		s->done = true;
	if (s->done || (s->best->found && bound > s->best->d1))
		return;
	if (i == n) {
		try_groups(s);
		return;
	}
	if (big)
		fill(s, i, big - 1, 0, s->q + 1, !i, bound);
	if (n - i > big)
		fill(s, i, big, 0, s->q, !i, bound);
}

/* One GPU a rank; class j and later ones have that many extra ranks. */
static void next_class(struct split *s, unsigned j, unsigned extra)
{
	struct ddp_bind_prob *p = s->p;
	struct ddp_bind_best *cur = &s->cur;
	unsigned all = 0;

	s->p->work--;
	if (out_of_work(s) && s->best->found)
		s->done = true;
	if (s->done)
		return;
	if (j == p->ng) {
		try_way(s);
		return;
	}
	for (unsigned b = j + 1; b < p->ng; b++)
		all += p->size[b];
	for (unsigned n = (extra < p->size[j] ? extra : p->size[j]) + 1;
	     n-- > 0 && extra - n <= all;) {
		unsigned more = n;

		cur->types[j].ranks = s->q * p->size[j] + n;
		for (unsigned i = 0; i < p->g; i++)
			if (p->members[j] >> i & 1)
				cur->ranks[i] = s->q + (more && more--);
		next_class(s, j + 1, extra - n);
	}
}

/* The ranks of each GPU are given: there is one way. */
static void given_each(struct split *s)
{
	struct ddp_bind_prob *p = s->p;
	struct ddp_bind_best *cur = &s->cur;

	for (unsigned r = 0; r < p->n; r++) {
		cur->ranks[p->gpu_of[r]]++;
		cur->types[cur->type[p->gpu_of[r]]].ranks++;
	}
	try_way(s);
}

static void one_gpu_each(struct split *s)
{
	struct ddp_bind_prob *p = s->p;
	struct ddp_bind_best *cur = &s->cur;

	cur->ntypes = p->ng;
	cur->ngroups = p->g;
	for (unsigned j = 0; j < p->ng; j++) {
		cur->types[j].x[j] = 1;
		for (unsigned i = 0; i < p->g; i++)
			if (p->members[j] >> i & 1)
				cur->type[i] = j;
	}
	for (unsigned i = 0; i < p->g; i++)
		cur->gpus[i] = (uint64_t)1 << i;
	if (p->gpu_of)
		given_each(s);
	else
		next_class(s, 0, p->n % p->g);
}

/* What no split is below. */
static void find_floors(struct split *s)
{
	struct ddp_bind_prob *p = s->p;
	unsigned each = 1;	/* ranks that a GPU has at least */

	s->q = p->g < p->n ? p->n / p->g : p->g / p->n;
	if (ddp_bind_one_each(p))
		each = s->q;
	else
		s->floor2 = ddp_bind_group_floor(p);
	s->floor3 = p->unit == DDP_BIND_SHARED ? 0 : ddp_bind_numa_floor(p);
	for (unsigned j = 0; j < p->ng; j++) {
		uint8_t x[DDP_BIND_GPUS] = { 0 };

		x[j] = 1;
		/* In a group it may be sent to the nodes of another, where
		 * there are fewer units. */
		s->alone[j] = p->unit == DDP_BIND_SHARED && !is_near(p, j) ?
			0 : alone_cost(p, x);
		s->left[j] = p->size[j];
		s->floor1 += each * p->size[j] * s->alone[j];
	}
}

static void turn(struct split *s, bool first)
{
	s->first = first;
	s->done = false;
	ddp_bind_seen_forget(s->p);
	if (ddp_bind_one_each(s->p))
		one_gpu_each(s);
	else
		next_group(s, 0, s->p->g % s->p->n, s->floor1);
}

/* Without the least D1 there is no use in a second turn. */
static void search(struct split *s)
{
	struct ddp_bind_best *best = s->best;
	bool whole = true;

	if (ddp_bind_one_each(s->p) && !s->p->gpu_of) {
		turn(s, true);
		whole = !out_of_work(s) || best->d1 == s->floor1;
	}
	if (whole)
		turn(s, false);
	best->proven = whole && s->p->work >= 0;
}

int ddp_bind_split(struct ddp_bind_prob *p, struct ddp_bind_best *best)
{
	struct split *s = calloc(1, sizeof(*s));
	int rc = -1;

	if (!s || ddp_bind_net_init(&s->net, p->nc, DDP_BIND_TYPES) ||
	    ddp_bind_faces_init(&s->faces, p))
		goto out;
	s->p = p;
	s->best = best;
	find_floors(s);
	search(s);
	rc = 0;
out:
	if (s) {
		ddp_bind_faces_free(&s->faces);
		ddp_bind_net_free(&s->net);
	}
	free(s);
	return rc;
}
