/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-report: what the GPUs of jobs and steps did, from slurmdbd.
 *
 * Exit codes: 0; 1 a job is not known, or something failed; 2 a wrong call.
 */
#include "config.h"

#include "accounting/report_app.h"

#include <locale.h>

/* Returns the exit code. */
static int run(const struct report_call *c)
{
	struct report_screen s;
	int rc;

	report_screen_init(&s);
	rc = c->watch ? report_watch(c) : report_once(c, stdout, &s, NULL);
	if (fflush(stdout)) {
		fprintf(stderr, "ddp-report: cannot write the report\n");
		rc = 1;
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct report_call c;
	int rc;

	setlocale(LC_ALL, "");
	/* Numbers are numbers, in tables and for scripts. */
	setlocale(LC_NUMERIC, "C");
	rc = report_call_read(&c, argc, argv);
	if (!rc && !c.done)
		rc = run(&c);
	report_call_clear(&c);
	return rc;
}
