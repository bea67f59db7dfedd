/* SPDX-License-Identifier: Apache-2.0 */
/* What ddp-report reads and writes: times, jobs, TRES, numbers, names, bars. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/report_app.h"
#include "core/ddp_tres.h"
#include "tests/unit/check_main.h"

#include <string.h>
#include <time.h>

/* Wednesday, 2026-03-04 05:06:07 UTC */
#define NOW 1772600767

static char buf[256];

static void zone(const char *name)
{
	ck_assert_int_eq(setenv("TZ", name, 1), 0);
	tzset();
}

static void ck_time(const char *text, int64_t want)
{
	int64_t got = -1;

	ck_assert_msg(!report_time_parse(text, NOW, &got), "%s refused", text);
	ck_assert_msg(got == want, "%s: %lld, not %lld", text, (long long)got,
		      (long long)want);
}

START_TEST(times)
{
	zone("UTC");
	ck_time("now", NOW);
	ck_time("now-1", NOW - 1);
	ck_time("now-90seconds", NOW - 90);
	ck_time("now-1minute", NOW - 60);
	ck_time("now-2minutes", NOW - 120);
	ck_time("now+3hours", NOW + 3 * 3600);
	ck_time("now-1days", NOW - 86400);
	ck_time("now-4weeks", NOW - 28 * 86400);
	ck_time("today", NOW - 5 * 3600 - 6 * 60 - 7);
	ck_time("midnight", NOW - 5 * 3600 - 6 * 60 - 7);
	ck_time("yesterday", NOW - 29 * 3600 - 6 * 60 - 7);
	ck_time("2026-03-04", NOW - 5 * 3600 - 6 * 60 - 7);
	ck_time("2026-03-04T05:06", NOW - 7);
	ck_time("2026-03-04T05:06:07", NOW);
	ck_time("2024-02-29T23:59:59", 1709251199);
	ck_time("1970-01-01", 0);
}
END_TEST

/* Days are the place's own; 2026-03-08 has 23 hours in New York. */
START_TEST(times_of_a_place)
{
	int64_t a, b;

	zone("EST5EDT,M3.2.0,M11.1.0");
	ck_time("today", 1772600400);	/* 00:06 there */
	ck_time("yesterday", 1772514000);
	ck_assert_int_eq(report_time_parse("2026-03-08", NOW, &a), 0);
	ck_assert_int_eq(report_time_parse("2026-03-09", NOW, &b), 0);
	ck_assert_int_eq(b - a, 23 * 3600);
	ck_assert_int_eq(report_time_parse("2026-07-01T12:00", NOW, &a), 0);
	ck_assert_int_eq(a, 1782921600);
}
END_TEST

START_TEST(bad_times)
{
	static const char *const bad[] = { "", " ", "2026", "2026-3-4",
		"2026-03-04 ", " 2026-03-04", "2026-03-04T", "2026-03-04T5:06",
		"2026-03-04T05", "2026-03-04T05:06:", "2026-03-04T05:06:7",
		"2026-03-04T05:06:07Z", "2026-03-04T24:00", "2026-03-04T05:60",
		"2026-13-01", "2026-00-01", "2026-02-30", "2025-02-29",
		"2026-04-31", "2026-03-00", "2026-03-32", "0000-01-01",
		"1969-12-31", "26-03-04", "2026/03/04", "+026-03-04",
		"2026-03-04T05:06:60", "now ", "now-", "now+", "now--1",
		"now-1day s", "now-1 days", "now-1fortnights", "now-dayss",
		"now-1dayss", "now-1d", "now1days", "now-99999999999",
		"now-4000weeks", "Today", "tomorrow", "todayx", "noon",
		"-1days", "12:00", "now-0x10", "now-1e3" };
	int64_t got = 4711;

	zone("UTC");
	for (size_t i = 0; i < CHECK_COUNT(bad); i++)
		ck_assert_msg(report_time_parse(bad[i], NOW, &got),
			      "\"%s\" accepted", bad[i]);
	ck_assert_int_eq(got, 4711);
}
END_TEST

START_TEST(selects)
{
	static const struct {
		const char *text;
		uint32_t job, task, offset;
		const char *step;
	} good[] = {
		{ "1", 1, DDP_ACCT_NONE, DDP_ACCT_NONE, "" },
		{ "4294967294", 4294967294, DDP_ACCT_NONE, DDP_ACCT_NONE, "" },
		{ "12_0", 12, 0, DDP_ACCT_NONE, "" },
		{ "12_345.0", 12, 345, DDP_ACCT_NONE, "0" },
		{ "12+1", 12, DDP_ACCT_NONE, 1, "" },
		{ "12+1.7", 12, DDP_ACCT_NONE, 1, "7" },
		{ "12.batch", 12, DDP_ACCT_NONE, DDP_ACCT_NONE, "batch" },
		{ "12.extern", 12, DDP_ACCT_NONE, DDP_ACCT_NONE, "extern" },
		{ "12.interactive", 12, DDP_ACCT_NONE, DDP_ACCT_NONE,
			"interactive" },
		{ "12.3+1", 12, DDP_ACCT_NONE, DDP_ACCT_NONE, "3+1" },
	};
	static const char *const bad[] = { "", "0", "-1", "+1", "x", "1x",
		"1.", "1.x", "1.-1", "1.Batch", "1.batch2", "1.0.0", "1_",
		"1_x", "1_[1-3]", "1_1_1", "1+", "1+1+1", "1_1+1", "1+1_1",
		" 1", "1 ", "4294967295", "4294967296", "1.4294967295", "1,",
		",1", "1,,2", "1.0+", "1.0+x", "1.\n", "18446744073709551617" };
	struct report_select *ids = NULL;
	size_t n = 0;

	for (size_t i = 0; i < CHECK_COUNT(good); i++) {
		ck_assert_int_eq(report_select_add(&ids, &n, good[i].text), 0);
		ck_assert_uint_eq(n, i + 1);
		ck_assert_uint_eq(ids[i].id.job, good[i].job);
		ck_assert_uint_eq(ids[i].id.task, good[i].task);
		ck_assert_uint_eq(ids[i].id.offset, good[i].offset);
		ck_assert_str_eq(ids[i].step, good[i].step);
		ck_assert_str_eq(ids[i].text, good[i].text);
	}
	ck_assert_int_eq(report_select_add(&ids, &n, "5,6_1,7.batch"), 0);
	ck_assert_uint_eq(n, CHECK_COUNT(good) + 3);
	ck_assert_uint_eq(ids[n - 2].id.task, 1);
	for (size_t i = 0; i < CHECK_COUNT(bad); i++)
		ck_assert_msg(report_select_add(&ids, &n, bad[i]),
			      "\"%s\" accepted", bad[i]);
	for (size_t i = 0; i < n; i++)
		free((char *)ids[i].text);
	free(ids);
}
END_TEST

START_TEST(tres)
{
	static const char *const none[] = { "", "1", "1=", "=1", "1=2,",
		"x=1,1001=2", "1=2 ,1001=2", "1=2;1001=2", "1=-1,1001=2",
		"11001=2", "1001", "1001=", "1001=x", "1001=2x",
		"1001=18446744073709551615", "1001=18446744073709551614",
		"1001=18446744073709551616", "1=99999999999999999999,1001=2",
		",1001=2", "1=1,,1001=2" };
	uint64_t v = 77;

	for (size_t i = 0; i < CHECK_COUNT(none); i++)
		ck_assert_msg(ddp_tres_count(none[i], 1001, &v), "\"%s\"",
			      none[i]);
	ck_assert_int_eq(ddp_tres_count(NULL, 1001, &v), -1);
	ck_assert_uint_eq(v, 77);
	ck_assert_int_eq(ddp_tres_count("1=4,2=400,1001=8", 1001, &v), 0);
	ck_assert_uint_eq(v, 8);
	ck_assert_int_eq(ddp_tres_count("1=4,2=400,1001=8", 2, &v), 0);
	ck_assert_uint_eq(v, 400);
	ck_assert_int_eq(ddp_tres_count("1001=0", 1001, &v), 0);
	ck_assert_uint_eq(v, 0);
	ck_assert_int_eq(ddp_tres_count("3=18446744073709551614,7=5", 7, &v),
			 0);
	ck_assert_uint_eq(v, 5);
	ck_assert_int_eq(ddp_tres_count("7=18446744073709551613", 7, &v), 0);
	ck_assert_uint_eq(v, 18446744073709551613U);
}
END_TEST

#define ck_clean(text, utf8, want) \
	ck_assert_str_eq(report_clean(text, utf8, buf, sizeof(buf)), want)

START_TEST(clean)
{
	char small[6];

	ck_clean(NULL, true, "-");
	ck_clean("", true, "-");
	ck_clean("train-1", false, "train-1");
	ck_clean("a\033[31mb\n\t\r\x7f|c", true, "a?[31mb????|c");
	ck_clean("größe", true, "größe");
	ck_clean("größe", false, "gr??e");
	ck_clean("日本", true, "日本");
	/* C1 controls, line and direction marks, no width, tags, BOM */
	ck_clean("a\xc2\x9b" "b", true, "a?b");
	ck_clean("a\xe2\x80\xae" "b", true, "a?b");
	ck_clean("a\xe2\x80\x8b\xe2\x80\xa8\xe2\x81\xa6", true, "a???");
	ck_clean("\xef\xbb\xbf" "a\xc2\xad", true, "?a?");
	ck_clean("\xf3\xa0\x80\x81", true, "?");
	/* no UTF-8: lone, cut, overlong, surrogate, beyond Unicode */
	ck_clean("\x80\xff", true, "??");
	ck_clean("a\xe2\x82", true, "a??");
	ck_clean("\xc0\xaf\xe0\x80\xaf", true, "?????");
	ck_clean("\xed\xa0\x80", true, "???");
	ck_clean("\xf4\x90\x80\x80", true, "????");
	ck_clean("\xf0\x9f\x98\x80", true, "\xf0\x9f\x98\x80");
	/* A character is whole or not there. */
	ck_assert_str_eq(report_clean("abcdé", true, small, sizeof(small)),
			 "abcd");
	ck_assert_str_eq(report_clean("abcé", true, small, sizeof(small)),
			 "abcé");
}
END_TEST

#define ck_text(call, want) ck_assert_str_eq(call, want)

START_TEST(numbers)
{
	ck_text(report_bytes(0, buf, sizeof(buf)), "0B");
	ck_text(report_bytes(999, buf, sizeof(buf)), "999B");
	ck_text(report_bytes(1000, buf, sizeof(buf)), "1.00kB");
	ck_text(report_bytes(9994, buf, sizeof(buf)), "9.99kB");
	ck_text(report_bytes(9996, buf, sizeof(buf)), "10.0kB");
	ck_text(report_bytes(99949, buf, sizeof(buf)), "99.9kB");
	ck_text(report_bytes(99951, buf, sizeof(buf)), "100kB");
	ck_text(report_bytes(999499, buf, sizeof(buf)), "999kB");
	ck_text(report_bytes(999501, buf, sizeof(buf)), "1.00MB");
	ck_text(report_bytes(1.8446744e19, buf, sizeof(buf)), "18.4EB");
	ck_text(report_joules(12, buf, sizeof(buf)), "12J");
	ck_text(report_joules(359999, buf, sizeof(buf)), "360kJ");
	ck_text(report_joules(360000, buf, sizeof(buf)), "100Wh");
	ck_text(report_joules(3.6e6 * 3.42, buf, sizeof(buf)), "3.42kWh");
	ck_text(report_hours(-1, buf, sizeof(buf)), "-");
	ck_text(report_hours(0, buf, sizeof(buf)), "0.00");
	ck_text(report_hours(3600, buf, sizeof(buf)), "1.00");
	ck_text(report_hours(123.45 * 3600, buf, sizeof(buf)), "123.5");
	ck_text(report_elapsed(0, buf, sizeof(buf)), "00:00:00");
	ck_text(report_elapsed(86399, buf, sizeof(buf)), "23:59:59");
	ck_text(report_elapsed(12 * 86400. + 3661, buf, sizeof(buf)),
		"12-01:01:01");
	ck_text(report_utc(NOW, buf, sizeof(buf)), "2026-03-04T05:06:07Z");
	ck_assert_ptr_null(report_utc(0, buf, sizeof(buf)));
}
END_TEST

START_TEST(cells)
{
	struct report_values v = { 0 };

	for (int m = 0; m < REPORT_METRICS; m++)
		ck_text(report_cell(&v, m, buf, sizeof(buf)), "-");
	ck_text(report_rate(&v, REPORT_PCIE_IN, 10, buf, sizeof(buf)), "-");
	v.known = (1U << REPORT_METRICS) - 1;
	for (int m = 0; m < REPORT_METRICS; m++)
		v.v[m] = 0;
	ck_text(report_cell(&v, REPORT_SM, buf, sizeof(buf)), "0");
	ck_text(report_cell(&v, REPORT_SM_PEAK, buf, sizeof(buf)), "0");
	ck_text(report_cell(&v, REPORT_NVLINK_IN, buf, sizeof(buf)), "0B");
	ck_text(report_cell(&v, REPORT_ENERGY, buf, sizeof(buf)), "0J");
	ck_text(report_cell(&v, REPORT_IDLE, buf, sizeof(buf)), "0.00");
	v.v[REPORT_PCIE_IN] = 25e9;
	ck_text(report_rate(&v, REPORT_PCIE_IN, 10, buf, sizeof(buf)),
		"2.50GB/s");
	ck_text(report_rate(&v, REPORT_PCIE_IN, 0, buf, sizeof(buf)), "-");
}
END_TEST

static const char *bar(double mean, double peak, unsigned n, bool utf8)
{
	struct report_values v = { 0 };

	v.known = (mean >= 0 ? REPORT_BIT(REPORT_SM) : 0) |
		(peak >= 0 ? REPORT_BIT(REPORT_SM_PEAK) : 0);
	v.v[REPORT_SM] = mean;
	v.v[REPORT_SM_PEAK] = peak;
	return report_bar(&v, n, utf8, buf, sizeof(buf));
}

START_TEST(bars)
{
	char small[8];
	struct report_values v = { REPORT_BIT(REPORT_SM), { 50 } };

	ck_assert_str_eq(bar(-1, 90, 10, false), "");
	ck_assert_str_eq(bar(0, -1, 10, false), "..........");
	ck_assert_str_eq(bar(100, -1, 10, false), "##########");
	ck_assert_str_eq(bar(50, 80, 10, false), "#####..|..");
	ck_assert_str_eq(bar(50, 81, 10, false), "#####...|.");
	ck_assert_str_eq(bar(50, 1, 10, false), "|####.....");
	ck_assert_str_eq(bar(50, 0, 10, false), "#####.....");
	ck_assert_str_eq(bar(100, 100, 10, false), "#########|");
	ck_assert_str_eq(bar(54, -1, 10, false), "#####.....");
	ck_assert_str_eq(bar(55, -1, 10, false), "######....");
	ck_assert_str_eq(bar(25, 100, 10, true), "██▌······│");
	ck_assert_str_eq(bar(1.25, -1, 10, true), "▏·········");
	/* What does not fit is left out, never cut within a character. */
	ck_assert_str_eq(report_bar(&v, 10, true, small, sizeof(small)), "██");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { times, times_of_a_place, bad_times,
		selects, tres, clean, numbers, cells, bars };

	return check_run("report_text", tests, CHECK_COUNT(tests), NULL);
}
