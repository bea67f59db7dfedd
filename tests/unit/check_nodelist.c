/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's own host lists through the compat layer, with the real libslurm. */
#include "config.h"

#include "compat/ddp_compat.h"
#include "tests/unit/check_main.h"

#include <stdio.h>
#include <string.h>

static struct ddp_err err;

/* libslurm leaks a few bytes of every list that it refuses; not ours. */
const char *__lsan_default_suppressions(void)
	__attribute__((visibility("default")));

const char *__lsan_default_suppressions(void)
{
	return "leak:slurm_hostlist_create\n";
}

/* Host names of a list, in order, blank separated. */
static const char *expand(const char *list)
{
	static char out[1024];
	char name[256];
	size_t n = 0;

	out[0] = '\0';
	for (uint32_t i = 0; !ddp_compat_node_name(list, i, name,
						   sizeof(name), &err); i++)
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%s",
				      n ? " " : "", name);
	return out;
}

START_TEST(lists)
{
	static const char *const list[][2] = {
		{ "linux[1,2]", "linux1 linux2" },
		{ "alpha,beta,gamma", "alpha beta gamma" },
		{ "nodeA,nodeB[001,003],nodeC",
		  "nodeA nodeB001 nodeB003 nodeC" },
		{ "host-[01,03-05]", "host-01 host-03 host-04 host-05" },
		{ "gpu-compute-on-demand-dy-g4dnxlarge-[1-4]",
		  "gpu-compute-on-demand-dy-g4dnxlarge-1 "
		  "gpu-compute-on-demand-dy-g4dnxlarge-2 "
		  "gpu-compute-on-demand-dy-g4dnxlarge-3 "
		  "gpu-compute-on-demand-dy-g4dnxlarge-4" },
		{ "c1001a-s[11,17]", "c1001a-s11 c1001a-s17" },
		{ "c427-032,c429-002", "c427-032 c429-002" },
		{ "b04-[09-10]", "b04-09 b04-10" },
		{ "node[098-101]", "node098 node099 node100 node101" },
		{ "gpu[9-11]", "gpu9 gpu10 gpu11" },
		{ "c[01-2]", "c01 c02" },
		{ "rack[0-1]_blade[0-1]",
		  "rack0_blade0 rack0_blade1 rack1_blade0 rack1_blade1" },
		{ "n1", "n1" },
	};

	for (unsigned i = 0; i < CHECK_COUNT(list); i++)
		ck_assert_str_eq(expand(list[i][0]), list[i][1]);
}
END_TEST

/* A clear error; never an empty name, never localhost. */
START_TEST(invalid)
{
	static const char *const bad[] = { "n[2-1]", "n[]", "n[1-3,]",
		"n[0-70000]", "n[1", "n[a-b]", "", NULL };
	char name[256];

	for (unsigned i = 0; bad[i]; i++) {
		memset(&err, 0, sizeof(err));
		ck_assert_msg(ddp_compat_node_name(bad[i], 0, name,
						   sizeof(name), &err) == -1,
			      "\"%s\" gave \"%s\"", bad[i], name);
		ck_assert_msg(strstr(err.text, "node list"), "%s", err.text);
	}
}
END_TEST

START_TEST(beyond_the_end)
{
	char name[256];

	ck_assert(ddp_compat_node_name("n[1-3]", 3, name, sizeof(name), &err));
	ck_assert(strstr(err.text, "number 3"));
	ck_assert(!ddp_compat_node_name("n[1-3]", 2, name, sizeof(name),
					&err));
	ck_assert_str_eq(name, "n3");
	ck_assert(ddp_compat_node_name("n[10-13]", 2, name, 3, &err));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { lists, invalid, beyond_the_end };

	return check_run("nodelist", tests, CHECK_COUNT(tests), NULL);
}
