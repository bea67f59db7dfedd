/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a step inside slurmstepd. Two parts of it have kept their
 * layout from 22.05 to 26.05; where they begin differs:
 *
 *	head	step id, array job id, array task id, nodes, tasks, index of
 *		this node, tasks of this node
 *	tail	pid of the job manager (slurmstepd itself), process group,
 *		flags, a pointer, container id, a pointer, usage of the step,
 *		open mode, a pointer, restarts, four pointers: cores of job and
 *		step, GRES of job and step
 *
 * Both are searched for by their values. All memory is read through the kernel
 * (process_vm_readv), so that a pointer to nowhere is an error and no crash.
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat_gather.h"
#include "compat/ddp_compat_jobacct.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEARCHED 1536		/* bytes of the record that are looked at */
#define HEAD_MAX 256		/* the head begins before */
#define NTRES_MAX 4096
#define NTASKS_MAX (1U << 24)	/* more is NO_VAL, or no count */

struct head {
	slurm_step_id_t id;
	uint32_t array_job, array_task;
	uint32_t nnodes, ntasks, nodeid, node_tasks;
};

struct tail {
	int32_t jmgr_pid, pgid;
	uint32_t flags;
	uint32_t overcommit;	/* 22.05; room of the next one since */
	void *envtp;
	uint64_t cont_id;
	void *batchdir;
	void *jobacct;
	uint64_t open_mode;
	void *options;
	uint64_t restart_cnt;
	void *job_cores, *step_cores;
	void *job_gres, *step_gres;
};

#if DDP_GATHER_BY_TASK
extern struct gather_jobacct *jobacct_gather_stat_task(pid_t, bool)
	__attribute__((weak));
#else
extern struct gather_jobacct *jobacct_gather_stat_task(pid_t)
	__attribute__((weak));
#endif
extern void jobacctinfo_destroy(void *) __attribute__((weak));

static struct gather_jobacct *stat_task(pid_t pid, bool poll)
{
	if (!jobacct_gather_stat_task || !jobacctinfo_destroy)
		return NULL;
#if DDP_GATHER_BY_TASK
	return jobacct_gather_stat_task(pid, poll);
#else
	(void)poll;		/* it always does */
	return jobacct_gather_stat_task(pid);
#endif
}

void ddp_gather_poll(void)
{
	struct gather_jobacct *none = stat_task(0, true);

	if (none)
		jobacctinfo_destroy(none);
}

/* FNV-1a: the same ids in the same order. */
static uint64_t sum_ids(const uint32_t *ids, uint32_t n)
{
	uint64_t sum = 0xcbf29ce484222325;

	for (uint32_t i = 0; i < n; i++)
		sum = (sum ^ ids[i]) * 0x100000001b3;
	return sum;
}

bool ddp_gather_is_task(pid_t pid, struct ddp_gather_task *task)
{
	struct gather_jobacct *copy = stat_task(pid, false);

	if (!copy)
		return false;
	memset(task, 0, sizeof(*task));
	task->pid = pid;
	task->nodeid = copy->id.nodeid;
	task->step = copy->id.step;
	task->ntres = copy->ntres;
	task->ids = sum_ids(copy->tres_ids, copy->ntres);
	jobacctinfo_destroy(copy);
	return true;
}

/* Copies size bytes of our own memory that may not be there. */
static int peek(const void *from, void *to, size_t size)
{
	struct iovec local = { .iov_base = to, .iov_len = size };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)from,
				.iov_len = size };

	if (!from || (uintptr_t)from % 4)
		return -1;
	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) ==
		(ssize_t)size ? 0 : -1;
}

/* As much of the record as there is, in whole words. Returns its length. */
static size_t peek_record(const char *base, char *buf)
{
	size_t n;

	for (n = SEARCHED; n >= HEAD_MAX; n -= 64)
		if (!peek(base, buf, n))
			return n;
	return 0;
}

static bool is_head(const struct head *h, uint32_t job, uint32_t step)
{
	/* A batch script's record does not count the nodes (22.05), and its
	 * tasks are what the job asked for, 0 where it did not say. */
	bool script = step > SLURM_MAX_NORMAL_STEP_ID;
	bool nodes = h->nnodes ? h->nodeid < h->nnodes : !h->nodeid && script;
	bool tasks = h->node_tasks >= 1 && h->ntasks <= NTASKS_MAX &&
		(script ? h->node_tasks <= NTASKS_MAX :
		 h->node_tasks <= h->ntasks);

	return job && h->id.job_id == job && h->id.step_id == step && nodes &&
		tasks;
}

static bool is_tail(const struct tail *t)
{
	/* The container's id is the pid with cgroup and linuxproc, the process
	 * group with pgid. */
	return t->jmgr_pid == getpid() && t->pgid > 0 && t->jobacct &&
		(t->cont_id == (uint64_t)t->jmgr_pid ||
		 t->cont_id == (uint64_t)t->pgid);
}

/* A structure's offset in buf[0 … n - 1] is found where test says so; one
 * alone, or there is no telling. Returns 0 with *at, or -1. */
static int find_head(const char *buf, size_t n, uint32_t job, uint32_t step,
		     size_t *at)
{
	unsigned found = 0;
	struct head h;
	size_t o;

	for (o = 0; o < HEAD_MAX && o + sizeof(h) <= n; o += 4) {
		memcpy(&h, buf + o, sizeof(h));
		if (!is_head(&h, job, step))
			continue;
		*at = o;
		found++;
	}
	return found == 1 ? 0 : -1;
}

static int find_tail(const char *buf, size_t n, size_t *at)
{
	unsigned found = 0;
	struct tail t;
	size_t o;

	for (o = HEAD_MAX; o + sizeof(t) <= n; o += 8) {
		memcpy(&t, buf + o, sizeof(t));
		if (!is_tail(&t))
			continue;
		*at = o;
		found++;
	}
	return found == 1 ? 0 : -1;
}

/* The step's usage: arrays as long as those of its tasks, and of the same
 * TRES. */
static int peek_jobacct(const void *at, uint32_t ntres,
			struct gather_jobacct *ja)
{
	uint64_t last;

	if (!ntres || ntres > NTRES_MAX || peek(at, ja, sizeof(*ja)) ||
	    ja->ntres != ntres || !ja->tres_ids)
		return -1;
	const uint64_t *const arrays[] = {
		ja->in_max, ja->in_max_node, ja->in_min, ja->in_min_node,
		ja->in_tot, ja->out_max, ja->out_max_node, ja->out_min,
		ja->out_min_node, ja->out_tot,
	};
	for (unsigned i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		if (!arrays[i] || (uintptr_t)arrays[i] % 8 ||
		    peek(arrays[i] + ntres - 1, &last, sizeof(last)))
			return -1;
	return 0;
}

/* The ids that the usage's arrays are ordered by are those of the task, which
 * may have ended meanwhile. */
static int same_ids(const struct gather_jobacct *ja,
		    const struct ddp_gather_task *task)
{
	uint32_t ids[NTRES_MAX];

	return peek(ja->tres_ids, ids, ja->ntres * sizeof(*ids)) ||
		sum_ids(ids, ja->ntres) != task->ids ? -1 : 0;
}

int ddp_gather_record_find(const struct ddp_gather_task *task, uint32_t job,
			   uint32_t step, struct ddp_gather_record *rec,
			   struct ddp_err *err)
{
	char buf[SEARCHED];
	struct gather_jobacct ja;
	struct head h;
	struct tail t;
	size_t n;

	memset(rec, 0, sizeof(*rec));
	n = peek_record(task->step, buf);
	if (!n || find_head(buf, n, job, step, &rec->head))
		return ddp_err_set(err, DDP_EINCONS, "slurmstepd's record has "
				   "no step id where it is known");
	if (find_tail(buf, n, &rec->tail))
		return ddp_err_set(err, DDP_EINCONS, "slurmstepd's record has "
				   "no pid of its own where it is known");
	memcpy(&h, buf + rec->head, sizeof(h));
	memcpy(&t, buf + rec->tail, sizeof(t));
	if (peek_jobacct(t.jobacct, task->ntres, &ja) ||
	    same_ids(&ja, task))
		return ddp_err_set(err, DDP_EINCONS, "the step's usage is not "
				   "like that of its tasks");
	rec->base = task->step;
	rec->job = job;
	rec->step = step;
	rec->ntres = task->ntres;
	rec->nodeid = h.nodeid;
	rec->nnodes = h.nnodes ? h.nnodes : 1;
	rec->node_tasks = h.node_tasks;
	return 0;
}

/* The tail as it is now, if the record is still the one that was found. */
static int again(const struct ddp_gather_record *rec, struct tail *t)
{
	struct head h;

	return peek(rec->base + rec->head, &h, sizeof(h)) ||
		!is_head(&h, rec->job, rec->step) ||
		peek(rec->base + rec->tail, t, sizeof(*t)) ||
		!is_tail(t) ? -1 : 0;
}

void *ddp_gather_record_gres(const struct ddp_gather_record *rec, bool is_job)
{
	uint32_t magic, own = 0;
	struct tail t;
	void *list, *sample;

	if (again(rec, &t))
		return NULL;
	list = is_job ? t.job_gres : t.step_gres;
	/* Slurm's lists begin with the same word, whatever it is. */
	sample = slurm_list_create(NULL);
	if (!sample)
		return NULL;
	(void)peek(sample, &own, sizeof(own));
	slurm_list_destroy(sample);
	if (!own || peek(list, &magic, sizeof(magic)) || magic != own)
		return NULL;
	return list;
}

static void put_one(struct gather_jobacct *ja, uint32_t nodeid,
		    const struct ddp_gather_usage *u)
{
	ja->in_tot[u->pos] = u->in_tot;
	ja->in_max[u->pos] = ja->in_min[u->pos] = u->in_max;
	ja->out_tot[u->pos] = u->out_tot;
	ja->out_max[u->pos] = ja->out_min[u->pos] = u->out_max;
	if (u->in_max != DDP_GATHER_UNSET)
		ja->in_max_node[u->pos] = ja->in_min_node[u->pos] = nodeid;
	if (u->out_max != DDP_GATHER_UNSET)
		ja->out_max_node[u->pos] = ja->out_min_node[u->pos] = nodeid;
}

int ddp_gather_record_put(const struct ddp_gather_record *rec, uint32_t nodeid,
			  const struct ddp_gather_usage *usage, unsigned n,
			  struct ddp_err *err)
{
	struct gather_jobacct ja;
	struct tail t;

	if (!rec->base || again(rec, &t) ||
	    peek_jobacct(t.jobacct, rec->ntres, &ja))
		return ddp_err_set(err, DDP_EINCONS, "slurmstepd's record of "
				   "the step is another one now");
	for (unsigned i = 0; i < n; i++)
		if (usage[i].pos >= 0 && (uint32_t)usage[i].pos < rec->ntres)
			put_one(&ja, nodeid, &usage[i]);
	return 0;
}
