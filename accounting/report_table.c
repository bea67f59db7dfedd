/* SPDX-License-Identifier: Apache-2.0 */
/* A job and its steps for people: two tables, what they leave out, advice. */
#include "config.h"

#include "accounting/report_grid.h"

#include <string.h>

#define HOUR 3600.0

enum { STEP, NAME, STATE, ELAPSED, NODES, TASKS, GPUS, SM, SM_PEAK, DRAM,
	DRAM_PEAK, BAR, USE_COLUMNS };

static const struct report_column use_columns[USE_COLUMNS] = {
	[STEP] = { "STEP", false },
	[NAME] = { "NAME", false },
	[STATE] = { "STATE", false },
	[ELAPSED] = { "ELAPSED", true },
	[NODES] = { "NODES", true },
	[TASKS] = { "TASKS", true },
	[GPUS] = { "GPUS", true },
	[SM] = { "SM%", true },
	[SM_PEAK] = { "PEAK", true },
	[DRAM] = { "DRAM%", true },
	[DRAM_PEAK] = { "PEAK", true },
	[BAR] = { "SM", false },
};

enum { T_STEP, T_NVLINK_IN, T_NVLINK_OUT, T_PCIE_IN, T_PCIE_OUT, T_ENERGY,
	T_IDLE, T_NVLINK_IN_S, T_NVLINK_OUT_S, T_PCIE_IN_S, T_PCIE_OUT_S,
	TRAFFIC_COLUMNS };

static const struct report_column traffic_columns[TRAFFIC_COLUMNS] = {
	[T_STEP] = { "STEP", false },
	[T_NVLINK_IN] = { "NVLINK-IN", true },
	[T_NVLINK_OUT] = { "NVLINK-OUT", true },
	[T_PCIE_IN] = { "PCIE-IN", true },
	[T_PCIE_OUT] = { "PCIE-OUT", true },
	[T_ENERGY] = { "ENERGY", true },
	[T_IDLE] = { "IDLE-GPUH", true },
	[T_NVLINK_IN_S] = { "NVL-IN/S", true },
	[T_NVLINK_OUT_S] = { "NVL-OUT/S", true },
	[T_PCIE_IN_S] = { "PCIE-IN/S", true },
	[T_PCIE_OUT_S] = { "PCIE-OUT/S", true },
};

/* Rates would not fit beside the sums on less, nor names beside a bar. */
#define WIDE 110
#define NARROW 96

/* One row: the job, or a step of it. */
struct row {
	const char *id, *state, *name;
	bool mark;			/* behind the id */
	double seconds;
	int64_t ngpus;
	uint32_t nnodes, ntasks;	/* 0: none to show */
	const struct report_values *values;
	bool part;			/* the values are those of a part */
	const struct report_total *total;	/* of the job's row */
};

static struct row job_row(const struct report_job *j)
{
	return (struct row){ "job", j->state, j->name, false, j->seconds,
			     j->ngpus, j->nnodes, 0, &j->total.values,
			     false, &j->total };
}

static struct row step_row(const struct report_step *s)
{
	return (struct row){ s->id, s->state, s->name, s->shares, s->seconds,
			     s->ngpus, s->nnodes, s->ntasks, &s->values,
			     report_step_partial(s), NULL };
}

static int set_count(struct report_grid *g, size_t column, int64_t n)
{
	char text[24] = "-";

	if (n >= 0)
		snprintf(text, sizeof(text), "%lld", (long long)n);
	return report_grid_set(g, column, text);
}

/* The text with the marks of the figure behind it. */
static int set_marked(struct report_grid *g, size_t column, char *text,
		      size_t size, const struct row *r, int m)
{
	const struct report_total *t = r->total;
	size_t n = strlen(text);
	bool part = t ? t->partial & REPORT_BIT(m) : r->part;

	if (report_known(r->values, m) && n + 3 < size)
		snprintf(text + n, size - n, "%s%s",
			 t && t->shared & REPORT_BIT(m) ? "*" : "",
			 part ? "+" : "");
	return report_grid_set(g, column, text);
}

static int set_figure(struct report_grid *g, size_t column,
		      const struct row *r, int m)
{
	char text[REPORT_CELL];

	report_cell(r->values, m, text, sizeof(text));
	return set_marked(g, column, text, sizeof(text), r, m);
}

static int set_id(struct report_grid *g, const struct row *r)
{
	char text[REPORT_CELL];

	snprintf(text, sizeof(text), "%s%s", r->id, r->mark ? "*" : "");
	return report_grid_set(g, STEP, text);
}

static int add_use(struct report_grid *g, const struct row *r,
		   const struct report_screen *s)
{
	char text[256];
	size_t most = s->tty ? 21 : sizeof(text);

	if (report_grid_row(g) || set_id(g, r) ||
	    report_grid_set(g, NAME, report_clean(r->name, s->utf8, text,
						  most)) ||
	    report_grid_set(g, STATE, report_clean(r->state, false, text,
						   sizeof(text))) ||
	    report_grid_set(g, ELAPSED, report_elapsed(r->seconds, text,
						       sizeof(text))))
		return -1;
	return set_count(g, NODES, r->nnodes ? (int64_t)r->nnodes : -1) ||
		set_count(g, TASKS, r->ntasks ? (int64_t)r->ntasks : -1) ||
		set_count(g, GPUS, r->ngpus) ||
		set_figure(g, SM, r, REPORT_SM) ||
		set_figure(g, SM_PEAK, r, REPORT_SM_PEAK) ||
		set_figure(g, DRAM, r, REPORT_DRAM) ||
		set_figure(g, DRAM_PEAK, r, REPORT_DRAM_PEAK) ? -1 : 0;
}

static int set_rate(struct report_grid *g, size_t column, const struct row *r,
		    int m)
{
	char text[REPORT_CELL];

	report_rate(r->values, m, r->total ? r->total->seconds[m] : r->seconds,
		    text, sizeof(text));
	return set_marked(g, column, text, sizeof(text), r, m);
}

/* The job's idle time has more to it than the steps': see report_rollup.c. */
static int set_idle(struct report_grid *g, const struct row *r)
{
	const struct report_total *t = r->total;
	char text[REPORT_CELL];

	if (!t)
		return set_figure(g, T_IDLE, r, REPORT_IDLE);
	report_hours(t->idle, text, sizeof(text) - 3);
	if (t->idle >= 0 && t->shared & REPORT_BIT(REPORT_IDLE))
		strcat(text, "*");
	if (t->idle >= 0 && t->idle_at_least)
		strcat(text, "+");
	return report_grid_set(g, T_IDLE, text);
}

static int add_traffic(struct report_grid *g, const struct row *r, bool rates)
{
	if (report_grid_row(g) || set_id(g, r) ||
	    set_figure(g, T_NVLINK_IN, r, REPORT_NVLINK_IN) ||
	    set_figure(g, T_NVLINK_OUT, r, REPORT_NVLINK_OUT) ||
	    set_figure(g, T_PCIE_IN, r, REPORT_PCIE_IN) ||
	    set_figure(g, T_PCIE_OUT, r, REPORT_PCIE_OUT) ||
	    set_figure(g, T_ENERGY, r, REPORT_ENERGY) || set_idle(g, r))
		return -1;
	if (!rates)
		return 0;
	return set_rate(g, T_NVLINK_IN_S, r, REPORT_NVLINK_IN) ||
		set_rate(g, T_NVLINK_OUT_S, r, REPORT_NVLINK_OUT) ||
		set_rate(g, T_PCIE_IN_S, r, REPORT_PCIE_IN) ||
		set_rate(g, T_PCIE_OUT_S, r, REPORT_PCIE_OUT) ? -1 : 0;
}

/* The rows of a view, one after the other: false behind the last one. */
static bool next_row(const struct report_view *v, size_t *at, struct row *r)
{
	size_t i = (*at)++;

	if (v->step) {
		*r = step_row(v->step);
		return !i;
	}
	if (!i) {
		*r = job_row(v->job);
		return true;
	}
	/* Extern steps have no figures. */
	while (i <= v->job->nsteps &&
	       v->job->steps[i - 1].kind == REPORT_EXTERN)
		i = (*at)++;
	if (i > v->job->nsteps)
		return false;
	*r = step_row(&v->job->steps[i - 1]);
	return true;
}

static int put_bars(struct report_grid *g, const struct report_view *v,
		    const struct report_screen *s)
{
	unsigned cells = report_bar_cells(g, BAR, s);
	char text[REPORT_BAR_SIZE];
	struct row r;
	size_t at = 0;

	if (!cells)
		report_grid_hide(g, BAR);
	for (size_t row = 0; cells && next_row(v, &at, &r); row++)
		if (report_grid_put(g, row, BAR,
				    report_bar(r.values, cells, s->utf8, text,
					       sizeof(text)),
				    report_bar_colour(r.values)))
			return -1;
	return 0;
}

static int show_use(const struct report_view *v, const struct report_screen *s,
		    FILE *f)
{
	struct report_grid *g = report_grid_new(use_columns, s->tty ?
						USE_COLUMNS : BAR, s, f);
	struct row r;
	size_t at = 0;
	int rc = g ? 0 : -1;

	if (g && s->tty && s->width < NARROW)
		report_grid_hide(g, NAME);
	while (!rc && next_row(v, &at, &r))
		rc = add_use(g, &r, s);
	if (!rc && s->tty)
		rc = put_bars(g, v, s);
	if (!rc)
		rc = report_grid_print(g);
	report_grid_free(g);
	return rc;
}

static int show_traffic(const struct report_view *v,
			const struct report_screen *s, FILE *f)
{
	bool rates = !s->tty || s->width >= WIDE;
	struct report_grid *g = report_grid_new(traffic_columns, rates ?
						TRAFFIC_COLUMNS :
						T_NVLINK_IN_S, s, f);
	struct row r;
	size_t at = 0;
	int rc = g ? 0 : -1;

	while (!rc && next_row(v, &at, &r))
		rc = add_traffic(g, &r, rates);
	if (!rc)
		rc = report_grid_print(g);
	report_grid_free(g);
	return rc;
}

static void show_idle(const struct report_job *j, FILE *f)
{
	const struct report_total *t = &j->total;
	char all[REPORT_CELL], idle[REPORT_CELL], unused[REPORT_CELL];

	if (t->gpu_seconds <= 0)
		return;
	fprintf(f, "%s GPU-hours, idle ", report_hours(t->gpu_seconds, all,
						       sizeof(all)));
	if (t->idle < 0)
		fputs("not known", f);
	else
		fprintf(f, "%s%s (%.0f %%)", t->idle_at_least ? "at least " :
			"", report_hours(t->idle, idle, sizeof(idle)),
			100 * t->idle / t->gpu_seconds);
	if (t->unused > 0)
		fprintf(f, "; no step on the GPUs in %s",
			report_hours(t->unused, unused, sizeof(unused)));
	fputc('\n', f);
}

static void show_head(const struct report_job *j,
		      const struct report_screen *s, FILE *f)
{
	char name[128], user[64], account[64], partition[64];

	fprintf(f, "Job %s \"%s\" of %s, account %s, partition %s: %s\n",
		j->id, report_clean(j->name, s->utf8, name, sizeof(name)),
		report_clean(j->user, s->utf8, user, sizeof(user)),
		report_clean(j->account, s->utf8, account, sizeof(account)),
		report_clean(j->partition, s->utf8, partition,
			     sizeof(partition)), j->state);
	show_idle(j, f);
}

/* What the marks mean, where there are any. */
static void show_marks(const struct report_view *v, FILE *f)
{
	const struct report_total *t = &v->job->total;
	bool shared = v->step ? v->step->shares : t->shared;
	bool part = v->step ? report_step_partial(v->step) :
		report_total_partial(t);

	for (size_t i = 0; !v->step && i < v->job->nsteps; i++) {
		shared = shared || v->job->steps[i].shares;
		part = part || report_step_partial(&v->job->steps[i]);
	}
	if (shared)
		fputs("* steps share GPUs: each one's figures are the whole "
		      "GPUs', the job's an estimate\n", f);
	if (part)
		fputs("+ not all of the GPU time has figures: at least this, "
		      "or that of a part\n", f);
}

static void show_advice(const struct report_view *v,
			const struct report_screen *s, FILE *f)
{
	for (unsigned i = 0; i < v->nadvice; i++)
		fprintf(f, "%s! %s%s\n", s->colour ? "\033[33m" : "",
			v->advice[i].text, s->colour ? "\033[0m" : "");
}

static int show_view(const struct report_view *v, const struct report_screen *s,
		     FILE *f)
{
	show_head(v->job, s, f);
	fputc('\n', f);
	if (show_use(v, s, f))
		return -1;
	fputc('\n', f);
	if (show_traffic(v, s, f))
		return -1;
	show_marks(v, f);
	show_advice(v, s, f);
	return ferror(f) ? -1 : 0;
}

int report_show_table(const struct report_data *d,
		      const struct report_screen *s, FILE *f)
{
	for (size_t i = 0; i < d->nviews; i++) {
		if (i)
			fputc('\n', f);
		if (show_view(&d->views[i], s, f))
			return -1;
	}
	if (!d->has_metrics)
		fputs("The accounting has never had figures of GPUs: "
		      "AccountingStorageTRES names none of\ngres/gpusm, "
		      "gres/gpumembw, ic/nvlink, ic/pcie, gres/gpuenergy and "
		      "gres/gpuidle.\n", f);
	return 0;
}
