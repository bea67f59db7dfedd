/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "launcher/life_comm_int.h"
#include "launcher/life.h"

#include <stdlib.h>
#include <string.h>

/* Ended ones are kept in this number at least; then their room is reused. */
#define KEEP 64U

struct ddp_life_table ddp_life_table;

/* Not part of what is reset under others' feet: made anew after fork(). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void ddp_life_comms_reset(void)
{
	pthread_condattr_t attr;

	/* In a child whoever held the lock is not there any more. */
	(void)pthread_mutex_init(&lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&changed, &attr);
	(void)pthread_condattr_destroy(&attr);
	memset(&ddp_life_table, 0, sizeof(ddp_life_table));
}

void ddp_life_table_enter(void)
{
	(void)pthread_mutex_lock(&lock);
}

void ddp_life_table_leave(bool change)
{
	if (change) {
		ddp_life_table.changes++;
		(void)pthread_cond_broadcast(&changed);
	}
	(void)pthread_mutex_unlock(&lock);
}

struct ddp_life_entry *ddp_life_table_ticket(uint64_t ticket)
{
	for (unsigned i = 0; i < ddp_life_table.used; i++)
		if (ddp_life_table.entries[i].c.ticket == ticket)
			return &ddp_life_table.entries[i];
	return NULL;
}

struct ddp_life_entry *ddp_life_table_handle(void *comm)
{
	struct ddp_life_entry *found = NULL;

	for (unsigned i = 0; comm && i < ddp_life_table.used; i++) {
		struct ddp_life_entry *e = &ddp_life_table.entries[i];

		if (e->c.comm == comm && e->stage != DDP_COMM_FREE &&
		    (!found || e->c.ticket > found->c.ticket))
			found = e;
	}
	return found;
}

void ddp_life_table_stage(struct ddp_life_entry *e, enum ddp_life_stage stage)
{
	if (e->stage == DDP_COMM_ENDED)
		ddp_life_table.ended--;
	if (stage == DDP_COMM_ENDED)
		ddp_life_table.ended++;
	e->stage = stage;
	if (stage == DDP_COMM_FREE)
		e->c.ticket = 0;
}

/* A free entry; else the oldest of those that the program has ended. */
static struct ddp_life_entry *reuse(void)
{
	struct ddp_life_entry *old = NULL;

	for (unsigned i = 0; i < ddp_life_table.used; i++) {
		struct ddp_life_entry *e = &ddp_life_table.entries[i];

		if (e->stage == DDP_COMM_FREE)
			return e;
		if (e->stage == DDP_COMM_ENDED && !e->ours &&
		    ddp_life_table.ended > KEEP &&
		    (!old || e->c.ticket < old->c.ticket))
			old = e;
	}
	return old;
}

static struct ddp_life_entry *new_entry(void)
{
	struct ddp_life_entry *e = reuse(), *more;
	unsigned size;

	if (!e && ddp_life_table.used == ddp_life_table.size) {
		size = ddp_life_table.size ? ddp_life_table.size * 2 : 16;
		if (size > DDP_LIFE_COMMS + KEEP * 2)
			return NULL;
		more = realloc(ddp_life_table.entries, size * sizeof(*more));
		if (!more)
			return NULL;
		ddp_life_table.entries = more;
		ddp_life_table.size = size;
	}
	if (!e) {
		e = &ddp_life_table.entries[ddp_life_table.used++];
		memset(e, 0, sizeof(*e));
	}
	ddp_life_table_stage(e, DDP_COMM_FREE);
	memset(e, 0, sizeof(*e));
	e->c.ticket = ++ddp_life_table.last;
	return e;
}

uint64_t ddp_life_comm_begin(void **slot, bool nonblocking)
{
	struct ddp_life_entry *e;
	uint64_t ticket = 0;
	bool say = false;

	ddp_life_table_enter();
	e = new_entry();
	if (e) {
		ticket = e->c.ticket;
		e->c.nonblocking = nonblocking;
		e->slot = slot;
		e->before = slot ? *slot : NULL;
		e->owner = pthread_self();
		ddp_life_table_stage(e, DDP_COMM_INIT);
	} else {
		say = !ddp_life_table.full;
		ddp_life_table.full = true;
	}
	ddp_life_table_leave(false);
	if (say)
		ddp_life_say("too many NCCL communicators: some are not ended in order");
	return ticket;
}

static void done(struct ddp_life_entry *e, void *comm)
{
	struct ddp_life_entry *old = ddp_life_table_handle(comm);

	/* The same address again: what had it is forgotten. */
	if (old && old != e && old->stage == DDP_COMM_ENDED)
		ddp_life_table_stage(old, DDP_COMM_FREE);
	e->c.comm = comm;
	e->slot = NULL;
	e->grouped = false;
	ddp_life_table_stage(e, comm ? DDP_COMM_LIVE : DDP_COMM_FREE);
}

void ddp_life_comm_done(uint64_t ticket, void *comm)
{
	struct ddp_life_entry *e;

	ddp_life_table_enter();
	e = ticket ? ddp_life_table_ticket(ticket) : NULL;
	if (e)
		done(e, comm);
	ddp_life_table_leave(true);
}

void ddp_life_comm_grouped(uint64_t ticket)
{
	struct ddp_life_entry *e;

	ddp_life_table_enter();
	e = ticket ? ddp_life_table_ticket(ticket) : NULL;
	if (e) {
		e->grouped = true;
		/* Since NCCL 2.14 the handle is there at once; the variable
		 * may have moved when the group ends. */
		if (*e->slot != e->before)
			e->c.comm = *e->slot;
	}
	ddp_life_table_leave(false);
}

void ddp_life_comms_group_end(bool good)
{
	pthread_t self = pthread_self();

	ddp_life_table_enter();
	for (unsigned i = 0; i < ddp_life_table.used; i++) {
		struct ddp_life_entry *e = &ddp_life_table.entries[i];

		if (e->stage != DDP_COMM_INIT || !e->grouped ||
		    !pthread_equal(e->owner, self))
			continue;
		done(e, !good ? NULL : e->c.comm ? e->c.comm : *e->slot);
	}
	ddp_life_table_leave(true);
}

/* Wait until a watcher has let go of it. The entry may be another's then. */
static void wait_unpinned(uint64_t ticket, const struct timespec *until)
{
	struct ddp_life_entry *e;

	while ((e = ddp_life_table_ticket(ticket)) && e->pinned)
		if (pthread_cond_timedwait(&changed, &lock, until))
			return;
}

static struct timespec until_spec(int64_t ms)
{
	struct timespec t = { .tv_sec = ms / 1000,
			      .tv_nsec = ms % 1000 * 1000000 };

	return t;
}

static bool ending(const struct ddp_life_entry *e)
{
	return e->stage == DDP_COMM_DESTROYING || e->stage == DDP_COMM_ABORTING;
}

/* With the lock held; may let go of it meanwhile. */
static enum ddp_life_claim claim(void *comm, enum ddp_life_stage to,
				 int64_t limit, uint64_t *ticket)
{
	struct timespec until = until_spec(limit);
	struct ddp_life_entry *e = ddp_life_table_handle(comm);

	if (!e)
		return DDP_CLAIM_UNKNOWN;
	*ticket = e->c.ticket;
	wait_unpinned(*ticket, &until);
	/* An abort may overtake a finalize; else it waits for who was first. */
	while ((e = ddp_life_table_ticket(*ticket)) &&
	       (ending(e) || (e->stage == DDP_COMM_FINALIZING && e->ours) ||
		(e->stage == DDP_COMM_FINALIZING && to != DDP_COMM_ABORTING)))
		if (pthread_cond_timedwait(&changed, &lock, &until))
			break;
	if (!e)
		return DDP_CLAIM_THEIRS;
	if (e->stage != DDP_COMM_LIVE && e->stage != DDP_COMM_INIT &&
	    (e->stage != DDP_COMM_FINALIZING || e->ours))
		return e->ours ? DDP_CLAIM_OURS : DDP_CLAIM_THEIRS;
	ddp_life_table_stage(e, to);
	return DDP_CLAIM_YOURS;
}

enum ddp_life_claim ddp_life_comm_claim(void *comm, enum ddp_life_stage to,
					unsigned wait_ms, uint64_t *ticket)
{
	enum ddp_life_claim c;

	*ticket = 0;
	ddp_life_table_enter();
	c = claim(comm, to, ddp_life_now() + wait_ms, ticket);
	ddp_life_table_leave(true);
	return c;
}

void ddp_life_comm_ended(uint64_t ticket)
{
	struct ddp_life_entry *e;

	ddp_life_table_enter();
	e = ticket ? ddp_life_table_ticket(ticket) : NULL;
	if (e && e->stage != DDP_COMM_FREE)
		ddp_life_table_stage(e, DDP_COMM_ENDED);
	ddp_life_table_leave(true);
}

void ddp_life_comm_finalized(uint64_t ticket, bool good)
{
	struct ddp_life_entry *e;

	ddp_life_table_enter();
	e = ticket ? ddp_life_table_ticket(ticket) : NULL;
	if (e && e->stage == DDP_COMM_FINALIZING) {
		ddp_life_table_stage(e, DDP_COMM_LIVE);
		e->c.finalized = good;
	}
	ddp_life_table_leave(true);
}

void ddp_life_comms_ending(bool begin)
{
	ddp_life_table_enter();
	if (begin)
		ddp_life_table.ending++;
	else if (ddp_life_table.ending)
		ddp_life_table.ending--;
	ddp_life_table_leave(false);
}

bool ddp_life_comm_next(enum ddp_life_stage to, struct ddp_life_comm *c)
{
	struct timespec until = until_spec(ddp_life_now() + 200);
	struct ddp_life_entry *e = NULL;
	bool may;

	ddp_life_table_enter();
	may = to == DDP_COMM_ABORTING || ddp_life_table.ending;
	for (unsigned i = 0; may && !e && i < ddp_life_table.used; i++) {
		e = &ddp_life_table.entries[i];
		if (e->stage == DDP_COMM_LIVE ||
		    (to == DDP_COMM_ABORTING &&
		     e->stage == DDP_COMM_FINALIZING))
			break;
		e = NULL;
	}
	if (e) {
		*c = e->c;
		e->ours = true;
		ddp_life_table_stage(e, to);
		/* A reader of its errors that hangs is no reason to wait. */
		wait_unpinned(c->ticket, &until);
	}
	ddp_life_table_leave(true);
	return e;
}

bool ddp_life_comm_move(uint64_t ticket, enum ddp_life_stage from,
			enum ddp_life_stage to)
{
	struct ddp_life_entry *e;
	bool good;

	ddp_life_table_enter();
	e = ddp_life_table_ticket(ticket);
	good = e && e->stage == from;
	if (good)
		ddp_life_table_stage(e, to);
	ddp_life_table_leave(good);
	return good;
}

bool ddp_life_comms_wait(uint64_t *seen, int64_t until)
{
	struct timespec t = until_spec(until);
	int rc = 0;

	ddp_life_table_enter();
	while (!rc && *seen == ddp_life_table.changes)
		rc = pthread_cond_timedwait(&changed, &lock, &t);
	*seen = ddp_life_table.changes;
	ddp_life_table_leave(false);
	return !rc;
}

uint64_t ddp_life_comms_changes(void)
{
	uint64_t n;

	ddp_life_table_enter();
	n = ddp_life_table.changes;
	ddp_life_table_leave(false);
	return n;
}
