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

int ddp_bind_check(const struct ddp_bind_in *in, struct ddp_err *err)
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
	for (unsigned i = 0; i < in->ngpus; i++)
		for (unsigned j = 0; j < i; j++)
			if (in->gpu_pos[i] == in->gpu_pos[j])
				return ddp_err_set(err, DDP_EINVAL, "two GPUs "
						   "have one position");
	return 0;
}

void ddp_bind_share_listed(const struct ddp_bind_in *in, uint64_t *gpus)
{
	bool few = in->ngpus < in->nranks;
	unsigned small = few ? in->ngpus : in->nranks;
	unsigned large = few ? in->nranks : in->ngpus, at = 0;

	for (unsigned i = 0; i < small; i++) {
		unsigned n = large / small + (i < large % small);

		for (; n; n--, at++)
			gpus[few ? at : i] |= (uint64_t)1 << (few ? i : at);
	}
}

void ddp_bind_share_in_order(const struct ddp_bind_prob *p, unsigned *owner)
{
	unsigned u = 0;

	for (unsigned r = 0; r < p->n; r++)
		for (unsigned i = p->k + (r < p->kx); i; i--)
			owner[u++] = r;
}

uint64_t ddp_bind_gpus_named(const struct ddp_bind_prob *p, uint64_t gpus)
{
	uint64_t named = 0;

	for (; gpus; gpus &= gpus - 1)
		named |= (uint64_t)1 << p->gpu[__builtin_ctzll(gpus)];
	return named;
}

static int fill_plan(const struct ddp_bind_prob *p, struct ddp_bind_plan *plan,
		     const uint64_t *gpus, const unsigned *owner,
		     struct ddp_err *err)
{
	for (unsigned r = 0; r < p->n; r++)
		if (ddp_bind_fill_gpus(p->in, &plan->ranks[r], gpus[r], err) ||
		    ddp_bind_fill_pus(p->in, plan, r, owner, err))
			return -1;
	ddp_bind_fill_count(p->in, plan, p->unit == DDP_BIND_PUS);
	return 0;
}

int ddp_bind_solve(struct ddp_bind_prob *p, struct ddp_bind_best *best,
		   unsigned *owner, uint64_t *gpus, struct ddp_err *err)
{
	if (ddp_bind_split(p, best))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	/* The same work once more: it found what is now handed out. Else a
	 * part of it, to have U low where that is easy. */
	if (best->proven)
		p->work = p->budget;
	else if (p->work < p->budget / 4)
		p->work = p->budget / 4;
	return ddp_bind_share(p, best, owner, gpus, err);
}

/* GPUs and units of every rank. */
static int make(struct ddp_bind_prob *p, struct ddp_bind_plan *plan,
		struct ddp_err *err)
{
	struct ddp_bind_best *best = calloc(1, sizeof(*best));
	uint64_t *gpus = calloc(p->n, sizeof(*gpus));
	unsigned *owner = calloc(p->nu + 1, sizeof(*owner));
	bool none = p->in->policy == DDP_BIND_NONE;
	bool split = p->unit != DDP_BIND_SHARED && !none;
	int rc = -1;

	if (!best || !gpus || !owner) {
		rc = ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	if (none)
		ddp_bind_share_listed(p->in, gpus);
	else if (!p->g)
		ddp_bind_share_in_order(p, owner);
	else if (ddp_bind_solve(p, best, owner, gpus, err))
		goto out;
	for (unsigned r = 0; r < p->n && !none; r++)
		gpus[r] = ddp_bind_gpus_named(p, gpus[r]);
	rc = fill_plan(p, plan, gpus, split ? owner : NULL, err);
	plan->optimal = !none &&
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
	if (ddp_bind_check(in, err) || ddp_bind_prob_init(p, in, err))
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
