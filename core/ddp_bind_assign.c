/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs for ranks whose CPUs are given. What a GPU costs a rank is fixed, so
 * D1 is an assignment: the transportation problem of ddp_bind_int.h, with
 * GPUs of a class, and ranks with the same costs, as one. Here are the case
 * of one GPU a rank, and what comes before and after; ddp_bind_assign_sets.c
 * has the rest.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

struct row {
	const uint32_t *w;
	size_t size;
	unsigned rank;
};

/* What the rank's cores cost, with a GPU of each class. */
static void measure(struct ddp_bind_assign *a, unsigned rank,
		    const uint32_t *pus, unsigned npus, uint32_t *count)
{
	const struct ddp_bind_prob *p = a->p;
	unsigned last = UINT32_MAX;

	memset(count, 0, p->nc * sizeof(*count));
	for (unsigned i = 0; i < npus; i++) {
		unsigned core = p->in->pu_core[pus[i]];

		if (core != last)
			count[p->unit_class[p->unit == DDP_BIND_PUS ? pus[i] :
					    core]]++;
		last = core;
	}
	for (unsigned j = 0; j < p->ng; j++) {
		uint64_t sum = 0;

		for (unsigned c = 0; c < p->nc; c++)
			sum += (uint64_t)count[c] * p->d[(size_t)c * p->ng + j];
		a->proven = a->proven && sum < DDP_BIND_FORBID;
		a->w[(size_t)rank * p->ng + j] = (uint32_t)
			(sum < DDP_BIND_FORBID ? sum : DDP_BIND_FORBID - 1);
	}
}

static int by_costs(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int diff = memcmp(x->w, y->w, x->size);

	return diff ? diff : (x->rank > y->rank) - (x->rank < y->rank);
}

static int find_rows(struct ddp_bind_assign *a)
{
	size_t ng = a->p->ng;
	struct row *rows = calloc(a->p->n, sizeof(*rows));

	if (!rows)
		return -1;
	for (unsigned r = 0; r < a->p->n; r++)
		rows[r] = (struct row){ a->w + r * ng, ng * sizeof(*a->w), r };
	qsort(rows, a->p->n, sizeof(*rows), by_costs);
	for (unsigned i = 0; i < a->p->n; i++) {
		if (!i || memcmp(rows[i].w, rows[i - 1].w, rows[i].size))
			a->first[a->nrows++] = i;
		a->order[i] = rows[i].rank;
		a->row[rows[i].rank] = a->nrows - 1;
	}
	a->first[a->nrows] = a->p->n;
	free(rows);
	return 0;
}

/* Rows to classes, each GPU for q ranks or one more. */
static int flow(struct ddp_bind_assign *a, struct ddp_bind_net *net)
{
	const struct ddp_bind_prob *p = a->p;
	unsigned q = p->n / p->g, more = p->n % p->g > 0;

	if (ddp_bind_net_init(net, a->nrows, p->ng))
		return -1;
	net->nc = a->nrows;
	net->nt = p->ng;
	for (unsigned i = 0; i < a->nrows; i++) {
		net->supply[i] = a->first[i + 1] - a->first[i];
		memcpy(net->cost + (size_t)i * p->ng, a->w +
		       (size_t)a->order[a->first[i]] * p->ng,
		       p->ng * sizeof(*a->w));
	}
	for (unsigned j = 0; j < p->ng; j++) {
		net->lo[j] = q * p->size[j];
		net->hi[j] = (q + more) * p->size[j];
	}
	a->d1 = (uint64_t)ddp_bind_net_solve(net, &a->p->work);
	return 0;
}

/* Ranks of each GPU of a class that has so many: the first have one more. */
static void class_room(const struct ddp_bind_prob *p, unsigned j,
		       unsigned ranks, unsigned *room)
{
	unsigned q = p->n / p->g, more = ranks - q * p->size[j];

	for (unsigned i = 0; i < p->g; i++)
		if (p->members[j] >> i & 1)
			room[i] = q + (more && more--);
}

/*
 * Rank by rank the first GPU that has room, of a class that the flow still
 * sends the rank's row to.
 */
static void hand_out(struct ddp_bind_assign *a, struct ddp_bind_net *net)
{
	const struct ddp_bind_prob *p = a->p;
	unsigned room[DDP_BIND_GPUS], class[DDP_BIND_GPUS];

	for (unsigned j = 0; j < p->ng; j++) {
		class_room(p, j, net->load[j], room);
		for (unsigned i = 0; i < p->g; i++)
			if (p->members[j] >> i & 1)
				class[i] = j;
	}
	for (unsigned r = 0; r < p->n; r++) {
		uint32_t *left = net->flow + (size_t)a->row[r] * p->ng;
		unsigned i = 0;

		while (!room[i] || !left[class[i]])
			i++;
		room[i]--;
		left[class[i]]--;
		a->gpus[r] = (uint64_t)1 << i;
	}
}

/* Too many different ranks: each takes the nearest GPU that has room. */
static void hand_greedily(struct ddp_bind_assign *a)
{
	const struct ddp_bind_prob *p = a->p;
	unsigned q = p->n / p->g, more = p->n % p->g;
	unsigned has[DDP_BIND_GPUS] = { 0 };

	for (unsigned r = 0; r < p->n; r++) {
		const uint32_t *w = a->w + (size_t)r * p->ng;
		unsigned best = DDP_BIND_GPUS, cost = 0;

		for (unsigned j = 0; j < p->ng; j++) {
			for (uint64_t m = p->members[j]; m; m &= m - 1) {
				unsigned i = (unsigned)__builtin_ctzll(m);

				if (has[i] >= q + (more > 0) ||
				    (best < DDP_BIND_GPUS && w[j] >= cost))
					continue;
				best = i;
				cost = w[j];
			}
		}
		more -= has[best]++ == q;
		a->gpus[r] = (uint64_t)1 << best;
	}
	a->proven = false;
}

/*
 * A flow takes a path a row at least, and a path twice the arcs at least;
 * often it is a few times that.
 */
static int assign_one_each(struct ddp_bind_assign *a)
{
	struct ddp_bind_net net;
	double steps = 8.0 * a->nrows * a->nrows * a->p->ng;

	if (a->nrows > 16 && steps > (double)a->p->budget) {
		hand_greedily(a);
		return 0;
	}
	if (flow(a, &net))
		return -1;
	hand_out(a, &net);
	ddp_bind_net_free(&net);
	return 0;
}

static uint64_t cost_of(const struct ddp_bind_assign *a, unsigned rank,
			uint64_t gpus)
{
	const struct ddp_bind_prob *p = a->p;
	uint64_t sum = 0;

	for (unsigned j = 0; j < p->ng; j++)
		sum += (uint64_t)__builtin_popcountll(gpus & p->members[j]) *
			a->w[(size_t)rank * p->ng + j];
	return sum;
}

/* Is it better that ranks r and s, the later one, swap all they have? */
static bool swap_gains(const struct ddp_bind_assign *a, unsigned r, unsigned s)
{
	uint64_t x = a->gpus[r], y = a->gpus[s], now, then;

	if (x == y)
		return false;
	now = cost_of(a, r, x) + cost_of(a, s, y);
	then = cost_of(a, r, y) + cost_of(a, s, x);
	return then < now || (then == now &&
			      __builtin_ctzll(y) < __builtin_ctzll(x));
}

/* The lower rank has the lower first GPU, where that costs nothing. */
static void order_ranks(struct ddp_bind_assign *a)
{
	int64_t work = a->p->budget;
	bool again = true;

	while (again && work > 0) {
		again = false;
		for (unsigned r = 0; r < a->p->n && work > 0; r++) {
			work -= (int64_t)(a->p->n - r) * a->p->ng;
			for (unsigned s = r + 1; s < a->p->n; s++) {
				uint64_t had = a->gpus[r];

				if (!swap_gains(a, r, s))
					continue;
				a->gpus[r] = a->gpus[s];
				a->gpus[s] = had;
				again = true;
			}
		}
	}
}

static int assign_init(struct ddp_bind_assign *a, struct ddp_bind_prob *p,
		       const struct ddp_bind_fixed *fixed)
{
	size_t n = p->n, cells = n * p->ng + p->nc;

	a->mem = calloc(1, cells * sizeof(uint32_t) +
			(3 * n + 1) * sizeof(unsigned));
	if (!a->mem)
		return -1;
	a->p = p;
	a->proven = true;
	a->w = a->mem;
	a->order = (unsigned *)(a->w + cells);
	a->row = a->order + n;
	a->first = a->row + n;
	for (unsigned r = 0; r < p->n; r++)
		measure(a, r, fixed->pus[r], fixed->npus[r], a->w + n * p->ng);
	return find_rows(a);
}

int ddp_bind_assign(const struct ddp_bind_in *in,
		    const struct ddp_bind_fixed *fixed, uint64_t *gpus,
		    struct ddp_bind_best *best, struct ddp_err *err)
{
	struct ddp_bind_prob *p = calloc(1, sizeof(*p));
	struct ddp_bind_assign a = { .gpus = gpus };
	int rc = -1;

	if (!p) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	if (ddp_bind_prob_init(p, in, err))
		goto out;
	if (assign_init(&a, p, fixed) ||
	    (p->g <= p->n ? assign_one_each(&a) : ddp_bind_assign_sets(&a))) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	order_ranks(&a);
	for (unsigned r = 0; r < p->n; r++)
		gpus[r] = ddp_bind_gpus_named(p, gpus[r]);
	best->d1 = a.d1;
	best->d2 = a.d2;
	best->proven = a.proven;
	rc = 0;
out:
	if (p)
		ddp_bind_prob_free(p);
	free(a.mem);
	free(p);
	return rc;
}
