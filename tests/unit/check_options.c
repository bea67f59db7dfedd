/* SPDX-License-Identifier: Apache-2.0 */
/* Texts, options and site policy: what is taken, what is refused. */
#include "config.h"

#include "core/ddp_site.h"
#include "tests/unit/check_main.h"

#include <string.h>

static struct ddp_options o;
static struct ddp_err err;

static int set(enum ddp_opt opt, const char *text)
{
	memset(&err, 0, sizeof(err));
	return ddp_options_set(&o, opt, text, &err);
}

static void setup(void)
{
	ddp_options_init(&o);
}

START_TEST(numbers)
{
	static const char *const bad[] = { "", " 1", "1 ", "+1", "-1", "0x10",
		"1.0", "99999999999", "4294967296", "10", "1\n", NULL };
	uint32_t v = 42;

	for (unsigned i = 0; bad[i]; i++)
		ck_assert_msg(ddp_text_u32(bad[i], 0, 9, &v), "\"%s\"", bad[i]);
	ck_assert(ddp_text_u32(NULL, 0, 9, &v));
	ck_assert_uint_eq(v, 42);
	ck_assert(!ddp_text_u32("4294967295", 0, UINT32_MAX, &v));
	ck_assert_uint_eq(v, UINT32_MAX);
	ck_assert(!ddp_text_u32("007", 0, 9, &v));
	ck_assert_uint_eq(v, 7);
	ck_assert(!ddp_text_u32_n("123", 2, 0, 99, &v));
	ck_assert_uint_eq(v, 12);
}
END_TEST

START_TEST(safe_text)
{
	char buf[8];

	ck_assert_str_eq(ddp_text_safe("a\nb\033c", buf, sizeof(buf)),
			 "a?b?c");
	ck_assert_str_eq(ddp_text_safe("abcdefgh", buf, sizeof(buf)),
			 "abcd...");
	ck_assert_str_eq(ddp_text_safe("abcdefg", buf, sizeof(buf)),
			 "abcdefg");
	ck_assert_str_eq(ddp_text_safe("\xc3\xa9", buf, sizeof(buf)), "??");
	ck_assert_str_eq(ddp_text_safe(NULL, buf, sizeof(buf)), "");
}
END_TEST

START_TEST(addresses)
{
	static const char *const good[] = { "n1", "10.0.0.7", "a-b.c_d",
		"fe80::1", "::1", "2001:db8::a", NULL };
	static const char *const bad[] = { "", "-n1", ".n1", "n1:80", "n 1",
		"n1;rm", "fe80::1%eth0", "[::1]", "n/1", "n\xc3\xa9", NULL };
	char name[300];

	for (unsigned i = 0; good[i]; i++)
		ck_assert_msg(ddp_text_is_addr(good[i]), "\"%s\"", good[i]);
	for (unsigned i = 0; bad[i]; i++)
		ck_assert_msg(!ddp_text_is_addr(bad[i]), "\"%s\"", bad[i]);
	memset(name, 'a', sizeof(name));
	name[255] = '\0';
	ck_assert(ddp_text_is_addr(name));
	name[255] = 'a';
	name[256] = '\0';
	ck_assert(!ddp_text_is_addr(name));
}
END_TEST

START_TEST(loopback)
{
	ck_assert(ddp_text_is_loopback("127.0.0.1"));
	ck_assert(ddp_text_is_loopback("127.0.1.1"));
	ck_assert(ddp_text_is_loopback("::1"));
	ck_assert(ddp_text_is_loopback("::ffff:127.0.0.1"));
	ck_assert(ddp_text_is_loopback("localhost"));
	ck_assert(!ddp_text_is_loopback("128.0.0.1"));
	ck_assert(!ddp_text_is_loopback("10.127.0.1"));
	ck_assert(!ddp_text_is_loopback("n127"));
}
END_TEST

START_TEST(launch_values)
{
	ck_assert(!set(DDP_OPT_LAUNCH, "stateless"));
	ck_assert_int_eq(o.mode, DDP_MODE_STATELESS);
	ck_assert(!set(DDP_OPT_LAUNCH, "off"));
	ck_assert_int_eq(o.mode, DDP_MODE_OFF);
	for (unsigned i = 0; i < 3; i++) {
		static const char *const none[] = { NULL, "", "(null)" };

		o.mode = DDP_MODE_OFF;
		ck_assert(!set(DDP_OPT_LAUNCH, none[i]));
		ck_assert_int_eq(o.mode, DDP_MODE_FULL);
	}
	ck_assert(set(DDP_OPT_LAUNCH, "Full"));
	ck_assert(strstr(err.text, "full, stateless, off"));
	ck_assert_int_eq(o.mode, DDP_MODE_FULL);
}
END_TEST

/* Each refusal names the option and lists what is valid. */
START_TEST(refusals)
{
	static const struct {
		enum ddp_opt opt;
		const char *text, *lists;
	} bad[] = {
		{ DDP_OPT_LAUNCH, "%s%n", "stateless" },
		{ DDP_OPT_EXPLAIN, "maybe", "yes" },
		{ DDP_OPT_FRAMEWORKS, "", "torch,jax" },
		{ DDP_OPT_FRAMEWORKS, "torch,", "torch,jax" },
		{ DDP_OPT_FRAMEWORKS, "torch,pytorch", "torch,jax" },
		{ DDP_OPT_FRAMEWORKS, "tor", "torch,jax" },
		{ DDP_OPT_MASTER_PORT, "", "1024" },
		{ DDP_OPT_MASTER_PORT, "1023", "1024" },
		{ DDP_OPT_MASTER_PORT, "65536", "65535" },
		{ DDP_OPT_MASTER_PORT, "29500\n", "auto" },
		{ DDP_OPT_MASTER_ADDR, "", "host name" },
		{ DDP_OPT_MASTER_ADDR, "a b", "host name" },
		{ DDP_OPT_IFACE, "", "none, auto" },
		{ DDP_OPT_IFACE, "^eth0", "none, auto" },
		{ DDP_OPT_IFACE, "=eth0", "none, auto" },
		{ DDP_OPT_IFACE, "eth0,eth1", "none, auto" },
		{ DDP_OPT_IFACE, "sixteen-letters-", "none, auto" },
		{ DDP_OPT_IFACE, "../x", "none, auto" },
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(set(bad[i].opt, bad[i].text) == -1, "%u", i);
		ck_assert_msg(strstr(err.text, ddp_optdef_get(bad[i].opt)->name)
			      && strstr(err.text, bad[i].lists), "%s",
			      err.text);
	}
	ck_assert(set(DDP_OPT_COUNT, "x"));
}
END_TEST

START_TEST(huge_text)
{
	size_t size = 1 << 20;
	char *text = malloc(size);

	memset(text, 'a', size);
	text[size - 1] = '\0';
	for (unsigned i = 0; i < DDP_OPT_COUNT; i++) {
		ck_assert(set((enum ddp_opt)i, text));
		ck_assert_uint_lt(strlen(err.text), 300);
	}
	free(text);
}
END_TEST

START_TEST(values)
{
	char text[64];

	ck_assert(!set(DDP_OPT_FRAMEWORKS, "jax"));
	ck_assert_uint_eq(o.frameworks, 1U << DDP_FW_JAX);
	ck_assert(!set(DDP_OPT_FRAMEWORKS, "jax,torch,jax"));
	ck_assert_str_eq(ddp_frameworks_text(o.frameworks, text, 64),
			 "torch,jax");
	ck_assert(!set(DDP_OPT_MASTER_PORT, "1024"));
	ck_assert_uint_eq(o.port, 1024);
	ck_assert(!set(DDP_OPT_MASTER_PORT, "auto"));
	ck_assert_uint_eq(o.port, 0);
	ck_assert(!set(DDP_OPT_MASTER_ADDR, "fe80::1"));
	ck_assert_str_eq(o.addr, "fe80::1");
	ck_assert(!set(DDP_OPT_MASTER_ADDR, "auto"));
	ck_assert_str_eq(o.addr, "");
	ck_assert(!set(DDP_OPT_IFACE, "ib0.8001"));
	ck_assert_int_eq(o.iface, DDP_IFACE_NAME);
	ck_assert_str_eq(o.ifname, "ib0.8001");
	ck_assert(!set(DDP_OPT_IFACE, "none"));
	ck_assert_int_eq(o.iface, DDP_IFACE_NONE);
	ck_assert(!set(DDP_OPT_EXPLAIN, NULL) && o.explain);
	ck_assert(!set(DDP_OPT_EXPLAIN, "0") && !o.explain);
}
END_TEST

static struct ddp_site site;

static int arg(const char *text)
{
	memset(&err, 0, sizeof(err));
	return ddp_site_set(&site, text, &err);
}

START_TEST(site_args)
{
	ddp_site_init(&site);
	ck_assert(!arg("mode=stateless"));
	ck_assert_int_eq(site.defaults.mode, DDP_MODE_STATELESS);
	ck_assert(!arg("frameworks=jax"));
	ck_assert_uint_eq(site.defaults.frameworks, 1U << DDP_FW_JAX);
	ck_assert(!arg("iface=ib0"));
	ck_assert(!arg("port_range=30000-31000"));
	ck_assert_uint_eq(site.port_lo, 30000);
	ck_assert_uint_eq(site.port_hi, 31000);
	ck_assert(!arg("allow=launch,explain"));
	ck_assert_uint_eq(site.allowed, 3);
}
END_TEST

START_TEST(site_bad_args)
{
	static const char *const bad[] = { "", "mode", "mode=", "mode=on",
		"Mode=off", "port=1", "port_range=", "port_range=5",
		"port_range=2000-1999", "port_range=80-2000",
		"port_range=2000-65536", "port_range=2000-3000-", "allow=",
		"allow=launch,", "allow=all", "%s%n%n", "frameworks=torch x",
		"iface=", NULL };
	struct ddp_site before;

	ddp_site_init(&site);
	before = site;
	for (unsigned i = 0; bad[i]; i++) {
		ck_assert_msg(arg(bad[i]) == -1, "\"%s\"", bad[i]);
		ck_assert_msg(strstr(err.text, "ignored"), "%s", err.text);
	}
	ck_assert(!memcmp(&before, &site, sizeof(site)));
}
END_TEST

START_TEST(site_policy)
{
	unsigned port = 1U << DDP_OPT_MASTER_PORT;

	ddp_site_init(&site);
	ck_assert(!ddp_site_check(&site, ~0U >> 16, 1024, &err));
	arg("port_range=30000-31000");
	ck_assert(!ddp_site_check(&site, port, 0, &err));
	ck_assert(!ddp_site_check(&site, port, 30000, &err));
	ck_assert(!ddp_site_check(&site, port, 31000, &err));
	ck_assert(ddp_site_check(&site, port, 29999, &err));
	ck_assert(ddp_site_check(&site, port, 31001, &err));
	ck_assert(strstr(err.text, "30000-31000"));
	arg("allow=launch");
	ck_assert(!ddp_site_check(&site, 1U << DDP_OPT_LAUNCH, 30000, &err));
	ck_assert(ddp_site_check(&site, port, 30000, &err));
	ck_assert(strstr(err.text, "--ddp-master-port"));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { numbers, safe_text, addresses,
		loopback, launch_values, refusals, huge_text, values,
		site_args, site_bad_args, site_policy };

	return check_run("options", tests, CHECK_COUNT(tests), setup);
}
