/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm as the rest of the project sees it: the calls and structures that
 * differ between its releases, behind functions that do not. The only place
 * with conditionals on SLURM_VERSION_NUMBER.
 */
#ifndef DDP_COMPAT_H
#define DDP_COMPAT_H

#include "core/ddp_layout.h"

#include <stdbool.h>

/* What one look at a node's record gives. */
struct ddp_compat_node {
	char addr[256];		/* NodeAddr */
	char host[256];		/* NodeHostname */
};

/*
 * The layout of a step: one RPC to slurmctld. Fills *l (free with
 * ddp_layout_clear()) and *nodes, Slurm's node list (free with free()).
 * Returns 0, or -1 with *err.
 */
int ddp_compat_layout(uint32_t job, uint32_t step, struct ddp_layout *l,
		      char **nodes, struct ddp_err *err);

/*
 * Name number `index` of a node list, into name (size bytes). Returns 0, or
 * -1 with *err if the list is not valid or shorter.
 */
int ddp_compat_node_name(const char *nodes, uint32_t index, char *name,
			 size_t size, struct ddp_err *err);

/* Address and host name of one node: one RPC to slurmctld. 0 or -1. */
int ddp_compat_node(const char *name, struct ddp_compat_node *node,
		    struct ddp_err *err);

/* SrunPortRange of the configuration in force: true and both ends if set. */
bool ddp_compat_srun_ports(uint16_t *lo, uint16_t *hi);

/* Is a TaskProlog configured? */
bool ddp_compat_task_prolog(void);

/* Is this the id of an ordinary srun step, or of batch, extern, …? */
bool ddp_compat_step_is_normal(uint32_t step);
bool ddp_compat_step_is_batch(uint32_t step);

#endif
