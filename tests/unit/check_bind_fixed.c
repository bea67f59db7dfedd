/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binding plan where GPUs or CPUs are given, on nodes small enough to
 * know the answer by hand.
 */
#include "config.h"

#include "tests/unit/bind_given.h"
#include "tests/unit/bind_node.h"
#include "tests/unit/check_main.h"

static struct ddp_bind_plan plan;
static struct ddp_err err;

static void make(unsigned ranks, const struct ddp_bind_fixed *fixed)
{
	node.in.nranks = ranks;
	ddp_bind_free(&plan);
	ck_assert_msg(!ddp_bind_make_fixed(&node.in, fixed, &plan, &err), "%s",
		      err.text);
	ck_assert_uint_eq(plan.nranks, ranks);
}

static void check_totals(uint64_t d1, uint64_t d2, uint64_t numa)
{
	ck_assert_uint_eq(plan.d1, d1);
	ck_assert_uint_eq(plan.d2, d2);
	ck_assert_uint_eq(plan.numa, numa);
	ck_assert(plan.optimal);
}

/* Ranks take the CPUs next to their GPUs, whatever their order. */
START_TEST(gpus_reversed)
{
	node_of(2, 16, 4, 1);
	for (unsigned r = 0; r < 4; r++)
		given.set[r] = 1U << (3 - r);
	make(4, &given.gpus);
	check_totals(0, 0, 4);
	ck_assert_int_eq(plan.unit, DDP_BIND_CORES);
	for (unsigned r = 0; r < 4; r++) {
		ck_assert_uint_eq(plan.ranks[r].ngpus, 1);
		ck_assert_uint_eq(plan.ranks[r].gpus[0], 3 - r);
		ck_assert_uint_eq(plan.ranks[r].npus, 4);
		ck_assert_uint_eq(plan.ranks[r].pus[0], (8 + 4 * r) % 16);
		ck_assert_uint_eq(plan.ranks[r].gpu_numa,
				  plan.ranks[r].numa);
	}
}
END_TEST

/*
 * All ranks have all GPUs: each of 16 cores is 1 away from two of the four,
 * whoever has it. Pairs of GPUs cost 2 + 2 + 4 * 8 a rank. Two ranks, a node
 * each.
 */
START_TEST(gpus_in_common)
{
	node_of(2, 16, 4, 1);
	given.set[0] = given.set[1] = 15;
	make(2, &given.gpus);
	check_totals(32, 72, 2);
	ck_assert_uint_eq(plan.ranks[0].pus[7], 7);
	ck_assert_uint_eq(plan.ranks[1].pus[0], 8);
	ck_assert_uint_eq(plan.ranks[1].d1, 16);
}
END_TEST

/*
 * Rank 0 has both GPUs of node 1 and rank 1 one of them: a core of node 0
 * costs rank 0 2 and rank 1 only 1, so rank 1 is the one that is sent away.
 */
START_TEST(gpus_overlap)
{
	node_of(2, 8, 4, 1);
	given.set[0] = 12;
	given.set[1] = 4;
	make(2, &given.gpus);
	check_totals(4, 2, 2);
	ck_assert_uint_eq(plan.ranks[0].pus[0], 4);
	ck_assert_uint_eq(plan.ranks[1].pus[0], 0);
}
END_TEST

/* Who has no GPU takes what is left; if nobody has one, all is in order. */
START_TEST(gpus_empty)
{
	node_of(2, 8, 2, 1);
	given.set[1] = 1;
	make(2, &given.gpus);
	check_totals(0, 0, 2);
	ck_assert_uint_eq(plan.ranks[0].ngpus, 0);
	ck_assert_uint_eq(plan.ranks[0].pus[0], 4);
	ck_assert_uint_eq(plan.ranks[1].pus[0], 0);
	given.set[1] = 0;
	make(3, &given.gpus);
	check_totals(0, 0, 4);
	ck_assert_uint_eq(plan.ranks[0].npus, 3);
	ck_assert_uint_eq(plan.ranks[2].pus[0], 6);
	node_of(2, 8, 0, 1);
	make(3, &given.gpus);
	check_totals(0, 0, 4);
}
END_TEST

/* One rank has all CPUs. The GPU is 1 away from one half of them. */
START_TEST(one_rank)
{
	node_of(2, 8, 2, 2);
	given.set[0] = 2;
	make(1, &given.gpus);
	check_totals(4, 0, 2);
	ck_assert_uint_eq(plan.ranks[0].npus, 16);
	/* CPUs of node 1, and both GPUs must be its: 2 cores, 1 away. */
	give_pus(0, 8, 12);
	make(1, &given.pus);
	check_totals(2, 2, 1);
	ck_assert_uint_eq(plan.ranks[0].ncores, 2);
	ck_assert_uint_eq(plan.ranks[0].ngpus, 2);
}
END_TEST

/* Units in common: the CPUs near a rank's GPUs, or all. */
START_TEST(gpus_shared_cpus)
{
	node_of(2, 4, 2, 1);
	for (unsigned r = 0; r < 6; r++)
		given.set[r] = r % 3;
	make(6, &given.gpus);
	ck_assert_int_eq(plan.unit, DDP_BIND_SHARED);
	check_totals(0, 0, 8);
	for (unsigned r = 0; r < 6; r++)
		ck_assert_uint_eq(plan.ranks[r].npus, r % 3 ? 2 : 4);
	ck_assert_uint_eq(plan.ranks[5].pus[0], 2);
}
END_TEST

/* The PUs of every rank, none twice; k or k + 1 each. */
static void check_pus(void)
{
	bool seen[4 * CORES] = { false };
	unsigned k = node.in.npus / plan.nranks;

	for (unsigned r = 0; r < plan.nranks; r++) {
		ck_assert_uint_ge(plan.ranks[r].npus, k);
		ck_assert_uint_le(plan.ranks[r].npus, k + 1);
		for (unsigned i = 0; i < plan.ranks[r].npus; i++) {
			ck_assert(!seen[plan.ranks[r].pus[i]]);
			seen[plan.ranks[r].pus[i]] = true;
		}
	}
	for (unsigned u = 0; u < node.in.npus; u++)
		ck_assert(seen[u]);
}

/*
 * 128 PUs. 100 ranks, 50 at each node, of 1 or 2: they fit. 70 ranks, 30 at
 * node 1: they take 60 of its 64 PUs, and the last 4 are far from the rest.
 */
START_TEST(gpus_many_ranks)
{
	node_of(2, 64, 4, 2);
	for (unsigned r = 0; r < 100; r++)
		given.set[r] = 1U << (3 - r % 4);
	make(100, &given.gpus);
	ck_assert_int_eq(plan.unit, DDP_BIND_PUS);
	check_totals(0, 0, 100);
	check_pus();
	for (unsigned r = 0; r < 100; r++)
		ck_assert_uint_eq(plan.ranks[r].gpus[0], 3 - r % 4);
	for (unsigned r = 0; r < 70; r++)
		given.set[r] = r % 7 < 3 ? 4 : 1;
	make(70, &given.gpus);
	ck_assert_uint_eq(plan.d1, 4);
	ck_assert(plan.optimal);
	check_pus();
	for (unsigned r = 0; r < 70; r++)
		if (r % 7 < 3)
			ck_assert_uint_eq(plan.ranks[r].d1, 0);
}
END_TEST

/* More different distances than the search knows: CPUs in their order. */
START_TEST(gpus_many_sets)
{
	node_of(2, 64, 16, 2);
	for (unsigned i = 0; i < 64 * 16; i++)
		node.d[i] = (uint16_t)(i * i % 251);
	for (unsigned r = 0; r < 80; r++)
		given.set[r] = r + 1;
	make(80, &given.gpus);
	ck_assert(!plan.optimal);
	check_pus();
	ck_assert_uint_eq(plan.ranks[1].pus[0], 2);
	ck_assert_uint_eq(plan.ranks[6].ngpus, 3);
	/* Fewer of them, but so many that U cannot be proven. */
	for (unsigned i = 0; i < 64 * 16; i++)
		node.d[i] = (uint16_t)(i / 16 * 7 % 11 + (i % 16) * 13 % 16);
	node.in.work = 2000000;
	make(80, &given.gpus);
	ck_assert(!plan.optimal);
	check_pus();
}
END_TEST

/* Sums of distances that the search cannot hold: a plan, but no proof. */
START_TEST(gpus_far)
{
	node_of(2, 4, 2, 1);
	for (unsigned i = 0; i < 8; i++)
		node.d[i] = UINT16_MAX;
	given.set[0] = given.set[1] = 3;
	make(2, &given.gpus);
	ck_assert(!plan.optimal);
	ck_assert_uint_eq(plan.d1, 8 * UINT16_MAX);
}
END_TEST

/* The real GPUs are judged: rank 1's are at both nodes, and need not be. */
START_TEST(policies)
{
	node_of(2, 16, 4, 1);
	given.set[0] = 1;
	given.set[1] = 12;
	node.in.policy = DDP_BIND_SINGLE_NUMA;
	make(2, &given.gpus);
	ck_assert_uint_eq(plan.nrefused, 0);
	given.set[1] = 10;
	make(2, &given.gpus);
	ck_assert_uint_eq(plan.nrefused, 1);
	ck_assert(plan.ranks[1].refused);
	node.in.policy = DDP_BIND_RESTRICTED;
	make(2, &given.gpus);
	ck_assert_uint_eq(plan.ranks[1].got, 2);
	ck_assert_uint_eq(plan.ranks[1].needed, 1);
	/* CPUs of node 0, and GPU 1 is the last there. */
	for (unsigned r = 0; r < 3; r++)
		give_pus(r, 2 * r, 2 * r + 2);
	node.in.ngpus = 3;
	node_of(2, 16, 3, 1);
	node.in.policy = DDP_BIND_RESTRICTED;
	make(3, &given.pus);
	ck_assert_uint_eq(plan.nrefused, 1);
	ck_assert(plan.ranks[2].refused);
}
END_TEST

START_TEST(policy_none)
{
	node_of(2, 8, 4, 1);
	node.pos[0] = 3;
	node.pos[3] = 0;
	node.in.policy = DDP_BIND_NONE;
	given.set[0] = 9;
	make(2, &given.gpus);
	ck_assert_uint_eq(plan.ranks[1].npus, 8);
	ck_assert_uint_eq(plan.ranks[1].ngpus, 0);
	ck_assert_uint_eq(plan.ranks[0].gpus[0], 0);
	ck_assert_uint_eq(plan.ranks[0].gpus[1], 3);
	ck_assert(!plan.optimal);
	give_pus(0, 4, 8);
	give_pus(1, 0, 4);
	make(2, &given.pus);
	ck_assert_uint_eq(plan.ranks[0].gpus[0], 0);
	ck_assert_uint_eq(plan.ranks[0].pus[0], 4);
	make(2, &given.both);
	ck_assert_uint_eq(plan.ranks[1].ngpus, 0);
	ck_assert_uint_eq(plan.nrefused, 0);
}
END_TEST

/* Ranks 0 and 1 are at node 1: its GPUs are theirs, the lower one's first. */
START_TEST(pus_reversed)
{
	node_of(2, 16, 4, 1);
	for (unsigned r = 0; r < 4; r++)
		give_pus(r, 12 - 4 * r, 16 - 4 * r);
	make(4, &given.pus);
	check_totals(0, 0, 4);
	ck_assert_int_eq(plan.unit, DDP_BIND_CORES);
	for (unsigned r = 0; r < 4; r++) {
		ck_assert_uint_eq(plan.ranks[r].ngpus, 1);
		ck_assert_uint_eq(plan.ranks[r].gpus[0], (2 + r) % 4);
	}
}
END_TEST

/*
 * Three ranks of 4 cores and 4 GPUs: ranks 0 and 1 at node 0, rank 2 at node
 * 1 takes both GPUs there. With the other GPU at node 0, 4 cores are 1 away
 * from one GPU, whichever of 0 and 1 it is.
 */
START_TEST(pus_remainder)
{
	node_of(2, 16, 4, 1);
	give_pus(0, 0, 4);
	give_pus(1, 4, 8);
	give_pus(2, 8, 12);
	make(3, &given.pus);
	check_totals(0, 2, 3);
	ck_assert_uint_eq(plan.ranks[2].ngpus, 2);
	ck_assert_uint_eq(plan.ranks[2].gpus[0], 2);
	ck_assert_uint_eq(plan.ranks[1].gpus[0], 1);
	give_pus(2, 4, 8);
	make(3, &given.pus);
	/* One rank has one GPU of node 1 and one both, or a pair of node 1
	 * alone and two have one of node 0: D1 8 in any case, D2 2. */
	check_totals(8, 2, 3);
	ck_assert_int_eq(plan.unit, DDP_BIND_SHARED);
}
END_TEST

/*
 * Two ranks of all CPUs: any two GPUs each cost the same, since each GPU is
 * far from 8 of a rank's cores; pairs are best.
 * 0-3 and 1-2 are linked.
 */
START_TEST(pus_in_common)
{
	node_of(2, 16, 4, 1);
	give_pus(0, 0, 16);
	give_pus(1, 0, 16);
	make(2, &given.pus);
	check_totals(32, 4, 4);
	ck_assert_int_eq(plan.unit, DDP_BIND_SHARED);
	ck_assert_uint_eq(plan.ranks[0].gpus[1], 1);
	for (unsigned g = 0; g < 4; g++)
		node.e[g * 4 + 3 - g] = 0;
	make(2, &given.pus);
	check_totals(32, 0, 4);
	ck_assert_uint_eq(plan.ranks[0].gpus[1], 3);
	ck_assert_uint_eq(plan.ranks[1].gpus[0], 1);
}
END_TEST

/* Each of 4 GPUs is for two of 8 ranks; two PUs of a core are two ranks'. */
START_TEST(pus_many_ranks)
{
	node_of(2, 4, 4, 2);
	for (unsigned r = 0; r < 8; r++)
		give_pus(r, 7 - r, 8 - r);
	make(8, &given.pus);
	ck_assert_int_eq(plan.unit, DDP_BIND_PUS);
	check_totals(0, 0, 8);
	for (unsigned r = 0; r < 8; r++)
		ck_assert_uint_eq(plan.ranks[r].gpus[0], (r / 2 + 2) % 4);
	/* 200 ranks on 128 PUs: 100 at each node, so 50 each. */
	node_of(2, 64, 4, 2);
	for (unsigned r = 0; r < 200; r++)
		give_pus(r, r % 128, r % 128 + 1);
	make(200, &given.pus);
	ck_assert(plan.optimal);
	/* 72 ranks beyond the 128: 64 at node 0 and 8 at node 1. So 128 are
	 * there and 72 here, and 28 of them have to go. */
	ck_assert_uint_eq(plan.d1, 28);
}
END_TEST

/* Ranks that are all different, and no work: even, and not proven. */
START_TEST(pus_no_work)
{
	unsigned has[4] = { 0 };

	node_of(2, 64, 4, 1);
	for (unsigned i = 0; i < 64 * 4; i++)
		node.d[i] = (uint16_t)(i * i % 251);
	for (unsigned r = 0; r < 62; r++)
		give_pus(r, r, r + 1);
	node.in.work = 1;
	make(62, &given.pus);
	ck_assert(!plan.optimal);
	for (unsigned r = 0; r < 62; r++) {
		ck_assert_uint_eq(plan.ranks[r].ngpus, 1);
		has[plan.ranks[r].gpus[0]]++;
	}
	for (unsigned g = 0; g < 4; g++)
		ck_assert(has[g] == 15 || has[g] == 16);
	/* More GPUs than ranks: D1 is the least all the same. */
	node_of(2, 16, 16, 1);
	for (unsigned r = 0; r < 5; r++)
		give_pus(r, 3 * r, 3 * r + 3);
	make(5, &given.pus);
	ck_assert(plan.optimal);
	has[0] = (unsigned)plan.d1;
	node.in.work = 1;
	make(5, &given.pus);
	ck_assert_uint_eq(plan.d1, has[0]);
}
END_TEST

START_TEST(both)
{
	node_of(2, 16, 4, 1);
	give_pus(0, 0, 8);
	give_pus(1, 4, 12);
	given.set[0] = 3;
	given.set[1] = 2;
	make(2, &given.both);
	/* 4 of rank 1's cores are 1 away from GPU 1. */
	check_totals(4, 2, 3);
	ck_assert_int_eq(plan.unit, DDP_BIND_SHARED);
	/* Without GPUs on the node. */
	node_of(2, 16, 0, 1);
	make(2, &given.pus);
	check_totals(0, 0, 3);
}
END_TEST

/* Nothing is given: as ever. */
START_TEST(nothing)
{
	struct ddp_bind_fixed none = { .gpus = NULL };

	node_of(2, 16, 8, 1);
	make(4, NULL);
	check_totals(0, 8, 4);
	make(4, &none);
	check_totals(0, 8, 4);
}
END_TEST

static void refused(const struct ddp_bind_fixed *fixed, const char *text)
{
	ddp_bind_free(&plan);
	ck_assert_int_eq(ddp_bind_make_fixed(&node.in, fixed, &plan, &err),
			 -1);
	ck_assert_int_eq(err.code, DDP_EINVAL);
	ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

START_TEST(senseless)
{
	struct ddp_bind_fixed odd = { .pus = given.at };

	node_of(2, 8, 4, 1);
	node.in.nranks = 2;
	give_pus(0, 0, 2);
	give_pus(1, 2, 4);
	refused(&odd, "not how many");
	given.set[1] = 16;
	refused(&given.gpus, "rank 1 is given GPU 4 of 4");
	refused(&given.both, "rank 1 is given GPU 4 of 4");
	given.list[1][1] = 8;
	refused(&given.pus, "rank 1 is given CPU 8 of 8");
	given.list[1][1] = 2;
	refused(&given.pus, "CPUs of rank 1 do not rise");
	given.n[1] = 0;
	refused(&given.pus, "rank 1 is given no CPU");
	given.n[1] = 1;
	given.at[1] = NULL;
	refused(&given.pus, "rank 1 is given no CPU");
	node.pos[1] = 0;
	given.set[1] = 0;
	refused(&given.gpus, "one position");
	node.in.nranks = 0;
	refused(&given.gpus, "0 ranks");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		gpus_reversed, gpus_in_common, gpus_overlap, gpus_empty,
		one_rank, gpus_shared_cpus, gpus_many_ranks, gpus_many_sets,
		gpus_far, policies, policy_none, pus_reversed, pus_remainder,
		pus_in_common, pus_many_ranks, pus_no_work, both, nothing,
		senseless,
	};

	return check_run("bind_fixed", tests, CHECK_COUNT(tests),
			 give_nothing);
}
