/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the table of communicators, and reading their errors. */
#include "config.h"

#include "launcher/life_comm_int.h"

void ddp_life_comm_revoked(void *comm)
{
	struct ddp_life_entry *e;

	ddp_life_table_enter();
	e = ddp_life_table_handle(comm);
	if (e)
		e->c.revoked = true;
	ddp_life_table_leave(false);
}

static bool is_left(const struct ddp_life_entry *e, bool init)
{
	switch (e->stage) {
	case DDP_COMM_INIT:
		return init;
	case DDP_COMM_LIVE:
	case DDP_COMM_FINALIZING:
		return true;
	case DDP_COMM_DESTROYING:
	case DDP_COMM_ABORTING:
		return e->ours;
	default:
		return false;
	}
}

unsigned ddp_life_comms_left(bool init)
{
	unsigned n = 0;

	ddp_life_table_enter();
	for (unsigned i = 0; i < ddp_life_table.used; i++)
		n += is_left(&ddp_life_table.entries[i], init);
	ddp_life_table_leave(false);
	return n;
}

unsigned ddp_life_comms_untaken(bool finalizing)
{
	unsigned n = 0;

	ddp_life_table_enter();
	for (unsigned i = 0; i < ddp_life_table.used; i++) {
		enum ddp_life_stage stage = ddp_life_table.entries[i].stage;

		n += stage == DDP_COMM_LIVE ||
		     (finalizing && stage == DDP_COMM_FINALIZING);
	}
	ddp_life_table_leave(false);
	return n;
}

void ddp_life_comms_give_up(void)
{
	ddp_life_table_enter();
	for (unsigned i = 0; i < ddp_life_table.used; i++) {
		struct ddp_life_entry *e = &ddp_life_table.entries[i];

		if (e->ours && is_left(e, false))
			ddp_life_table_stage(e, DDP_COMM_ENDED);
	}
	ddp_life_table_leave(true);
}

bool ddp_life_comms_starting(void)
{
	bool any = false;

	ddp_life_table_enter();
	for (unsigned i = 0; !any && i < ddp_life_table.used; i++)
		any = ddp_life_table.entries[i].stage == DDP_COMM_INIT;
	ddp_life_table_leave(false);
	return any;
}

bool ddp_life_comms_any(void)
{
	bool any = false;

	ddp_life_table_enter();
	for (unsigned i = 0; !any && i < ddp_life_table.used; i++)
		any = ddp_life_table.entries[i].stage != DDP_COMM_FREE &&
		      ddp_life_table.entries[i].stage != DDP_COMM_ENDED;
	ddp_life_table_leave(false);
	return any;
}

bool ddp_life_comm_is_nonblocking(void *comm)
{
	struct ddp_life_entry *e;
	bool nonblocking;

	ddp_life_table_enter();
	e = ddp_life_table_handle(comm);
	nonblocking = e && e->c.nonblocking;
	ddp_life_table_leave(false);
	return nonblocking;
}

bool ddp_life_comm_is_ours(void *comm)
{
	struct ddp_life_entry *e;
	bool ours;

	ddp_life_table_enter();
	e = ddp_life_table_handle(comm);
	ours = e && e->ours;
	ddp_life_table_leave(false);
	return ours;
}

bool ddp_life_comm_pin(uint64_t *after, struct ddp_life_comm *c)
{
	struct ddp_life_entry *next = NULL;

	ddp_life_table_enter();
	for (unsigned i = 0; i < ddp_life_table.used; i++) {
		struct ddp_life_entry *e = &ddp_life_table.entries[i];

		if (e->stage == DDP_COMM_LIVE && !e->c.nonblocking &&
		    !e->c.revoked && e->c.ticket > *after &&
		    (!next || e->c.ticket < next->c.ticket))
			next = e;
	}
	if (next) {
		next->pinned = true;
		*after = next->c.ticket;
		*c = next->c;
	}
	ddp_life_table_leave(false);
	return next;
}

int64_t ddp_life_comm_unpin(uint64_t ticket, bool error, int64_t now)
{
	struct ddp_life_entry *e;
	int64_t since = 0;

	ddp_life_table_enter();
	e = ddp_life_table_ticket(ticket);
	if (e) {
		e->pinned = false;
		if (!error || e->stage != DDP_COMM_LIVE)
			e->c.error_since = 0;
		else if (!e->c.error_since)
			e->c.error_since = now;
		since = e->c.error_since;
	}
	ddp_life_table_leave(true);
	return since;
}
