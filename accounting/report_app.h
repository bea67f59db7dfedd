/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of ddp-report that read, choose and show. */
#ifndef REPORT_APP_H
#define REPORT_APP_H

#include "accounting/report.h"
#include "compat/ddp_compat_acct.h"

#include <stdio.h>

/* --- what is asked for: report_call.c, report_select.c, report_time.c ---- */

/* "12", "12_3", "12+1"; with ".0", ".batch", ".0+1" a step of it. */
struct report_select {
	const char *text;
	struct ddp_acct_id id;
	char step[32];		/* empty: the whole job */
};

enum report_form { REPORT_TABLE, REPORT_JSON, REPORT_PARSABLE };

struct report_call {
	enum report_form form;
	bool done;		/* --help, --version: nothing more to do */
	bool many;		/* a table of many jobs */
	bool duplicates, all_users;
	unsigned watch;		/* seconds; 0: once */
	double advise_after;	/* seconds */
	struct report_select *ids;
	size_t nids;
	bool has_since, has_until;
	int64_t since, until;
	uint32_t *users;
	size_t nusers;
	char **accounts;
	size_t naccounts;
	uint32_t states;	/* bits of ddp_acct_state_parse(); 0: all */
	const char *cluster;
};

/*
 * Reads the command line. Returns 0, or the exit code after a message. *c is
 * zeroed first; free it with report_call_clear() in any case.
 */
int report_call_read(struct report_call *c, int argc, char **argv);
void report_call_clear(struct report_call *c);
void report_usage(FILE *f);

/*
 * Appends the jobs of one argument, "12" or "12.0,13_2", to *ids. Returns 0,
 * or -1: not of that form, or out of memory.
 */
int report_select_add(struct report_select **ids, size_t *n, const char *text);

/*
 * A point in time, strictly: YYYY-MM-DD[THH:MM[:SS]], today, midnight,
 * yesterday, now, and now-N or now+N with N's unit seconds (the default),
 * minutes, hours, days or weeks, of 60 s, 3600 s, 24 h and 7 days; in the
 * local time zone. Returns 0, or -1.
 */
int report_time_parse(const char *text, int64_t now, int64_t *out);

/* --- the jobs: report_load.c, report_views.c ----------------------------- */

/* One thing to show: a job, or one step of it. */
struct report_view {
	const struct report_job *job;
	const struct report_step *step;		/* NULL: the whole job */
	struct report_advice advice[REPORT_ADVICE_MAX];
	unsigned nadvice;
	unsigned awaited;	/* of its steps, see struct report_step */
};

/* After so many seconds what a step used does not come any more. */
#define REPORT_AWAIT_S 60

struct report_data {
	struct ddp_acct_jobs raw;		/* owns the texts */
	struct report_job *jobs;
	size_t njobs;
	struct report_view *views;
	size_t nviews;
	unsigned missing;	/* jobs and steps that nobody knows */
	unsigned awaited;	/* steps, see struct report_step */
	bool ended;		/* all that is shown has ended, and is complete */
	bool has_metrics;	/* see ddp_acct_has_metrics() */
};

/*
 * Asks the accounting, and fills *d with what the call wants, rolled up. A
 * job that is not known is said on stderr and counted. 0, or -1 with *err.
 * Free with report_data_clear() in either case.
 */
int report_load(struct ddp_acct *a, const struct report_call *c,
		struct report_data *d, struct ddp_err *err);
void report_data_clear(struct report_data *d);

/* A step of report_load(): the views, and what is missing. 0 or -1. */
int report_views(struct report_data *d, const struct report_call *c,
		 struct ddp_err *err);

/* One user's part of many jobs. */
struct report_user {
	const char *name;	/* or NULL */
	uint32_t uid;
	unsigned jobs;
	double gpu_seconds;
	double idle;		/* of the jobs of which it is known */
	double unknown;		/* GPU-seconds of the others */
};

/*
 * The users of all jobs shown, malloc'ed, the one with most idle GPU time
 * first; NULL: out of memory. *n: how many.
 */
struct report_user *report_users(const struct report_data *d, size_t *n);

/* --- texts: report_format.c ---------------------------------------------- */

#define REPORT_CELL 64

/*
 * Text of a database made harmless: control and other invisible characters
 * and what is no UTF-8 become '?', and all that is not ASCII unless utf8;
 * cut at a whole character. NULL or empty is "-". Returns buf.
 */
const char *report_clean(const char *text, bool utf8, char *buf, size_t size);

/* "-" where v is not known; else as people read it. Each returns buf. */
const char *report_cell(const struct report_values *v, int m, char *buf,
			size_t size);
/* Bytes a second, of a metric of bytes. */
const char *report_rate(const struct report_values *v, int m, double seconds,
			char *buf, size_t size);
const char *report_bytes(double bytes, char *buf, size_t size);
const char *report_joules(double joules, char *buf, size_t size);
/* "GPU-hours" of GPU-seconds; "-" if negative. */
const char *report_hours(double gpu_seconds, char *buf, size_t size);
/* [D-]HH:MM:SS */
const char *report_elapsed(double seconds, char *buf, size_t size);
/* UTC, "2026-01-31T12:00:00Z"; NULL: no such time. */
const char *report_utc(int64_t when, char *buf, size_t size);

/* --- showing: report_table.c, report_list.c, report_json.c, … ------------ */

struct report_screen {
	bool tty, colour, utf8;
	unsigned width;		/* columns of the terminal */
};

void report_screen_init(struct report_screen *s);

#define REPORT_BAR_CELLS 40
#define REPORT_BAR_SIZE (4 * REPORT_BAR_CELLS + 1)

/*
 * The mean as a bar of `cells` cells with a mark at the peak; empty if the
 * mean is not known. Returns buf.
 */
const char *report_bar(const struct report_values *v, unsigned cells, bool utf8,
		       char *buf, size_t size);
const char *report_bar_colour(const struct report_values *v);

/* Each writes the whole document to f: 0, or -1. */
int report_show_table(const struct report_data *d,
		      const struct report_screen *s, FILE *f);
int report_show_list(const struct report_data *d,
		     const struct report_screen *s, FILE *f);
int report_show_json(const struct report_data *d, bool users, FILE *f);
int report_show_parsable(const struct report_data *d, bool steps, FILE *f);

/* --- report_watch.c ------------------------------------------------------ */

/*
 * Shows the call's jobs again and again until they have ended. Returns the
 * exit code; SIGINT ends the process at once, between two pictures.
 */
int report_watch(const struct report_call *c);

/*
 * Once: the exit code. *ended, if not NULL: all jobs are over. By a connection
 * of its own: slurmdbd answers each out of one transaction, in which nothing
 * changes.
 */
int report_once(const struct report_call *c, FILE *f,
		const struct report_screen *s, bool *ended);

#endif
