/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of the places: lists of GPUs and CPUs, what srun wants, answers. */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cpus.h"
#include "core/ddp_vis.h"
#include "tests/unit/check_main.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static struct ddp_vis v;
static struct ddp_place_req req;
static struct ddp_err err;

START_TEST(lists)
{
	static const struct {
		const char *list;
		unsigned n;
	} good[] = { { "0", 1 }, { "0,1,2,3", 4 }, { "2,3", 2 }, { "3,0", 2 },
		{ "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,1", 2 },
		{ "MIG-377e0049-0000-0000-0000-000000000000", 1 },
		{ "MIG-GPU-8932f937/1/0", 1 }, { "0.1,1.0", 2 },
		{ "1,10,11", 3 }, { "00,0", 2 } };

	for (unsigned i = 0; i < CHECK_COUNT(good); i++) {
		unsigned order[DDP_VIS_MAX];
		char text[DDP_PLACE_LIST];

		ck_assert_msg(!ddp_vis_parse(&v, good[i].list), "%s",
			      good[i].list);
		ck_assert_uint_eq(v.n, good[i].n);
		for (unsigned k = 0; k < v.n; k++)
			order[k] = k;
		ck_assert(!ddp_vis_format(&v, order, v.n, text, sizeof(text)));
		ck_assert_str_eq(text, good[i].list);
	}
}
END_TEST

START_TEST(no_lists)
{
	static const char *const bad[] = { "", ",", "0,", ",0", "0,,1", "0,0",
		"GPU-1,0,GPU-1", " ", " 0", "0 ", "0, 1", "0\n", "$(id)", "0;1",
		"0\t", "\"0\"", "'", "`", "a\\b", "x=1", "%s%n", "0\001",
		"\xc3\xa9", "\xff", "NoDevFiles", "NoDevFiles,0", "(null)",
		"0|1", "*", "~", "-1", "0,-1,1", "void", "all", "0-1", "0.",
		"0.x", ".1", "GPU-", "MIG-", "gpu-1", "0000:3b:00.0", NULL };

	for (unsigned i = 0; bad[i]; i++)
		ck_assert_msg(ddp_vis_parse(&v, bad[i]) == -1, "\"%s\"",
			      bad[i]);
}
END_TEST

START_TEST(no_gpu)
{
	static const char *const none[] = { "", "-1", "NoDevFiles", "void",
		"none" };

	for (unsigned i = 0; i < CHECK_COUNT(none); i++)
		ck_assert(ddp_vis_is_none(none[i]));
	ck_assert(!ddp_vis_is_none("0") && !ddp_vis_is_none("-1,0") &&
		  !ddp_vis_is_none("NoDevFiles,0"));
}
END_TEST

START_TEST(long_lists)
{
	char list[16384] = "", word[DDP_VIS_WORD + 1];
	unsigned order[DDP_VIS_MAX];

	for (unsigned i = 0; i < 64; i++)
		(void)snprintf(list + strlen(list), 8, "%s%u", i ? "," : "", i);
	ck_assert(!ddp_vis_parse(&v, list));
	ck_assert_uint_eq(v.n, 64);
	strcat(list, ",64");
	ck_assert_int_eq(ddp_vis_parse(&v, list), -1);
	memset(word, 'a', sizeof(word));
	memcpy(word, "GPU-", 4);
	word[DDP_VIS_WORD] = '\0';
	ck_assert_int_eq(ddp_vis_parse(&v, word), -1);
	word[DDP_VIS_WORD - 1] = '\0';
	ck_assert(!ddp_vis_parse(&v, word));
	ck_assert_str_eq(v.word[0], word);
	list[0] = '\0';
	for (unsigned i = 0; i < 64; i++) {
		word[4] = (char)('A' + i / 8);
		word[5] = (char)('A' + i % 8);
		(void)snprintf(list + strlen(list), 128, "%s%s", i ? "," : "",
			       word);
		order[i] = 63 - i;
	}
	ck_assert(!ddp_vis_parse(&v, list));
	/* 64 words of 95 characters and 63 commas. */
	ck_assert_int_eq(ddp_vis_format(&v, order, 64, list, 64 * 96), 0);
	ck_assert_uint_eq(strlen(list), 64 * 96 - 1);
	ck_assert_int_eq(ddp_vis_format(&v, order, 64, list, 64 * 96 - 1), -1);
	memset(list, 'x', sizeof(list) - 1);
	ck_assert_int_eq(ddp_vis_parse(&v, list), -1);
}
END_TEST

START_TEST(format)
{
	const unsigned order[] = { 2, 0, 1 };
	char text[8] = "before";

	ck_assert(!ddp_vis_parse(&v, "7,8,19"));
	ck_assert(!ddp_vis_format(&v, order, 3, text, sizeof(text)));
	ck_assert_str_eq(text, "19,7,8");
	ck_assert(!ddp_vis_format(&v, order, 1, text, sizeof(text)));
	ck_assert_str_eq(text, "19");
	ck_assert(!ddp_vis_format(&v, order, 0, text, sizeof(text)));
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(ddp_vis_format(&v, order, 3, text, 6), -1);
	ck_assert_uint_lt(strlen(text), 6);
	ck_assert_int_eq(ddp_vis_format(&v, order, 3, text, 0), -1);
	ck_assert_int_eq(ddp_vis_index("0"), 0);
	ck_assert_int_eq(ddp_vis_index("65535"), 65535);
	ck_assert_int_eq(ddp_vis_index("65536"), -1);
	ck_assert_int_eq(ddp_vis_index(""), -1);
	ck_assert_int_eq(ddp_vis_index("-1"), -1);
	ck_assert_int_eq(ddp_vis_index("0.1"), -1);
	ck_assert_int_eq(ddp_vis_index("GPU-1"), -1);
}
END_TEST

START_TEST(cpu_lists)
{
	static const struct {
		const char *list;
		int n;
	} t[] = { { "0", 1 }, { "0-3", 4 }, { "0-3,8", 5 }, { "0,0,0", 1 },
		{ "3-1", 0 }, { "0-3\n", 4 }, { "0-1 2", 2 }, { "8191", 1 },
		{ "8192", 0 }, { "8190-9000", 2 }, { "0,99999999999999999999",
		1 }, { "0-99999999999999999999", DDP_PLACE_CPUS },
		{ "0-8191", DDP_PLACE_CPUS }, { "", -1 }, { ",", -1 },
		{ "0,", -1 }, { "0-", -1 }, { "-1", -1 }, { "0--3", -1 },
		{ " 0", -1 }, { "+1", -1 }, { "x", -1 }, { "\n", -1 } };
	ddp_cpus set;

	for (unsigned i = 0; i < CHECK_COUNT(t); i++)
		ck_assert_msg(ddp_cpus_parse(t[i].list, set) == t[i].n,
			      "\"%s\"", t[i].list);
	ck_assert_int_eq(ddp_cpus_parse("1-2,64", set), 3);
	ck_assert(CPU_ISSET_S(1, sizeof(set), (cpu_set_t *)set) &&
		  CPU_ISSET_S(2, sizeof(set), (cpu_set_t *)set) &&
		  CPU_ISSET_S(64, sizeof(set), (cpu_set_t *)set));
	ck_assert_uint_ge(ddp_cpus_cores(1), 1);
}
END_TEST

START_TEST(wanted)
{
	char text[DDP_PLACE_MAX];

	for (unsigned i = 0; i < 4 * 2 * 3 * 2 * 3 * 2; i++) {
		struct ddp_place_req in = {
			.policy = (enum ddp_bind_policy)(i % 4),
			.verify = i / 4 % 2,
			.gpus = (enum ddp_gpus)(i / 8 % 3),
			.cpu_said = i / 24 % 2,
			.gpu_said = (enum ddp_gpu_said)(i / 48 % 3),
			.explain = i / 144 % 2 };

		ddp_place_format(&in, text);
		ck_assert_uint_lt(strlen(text), sizeof(text) - 1);
		ck_assert_msg(!ddp_place_parse(&req, text, &err), "%s: %s",
			      text, err.text);
		ck_assert(req.policy == in.policy && req.verify == in.verify &&
			  req.gpus == in.gpus && req.cpu_said == in.cpu_said &&
			  req.gpu_said == in.gpu_said &&
			  req.explain == in.explain);
	}
	ck_assert_str_eq(text, "v=1;bind=single-numa-node;verify=1;gpus=rank;"
			 "cpu=1;gpu=2;explain=1");
}
END_TEST

#define GOOD "v=1;bind=none;verify=0;gpus=auto;cpu=0;gpu=0;explain=0"

START_TEST(wanted_broken)
{
	static const struct {
		const char *text, *field;
	} bad[] = {
		{ "", "v=" }, { "v=2;bind=none;verify=0;gpus=auto;cpu=0;gpu=0;"
		  "explain=0", "v=" }, { "v=1", "bind=" },
		{ "v=1;bind=;verify=0;gpus=auto;cpu=0;gpu=0;explain=0",
		  "bind=" },
		{ "v=1;bind=best;verify=0;gpus=auto;cpu=0;gpu=0;explain=0",
		  "bind=" },
		{ "v=1;bind=none;verify=2;gpus=auto;cpu=0;gpu=0;explain=0",
		  "verify=" },
		{ "v=1;bind=none;verify=;gpus=auto;cpu=0;gpu=0;explain=0",
		  "verify=" },
		{ "v=1;bind=none;verify=0;gpus=all;cpu=0;gpu=0;explain=0",
		  "gpus=" },
		{ "v=1;bind=none;verify=0;gpus=auto;cpu=00;gpu=0;explain=0",
		  "cpu=" },
		{ "v=1;bind=none;verify=0;gpus=auto;cpu=0;gpu=3;explain=0",
		  "gpu=" },
		{ "v=1;bind=none;verify=0;gpus=auto;cpu=0;gpu=-1;explain=0",
		  "gpu=" },
		{ "v=1;bind=none;verify=0;gpus=auto;cpu=0;gpu=0;explain=x",
		  "explain=" },
		{ "v=1;bind=none;verify=0;gpus=auto;cpu=0;gpu=0", "explain=" },
		{ "v=1;verify=0;bind=none;gpus=auto;cpu=0;gpu=0;explain=0",
		  "bind=" },
		{ "v=1;;bind=none;verify=0;gpus=auto;cpu=0;gpu=0;explain=0",
		  "bind=" },
		{ GOOD ";more=1", "more than expected" },
		{ " " GOOD, "v=" }, { GOOD "\n", "explain=" },
		{ "%s%n", "v=" },
	};
	char text[2 * DDP_PLACE_MAX];

	ck_assert(!ddp_place_parse(&req, GOOD, &err));
	for (unsigned i = 0; i < CHECK_COUNT(bad); i++) {
		ck_assert_msg(ddp_place_parse(&req, bad[i].text, &err) == -1,
			      "\"%s\"", bad[i].text);
		ck_assert_msg(strstr(err.text, bad[i].field), "%s", err.text);
	}
	memset(text, ';', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	ck_assert(ddp_place_parse(&req, text, &err));
	ck_assert(strstr(err.text, "too long"));
	strcpy(text, GOOD ";");		/* nothing behind it */
	ck_assert(!ddp_place_parse(&req, text, &err));
}
END_TEST

/* Every byte of an answer may be anything. */
START_TEST(answers)
{
	struct ddp_placed p;

	for (int byte = 1; byte < 256; byte++) {
		memset(&p, byte, sizeof(p));
		ddp_placed_check(&p);
		ck_assert(p.set_cpus && p.set_nodes && p.set_list &&
			  p.pci_order);
		ck_assert_uint_eq(strlen(p.devices), sizeof(p.devices) - 1);
		ck_assert_uint_eq(strlen(p.list), sizeof(p.list) - 1);
		ck_assert_uint_eq(strlen(p.hint), sizeof(p.hint) - 1);
		ck_assert_uint_eq(strlen(p.warning), sizeof(p.warning) - 1);
		ck_assert_uint_eq(strlen(p.shown), sizeof(p.shown) - 1);
		ck_assert_uint_eq(strlen(p.why), sizeof(p.why) - 1);
		ck_assert_uint_eq(p.device, 0);
		ck_assert_uint_eq(p.ndevices, 0);
	}
	memset(&p, 0, sizeof(p));
	p.device = 63;
	p.ndevices = 64;
	ddp_placed_check(&p);
	ck_assert_uint_eq(p.device, 63);
	ck_assert_uint_eq(p.ndevices, 64);
	ck_assert(!p.set_cpus);
	p.device = 64;
	ddp_placed_check(&p);
	ck_assert_uint_eq(p.ndevices, 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { lists, no_lists, no_gpu, long_lists, format,
		cpu_lists, wanted, wanted_broken, answers };

	return check_run("vis", tests, CHECK_COUNT(tests), NULL);
}
