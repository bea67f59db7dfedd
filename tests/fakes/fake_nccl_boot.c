/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a communicator find each other. The unique id names the
 * rendezvous, a thread of the process that made the id: each rank tells it
 * the port where it listens, and when all have, each is told all ports. Who
 * dies before is waited for by the others.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ID_MAGIC 0x464e4331	/* "1CNF" */

/* What the first bytes of an ncclUniqueId are. */
struct id {
	uint32_t magic;
	uint16_t port;
	uint16_t zero;
	uint64_t cookie;
};

/* A rank to the rendezvous, and to another rank (port 0). */
struct hello {
	uint32_t magic;
	uint16_t port;
	uint16_t zero;
	uint64_t cookie;
	int32_t rank, nranks;
};

struct meeting {
	struct id id;
	int listener, nranks, here;
	int fds[FAKE_MAX_RANKS];
	uint16_t ports[FAKE_MAX_RANKS];
};

/* One that says nothing is not waited for longer than 5 s. */
static int take_hello(struct meeting *m, int fd)
{
	struct timeval limit = { .tv_sec = 5 };
	struct hello hello;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit,
		       sizeof(limit)) < 0 ||
	    recv(fd, &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello) ||
	    hello.magic != ID_MAGIC || hello.cookie != m->id.cookie ||
	    hello.nranks < 1 || hello.nranks > FAKE_MAX_RANKS ||
	    hello.rank < 0 || hello.rank >= hello.nranks)
		return -1;
	if (m->nranks && hello.nranks != m->nranks) {
		fake_misuse("rendezvous", NULL, "ranks differ in nranks");
		return -1;
	}
	if (m->fds[hello.rank] >= 0) {
		fake_misuse("rendezvous", NULL, "a rank came twice");
		return -1;
	}
	m->nranks = hello.nranks;
	m->fds[hello.rank] = fd;
	m->ports[hello.rank] = hello.port;
	m->here++;
	return 0;
}

static void *meeting_main(void *data)
{
	struct meeting *m = data;
	size_t size;
	int i, fd;

	while (!m->nranks || m->here < m->nranks) {
		fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0 && take_hello(m, fd) < 0)
			close(fd);
	}
	close(m->listener);
	size = (size_t)m->nranks * sizeof(m->ports[0]);
	for (i = 0; i < m->nranks; i++) {
		if (send(m->fds[i], m->ports, size, MSG_NOSIGNAL) < 0)
			fake_log("rendezvous", NULL, -1, "a rank is gone");
		close(m->fds[i]);
	}
	free(m);
	return NULL;
}

static int meeting_open(struct meeting *m)
{
	int i;

	m->id.magic = ID_MAGIC;
	for (i = 0; i < FAKE_MAX_RANKS; i++)
		m->fds[i] = -1;
	if (getrandom(&m->id.cookie, sizeof(m->id.cookie), 0) !=
	    sizeof(m->id.cookie))
		return -1;
	m->listener = fake_listen(&m->id.port);
	/* The thread has nothing else to do than to wait. */
	return m->listener < 0 ? -1 : fcntl(m->listener, F_SETFL, 0);
}

ncclResult_t fake_id_make(ncclUniqueId *id)
{
	struct meeting *m = calloc(1, sizeof(*m));
	pthread_t thread;

	if (!m)
		return ncclSystemError;
	m->listener = -1;
	if (meeting_open(m) < 0)
		goto fail;
	/* From the start on the thread owns m. */
	memset(id, 0, sizeof(*id));
	memcpy(id, &m->id, sizeof(m->id));
	if (pthread_create(&thread, NULL, meeting_main, m) != 0)
		goto fail;
	pthread_detach(thread);
	return ncclSuccess;
fail:
	if (m->listener >= 0)
		close(m->listener);
	free(m);
	return ncclSystemError;
}

/* The result for a wait that failed. Without FAKE_NCCL_DETECT a peer that is
 * gone is waited for until the communicator is aborted. */
static ncclResult_t failure(struct ncclComm *comm)
{
	if ((errno == ECONNRESET || errno == EPIPE || errno == ECONNREFUSED)) {
		if (fake_detect())
			return ncclRemoteError;
		fake_idle(comm, -1);
		return ncclInternalError;
	}
	return errno == ECANCELED ? ncclInternalError : ncclSystemError;
}

static int greet(struct ncclComm *comm, int fd, uint16_t port)
{
	struct hello hello = {
		.magic = ID_MAGIC, .port = port, .cookie = comm->cookie,
		.rank = comm->rank, .nranks = comm->nranks
	};

	return fake_write(comm, fd, &hello, sizeof(hello));
}

/* The table of ports, from the rendezvous. */
static int meet(struct ncclComm *comm, uint16_t to, uint16_t port,
		uint16_t *ports)
{
	size_t size = (size_t)comm->nranks * sizeof(*ports);
	int fd = fake_connect(comm, to), rc;

	if (fd < 0)
		return -1;
	rc = greet(comm, fd, port);
	if (rc == 0)
		rc = fake_read(comm, fd, ports, size);
	close(fd);
	return rc;
}

/* A connection of a higher rank: its rank, -1 for a failed wait, -2 for
 * somebody else. */
static int welcome(struct ncclComm *comm, int fd)
{
	struct hello hello;

	if (fake_read(comm, fd, &hello, sizeof(hello)) < 0)
		return errno == ECANCELED ? -1 : -2;
	if (hello.magic != ID_MAGIC || hello.cookie != comm->cookie ||
	    hello.nranks != comm->nranks || hello.rank <= comm->rank ||
	    hello.rank >= comm->nranks || comm->peers[hello.rank].fd >= 0)
		return -2;
	return hello.rank;
}

static int mesh(struct ncclComm *comm, int listener, const uint16_t *ports)
{
	int i, fd, rank;

	for (i = 0; i < comm->rank; i++) {
		fd = comm->peers[i].fd = fake_connect(comm, ports[i]);
		if (fd < 0 || greet(comm, fd, 0) < 0)
			return -1;
	}
	for (i = comm->rank + 1; i < comm->nranks;) {
		fd = fake_accept(comm, listener);
		if (fd < 0)
			return -1;
		rank = welcome(comm, fd);
		if (rank < 0) {
			close(fd);
			if (rank == -1)
				return -1;
			continue;
		}
		comm->peers[rank].fd = fd;
		i++;
	}
	return fake_reader_start(comm);
}

ncclResult_t fake_mesh(struct ncclComm *comm, int listener,
		       const uint16_t *ports)
{
	return mesh(comm, listener, ports) == 0 ? ncclSuccess : failure(comm);
}

ncclResult_t fake_boot(struct ncclComm *comm, const ncclUniqueId *unique)
{
	ncclResult_t result = ncclSuccess;
	uint16_t *ports, port;
	struct id id;
	int listener;

	memcpy(&id, unique, sizeof(id));
	if (id.magic != ID_MAGIC || !id.port)
		return ncclInvalidArgument;
	comm->cookie = id.cookie;
	ports = calloc((size_t)comm->nranks, sizeof(*ports));
	listener = fake_listen(&port);
	if (!ports || listener < 0)
		result = ncclSystemError;
	else if (meet(comm, id.port, port, ports) < 0)
		result = failure(comm);
	else
		result = fake_mesh(comm, listener, ports);
	if (listener >= 0)
		close(listener);
	free(ports);
	return result;
}
