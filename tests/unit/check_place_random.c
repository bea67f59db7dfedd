/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random steps on every fixture, and what holds for each of them: no rank
 * outside the step's CPUs, no GPU that it did not have, no index that it does
 * not see, no CPU twice where there are enough.
 */
#define _GNU_SOURCE
#include "config.h"

#include "tests/unit/check_main.h"
#include "tests/unit/place_node.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#define ROUNDS 100	/* steps on each */
#else
#define ROUNDS 400
#endif
#define RANKS 12

static const struct {
	const char *xml, *cpus;
	unsigned ncpus, ngpus;
	bool amd;
} nodes[] = {
	{ "here 8", "0-7", 8, 4, false }, { "eight", "0-15", 16, 8, false },
	{ "four_numa", "0-7", 8, 4, false },
	{ "asymmetric", "0-11", 12, 6, false },
	{ "smt", "0-11", 12, 2, false }, { "restricted", "0-11", 12, 2, false },
	{ "remote", "0-3", 4, 2, false }, { "no_gpu", "0-7", 8, 0, false },
	{ "amd", "0-7", 8, 4, true }, { "linked", "0-15", 16, 8, false },
};

static unsigned seed;
static const char *what;	/* the case, for messages */

static unsigned any(unsigned n)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 12) % n;
}

#define HOLDS(x) ck_assert_msg(x, "%s", what)

/* Some of n, but one at least, in any order. The number of them. */
static unsigned some(unsigned n, unsigned *v)
{
	unsigned all[64], k = 1 + any(n);

	for (unsigned i = 0; i < n; i++)
		all[i] = i;
	for (unsigned i = 0; i < k; i++) {
		unsigned at = i + any(n - i), x = all[at];

		all[at] = all[i];
		all[i] = v[i] = x;
	}
	return k;
}

static void some_cpus(ddp_cpus set, const ddp_cpus of, unsigned n)
{
	unsigned v[64], k;

	do {
		memset(set, 0, sizeof(ddp_cpus));
		k = some(n, v);
		for (unsigned i = 0; i < k; i++)
			if (CPU_ISSET_S(v[i], sizeof(ddp_cpus),
					(const cpu_set_t *)of))
				CPU_SET_S(v[i], sizeof(ddp_cpus),
					  (cpu_set_t *)set);
	} while (!set[0]);
}

static void write_list(struct ddp_ask *a, const unsigned *v, unsigned k)
{
	size_t pos = 0;

	a->list_set = true;
	for (unsigned i = 0; i < k; i++)
		ck_assert(!ddp_text_add(a->list, sizeof(a->list), &pos,
					"%s%u", i ? "," : "", v[i]));
}

/* The device files that the task may open: k of them. */
static void confine(struct ddp_ask *a, unsigned node_, const unsigned *v,
		    unsigned k)
{
	uint64_t all = ((uint64_t)1 << nodes[node_].ngpus) - 1, open = 0;

	for (unsigned i = 0; i < k; i++)
		open |= (uint64_t)1 << v[i];
	if (nodes[node_].amd) {
		a->render_there = all;
		a->render_open = open;
	} else {
		a->there = all;
		a->open = open;
	}
}

/* Lists as Slurm makes them: one for all, or each its own; of all GPUs, or
 * of those that may be opened. */
static void make_lists(unsigned node_)
{
	static const unsigned count[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	unsigned v[64], k = 0, n = nodes[node_].ngpus, kind = any(6);

	if (!n || kind == 0)
		return;
	for (unsigned i = 0; i < node.n; i++) {
		struct ddp_ask *a = &node.ask[i];

		if (!i || kind == 2 || kind == 4)
			k = some(n, v);
		if (kind == 5) {	/* --gpu-bind=none */
			a->step_gpus = n;
			continue;
		}
		if (kind >= 3)
			confine(a, node_, v, k);
		write_list(a, kind >= 3 ? count : v, k);
	}
}

static void make_step(unsigned node_)
{
	struct ddp_place_req req = {
		.policy = (enum ddp_bind_policy)any(4),
		.gpus = (enum ddp_gpus)any(3), .cpu_said = !any(4),
		.gpu_said = (enum ddp_gpu_said)any(3) };
	ddp_cpus whole;
	bool bound = any(2);

	node_again(1 + any(RANKS), nodes[node_].cpus);
	some_cpus(whole, node.ask[0].cpus, nodes[node_].ncpus);
	for (unsigned i = 0; i < node.n; i++) {
		struct ddp_ask *a = &node.ask[i];

		a->req = req;
		memcpy(a->widest, whole, sizeof(whole));
		memcpy(a->cpus, whole, sizeof(whole));
		if (bound)
			some_cpus(a->cpus, whole, nodes[node_].ncpus);
	}
	make_lists(node_);
}

/* All fixtures have fewer than 64 CPUs. */
static void check_cpus(void)
{
	uint64_t all = 0, step = 0, taken = 0;
	bool bound = false, twice = false;
	const struct ddp_place_req *req = &node.ask[0].req;

	for (unsigned i = 0; i < node.n; i++)
		bound |= node.ask[i].cpus[0] != node.ask[i].widest[0];
	for (unsigned i = 0; i < node.n; i++) {
		all |= node.ask[i].widest[0];
		step |= bound ? node.ask[i].cpus[0] : node.ask[i].widest[0];
	}
	for (unsigned i = 0; i < node.n; i++) {
		const struct ddp_placed *out = &node.out[i];

		for (unsigned w = 1; w < DDP_PLACE_WORDS(DDP_PLACE_CPUS); w++)
			HOLDS(!out->cpus[w]);
		HOLDS(!(out->cpus[0] & ~step) && !(out->cpus[0] & ~all));
		HOLDS(!out->set_cpus || out->cpus[0]);
		HOLDS(!out->set_nodes || out->set_cpus);
		HOLDS(!out->set_cpus || (!req->cpu_said &&
					 req->policy != DDP_BIND_NONE));
		if (out->set_cpus)
			twice |= taken & out->cpus[0];
		taken |= out->set_cpus ? out->cpus[0] : 0;
	}
	HOLDS(!twice || (unsigned)__builtin_popcountll(step) < node.n);
}

static bool has(const struct ddp_vis *v, const char *word)
{
	for (unsigned i = 0; i < v->n; i++)
		if (!strcmp(v->word[i], word))
			return true;
	return false;
}

/* The GPU of the topology that a number is for the task: of those that it may
 * open, by their order. */
static unsigned real_gpu(const struct ddp_ask *a, unsigned node_, int number)
{
	unsigned n = nodes[node_].ngpus;
	uint64_t there = a->there | a->render_there;
	uint64_t open = a->open | a->render_open;

	for (unsigned order = 0; order < n; order++)
		for (unsigned g = 0; g < n; g++) {
			unsigned file = nodes[node_].amd ?
				(unsigned)node.id[g].render - 128 :
				(unsigned)node.id[g].nvidia;

			if (node.id[g].order == order &&
			    (!there || open >> file & 1) && !number--)
				return g;
		}
	return TOPO_GPU_UNKNOWN;
}

/* What the plan gives the rank is what it finds at these indices. */
static void check_same_gpus(unsigned i, unsigned node_,
			    const struct ddp_vis *seen)
{
	const struct ddp_bind_rank *r = &node.plan->plan.ranks[node.slot[i]];
	struct ddp_vis at;

	if (!node.out[i].ndevices)
		return;
	ck_assert(!ddp_vis_parse(&at, node.out[i].devices));
	HOLDS(at.n == r->ngpus);
	for (unsigned k = 0; k < at.n; k++) {
		int entry = ddp_vis_index(at.word[k]);
		int number = seen ? ddp_vis_index(seen->word[entry]) : entry;

		HOLDS(real_gpu(&node.ask[i], node_, number) ==
		      node.gpu[r->gpus[k]].gpu);
	}
}

/* "0,2": n numbers, all below seen and different, the first is device. */
static void check_devices(const struct ddp_placed *out, unsigned seen)
{
	struct ddp_vis v;

	if (!out->ndevices) {
		HOLDS(!out->devices[0]);
		return;
	}
	HOLDS(!ddp_vis_parse(&v, out->devices));
	HOLDS(v.n == out->ndevices);
	HOLDS(ddp_vis_index(v.word[0]) == (int)out->device);
	for (unsigned i = 0; i < v.n; i++)
		HOLDS(ddp_vis_index(v.word[i]) >= 0 &&
		      ddp_vis_index(v.word[i]) < (int)seen);
}

static void check_list(unsigned i, unsigned node_)
{
	const struct ddp_placed *out = &node.out[i];
	struct ddp_vis had, got, one;
	bool own = false, same = true;

	if (!node.ask[i].list_set) {
		HOLDS(!out->set_list);
		check_devices(out, nodes[node_].ngpus);
		check_same_gpus(i, node_, NULL);
		return;
	}
	ck_assert(!ddp_vis_parse(&had, node.ask[i].list));
	got = had;
	if (out->set_list)
		HOLDS(!ddp_vis_parse(&got, out->list));
	check_devices(out, got.n);
	check_same_gpus(i, node_, &got);
	for (unsigned k = 0; k < node.n; k++)
		same &= !strcmp(node.ask[k].list, node.ask[i].list) &&
			node.ask[k].open == node.ask[i].open &&
			node.ask[k].render_open == node.ask[i].render_open;
	for (unsigned w = 0; w < got.n; w++) {
		own = false;
		for (unsigned k = 0; k < node.n && !own; k++)
			own = !ddp_vis_parse(&one, node.ask[k].list) &&
				has(&one, got.word[w]);
		HOLDS(own && (!same || has(&had, got.word[w])));
	}
	if (same && out->view == DDP_VIEW_NODE)
		HOLDS(got.n == had.n);
	/* Slurm gave each its own: they are all its own. */
	if (!same && out->view == DDP_VIEW_RANK)
		HOLDS(!out->set_list && out->ndevices == had.n);
	if (out->view == DDP_VIEW_NODE)
		HOLDS(!strcmp(out->list, node.out[0].list));
	if (out->view == DDP_VIEW_NODE && !node.ask[0].req.cpu_said)
		HOLDS(out->device == i % got.n);
}

static void describe(char *text, size_t size, unsigned node_, unsigned round)
{
	const struct ddp_ask *a = node.ask;

	(void)snprintf(text, size, "%s, round %u: %u ranks, policy %d, gpus "
		       "%d, cpu_said %d, gpu_said %d; rank 0: CPUs %lx of %lx, "
		       "list %.200s, opens %lx", nodes[node_].xml, round, node.n,
		       (int)a->req.policy, (int)a->req.gpus, a->req.cpu_said,
		       (int)a->req.gpu_said, a->cpus[0], a->widest[0],
		       a->list_set ? a->list : "-", (unsigned long)a->open);
	what = text;
}

static void run_node(unsigned node_)
{
	char text[1024];

	node_load(node_xml(nodes[node_].xml), 1, nodes[node_].cpus);
	/* Minors are not in the order of bus ids. */
	for (unsigned i = 0; i < nodes[node_].ngpus; i++) {
		node.id[i].nvidia = (int)((i * 3 + 1) % nodes[node_].ngpus);
		node.id[i].order = nodes[node_].amd ? 3 - i : i;
	}
	if (nodes[node_].ngpus == 6)	/* 3 divides it */
		for (unsigned i = 0; i < 6; i++)
			node.id[i].nvidia = (int)(5 - i);
	for (unsigned r = 0; r < ROUNDS; r++) {
		make_step(node_);
		describe(text, sizeof(text), node_, r);
		(void)node_make();
		check_cpus();
		for (unsigned i = 0; i < node.n; i++)
			check_list(i, node_);
	}
}

START_TEST(random_steps)
{
	seed = 1;
	for (unsigned i = 0; i < CHECK_COUNT(nodes); i++)
		run_node(i);
}
END_TEST

int main(void)
{
	const char *xml[CHECK_COUNT(nodes) + 1] = { NULL };
	const TTest *const tests[] = { random_steps };
	int rc = EXIT_FAILURE;

	for (unsigned i = 0; i < CHECK_COUNT(nodes); i++)
		xml[i] = nodes[i].xml;
	if (node_begin(xml))
		rc = check_run("place_random", tests, CHECK_COUNT(tests),
			       node_fresh);
	node_end();
	return rc;
}
