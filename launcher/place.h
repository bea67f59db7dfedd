/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places of all tasks of a node and step: from what each of them has been
 * given by Slurm (struct ddp_ask) to what each of them is to do (struct
 * ddp_placed). Run by a short-lived child of ddp-agent, as the user; the
 * topology is read here, once a node and step, and nowhere else.
 *
 *	place.c		the whole, in order
 *	place_ident.c	which GPU of the topology an entry of a list is
 *	place_gpus.c	the GPUs of the step, and what the ranks may see
 *	place_cpus.c	the CPUs of the step
 *	place_answer.c	from the plan to the answers
 */
#ifndef PLACE_H
#define PLACE_H

#include "core/ddp_place.h"
#include "core/ddp_vis.h"
#include "launcher/topo.h"

/* Work of the search for a plan: some 20 ms at most. See ddp_bind_in. */
#define PLACE_WORK 2000000

/* What is known of a GPU beside its place in the topology. */
struct place_id {
	int nvidia;		/* minor number of its /dev/nvidiaN, or -1 */
	int render;		/* N of its /dev/dri/renderDN, or -1 */
	unsigned order;		/* in which the vendor's library counts */
	char uuid[64];		/* "GPU-…" or "" */
};

struct place_gpu {
	unsigned gpu;		/* of the topology, or TOPO_GPU_UNKNOWN */
	unsigned ask;		/* of the first rank that sees it … */
	unsigned word;		/* … as this entry of its list */
};

struct place {
	const char *topology, *sysroot;	/* of the site; "" */
	unsigned n;
	struct ddp_ask *ask;
	struct ddp_placed *out;
	const struct ddp_place_req *req;	/* of the first */

	struct topo *topo;
	bool devices;		/* the topology has those */
	struct place_id id[DDP_BIND_GPUS];
	struct topo_plan *plan;

	hwloc_bitmap_t cpus;	/* of the step */
	bool slurm_bound;	/* tasks to less than their cpuset */

	bool lists;		/* the tasks have lists, and they can be read */
	bool bare;		/* GPUs, but no lists: they go by number */
	bool per_rank;		/* each sees other GPUs */
	struct ddp_vis *vis;	/* [n] */
	unsigned ngpus;
	struct place_gpu gpu[DDP_BIND_GPUS];
	uint64_t *sees;		/* [n] sets of these */
	enum ddp_view view;	/* what the ranks will see */
	bool fixed_gpus, fixed_cpus;
	unsigned *slot;		/* [n] place in the plan */
	unsigned *users;	/* of each of its cores: ranks */

	char hint[DDP_PLACE_TEXT], warning[DDP_PLACE_TEXT];
};

/*
 * Fill out[0 … n - 1]. Never fails: what cannot be known is said in the
 * answers, and refused where the policy needs it. Returns the number of ranks
 * that are refused.
 */
unsigned place_make(struct place *p);

/*
 * Read the topology, before the questions are there; devices as in
 * topo_load(). 0, or -1 with *err. place_clear() in any case.
 */
int place_load(struct place *p, bool devices, struct ddp_err *err);
void place_clear(struct place *p);

/* Parts of place_make(). Texts for rank 0, and of what went wrong here. */
void place_hint(struct place *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void place_warn(struct place *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

void place_identify(struct place *p);
/* The GPU of the topology that a word of this task's list names, or
 * TOPO_GPU_UNKNOWN. */
unsigned place_find_gpu(const struct place *p, const struct ddp_ask *ask,
			const char *word);
/* GPUs of the topology that the task may open, in the order in which it would
 * count them; -1 if that cannot be told. */
int place_visible(const struct place *p, const struct ddp_ask *ask,
		  unsigned *gpus);
/* PCI vendor of the step's GPUs; 0: not known. */
uint32_t place_vendor(const struct place *p);
/* The GPU that a MIG device is part of, through NVML: its PCI bus id into buf.
 * 0, or -1. NVML stays open for the next one, until place_mig_end(). */
int place_mig_bus(const char *word, char *buf, size_t size);
void place_mig_end(void);

void place_find_gpus(struct place *p);
/* The number in p->gpu of this entry of a task's list, or -1. */
int place_entry(const struct place *p, unsigned ask, unsigned word);
/* 0, or -1 with *err. */
int place_find_cpus(struct place *p, struct ddp_err *err);
void place_answer(struct place *p);

#endif
