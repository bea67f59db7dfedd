/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets of the loopback interface. Waits end when the communicator is
 * aborted or its reader is to stop; then errno is ECANCELED.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in loopback(uint16_t port)
{
	struct sockaddr_in addr;

	memset(&addr, 0, sizeof(addr));
	addr.sin_family = AF_INET;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	addr.sin_port = htons(port);
	return addr;
}

int fake_listen(uint16_t *port)
{
	struct sockaddr_in addr = loopback(0);
	socklen_t size = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&addr, size) < 0 ||
	    listen(fd, FAKE_MAX_RANKS) < 0 ||
	    getsockname(fd, (struct sockaddr *)&addr, &size) < 0) {
		close(fd);
		return -1;
	}
	*port = ntohs(addr.sin_port);
	return fd;
}

/* Until fd is ready, at most ms (-1: for ever). 1, 0 after ms, or -1. */
static int ready(struct ncclComm *comm, int fd, short events, int ms)
{
	struct pollfd fds[] = {
		{ .fd = comm ? comm->wake : -1, .events = POLLIN },
		{ .fd = fd, .events = events }
	};
	int rc;

	do
		rc = poll(fds, 2, ms);
	while (rc < 0 && errno == EINTR);
	if (rc > 0 && fds[0].revents) {
		errno = ECANCELED;
		return -1;
	}
	return rc;
}

int fake_idle(struct ncclComm *comm, int ms)
{
	return ready(comm, -1, 0, ms);
}

static int connect_once(struct ncclComm *comm, uint16_t port)
{
	struct sockaddr_in addr = loopback(port);
	int error = 0, on = 1;
	socklen_t size = sizeof(error);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		if (errno != EINPROGRESS || ready(comm, fd, POLLOUT, -1) < 0)
			goto fail;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
			goto fail;
		if (error) {
			errno = error;
			goto fail;
		}
	}
	return fd;
fail:
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Nobody listens: tried again for ever, or with FAKE_NCCL_DETECT not. */
int fake_connect(struct ncclComm *comm, uint16_t port)
{
	int fd;

	while ((fd = connect_once(comm, port)) < 0) {
		if (errno == ECANCELED || fake_detect())
			return -1;
		if (fake_idle(comm, 10) < 0)
			return -1;
	}
	return fd;
}

int fake_accept(struct ncclComm *comm, int fd)
{
	int got, on = 1;

	for (;;) {
		if (ready(comm, fd, POLLIN, -1) < 0)
			return -1;
		got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (got >= 0)
			break;
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			return -1;
	}
	setsockopt(got, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return got;
}

int fake_write(struct ncclComm *comm, int fd, const void *data, size_t size)
{
	const char *at = data;
	ssize_t put;

	while (size) {
		put = send(fd, at, size, MSG_NOSIGNAL);
		if (put >= 0) {
			at += put;
			size -= (size_t)put;
		} else if (errno == EAGAIN) {
			if (ready(comm, fd, POLLOUT, -1) < 0)
				return -1;
		} else if (errno != EINTR) {
			return -1;
		}
	}
	return 0;
}

int fake_read(struct ncclComm *comm, int fd, void *data, size_t size)
{
	char *at = data;
	ssize_t got;

	while (size) {
		got = recv(fd, at, size, 0);
		if (got > 0) {
			at += got;
			size -= (size_t)got;
		} else if (got == 0) {
			errno = ECONNRESET;
			return -1;
		} else if (errno == EAGAIN) {
			if (ready(comm, fd, POLLIN, -1) < 0)
				return -1;
		} else if (errno != EINTR) {
			return -1;
		}
	}
	return 0;
}
