/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_child.h"
#include "core/ddp_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Without close_range(), Linux before 5.9: so many tried one by one. */
#define TRIED 65536

void ddp_child_close_from(int first)
{
#ifdef SYS_close_range
	if (!syscall(SYS_close_range, first, ~0U, 0))
		return;
#endif
	for (int fd = first; fd < TRIED; fd++)
		(void)close(fd);
}

void ddp_child_signals(void)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		(void)sigaction(sig, &dfl, NULL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return;
	(void)!write(fd, text, strlen(text));
	close(fd);
}

void ddp_child_oom_normal(void)
{
	write_file("/proc/self/oom_score_adj", "0\n");
}

/* The kernel wrote the file: lines like "4:cpu,cpuacct:/slurm/uid_0". */
void ddp_child_leave_cgroups(void)
{
	char text[4096], path[512], *line, *save = NULL;

	(void)ddp_io_read_file("/proc/self/cgroup", text, sizeof(text));
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *name = strchr(line, ':'), *at;

		at = name ? strchr(++name, ':') : NULL;
		if (!at || at == name || !strstr(at, "/slurm"))
			continue;
		*at = '\0';
		if (!strncmp(name, "name=", 5))
			name += 5;
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/cgroup.procs",
			 name);
		write_file(path, "0\n");
	}
}

int ddp_child_detach(const int *fds, unsigned n)
{
	int high[8], null;

	(void)setsid();
	if (n > sizeof(high) / sizeof(high[0]))
		return EINVAL;
	null = open("/dev/null", O_RDWR);
	if (null < 0)
		return errno;
	/* Above their places, so that none is in the way of another; no higher:
	 * a user's limit may be low. */
	for (unsigned i = 0; i < n; i++)
		if ((high[i] = fcntl(fds[i], F_DUPFD, 3 + (int)n)) < 0)
			return errno;
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return errno;
	for (unsigned i = 0; i < n; i++)
		if (dup2(high[i], 3 + (int)i) < 0)
			return errno;
	ddp_child_close_from(3 + (int)n);
	ddp_child_signals();
	return 0;
}
