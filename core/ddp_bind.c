/* SPDX-License-Identifier: Apache-2.0 */
/* Entry of the binding plan; ddp_bind_int.h says how the search is built. */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
	[DDP_BIND_NONE] = "none",
	[DDP_BIND_BEST_EFFORT] = "best-effort",
	[DDP_BIND_RESTRICTED] = "restricted",
	[DDP_BIND_SINGLE_NUMA] = "single-numa-node",
};

const char *ddp_bind_policy_name(enum ddp_bind_policy policy)
{
	return names[policy];
}

int ddp_bind_policy_parse(const char *text, enum ddp_bind_policy *policy)
{
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(text, names[i])) {
			*policy = (enum ddp_bind_policy)i;
			return 0;
		}
	}
	return -1;
}

static int check_input(const struct ddp_bind_in *in, struct ddp_err *err)
{
	if (!in->nranks || in->nranks > DDP_BIND_RANKS)
		return ddp_err_set(err, DDP_EINVAL,
				   "%u ranks on one node: 1 to %d can be "
				   "planned", in->nranks, DDP_BIND_RANKS);
	if (in->ngpus > DDP_BIND_GPUS)
		return ddp_err_set(err, DDP_EINVAL,
				   "%u GPUs: at most %d can be planned",
				   in->ngpus, DDP_BIND_GPUS);
	if (!in->npus || !in->ncores)
		return ddp_err_set(err, DDP_EINVAL, "no CPU is allowed");
	for (unsigned u = 0; u < in->npus; u++)
		if (in->pu_core[u] >= in->ncores ||
		    (u && in->pu_core[u] < in->pu_core[u - 1]))
			return ddp_err_set(err, DDP_EINVAL,
					   "CPUs are not in logical order");
	return 0;
}

/* Policy none: GPUs in the given order, every CPU to all. */
static void share_plainly(const struct ddp_bind_prob *p, uint64_t *gpus)
{
	unsigned small = p->g < p->n ? p->g : p->n;
	unsigned large = p->g < p->n ? p->n : p->g, at = 0;
	uint64_t bit[DDP_BIND_GPUS];

	for (unsigned i = 0; i < p->g; i++)
		bit[p->gpu[i]] = (uint64_t)1 << i;
	for (unsigned i = 0; i < small; i++) {
		unsigned n = large / small + (i < large % small);

		for (; n; n--, at++)
			gpus[p->g < p->n ? at : i] |= bit[p->g < p->n ? i : at];
	}
}

/* Without GPUs: units in their order, the first ranks one more. */
static void share_in_order(const struct ddp_bind_prob *p, unsigned *owner)
{
	unsigned u = 0;

	for (unsigned r = 0; r < p->n; r++)
		for (unsigned i = p->k + (r < p->kx); i; i--)
			owner[u++] = r;
}

/* The NUMA nodes whose CPUs the rank shares with others; 0: all. */
static uint64_t shared_numa(const struct ddp_bind_prob *p, uint64_t gpus)
{
	uint64_t near = 0, all = 0;

	for (; gpus; gpus &= gpus - 1)
		near |= p->in->gpu_numa[p->gpu[__builtin_ctzll(gpus)]];
	for (unsigned c = 0; c < p->in->ncores; c++)
		all |= p->in->core_numa[c];
	return near & all;
}

/* Does the rank get this PU? owner NULL: every PU near it. */
static bool gets(const struct ddp_bind_prob *p, const unsigned *owner,
		 unsigned rank, uint64_t near, unsigned pu)
{
	unsigned core = p->in->pu_core[pu];

	if (owner)
		return owner[p->unit == DDP_BIND_PUS ? pu : core] == rank;
	return !near || near & p->in->core_numa[core];
}

static int by_number(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void count_rank(const struct ddp_bind_prob *p,
		       struct ddp_bind_plan *plan, unsigned rank,
		       uint64_t gpus, const unsigned *owner)
{
	const struct ddp_bind_in *in = p->in;
	struct ddp_bind_rank *r = &plan->ranks[rank];
	uint64_t near = 0;
	unsigned last = UINT32_MAX;

	if (p->in->policy != DDP_BIND_NONE && !owner)
		near = shared_numa(p, gpus);
	for (uint64_t m = gpus; m; m &= m - 1) {
		unsigned i = (unsigned)__builtin_ctzll(m), g = p->gpu[i];

		for (uint64_t o = m & (m - 1); o; o &= o - 1)
			plan->d2 += p->e[i][__builtin_ctzll(o)];
		r->gpus[r->ngpus++] = g;
		r->gpu_numa |= in->gpu_numa[g];
		r->remote |= !in->gpu_numa[g];
	}
	if (in->policy == DDP_BIND_NONE)	/* in the order given */
		qsort(r->gpus, r->ngpus, sizeof(*r->gpus), by_number);
	for (unsigned u = 0; u < in->npus; u++) {
		unsigned core = in->pu_core[u];

		if (!gets(p, owner, rank, near, u))
			continue;
		r->pus[r->npus++] = u;
		r->numa |= in->core_numa[core];
		r->ncores += core != last;
		for (unsigned i = 0; i < r->ngpus; i++)
			if (core != last || p->unit == DDP_BIND_PUS)
				r->d1 += in->d[(size_t)core * p->g +
					       r->gpus[i]];
		last = core;
	}
	plan->d1 += r->d1;
	plan->numa += (unsigned)__builtin_popcountll(r->numa);
}

static int fill_plan(const struct ddp_bind_prob *p, struct ddp_bind_plan *plan,
		     const uint64_t *gpus, const unsigned *owner,
		     struct ddp_err *err)
{
	for (unsigned r = 0; r < p->n; r++) {
		struct ddp_bind_rank *rank = &plan->ranks[r];
		uint64_t near = owner || p->in->policy == DDP_BIND_NONE ? 0 :
			shared_numa(p, gpus[r]);
		size_t n = 0;

		for (unsigned u = 0; u < p->in->npus; u++)
			n += gets(p, owner, r, near, u);
		rank->gpus = calloc((size_t)__builtin_popcountll(gpus[r]) + 1,
				    sizeof(*rank->gpus));
		rank->pus = calloc(n + 1, sizeof(*rank->pus));
		if (!rank->gpus || !rank->pus)
			return ddp_err_set(err, DDP_ENOMEM, "out of memory");
		count_rank(p, plan, r, gpus[r], owner);
	}
	return 0;
}

/* GPUs and units of every rank. */
static int make(struct ddp_bind_prob *p, struct ddp_bind_plan *plan,
		struct ddp_err *err)
{
	struct ddp_bind_best *best = calloc(1, sizeof(*best));
	uint64_t *gpus = calloc(p->n, sizeof(*gpus));
	unsigned *owner = calloc(p->nu + 1, sizeof(*owner));
	bool split = p->unit != DDP_BIND_SHARED &&
		p->in->policy != DDP_BIND_NONE;
	int rc = -1;

	if (!best || !gpus || !owner ||
	    (p->g && p->in->policy != DDP_BIND_NONE &&
	     ddp_bind_split(p, best))) {
		rc = ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	if (p->in->policy == DDP_BIND_NONE) {
		share_plainly(p, gpus);
	} else if (!p->g) {
		share_in_order(p, owner);
	} else {
		if (best->proven)
			p->work = DDP_BIND_WORK;
		if (ddp_bind_share(p, best, owner, gpus, err))
			goto out;
	}
	rc = fill_plan(p, plan, gpus, split ? owner : NULL, err);
	plan->optimal = p->in->policy != DDP_BIND_NONE &&
		(!p->g || (best->proven && plan->d1 == best->d1 &&
			   plan->d2 == best->d2 && plan->numa == best->u));
out:
	free(best);
	free(gpus);
	free(owner);
	return rc;
}

int ddp_bind_make(const struct ddp_bind_in *in, struct ddp_bind_plan *plan,
		  struct ddp_err *err)
{
	struct ddp_bind_prob *p = calloc(1, sizeof(*p));
	int rc = -1;

	memset(plan, 0, sizeof(*plan));
	if (!p) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	if (check_input(in, err) || ddp_bind_prob_init(p, in, err))
		goto out;
	plan->ranks = calloc(in->nranks, sizeof(*plan->ranks));
	if (!plan->ranks) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	plan->nranks = in->nranks;
	plan->policy = in->policy;
	plan->unit = p->unit;
	rc = make(p, plan, err);
	if (!rc)
		rc = ddp_bind_judge(in, plan, err);
out:
	if (p)
		ddp_bind_prob_free(p);
	free(p);
	return rc;
}

void ddp_bind_free(struct ddp_bind_plan *plan)
{
	for (unsigned r = 0; r < plan->nranks; r++) {
		free(plan->ranks[r].gpus);
		free(plan->ranks[r].pus);
	}
	free(plan->ranks);
	memset(plan, 0, sizeof(*plan));
}
