/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and foreign texts as people read them. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/report_app.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define HOUR 3600.0

/*
 * Length of the UTF-8 character at s, with its number in *c; 0 if there is
 * none: overlong forms, surrogates and numbers that Unicode does not have.
 */
static size_t utf8_at(const unsigned char *s, uint32_t *c)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 :
		s[0] >= 0xe0 && s[0] < 0xf0 ? 3 :
		s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;

	if (!n)
		return 0;
	*c = n == 1 ? s[0] : s[0] & (0x7fU >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*c = *c << 6 | (s[i] & 0x3fU);
	}
	return *c < least[n] || *c > 0x10ffff || (*c >> 11) == 0x1b ? 0 : n;
}

/* Controls, and what turns a line round or is not seen at all. */
static bool is_hidden(uint32_t c)
{
	return c < 32 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c ||
		(c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
		(c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
		(c >= 0xfff0 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

const char *report_clean(const char *text, bool utf8, char *buf, size_t size)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t used = 0;

	if (!text || !*text) {
		snprintf(buf, size, "-");
		return buf;
	}
	while (*s && used + 1 < size) {
		uint32_t c = 0;
		size_t n = utf8_at(s, &c);
		bool plain = n == 1 || (n && utf8);

		if (!n || !plain || is_hidden(c)) {
			buf[used++] = '?';
		} else {
			if (used + n >= size)
				break;
			memcpy(buf + used, s, n);
			used += n;
		}
		s += n ? n : 1;
	}
	buf[used] = '\0';
	return buf;
}

static const char *scaled(double v, const char *const *units, size_t nunits,
			  char *buf, size_t size)
{
	size_t u = 0;

	/* 999.6 would be shown as 1000. */
	while (v >= 999.5 && u + 1 < nunits) {
		v /= 1000;
		u++;
	}
	snprintf(buf, size, "%.*f%s", u && v < 9.995 ? 2 : u && v < 99.95 ? 1 :
		 0, v, units[u]);
	return buf;
}

const char *report_bytes(double bytes, char *buf, size_t size)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB",
		"EB", "ZB" };

	return scaled(bytes, units, sizeof(units) / sizeof(units[0]), buf,
		      size);
}

const char *report_joules(double joules, char *buf, size_t size)
{
	static const char *const units[] = { "J", "kJ" };
	static const char *const large[] = { "Wh", "kWh", "MWh", "GWh" };

	if (joules < 0.1 * 3.6e6)
		return scaled(joules, units, 2, buf, size);
	return scaled(joules / 3600, large, 4, buf, size);
}

const char *report_hours(double gpu_seconds, char *buf, size_t size)
{
	if (gpu_seconds < 0)
		snprintf(buf, size, "-");
	else
		snprintf(buf, size, "%.*f", gpu_seconds < 100 * HOUR ? 2 : 1,
			 gpu_seconds / HOUR);
	return buf;
}

const char *report_cell(const struct report_values *v, int m, char *buf,
			size_t size)
{
	if (!report_known(v, m))
		snprintf(buf, size, "-");
	else if (m == REPORT_SM || m == REPORT_DRAM || m == REPORT_SM_PEAK ||
		 m == REPORT_DRAM_PEAK)
		snprintf(buf, size, "%.0f", v->v[m]);
	else if (m == REPORT_ENERGY)
		report_joules(v->v[m], buf, size);
	else if (m == REPORT_IDLE)
		report_hours(v->v[m], buf, size);
	else
		report_bytes(v->v[m], buf, size);
	return buf;
}

const char *report_rate(const struct report_values *v, int m, double seconds,
			char *buf, size_t size)
{
	if (!report_known(v, m) || seconds <= 0) {
		snprintf(buf, size, "-");
	} else {
		size_t n;

		report_bytes(v->v[m] / seconds, buf, size);
		n = strlen(buf);
		snprintf(buf + n, size - n, "/s");
	}
	return buf;
}

const char *report_elapsed(double seconds, char *buf, size_t size)
{
	uint64_t s = seconds > 0 ? (uint64_t)seconds : 0;
	uint64_t days = s / 86400;
	size_t n = 0;

	if (days)
		n = (size_t)snprintf(buf, size, "%" PRIu64 "-", days);
	snprintf(buf + n, size - n, "%02u:%02u:%02u",
		 (unsigned)(s / 3600 % 24), (unsigned)(s / 60 % 60),
		 (unsigned)(s % 60));
	return buf;
}

const char *report_utc(int64_t when, char *buf, size_t size)
{
	time_t t = (time_t)when;
	struct tm tm;

	if (when <= 0 || !gmtime_r(&t, &tm) ||
	    !strftime(buf, size, "%Y-%m-%dT%H:%M:%SZ", &tm))
		return NULL;
	return buf;
}
