/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm's variables can be stale: a batch script started from inside a task
 * inherits that task's SLURM_STEP_*, and a heterogeneous step looks like any
 * other. The title of slurmstepd ("slurmstepd: [12.0]", "[12.batch]") tells
 * the first, where this process can see it. Components are in the title
 * ("[12.0+1]") of some releases only (not of 26.05), but in the name of
 * slurmstepd's socket ("…/NODE_12.0.1") of all.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_proc.h"
#include "launcher/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANCESTORS_MAX 64

static int need_u32(const char *name, uint32_t min, uint32_t *out,
		    struct ddp_err *err)
{
	const char *text = getenv(name);
	char shown[32];

	if (!text)
		return ddp_err_set(err, DDP_EINVAL, "not inside a Slurm step "
				   "(%s is not set): start it with srun, as in "
				   "\"srun ddp-launch CMD\"", name);
	if (ddp_text_u32(text, min, UINT32_MAX, out))
		return ddp_err_set(err, DDP_EINVAL, "not inside a Slurm step "
				   "(%s is \"%s\")", name,
				   ddp_text_safe(text, shown, sizeof(shown)));
	return 0;
}

static pid_t parent_of(pid_t pid)
{
	struct ddp_proc_stat st;

	return ddp_proc_stat(pid, &st) ? 0 : st.ppid;
}

/* The nearest slurmstepd, and the part in brackets of its title, into id. */
static pid_t find_stepd(char *id, size_t size)
{
	pid_t pid = getppid();
	char text[256], *end;

	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		if (!ddp_proc_read(pid, "cmdline", text, sizeof(text)) &&
		    !strncmp(text, "slurmstepd: [", 13) &&
		    (end = strchr(text, ']'))) {
			*end = '\0';
			return ddp_text_copy(id, size, text + 13) ? 0 : pid;
		}
		pid = parent_of(pid);
	}
	return 0;
}

/*
 * Is the socket of this step's slurmstepd there, and does its name have a
 * component? 1: a plain step, 2: a component, 0: no such socket in sight.
 */
static int find_socket(const struct launch_step *s)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char want[320], line[1024];
	int kind = 0;
	size_t n;

	if (!f)
		return 0;
	n = (size_t)snprintf(want, sizeof(want), "/%s_%u.%u", s->nodename,
			     s->job, s->step);
	while (n < sizeof(want) && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, want);

		if (at && at[n] == '.')
			kind = 2;
		else if (at && (at[n] == '\n' || at[n] == '\0') && !kind)
			kind = 1;
	}
	fclose(f);
	return kind;
}

int launch_step_title(struct launch_step *s, char *id, struct ddp_err *err)
{
	char *step = strchr(id, '.');

	if (!step)
		return 0;
	*step++ = '\0';
	if (ddp_text_u32_n(id, strcspn(id, "+"), 1, UINT32_MAX, &s->job))
		return 0;
	if (strcspn(step, "0123456789") == 0) {
		s->seen = true;
		s->het = strchr(id, '+') || strchr(step, '+');
		return ddp_text_u32_n(step, strcspn(step, "+"), 0, UINT32_MAX,
				      &s->step) ?
			ddp_err_set(err, DDP_EINCONS, "slurmstepd's step "
				    "\"%s\" is not understood", step) : 0;
	}
	ddp_err_set(err, DDP_EINVAL, "not inside a Slurm step but in the %s "
		    "of job %u: start it with srun, as in \"srun ddp-launch "
		    "CMD\"", step, s->job);
	return 1;
}

static int read_counts(struct launch_step *s, struct ddp_err *err)
{
	if (need_u32("SLURM_PROCID", 0, &s->procid, err) ||
	    need_u32("SLURM_LOCALID", 0, &s->localid, err) ||
	    need_u32("SLURM_NODEID", 0, &s->nodeid, err) ||
	    need_u32("SLURM_STEP_NUM_TASKS", 1, &s->ntasks, err) ||
	    need_u32("SLURM_STEP_NUM_NODES", 1, &s->nnodes, err))
		return 1;
	s->counts = getenv("SLURM_STEP_TASKS_PER_NODE");
	s->nodes = getenv("SLURM_STEP_NODELIST");
	s->nodename = getenv("SLURMD_NODENAME");
	if (!s->counts || !s->nodes) {
		ddp_err_set(err, DDP_EINVAL, "not inside a Slurm step "
			    "(SLURM_STEP_TASKS_PER_NODE or "
			    "SLURM_STEP_NODELIST is not set)");
		return 1;
	}
	if (!s->nodename || !ddp_text_is_addr(s->nodename))
		s->nodename = "?";
	return 0;
}

static bool is_arbitrary(void)
{
	const char *dist = getenv("SLURM_DISTRIBUTION");

	return (dist && strstr(dist, "arbitrary")) ||
	       getenv("SLURM_HOSTFILE") || getenv("SLURM_ARBITRARY_NODELIST");
}

int launch_step_read(struct launch_step *s, struct ddp_err *err)
{
	char id[64];
	int rc;

	memset(s, 0, sizeof(*s));
	if (need_u32("SLURM_JOB_ID", 1, &s->global_job, err) ||
	    need_u32("SLURM_STEP_ID", 0, &s->step, err) || read_counts(s, err))
		return 1;
	s->job = s->global_job;
	s->arbitrary = is_arbitrary();
	s->stepd = find_stepd(id, sizeof(id));
	if (s->stepd) {
		rc = launch_step_title(s, id, err);
		if (rc)
			return rc;
	}
	if (getenv("SLURM_HET_SIZE"))
		s->het = true;
	if (s->seen && !s->het && s->nnodes > 1) {
		rc = find_socket(s);
		s->het = rc == 2;
		s->seen = rc != 0;	/* unknown: slurmctld decides */
	}
	if (s->procid >= s->ntasks || s->nodeid >= s->nnodes)
		return ddp_err_set(err, DDP_EINCONS, "Slurm's variables "
			"contradict each other: task %u of %u, node %u of %u",
			s->procid, s->ntasks, s->nodeid, s->nnodes);
	return 0;
}

bool launch_step_layout_known(const struct launch_step *s, unsigned frameworks)
{
	if (frameworks & DDP_FW_BIT(DDP_FW_TF))
		return false;	/* it needs the node of every rank */
	return s->nnodes == 1 || (s->seen && !s->het && !s->arbitrary);
}

/* Global ids of the tasks on this node, as slurmstepd lists them. */
static int check_gtids(const struct launch_step *s,
		       const struct ddp_layout *l, struct ddp_err *err)
{
	const char *p = getenv("SLURM_GTIDS");
	uint32_t n = 0, id, own = UINT32_MAX, low = UINT32_MAX;

	for (; p && *p; n++) {
		size_t len = strcspn(p, ",");

		if (ddp_text_u32_n(p, len, 0, l->ntasks - 1, &id))
			return ddp_err_set(err, DDP_EINCONS,
					   "SLURM_GTIDS is not understood");
		if (n == s->localid)
			own = id;
		if (id < low)
			low = id;
		p += p[len] ? len + 1 : len;
	}
	if (p && (own != s->procid || n != l->tasks[s->nodeid] ||
		  low < s->nodeid || (!s->nodeid && low)))
		return ddp_err_set(err, DDP_EINCONS, "Slurm's variables "
			"contradict each other: SLURM_GTIDS=%s on node %u with "
			"%u tasks, SLURM_PROCID=%u", getenv("SLURM_GTIDS"),
			s->nodeid, l->tasks[s->nodeid], s->procid);
	return 0;
}

int launch_step_layout(const struct launch_step *s, struct ddp_layout *l,
		       struct ddp_err *err)
{
	if (ddp_layout_parse(l, s->counts, NULL, err))
		return -1;
	if (l->nnodes != s->nnodes || l->ntasks != s->ntasks ||
	    s->localid >= l->tasks[s->nodeid]) {
		ddp_layout_clear(l);
		return ddp_err_set(err, DDP_EINCONS, "Slurm's variables "
			"contradict each other: %u tasks on %u nodes, but "
			"SLURM_STEP_TASKS_PER_NODE=%s", s->ntasks, s->nnodes,
			s->counts);
	}
	if (check_gtids(s, l, err)) {
		ddp_layout_clear(l);
		return -1;
	}
	return 0;
}
