/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun's end of the channel to its controller. One thread prints what the
 * controller has to say. When srun ends, its exit code becomes that of the
 * first cause, if the controller names one: an on_exit() handler, registered
 * before anything of Slurm's runs, is the last to run.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_ctlconf.h"
#include "core/ddp_io.h"
#include "spank/spank_ddp.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The controller's own limits at the end of a step, and some more. */
#define ANSWER_MS 10000
/* srun's own handlers, when it is told to end: then it ends without them. */
#define QUIT_SECONDS 3

static struct {
	int fd;
	pid_t srun;
	uint32_t grace_ms;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool over;		/* no more will be said */
	bool heard;		/* it has heard of srun's end */
	bool ended;		/* "end" was */
	int code;		/* its value */
	bool quitting;
} ch = { .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER,
	 .changed = PTHREAD_COND_INITIALIZER };

/* What setlocale(3) would look at, without its files and locks. */
static bool is_utf8(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

	for (unsigned i = 0; i < 3; i++) {
		const char *value = getenv(names[i]);

		if (value && value[0])
			return strcasestr(value, "UTF-8") ||
				strcasestr(value, "utf8");
	}
	return false;
}

/* A program's message may hold any character; a terminal that knows bytes
 * only would take some of theirs for commands. */
static void say(const char *text)
{
	char line[DDP_CTL_LINE + 16];
	int n = snprintf(line, sizeof(line), DDP_MSG "%s\n", text);

	if (n > 0 && !is_utf8())
		for (char *p = line; *p; p++)
			if ((unsigned char)*p > 126)
				*p = '?';
	if (n > 0)	/* at once, or lines of others come between */
		(void)!write(STDERR_FILENO, line, (size_t)n);
}

static void set_end(int code)
{
	pthread_mutex_lock(&ch.lock);
	ch.ended = true;
	ch.code = code;
	pthread_cond_broadcast(&ch.changed);
	pthread_mutex_unlock(&ch.lock);
}

static void set_heard(void)
{
	pthread_mutex_lock(&ch.lock);
	ch.heard = true;
	pthread_cond_broadcast(&ch.changed);
	pthread_mutex_unlock(&ch.lock);
}

/* Should srun's handlers not come to an end, nothing waits for them. */
static void *end_hard(void *arg)
{
	sleep(QUIT_SECONDS);
	_exit((int)(intptr_t)arg);
}

static void quit(int code)
{
	pthread_t t;

	ch.quitting = true;
	if (pthread_create(&t, NULL, end_hard, (void *)(intptr_t)code))
		_exit(code);
	exit(code);
}

static void take_line(const char *line)
{
	uint32_t code;

	if (!strncmp(line, "say ", 4))
		say(line + 4);
	else if (!strcmp(line, "wait 0"))
		set_heard();
	else if (!strcmp(line, "end -1"))
		set_end(-1);
	else if (!strncmp(line, "end ", 4) &&
		 !ddp_text_u32(line + 4, 0, 255, &code))
		set_end((int)code);
	else if (!strncmp(line, "quit ", 5) &&
		 !ddp_text_u32(line + 5, 0, 255, &code))
		quit((int)code);
}

static void *listen_to_controller(void *arg)
{
	char buf[DDP_CTL_LINE];
	size_t used = 0;
	ssize_t n;

	(void)arg;
	for (;;) {
		char *nl;

		n = read(ch.fd, buf + used, sizeof(buf) - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
		buf[used] = '\0';
		while ((nl = memchr(buf, '\n', used))) {
			*nl = '\0';
			take_line(buf);
			used -= (size_t)(nl + 1 - buf);
			memmove(buf, nl + 1, used + 1);
		}
		if (used == sizeof(buf) - 1)	/* no line is so long */
			used = 0;
	}
	pthread_mutex_lock(&ch.lock);
	if (!ch.ended)
		say("error: ddp-controller has died; its agents end the step");
	ch.over = true;
	pthread_cond_broadcast(&ch.changed);
	pthread_mutex_unlock(&ch.lock);
	return NULL;
}

int ddp_channel_start(int fd, uint32_t grace_ms, struct ddp_err *err)
{
	sigset_t all, old;
	pthread_t thread;
	int rc;

	ch.fd = fd;
	ch.srun = getpid();
	ch.grace_ms = grace_ms;
	ch.over = ch.ended = ch.heard = false;
	sigfillset(&all);	/* srun's signals are srun's */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, NULL, listen_to_controller, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		ch.fd = -1;
		return ddp_err_set(err, DDP_ESYS, "pthread_create: %s",
				   strerror(rc));
	}
	pthread_detach(thread);
	return 0;
}

/* Until this is so, or all is said, or the time is over. */
static void wait_for(const bool *what, int64_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000 + 1;
	while (!*what && !ch.ended && !ch.over &&
	       !pthread_cond_clockwait(&ch.changed, &ch.lock,
				       CLOCK_MONOTONIC, &until))
		;
}

/* Until the controller has answered, or is gone; bounded. Returns the code,
 * or -1 for srun's own. */
static int wait_for_end(int status)
{
	int code = -1;

	pthread_mutex_lock(&ch.lock);
	/* Ranks that are being ended have their grace; one that does not even
	 * hear is not waited for so long. */
	wait_for(&ch.heard, ANSWER_MS);
	if (ch.heard)
		wait_for(&ch.ended, ANSWER_MS + (int64_t)ch.grace_ms);
	if (!ch.ended && !ch.over)
		say("error: ddp-controller does not answer (stopped, or its "
		    "host is too busy); its agents end the step");
	if (ch.ended)
		code = ch.code;
	else if (status)	/* dead or deaf: it was not the program */
		code = DDP_EXIT_MACHINE;
	pthread_mutex_unlock(&ch.lock);
	return code;
}

static void at_exit(int status, void *arg)
{
	char line[32];
	int code;

	(void)arg;
	if (ch.fd < 0 || getpid() != ch.srun || ch.quitting)
		return;
	snprintf(line, sizeof(line), "exit %d\n", status & 0xff);
	(void)ddp_io_write_all(ch.fd, line);
	code = wait_for_end(status & 0xff);
	if (code < 0)
		return;
	fflush(NULL);
	_exit(code);
}

void ddp_channel_init(void)
{
	(void)on_exit(at_exit, NULL);
}
