/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on the control channel between the agents (one a node) and the
 * controller (one a step).
 *
 *	frame   := length:u32 payload	length of the payload, 1 … limit
 *	payload := type:u8 fields	as in struct ddp_msg, big endian;
 *					a text is length:u16 bytes, without NUL
 *
 * A payload must be used up to its last byte. Before a peer has proved that
 * it knows the step's key no frame may be longer than DDP_WIRE_FIRST_MAX.
 *
 *	agent                        controller
 *	HELLO (version first)  →
 *	                       ←     CHALLENGE (the controller's proof)
 *	AUTH (the agent's)     →
 *	                       ←     WELCOME
 *	                       ←     RESERVE (rank 0's node only)
 *	PORT                   →
 *	READY (all local tasks wait before their exec)
 *	                       →
 *	                       ←     PLAN (once every node is ready)
 *	PING, EXIT, DYING, NOTE →    PONG
 *	                       ←     ABORT
 *	GONE, BYE              →     (closes)
 *
 * Where the plan says DDP_PLAN_LIFE, also about the processes that use the
 * life-cycle library (core/ddp_life.h):
 *
 *	STATES, BLAME, LEFT, WAITS, PUT, GET
 *	                       →
 *	                       ←     LEFT, VALUE, ORDER (before ABORT)
 */
#ifndef DDP_WIRE_H
#define DDP_WIRE_H

#include "core/ddp_err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DDP_WIRE_VERSION 1
#define DDP_WIRE_MAGIC 0x44445043U	/* "DDPC" */

#define DDP_WIRE_HEAD 4U		/* bytes of the length */
#define DDP_WIRE_FIRST_MAX 512U		/* payload before authentication */
#define DDP_WIRE_MAX (256U * 1024)	/* payload after it */

#define DDP_KEY_BYTES 32
#define DDP_NONCE_BYTES 32
#define DDP_MAC_BYTES 32

#define DDP_WIRE_NAME 128		/* node name, with the NUL */
#define DDP_WIRE_TEXT 2048		/* other texts, with the NUL */
#define DDP_WIRE_TASKS 16384U		/* tasks of a node */

/* A wait status that nobody could tell. */
#define DDP_STATUS_UNKNOWN UINT32_MAX

enum ddp_msg_type {
	DDP_MSG_HELLO = 1,
	DDP_MSG_CHALLENGE,
	DDP_MSG_AUTH,
	DDP_MSG_WELCOME,
	DDP_MSG_RESERVE,
	DDP_MSG_PORT,
	DDP_MSG_READY,
	DDP_MSG_PLAN,
	DDP_MSG_PING,
	DDP_MSG_PONG,
	DDP_MSG_EXIT,
	DDP_MSG_DYING,
	DDP_MSG_NOTE,
	DDP_MSG_ABORT,
	DDP_MSG_GONE,
	DDP_MSG_BYE,
	DDP_MSG_STATES,
	DDP_MSG_BLAME,
	DDP_MSG_LEFT,
	DDP_MSG_WAITS,
	DDP_MSG_ORDER,
	DDP_MSG_PUT,
	DDP_MSG_GET,
	DDP_MSG_VALUE,
	DDP_MSG_LAST = DDP_MSG_VALUE
};

/* EXIT: what the agent knew when the rank ended. */
#define DDP_EXIT_AFTER_ABORT 1U	/* after ABORT had reached this node */
#define DDP_EXIT_CAUGHT_TERM 2U	/* it had a handler for SIGTERM */
#define DDP_EXIT_BEFORE_PLAN 4U	/* before its program was started */
#define DDP_EXIT_OOM 8U		/* the kernel counted an out-of-memory kill */

/* NOTE */
enum ddp_note {
	DDP_NOTE_STEPD_DIED = 1,	/* slurmstepd of this node */
	DDP_NOTE_PORT_STOLEN,		/* text: who listens there */
	DDP_NOTE_PORT_USED,		/* rank 0's program listens there */
	DDP_NOTE_WARNING,		/* text: for the user */
	DDP_NOTE_LAST = DDP_NOTE_WARNING
};

/* PLAN */
#define DDP_PLAN_STATELESS 1U	/* start without the control channel's port */
#define DDP_PLAN_LIFE 2U	/* listen to the life-cycle library */

/* Names and values of PUT, GET and VALUE: ddp_life.h's, as text and in hex. */
#define DDP_WIRE_KEY 32
#define DDP_WIRE_VALUE 257

struct ddp_wire_task {
	uint32_t rank;		/* global */
	uint32_t local;
	uint32_t pid;
};

struct ddp_wire_state {
	uint32_t rank;
	uint8_t state;		/* enum ddp_life_state */
};

struct ddp_msg {
	enum ddp_msg_type type;
	union {
		struct {	/* magic:u32 version:u8 … */
			uint8_t version;
			uint32_t job, step;
			char name[DDP_WIRE_NAME];	/* SLURMD_NODENAME */
			uint8_t nonce[DDP_NONCE_BYTES];
		} hello;
		struct {
			uint8_t nonce[DDP_NONCE_BYTES];
			uint8_t mac[DDP_MAC_BYTES];
		} challenge;
		struct {
			uint8_t mac[DDP_MAC_BYTES];
		} auth;
		struct {
			uint32_t ping_ms;	/* send PING this often */
			uint32_t silence_ms;	/* the peer is lost after */
			uint8_t signal;		/* to end ranks with if the */
			uint32_t grace_ms;	/* controller is lost */
		} welcome;
		struct {
			uint16_t port;		/* this one; with lo…hi: first
						 * this, then any of these */
			uint16_t lo, hi;	/* all 0: the kernel's choice */
		} reserve;
		struct {
			uint16_t port;		/* 0: not reserved, see text */
			char text[DDP_WIRE_TEXT];
		} port;
		struct {	/* node:u32 now_us:u64 n:u32 n × 3 × u32 */
			uint32_t node;		/* global node index */
			uint64_t now_us;
			uint32_t ntasks;
			const uint8_t *raw;	/* see ddp_wire_task() */
			const struct ddp_wire_task *tasks; /* to encode */
		} ready;
		struct {	/* text has a length:u32 */
			uint8_t flags;
			uint16_t port;		/* 0: as in text */
			const char *text;	/* a whole plan, no NUL */
			uint32_t len;		/* 0: the plan of srun */
		} plan;
		struct {
			uint64_t now_us;
		} ping, pong;
		struct {
			uint32_t rank, pid, status;
			uint64_t when_us;
			uint8_t flags;
			char text[DDP_WIRE_TEXT];	/* the error file's */
		} exit;
		struct {	/* when ABORT came this rank was already
				 * being ended by a signal */
			uint32_t rank;
			uint64_t when_us;
		} dying;
		struct {
			uint8_t kind;
			char text[DDP_WIRE_TEXT];
		} note;
		struct {
			uint8_t signal;		/* then SIGKILL after … */
			uint32_t grace_ms;
			char text[DDP_WIRE_TEXT];	/* why */
		} abort;
		struct {
			uint32_t stopped;	/* ranks that had to be ended */
			uint32_t others;	/* other processes of the step */
			uint32_t left;		/* still there */
		} gone;
		struct {	/* n:u32 n × (rank:u32 state:u8) */
			uint32_t n;
			const uint8_t *raw;	/* see ddp_wire_state() */
			const struct ddp_wire_state *list;	/* to encode */
		} states;
		struct {	/* a process of this rank aborts, and why */
			uint32_t rank, pid;
			uint64_t when_us;
			uint8_t code, flags;	/* DDP_EXIT_… */
			char text[DDP_WIRE_TEXT];
		} blame;
		struct {	/* it ends with 0, and others may wait for it */
			uint32_t rank;
			uint64_t count;
			uint8_t mpi;
		} left;
		struct {	/* it waits for who has left after count */
			uint32_t rank;
			uint64_t count;
		} waits;
		struct {	/* of the next ABORT: what its processes are
				 * told, and how long they may take */
			uint8_t code;
			uint32_t wait_ms;
		} order;
		struct {
			char name[DDP_WIRE_KEY];
			char value[DDP_WIRE_VALUE];	/* not of GET */
		} pair;
	} u;
};

/*
 * Write the whole frame into buf. Returns its length, or 0 if it does not
 * fit or the message is not valid. Texts are cut at DDP_WIRE_TEXT - 1.
 */
size_t ddp_wire_encode(const struct ddp_msg *m, uint8_t *buf, size_t size);

/* Bytes that ddp_wire_encode() needs at most for this message. */
size_t ddp_wire_bound(const struct ddp_msg *m);

/*
 * Read a payload. Returns 0, or -1 with *err. u.plan.text and u.ready.raw
 * point into the payload.
 */
int ddp_wire_decode(struct ddp_msg *m, const uint8_t *payload, size_t len,
		    struct ddp_err *err);

/* Task i of a decoded READY. */
struct ddp_wire_task ddp_wire_task(const struct ddp_msg *m, uint32_t i);

/* Entry i of a decoded STATES. */
struct ddp_wire_state ddp_wire_state(const struct ddp_msg *m, uint32_t i);

/* The length in the first DDP_WIRE_HEAD bytes of a frame. */
uint32_t ddp_wire_length(const uint8_t *head);

/* Name of a message type, for logs. */
const char *ddp_wire_name(enum ddp_msg_type type);

#endif
