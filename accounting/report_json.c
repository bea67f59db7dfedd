/* SPDX-License-Identifier: Apache-2.0 */
/* One JSON document, by doc/ddp-report.schema.json; unknown is null. */
#include "config.h"

#include "accounting/report_app.h"

#include <math.h>
#include <stdlib.h>

#include <jansson.h>

static json_t *text_or_null(const char *text)
{
	char clean[1024];

	if (!text || !*text)
		return json_null();
	return json_string(report_clean(text, true, clean, sizeof(clean)));
}

static json_t *id_or_null(uint32_t id)
{
	return id == UINT32_MAX ? json_null() : json_integer(id);
}

static json_t *time_or_null(int64_t when)
{
	char text[32];

	return report_utc(when, text, sizeof(text)) ? json_string(text) :
		json_null();
}

/* Whole where it is whole, and not longer than a double is true. */
static json_t *number(double v)
{
	if (v < 0 || !isfinite(v))
		return json_null();
	if (v < 9e15 && v == (double)(json_int_t)v)
		return json_integer((json_int_t)v);
	return json_real(v);
}

static json_t *figure(const struct report_values *v, int m)
{
	return report_known(v, m) ? number(v->v[m]) : json_null();
}

static json_t *rate(const struct report_values *v, int m, double seconds)
{
	return report_known(v, m) && seconds > 0 ? number(v->v[m] / seconds) :
		json_null();
}

static const char *const keys[REPORT_METRICS] = {
	[REPORT_SM] = "sm_mean_percent",
	[REPORT_SM_PEAK] = "sm_peak_percent",
	[REPORT_DRAM] = "dram_mean_percent",
	[REPORT_DRAM_PEAK] = "dram_peak_percent",
	[REPORT_NVLINK_IN] = "nvlink_received_bytes",
	[REPORT_NVLINK_OUT] = "nvlink_sent_bytes",
	[REPORT_PCIE_IN] = "pcie_received_bytes",
	[REPORT_PCIE_OUT] = "pcie_sent_bytes",
	[REPORT_ENERGY] = "energy_joules",
	[REPORT_IDLE] = "idle_gpu_seconds",
};

static bool is_bytes(int m)
{
	return m >= REPORT_NVLINK_IN && m <= REPORT_PCIE_OUT;
}

/* seconds: of each metric, for rates. */
static void put_figures(json_t *o, const struct report_values *v,
			const double seconds[REPORT_METRICS])
{
	char key[64];

	for (int m = 0; m < REPORT_METRICS; m++) {
		json_object_set_new(o, keys[m], figure(v, m));
		if (!is_bytes(m))
			continue;
		snprintf(key, sizeof(key), "%s_per_second", keys[m]);
		json_object_set_new(o, key, rate(v, m, seconds[m]));
	}
}

static json_t *names_of(uint32_t bits)
{
	json_t *list = json_array();

	for (int m = 0; m < REPORT_METRICS; m++)
		if (bits & REPORT_BIT(m))
			json_array_append_new(list, json_string(keys[m]));
	return list;
}

static json_t *total_object(const struct report_total *t)
{
	json_t *o = json_object();

	put_figures(o, &t->values, t->seconds);
	/* The job's own: what is idle in steps, and what no step held. */
	json_object_set_new(o, "idle_gpu_seconds", number(t->idle));
	json_object_set_new(o, "idle_in_steps_gpu_seconds",
			    figure(&t->values, REPORT_IDLE));
	json_object_set_new(o, "unused_gpu_seconds", number(t->unused));
	json_object_set_new(o, "idle_is_lower_bound",
			    json_boolean(t->idle_at_least));
	json_object_set_new(o, "partial", names_of(t->partial &
						   t->values.known));
	json_object_set_new(o, "estimated", names_of(t->shared));
	return o;
}

static json_t *gpus_or_null(int64_t ngpus)
{
	return ngpus < 0 ? json_null() : json_integer(ngpus);
}

static json_t *step_object(const struct report_step *s)
{
	double seconds[REPORT_METRICS];
	json_t *o = json_object();

	for (int m = 0; m < REPORT_METRICS; m++)
		seconds[m] = s->seconds;
	json_object_set_new(o, "step", json_string(s->id));
	json_object_set_new(o, "name", text_or_null(s->name));
	json_object_set_new(o, "state", text_or_null(s->state));
	json_object_set_new(o, "start_time", time_or_null(s->start));
	json_object_set_new(o, "end_time", s->running ? json_null() :
			    time_or_null(s->end));
	json_object_set_new(o, "elapsed_seconds", number(s->seconds));
	json_object_set_new(o, "nodes", s->nnodes ? json_integer(s->nnodes) :
			    json_null());
	json_object_set_new(o, "tasks", s->ntasks ? json_integer(s->ntasks) :
			    json_null());
	json_object_set_new(o, "gpus", gpus_or_null(s->ngpus));
	json_object_set_new(o, "shares_gpus", json_boolean(s->shares));
	json_object_set_new(o, "partial",
			    json_boolean(report_step_partial(s)));
	put_figures(o, &s->values, seconds);
	return o;
}

static json_t *advice_list(const struct report_view *v)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < v->nadvice; i++) {
		const struct report_advice *a = &v->advice[i];
		json_t *o = json_object();

		json_object_set_new(o, "rule",
				    json_string(report_rule_name(a->rule)));
		json_object_set_new(o, "step", a->step ?
				    json_string(a->step->id) : json_null());
		json_object_set_new(o, "text", json_string(a->text));
		json_array_append_new(list, o);
	}
	return list;
}

static void put_ids(json_t *o, const struct report_job *j)
{
	json_object_set_new(o, "job", json_string(j->id));
	json_object_set_new(o, "job_id", json_integer(j->job_id));
	json_object_set_new(o, "array_job_id", id_or_null(j->array_id));
	json_object_set_new(o, "array_task_id", id_or_null(j->array_task));
	json_object_set_new(o, "het_job_id", id_or_null(j->het_id));
	json_object_set_new(o, "het_job_offset", id_or_null(j->het_offset));
	json_object_set_new(o, "cluster", text_or_null(j->cluster));
	json_object_set_new(o, "name", text_or_null(j->name));
	json_object_set_new(o, "user", text_or_null(j->user));
	json_object_set_new(o, "user_id", json_integer(j->uid));
	json_object_set_new(o, "account", text_or_null(j->account));
	json_object_set_new(o, "partition", text_or_null(j->partition));
	json_object_set_new(o, "state", text_or_null(j->state));
}

static json_t *job_object(const struct report_view *v)
{
	const struct report_job *j = v->job;
	json_t *o = json_object(), *steps = json_array();

	put_ids(o, j);
	json_object_set_new(o, "submit_time", time_or_null(j->submit));
	json_object_set_new(o, "start_time", time_or_null(j->start));
	json_object_set_new(o, "end_time", j->running || j->pending ?
			    json_null() : time_or_null(j->end));
	json_object_set_new(o, "elapsed_seconds", number(j->seconds));
	json_object_set_new(o, "nodes", j->nnodes ? json_integer(j->nnodes) :
			    json_null());
	json_object_set_new(o, "gpus", gpus_or_null(j->ngpus));
	json_object_set_new(o, "gpu_seconds", number(j->total.gpu_seconds));
	json_object_set_new(o, "total", total_object(&j->total));
	for (size_t i = 0; i < j->nsteps; i++)
		if (!v->step || v->step == &j->steps[i])
			json_array_append_new(steps,
					      step_object(&j->steps[i]));
	json_object_set_new(o, "steps", steps);
	json_object_set_new(o, "advice", advice_list(v));
	return o;
}

static json_t *user_object(const struct report_user *u)
{
	json_t *o = json_object();

	json_object_set_new(o, "user", text_or_null(u->name));
	json_object_set_new(o, "user_id", json_integer(u->uid));
	json_object_set_new(o, "jobs", json_integer(u->jobs));
	json_object_set_new(o, "gpu_seconds", number(u->gpu_seconds));
	json_object_set_new(o, "idle_gpu_seconds",
			    u->gpu_seconds > u->unknown ? number(u->idle) :
			    json_null());
	json_object_set_new(o, "unknown_gpu_seconds", number(u->unknown));
	return o;
}

static json_t *user_list(const struct report_data *d)
{
	size_t n = 0;
	struct report_user *users = report_users(d, &n);
	json_t *list = users ? json_array() : NULL;

	for (size_t i = 0; list && i < n; i++)
		json_array_append_new(list, user_object(&users[i]));
	free(users);
	return list;
}

int report_show_json(const struct report_data *d, bool users, FILE *f)
{
	json_t *o = json_object(), *jobs = json_array(), *list = NULL;
	int rc = 0;

	json_object_set_new(o, "slurm_ddp",
			    json_pack("{s:s,s:s,s:i}", "program", "ddp-report",
				      "version", PACKAGE_VERSION, "schema",
				      1));
	for (size_t i = 0; i < d->nviews; i++)
		json_array_append_new(jobs, job_object(&d->views[i]));
	json_object_set_new(o, "jobs", jobs);
	if (users) {
		list = user_list(d);
		rc = list ? json_object_set_new(o, "users", list) : -1;
	}
	if (!rc)
		rc = json_dumpf(o, f, JSON_ENSURE_ASCII | JSON_PRESERVE_ORDER |
				JSON_REAL_PRECISION(15) | JSON_INDENT(1));
	json_decref(o);
	return rc || fputc('\n', f) == EOF ? -1 : 0;
}
