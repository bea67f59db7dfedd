/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives and point-to-point calls: arguments are looked at, and the
 * operation goes into its stream, or waits for the end of the group.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdlib.h>

static void run_op(void *data)
{
	fake_op_run(data);
}

/* Locked: the tags by which ranks find each other's part. */
static void number(struct fake_op *op)
{
	struct ncclComm *comm = op->comm;
	struct fake_op *at;

	op->ticket = comm->tickets++;
	if (op->fn != FAKE_SEND && op->fn != FAKE_RECV)
		op->tag = comm->colls++;
	else
		for (at = op; at; at = at->more)
			at->tag = at->fn == FAKE_SEND ?
				comm->peers[at->root].sends++ :
				comm->peers[at->root].recvs++;
}

void fake_op_launch(struct fake_op *op)
{
	struct ncclComm *comm = op->comm;
	struct fake_op *next;
	bool go;

	pthread_mutex_lock(&comm->lock);
	/* In a group it may have ended meanwhile. */
	go = comm->state == FAKE_READY;
	if (go) {
		number(op);
		comm->ops++;
	}
	pthread_mutex_unlock(&comm->lock);
	if (go) {
		fake_stream_add(op->stream, run_op, op);
		return;
	}
	for (; op; op = next) {
		next = op->more;
		free(op);
	}
}

static bool reduces(enum fake_fn fn)
{
	return fn == FAKE_ALLREDUCE || fn == FAKE_REDUCE ||
	       fn == FAKE_REDUCESCATTER;
}

static ncclResult_t check(const struct fake_op *op)
{
	const struct ncclComm *comm = op->comm;
	size_t size = fake_type_size(op->type);

	if (!size || op->count > FAKE_MAX_BYTES / size ||
	    op->root < 0 || op->root >= comm->nranks ||
	    (reduces(op->fn) && !fake_op_valid(op->op, op->type)))
		return ncclInvalidArgument;
	if (op->fn != FAKE_RECV && op->count && !op->from &&
	    (op->fn != FAKE_BROADCAST || op->root == comm->rank))
		return ncclInvalidArgument;
	if (op->fn != FAKE_SEND && op->count && !op->to &&
	    (op->fn != FAKE_REDUCE || op->root == comm->rank))
		return ncclInvalidArgument;
	return ncclSuccess;
}

/* An error that is there already, or what the environment wants. */
static ncclResult_t trouble(const char *name, struct ncclComm *comm)
{
	ncclResult_t result = fake_inject(name, comm);

	pthread_mutex_lock(&comm->lock);
	if (result == ncclSuccess && comm->revoked)
		result = ncclInvalidUsage;
	if (result == ncclSuccess)
		result = comm->async;
	pthread_mutex_unlock(&comm->lock);
	return result;
}

static ncclResult_t call(const char *name, const struct fake_op *given)
{
	struct ncclComm *comm;
	ncclResult_t result;
	struct fake_op *op;

	result = fake_comm_enter(name, given->comm, true, &comm);
	if (result != ncclSuccess)
		return result;
	result = trouble(name, comm);
	if (result == ncclSuccess)
		result = check(given);
	if (result != ncclSuccess)
		return fake_comm_leave(name, comm, result);
	op = malloc(sizeof(*op));
	if (!op)
		return fake_comm_leave(name, comm, ncclSystemError);
	*op = *given;
	if (fake_group_open())
		fake_group_add_op(op);
	else
		fake_op_launch(op);
	return fake_comm_leave(name, comm, ncclSuccess);
}

FAKE_NCCL(AllReduce, (const void *from, void *to, size_t count,
		      ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
		      cudaStream_t stream))
{
	return call("ncclAllReduce", &(struct fake_op){
		.fn = FAKE_ALLREDUCE, .from = from, .to = to, .count = count,
		.type = type, .op = op, .comm = comm, .stream = stream });
}

FAKE_NCCL(Broadcast, (const void *from, void *to, size_t count,
		      ncclDataType_t type, int root, ncclComm_t comm,
		      cudaStream_t stream))
{
	return call("ncclBroadcast", &(struct fake_op){
		.fn = FAKE_BROADCAST, .from = from, .to = to, .count = count,
		.type = type, .root = root, .comm = comm, .stream = stream });
}

FAKE_NCCL(Bcast, (void *memory, size_t count, ncclDataType_t type, int root,
		  ncclComm_t comm, cudaStream_t stream))
{
	return call("ncclBcast", &(struct fake_op){
		.fn = FAKE_BROADCAST, .from = memory, .to = memory,
		.count = count, .type = type, .root = root, .comm = comm,
		.stream = stream });
}

FAKE_NCCL(Reduce, (const void *from, void *to, size_t count,
		   ncclDataType_t type, ncclRedOp_t op, int root,
		   ncclComm_t comm, cudaStream_t stream))
{
	return call("ncclReduce", &(struct fake_op){
		.fn = FAKE_REDUCE, .from = from, .to = to, .count = count,
		.type = type, .op = op, .root = root, .comm = comm,
		.stream = stream });
}

FAKE_NCCL(AllGather, (const void *from, void *to, size_t count,
		      ncclDataType_t type, ncclComm_t comm,
		      cudaStream_t stream))
{
	return call("ncclAllGather", &(struct fake_op){
		.fn = FAKE_ALLGATHER, .from = from, .to = to, .count = count,
		.type = type, .comm = comm, .stream = stream });
}

FAKE_NCCL(ReduceScatter, (const void *from, void *to, size_t count,
			  ncclDataType_t type, ncclRedOp_t op,
			  ncclComm_t comm, cudaStream_t stream))
{
	return call("ncclReduceScatter", &(struct fake_op){
		.fn = FAKE_REDUCESCATTER, .from = from, .to = to,
		.count = count, .type = type, .op = op, .comm = comm,
		.stream = stream });
}

FAKE_NCCL(Send, (const void *from, size_t count, ncclDataType_t type, int peer,
		 ncclComm_t comm, cudaStream_t stream))
{
	return call("ncclSend", &(struct fake_op){
		.fn = FAKE_SEND, .from = from, .count = count, .type = type,
		.root = peer, .comm = comm, .stream = stream });
}

FAKE_NCCL(Recv, (void *to, size_t count, ncclDataType_t type, int peer,
		 ncclComm_t comm, cudaStream_t stream))
{
	return call("ncclRecv", &(struct fake_op){
		.fn = FAKE_RECV, .to = to, .count = count, .type = type,
		.root = peer, .comm = comm, .stream = stream });
}
