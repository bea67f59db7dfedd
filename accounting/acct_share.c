/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm keeps the last value of each task, adds them up over a step, and
 * divides by its tasks where it shows an average. The GPUs' values are the
 * node's, so they are dealt to its tasks in such a way that the sum is right
 * whichever task ends first.
 */
#include "config.h"

#include "accounting/acct.h"

#include <math.h>
#include <string.h>

static uint64_t whole(double v)
{
	return v >= 9e18 ? (uint64_t)9e18 : (uint64_t)floor(v + 0.5);
}

void acct_sums_make(const struct gpu_totals *t, unsigned tasks, double extra,
		    struct acct_sums *s)
{
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		s->in[m] = s->out[m] = DDP_GATHER_UNSET;
		if (gpu_metric_in(t->known_in, m) && gpu_metric_is_percent(m))
			s->in[m] = (uint64_t)floor(tasks * t->in[m] + extra +
						   1e-6);
		else if (gpu_metric_in(t->known_in, m))
			s->in[m] = whole(t->in[m]);
		if (gpu_metric_in(t->known_out, m))
			s->out[m] = whole(t->out[m]);
	}
}

double acct_sums_extra(unsigned nodeid, unsigned nnodes, unsigned tasks)
{
	return tasks / 2.0 + (nnodes ? (double)nodeid / nnodes : 0);
}

static void part_clear(struct acct_part *p)
{
	for (unsigned m = 0; m < GPU_METRICS; m++)
		p->in[m] = p->out[m] = DDP_GATHER_UNSET;
}

void acct_share_live(const struct gpu_totals *t, unsigned tasks, unsigned gone,
		     struct acct_part *part)
{
	unsigned alive = tasks > gone ? tasks - gone : 1;

	part_clear(part);
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		unsigned by = gpu_metric_is_percent(m) ? 1 : alive;

		if (gpu_metric_in(t->known_in, m))
			part->in[m] = whole(t->in[m]) / by;
		if (gpu_metric_in(t->known_out, m))
			part->out[m] = whole(t->out[m]) / by;
	}
}

/* A new task is gone: what the one before was given is given for good. */
static void settle(struct acct_share *sh, unsigned gone)
{
	if (gone == sh->gone)
		return;
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		sh->given.in[m] += sh->last.in[m];
		sh->given.out[m] += sh->last.out[m];
	}
	memset(&sh->last, 0, sizeof(sh->last));
	sh->gone = gone;
}

static uint64_t rest(uint64_t all, uint64_t given, unsigned among)
{
	return all > given ? (all - given) / among : 0;
}

void acct_share_dead(struct acct_share *sh, const struct acct_sums *all,
		     const struct gpu_totals *t, const struct acct_count *c,
		     struct acct_part *part)
{
	/* This one, and the others that have ended but are listed still. */
	unsigned among = c->zombies + 1;

	settle(sh, c->gone);
	part_clear(part);
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		if (gpu_metric_in(t->known_in, m))
			part->in[m] = sh->last.in[m] = c->alive ? 0 :
				rest(all->in[m], sh->given.in[m], among);
		if (!gpu_metric_in(t->known_out, m))
			continue;
		/* Of a peak Slurm takes the highest: everybody's is the same. */
		if (gpu_metric_is_percent(m))
			part->out[m] = all->out[m];
		else
			part->out[m] = sh->last.out[m] = c->alive ? 0 :
				rest(all->out[m], sh->given.out[m], among);
	}
}
