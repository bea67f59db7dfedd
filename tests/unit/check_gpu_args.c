/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler's command line, whose libraries it loads, its groups, and who
 * holds DCGM's port. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/gpu_library.h"
#include "accounting/gpu_path.h"
#include "accounting/sampler.h"
#include "accounting/src_dcgm.h"
#include "tests/unit/check_main.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sampler_args args;
static struct ddp_err err;
static char dir[PATH_MAX];

/* A folder of root's alone, below one where all may write. */
static void make_dir(void)
{
	const char *base = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/check_gpu.XXXXXX",
		 base ? base : "/var/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert(!chmod(dir, 0755));
}

static const char *below(const char *name)
{
	static char path[4][PATH_MAX + 64];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static void put(const char *name, mode_t mode)
{
	FILE *f = fopen(below(name), "w");

	ck_assert_ptr_nonnull(f);
	fclose(f);
	ck_assert(!chmod(below(name), mode));
}

/* Files first, then folders, then dir itself. */
static void clean(const char *const *names)
{
	for (; *names; names++)
		(void)remove(below(*names));
	ck_assert_msg(!rmdir(dir), "%s: something is left", dir);
}

static int parse(const char *const *words)
{
	const char *argv[32] = { "ddp-gpu-sampler" };
	int argc = 1;

	while (*words)
		argv[argc++] = *words++;
	return sampler_args_parse(argc, argv, &args, &err);
}

#define PARSE(...) parse((const char *const[]){ __VA_ARGS__, NULL })
#define GOOD "--want", "sm", "--gpu", "minor=0"

START_TEST(arguments)
{
	ck_assert(!PARSE(GOOD));
	ck_assert_uint_eq(args.req.interval_ms, 1000);
	ck_assert(args.req.idle >= 1 && args.req.idle <= 1);
	ck_assert_ptr_eq(args.source, &gpu_source_nvml);
	ck_assert_str_eq(args.req.library, "");
	ck_assert(!PARSE("--interval", "100", "--idle", "2.5", "--source",
			 "nvml", "--library", "/x/y", "--label", "12.0@n1",
			 "--want", "idle,sm,pcie", "--gpu", "minor=17",
			 "--gpu", "uuid=MIG-1a-2B", "--gpu",
			 "pci=0001:aF:1f.0", "--gpu",
			 "uuid=MIG-GPU-1/2/0"));
	ck_assert_uint_eq(args.req.interval_ms, 100);
	ck_assert(args.req.idle >= 2.5 && args.req.idle <= 2.5);
	ck_assert_str_eq(args.req.library, "/x/y");
	ck_assert_uint_eq(args.req.want, 1u << GPU_IDLE | 1u << GPU_SM |
			  1u << GPU_PCIE);
	ck_assert_uint_eq(args.req.ngpus, 4);
	ck_assert_uint_eq(args.req.ask[0].minor, 17);
	ck_assert_str_eq(args.req.ask[1].uuid, "MIG-1a-2B");
	ck_assert_str_eq(args.req.ask[1].name, "uuid=MIG-1a-2B");
	ck_assert_uint_eq(args.req.ask[2].pci.domain, 1);
	ck_assert_uint_eq(args.req.ask[2].pci.bus, 0xaf);
	ck_assert_uint_eq(args.req.ask[2].pci.device, 0x1f);
	ck_assert_int_eq(args.req.ask[3].kind, GPU_ASK_UUID);
}
END_TEST

START_TEST(bad_arguments)
{
	static const char *const bad[][2] = {
		{ "--interval", "99" }, { "--interval", "60001" },
		{ "--interval", "1e3" }, { "--interval", "" },
		{ "--interval", "1000 " }, { "--interval", "-1" },
		{ "--idle", "101" }, { "--idle", "-1" }, { "--idle", "nan" },
		{ "--idle", "1." }, { "--idle", ".5" }, { "--idle", "1.2.3" },
		{ "--idle", "0x1" }, { "--idle", "" }, { "--idle", "1e1" },
		{ "--idle", "00000000000000000001" },
		{ "--source", "cuda" }, { "--source", "" },
		{ "--want", "sm" }, { "--want", "" }, { "--wants", "pcie" },
		{ "--gpu", "minor=0" }, { "--gpu", "minor=" },
		{ "--gpu", "minor=-1" }, { "--gpu", "minor=1048576" },
		{ "--gpu", "minor=1x" }, { "--gpu", "0" }, { "--gpu", "" },
		{ "--gpu", "pci=0000:10:00" }, { "--gpu", "pci=10:00.0" },
		{ "--gpu", "pci=0000:1g:00.0" }, { "--gpu", "pci=:10:00.0" },
		{ "--gpu", "pci=0000:10:00.0x" },
		{ "--gpu", "pci=123456789:10:00.0" },
		{ "--gpu", "uuid=" }, { "--gpu", "uuid=XPU-1" },
		{ "--gpu", "uuid=GPU-a b" }, { "--gpu", "uuid=GPU-a\n" },
		{ "-h", "x" }, { "--label=x", "y" }, { "", "" },
	};
	char longer[300], many[GPU_MAX + 1][16];
	const char *argv[2 * (GPU_MAX + 1) + 4] = { "ddp-gpu-sampler" };
	unsigned i, n = 1;

	for (i = 0; i < CHECK_COUNT(bad); i++)
		ck_assert_msg(PARSE(GOOD, bad[i][0], bad[i][1]),
			      "%s %s", bad[i][0], bad[i][1]);
	ck_assert(PARSE("--want", "sm"));
	ck_assert(PARSE("--gpu", "minor=0"));
	ck_assert(PARSE("--want", "sm,sm", "--gpu", "minor=0"));
	ck_assert(PARSE("--want", "sm,", "--gpu", "minor=0"));
	ck_assert(PARSE("--want", "s", "--gpu", "minor=0"));
	ck_assert(PARSE("--want", "smx", "--gpu", "minor=0"));
	ck_assert(PARSE(GOOD, "--idle"));
	ck_assert(PARSE(GOOD, "--idle", "1", "--idle", "1"));
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	memcpy(longer, "uuid=GPU-", 9);
	ck_assert(PARSE(GOOD, "--gpu", longer));
	ck_assert(PARSE(GOOD, "--label", longer));
	argv[n++] = "--want";
	argv[n++] = "sm";
	for (i = 0; i <= GPU_MAX; i++) {
		snprintf(many[i], sizeof(many[i]), "minor=%u", i);
		argv[n++] = "--gpu";
		argv[n++] = many[i];
	}
	ck_assert(sampler_args_parse((int)n, argv, &args, &err));
	ck_assert(!sampler_args_parse((int)n - 2, argv, &args, &err));
	ck_assert_uint_eq(args.req.ngpus, GPU_MAX);
}
END_TEST

START_TEST(whose_library)
{
	static const char *const made[] = { "lib.so", "link.so", "open/lib.so",
		"to/lib.so", "open", "sticky/lib.so", "sticky", "to", NULL };
	char real[PATH_MAX];
	uid_t own = geteuid();

	make_dir();
	put("lib.so", 0644);
	ck_assert_msg(!gpu_path_check(below("lib.so"), own, real, &err),
		      "%s", err.text);
	ck_assert_str_eq(real, below("lib.so"));
	ck_assert(!symlink("lib.so", below("link.so")));
	ck_assert(!gpu_path_check(below("link.so"), own, real, &err));
	ck_assert_str_eq(real, below("lib.so"));
	ck_assert(gpu_path_check("lib.so", own, real, &err));
	ck_assert(gpu_path_check("./lib.so", own, real, &err));
	ck_assert(gpu_path_check(dir, own, real, &err));
	ck_assert(gpu_path_check(below("none.so"), own, real, &err));
	ck_assert(gpu_path_check("/dev/null", own, real, &err));
	ck_assert(!chmod(below("lib.so"), 0664));
	ck_assert(gpu_path_check(below("lib.so"), own, real, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "lib.so"));
	ck_assert(!chmod(below("lib.so"), 0666));
	ck_assert(gpu_path_check(below("link.so"), own, real, &err));
	ck_assert(!chmod(below("lib.so"), 0644));
	/* Where others may change names, or only add some. */
	ck_assert(!mkdir(below("open"), 0755) && !chmod(below("open"), 0777));
	put("open/lib.so", 0644);
	ck_assert(gpu_path_check(below("open/lib.so"), own, real, &err));
	ck_assert(!mkdir(below("sticky"), 0755) &&
		  !chmod(below("sticky"), 01777));
	put("sticky/lib.so", 0644);
	ck_assert(!gpu_path_check(below("sticky/lib.so"), own, real, &err));
	/* A link's own folder may be good, and where it leads not. */
	ck_assert(!symlink("open", below("to")));
	ck_assert(gpu_path_check(below("to/lib.so"), own, real, &err));
	ck_assert(gpu_path_check(below("open/../lib.so"), own, real, &err));
	clean(made);
}
END_TEST

/* What belongs to somebody else; only root can make such a thing. */
START_TEST(foreign_library)
{
	static const char *const made[] = { "lib.so", "d/lib.so", "link.so",
		"d", NULL };
	char real[PATH_MAX];

	make_dir();
	if (geteuid()) {
		clean(made);
		return;
	}
	put("lib.so", 0644);
	ck_assert(!chown(below("lib.so"), 4711, 0));
	ck_assert(gpu_path_check(below("lib.so"), 0, real, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "root"));
	ck_assert(!gpu_path_check(below("lib.so"), 4711, real, &err));
	ck_assert(!chown(below("lib.so"), 0, 0));
	ck_assert(!symlink("lib.so", below("link.so")));
	ck_assert(!lchown(below("link.so"), 4711, 0));
	ck_assert(gpu_path_check(below("link.so"), 0, real, &err));
	ck_assert(!mkdir(below("d"), 0755));
	put("d/lib.so", 0644);
	ck_assert(!gpu_path_check(below("d/lib.so"), 0, real, &err));
	ck_assert(!chown(below("d"), 4711, 0));
	ck_assert(gpu_path_check(below("d/lib.so"), 0, real, &err));
	clean(made);
}
END_TEST

START_TEST(opens_libraries)
{
	static const char *const none[] = { "libno-such-thing.so.1", NULL };
	static const char *const some[] = { "libno-such-thing.so.1",
		"libm.so.6", NULL };
	static const char *const made[] = { "lib.so", NULL };

	make_dir();
	unsetenv("LD_LIBRARY_PATH");
	ck_assert_ptr_nonnull(gpu_library_open("", 0, some, &err));
	ck_assert_ptr_null(gpu_library_open("", 0, none, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "libno-such-thing.so.1"));
	put("lib.so", 0644);	/* empty: no library */
	ck_assert_ptr_null(gpu_library_open(below("lib.so"), geteuid(), some,
					    &err));
	ck_assert(!setenv("LD_LIBRARY_PATH", dir, 1));
	ck_assert_ptr_null(gpu_library_open("", 0, some, &err));
	clean(made);
}
END_TEST

START_TEST(groups)
{
	static const char *const made[] = { "nvidia0", "nvidia1", "nvidia2",
		"nvidiactl", NULL };
	struct gpu_request req = { .ngpus = 2 };
	gid_t g[4];

	make_dir();
	req.ask[0].minor = 0;
	req.ask[1].minor = 1;
	/* No files: as good as open ones. */
	ck_assert_int_eq(sampler_priv_groups(dir, &req, g, 4, &err), 0);
	put("nvidia0", 0666);
	put("nvidia1", 0666);
	put("nvidia2", 0600);	/* of another job */
	put("nvidiactl", 0666);
	ck_assert_int_eq(sampler_priv_groups(dir, &req, g, 4, &err), 0);
	ck_assert(!chmod(below("nvidia1"), 0600));
	ck_assert_int_eq(sampler_priv_groups(dir, &req, g, 4, &err), -1);
	ck_assert_ptr_nonnull(strstr(err.text, "nvidia1"));
	/* By UUID nobody knows which file it is. */
	req.ask[1].kind = GPU_ASK_UUID;
	ck_assert_int_eq(sampler_priv_groups(dir, &req, g, 4, &err), 0);
	req.ask[1].kind = GPU_ASK_MINOR;
	ck_assert(!chmod(below("nvidia1"), 0660));
	if (geteuid()) {
		clean(made);
		return;
	}
	/* The group root is none to keep. */
	ck_assert_int_eq(sampler_priv_groups(dir, &req, g, 4, &err), -1);
	ck_assert(!chown(below("nvidia1"), 0, 44));
	ck_assert(!chown(below("nvidiactl"), 0, 44));
	ck_assert(!chmod(below("nvidiactl"), 0660));
	ck_assert_int_eq(sampler_priv_groups(dir, &req, g, 4, &err), 1);
	ck_assert_uint_eq(g[0], 44);
	ck_assert(!chown(below("nvidia0"), 0, 45));
	ck_assert(!chmod(below("nvidia0"), 0660));
	ck_assert_int_eq(sampler_priv_groups(dir, &req, g, 4, &err), 2);
	ck_assert_int_eq(sampler_priv_groups(dir, &req, g, 1, &err), -1);
	clean(made);
}
END_TEST

/* Lines as of /proc/net/tcp and tcp6: address, state and user. */
START_TEST(port_holder)
{
	static const char *const made[] = { "tcp", NULL };
	static const struct {
		const char *line;
		bool good;
	} cases[] = {
		{ "", true },
		{ "  sl  local_address rem_address   st tx_queue\n", true },
		{ "   0: 0100007F:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n", true },
		{ "   0: 0100007F:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 1 1\n", true },
		{ "   0: 0100007F:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n", false },
		{ "  12: 00000000:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000 54321        0 1 1\n", false },
		/* Another port; and not one that listens. */
		{ "   0: 0100007F:15B4 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n", true },
		{ "   0: 0100007F:15B3 0100007F:A000 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n", true },
		{ "   0: 00000000000000000000000001000000:15B3 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n", false },
	};
	unsigned i;

	make_dir();
	ck_assert(!dcgm_port_check(below("none"), DC_PORT, &err));
	for (i = 0; i < CHECK_COUNT(cases); i++) {
		FILE *f = fopen(below("tcp"), "w");

		ck_assert_ptr_nonnull(f);
		ck_assert_int_ge(fputs(cases[i].line, f), 0);
		fclose(f);
		ck_assert_msg(!dcgm_port_check(below("tcp"), DC_PORT, &err) ==
			      cases[i].good, "case %u", i);
	}
	clean(made);
}
END_TEST

int main(void)
{
	const TTest *tests[] = {
		arguments, bad_arguments, whose_library, foreign_library,
		opens_libraries, groups, port_holder,
	};

	return check_run("gpu_args", tests, CHECK_COUNT(tests), NULL);
}
