/* SPDX-License-Identifier: Apache-2.0 */
/* Step layouts: from Slurm's task ids, as text, and back. */
#include "config.h"

#include "core/ddp_layout.h"
#include "tests/unit/check_main.h"

#include <string.h>

static struct ddp_layout l;
static struct ddp_err err;
static char counts[1024], order[1024];

/* tids: one list a node, ended by -1. Returns ddp_layout_from_tids(). */
static int from(uint32_t nnodes, uint32_t ntasks, int (*tids)[8])
{
	uint16_t tasks[16];
	uint32_t ids[16][8], *list[16];

	for (uint32_t i = 0; i < nnodes; i++) {
		tasks[i] = 0;
		list[i] = ids[i];
		while (tids[i][tasks[i]] >= 0) {
			ids[i][tasks[i]] = (uint32_t)tids[i][tasks[i]];
			tasks[i]++;
		}
	}
	return ddp_layout_from_tids(&l, nnodes, ntasks, tasks, list, &err);
}

static void texts(const char *c, const char *o)
{
	ck_assert(!ddp_layout_format(&l, counts, sizeof(counts), order,
				     sizeof(order), &err));
	ck_assert_str_eq(counts, c);
	ck_assert_str_eq(order, o);
	ddp_layout_clear(&l);
	ck_assert_msg(!ddp_layout_parse(&l, counts, order, &err), "%s",
		      err.text);
}

START_TEST(block)
{
	int tids[3][8] = { { 0, 1, -1 }, { 2, 3, -1 }, { 4, -1 } };

	ck_assert(!from(3, 5, tids));
	texts("2(x2),1", "");
	ck_assert_uint_eq(l.nnodes, 3);
	ck_assert_uint_eq(l.ntasks, 5);
	ck_assert_uint_eq(l.first, 0);
	ck_assert_uint_eq(l.tasks[1], 2);
	ck_assert_uint_eq(l.tasks[2], 1);
	ddp_layout_clear(&l);
}
END_TEST

START_TEST(cyclic_and_plane)
{
	int cyclic[2][8] = { { 0, 2, -1 }, { 1, 3, -1 } };
	int plane[2][8] = { { 0, 1, 3, 4, 5, -1 }, { 2, -1 } };

	ck_assert(!from(2, 4, cyclic));
	texts("2(x2)", "");
	ddp_layout_clear(&l);
	ck_assert(!from(2, 6, plane));
	texts("5,1", "");
	ddp_layout_clear(&l);
}
END_TEST

/* SLURM_HOSTFILE n4,n4,n1: Slurm lists n1,n4; rank 0 is on the second. */
START_TEST(arbitrary)
{
	int two[2][8] = { { 2, -1 }, { 0, 1, -1 } };
	int four[4][8] = { { 3, -1 }, { 0, -1 }, { 1, -1 }, { 2, -1 } };

	ck_assert(!from(2, 3, two));
	ck_assert_uint_eq(l.first, 1);
	texts("1,2", "1,0");
	ck_assert_uint_eq(l.first, 1);
	ck_assert_uint_eq(l.rank[0], 1);
	ck_assert_uint_eq(l.rank[1], 0);
	ddp_layout_clear(&l);
	ck_assert(!from(4, 4, four));
	texts("1(x4)", "3,0-2");
	ck_assert_uint_eq(l.rank[3], 2);
	ddp_layout_clear(&l);
}
END_TEST

START_TEST(inconsistent)
{
	int twice[2][8] = { { 0, 1, -1 }, { 1, -1 } };
	int range[2][8] = { { 0, 1, -1 }, { 3, -1 } };
	int fewer[2][8] = { { 0, 1, -1 }, { 2, -1 } };
	int good[2][8] = { { 0, 1, -1 }, { 2, -1 } };

	ck_assert(from(2, 3, twice));
	ck_assert(strstr(err.text, "twice"));
	ck_assert(from(2, 3, range));
	ck_assert(strstr(err.text, "out of range"));
	ck_assert(from(2, 4, fewer));	/* 4 tasks announced, 3 listed */
	ck_assert(strstr(err.text, "4 tasks announced, 3 listed"));
	ck_assert(from(0, 3, good));
	ck_assert(from(2, 0, good));
	ck_assert_ptr_null(l.tasks);
}
END_TEST

START_TEST(parse_bad)
{
	static const struct {
		const char *counts, *order;
	} bad[] = {
		{ "", "" }, { ",", "" }, { "1,", "" }, { "0", "" },
		{ "2(x0)", "" }, { "2(x2", "" }, { "2x2)", "" },
		{ "2(2)", "" }, { "(x2)", "" }, { "2()", "" }, { "2(x)", "" },
		{ "65536", "" }, { "1(x65537)", "" }, { "-1", "" },
		{ "1(x65536),1", "" }, { "65535(x65536)", "" },
		{ "1 ", "" }, { "1;1", "" }, { "1(x99999999999)", "" },
		{ "1(x2)", "0" }, { "1(x2)", "0,0" }, { "1(x2)", "0-2" },
		{ "1(x2)", "1-0" }, { "1(x2)", "0-1,0" }, { "1(x2)", "0,1," },
		{ "1(x2)", "2,0" }, { "1(x2)", "a" }, { "1(x2)", "0--1" },
		{ "1(x3)", "0-1,1" },
	};

	for (unsigned i = 0; i < CHECK_COUNT(bad); i++) {
		ck_assert_msg(ddp_layout_parse(&l, bad[i].counts,
					       bad[i].order, &err) == -1,
			      "\"%s\" \"%s\"", bad[i].counts, bad[i].order);
		ck_assert_ptr_null(l.tasks);
		ck_assert_ptr_null(l.rank);
	}
	ck_assert(ddp_layout_parse(&l, NULL, NULL, &err));
}
END_TEST

START_TEST(limits)
{
	ck_assert(!ddp_layout_parse(&l, "256(x65536)", NULL, &err));
	ck_assert_uint_eq(l.ntasks, 1U << 24);
	ck_assert(ddp_layout_format(&l, counts, 5, order, 5, &err));
	ck_assert(!ddp_layout_format(&l, counts, 12, order, 1, &err));
	ddp_layout_clear(&l);
	ddp_layout_clear(&l);
	ck_assert(!ddp_layout_parse(&l, "4,0,2", "0-2", &err));
	ck_assert_uint_eq(l.ntasks, 6);
	ddp_layout_clear(&l);
}
END_TEST

/* Any permutation of nodes survives the way through the text. */
START_TEST(permutations)
{
	int p[5] = { 0, 1, 2, 3, 4 };

	for (int n = 0; n < 120; n++) {
		int tids[5][8], x = n, used = 0;

		for (int i = 0; i < 5; i++) {
			int k = x % (5 - i), j;

			x /= 5 - i;
			for (j = 0; used & (1 << j) || k--; j++)
				;
			used |= 1 << j;
			p[i] = j;
			tids[i][0] = j;
			tids[i][1] = -1;
		}
		ck_assert(!from(5, 5, tids));
		ck_assert(!ddp_layout_format(&l, counts, sizeof(counts), order,
					     sizeof(order), &err));
		ddp_layout_clear(&l);
		ck_assert(!ddp_layout_parse(&l, counts, order, &err));
		for (int i = 0; i < 5; i++)
			ck_assert_int_eq((int)l.rank[i], p[i]);
		ck_assert_int_eq(p[l.first], 0);
		ddp_layout_clear(&l);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { block, cyclic_and_plane,
		arbitrary, inconsistent, parse_bad, limits, permutations };

	return check_run("layout", tests, CHECK_COUNT(tests), NULL);
}
