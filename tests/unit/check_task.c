/* SPDX-License-Identifier: Apache-2.0 */
/* The last step of a launch: what becomes of a task's LD_PRELOAD. */
#include "config.h"

#include "core/ddp_task.h"
#include "tests/unit/check_main.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char had[40000], got[40000];
static char dir[] = "/tmp/ddp-task.XXXXXX";
static char library[64];
static struct ddp_task task;
static struct ddp_err err;

static bool get(void *arg, const char *name, char *buf, size_t size)
{
	(void)arg;
	if (strcmp(name, "LD_PRELOAD") || !had[0])
		return false;
	(void)snprintf(buf, size, "%s", had);
	return true;
}

static int set(void *arg, const char *name, const char *value, bool overwrite)
{
	(void)arg;
	if (!strcmp(name, "LD_PRELOAD")) {
		ck_assert(overwrite);
		(void)snprintf(got, sizeof(got), "%s", value);
	}
	return 0;
}

static void say(void *arg, const char *text)
{
	(void)arg;
	(void)text;
}

/* A step of one rank with this LD_PRELOAD. */
static int apply(const char *preload, bool life)
{
	const struct ddp_task_ops ops = { get, set, say, NULL };
	int rc;

	memset(&task, 0, sizeof(task));
	ck_assert(!ddp_plan_parse(&task.plan, "v=1;job=7;step=1;restart=0;"
		"mode=stateless;fw=jax;given=0;addr=10.0.0.7;port=20000;"
		"verify=0;iface=none;tasks=1", &err));
	task.plan.life = life;
	task.library = library;
	task.again = true;	/* nobody's port is looked at */
	(void)snprintf(had, sizeof(had), "%s", preload);
	got[0] = '\0';
	rc = ddp_task_check(&task, &err);
	if (!rc)
		rc = ddp_task_apply(&task, &ops, &err);
	ddp_task_clear(&task);
	return rc;
}

static void setup(void)
{
	int fd;

	strcpy(dir + sizeof(dir) - 7, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(library, sizeof(library), "%s/libddp_lifecycle.so", dir);
	fd = open(library, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void clear(void)
{
	unlink(library);
	ck_assert(!rmdir(dir));
}

/* The library's path between two texts. */
static const char *with(const char *before, const char *after)
{
	static char text[256];

	(void)snprintf(text, sizeof(text), "%s%s%s", before, library, after);
	return text;
}

START_TEST(preload)
{
	ck_assert_msg(!apply("", true), "%s", err.text);
	ck_assert_str_eq(got, library);
	ck_assert(!apply("/a/b.so::c.so  d.so:", true));
	ck_assert_str_eq(got, with("", ":/a/b.so:c.so:d.so"));
	/* Once, wherever the user has it. */
	ck_assert(!apply(with("/a.so ", ":/b.so"), true));
	ck_assert_str_eq(got, with("/a.so:", ":/b.so"));
	/* Sanitizers' runtimes must be first, or the program does not start. */
	ck_assert(!apply("/usr/lib/libasan.so.8", true));
	ck_assert_str_eq(got, with("/usr/lib/libasan.so.8:", ""));
	ck_assert(!apply("libasan.so:/l/libclang_rt.asan-x86_64.so /b.so "
			 "libtsan.so", true));
	ck_assert_str_eq(got, with("libasan.so:/l/libclang_rt.asan-x86_64.so:",
				   ":/b.so:libtsan.so"));
	ck_assert(!apply("/libasan.so/x.so", true));
	ck_assert_str_eq(got, with("", ":/libasan.so/x.so"));
	/* Another one's name. */
	ck_assert(!apply("/x/other_libddp_lifecycle.so", true));
	ck_assert_str_eq(got, with("", ":/x/other_libddp_lifecycle.so"));
	ck_assert(!apply("/a.so", false));
	ck_assert_str_eq(got, "");
	clear();
}
END_TEST

/* Another place than this one's: as a plugin outside of a container has left
 * it, or as the user has it. */
START_TEST(another_place)
{
	char own[sizeof(library)];

	ck_assert(!apply("/nowhere/libddp_lifecycle.so:/a.so", true));
	ck_assert_str_eq(got, with("", ":/a.so"));
	strcpy(own, library);
	strcpy(library, "/nowhere/libddp_lifecycle.so");
	ck_assert(apply(own, true));	/* looked at before the start */
	strcpy(library, own);
	clear();
}
END_TEST

START_TEST(refused)
{
	static char longest[33000];

	memset(longest, 'p', sizeof(longest) - 1);
	ck_assert(apply(longest, true));
	ck_assert_ptr_nonnull(strstr(err.text, "LD_PRELOAD is longer"));
	unlink(library);
	ck_assert(apply("", true));
	ck_assert_ptr_nonnull(strstr(err.text, "No such file"));
	ck_assert_ptr_nonnull(strstr(err.text, "lifecycle_library="));
	ck_assert(!apply("", false));
	library[4] = ':';
	ck_assert(apply("", true));
	ck_assert_ptr_nonnull(strstr(err.text, "a blank or a colon"));
	ck_assert(!rmdir(dir));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { preload, another_place, refused };

	return check_run("task", tests, CHECK_COUNT(tests), setup);
}
