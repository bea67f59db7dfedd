/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPUs of a class go to which group, so that GPUs of a group are near
 * each other: the least sum for groups i, i + 1, … depends only on the GPUs
 * that are left, so it is computed once for each such set. Among GPUs that
 * are twins the first is taken first. Where all groups that still want a
 * class are alike, the first of its GPUs goes to the next one.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 2048	/* what falls out of the cache is computed again */

struct slot {
	uint64_t left, least;
	unsigned group, turn;
};

struct ddp_bind_memo {
	unsigned turn;		/* of what is valid */
	struct slot slot[SLOTS];
};

struct group {
	struct ddp_bind_prob *p;
	const struct ddp_bind_best *b;
	uint64_t must[DDP_BIND_GPUS];	/* class whose first GPU is taken */
};

struct pick {
	unsigned group, class, need;
	uint64_t left, taken;	/* before this group; by this group */
	uint64_t cost, best;
	uint64_t floor;		/* no way is cheaper */
	uint64_t want, *found;	/* second pass: the first way of cost want */
	bool stop;
};

static uint64_t least(struct group *w, unsigned group, uint64_t left,
		      uint64_t want, uint64_t *found);

/*
 * Every GPU has at least as many mates as the smallest group allows, and at
 * best its nearest ones; a pair counts from both ends. So half the sum
 * of near2 is a lower bound.
 */
static void find_near(struct ddp_bind_prob *p, unsigned mates)
{
	for (unsigned i = 0; i < p->g; i++) {
		uint32_t sorted[DDP_BIND_GPUS];
		unsigned n = 0;

		for (unsigned j = 0; j < p->g; j++) {
			unsigned at = n;

			if (j == i)
				continue;
			while (at && sorted[at - 1] > p->e[i][j]) {
				sorted[at] = sorted[at - 1];
				at--;
			}
			sorted[at] = p->e[i][j];
			n++;
		}
		p->near2[i] = 0;
		for (unsigned j = 0; j < mates && j < n; j++)
			p->near2[i] += sorted[j];
	}
}

static uint64_t floor_of(const struct ddp_bind_prob *p, uint64_t left)
{
	uint64_t sum = 0;

	for (; left; left &= left - 1)
		sum += p->near2[__builtin_ctzll(left)];
	return (sum + 1) / 2;
}

static const uint8_t *counts(const struct group *w, unsigned group)
{
	return w->b->x[group];
}

/* The group is whole: what it costs, and the rest after it. */
static void complete(struct group *w, struct pick *k)
{
	uint64_t rest = k->left & ~k->taken;
	uint64_t sum;

	sum = k->cost + floor_of(w->p, rest);
	if (w->p->work >= 0 && sum > (k->found ? k->want : k->best - 1))
		return;
	sum = k->cost + least(w, k->group + 1, rest, 0, NULL);
	if (sum < k->best)
		k->best = sum;
	/* Any way, where the work has run out. */
	if (k->found && (sum == k->want || !*k->found))
		*k->found = k->taken;
	if (k->found && sum == k->want)
		k->stop = true;
	if (!k->found && k->best <= k->floor)
		k->stop = true;
}

/* Choose the GPUs of class k->class from number from on. */
static void choose(struct group *w, struct pick *k, unsigned from)
{
	struct ddp_bind_prob *p = w->p;
	unsigned class = k->class, need = k->need;
	uint64_t open;

	while (!k->need) {
		if (++k->class >= p->ng) {
			complete(w, k);
			goto out;
		}
		k->need = counts(w, k->group)[k->class];
		from = 0;
	}
	open = k->left & ~k->taken & p->members[k->class];
	for (unsigned i = from; i < p->g && !k->stop; i++) {
		uint64_t bit = (uint64_t)1 << i, more;

		if (!(open & bit))
			continue;
		if (p->twin[i] >= 0 && open >> p->twin[i] & 1)
			continue;
		p->work -= 4;
		more = ddp_bind_to_set(p, i, k->taken);
		k->taken |= bit;
		k->cost += more;
		k->need--;
		choose(w, k, i + 1);
		k->need++;
		k->cost -= more;
		k->taken &= ~bit;
		if (w->must[k->group] >> k->class & 1 &&
		    k->need == counts(w, k->group)[k->class])
			break;
		if (p->work < 0 && k->best != UINT64_MAX)
			break;
	}
out:
	k->class = class;
	k->need = need;
}

/*
 * Least cost of groups group, group + 1, … with the GPUs left. With found:
 * also the GPUs of the first way for this group that costs want.
 */
static uint64_t least(struct group *w, unsigned group, uint64_t left,
		      uint64_t want, uint64_t *found)
{
	struct pick k = { .group = group, .left = left, .best = UINT64_MAX,
			  .want = want, .found = found };
	unsigned turn = w->p->memo->turn;
	struct slot *s = &w->p->memo->slot[((left * 0x9e3779b97f4a7c15U >> 40) +
					    group * 977U) % SLOTS];

	if (group == w->b->ngroups)
		return 0;
	if (!found && s->turn == turn && s->group == group && s->left == left)
		return s->least;
	k.floor = floor_of(w->p, left);
	k.need = counts(w, group)[0];
	choose(w, &k, 0);
	if (!found)
		*s = (struct slot){ left, k.best, group, turn };
	return k.best;
}

/* Classes that this group and all later ones that use them, use alike. */
static uint64_t find_must(const struct group *w, unsigned group)
{
	uint64_t set = 0;

	for (unsigned j = 0; j < w->p->ng; j++) {
		bool alike = counts(w, group)[j];

		for (unsigned i = group + 1; i < w->b->ngroups && alike; i++)
			if (counts(w, i)[j] &&
			    memcmp(counts(w, i), counts(w, group),
				   DDP_BIND_GPUS))
				alike = false;
		if (alike)
			return set | (uint64_t)1 << j;
	}
	return set;
}

int ddp_bind_group_init(struct ddp_bind_prob *p)
{
	p->memo = calloc(1, sizeof(*p->memo));
	if (!p->memo)
		return -1;
	if (p->g >= p->n)
		find_near(p, p->g / p->n - 1);
	return 0;
}

uint64_t ddp_bind_group_floor(const struct ddp_bind_prob *p)
{
	uint64_t all = 0;

	for (unsigned j = 0; j < p->ng; j++)
		all |= p->members[j];
	return floor_of(p, all);
}

uint64_t ddp_bind_group(struct ddp_bind_prob *p, struct ddp_bind_best *b)
{
	struct group w = { .p = p, .b = b };
	uint64_t left = 0, sum;

	p->memo->turn++;
	for (unsigned j = 0; j < p->ng; j++)
		left |= p->members[j];
	for (unsigned i = 0; i < b->ngroups; i++)
		w.must[i] = find_must(&w, i);
	sum = least(&w, 0, left, 0, NULL);
	for (unsigned i = 0; i < b->ngroups; i++) {
		uint64_t mine = 0;

		(void)least(&w, i, left, least(&w, i, left, 0, NULL), &mine);
		b->gpus[i] = mine;
		left &= ~mine;
	}
	return sum;
}
