/* SPDX-License-Identifier: Apache-2.0 */
/* Fields with "|" between them for scripts; unknown is empty. */
#include "config.h"

#include "accounting/report_app.h"

#include <inttypes.h>
#include <string.h>

static const char header[] = "job|step|cluster|user|account|partition|name|"
	"state|start_time|end_time|elapsed_seconds|nodes|tasks|gpus|"
	"gpu_seconds|sm_mean_percent|sm_peak_percent|dram_mean_percent|"
	"dram_peak_percent|nvlink_received_bytes|nvlink_sent_bytes|"
	"pcie_received_bytes|pcie_sent_bytes|energy_joules|idle_gpu_seconds|"
	"unused_gpu_seconds|marks";

/* Each writes its field and the bar behind it. */
static void put_text(FILE *f, const char *text)
{
	char clean[1024];

	if (text && *text) {
		report_clean(text, true, clean, sizeof(clean));
		for (char *c = clean; (c = strchr(c, '|')); )
			*c = '?';
		fputs(clean, f);
	}
	fputc('|', f);
}

static void put_time(FILE *f, int64_t when)
{
	char text[32];

	put_text(f, report_utc(when, text, sizeof(text)));
}

static void put_count(FILE *f, int64_t n, bool known)
{
	if (known)
		fprintf(f, "%" PRId64, n);
	fputc('|', f);
}

/* Percentages as they are, all else whole. */
static void put_figure(FILE *f, const struct report_values *v, int m)
{
	if (report_known(v, m))
		fprintf(f, "%.*f", m <= REPORT_DRAM_PEAK ? 3 : 0, v->v[m]);
	fputc('|', f);
}

static void put_figures(FILE *f, const struct report_values *v)
{
	for (int m = 0; m < REPORT_IDLE; m++)
		put_figure(f, v, m);
}

static void put_seconds(FILE *f, double seconds)
{
	if (seconds >= 0)
		fprintf(f, "%.0f", seconds);
	fputc('|', f);
}

static void put_job(FILE *f, const struct report_job *j, const char *step)
{
	put_text(f, j->id);
	put_text(f, step);
	put_text(f, j->cluster);
	put_text(f, j->user);
	put_text(f, j->account);
	put_text(f, j->partition);
}

static void job_line(FILE *f, const struct report_job *j)
{
	const struct report_total *t = &j->total;

	put_job(f, j, NULL);
	put_text(f, j->name);
	put_text(f, j->state);
	put_time(f, j->start);
	put_time(f, j->running || j->pending ? 0 : j->end);
	put_seconds(f, j->seconds);
	put_count(f, j->nnodes, j->nnodes);
	put_count(f, 0, false);
	put_count(f, j->ngpus, j->ngpus >= 0);
	put_seconds(f, t->gpu_seconds);
	put_figures(f, &t->values);
	put_seconds(f, t->idle);
	put_seconds(f, t->unused);
	fprintf(f, "%s%s\n", t->shared ? "*" : "",
		report_total_partial(t) ? "+" : "");
}

static void step_line(FILE *f, const struct report_job *j,
		      const struct report_step *s)
{
	put_job(f, j, s->id);
	put_text(f, s->name);
	put_text(f, s->state);
	put_time(f, s->start);
	put_time(f, s->running ? 0 : s->end);
	put_seconds(f, s->seconds);
	put_count(f, s->nnodes, s->nnodes);
	put_count(f, s->ntasks, s->ntasks);
	put_count(f, s->ngpus, s->ngpus >= 0);
	put_seconds(f, report_step_gpu_seconds(s));
	put_figures(f, &s->values);
	put_figure(f, &s->values, REPORT_IDLE);
	fprintf(f, "|%s%s\n", s->shares ? "*" : "",
		report_step_partial(s) ? "+" : "");
}

int report_show_parsable(const struct report_data *d, bool steps, FILE *f)
{
	fprintf(f, "%s\n", header);
	for (size_t i = 0; i < d->nviews; i++) {
		const struct report_view *v = &d->views[i];

		if (!v->step)
			job_line(f, v->job);
		else
			step_line(f, v->job, v->step);
		for (size_t k = 0; steps && !v->step && k < v->job->nsteps;
		     k++)
			step_line(f, v->job, &v->job->steps[k]);
	}
	return ferror(f) ? -1 : 0;
}
