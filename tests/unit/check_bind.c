/* SPDX-License-Identifier: Apache-2.0 */
/* The binding plan, on nodes small enough to know the answer by hand. */
#include "config.h"

#include "tests/unit/bind_node.h"
#include "tests/unit/check_main.h"

static struct ddp_bind_plan plan;
static struct ddp_err err;

static void make(unsigned ranks)
{
	node.in.nranks = ranks;
	ddp_bind_free(&plan);
	ck_assert_msg(!ddp_bind_make(&node.in, &plan, &err), "%s", err.text);
	ck_assert_uint_eq(plan.nranks, ranks);
}

/* Every PU to one rank, each core to one rank, every rank some. */
static void check_split(unsigned least, unsigned most)
{
	unsigned owner[4 * CORES], seen = 0;

	memset(owner, 0xff, sizeof(owner));
	for (unsigned r = 0; r < plan.nranks; r++) {
		ck_assert_uint_ge(plan.ranks[r].ncores, least);
		ck_assert_uint_le(plan.ranks[r].ncores, most);
		for (unsigned i = 0; i < plan.ranks[r].npus; i++) {
			ck_assert_uint_eq(owner[plan.ranks[r].pus[i]],
					  UINT32_MAX);
			owner[plan.ranks[r].pus[i]] = r;
			seen++;
		}
	}
	ck_assert_uint_eq(seen, node.in.npus);
	for (unsigned u = 1; u < node.in.npus; u++)
		if (node.pu_core[u] == node.pu_core[u - 1])
			ck_assert_uint_eq(owner[u], owner[u - 1]);
}

static void check_totals(uint64_t d1, uint64_t d2, uint64_t numa)
{
	ck_assert_uint_eq(plan.d1, d1);
	ck_assert_uint_eq(plan.d2, d2);
	ck_assert_uint_eq(plan.numa, numa);
	ck_assert(plan.optimal);
}

START_TEST(one_gpu_a_rank)
{
	node_of(2, 16, 8, 1);
	make(8);
	check_totals(0, 0, 8);
	check_split(2, 2);
	for (unsigned r = 0; r < 8; r++) {
		ck_assert_uint_eq(plan.ranks[r].ngpus, 1);
		ck_assert_uint_eq(plan.ranks[r].gpus[0], r);
		ck_assert_uint_eq(plan.ranks[r].pus[0], 2 * r);
		ck_assert_uint_eq(plan.ranks[r].numa, r < 4 ? 1 : 2);
	}
}
END_TEST

/* Pairs behind one switch stay together. */
START_TEST(pairs)
{
	node_of(2, 16, 8, 1);
	make(4);
	check_totals(0, 8, 4);
	for (unsigned r = 0; r < 4; r++) {
		ck_assert_uint_eq(plan.ranks[r].gpus[0], 2 * r);
		ck_assert_uint_eq(plan.ranks[r].gpus[1], 2 * r + 1);
	}
}
END_TEST

/*
 * 0-3, 1-2, 4-7 and 5-6 are linked, against the tree: D2 is 0 with these as
 * pairs.
 */
START_TEST(links)
{
	static const unsigned mate[8] = { 3, 2, 1, 0, 7, 6, 5, 4 };

	node_of(2, 16, 8, 1);
	for (unsigned g = 0; g < 8; g++)
		node.e[g * 8 + mate[g]] = 0;
	make(4);
	check_totals(0, 0, 4);
	for (unsigned r = 0; r < 4; r++)
		ck_assert_uint_eq(plan.ranks[r].gpus[1],
				  mate[plan.ranks[r].gpus[0]]);
	ck_assert_uint_eq(plan.ranks[1].gpus[0], 1);
	ck_assert_uint_eq(plan.ranks[3].gpus[0], 5);
}
END_TEST

/*
 * 16 GPUs, 24 cores a socket, 5 ranks of 9 or 10 cores (3 of them 10). Three
 * GPUs a rank and one with four cannot all stay in a socket (8 = 3 + 3 + 2):
 * one rank has both. With 1 + 2 of them a core of it costs 2 on one side and
 * 1 on the other. The pure ranks take 20 and 19 cores, 4 and 5 are left:
 * 4 * 2 + 5 * 1 = 13. U: four ranks with one node and one with two.
 */
START_TEST(five_on_sixteen)
{
	unsigned four = 0;

	node_of(2, 48, 16, 1);
	make(5);
	ck_assert_uint_eq(plan.d1, 13);
	ck_assert_uint_eq(plan.numa, 6);
	ck_assert(plan.optimal);
	check_split(9, 10);
	for (unsigned r = 0; r < 5; r++)
		four += plan.ranks[r].ngpus == 4;
	ck_assert_uint_eq(four, 1);
}
END_TEST

START_TEST(more_ranks_than_gpus)
{
	node_of(2, 16, 4, 1);
	make(8);
	check_totals(0, 0, 8);
	check_split(2, 2);
	for (unsigned r = 0; r < 8; r++)
		ck_assert_uint_eq(plan.ranks[r].gpus[0], r / 2);
	make(6);
	/* 16 / 6: four ranks of 3 and two of 2 cores, three ranks a socket. */
	check_totals(0, 0, 6);
	check_split(2, 3);
	make(64);
	ck_assert_int_eq(plan.unit, DDP_BIND_SHARED);
}
END_TEST

/*
 * 7 cores a socket, 4 ranks: 14 = 4 + 4 + 3 + 3, one of each a socket; with
 * 3 ranks and 3 GPUs (2 + 1): 5 + 5 + 4 cores, two ranks want 9 or 10 of 7.
 */
START_TEST(odd_cores)
{
	node_of(2, 14, 4, 1);
	make(4);
	check_totals(0, 0, 4);
	check_split(3, 4);
	node_of(2, 14, 3, 1);
	make(3);
	ck_assert_uint_eq(plan.d1, 2);
	ck_assert_uint_eq(plan.numa, 4);
	ck_assert(plan.optimal);
}
END_TEST

START_TEST(no_gpu)
{
	node_of(2, 10, 0, 2);
	make(3);
	check_totals(0, 0, 4);
	check_split(3, 4);
	ck_assert_uint_eq(plan.ranks[0].npus, 8);
	ck_assert_uint_eq(plan.ranks[1].pus[0], 8);
	ck_assert_uint_eq(plan.ranks[2].pus[5], 19);
}
END_TEST

START_TEST(smt)
{
	node_of(2, 8, 4, 4);
	make(4);
	check_totals(0, 0, 4);
	check_split(2, 2);
	ck_assert_uint_eq(plan.ranks[3].npus, 8);
	/* More ranks than cores: by PU. */
	make(12);
	ck_assert_int_eq(plan.unit, DDP_BIND_PUS);
	ck_assert_uint_eq(plan.d1, 0);
	ck_assert_uint_eq(plan.ranks[0].npus, 3);
	ck_assert_uint_eq(plan.ranks[11].npus, 2);
}
END_TEST

START_TEST(fewer_pus_than_ranks)
{
	node_of(2, 4, 2, 1);
	make(6);
	ck_assert_int_eq(plan.unit, DDP_BIND_SHARED);
	ck_assert(plan.optimal);
	for (unsigned r = 0; r < 6; r++) {
		ck_assert_uint_eq(plan.ranks[r].npus, 2);
		ck_assert_uint_eq(plan.ranks[r].pus[0], r < 3 ? 0 : 2);
	}
	/* Nothing near is allowed: all CPUs. */
	node.gpu_numa[0] = 4;
	make(6);
	ck_assert_uint_eq(plan.ranks[0].npus, 4);
}
END_TEST

/* All GPUs at one socket of two: the far half of the cores has to do. */
START_TEST(one_sided)
{
	build(2, 8, 2, 1);
	node.gpu_at[1] = 0;
	node.gpu_numa[1] = 1;
	measure(2);
	make(2);
	check_totals(4, 0, 2);
	ck_assert_uint_eq(plan.ranks[0].numa, 1);
	ck_assert_uint_eq(plan.ranks[1].numa, 2);
}
END_TEST

/*
 * GPUs below halves of a NUMA node: 8 cores in two halves, a GPU each, and
 * the same again; 3 ranks. Whatever it is, the plan says how far it is.
 */
START_TEST(below_numa)
{
	node_of(2, 16, 4, 1);
	for (unsigned c = 0; c < 16; c++)
		for (unsigned g = 0; g < 4; g++)
			node.d[c * 4 + g] = c / 4 == g ? 0 :
				c / 8 == g / 2 ? 1 : 2;
	make(4);
	check_totals(0, 0, 4);
	make(2);
	check_totals(16, 4, 2);
	make(8);
	check_totals(0, 0, 8);
}
END_TEST

START_TEST(policies_accept)
{
	node_of(2, 16, 4, 1);
	node.in.policy = DDP_BIND_SINGLE_NUMA;
	make(4);
	ck_assert_uint_eq(plan.nrefused, 0);
	node.in.policy = DDP_BIND_RESTRICTED;
	/* One rank with everything needs both nodes: that is no worse than
	 * it has to be. */
	make(1);
	ck_assert_uint_eq(plan.nrefused, 0);
	ck_assert_uint_eq(plan.ranks[0].needed, 2);
}
END_TEST

START_TEST(policies_refuse)
{
	node_of(2, 16, 4, 1);
	node.in.policy = DDP_BIND_SINGLE_NUMA;
	make(1);
	ck_assert_uint_eq(plan.nrefused, 1);
	ck_assert_uint_eq(plan.ranks[0].got, 2);
	ck_assert_uint_eq(plan.ranks[0].needed, 1);
	/* Only the first node's cores are allowed: GPUs 2 and 3 are far. */
	node.in.ncores = node.in.npus = 8;
	node.in.policy = DDP_BIND_RESTRICTED;
	make(4);
	ck_assert_uint_eq(plan.nrefused, 2);
	ck_assert(!plan.ranks[0].refused && !plan.ranks[1].refused);
	ck_assert(plan.ranks[2].refused && plan.ranks[3].refused);
	/* best-effort takes the same. */
	node.in.policy = DDP_BIND_BEST_EFFORT;
	make(4);
	ck_assert_uint_eq(plan.nrefused, 0);
}
END_TEST

/* A GPU near no NUMA node with CPUs is at a place of its own. */
START_TEST(remote_gpu)
{
	node_of(2, 8, 2, 1);
	node.gpu_numa[1] = 0;
	node.in.policy = DDP_BIND_SINGLE_NUMA;
	make(2);
	ck_assert_uint_eq(plan.nrefused, 1);
	ck_assert(plan.ranks[1].remote && plan.ranks[1].refused);
}
END_TEST

START_TEST(policy_none)
{
	node_of(2, 8, 4, 1);
	node.pos[0] = 3;
	node.pos[3] = 0;
	node.in.policy = DDP_BIND_NONE;
	make(3);
	ck_assert_uint_eq(plan.nrefused, 0);
	ck_assert_uint_eq(plan.ranks[0].ngpus, 2);
	ck_assert_uint_eq(plan.ranks[1].gpus[0], 2);
	ck_assert_uint_eq(plan.ranks[2].gpus[0], 3);
	ck_assert_uint_eq(plan.ranks[2].npus, 8);
	make(6);
	ck_assert_uint_eq(plan.ranks[1].gpus[0], 0);
	ck_assert_uint_eq(plan.ranks[5].gpus[0], 3);
}
END_TEST

/* Every number of ranks on shapes that exist: all proven, within the bound
 * of the work. */
START_TEST(all_proven)
{
	static const unsigned shape[][3] = {
		{ 2, 48, 16 }, { 4, 64, 8 }, { 2, 44, 6 }, { 4, 56, 4 },
	};

	for (unsigned s = 0; s < CHECK_COUNT(shape); s++) {
		node_of(shape[s][0], shape[s][1], shape[s][2], 1);
		for (unsigned n = 1; n <= 16; n++) {
			make(n);
			ck_assert_msg(plan.optimal, "%u ranks, shape %u", n, s);
		}
		make(shape[s][1]);
		ck_assert(plan.optimal);
	}
}
END_TEST

START_TEST(senseless)
{
	node_of(2, 8, 4, 1);
	node.in.nranks = 0;
	ddp_bind_free(&plan);
	ck_assert_int_eq(ddp_bind_make(&node.in, &plan, &err), -1);
	node.in.nranks = 1;
	node.in.npus = 0;
	ck_assert_int_eq(ddp_bind_make(&node.in, &plan, &err), -1);
	node.in.npus = 8;
	node.pos[1] = 0;
	ck_assert_int_eq(ddp_bind_make(&node.in, &plan, &err), -1);
	node.pos[1] = 1;
	node.pu_core[3] = 0;
	ck_assert_int_eq(ddp_bind_make(&node.in, &plan, &err), -1);
}
END_TEST

/* Without work the plan is whole, and says that it is not proven. */
START_TEST(no_work)
{
	node_of(4, 60, 8, 1);
	node.in.work = 1;
	for (unsigned n = 1; n < 20; n++) {
		make(n);
		check_split(60 / n, 60 / n + 1);
	}
}
END_TEST

/* Every rank GPUs / ranks or one more, or one that as many others have. */
static void check_gpus(void)
{
	unsigned n = plan.nranks, g = node.in.ngpus, has[GPUS] = { 0 };

	for (unsigned r = 0; r < n; r++) {
		ck_assert_uint_ge(plan.ranks[r].ngpus, g < n ? 1 : g / n);
		ck_assert_uint_le(plan.ranks[r].ngpus, g < n ? 1 : g / n + 1);
		for (unsigned i = 0; i < plan.ranks[r].ngpus; i++)
			has[plan.ranks[r].gpus[i]]++;
	}
	for (unsigned i = 0; i < g; i++) {
		ck_assert_uint_ge(has[i], g < n ? n / g : 1);
		ck_assert_uint_le(has[i], g < n ? n / g + 1 : 1);
	}
}

/*
 * A node on which the search takes long when shares do not fit: GPUs at L3
 * caches, two of which are a NUMA node, or at 8 or 16 NUMA nodes. With little
 * work there is a plan as good in all but what is sought.
 */
START_TEST(small_work)
{
	node_of(4, 64, 8, 1);
	for (unsigned c = 0; c < 64; c++)
		for (unsigned g = 0; g < 8; g++)
			node.d[c * 8 + g] = c / 8 == g ? 0 : c / 16 == g / 2 ?
				1 : c / 32 == g / 4 ? 2 : 3;
	for (unsigned shape = 0; shape < 3; shape++) {
		if (shape)
			node_of(shape * 8, 64, 16, 1);
		node.in.policy = DDP_BIND_RESTRICTED;
		node.in.work = 2000000;
		for (unsigned n = 1; n <= 64; n++) {
			make(n);
			check_split(64 / n, 64 / n + (64 % n > 0));
			check_gpus();
		}
	}
	/* This one is too much for it. */
	make(15);
	ck_assert(!plan.optimal);
}
END_TEST

START_TEST(names)
{
	enum ddp_bind_policy p;

	ck_assert_int_eq(ddp_bind_policy_parse("restricted", &p), 0);
	ck_assert_str_eq(ddp_bind_policy_name(p), "restricted");
	ck_assert_int_eq(ddp_bind_policy_parse("Restricted", &p), -1);
	ck_assert_int_eq(ddp_bind_policy_parse("", &p), -1);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		one_gpu_a_rank, pairs, links, five_on_sixteen,
		more_ranks_than_gpus, odd_cores, no_gpu, smt,
		fewer_pus_than_ranks, one_sided, below_numa, policies_accept,
		policies_refuse, remote_gpu, policy_none, all_proven,
		senseless, no_work, small_work, names,
	};

	return check_run("bind", tests, CHECK_COUNT(tests), NULL);
}
