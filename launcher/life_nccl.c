/* SPDX-License-Identifier: Apache-2.0 */
/* The life of NCCL communicators, as the program's calls tell it. */
#include "config.h"

#include "launcher/life_nccl.h"
#include "launcher/life.h"
#include "launcher/life_comm.h"
#include "launcher/life_real.h"

#include <stdlib.h>
#include <string.h>

/* Of this thread's group: how deep, and whether a communicator waits in it. */
static _Thread_local int depth __attribute__((tls_model("initial-exec")));
static _Thread_local bool waiting __attribute__((tls_model("initial-exec")));

#define REAL(name) \
	((__typeof__(&name))ddp_life_find(DDP_FN_##name, DDP_CALLER))

/* Whether a call is to be accounted for. Sleeps while the process is ended. */
static bool enter(void)
{
	if ((ddp_life_self & DDP_SELF_LIBRARY) || !ddp_life_start())
		return false;
	ddp_life_check();
	return true;
}

/* Without a config a child has its parent's. */
static bool is_nonblocking(const struct ddp_nccl_config *config, void *parent)
{
	const char *text = getenv("NCCL_COMM_BLOCKING");

	if (text && *text)
		return !strcmp(text, "0");
	if (!config)
		return parent && ddp_life_comm_is_nonblocking(parent);
	return config->magic == DDP_NCCL_MAGIC &&
	       config->size >= sizeof(*config) && config->blocking == 0;
}

static uint64_t begin(void **slot, const struct ddp_nccl_config *config,
		      void *parent, void *caller)
{
	uint64_t ticket;

	if (!enter())
		return 0;
	ddp_life_find_ends(caller);
	/* In the table first: nobody may find that nothing is beginning. */
	ticket = ddp_life_comm_begin(slot, is_nonblocking(config, parent));
	ddp_life_event(DDP_LIFE_START);
	return ticket;
}

static void one_is_there(void)
{
	ddp_life_at_exit();
	ddp_life_watch_start();
}

/* What has become of it. If an abort has come meanwhile, the thread sleeps. */
static int finish(uint64_t ticket, void **slot, int rc)
{
	if (!ticket)
		return rc;
	if (rc && rc != DDP_NCCL_IN_PROGRESS) {
		ddp_life_comm_done(ticket, NULL);
	} else if (depth) {
		ddp_life_comm_grouped(ticket);
		waiting = true;
	} else {
		ddp_life_comm_done(ticket, *slot);
		one_is_there();
	}
	ddp_life_begun();
	ddp_life_check();
	return rc;
}

/* One of n ranks, made by itself: it may be the whole world's. */
static int finish_world(uint64_t ticket, void **slot, int n, int rc)
{
	rc = finish(ticket, slot, rc);
	if (ticket && !depth && (!rc || rc == DDP_NCCL_IN_PROGRESS) && *slot)
		ddp_life_world_begun(*slot, n);
	return rc;
}

#define NEW_WORLD(name, slot, n, config, args) \
	do { \
		__typeof__(&name) real = REAL(name); \
		uint64_t ticket; \
\
		if (!real) \
			return DDP_NCCL_SYSTEM_ERROR; \
		ticket = begin(slot, config, NULL, DDP_CALLER); \
		return finish_world(ticket, slot, n, real args); \
	} while (0)

#define NEW(name, slot, config, parent, args) \
	do { \
		__typeof__(&name) real = REAL(name); \
		uint64_t ticket; \
\
		if (!real) \
			return DDP_NCCL_SYSTEM_ERROR; \
		ticket = begin(slot, config, parent, DDP_CALLER); \
		return finish(ticket, slot, real args); \
	} while (0)

DDP_EXPORT int ncclGetUniqueId(struct ddp_nccl_id *id)
{
	__typeof__(&ncclGetUniqueId) real = REAL(ncclGetUniqueId);

	if (!real)
		return DDP_NCCL_SYSTEM_ERROR;
	if (enter())
		ddp_life_event(DDP_LIFE_START);
	return real(id);
}

DDP_EXPORT int ncclCommInitRank(void **comm, int n, struct ddp_nccl_id id,
				int rank)
{
	NEW_WORLD(ncclCommInitRank, comm, n, NULL, (comm, n, id, rank));
}

DDP_EXPORT int ncclCommInitRankConfig(void **comm, int n,
				      struct ddp_nccl_id id, int rank,
				      struct ddp_nccl_config *config)
{
	NEW_WORLD(ncclCommInitRankConfig, comm, n, config,
		  (comm, n, id, rank, config));
}

DDP_EXPORT int ncclCommInitRankScalable(void **comm, int n, int rank, int nids,
					struct ddp_nccl_id *ids,
					struct ddp_nccl_config *config)
{
	NEW_WORLD(ncclCommInitRankScalable, comm, n, config,
		  (comm, n, rank, nids, ids, config));
}

DDP_EXPORT int ncclCommSplit(void *comm, int color, int key, void **child,
			     struct ddp_nccl_config *config)
{
	NEW(ncclCommSplit, child, config, comm,
	    (comm, color, key, child, config));
}

DDP_EXPORT int ncclCommShrink(void *comm, int *ranks, int n, void **child,
			      struct ddp_nccl_config *config, int flags)
{
	NEW(ncclCommShrink, child, config, comm,
	    (comm, ranks, n, child, config, flags));
}

DDP_EXPORT int ncclCommGrow(void *comm, int n, const struct ddp_nccl_id *id,
			    int rank, void **child,
			    struct ddp_nccl_config *config)
{
	NEW(ncclCommGrow, child, config, comm,
	    (comm, n, id, rank, child, config));
}

DDP_EXPORT int ncclCommInitAll(void **comms, int n, const int *devices)
{
	__typeof__(&ncclCommInitAll) real = REAL(ncclCommInitAll);
	uint64_t ticket;
	int rc;

	if (!real)
		return DDP_NCCL_SYSTEM_ERROR;
	ticket = begin(NULL, NULL, NULL, DDP_CALLER);
	rc = real(comms, n, devices);
	if (!ticket)
		return rc;
	ddp_life_comm_done(ticket, rc || n < 1 ? NULL : comms[0]);
	for (int i = 1; !rc && i < n; i++) {
		ticket = ddp_life_comm_begin(NULL, false);
		ddp_life_comm_done(ticket, comms[i]);
	}
	if (!rc)
		one_is_there();
	ddp_life_begun();
	ddp_life_check();
	return rc;
}

DDP_EXPORT int ncclGroupStart(void)
{
	__typeof__(&ncclGroupStart) real = REAL(ncclGroupStart);
	int rc;

	if (!real)
		return DDP_NCCL_SYSTEM_ERROR;
	rc = real();
	if (!rc)
		depth++;
	return rc;
}

DDP_EXPORT int ncclGroupEnd(void)
{
	__typeof__(&ncclGroupEnd) real = REAL(ncclGroupEnd);
	int rc;

	if (!real)
		return DDP_NCCL_SYSTEM_ERROR;
	rc = real();
	if (depth)
		depth--;
	if (!depth && waiting) {
		waiting = false;
		ddp_life_comms_group_end(!rc || rc == DDP_NCCL_IN_PROGRESS);
		one_is_there();
		ddp_life_begun();
	}
	if (__builtin_expect(atomic_load_explicit(&ddp_life.hot,
						  memory_order_relaxed) &
			     DDP_HOT_ABORT, 0) && ddp_life_on())
		ddp_life_check();
	return rc;
}

/*
 * A communicator that the library has ended is, for the program, ended well:
 * the call it makes is what it should do. One that the program itself has
 * ended is not there any more.
 */
static int not_yours(enum ddp_life_claim claim)
{
	return claim == DDP_CLAIM_OURS ? DDP_NCCL_SUCCESS
				       : DDP_NCCL_INVALID_ARGUMENT;
}

static int end(void *comm, enum ddp_life_stage stage, int (*real)(void *))
{
	enum ddp_life_claim claim;
	uint64_t ticket;
	int rc;

	if (!real)
		return DDP_NCCL_SYSTEM_ERROR;
	if (!enter())
		return real(comm);
	claim = ddp_life_comm_claim(comm, stage, ddp_life.limit_ms, &ticket);
	if (claim == DDP_CLAIM_UNKNOWN)
		return real(comm);
	if (claim != DDP_CLAIM_YOURS)
		return not_yours(claim);
	ddp_life_world_ended(comm);
	rc = real(comm);
	if (stage == DDP_COMM_FINALIZING)
		ddp_life_comm_finalized(ticket,
					!rc || rc == DDP_NCCL_IN_PROGRESS);
	else
		ddp_life_comm_ended(ticket);
	ddp_life_check();
	return rc;
}

DDP_EXPORT int ncclCommFinalize(void *comm)
{
	return end(comm, DDP_COMM_FINALIZING, REAL(ncclCommFinalize));
}

DDP_EXPORT int ncclCommDestroy(void *comm)
{
	return end(comm, DDP_COMM_DESTROYING, REAL(ncclCommDestroy));
}

DDP_EXPORT int ncclCommAbort(void *comm)
{
	return end(comm, DDP_COMM_ABORTING, REAL(ncclCommAbort));
}

DDP_EXPORT int ncclCommRevoke(void *comm, int flags)
{
	__typeof__(&ncclCommRevoke) real = REAL(ncclCommRevoke);

	if (!real)
		return DDP_NCCL_SYSTEM_ERROR;
	if (enter()) {
		if (ddp_life_comm_is_ours(comm))
			return DDP_NCCL_SUCCESS;
		ddp_life_comm_revoked(comm);
	}
	return real(comm, flags);
}

DDP_EXPORT int ncclCommGetAsyncError(void *comm, int *error)
{
	__typeof__(&ncclCommGetAsyncError) real = REAL(ncclCommGetAsyncError);

	if (!real)
		return DDP_NCCL_SYSTEM_ERROR;
	if (ddp_life_self & DDP_SELF_LIBRARY || !ddp_life_on())
		return real(comm, error);
	ddp_life_check();
	if ((atomic_load(&ddp_life.hot) & DDP_HOT_ENDED) &&
	    ddp_life_comm_is_ours(comm)) {
		*error = DDP_NCCL_SUCCESS;
		return DDP_NCCL_SUCCESS;
	}
	ddp_life_watch_program();
	return real(comm, error);
}
