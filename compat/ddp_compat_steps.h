/* SPDX-License-Identifier: Apache-2.0 */
/* slurm_get_job_steps() of every release; inside compat only. */
#ifndef DDP_COMPAT_STEPS_H
#define DDP_COMPAT_STEPS_H

#include <slurm/slurm.h>

/*
 * The steps of a job that slurmctld has; step: one of them, or NO_VAL. 0, or
 * an error with errno set. Free with slurm_free_job_step_info_response_msg().
 */
int ddp_compat_steps_load(uint32_t job, uint32_t step,
			  job_step_info_response_msg_t **msg);

#endif
