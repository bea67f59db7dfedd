/* SPDX-License-Identifier: Apache-2.0 */
/* How many GPUs the steps of a job hold, and when. */
#include "config.h"

#include "accounting/report_use.h"

#include <stdlib.h>
#include <string.h>

struct event {
	int64_t at;
	double gpus;		/* change */
};

static int by_time(const void *x, const void *y)
{
	const struct event *a = x, *b = y;

	return a->at < b->at ? -1 : a->at > b->at;
}

static int64_t end_of(const struct report_step *s)
{
	return s->end > s->start ? s->end : s->start;
}

static size_t make_events(const struct report_job *job, const bool *use,
			  struct event *e)
{
	size_t n = 0;

	for (size_t i = 0; i < job->nsteps; i++) {
		const struct report_step *s = &job->steps[i];

		if (!use[i] || s->ngpus <= 0)
			continue;
		e[n++] = (struct event){ s->start, (double)s->ngpus };
		e[n++] = (struct event){ end_of(s), -(double)s->ngpus };
	}
	qsort(e, n, sizeof(*e), by_time);
	return n;
}

int report_use_make(const struct report_job *job, const bool *use, double all,
		    struct report_use *u)
{
	struct event *e = calloc(2 * job->nsteps + 1, sizeof(*e));
	double gpus = 0, reduced = 0;
	size_t n;

	memset(u, 0, sizeof(*u));
	u->point = calloc(2 * job->nsteps + 1, sizeof(*u->point));
	if (!e || !u->point) {
		free(e);
		free(u->point);
		u->point = NULL;
		return -1;
	}
	n = make_events(job, use, e);
	for (size_t i = 0; i < n; i++) {
		double dt = i + 1 < n ? (double)(e[i + 1].at - e[i].at) : 0;
		bool over;

		gpus += e[i].gpus;
		over = all > 0 && gpus > all;
		u->point[u->n++] = (struct report_point){ e[i].at, gpus,
							  reduced };
		reduced += over ? dt * all / gpus : dt;
		u->over += over ? dt : 0;
		u->used += dt * (over ? all : gpus);
		u->wall += gpus > 0 ? dt : 0;
	}
	free(e);
	return 0;
}

/* The integral of min(1, all / gpus) up to `at`, from some fixed time. */
static double reduced_until(const struct report_use *u, int64_t at)
{
	size_t lo = 0, hi = u->n;

	/* The last of the points at this time. */
	while (lo + 1 < hi) {
		size_t mid = (lo + hi) / 2;

		if (u->point[mid].at <= at)
			lo = mid;
		else
			hi = mid;
	}
	return u->point[lo].reduced;
}

double report_use_part(const struct report_use *u, const struct report_step *s)
{
	double all = (double)(end_of(s) - s->start), part;

	if (u->over <= REPORT_OVERLAP || all <= 0 || !u->n)
		return 1;
	part = (reduced_until(u, end_of(s)) - reduced_until(u, s->start)) / all;
	return part < 1 - 1e-9 ? part : 1;
}

void report_use_clear(struct report_use *u)
{
	free(u->point);
	u->point = NULL;
}
