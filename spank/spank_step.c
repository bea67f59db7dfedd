/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task on its node, between the drop to the user's ids and the exec of the
 * program. The plan is hostile text until it agrees with what slurmstepd
 * itself says of the step. A failure ends the task with a message: a rank
 * that runs with a wrong world is worse than one that does not run.
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_cpus.h"
#include "core/ddp_probe.h"
#include "spank/spank_ddp.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct task {
	spank_t sp;
	struct ddp_plan plan;
	struct ddp_rank r;
	uint32_t local_tasks;
	char node[128];
	char ifname[DDP_IFNAME_MAX];
};

/*
 * Say why and end the task. Not by the return code: Slurm adds two lines of
 * noise to it, and ignores it where plugstack.conf says "optional".
 */
static void __attribute__((noreturn)) refuse(const struct task *t,
					     const struct ddp_err *err)
{
	dprintf(STDERR_FILENO, DDP_MSG "error: node %s, rank %" PRIu32 ": %s\n",
		t->node, t->r.rank, err->text);
	_exit(1);
}

static bool get_u32(spank_t sp, spank_item_t item, uint32_t *out)
{
	return spank_get_item(sp, item, out) == ESPANK_SUCCESS;
}

/* Ids and counts as slurmstepd has them; they decide over the plan's. */
static int check_plan(struct task *t, struct ddp_err *err)
{
	const struct ddp_layout *l = &t->plan.layout;
	uint32_t job, step, nnodes, ntasks;
	int local = 0;

	if (!get_u32(t->sp, S_JOB_ID, &job) ||
	    !get_u32(t->sp, S_JOB_STEPID, &step) ||
	    !get_u32(t->sp, S_JOB_NNODES, &nnodes) ||
	    !get_u32(t->sp, S_JOB_TOTAL_TASK_COUNT, &ntasks) ||
	    !get_u32(t->sp, S_JOB_NODEID, &t->r.node) ||
	    !get_u32(t->sp, S_JOB_LOCAL_TASK_COUNT, &t->local_tasks) ||
	    spank_get_item(t->sp, S_TASK_ID, &local) != ESPANK_SUCCESS)
		return ddp_err_set(err, DDP_ESYS, "slurmstepd does not say "
				   "which task this is");
	t->r.local = (uint32_t)local;
	if (job != t->plan.job || step != t->plan.step)
		return ddp_err_set(err, DDP_EINCONS, "the launch plan is for "
			"step %u.%u, this is %u.%u; unset " DDP_PLAN_ENV,
			t->plan.job, t->plan.step, job, step);
	if (nnodes != l->nnodes || ntasks != l->ntasks ||
	    t->r.node >= l->nnodes || t->r.rank >= l->ntasks ||
	    l->tasks[t->r.node] != t->local_tasks ||
	    t->r.local >= t->local_tasks ||
	    (!t->r.rank && t->r.node != l->first))
		return ddp_err_set(err, DDP_EINCONS, "the launch plan has %u "
			"tasks on %u nodes, slurmstepd has %u on %u (node %u: "
			"%u tasks)", l->ntasks, l->nnodes, ntasks, nnodes,
			t->r.node, t->local_tasks);
	return 0;
}

/* The text of the plan; NULL if this task is no launch of ours. */
static char *read_plan(struct task *t, struct ddp_err *err)
{
	char *text = malloc(DDP_PLAN_MAX);
	spank_err_t rc;

	if (!text) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		refuse(t, err);
	}
	rc = spank_getenv(t->sp, DDP_PLAN_ENV, text, (int)DDP_PLAN_MAX);
	if (rc == ESPANK_SUCCESS)
		return text;
	free(text);
	if (rc == ESPANK_NOSPACE) {
		ddp_err_set(err, DDP_ENOSPC, "launch plan: too long");
		refuse(t, err);
	}
	return NULL;
}

/* Entries of CUDA_VISIBLE_DEVICES; 0 if there is none. */
static uint32_t count_gpus(spank_t sp)
{
	char text[4096];
	uint32_t n = 1;

	if (spank_getenv(sp, "CUDA_VISIBLE_DEVICES", text, sizeof(text)) !=
	    ESPANK_SUCCESS || !text[0] || !strncmp(text, "NoDevFiles", 10))
		return 0;
	for (const char *p = text; (p = strchr(p, ',')); p++)
		n++;
	return n;
}

static int find_iface(struct task *t, struct ddp_err *err)
{
	char path[64];

	if (t->plan.iface == DDP_IFACE_NONE)
		return 0;
	if (t->plan.iface == DDP_IFACE_NAME) {
		snprintf(path, sizeof(path), "/sys/class/net/%s",
			 t->plan.ifname);
		if (access(path, F_OK))
			return ddp_err_set(err, DDP_EINVAL, "--ddp-iface=%s: "
				"no such interface on this node",
				t->plan.ifname);
		t->r.ifname = t->plan.ifname;
		return 0;
	}
	if (!t->plan.ip[0] ||
	    ddp_probe_iface(t->plan.ip, t->ifname, sizeof(t->ifname)))
		return ddp_err_set(err, DDP_ESYS, "--ddp-iface=auto: no "
			"interface leads to %s; name one", t->plan.addr);
	t->r.ifname = t->ifname;
	return 0;
}

/* A loopback address is right only if all nodes are this very host. */
static int check_loopback(const struct task *t, struct ddp_err *err)
{
	char host[DDP_HOST_MAX] = "";

	if (t->plan.layout.nnodes < 2 || !t->plan.host[0] ||
	    !ddp_text_is_loopback(t->plan.addr))
		return 0;
	(void)gethostname(host, sizeof(host) - 1);
	if (strcspn(host, ".") == strcspn(t->plan.host, ".") &&
	    !strncmp(host, t->plan.host, strcspn(host, ".")))
		return 0;
	return ddp_err_set(err, DDP_EINCONS, "the master address %s is a "
		"loopback address, but rank 0 runs on host %s and this is %s; "
		"use --ddp-master-addr=ADDR, or correct NodeAddr in slurm.conf",
		t->plan.addr, t->plan.host, host);
}

/* Rank 0 only: the port must be free, here and now. */
static int check_port(const struct task *t, struct ddp_err *err)
{
	uint32_t lo, hi;

	if (ddp_probe_bind(t->plan.port) == DDP_PORT_BUSY)
		return ddp_err_set(err, DDP_EBUSY, "master port %u has been "
			"taken on this node since srun chose it; start the "
			"step again (it gets another port), or use "
			"--ddp-master-port=PORT", t->plan.port);
	if (!ddp_probe_ephemeral(&lo, &hi) && t->plan.port >= lo &&
	    t->plan.port <= hi)
		dprintf(STDERR_FILENO, DDP_MSG "warning: node %s: master port "
			"%u lies in net.ipv4.ip_local_port_range (%u-%u): an "
			"outgoing connection can take it\n", t->node,
			t->plan.port, lo, hi);
	return 0;
}

static int set_var(void *arg, const struct ddp_var *v)
{
	struct task *t = arg;
	char other[2];
	spank_err_t rc;

	if (v->unless && spank_getenv(t->sp, v->unless, other,
				      sizeof(other)) != ESPANK_ENV_NOEXIST)
		return 0;
	rc = spank_setenv(t->sp, v->name, v->value,
			  !(v->flags & DDP_VAR_DEFAULT));
	return rc == ESPANK_SUCCESS || rc == ESPANK_ENV_EXISTS ? 0 : -1;
}

static void hint_gpus(const struct task *t)
{
	if (t->local_tasks == 1 && t->r.gpus > 1 &&
	    t->plan.frameworks & (1U << DDP_FW_TORCH))
		dprintf(STDERR_FILENO, DDP_MSG "hint: one task on node %s sees "
			"%u GPUs; --ntasks-per-node=%u gives each GPU a rank\n",
			t->node, t->r.gpus, t->r.gpus);
}

static int prepare(struct task *t, const struct ddp_spank *state,
		   struct ddp_err *err)
{
	if (check_plan(t, err) || check_loopback(t, err) ||
	    ddp_site_check(&state->site, t->plan.given, t->plan.port, err) ||
	    find_iface(t, err))
		return -1;
	t->r.threads = ddp_cpus_cores(t->local_tasks);
	t->r.gpus = count_gpus(t->sp);
	if (!t->r.rank) {
		if (check_port(t, err))
			return -1;
		hint_gpus(t);
	}
	if (ddp_env_each(&t->plan, &t->r, set_var, t))
		return ddp_err_set(err, DDP_ENOMEM, "the environment could "
				   "not be set");
	if (t->plan.verify || ddp_compat_task_prolog())
		return ddp_verify_start(&t->plan, &t->r, t->node, err);
	return 0;
}

static void launch_task(struct task *t, const struct ddp_spank *state)
{
	struct ddp_err err;
	char *text;

	if (spank_getenv(t->sp, "SLURMD_NODENAME", t->node,
			 sizeof(t->node)) != ESPANK_SUCCESS)
		strcpy(t->node, "?");
	(void)get_u32(t->sp, S_TASK_GLOBAL_ID, &t->r.rank);
	text = read_plan(t, &err);
	if (!text)
		return;
	(void)spank_unsetenv(t->sp, DDP_PLAN_ENV);
	if (ddp_plan_parse(&t->plan, text, &err) || prepare(t, state, &err))
		refuse(t, &err);
	free(text);
	ddp_plan_clear(&t->plan);
}

/* Does the first MiB of the file contain the word anywhere? */
static bool file_mentions(const char *path, const char *word)
{
	char *text = malloc((1 << 20) + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t used = 0;
	ssize_t n;
	bool found = true;	/* what cannot be read is not complained of */

	while (text && fd >= 0 && used < 1 << 20 &&
	       (n = read(fd, text + used, (1 << 20) - used)) > 0)
		used += (size_t)n;
	if (used)
		found = memmem(text, used, word, strlen(word));
	if (fd >= 0)
		close(fd);
	free(text);
	return found;
}

/* The batch script is left alone; it only hears if it launches nothing. */
static void hint_batch(spank_t sp)
{
	char mode[16], **argv = NULL;
	int argc = 0;

	if (spank_getenv(sp, "SLURM_DDP_LAUNCH", mode, sizeof(mode)) !=
	    ESPANK_SUCCESS || !strcmp(mode, "off") ||
	    spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS ||
	    argc < 1 || !argv || !argv[0])
		return;
	if (!file_mentions(argv[0], "srun") &&
	    !file_mentions(argv[0], "mpirun") &&
	    !file_mentions(argv[0], "mpiexec"))
		dprintf(STDERR_FILENO, DDP_MSG "hint: --ddp-launch was given "
			"to sbatch, but the script calls no srun: the script "
			"itself is not launched as ranks; write \"srun "
			"python3 train.py\" in it\n");
}

int ddp_step_task_init(spank_t sp, const struct ddp_spank *state)
{
	struct task *t;
	uint32_t step = 0;

	if (!get_u32(sp, S_JOB_STEPID, &step))
		return 0;
	if (!ddp_compat_step_is_normal(step)) {
		if (ddp_compat_step_is_batch(step))
			hint_batch(sp);
		return 0;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return -1;
	t->sp = sp;
	launch_task(t, state);
	free(t);
	return 0;
}
