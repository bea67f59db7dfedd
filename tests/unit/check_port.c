/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates for the master port, and the probes of this host. */
#include "config.h"

#include "core/ddp_env.h"
#include "core/ddp_master.h"
#include "core/ddp_probe.h"
#include "tests/unit/check_main.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ddp_portset set;

START_TEST(ranges)
{
	ddp_portset_init(&set, 20000, 65535);
	ddp_portset_exclude(&set, 32768, 60999);
	ck_assert_uint_eq(set.n, 2);
	ck_assert_uint_eq(set.total, 12768 + 4536);
	ddp_portset_exclude(&set, 32767, 32767);
	ddp_portset_exclude(&set, 20000, 20000);
	ddp_portset_exclude(&set, 1, 100);
	ck_assert_uint_eq(set.total, 12766 + 4536);
	ck_assert_uint_eq(set.range[0].lo, 20001);
	ck_assert_uint_eq(set.range[0].hi, 32766);
	ddp_portset_exclude(&set, 0, 70000);
	ck_assert_uint_eq(set.n, 0);
	ck_assert_uint_eq(ddp_port_candidate(&set, 1, 2, 3, 4), 0);
	ddp_portset_init(&set, 5, 4);
	ck_assert_uint_eq(set.total, 0);
}
END_TEST

/* More holes than the set can hold: fewer ports, never an excluded one. */
START_TEST(many_holes)
{
	ddp_portset_init(&set, 1024, 65535);
	for (uint32_t p = 2000; p < 4000; p += 2)
		ddp_portset_exclude(&set, p, p);
	ck_assert_uint_le(set.n, DDP_PORT_RANGES);
	ck_assert_uint_gt(set.total, 0);
	for (uint32_t i = 0; i < set.total; i++) {
		uint16_t p = ddp_port_candidate(&set, i, 0, 0, 0);

		ck_assert(p < 2000 || p > 4000 || p % 2);
	}
}
END_TEST

START_TEST(inside)
{
	ddp_portset_init(&set, 20000, 65535);
	ddp_portset_exclude(&set, 32768, 60999);
	for (uint32_t i = 0; i < 100000; i++) {
		uint16_t p = ddp_port_candidate(&set, i * 2654435761U, i % 7,
						i % 3, i % 64);

		ck_assert(p >= 20000 && (p < 32768 || p > 60999));
	}
	ck_assert_uint_ne(ddp_port_candidate(&set, UINT32_MAX, UINT32_MAX,
					     UINT32_MAX, UINT32_MAX), 0);
}
END_TEST

/* The pairs of cases.md, and two steps and two tries of one job. */
START_TEST(published_clashes)
{
	static const uint32_t pairs[][2] = { { 10042, 20042 }, { 7, 4103 },
		{ 5, 16389 }, { 1, 4537 }, { 3, 20003 }, { 1, 2 } };

	ddp_portset_init(&set, 20000, 65535);
	ddp_portset_exclude(&set, 32768, 60999);
	for (unsigned i = 0; i < CHECK_COUNT(pairs); i++)
		ck_assert_uint_ne(ddp_port_candidate(&set, pairs[i][0], 0, 0,
						     0),
				  ddp_port_candidate(&set, pairs[i][1], 0, 0,
						     0));
	for (uint32_t s = 1; s < 1000; s++) {
		ck_assert_uint_ne(ddp_port_candidate(&set, 9, 0, 0, 0),
				  ddp_port_candidate(&set, 9, s, 0, 0));
		ck_assert_uint_ne(ddp_port_candidate(&set, 9, 0, 0, 0),
				  ddp_port_candidate(&set, 9, 0, s, 0));
	}
}
END_TEST

/* Consecutive jobs fill the set before any port comes again. */
START_TEST(consecutive_jobs)
{
	static unsigned char used[65536];
	uint32_t n = 0;

	ddp_portset_init(&set, 20000, 65535);
	ddp_portset_exclude(&set, 32768, 60999);
	memset(used, 0, sizeof(used));
	for (; n < set.total; n++) {
		uint16_t p = ddp_port_candidate(&set, 123456 + n, 0, 0, 0);

		if (used[p])
			break;
		used[p] = 1;
	}
	ck_assert_uint_gt(n, set.total - 100);
}
END_TEST

/* All tries of one step are different ports, in a tiny range too. */
START_TEST(tries_differ)
{
	for (uint32_t size = 1; size < 40; size++) {
		uint64_t seen = 0;
		uint32_t distinct = 0;

		ddp_portset_init(&set, 30000, 30000 + size - 1);
		for (uint32_t i = 0; i < size; i++) {
			uint16_t p = ddp_port_candidate(&set, 77, 1, 0, i);

			ck_assert_uint_ge(p, 30000);
			ck_assert_uint_lt(p, 30000 + size);
			if (!(seen & 1ULL << (p - 30000)))
				distinct++;
			seen |= 1ULL << (p - 30000);
		}
		/* The largest prime below the size bounds what is reached. */
		ck_assert_uint_ge(distinct * 3, size * 2 - 2);
	}
}
END_TEST

/* A listener on a port the kernel chose; *port is set. */
static int listener(uint32_t ip, uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_addr.s_addr = htonl(ip);
	ck_assert(!bind(fd, (struct sockaddr *)&a, sizeof(a)));
	ck_assert(!listen(fd, 1));
	ck_assert(!getsockname(fd, (struct sockaddr *)&a, &len));
	*port = ntohs(a.sin_port);
	return fd;
}

START_TEST(probes)
{
	uint16_t port;
	int fd = listener(INADDR_LOOPBACK, &port);

	ck_assert_int_eq(ddp_probe_bind(port), DDP_PORT_BUSY);
	ck_assert_int_eq(ddp_probe_connect("127.0.0.1", port, 1000),
			 DDP_PORT_BUSY);
	close(fd);
	ck_assert_int_eq(ddp_probe_bind(port), DDP_PORT_FREE);
	ck_assert_int_eq(ddp_probe_connect("127.0.0.1", port, 1000),
			 DDP_PORT_FREE);
	ck_assert_int_eq(ddp_probe_connect("not-an-ip", port, 1000),
			 DDP_PORT_UNKNOWN);
}
END_TEST

/* Ports of a step whose rank 0 is on this host. */
START_TEST(choose)
{
	struct ddp_plan plan = { .job = 7, .step = 1, .addr = "127.0.0.1",
				 .ip = "127.0.0.1" };
	struct ddp_portset one;
	struct ddp_err err;
	uint16_t busy;
	int fd = listener(INADDR_LOOPBACK, &busy);

	ddp_portset_init(&one, busy, busy);
	ck_assert(ddp_master_choose(&plan, &one, true, &err));
	ck_assert(strstr(err.text, "in use"));
	plan.port = 0;
	ddp_portset_init(&one, busy - 20U, busy + 20U);
	for (plan.job = 1; plan.job < 42; plan.job++) {
		plan.port = 0;
		ck_assert(!ddp_master_choose(&plan, &one, true, &err));
		ck_assert_uint_ne(plan.port, busy);
	}
	plan.port = busy;
	ck_assert(ddp_master_choose(&plan, &one, true, &err));
	ck_assert(strstr(err.text, "--ddp-master-port=auto"));
	plan.port = 0;
	ddp_portset_init(&one, 1, 0);
	ck_assert(ddp_master_choose(&plan, &one, true, &err));
	ck_assert(strstr(err.text, "port_range="));
	close(fd);
}
END_TEST

START_TEST(choose_tf)
{
	struct ddp_plan plan = { .job = 7, .addr = "n1",
				 .frameworks = DDP_FW_BIT(DDP_FW_TF) };
	struct ddp_err err;
	char seen[65536 / 8] = { 0 };

	ck_assert(!ddp_layout_parse(&plan.layout, "2,100,3", NULL, &err));
	ddp_portset_init(&set, 20000, 32767);
	ck_assert_msg(!ddp_master_choose(&plan, &set, false, &err), "%s",
		      err.text);
	seen[plan.port / 8] |= (char)(1 << plan.port % 8);
	for (uint32_t i = 0; i < 100; i++) {
		uint16_t p = ddp_env_tf_port(&plan, i);

		ck_assert(p >= 20000 && p <= 32767);
		ck_assert(!(seen[p / 8] & 1 << p % 8));
		seen[p / 8] |= (char)(1 << p % 8);
	}
	ck_assert_uint_eq(ddp_env_tf_port(&plan, 100), 0);
	ddp_plan_clear(&plan);
}
END_TEST

START_TEST(pool)
{
	struct ddp_site site;

	ddp_site_init(&site);
	ddp_master_pool(&site, 20000, 29999, &set);
	ck_assert_uint_ge(set.range[0].lo, 30000);
	ck_assert(!ddp_site_set(&site, "port_range=25000-25009", NULL));
	ddp_master_pool(&site, 20000, 29999, &set);
	ck_assert_uint_eq(set.total, 10);
}
END_TEST

START_TEST(addresses)
{
	char ip[DDP_ADDR_MAX], name[DDP_IFNAME_MAX];
	uint32_t lo, hi;

	ck_assert(ddp_probe_is_local("127.0.0.1"));
	ck_assert(ddp_probe_is_local("127.9.8.7"));
	ck_assert(!ddp_probe_is_local("192.0.2.200"));
	ck_assert(!ddp_probe_is_local("no.such.name.invalid"));
	ck_assert(!ddp_probe_resolve("10.0.0.7", ip));
	ck_assert_str_eq(ip, "10.0.0.7");
	ck_assert(!ddp_probe_resolve("::1", ip));
	ck_assert_str_eq(ip, "::1");
	ck_assert(!ddp_probe_iface("127.0.0.1", name, sizeof(name)));
	ck_assert_str_eq(name, "lo");
	ck_assert(ddp_probe_iface("bad", name, sizeof(name)));
	ck_assert(!ddp_probe_ephemeral(&lo, &hi));
	ddp_portset_init(&set, 1024, 65535);
	ddp_probe_exclude(&set);
	for (unsigned i = 0; i < set.n; i++)
		ck_assert(set.range[i].hi < lo || set.range[i].lo > hi);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { ranges, many_holes, inside,
		published_clashes, consecutive_jobs, tries_differ, probes,
		choose, choose_tf, pool, addresses };

	return check_run("port", tests, CHECK_COUNT(tests), NULL);
}
