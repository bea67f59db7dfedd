/* SPDX-License-Identifier: Apache-2.0 */
/* Values of running steps, in the form in which Slurm packs them. */
#include "compat/ddp_compat_live.c"
#include "tests/unit/check_main.h"

/* Ids of the TRES as some database has them; none has PCIe. */
static const struct ddp_acct known = {
	.metric = { 1002, 1003, 1004, 0, 1006, 1007 },
};
static const uint32_t ids[] = { 1, 2, 1004, 1002, 1007, 8 };

#define N CHECK_COUNT(ids)

static char pack[8192];
static size_t used;

static void put(uint64_t v, size_t bytes)
{
	for (size_t i = bytes; i-- > 0;)
		pack[used++] = (char)(v >> (8 * i));
}

static void put_text(const char *text)
{
	size_t n = *text ? strlen(text) + 1 : 0;

	put(n, 4);
	memcpy(pack + used, text, n);
	used += n;
}

/* Value of TRES i in array k: 100 * k + i, but unknown where i is 5. */
static void make(bool list)
{
	used = 0;
	put(1, 1);
	put(11, 8);
	put(12, 4);
	put(13, 8);
	put(14, 4);
	put(15, 4);
	put(16, 8);
	put(N, 4);
	for (size_t i = 0; i < N; i++)
		put(ids[i], 4);
	put(list ? N : NO_VAL, 4);
	for (size_t i = 0; list && i < N; i++) {
		put(0, 8);
		put(99, 8);
		put(ids[i], 4);
		put_text(i ? "name" : "");
		put_text("type");
	}
	for (unsigned k = 0; k < ARRAYS; k++) {
		put(N, 4);
		for (size_t i = 0; i < N; i++)
			put(i == 4 && k == OUT_TOT ? INFINITE64 : 100 * k + i,
			    8);
	}
}

static bool read_it(size_t size, struct ddp_acct_usage *u)
{
	/* Exactly as long, for ASan to see what reads beyond. */
	char *copy = malloc(size + 1);
	struct reader r = { copy, copy + size, false };
	bool ok;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, pack, size);
	ok = read_packed(&known, &r, u);
	free(copy);
	return ok;
}

START_TEST(values)
{
	struct ddp_acct_usage u;

	for (int list = 0; list < 2; list++) {
		make(list);
		ck_assert(read_it(used, &u));
		ck_assert_uint_eq(u.in_tot[DDP_ACCT_SM], 603);
		ck_assert_uint_eq(u.out_max[DDP_ACCT_SM], 703);
		ck_assert_uint_eq(u.in_tot[DDP_ACCT_NVLINK], 602);
		ck_assert_uint_eq(u.out_tot[DDP_ACCT_NVLINK], 1302);
		ck_assert_uint_eq(u.in_tot[DDP_ACCT_IDLE], 604);
		ck_assert_uint_eq(u.out_tot[DDP_ACCT_IDLE], DDP_ACCT_UNKNOWN);
		ck_assert_uint_eq(u.in_tot[DDP_ACCT_MEMBW], DDP_ACCT_UNKNOWN);
		ck_assert_uint_eq(u.in_tot[DDP_ACCT_PCIE], DDP_ACCT_UNKNOWN);
	}
}
END_TEST

/* Cut anywhere, it is not taken for values. */
START_TEST(cut)
{
	struct ddp_acct_usage u;

	for (int list = 0; list < 2; list++) {
		make(list);
		for (size_t n = 0; n < used; n++)
			ck_assert(!read_it(n, &u));
	}
}
END_TEST

START_TEST(another_form)
{
	struct ddp_acct_usage u;
	size_t at;

	make(false);
	pack[0] = 0;	/* no values */
	ck_assert(!read_it(used, &u));
	make(false);
	at = 1 + 36;
	for (int bad = 0; bad < 4; bad++) {
		static const unsigned char n[4][4] = { { 0 },
			{ 0, 0, 0, N - 1 }, { 0, 0, 0, N + 1 },
			{ 0xff, 0xff, 0xff, 0xff } };

		make(false);
		memcpy(pack + at, n[bad], 4);
		ck_assert(!read_it(used, &u));
		/* the same of the list */
		make(true);
		memcpy(pack + at + 4 + 4 * N, bad ? n[bad] :
		       (const unsigned char *)"\0\0\1\0", 4);
		ck_assert(!read_it(used, &u));
	}
}
END_TEST

/* Sums over nodes; one that does not know makes the step's unknown. */
START_TEST(nodes)
{
	struct ddp_acct_usage sum, node;

	memset(&sum, 0, sizeof(sum));
	for (unsigned i = 0; i < 3; i++) {
		ddp_acct_usage_init(&node);
		node.in_tot[DDP_ACCT_SM] = 10 * i;
		node.out_max[DDP_ACCT_SM] = i == 1 ? 99 : 50;
		if (i != 2)
			node.in_tot[DDP_ACCT_ENERGY] = 5;
		if (i != 0)
			node.out_max[DDP_ACCT_MEMBW] = 7;
		add_node(&sum, &node, !i);
	}
	ck_assert_uint_eq(sum.in_tot[DDP_ACCT_SM], 30);
	ck_assert_uint_eq(sum.out_max[DDP_ACCT_SM], 99);
	ck_assert_uint_eq(sum.in_tot[DDP_ACCT_ENERGY], DDP_ACCT_UNKNOWN);
	ck_assert_uint_eq(sum.out_max[DDP_ACCT_MEMBW], DDP_ACCT_UNKNOWN);
	ck_assert_uint_eq(sum.in_tot[DDP_ACCT_PCIE], DDP_ACCT_UNKNOWN);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { values, cut, another_form, nodes };

	return check_run("live", tests, CHECK_COUNT(tests), NULL);
}
