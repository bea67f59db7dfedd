/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ddp-report reads of its caller and of the database: jobs, times, lists
 * of TRES, names. These files use core alone.
 */
#define _GNU_SOURCE
#define take take_digits
#include "accounting/report_time.c"
#undef take
#include "accounting/report_select.c"
#include "accounting/report_format.c"

#include "core/ddp_tres.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Nothing that a terminal would take for an order, and whole characters. */
static void check_clean(const char *text, bool utf8, size_t size)
{
	char buf[64];
	size_t n;

	report_clean(text, utf8, buf, size);
	n = strlen(buf);
	if (n >= size)
		abort();
	for (size_t i = 0; i < n;) {
		uint32_t c = 0;
		size_t len = utf8_at((const unsigned char *)buf + i, &c);

		if (!len || is_hidden(c) || (!utf8 && len > 1))
			abort();
		i += len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct report_select *ids = NULL;
	char *text = malloc(size + 1);
	uint64_t count = 1;
	int64_t when;
	size_t n = 0;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!report_time_parse(text, 1772600767, &when) && when < 0)
		abort();
	if (!ddp_tres_count(text, 1001, &count) && count >= UINT64_MAX - 1)
		abort();
	(void)report_select_add(&ids, &n, text);
	for (size_t i = 0; i < n; i++) {
		if (!ids[i].id.job || strlen(ids[i].step) >=
		    sizeof(ids[i].step))
			abort();
		free((char *)ids[i].text);
	}
	free(ids);
	check_clean(text, true, 64);
	check_clean(text, false, 64);
	check_clean(text, true, 5);
	free(text);
	return 0;
}
