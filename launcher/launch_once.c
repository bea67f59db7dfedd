/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One look-up a node: the first task to bind an abstract socket named after
 * user, step and node makes the answer and leaves a child that hands it to
 * the others. Nothing in the file system; a stranger's listener is told by
 * its uid and left alone, and then every task asks for itself.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/launch.h"

#include "core/ddp_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* Longest wait for slurm.conf and slurmctld, and for the slowest sibling. */
#define ANSWER_MS 40000
#define SERVE_MS 60000
#define ERROR_MS 2000

/* More descriptors than this are not looked for. */
#define FDS_MAX 65536

/* The first byte of an answer. */
#define ANSWER_PLAN 'P'
#define ANSWER_ERROR 'E'

/* FNV-1a, 64 bits: tells questions apart, it protects nothing. */
static uint64_t hash(const char *text)
{
	uint64_t h = 14695981039346656037ULL;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 1099511628211ULL;
	return h;
}

static socklen_t address(const struct launch_step *s, const char *question,
			 struct sockaddr_un *a)
{
	int n;

	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1,
		     "slurm-ddp/%u/%u.%u.%u.%d/%.48s/%" PRIx64,
		     (unsigned)getuid(), s->job, s->step, s->nodeid,
		     (int)s->stepd, s->nodename, hash(question));
	if (n < 0 || (size_t)n >= sizeof(a->sun_path) - 1)
		return 0;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)n);
}

/* "P" and the plan, or "E" and why there is none; why_not if neither. */
static char *take_answer(char *text, const char *why_not, struct ddp_err *err)
{
	if (text && text[0] == ANSWER_PLAN) {
		memmove(text, text + 1, strlen(text));
		return text;
	}
	ddp_err_set(err, DDP_ESYS, "%s",
		    text && text[0] == ANSWER_ERROR ? text + 1 : why_not);
	free(text);
	return NULL;
}

/*
 * make() in a child: Slurm's library may end the process, start threads, or
 * take long; none of it reaches the program.
 */
static char *ask_child(char *(*make)(void *, struct ddp_err *), void *arg,
		       struct ddp_err *err)
{
	/* Slurm's library ends the process where it finds no slurm.conf. */
	const char *why_not = "Slurm's library could not read the "
		"configuration of this node (see its message above); use "
		"--master-addr=ADDR";
	int fds[2];
	pid_t pid;
	char *text;

	if (pipe2(fds, O_CLOEXEC)) {
		ddp_err_set(err, DDP_ESYS, "pipe: %s", strerror(errno));
		return NULL;
	}
	pid = fork();
	if (!pid) {
		char *plan;

		/* Whoever ends the waiting ends the asking. */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		plan = make(arg, err);
		_exit(ddp_io_write_all(fds[1], plan ? "P" : "E") ||
		      ddp_io_write_all(fds[1], plan ? plan : err->text));
	}
	close(fds[1]);
	text = pid > 0 ? ddp_io_read_all(fds[0], DDP_PLAN_MAX, ANSWER_MS) :
		NULL;
	close(fds[0]);
	if (pid < 0) {
		ddp_err_set(err, DDP_ESYS, "fork: %s", strerror(errno));
		return NULL;
	}
	if (!text) {	/* not even the end of the stream */
		why_not = "slurmctld did not answer in time; is it running? "
			"(scontrol ping)";
		kill(pid, SIGKILL);
	}
	(void)ddp_io_wait(pid, NULL);
	return take_answer(text, why_not, err);
}

static bool same_user(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) &&
		cred.uid == getuid();
}

/* What a server hands out, to how many, and whose end is its own. */
struct answer {
	uint32_t siblings;
	char kind;
	const char *text;
	pid_t owner;
};

/* Returns -1 if the listener itself is broken. */
static int serve_one(int fd, struct answer *a)
{
	const char kind[2] = { a->kind, '\0' };
	int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

	if (peer < 0)
		return errno == EINTR || errno == ECONNABORTED ? 0 : -1;
	if (same_user(peer)) {
		if (!ddp_io_write_all(peer, kind))
			(void)ddp_io_write_all(peer, a->text);
		a->siblings--;
	}
	close(peer);
	return 0;
}

/*
 * Until every sibling has its answer, the step is over, or the time is up; an
 * error is handed to those who ask at once only, and then tried again.
 */
static void __attribute__((noreturn)) serve(int fd, struct answer *a)
{
	int64_t deadline = ddp_io_now_ms() +
		(a->kind == ANSWER_PLAN ? SERVE_MS : ERROR_MS);
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN },
		{ .fd = (int)syscall(SYS_pidfd_open, a->owner, 0),
		  .events = POLLIN } };
	int null = open("/dev/null", O_RDWR);

	/* Whatever the program has open must be able to end without us. */
	for (int i = 0; null >= 0 && i < 3; i++)
		(void)dup2(null, i);
	for (long i = 3, end = sysconf(_SC_OPEN_MAX); i < end && i < FDS_MAX;
	     i++)
		if (i != fd && i != p[1].fd)
			close((int)i);
	if (p[1].fd < 0)	/* gone already, or a kernel before 5.3 */
		_exit(0);
	while (a->siblings) {
		int64_t left = deadline - ddp_io_now_ms();

		if (left <= 0 || poll(p, 2, (int)left) <= 0 || p[1].revents ||
		    serve_one(fd, a))
			break;
	}
	_exit(0);
}

/* A grandchild serves, so that the program gets no child it does not know. */
static void leave_server(int fd, struct answer *a)
{
	pid_t pid = fork();

	if (!pid) {
		if (fork())
			_exit(0);
		serve(fd, a);
	}
	if (pid > 0)
		(void)ddp_io_wait(pid, NULL);
}

/* From the sibling that is first; NULL if there is none of this user. */
static char *ask_sibling(const struct sockaddr_un *a, socklen_t len)
{
	/* A full queue is no reason to wait: it may be a stranger's. */
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char *text = NULL;

	if (fd < 0)
		return NULL;
	if (!connect(fd, (const struct sockaddr *)a, len) && same_user(fd))
		text = ddp_io_read_all(fd, DDP_PLAN_MAX, ANSWER_MS);
	close(fd);
	if (text && text[0] != ANSWER_PLAN && text[0] != ANSWER_ERROR) {
		free(text);
		text = NULL;
	}
	return text;
}

char *launch_once(const struct launch_step *s, const char *question,
		  uint32_t local_tasks,
		  char *(*make)(void *, struct ddp_err *), void *arg,
		  struct ddp_err *err)
{
	struct answer a = { .siblings = local_tasks - 1,
			    .owner = s->stepd ? s->stepd : getpid() };
	struct sockaddr_un un;
	socklen_t len = address(s, question, &un);
	int fd = -1;
	char *text;

	if (local_tasks > 1 && len)
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return ask_child(make, arg, err);
	if (bind(fd, (struct sockaddr *)&un, len) || listen(fd, 4096)) {
		close(fd);
		text = ask_sibling(&un, len);
		return text ? take_answer(text, "", err) :
			ask_child(make, arg, err);
	}
	text = ask_child(make, arg, err);
	a.kind = text ? ANSWER_PLAN : ANSWER_ERROR;
	a.text = text ? text : err->text;
	leave_server(fd, &a);
	close(fd);
	return text;
}
