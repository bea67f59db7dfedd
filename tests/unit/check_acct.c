/* SPDX-License-Identifier: Apache-2.0 */
/* The accounting plugin's parts that need no slurmstepd. */
#include "config.h"

#include "accounting/acct.h"
#include "tests/unit/check_main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

/* --- the step's title --- */

static const struct {
	const char *title;
	enum acct_kind kind;
	uint32_t job, step;
} titles[] = {
	{ "slurmstepd: [12.0]", ACCT_STEP, 12, 0 },
	{ "slurmstepd: [4294967290.4000000]", ACCT_STEP, 4294967290U, 4000000 },
	{ "slurmstepd: [12.7+1]", ACCT_STEP, 12, 7 },
	{ "slurmstepd: [12.batch]", ACCT_BATCH, 12, SLURM_BATCH_SCRIPT },
	{ "slurmstepd: [12.interactive]", ACCT_BATCH, 12,
	  SLURM_INTERACTIVE_STEP },
	{ "slurmstepd: [12.extern]", ACCT_OTHER, 12, 0 },
	{ "slurmstepd: [12.new-kind]", ACCT_OTHER, 12, 0 },
	{ "slurmstepd: [12]", ACCT_UNKNOWN, 0, 0 },
	{ "slurmstepd: [x.0]", ACCT_UNKNOWN, 0, 0 },
	{ "slurmstepd: [12.99999999999]", ACCT_UNKNOWN, 0, 0 },
	{ "slurmstepd: [12.0", ACCT_UNKNOWN, 0, 0 },
	{ "slurmstepd", ACCT_UNKNOWN, 0, 0 },
	{ "", ACCT_UNKNOWN, 0, 0 },
};

START_TEST(title_says_which_step)
{
	for (size_t i = 0; i < CHECK_COUNT(titles); i++) {
		struct acct_step s;

		acct_step_parse(titles[i].title, &s);
		ck_assert_int_eq(s.kind, titles[i].kind);
		if (s.kind == ACCT_UNKNOWN)
			continue;
		ck_assert_uint_eq(s.job, titles[i].job);
		if (s.kind != ACCT_OTHER)
			ck_assert_uint_eq(s.step, titles[i].step);
	}
}
END_TEST

/* --- acct_gather.conf --- */

static const char *given_key, *given_value;
static char complaint[512];

static char *get(void *table, const char *key)
{
	(void)table;
	return given_key && !strcmp(key, given_key) ? strdup(given_value) :
		NULL;
}

static void complain(const char *text)
{
	snprintf(complaint, sizeof(complaint), "%s", text);
}

static struct acct_conf with(const char *key, const char *value)
{
	struct acct_conf c = { 0 };

	given_key = key;
	given_value = value;
	complaint[0] = '\0';
	acct_conf_read(&c, get, NULL, complain);
	return c;
}

static void done(struct acct_conf *c)
{
	free(c->library);
	free(c->sampler);
}

START_TEST(configuration_defaults)
{
	struct acct_conf c = with(NULL, NULL);

	ck_assert_uint_eq(c.interval_ms, 1000);
	ck_assert(c.idle > 0.99 && c.idle < 1.01);
	ck_assert(c.write && !c.dcgm && !c.library);
	ck_assert_ptr_nonnull(strstr(c.sampler, "/ddp-gpu-sampler"));
	ck_assert_str_eq(complaint, "");
	done(&c);
}
END_TEST

START_TEST(configuration_values)
{
	struct acct_conf c = with("DdpGpuInterval", "0.1");

	ck_assert_uint_eq(c.interval_ms, 100);
	done(&c);
	c = with("DdpGpuInterval", "60");
	ck_assert_uint_eq(c.interval_ms, 60000);
	done(&c);
	c = with("DdpGpuSource", "dcgm");
	ck_assert(c.dcgm);
	done(&c);
	c = with("DdpGpuIdleThreshold", "2.5");
	ck_assert(c.idle > 2.49 && c.idle < 2.51);
	done(&c);
	c = with("DdpGpuLibrary", "/opt/libnvidia-ml.so.1");
	ck_assert_str_eq(c.library, "/opt/libnvidia-ml.so.1");
	done(&c);
	c = with("DdpGpuStepRecord", "read");
	ck_assert(!c.write);
	ck_assert_str_eq(complaint, "");
	done(&c);
}
END_TEST

static const char *const wrong[][2] = {
	{ "DdpGpuInterval", "0.09" }, { "DdpGpuInterval", "61" },
	{ "DdpGpuInterval", "" }, { "DdpGpuInterval", "-1" },
	{ "DdpGpuInterval", "1s" }, { "DdpGpuSource", "NVML " },
	{ "DdpGpuIdleThreshold", "nan" }, { "DdpGpuIdleThreshold", "101" },
	{ "DdpGpuIdleThreshold", "-1" }, { "DdpGpuIdleThreshold", "1%" },
	{ "DdpGpuLibrary", "libnvidia-ml.so" }, { "DdpGpuSampler", "" },
	{ "DdpGpuStepRecord", "off" },
};

/* Said, with the key, the value and what would be right; and the default. */
START_TEST(configuration_refuses)
{
	for (size_t i = 0; i < CHECK_COUNT(wrong); i++) {
		struct acct_conf c = with(wrong[i][0], wrong[i][1]);

		ck_assert_msg(strstr(complaint, wrong[i][0]) &&
			      strstr(complaint, wrong[i][1]) &&
			      strstr(complaint, "default"), "%s", complaint);
		ck_assert_uint_eq(c.interval_ms, 1000);
		ck_assert(c.write && !c.dcgm && !c.library && c.sampler);
		done(&c);
	}
}
END_TEST

/* --- values for Slurm --- */

static struct gpu_totals totals(double sm, double bytes)
{
	struct gpu_totals t = { .state = GPU_SAMPLING };

	t.known_in = (1u << GPU_SM) | (1u << GPU_NVLINK);
	t.known_out = t.known_in;
	t.in[GPU_SM] = sm;
	t.out[GPU_SM] = sm < 60 ? sm + 40 : 100;
	t.in[GPU_NVLINK] = bytes;
	t.out[GPU_NVLINK] = bytes / 2;
	return t;
}

START_TEST(unknown_stays_unset)
{
	struct gpu_totals t = totals(50, 1e9);
	struct acct_sums s;
	struct acct_part p;

	acct_sums_make(&t, 3, 1.5, &s);
	acct_share_live(&t, 3, 0, &p);
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		bool known = m == GPU_SM || m == GPU_NVLINK;

		ck_assert_int_eq(s.in[m] != DDP_GATHER_UNSET, known);
		ck_assert_int_eq(p.in[m] != DDP_GATHER_UNSET, known);
		ck_assert_int_eq(p.out[m] != DDP_GATHER_UNSET, known);
	}
}
END_TEST

/*
 * Nodes of a step, each with its tasks and its mean. Slurm divides the sum by the
 * tasks, whole numbers. So does ddp-report by the tasks of the nodes that have
 * values.
 */
START_TEST(average_is_the_rounded_mean)
{
	for (unsigned k = 0; k < 20000; k++) {
		unsigned nodes = 1 + (unsigned)rand() % 5, tasks[5], n = 0;
		double mean[5], sum = 0, want;
		uint64_t tot = 0;

		for (unsigned i = 0; i < nodes; i++) {
			tasks[i] = 1 + (unsigned)rand() % 8;
			/* In one of two the nodes have all done the same. */
			mean[i] = k % 2 && i ? mean[0] :
				rand() % 100001 / 1000.0;
			n += tasks[i];
			sum += tasks[i] * mean[i];
		}
		for (unsigned i = 0; i < nodes; i++) {
			struct gpu_totals t = totals(mean[i], 0);
			struct acct_sums s;

			acct_sums_make(&t, tasks[i],
				       acct_sums_extra(i, nodes, tasks[i]),
				       &s);
			tot += s.in[GPU_SM];
			ck_assert_msg(fabs(s.in[GPU_SM] / tasks[i] - mean[i]) <
				      0.5 + 1e-6 + 1.0 / tasks[i], "alone");
		}
		want = sum / n;
		/* Each node's rounding is half of one in n; where all have
		 * done the same it is one rounding. */
		ck_assert_msg(fabs(tot / n - want) <= 0.5 + 1e-6 +
			      nodes / (2.0 * n), "%g: %u of %u nodes, %u tasks", want,
			      (unsigned)(tot / n), nodes, n);
		if (k % 2 && n == nodes)
			ck_assert_msg(fabs(tot / n - want) <= 0.5 + 1e-6 +
				      0.5 / n,
				      "%g: %u", want, (unsigned)(tot / n));
		ck_assert_uint_le(tot / n, 100);
	}
}
END_TEST

/* Slurm's list of tasks, with the last value of each. */
struct listed {
	bool alive, listed;
	uint64_t in[GPU_METRICS], out[GPU_METRICS];
};

static void keep(struct listed *l, const struct acct_part *p)
{
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		if (p->in[m] == DDP_GATHER_UNSET)
			continue;
		l->in[m] = p->in[m];
		l->out[m] = p->out[m];
	}
}

static struct acct_count count(const struct listed *l, unsigned n)
{
	struct acct_count c = { 0 };

	for (unsigned i = 0; i < n; i++)
		if (l[i].alive)
			c.alive++;
		else if (l[i].listed)
			c.zombies++;
		else
			c.gone++;
	return c;
}

/* One poll while `reaped` (or nobody: n) is about to leave the list. */
static void poll_all(struct listed *l, unsigned n, struct acct_share *sh,
		     const struct gpu_totals *t, unsigned reaped)
{
	struct acct_sums all;
	struct acct_part p;
	struct acct_count c;

	acct_sums_make(t, n, n / 2.0, &all);
	for (unsigned i = n; i-- > 0;) {
		if (!l[i].listed)
			continue;
		/* It has been waited for, but is on the list still. */
		c = count(l, n);
		if (reaped < n) {
			c.zombies--;
			c.gone++;
		}
		if (l[i].alive)
			acct_share_live(t, n, sh->gone, &p);
		else if (i == reaped)
			acct_share_dead(sh, &all, t, &c, &p);
		else
			continue;
		keep(&l[i], &p);
	}
}

/*
 * Any number of tasks, ending one by one or together, with polls in between:
 * the sums are exact.
 */
START_TEST(shares_add_up)
{
	for (unsigned k = 0; k < 5000; k++) {
		unsigned n = 1 + (unsigned)rand() % 9;
		struct listed l[9] = { 0 };
		struct acct_share sh = { 0 };
		double sm = rand() % 100, bytes = 0;
		uint64_t in = 0, nv = 0, nvo = 0, top = 0;
		struct gpu_totals t;
		struct acct_sums all;

		for (unsigned i = 0; i < n; i++)
			l[i].alive = l[i].listed = true;
		t = totals(sm, bytes);
		poll_all(l, n, &sh, &t, n);
		for (unsigned left = n; left;) {
			unsigned die = 1 + (unsigned)rand() % left;

			sm = rand() % 100001 / 1000.0;
			bytes += rand() % 1000000;
			t = totals(sm, bytes);
			for (unsigned i = 0, d = die; i < n && d; i++)
				if (l[i].alive) {
					l[i].alive = false;
					d--;
				}
			left -= die;
			/* slurmstepd waits for them one after the other. */
			for (unsigned i = 0; i < n; i++) {
				if (l[i].alive || !l[i].listed)
					continue;
				poll_all(l, n, &sh, &t, i);
				l[i].listed = false;
			}
		}
		for (unsigned i = 0; i < n; i++) {
			in += l[i].in[GPU_SM];
			nv += l[i].in[GPU_NVLINK];
			nvo += l[i].out[GPU_NVLINK];
			if (l[i].out[GPU_SM] > top)
				top = l[i].out[GPU_SM];
		}
		acct_sums_make(&t, n, n / 2.0, &all);
		ck_assert_uint_eq(in, all.in[GPU_SM]);
		ck_assert_uint_eq(nv, all.in[GPU_NVLINK]);
		ck_assert_uint_eq(nvo, all.out[GPU_NVLINK]);
		ck_assert_uint_le(top, 100);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { title_says_which_step,
		configuration_defaults, configuration_values,
		configuration_refuses, unknown_stays_unset,
		average_is_the_rounded_mean, shares_add_up };

	return check_run("acct", tests, CHECK_COUNT(tests), NULL);
}
