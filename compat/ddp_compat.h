/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm as the rest of the project sees it: the calls and structures that
 * differ between its releases, behind functions that do not. The only place
 * with conditionals on SLURM_VERSION_NUMBER.
 */
#ifndef DDP_COMPAT_H
#define DDP_COMPAT_H

#include "core/ddp_layout.h"
#include "core/ddp_plan.h"

#include <stdbool.h>

/* Components of a heterogeneous job that are looked at (Slurm allows 128). */
#define DDP_HET_MAX 128

/* What one look at a node's record gives. */
struct ddp_compat_node {
	char addr[256];		/* NodeAddr */
	char host[256];		/* NodeHostname */
};

/*
 * A step as slurmctld has it. nodes: Slurm's node list, names in the order
 * of the layout's node index. map: the node of each rank, as
 * struct ddp_plan's tf_map; NULL unless asked for.
 */
struct ddp_compat_step {
	struct ddp_layout layout;
	char *nodes;
	char *map;
};

/* The layout of a step: one RPC to slurmctld. Returns 0, or -1 with *err;
 * free with ddp_compat_step_clear() in either case. */
int ddp_compat_step_get(uint32_t job, uint32_t step, bool want_map,
			struct ddp_compat_step *out, struct ddp_err *err);

/*
 * The layout of a heterogeneous step, its components one after the other as
 * Slurm numbers its global ranks and nodes: one RPC a component. jobs: the
 * ids of the heterogeneous job's components in order; njobs 0: components of
 * one job (job).
 */
int ddp_compat_het_get(const uint32_t *jobs, unsigned njobs, uint32_t job,
		       uint32_t step, bool want_map,
		       struct ddp_compat_step *out, struct ddp_err *err);

void ddp_compat_step_clear(struct ddp_compat_step *s);

/*
 * Name number `index` of a node list, into name (size bytes). Returns 0, or
 * -1 with *err if the list is not valid or shorter.
 */
int ddp_compat_node_name(const char *nodes, uint32_t index, char *name,
			 size_t size, struct ddp_err *err);

/*
 * All names of a node list, in its order, comma separated and malloc'ed;
 * NULL with *err.
 */
char *ddp_compat_node_names(const char *nodes, struct ddp_err *err);

/* What slurmctld thinks of a step. */
enum ddp_step_state {
	DDP_STEP_UNKNOWN,	/* no answer */
	DDP_STEP_RUNNING,
	DDP_STEP_CANCELLED,	/* Slurm ends it: scancel of the job, time
				 * limit, preemption, requeue, node failure */
	DDP_STEP_GONE		/* it has ended */
};

/*
 * One RPC, or two where the job is running. scancel of a step alone does not
 * show in Slurm's records: that step is RUNNING until it is gone.
 */
enum ddp_step_state ddp_compat_step_state(uint32_t job, uint32_t step);

/* SIGKILL to all processes of a step, through Slurm. 0, or -1 with *err. */
int ddp_compat_step_kill(uint32_t job, uint32_t step, struct ddp_err *err);

/* Address and host name of one node: one RPC to slurmctld. 0 or -1. */
int ddp_compat_node(const char *name, struct ddp_compat_node *node,
		    struct ddp_err *err);

/*
 * The same from the configuration that this process has read, without an
 * RPC: right but for nodes that only slurmctld knows (dynamic, cloud).
 */
int ddp_compat_node_conf(const char *name, struct ddp_compat_node *node,
			 struct ddp_err *err);

/*
 * Addresses of all nodes of a list, comma separated, malloc'ed; NULL with
 * *err. One RPC if rpc is set (for the whole cluster, so only where every
 * address is needed); from the configuration otherwise, and where slurmctld
 * does not tell.
 */
char *ddp_compat_node_addrs(const char *nodes, uint32_t nnodes, bool rpc,
			    struct ddp_err *err);

/*
 * MASTER_ADDR of a plan whose layout is known: what the user gave, or the
 * NodeAddr of rank 0's node: with rpc from slurmctld first, else from the
 * configuration first, and from the other one if that has no answer. Also
 * fills plan->host. 0 or -1 with *err.
 */
int ddp_compat_master_addr(struct ddp_plan *plan, const char *nodes, bool rpc,
			   struct ddp_err *err);

/*
 * Ids of the jobs of a heterogeneous job, in order, from this process's
 * environment into jobs[DDP_HET_MAX]; 0 if there is none.
 */
unsigned ddp_compat_het_jobs(uint32_t *jobs);

/* The address of the (first) slurmctld as configured. 0 or -1. */
int ddp_compat_controller(char *addr, size_t size);

/* SrunPortRange of the configuration in force: true and both ends if set. */
bool ddp_compat_srun_ports(uint16_t *lo, uint16_t *hi);

/* Is a TaskProlog configured? */
bool ddp_compat_task_prolog(void);

/* Is this the id of an ordinary srun step, or of batch, extern, …? */
bool ddp_compat_step_is_normal(uint32_t step);
bool ddp_compat_step_is_batch(uint32_t step);

#endif
