/* SPDX-License-Identifier: Apache-2.0 */
/* Many jobs, a row each, and below them their users. */
#include "config.h"

#include "accounting/report_grid.h"

#include <stdlib.h>
#include <string.h>

enum { JOB, USER, ACCOUNT, NAME, STATE, ELAPSED, GPUS, HOURS, SM, SM_PEAK,
	DRAM, ENERGY, IDLE, SHARE, BAR, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[JOB] = { "JOB", false },
	[USER] = { "USER", false },
	[ACCOUNT] = { "ACCOUNT", false },
	[NAME] = { "NAME", false },
	[STATE] = { "STATE", false },
	[ELAPSED] = { "ELAPSED", true },
	[GPUS] = { "GPUS", true },
	[HOURS] = { "GPU-H", true },
	[SM] = { "SM%", true },
	[SM_PEAK] = { "PEAK", true },
	[DRAM] = { "DRAM%", true },
	[ENERGY] = { "ENERGY", true },
	[IDLE] = { "IDLE-H", true },
	[SHARE] = { "IDLE%", true },
	[BAR] = { "SM", false },
};

/* Figures come before names where there is not room for both. */
#define NARROW 110

static const char *percent(double part, double all, char *buf, size_t size)
{
	if (part < 0 || all <= 0)
		snprintf(buf, size, "-");
	else
		snprintf(buf, size, "%.0f", 100 * part / all);
	return buf;
}

/* A job's user, or the number of one whom the accounting has lost. */
static const char *user_text(const char *name, uint32_t uid, bool utf8,
			     char *buf, size_t size)
{
	if (!name || !*name)
		snprintf(buf, size, "%u", uid);
	else
		report_clean(name, utf8, buf, size);
	return buf;
}

static int set_names(struct report_grid *g, const struct report_job *j,
		     const struct report_screen *s)
{
	size_t most = s->tty ? 13 : 128;
	char text[128];

	return report_grid_set(g, JOB, j->id) ||
		report_grid_set(g, USER, user_text(j->user, j->uid, s->utf8,
						   text, most)) ||
		report_grid_set(g, ACCOUNT, report_clean(j->account, s->utf8,
							 text, most)) ||
		report_grid_set(g, NAME, report_clean(j->name, s->utf8, text,
						      most)) ||
		report_grid_set(g, STATE, j->state) ||
		report_grid_set(g, ELAPSED, report_elapsed(j->seconds, text,
							   sizeof(text)));
}

static int set_figure(struct report_grid *g, size_t column,
		      const struct report_total *t, int m)
{
	char text[REPORT_CELL];
	size_t n;

	report_cell(&t->values, m, text, sizeof(text) - 1);
	n = strlen(text);
	if (t->partial & t->values.known & REPORT_BIT(m))
		memcpy(text + n, "+", 2);
	return report_grid_set(g, column, text);
}

static int add_job(struct report_grid *g, const struct report_job *j,
		   const struct report_screen *s)
{
	static const int figures[][2] = { { SM, REPORT_SM },
		{ SM_PEAK, REPORT_SM_PEAK }, { DRAM, REPORT_DRAM },
		{ ENERGY, REPORT_ENERGY } };
	const struct report_total *t = &j->total;
	char text[REPORT_CELL] = "-";

	if (report_grid_row(g) || set_names(g, j, s))
		return -1;
	if (j->ngpus >= 0)
		snprintf(text, sizeof(text), "%lld", (long long)j->ngpus);
	if (report_grid_set(g, GPUS, text) ||
	    report_grid_set(g, HOURS, report_hours(t->gpu_seconds, text,
						   sizeof(text))))
		return -1;
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		if (set_figure(g, (size_t)figures[i][0], t, figures[i][1]))
			return -1;
	report_hours(t->idle, text, sizeof(text) - 2);
	if (t->idle_at_least)
		strcat(text, "+");
	return report_grid_set(g, IDLE, text) ||
		report_grid_set(g, SHARE, percent(t->idle, t->gpu_seconds,
						  text, sizeof(text)));
}

static int put_bars(struct report_grid *g, const struct report_data *d,
		    const struct report_screen *s)
{
	unsigned cells = report_bar_cells(g, BAR, s);
	char text[REPORT_BAR_SIZE];

	if (!cells)
		report_grid_hide(g, BAR);
	for (size_t i = 0; cells && i < d->nviews; i++) {
		const struct report_values *v = &d->views[i].job->total.values;

		if (report_grid_put(g, i, BAR,
				    report_bar(v, cells, s->utf8, text,
					       sizeof(text)),
				    report_bar_colour(v)))
			return -1;
	}
	return 0;
}

static int show_jobs(const struct report_data *d,
		     const struct report_screen *s, FILE *f)
{
	struct report_grid *g = report_grid_new(columns, s->tty ? COLUMNS :
						BAR, s, f);
	bool more = false;
	int rc = g ? 0 : -1;

	if (g && s->tty && s->width < NARROW) {
		report_grid_hide(g, ACCOUNT);
		report_grid_hide(g, NAME);
	}
	for (size_t i = 0; !rc && i < d->nviews; i++) {
		rc = add_job(g, d->views[i].job, s);
		more = more ||
			report_total_partial(&d->views[i].job->total);
	}
	if (!rc && s->tty)
		rc = put_bars(g, d, s);
	if (!rc)
		rc = report_grid_print(g);
	if (!rc && more)
		fputs("+ not all of the GPU time has figures: at least this, "
		      "or that of a part\n", f);
	report_grid_free(g);
	return rc;
}

enum { U_USER, U_JOBS, U_HOURS, U_IDLE, U_SHARE, U_UNKNOWN, U_COLUMNS };

static const struct report_column user_columns[U_COLUMNS] = {
	[U_USER] = { "USER", false },
	[U_JOBS] = { "JOBS", true },
	[U_HOURS] = { "GPU-HOURS", true },
	[U_IDLE] = { "IDLE", true },
	[U_SHARE] = { "IDLE%", true },
	[U_UNKNOWN] = { "UNKNOWN", true },
};

static int add_user(struct report_grid *g, const struct report_user *u,
		    const struct report_screen *s)
{
	double known = u->gpu_seconds - u->unknown;
	double idle = known > 0 ? u->idle : -1;
	char text[REPORT_CELL], n[24];

	snprintf(n, sizeof(n), "%u", u->jobs);
	return report_grid_row(g) ||
		report_grid_set(g, U_USER, user_text(u->name, u->uid, s->utf8,
						     text, sizeof(text))) ||
		report_grid_set(g, U_JOBS, n) ||
		report_grid_set(g, U_HOURS, report_hours(u->gpu_seconds, text,
							 sizeof(text))) ||
		report_grid_set(g, U_IDLE, report_hours(idle, text,
							sizeof(text))) ||
		report_grid_set(g, U_SHARE, percent(idle, known, text,
						    sizeof(text))) ||
		report_grid_set(g, U_UNKNOWN, report_hours(u->unknown, text,
							   sizeof(text)));
}

static int show_users(const struct report_data *d,
		      const struct report_screen *s, FILE *f)
{
	struct report_grid *g = report_grid_new(user_columns, U_COLUMNS, s, f);
	struct report_user *users;
	size_t n = 0;
	int rc;

	users = report_users(d, &n);
	rc = g && users ? 0 : -1;
	for (size_t i = 0; !rc && i < n; i++)
		rc = add_user(g, &users[i], s);
	if (!rc)
		rc = report_grid_print(g);
	report_grid_free(g);
	free(users);
	return rc;
}

int report_show_list(const struct report_data *d,
		     const struct report_screen *s, FILE *f)
{
	if (!d->nviews) {
		fputs("no jobs with GPUs in that time\n", f);
		return 0;
	}
	if (show_jobs(d, s, f))
		return -1;
	fputc('\n', f);
	return show_users(d, s, f) || ferror(f) ? -1 : 0;
}
