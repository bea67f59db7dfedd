/* SPDX-License-Identifier: Apache-2.0 */
/* The last task of the step has ended: the last reading, and where it goes. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct_watch.h"
#include "core/ddp_io.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <slurm/spank.h>

/* When a step begins is known to some milliseconds: in less than this, ns,
 * nothing can be told with any truth … */
#define SHORTEST 100000000
/* … nor in a step so short of which more than that was before the first
 * reading. */
#define SHORT 2500000000
#define SHORT_EARLY 50000000
#define LAST_MS 700		/* for the last reading */
#define JOIN_MS 1700		/* more than that, less than two seconds */

static struct acct_watch *const w = &acct_watch;

/*
 * Of several nodes each has to say what it can: Slurm adds up what there is, and
 * one that says nothing makes a whole of the others' parts.
 */
static bool vague(const struct gpu_totals *t)
{
	int64_t step = ddp_io_now_us() * 1000 - t->first;

	if (t->last - t->first < SHORTEST)
		return true;
	return w->rec.nnodes == 1 && step < SHORT &&
		t->began - t->first > SHORT_EARLY;
}

/* With the lock held: these are the step's values. */
static void freeze(void)
{
	struct gpu_totals t;

	if (acct_watch_read(&t)) {
		if (vague(&t))
			t.known_in = t.known_out = 0;
		w->totals = t;
		w->have_totals = true;
	}
	w->frozen = true;
	pthread_cond_broadcast(&w->changed);
}

/* last: the last reading came. */
static void say_how_it_went(bool last)
{
	const struct gpu_totals *t = &w->totals;
	int64_t gap;

	if (!w->have_totals) {
		if (!w->said)
			acct_say("no GPU accounting: the GPU driver or the "
				 "sampler did not answer");
		return;
	}
	if (t->state == GPU_BROKEN)
		acct_say("no GPU accounting: what %s says cannot be",
			 w->conf.sampler);
	if (t->state != GPU_SAMPLING && t->state != GPU_DONE)
		return;
	slurm_debug("ddp: step %s: %s", w->step.name, t->text);
	gap = ddp_io_now_us() * 1000 - t->last;
	if (!last && !w->said && gap > 3000000LL * w->conf.interval_ms)
		acct_say("the GPU driver or the sampler stopped to answer: the "
			 "values end %lld s before the step",
			 (long long)(gap / 1000000000LL));
}

void acct_watch_last(void)
{
	bool last;

	if (!w->sampling)
		return;
	last = acct_sampler_stop(&w->sampler, ddp_io_now_us() * 1000, LAST_MS);
	pthread_mutex_lock(&w->lock);
	freeze();
	pthread_mutex_unlock(&w->lock);
	say_how_it_went(last);
}

/* Not pthread_timedjoin_np(): the wall clock may be set meanwhile. */
static void join(void)
{
	struct timespec end;
	uint64_t one = 1;
	bool over;

	(void)!write(w->stop, &one, sizeof(one));
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += JOIN_MS % 1000 * 1000000L;
	end.tv_sec += JOIN_MS / 1000 + end.tv_nsec / 1000000000L;
	end.tv_nsec %= 1000000000L;
	pthread_mutex_lock(&w->lock);
	while (!w->over &&
	       pthread_cond_timedwait(&w->changed, &w->lock, &end) !=
	       ETIMEDOUT)
		;
	over = w->over;
	/* It hangs, in the log or in /proc: what there is, is the last. */
	if (!over && w->sampling && !w->frozen)
		freeze();
	pthread_mutex_unlock(&w->lock);
	if (over)
		pthread_join(w->thread, NULL);
	w->running = false;
}

static void put(void)
{
	struct ddp_gather_usage usage[GPU_METRICS];
	struct acct_sums sums;
	struct ddp_err err;
	unsigned n = 0, tasks = w->rec.node_tasks;

	acct_sums_make(&w->totals, tasks,
		       acct_sums_extra(w->rec.nodeid, w->rec.nnodes, tasks),
		       &sums);
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		bool mean = gpu_metric_is_percent(m);
		bool sent = m == GPU_NVLINK || m == GPU_PCIE;

		if (w->pos[m] < 0)
			continue;
		usage[n++] = (struct ddp_gather_usage){
			.pos = w->pos[m],
			.in_tot = sums.in[m],
			.in_max = mean && sums.in[m] != DDP_GATHER_UNSET ?
				(uint64_t)(w->totals.in[m] + 0.5) : sums.in[m],
			.out_max = sums.out[m],
			/* Where a sum of "out" means nothing: of how many
			 * tasks "in" is. */
			.out_tot = sent || sums.in[m] == DDP_GATHER_UNSET ?
				sums.out[m] : tasks,
		};
	}
	if (ddp_gather_record_put(&w->rec, w->nodeid, usage, n, &err))
		acct_say("GPU TRES not stored: %s", err.text);
}

void acct_watch_end(void)
{
	bool have;

	if (!w->running)
		return;
	join();
	pthread_mutex_lock(&w->lock);
	have = w->frozen && w->have_totals && w->put;
	pthread_mutex_unlock(&w->lock);
	if (have)
		put();
}
