/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TaskProlog runs after every SPANK callback, and the variables that it
 * exports win over ours. Only the environment of the program itself shows
 * the outcome, so a small process waits for the exec: it holds the read end
 * of a pipe whose only other end is close-on-exec in the task. No polling,
 * no privilege, and nothing at all on hosts without a TaskProlog.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_child.h"
#include "core/ddp_io.h"
#include "core/ddp_seat.h"
#include "spank/spank_ddp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ENVIRON_MAX (4U << 20)

struct watch {
	const struct ddp_plan *plan;
	const struct ddp_rank *r;
	const char *prog;	/* what Slurm will exec: its last component */
	pid_t pid;
	int proc;	/* /proc/PID of the task: cannot become another's */
	char *env;
	size_t len;
	unsigned wrong;
	bool check_env, check_place;
};

static const char *env_find(const struct watch *w, const char *name)
{
	size_t n = strlen(name);

	for (size_t p = 0; p < w->len; p += strlen(w->env + p) + 1)
		if (!strncmp(w->env + p, name, n) && w->env[p + n] == '=')
			return w->env + p + n + 1;
	return NULL;
}

static int compare(void *arg, const struct ddp_var *v)
{
	struct watch *w = arg;
	const char *has;
	char shown[64];

	if (v->flags & DDP_VAR_DEFAULT)
		return 0;
	has = env_find(w, v->name);
	if (has && !strcmp(has, v->value))
		return 0;
	if (!w->wrong++)
		kill(w->pid, SIGSTOP);
	dprintf(STDERR_FILENO, DDP_MSG "error: node %s, rank %" PRIu32 ": "
		"%s is %s in the program's environment, the launch set %s; "
		"a TaskProlog changes it: take it out there, or use "
		"--ddp-launch=off\n", w->r->nodename, w->r->rank, v->name,
		has ? ddp_text_safe(has, shown, sizeof(shown)) : "missing",
		v->value);
	return 0;
}

/* A program that moves itself at once may be seen there already. */
static void compare_place(struct watch *w)
{
	struct ddp_err err;
	int rc = ddp_seat_verify(w->proc, w->r->placed, &err);

	if (!rc)
		return;
	if (rc < 0 && !w->wrong++)
		kill(w->pid, SIGSTOP);
	dprintf(STDERR_FILENO, DDP_MSG "%s: node %s, rank %" PRIu32 ": %s\n",
		rc < 0 ? "error" : "warning", w->r->nodename, w->r->rank,
		err.text);
}

/*
 * Does the process still run what Slurm started? A script has its
 * interpreter, and an argument of that, before its own name. Programs such
 * as env exec others, whose environment is their affair.
 */
static bool is_first_program(const struct watch *w)
{
	char text[4096];
	ssize_t len = ddp_io_read_at(w->proc, "cmdline", text,
				      sizeof(text));
	ssize_t p = 0;

	for (unsigned i = 0; i < 3 && p < len; i++) {
		const char *base = strrchr(text + p, '/');

		if (!strcmp(base ? base + 1 : text + p, w->prog))
			return true;
		p += (ssize_t)strlen(text + p) + 1;
	}
	return false;
}

/* The environment of the first program; w->len 0 if that cannot be had. */
static int read_environ(struct watch *w)
{
	ssize_t len = ddp_io_read_at(w->proc, "environ", w->env,
				      ENVIRON_MAX + 1);

	w->len = len > 0 ? (size_t)len : 0;
	return len < 0 ? -1 : 0;
}

/* Blocks until the task's end of the pipe is gone: exec or death. */
static void wait_exec(int fd)
{
	char c;

	while (read(fd, &c, 1) < 0 && errno == EINTR)
		;
}

/*
 * srun drops output that is still on its way when a task dies by a signal:
 * hold the program until slurmstepd has taken the message, and a little
 * longer for the way to srun.
 */
static void end_task(const struct watch *w)
{
	const struct timespec tick = { .tv_nsec = 10 * 1000 * 1000 };
	const struct timespec grace = { .tv_nsec = 300 * 1000 * 1000 };
	int left = 0;

	for (int i = 0; i < 100; i++) {
		if (ioctl(STDERR_FILENO, FIONREAD, &left) || !left)
			break;
		nanosleep(&tick, NULL);
	}
	nanosleep(&grace, NULL);
	kill(w->pid, SIGKILL);
}

static void __attribute__((noreturn)) watch_run(struct watch *w, int fd)
{
	const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };

	w->env = malloc(ENVIRON_MAX + 1);
	if (!w->env)
		_exit(1);
	wait_exec(fd);
	for (int i = 0; i < 200; i++) {
		if (read_environ(w))
			_exit(0);	/* the task is gone, or setuid */
		if (w->len)
			break;
		nanosleep(&pause, NULL);
	}
	if (w->len && is_first_program(w)) {
		if (w->check_place)
			compare_place(w);
		if (w->check_env)
			(void)ddp_env_each(w->plan, w->r, compare, w);
	}
	if (w->wrong)
		end_task(w);
	_exit(0);
}

/* Keep stderr, the pipe and /proc/PID; drop what the task will need shut. */
static void close_others(int a, int b)
{
	int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = dir < 0 ? NULL : fdopendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] != '.' && fd != STDERR_FILENO && fd != a &&
		    fd != b && fd != dir)
			close(fd);
	}
	if (d)
		closedir(d);
}

static void __attribute__((noreturn)) watch_child(struct watch *w, int fd)
{
	if (fork())	/* the watcher must not be a child of the program */
		_exit(0);
	ddp_child_signals();
	close_others(fd, w->proc);
	watch_run(w, fd);
}

int ddp_verify_start(const struct ddp_plan *plan, const struct ddp_rank *r,
		     const char *command, bool env, bool place,
		     struct ddp_err *err)
{
	const char *base = strrchr(command, '/');
	struct watch w = { .plan = plan, .r = r,
			   .prog = base ? base + 1 : command,
			   .pid = getpid(), .proc = -1,
			   .check_env = env, .check_place = place };
	int fds[2] = { -1, -1 };
	pid_t child = -1;

	w.proc = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w.proc >= 0 && !pipe2(fds, O_CLOEXEC))
		child = fork();
	if (!child) {
		close(fds[1]);
		watch_child(&w, fds[0]);
	}
	if (w.proc >= 0)
		close(w.proc);
	if (fds[0] >= 0)
		close(fds[0]);
	if (child < 0) {
		if (fds[1] >= 0)
			close(fds[1]);
		return ddp_err_set(err, DDP_ESYS, "the program cannot be "
				   "watched: %s",
				   strerror(errno));
	}
	(void)ddp_io_wait(child, NULL);
	return 0;	/* fds[1] closes itself with the exec */
}
