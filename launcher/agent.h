/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-agent: one process a node and step, the user's. It answers the gate,
 * watches the tasks and their slurmstepd, and ends what is left of the step
 * on this node when the controller says so or is gone.
 *
 *	agent_main	start, the ways to end
 *	agent_gate	what slurmstepd and the tasks say; the answer
 *	agent_dial	connections until one has proved the step's key
 *	agent_link	the connection to the controller
 *	agent_task	the tasks: who they are, how they end
 *	agent_abort	signal, grace, SIGKILL
 *	agent_step	the step's processes on this node
 *	agent_port	the master port; agent_diag: who listens on it
 *	agent_dir	the directory of the error files
 *	agent_meet	the socket of the life-cycle library, and who may use it
 *	agent_life	what its processes say, and are told
 *	agent_pair	values by name, for that library
 *	agent_place	the places of the tasks: a child that makes the plan
 *
 * One thread, one event loop; nothing blocks except reads of /proc.
 */
#ifndef AGENT_H
#define AGENT_H

#include "core/ddp_control.h"
#include "core/ddp_gate.h"
#include "core/ddp_life.h"
#include "core/ddp_wire.h"

#include <event2/event.h>

#include <sys/queue.h>
#include <sys/types.h>

struct bufferevent;
struct agent_mate;
struct agent_pair;

enum agent_life {
	TASK_NONE,		/* not forked yet */
	TASK_LIVE,
	TASK_REAPED,		/* gone before its status was read: it comes
				 * from slurmstepd, or never */
	TASK_ENDED
};

struct agent_task {
	struct agent *a;
	enum agent_life life;
	bool here;		/* waits at the gate: rank is the global one */
	bool told;		/* EXIT was sent */
	bool dying;		/* DYING was found at ABORT */
	uint32_t dying_of;	/* status it had then, if that was known */
	uint8_t flags;
	uint32_t local, rank;
	pid_t pid;
	int pidfd;
	struct event *event;	/* pidfd, or how long to wait for a status */
	uint64_t start;		/* see ddp_proc_stat; 0 if not seen alive */
	uint32_t status;
	uint64_t when_us;
	char *why;		/* it ends before its program: said itself */
	char *cgmem;		/* see ddp_cgmem.h; NULL if not known */
	uint64_t kills;
	struct agent_mate *lead;	/* whose state is the rank's, or NULL */
	uint32_t lead_depth;	/* of the nearest that ever was */
	uint32_t leads;		/* how many there have been */
	uint32_t nmates;	/* connected processes */
	uint8_t state, state_told;	/* enum ddp_life_state */
};

/* A process that uses the life-cycle library. */
struct agent_mate {
	TAILQ_ENTRY(agent_mate) link;
	struct agent *a;
	struct event *event;
	int fd;
	pid_t pid;
	uint64_t start;		/* of the process; 0: not known */
	uint32_t local, depth;	/* its task; generations between the two */
	uint32_t limit_ms;	/* an abort may take so long */
	unsigned lines;
	bool greeted;		/* it has said "life" */
	bool first;		/* of the task's first program that does */
	bool ordered;		/* it was told to abort */
	bool blamed, left, waits;	/* it has said so */
	char wants[DDP_LIFE_NAME];	/* waits for this value; "" */
};
TAILQ_HEAD(agent_mates, agent_mate);

struct agent_life_socket {
	int fd;			/* -1: the library is not used */
	struct event *event, *flush, *rest;
	unsigned work;		/* since the last rest; see agent_meet.c */
	char name[64];
	struct agent_mates mates;
	unsigned nmates;
	struct agent_pair *pairs;
	unsigned npairs;
	uint64_t left_at;	/* the lowest of LEFT; UINT64_MAX: none */
	bool wanted;		/* they are to be told, and waited for */
	uint8_t code;		/* of the abort */
	uint32_t wait_ms;	/* what it may take at most */
	char why[DDP_LIFE_TEXT];
};

/*
 * A few groups or sessions, each once. `until`: a task was in it then, see
 * ddp_proc_stat.start; later the number may be somebody else's.
 */
struct agent_pids {
	struct agent_pid {
		pid_t pid;
		uint64_t until;
	} *v;
	unsigned n, size;
};

/* A process of this user, see agent_step.c. */
struct agent_proc {
	pid_t pid, ppid;
	uint64_t start;
	bool ours, rank;
	bool spared;		/* a TaskEpilog, or of one */
};

struct agent_procs {
	struct agent_proc *v;
	size_t n, size;
};

enum agent_abort_state {
	ABORT_NO,
	ABORT_LATER,		/* tasks at the gate may end themselves */
	ABORT_ORDER,		/* processes end by themselves, in order */
	ABORT_GRACE,
	ABORT_SWEEP,
	ABORT_DONE
};

struct agent_abort {
	enum agent_abort_state state;
	struct event *timer;
	int signal;
	uint32_t grace_ms;
	bool counted;		/* what is stopped */
	uint32_t stopped, others;
	uint64_t give_up_us;
	unsigned round, quiet;
	struct agent_procs last;	/* of the round before */
	struct agent_procs seen;	/* while the tasks still lived */
	struct event *look;
};

enum agent_link_state { LINK_NONE, LINK_DIALS, LINK_UP, LINK_CLOSED };

struct agent_dial;

struct agent_link {
	enum agent_link_state state;
	struct agent_dial *dial;	/* while LINK_DIALS */
	struct bufferevent *bev;	/* while LINK_UP */
	struct event *timer;
	uint32_t ping_ms, silence_ms;
	uint64_t heard_us, ping_us;	/* last byte; next PING */
	uint64_t wake_us;		/* when the timer should fire */
	bool bye;
};

struct agent_port {
	int fd;			/* bound, never listens; -1 */
	uint16_t port;		/* 0: not ours to watch */
	struct event *timer;
	uint32_t wait_ms;
	uint64_t give_up_us;
};

enum agent_place_state { PLACE_NO, PLACE_WAITS, PLACE_RUNS, PLACE_DONE };

struct agent_place {
	enum agent_place_state state;
	pid_t child;
	int go, result;		/* pipes to and from it, -1 */
	struct event *event, *timer;
	char why[DDP_ERR_TEXT];	/* no plan will come; "" */
	uint32_t asks;		/* tasks that want a place */
	unsigned refused;	/* tasks */
};

struct agent {
	struct event_base *base;
	struct ddp_gate gate;
	struct event *gate_event, *stepd_event, *start_timer, *end_timer;
	bool have_conf, answered, opened, ready_sent, stepd_gone, ending;
	struct ddp_gate_conf conf;
	bool alone;		/* no controller: here for the places alone */
	struct ddp_control control;
	int stepd;		/* pidfd */
	pid_t stepd_pgrp, stepd_session;
	uint32_t node;		/* global index, once a task is here */
	struct agent_task *tasks;	/* by local id */
	uint32_t ntasks, nhere;
	uint64_t oldest;	/* slurmstepd's start: no process of the step
				 * is older */
	uint64_t first_end;	/* of a task, as ddp_proc_stat.start; 0 */
	uint64_t walk_from, walk_to;	/* the last agent_step_list() */
	struct agent_pids groups, sessions;	/* of the tasks */
	uint8_t end_signal;	/* without a controller */
	uint32_t end_grace_ms;
	struct agent_link link;
	struct agent_abort abort;
	struct agent_port port;
	struct agent_place place;
	struct agent_life_socket life;
	int dir;		/* of the error files, -1 */
	char dir_name[DDP_GATE_DIR_MAX];
};

/* Microseconds of the monotonic clock. */
uint64_t agent_now_us(void);

/* (Re)arm *timer: made at its first use. */
void agent_timer(struct agent *a, struct event **timer, uint32_t ms,
		 event_callback_fn fn, void *arg);
void agent_event_free(struct event **event);

/* --- agent_main: what the parts tell each other */
void agent_on_up(struct agent *a);
void agent_on_message(struct agent *a, const struct ddp_msg *m);
/* The connection is closed or silent; there will be no other. */
void agent_on_lost(struct agent *a, const char *why);
/* Call after anything that may have been the last: may begin the end. */
void agent_check(struct agent *a);

/* --- agent_gate */
int agent_gate_start(struct agent *a);
/* Read what is there already. */
void agent_gate_drain(struct agent *a);
void agent_gate_open(struct agent *a, const struct ddp_msg *plan);
void agent_gate_stateless(struct agent *a, uint16_t port, const char *text,
			  size_t len);
void agent_gate_refuse(struct agent *a, const char *text);

/* --- agent_dial, agent_link */
/* 0, or -1: cannot even start. */
int agent_dial_start(struct agent *a);
void agent_dial_stop(struct agent *a);
/* What was tried and how it failed, as text. */
void agent_dial_report(const struct agent *a, char *buf, size_t size);

/* The next message of a connection: 1, 0: not there yet, -1: not valid.
 * *drop bytes are to be drained once it was used. */
int agent_link_next(struct bufferevent *bev, size_t limit, struct ddp_msg *m,
		    size_t *drop);
int agent_link_put(struct bufferevent *bev, const struct ddp_msg *m);
void agent_link_take(struct agent *a, struct bufferevent *bev,
		     const struct ddp_msg *welcome);
/* Nothing if the link is not up. */
void agent_link_send(struct agent *a, const struct ddp_msg *m);
void agent_link_note(struct agent *a, enum ddp_note kind, const char *text);
void agent_link_close(struct agent *a);

/* --- agent_task */
int agent_task_init(struct agent *a);
void agent_task_add(struct agent *a, const struct ddp_gate_msg *m, int pidfd);
void agent_task_here(struct agent *a, const struct ddp_gate_msg *m);
void agent_task_exited(struct agent *a, const struct ddp_gate_msg *m);
/* What ended and was not looked at yet. */
void agent_task_poll(struct agent *a);
/* slurmstepd is gone: nobody will tell a status any more. */
void agent_task_orphans(struct agent *a);
/* Before the programs start. */
void agent_task_opened(struct agent *a);
void agent_task_tell(struct agent *a);
/* The task will end, and this is why. */
void agent_task_why(struct agent *a, uint32_t local, const char *why);
/* Look who has a handler for SIGTERM, and which groups the tasks are in; with
 * every PING. */
void agent_task_sample(struct agent *a);
/* Note in which groups and sessions the live tasks are now. */
void agent_task_groups(struct agent *a);
/* True once no task is live and none can come. */
bool agent_task_all_gone(const struct agent *a);
/* True if there are live tasks and none of them may run: all are stopped or
 * frozen. */
bool agent_task_suspended(const struct agent *a);
void agent_task_free(struct agent *a);

/* --- agent_step */
void agent_pids_add(struct agent_pids *p, pid_t pid, uint64_t until);
struct agent_pid *agent_pids_find(const struct agent_pids *p, pid_t pid);
/* The clock of ddp_proc_stat.start. */
uint64_t agent_now_ticks(void);
/* All live processes of this user that are not older than slurmstepd.
 * 0 or -1. */
int agent_step_list(struct agent *a, struct agent_procs *list);
const struct agent_proc *agent_procs_find(const struct agent_procs *list,
					  pid_t pid);

/* --- agent_abort */
void agent_abort_start(struct agent *a, int sig, uint32_t grace_ms,
		       bool later);
/* A task is gone. */
void agent_abort_check(struct agent *a);
/* A process that was told to end in order is gone. */
void agent_abort_ordered(struct agent *a);
void agent_abort_free(struct agent *a);

/* --- agent_port, agent_diag */
void agent_port_reserve(struct agent *a, const struct ddp_msg *m);
/* The plan is out: look who comes. */
void agent_port_watch(struct agent *a);
/* Rank 0 failed: a last look. */
void agent_port_failed(struct agent *a);
void agent_port_free(struct agent *a);

#define AGENT_LISTENERS 8
struct agent_listener {
	uid_t uid;
	uint64_t inode;
};

/* Who listens on a TCP port of this host: how many, at most max; -1 if the
 * kernel does not say. */
int agent_diag_listeners(uint16_t port, struct agent_listener *out,
			 unsigned max);

/* --- agent_place */
/* Once it is known what the step is. */
void agent_place_start(struct agent *a);
/* A task has come; does it want to be placed, and has it GPUs? */
void agent_place_here(struct agent *a, bool asks, bool gpus);
/* True as long as tasks wait for their places. */
bool agent_place_pending(const struct agent *a);
void agent_place_free(struct agent *a);

/* --- agent_life */
void agent_life_init(struct agent *a);
/* agent_meet.c. Before the gate opens: a socket, and its name for the tasks. */
void agent_life_start(struct agent *a);
/* It has connected: pid, a process of task `local`, depth generations below it.
 * fd is taken. */
void agent_life_new(struct agent *a, int fd, pid_t pid, uint32_t local,
		    uint32_t depth);
void agent_life_free(struct agent *a);
void agent_life_on_order(struct agent *a, const struct ddp_msg *m);
void agent_life_on_left(struct agent *a, const struct ddp_msg *m);
/* What the processes are told, with the code of ORDER. */
void agent_life_why(struct agent *a, const char *why);
/* Tells all processes to abort, if that is wanted. Returns how long (ms) they
 * may take; 0: there is none. */
uint32_t agent_life_order(struct agent *a);
bool agent_life_any(const struct agent *a);

/* --- agent_pair */
void agent_pair_take(struct agent_mate *m, const struct ddp_life_msg *l);
void agent_pair_on_value(struct agent *a, const struct ddp_msg *m);
void agent_pair_free(struct agent *a);

/* --- agent_dir */
void agent_dir_make(struct agent *a);
/* The message in a rank's error file; "" without one. */
void agent_dir_message(struct agent *a, uint32_t rank, char *buf,
		       size_t size);
void agent_dir_remove(struct agent *a);

#endif
