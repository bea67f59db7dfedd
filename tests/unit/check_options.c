/* SPDX-License-Identifier: Apache-2.0 */
/* Texts, options and site policy: what is taken, what is refused. */
#include "config.h"

#include "core/ddp_site.h"
#include "tests/unit/check_main.h"

#include <signal.h>
#include <stdio.h>
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
		{ DDP_OPT_ABORT, "", "gang, node, none" },
		{ DDP_OPT_ABORT, "Gang", "gang, node, none" },
		{ DDP_OPT_ABORT, "1", "gang, node, none" },
		{ DDP_OPT_ABORT_SIGNAL, "", "TERM, INT" },
		{ DDP_OPT_ABORT_SIGNAL, "STOP", "can end a program" },
		{ DDP_OPT_ABORT_SIGNAL, "0", "its number" },
		{ DDP_OPT_ABORT_SIGNAL, "32", "its number" },
		{ DDP_OPT_ABORT_SIGNAL, "term", "TERM" },
		{ DDP_OPT_GRACE, "", "seconds from 0 to 3600" },
		{ DDP_OPT_GRACE, "3600.001", "seconds from 0 to 3600" },
		{ DDP_OPT_GRACE, "-1", "seconds from 0 to 3600" },
		{ DDP_OPT_GRACE, "5s", "seconds from 0 to 3600" },
		{ DDP_OPT_EXIT_GRACE, "", "off, or seconds from 0.1 to" },
		{ DDP_OPT_EXIT_GRACE, "0", "off, or seconds from 0.1 to" },
		{ DDP_OPT_EXIT_GRACE, "0.099", "seconds from 0.1 to 86400" },
		{ DDP_OPT_EXIT_GRACE, "86401", "seconds from 0.1 to 86400" },
		{ DDP_OPT_EXIT_GRACE, "on", "off, or seconds" },
		{ DDP_OPT_START_TIMEOUT, "0.999", "seconds from 1 to 600" },
		{ DDP_OPT_START_TIMEOUT, "601", "seconds from 1 to 600" },
		{ DDP_OPT_START_TIMEOUT, "off", "seconds from 1 to 600" },
		{ DDP_OPT_NODE_TIMEOUT, "0.4", "seconds from 0.5 to 3600" },
		{ DDP_OPT_NODE_TIMEOUT, "3601", "seconds from 0.5 to 3600" },
		{ DDP_OPT_CONTROL, "", "require, prefer" },
		{ DDP_OPT_CONTROL, "requires", "require, prefer" },
		{ DDP_OPT_REPORT_FILE, "a\nb", "control characters" },
		{ DDP_OPT_REPORT_FILE, "a\177", "control characters" },
		{ DDP_OPT_REPORT_FILE, "a%x", "%j is the job's id" },
		{ DDP_OPT_REPORT_FILE, "a%", "%j is the job's id" },
		{ DDP_OPT_BIND, "", "none, best-effort, restricted" },
		{ DDP_OPT_BIND, "best", "single-numa-node" },
		{ DDP_OPT_BIND, "None", "single-numa-node" },
		{ DDP_OPT_BIND, "none,verify", "all but none" },
		{ DDP_OPT_BIND, "restricted,", "\",verify\"" },
		{ DDP_OPT_BIND, "restricted,x", "\",verify\"" },
		{ DDP_OPT_BIND, "restricted,verify,verify", "restricted" },
		{ DDP_OPT_BIND, "verify,restricted", "restricted" },
		{ DDP_OPT_BIND, "verify,verify", "restricted" },
		{ DDP_OPT_BIND, ",verify", "restricted" },
		{ DDP_OPT_BIND, "single-numa-node-and-more-than-fits,verify",
		  "restricted" },
		{ DDP_OPT_GPUS, "", "auto, node, rank" },
		{ DDP_OPT_GPUS, "all", "auto, node, rank" },
		{ DDP_OPT_GPUS, "rank ", "auto, node, rank" },
		{ DDP_OPT_LIFECYCLE, "1", "on, off" },
		{ DDP_OPT_LIFECYCLE, "On", "on, off" },
		{ DDP_OPT_READY_TIMEOUT, "", "off, or seconds from 1 to" },
		{ DDP_OPT_READY_TIMEOUT, "0.999", "seconds from 1 to 86400" },
		{ DDP_OPT_READY_TIMEOUT, "86401", "seconds from 1 to 86400" },
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

START_TEST(control_values)
{
	ck_assert_int_eq(o.abort, DDP_ABORT_GANG);
	ck_assert_uint_eq(o.signal, SIGTERM);
	ck_assert_uint_eq(o.grace_ms, 5000);
	ck_assert_uint_eq(o.exit_grace_ms, 0);
	ck_assert_uint_eq(o.start_ms, 60000);
	ck_assert_uint_eq(o.node_ms, 20000);
	ck_assert(!o.prefer);
	ck_assert(!set(DDP_OPT_ABORT, "node"));
	ck_assert_int_eq(o.abort, DDP_ABORT_NODE);
	ck_assert(!set(DDP_OPT_ABORT, "none"));
	ck_assert_str_eq(ddp_abort_name(o.abort), "none");
	ck_assert(!set(DDP_OPT_ABORT, "gang"));
	ck_assert_int_eq(o.abort, DDP_ABORT_GANG);
	ck_assert(!set(DDP_OPT_ABORT_SIGNAL, "USR1"));
	ck_assert_uint_eq(o.signal, SIGUSR1);
	ck_assert(!set(DDP_OPT_GRACE, "0"));
	ck_assert_uint_eq(o.grace_ms, 0);
	ck_assert(!set(DDP_OPT_GRACE, "3600"));
	ck_assert_uint_eq(o.grace_ms, 3600000);
	ck_assert(!set(DDP_OPT_EXIT_GRACE, "0.1"));
	ck_assert_uint_eq(o.exit_grace_ms, 100);
	ck_assert(!set(DDP_OPT_EXIT_GRACE, "off"));
	ck_assert_uint_eq(o.exit_grace_ms, 0);
	ck_assert(!set(DDP_OPT_START_TIMEOUT, "600"));
	ck_assert_uint_eq(o.start_ms, 600000);
	ck_assert(!set(DDP_OPT_NODE_TIMEOUT, "0.5"));
	ck_assert_uint_eq(o.node_ms, 500);
	ck_assert(!set(DDP_OPT_CONTROL, "prefer") && o.prefer);
	ck_assert(!set(DDP_OPT_CONTROL, "require") && !o.prefer);
	ck_assert(!set(DDP_OPT_REPORT_FILE, "out/%j \xc3\xa9.json"));
	ck_assert_str_eq(o.report, "out/%j \xc3\xa9.json");
}
END_TEST

START_TEST(lifecycle_values)
{
	ck_assert(!o.lifecycle);
	ck_assert_uint_eq(o.ready_ms, 0);
	ck_assert(!set(DDP_OPT_LIFECYCLE, NULL) && o.lifecycle);
	ck_assert(!set(DDP_OPT_LIFECYCLE, "off") && !o.lifecycle);
	ck_assert(!set(DDP_OPT_LIFECYCLE, "(null)") && o.lifecycle);
	ck_assert(!set(DDP_OPT_LIFECYCLE, "on") && o.lifecycle);
	ck_assert(!set(DDP_OPT_READY_TIMEOUT, "1.5"));
	ck_assert_uint_eq(o.ready_ms, 1500);
	ck_assert(!set(DDP_OPT_READY_TIMEOUT, "off"));
	ck_assert_uint_eq(o.ready_ms, 0);
}
END_TEST

START_TEST(place_values)
{
	static const char *const policies[] = { "none", "best-effort",
		"restricted", "single-numa-node" };
	char text[64];

	ck_assert_int_eq(o.bind, DDP_BIND_BEST_EFFORT);
	ck_assert(!o.bind_verify);
	ck_assert_int_eq(o.gpus, DDP_GPUS_AUTO);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert(!set(DDP_OPT_BIND, policies[i]) && !o.bind_verify);
		ck_assert_uint_eq(o.bind, i);
		(void)snprintf(text, sizeof(text), "%s,verify", policies[i]);
		if (!i)
			continue;
		ck_assert(!set(DDP_OPT_BIND, text) && o.bind_verify);
		ck_assert_uint_eq(o.bind, i);
	}
	ck_assert(!set(DDP_OPT_BIND, "verify") && o.bind_verify);
	ck_assert_int_eq(o.bind, DDP_BIND_BEST_EFFORT);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(!set(DDP_OPT_GPUS, ddp_gpus_name((enum ddp_gpus)i)));
		ck_assert_uint_eq(o.gpus, i);
	}
}
END_TEST

/* What is refused changes nothing; a NULL where a value is due is refused. */
START_TEST(control_unchanged)
{
	struct ddp_options before = o;

	for (unsigned i = DDP_OPT_ABORT; i < DDP_OPT_COUNT; i++) {
		if (i == DDP_OPT_REPORT_FILE)	/* any name will do */
			continue;
		if (i != DDP_OPT_LIFECYCLE) {	/* no value: on */
			ck_assert(set((enum ddp_opt)i, NULL));
			ck_assert(set((enum ddp_opt)i, "(null)"));
		}
		ck_assert(set((enum ddp_opt)i, "%s%n"));
		ck_assert_mem_eq(&before, &o, sizeof(o));
	}
}
END_TEST

START_TEST(report_length)
{
	char path[DDP_PATH_MAX + 1];

	memset(path, 'p', sizeof(path));
	path[DDP_PATH_MAX - 1] = '\0';
	ck_assert(!set(DDP_OPT_REPORT_FILE, path));
	ck_assert_str_eq(o.report, path);
	path[DDP_PATH_MAX - 1] = 'p';
	path[DDP_PATH_MAX] = '\0';
	ck_assert(set(DDP_OPT_REPORT_FILE, path));
	ck_assert_uint_eq(strlen(o.report), DDP_PATH_MAX - 1);
}
END_TEST

START_TEST(milliseconds)
{
	static const struct {
		const char *text;
		uint32_t ms;
	} good[] = { { "0", 0 }, { "5", 5000 }, { "0.5", 500 },
		{ "0.05", 50 }, { "0.005", 5 }, { "1.234", 1234 },
		{ "007", 7000 }, { "4294966", 4294966000 },
		{ "4294966.999", 4294966999 } };
	static const char *const bad[] = { "", ".", ".5", "5.", "1.2345",
		"-1", "+1", " 1", "1 ", "1,5", "1.2.3", "1e3", "0x1", "inf",
		"4294967", "99999999999", "1.-5", NULL };
	uint32_t ms = 42;

	for (unsigned i = 0; bad[i]; i++)
		ck_assert_msg(ddp_text_ms(bad[i], &ms) == -1, "\"%s\"",
			      bad[i]);
	ck_assert_uint_eq(ms, 42);
	for (unsigned i = 0; i < CHECK_COUNT(good); i++) {
		ck_assert_msg(!ddp_text_ms(good[i].text, &ms), "\"%s\"",
			      good[i].text);
		ck_assert_uint_eq(ms, good[i].ms);
	}
}
END_TEST

START_TEST(signals)
{
	static const char *const bad[] = { "", "SIG", "term", "SIGSIGTERM",
		"STOP", "TSTP", "TTIN", "TTOU", "CONT", "CHLD", "SIGCHLD",
		"17", "18", "19", "20", "21", "22", "0", "32", "64", "-9",
		"9 ", "SIG9", "RTMIN", "TERM\n", "%n", NULL };
	char buf[24];

	for (unsigned i = 0; bad[i]; i++)
		ck_assert_msg(ddp_text_signal(bad[i]) == -1, "\"%s\"", bad[i]);
	ck_assert_int_eq(ddp_text_signal("TERM"), SIGTERM);
	ck_assert_int_eq(ddp_text_signal("SIGTERM"), SIGTERM);
	ck_assert_int_eq(ddp_text_signal("15"), SIGTERM);
	ck_assert_int_eq(ddp_text_signal("9"), SIGKILL);
	ck_assert_int_eq(ddp_text_signal("31"), SIGSYS);
	for (int sig = 1; sig < 32; sig++) {
		ddp_text_signame(sig, buf, sizeof(buf));
		if (!strncmp(buf, "SIG", 3))
			ck_assert_int_eq(ddp_text_signal(buf), sig);
	}
	ck_assert_str_eq(ddp_text_signame(SIGSEGV, buf, sizeof(buf)),
			 "SIGSEGV");
	ck_assert_str_eq(ddp_text_signame(40, buf, sizeof(buf)), "signal 40");
	ck_assert_str_eq(ddp_text_signame(INT32_MIN, buf, sizeof(buf)),
			 "signal -2147483648");
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
	ck_assert(!arg("bind=restricted,verify") && site.defaults.bind_verify);
	ck_assert_int_eq(site.defaults.bind, DDP_BIND_RESTRICTED);
	ck_assert(!arg("gpus=node"));
	ck_assert_int_eq(site.defaults.gpus, DDP_GPUS_NODE);
	ck_assert_str_eq(site.topology, "");
	ck_assert_str_eq(site.sysroot, "");
	ck_assert(!arg("topology=/etc/slurm/node.xml"));
	ck_assert_str_eq(site.topology, "/etc/slurm/node.xml");
	ck_assert_ptr_nonnull(strstr(site.lifecycle, "/libddp_lifecycle.so"));
	ck_assert(!arg("lifecycle_library=/opt/l/libddp_lifecycle.so"));
	ck_assert_str_eq(site.lifecycle, "/opt/l/libddp_lifecycle.so");
	ck_assert(!arg("lifecycle=on") && site.defaults.lifecycle);
	ck_assert(!arg("ready_timeout=600"));
	ck_assert_uint_eq(site.defaults.ready_ms, 600000);
	ck_assert(!arg("sysroot=/srv/fake"));
	ck_assert_str_eq(site.sysroot, "/srv/fake");
	ck_assert(!arg("allow=bind,gpus"));
	ck_assert_uint_eq(site.allowed, 1U << DDP_OPT_BIND | 1U << DDP_OPT_GPUS);
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
		"iface=", "bind=", "bind=best", "gpus=all", "gpus=",
		"topology=", "topology=node.xml", "topology", "sysroot=",
		"sysroot=srv", "allow=bind,gpu", "lifecycle=", "lifecycle=1",
		"ready_timeout=0", "lifecycle_library=libddp_lifecycle.so",
		NULL };
	struct ddp_site before;
	char path[300] = "topology=/";

	ddp_site_init(&site);
	before = site;
	for (unsigned i = 0; bad[i]; i++) {
		ck_assert_msg(arg(bad[i]) == -1, "\"%s\"", bad[i]);
		ck_assert_msg(strstr(err.text, "ignored"), "%s", err.text);
	}
	memset(path + 10, 'p', sizeof(path) - 11);
	ck_assert(arg(path));
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
		control_values, lifecycle_values, place_values,
		control_unchanged, report_length,
		milliseconds, signals, site_args, site_bad_args, site_policy };

	return check_run("options", tests, CHECK_COUNT(tests), setup);
}
