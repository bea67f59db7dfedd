/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the ranks of a communicator. The reader takes whatever
 * comes, so a writer is never stopped by a peer that waits for something
 * else; who waits looks for kind and tag.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_MAGIC 0x464e4d31

static void deliver(struct ncclComm *comm, struct fake_peer *peer)
{
	struct fake_msg *msg = peer->in;

	peer->in = NULL;
	peer->got = 0;
	pthread_mutex_lock(&comm->lock);
	if (msg->head.kind == FAKE_FIN) {
		peer->fin = true;
		free(msg);
	} else {
		*peer->last = msg;
		peer->last = &msg->next;
	}
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
}

/* Reads what there is: 1 more may come, 0 nothing now, -1 broken. */
static int advance(struct ncclComm *comm, struct fake_peer *peer)
{
	char *at = peer->in ? (char *)peer->in->data : (char *)&peer->head;
	size_t size = peer->in ? peer->in->head.size : sizeof(peer->head);
	ssize_t got = 1;

	if (peer->got < size)
		got = recv(peer->fd, at + peer->got, size - peer->got, 0);
	if (got < 0)
		return errno == EAGAIN ? 0 : errno == EINTR ? 1 : -1;
	if (got == 0)
		return -1;
	if (peer->got < size)
		peer->got += (size_t)got;
	if (peer->got < size)
		return 1;
	if (!peer->in) {
		if (peer->head.magic != FRAME_MAGIC ||
		    peer->head.size > FAKE_MAX_BYTES)
			return -1;
		peer->in = malloc(sizeof(*peer->in) + peer->head.size);
		if (!peer->in)
			return -1;
		peer->in->next = NULL;
		peer->in->head = peer->head;
		peer->got = 0;
		if (peer->head.size)
			return 1;
	}
	deliver(comm, peer);
	return 1;
}

/* A peer that has finalized may go; any other is an error, where errors of
 * the network are detected. */
static void lost(struct ncclComm *comm, struct fake_peer *peer)
{
	bool error;

	pthread_mutex_lock(&comm->lock);
	peer->lost = true;
	error = !peer->fin && !comm->aborted && fake_detect() &&
		comm->async == ncclSuccess;
	if (error)
		comm->async = ncclRemoteError;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
	if (error)
		fake_log("async", comm, ncclRemoteError, "connection broke");
}

static void *reader_main(void *data)
{
	struct ncclComm *comm = data;
	struct pollfd fds[FAKE_MAX_RANKS + 1];
	int i, rc;

	for (i = 0; i < comm->nranks; i++)
		fds[i] = (struct pollfd){ .fd = comm->peers[i].fd,
					  .events = POLLIN };
	fds[i] = (struct pollfd){ .fd = comm->wake, .events = POLLIN };
	for (;;) {
		rc = poll(fds, (nfds_t)comm->nranks + 1, -1);
		if (rc < 0 && errno != EINTR)
			break;
		if (rc > 0 && fds[comm->nranks].revents)
			break;
		for (i = 0; rc > 0 && i < comm->nranks; i++) {
			if (!fds[i].revents)
				continue;
			while ((rc = advance(comm, &comm->peers[i])) > 0)
				;
			if (rc < 0) {
				lost(comm, &comm->peers[i]);
				fds[i].fd = -1;
			}
			rc = 1;
		}
	}
	return NULL;
}

int fake_reader_start(struct ncclComm *comm)
{
	int rc = pthread_create(&comm->reader, NULL, reader_main, comm);

	if (rc != 0) {
		errno = rc;
		return -1;
	}
	comm->reading = true;
	return 0;
}

void fake_comm_close(struct ncclComm *comm)
{
	struct fake_msg *msg, *next;
	struct fake_peer *peer;
	int i;

	pthread_mutex_lock(&comm->lock);
	comm->stopping = true;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
	fake_comm_wake(comm);
	if (comm->reading)
		pthread_join(comm->reader, NULL);
	comm->reading = false;
	for (i = 0; i < comm->nranks; i++) {
		peer = &comm->peers[i];
		if (peer->fd >= 0)
			close(peer->fd);
		for (msg = peer->first; msg; msg = next) {
			next = msg->next;
			free(msg);
		}
		free(peer->in);
		pthread_mutex_destroy(&peer->writer);
	}
	free(comm->peers);
	comm->peers = NULL;
	close(comm->wake);
	comm->wake = -1;
}

/* To oneself. */
static int keep(struct ncclComm *comm, struct fake_peer *peer,
		const struct fake_frame *head, const void *data)
{
	struct fake_msg *msg = malloc(sizeof(*msg) + head->size);

	if (!msg)
		abort();
	msg->next = NULL;
	msg->head = *head;
	if (head->size)
		memcpy(msg->data, data, head->size);
	pthread_mutex_lock(&comm->lock);
	*peer->last = msg;
	peer->last = &msg->next;
	pthread_mutex_unlock(&comm->lock);
	return 0;
}

int fake_send(struct ncclComm *comm, int to, const struct fake_frame *given,
	      const void *data)
{
	struct fake_peer *peer = &comm->peers[to];
	struct fake_frame head = *given;
	int rc;

	head.magic = FRAME_MAGIC;
	if (to == comm->rank)
		return keep(comm, peer, &head, data);
	pthread_mutex_lock(&peer->writer);
	rc = fake_write(comm, peer->fd, &head, sizeof(head));
	if (rc == 0 && head.size)
		rc = fake_write(comm, peer->fd, data, head.size);
	pthread_mutex_unlock(&peer->writer);
	/* To somebody who is gone: like a write into his memory. */
	if (rc < 0 && errno != ECANCELED)
		rc = 0;
	return rc;
}

/* Locked: takes it out of the queue. */
static struct fake_msg *take(struct fake_peer *peer, enum fake_kind kind,
			     uint64_t tag)
{
	struct fake_msg **at, *msg;

	for (at = &peer->first; (msg = *at); at = &msg->next) {
		if (msg->head.kind != kind || msg->head.tag != tag)
			continue;
		*at = msg->next;
		if (!*at)
			peer->last = at;
		return msg;
	}
	return NULL;
}

struct fake_msg *fake_wait(struct ncclComm *comm, int from,
			   enum fake_kind kind, uint64_t tag)
{
	struct fake_peer *peer = &comm->peers[from];
	struct fake_msg *msg = NULL;

	pthread_mutex_lock(&comm->lock);
	while (!comm->aborted && (kind == FAKE_CTRL || !comm->revoked)) {
		msg = take(peer, kind, tag);
		if (msg)
			break;
		/* What is no kernel ends with an error. */
		if (kind == FAKE_CTRL && comm->async != ncclSuccess)
			break;
		pthread_cond_wait(&comm->changed, &comm->lock);
	}
	pthread_mutex_unlock(&comm->lock);
	return msg;
}

int fake_wait_ctrl(struct ncclComm *comm, int from, uint64_t tag, void *out,
		   size_t size)
{
	struct fake_msg *msg = fake_wait(comm, from, FAKE_CTRL, tag);
	int rc = -1;

	if (msg && msg->head.size == size) {
		memcpy(out, msg->data, size);
		rc = 0;
	}
	free(msg);
	return rc;
}
