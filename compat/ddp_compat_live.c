/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What running steps have used so far, from slurmstepd through
 * slurm_job_step_stat(). Its answer holds Slurm's opaque jobacctinfo: that is
 * read in the form in which Slurm itself sends it, which is the same since
 * 22.05 and says how long each of its parts is:
 *
 *	u8 1, five numbers of CPU time and frequency, u64 energy,
 *	u32 n, u32 id[n]			TRES ids
 *	u32 n, n records of TRES		(NO_VAL: no list)
 *	14 times u32 n, u64 value[n]		max, its node and task, min, its
 *						node and task, tot: in, then out
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat_acct_int.h"
#include "compat/ddp_compat_steps.h"
#include "core/ddp_io.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Exported without a header; weak, so that a library without them costs the
 * values of running steps only. */
extern void slurm_jobacctinfo_pack(jobacctinfo_t *, uint16_t, uint16_t, void *)
	__attribute__((weak));
extern void *slurm_create_buf(char *, uint32_t) __attribute__((weak));
extern void slurm_free_buf(void *) __attribute__((weak));
extern void *slurm_xcalloc(size_t, size_t, bool, bool, const char *, int,
			   const char *) __attribute__((weak));

extern slurm_conf_t slurm_conf __attribute__((weak));

#define NEWEST 0xfffe	/* protocol: the newest form that the library has */
#define TO_DBD 1	/* packs whether or not this process gathers */
#define ARRAYS 14
enum { IN_TOT = 6, OUT_MAX = 7, OUT_TOT = 13 };

/* A record takes about 40 bytes in the list and 116 in the arrays. */
#define TRES_MAX 4096
#define BUF_SIZE (4U << 20)

struct reader {
	const char *at, *end;
	bool bad;
};

static uint64_t get(struct reader *r, size_t bytes)
{
	unsigned char b[8] = { 0 };
	uint64_t v;

	if (r->bad || bytes > (size_t)(r->end - r->at)) {
		r->bad = true;
		return 0;
	}
	memcpy(b + 8 - bytes, r->at, bytes);
	r->at += bytes;
	memcpy(&v, b, sizeof(v));
	return be64toh(v);
}

static void skip(struct reader *r, size_t bytes)
{
	if (r->bad || bytes > (size_t)(r->end - r->at))
		r->bad = true;
	else
		r->at += bytes;
}

static void skip_tres_list(struct reader *r)
{
	uint32_t n = (uint32_t)get(r, 4);

	if (n == NO_VAL)
		return;
	for (uint32_t i = 0; i < n && !r->bad; i++) {
		skip(r, 8 + 8 + 4);
		skip(r, (size_t)get(r, 4));	/* name, type: length first */
		skip(r, (size_t)get(r, 4));
	}
}

static int metric_of(const struct ddp_acct *a, uint32_t id)
{
	for (int m = 0; m < DDP_ACCT_METRICS; m++)
		if (a->metric[m] == id)
			return m;
	return -1;
}

/* Fills *u from the n values of each array; false if it is not that form. */
static bool read_packed(const struct ddp_acct *a, struct reader *r,
			struct ddp_acct_usage *u)
{
	const char *ids;
	uint32_t n;

	ddp_acct_usage_init(u);
	if (get(r, 1) != 1)
		return false;
	skip(r, 8 + 4 + 8 + 4 + 4 + 8);
	n = (uint32_t)get(r, 4);
	if (r->bad || !n || n > TRES_MAX)
		return false;
	ids = r->at;
	skip(r, (size_t)n * 4);
	skip_tres_list(r);
	for (int k = 0; k < ARRAYS && !r->bad; k++) {
		uint64_t *to = k == IN_TOT ? u->in_tot :
			k == OUT_MAX ? u->out_max :
			k == OUT_TOT ? u->out_tot : NULL;

		if (get(r, 4) != n)
			return false;
		for (uint32_t i = 0; i < n && !r->bad; i++) {
			struct reader id = { ids + (size_t)i * 4, r->end,
					     false };
			uint64_t value = get(r, 8);
			int m = metric_of(a, (uint32_t)get(&id, 4));

			if (to && m >= 0 && value < UINT64_MAX - 1)
				to[m] = value;
		}
	}
	return !r->bad;
}

static bool read_info(const struct ddp_acct *a, jobacctinfo_t *info,
		      struct ddp_acct_usage *u)
{
	struct reader r;
	char *data;
	void *buf;
	bool ok;

	if (!info)
		return false;
	data = slurm_xcalloc(1, BUF_SIZE, true, false, __FILE__, __LINE__,
			     __func__);
	buf = slurm_create_buf(data, BUF_SIZE);
	slurm_jobacctinfo_pack(info, NEWEST, TO_DBD, buf);
	r = (struct reader){ data, data + BUF_SIZE, false };
	ok = read_packed(a, &r, u);
	slurm_free_buf(buf);
	return ok;
}

/* What one node has not told, the step has not. */
static void add(uint64_t *sum, uint64_t value, bool first)
{
	if (first)
		*sum = value;
	else if (*sum != DDP_ACCT_UNKNOWN)
		*sum = value == DDP_ACCT_UNKNOWN ? value : *sum + value;
}

static void add_node(struct ddp_acct_usage *to,
		     const struct ddp_acct_usage *node, bool first)
{
	for (unsigned m = 0; m < DDP_ACCT_METRICS; m++) {
		uint64_t max = to->out_max[m];

		add(&to->in_tot[m], node->in_tot[m], first);
		add(&to->out_tot[m], node->out_tot[m], first);
		add(&to->out_max[m], node->out_max[m], first);
		if (to->out_max[m] != DDP_ACCT_UNKNOWN && !first)
			to->out_max[m] = max > node->out_max[m] ? max :
				node->out_max[m];
	}
}

/* All nodes of a step answered, and each with values. */
static bool sum_up(const struct ddp_acct *a, job_step_stat_response_msg_t *resp,
		   struct ddp_acct_usage *u, uint32_t *ntasks)
{
	struct ddp_acct_usage node;
	const job_step_stat_t *s;
	bool ok = true;
	unsigned n = 0;
	ddp_acct_iter it = slurm_list_iterator_create(resp->stats_list);

	*ntasks = 0;
	while (ok && (s = slurm_list_next(it))) {
		ok = !s->return_code && read_info(a, s->jobacct, &node);
		if (ok)
			add_node(u, &node, !n++);
		*ntasks += s->num_tasks;
	}
	slurm_list_iterator_destroy(it);
	return ok && n;
}

/* What the asking process tells of one step. */
struct told {
	size_t step;		/* index in job->steps */
	uint32_t ntasks;
	struct ddp_acct_usage usage;
};

static bool ask_step(const struct ddp_acct *a, job_step_info_t *info,
		     struct told *told)
{
	job_step_stat_response_msg_t *resp = NULL;
	bool ok = !slurm_job_step_stat(&info->step_id, info->nodes,
				       info->start_protocol_ver, &resp) &&
		resp && resp->stats_list &&
		sum_up(a, resp, &told->usage, &told->ntasks) && told->ntasks;

	if (resp)
		slurm_job_step_stat_response_msg_free(resp);
	return ok;
}

static struct ddp_acct_step *find(struct ddp_acct_job *job,
				  const slurm_step_id_t *id)
{
	uint32_t comp = id->step_het_comp == NO_VAL ? DDP_ACCT_NONE :
		id->step_het_comp;

	for (size_t i = 0; i < job->nsteps; i++)
		if (job->steps[i].id == id->step_id &&
		    job->steps[i].comp == comp)
			return &job->steps[i];
	return NULL;
}

/*
 * The asking process. slurmctld and nodes that do not answer hold it up for
 * minutes, in calls without a limit of ours.
 */
static void ask_all(const struct ddp_acct *a, struct ddp_acct_job *job, int to)
{
	job_step_info_response_msg_t *msg = NULL;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct told told;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)signal(SIGPIPE, SIG_DFL);
	/* That a step ends meanwhile is no error worth a line of Slurm's. */
	if (null >= 0)
		(void)dup2(null, STDERR_FILENO);
	if (ddp_compat_steps_load(job->id, NO_VAL, &msg) || !msg)
		return;
	for (uint32_t i = 0; i < msg->job_step_count; i++) {
		job_step_info_t *info = &msg->job_steps[i];
		struct ddp_acct_step *s = find(job, &info->step_id);

		if (!s || s->phase != DDP_ACCT_RUNNING ||
		    s->kind == DDP_ACCT_EXTERN || !s->ngpus)
			continue;
		memset(&told, 0, sizeof(told));
		told.step = (size_t)(s - job->steps);
		/* Less than PIPE_BUF: whole or not at all. */
		if (ask_step(a, info, &told) &&
		    write(to, &told, sizeof(told)) != (ssize_t)sizeof(told))
			return;
	}
}

/* Takes what the process has to tell until it ends or `until` is there. */
static void hear(struct ddp_acct_job *job, int from, int64_t until)
{
	struct told told;

	for (;;) {
		struct pollfd p = { .fd = from, .events = POLLIN };
		int64_t left = until - ddp_io_now_ms();
		ssize_t n;

		if (left <= 0 || poll(&p, 1, (int)left) == 0)
			return;
		n = read(from, &told, sizeof(told));
		if (n < 0 && errno == EINTR)
			continue;
		if (n != (ssize_t)sizeof(told) || told.step >= job->nsteps)
			return;
		job->steps[told.step].usage = told.usage;
		job->steps[told.step].ntasks = told.ntasks;
	}
}

static bool may_ask(const struct ddp_acct *a, const struct ddp_acct_job *job)
{
	if (!slurm_jobacctinfo_pack || !slurm_create_buf || !slurm_free_buf ||
	    !slurm_xcalloc || a->ntres > TRES_MAX || !&slurm_conf)
		return false;
	if (geteuid() && geteuid() != job->uid)
		return false;
	return a->live_ms && job->phase == DDP_ACCT_RUNNING && job->cluster &&
		slurm_conf.cluster_name &&
		!strcmp(job->cluster, slurm_conf.cluster_name);
}

void ddp_acct_live(struct ddp_acct *a, struct ddp_acct_job *job)
{
	int64_t from = ddp_io_now_ms();
	int fds[2], status;
	pid_t pid;

	if (!may_ask(a, job) || pipe2(fds, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid) {
		ask_all(a, job, fds[1]);
		_exit(0);
	}
	close(fds[1]);
	if (pid > 0) {
		hear(job, fds[0], from + a->live_ms);
		(void)kill(pid, SIGKILL);
		(void)ddp_io_wait(pid, &status);
	}
	close(fds[0]);
	from = ddp_io_now_ms() - from;
	a->live_ms = from < a->live_ms ? a->live_ms - from : 0;
}
