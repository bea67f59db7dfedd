/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the life-cycle library of a process and the agent of its node say to
 * each other: one line of text a packet, on a SOCK_SEQPACKET unix socket whose
 * name is in DDP_LIFECYCLE_SOCKET ("@name" is an abstract one).
 *
 *	process                       agent
 *	life VERSION PID [MS]  →            first; MS: an abort may take so long
 *	state NAME             →            each new state
 *	cause CODE TEXT        →            why this process aborts
 *	left COUNT MPI         →            exit(0) with communicators left, or
 *	                                    with MPI not finalized (MPI is 1)
 *	waits COUNT            →            it waits for who has left after COUNT
 *	put NAME HEX           →            for the whole step, once a name
 *	get NAME               →
 *	                       ←      abort CODE TEXT
 *	                       ←      left COUNT 0    another process has
 *	                       ←      value NAME HEX
 *
 * COUNT is how many collectives the process has called on its first
 * communicator of the whole world, which is the same in all that wait for none
 * of the others. A reader leaves out lines whose first word it does not know,
 * and words behind those that it knows.
 */
#ifndef DDP_LIFE_H
#define DDP_LIFE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/ddp_err.h"

#define DDP_LIFE_VERSION 1
/* A line with its newline and the terminating zero. */
#define DDP_LIFE_LINE 512
#define DDP_LIFE_TEXT 400
#define DDP_LIFE_SOCKET "DDP_LIFECYCLE_SOCKET"
/* What an agent's socket is called; then random digits. */
#define DDP_LIFE_PREFIX "@slurm-ddp/life/"
/* How long an abort may take where the library does not say. */
#define DDP_LIFE_LIMIT_MS 10000U
/* A name of put and get: letters, digits, '.', '-', '_'; with the zero. */
#define DDP_LIFE_NAME 32
/* Bytes of a value: NCCL's unique id. */
#define DDP_LIFE_VALUE 128

/* In the order in which a process goes through them; aborting from any. */
enum ddp_life_state {
	DDP_LIFE_NONE,		/* neither MPI nor NCCL used so far */
	DDP_LIFE_STARTING,	/* MPI or a communicator is initialised */
	DDP_LIFE_READY,		/* that is done */
	DDP_LIFE_RUNNING,	/* a collective was called */
	DDP_LIFE_STOPPING,	/* communicators, then MPI are finalized */
	DDP_LIFE_ABORTING,
	DDP_LIFE_GONE,		/* nothing is left to be ended */
	DDP_LIFE_NSTATES
};

enum ddp_life_kind {
	DDP_LIFE_MSG_LIFE = 1,
	DDP_LIFE_MSG_STATE,
	DDP_LIFE_MSG_CAUSE,
	DDP_LIFE_MSG_ABORT,
	DDP_LIFE_MSG_LEFT,
	DDP_LIFE_MSG_WAITS,
	DDP_LIFE_MSG_PUT,
	DDP_LIFE_MSG_GET,
	DDP_LIFE_MSG_VALUE,
	DDP_LIFE_MSG_OTHER	/* a word of a later version: leave it out */
};

struct ddp_life_msg {
	enum ddp_life_kind kind;
	unsigned version;		/* LIFE */
	uint32_t pid;			/* LIFE */
	uint32_t limit_ms;		/* LIFE */
	uint64_t count;			/* LEFT, WAITS */
	bool mpi;			/* LEFT */
	enum ddp_life_state state;	/* STATE */
	int code;			/* CAUSE, ABORT: exit code, 0 to 255 */
	char text[DDP_LIFE_TEXT];	/* CAUSE, ABORT: printable */
	char name[DDP_LIFE_NAME];	/* PUT, GET, VALUE */
	uint8_t value[DDP_LIFE_VALUE];	/* PUT, VALUE */
	uint32_t size;			/* of the value, 1 or more */
};

/* Is this a name of put and get? */
bool ddp_life_is_name(const char *name);

/* "starting", …; "none" for what is no state. */
const char *ddp_life_state_name(enum ddp_life_state state);

/*
 * Write m as a line with a newline. Control bytes of the text become blanks.
 * Returns its length, or -1 if m is malformed or the line does not fit.
 */
int ddp_life_format(const struct ddp_life_msg *m, char *line, size_t size,
		    struct ddp_err *err);

/*
 * Read one packet of len bytes, which need not end with a newline or a zero.
 * Returns 0 or -1; *m is all zero then. The text is cut at its room.
 */
int ddp_life_parse(const char *line, size_t len, struct ddp_life_msg *m,
		   struct ddp_err *err);

#endif
