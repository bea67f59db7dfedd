/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan where GPUs or CPUs are given. Given GPUs become a node on which
 * each rank has one GPU: its distance from a core is the sum of those of the
 * rank's GPUs. Ranks with the same distances share one, since the search
 * knows no more than 64 GPUs; how many ranks share it is given, and the rest
 * is the search for CPUs as it is. Given CPUs are in ddp_bind_assign.c.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

struct mask {
	uint64_t gpus;
	unsigned rank;
};

/* The node with one GPU a rank. */
struct node {
	struct ddp_bind_in in;
	uint32_t pos[DDP_BIND_GPUS];
	unsigned *gpu_of;		/* of each rank */
	uint16_t *column;		/* [GPUs][cores], unordered */
	uint16_t *d;
	struct mask *mask;
	bool whole, exact;		/* all in it; no distance was cut */
};

/* One GPU a rank: nothing between GPUs, and the real ones are judged. */
static const uint64_t no_numa[DDP_BIND_GPUS];
static const uint16_t no_links[DDP_BIND_GPUS * DDP_BIND_GPUS];

static int check_pus(const struct ddp_bind_in *in, const uint32_t *pus,
		     unsigned npus, unsigned rank, struct ddp_err *err)
{
	if (!npus || !pus)
		return ddp_err_set(err, DDP_EINVAL, "rank %u is given no CPU",
				   rank);
	for (unsigned i = 0; i < npus; i++) {
		if (pus[i] >= in->npus)
			return ddp_err_set(err, DDP_EINVAL, "rank %u is given "
					   "CPU %u of %u", rank, pus[i],
					   in->npus);
		if (i && pus[i] <= pus[i - 1])
			return ddp_err_set(err, DDP_EINVAL, "CPUs of rank %u "
					   "do not rise", rank);
	}
	return 0;
}

static int check_fixed(const struct ddp_bind_in *in,
		       const struct ddp_bind_fixed *fixed,
		       struct ddp_err *err)
{
	uint64_t all = in->ngpus ? UINT64_MAX >> (64 - in->ngpus) : 0;

	if (fixed->pus && !fixed->npus)
		return ddp_err_set(err, DDP_EINVAL,
				   "CPUs are given, but not how many");
	for (unsigned r = 0; r < in->nranks; r++) {
		uint64_t odd = fixed->gpus ? fixed->gpus[r] & ~all : 0;

		if (odd)
			return ddp_err_set(err, DDP_EINVAL, "rank %u is given "
					   "GPU %d of %u", r,
					   __builtin_ctzll(odd), in->ngpus);
		if (fixed->pus && check_pus(in, fixed->pus[r], fixed->npus[r],
					    r, err))
			return -1;
	}
	return 0;
}

static int by_gpus(const void *a, const void *b)
{
	const struct mask *x = a, *y = b;

	return (x->gpus > y->gpus) - (x->gpus < y->gpus);
}

/* The number of the column of such GPUs; one more column may be needed. */
static unsigned column_of(struct node *v, const struct ddp_bind_in *in,
			  uint64_t gpus)
{
	size_t nc = in->ncores;
	uint16_t *new = v->column + v->in.ngpus * nc;
	unsigned i = 0;

	for (size_t c = 0; c < nc; c++) {
		uint32_t sum = 0;

		for (uint64_t m = gpus; m; m &= m - 1)
			sum += in->d[c * in->ngpus +
				     (unsigned)__builtin_ctzll(m)];
		v->exact = v->exact && sum <= UINT16_MAX;
		new[c] = (uint16_t)(sum < UINT16_MAX ? sum : UINT16_MAX);
	}
	while (memcmp(v->column + i * nc, new, nc * sizeof(*new)))
		i++;
	return i;
}

/* Columns get the order of the first ranks that have them. */
static void order_columns(struct node *v)
{
	unsigned number[DDP_BIND_GPUS], next = 0;

	for (unsigned i = 0; i < v->in.ngpus; i++)
		number[i] = UINT32_MAX;
	for (unsigned r = 0; r < v->in.nranks; r++) {
		unsigned i = v->gpu_of[r];

		if (number[i] == UINT32_MAX) {
			number[i] = next++;
			for (size_t c = 0; c < v->in.ncores; c++)
				v->d[c * v->in.ngpus + number[i]] =
					v->column[i * v->in.ncores + c];
		}
		v->gpu_of[r] = number[i];
	}
}

/* Without GPUs if no rank has any, and, not whole, if there are too many. */
static void find_columns(struct node *v, const struct ddp_bind_in *in,
			 const uint64_t *gpus)
{
	bool any = false;
	unsigned at = 0;

	for (unsigned r = 0; r < in->nranks; r++) {
		v->mask[r] = (struct mask){ gpus[r], r };
		any = any || gpus[r];
	}
	qsort(v->mask, any ? in->nranks : 0, sizeof(*v->mask), by_gpus);
	v->in.ngpus = 0;
	for (unsigned i = 0; i < in->nranks && any; i++) {
		if (!i || v->mask[i].gpus != v->mask[i - 1].gpus)
			at = column_of(v, in, v->mask[i].gpus);
		if (at == DDP_BIND_GPUS) {
			v->whole = false;
			v->in.ngpus = 0;
			return;
		}
		v->in.ngpus += at == v->in.ngpus;
		v->gpu_of[v->mask[i].rank] = at;
	}
	order_columns(v);
}

static void node_free(struct node *v)
{
	free(v->gpu_of);
	free(v->column);
	free(v->d);
	free(v->mask);
}

static int node_init(struct node *v, const struct ddp_bind_in *in,
		     const uint64_t *gpus, struct ddp_err *err)
{
	size_t nc = in->ncores;

	memset(v, 0, sizeof(*v));
	v->in = *in;
	v->whole = v->exact = true;
	v->gpu_of = calloc(in->nranks, sizeof(*v->gpu_of));
	v->mask = calloc(in->nranks, sizeof(*v->mask));
	v->column = calloc((DDP_BIND_GPUS + 1) * nc, sizeof(*v->column));
	v->d = calloc(DDP_BIND_GPUS * nc, sizeof(*v->d));
	if (!v->gpu_of || !v->mask || !v->column || !v->d)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < DDP_BIND_GPUS; i++)
		v->pos[i] = i;
	v->in.gpu_pos = v->pos;
	v->in.gpu_numa = no_numa;
	v->in.e = no_links;
	v->in.d = v->d;
	find_columns(v, in, gpus);
	return 0;
}

/* The owner of each unit, for ranks with these GPUs. */
static int split_cpus(const struct ddp_bind_in *in, const uint64_t *gpus,
		      unsigned *owner, struct ddp_bind_best *best,
		      struct ddp_err *err)
{
	struct ddp_bind_prob *p = calloc(1, sizeof(*p));
	uint64_t *scratch = calloc(in->nranks, sizeof(*scratch));
	struct node v = { .gpu_of = NULL };
	int rc = -1;

	if (!p || !scratch) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	if (node_init(&v, in, gpus, err) || ddp_bind_prob_init(p, &v.in, err))
		goto out;
	if (v.in.ngpus) {
		p->gpu_of = v.gpu_of;
		rc = ddp_bind_solve(p, best, owner, scratch, err);
		best->proven = best->proven && v.exact;
	} else {
		ddp_bind_share_in_order(p, owner);
		best->proven = v.whole;
		rc = 0;
	}
out:
	if (p)
		ddp_bind_prob_free(p);
	node_free(&v);
	free(scratch);
	free(p);
	return rc;
}

static int give_cpus(const struct ddp_bind_in *in, const uint64_t *gpus,
		     struct ddp_bind_plan *plan, struct ddp_err *err)
{
	bool split = plan->unit != DDP_BIND_SHARED &&
		in->policy != DDP_BIND_NONE;
	size_t units = in->npus > in->ncores ? in->npus : in->ncores;
	struct ddp_bind_best *best = calloc(1, sizeof(*best));
	unsigned *owner = calloc(units, sizeof(*owner));
	int rc = -1;

	if (!best || !owner) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	if (split && split_cpus(in, gpus, owner, best, err))
		goto out;
	rc = 0;
	for (unsigned r = 0; r < in->nranks && !rc; r++)
		rc = ddp_bind_fill_pus(in, plan, r, split ? owner : NULL, err);
	if (!rc)
		ddp_bind_fill_count(in, plan, plan->unit == DDP_BIND_PUS);
	plan->optimal = in->policy != DDP_BIND_NONE &&
		(!split || (best->proven && (!best->found ||
			    (plan->d1 == best->d1 && plan->numa == best->u))));
out:
	free(best);
	free(owner);
	return rc;
}

/* What given CPUs are: does a PU, or only a core, belong to two ranks? */
static int given_unit(const struct ddp_bind_in *in,
		      const struct ddp_bind_fixed *fixed,
		      enum ddp_bind_unit *unit, struct ddp_err *err)
{
	unsigned *pu = calloc((size_t)in->npus + in->ncores, sizeof(*pu));
	unsigned *core = pu + in->npus;

	if (!pu)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	*unit = DDP_BIND_CORES;
	for (unsigned r = 0; r < in->nranks; r++) {
		for (unsigned i = 0; i < fixed->npus[r]; i++) {
			uint32_t u = fixed->pus[r][i], c = in->pu_core[u];

			if (pu[u])
				*unit = DDP_BIND_SHARED;
			else if (core[c] && core[c] != r + 1 &&
				 *unit == DDP_BIND_CORES)
				*unit = DDP_BIND_PUS;
			pu[u] = core[c] = r + 1;
		}
	}
	free(pu);
	return 0;
}

static int take_cpus(const struct ddp_bind_in *in,
		     const struct ddp_bind_fixed *fixed,
		     struct ddp_bind_plan *plan, struct ddp_err *err)
{
	for (unsigned i = 0; i < in->nranks; i++) {
		struct ddp_bind_rank *r = &plan->ranks[i];

		r->pus = calloc(fixed->npus[i], sizeof(*r->pus));
		if (!r->pus)
			return ddp_err_set(err, DDP_ENOMEM, "out of memory");
		memcpy(r->pus, fixed->pus[i], fixed->npus[i] *
		       sizeof(*r->pus));
		r->npus = fixed->npus[i];
	}
	ddp_bind_fill_count(in, plan, false);
	return 0;
}

/* GPUs of every rank: given, or sought for the given CPUs. */
static int give_gpus(const struct ddp_bind_in *in,
		     const struct ddp_bind_fixed *fixed, uint64_t *gpus,
		     struct ddp_bind_best *best, struct ddp_err *err)
{
	best->proven = true;
	if (fixed->gpus)
		memcpy(gpus, fixed->gpus, in->nranks * sizeof(*gpus));
	else if (in->policy == DDP_BIND_NONE)
		ddp_bind_share_listed(in, gpus);
	else if (in->ngpus)
		return ddp_bind_assign(in, fixed, gpus, best, err);
	return 0;
}

static int make(const struct ddp_bind_in *in,
		const struct ddp_bind_fixed *fixed, struct ddp_bind_plan *plan,
		struct ddp_err *err)
{
	uint64_t *gpus = calloc(in->nranks, sizeof(*gpus));
	struct ddp_bind_best *best = calloc(1, sizeof(*best));
	int rc = -1;

	plan->unit = ddp_bind_unit_of(in);
	if (!gpus || !best) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	if ((fixed->pus && given_unit(in, fixed, &plan->unit, err)) ||
	    give_gpus(in, fixed, gpus, best, err))
		goto out;
	rc = 0;
	for (unsigned r = 0; r < in->nranks && !rc; r++)
		rc = ddp_bind_fill_gpus(in, &plan->ranks[r], gpus[r], err);
	if (!rc && fixed->pus) {
		rc = take_cpus(in, fixed, plan, err);
		plan->optimal = fixed->gpus ||
			(in->policy != DDP_BIND_NONE && best->proven &&
			 plan->d1 == best->d1 && plan->d2 == best->d2);
	} else if (!rc) {
		rc = give_cpus(in, gpus, plan, err);
	}
out:
	free(gpus);
	free(best);
	return rc;
}

int ddp_bind_make_fixed(const struct ddp_bind_in *in,
			const struct ddp_bind_fixed *fixed,
			struct ddp_bind_plan *plan, struct ddp_err *err)
{
	if (!fixed || (!fixed->gpus && !fixed->pus))
		return ddp_bind_make(in, plan, err);
	memset(plan, 0, sizeof(*plan));
	if (ddp_bind_check(in, err) || check_fixed(in, fixed, err))
		return -1;
	plan->ranks = calloc(in->nranks, sizeof(*plan->ranks));
	if (!plan->ranks)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	plan->nranks = in->nranks;
	plan->policy = in->policy;
	return make(in, fixed, plan, err) ? -1 : ddp_bind_judge(in, plan, err);
}
