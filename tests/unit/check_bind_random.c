/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binding plan where GPUs or CPUs are given: random nodes, each beside
 * all the ways there are. A failure names the case.
 */
#include "config.h"

#include "tests/unit/bind_brute.h"
#include "tests/unit/bind_given.h"
#include "tests/unit/bind_node.h"
#include "tests/unit/check_main.h"

#define CASES 4000

#define holds(what) ck_assert_msg(what, "case %u: %s", number, #what)
#define is(a, b) ck_assert_msg((a) == (b), "case %u: %s is %ju, not %ju", \
			       number, #a, (uintmax_t)(a), (uintmax_t)(b))

static struct ddp_bind_plan plan;
static struct ddp_err err;

/* xorshift: the same everywhere. */
static uint64_t seed;
static unsigned number;		/* of the case: the seed comes from it */

static unsigned any(unsigned below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)((seed >> 20) % below);
}

/* Up to 7 cores, 6 GPUs and 5 ranks; distances mostly repeat. */
static void random_node(void)
{
	unsigned numa = 1 + any(3), cores = numa + any(8 - numa);
	unsigned gpus = 1 + any(6), most = 1 + any(4);
	bool classes = any(3);

	node_of(numa, cores, gpus, 1 + any(2));
	node.in.nranks = 1 + any(5);
	for (unsigned c = 0; c < cores; c++)
		for (unsigned g = 0; g < gpus; g++)
			node.d[c * gpus + g] = (uint16_t)(classes &&
				c && node.core_at[c] == node.core_at[c - 1] ?
				node.d[(c - 1) * gpus + g] : any(most));
	for (unsigned i = 0; i < gpus; i++) {
		unsigned to = any(i + 1);

		for (unsigned j = 0; j < i; j++)
			node.e[i * gpus + j] = node.e[j * gpus + i] =
				(uint16_t)any(4);
		node.pos[i] = node.pos[to];
		node.pos[to] = i;
		if (!any(8))
			node.gpu_numa[i] = 0;
	}
}

static void make(const struct ddp_bind_fixed *fixed)
{
	ddp_bind_free(&plan);
	ck_assert_msg(!ddp_bind_make_fixed(&node.in, fixed, &plan, &err),
		      "case %u: %s", number, err.text);
}

static uint64_t gpus_of(const struct ddp_bind_rank *r)
{
	uint64_t set = 0;

	for (unsigned i = 0; i < r->ngpus; i++) {
		holds(r->gpus[i] < node.in.ngpus);
		holds(!(set >> r->gpus[i] & 1));
		if (i)
			holds(node.pos[r->gpus[i - 1]] < node.pos[r->gpus[i]]);
		set |= (uint64_t)1 << r->gpus[i];
	}
	return set;
}

/* The plan's own numbers, and that what was given is there. */
static void check_numbers(const struct ddp_bind_fixed *fixed, bool by_pu)
{
	uint64_t d1 = 0, d2 = 0;

	for (unsigned i = 0; i < plan.nranks; i++) {
		const struct ddp_bind_rank *r = &plan.ranks[i];
		uint64_t set = gpus_of(r);
		uint64_t mine = bind_brute_d1(&node.in, set, r->pus, r->npus,
					      by_pu);

		is(r->d1, mine);
		d1 += mine;
		d2 += bind_brute_d2(&node.in, set);
		if (fixed->gpus)
			is(set, fixed->gpus[i]);
		if (fixed->pus)
			holds(r->npus == fixed->npus[i] &&
				  !memcmp(r->pus, fixed->pus[i],
					  r->npus * sizeof(*r->pus)));
		for (unsigned u = 0; u < r->npus; u++)
			holds(r->pus[u] < node.in.npus &&
				  (!u || r->pus[u - 1] < r->pus[u]));
	}
	is(plan.d1, d1);
	is(plan.d2, d2);
}

/* Each core to one rank, or each PU; the shares are even. */
static void check_shares(bool by_pu)
{
	unsigned owner[4 * CORES], seen = 0, n = plan.nranks;
	unsigned k = (by_pu ? node.in.npus : node.in.ncores) / n;

	for (unsigned i = 0; i < n; i++) {
		const struct ddp_bind_rank *r = &plan.ranks[i];
		unsigned has = by_pu ? r->npus : r->ncores;

		holds(has == k || has == k + 1);
		for (unsigned u = 0; u < r->npus; u++, seen++)
			owner[r->pus[u]] = i;
	}
	is(seen, node.in.npus);
	for (unsigned u = 1; u < node.in.npus && !by_pu; u++)
		if (node.pu_core[u] == node.pu_core[u - 1])
			is(owner[u], owner[u - 1]);
}

static void try_gpus(void)
{
	bool by_pu = node.in.ncores < node.in.nranks, any_gpu = false;
	struct bind_least least;

	for (unsigned r = 0; r < node.in.nranks; r++) {
		given.set[r] = any(1U << node.in.ngpus);
		any_gpu = any_gpu || given.set[r];
	}
	make(&given.gpus);
	if (node.in.npus < node.in.nranks) {
		is(plan.unit, DDP_BIND_SHARED);
		check_numbers(&given.gpus, false);
		return;
	}
	is(plan.unit, by_pu ? DDP_BIND_PUS : DDP_BIND_CORES);
	check_numbers(&given.gpus, by_pu);
	check_shares(by_pu);
	least = bind_brute_cpus(&node.in, given.set, by_pu);
	is(plan.d1, least.first);
	holds(plan.optimal);
	if (any_gpu)
		is(plan.numa, least.second);
}

static void try_pus(void)
{
	unsigned n = node.in.nranks, g = node.in.ngpus, has[6] = { 0 };
	bool apart = any(2) && node.in.npus >= n, few = g < n;
	struct bind_least least;

	for (unsigned r = 0; r < n; r++) {
		unsigned k = node.in.npus / n, from = any(node.in.npus);
		unsigned most = 1 + any(node.in.npus - from);

		give_pus(r, apart ? r * k : from, apart ? r * k + k :
			 from + most);
	}
	make(&given.pus);
	check_numbers(&given.pus, false);
	for (unsigned r = 0; r < n; r++) {
		holds(few ? plan.ranks[r].ngpus == 1 :
			  plan.ranks[r].ngpus / (g / n) == 1 ||
			  plan.ranks[r].ngpus == g / n + 1);
		for (unsigned i = 0; i < plan.ranks[r].ngpus; i++)
			has[plan.ranks[r].gpus[i]]++;
	}
	for (unsigned i = 0; i < g; i++)
		holds(few ? has[i] == n / g || has[i] == n / g + 1 :
			  has[i] == 1);
	least = bind_brute_gpus(&node.in, &given.pus);
	is(plan.d1, least.first);
	is(plan.d2, least.second);
	holds(plan.optimal);
	node.in.work = 1;
	make(&given.pus);
	check_numbers(&given.pus, false);
	is(plan.d1, least.first);
	holds(plan.d2 >= least.second);
}

static void try_all(void (*one)(void))
{
	for (number = 0; number < CASES; number++) {
		seed = 0x9e3779b97f4a7c15U * (number + 1);
		for (unsigned i = 0; i < 8; i++)
			(void)any(2);
		random_node();
		one();
	}
}

START_TEST(random_gpus)
{
	try_all(try_gpus);
}
END_TEST

START_TEST(random_pus)
{
	try_all(try_pus);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		random_gpus, random_pus,
	};

	return check_run("bind_random", tests, CHECK_COUNT(tests),
			 give_nothing);
}
