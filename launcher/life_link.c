/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket to the agent of the node; the lines are core/ddp_life.h's. All
 * of it works as well without: what cannot be sent at once is not sent, and an
 * agent that has gone is no reason to end.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/life.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Seconds to wait until the agent has room for a connection; and how often
 * again after a signal. */
#define DIAL_S 2
#define DIAL_TRIES 8

static struct {
	int fd;
	dev_t dev;
	ino_t ino;
} peer = { .fd = -1 };

/* Nothing that blocks is done with it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* A value has come, or none will come. */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct ddp_life_msg value;

/* The descriptor, unless the program has closed it under us. */
static int our_fd(void)
{
	struct stat st;

	if (peer.fd >= 0 && (fstat(peer.fd, &st) || st.st_dev != peer.dev ||
			     st.st_ino != peer.ino))
		peer.fd = -1;
	return peer.fd;
}

static void drop(void)
{
	int fd = our_fd();

	peer.fd = -1;
	if (fd >= 0)
		(void)close(fd);
	(void)pthread_cond_broadcast(&changed);
}

/* With the lock held. 0, or -1: nobody has got it. */
static int send_locked(const struct ddp_life_msg *m)
{
	char line[DDP_LIFE_LINE];
	int n = ddp_life_format(m, line, sizeof(line), NULL);

	return n > 0 && our_fd() >= 0 &&
	       send(peer.fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) ==
	       n ? 0 : -1;
}

static void send_line(const struct ddp_life_msg *m)
{
	(void)pthread_mutex_lock(&lock);
	(void)send_locked(m);
	(void)pthread_mutex_unlock(&lock);
}

/* The agent runs as the user; root's may look at all. */
static bool peer_is_ours(int fd)
{
	struct ucred who;
	socklen_t size = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) &&
	       (who.uid == geteuid() || who.uid == 0);
}

static int dial(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const struct timeval wait = { .tv_sec = DIAL_S };
	size_t n = strlen(name);
	int fd, rc, tries = 0;

	if (n >= sizeof(a.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(a.sun_path, name, n);
	if (a.sun_path[0] == '@')
		a.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	/* Where many connect at once it waits for its turn, so long. Nothing
	 * else that is done with it blocks. */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	do
		rc = connect(fd, (const struct sockaddr *)&a,
			     (socklen_t)(offsetof(struct sockaddr_un,
						  sun_path) + n +
					 (name[0] != '@')));
	while (rc && errno == EINTR && tries++ < DIAL_TRIES);
	if (!rc) {
		if (peer_is_ours(fd))
			return fd;
		errno = EPERM;
	}
	(void)close(fd);
	return -1;
}

void ddp_life_link_open(void)
{
	const char *name = getenv(DDP_LIFE_SOCKET);
	struct ddp_life_msg m = { .kind = DDP_LIFE_MSG_LIFE,
				  .version = DDP_LIFE_VERSION,
				  .pid = (uint32_t)getpid(),
				  .limit_ms = ddp_life.limit_ms };
	struct stat st;
	int fd;

	if (!name || !*name)
		return;
	fd = dial(name);
	if (fd < 0 || fstat(fd, &st)) {
		ddp_life_say("%s=%.100s: %s: going on alone (in a container, the socket must be there too)",
			     DDP_LIFE_SOCKET, name, strerror(errno));
		return;
	}
	(void)pthread_mutex_lock(&lock);
	peer.fd = fd;
	peer.dev = st.st_dev;
	peer.ino = st.st_ino;
	(void)pthread_mutex_unlock(&lock);
	send_line(&m);
}

int ddp_life_link_fd(void)
{
	int fd;

	(void)pthread_mutex_lock(&lock);
	fd = our_fd();
	(void)pthread_mutex_unlock(&lock);
	return fd;
}

void ddp_life_link_state(enum ddp_life_state state)
{
	struct ddp_life_msg m = { .kind = DDP_LIFE_MSG_STATE, .state = state };

	send_line(&m);
}

void ddp_life_link_cause(const struct ddp_life_cause *cause)
{
	struct ddp_life_msg m = { .kind = DDP_LIFE_MSG_CAUSE };

	m.code = cause->source == DDP_LIFE_BY_SIGNAL ? 128 + cause->code
						     : cause->code & 255;
	memcpy(m.text, cause->text, sizeof(m.text));
	send_line(&m);
}

void ddp_life_link_left(uint64_t count, bool mpi)
{
	struct ddp_life_msg m = { .kind = DDP_LIFE_MSG_LEFT, .count = count,
				  .mpi = mpi };

	send_line(&m);
}

void ddp_life_link_waits(uint64_t count)
{
	struct ddp_life_msg m = { .kind = DDP_LIFE_MSG_WAITS, .count = count };

	send_line(&m);
}

static int fill(struct ddp_life_msg *m, const char *name, size_t size)
{
	size_t n = strlen(name);

	if (n >= sizeof(m->name) || size > sizeof(m->value))
		return -1;
	memcpy(m->name, name, n + 1);
	m->size = (uint32_t)size;
	return 0;
}

int ddp_life_link_put(const char *name, const void *data, size_t size)
{
	struct ddp_life_msg m = { .kind = DDP_LIFE_MSG_PUT };
	int rc;

	if (fill(&m, name, size))
		return -1;
	memcpy(m.value, data, size);
	(void)pthread_mutex_lock(&lock);
	rc = send_locked(&m);
	(void)pthread_mutex_unlock(&lock);
	return rc;
}

int ddp_life_link_get(const char *name, void *data, size_t size)
{
	struct ddp_life_msg m = { .kind = DDP_LIFE_MSG_GET };
	int rc = -1;

	if (fill(&m, name, size))
		return -1;
	(void)pthread_mutex_lock(&lock);
	memset(&value, 0, sizeof(value));
	if (!send_locked(&m)) {
		while (our_fd() >= 0 && strcmp(value.name, name))
			(void)pthread_cond_wait(&changed, &lock);
		if (!strcmp(value.name, name) && value.size == size) {
			memcpy(data, value.value, size);
			rc = 0;
		}
	}
	(void)pthread_mutex_unlock(&lock);
	return rc;
}

/* What is not an abort. With the lock held. */
static void take(const struct ddp_life_msg *m, uint64_t *left)
{
	if (m->kind == DDP_LIFE_MSG_LEFT && m->count < *left)
		*left = m->count;
	if (m->kind != DDP_LIFE_MSG_VALUE)
		return;
	value = *m;
	(void)pthread_cond_broadcast(&changed);
}

/* With the lock held. */
static bool read_abort(struct ddp_life_msg *m, uint64_t *left)
{
	char line[DDP_LIFE_LINE];
	ssize_t n;

	while (our_fd() >= 0) {
		n = recv(peer.fd, line, sizeof(line), MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return false;
		if (n <= 0)
			break;
		if (ddp_life_parse(line, (size_t)n, m, NULL))
			continue;
		if (m->kind == DDP_LIFE_MSG_ABORT)
			return true;
		take(m, left);
	}
	drop();
	return false;
}

bool ddp_life_link_read(struct ddp_life_cause *cause)
{
	uint64_t left = UINT64_MAX;
	struct ddp_life_msg m;
	bool aborts;

	(void)pthread_mutex_lock(&lock);
	aborts = read_abort(&m, &left);
	(void)pthread_mutex_unlock(&lock);
	if (left != UINT64_MAX)
		ddp_life_left(left);
	if (!aborts)
		return false;
	memset(cause, 0, sizeof(*cause));
	cause->source = DDP_LIFE_BY_AGENT;
	cause->code = m.code;
	memcpy(cause->text, m.text, sizeof(cause->text));
	return true;
}

void ddp_life_link_forget(void)
{
	(void)pthread_mutex_init(&lock, NULL);
	(void)pthread_cond_init(&changed, NULL);
	drop();
}
