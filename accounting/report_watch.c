/* SPDX-License-Identifier: Apache-2.0 */
/* One picture, and one after the other. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/report_app.h"
#include "core/ddp_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int show(const struct report_data *d, const struct report_call *c,
		const struct report_screen *s, FILE *f)
{
	if (c->form == REPORT_JSON)
		return report_show_json(d, c->many, f);
	if (c->form == REPORT_PARSABLE)
		return report_show_parsable(d, !c->many, f);
	return c->many ? report_show_list(d, s, f) : report_show_table(d, s, f);
}

static void say_awaited(unsigned n, FILE *f)
{
	fflush(f);
	fprintf(stderr, "ddp-report: %u step%s ended just now, and what %s used "
		"is not in slurmdbd yet: ask again in some seconds\n", n,
		n == 1 ? "" : "s", n == 1 ? "it" : "they");
}

int report_once(const struct report_call *c, FILE *f,
		const struct report_screen *s, bool *ended)
{
	struct ddp_err err;
	struct ddp_acct *a = ddp_acct_open(&err);
	struct report_data d;
	int rc = 1;

	memset(&d, 0, sizeof(d));
	if (!a || report_load(a, c, &d, &err)) {
		fprintf(stderr, "ddp-report: %s\n", err.text);
	} else if (show(&d, c, s, f)) {
		fprintf(stderr, "ddp-report: cannot write the report\n");
	} else {
		rc = d.missing ? 1 : 0;
		if (ended)
			*ended = d.ended;
		else if (d.awaited)
			say_awaited(d.awaited, f);
	}
	report_data_clear(&d);
	ddp_acct_close(a);
	return rc;
}

/* A picture as one text, so that it appears, or is cut off, as a whole. */
static int draw(const struct report_call *c, bool first, bool *ended)
{
	struct report_screen s;
	char *text = NULL, now[32];
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int rc;

	if (!f)
		return 1;
	report_screen_init(&s);
	if (s.tty)
		fputs("\033[H\033[J", f);
	else if (!first)
		fputc('\n', f);
	fprintf(f, "%s, every %u s\n", report_utc(time(NULL), now,
						  sizeof(now)), c->watch);
	rc = report_once(c, f, &s, ended);
	if (fclose(f))
		rc = 1;
	else if (!rc && ddp_io_write_all(STDOUT_FILENO, text))
		rc = 1;
	free(text);
	return rc;
}

int report_watch(const struct report_call *c)
{
	struct timespec next;
	bool ended = false;
	int rc;

	if (clock_gettime(CLOCK_MONOTONIC, &next))
		return 1;
	rc = draw(c, true, &ended);
	while (!rc && !ended) {
		struct timespec now;

		next.tv_sec += c->watch;
		/* An answer that took longer puts the next one off. */
		if (!clock_gettime(CLOCK_MONOTONIC, &now) &&
		    now.tv_sec >= next.tv_sec)
			next.tv_sec = now.tv_sec + 1;
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next,
				       NULL) == EINTR)
			;
		rc = draw(c, false, &ended);
	}
	return rc;
}
