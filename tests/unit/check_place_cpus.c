/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPUs of a step's ranks: whose they are, where Slurm's word holds, what a
 * policy refuses, and what is made of bad topologies and of garbage. See
 * check_place.c for the node "here 8".
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cpus.h"
#include "core/ddp_gate.h"
#include "core/ddp_io.h"
#include "tests/unit/check_main.h"
#include "tests/unit/place_node.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static void here(unsigned n, const char *cpus)
{
	node_load(node_xml("here 8"), n, cpus);
}

static void cpus_of(unsigned i, const char *cpus)
{
	ck_assert_int_ge(ddp_cpus_parse(cpus, node.ask[i].cpus), 0);
}

static void list_of(unsigned i, const char *list)
{
	node.ask[i].list_set = true;
	strcpy(node.ask[i].list, list);
}

static void policy(enum ddp_bind_policy policy)
{
	for (unsigned i = 0; i < node.n; i++)
		node.ask[i].req.policy = policy;
}

static void answer(unsigned i, const char *want)
{
	ck_assert_msg(!strcmp(node_answer(i), want), "rank %u: %s instead of "
		      "%s (%s)", i, node_answer(i), want, node.out[0].warning);
}

static void says(const char *text, const char *part)
{
	ck_assert_msg(part[0] ? strstr(text, part) != NULL : !text[0],
		      "\"%s\" not in: %s", part, text);
}

/* Slurm's masks together are the step's, and are shared out anew. */
START_TEST(shared_out_by_slurm)
{
	here(2, "0-7");
	node_list("0,1");	/* number 1 is near CPUs 0-3 */
	cpus_of(0, "2,3");
	cpus_of(1, "4,5");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "0|1,0|2-3");
	answer(1, "1|1,0|4-5");
	node_again(2, "0-7");	/* one has all: together they have all */
	cpus_of(0, "2");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "-|-|0-3");
}
END_TEST

START_TEST(cpus_said)
{
	here(2, "0-7");
	node_list("0,1");
	for (unsigned i = 0; i < 2; i++)
		node.ask[i].req.cpu_said = true;
	cpus_of(0, "4");
	cpus_of(1, "0");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "0|0,1|-");
	answer(1, "1|0,1|-");
	ck_assert_uint_eq(node.out[0].cores, 1);
	ck_assert(!node.out[0].set_nodes);
	says(node.out[0].hint, "--cpu-bind was given and holds");
	says(node.out[0].shown, "CPUs as Slurm has them: 4");
	node_again(2, "0-7");
	list_of(0, "0");
	list_of(1, "1");
	for (unsigned i = 0; i < 2; i++)
		node.ask[i].req.cpu_said = true;
	cpus_of(0, "0");
	cpus_of(1, "1-2");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "0|-|-");
	answer(1, "0|-|-");
	ck_assert_uint_eq(node.out[1].cores, 2);
	says(node.out[0].warning, "next to the GPUs of rank 0");
	node_again(2, "0-7");	/* more ranks than GPUs, on given CPUs */
	node_list("3");
	policy(DDP_BIND_SINGLE_NUMA);
	for (unsigned i = 0; i < 2; i++)
		node.ask[i].req.cpu_said = true;
	cpus_of(0, "0");
	cpus_of(1, "4");
	ck_assert_uint_eq(node_make(), 1);
	ck_assert_uint_eq(node.out[0].state, DDP_PLACE_DONE);
	says(node.out[1].why, "2 NUMA nodes together; the policy allows 1");
}
END_TEST

/* Case 32 */
START_TEST(far)
{
	here(1, "0-3");
	node_list("0");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "0|0|-");
	ck_assert(!node.out[0].set_nodes);
	ck_assert_str_eq(node.out[0].warning, "no CPU that Slurm gave (0-3) "
			 "is next to the step's GPUs: ranks stay on the CPUs "
			 "that Slurm gave them");
	here(2, "0,2");		/* with a gap; one of two is near */
	node_list("0,1");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "0|1,0|0");
	answer(1, "1|1,0|2");
	says(node.out[0].warning, "(0,2) is next to the GPUs of rank 1");
	here(1, "0-3");		/* no GPU: nothing is far */
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "-|-|0-3");
	says(node.out[0].warning, "");
	node_load(node_xml("remote"), 2, "0-3");
	node_list("0,1");	/* number 1 is near no CPU that there is */
	ck_assert_uint_eq(node_make(), 0);
	says(node.out[0].warning, "");
	ck_assert(node.out[0].set_cpus && node.out[1].set_cpus);
}
END_TEST

START_TEST(policies)
{
	here(2, "0-7");
	node_list("0,1,2,3");
	policy(DDP_BIND_SINGLE_NUMA);
	ck_assert_uint_eq(node_make(), 0);
	node_again(1, "0-7");
	node_list("0,1");
	policy(DDP_BIND_SINGLE_NUMA);
	ck_assert_uint_eq(node_make(), 1);
	ck_assert_str_eq(node.out[0].why, "refused by --ddp-bind=single-numa-"
		"node: got GPU 1,0 (NUMA 0-1) and CPUs of NUMA 0-1, 2 NUMA "
		"nodes together; the policy allows 1; ask Slurm for CPUs next "
		"to the GPUs, or use --ddp-bind=best-effort");
	says(node.out[0].warning, "");
	node_again(1, "0-7");	/* it needs two */
	node_list("0,1");
	policy(DDP_BIND_RESTRICTED);
	ck_assert_uint_eq(node_make(), 0);
	node_again(1, "0-3");	/* one would do, were it another */
	node_list("0");
	policy(DDP_BIND_RESTRICTED);
	ck_assert_uint_eq(node_make(), 1);
	says(node.out[0].why, "on an empty node its request needs 1");
	node_again(2, "0-3");	/* one of two */
	node_list("0,1");
	policy(DDP_BIND_RESTRICTED);
	ck_assert_uint_eq(node_make(), 1);
	ck_assert_uint_eq(node.out[0].state, DDP_PLACE_DONE);
	ck_assert_uint_eq(node.out[1].state, DDP_PLACE_REFUSED);
	node_again(1, "0-7");	/* not known is not allowed */
	node_list("GPU-7777");
	policy(DDP_BIND_SINGLE_NUMA);
	ck_assert_uint_eq(node_make(), 1);
	says(node.out[0].why, "the place of its GPU is not known");
	node_again(2, "0-7");
	node_list("0,1,2,3");
	policy(DDP_BIND_NONE);
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "0,2|0,2,1,3|-");
	answer(1, "1,3|0,2,1,3|-");
	ck_assert_uint_eq(node.out[0].cores, 0);
}
END_TEST

/* Slurm's cores, by hwloc's logical numbers, where the mask says nothing. */
START_TEST(cores_of_slurm)
{
	static const struct {
		const char *cores, *cpus;
	} t[] = {
		{ "0-1", "0-1,6-7" }, { "5", "5,11" }, { "0-5", "0-11" },
		{ "4,0", "0,4,6,10" }, { "0-6", "0-11" }, { "6", "0-11" },
		{ "", "0-11" }, { "x", "0-11" }, { "-1", "0-11" },
		{ "0-", "0-11" }, { "99999999", "0-11" }, { ",", "0-11" },
	};

	node_load(node_xml("smt"), 1, "0-11");
	for (unsigned i = 0; i < CHECK_COUNT(t); i++) {
		node_again(1, "0-11");
		strcpy(node.ask[0].cores, t[i].cores);
		ck_assert_uint_eq(node_make(), 0);
		ck_assert_msg(!strcmp(node_cpus(node.out[0].cpus), t[i].cpus),
			      "\"%s\": %s", t[i].cores,
			      node_cpus(node.out[0].cpus));
	}
	node_again(1, "0-4");	/* not all of them may be used */
	strcpy(node.ask[0].cores, "0-1");
	ck_assert_uint_eq(node_make(), 0);
	ck_assert_str_eq(node_cpus(node.out[0].cpus), "0-4");
	node_again(2, "0-11");	/* the masks are better known */
	strcpy(node.ask[0].cores, "0-1");
	cpus_of(0, "3");
	cpus_of(1, "5");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "-|-|3");
	answer(1, "-|-|5");
}
END_TEST

/* Threads of a core go together while there are cores enough. */
START_TEST(threads)
{
	node_load(node_xml("smt"), 2, "0-11");
	node_list("0,1");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "0|0,1|0-2,6-8");
	answer(1, "1|0,1|3-5,9-11");
	ck_assert_uint_eq(node.out[0].cores, 3);
	node_again(12, "0-11");
	ck_assert_uint_eq(node_make(), 0);
	ck_assert_uint_eq(node.out[0].cores, 1);
	node_again(13, "0-11");	/* fewer CPUs than ranks */
	ck_assert_uint_eq(node_make(), 0);
	for (unsigned i = 0; i < 13; i++)
		ck_assert_uint_eq(node.out[i].cores, 1);
	node_load(node_xml("restricted"), 2, "0-11");
	ck_assert_uint_eq(node_make(), 0);	/* Slurm's word counts */
	answer(0, "-|-|0-2,6-8");
}
END_TEST

/* A topology that cannot be had: this machine is looked at instead. */
START_TEST(bad_topologies)
{
	char path[128];
	unsigned cpu = (unsigned)sched_getcpu();
	char mine[16];

	(void)snprintf(mine, sizeof(mine), "%u", cpu);
	(void)snprintf(path, sizeof(path), "%s/none.xml", node_dir);
	node_load(path, 1, mine);
	ck_assert_uint_eq(node_make(), 0);
	ck_assert_str_eq(node_cpus(node.out[0].cpus), mine);
	says(node.out[0].warning, "topology= of plugstack.conf: cannot read");
	says(node.out[0].warning, "this machine is looked at instead");
	(void)snprintf(path, sizeof(path), "%s/broken.xml", node.sysroot);
	node_write("broken.xml", "<?xml version=\"1.0\"?><topology>");
	node_load(path, 1, mine);
	ck_assert_uint_eq(node_make(), 0);
	says(node.out[0].warning, "topology= of plugstack.conf: ");
	node_load(node_dir, 1, mine);
	says(node.warning, "is a folder");
}
END_TEST

/* Of another machine: its CPUs are not these. */
START_TEST(wrong_topology)
{
	here(2, "100-103");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "-|-|-");
	says(node.out[0].warning, "ranks are not bound to CPUs: none of the "
	     "step's CPUs is in the topology of this node");
	node_again(2, "100-103");
	policy(DDP_BIND_RESTRICTED);
	ck_assert_uint_eq(node_make(), 2);
	says(node.out[1].why, "the policy restricted cannot be judged: none");
	node_again(2, "0-7");
	for (unsigned i = 0; i < 2; i++)
		node.ask[i].req.cpu_said = true;
	cpus_of(1, "8191");
	ck_assert_uint_eq(node_make(), 0);
	says(node.out[0].warning, "the CPUs of rank 1 are not in the topology");
	node_again(1, "6-9");	/* those that are */
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "-|-|6-7");
	node_again(1, "0");	/* a task with no CPU at all */
	memset(node.ask[0].cpus, 0, sizeof(node.ask[0].cpus));
	ck_assert_uint_eq(node_make(), 0);
	says(node.out[0].warning, "none of the step's CPUs");
}
END_TEST

/* What another program of the user's may have scribbled. */
START_TEST(garbage)
{
	struct ddp_gate g;
	struct ddp_err err;
	unsigned seed = 1;

	ck_assert_msg(!ddp_gate_make(&g, &err), "%s", err.text);
	here(2, "0-7");
	for (unsigned k = 0; k < 2000; k++) {
		unsigned char *raw;

		node_again(2, "0-7");
		node_list("0,1,2,3");
		for (unsigned n = 0; n <= k % 8; n++) {
			raw = (unsigned char *)&node.ask[k / 8 % 2];
			seed = seed * 1103515245 + 12345;
			raw[4 + (seed >> 8) % (sizeof(*node.ask) - 4)] =
				(unsigned char)(seed >> 4);
		}
		if (k % 3 == 0)
			memset(node.ask[1].list, '1', sizeof(node.ask[1].list));
		if (k % 5 == 0)
			memset(node.ask[0].cores, '1',
			       sizeof(node.ask[0].cores));
		if (k % 7 == 0)
			memset(&node.ask[0].req, 0xff, sizeof(node.ask->req));
		if (k % 11 == 0)
			memset((char *)&node.ask[1] + 4, (int)k,
			       sizeof(*node.ask) - 4);
		for (unsigned i = 0; i < 2; i++) {
			ck_assert(!ddp_gate_put_ask(&g, i, &node.ask[i]));
			ck_assert(!ddp_gate_get_ask(&g, i, &node.ask[i]));
		}
		(void)node_make();
	}
	ddp_gate_close(&g);
}
END_TEST

START_TEST(one_and_most)
{
	const unsigned n = DDP_PLACE_RANKS;
	int64_t from;
	struct rusage used;

	here(1, "3");
	ck_assert_uint_eq(node_make(), 0);
	answer(0, "-|-|3");
	node_load(node_xml("eight"), n, "0-15");
	node_list("0,1,2,3,4,5,6,7");
	from = ddp_io_now_ms();
	ck_assert_uint_eq(node_make(), 0);
	for (unsigned i = 0; i < n; i++)
		ck_assert_uint_eq(node.out[i].device, i % 8);
	(void)getrusage(RUSAGE_SELF, &used);
	printf("# %u ranks on a list: %lld ms, %ld MiB\n", n,
	       (long long)(ddp_io_now_ms() - from), used.ru_maxrss >> 10);
	node_again(n, "0-15");
	for (unsigned i = 0; i < n; i++) {
		char list[32] = "";

		for (unsigned k = 0; k < 8; k++)
			(void)snprintf(list + strlen(list), 4, "%s%u",
				       k ? "," : "", (i + k * (i % 4 * 2 + 1)) %
				       8);
		list_of(i, list);
	}
	from = ddp_io_now_ms();
	ck_assert_uint_eq(node_make(), 0);
	for (unsigned i = 0; i < n; i++)
		ck_assert_uint_eq(node.out[i].ndevices, 8);
	(void)getrusage(RUSAGE_SELF, &used);
	printf("# %u ranks, lists of their own: %lld ms, %ld MiB\n", n,
	       (long long)(ddp_io_now_ms() - from), used.ru_maxrss >> 10);
}
END_TEST

int main(void)
{
	static const char *const xml[] = { "here 8", "smt", "restricted",
					   "remote", "eight", NULL };
	const TTest *const tests[] = { shared_out_by_slurm, cpus_said, far,
		policies, cores_of_slurm, threads, bad_topologies,
		wrong_topology, garbage, one_and_most };
	int rc = EXIT_FAILURE;

	if (node_begin(xml))
		rc = check_run("place_cpus", tests, CHECK_COUNT(tests),
			       node_fresh);
	node_end();
	return rc;
}
