/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What binding costs, for a clock (make bench) or an instruction counter
 * (tests/arch/check-cost):
 *
 *	bind_cost plan FILE.xml RANKS TIMES   the plan of a loaded topology
 *	bind_cost load FILE.xml|- TIMES       reading a topology (-: this machine)
 *	bind_cost loadcpus FILE.xml|- TIMES   the same without devices
 *	bind_cost task TIMES                  what a task looks at and does
 *
 * Prints the median and the 99th percentile in microseconds.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_seat.h"
#include "core/ddp_text.h"
#include "launcher/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMES_MAX 100000

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "bind_cost: %s\n", what);
	exit(1);
}

static void plan_once(const struct topo *t, uint32_t ranks)
{
	struct topo_plan *p = calloc(1, sizeof(*p));
	struct ddp_err err;

	if (!p)
		die("out of memory");
	p->topo = t;
	for (; p->ngpus < t->ngpus; p->ngpus++)
		p->gpus[p->ngpus] = p->ngpus;
	p->cpus = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(t->hw));
	if (topo_plan_make(p, ranks, DDP_BIND_BEST_EFFORT, &err))
		die(err.text);
	topo_plan_free(p);
	free(p);
}

static void load_once(const char *file, bool devices)
{
	struct topo *t = calloc(1, sizeof(*t));
	struct ddp_err err;

	if (!t || topo_load(t, strcmp(file, "-") ? file : NULL, devices,
			    &err))
		die("no topology");
	topo_free(t);
	free(t);
}

/* As a task before its exec: look, be placed where it is, and go on. */
static void task_once(void)
{
	struct ddp_ask *ask = calloc(1, sizeof(*ask));
	struct ddp_placed *placed = calloc(1, sizeof(*placed));
	struct ddp_err err;

	if (!ask || !placed)
		die("out of memory");
	ask->list_set = true;
	if (ddp_seat_look(ask, "", &err))
		die(err.text);
	placed->set_cpus = placed->set_nodes = true;
	memcpy(placed->cpus, ask->cpus, sizeof(placed->cpus));
	placed->nodes[0] = 1;
	if (ddp_seat_take(placed, &err))
		die(err.text);
	free(ask);
	free(placed);
}

int main(int argc, char **argv)
{
	struct topo *t = calloc(1, sizeof(*t));
	uint32_t times = 0, ranks = 0;
	struct ddp_err err;
	int64_t *took;

	if (argc < 3 || ddp_text_u32(argv[argc - 1], 1, TIMES_MAX, &times) ||
	    (argc == 5 && ddp_text_u32(argv[3], 1, DDP_BIND_RANKS, &ranks)))
		die("see the head of tests/cost/bind_cost.c");
	took = calloc(times, sizeof(*took));
	if (!took || !t || (ranks && topo_load(t, argv[2], true, &err)))
		die("no topology");
	for (uint32_t i = 0; i < times; i++) {
		int64_t start = now_ns();

		if (!strcmp(argv[1], "plan") && ranks)
			plan_once(t, ranks);
		else if (!strncmp(argv[1], "load", 4))
			load_once(argv[2], !strcmp(argv[1], "load"));
		else
			task_once();
		took[i] = now_ns() - start;
	}
	qsort(took, times, sizeof(*took), by_value);
	printf("%.1f %.1f\n", (double)took[times / 2] / 1000,
	       (double)took[(uint64_t)times * 99 / 100] / 1000);
	topo_free(t);
	free(t);
	free(took);
	return 0;
}
