/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binding plan of one node: which rank gets which GPUs and which CPUs.
 * Numbers go in and numbers come out: where they come from (hwloc) and what
 * is done with them (sched_setaffinity, device lists) is the caller's. The
 * model is in doc/binding.md; in short, lexicographically least are
 *   D1  the distances from every core of a rank to every GPU of it,
 *   D2  the distances between the GPUs of a rank,
 *   U   the NUMA nodes that the CPUs of the ranks touch.
 */
#ifndef DDP_BIND_H
#define DDP_BIND_H

#include "core/ddp_err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets of NUMA nodes and of GPUs are masks of 64 bits. */
#define DDP_BIND_GPUS 64
#define DDP_BIND_NUMA 64
#define DDP_BIND_RANKS 65535

/* Steps of the search before it is given up: about a second. */
#define DDP_BIND_WORK 100000000

enum ddp_bind_policy {
	DDP_BIND_NONE,
	DDP_BIND_BEST_EFFORT,
	DDP_BIND_RESTRICTED,
	DDP_BIND_SINGLE_NUMA
};

/*
 * What is to be planned. "Allowed" is what may be handed out; the whole node
 * (the last lines) only serves the policy "restricted". NUMA sets are masks
 * of positions in the caller's list of NUMA nodes with CPUs. GPUs, cores and
 * PUs are named by their positions in these arrays.
 */
struct ddp_bind_in {
	unsigned nranks;
	enum ddp_bind_policy policy;

	unsigned ngpus;
	const uint64_t *gpu_numa;	/* near NUMA nodes; 0: none has CPUs */
	const uint32_t *gpu_pos;	/* all different: the order of ranks */
	const uint16_t *e;		/* [ngpus][ngpus], symmetric */

	unsigned ncores;		/* those with an allowed PU, logical */
	const uint64_t *core_numa;
	const uint16_t *d;		/* [ncores][ngpus] */
	unsigned npus;			/* allowed, logical order */
	const uint32_t *pu_core;	/* never falls */

	unsigned node_ncores;
	const uint64_t *node_core_numa;
	const uint32_t *node_core_pus;	/* number of PUs */
	unsigned node_ngpus;
	const uint64_t *node_gpu_numa;

	int64_t work;			/* 0: DDP_BIND_WORK */
};

/* What decides how the CPUs are split. */
enum ddp_bind_unit {
	DDP_BIND_CORES,
	DDP_BIND_PUS,		/* fewer cores than ranks */
	DDP_BIND_SHARED		/* fewer PUs than ranks */
};

struct ddp_bind_rank {
	uint32_t *gpus;		/* in the order of gpu_pos; none: as given */
	unsigned ngpus;
	uint32_t *pus;		/* rising */
	unsigned npus;
	unsigned ncores;	/* that the PUs touch */
	uint64_t numa;		/* of the PUs */
	uint64_t gpu_numa;	/* of the GPUs */
	bool remote;		/* a GPU of it has no near NUMA node */
	uint64_t d1;
	unsigned got, needed;	/* NUMA nodes, for the policies */
	bool refused;
};

struct ddp_bind_plan {
	unsigned nranks;
	struct ddp_bind_rank *ranks;
	enum ddp_bind_unit unit;
	enum ddp_bind_policy policy;
	uint64_t d1, d2, numa;
	bool optimal;		/* proven; with policy none never asked */
	unsigned nrefused;
};

/*
 * Make the plan. Returns 0, also where the policy refuses ranks (nrefused
 * counts them, and the plan shows what they would get), or -1: DDP_EINVAL
 * for numbers that make no sense, DDP_ENOMEM. ddp_bind_free() afterwards in
 * any case.
 */
int ddp_bind_make(const struct ddp_bind_in *in, struct ddp_bind_plan *plan,
		  struct ddp_err *err);

/*
 * What is decided already, rank by rank; NULL is what is open. Ranks are not
 * alike then: rank i of the plan is rank i of these arrays.
 */
struct ddp_bind_fixed {
	const uint64_t *gpus;	/* [nranks] sets; may overlap or be empty */
	const uint32_t *const *pus; /* [nranks] rising; may overlap */
	const unsigned *npus;	/* [nranks], with pus: 1 or more */
};

/*
 * The same where GPUs or CPUs or both are given; fixed NULL, or nothing in
 * it, is ddp_bind_make().
 *
 * GPUs given: the CPUs are split as ever, D1 and then U is least. A rank
 * without GPUs takes what the others leave; if none has any, CPUs are handed
 * out in their order. Not proven, and in that order, where the ranks' GPUs
 * are at more than 64 different distances.
 *
 * CPUs given: the GPUs are shared out in the same numbers, D1 and then D2 is
 * least. A rank's cores are those that its PUs touch, and D1 goes by core;
 * what costs the same goes to lower ranks first. D1 is least unless more
 * ranks than GPUs have so many different costs that the work forbids it; D2
 * where the work suffices, else GPUs are exchanged one by one until that
 * gains nothing. optimal is true only for what is proven. unit is
 * DDP_BIND_SHARED where PUs are in common, DDP_BIND_PUS where only cores are.
 *
 * Both given: counted and judged, and optimal.
 *
 * With the policy none, CPUs that are open are not bound, and GPUs that are
 * open are shared out as they are listed.
 *
 * Returns as ddp_bind_make(); DDP_EINVAL also for a GPU or CPU that is not in
 * the input, for CPUs that do not rise, and for a rank that is given none.
 */
int ddp_bind_make_fixed(const struct ddp_bind_in *in,
			const struct ddp_bind_fixed *fixed,
			struct ddp_bind_plan *plan, struct ddp_err *err);

/* Also for a plan of zeros. */
void ddp_bind_free(struct ddp_bind_plan *plan);

/* "best-effort" and so on; and back: 0, or -1 for another word. */
const char *ddp_bind_policy_name(enum ddp_bind_policy policy);
int ddp_bind_policy_parse(const char *text, enum ddp_bind_policy *policy);

#endif
