/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/bind_brute.h"

#include <string.h>

#define RANKS 8
#define PUS 32

struct brute {
	const struct ddp_bind_in *in;
	const struct ddp_bind_fixed *fixed;
	const uint64_t *gpus;
	bool by_pu;
	unsigned few, larger;		/* a rank or a GPU; how many have more */
	unsigned has[64];
	uint64_t set[RANKS];		/* GPUs of each rank */
	uint32_t pus[RANKS][PUS];
	unsigned npus[RANKS];
	struct bind_least least;
};

uint64_t bind_brute_d1(const struct ddp_bind_in *in, uint64_t gpus,
		       const uint32_t *pus, unsigned npus, bool by_pu)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < npus; i++) {
		bool seen = false;

		for (unsigned j = 0; j < i; j++)
			if (in->pu_core[pus[j]] == in->pu_core[pus[i]])
				seen = true;
		for (unsigned g = 0; g < in->ngpus && (!seen || by_pu); g++)
			if (gpus >> g & 1)
				sum += in->d[in->pu_core[pus[i]] * in->ngpus +
					     g];
	}
	return sum;
}

uint64_t bind_brute_d2(const struct ddp_bind_in *in, uint64_t gpus)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < in->ngpus; i++)
		for (unsigned j = 0; j < i; j++)
			if (gpus >> i & 1 && gpus >> j & 1)
				sum += in->e[i * in->ngpus + j];
	return sum;
}

static void take(struct brute *b, uint64_t first, uint64_t second)
{
	if (first < b->least.first)
		b->least = (struct bind_least){ first, second };
	else if (first == b->least.first && second < b->least.second)
		b->least.second = second;
}

/* May this one have one more, of those that have few, or one more? */
static bool open(const struct brute *b, unsigned i)
{
	return b->has[i] < b->few || (b->has[i] == b->few && b->larger);
}

static void count_cpus(struct brute *b)
{
	uint64_t d1 = 0, u = 0;

	for (unsigned r = 0; r < b->in->nranks; r++) {
		uint64_t numa = 0;

		d1 += bind_brute_d1(b->in, b->gpus[r], b->pus[r], b->npus[r],
				    b->by_pu);
		for (unsigned i = 0; i < b->npus[r]; i++)
			numa |= b->in->core_numa[b->in->pu_core[b->pus[r][i]]];
		for (; numa; numa &= numa - 1)
			u++;
	}
	take(b, d1, u);
}

/* The unit that starts with PU u: a core with all its PUs, or the PU. */
static void next_unit(struct brute *b, unsigned u)
{
	unsigned n = 1;

	if (u == b->in->npus) {
		count_cpus(b);
		return;
	}
	while (!b->by_pu && u + n < b->in->npus &&
	       b->in->pu_core[u + n] == b->in->pu_core[u])
		n++;
	for (unsigned r = 0; r < b->in->nranks; r++) {
		bool more = b->has[r] == b->few;

		if (!open(b, r))
			continue;
		b->has[r]++;
		b->larger -= more;
		for (unsigned i = 0; i < n; i++)
			b->pus[r][b->npus[r]++] = u + i;
		next_unit(b, u + n);
		b->npus[r] -= n;
		b->larger += more;
		b->has[r]--;
	}
}

struct bind_least bind_brute_cpus(const struct ddp_bind_in *in,
				  const uint64_t *gpus, bool by_pu)
{
	struct brute b = { .in = in, .gpus = gpus, .by_pu = by_pu };
	unsigned units = by_pu ? in->npus : in->ncores;

	b.few = units / in->nranks;
	b.larger = units % in->nranks;
	memset(&b.least, 0xff, sizeof(b.least));
	next_unit(&b, 0);
	return b.least;
}

static void count_gpus(struct brute *b)
{
	uint64_t d1 = 0, d2 = 0;

	for (unsigned r = 0; r < b->in->nranks; r++) {
		d1 += bind_brute_d1(b->in, b->set[r], b->fixed->pus[r],
				    b->fixed->npus[r], false);
		d2 += bind_brute_d2(b->in, b->set[r]);
	}
	take(b, d1, d2);
}

/* Number i of the GPUs, or of the ranks if there are more of them. */
static void next_one(struct brute *b, unsigned i)
{
	bool ranks = b->in->nranks > b->in->ngpus;

	if (i == (ranks ? b->in->nranks : b->in->ngpus)) {
		count_gpus(b);
		return;
	}
	for (unsigned to = 0;
	     to < (ranks ? b->in->ngpus : b->in->nranks); to++) {
		bool more = b->has[to] == b->few;
		uint64_t bit = (uint64_t)1 << (ranks ? to : i);
		unsigned r = ranks ? i : to;

		if (!open(b, to))
			continue;
		b->has[to]++;
		b->larger -= more;
		b->set[r] |= bit;
		next_one(b, i + 1);
		b->set[r] &= ~bit;
		b->larger += more;
		b->has[to]--;
	}
}

struct bind_least bind_brute_gpus(const struct ddp_bind_in *in,
				  const struct ddp_bind_fixed *fixed)
{
	struct brute b = { .in = in, .fixed = fixed };
	unsigned n = in->nranks, g = in->ngpus;

	b.few = n > g ? n / g : g / n;
	b.larger = n > g ? n % g : g % n;
	memset(&b.least, 0xff, sizeof(b.least));
	next_one(&b, 0);
	return b.least;
}
