/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says of processes, and the counter of memory kills. */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cgmem.h"
#include "core/ddp_proc.h"
#include "tests/unit/check_main.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(stat_text)
{
	struct ddp_proc_stat st;
	static const char *const text = "4711 (a ) (b) Z 12 -34 56 0 -1 4195852"
		" 0 0 0 0 0 0 0 0 20 0 1 0 1234567 0 0 18446744073709551615"
		" 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 1792\n";

	ck_assert(!ddp_proc_parse_stat(text, &st));
	ck_assert_int_eq(st.state, 'Z');
	ck_assert_int_eq(st.ppid, 12);
	ck_assert_int_eq(st.pgrp, -34);
	ck_assert_int_eq(st.session, 56);
	ck_assert_uint_eq(st.flags, 4195852);
	ck_assert_uint_eq(st.start, 1234567);
	ck_assert_uint_eq(st.status, 7 << 8);
}
END_TEST

START_TEST(stat_bad)
{
	static const char *const bad[] = { "", ")", "1 (x", "1 (x) ",
		"1 (x) R", "1 (x) R 1 2 3", "1 (x) RR 1 2", "1 (x) R a b c" };
	struct ddp_proc_stat st;

	for (unsigned i = 0; i < CHECK_COUNT(bad); i++)
		ck_assert_msg(ddp_proc_parse_stat(bad[i], &st), "%s", bad[i]);
}
END_TEST

START_TEST(status_text)
{
	struct ddp_proc_status st;

	ck_assert(!ddp_proc_parse_status("Name:\tUid:\nState:\tR (running)\n"
		"Uid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\n"
		"CoreDumping:\t1\nSigCgt:\t0000000000004002\n", &st));
	ck_assert_uint_eq(st.uid[0], 1000);
	ck_assert_uint_eq(st.uid[3], 1003);
	ck_assert_uint_eq(st.gid[2], 7);
	ck_assert(st.dumping && st.have_caught);
	ck_assert_uint_eq(st.caught, 0x4002);
	ck_assert(!ddp_proc_parse_status("Uid:\t1\t1\t1\t1\nGid:\t1\t1\t1\t1"
					 "\nCoreDumping:\t0\n", &st));
	ck_assert(!st.dumping && !st.have_caught);
	ck_assert(ddp_proc_parse_status("Uid:\t1\t1\t1\t1\n", &st));
	ck_assert(ddp_proc_parse_status("Uid:\t1\nGid:\t1\t1\t1\t1\n", &st));
	ck_assert(ddp_proc_parse_status("", &st));
}
END_TEST

/* An environment in an anonymous file. */
static bool environ_is(const void *data, size_t len, const char *node)
{
	struct ddp_proc_step step = { 77, 3, node };
	int fd = memfd_create("environ", 0);
	bool yes;

	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	yes = ddp_proc_environ(fd, &step);
	close(fd);
	return yes;
}

#define IDS "SLURM_JOB_ID=77\0SLURM_STEP_ID=3\0"
#define IS(text, node) environ_is(text, sizeof(text) - 1, node)

START_TEST(environment)
{
	static char big[50000];
	static const char ids[] = IDS "SLURMD_NODENAME=n1";

	ck_assert(IS("A=b\0" IDS "SLURMD_NODENAME=n1\0", "n1"));
	ck_assert(IS(IDS "SLURMD_NODENAME=n1\0", NULL));
	ck_assert(IS(IDS, NULL));
	ck_assert(!IS(IDS "SLURMD_NODENAME=n11\0", "n1"));
	ck_assert(!IS(IDS "SLURMD_NODENAME=n\0", "n1"));
	ck_assert(!IS(IDS, "n1"));
	ck_assert(!IS("SLURM_JOB_ID=771\0SLURM_STEP_ID=3\0", NULL));
	ck_assert(!IS("XSLURM_JOB_ID=77\0SLURM_STEP_ID=3\0", NULL));
	ck_assert(!IS("SLURM_JOB_ID=77\nSLURM_STEP_ID=3\0", NULL));
	ck_assert(!IS("", NULL));
	/* Behind and across the blocks it is read in. */
	for (size_t at = 8100; at < 8300; at++) {
		memset(big, 'x', sizeof(big));
		big[at] = '\0';
		memcpy(big + at + 1, ids, sizeof(ids));
		ck_assert(environ_is(big, sizeof(big), "n1"));
	}
	/* The end of a long entry is no entry. */
	memset(big, 'x', sizeof(big));
	memcpy(big + 16384, ids, sizeof(ids));
	ck_assert(!environ_is(big, sizeof(big), "n1"));
}
END_TEST

START_TEST(own)
{
	struct ddp_proc_step step = { 1, 2, NULL };
	struct ddp_proc_status status;
	struct ddp_proc_stat st;
	char comm[DDP_PROC_COMM];

	ck_assert(!ddp_proc_stat(getpid(), &st));
	ck_assert_int_eq(st.ppid, getppid());
	ck_assert_int_eq(st.pgrp, getpgrp());
	ck_assert_int_eq(st.session, getsid(0));
	ck_assert(!ddp_proc_status(getpid(), &status));
	ck_assert_uint_eq(status.uid[0], getuid());
	ck_assert(!ddp_proc_in_step(getpid(), &step));
	ck_assert_str_ne(ddp_proc_comm(getpid(), comm, sizeof(comm)), "?");
	ck_assert(ddp_proc_stat(0, &st) && ddp_proc_stat(-1, &st));
	ck_assert(ddp_proc_stat(0x7ffffff0, &st));
	ck_assert_str_eq(ddp_proc_comm(0x7ffffff0, comm, sizeof(comm)), "?");
}
END_TEST

START_TEST(zombie)
{
	struct ddp_proc_stat st;
	uint32_t status;
	int pidfd, wait_status;
	siginfo_t info;
	pid_t pid = fork();

	if (!pid) {
		raise(SIGKILL);
		_exit(1);
	}
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	ck_assert(!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
	ck_assert(!ddp_proc_stat(pid, &st));
	ck_assert_int_eq(st.state, 'Z');
	ck_assert_uint_eq(st.status, SIGKILL);
	ck_assert(ddp_proc_open_to_us(pid));
	ck_assert_int_eq(waitpid(pid, &wait_status, 0), pid);
	ck_assert(ddp_proc_stat(pid, &st));
	ck_assert(!ddp_proc_open_to_us(pid));
	/* Not before Linux 6.15. */
	if (!ddp_proc_reaped(pidfd, &status))
		ck_assert_uint_eq(status, SIGKILL);
	ck_assert(ddp_proc_reaped(-1, &status));
	ck_assert(ddp_proc_reaped(0, &status));
	close(pidfd);
}
END_TEST

START_TEST(sockets)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct stat st;

	ck_assert(!fstat(fd, &st));
	ck_assert(ddp_proc_has_socket(getpid(), st.st_ino));
	close(fd);
	ck_assert(!ddp_proc_has_socket(getpid(), st.st_ino));
	ck_assert(!ddp_proc_has_socket(0x7ffffff0, st.st_ino));
}
END_TEST

static int find(pid_t pid, void *arg)
{
	return pid == *(pid_t *)arg ? 7 : 0;
}

START_TEST(walk)
{
	pid_t self = getpid(), nobody = 0x7ffffff0;

	ck_assert_int_eq(ddp_proc_walk(getuid(), find, &self), 7);
	ck_assert_int_eq(ddp_proc_walk(getuid(), find, &nobody), 0);
}
END_TEST

static int cgroup(const char *text, char *path)
{
	char copy[1024];

	ck_assert_int_lt(snprintf(copy, sizeof(copy), "%s", text),
			 sizeof(copy));
	return ddp_cgmem_parse(copy, path, DDP_CGMEM_PATH);
}

START_TEST(cgroups)
{
	char path[DDP_CGMEM_PATH];

	ck_assert(!cgroup("9:name=systemd:/\n4:cpu,memory:/slurm/step_0\n"
			  "0::/x\n", path));
	ck_assert_str_eq(path, "/sys/fs/cgroup/memory/slurm/step_0/"
			 "memory.oom_control");
	ck_assert(!cgroup("0::/system.slice/slurmstepd.scope/job_1\n", path));
	ck_assert_str_eq(path, "/sys/fs/cgroup/system.slice/slurmstepd.scope/"
			 "job_1/memory.events");
	ck_assert(cgroup("0::/../../etc\n", path));
	ck_assert(cgroup("4:memoryx:/a\n", path));
	ck_assert(cgroup("", path));
	ck_assert_uint_eq(ddp_cgmem_kills("/nonexistent"), 0);
	ck_assert(ddp_cgmem_path(0x7ffffff0, path, sizeof(path)));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { stat_text, stat_bad, status_text,
		environment, own, zombie, sockets, walk, cgroups };

	return check_run("proc", tests, CHECK_COUNT(tests), NULL);
}
