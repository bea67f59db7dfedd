/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of visible GPUs, as CUDA_VISIBLE_DEVICES and its like have them:
 * numbers, or names (GPU-…, MIG-…) that are kept as they are.
 */
#ifndef DDP_VIS_H
#define DDP_VIS_H

#include "core/ddp_place.h"

#define DDP_VIS_MAX DDP_BIND_GPUS
#define DDP_VIS_WORD 96

struct ddp_vis {
	unsigned n;
	char word[DDP_VIS_MAX][DDP_VIS_WORD];
};

/* Does the list say that there is no GPU? Slurm writes NoDevFiles. */
bool ddp_vis_is_none(const char *list);

/*
 * Read a list. 0, or -1 where it is none: empty, too long, an empty entry, an
 * entry twice, one that is neither a number nor a name that starts with GPU-
 * or MIG-.
 */
int ddp_vis_parse(struct ddp_vis *v, const char *list);

/* The number that an entry is, or -1 for a name. */
int ddp_vis_index(const char *word);

/* Entries order[0 … n - 1] of v as a list; 0, or -1 if it does not fit. */
int ddp_vis_format(const struct ddp_vis *v, const unsigned *order, unsigned n,
		   char *buf, size_t size);

#endif
