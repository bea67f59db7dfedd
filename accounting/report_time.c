/* SPDX-License-Identifier: Apache-2.0 */
/* Points in time as sacct takes them, the forms that mean the past. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/report_app.h"
#include "core/ddp_text.h"

#include <string.h>
#include <time.h>

#define DAY 86400

static int local_midnight(int64_t when, int days, int64_t *out)
{
	time_t t = (time_t)when;
	struct tm tm;

	if (!localtime_r(&t, &tm))
		return -1;
	tm.tm_mday += days;
	tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
	tm.tm_isdst = -1;
	t = mktime(&tm);
	if (t == (time_t)-1)
		return -1;
	*out = t;
	return 0;
}

/* Exactly `digits` of them at *text, which moves on. */
static int take(const char **text, size_t digits, uint32_t min, uint32_t max,
		int *out)
{
	uint32_t value;

	if (strnlen(*text, digits) < digits ||
	    ddp_text_u32_n(*text, digits, min, max, &value))
		return -1;
	*text += digits;
	*out = (int)value;
	return 0;
}

static bool skip(const char **text, char c)
{
	if (**text != c)
		return false;
	++*text;
	return true;
}

/* YYYY-MM-DD[THH:MM[:SS]] */
static int parse_date(const char *text, int64_t *out)
{
	struct tm tm, back;
	time_t t;

	memset(&tm, 0, sizeof(tm));
	if (take(&text, 4, 1970, 9999, &tm.tm_year) || !skip(&text, '-') ||
	    take(&text, 2, 1, 12, &tm.tm_mon) || !skip(&text, '-') ||
	    take(&text, 2, 1, 31, &tm.tm_mday))
		return -1;
	if (skip(&text, 'T') &&
	    (take(&text, 2, 0, 23, &tm.tm_hour) || !skip(&text, ':') ||
	     take(&text, 2, 0, 59, &tm.tm_min) ||
	     (skip(&text, ':') && take(&text, 2, 0, 59, &tm.tm_sec))))
		return -1;
	if (*text)
		return -1;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	tm.tm_isdst = -1;
	back = tm;
	t = mktime(&back);
	/* mktime() takes the 30th of February for the 2nd of March. */
	if (t == (time_t)-1 || back.tm_mday != tm.tm_mday ||
	    back.tm_mon != tm.tm_mon)
		return -1;
	*out = t;
	return 0;
}

/* Seconds of a unit: "", "s", "seconds", "minute", …; 0: there is none. */
static int64_t unit_of(const char *text)
{
	static const struct {
		const char *name;
		int64_t seconds;
	} units[] = {
		{ "second", 1 }, { "minute", 60 }, { "hour", 3600 },
		{ "day", DAY }, { "week", 7 * DAY }
	};

	if (!*text)
		return 1;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		size_t n = strlen(units[i].name);

		if (!strncmp(text, units[i].name, n) &&
		    (!text[n] || !strcmp(text + n, "s")))
			return units[i].seconds;
	}
	return 0;
}

/* What follows "now": nothing, -N[unit], +N[unit]. */
static int parse_offset(const char *text, int64_t now, int64_t *out)
{
	size_t digits;
	uint32_t count;
	int64_t unit, when;
	bool minus = *text == '-';

	if (!*text) {
		*out = now;
		return 0;
	}
	if (!minus && *text != '+')
		return -1;
	text++;
	digits = strspn(text, "0123456789");
	if (ddp_text_u32_n(text, digits, 0, UINT32_MAX, &count))
		return -1;
	unit = unit_of(text + digits);
	when = minus ? now - count * unit : now + count * unit;
	if (!unit || when < 0)
		return -1;
	*out = when;
	return 0;
}

int report_time_parse(const char *text, int64_t now, int64_t *out)
{
	if (!strcmp(text, "today") || !strcmp(text, "midnight"))
		return local_midnight(now, 0, out);
	if (!strcmp(text, "yesterday"))
		return local_midnight(now, -1, out);
	if (!strncmp(text, "now", 3))
		return parse_offset(text + 3, now, out);
	return parse_date(text, out);
}
