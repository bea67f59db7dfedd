/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the best way to ranks with GPUs and CPUs. Ranks go by their first
 * GPUs; units of a column are handed out in logical order, rank by rank; and
 * among ranks of one type the shares go by their first units.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

struct share {
	struct ddp_bind_prob *p;
	const struct ddp_bind_best *b;
	unsigned *group_of;	/* of each rank */
	unsigned *next;		/* of each type: where to look for a rank */
	unsigned *owner;	/* of each unit */
	unsigned *first;	/* of each rank: its first unit */
	unsigned *to;		/* of each share: its rank */
	uint32_t *y, *seats;	/* [n][ncol] */
	void *mem, *mem2;
};

/* Groups by their first GPU; then as many ranks as each has. Given, groups
 * are the GPUs, in their order. */
static void number_ranks(struct share *s)
{
	const struct ddp_bind_best *b = s->b;
	unsigned rank = 0;
	uint64_t left = 0;

	for (; s->p->gpu_of && rank < s->p->n; rank++)
		s->group_of[rank] = s->p->gpu_of[rank];
	if (s->p->gpu_of)
		return;
	for (unsigned i = 0; i < b->ngroups; i++)
		left |= b->gpus[i];
	while (left) {
		uint64_t first = left & -left;
		unsigned i = 0;

		while (!(b->gpus[i] & first))
			i++;
		for (unsigned r = 0; r < b->ranks[i] && rank < s->p->n; r++)
			s->group_of[rank++] = i;
		left &= ~b->gpus[i];
	}
}

static unsigned type_of(const struct share *s, unsigned rank)
{
	return s->b->type[s->group_of[rank]];
}

/* The next rank of type t that has no seat yet. */
static unsigned next_rank(struct share *s, unsigned t)
{
	unsigned r = s->next[t];

	while (r + 1 < s->p->n && type_of(s, r) != t)
		r++;
	s->next[t] = r + 1;
	return r;
}

/* Units of the part to ranks: of each column, to the first that wants one. */
static void hand_out(struct share *s, const struct ddp_bind_face *f)
{
	for (unsigned c = 0; c < f->ncol; c++) {
		unsigned r = 0;

		for (unsigned u = 0; u < s->p->nu; u++) {
			if (f->col_of[s->p->unit_class[u]] != c)
				continue;
			while (r + 1 < s->p->n &&
			       !s->y[(size_t)r * f->ncol + c])
				r++;
			s->y[(size_t)r * f->ncol + c]--;
			s->owner[u] = r;
		}
	}
}

static int seat_part(struct share *s, struct ddp_bind_face *f)
{
	struct ddp_bind_block blocks[DDP_BIND_NUMA];
	unsigned nblocks;
	size_t nc = f->ncol;
	bool proven = true;

	(void)ddp_bind_numa(f, UINT32_MAX - 1, blocks, &nblocks, &proven);
	memset(s->y, 0, s->p->n * nc * sizeof(*s->y));
	for (unsigned i = 0; i < nblocks; i++) {
		unsigned seat = 0;

		if (ddp_bind_seats(f, &blocks[i], s->seats))
			return -1;
		for (unsigned t = 0; t < f->nt; t++)
			for (unsigned a = blocks[i].a[t]; a; a--)
				memcpy(s->y + nc * next_rank(s, f->type[t]),
				       s->seats + nc * seat++,
				       nc * sizeof(*s->y));
	}
	hand_out(s, f);
	return 0;
}

/* Shares of a type to its ranks, by their first units. */
static void order_shares(struct share *s)
{
	unsigned n = s->p->n;

	for (unsigned r = 0; r < n; r++)
		s->first[r] = UINT32_MAX;
	memset(s->next, 0, DDP_BIND_TYPES * sizeof(*s->next));
	for (unsigned u = 0; u < s->p->nu; u++) {
		unsigned r = s->owner[u];

		if (s->first[r] != UINT32_MAX)
			continue;
		s->first[r] = u;
		s->to[r] = next_rank(s, type_of(s, r));
	}
	for (unsigned u = 0; u < s->p->nu; u++)
		s->owner[u] = s->to[s->owner[u]];
}

/* The cheapest flow for the types of the best way, once more. */
static int split_units(struct share *s, struct ddp_err *err)
{
	struct ddp_bind_prob *p = s->p;
	struct ddp_bind_net net = { .mem = NULL };
	struct ddp_bind_faces fs = { .mem = NULL };
	int rc = -1;

	s->mem2 = calloc(2 * (size_t)p->n * p->nc, sizeof(*s->y));
	if (!s->mem2 || ddp_bind_net_init(&net, p->nc, s->b->ntypes) ||
	    ddp_bind_faces_init(&fs, p))
		goto out;
	s->y = s->mem2;
	s->seats = s->y + (size_t)p->n * p->nc;
	ddp_bind_net_types(&net, p, s->b->types, s->b->ntypes);
	(void)ddp_bind_net_solve(&net, &p->work);
	ddp_bind_faces_find(&fs, &net, s->b->types);
	rc = 0;
	for (unsigned i = 0; i < fs.nparts && !rc; i++) {
		ddp_bind_face_take(&fs, i);
		rc = seat_part(s, &fs.face);
	}
	if (!rc)
		order_shares(s);
out:
	ddp_bind_faces_free(&fs);
	ddp_bind_net_free(&net);
	return rc ? ddp_err_set(err, DDP_ENOMEM, "out of memory") : 0;
}

int ddp_bind_share(struct ddp_bind_prob *p, const struct ddp_bind_best *b,
		   unsigned *owner, uint64_t *gpus, struct ddp_err *err)
{
	struct share s = { .p = p, .b = b, .owner = owner };
	size_t n = p->n;
	int rc = 0;

	s.mem = calloc(3 * n + DDP_BIND_TYPES, sizeof(unsigned));
	if (!s.mem)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	s.group_of = s.mem;
	s.first = s.group_of + n;
	s.to = s.first + n;
	s.next = s.to + n;
	number_ranks(&s);
	for (unsigned r = 0; r < n; r++)
		gpus[r] = b->gpus[s.group_of[r]];
	if (p->unit != DDP_BIND_SHARED)
		rc = split_units(&s, err);
	free(s.mem);
	free(s.mem2);
	return rc;
}
