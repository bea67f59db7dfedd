/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step as JSON: the report file, and the answer to ddp-status. Written
 * piece by piece: a tree of 80,000 ranks would take more memory than all the
 * rest.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

/* ".PID" of the temporary file. */
#define SUFFIX_MAX 11

/* Of numbers 12 digits: microseconds for a step of eleven days. */
#define DUMP_FLAGS (JSON_COMPACT | JSON_PRESERVE_ORDER | \
		    JSON_REAL_PRECISION(12))

static json_t *time_json(const struct ctl *ctl, int64_t when_us)
{
	int64_t real = when_us + ctl->real_us;
	time_t s = (time_t)(real / 1000000);
	char text[64], zone[8];
	struct tm tm;

	if (!when_us || !localtime_r(&s, &tm) ||
	    strftime(zone, sizeof(zone), "%z", &tm) != 5)
		return json_null();
	/* ISO 8601 with a colon in the zone: +01:00 */
	snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%06d%.3s:"
		 "%s", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
		 tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(real % 1000000), zone,
		 zone + 3);
	return json_string(text);
}

/* Steals value; a failure to set is a key less. */
static void set(json_t *o, const char *key, json_t *value)
{
	(void)json_object_set_new(o, key, value);
}

static void set_number(json_t *o, const char *key, uint32_t value)
{
	set(o, key, value == CTL_NONE ? json_null() : json_integer(value));
}

static void set_text(json_t *o, const char *key, const char *text)
{
	char plain[DDP_WIRE_TEXT];

	ddp_errfile_plain(text, plain, sizeof(plain));
	set(o, key, json_string(plain));
}

static void set_node(const struct ctl *ctl, json_t *o, uint32_t node)
{
	if (node < ctl->nnodes)
		set_text(o, "node", ctl->nodes[node].name);
	else
		set(o, "node", json_null());
}

static void set_status(json_t *o, uint32_t status)
{
	bool known = status != DDP_STATUS_UNKNOWN;

	set(o, "code", known && WIFEXITED((int)status) ?
	    json_integer(WEXITSTATUS((int)status)) : json_null());
	set(o, "signal", known && WIFSIGNALED((int)status) ?
	    json_integer(WTERMSIG((int)status)) : json_null());
}

static json_t *cause_json(const struct ctl *ctl)
{
	size_t i;
	const struct ddp_cause *c = ctl_report_cause(ctl, &i);
	char line[DDP_WIRE_TEXT];
	json_t *o;

	if (!c)
		return json_null();
	o = json_object();
	set(o, "kind", json_string(ddp_cause_name(c->kind)));
	set_number(o, "rank", c->rank);
	set_node(ctl, o, c->node);
	set_number(o, "pid", c->pid);
	set_status(o, c->status);
	set(o, "time", time_json(ctl, c->when_us));
	if (ctl->texts[i])
		set_text(o, "message", ctl->texts[i]);
	else
		set(o, "message", json_null());
	ctl_report_line(ctl, i, line, sizeof(line));
	set_text(o, "text", line);
	return o;
}

static json_t *stopped_json(const struct ctl *ctl)
{
	struct ctl_stopped s;
	json_t *o = json_object();

	ctl_report_stopped(ctl, &s);
	set(o, "ranks", json_integer(s.ranks));
	set(o, "others", json_integer(s.others));
	set(o, "left", json_integer(s.left));
	set(o, "last_gone", time_json(ctl, s.last_us));
	return o;
}

/* While the step lives an answer may still come. */
static json_t *unanswered_json(const struct ctl *ctl, bool live)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < ctl->nnodes; i++) {
		const struct ctl_node *n = &ctl->nodes[i];

		if (n->state == NODE_LOST ||
		    (!live && ctl_report_unanswered(n)) ||
		    (ctl->launch_failed && n->state == NODE_ABSENT &&
		     ctl->plan.layout.tasks[i]))
			(void)json_array_append_new(list,
						    json_string(n->name));
	}
	return list;
}

static const char *phase_name(enum ctl_phase phase)
{
	static const char *const names[] = { "waiting", "running",
		"stateless", "aborting", "cancelled" };

	return names[phase];
}

/* How many ranks are in each state of the life-cycle library. */
static json_t *life_json(const struct ctl *ctl)
{
	json_t *o;

	if (!ctl->plan.life || ctl->phase == CTL_STATELESS)
		return json_null();
	o = json_object();
	for (int i = 0; i < DDP_LIFE_NSTATES; i++)
		set(o, ddp_life_state_name((enum ddp_life_state)i),
		    json_integer(ctl->life[i]));
	return o;
}

static json_t *head_json(const struct ctl *ctl, bool live)
{
	json_t *o = json_object(), *master = json_object();
	uint16_t port = ctl->port ? ctl->port : ctl->plan.port;

	set(o, "version", json_integer(1));
	set(o, "job", json_integer(ctl->conf.job));
	set(o, "step", json_integer(ctl->conf.step));
	set(o, "status", json_string(live ? phase_name(ctl->phase) :
				     ctl_report_status(ctl)));
	set(o, "watched", json_boolean(ctl->phase != CTL_STATELESS));
	if (live)
		set(o, "last_event", json_string(ctl->last_event));
	else
		set(o, "exit_code", json_integer(ctl->code >= 0 ? ctl->code :
						 ctl->exit_status));
	set(o, "start", time_json(ctl, ctl->plan_us));
	set(o, live ? "now" : "end", time_json(ctl, ddp_io_now_us()));
	set(o, "uptime", json_real(ctl->plan_us ? (double)(ddp_io_now_us() -
						  ctl->plan_us) / 1e6 : 0));
	set(o, "lifecycle", life_json(ctl));
	set(o, "world_size", json_integer(ctl->nranks));
	set(o, "nodes", json_integer(ctl->nnodes));
	set(o, "nodes_ready", json_integer(ctl->ready));
	set_text(master, "addr", ctl->plan.addr);
	set(master, "port", port ? json_integer(port) : json_null());
	set(o, "master", master);
	set(o, "cause", cause_json(ctl));
	set(o, "stopped", stopped_json(ctl));
	set(o, "unanswered", unanswered_json(ctl, live));
	set(o, "refused_peers", json_integer(ctl->refused));
	return o;
}

static const char *rank_state(const struct ctl *ctl, const struct ctl_rank *r)
{
	if (r->state == RANK_ENDED)
		return r->status == DDP_STATUS_UNKNOWN ? "ended" :
			WIFSIGNALED((int)r->status) ? "killed" : "exited";
	if (ctl->phase == CTL_STATELESS)
		return "unwatched";
	if (r->node != CTL_NONE && ctl->nodes[r->node].state == NODE_LOST)
		return "lost";
	if (r->node != CTL_NONE && ctl->nodes[r->node].state == NODE_DONE)
		return "ended";
	return r->state == RANK_RUNNING ? "running" : "waiting";
}

static json_t *rank_json(const struct ctl *ctl, uint32_t i)
{
	const struct ctl_rank *r = &ctl->ranks[i];
	json_t *o = json_object();

	set(o, "rank", json_integer(i));
	set_node(ctl, o, r->node);
	set(o, "pid", r->pid ? json_integer(r->pid) : json_null());
	set(o, "status", json_string(rank_state(ctl, r)));
	set(o, "lifecycle", ctl->plan.life && ctl->phase != CTL_STATELESS ?
	    json_string(ddp_life_state_name((enum ddp_life_state)r->life)) :
	    json_null());
	set_status(o, r->state == RANK_ENDED ? r->status :
		   DDP_STATUS_UNKNOWN);
	set(o, "time", time_json(ctl, r->state == RANK_ENDED ? r->when_us :
				 0));
	return o;
}

static int dump(json_t *o, FILE *f)
{
	int rc = json_dumpf(o, f, DUMP_FLAGS);

	json_decref(o);
	return rc;
}

/* The object without its last brace, the list of ranks, the brace. */
int ctl_json_write(const struct ctl *ctl, FILE *f, bool live)
{
	json_t *o = head_json(ctl, live);
	char *text = json_dumps(o, DUMP_FLAGS);
	size_t len = text ? strlen(text) : 0;
	int rc = -1;

	json_decref(o);
	if (len && fwrite(text, len - 1, 1, f) == 1 &&
	    fputs(",\"ranks\":[", f) >= 0)
		rc = 0;
	free(text);
	for (uint32_t i = 0; !rc && i < ctl->nranks; i++)
		rc = fputs(i ? ",\n" : "\n", f) < 0 ||
			dump(rank_json(ctl, i), f) ? -1 : 0;
	if (!rc && fputs("]}\n", f) < 0)
		rc = -1;
	return rc;
}

static int write_file(const struct ctl *ctl, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW |
		      O_CLOEXEC, 0600);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	int rc, error;

	if (!f) {
		error = errno;
		if (fd >= 0)
			close(fd);
		errno = error;
		return -1;
	}
	rc = ctl_json_write(ctl, f, false);
	error = errno;
	if (fclose(f) && !rc) {
		rc = -1;
		error = errno;
	}
	errno = error;
	return rc;
}

/* Why there could be no report at this path; NULL if there could. A device
 * or a pipe is not replaced by a file. */
static const char *obstacle(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[DDP_PATH_MAX];
	struct stat st;

	if (!slash || strlen(slash + 1) > NAME_MAX - SUFFIX_MAX)
		return strerror(ENAMETOOLONG);
	if (!lstat(path, &st) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return S_ISDIR(st.st_mode) ? strerror(EISDIR) :
			"what is there is no regular file";
	snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
	return access(dir[0] ? dir : "/", W_OK | X_OK) ? strerror(errno) :
		NULL;
}

static void no_report(struct ctl *ctl, const char *why)
{
	if (ctl->report_warned)
		return;
	ctl->report_warned = true;
	ctl_say(ctl, "warning: no report in %s: %s (--ddp-report-file)",
		ctl->conf.report, why);
}

void ctl_json_check(struct ctl *ctl)
{
	const char *why = ctl->conf.report[0] ? obstacle(ctl->conf.report) :
			  NULL;

	/* It is tried all the same: the program may make a folder. */
	if (why)
		no_report(ctl, why);
}

/* A reader finds the whole report or none; a link is replaced, not followed. */
void ctl_json_report(struct ctl *ctl)
{
	char temp[2 * DDP_PATH_MAX + 32];
	const char *why;
	int rc, error;

	if (!ctl->conf.report[0])
		return;
	why = obstacle(ctl->conf.report);
	if (why) {
		no_report(ctl, why);
		return;
	}
	snprintf(temp, sizeof(temp), "%s.%ld", ctl->conf.report,
		 (long)getpid());
	rc = write_file(ctl, temp);
	if (!rc)
		rc = rename(temp, ctl->conf.report);
	error = errno;
	if (!rc)
		return;
	if (error != EEXIST)
		(void)unlink(temp);
	no_report(ctl, strerror(error));
}
