/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs and steps of the accounting: what slurmdbd has, and what the nodes
 * say of steps that still run. Plain values, the same for every release.
 */
#ifndef DDP_COMPAT_ACCT_H
#define DDP_COMPAT_ACCT_H

#include "core/ddp_err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In 32 bits: no such id; in 64 bits: not known. */
#define DDP_ACCT_NONE UINT32_MAX
#define DDP_ACCT_UNKNOWN UINT64_MAX

/* The TRES of the accounting plugin, found by type and name. */
enum ddp_acct_metric {
	DDP_ACCT_SM,		/* gres/gpusm */
	DDP_ACCT_MEMBW,		/* gres/gpumembw */
	DDP_ACCT_NVLINK,	/* ic/nvlink */
	DDP_ACCT_PCIE,		/* ic/pcie */
	DDP_ACCT_ENERGY,	/* gres/gpuenergy */
	DDP_ACCT_IDLE,		/* gres/gpuidle */
	DDP_ACCT_METRICS
};

/* As stored: TresUsageInTot, OutTot and OutMax, or DDP_ACCT_UNKNOWN. */
struct ddp_acct_usage {
	uint64_t in_tot[DDP_ACCT_METRICS];
	uint64_t out_tot[DDP_ACCT_METRICS];
	uint64_t out_max[DDP_ACCT_METRICS];
};

enum ddp_acct_kind {
	DDP_ACCT_BATCH,
	DDP_ACCT_INTERACTIVE,
	DDP_ACCT_EXTERN,
	DDP_ACCT_STEP		/* of srun */
};

enum ddp_acct_phase {
	DDP_ACCT_PENDING,
	DDP_ACCT_RUNNING,	/* or suspended */
	DDP_ACCT_ENDED
};

struct ddp_acct_step {
	enum ddp_acct_kind kind;
	enum ddp_acct_phase phase;
	uint32_t id;		/* of DDP_ACCT_STEP */
	uint32_t comp;		/* part of a heterogeneous step, or NONE */
	char state[32];
	char *name;
	int64_t start, end;	/* Unix time; 0: not yet, or not known */
	uint32_t elapsed;	/* s, without suspension */
	uint32_t nnodes, ntasks;
	uint64_t ngpus;
	/* What it used has come to slurmdbd: after its end, and after that of
	 * its job. Also true where nothing is ever gathered. */
	bool recorded;
	struct ddp_acct_usage usage;
};

struct ddp_acct_job {
	uint32_t id;
	uint32_t array_id, array_task;	/* NONE: no array job, no task yet */
	uint32_t het_id, het_offset;	/* NONE: not heterogeneous */
	uint32_t uid;
	enum ddp_acct_phase phase;
	char state[32];
	char *cluster, *name, *user, *account, *partition;	/* or NULL */
	int64_t submit, start, end;
	uint32_t elapsed;
	uint32_t nnodes;
	uint64_t ngpus;
	struct ddp_acct_step *steps;	/* batch first, then by number */
	size_t nsteps;
};

struct ddp_acct_jobs {
	struct ddp_acct_job *job;	/* by id, then by time of submission */
	size_t n;
};

/* A job as a user names it; task and offset may be NONE. */
struct ddp_acct_id {
	uint32_t job, task, offset;
};

struct ddp_acct_query {
	const char *cluster;		/* NULL: this one */
	const struct ddp_acct_id *ids;
	size_t nids;
	int64_t since, until;		/* used without ids */
	const uint32_t *users;		/* none: all */
	size_t nusers;
	char *const *accounts;		/* none: all */
	size_t naccounts;
};

struct ddp_acct;

/*
 * Connects to slurmdbd as slurm.conf names it, and looks the TRES up. NULL
 * with *err, which says what to do. What is read through one connection is of
 * one moment, that of the first question. Slurm's library ends the process if
 * it cannot read slurm.conf, gives up after times of its own, and may also
 * have said something on stderr.
 */
struct ddp_acct *ddp_acct_open(struct ddp_err *err);
void ddp_acct_close(struct ddp_acct *a);

/*
 * Does slurmdbd know one of the TRES? If not, nothing was ever accounted:
 * AccountingStorageTRES does not name them.
 */
bool ddp_acct_has_metrics(const struct ddp_acct *a);

/*
 * All runs of the jobs that were asked for: by ids, or those that ran at some
 * time between since and until. 0 with *out (which may be empty; to be freed
 * with ddp_acct_jobs_clear), or -1 with *err.
 */
int ddp_acct_jobs_get(struct ddp_acct *a, const struct ddp_acct_query *q,
		      struct ddp_acct_jobs *out, struct ddp_err *err);
void ddp_acct_jobs_clear(struct ddp_acct_jobs *jobs);

/*
 * The values that running steps of a job have by now, from their nodes, into
 * job->steps: for the caller's own jobs on this cluster, or as root. What is
 * not told in time stays unknown: 15 s for all jobs of a connection. Silent.
 */
void ddp_acct_live(struct ddp_acct *a, struct ddp_acct_job *job);

/* Some number below 32 for the state of that name ("RUNNING", "r"), or -1. */
int ddp_acct_state_parse(const char *name);
/* The name of that state, as in ddp_acct_job.state. */
const char *ddp_acct_state_name(int state);

#endif
