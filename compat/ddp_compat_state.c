/* SPDX-License-Identifier: Apache-2.0 */
/* Is Slurm ending a step? And: end it. */
#include "config.h"

#include "compat/ddp_compat.h"
#include "compat/ddp_compat_steps.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

/*
 * The calls of the releases differ in their arguments only; which ones this
 * release has, its header tells the compiler.
 */
typedef int job_by_number(job_info_msg_t **, uint32_t, uint16_t);
typedef int job_by_id(job_info_msg_t **, slurm_step_id_t, uint16_t);
typedef int steps_by_time(time_t, uint32_t, uint32_t,
			  job_step_info_response_msg_t **, uint16_t);
typedef int steps_by_id(slurm_step_id_t *, job_step_info_response_msg_t **,
			uint16_t);
typedef int kill_plain(uint32_t, uint32_t, uint16_t);
typedef int kill_flags(uint32_t, uint32_t, uint16_t, uint16_t);
typedef int kill_by_id(slurm_step_id_t *, uint16_t, uint16_t);

#define JOB_FORM _Generic(&slurm_load_job, job_by_number *: 0, job_by_id *: 1)
#define STEPS_FORM _Generic(&slurm_get_job_steps, steps_by_time *: 0, \
			    steps_by_id *: 1)
#define KILL_FORM _Generic(&slurm_kill_job_step, kill_plain *: 0, \
			   kill_flags *: 1, kill_by_id *: 2)

static slurm_step_id_t step_id(uint32_t job, uint32_t step)
{
	slurm_step_id_t id;

	memset(&id, 0, sizeof(id));
	id.job_id = job;
	id.step_id = step;
	id.step_het_comp = NO_VAL;
	return id;
}

static int load_job(uint32_t job, job_info_msg_t **msg)
{
	void (*fn)(void) = (void (*)(void))&slurm_load_job;

	if (JOB_FORM == 1)
		return ((job_by_id *)fn)(msg, step_id(job, NO_VAL), SHOW_ALL);
	return ((job_by_number *)fn)(msg, job, SHOW_ALL);
}

int ddp_compat_steps_load(uint32_t job, uint32_t step,
			  job_step_info_response_msg_t **msg)
{
	void (*fn)(void) = (void (*)(void))&slurm_get_job_steps;
	slurm_step_id_t id = step_id(job, step);

	if (STEPS_FORM == 1)
		return ((steps_by_id *)fn)(&id, msg, SHOW_ALL);
	return ((steps_by_time *)fn)((time_t)0, job, step, msg, SHOW_ALL);
}

static int kill_step(uint32_t job, uint32_t step)
{
	void (*fn)(void) = (void (*)(void))&slurm_kill_job_step;
	slurm_step_id_t id = step_id(job, step);

	if (KILL_FORM == 2)
		return ((kill_by_id *)fn)(&id, SIGKILL, 0);
	if (KILL_FORM == 1)
		return ((kill_flags *)fn)(job, step, SIGKILL, 0);
	return ((kill_plain *)fn)(job, step, SIGKILL);
}

/*
 * scancel, the job's time limit, preemption and a failed node change the
 * base state or set COMPLETING before any signal is sent; requeue makes it
 * PENDING. Preemption with a GraceTime leaves the job RUNNING, signals it,
 * and sets preempt_time. A suspended job is not ended.
 */
static enum ddp_step_state job_state(const slurm_job_info_t *j)
{
	uint32_t base = j->job_state & JOB_STATE_BASE;

	if (j->preempt_time)
		return DDP_STEP_CANCELLED;
	if (base == JOB_COMPLETE || base == JOB_FAILED || base == JOB_OOM)
		return DDP_STEP_GONE;
	if ((base != JOB_RUNNING && base != JOB_SUSPENDED) ||
	    j->job_state & (JOB_COMPLETING | JOB_REQUEUE | JOB_REQUEUE_HOLD |
			    JOB_SPECIAL_EXIT))
		return DDP_STEP_CANCELLED;
	return DDP_STEP_RUNNING;
}

static enum ddp_step_state ask_job(uint32_t job)
{
	enum ddp_step_state state = DDP_STEP_GONE;
	job_info_msg_t *msg = NULL;

	if (load_job(job, &msg))
		return errno == ESLURM_INVALID_JOB_ID ? DDP_STEP_GONE :
			DDP_STEP_UNKNOWN;
	/* A heterogeneous job's first id brings all its components. */
	for (uint32_t i = 0; i < msg->record_count; i++)
		if (msg->job_array[i].job_id == job)
			state = job_state(&msg->job_array[i]);
	slurm_free_job_info_msg(msg);
	return state;
}

/* The step's own time limit is the only end that its record shows. */
static enum ddp_step_state ask_step(uint32_t job, uint32_t step)
{
	enum ddp_step_state state = DDP_STEP_GONE;
	job_step_info_response_msg_t *msg = NULL;

	if (ddp_compat_steps_load(job, step, &msg))
		return errno == ESLURM_INVALID_JOB_ID ? DDP_STEP_GONE :
			DDP_STEP_UNKNOWN;
	for (uint32_t i = 0; i < msg->job_step_count; i++) {
		uint32_t s = msg->job_steps[i].state & JOB_STATE_BASE;

		if (msg->job_steps[i].step_id.step_id != step)
			continue;
		if (s == JOB_TIMEOUT || s == JOB_CANCELLED)
			state = DDP_STEP_CANCELLED;
		else if (state != DDP_STEP_CANCELLED)
			state = DDP_STEP_RUNNING;
	}
	slurm_free_job_step_info_response_msg(msg);
	return state;
}

enum ddp_step_state ddp_compat_step_state(uint32_t job, uint32_t step)
{
	enum ddp_step_state state = ask_job(job);

	return state == DDP_STEP_RUNNING ? ask_step(job, step) : state;
}

int ddp_compat_step_kill(uint32_t job, uint32_t step, struct ddp_err *err)
{
	if (kill_step(job, step) && errno != ESLURM_ALREADY_DONE)
		return ddp_err_set(err, DDP_ESYS, "step %u.%u cannot be "
				   "killed: %s", job, step,
				   slurm_strerror(errno));
	return 0;
}
