/* SPDX-License-Identifier: Apache-2.0 */
/* What the broken sampler and the broken library do on the node of --label X@NODE
 * is the one line of DIR/mode.NODE. */
#ifndef ACCT_FAULT_MODE_H
#define ACCT_FAULT_MODE_H

#include <stdio.h>
#include <string.h>

/* 0, or -1 where the node has no such file. */
static int read_mode(char *mode, int size, char *node, size_t room)
{
	char args[8192], path[4096], *s, *at = NULL;
	size_t n = 0;
	FILE *f = fopen("/proc/self/cmdline", "r");

	if (f) {
		n = fread(args, 1, sizeof(args) - 1, f);
		fclose(f);
	}
	args[n] = '\0';
	for (s = args; s < args + n; s += strlen(s) + 1)
		if (!strcmp(s, "--label"))
			at = strchr(s + strlen(s) + 1, '@');
	snprintf(node, room, "%s", at ? at + 1 : "");
	snprintf(path, sizeof(path), DIR "/mode.%s", node);
	f = fopen(path, "r");
	if (!f)
		return -1;
	if (!fgets(mode, size, f))
		mode[0] = '\0';
	mode[strcspn(mode, "\n")] = '\0';
	fclose(f);
	return 0;
}

#endif
