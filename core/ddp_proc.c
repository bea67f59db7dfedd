/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_io.h"
#include "core/ddp_proc.h"
#include "core/ddp_text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longest environment that is looked at, and most open files of a process. */
#define ENVIRON_MAX (4U << 20)
#define FILES_MAX 65536
/* Threads looked at for one that still has an environment. */
#define THREADS_MAX 1024

static int path_of(pid_t pid, const char *name, char *buf, size_t size)
{
	return pid > 0 && snprintf(buf, size, "/proc/%d/%s", (int)pid, name) <
		(int)size ? 0 : -1;
}

static int open_file(pid_t pid, const char *name, int flags)
{
	char path[64];

	if (path_of(pid, name, path, sizeof(path)))
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
}

static DIR *open_dir(pid_t pid, const char *name)
{
	int fd = open_file(pid, name, O_DIRECTORY);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

int ddp_proc_read(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];

	return !path_of(pid, name, path, sizeof(path)) &&
		ddp_io_read_file(path, buf, size) > 0 ? 0 : -1;
}

/* A decimal number at *p, which moves behind it and one blank. */
static int number(const char **p, int64_t *v)
{
	bool minus = **p == '-';
	uint64_t n = 0;
	const char *s = *p + minus;

	if (*s < '0' || *s > '9')
		return -1;
	while (*s >= '0' && *s <= '9')
		n = n * 10 + (uint64_t)(*s++ - '0');
	*v = minus ? (int64_t)-n : (int64_t)n;
	if (*s == ' ')
		s++;
	*p = s;
	return 0;
}

/* Fields as proc(5) counts them; the name, field 2, may hold anything. */
int ddp_proc_parse_stat(const char *text, struct ddp_proc_stat *st)
{
	const char *p = strrchr(text, ')');
	int64_t v[53] = { 0 };

	memset(st, 0, sizeof(*st));
	if (!p || p[1] != ' ' || !p[2] || p[3] != ' ')
		return -1;
	st->state = p[2];
	p += 4;
	for (unsigned i = 4; i <= 52; i++)
		if (number(&p, &v[i]))
			return -1;
	st->ppid = (pid_t)v[4];
	st->pgrp = (pid_t)v[5];
	st->session = (pid_t)v[6];
	st->flags = (uint32_t)v[9];
	st->threads = (uint32_t)v[20];
	st->start = v[22] ? (uint64_t)v[22] : 1;
	st->status = (uint32_t)v[52];
	return 0;
}

int ddp_proc_stat(pid_t pid, struct ddp_proc_stat *st)
{
	char buf[2048];

	if (ddp_proc_read(pid, "stat", buf, sizeof(buf)))
		return -1;
	return ddp_proc_parse_stat(buf, st);
}

static int read_ids(const char *p, uint32_t id[4])
{
	return sscanf(p, "\t%" SCNu32 "\t%" SCNu32 "\t%" SCNu32 "\t%" SCNu32,
		      &id[0], &id[1], &id[2], &id[3]) == 4 ? 0 : -1;
}

int ddp_proc_parse_status(const char *text, struct ddp_proc_status *st)
{
	bool uid = false, gid = false;

	memset(st, 0, sizeof(*st));
	for (const char *p = text; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (!strncmp(p, "Uid:", 4))
			uid = !read_ids(p + 4, st->uid);
		else if (!strncmp(p, "Gid:", 4))
			gid = !read_ids(p + 4, st->gid);
		else if (!strncmp(p, "CoreDumping:\t1", 14))
			st->dumping = true;
		else if (!strncmp(p, "SigCgt:\t", 8))
			st->have_caught = sscanf(p + 8, "%16" SCNx64,
						 &st->caught) == 1;
	}
	return uid && gid ? 0 : -1;
}

int ddp_proc_status(pid_t pid, struct ddp_proc_status *st)
{
	char buf[16384];

	if (ddp_proc_read(pid, "status", buf, sizeof(buf)))
		return -1;
	return ddp_proc_parse_status(buf, st);
}

/* "io" is there for zombies too, and asks for the same right as the hidden
 * fields of "stat". */
bool ddp_proc_open_to_us(pid_t pid)
{
	char buf[64];

	return !ddp_proc_read(pid, "io", buf, sizeof(buf));
}

/* The first version of struct pidfd_info, which older headers lack. */
struct info {
	uint64_t mask, cgroup;
	uint32_t ids[11];
	int32_t exit_code;
};

#define INFO_EXIT 8U

_Static_assert(sizeof(struct info) == 64, "PIDFD_INFO_SIZE_VER0");

int ddp_proc_reaped(int pidfd, uint32_t *status)
{
	struct info info = { .mask = INFO_EXIT };

	if (pidfd < 0 || ioctl(pidfd, _IOWR(0xff, 11, struct info), &info) ||
	    !(info.mask & INFO_EXIT))
		return -1;
	*status = (uint32_t)info.exit_code;
	return 0;
}

const char *ddp_proc_comm(pid_t pid, char *buf, size_t size)
{
	char raw[DDP_PROC_COMM];

	if (ddp_proc_read(pid, "comm", raw, sizeof(raw)))
		return strcpy(buf, "?");
	raw[strcspn(raw, "\n")] = '\0';
	return ddp_text_safe(raw, buf, size);
}

/* The variables looked for, and which of them a reader has seen. */
struct wanted {
	char text[3][sizeof("SLURMD_NODENAME=") + DDP_ADDR_MAX];
	size_t len[3];
	bool seen[3];
};

static int want(struct wanted *w, const struct ddp_proc_step *step)
{
	int n[3];

	memset(w, 0, sizeof(*w));
	n[0] = snprintf(w->text[0], sizeof(w->text[0]), "SLURM_JOB_ID=%"
			PRIu32, step->job);
	n[1] = snprintf(w->text[1], sizeof(w->text[1]), "SLURM_STEP_ID=%"
			PRIu32, step->step);
	n[2] = snprintf(w->text[2], sizeof(w->text[2]), "SLURMD_NODENAME=%s",
			step->node ? step->node : "");
	w->seen[2] = !step->node;
	for (unsigned i = 0; i < 3; i++) {
		if (n[i] < 0 || n[i] >= (int)sizeof(w->text[i]))
			return -1;
		w->len[i] = (size_t)n[i];
	}
	return 0;
}

/* One whole entry of the environment. */
static bool take_entry(struct wanted *w, const char *entry, size_t len)
{
	for (unsigned i = 0; i < 3; i++)
		if (len == w->len[i] && !memcmp(entry, w->text[i], len))
			w->seen[i] = true;
	return w->seen[0] && w->seen[1] && w->seen[2];
}

bool ddp_proc_environ(int fd, const struct ddp_proc_step *step)
{
	char buf[8192];
	size_t used = 0, total = 0;
	bool skip = false;	/* inside an entry that is too long */
	struct wanted w;

	if (want(&w, step))
		return false;
	while (total < ENVIRON_MAX) {
		ssize_t n = read(fd, buf + used, sizeof(buf) - used);
		char *p = buf, *end;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
		total += (size_t)n;
		while ((end = memchr(p, '\0', used - (size_t)(p - buf)))) {
			if (!skip && take_entry(&w, p, (size_t)(end - p)))
				return true;
			skip = false;
			p = end + 1;
		}
		used -= (size_t)(p - buf);
		memmove(buf, p, used);
		if (used == sizeof(buf)) {
			skip = true;
			used = 0;
		}
	}
	return false;
}

static bool file_in_step(pid_t pid, const char *name,
			 const struct ddp_proc_step *step)
{
	int fd = open_file(pid, name, 0);
	bool yes;

	if (fd < 0)
		return false;
	yes = ddp_proc_environ(fd, step);
	close(fd);
	return yes;
}

bool ddp_proc_in_step(pid_t pid, const struct ddp_proc_step *step)
{
	return file_in_step(pid, "environ", step);
}

bool ddp_proc_thread_in_step(pid_t pid, const struct ddp_proc_step *step)
{
	DIR *dir = open_dir(pid, "task");
	char name[48];
	struct dirent *e;
	uint32_t tid;
	bool yes = false;

	if (!dir)
		return false;
	for (int i = 0; i < THREADS_MAX && !yes && (e = readdir(dir)); i++) {
		if (ddp_text_u32(e->d_name, 1, INT32_MAX, &tid) ||
		    tid == (uint32_t)pid)
			continue;
		(void)snprintf(name, sizeof(name), "task/%" PRIu32 "/environ",
			       tid);
		yes = file_in_step(pid, name, step);
	}
	closedir(dir);
	return yes;
}

bool ddp_proc_has_socket(pid_t pid, uint64_t inode)
{
	DIR *dir = open_dir(pid, "fd");
	char name[48], link[48];
	struct dirent *e;
	bool found = false;

	if (!dir)
		return false;
	(void)snprintf(name, sizeof(name), "socket:[%" PRIu64 "]", inode);
	for (int i = 0; i < FILES_MAX && !found && (e = readdir(dir)); i++) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		link[n > 0 ? n : 0] = '\0';
		found = !strcmp(link, name);
	}
	closedir(dir);
	return found;
}

int ddp_proc_walk(uid_t uid, int (*visit)(pid_t pid, void *arg), void *arg)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	uint32_t pid;
	int rc = 0;

	if (!dir)
		return -1;
	while (!rc && (e = readdir(dir))) {
		struct stat st;

		if (ddp_text_u32(e->d_name, 1, INT32_MAX, &pid) ||
		    fstatat(dirfd(dir), e->d_name, &st, 0) ||
		    (st.st_uid != uid && st.st_uid))
			continue;
		rc = visit((pid_t)pid, arg);
	}
	closedir(dir);
	return rc;
}
