/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cgmem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"

static int read_text(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n > 0 ? 0 : -1;
}

/* The name is one of the controllers of a line "4:cpu,memory:/path". */
static int has_name(char *list, const char *name)
{
	char *save = NULL;

	for (char *p = strtok_r(list, ",", &save); p;
	     p = strtok_r(NULL, ",", &save))
		if (!strcmp(p, name))
			return 1;
	return 0;
}

/* On hosts with both versions memory is counted where it is controlled. */
int ddp_cgmem_parse(char *text, char *path, size_t size)
{
	const char *v1 = NULL, *v2 = NULL;
	char *save = NULL;
	int n;

	for (char *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *list = strchr(line, ':');
		char *dir = list ? strchr(list + 1, ':') : NULL;

		if (!dir || dir[1] != '/' || strstr(dir, "/../"))
			continue;
		*dir++ = '\0';
		if (!list[1])
			v2 = dir;
		else if (has_name(list + 1, "memory"))
			v1 = dir;
	}
	if (v1)
		n = snprintf(path, size, ROOT "/memory%s/memory.oom_control",
			     v1);
	else
		n = snprintf(path, size, ROOT "%s/memory.events",
			     v2 ? v2 : "");
	return (v1 || v2) && n >= 0 && (size_t)n < size ? 0 : -1;
}

int ddp_cgmem_path(pid_t pid, char *path, size_t size)
{
	char name[32], text[4096];

	if (snprintf(name, sizeof(name), "/proc/%d/cgroup", (int)pid) >=
	    (int)sizeof(name) || read_text(name, text, sizeof(text)))
		return -1;
	return ddp_cgmem_parse(text, path, size);
}

uint64_t ddp_cgmem_kills(const char *path)
{
	char text[1024], *p = text;

	if (read_text(path, text, sizeof(text)))
		return 0;
	while (p && strncmp(p, "oom_kill ", 9)) {
		p = strchr(p, '\n');
		p = p ? p + 1 : NULL;
	}
	return p ? strtoull(p + 9, NULL, 10) : 0;
}

static bool file_says(const char *dir, const char *sub, const char *file,
		      const char *word)
{
	char path[DDP_CGMEM_PATH], text[256];
	int n = snprintf(path, sizeof(path), ROOT "%s%s/%s", sub, dir, file);

	return n > 0 && (size_t)n < sizeof(path) &&
		!read_text(path, text, sizeof(text)) && strstr(text, word);
}

bool ddp_cgmem_frozen(pid_t pid)
{
	char name[32], text[4096], *save = NULL;
	bool frozen = false;

	snprintf(name, sizeof(name), "/proc/%d/cgroup", (int)pid);
	if (read_text(name, text, sizeof(text)))
		return false;
	for (char *line = strtok_r(text, "\n", &save); line && !frozen;
	     line = strtok_r(NULL, "\n", &save)) {
		char *list = strchr(line, ':');
		char *dir = list ? strchr(list + 1, ':') : NULL;

		if (!dir || dir[1] != '/' || strstr(dir, "/../"))
			continue;
		*dir++ = '\0';
		if (!list[1])
			frozen = file_says(dir, "", "cgroup.events",
					   "frozen 1");
		else if (has_name(list + 1, "freezer"))
			frozen = file_says(dir, "/freezer", "freezer.state",
					   "FROZEN");
	}
	return frozen;
}
