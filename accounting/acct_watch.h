/* SPDX-License-Identifier: Apache-2.0 */
/* What acct_watch.c, acct_begin.c and acct_data.c share. */
#ifndef ACCT_WATCH_H
#define ACCT_WATCH_H

#include "accounting/acct.h"

#include <pthread.h>

struct acct_watch {
	pthread_mutex_t lock;
	pthread_cond_t changed;		/* frozen, or over; monotonic */
	pthread_t thread;
	bool running;
	int stop;			/* eventfd: the thread shall end */
	char node[256];			/* its name; empty: not known */

	/* the thread's own */
	struct acct_conf conf;
	struct acct_step step;
	struct acct_tasks tasks;
	bool begun;
	int64_t since;			/* the first task runs, monotonic ns */
	bool said;			/* why there will be no more values */
	struct acct_sampler sampler;

	/* set before `sampling`, and not changed afterwards (of the sampler,
	 * its memory) */
	unsigned ngpus;
	struct ddp_gather_record rec;
	bool put;			/* values go into the record */
	uint32_t nodeid;
	int pos[GPU_METRICS];

	/* under the lock */
	struct acct_conf next_conf;	/* for the thread to take */
	bool over;			/* the thread is about to end */
	bool sampling;
	struct acct_tasks seen;		/* as far as get_data() needs them */
	bool frozen, have_totals;
	bool awaited;			/* long enough; not once more */
	struct gpu_totals totals;	/* once frozen */
	struct acct_share share;
};

extern struct acct_watch acct_watch;

/* A line in slurmd's log, with the step's name. slurm_error() would also print
 * it to the user, who cannot mend a node. */
void acct_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The configuration, as it is now, becomes the thread's. */
void acct_watch_take_conf(void);

/*
 * The newest values of the sampler; false while there are none. GPU_BROKEN as
 * state: they cannot be, and all are unknown.
 */
#define GPU_BROKEN (GPU_FAILED + 1u)
bool acct_watch_read(struct gpu_totals *t);

/* acct_end.c: no task runs any more, or slurmstepd ends. */
void acct_watch_last(void);

/* acct_begin.c: the first task runs. 0, or -1: nothing is to be measured. */
int acct_watch_begin(void);

/* acct_data.c: what the task that is polled gets, with the lock held; false if
 * nothing was measured yet. */
bool acct_watch_part(bool dead, struct acct_part *part);

#endif
