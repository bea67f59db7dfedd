/* SPDX-License-Identifier: Apache-2.0 */
/* Where the controller is, and its configuration: texts there and back. */
#include "config.h"

#include "core/ddp_control.h"
#include "core/ddp_ctlconf.h"
#include "tests/unit/check_main.h"

#include <stdio.h>
#include <string.h>

#define KEY "000102030405060708090a0b0c0d0e0f" \
	"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
#define HEAD "v=1;port=40000;need=1;start=60000;addrs="
#define GOOD HEAD "10.0.0.7,fe80::1;key=" KEY

static struct ddp_control c;
static struct ddp_err err;

static int parse(const char *text)
{
	memset(&err, 0, sizeof(err));
	return ddp_control_parse(&c, text, &err);
}

START_TEST(hex)
{
	const uint8_t in[] = { 0, 0x9a, 0xff };
	char text[7];
	uint8_t out[3];

	ddp_hex(in, 3, text);
	ck_assert_str_eq(text, "009aff");
	ck_assert(!ddp_unhex(text, 6, out, 3));
	ck_assert_mem_eq(in, out, 3);
	ck_assert(ddp_unhex(text, 5, out, 3));
	ck_assert(ddp_unhex(text, 6, out, 2));
	ck_assert(ddp_unhex("009aFF", 6, out, 3));
	ck_assert(ddp_unhex("009a f", 6, out, 3));
	ck_assert(ddp_unhex("0x9aff", 6, out, 3));
	ck_assert(ddp_unhex("009ag0", 6, out, 3));
}
END_TEST

START_TEST(control_round)
{
	char text[DDP_CONTROL_MAX];

	ck_assert_msg(!parse(GOOD), "%s", err.text);
	ck_assert_uint_eq(c.port, 40000);
	ck_assert(c.required);
	ck_assert_uint_eq(c.start_ms, 60000);
	ck_assert_uint_eq(c.naddrs, 2);
	ck_assert_str_eq(c.addr[0], "10.0.0.7");
	ck_assert_str_eq(c.addr[1], "fe80::1");
	ck_assert_uint_eq(c.key[15], 0x0f);
	ck_assert_uint_eq(c.key[16], 0xf0);
	ck_assert(!ddp_control_format(&c, text, &err));
	ck_assert_str_eq(text, GOOD);
	ck_assert(!parse("v=1;port=1;need=0;start=1;addrs=::;key=" KEY));
	ck_assert(!c.required);
}
END_TEST

/* The longest that can be asked for fits. */
START_TEST(control_full)
{
	char text[DDP_CONTROL_MAX];
	struct ddp_control big = { .port = UINT16_MAX, .required = true,
		.start_ms = 600000, .naddrs = DDP_CONTROL_ADDRS };

	for (unsigned i = 0; i < DDP_CONTROL_ADDRS; i++)
		strcpy(big.addr[i],
		       "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255");
	ck_assert_uint_eq(strlen(big.addr[0]), DDP_CONTROL_ADDR - 1);
	ck_assert(!ddp_control_format(&big, text, &err));
	ck_assert_msg(!parse(text), "%s", err.text);
	ck_assert_mem_eq(&big, &c, sizeof(c));
}
END_TEST

START_TEST(control_addrs)
{
	static const char *const good[] = { "127.0.0.1", "::1", "0.0.0.0",
		"2001:db8::a,10.1.2.3", "::ffff:10.0.0.1", NULL };
	static const char *const bad[] = { "", ",", "10.0.0.1,", ",10.0.0.1",
		"10.0.0.1,,10.0.0.2", "n1", "10.0.0", "10.0.0.256",
		"fe80::1%eth0", "[::1]", "10.0.0.1:80", " 10.0.0.1",
		"010.0.0.1x", "1,2,3,4,5,6,7,8,9",
		"::1,::1,::1,::1,::1,::1,::1,::1,::1",
		"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb",
		NULL };
	char text[512];

	for (unsigned i = 0; good[i]; i++) {
		snprintf(text, sizeof(text), HEAD "%s;key=" KEY, good[i]);
		ck_assert_msg(!parse(text), "%s", text);
	}
	for (unsigned i = 0; bad[i]; i++) {
		snprintf(text, sizeof(text), HEAD "%s;key=" KEY, bad[i]);
		ck_assert_msg(parse(text) == -1, "%s", text);
		ck_assert(strstr(err.text, "addrs="));
	}
}
END_TEST

START_TEST(control_bad)
{
	static const char *const bad[] = { "", "v", "v=", "v=1", "v=1;",
		"v=2;port=1;need=0;start=1;addrs=::;key=" KEY,
		"v=1;port=0;need=0;start=1;addrs=::;key=" KEY,
		"v=1;port=65536;need=0;start=1;addrs=::;key=" KEY,
		"v=1;port=1;need=2;start=1;addrs=::;key=" KEY,
		"v=1;port=1;need=0;start=0;addrs=::;key=" KEY,
		"v=1;port=1;need=0;start=600001;addrs=::;key=" KEY,
		"v=1;need=0;port=1;start=1;addrs=::;key=" KEY,
		GOOD ";", GOOD "0", GOOD ";x=1", GOOD "\n", "%s%n%n",
		HEAD "::1;key=", HEAD "::1;key=00", HEAD "::1;" , NULL };

	for (unsigned i = 0; bad[i]; i++) {
		ck_assert_msg(parse(bad[i]) == -1, "%s", bad[i]);
		ck_assert(strstr(err.text, DDP_CONTROL_ENV));
	}
}
END_TEST

/* No prefix of a good text is good; no message shows the key. */
START_TEST(control_cut)
{
	char text[] = GOOD;

	for (size_t n = strlen(GOOD); n--; ) {
		char *copy = strndup(text, n);

		ck_assert_ptr_nonnull(copy);
		ck_assert_msg(parse(copy) == -1, "%s", copy);
		ck_assert(!strstr(err.text, "0102"));
		free(copy);
	}
}
END_TEST

static char nodes[] = "n1,n2,n3", plan[] = "v=1;job=7;tasks=2(x3)";

static struct ddp_ctlconf conf(void)
{
	struct ddp_ctlconf f = { .srun = 4711, .job = 7, .step = 0xfffffffb,
		.lo = 30000, .hi = 31000, .abort = DDP_ABORT_NODE,
		.signal = 15, .grace_ms = 5000, .exit_grace_ms = 1,
		.start_ms = 60000, .node_ms = 20000, .prefer = true,
		.ready_ms = 1500,
		.report = "/tmp/a b=c.json", .launcher = "/usr/bin/ddp-launch",
		.nodes = nodes, .plan = plan };

	for (unsigned i = 0; i < DDP_KEY_BYTES; i++)
		f.key[i] = (uint8_t)(i * 8);
	return f;
}

START_TEST(conf_round)
{
	struct ddp_ctlconf in = conf(), out;
	char *text = ddp_ctlconf_format(&in, &err);
	size_t n;

	ck_assert_ptr_nonnull(text);
	n = strlen(text);
	ck_assert_str_eq(text + n - 2, "\n\n");
	text[n - 1] = '\0';
	ck_assert_msg(!ddp_ctlconf_parse(&out, text, &err), "%s", err.text);
	ck_assert_str_eq(out.nodes, nodes);
	ck_assert_str_eq(out.plan, plan);
	ck_assert_str_eq(out.report, in.report);
	ck_assert_str_eq(out.launcher, in.launcher);
	free(out.nodes);
	free(out.plan);
	out.nodes = nodes;
	out.plan = plan;
	ck_assert_mem_eq(out.key, in.key, sizeof(in.key));
	ck_assert_int_eq(out.srun, in.srun);
	ck_assert_uint_eq(out.step, in.step);
	ck_assert_uint_eq(out.hi, in.hi);
	ck_assert_int_eq(out.abort, in.abort);
	ck_assert_uint_eq(out.signal, in.signal);
	ck_assert_uint_eq(out.node_ms, in.node_ms);
	ck_assert(out.prefer);
	ck_assert_uint_eq(out.ready_ms, 1500);
	free(text);
}
END_TEST

/* What is cut before the last field's value, and lines more or wrong. */
START_TEST(conf_bad)
{
	struct ddp_ctlconf in = conf(), out;
	char *text = ddp_ctlconf_format(&in, &err), *more, *at;
	size_t n;

	ck_assert_ptr_nonnull(text);
	n = strlen(text);
	text[n - 1] = '\0';
	for (n = (size_t)(strstr(text, "plan=") - text) + 5; n--; ) {
		char *cut = strndup(text, n);

		ck_assert_ptr_nonnull(cut);
		ck_assert_msg(ddp_ctlconf_parse(&out, cut, &err) == -1, "%s",
			      cut);
		ddp_ctlconf_clear(&out);
		ddp_ctlconf_clear(&out);
		free(cut);
	}
	more = malloc(strlen(text) + 8);
	ck_assert_ptr_nonnull(more);
	sprintf(more, "%sx=1\n", text);
	ck_assert(ddp_ctlconf_parse(&out, more, &err));
	ddp_ctlconf_clear(&out);
	at = strstr(text, "abort=1");
	at[6] = '3';
	ck_assert(ddp_ctlconf_parse(&out, text, &err));
	ck_assert(strstr(err.text, "malformed"));
	ddp_ctlconf_clear(&out);
	at[6] = '2';
	ck_assert(!ddp_ctlconf_parse(&out, text, &err));
	ddp_ctlconf_clear(&out);
	text[4] = 'Z';	/* in the key */
	ck_assert(ddp_ctlconf_parse(&out, text, &err));
	ddp_ctlconf_clear(&out);
	free(more);
	free(text);
}
END_TEST

START_TEST(conf_limits)
{
	struct ddp_ctlconf in = conf(), out;
	char *big = malloc(DDP_CTLCONF_MAX), *text;

	ck_assert_ptr_nonnull(big);
	memset(big, 'n', DDP_CTLCONF_MAX);
	big[DDP_CTLCONF_MAX - 1] = '\0';
	in.nodes = big;
	ck_assert_ptr_null(ddp_ctlconf_format(&in, &err));
	ck_assert(strstr(err.text, "stateless"));
	big[DDP_CTLCONF_MAX - 2048] = '\0';
	text = ddp_ctlconf_format(&in, &err);
	ck_assert_ptr_nonnull(text);
	text[strlen(text) - 1] = '\0';
	ck_assert(!ddp_ctlconf_parse(&out, text, &err));
	ck_assert_str_eq(out.nodes, big);
	ddp_ctlconf_clear(&out);
	free(text);
	free(big);
}
END_TEST

START_TEST(conf_long_path)
{
	struct ddp_ctlconf in = conf(), out;
	char *text, *more, *at;
	size_t n = sizeof(in.launcher);

	text = ddp_ctlconf_format(&in, &err);
	ck_assert_ptr_nonnull(text);
	text[strlen(text) - 1] = '\0';
	more = malloc(strlen(text) + n + 1);
	ck_assert_ptr_nonnull(more);
	at = strstr(text, "launcher=") + 9;
	memcpy(more, text, (size_t)(at - text));
	memset(more + (at - text), 'l', n);
	strcpy(more + (at - text) + n, strchr(at, '\n'));
	ck_assert(ddp_ctlconf_parse(&out, more, &err));
	ddp_ctlconf_clear(&out);
	strcpy(more + (at - text) + n - 1, strchr(at, '\n'));
	ck_assert(!ddp_ctlconf_parse(&out, more, &err));
	ck_assert_uint_eq(strlen(out.launcher), n - 1);
	ddp_ctlconf_clear(&out);
	free(more);
	free(text);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { hex, control_round, control_full,
		control_addrs, control_bad, control_cut, conf_round, conf_bad,
		conf_limits, conf_long_path };

	return check_run("control", tests, CHECK_COUNT(tests), NULL);
}
