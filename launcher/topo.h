/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an hwloc topology, the machine's or a file's, to a binding plan. What
 * is asked of the plan comes as numbers (core/ddp_bind.h); here is where the
 * numbers come from, and how a plan is shown.
 */
#ifndef TOPO_H
#define TOPO_H

#include "core/ddp_bind.h"
#include "core/ddp_err.h"

#include <hwloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TOPO_NICS 64
#define TOPO_BUS 32

/* In topo_plan.gpus: a GPU whose place is not known. */
#define TOPO_GPU_UNKNOWN UINT32_MAX

struct topo_gpu {
	hwloc_obj_t obj;	/* PCI device, or an OS device without one */
	hwloc_obj_t local;	/* nearest object that is no I/O */
	char bus[TOPO_BUS];	/* empty: no PCI device */
	char name[64];
	uint64_t numa;
};

struct topo_nic {
	hwloc_obj_t obj;
	char bus[TOPO_BUS];
	char name[64];
	uint64_t numa;
};

/* GPUs are in the order of their bus ids; NUMA nodes those with CPUs. */
struct topo {
	hwloc_topology_t hw;
	const char *label;
	unsigned nnuma, ngpus, nnics;
	hwloc_obj_t numa[DDP_BIND_NUMA];
	struct topo_gpu gpu[DDP_BIND_GPUS];
	struct topo_nic nic[TOPO_NICS];
	bool linked[DDP_BIND_GPUS][DDP_BIND_GPUS];
};

/*
 * Load file, or this machine where it is NULL; without devices (GPUs and
 * network adapters) that is several times faster. Returns 0, or -1 with
 * DDP_ESYS or DDP_EINVAL. topo_free() in any case.
 */
int topo_load(struct topo *t, const char *file, bool devices,
	      struct ddp_err *err);
void topo_free(struct topo *t);

/* The NUMA nodes with CPUs of a set; of no set: none. */
uint64_t topo_numa_of(const struct topo *t, hwloc_const_bitmap_t set);

/* Steps of topo_load(): devices, and links between GPUs. */
int topo_find_devices(struct topo *t, struct ddp_err *err);
void topo_find_links(struct topo *t);

/* The next object in a walk through everything, depth first. */
hwloc_obj_t topo_next(hwloc_obj_t obj);

/* Edges between two objects of the tree, I/O included. */
unsigned topo_edges(hwloc_obj_t a, hwloc_obj_t b);

/* A plan with all that it is made of. */
struct topo_plan {
	const struct topo *topo;
	struct ddp_bind_in in;
	struct ddp_bind_plan plan;
	unsigned gpus[DDP_BIND_GPUS];	/* selected, as the user wrote them */
	unsigned ngpus;
	bool no_gpus;			/* "none" */
	hwloc_bitmap_t cpus;		/* allowed */
	hwloc_obj_t *pu;
	void *mem;
};

/* "0-3,0000:3b:00.0" or "none"; NULL: all. 0, or -1 with DDP_EINVAL. */
int topo_select_gpus(struct topo_plan *p, const char *list,
		     struct ddp_err *err);

/* hwloc's list syntax; NULL: all that are allowed. */
int topo_select_cpus(struct topo_plan *p, const char *list,
		     struct ddp_err *err);

/* After these: the plan for nranks ranks (0: one a GPU). */
int topo_plan_make(struct topo_plan *p, unsigned nranks,
		   enum ddp_bind_policy policy, struct ddp_err *err);
/* The same where p->gpus and p->cpus are filled by the caller, and part of it
 * is decided (NULL: nothing is); fixed may speak of PUs only after
 * topo_plan_fill(). */
int topo_plan_fill(struct topo_plan *p, struct ddp_err *err);
int topo_plan_decide(struct topo_plan *p, unsigned nranks,
		     enum ddp_bind_policy policy,
		     const struct ddp_bind_fixed *fixed, struct ddp_err *err);
void topo_plan_free(struct topo_plan *p);

/* CPUs of a rank as a list; with within, only those in it. free() it. NULL:
 * out of memory. */
char *topo_rank_cpus(const struct topo_plan *p, unsigned rank,
		     hwloc_const_bitmap_t within);

/* "0,2": the OS numbers of NUMA nodes, or "-". Returns buf. */
const char *topo_numa_text(const struct topo *t, uint64_t set, char *buf,
			   size_t size);
/* "0-2,5": numbers of the rank's GPUs, or "-". */
const char *topo_gpus_text(const struct topo_plan *p, unsigned rank, char *buf,
			   size_t size);
/* Why the rank is refused, in one sentence. */
const char *topo_refusal(const struct topo_plan *p, unsigned rank, char *buf,
			 size_t size);

/* Return 0, or -1 when the output cannot be written. */
int topo_show_json(const struct topo_plan *p, FILE *f);
int topo_show_table(const struct topo_plan *p, FILE *f);
int topo_show_drawing(const struct topo_plan *p, FILE *f, unsigned width,
		      bool utf8);

/* The refused ranks, the first four and a count, to stderr. */
void topo_show_refused(const struct topo_plan *p, const char *prog);

/* An SVG file that lstopo draws. 0, or -1 with DDP_ESYS. */
int topo_show_svg(struct topo_plan *p, const char *file, struct ddp_err *err);

#endif
