/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accounting plugin in slurmstepd. One thread watches the step's tasks
 * begin and end and has the sampler measure meanwhile; Slurm's own threads
 * come in through get_data() and take what is there.
 */
#ifndef ACCT_H
#define ACCT_H

#include "accounting/gpu_shm.h"
#include "compat/ddp_compat_gather.h"
#include "core/ddp_err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* --- acct_conf.c: acct_gather.conf ------------------------------------------ */

struct acct_conf {
	uint32_t interval_ms;	/* DdpGpuInterval */
	double idle;		/* DdpGpuIdleThreshold, % of SM activity */
	bool dcgm;		/* DdpGpuSource=dcgm */
	bool write;		/* DdpGpuStepRecord=write */
	char *library;		/* DdpGpuLibrary; NULL: the loader's path */
	char *sampler;		/* DdpGpuSampler */
};

extern const char *const acct_conf_keys[];
extern const unsigned acct_conf_nkeys;

/*
 * Fills conf from a table of keys to values (get: malloc'ed value or NULL).
 * A value that is not valid is told to `complain` and left at its default.
 */
void acct_conf_read(struct acct_conf *conf,
		    char *(*get)(void *table, const char *key), void *table,
		    void (*complain)(const char *text));

/* Calls show once a key, with the value in force. */
void acct_conf_show(const struct acct_conf *conf,
		    void (*show)(void *arg, const char *key, const char *value),
		    void *arg);

/* --- acct_step.c: which step this slurmstepd runs ---------------------------- */

enum acct_kind {
	ACCT_UNKNOWN,		/* the title does not say (yet) */
	ACCT_STEP,
	ACCT_BATCH,		/* batch script, or an interactive step */
	ACCT_OTHER		/* extern: nothing of its own runs there */
};

struct acct_step {
	enum acct_kind kind;
	uint32_t job, step;
	char name[64];		/* "12.0", "12.batch" */
};

/* From slurmstepd's title ("slurmstepd: [12.0]"). */
void acct_step_parse(const char *title, struct acct_step *s);

/* --- acct_tasks.c: its children ---------------------------------------------- */

struct acct_task {
	struct ddp_gather_task id;
	uint64_t start;		/* with the pid, its identity */
	int64_t exec;		/* when, us, as well as is known; of the first */
	int pidfd;		/* -1: there is none, or it has ended */
	bool ended;
};

/* A child that has exec'd and is not known as a task, before the first is. */
struct acct_seen {
	pid_t pid;
	uint64_t start;
	int64_t exec;		/* the middle of when that can have been, us */
	int64_t ask;		/* it is not asked about before, us */
	int64_t looked;		/* at this look it was there, us */
};

#define ACCT_SEEN_MAX 256

struct acct_tasks {
	struct acct_task *v;
	unsigned n, room;
	bool pending;		/* a child may still become a task */
	int64_t looked;		/* when, us; 0: never */
	struct acct_seen seen[ACCT_SEEN_MAX];
	unsigned nseen;
	/* When the first one was found: so many children, and the last of them
	 * began then. */
	unsigned children;
	uint64_t newest;
};

/*
 * Looks for tasks that have exec'd since; returns how many were new, only one
 * if it is the first. node_tasks: how many there are on the node; 0: not known
 * yet.
 */
unsigned acct_tasks_look(struct acct_tasks *t, unsigned node_tasks);

/* In so many ms at most one has to look again; -1: it does not matter. */
int acct_tasks_look_in(const struct acct_tasks *t);

/* Looks at those that no pidfd tells of. True if there are any that run. */
bool acct_tasks_look_again(struct acct_tasks *t);

/* How many of them run, have ended but not been waited for, and are gone. */
struct acct_count {
	unsigned alive, zombies, gone;
};

void acct_tasks_count(const struct acct_tasks *t, struct acct_count *c);

/* --- acct_gpus.c: which GPUs are the step's ----------------------------------- */

struct acct_gpus {
	unsigned n;
	char arg[GPU_MAX][GPU_NAME_MAX];	/* "minor=3", "uuid=MIG-…" */
};

/* The NVIDIA GPUs of the step on this node, n = 0 if it has none. 0, or -1
 * with *err if that cannot be known. */
int acct_gpus_find(const struct acct_step *s,
		   const struct ddp_gather_record *rec, struct acct_gpus *gpus,
		   struct ddp_err *err);

/* The value of name in a process's environment at its exec, malloc'ed; or
 * NULL. Whoever started it may have written anything there. */
char *acct_environ(pid_t pid, const char *name);

/* --- acct_spawn.c: the sampler ------------------------------------------------- */

struct acct_sampler {
	/* -1: none, or ended. A kernel without pidfds (before 5.3): another
	 * descriptor of the control socket, which also says when it ends. */
	int control, pidfd;
	pid_t pid;
	struct gpu_shm *shm;
};

/* argv[0]: the program. Returns 0, or -1 with *err. */
int acct_sampler_start(struct acct_sampler *s, char *const argv[],
		       struct ddp_err *err);

/*
 * Asks for a last reading and for the end; after ms it is killed. until: when
 * the step ended (CLOCK_MONOTONIC, ns); what was later does not count. True if
 * the last reading came.
 */
bool acct_sampler_stop(struct acct_sampler *s, int64_t until, int ms);

void acct_sampler_free(struct acct_sampler *s);

/* --- acct_check.c: can it be? -------------------------------------------------- */

/*
 * Takes from *t what no sampler that works says of n GPUs: false if it is not
 * theirs, or not of the time from … to (CLOCK_MONOTONIC, ns), or more than GPUs
 * can do meanwhile. What is not measured yet, or never will be, is unknown.
 */
bool acct_totals_check(struct gpu_totals *t, unsigned n, int64_t from,
		       int64_t to);

/* --- acct_share.c: what each task is given ------------------------------------- */

/* A node's values for Slurm, whole numbers; DDP_GATHER_UNSET for unknown. */
struct acct_sums {
	uint64_t in[GPU_METRICS], out[GPU_METRICS];
};

/*
 * Whole numbers of a node's totals for `tasks` tasks. Percentages: of `in` the
 * sum over tasks, so that Slurm's sum over nodes, divided by the step's tasks
 * without remainder, is the rounded mean: extra is half a point a task, or
 * acct_sums_extra(). Other metrics: rounded.
 */
void acct_sums_make(const struct gpu_totals *t, unsigned tasks, double extra,
		    struct acct_sums *s);

/*
 * What node nodeid of nnodes adds, with its tasks: half a point for each, which
 * rounds Slurm's division, of whatever nodes there are values. Each node's sum is
 * made whole, and nodes that have done the same must not all lose the same: their
 * thresholds differ, so that of equal sums the total is the one of them all.
 * (floor(x) + floor(x + 1/n) + ... + floor(x + (n-1)/n) = floor(n x): Hermite.)
 */
double acct_sums_extra(unsigned nodeid, unsigned nnodes, unsigned tasks);

/* What tasks that have ended were given for good. */
struct acct_share {
	unsigned gone;
	struct acct_sums given, last;
};

/* What one task is given now. */
struct acct_part {
	uint64_t in[GPU_METRICS], out[GPU_METRICS];
};

/* A task that runs. */
void acct_share_live(const struct gpu_totals *t, unsigned tasks, unsigned gone,
		     struct acct_part *part);

/*
 * A task that has ended and is being taken from the list: nothing while
 * others run, else its part of what was not given yet; the last one gets the
 * exact rest.
 */
void acct_share_dead(struct acct_share *sh, const struct acct_sums *all,
		     const struct gpu_totals *t, const struct acct_count *c,
		     struct acct_part *part);

/* --- acct_watch.c: the thread --------------------------------------------------- */

/* In slurmstepd, once. 0, or an errno. */
int acct_watch_start(void);

/* The configuration for steps that begin from now on; is copied. */
void acct_watch_conf(const struct acct_conf *conf);

/* Slurm polls: fills in its array. */
void acct_watch_data(void *data);

/* Slurm wants a line for the time series. */
void acct_watch_series(void);

/* acct_end.c: ends it, within two seconds, and hands the values to the step's record. */
void acct_watch_end(void);

#endif
