/* SPDX-License-Identifier: Apache-2.0 */
/* Which jobs and steps are shown, and the users of many jobs. */
#include "config.h"

#include "accounting/report_app.h"

#include <stdlib.h>
#include <string.h>

static bool matches(const struct report_job *j, const struct ddp_acct_id *id)
{
	if (id->task != DDP_ACCT_NONE)
		return j->array_id == id->job && j->array_task == id->task;
	if (id->offset != DDP_ACCT_NONE)
		return j->het_id == id->job && j->het_offset == id->offset;
	return j->job_id == id->job || j->array_id == id->job ||
		j->het_id == id->job;
}

/* Runs of one job stand next to each other, the latest one last. */
static bool is_latest(const struct report_data *d, size_t i)
{
	return i + 1 == d->njobs || d->jobs[i + 1].job_id != d->jobs[i].job_id;
}

static void count_awaited(struct report_view *v)
{
	for (size_t k = 0; k < v->job->nsteps; k++)
		if (!v->step || v->step == &v->job->steps[k])
			v->awaited += v->job->steps[k].awaited;
}

static int add_view(struct report_data *d, const struct report_call *c,
		    const struct report_job *j, const struct report_step *s)
{
	struct report_view *v = realloc(d->views,
					(d->nviews + 1) * sizeof(*v));

	if (!v)
		return -1;
	d->views = v;
	v += d->nviews++;
	memset(v, 0, sizeof(*v));
	v->job = j;
	v->step = s;
	if (!c->many)
		v->nadvice = report_advise(j, s, c->advise_after, v->advice);
	count_awaited(v);
	d->awaited += v->awaited;
	if (j->running || j->pending || v->awaited)
		d->ended = false;
	return 0;
}

/* All parts of a heterogeneous step, if it was named without one. */
static bool step_fits(const char *id, const char *wanted)
{
	size_t n = strlen(wanted);

	return !strncmp(id, wanted, n) &&
		(!id[n] || (id[n] == '+' && !strchr(wanted, '+')));
}

static int add_steps(struct report_data *d, const struct report_call *c,
		     const struct report_job *j, const char *wanted)
{
	for (size_t k = 0; k < j->nsteps; k++)
		if (step_fits(j->steps[k].id, wanted) &&
		    add_view(d, c, j, &j->steps[k]))
			return -1;
	return 0;
}

/* What one argument names. 0 or -1: out of memory. */
static int add_selected(struct report_data *d, const struct report_call *c,
			const struct report_select *s)
{
	size_t before = d->nviews;
	bool known = false;
	int len;

	for (size_t i = 0; i < d->njobs; i++) {
		const struct report_job *j = &d->jobs[i];

		if (!matches(j, &s->id) ||
		    (!c->duplicates && !is_latest(d, i)))
			continue;
		known = true;
		if (*s->step ? add_steps(d, c, j, s->step) :
		    add_view(d, c, j, NULL))
			return -1;
	}
	if (d->nviews > before)
		return 0;
	d->missing++;
	len = (int)strcspn(s->text, ".");
	if (known)
		fprintf(stderr, "ddp-report: job %.*s has no step %s (yet)\n",
			len, s->text, s->step);
	else
		fprintf(stderr, "ddp-report: the accounting has no job %.*s%s"
			"\n", len, s->text, c->cluster ? " on that cluster" :
			"");
	return 0;
}

static bool wanted(const struct report_job *j, const struct report_call *c)
{
	if (!j->ngpus || j->pending)
		return false;
	if (!c->states)
		return true;
	for (int s = 0; s < 32; s++)
		if (c->states & (1U << s) &&
		    !strcmp(j->state, ddp_acct_state_name(s)))
			return true;
	return false;
}

int report_views(struct report_data *d, const struct report_call *c,
		 struct ddp_err *err)
{
	int rc = 0;

	d->ended = true;
	for (size_t i = 0; !rc && !c->many && i < c->nids; i++)
		rc = add_selected(d, c, &c->ids[i]);
	/* Every run of a job had GPUs that are counted. */
	for (size_t i = 0; !rc && c->many && i < d->njobs; i++)
		if (wanted(&d->jobs[i], c))
			rc = add_view(d, c, &d->jobs[i], NULL);
	return rc ? ddp_err_set(err, DDP_ENOMEM, "out of memory") : 0;
}

static bool same_user(const struct report_job *a, const struct report_job *b)
{
	return a->uid == b->uid &&
		!strcmp(a->user ? a->user : "", b->user ? b->user : "");
}

static int by_user(const void *x, const void *y)
{
	const struct report_job *a = *(const struct report_job *const *)x;
	const struct report_job *b = *(const struct report_job *const *)y;

	if (a->uid != b->uid)
		return a->uid < b->uid ? -1 : 1;
	return strcmp(a->user ? a->user : "", b->user ? b->user : "");
}

static int by_idle(const void *x, const void *y)
{
	const struct report_user *a = x, *b = y;

	if (a->idle != b->idle)
		return a->idle > b->idle ? -1 : 1;
	if (a->gpu_seconds != b->gpu_seconds)
		return a->gpu_seconds > b->gpu_seconds ? -1 : 1;
	return strcmp(a->name ? a->name : "", b->name ? b->name : "");
}

static void count_job(struct report_user *u, const struct report_job *j)
{
	const struct report_total *t = &j->total;

	u->name = j->user;
	u->uid = j->uid;
	u->jobs++;
	u->gpu_seconds += t->gpu_seconds > 0 ? t->gpu_seconds : 0;
	if (t->idle >= 0)
		u->idle += t->idle;
	else
		u->unknown += t->gpu_seconds > 0 ? t->gpu_seconds : 0;
}

struct report_user *report_users(const struct report_data *d, size_t *n)
{
	struct report_user *users = calloc(d->nviews + 1, sizeof(*users));
	const struct report_job **jobs = calloc(d->nviews + 1, sizeof(*jobs));

	*n = 0;
	if (!users || !jobs) {
		free(users);
		free(jobs);
		return NULL;
	}
	for (size_t i = 0; i < d->nviews; i++)
		jobs[i] = d->views[i].job;
	qsort(jobs, d->nviews, sizeof(*jobs), by_user);
	for (size_t i = 0; i < d->nviews; i++) {
		if (!i || !same_user(jobs[i], jobs[i - 1]))
			++*n;
		count_job(&users[*n - 1], jobs[i]);
	}
	qsort(users, *n, sizeof(*users), by_idle);
	free(jobs);
	return users;
}
