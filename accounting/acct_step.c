/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/acct.h"
#include "core/ddp_text.h"

#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>

#define BEFORE "slurmstepd: ["

static int parse_step(const char *text, struct acct_step *s)
{
	if (!strcmp(text, "batch")) {
		s->kind = ACCT_BATCH;
		s->step = SLURM_BATCH_SCRIPT;
	} else if (!strcmp(text, "interactive")) {
		s->kind = ACCT_BATCH;
		s->step = SLURM_INTERACTIVE_STEP;
	} else if (text[0] >= '0' && text[0] <= '9') {
		/* "0+1" is component 1 of a heterogeneous step. */
		s->kind = ACCT_STEP;
		return ddp_text_u32_n(text, strcspn(text, "+"), 0, UINT32_MAX,
				      &s->step);
	} else {
		s->kind = ACCT_OTHER;
	}
	return 0;
}

void acct_step_parse(const char *title, struct acct_step *s)
{
	char text[64];
	const char *end;
	char *dot;

	memset(s, 0, sizeof(*s));
	if (strncmp(title, BEFORE, strlen(BEFORE)))
		return;
	title += strlen(BEFORE);
	end = strchr(title, ']');
	if (!end || (size_t)(end - title) >= sizeof(text))
		return;
	memcpy(text, title, (size_t)(end - title));
	text[end - title] = '\0';
	(void)ddp_text_copy(s->name, sizeof(s->name), text);
	dot = strchr(text, '.');
	if (!dot)
		return;
	*dot = '\0';
	if (ddp_text_u32_n(text, strcspn(text, "+"), 1, UINT32_MAX, &s->job) ||
	    parse_step(dot + 1, s))
		s->kind = ACCT_UNKNOWN;
}
