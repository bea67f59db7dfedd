/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the table, for life_comm.c and life_comm_look.c. */
#ifndef DDP_LIFE_COMM_INT_H
#define DDP_LIFE_COMM_INT_H

#include <pthread.h>

#include "launcher/life_comm.h"

struct ddp_life_entry {
	struct ddp_life_comm c;
	enum ddp_life_stage stage;
	void **slot;		/* INIT: where its handle will be */
	void *before;		/* what was there: may be garbage */
	bool grouped;		/* INIT: until owner's group ends */
	bool ours;		/* the library ends, or has ended it */
	bool pinned;
	pthread_t owner;
};

extern struct ddp_life_table {
	struct ddp_life_entry *entries;
	unsigned used, size;
	unsigned ended;		/* in the stage ENDED */
	uint64_t last;		/* ticket */
	uint64_t changes;
	bool full;		/* said already */
	unsigned ending;	/* calls of ddp_life_comms_ending(true) */
} ddp_life_table;

/* Its lock. leave(true): something has changed, and waiters look again. */
void ddp_life_table_enter(void);
void ddp_life_table_leave(bool change);

/* With the lock held; NULL if there is none. */
struct ddp_life_entry *ddp_life_table_ticket(uint64_t ticket);
/* The last with this handle: the address may have been used before. */
struct ddp_life_entry *ddp_life_table_handle(void *comm);
void ddp_life_table_stage(struct ddp_life_entry *e, enum ddp_life_stage stage);

#endif
