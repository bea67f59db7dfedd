/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-controller: one a step, child of srun, of the user's uid. It brings
 * the nodes' agents together, lets the step start, sees the first failure,
 * ends the rest and says why.
 *
 *   ctl_main.c    life: start, event loop, end
 *   ctl_conf.c    what srun told, and the tables made of it
 *   ctl_srun.c    the channel to srun, and srun's own end
 *   ctl_accept.c  new connections, as hostile as they may be
 *   ctl_peer.c    frames in and out of one connection
 *   ctl_auth.c    the handshake
 *   ctl_msg.c     what an agent says after it
 *   ctl_plan.c    barrier, master port, plan
 *   ctl_watch.c   silence, early ends
 *   ctl_fail.c    a failure: suspect or not, abort, last resort
 *   ctl_life.c    what the processes of the life-cycle library say
 *   ctl_pair.c    values by name, for that library
 *   ctl_end.c     the end of the step, as srun tells it
 *   ctl_helper.c  child processes: Slurm is asked by ddp-launch
 *   ctl_report.c  the lines for the user
 *   ctl_json.c    the report file, and the answer to ddp-status
 *   ctl_status.c  the status socket
 *
 * Life of a step: WAIT → RUN → (ABORT | CANCELLED), or WAIT → STATELESS.
 * All state hangs on one struct ctl; one thread; nothing blocks.
 */
#ifndef CTL_H
#define CTL_H

#include "core/ddp_cause.h"
#include "core/ddp_ctlconf.h"
#include "core/ddp_errfile.h"
#include "core/ddp_io.h"
#include "core/ddp_life.h"
#include "core/ddp_plan.h"
#include "core/ddp_wire.h"

#include <sys/queue.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#define CTL_NONE UINT32_MAX

/* Connections that have not proved anything yet, beside awaited nodes. */
#define CTL_STRANGERS 1024
#define CTL_STRANGER_MS 5000

/* Longest wait for what is still to come after srun's "exit". */
#define CTL_EXIT_MS 1000
/* An agent ends what is left of its node in this time after the grace. */
#define CTL_KILL_MS 5000
/* srun waits for lost nodes: it is ended after this. */
#define CTL_QUIT_MS 5000
/* Slurm ends a cancelled step by itself (KillWait): longest wait for that. */
#define CTL_CANCEL_MS 120000
#define CTL_EARLY_MS 30000
#define CTL_ASK_MS 3000

enum ctl_phase { CTL_WAIT, CTL_RUN, CTL_STATELESS, CTL_ABORT, CTL_CANCELLED };

enum ctl_peer_state { PEER_NEW, PEER_SHAKING, PEER_WELCOME, PEER_READY };

/* A frame to many peers; freed with the last of them. */
struct ctl_frame {
	unsigned refs;
	size_t len;
	uint8_t data[];
};

struct ctl_pair;

/* What the kernel would not take at once. */
struct ctl_out {
	STAILQ_ENTRY(ctl_out) link;
	struct ctl_frame *frame;
	size_t done;
};

/* Only while the handshake lasts. */
struct ctl_shake {
	char name[DDP_WIRE_NAME];
	uint8_t theirs[DDP_NONCE_BYTES], ours[DDP_NONCE_BYTES];
	int64_t sent_us;
};

struct ctl_peer {
	struct event ev;
	TAILQ_ENTRY(ctl_peer) link;
	struct ctl *ctl;
	struct ctl_shake *shake;
	STAILQ_HEAD(, ctl_out) out;
	uint8_t *in;		/* the begin of a frame, or NULL */
	uint32_t in_len;
	uint32_t node;		/* global node index, known with READY */
	uint32_t name;		/* a node index of this name */
	uint32_t slack_us;
	int64_t offset_us;	/* our clock less the agent's */
	int64_t heard_us;
	int fd;
	uint8_t state;
	uint8_t nout;
	bool bye, aborted, closing;
};
TAILQ_HEAD(ctl_peers, ctl_peer);

enum ctl_node_state {
	NODE_ABSENT,
	NODE_READY,		/* its tasks wait, or run */
	NODE_DONE,		/* BYE: its ranks have ended */
	NODE_LOST
};

struct ctl_node {
	struct ctl_peer *peer;	/* NULL: not there yet, or not any more */
	const char *name;
	uint32_t live;		/* ranks that have not ended */
	uint32_t stopped, others, left;	/* as GONE says */
	uint16_t agents;	/* that have proved themselves, of this name */
	uint8_t state;
	bool seen;		/* such an agent was there */
	bool aborted;		/* ABORT was sent to it */
	bool gone;		/* and it has said GONE */
	bool settled;		/* nothing more is to come from it */
};

enum ctl_rank_state { RANK_WAITING, RANK_RUNNING, RANK_ENDED };

struct ctl_rank {
	uint32_t node;		/* CTL_NONE until its node is ready */
	uint32_t pid;
	uint32_t status;
	uint8_t state, flags;
	uint8_t life;		/* enum ddp_life_state */
	bool dying;
	bool blamed;		/* it has said why it aborts */
	int64_t when_us;	/* of its end or of DYING */
	int64_t left_us;	/* exit(0) while others may wait for it */
};

/* A helper process and its answer. */
struct ctl_helper {
	pid_t pid;		/* 0: none */
	int fd;
	struct event *ev, *timer;
	char answer[32];
	size_t len;
	void (*done)(struct ctl *ctl, const char *answer);
	struct ctl *ctl;
};

struct ctl {
	struct event_base *base;
	struct ddp_ctlconf conf;
	struct ddp_plan plan;
	enum ctl_phase phase;
	int64_t start_us, plan_us;	/* plan_us 0: not sent */
	int64_t real_us;	/* wall clock less ours */

	/* the step */
	struct ctl_node *nodes;
	struct ctl_rank *ranks;
	uint32_t *by_name;	/* node indices, sorted by name */
	uint32_t nnodes, nranks;
	uint32_t needed;	/* nodes that have tasks */
	uint32_t ready, lost, settled;	/* of these */
	uint32_t mute;		/* whose slurmstepd died: srun hears no more */
	uint32_t live;		/* ranks */
	uint16_t port;
	bool port_asked, port_known, port_used;

	/* connections */
	struct ctl_peers strangers, shaking, agents;
	unsigned nstrangers, nshaking, max_strangers;
	unsigned refused;	/* wrong peers */
	unsigned warnings;
	size_t frame_max;	/* of an agent */
	struct event *listen, *listen_again, *stranger_timer, *silence_timer;
	struct event *vanished_timer;
	uint32_t vanished;	/* a node whose agent left before READY */
	uint32_t ping_ms;
	int64_t silence_due_us;	/* when silence_timer should fire */
	int64_t still_us, still_for_us;	/* this process did not run: until
					 * when, how long at least */

	/* failure */
	struct ddp_cause *events;
	char **texts;		/* what each event's EXIT or NOTE said */
	size_t nevents, max_events, ntexts;
	size_t acted;		/* events that --ddp-abort was applied to */
	int64_t same_us, same_grown_us;	/* ranks end by one signal: since, */
	uint32_t same_killed;		/* the last; how many */
	int64_t abort_us;	/* 0: no ABORT was sent */
	int64_t last_end_us;
	int64_t running_us;	/* Slurm said so */
	bool asking, launch_failed, rechecked, killed;
	struct ctl_helper ask, kill;
	struct event *start_timer, *early_timer, *recheck_timer, *kill_timer;
	uint32_t early_rank;	/* first with exit code 0, or CTL_NONE */
	bool early_said;

	/* the life-cycle library */
	uint32_t life[DDP_LIFE_NSTATES];	/* ranks in each state */
	struct event *ready_timer, *left_timer;
	bool ready_armed;
	uint32_t left_mpi;	/* first without MPI_Finalize, or CTL_NONE */
	uint32_t left_rank;	/* with the lowest count, */
	uint64_t left_count;	/* which is this, */
	unsigned left_told;	/* if the agents were told of any */
	bool left_blamed;
	struct ctl_pair *pairs;
	unsigned npairs, pairs_said;

	/* the end */
	struct event *end_timer, *quit_timer, *last_timer;
	bool report_warned;
	bool srun_gone, exit_asked, reported, finished, quit_sent, draining;
	int exit_status, code;
	struct bufferevent *srun;
	struct event *srun_pid;
	int srun_pidfd;
	struct event *signals[5];

	/* status socket */
	struct event *status_ev;
	pid_t status_pids[8];
	char last_event[256];
};

/* ctl_conf.c: 0, or -1 with *err. rest: what followed the configuration. */
int ctl_conf_read(struct ctl *ctl, int fd, char *rest, size_t size,
		  struct ddp_err *err);
int ctl_conf_tables(struct ctl *ctl, struct ddp_err *err);
/* A node index by name, CTL_NONE if there is none. */
uint32_t ctl_conf_node(const struct ctl *ctl, const char *name);
void ctl_conf_clear(struct ctl *ctl);

/* ctl_srun.c */
int ctl_srun_start(struct ctl *ctl, int fd, const char *rest);
/* A line for the user. Never blocks. */
void ctl_say(struct ctl *ctl, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void ctl_srun_tell(struct ctl *ctl, const char *word, int code);
/* Calls the end of the loop once everything is written, or soon anyway. */
void ctl_srun_drain(struct ctl *ctl);

/* ctl_accept.c */
int ctl_accept_start(struct ctl *ctl, int fd);
void ctl_accept_stop(struct ctl *ctl);
void ctl_accept_refuse(struct ctl_peer *p);

/* ctl_peer.c */
struct ctl_peer *ctl_peer_new(struct ctl *ctl, int fd);
void ctl_peer_free(struct ctl_peer *p);
void ctl_peer_send(struct ctl_peer *p, const struct ddp_msg *m);
struct ctl_frame *ctl_frame_new(const struct ddp_msg *m);
void ctl_frame_put(struct ctl_frame *f);
void ctl_peer_send_frame(struct ctl_peer *p, struct ctl_frame *f);
/* The peer broke the protocol, or its connection ended. */
void ctl_peer_drop(struct ctl_peer *p, const char *why);

/* ctl_auth.c, ctl_msg.c: -1: the peer must be dropped. */
int ctl_auth_message(struct ctl_peer *p, const struct ddp_msg *m);
int ctl_msg_message(struct ctl_peer *p, const struct ddp_msg *m);

/* ctl_plan.c */
void ctl_plan_start(struct ctl *ctl);
/* All tasks have ended: if the step never came together, that is why. */
void ctl_plan_over(struct ctl *ctl);
int ctl_plan_ready(struct ctl_peer *p, const struct ddp_msg *m);
int ctl_plan_port(struct ctl_peer *p, const struct ddp_msg *m);
/* "n1, n2 and 3 more" of the nodes that fit, into buf. */
unsigned ctl_plan_names(const struct ctl *ctl,
			bool (*fits)(const struct ctl_node *n), char *buf,
			size_t size);

/* ctl_watch.c */
void ctl_watch_node(struct ctl *ctl, uint32_t node, enum ctl_node_state state);
/* A timer at *ev, made when it is needed; ms from now. */
void ctl_timer(struct ctl *ctl, struct event **ev, event_callback_fn fn,
	       int64_t ms);
void ctl_watch_start(struct ctl *ctl);
/* Something was received: has this process stood still before that? */
void ctl_watch_awake(struct ctl *ctl);
/* An agent's connection has ended. */
void ctl_watch_closed(struct ctl_peer *p, const char *why);
void ctl_watch_heard(struct ctl_peer *p, uint64_t now_us);
int64_t ctl_watch_time(const struct ctl_peer *p, uint64_t when_us);
void ctl_watch_lost(struct ctl_peer *p, const char *why, int64_t when_us);
void ctl_watch_early(struct ctl *ctl, uint32_t rank);

/* ctl_fail.c */
void ctl_fail(struct ctl *ctl, const struct ddp_cause *c, const char *text);
/* The launch failed; node is CTL_NONE or an index. */
void ctl_fail_sweep(struct ctl_peer *p);
void ctl_fail_launch(struct ctl *ctl, uint32_t node, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void ctl_fail_abort_node(struct ctl *ctl, uint32_t node);
void ctl_fail_peer(struct ctl_peer *p);
void ctl_fail_progress(struct ctl *ctl);

/* ctl_life.c, ctl_pair.c: -1: the peer must be dropped. */
int ctl_life_message(struct ctl_peer *p, const struct ddp_msg *m);
int ctl_pair_message(struct ctl_peer *p, const struct ddp_msg *m);
void ctl_pair_clear(struct ctl *ctl);
void ctl_life_set(struct ctl *ctl, uint32_t rank, uint8_t state);
/* What goes before an ABORT: NULL where the library is not used. */
struct ctl_frame *ctl_life_order(const struct ctl *ctl);
/* How long processes may end by themselves, before the signal. */
uint32_t ctl_life_ms(const struct ctl *ctl);

/* ctl_end.c: looks whether the step's end can be told. */
void ctl_end_check(struct ctl *ctl);
void ctl_end_exit(struct ctl *ctl, int status);
void ctl_end_srun_gone(struct ctl *ctl);
bool ctl_end_settled(const struct ctl *ctl);

/* ctl_helper.c */
int ctl_helper_start(struct ctl *ctl, struct ctl_helper *h,
		     const char *option,
		     void (*done)(struct ctl *ctl, const char *answer));
void ctl_helper_reap(struct ctl *ctl);
void ctl_helper_stop(struct ctl *ctl);

/* What ABORT ended: ranks, by how; and what else was there. */
struct ctl_stopped {
	uint32_t ranks, nodes, by_signal, by_kill;
	uint32_t others, left;
	int64_t last_us;	/* the last of these ranks; 0: none */
	int64_t kill_us;	/* the first that SIGKILL ended; 0: none */
};

/* ctl_report.c */
void ctl_report_stopped(const struct ctl *ctl, struct ctl_stopped *s);
/* Failures that were none of our doing. */
size_t ctl_report_failures(const struct ctl *ctl);
/* So far nothing was heard of what ABORT did there, or it is lost. */
bool ctl_report_unanswered(const struct ctl_node *n);
const struct ddp_cause *ctl_report_cause(const struct ctl *ctl, size_t *index);
void ctl_report_say(struct ctl *ctl);
void ctl_report_line(const struct ctl *ctl, size_t event, char *buf,
		     size_t size);
const char *ctl_report_status(const struct ctl *ctl);

/* ctl_json.c */
/* A warning now if no report could be written later. */
void ctl_json_check(struct ctl *ctl);
void ctl_json_report(struct ctl *ctl);
struct _IO_FILE;
int ctl_json_write(const struct ctl *ctl, struct _IO_FILE *f, bool live);

/* ctl_status.c */
void ctl_status_start(struct ctl *ctl);
void ctl_status_reaped(struct ctl *ctl, pid_t pid);
void ctl_status_stop(struct ctl *ctl);

#endif
