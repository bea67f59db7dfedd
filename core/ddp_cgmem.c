/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cgmem.h"
#include "core/ddp_io.h"
#include "core/ddp_proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOT "/sys/fs/cgroup"

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

/*
 * The next line "4:cpu,memory:/path" of a /proc/PID/cgroup: its list of
 * controllers, "" for version 2, and its folder. False behind the last.
 */
static bool next_group(char **text, char **save, char **list, char **dir)
{
	char *line;

	while ((line = strtok_r(*text, "\n", save))) {
		*text = NULL;
		*list = strchr(line, ':');
		*dir = *list ? strchr(++*list, ':') : NULL;
		if (!*dir || (*dir)[1] != '/' || strstr(*dir, "/../"))
			continue;
		*(*dir)++ = '\0';
		return true;
	}
	return false;
}

/* On hosts with both versions memory is counted where it is controlled. */
int ddp_cgmem_parse(char *text, char *path, size_t size)
{
	const char *v1 = NULL, *v2 = NULL;
	char *save = NULL, *list, *dir;
	int n;

	while (next_group(&text, &save, &list, &dir))
		if (!*list)
			v2 = dir;
		else if (has_name(list, "memory"))
			v1 = dir;
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
	char text[4096];

	return ddp_proc_read(pid, "cgroup", text, sizeof(text)) ? -1 :
		ddp_cgmem_parse(text, path, size);
}

uint64_t ddp_cgmem_kills(const char *path)
{
	char text[1024], *p = text;

	if (ddp_io_read_file(path, text, sizeof(text)) <= 0)
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
		ddp_io_read_file(path, text, sizeof(text)) > 0 &&
		strstr(text, word);
}

bool ddp_cgmem_frozen(pid_t pid)
{
	char buf[4096], *text = buf, *save = NULL, *list, *dir;
	bool frozen = false;

	if (ddp_proc_read(pid, "cgroup", buf, sizeof(buf)))
		return false;
	while (!frozen && next_group(&text, &save, &list, &dir))
		if (!*list)
			frozen = file_says(dir, "", "cgroup.events",
					   "frozen 1");
		else if (has_name(list, "freezer"))
			frozen = file_says(dir, "/freezer", "freezer.state",
					   "FROZEN");
	return frozen;
}
