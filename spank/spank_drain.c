/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun stops listening to its tasks' output once the last of them is reported
 * and one died by SIGTERM or SIGKILL. When the others are ended within
 * milliseconds of a failure, that is before the failing rank's last words
 * have come through. slurmstepd reports a task after the plugin's task_exit:
 * so that waits here until the output has left this node, for a short time.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_io.h"
#include "spank/spank_ddp.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* In all, for the tasks of a node; a reader that stands still is no reason
 * to keep a step. */
#define BUDGET_MS 500
#define STEP_MS 2
/* slurmstepd's own buffers are not seen: empty so often in a row. */
#define QUIET 3

/* Bytes in a pipe of a task's, or not yet taken by the other end of a socket. */
static int waiting(int fd)
{
	struct stat st;
	int n = 0, domain = 0;
	socklen_t len = sizeof(domain);

	if (fstat(fd, &st))
		return 0;
	if (S_ISFIFO(st.st_mode))	/* not what is on its way to a task */
		return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY &&
			!ioctl(fd, FIONREAD, &n) && n > 0;
	if (!S_ISSOCK(st.st_mode) ||
	    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
	    (domain != AF_INET && domain != AF_INET6))
		return 0;
	return !ioctl(fd, SIOCOUTQ, &n) && n > 0;
}

static bool is_quiet(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	bool quiet = true;

	while (dir && quiet && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			quiet = !waiting(atoi(e->d_name));
	if (dir)
		closedir(dir);
	return quiet;
}

/* Milliseconds so far; of all tasks, also where Slurm calls task_exit in a
 * process of its own for each (contain_spank). */
static int64_t spent_here, *spent = &spent_here;

void ddp_drain_init(void)
{
	void *shared = mmap(NULL, sizeof(*spent), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared != MAP_FAILED)
		spent = shared;
}

void ddp_drain(void)
{
	int64_t start = ddp_io_now_ms();
	unsigned quiet = 0;

	while (quiet < QUIET &&
	       *spent + ddp_io_now_ms() - start < BUDGET_MS) {
		quiet = is_quiet() ? quiet + 1 : 0;
		if (quiet < QUIET)
			(void)poll(NULL, 0, STEP_MS);
	}
	*spent += ddp_io_now_ms() - start;
}
