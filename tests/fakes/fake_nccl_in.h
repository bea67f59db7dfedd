/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the fake libnccl.so.2.
 *
 * A unique id names a rendezvous: a socket and a thread in the process that
 * made it. There all ranks of a communicator learn each other's ports; then
 * each has a connection to each other. A reader thread a communicator takes
 * what comes in and keeps it until somebody waits for it. Operations run in
 * the threads of streams, in the order of their launch; whoever waits there
 * waits until the message comes or the communicator is aborted, and nothing
 * else ends it: that is how a kernel on a GPU waits.
 *
 * Locks, outermost first: the table of communicators, a peer's writer lock,
 * a communicator's lock. No lock is held while something blocks, but the
 * writer lock.
 */
#ifndef FAKE_NCCL_IN_H
#define FAKE_NCCL_IN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/fakes/fake_nccl.h"

#define FAKE_API __attribute__((visibility("default")))
/*
 * FAKE_NCCL(NAME, ARGS): ncclNAME, a weak alias of pncclNAME, whose body
 * follows.
 */
#define FAKE_NCCL(name, args) FAKE_TWO(ncclResult_t, name, args)
#define FAKE_TWO(type, name, args)					\
	FAKE_API type nccl##name args					\
	__attribute__((weak, alias("pnccl" #name)));			\
	FAKE_API type pnccl##name args

#define FAKE_MAX_RANKS 512
#define FAKE_MAX_BYTES (1ULL << 30)	/* of one message */

/* What a message is; its tag says to which operation it belongs. */
enum fake_kind {
	FAKE_COLL = 1,	/* data of a collective */
	FAKE_COLL_ACK,	/* somebody took it */
	FAKE_P2P,	/* data of a send */
	FAKE_P2P_ACK,
	FAKE_CTRL,	/* what ranks tell each other in split and shrink */
	FAKE_FIN	/* the peer finalizes */
};

struct fake_frame {
	uint32_t magic;
	uint32_t kind;
	uint64_t tag;
	uint64_t size;
	uint64_t what;	/* function, type and root: the same on all ranks */
};

struct fake_msg {
	struct fake_msg *next;
	struct fake_frame head;
	unsigned char data[];
};

struct fake_peer {
	int fd;			/* -1: oneself, or never connected */
	pthread_mutex_t writer;
	/* Under the communicator's lock. */
	bool lost, fin;
	struct fake_msg *first, **last;
	uint64_t sends, recvs;	/* launched so far: the tags of p2p */
	/* The reader's alone. */
	struct fake_frame head;
	struct fake_msg *in;
	size_t got;
};

enum fake_state {
	FAKE_STARTING,
	FAKE_READY,
	FAKE_FINALIZING,
	FAKE_FINALIZED,
	FAKE_ENDING,	/* somebody destroys or aborts it */
	FAKE_DESTROYED,
	FAKE_ABORTED,
	FAKE_FAILED	/* its init failed, and NCCL has freed it */
};

/*
 * What an ncclComm_t points to. It is never freed, so that a call on one that
 * is gone can be told; with FAKE_NCCL_REUSE=1 a new one may get the address
 * of one that is gone, as malloc would do.
 */
struct ncclComm {
	struct ncclComm *next;
	pid_t pid;		/* who made it */
	unsigned number;	/* 1, 2, ... in this process */
	int rank, nranks, device;
	bool blocking;
	uint64_t cookie;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum fake_state state;
	bool aborted;		/* ends every wait */
	bool revoked;		/* ends operations */
	bool stopping;		/* ends the reader */
	bool busy;		/* a non-blocking call goes on */
	ncclResult_t result;	/* of it */
	ncclResult_t async;
	unsigned users;		/* threads inside a call */
	unsigned ops;		/* launched, and not done */
	struct ncclComm *making;	/* a child, by split or shrink */
	uint64_t tickets, serving;
	uint64_t colls, ctrls;	/* tags */
	int wake;		/* eventfd; readable: aborted or stopping */
	bool reading;
	pthread_t reader;
	struct fake_peer *peers;
};

/* fake_nccl_log.c */
uint64_t fake_now_ns(void);
void fake_log(const char *name, const struct ncclComm *comm, int result,
	      const char *more);
/* The call begins: what may block is logged before and after. */
void fake_log_enter(const char *name, const struct ncclComm *comm);
void fake_misuse(const char *name, const struct ncclComm *comm,
		 const char *what);
void fake_left(const char *what, const struct ncclComm *comm, unsigned ops);

/* fake_nccl_inject.c: slow, hang and fail, as the environment says. Returns
 * what the function shall return at once; ncclSuccess: go on. comm may be
 * NULL. A slow call ends early when its communicator is aborted. */
ncclResult_t fake_inject(const char *name, struct ncclComm *comm);
/* FAKE_NCCL_ASYNC for this communicator, which just became ready. */
void fake_inject_async(struct ncclComm *comm);
bool fake_detect(void);
bool fake_flag(const char *name);

/* fake_nccl_table.c */
struct ncclComm *fake_comm_new(int rank, int nranks, bool blocking);
/*
 * A call named name begins on comm. *out is set and comm held until
 * fake_comm_leave(), or an error is returned, logged as a misuse if it is
 * one. With ready, one that is not ready is refused.
 */
ncclResult_t fake_comm_enter(const char *name, ncclComm_t comm, bool ready,
			     struct ncclComm **out);
ncclResult_t fake_comm_leave(const char *name, struct ncclComm *comm,
			     ncclResult_t result);
/* The same for who ends it: only one may. *before is the state it had. */
ncclResult_t fake_comm_enter_end(const char *name, ncclComm_t comm,
				 struct ncclComm **out,
				 enum fake_state *before);
/* fake_inject() for a call that does not hold it. */
ncclResult_t fake_comm_inject(const char *name, ncclComm_t comm);
/* After fake_comm_enter_end(): it is over. */
void fake_comm_gone(struct ncclComm *comm, enum fake_state state);
void fake_comm_wake(struct ncclComm *comm);

/* fake_nccl_net.c: 0 or a descriptor, or -1 and errno; ECANCELED when the
 * communicator was aborted */
int fake_listen(uint16_t *port);
int fake_connect(struct ncclComm *comm, uint16_t port);
int fake_accept(struct ncclComm *comm, int fd);
int fake_write(struct ncclComm *comm, int fd, const void *data, size_t size);
int fake_read(struct ncclComm *comm, int fd, void *data, size_t size);
/* ms milliseconds (-1: for ever), or until it is aborted: -1. */
int fake_idle(struct ncclComm *comm, int ms);

/* fake_nccl_boot.c */
ncclResult_t fake_id_make(ncclUniqueId *id);
ncclResult_t fake_boot(struct ncclComm *comm, const ncclUniqueId *id);
/* The mesh: listener is this rank's, ports[] everybody's. Starts the reader. */
ncclResult_t fake_mesh(struct ncclComm *comm, int listener,
		       const uint16_t *ports);

/* fake_nccl_msg.c */
int fake_reader_start(struct ncclComm *comm);
/* Stops the reader, closes all, frees all but *comm. */
void fake_comm_close(struct ncclComm *comm);
int fake_send(struct ncclComm *comm, int peer, const struct fake_frame *head,
	      const void *data);
/* The message, to be freed; NULL when the wait was ended. */
struct fake_msg *fake_wait(struct ncclComm *comm, int peer,
			   enum fake_kind kind, uint64_t tag);
/* The peer's ctrl message number tag, of size bytes. */
int fake_wait_ctrl(struct ncclComm *comm, int peer, uint64_t tag, void *out,
		   size_t size);

/* fake_nccl_reduce.c */
size_t fake_type_size(ncclDataType_t type);
bool fake_op_valid(ncclRedOp_t op, ncclDataType_t type);
/* to = to OP from, of count elements. */
void fake_reduce(void *to, const void *from, size_t count, ncclDataType_t type,
		 ncclRedOp_t op);
/* Before: what PreMulSum does to each rank's values. After: Avg's division. */
void fake_reduce_before(void *data, size_t count, ncclDataType_t type,
			ncclRedOp_t op);
void fake_reduce_after(void *data, size_t count, ncclDataType_t type,
		       ncclRedOp_t op, int nranks);

/* fake_nccl_op.c: one operation, as launched on a stream */
enum fake_fn {
	FAKE_ALLREDUCE,
	FAKE_BROADCAST,
	FAKE_REDUCE,
	FAKE_ALLGATHER,
	FAKE_REDUCESCATTER,
	FAKE_SEND,
	FAKE_RECV
};
struct fake_op {
	struct fake_op *next;	/* in a group */
	struct fake_op *more;	/* p2p of one group on one communicator */
	enum fake_fn fn;
	struct ncclComm *comm;
	const void *from;
	void *to;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t op;
	int root;		/* or peer */
	uint64_t ticket, tag;
	cudaStream_t stream;
};
void fake_op_run(struct fake_op *op);
/* fake_nccl_launch.c: takes op over. */
void fake_op_launch(struct fake_op *op);

/* fake_nccl_group.c */
struct fake_job {
	struct fake_job *next;
	ncclResult_t (*run)(struct fake_job *job);
	const char *name;
	struct ncclComm *comm;
	ncclComm_t *out;
	ncclUniqueId id;
	struct ncclComm *parent;	/* split, shrink */
	int color, key, flags;
	bool *excluded;
	bool blocking;
	pthread_t thread;
	ncclResult_t result;
};
bool fake_group_open(void);
void fake_group_add_op(struct fake_op *op);
/* Runs it now, in the background (not blocking), or at the group's end.
 * Takes the job over. */
ncclResult_t fake_job_start(const struct fake_job *job);

/* fake_nccl_init.c: an init is over, and its thread leaves; *out becomes NULL
 * if it failed and was a blocking one. */
void fake_init_done(const char *name, struct ncclComm *comm,
		    ncclResult_t result, bool blocking, ncclComm_t *out);

/* fake_nccl_end.c: ends all operations, and waits for that. */
void fake_revoke(struct ncclComm *comm);

/* fake_cuda.c */
void fake_stream_add(cudaStream_t stream, cudaHostFn_t fn, void *data);

#endif
