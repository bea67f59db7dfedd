/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnccl.so.2 of one rank. It never frees a communicator, so that it can
 * log what a real one would crash of: "BAD …".
 *
 *	MINI_INIT=hang|MS     ncclCommInitRank() takes so long
 *	MINI_COLL=hang        a collective waits until its communicator is aborted
 *	MINI_FINALIZE=hang    ncclCommFinalize() likewise
 *	MINI_DESTROY=hang     ncclCommDestroy() never returns
 *	MINI_ABORT=hang|first ncclCommAbort() never returns; that of the first
 *	MINI_ABORT=joint      none returns before all are called
 *	MINI_ASYNC=MS         an asynchronous error so long after the init
 */
#include "mini.h"

#include <stdatomic.h>
#include <stdint.h>

struct comm {
	int number;
	atomic_int aborted, ended, users;
	struct timespec born;
};

struct id {
	char bytes[128];
};

struct config {
	size_t size;
	unsigned magic, version;
	int blocking;
};

static atomic_int made, aborting;
static _Thread_local int depth;

MINI_API int ncclGetUniqueId(struct id *id);
MINI_API int ncclCommInitRank(void **c, int n, struct id id, int rank);
MINI_API int ncclCommInitRankConfig(void **c, int n, struct id id, int rank,
				    struct config *config);
MINI_API int ncclCommInitAll(void **c, int n, const int *devices);
MINI_API int ncclCommSplit(void *c, int color, int key, void **child,
			   struct config *config);
MINI_API int ncclCommFinalize(void *c);
MINI_API int ncclCommDestroy(void *c);
MINI_API int ncclCommAbort(void *c);
MINI_API int ncclCommRevoke(void *c, int flags);
MINI_API int ncclCommGetAsyncError(void *c, int *error);
MINI_API int ncclGroupStart(void);
MINI_API int ncclGroupEnd(void);
MINI_API int ncclAllReduce(const void *from, void *to, size_t n, int type,
			   int op, void *c, void *stream);
MINI_API int ncclMemAlloc(void **p, size_t n);
MINI_API int ncclMemFree(void *p);

static void forever(void)
{
	for (;;)
		(void)pause();
}

static struct comm *new_comm(void)
{
	struct comm *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->number = atomic_fetch_add(&made, 1) + 1;
	(void)clock_gettime(CLOCK_MONOTONIC, &c->born);
	return c;
}

/* What a real one would crash of. */
static void check(struct comm *c, const char *what)
{
	if (atomic_load(&c->ended))
		mini_log("BAD %s of ended %d", what, c->number);
}

MINI_API int ncclGetUniqueId(struct id *id)
{
	memset(id, 7, sizeof(*id));
	mini_log("ncclGetUniqueId");
	return 0;
}

static int init(void **out)
{
	if (mini_is("MINI_INIT", "hang"))
		forever();
	if (mini_number("MINI_INIT") > 0)
		mini_sleep(mini_number("MINI_INIT"));
	*out = new_comm();
	return 0;
}

MINI_API int ncclCommInitRank(void **c, int n, struct id id, int rank)
{
	(void)n, (void)rank;
	mini_log("ncclCommInitRank%s", id.bytes[127] == 7 ? "" : " BAD id");
	return init(c);
}

MINI_API int ncclCommInitRankConfig(void **c, int n, struct id id, int rank,
				    struct config *config)
{
	(void)n, (void)rank, (void)id;
	mini_log("ncclCommInitRankConfig %d", config ? config->blocking : -1);
	return init(c);
}

MINI_API int ncclCommInitAll(void **c, int n, const int *devices)
{
	(void)devices;
	mini_log("ncclCommInitAll %d", n);
	for (int i = 0; i < n; i++)
		c[i] = new_comm();
	return 0;
}

MINI_API int ncclCommSplit(void *c, int color, int key, void **child,
			   struct config *config)
{
	(void)c, (void)key, (void)config;
	mini_log("ncclCommSplit %d", color);
	*child = color < 0 ? NULL : new_comm();
	return 0;
}

MINI_API int ncclCommFinalize(void *v)
{
	struct comm *c = v;

	check(c, "finalize");
	mini_log("ncclCommFinalize %d", c->number);
	while (mini_is("MINI_FINALIZE", "hang") && !atomic_load(&c->aborted))
		mini_sleep(1);
	return atomic_load(&c->aborted) ? 6 : 0;
}

MINI_API int ncclCommDestroy(void *v)
{
	struct comm *c = v;

	check(c, "destroy");
	mini_log("ncclCommDestroy %d", c->number);
	if (mini_is("MINI_DESTROY", "hang"))
		forever();
	atomic_store(&c->ended, 1);
	return 0;
}

MINI_API int ncclCommAbort(void *v)
{
	struct comm *c = v;

	if (atomic_exchange(&c->aborted, 1))
		mini_log("BAD second abort of %d", c->number);
	check(c, "abort");
	mini_log("ncclCommAbort %d", c->number);
	atomic_fetch_add(&aborting, 1);
	if (mini_is("MINI_ABORT", "hang") ||
	    (mini_is("MINI_ABORT", "first") && c->number == 1))
		forever();
	while (mini_is("MINI_ABORT", "joint") &&
	       atomic_load(&aborting) < atomic_load(&made))
		mini_sleep(1);
	atomic_store(&c->ended, 1);
	mini_log("aborted %d", c->number);
	return 0;
}

MINI_API int ncclCommRevoke(void *v, int flags)
{
	struct comm *c = v;

	mini_log("ncclCommRevoke %d %d", c->number, flags);
	return 0;
}

MINI_API int ncclCommGetAsyncError(void *v, int *error)
{
	struct comm *c = v;
	struct timespec now;
	long after = mini_number("MINI_ASYNC"), ms;

	check(c, "question to");
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	ms = (long)(now.tv_sec - c->born.tv_sec) * 1000 +
	     (now.tv_nsec - c->born.tv_nsec) / 1000000;
	*error = after >= 0 && ms >= after ? 6 : 0;
	return 0;
}

MINI_API int ncclGroupStart(void)
{
	depth++;
	return 0;
}

MINI_API int ncclGroupEnd(void)
{
	depth--;
	return 0;
}

MINI_API int ncclAllReduce(const void *from, void *to, size_t n, int type,
			   int op, void *v, void *stream)
{
	struct comm *c = v;

	(void)from, (void)to, (void)type, (void)op, (void)stream;
	/* For counting: no log, nothing. */
	if (n == 12345)
		return 0;
	check(c, "collective on");
	mini_log("ncclAllReduce %d", c->number);
	while (mini_is("MINI_COLL", "hang") && !atomic_load(&c->aborted))
		mini_sleep(1);
	return atomic_load(&c->aborted) ? 6 : 0;
}

MINI_API int ncclMemAlloc(void **p, size_t n)
{
	*p = malloc(n);
	return *p ? 0 : 2;
}

MINI_API int ncclMemFree(void *p)
{
	free(p);
	return 0;
}
