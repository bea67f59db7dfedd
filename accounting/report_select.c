/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and steps as users name them. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/report_app.h"
#include "core/ddp_text.h"

#include <stdlib.h>
#include <string.h>

/* Digits from text up to one of `ends` or the end; *text moves there. */
static int take(const char **text, const char *ends, uint32_t min,
		uint32_t *out)
{
	size_t n = strcspn(*text, ends);

	if (ddp_text_u32_n(*text, n, min, UINT32_MAX - 1, out))
		return -1;
	*text += n;
	return 0;
}

/* "batch", "interactive", "extern", "0", "0+1" */
static bool is_step(const char *text)
{
	uint32_t v;

	if (!strcmp(text, "batch") || !strcmp(text, "interactive") ||
	    !strcmp(text, "extern"))
		return true;
	if (take(&text, "+", 0, &v))
		return false;
	return !*text || (text++, !take(&text, "", 0, &v));
}

static int parse(const char *text, struct report_select *s)
{
	s->id.task = s->id.offset = DDP_ACCT_NONE;
	if (take(&text, "_+.", 1, &s->id.job))
		return -1;
	if (*text == '_' && (text++, take(&text, ".", 0, &s->id.task)))
		return -1;
	if (*text == '+' && (text++, take(&text, ".", 0, &s->id.offset)))
		return -1;
	if (!*text)
		return 0;
	text++;
	return is_step(text) ? ddp_text_copy(s->step, sizeof(s->step), text) :
		-1;
}

static int add_one(struct report_select **ids, size_t *n, const char *text,
		   size_t len)
{
	struct report_select *more = realloc(*ids, (*n + 1) * sizeof(*more));
	struct report_select *s;
	char *copy;

	if (!more)
		return -1;
	*ids = more;
	s = &more[*n];
	memset(s, 0, sizeof(*s));
	copy = strndup(text, len);
	if (!copy || parse(copy, s)) {
		free(copy);
		return -1;
	}
	s->text = copy;
	++*n;
	return 0;
}

int report_select_add(struct report_select **ids, size_t *n, const char *text)
{
	for (;;) {
		size_t len = strcspn(text, ",");

		if (add_one(ids, n, text, len))
			return -1;
		if (!text[len])
			return 0;
		text += len + 1;
	}
}
