/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private directory for the error files of this node's ranks. It is locked
 * while its agent lives: one that was killed leaves it to the next agent of
 * the user on this node.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"

#include "core/ddp_errfile.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* More files than this are somebody's own, and stay with the directory. */
#define FILES_MAX (DDP_WIRE_TASKS + 4096U)

#define PREFIX "ddp-agent-"

/* A directory so old and not locked has no agent; entries looked at. */
#define STALE_S 60
#define LOOK_MAX 4096

static const char *const where[] = { "/dev/shm", "/tmp" };

void agent_dir_make(struct agent *a)
{
	for (unsigned i = 0; i < 2 && a->dir < 0; i++) {
		(void)snprintf(a->dir_name, sizeof(a->dir_name),
			       "%s/" PREFIX "XXXXXX", where[i]);
		if (!mkdtemp(a->dir_name))
			continue;
		a->dir = open(a->dir_name, O_RDONLY | O_DIRECTORY |
			      O_NOFOLLOW | O_CLOEXEC);
		if (a->dir < 0)
			(void)rmdir(a->dir_name);
		else
			(void)flock(a->dir, LOCK_EX | LOCK_NB);
	}
	ddp_gate_dir(&a->gate, a->dir < 0 ? "" : a->dir_name);
}

void agent_dir_message(struct agent *a, uint32_t rank, char *buf, size_t size)
{
	char name[32];

	buf[0] = '\0';
	if (a->dir < 0)
		return;
	(void)snprintf(name, sizeof(name), "%u.json", (unsigned)rank);
	(void)ddp_errfile_read(a->dir, name, getuid(), buf, size);
}

static bool is_error_file(const char *name)
{
	size_t n = strspn(name, "0123456789");

	return n && !strcmp(name + n, ".json");
}

/* Takes fd. The directory itself goes if nothing of others is in it. */
static void empty(int fd, int parent, const char *name)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		close(fd);
		return;
	}
	for (unsigned i = 0; i < FILES_MAX && (e = readdir(dir)); i++)
		if (is_error_file(e->d_name))
			(void)unlinkat(fd, e->d_name, 0);
	(void)unlinkat(parent, name, AT_REMOVEDIR);
	closedir(dir);
}

/* What an agent that was killed has left. */
static void remove_stale(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
			O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) || st.st_uid != getuid() ||
	    (st.st_mode & 07777) != 0700 ||
	    st.st_ctime > time(NULL) - STALE_S || flock(fd, LOCK_EX | LOCK_NB))
		close(fd);
	else
		empty(fd, parent, name);
}

static void clean(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	for (int i = 0; dir && i < LOOK_MAX && (e = readdir(dir)); i++)
		if (!strncmp(e->d_name, PREFIX, sizeof(PREFIX) - 1))
			remove_stale(dirfd(dir), e->d_name);
	if (dir)
		closedir(dir);
}

void agent_dir_remove(struct agent *a)
{
	if (a->dir < 0)
		return;
	empty(a->dir, AT_FDCWD, a->dir_name);
	a->dir = -1;
	ddp_gate_dir(&a->gate, "");	/* slurmstepd need not look */
	for (unsigned i = 0; i < 2; i++)
		if (!strncmp(a->dir_name, where[i], strlen(where[i])))
			clean(where[i]);
}
