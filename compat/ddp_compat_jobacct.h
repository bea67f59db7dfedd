/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm's structures that compat/ddp_compat_gather.c and
 * compat/ddp_compat_record.c share; not for others.
 */
#ifndef DDP_COMPAT_JOBACCT_H
#define DDP_COMPAT_JOBACCT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <slurm/slurm.h>
#include <slurm/slurmdb.h>

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
/* get_data() is called by task. */
#define DDP_GATHER_BY_TASK 1
typedef list_itr_t list_itr;
#else
#define DDP_GATHER_BY_TASK 0
typedef struct listIterator list_itr;
#endif

/*
 * The usage of a task, or a step, as far as it is the same from 22.05 to
 * 26.05.
 */
struct gather_jobacct {
	pid_t pid;
	uint64_t sys_sec;
	uint32_t sys_usec;
	uint64_t user_sec;
	uint32_t user_usec;
	uint32_t freq;
	acct_gather_energy_t energy;
	double last_cputime, this_cputime;
	uint32_t weighted_freq, weighted_power;
	uint32_t ntres;
	uint32_t *tres_ids;
	void *tres_list;
	uint64_t *in_max, *in_max_node, *in_max_task;
	uint64_t *in_min, *in_min_node, *in_min_task;
	uint64_t *in_tot;
	uint64_t *out_max, *out_max_node, *out_max_task;
	uint64_t *out_min, *out_min_node, *out_min_task;
	uint64_t *out_tot;
	struct {
		uint32_t taskid, nodeid;
		void *step;
	} id;
};

#endif
