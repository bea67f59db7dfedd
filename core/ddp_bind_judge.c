/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies. What a rank got is the number of NUMA nodes of its CPUs and
 * GPUs together; a GPU near no node with CPUs is at a place of its own, which
 * counts as one more. What it needed is the least number of such places on
 * the whole node, all of it free, that hold as many GPUs and as many cores.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

/* Cores and GPUs whose places are the same, of the whole node. */
struct place {
	uint64_t set;
	bool remote;
	uint64_t cores, gpus;
};

#define ANSWERS 64

struct answer {
	unsigned cores, gpus, limit;	/* limit 0: none yet */
	unsigned least;
};

struct need {
	struct place *place;
	unsigned nplaces;
	unsigned nnuma;
	bool simple;			/* no place is at two NUMA nodes */
	unsigned cores, gpus;
	int64_t work, budget;
	struct answer answer[ANSWERS];
	/* Simple: most cores, and 1, of so many places with so many GPUs. */
	uint64_t most[DDP_BIND_NUMA + 2][DDP_BIND_GPUS + 1];
};

static void add_place(struct need *w, uint64_t set, bool remote, unsigned cores,
		      unsigned gpus)
{
	unsigned i = 0;

	while (i < w->nplaces && (w->place[i].set != set ||
				  w->place[i].remote != remote))
		i++;
	if (i == w->nplaces) {
		w->place[i].set = set;
		w->place[i].remote = remote;
		w->nplaces++;
	}
	w->place[i].cores += cores;
	w->place[i].gpus += gpus;
	w->simple = w->simple && !(set & (set - 1));
	for (uint64_t m = set; m; m &= m - 1)
		if ((unsigned)__builtin_ctzll(m) >= w->nnuma)
			w->nnuma = (unsigned)__builtin_ctzll(m) + 1;
}

static bool holds(struct need *w, uint64_t set, bool remote)
{
	uint64_t cores = 0, gpus = 0;

	w->work -= w->nplaces;
	for (unsigned i = 0; i < w->nplaces; i++) {
		const struct place *p = &w->place[i];

		if (p->set & ~set || (p->remote && !remote))
			continue;
		cores += p->cores;
		gpus += p->gpus;
	}
	return cores >= w->cores && gpus >= w->gpus;
}

/* Some set of size more nodes, number from and later ones, besides have. */
static bool any_set(struct need *w, unsigned from, uint64_t have, unsigned size,
		    bool remote)
{
	if (!size)
		return holds(w, have, remote);
	for (; from + size <= w->nnuma && w->work-- > 0; from++)
		if (any_set(w, from + 1, have | (uint64_t)1 << from, size - 1,
			    remote))
			return true;
	return false;
}

/* One more place, or what is at no place at all, to all choices so far. */
static void add_choices(struct need *w, const struct place *p, unsigned limit)
{
	unsigned take = p->set || p->remote;

	for (unsigned n = limit + 1; n-- > take;) {
		for (unsigned g = w->gpus + 1; g-- > 0;) {
			uint64_t cores = w->most[n - take][g];
			uint64_t gpus = g + p->gpus;

			if (!cores)
				continue;
			if (gpus > w->gpus)
				gpus = w->gpus;
			if (w->most[n][gpus] < cores + p->cores)
				w->most[n][gpus] = cores + p->cores;
		}
	}
}

/* Simple: a knapsack of places, so that all sets need not be tried. */
static unsigned least_simple(struct need *w, unsigned limit)
{
	memset(w->most, 0, sizeof(w->most));
	w->most[0][0] = 1;
	for (unsigned i = 0; i < w->nplaces; i++)
		add_choices(w, &w->place[i], limit);
	for (unsigned n = 0; n < limit; n++)
		if (w->most[n][w->gpus] > w->cores)
			return n;
	return limit;
}

/*
 * The least number of places, or limit if it is not less than that, or not
 * known to be.
 */
static unsigned least_places(struct need *w, unsigned limit)
{
	if (w->simple)
		return least_simple(w, limit);
	w->work = w->budget;
	for (unsigned n = 0; n < limit; n++)
		if (any_set(w, 0, 0, n, false) ||
		    (n && any_set(w, 0, 0, n - 1, true)))
			return n;
	return limit;
}

/* The same, asked once: most ranks ask for what others did. */
static unsigned needed(struct need *w, unsigned limit)
{
	struct answer *a = &w->answer[(w->cores + 7 * w->gpus + 31 * limit) %
				      ANSWERS];

	if (a->limit != limit || a->cores != w->cores || a->gpus != w->gpus) {
		a->limit = limit;
		a->cores = w->cores;
		a->gpus = w->gpus;
		a->least = least_places(w, limit);
	}
	return a->least;
}

static void judge_rank(struct need *w, struct ddp_bind_plan *plan,
		       struct ddp_bind_rank *r)
{
	r->got = (unsigned)__builtin_popcountll(r->numa | r->gpu_numa) +
		r->remote;
	r->needed = 1;
	if (plan->policy == DDP_BIND_RESTRICTED) {
		w->gpus = r->ngpus;
		w->cores = plan->unit == DDP_BIND_PUS ? r->npus : r->ncores;
		r->needed = needed(w, r->got);
	}
	r->refused = r->got > r->needed;
	plan->nrefused += r->refused;
}

int ddp_bind_judge(const struct ddp_bind_in *in, struct ddp_bind_plan *plan,
		   struct ddp_err *err)
{
	struct need *w;

	if (plan->policy != DDP_BIND_RESTRICTED &&
	    plan->policy != DDP_BIND_SINGLE_NUMA)
		return 0;
	w = calloc(1, sizeof(*w));
	if (w)
		w->place = calloc(in->node_ncores + in->node_ngpus + 1U,
				  sizeof(*w->place));
	if (!w || !w->place) {
		free(w);
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	}
	w->simple = true;
	w->budget = (in->work ? in->work : DDP_BIND_WORK) / 10;
	for (unsigned c = 0; c < in->node_ncores; c++)
		add_place(w, in->node_core_numa[c], false,
			  plan->unit == DDP_BIND_PUS ? in->node_core_pus[c] : 1,
			  0);
	for (unsigned g = 0; g < in->node_ngpus; g++)
		add_place(w, in->node_gpu_numa[g], !in->node_gpu_numa[g], 0,
			  1);
	for (unsigned r = 0; r < plan->nranks; r++)
		judge_rank(w, plan, &plan->ranks[r]);
	free(w->place);
	free(w);
	return 0;
}
