/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's threads ask for values: at polls, for sstat, for time series. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct_watch.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The last task's values wait for the last reading so long. */
#define FROZEN_MS 1000

static struct acct_watch *const w = &acct_watch;

/* The newest values. With the lock held. */
static bool newest(struct gpu_totals *t)
{
	if (w->frozen) {
		/* Single GPUs are of interest while they are measured. */
		memcpy(t, &w->totals, offsetof(struct gpu_totals, gpu));
		return w->have_totals;
	}
	return acct_watch_read(t);
}

/* With the lock held, which it gives up meanwhile. Slurm waits with a lock of
 * its own: once for all tasks. */
static void await_last_reading(void)
{
	struct timespec end;

	if (w->awaited)
		return;
	w->awaited = true;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += FROZEN_MS / 1000;
	while (!w->frozen &&
	       pthread_cond_timedwait(&w->changed, &w->lock, &end) !=
	       ETIMEDOUT)
		;
}

bool acct_watch_part(bool dead, struct acct_part *part)
{
	struct acct_count c = { .gone = w->share.gone };
	struct acct_sums all;
	struct gpu_totals t;

	if (dead && !w->put) {
		acct_tasks_count(&w->seen, &c);
		if (!c.alive)
			await_last_reading();
	}
	if (!newest(&t))
		return false;
	if (!dead || w->put) {
		acct_share_live(&t, w->rec.node_tasks, c.gone, part);
		return true;
	}
	acct_sums_make(&t, w->rec.node_tasks, w->rec.node_tasks / 2.0, &all);
	acct_share_dead(&w->share, &all, &t, &c, part);
	return true;
}

void acct_watch_data(void *data)
{
	struct acct_part part;
	bool dead;

	pthread_mutex_lock(&w->lock);
	if (w->sampling && ddp_gather_by_task(data, &dead) &&
	    acct_watch_part(dead, &part))
		for (unsigned m = 0; m < GPU_METRICS; m++)
			if (part.in[m] != DDP_GATHER_UNSET)
				ddp_gather_set(data, w->pos[m], part.in[m],
					       part.out[m]);
	pthread_mutex_unlock(&w->lock);
}

/* --- time series --- */

static const char *const columns[] = {
	"SM_percent", "DRAM_percent", "NVLinkInMBps", "NVLinkOutMBps",
	"PCIeInMBps", "PCIeOutMBps", "PowerWatts",
};

#define COLUMNS (sizeof(columns) / sizeof(*columns))

/* The metric that says whether a column is known. */
static const unsigned column_metric[COLUMNS] = {
	GPU_SM, GPU_MEMBW, GPU_NVLINK, GPU_NVLINK, GPU_PCIE, GPU_PCIE,
	GPU_ENERGY,
};

static struct series {
	int id;			/* 0: none yet, else Slurm's id + 1 */
	uint32_t known;		/* has columns for these metrics only */
} series[GPU_MAX];

static void series_create(struct series *s, const struct gpu_last *g)
{
	const char *cols[COLUMNS];
	char name[GPU_NAME_MAX + 8];
	unsigned n = 0;

	for (unsigned i = 0; i < COLUMNS; i++)
		if (g->known & 1u << column_metric[i])
			cols[n++] = columns[i];
	if (!n)
		return;
	snprintf(name, sizeof(name), "GPU %s", g->name);
	s->known = g->known;
	s->id = ddp_gather_series(name, cols, n) + 1;
}

static void series_add(struct series *s, const struct gpu_last *g)
{
	const double v[COLUMNS] = {
		g->sm, g->membw, g->nvlink_in / 1e6, g->nvlink_out / 1e6,
		g->pcie_in / 1e6, g->pcie_out / 1e6, g->power,
	};
	double row[COLUMNS];
	unsigned n = 0;

	if (!s->id)
		series_create(s, g);
	/* Nothing rather than a wrong number. */
	if (!s->id || (g->known & s->known) != s->known)
		return;
	for (unsigned i = 0; i < COLUMNS; i++)
		if (s->known & 1u << column_metric[i])
			row[n++] = v[i];
	ddp_gather_series_add(s->id - 1, row);
}

void acct_watch_series(void)
{
	struct gpu_totals t;
	bool have;

	pthread_mutex_lock(&w->lock);
	have = w->sampling && !w->frozen && newest(&t);
	pthread_mutex_unlock(&w->lock);
	if (!have || t.state != GPU_SAMPLING || !ddp_gather_profiling())
		return;
	for (unsigned i = 0; i < t.ngpus; i++)
		if (!t.gpu[i].lost)
			series_add(&series[i], &t.gpu[i]);
}
