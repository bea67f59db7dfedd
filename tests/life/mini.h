/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two libraries of the life-cycle tests share: a log of their calls
 * in the file MINI_LOG, and behaviour named in the environment. They are as
 * small as can be; a NCCL that moves data is tests/fakes/fake_nccl.c.
 */
#ifndef MINI_H
#define MINI_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MINI_API __attribute__((visibility("default")))

__attribute__((format(printf, 1, 2))) static void mini_log(const char *fmt,
							   ...)
{
	const char *path = getenv("MINI_LOG");
	char line[256];
	va_list ap;
	int fd, n;

	if (!path)
		return;
	n = snprintf(line, sizeof(line), "%d ", (int)getpid());
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	line[n++] = '\n';
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (write(fd, line, (size_t)n) < 0)
		perror("MINI_LOG");
	(void)close(fd);
}

static inline void mini_sleep(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000,
			      .tv_nsec = ms % 1000 * 1000000 };

	(void)nanosleep(&t, NULL);
}

/* Whether the variable has this value. */
static inline int mini_is(const char *name, const char *value)
{
	const char *text = getenv(name);

	return text && !strcmp(text, value);
}

/* The variable's number, or -1. */
static inline long mini_number(const char *name)
{
	const char *text = getenv(name);

	return text ? atol(text) : -1;
}

#endif
