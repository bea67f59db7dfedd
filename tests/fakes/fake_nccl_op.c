/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operation does when its turn in the stream has come. Vectors go to
 * whoever needs them whole; reductions are made in the order of ranks, so
 * all ranks get the same bits. A rank that only gives waits until its peers
 * have taken: nobody gets past somebody who is missing.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX	/* a tag that does not come */

static size_t bytes(const struct fake_op *op)
{
	return op->count * fake_type_size(op->type);
}

/* The same on all ranks, if the program is right. */
static uint64_t what(const struct fake_op *op)
{
	if (op->fn == FAKE_SEND || op->fn == FAKE_RECV)
		return 0;
	return 1 | (uint64_t)op->fn << 8 | (uint64_t)op->type << 16 |
	       (uint64_t)(unsigned)op->root << 32;
}

static int give(const struct fake_op *op, int peer, enum fake_kind kind,
		const void *data, size_t size)
{
	struct fake_frame head = {
		.kind = kind, .tag = op->tag, .size = size, .what = what(op)
	};

	return fake_send(op->comm, peer, &head, data);
}

static int give_all(const struct fake_op *op, enum fake_kind kind,
		    const void *data, size_t size)
{
	int i;

	for (i = 0; i < op->comm->nranks; i++)
		if (i != op->comm->rank && give(op, i, kind, data, size) < 0)
			return -1;
	return 0;
}

/* Ranks that call different things wait for ever, as kernels would. */
static struct fake_msg *get(const struct fake_op *op, int peer,
			    enum fake_kind kind, size_t size)
{
	struct fake_msg *msg = fake_wait(op->comm, peer, kind, op->tag);

	if (!msg || (msg->head.size == size && msg->head.what == what(op)))
		return msg;
	free(msg);
	fake_misuse("kernel", op->comm, "ranks call different operations");
	return fake_wait(op->comm, peer, kind, NEVER);
}

static int get_into(const struct fake_op *op, int peer, enum fake_kind kind,
		    void *to, size_t size)
{
	struct fake_msg *msg = get(op, peer, kind, size);

	if (!msg)
		return -1;
	if (size)
		memcpy(to, msg->data, size);
	free(msg);
	return 0;
}

/* One rank's vector into the result; rank 0's comes first. */
static void fold(const struct fake_op *op, int rank, void *sum,
		 const void *data)
{
	if (rank == 0)
		memcpy(sum, data, bytes(op));
	else
		fake_reduce(sum, data, op->count, op->type, op->op);
}

static int reduce_from_all(const struct fake_op *op, const void *own)
{
	struct fake_msg *msg;
	void *sum;
	int i;

	sum = malloc(bytes(op) + 1);
	if (!sum)
		abort();
	for (i = 0; i < op->comm->nranks; i++) {
		if (i == op->comm->rank) {
			fold(op, i, sum, own);
			continue;
		}
		msg = get(op, i, FAKE_COLL, bytes(op));
		if (!msg)
			break;
		fold(op, i, sum, msg->data);
		free(msg);
	}
	if (i == op->comm->nranks) {
		fake_reduce_after(sum, op->count, op->type, op->op, i);
		memcpy(op->to, sum, bytes(op));
	}
	free(sum);
	return i == op->comm->nranks ? 0 : -1;
}

/* What this rank brings: count vectors, before the reduction. */
static unsigned char *own_copy(const struct fake_op *op, size_t count)
{
	unsigned char *own = malloc(bytes(op) * count + 1);

	if (!own)
		abort();
	memcpy(own, op->from, bytes(op) * count);
	fake_reduce_before(own, op->count * count, op->type, op->op);
	return own;
}

static int all_reduce(const struct fake_op *op)
{
	unsigned char *own = own_copy(op, 1);
	int rc = give_all(op, FAKE_COLL, own, bytes(op));

	if (rc == 0)
		rc = reduce_from_all(op, own);
	free(own);
	return rc;
}

static int reduce(const struct fake_op *op)
{
	unsigned char *own = own_copy(op, 1);
	int rc;

	if (op->comm->rank == op->root) {
		rc = reduce_from_all(op, own);
		if (rc == 0)
			rc = give_all(op, FAKE_COLL_ACK, NULL, 0);
	} else {
		rc = give(op, op->root, FAKE_COLL, own, bytes(op));
		if (rc == 0)
			rc = get_into(op, op->root, FAKE_COLL_ACK, NULL, 0);
	}
	free(own);
	return rc;
}

static int reduce_scatter(const struct fake_op *op)
{
	int i, n = op->comm->nranks, me = op->comm->rank, rc = 0;
	unsigned char *own = own_copy(op, (size_t)n);

	for (i = 0; i < n && rc == 0; i++)
		if (i != me)
			rc = give(op, i, FAKE_COLL, own + bytes(op) * (size_t)i,
				  bytes(op));
	if (rc == 0)
		rc = reduce_from_all(op, own + bytes(op) * (size_t)me);
	free(own);
	return rc;
}

static int all_gather(const struct fake_op *op)
{
	unsigned char *to = op->to;
	int i, rc = give_all(op, FAKE_COLL, op->from, bytes(op));

	for (i = 0; i < op->comm->nranks && rc == 0; i++) {
		if (i == op->comm->rank)
			memmove(to + bytes(op) * (size_t)i, op->from,
				bytes(op));
		else
			rc = get_into(op, i, FAKE_COLL,
				      to + bytes(op) * (size_t)i, bytes(op));
	}
	return rc;
}

static int broadcast(const struct fake_op *op)
{
	int i, rc;

	if (op->comm->rank != op->root) {
		rc = get_into(op, op->root, FAKE_COLL, op->to, bytes(op));
		return rc < 0 ? rc : give(op, op->root, FAKE_COLL_ACK, NULL, 0);
	}
	rc = give_all(op, FAKE_COLL, op->from, bytes(op));
	for (i = 0; i < op->comm->nranks && rc == 0; i++)
		if (i != op->root)
			rc = get_into(op, i, FAKE_COLL_ACK, NULL, 0);
	if (rc == 0)
		memmove(op->to, op->from, bytes(op));
	return rc;
}

/* All sends and receives of a group go on at the same time. */
static int p2p(const struct fake_op *first)
{
	const struct fake_op *op;
	int rc = 0;

	for (op = first; op && rc == 0; op = op->more)
		if (op->fn == FAKE_SEND)
			rc = give(op, op->root, FAKE_P2P, op->from, bytes(op));
	for (op = first; op && rc == 0; op = op->more) {
		if (op->fn != FAKE_RECV)
			continue;
		rc = get_into(op, op->root, FAKE_P2P, op->to, bytes(op));
		if (rc == 0)
			rc = give(op, op->root, FAKE_P2P_ACK, NULL, 0);
	}
	for (op = first; op && rc == 0; op = op->more)
		if (op->fn == FAKE_SEND)
			rc = get_into(op, op->root, FAKE_P2P_ACK, NULL, 0);
	return rc;
}

static int run(const struct fake_op *op)
{
	switch (op->fn) {
	case FAKE_ALLREDUCE:
		return all_reduce(op);
	case FAKE_BROADCAST:
		return broadcast(op);
	case FAKE_REDUCE:
		return reduce(op);
	case FAKE_ALLGATHER:
		return all_gather(op);
	case FAKE_REDUCESCATTER:
		return reduce_scatter(op);
	default:
		return p2p(op);
	}
}

/* Operations of a communicator go in the order of their launch, in whatever
 * streams they are. */
static bool await_turn(struct fake_op *op)
{
	struct ncclComm *comm = op->comm;
	bool go;

	pthread_mutex_lock(&comm->lock);
	while (!comm->aborted && !comm->revoked && comm->serving != op->ticket)
		pthread_cond_wait(&comm->changed, &comm->lock);
	go = !comm->aborted && !comm->revoked;
	pthread_mutex_unlock(&comm->lock);
	return go;
}

void fake_op_run(struct fake_op *op)
{
	struct ncclComm *comm = op->comm;
	struct fake_op *next;
	int rc = await_turn(op) ? run(op) : -1;

	fake_log("kernel", comm, rc, rc < 0 ? "cut" : NULL);
	pthread_mutex_lock(&comm->lock);
	comm->serving = op->ticket + 1;
	comm->ops--;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
	for (; op; op = next) {
		next = op->more;
		free(op);
	}
}
