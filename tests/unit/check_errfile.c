/* SPDX-License-Identifier: Apache-2.0 */
/* The message of a program's error file. */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_errfile.h"
#include "tests/unit/check_main.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char out[2048];

static const char *message(const char *json)
{
	return ddp_errfile_message(json, strlen(json), out, sizeof(out)) ?
		NULL : out;
}

#define IS(json, text) ck_assert_pstr_eq(message(json), text)

START_TEST(forms)
{
	IS("{\"message\": {\"message\": \"RuntimeError: no\", \"extraInfo\": "
	   "{\"py_callstack\": \"a\\nb\", \"timestamp\": \"1\"}}}",
	   "RuntimeError: no");
	IS("{\"message\": \"plain\"}", "plain");
	IS("{\"a\": [1, -2.5e3, true, false, null, {\"message\": \"x\"}], "
	   "\"message\": \"late\"}", "late");
	IS(" { \"message\" : { \"errorCode\" : 1 , \"message\" : \"b\" } } ",
	   "b");
	IS("{\"message\": \"first\", \"message\": \"second\"}", "first");
}
END_TEST

START_TEST(none)
{
	static const char *const bad[] = { "", " ", "null", "\"message\"",
		"{}", "[]", "{\"message\": 1}", "{\"message\": \"\"}",
		"{\"message\": {}}", "{\"other\": {\"message\": \"x\"}}",
		"[{\"message\": \"x\"}]", "{\"message\": [\"x\"]}",
		"{\"message\": {\"x\": {\"message\": \"y\"}}}",
		"{\"message\": \"cut", "{\"message\": \"x\"",
		"{\"message\": \"x\"} {", "{\"message\": \"x\",}",
		"{\"message\" \"x\"}", "{message: \"x\"}",
		"{\"message\": \"\\x\"}", "{\"message\": \"\\u12g4\"}",
		"{\"message\": \"a\nb\"}", "{\"message\": \"\\u001b[31m\"}" };

	for (unsigned i = 0; i < CHECK_COUNT(bad); i++) {
		ck_assert_msg(!message(bad[i]), "%s", bad[i]);
		ck_assert_msg(out[0] == '\0' || message(bad[i]) == NULL,
			      "%s", bad[i]);
	}
}
END_TEST

START_TEST(escapes)
{
	IS("{\"message\": \"\\\"\\\\\\/\\u0041\"}", "\"\\/A");
	IS("{\"message\": \"a\\nb\\tc\\r\\n\"}", "a b c");
	IS("{\"message\": \"\\u00e4 \\ud83d\\ude00 \\ud800x \\udc00\"}",
	   "\xc3\xa4 \xf0\x9f\x98\x80 ?x ?");
	IS("{\"message\": \"\xc3\xa4 \xff\xfe \xc0\xaf \xed\xa0\x80 \xe2\x82\""
	   "}", "\xc3\xa4 ?? ?? ? ??");
}
END_TEST

START_TEST(terminal)
{
	IS("{\"message\": \"a\\u001b[31;1mb\\u001b[0mc\"}", "abc");
	IS("{\"message\": \"a\\u001b]0;title\\u0007b\"}", "ab");
	IS("{\"message\": \"a\\u001b]0;title\\u001b\\\\b\"}", "ab");
	IS("{\"message\": \"a\\u001b(Bb\\u001bcc\"}", "abc");
	IS("{\"message\": \"a\\u009b31mb\\u0085c\\u007f\\u0000d\"}", "abcd");
	IS("{\"message\": \"a\\u202eb\\u2066c\\u200fd\\u2028e\"}", "abcde");
}
END_TEST

START_TEST(bounds)
{
	char json[6000], deep[200];

	memset(json, 'x', sizeof(json));
	memcpy(json, "{\"message\": \"", 13);
	for (size_t i = 13; i + 2 < sizeof(json); i += 2)
		memcpy(json + i, "\xc3\xa4", 2);
	memcpy(json + sizeof(json) - 3, "\"}", 3);
	json[sizeof(json) - 4] = 'e';
	ck_assert(!ddp_errfile_message(json, sizeof(json) - 1, out, 10));
	ck_assert_uint_eq(strlen(out), 8);
	ck_assert(!ddp_errfile_message(json, sizeof(json) - 1, out, 2048));
	ck_assert_uint_eq(strlen(out), 2046);
	memset(deep, '[', sizeof(deep));
	deep[sizeof(deep) - 1] = '\0';
	ck_assert(!message(deep));
}
END_TEST

static void put(int dir, const char *name, size_t n)
{
	static const char json[] = "{\"message\": \"boom\"}";
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_eq(write(fd, json, sizeof(json) - 1),
			 sizeof(json) - 1);
	ck_assert(!ftruncate(fd, (off_t)n) && !close(fd));
}

START_TEST(files)
{
	char name[] = "/tmp/ddp-errfile-XXXXXX";
	int dir;

	ck_assert(mkdtemp(name));
	dir = open(name, O_DIRECTORY | O_RDONLY);
	put(dir, "good", 19);
	put(dir, "big", DDP_ERRFILE_MAX + 1);
	put(dir, "cut", 10);
	put(dir, "empty", 0);
	ck_assert(!symlinkat("good", dir, "link"));
	ck_assert(!mkfifoat(dir, "fifo", 0600));
	ck_assert(!mkdirat(dir, "dir", 0700));
	ck_assert(!ddp_errfile_read(dir, "good", getuid(), out, sizeof(out)));
	ck_assert_str_eq(out, "boom");
	ck_assert(ddp_errfile_read(dir, "good", getuid() + 1, out,
				   sizeof(out)));
	for (const char *const *p = (const char *const[]){ "big", "cut",
	     "empty", "link", "fifo", "dir", "none", NULL }; *p; p++)
		ck_assert_msg(ddp_errfile_read(dir, *p, getuid(), out,
					       sizeof(out)), "%s", *p);
	for (const char *const *p = (const char *const[]){ "good", "big",
	     "cut", "empty", "link", "fifo", NULL }; *p; p++)
		ck_assert(!unlinkat(dir, *p, 0));
	ck_assert(!unlinkat(dir, "dir", AT_REMOVEDIR));
	close(dir);
	ck_assert(!rmdir(name));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { forms, none, escapes, terminal, bounds,
				       files };

	return check_run("errfile", tests, CHECK_COUNT(tests), NULL);
}
