/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives and point-to-point calls. All that the library wants of them is
 * to know that the program runs, and that none is begun on a communicator that
 * it has ended; and how many there were on the world's. While all is well a
 * call costs a few loads and branches, and one addition;
 * tests/life/check_life_cost guards that.
 */
#include "config.h"

#include "launcher/life.h"
#include "launcher/life_comm.h"
#include "launcher/life_nccl.h"
#include "launcher/life_real.h"

/* What is not as usual. 0: go on, *real is found; else what to return. */
static __attribute__((noinline, cold)) int unusual(enum ddp_life_fn fn,
						   void *comm, void *caller)
{
	unsigned hot;

	if (!ddp_life_find(fn, caller))
		return DDP_NCCL_SYSTEM_ERROR;
	if (!ddp_life_on())
		return 0;
	ddp_life_check();
	hot = atomic_load(&ddp_life.hot);
	if (hot & DDP_HOT_FIRST) {
		atomic_fetch_and(&ddp_life.hot, ~(unsigned)DDP_HOT_FIRST);
		ddp_life_event(DDP_LIFE_RUN);
	}
	if (hot & DDP_HOT_LEFT)
		ddp_life_left_look();
	if ((hot & DDP_HOT_ENDED) && ddp_life_comm_is_ours(comm)) {
		ddp_life_note("a collective on a communicator that has ended");
		ddp_life_exit_check();
		return DDP_NCCL_INVALID_USAGE;
	}
	return 0;
}

/* A call has failed; if because we abort, the program shall not see it. */
static __attribute__((noinline, cold)) int failed(int rc)
{
	if (ddp_life_on()) {
		ddp_life_check();
		ddp_life_exit_check();
	}
	return rc;
}

#define FAST(name) \
	__builtin_expect(!atomic_load_explicit(&ddp_life.hot, \
		memory_order_relaxed) && ddp_life_found(DDP_FN_##name), 1)

/* What all ranks of a communicator call alike; see life_left.c. */
static inline void count(const void *comm)
{
	if (comm == atomic_load_explicit(&ddp_life.world,
					 memory_order_relaxed))
		atomic_fetch_add(&ddp_life.calls, 1);
}

static inline void do_not_count(const void *comm)
{
	(void)comm;
}

#define COLLECTIVE(name, params, args) CALL(name, params, args, count)
#define POINT(name, params, args) CALL(name, params, args, do_not_count)
#define CALL(name, params, args, note) \
DDP_EXPORT int name params \
{ \
	int rc; \
\
	note(comm); \
	if (!FAST(name) && \
	    (rc = unusual(DDP_FN_##name, comm, DDP_CALLER)) != 0) \
		return rc; \
	rc = ((int (*)params)ddp_life_found(DDP_FN_##name))args; \
	return __builtin_expect(rc, 0) ? failed(rc) : rc; \
}

COLLECTIVE(ncclReduce,
	   (const void *from, void *to, size_t n, int type, int op, int root,
	    void *comm, void *stream),
	   (from, to, n, type, op, root, comm, stream))
COLLECTIVE(ncclBcast,
	   (void *buf, size_t n, int type, int root, void *comm, void *stream),
	   (buf, n, type, root, comm, stream))
COLLECTIVE(ncclBroadcast,
	   (const void *from, void *to, size_t n, int type, int root,
	    void *comm, void *stream),
	   (from, to, n, type, root, comm, stream))
COLLECTIVE(ncclAllReduce,
	   (const void *from, void *to, size_t n, int type, int op, void *comm,
	    void *stream),
	   (from, to, n, type, op, comm, stream))
COLLECTIVE(ncclReduceScatter,
	   (const void *from, void *to, size_t n, int type, int op, void *comm,
	    void *stream),
	   (from, to, n, type, op, comm, stream))
COLLECTIVE(ncclAllGather,
	   (const void *from, void *to, size_t n, int type, void *comm,
	    void *stream),
	   (from, to, n, type, comm, stream))
COLLECTIVE(ncclAlltoAll,
	   (const void *from, void *to, size_t n, int type, void *comm,
	    void *stream),
	   (from, to, n, type, comm, stream))
COLLECTIVE(ncclGather,
	   (const void *from, void *to, size_t n, int type, int root,
	    void *comm, void *stream),
	   (from, to, n, type, root, comm, stream))
COLLECTIVE(ncclScatter,
	   (const void *from, void *to, size_t n, int type, int root,
	    void *comm, void *stream),
	   (from, to, n, type, root, comm, stream))
POINT(ncclSend,
      (const void *from, size_t n, int type, int peer, void *comm,
       void *stream),
      (from, n, type, peer, comm, stream))
POINT(ncclRecv,
      (void *to, size_t n, int type, int peer, void *comm, void *stream),
      (to, n, type, peer, comm, stream))
