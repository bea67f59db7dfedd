/* SPDX-License-Identifier: Apache-2.0 */
/* From what is decided to the ranks of a plan, and what it all comes to. */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>

/* Does GPU a of the caller's come before GPU b? */
static bool before(const struct ddp_bind_in *in, uint32_t a, uint32_t b)
{
	/* With policy none in the order given. */
	return in->policy == DDP_BIND_NONE ? a < b :
		in->gpu_pos[a] < in->gpu_pos[b];
}

int ddp_bind_fill_gpus(const struct ddp_bind_in *in, struct ddp_bind_rank *r,
		       uint64_t gpus, struct ddp_err *err)
{
	r->gpus = calloc((size_t)__builtin_popcountll(gpus) + 1,
			 sizeof(*r->gpus));
	if (!r->gpus)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	for (; gpus; gpus &= gpus - 1) {
		uint32_t g = (uint32_t)__builtin_ctzll(gpus);
		unsigned at = r->ngpus++;

		for (; at && before(in, g, r->gpus[at - 1]); at--)
			r->gpus[at] = r->gpus[at - 1];
		r->gpus[at] = g;
	}
	return 0;
}

/* The NUMA nodes whose CPUs the rank shares with others; 0: all. */
static uint64_t shared_numa(const struct ddp_bind_in *in,
			    const struct ddp_bind_rank *r)
{
	uint64_t near = 0, all = 0;

	if (in->policy == DDP_BIND_NONE)
		return 0;
	for (unsigned i = 0; i < r->ngpus; i++)
		near |= in->gpu_numa[r->gpus[i]];
	for (unsigned c = 0; c < in->ncores; c++)
		all |= in->core_numa[c];
	return near & all;
}

int ddp_bind_fill_pus(const struct ddp_bind_in *in, struct ddp_bind_plan *plan,
		      unsigned rank, const unsigned *owner,
		      struct ddp_err *err)
{
	struct ddp_bind_rank *r = &plan->ranks[rank];
	uint64_t near = owner ? 0 : shared_numa(in, r);

	/* Once to count, once to write. */
	for (int pass = 0; pass < 2; pass++) {
		unsigned n = 0;

		for (unsigned u = 0; u < in->npus; u++) {
			unsigned core = in->pu_core[u];

			if (owner ? owner[plan->unit == DDP_BIND_PUS ? u :
					  core] != rank :
			    near && !(near & in->core_numa[core]))
				continue;
			if (pass)
				r->pus[n] = u;
			n++;
		}
		if (!pass)
			r->pus = calloc((size_t)n + 1, sizeof(*r->pus));
		if (!r->pus)
			return ddp_err_set(err, DDP_ENOMEM, "out of memory");
		r->npus = n;
	}
	return 0;
}

static void count_rank(const struct ddp_bind_in *in,
		       struct ddp_bind_plan *plan, struct ddp_bind_rank *r,
		       bool by_pu)
{
	unsigned last = UINT32_MAX;

	for (unsigned i = 0; i < r->ngpus; i++) {
		uint32_t g = r->gpus[i];

		for (unsigned j = i + 1; j < r->ngpus; j++)
			plan->d2 += in->e[(size_t)g * in->ngpus + r->gpus[j]];
		r->gpu_numa |= in->gpu_numa[g];
		r->remote |= !in->gpu_numa[g];
	}
	for (unsigned u = 0; u < r->npus; u++) {
		unsigned core = in->pu_core[r->pus[u]];
		const uint16_t *d = in->d + (size_t)core * in->ngpus;

		r->numa |= in->core_numa[core];
		r->ncores += core != last;
		for (unsigned i = 0; i < r->ngpus; i++)
			if (core != last || by_pu)
				r->d1 += d[r->gpus[i]];
		last = core;
	}
	plan->d1 += r->d1;
	plan->numa += (unsigned)__builtin_popcountll(r->numa);
}

void ddp_bind_fill_count(const struct ddp_bind_in *in,
			 struct ddp_bind_plan *plan, bool by_pu)
{
	for (unsigned r = 0; r < plan->nranks; r++)
		count_rank(in, plan, &plan->ranks[r], by_pu);
}
