/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an acct_gather_interconnect plugin meets inside slurmstepd, slurmd and
 * slurmctld, and what differs between Slurm's releases there: the array that a
 * poll fills, the tasks under accounting, the node's GRES devices, the keys of
 * acct_gather.conf, and the record of the step.
 *
 * Slurm's daemons bring the functions that are called here; none is public,
 * so each is looked up weakly, and a release without it costs the values that
 * need it, not the daemon.
 */
#ifndef DDP_COMPAT_GATHER_H
#define DDP_COMPAT_GATHER_H

#include "core/ddp_err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* For plugin_version; needs slurm/slurm.h. */
#define DDP_GATHER_PLUGIN_VERSION SLURM_VERSION_NUMBER

/* A value that Slurm takes as absent. */
#define DDP_GATHER_UNSET UINT64_MAX

/* --- TRES and polls ------------------------------------------------------- */

/* Index of a TRES in Slurm's arrays; -1 if AccountingStorageTRES has it not,
 * or the tables are not there (yet). */
int ddp_gather_pos(const char *type, const char *name);

/*
 * data: the array that get_data() was given. Values of the TRES at pos for
 * the task (from 23.02 on) or process (before) that is polled.
 */
void ddp_gather_set(void *data, int pos, uint64_t in, uint64_t out);

/*
 * From 23.02 on get_data() is called once a task that is still listed, also
 * for one that has ended, when it is taken from the list: *dead. Returns
 * false where calls are by process (22.05) and cannot be told apart.
 */
bool ddp_gather_by_task(const void *data, bool *dead);

/* Is get_data() called by task in this release? */
bool ddp_gather_polls_by_task(void);

/* One poll of all tasks, now. Not from within get_data(). */
void ddp_gather_poll(void);

/* False with JobAcctGatherType=jobacct_gather/none: nothing is stored then, and
 * no task is known. */
bool ddp_gather_enabled(void);

/* Is this a JobAcctGatherType that gathers? NULL is "none" since 23.11. */
static inline bool ddp_gather_type_gathers(const char *type)
{
	return type && !strstr(type, "none");
}

/* --- tasks ---------------------------------------------------------------- */

struct ddp_gather_task {
	pid_t pid;
	uint32_t nodeid;	/* within the step, as Slurm counts */
	void *step;			/* slurmstepd's record of the step */
	uint32_t ntres;
	uint64_t ids;			/* a sum over the ids of its TRES */
};

/*
 * Is this child of slurmstepd, which has exec'd, a task under accounting? Not
 * from within get_data(). Before 23.02 the question is a poll of all tasks.
 */
bool ddp_gather_is_task(pid_t pid, struct ddp_gather_task *task);

/* --- GRES ----------------------------------------------------------------- */

struct ddp_gather_device {
	int index;		/* as in SLURM_STEP_GPUS */
	bool alloc;		/* in the list that was asked about */
	uint32_t major, minor;
	const char *path;	/* device file; Slurm's own, do not keep */
	const char *uuid;	/* of a MIG device; NULL if unknown */
};

/*
 * Visits all device files of this node's GRES. list: a step's GRES, or a
 * job's (is_job), to learn what of it is allocated; NULL: nothing is. Only
 * after the first task has begun: Slurm itself uses the same flags while it
 * launches. Returns the number of devices, or -1 if they cannot be had.
 */
int ddp_gather_devices(void *list, bool is_job,
		       void (*visit)(const struct ddp_gather_device *, void *),
		       void *arg);

/* --- acct_gather.conf ----------------------------------------------------- */

/* Adds keys[0 … n - 1], all of them strings, to the ones that Slurm takes. */
void ddp_gather_conf_keys(void *full_options, int *count,
			  const char *const *keys, unsigned n);

/* The value of a key as malloc'ed string; NULL if it is not there. */
char *ddp_gather_conf_get(void *table, const char *key);

/* Adds a line to what `scontrol show config` prints. */
void ddp_gather_conf_show(void *data, const char *key, const char *value);

/* --- the record of the step ------------------------------------------------ */

/*
 * slurmstepd's record of the step, as far as it is known: its place in memory
 * is not part of any interface, so every pointer and number of it is looked at
 * before it is used, without ever following one blindly.
 */
struct ddp_gather_record {
	const char *base;	/* the record */
	size_t head, tail;	/* offsets of step id and of job manager's pid */
	uint32_t job, step;
	uint32_t nodeid;	/* within the step, or component */
	uint32_t nnodes;	/* of it */
	uint32_t node_tasks;
	uint32_t ntres;
};

/*
 * Recognises the record at task->step by what must stand in it: job and step
 * id, this process's id, the id of its container, counts that agree with each
 * other, and usage arrays of the length and with the TRES ids of the task's.
 * Returns 0, or -1 with *err if anything does not match.
 */
int ddp_gather_record_find(const struct ddp_gather_task *task, uint32_t job,
			   uint32_t step, struct ddp_gather_record *rec,
			   struct ddp_err *err);

/* The step's own GRES, or with is_job the job's; NULL if there is none or it
 * does not look like one of Slurm's lists. */
void *ddp_gather_record_gres(const struct ddp_gather_record *rec, bool is_job);

/* What the step's usage at pos shall be; DDP_GATHER_UNSET for none. */
struct ddp_gather_usage {
	int pos;
	uint64_t in_tot, in_max;	/* in_min is in_max */
	uint64_t out_tot, out_max;
};

/*
 * Writes usages into the step's own record, for the completion message that
 * slurmstepd sends after fini(). nodeid: shown as the node of the maximum.
 * Looks at everything again first; returns 0, or -1 with *err and nothing
 * written.
 */
int ddp_gather_record_put(const struct ddp_gather_record *rec, uint32_t nodeid,
			  const struct ddp_gather_usage *usage, unsigned n,
			  struct ddp_err *err);

/* --- time series ------------------------------------------------------------ */

/* True where the job asked for --profile=network and a plugin stores it. */
bool ddp_gather_profiling(void);

/*
 * A series named name with the columns cols[0 … n - 1], all of type double.
 * Returns its id, or -1.
 */
int ddp_gather_series(const char *name, const char *const *cols, unsigned n);
void ddp_gather_series_add(int id, double *values);

#endif
