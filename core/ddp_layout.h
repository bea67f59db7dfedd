/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the tasks of a step run: how many on each node, and in which order
 * the nodes come when they are counted by their lowest global rank. With
 * -m arbitrary that order is not the order of Slurm's node list.
 */
#ifndef DDP_LAYOUT_H
#define DDP_LAYOUT_H

#include "core/ddp_err.h"

#include <stddef.h>
#include <stdint.h>

/* Slurm's own limits: 64k nodes; more tasks than this is a broken layout. */
#define DDP_NODES_MAX 65536U
#define DDP_TASKS_MAX (1U << 24)

/*
 * All arrays are indexed by Slurm's node index in the step (SLURM_NODEID).
 * tasks[i]: tasks on node i; rank[i]: the node's place in the order of
 * lowest global rank; both have nnodes entries. first: the node of rank 0.
 */
struct ddp_layout {
	uint32_t nnodes;
	uint32_t ntasks;
	uint32_t first;
	uint32_t *tasks;
	uint32_t *rank;
};

/*
 * From Slurm's step layout: tasks[i] global task ids in tids[i]. Refuses ids
 * outside 0…ntasks-1, an id twice, and counts that do not add up. Returns 0,
 * or -1; *l is owned by the caller afterwards and freed by
 * ddp_layout_clear().
 */
int ddp_layout_from_tids(struct ddp_layout *l, uint32_t nnodes,
			 uint32_t ntasks, const uint16_t *tasks,
			 uint32_t *const *tids, struct ddp_err *err);

/*
 * Write the two compressed lists: task counts as "2(x3),1" and, if the order
 * is not the identity, node ranks as "3,0-2" (order is "" otherwise).
 * Returns 0, or -1 if a buffer is too small.
 */
int ddp_layout_format(const struct ddp_layout *l, char *counts, size_t nc,
		      char *order, size_t no, struct ddp_err *err);

/*
 * The reverse; order NULL or "" is the identity. Both texts are hostile: any
 * syntax error, a bound exceeded or a rank twice gives -1 and an empty *l.
 */
int ddp_layout_parse(struct ddp_layout *l, const char *counts,
		     const char *order, struct ddp_err *err);

/*
 * Among the nodes that have a task with this local id: how many they are,
 * and the place of `node` in their order (Horovod's CROSS_SIZE, CROSS_RANK).
 */
uint32_t ddp_layout_cross_size(const struct ddp_layout *l, uint32_t local);
uint32_t ddp_layout_cross_rank(const struct ddp_layout *l, uint32_t node,
			       uint32_t local);

/* Frees the arrays; safe on a zeroed layout and twice. */
void ddp_layout_clear(struct ddp_layout *l);

#endif
