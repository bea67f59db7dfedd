/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/report_app.h"
#include "core/ddp_text.h"

#include <getopt.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { JSON = 256, PARSABLE, WATCH, SINCE, UNTIL, STATE, DUPLICATES, ADVISE,
	PRINT_VERSION };

static const struct option table[] = {
	{ "json", no_argument, NULL, JSON },
	{ "parsable", no_argument, NULL, PARSABLE },
	{ "watch", optional_argument, NULL, WATCH },
	{ "since", required_argument, NULL, SINCE },
	{ "until", required_argument, NULL, UNTIL },
	{ "user", required_argument, NULL, 'u' },
	{ "all-users", no_argument, NULL, 'a' },
	{ "account", required_argument, NULL, 'A' },
	{ "state", required_argument, NULL, STATE },
	{ "cluster", required_argument, NULL, 'M' },
	{ "duplicates", no_argument, NULL, DUPLICATES },
	{ "advise-after", required_argument, NULL, ADVISE },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, PRINT_VERSION },
	{ NULL, 0, NULL, 0 }
};

void report_usage(FILE *f)
{
	fputs("usage: ddp-report JOB[.STEP]... [--json | --parsable | --watch"
	      "[=SECONDS]]\n"
	      "                  [--duplicates] [--advise-after SECONDS] "
	      "[-M CLUSTER]\n"
	      "       ddp-report [--since TIME] [--until TIME] [--user USER,..."
	      " | --all-users]\n"
	      "                  [--account NAME,...] [--state STATE,...] "
	      "[-M CLUSTER]\n"
	      "                  [--json | --parsable]\n\n"
	      "What the GPUs of jobs did, by the accounting; without JOB, of "
	      "today's jobs.\nTIME is YYYY-MM-DD[THH:MM[:SS]], today, yesterday, "
	      "now-7days. JOB is a job's "
	      "number, JOB_TASK\nof an array, JOB+OFFSET of a heterogeneous "
	      "job. See ddp-report(1).\n", f);
}

/* Always 2. */
static int refuse(const char *what, const char *value, const char *wanted)
{
	char safe[64];

	fprintf(stderr, "ddp-report: %s%s%s%s: wanted is %s\n", what,
		value ? " \"" : "", value ? ddp_text_safe(value, safe,
							  sizeof(safe)) : "",
		value ? "\"" : "", wanted);
	return 2;
}

static int add_user(struct report_call *c, const char *name)
{
	uint32_t *more = realloc(c->users, (c->nusers + 1) * sizeof(*more));
	const struct passwd *pw;

	if (!more)
		return -1;
	c->users = more;
	if (!ddp_text_u32(name, 0, UINT32_MAX - 2, &more[c->nusers])) {
		c->nusers++;
		return 0;
	}
	pw = getpwnam(name);
	if (!pw)
		return -1;
	more[c->nusers++] = pw->pw_uid;
	return 0;
}

static int add_account(struct report_call *c, const char *name)
{
	char **more = realloc(c->accounts, (c->naccounts + 1) * sizeof(*more));

	if (!more)
		return -1;
	c->accounts = more;
	more[c->naccounts] = strdup(name);
	return more[c->naccounts] ? (c->naccounts++, 0) : -1;
}

static int add_state(struct report_call *c, const char *name)
{
	int state = ddp_acct_state_parse(name);

	if (state < 0 || state > 31)
		return -1;
	c->states |= 1U << state;
	return 0;
}

/* Each word of a list with commas; none may be empty. 0 or -1. */
static int each(struct report_call *c, const char *list,
		int (*add)(struct report_call *c, const char *word))
{
	char *copy = strdup(list), *at = copy, *word;
	int rc = copy ? 0 : -1;

	while (!rc && (word = strsep(&at, ",")))
		rc = *word ? add(c, word) : -1;
	free(copy);
	return rc;
}

static int take_time(const char *option, const char *value, int64_t *out,
		     bool *has)
{
	if (report_time_parse(value, time(NULL), out))
		return refuse(option, value, "YYYY-MM-DD[THH:MM[:SS]], today, "
			      "yesterday, midnight, now or now-NUMBER[seconds|"
			      "minutes|hours|days|weeks]");
	*has = true;
	return 0;
}

static int take_watch(struct report_call *c, const char *value)
{
	uint32_t seconds = 5;

	if (value && ddp_text_u32(value, 1, 86400, &seconds))
		return refuse("--watch", value, "a number of seconds, 1 to "
			      "86400");
	c->watch = seconds;
	return 0;
}

static int take_advise(struct report_call *c, const char *value)
{
	uint32_t seconds;

	if (ddp_text_u32(value, 0, UINT32_MAX, &seconds))
		return refuse("--advise-after", value, "a number of seconds");
	c->advise_after = seconds;
	return 0;
}

static int take_form(struct report_call *c, enum report_form form)
{
	if (c->form != REPORT_TABLE && c->form != form)
		return refuse("--json, --parsable", NULL, "one of the two");
	c->form = form;
	return 0;
}

/* Those that choose among many jobs. */
static int take_choice(struct report_call *c, int option, const char *value)
{
	c->many = true;
	if (option == SINCE)
		return take_time("--since", value, &c->since, &c->has_since);
	if (option == UNTIL)
		return take_time("--until", value, &c->until, &c->has_until);
	if (option == 'a')
		c->all_users = true;
	else if (option == 'u' && each(c, value, add_user))
		return refuse("--user", value, "a list of users that this "
			      "host knows, or of their numbers");
	else if (option == 'A' && each(c, value, add_account))
		return refuse("--account", value, "a list of accounts");
	else if (option == STATE && each(c, value, add_state))
		return refuse("--state", value, "a list of job states, as "
			      "RUNNING or COMPLETED,FAILED");
	return 0;
}

static int take(struct report_call *c, int option, const char *value)
{
	switch (option) {
	case JSON:
		return take_form(c, REPORT_JSON);
	case PARSABLE:
		return take_form(c, REPORT_PARSABLE);
	case WATCH:
		return take_watch(c, value);
	case ADVISE:
		return take_advise(c, value);
	case DUPLICATES:
		c->duplicates = true;
		return 0;
	case 'M':
		c->cluster = value;
		return *value ? 0 : refuse("--cluster", value, "a name");
	case 'h':
		report_usage(stdout);
		c->done = true;
		return 0;
	case PRINT_VERSION:
		printf("ddp-report %s\n", PACKAGE_VERSION);
		c->done = true;
		return 0;
	default:
		return take_choice(c, option, value);
	}
}

/* What only makes sense together. 0 or 2. */
static int check(struct report_call *c)
{
	if (c->nids && c->many)
		return refuse("jobs and a choice of jobs", NULL, "one of the "
			      "two: JOB..., or --since, --until, --user, "
			      "--all-users, --account, --state");
	/* Nothing is asked for: today's jobs. */
	if (!c->nids)
		c->many = true;
	if (c->watch && (c->many || c->form != REPORT_TABLE))
		return refuse("--watch", NULL, "a job to watch, and neither "
			      "--json nor --parsable");
	if (c->duplicates && c->many)
		return refuse("--duplicates", NULL, "a job; of many jobs all "
			      "runs are shown");
	if (c->all_users && c->nusers)
		return refuse("--user, --all-users", NULL, "one of the two");
	return 0;
}

/* From today's first second until now, and whose jobs. */
static int defaults(struct report_call *c)
{
	int64_t now = time(NULL);

	if (!c->has_until)
		c->until = now;
	if (!c->has_since && report_time_parse("today", c->until, &c->since))
		return refuse("--since", NULL, "a time");
	if (c->since > c->until)
		return refuse("--since", NULL, "a time before that of --until");
	if (!c->nusers && !c->all_users && geteuid()) {
		c->users = malloc(sizeof(*c->users));
		if (!c->users)
			return refuse("memory", NULL, "more");
		c->users[c->nusers++] = geteuid();
	}
	return 0;
}

int report_call_read(struct report_call *c, int argc, char **argv)
{
	int o, rc = 0;

	memset(c, 0, sizeof(*c));
	c->advise_after = 60;
	while (!rc && !c->done &&
	       (o = getopt_long(argc, argv, "ahu:A:M:", table, NULL)) >= 0)
		rc = o == '?' ? 2 : take(c, o, optarg);
	if (rc || c->done)
		return rc;
	for (; optind < argc; optind++)
		if (report_select_add(&c->ids, &c->nids, argv[optind]))
			return refuse("job", argv[optind], "JOB, JOB_TASK or "
				      "JOB+OFFSET, and behind it .batch, .0 or "
				      "another step");
	rc = check(c);
	return rc || !c->many ? rc : defaults(c);
}

void report_call_clear(struct report_call *c)
{
	for (size_t i = 0; i < c->nids; i++)
		free((char *)c->ids[i].text);
	free(c->ids);
	for (size_t i = 0; i < c->naccounts; i++)
		free(c->accounts[i]);
	free(c->accounts);
	free(c->users);
	memset(c, 0, sizeof(*c));
}
