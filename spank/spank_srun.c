/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun's side: validate before anything is allocated; once the step exists,
 * look up its layout and rank 0's address (two RPCs a step, whatever its
 * size), choose the master port and put the plan into the launch
 * environment.
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_explain.h"
#include "core/ddp_master.h"
#include "core/ddp_probe.h"
#include "core/ddp_task.h"
#include "spank/spank_ddp.h"

#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

int ddp_srun_post_opt(struct ddp_spank *state)
{
	struct ddp_err err;

	if (ddp_spank_options_resolve(state, &err)) {
		slurm_spank_log(DDP_MSG "error: %s", err.text);
		/* A return code would be ignored where the plugin's line
		 * says "optional"; nothing has been allocated yet. */
		exit(1);
	}
	ddp_spank_options_idle(state);
	if (state->given & 1U << DDP_OPT_READY_TIMEOUT &&
	    state->options.ready_ms && !state->options.lifecycle &&
	    !state->components)
		slurm_spank_log(DDP_MSG "warning: --ddp-ready-timeout has no "
				"effect without --ddp-lifecycle");
	if (++state->components > 1 && state->options.mode != DDP_MODE_OFF &&
	    ((state->options.mode == DDP_MODE_FULL &&
	      ddp_ctl_announce(state, &err)) ||
	     ddp_het_announce(state, &err))) {
		slurm_spank_log(DDP_MSG "error: %s", err.text);
		exit(1);
	}
	return 0;
}

/* mpirun starts its daemons with an srun of its own: not a training. */
static bool is_mpi_daemon(int argc, char **argv)
{
	static const char *const daemons[] = { "orted", "prted",
		"hydra_pmi_proxy", "hydra_bstrap_proxy", NULL };

	for (unsigned i = 0; daemons[i]; i++)
		if (ddp_task_argv_has(argc ? 1 : 0, argv, daemons[i]))
			return true;
	return false;
}

static void hint_torchrun(const struct ddp_plan *plan)
{
	if (plan->layout.ntasks == plan->layout.nnodes)
		slurm_spank_log(DDP_MSG "hint: torchrun finds PET_NNODES, "
			"PET_NODE_RANK, PET_NPROC_PER_NODE, PET_MASTER_ADDR "
			"and PET_MASTER_PORT set; leave --nnodes, --node_rank, "
			"--nproc_per_node, --master_* and --rdzv_* out");
	else
		slurm_spank_log(DDP_MSG "hint: each of the %u tasks runs a "
			"torchrun of its own; use --ntasks-per-node=1 with "
			"torchrun, or start the program without torchrun",
			plan->layout.ntasks);
}

void ddp_srun_pool(const struct ddp_spank *state, struct ddp_portset *set)
{
	uint16_t lo = 0, hi = 0;

	(void)ddp_compat_srun_ports(&lo, &hi);
	ddp_master_pool(&state->site, lo, hi, set);
}

/*
 * Inside a job srun often runs on rank 0's own node, where many systems map
 * the host's name to 127.0.1.1. Other nodes would take that for themselves:
 * use an address of this host that they can reach.
 */
static int avoid_loopback(struct ddp_plan *plan, struct ddp_err *err)
{
	char ctld[DDP_ADDR_MAX], own[DDP_ADDR_MAX];
	bool known = !ddp_compat_controller(ctld, sizeof(ctld));

	if (plan->layout.nnodes < 2 || !ddp_text_is_loopback(plan->ip) ||
	    ddp_text_is_loopback(plan->addr) ||
	    plan->given & (1U << DDP_OPT_MASTER_ADDR))
		return 0;
	if (ddp_probe_own(known ? ctld : NULL, own))
		return ddp_err_set(err, DDP_EINCONS, "the address %s of rank "
			"0's node resolves to the loopback address %s here, "
			"and this host has no other; use "
			"--ddp-master-addr=ADDR, or correct /etc/hosts",
			plan->addr, plan->ip);
	(void)ddp_text_copy(plan->ip, sizeof(plan->ip), own);
	return ddp_text_copy(plan->addr, sizeof(plan->addr), own);
}

int ddp_srun_addr(struct ddp_plan *plan, const char *nodes, bool rpc,
		  struct ddp_err *err)
{
	if (ddp_compat_master_addr(plan, nodes, rpc, err))
		return -1;
	(void)ddp_probe_resolve(plan->addr, plan->ip);
	return rpc ? avoid_loopback(plan, err) : 0;
}

void ddp_srun_plan_init(const struct ddp_spank *state, struct ddp_plan *plan)
{
	const struct ddp_options *o = &state->options;
	const char *restart = getenv("SLURM_RESTART_COUNT");

	memset(plan, 0, sizeof(*plan));
	plan->mode = o->mode;
	plan->frameworks = o->frameworks;
	plan->given = state->given;
	plan->port = o->port;
	plan->iface = o->iface;
	memcpy(plan->ifname, o->ifname, sizeof(plan->ifname));
	memcpy(plan->addr, o->addr, sizeof(plan->addr));
	plan->life = o->lifecycle;
	plan->verify = ddp_cmdline_task_prolog();
	if (restart)
		(void)ddp_text_u32(restart, 0, UINT32_MAX, &plan->restart);
}

/* The id that tasks see as SLURM_JOB_ID: in a heterogeneous job that of its
 * first component, whichever one runs this step. */
static uint32_t visible_job(uint32_t job)
{
	uint32_t jobs[DDP_HET_MAX];
	unsigned n = ddp_compat_het_jobs(jobs);

	for (unsigned i = 0; i < n; i++)
		if (jobs[i] == job)
			return jobs[0];
	return job;
}

static int make_plan(struct ddp_plan *plan, const struct ddp_spank *state,
		     struct ddp_compat_step *step, struct ddp_err *err)
{
	bool tf = plan->frameworks & DDP_FW_BIT(DDP_FW_TF);
	/* Rank 0's agent finds one itself; this one is for a start without. */
	bool probe = plan->mode != DDP_MODE_FULL || tf ||
		state->options.prefer;
	struct ddp_portset set;

	if (ddp_compat_step_get(plan->job, plan->step, tf, step, err))
		return -1;
	plan->layout = step->layout;
	memset(&step->layout, 0, sizeof(step->layout));
	if (ddp_srun_addr(plan, step->nodes, true, err))
		return -1;
	if (tf) {
		plan->tf_map = step->map;
		step->map = NULL;
		plan->tf_addrs = ddp_compat_node_addrs(step->nodes,
				plan->layout.nnodes, true, err);
		if (!plan->tf_addrs)
			return -1;
	}
	ddp_srun_pool(state, &set);
	if (ddp_master_choose(plan, &set, probe, err))
		return -1;
	plan->job = visible_job(plan->job);
	return ddp_site_check(&state->site, plan->given, plan->port, err);
}

/* Collects what the launch replaces, for one warning a step. */
struct replaced {
	char text[400];
	size_t pos;
	bool single;	/* a world of one rank: rank 0's values are all */
};

static int note_replaced(void *arg, const struct ddp_var *v)
{
	struct replaced *r = arg;
	const char *had = ddp_cmdline_task_env(v->name);
	char shown[40];

	if (!had || v->flags & (DDP_VAR_DEFAULT | DDP_VAR_ON_NODE) ||
	    !strcmp(had, DDP_SENTINEL))
		return 0;
	if (!strcmp(had, v->value) &&
	    (r->single || !(v->flags & DDP_VAR_PER_RANK)))
		return 0;
	return ddp_text_add(r->text, sizeof(r->text), &r->pos, "%s%s=%s",
			    r->pos ? ", " : "", v->name,
			    ddp_text_safe(had, shown, sizeof(shown)));
}

static void warn_replaced(const struct ddp_plan *plan)
{
	struct ddp_rank r = { .node = plan->layout.first };
	struct replaced list = { .single = plan->layout.ntasks == 1 };

	(void)ddp_env_each(plan, &r, note_replaced, &list);
	if (list.pos)
		slurm_spank_log(DDP_MSG "warning: inherited %s: replaced by "
				"the launch", list.text);
}

/* Would every rank's environment fit? Asked here, before anything starts. */
static int check_tf(const struct ddp_plan *plan, struct ddp_err *err)
{
	struct ddp_rank r = { .node = plan->layout.first };
	char *text;

	if (!(plan->frameworks & DDP_FW_BIT(DDP_FW_TF)))
		return 0;
	text = ddp_env_tf(plan, &r, err);
	free(text);
	return text ? 0 : -1;
}

static void explain_line(void *arg, const char *text)
{
	(void)arg;
	slurm_spank_log(DDP_MSG "%s", text);
}

static const char *explain_had(void *arg, const char *name)
{
	const char *had = ddp_cmdline_task_env(name);

	(void)arg;
	return had && strcmp(had, DDP_SENTINEL) ? had : NULL;
}

int ddp_srun_publish(const struct ddp_spank *state,
		     const struct ddp_plan *plan, const char *nodes,
		     struct ddp_err *err)
{
	const struct ddp_options *o = &state->options;
	const struct ddp_explain_ops ops = { explain_line, explain_had, NULL,
		o->bind != DDP_BIND_NONE || o->gpus != DDP_GPUS_AUTO };
	struct ddp_plan shown = *plan;

	if (shown.mode == DDP_MODE_FULL &&
	    !(shown.given & (1U << DDP_OPT_MASTER_PORT)))
		shown.port = 0;
	if (check_tf(plan, err))
		return -1;
	warn_replaced(plan);
	if (state->options.explain)
		ddp_explain(&shown, nodes, &ops);
	return 0;
}

/* The plan and, for nodes without the plugin, the sentinels. */
int ddp_srun_publish_env(const struct ddp_plan *plan, struct ddp_err *err)
{
	char *text = ddp_plan_format(plan, err);
	int rc;

	if (!text)
		return -1;
	rc = setenv(DDP_PLAN_ENV, text, 1);
	free(text);
	for (unsigned i = 0; !rc && ddp_env_sentinels[i]; i++)
		rc = setenv(ddp_env_sentinels[i], DDP_SENTINEL, 1);
	return rc ? ddp_err_set(err, DDP_ENOMEM, "out of memory") : 0;
}

/*
 * The controller, started before the questions to slurmctld so that both
 * take their time together. Without one the step goes on if it may.
 */
int ddp_srun_controller(struct ddp_spank *state, struct ddp_plan *plan,
			struct ddp_err *err)
{
	if (ddp_cmdline_keep_running() &&
	    !(state->given & (1U << DDP_OPT_ABORT)))
		state->options.abort = DDP_ABORT_NONE;
	if (!ddp_ctl_announce(state, err) && !ddp_ctl_spawn(state, err)) {
		if (!getenv(DDP_REDUCE_ENV))
			(void)setenv(DDP_REDUCE_ENV, DDP_REDUCE_OURS, 1);
		return 0;
	}
	if (!state->options.prefer || state->components > 1)
		return -1;
	slurm_spank_log(DDP_MSG "warning: %s; starting in stateless mode",
			err->text);
	ddp_ctl_drop();
	plan->mode = DDP_MODE_STATELESS;
	return 0;
}

static int launch_plain(spank_t sp, struct ddp_spank *state, int argc,
			char **argv, struct ddp_err *err)
{
	struct ddp_compat_step step;
	struct ddp_plan plan;
	int rc = 0;

	memset(&step, 0, sizeof(step));
	ddp_srun_plan_init(state, &plan);
	(void)spank_get_item(sp, S_JOB_ID, &plan.job);
	(void)spank_get_item(sp, S_JOB_STEPID, &plan.step);
	if (plan.mode == DDP_MODE_FULL)
		rc = ddp_srun_controller(state, &plan, err);
	if (!rc)
		rc = make_plan(&plan, state, &step, err);
	if (!rc)
		rc = ddp_srun_publish(state, &plan, step.nodes, err);
	if (!rc && ddp_task_argv_torchrun(argc, argv))
		hint_torchrun(&plan);
	if (!rc)
		rc = ddp_place_announce(state, err);
	if (!rc)
		rc = ddp_srun_publish_env(&plan, err);
	if (!rc && plan.mode == DDP_MODE_FULL)
		rc = ddp_ctl_tell(state, &plan, step.nodes, err);
	ddp_compat_step_clear(&step);
	ddp_plan_clear(&plan);
	return rc;
}

/* Not a launch, on purpose: a SLURM_DDP_LAUNCH in the tasks' environment is
 * no sign of an srun without the plugin then. */
static int launch_off(void)
{
	const char *mode = getenv("SLURM_DDP_LAUNCH");

	if (mode && mode[0] && strcmp(mode, "off"))
		(void)setenv(DDP_PLAN_ENV, DDP_PLAN_OFF, 1);
	return 0;
}

int ddp_srun_user_init(spank_t sp, struct ddp_spank *state)
{
	struct ddp_err err;
	uint32_t step;
	char **argv = NULL;
	int argc = 0, rc;

	if (spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS) {
		slurm_spank_log(DDP_MSG "error: srun does not know its step");
		return -1;
	}
	if (!ddp_compat_step_is_normal(step))	/* salloc's interactive one */
		return 0;
	if (spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS)
		argc = 0;
	if (state->options.mode == DDP_MODE_OFF || is_mpi_daemon(argc, argv))
		return launch_off();
	ddp_cmdline_read(argc);
	rc = state->components > 1 ? ddp_het_launch(sp, state, &err) :
		launch_plain(sp, state, argc, argv, &err);
	ddp_cmdline_clear();
	if (!rc)
		return 0;
	slurm_spank_log(DDP_MSG "error: %s", err.text);
	/*
	 * srun exits at a failure here too, but only for a "required"
	 * plugin; for an "optional" one it would start ranks without a
	 * world. The tasks would refuse, but in a heterogeneous step not all
	 * of them hear.
	 */
	(void)setenv(DDP_PLAN_ENV, DDP_PLAN_REFUSED, 1);
	exit(1);
}
