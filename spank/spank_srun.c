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
#include "core/ddp_probe.h"
#include "spank/spank_ddp.h"

#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

/* Candidates that are tried, and how long a silent host is waited for. */
#define PORT_TRIES 64
#define PROBE_MS 300

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
	if (++state->components > 1 && state->options.mode != DDP_MODE_OFF) {
		slurm_spank_log(DDP_MSG "error: heterogeneous steps are not "
				"supported yet; use --ddp-launch=off or one "
				"component");
		exit(1);
	}
	return 0;
}

/* mpirun starts its daemons with an srun of its own: not a training. */
static bool is_mpi_daemon(int argc, char **argv)
{
	static const char *const daemons[] = { "orted", "prted",
		"hydra_pmi_proxy", "hydra_bstrap_proxy", NULL };
	const char *base;

	if (argc < 1 || !argv || !argv[0])
		return false;
	base = strrchr(argv[0], '/');
	base = base ? base + 1 : argv[0];
	for (unsigned i = 0; daemons[i]; i++)
		if (!strcmp(base, daemons[i]))
			return true;
	return false;
}

static bool is_torchrun(int argc, char **argv)
{
	for (int i = 0; argv && i < argc && argv[i]; i++) {
		const char *base = strrchr(argv[i], '/');

		if (!strcmp(base ? base + 1 : argv[i], "torchrun") ||
		    !strcmp(argv[i], "torch.distributed.run") ||
		    !strcmp(argv[i], "torch.distributed.launch"))
			return true;
	}
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

/* Ports that a step may use here, in the order of preference. */
static void port_pool(const struct ddp_site *site, struct ddp_portset *set)
{
	uint16_t lo, hi;

	if (site->port_lo) {	/* the site knows better than any rule */
		ddp_portset_init(set, site->port_lo, site->port_hi);
		return;
	}
	for (uint32_t low = 20000;; low = 1024) {
		ddp_portset_init(set, low, 65535);
		ddp_probe_exclude(set);
		if (ddp_compat_srun_ports(&lo, &hi))
			ddp_portset_exclude(set, lo, hi);
		if (set->total >= PORT_TRIES || low == 1024)
			return;
	}
}

static enum ddp_probe_result probe(const struct ddp_plan *plan, bool local,
				   uint16_t port)
{
	if (local)
		return ddp_probe_bind(port);
	if (!plan->ip[0])
		return DDP_PORT_UNKNOWN;
	return ddp_probe_connect(plan->ip, port, PROBE_MS);
}

/*
 * The first candidate without a listener on rank 0's node. A host that does
 * not answer in time is not asked again: rank 0 binds the port once more
 * before it starts, and reports it if it is taken.
 */
static int choose_port(struct ddp_plan *plan, const struct ddp_site *site,
		       struct ddp_err *err)
{
	bool local = plan->ip[0] && ddp_probe_is_local(plan->ip);
	struct ddp_portset set;

	if (plan->port) {
		if (probe(plan, local, plan->port) == DDP_PORT_BUSY)
			return ddp_err_set(err, DDP_EBUSY, "master port %u is "
				"in use on %s; choose another one or "
				"--ddp-master-port=auto", plan->port,
				plan->addr);
		return 0;
	}
	port_pool(site, &set);
	if (!set.total)
		return ddp_err_set(err, DDP_EBUSY, "no port is left outside "
			"net.ipv4.ip_local_port_range and SrunPortRange; use "
			"--ddp-master-port=PORT, or set port_range= in "
			"plugstack.conf");
	for (uint32_t i = 0; i < PORT_TRIES; i++) {
		plan->port = ddp_port_candidate(&set, plan->job, plan->step,
						plan->restart, i);
		if (probe(plan, local, plan->port) != DDP_PORT_BUSY)
			return 0;
	}
	return ddp_err_set(err, DDP_EBUSY, "%u candidate ports are in use on "
			   "%s; use --ddp-master-port=PORT", PORT_TRIES,
			   plan->addr);
}

/* MASTER_ADDR: what the user said, else the NodeAddr of rank 0's node. */
static int choose_addr(struct ddp_plan *plan, const struct ddp_options *o,
		       const char *nodes, struct ddp_err *err)
{
	struct ddp_compat_node node;
	char name[256], shown[64];
	const char *addr = o->addr;

	if (!addr[0]) {
		if (ddp_compat_node_name(nodes, plan->layout.first, name,
					 sizeof(name), err) ||
		    ddp_compat_node(name, &node, err))
			return -1;
		if (!ddp_text_is_addr(node.addr))
			return ddp_err_set(err, DDP_EINVAL, "NodeAddr \"%s\" "
				"of node %s is no address; use "
				"--ddp-master-addr=ADDR",
				ddp_text_safe(node.addr, shown, sizeof(shown)),
				name);
		addr = node.addr;
		if (!ddp_text_is_addr(node.host) ||
		    ddp_text_copy(plan->host, sizeof(plan->host), node.host))
			plan->host[0] = '\0';
	}
	(void)ddp_probe_resolve(addr, plan->ip);
	return ddp_text_copy(plan->addr, sizeof(plan->addr), addr);
}

static int make_plan(struct ddp_plan *plan, const struct ddp_spank *state,
		     char **nodes, struct ddp_err *err)
{
	const struct ddp_options *o = &state->options;
	const char *restart = getenv("SLURM_RESTART_COUNT");

	plan->mode = o->mode;
	plan->frameworks = o->frameworks;
	plan->given = state->given;
	plan->port = o->port;
	plan->iface = o->iface;
	memcpy(plan->ifname, o->ifname, sizeof(plan->ifname));
	plan->verify = ddp_cmdline_task_prolog();
	if (restart)
		(void)ddp_text_u32(restart, 0, UINT32_MAX, &plan->restart);
	if (ddp_compat_layout(plan->job, plan->step, &plan->layout, nodes,
			      err) ||
	    choose_addr(plan, o, *nodes, err) ||
	    choose_port(plan, &state->site, err))
		return -1;
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

/* The plan and, for nodes without the plugin, the sentinels. */
static int publish(const struct ddp_plan *plan, struct ddp_err *err)
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

static int launch(struct ddp_plan *plan, const struct ddp_spank *state,
		  int argc, char **argv)
{
	struct ddp_err err;
	char *nodes = NULL;
	int rc;

	ddp_cmdline_read(argc);
	rc = make_plan(plan, state, &nodes, &err);
	if (!rc) {
		warn_replaced(plan);
		if (state->options.explain)
			ddp_explain(plan, nodes);
		if (is_torchrun(argc, argv))
			hint_torchrun(plan);
		rc = publish(plan, &err);
	}
	if (rc) {
		slurm_spank_log(DDP_MSG "error: %s", err.text);
		/* Where an "optional" plugin's failure is ignored, the tasks
		 * refuse to start. */
		(void)setenv(DDP_PLAN_ENV, DDP_PLAN_REFUSED, 1);
	}
	ddp_cmdline_clear();
	free(nodes);
	return rc;
}

int ddp_srun_user_init(spank_t sp, struct ddp_spank *state)
{
	struct ddp_plan plan;
	char **argv = NULL;
	int argc = 0, rc;

	memset(&plan, 0, sizeof(plan));
	(void)unsetenv(DDP_PLAN_ENV);
	if (state->options.mode == DDP_MODE_OFF)
		return 0;
	if (spank_get_item(sp, S_JOB_ID, &plan.job) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_STEPID, &plan.step) != ESPANK_SUCCESS) {
		slurm_spank_log(DDP_MSG "error: srun does not know its step");
		return -1;
	}
	if (spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS)
		argc = 0;
	if (!ddp_compat_step_is_normal(plan.step) ||
	    is_mpi_daemon(argc, argv))
		return 0;
	rc = launch(&plan, state, argc, argv);
	ddp_plan_clear(&plan);
	return rc;
}
