/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place of a rank: how a node's tasks and its agent agree on GPUs, CPUs
 * and memory.
 *
 *   srun      what is wanted, the same for all nodes: struct ddp_place_req,
 *             as one line of text under DDP_PLACE_ENV
 *   a task    what Slurm has given it: struct ddp_ask, into its slot
 *   agent     the plan for all tasks of the node: struct ddp_placed, into
 *             their slots (launcher/place.c)
 *   a task    takes its place before the exec (core/ddp_seat.c)
 *
 * Slots are in the gate's file (core/ddp_gate.h). Everything in them is the
 * user's own word, used with the user's rights: a rank that lies to its
 * sibling ranks harms its own step only. Texts are bounded and checked, for
 * a program may have scribbled there.
 */
#ifndef DDP_PLACE_H
#define DDP_PLACE_H

#include "core/ddp_options.h"

/* Named SLURM_… so that --export=NONE lets it pass. */
#define DDP_PLACE_ENV "SLURM_DDP_PLACE"
#define DDP_PLACE_MAX 160	/* the text, with the NUL */

#define DDP_PLACE_CPUS 8192
#define DDP_PLACE_NODES 1024	/* NUMA nodes, by the kernel's numbers */
#define DDP_PLACE_LIST 3072	/* a list of visible GPUs, with the NUL */
#define DDP_PLACE_TEXT 768
#define DDP_PLACE_RANKS 4096	/* tasks of a node that can be placed */

/* Stateless: so long after the first the last task of a node may ask for its
 * place, and so long a task waits for the answer. */
#define DDP_PLACE_LATE_MS 60000
#define DDP_PLACE_WAIT_MS 90000

#define DDP_PLACE_WORDS(bits) ((bits) / (8 * sizeof(unsigned long)))

/* Sets of CPUs and of NUMA nodes, as sched_setaffinity() has them. */
typedef unsigned long ddp_cpus[DDP_PLACE_WORDS(DDP_PLACE_CPUS)];
typedef unsigned long ddp_nodes[DDP_PLACE_WORDS(DDP_PLACE_NODES)];

/* What the user said to Slurm about GPUs, one by one. */
enum ddp_gpu_said {
	DDP_GPU_SAID_NOTHING,
	DDP_GPU_SAID_BIND,	/* --gpu-bind, but for none */
	DDP_GPU_SAID_NONE	/* --gpu-bind=none */
};

struct ddp_place_req {
	enum ddp_bind_policy policy;
	bool verify;
	enum ddp_gpus gpus;
	bool cpu_said;		/* --cpu-bind: Slurm's CPUs stay */
	enum ddp_gpu_said gpu_said;
	bool explain;		/* each rank of rank 0's node tells its place */
};

/* "v=1;bind=…;verify=…;gpus=…;cpu=…;gpu=…;explain=…" into buf of
 * DDP_PLACE_MAX bytes. */
void ddp_place_format(const struct ddp_place_req *r, char *buf);

/* A text that may come from anybody. 0, or -1 with *err. */
int ddp_place_parse(struct ddp_place_req *r, const char *text,
		    struct ddp_err *err);

/* True for a policy that must be judged before a rank may start. */
bool ddp_place_is_strict(const struct ddp_place_req *r);

/* Refused since there is no plan: the text for it into buf, cut where it is
 * too long. */
void ddp_place_unjudged(const struct ddp_place_req *r, const char *why,
			char *buf, size_t size);

/* A task's question. */
struct ddp_ask {
	uint32_t valid;
	uint32_t rank;
	struct ddp_place_req req;
	ddp_cpus cpus;		/* where it may run now */
	ddp_cpus widest;	/* where its cpuset would let it run */
	char cores[256];	/* Slurm's cores of the step on this node, by
				 * Slurm's numbers; "": not known */
	uint32_t vendor;	/* PCI vendor whose GPUs the list counts; 0:
				 * not known */
	bool list_set;
	char list[DDP_PLACE_LIST];	/* the GPUs that it sees */
	uint32_t step_gpus;	/* GPUs Slurm counts on this node; 0: none */
	uint64_t there, open;	/* /dev/nvidiaN that are there; that it may
				 * open: bits 1 << N */
	uint64_t render_there, render_open;	/* /dev/dri/renderD(128 + N) */
};

/* Make every text of it end, and every bool one. */
void ddp_ask_check(struct ddp_ask *a);

enum ddp_place_state {
	DDP_PLACE_NOTHING,	/* no answer */
	DDP_PLACE_DONE,
	DDP_PLACE_REFUSED	/* by the policy, or what it needs failed */
};

/* Which device a program should take. */
enum ddp_view {
	DDP_VIEW_UNKNOWN,	/* no GPUs, or nothing is known of them */
	DDP_VIEW_NODE,		/* entry LOCAL_RANK modulo their number */
	DDP_VIEW_RANK		/* the first ones */
};

/* The answer. state is written last. */
struct ddp_placed {
	uint32_t state;
	bool set_cpus, set_nodes, set_list;
	ddp_cpus cpus;
	ddp_nodes nodes;	/* memory is preferred there */
	uint32_t cores;		/* physical ones in its CPUs; 0: not known */
	uint32_t view;		/* enum ddp_view */
	uint32_t device;	/* index of its first GPU in what it sees */
	uint32_t ndevices;	/* GPUs of its own; 0: none, or not known */
	char devices[192];	/* their indices, with commas */
	bool pci_order;		/* the indices go by PCI bus ids */
	uint32_t vendor;	/* PCI vendor of the GPUs; 0: not known */
	char list[DDP_PLACE_LIST];	/* new list of visible GPUs */
	char hint[DDP_PLACE_TEXT];	/* for rank 0 to say */
	char warning[DDP_PLACE_TEXT];	/* for this task to say */
	char shown[DDP_PLACE_TEXT];	/* its place, for --ddp-explain */
	char why[DDP_PLACE_TEXT];	/* refused: why */
};

/* The same, and no number too large. */
void ddp_placed_check(struct ddp_placed *p);

#endif
