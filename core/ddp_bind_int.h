/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the binding plan. The search has three stages, each exact in
 * itself, and each but the first asked only among the optima of the one
 * before:
 *
 *   ddp_bind_split.c  D1. To D1, GPUs with the same distance from every core
 *                     are one class, and so are cores with the same distance
 *                     to every GPU. A "split" says how many GPUs of each
 *                     class each group has; splits are enumerated, and what
 *                     the cores cost is a transportation problem
 *                     (ddp_bind_flow.c).
 *   ddp_bind_group.c  D2. Which GPUs of a class go to which group: dynamic
 *                     programming over sets of GPUs.
 *   ddp_bind_numa.c   U. Which of the cheapest ways to hand out the cores
 *                     touches the fewest NUMA nodes.
 *
 * Where GPUs or CPUs are given, ddp_bind_fixed.c turns to these stages or to
 * ddp_bind_assign.c.
 *
 * D1 and U depend on the split alone, D2 on split and GPUs but not on cores,
 * so the stages do not interfere. Work is counted, not timed: the same input
 * gives the same plan on every machine.
 */
#ifndef DDP_BIND_INT_H
#define DDP_BIND_INT_H

#include "core/ddp_bind.h"

/* Groups of GPUs that are alike are one type; there are at most as many as
 * GPUs, for there are no more groups. */
#define DDP_BIND_TYPES DDP_BIND_GPUS

#define DDP_BIND_FORBID UINT32_MAX

/* More ranks than this are not searched one by one. */
#define DDP_BIND_PATTERN 256

/*
 * A transportation problem: supply[c] cores of every column c go to the
 * types, lo[t] to hi[t] of them to each, at cost[c * nt + t] a core or not at
 * all (DDP_BIND_FORBID).
 */
struct ddp_bind_net {
	unsigned nc, nt;
	uint32_t *supply, *lo, *hi;
	uint32_t *cost, *flow;
	uint32_t *left, *load;
	int64_t *pc, *pt, ps;	/* distances, potentials */
	int32_t *fc, *ft;	/* where the shortest path comes from */
	void *mem;
};

/* Arrays for nc columns and nt types. Returns 0 or -1. */
int ddp_bind_net_init(struct ddp_bind_net *net, unsigned nc, unsigned nt);
void ddp_bind_net_free(struct ddp_bind_net *net);

/* Least cost; fills flow and load. -1: there is no such flow. */
int64_t ddp_bind_net_solve(struct ddp_bind_net *net, int64_t *work);

/* After ddp_bind_net_solve(): potentials that prove the optimum. */
void ddp_bind_net_duals(struct ddp_bind_net *net, int64_t *work);

/* What units of a class cost some group. */
struct ddp_bind_near {
	uint32_t cost, supply;
};

/* The input, sorted and in classes. GPU i is the i-th by gpu_pos. */
struct ddp_bind_prob {
	const struct ddp_bind_in *in;
	int64_t work, budget;			/* left; at first */
	const unsigned *gpu_of;			/* of each rank, if given */
	unsigned n, g;
	unsigned gpu[DDP_BIND_GPUS];		/* to the caller's number */
	uint32_t e[DDP_BIND_GPUS][DDP_BIND_GPUS];
	int twin[DDP_BIND_GPUS];		/* the one before, or -1 */
	uint64_t near2[DDP_BIND_GPUS];		/* see ddp_bind_group.c */
	struct ddp_bind_memo *memo;		/* of ddp_bind_group.c */
	struct ddp_bind_parts *parts;		/* of ddp_bind_part.c */
	struct ddp_bind_fail *fails;		/* of ddp_bind_numa.c */
	struct ddp_bind_count *count;		/* of ddp_bind_count.c */
	unsigned turn;				/* which of them count */
	struct ddp_bind_seen *seen;		/* of ddp_bind_seen.c */

	enum ddp_bind_unit unit;
	unsigned nu;				/* units: cores or PUs */
	uint32_t *unit_class, *unit_core;
	unsigned nc;				/* classes of units */
	uint32_t *supply;
	uint64_t *numa;
	uint32_t *d;				/* [nc][ng] */
	unsigned k, kx;				/* units a rank; kx have k+1 */
	struct ddp_bind_near *near;		/* [nc], of ddp_bind_split.c */

	unsigned ng;				/* classes of GPUs */
	uint64_t members[DDP_BIND_GPUS];
	unsigned size[DDP_BIND_GPUS];
	uint64_t gnuma[DDP_BIND_GPUS];		/* shared: of the class */
	uint64_t dom[DDP_BIND_NUMA];		/* different NUMA sets */
	unsigned ndom;
	uint32_t *dom_of;			/* of each class of units */
	void *mem;
};

/* -1 with DDP_EINVAL for an input that makes no sense. */
int ddp_bind_check(const struct ddp_bind_in *in, struct ddp_err *err);

/* What free CPUs are split by. */
enum ddp_bind_unit ddp_bind_unit_of(const struct ddp_bind_in *in);

/* The input must have been checked, and stay. */
int ddp_bind_prob_init(struct ddp_bind_prob *p, const struct ddp_bind_in *in,
		       struct ddp_err *err);
void ddp_bind_prob_free(struct ddp_bind_prob *p);

/* True if a rank has one GPU, so that D2 is 0. */
bool ddp_bind_one_each(const struct ddp_bind_prob *p);

/* From a GPU to all of a set. Here, for it is in the innermost loops. */
static inline uint64_t ddp_bind_to_set(const struct ddp_bind_prob *p,
				       unsigned gpu, uint64_t set)
{
	uint64_t sum = 0;

	for (; set; set &= set - 1)
		sum += p->e[gpu][__builtin_ctzll(set)];
	return sum;
}

/* Groups that cost the same everywhere are one type; x is one of them. */
struct ddp_bind_type {
	uint8_t x[DDP_BIND_GPUS];	/* GPUs of each class */
	unsigned ranks;
};

/* A way to do it all. Group i is of type type[i] and has the GPUs gpus[i]. */
struct ddp_bind_best {
	bool found, proven;
	uint64_t d1, d2, u;
	unsigned ntypes;
	struct ddp_bind_type types[DDP_BIND_TYPES];
	unsigned ngroups;		/* g < n: one a GPU */
	uint8_t x[DDP_BIND_GPUS][DDP_BIND_GPUS]; /* of each class */
	unsigned type[DDP_BIND_GPUS];
	unsigned ranks[DDP_BIND_GPUS];	/* of each group */
	uint64_t gpus[DDP_BIND_GPUS];
};

/* The net of classes of units and these types; not solved. */
void ddp_bind_net_types(struct ddp_bind_net *net,
			const struct ddp_bind_prob *p,
			const struct ddp_bind_type *types, unsigned nt);

/*
 * True if a net that costs the same, D1 and U, was asked for before, since
 * all were forgotten. It need not be solved yet.
 */
bool ddp_bind_seen(struct ddp_bind_prob *p, const struct ddp_bind_net *net);
void ddp_bind_seen_forget(struct ddp_bind_prob *p);
int ddp_bind_seen_init(struct ddp_bind_prob *p);

/* The best way of all; 0, or -1 when memory runs out. */
int ddp_bind_split(struct ddp_bind_prob *p, struct ddp_bind_best *best);

/*
 * Least D2 for the groups of b (ngroups and x are given); fills gpus.
 */
uint64_t ddp_bind_group(struct ddp_bind_prob *p, struct ddp_bind_best *b);
/* No groups have less. */
uint64_t ddp_bind_group_floor(const struct ddp_bind_prob *p);
int ddp_bind_group_init(struct ddp_bind_prob *p);
int ddp_bind_part_init(struct ddp_bind_prob *p);
int ddp_bind_numa_init(struct ddp_bind_prob *p);

/*
 * A part of the third stage: types and columns (classes of one domain that
 * are alike) that no cheapest way mixes with others. See ddp_bind_face.c.
 */
struct ddp_bind_face {
	struct ddp_bind_prob *p;
	unsigned nt, n;
	unsigned type[DDP_BIND_TYPES];	/* its number in the whole */
	uint16_t ranks[DDP_BIND_TYPES];
	int8_t force[DDP_BIND_TYPES];	/* -1: k each, 1: k + 1, 0: either */
	uint64_t reach[DDP_BIND_TYPES];	/* domains that it can use */
	unsigned ncol;
	uint32_t *supply, *dom;		/* of each column */
	uint32_t *col_of;		/* of each class, or UINT32_MAX */
	uint8_t *arc;			/* [ncol][nt]: used in some way */
	unsigned ndom;
	uint64_t numa[DDP_BIND_NUMA];	/* of each domain */
	uint32_t dom_supply[DDP_BIND_NUMA];
	unsigned kind[DDP_BIND_NUMA];
	bool single[DDP_BIND_NUMA];	/* whole ranks can fill it */
	unsigned weight;		/* fewest NUMA nodes of a domain */
	bool disjoint;			/* no NUMA node is in two domains */
	bool regular;			/* see ddp_bind_numa.c */
	struct ddp_bind_net net;
	uint64_t pattern[DDP_BIND_PATTERN]; /* see ddp_bind_pattern_cost() */
};

/* All parts, and memory for one of them at a time. */
struct ddp_bind_faces {
	struct ddp_bind_face face;
	struct ddp_bind_prob *p;
	const struct ddp_bind_net *net;
	const struct ddp_bind_type *types;
	unsigned nparts;
	uint32_t *part;		/* of classes, then types */
	uint32_t *knot;		/* of classes, types, the sink */
	uint32_t *queue;
	uint8_t *seen;
	void *mem;
};

/* For nets of all classes of p and any types. Returns 0 or -1. */
int ddp_bind_faces_init(struct ddp_bind_faces *fs, struct ddp_bind_prob *p);
void ddp_bind_faces_free(struct ddp_bind_faces *fs);

/* Find the parts of a net that is solved; net and types must stay. */
void ddp_bind_faces_find(struct ddp_bind_faces *fs, struct ddp_bind_net *net,
			 const struct ddp_bind_type *types);

/* Part i into fs->face. */
void ddp_bind_face_take(struct ddp_bind_faces *fs, unsigned i);

struct ddp_bind_block {
	uint64_t doms;			/* of a face */
	uint16_t a[DDP_BIND_TYPES];	/* ranks of each of its types */
};

/* Bounds of what a ranks of type t take together. */
void ddp_bind_face_bounds(const struct ddp_bind_face *f, unsigned t,
			  unsigned a, uint32_t *lo, uint32_t *hi);

/* True if the block's domains can be handed to its ranks, and only they. */
bool ddp_bind_block_fits(struct ddp_bind_face *f,
			 const struct ddp_bind_block *b);

/* True if only domains matter to the ranks of the block, not columns. */
bool ddp_bind_block_regular(const struct ddp_bind_face *f,
			    const struct ddp_bind_block *b);

/*
 * Fewest NUMA nodes that the ranks of the block touch, all together; cap + 1
 * if more than cap, or if there is no way at all.
 */
unsigned ddp_bind_block_cost(struct ddp_bind_face *f,
			     const struct ddp_bind_block *b, unsigned cap);

/* Irregular blocks: the same by a search over the sets of domains of each
 * rank, left in f->pattern in the order of types. */
unsigned ddp_bind_pattern_cost(struct ddp_bind_face *f,
			       const struct ddp_bind_block *b, unsigned cap);

/*
 * Least U of the part, of at most cap; fills blocks (DDP_BIND_NUMA of them).
 * cap + 1 if there is none. *proven becomes false if the work ran out; then
 * there is one block, and what it costs is not known.
 */
unsigned ddp_bind_numa(struct ddp_bind_face *f, unsigned cap,
		       struct ddp_bind_block *blocks, unsigned *nblocks,
		       bool *proven);

/*
 * The same for all parts together, without blocks; parts are remembered.
 * Where the work has run out it is more than cap, unless that is no bound.
 */
unsigned ddp_bind_numa_all(struct ddp_bind_faces *fs, unsigned cap);

/* A lower bound of U of a part. */
unsigned ddp_bind_face_floor(const struct ddp_bind_face *f);

/*
 * Most blocks of these domains and so many ranks, and 1; 0 if counting shows
 * that there is no way, -1 if there is too much to count. After
 * ddp_bind_count_start() for the face.
 */
int ddp_bind_count_blocks(struct ddp_bind_face *f, uint64_t doms,
			  unsigned ranks);
void ddp_bind_count_start(struct ddp_bind_face *f);
int ddp_bind_count_init(struct ddp_bind_prob *p);

/* True if whole ranks can have just that many units. */
bool ddp_bind_fills(const struct ddp_bind_prob *p, uint32_t supply);

/* A lower bound of U, the same for every split. */
unsigned ddp_bind_numa_floor(const struct ddp_bind_prob *p);

/*
 * Seats: y[s * ncol + c] units of column c for seat s of the block, seats in
 * the order of types. Returns 0, or -1 if the block does not fit.
 */
int ddp_bind_seats(struct ddp_bind_face *f, const struct ddp_bind_block *b,
		   uint32_t *y);
/* The same for an irregular block of several domains; -1 also where the work
 * ran out. */
int ddp_bind_pattern_seats(struct ddp_bind_face *f,
			   const struct ddp_bind_block *b, uint32_t *y);
/* What consumer i of f->net has, to the a seats at y. */
void ddp_bind_seats_fill(struct ddp_bind_face *f,
			 const struct ddp_bind_block *b, unsigned i, unsigned a,
			 uint32_t *y);

/*
 * Hand out what the best way says: owner[u] is the rank of each unit (not
 * filled where they are shared), gpus[r] the set of each rank.
 */
int ddp_bind_share(struct ddp_bind_prob *p, const struct ddp_bind_best *b,
		   unsigned *owner, uint64_t *gpus, struct ddp_err *err);

/*
 * The search and ddp_bind_share() together, where there are GPUs and the
 * policy is not none.
 */
int ddp_bind_solve(struct ddp_bind_prob *p, struct ddp_bind_best *best,
		   unsigned *owner, uint64_t *gpus, struct ddp_err *err);

/* Without GPUs: units in their order, the first ranks one more. */
void ddp_bind_share_in_order(const struct ddp_bind_prob *p, unsigned *owner);

/*
 * Policy none: GPUs in the given order. gpus are zeros, and become sets of
 * the caller's numbers.
 */
void ddp_bind_share_listed(const struct ddp_bind_in *in, uint64_t *gpus);

/* A set of sorted GPUs as one of the caller's numbers. */
uint64_t ddp_bind_gpus_named(const struct ddp_bind_prob *p, uint64_t gpus);

/* The GPUs of an empty rank of a plan: a set of the caller's numbers. */
int ddp_bind_fill_gpus(const struct ddp_bind_in *in, struct ddp_bind_rank *r,
		       uint64_t gpus, struct ddp_err *err);

/*
 * After that its PUs: those it owns; owner NULL: every PU near its GPUs, or
 * all of them if none is near or the policy is none.
 */
int ddp_bind_fill_pus(const struct ddp_bind_in *in, struct ddp_bind_plan *plan,
		      unsigned rank, const unsigned *owner,
		      struct ddp_err *err);

/* Ranks that have both: distances and NUMA nodes, D1 by core or by PU. */
void ddp_bind_fill_count(const struct ddp_bind_in *in,
			 struct ddp_bind_plan *plan, bool by_pu);

/*
 * What is given: CPUs, so that GPUs go to ranks that are not alike. GPUs are
 * sorted and in classes as in p; ranks with the same costs are one row.
 */
struct ddp_bind_assign {
	struct ddp_bind_prob *p;
	uint32_t *w;		/* [n][ng]: its cores to a GPU of the class */
	unsigned *order;	/* ranks, row by row, rising in each */
	unsigned *row;		/* of each rank */
	unsigned *first;	/* [nrows + 1] where in order it starts */
	unsigned nrows;
	uint64_t *gpus;		/* of each rank: what is sought */
	uint64_t d1, d2;	/* what was found */
	bool proven;
	void *mem;
};

/* More GPUs than ranks. Returns 0, or -1 when memory runs out. */
int ddp_bind_assign_sets(struct ddp_bind_assign *a);

/*
 * GPUs for ranks whose PUs are given: least D1 and then D2. gpus are sets of
 * the caller's numbers. Fills d1, d2 and proven of best. There must be GPUs.
 */
int ddp_bind_assign(const struct ddp_bind_in *in,
		    const struct ddp_bind_fixed *fixed, uint64_t *gpus,
		    struct ddp_bind_best *best, struct ddp_err *err);

/* The policy's word on a plan that is complete but for that. */
int ddp_bind_judge(const struct ddp_bind_in *in, struct ddp_bind_plan *plan,
		   struct ddp_err *err);

#endif
