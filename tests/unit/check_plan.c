/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as text: the way there and back, and what a node refuses. */
#include "config.h"

#include "core/ddp_plan.h"
#include "tests/unit/check_main.h"

#include <stdio.h>
#include <string.h>

#define GOOD "v=1;job=7;step=0;restart=2;mode=full;fw=torch,jax;given=9;" \
	"addr=n1;port=20000;verify=0;iface=none;tasks=2(x2)"

static struct ddp_plan plan;
static struct ddp_err err;

START_TEST(round_trip)
{
	char *text;

	ck_assert_msg(!ddp_plan_parse(&plan, GOOD ";order=1,0;ip=10.0.0.7;"
				      "host=box", &err), "%s", err.text);
	ck_assert_uint_eq(plan.job, 7);
	ck_assert_uint_eq(plan.restart, 2);
	ck_assert_int_eq(plan.mode, DDP_MODE_FULL);
	ck_assert_uint_eq(plan.frameworks, DDP_FW_DEFAULT);
	ck_assert_uint_eq(plan.given, 9);
	ck_assert_str_eq(plan.addr, "n1");
	ck_assert_str_eq(plan.ip, "10.0.0.7");
	ck_assert_str_eq(plan.host, "box");
	ck_assert_uint_eq(plan.port, 20000);
	ck_assert_uint_eq(plan.layout.ntasks, 4);
	ck_assert_uint_eq(plan.layout.first, 1);
	text = ddp_plan_format(&plan, &err);
	ck_assert_str_eq(text, GOOD ";order=1,0;ip=10.0.0.7;host=box");
	free(text);
	ddp_plan_clear(&plan);
}
END_TEST

/* Replace one field's value of a good plan. */
static const char *with(const char *key, const char *value)
{
	static char out[2048];
	char find[32];
	const char *at;

	snprintf(find, sizeof(find), ";%s=", key);
	at = strstr(GOOD, find);
	ck_assert_ptr_nonnull(at);
	at += strlen(find);
	snprintf(out, sizeof(out), "%.*s%s%s", (int)(at - GOOD), GOOD, value,
		 at + strcspn(at, ";"));
	return out;
}

/* 0: the master's port comes from the agent of its node. */
START_TEST(port_from_agent)
{
	ck_assert_msg(!ddp_plan_parse(&plan, with("port", "0"), &err), "%s",
		      err.text);
	ck_assert_uint_eq(plan.port, 0);
	ddp_plan_clear(&plan);
	/* Nobody fills it in where there is no agent. */
	ck_assert(ddp_plan_parse(&plan, "v=1;job=7;step=0;restart=2;"
		"mode=stateless;fw=torch;given=0;addr=n1;port=0;verify=0;"
		"iface=none;tasks=1", &err));
	ck_assert(strstr(err.text, "port"));
	ddp_plan_clear(&plan);
}
END_TEST

START_TEST(bad_values)
{
	static const char *const bad[][2] = {
		{ "job", "0" }, { "job", "-1" }, { "job", "4294967296" },
		{ "step", "x" }, { "restart", "" }, { "mode", "" },
		{ "mode", "fast" }, { "fw", "" }, { "fw", "caffe" },
		{ "given", "262144" }, { "addr", "" }, { "addr", "a b" },
		{ "addr", "$(reboot)" }, { "port", "1023" }, { "port", "80" },
		{ "port", "65536" }, { "verify", "2" }, { "iface", "" },
		{ "iface", "a/b" }, { "tasks", "" }, { "tasks", "2(x2" },
		{ "tasks", "0" },
	};

	for (unsigned i = 0; i < CHECK_COUNT(bad); i++) {
		const char *text = with(bad[i][0], bad[i][1]);

		ck_assert_msg(ddp_plan_parse(&plan, text, &err) == -1, "%s",
			      text);
		ck_assert_ptr_null(plan.layout.tasks);
	}
}
END_TEST

START_TEST(bad_shapes)
{
	static const char *const bad[] = { "", "v=1", "v=2;job=1", "v=1;",
		"garbage", GOOD ";x=1", GOOD ";job=8", GOOD ";order",
		GOOD ";ip=a b", GOOD ";host=;", GOOD ";=",
		GOOD ";order=0,0", DDP_PLAN_REFUSED,
		GOOD ";tfaddrs=;tfports=1;tfmap=0",
		GOOD ";tfaddrs=a;tfports=;tfmap=0",
		GOOD ";tfaddrs=a;tfports=1;tfmap=", NULL };

	for (unsigned i = 0; bad[i]; i++)
		ck_assert_msg(ddp_plan_parse(&plan, bad[i], &err) == -1, "%s",
			      bad[i]);
	ck_assert(ddp_plan_parse(&plan, DDP_PLAN_REFUSED, &err));
	ck_assert(strstr(err.text, "srun"));
	ck_assert(ddp_plan_parse(&plan, GOOD ";new=1", &err));
	ck_assert(strstr(err.text, "different versions"));
}
END_TEST

/* Every field that a node needs is required. */
START_TEST(missing_field)
{
	const char *p = GOOD;

	for (p = strchr(p, ';'); p; p = strchr(p + 1, ';')) {
		char text[512];

		snprintf(text, sizeof(text), "%.*s%s", (int)(p - GOOD), GOOD,
			 p + 1 + strcspn(p + 1, ";"));
		ck_assert_msg(ddp_plan_parse(&plan, text, &err) == -1, "%s",
			      text);
	}
}
END_TEST

START_TEST(too_long)
{
	char *text = malloc(DDP_PLAN_MAX + 2);

	memset(text, ';', DDP_PLAN_MAX + 1);
	memcpy(text, GOOD, strlen(GOOD));
	text[DDP_PLAN_MAX + 1] = '\0';
	ck_assert(ddp_plan_parse(&plan, text, &err));
	ck_assert(strstr(err.text, "too long"));
	free(text);
}
END_TEST

/* 65536 nodes in reverse order do not fit in one string: an error. */
START_TEST(lifecycle)
{
	char *text;

	ck_assert(!ddp_plan_parse(&plan, GOOD, &err) && !plan.life);
	ddp_plan_clear(&plan);
	ck_assert(!ddp_plan_parse(&plan, GOOD ";life=1", &err) && plan.life);
	text = ddp_plan_format(&plan, &err);
	ck_assert_str_eq(text, GOOD ";life=1");
	free(text);
	ddp_plan_clear(&plan);
	ck_assert(ddp_plan_parse(&plan, GOOD ";life=0", &err));
	ck_assert(ddp_plan_parse(&plan, GOOD ";life=", &err));
}
END_TEST

START_TEST(irregular)
{
	struct ddp_layout *l = &plan.layout;

	ck_assert(!ddp_plan_parse(&plan, with("tasks", "1(x65536)"), &err));
	for (uint32_t i = 0; i < l->nnodes; i++)
		l->rank[i] = l->nnodes - 1 - i;
	ck_assert_ptr_null(ddp_plan_format(&plan, &err));
	ck_assert_int_eq(err.code, DDP_ENOSPC);
	ddp_plan_clear(&plan);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { round_trip, port_from_agent, bad_values,
		bad_shapes, missing_field, too_long, lifecycle, irregular };

	return check_run("plan", tests, CHECK_COUNT(tests), NULL);
}
