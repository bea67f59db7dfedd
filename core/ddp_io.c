/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int64_t ddp_io_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t ddp_io_now_ms(void)
{
	return ddp_io_now_us() / 1000;
}

/* 1: readable, 0: the deadline has passed, -1: error. */
static int wait_readable(int fd, int64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left;
	int rc;

	do {
		left = deadline - ddp_io_now_ms();
		if (left <= 0)
			return 0;
		rc = poll(&p, 1, (int)left);
	} while (rc < 0 && errno == EINTR);
	return rc;
}

char *ddp_io_read_all(int fd, size_t max, int timeout_ms)
{
	int64_t deadline = ddp_io_now_ms() + timeout_ms;
	char *text = calloc(1, max + 1);
	size_t used = 0;

	while (text && used < max && wait_readable(fd, deadline) > 0) {
		ssize_t n = read(fd, text + used, max - used);

		if (n == 0)
			return text;
		if (n > 0)
			used += (size_t)n;
		else if (errno != EINTR && errno != EAGAIN)
			break;
	}
	free(text);
	return NULL;
}

ssize_t ddp_io_read_file(const char *path, char *buf, size_t size)
{
	return ddp_io_read_at(AT_FDCWD, path, buf, size);
}

ssize_t ddp_io_read_at(int dir, const char *path, char *buf, size_t size)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t used = 0;
	ssize_t n = -1;

	buf[0] = '\0';
	if (fd < 0)
		return -1;
	while (used < size - 1) {
		n = read(fd, buf + used, size - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	close(fd);
	buf[used] = '\0';
	return n < 0 ? -1 : (ssize_t)used;
}

int ddp_io_write_all(int fd, const char *text)
{
	size_t len = strlen(text), done = 0;

	while (done < len) {
		ssize_t n = send(fd, text + done, len - done, MSG_NOSIGNAL);

		if (n < 0 && errno == ENOTSOCK)
			n = write(fd, text + done, len - done);
		if (n > 0)
			done += (size_t)n;
		else if (n == 0 || errno != EINTR)
			return -1;
	}
	return 0;
}

int ddp_io_wait(pid_t pid, int *status)
{
	int rc;

	do {
		rc = waitpid(pid, status, 0);
	} while (rc < 0 && errno == EINTR);
	return rc < 0 ? -1 : 0;
}
