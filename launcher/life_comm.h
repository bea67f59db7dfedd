/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of NCCL communicators of this process. A ticket names one for as
 * long as the process lives; addresses are used again. It grows with their
 * number up to DDP_LIFE_COMMS at once; what is more is not ended in order, and
 * said.
 */
#ifndef DDP_LIFE_COMM_H
#define DDP_LIFE_COMM_H

#include <stdbool.h>
#include <stdint.h>

#define DDP_LIFE_COMMS 65536U

enum ddp_life_stage {
	DDP_COMM_FREE,
	DDP_COMM_INIT,		/* the real function has not returned */
	DDP_COMM_LIVE,
	DDP_COMM_FINALIZING,
	DDP_COMM_DESTROYING,
	DDP_COMM_ABORTING,
	DDP_COMM_ENDED		/* kept, so that it is not ended again */
};

struct ddp_life_comm {
	uint64_t ticket;
	void *comm;
	bool nonblocking, finalized, revoked;
	int64_t error_since;	/* ms; 0: no asynchronous error */
};

/* How a wish to end a communicator ends. */
enum ddp_life_claim {
	DDP_CLAIM_UNKNOWN,	/* not ours to know: pass the call on */
	DDP_CLAIM_YOURS,	/* call, then ddp_life_comm_ended() */
	DDP_CLAIM_OURS,		/* the library has ended it */
	DDP_CLAIM_THEIRS	/* the program has ended it itself */
};

/* Empty, for the first use and for a forked child. */
void ddp_life_comms_reset(void);

/*
 * One begins; slot is where its handle will be (NULL: told later). Returns
 * its ticket, 0 if there is no room.
 */
uint64_t ddp_life_comm_begin(void **slot, bool nonblocking);
/* It is there (comm), or has failed (NULL). */
void ddp_life_comm_done(uint64_t ticket, void *comm);
/* It will be there when this thread's group ends. */
void ddp_life_comm_grouped(uint64_t ticket);
/* This thread's group has ended. */
void ddp_life_comms_group_end(bool good);

/*
 * The program wants to end comm: to is FINALIZING, DESTROYING or ABORTING.
 * One that another thread is ending is waited for, wait_ms at most.
 */
enum ddp_life_claim ddp_life_comm_claim(void *comm, enum ddp_life_stage to,
					unsigned wait_ms, uint64_t *ticket);
/* The claimed one has ended. */
void ddp_life_comm_ended(uint64_t ticket);
/* The claimed one was finalized, and lives; failed: as before. */
void ddp_life_comm_finalized(uint64_t ticket, bool good);
/* Asynchronous errors of it are the program's from now on. */
void ddp_life_comm_revoked(void *comm);

/*
 * Between true and false, the library finalizes what is there. Afterwards none is
 * taken, also not by a thread that has come too late: a communicator that the
 * program makes then is its own.
 */
void ddp_life_comms_ending(bool begin);
/*
 * The library wants to end one. Takes any that is LIVE (or, for ABORTING,
 * FINALIZING) to the stage `to`. False if there is none, or for FINALIZING
 * none is to be ended now.
 */
bool ddp_life_comm_next(enum ddp_life_stage to, struct ddp_life_comm *c);
/* From one stage to the next; false if somebody else has taken it. */
bool ddp_life_comm_move(uint64_t ticket, enum ddp_life_stage from,
			enum ddp_life_stage to);
/*
 * How many still have to end: LIVE and FINALIZING ones, those that the
 * library is ending, and with init those that are beginning.
 */
unsigned ddp_life_comms_left(bool init);
/* The same that no thread has taken yet: what workers are needed for. */
unsigned ddp_life_comms_untaken(bool finalizing);
/*
 * Wait for a change after *seen, a number that ddp_life_comms_changes() gave
 * before one looked, until the time `until` (ms) at most. False: time over.
 */
bool ddp_life_comms_wait(uint64_t *seen, int64_t until);
uint64_t ddp_life_comms_changes(void);
/* All that the library was ending and could not count as ended from now on. */
void ddp_life_comms_give_up(void);

/* Whether one is beginning; whether there is any that is not ended. */
bool ddp_life_comms_starting(void);
bool ddp_life_comms_any(void);
/* Whether it was made not to block. */
bool ddp_life_comm_is_nonblocking(void *comm);
/* Whether the library has ended it (and the program must not use it). */
bool ddp_life_comm_is_ours(void *comm);

/*
 * Asynchronous errors: pins the next blocking LIVE one after the ticket
 * *after, so that nobody ends it meanwhile; false if there is none.
 */
bool ddp_life_comm_pin(uint64_t *after, struct ddp_life_comm *c);
/* error: whether it has one now. Returns since when (ms), 0 without. */
int64_t ddp_life_comm_unpin(uint64_t ticket, bool error, int64_t now);

#endif
