/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of ddp_compat_acct.h. */
#ifndef DDP_COMPAT_ACCT_INT_H
#define DDP_COMPAT_ACCT_INT_H

#include "compat/ddp_compat_acct.h"

#include <slurm/slurm.h>
#include <slurm/slurmdb.h>

#define DDP_ACCT_GPU_TYPES 64

struct ddp_acct {
	void *db;
	uint32_t metric[DDP_ACCT_METRICS];	/* TRES ids; 0: there is none */
	uint32_t gpu;				/* gres/gpu */
	uint32_t gpu_type[DDP_ACCT_GPU_TYPES];	/* gres/gpu:TYPE */
	unsigned ngpu_types;
	unsigned ntres;
	int64_t live_ms;	/* left for asking about running steps */
};

#define DDP_ACCT_LIVE_MS 15000

/* Lists and their iterators are pointers in every release. */
typedef __typeof__(slurm_list_create(NULL)) ddp_acct_list;
typedef __typeof__(slurm_list_iterator_create(NULL)) ddp_acct_iter;

void ddp_acct_usage_init(struct ddp_acct_usage *u);

/* Kind of a step by its number. */
enum ddp_acct_kind ddp_acct_step_kind(uint32_t id);

#endif
