/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heterogeneous steps. srun calls the plugin once all components exist, but
 * what it sets then reaches the tasks of one component only; what it set
 * before reaches all. So srun announces its choices early, port included,
 * and the nodes complete them with the components' layouts, through the
 * launcher program: one task a node asks, the others get it from there.
 * Global ids are Slurm's own, component after component.
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_io.h"
#include "core/ddp_master.h"
#include "spank/spank_ddp.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>

/* Longest wait for the launcher program. */
#define ANSWER_MS 45000

/* srun's own look at the step: layout and address into the plan. */
static int het_fill(spank_t sp, struct ddp_plan *plan,
		    struct ddp_compat_step *step, struct ddp_err *err)
{
	uint32_t jobs[DDP_HET_MAX], job = 0;
	unsigned njobs = ddp_compat_het_jobs(jobs);

	(void)spank_get_item(sp, S_JOB_ID, &job);
	(void)spank_get_item(sp, S_JOB_STEPID, &plan->step);
	plan->job = njobs ? jobs[0] : job;
	ddp_layout_clear(&plan->layout);
	if (ddp_compat_het_get(jobs, njobs, job, plan->step, false, step, err))
		return -1;
	plan->layout = step->layout;
	memset(&step->layout, 0, sizeof(step->layout));
	return ddp_srun_addr(plan, step->nodes, false, err);
}

int ddp_het_announce(const struct ddp_spank *state, struct ddp_err *err)
{
	struct ddp_plan plan;
	struct ddp_portset set;
	uint32_t seed[2] = { 1, 1 };
	char *text = NULL;
	int rc;

	ddp_cmdline_read(0);
	ddp_srun_plan_init(state, &plan);
	rc = ddp_place_announce(state, err);
	ddp_cmdline_clear();
	/* Job and step do not exist yet: any candidate is as good. */
	if (getrandom(seed, sizeof(seed), 0) != sizeof(seed))
		seed[0] = 1;
	plan.het = true;
	plan.job = seed[0] ? seed[0] : 1;
	plan.step = seed[1];
	if (!plan.addr[0])
		strcpy(plan.addr, "auto");
	if (!rc)
		rc = ddp_layout_parse(&plan.layout, "1", NULL, err);
	ddp_srun_pool(state, &set);
	if (!rc && plan.frameworks & DDP_FW_BIT(DDP_FW_TF))
		rc = ddp_err_set(err, DDP_EINVAL, "--ddp-frameworks=tf is not "
				 "available for heterogeneous steps; leave tf "
				 "out and set TF_CONFIG in the program");
	if (!rc)
		rc = ddp_master_choose(&plan, &set, false, err);
	if (!rc)
		rc = ddp_site_check(&state->site, plan.given, plan.port, err);
	text = rc ? NULL : ddp_plan_format(&plan, err);
	if (text && setenv(DDP_HET_ENV, text, 1))
		rc = ddp_err_set(err, DDP_ENOMEM, "out of memory");
	for (unsigned i = 0; !rc && text && ddp_env_sentinels[i]; i++)
		if (!getenv(ddp_env_sentinels[i]) &&
		    setenv(ddp_env_sentinels[i], DDP_SENTINEL, 1))
			rc = ddp_err_set(err, DDP_ENOMEM, "out of memory");
	free(text);
	ddp_plan_clear(&plan);
	return rc || !text ? -1 : 0;
}

int ddp_het_launch(spank_t sp, struct ddp_spank *state, struct ddp_err *err)
{
	const char *text = getenv(DDP_HET_ENV);
	struct ddp_compat_step step;
	struct ddp_portset none;
	struct ddp_plan plan;
	int rc;

	memset(&step, 0, sizeof(step));
	if (!text || ddp_plan_parse(&plan, text, err))
		return ddp_err_set(err, DDP_EINCONS, "the announced plan of "
				   "this heterogeneous step is gone");
	rc = plan.mode == DDP_MODE_FULL ?
		ddp_srun_controller(state, &plan, err) : 0;
	if (!rc)
		rc = het_fill(sp, &plan, &step, err);
	ddp_portset_init(&none, 1, 0);
	/* The port stands; is it free on rank 0's node? */
	if (!rc && (plan.mode != DDP_MODE_FULL || state->options.prefer))
		rc = ddp_master_choose(&plan, &none, true, err);
	if (rc && err->code == DDP_EBUSY &&
	    !(plan.given & (1U << DDP_OPT_MASTER_PORT)))
		ddp_err_set(err, DDP_EBUSY, "master port %u, drawn before the "
			    "step existed, is in use on %s; start the step "
			    "again (it draws another)", plan.port, plan.addr);
	if (!rc)
		rc = ddp_srun_publish(state, &plan, step.nodes, err);
	if (!rc)	/* reaches one component, which need not ask then */
		rc = ddp_srun_publish_env(&plan, err);
	if (!rc && plan.mode == DDP_MODE_FULL)
		rc = ddp_ctl_tell(state, &plan, step.nodes, err);
	ddp_compat_step_clear(&step);
	ddp_plan_clear(&plan);
	return rc;
}

/* The launcher with this task's environment; *fd reads its answer. */
static pid_t run_launcher(const char *path, char **env, int *fd)
{
	char *argv[] = { (char *)"ddp-launch", (char *)"--complete-plan",
			 NULL };
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid) {
		if (dup2(fds[1], STDOUT_FILENO) < 0)
			_exit(127);
		execve(path, argv, env);
		_exit(127);
	}
	close(fds[1]);
	*fd = fds[0];
	if (pid < 0)
		close(fds[0]);
	return pid;
}

char *ddp_het_plan(spank_t sp, const struct ddp_spank *state,
		   struct ddp_err *err)
{
	const char *path = state->site.launcher;
	char **env = NULL, *text;
	int fd, status = 0;
	pid_t pid;

	if (spank_get_item(sp, S_JOB_ENV, &env) != ESPANK_SUCCESS || !env) {
		ddp_err_set(err, DDP_ESYS, "slurmstepd does not give the "
			    "environment");
		return NULL;
	}
	pid = run_launcher(path, env, &fd);
	if (pid < 0) {
		ddp_err_set(err, DDP_ESYS, "%s cannot be started: %s", path,
			    strerror(errno));
		return NULL;
	}
	text = ddp_io_read_all(fd, DDP_PLAN_MAX, ANSWER_MS);
	close(fd);
	if (!text)
		kill(pid, SIGKILL);
	if (!ddp_io_wait(pid, &status) && text && WIFEXITED(status) && !WEXITSTATUS(status))
		return text;
	free(text);
	ddp_err_set(err, DDP_ESYS, "heterogeneous step: %s %s", path,
		    WIFEXITED(status) && WEXITSTATUS(status) == 127 ?
		    "is not there; install it, or name it by launcher= in "
		    "plugstack.conf" : "could not complete the launch plan");
	return NULL;
}
