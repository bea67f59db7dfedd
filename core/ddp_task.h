/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last step of a launch, in the task itself: what only the node knows is
 * looked up and the environment is set. The same for the plugin's task_init
 * and for the ddp-launch program; they differ in how they reach the
 * environment.
 */
#ifndef DDP_TASK_H
#define DDP_TASK_H

#include "core/ddp_env.h"

/*
 * get: value of a variable into buf, cut if need be; returns false if it is
 * not set. set: 0, or -1; with overwrite false an existing value stays.
 * say: one line for the user, without newline.
 */
struct ddp_task_ops {
	bool (*get)(void *arg, const char *name, char *buf, size_t size);
	int (*set)(void *arg, const char *name, const char *value,
		   bool overwrite);
	void (*say)(void *arg, const char *text);
	void *arg;
};

/* A task: fill rank, local, node, nodename and plan; the rest is found. */
struct ddp_task {
	struct ddp_plan plan;
	struct ddp_rank r;
	char ifname[DDP_IFNAME_MAX];
	const char *library;	/* path of libddp_lifecycle.so here */
	char *preload;		/* malloc'ed; see ddp_task_clear() */
	bool torchrun;	/* the command runs torchrun: one task a node is right */
	bool held;	/* the agent holds the master port, and looks after it */
	bool again;	/* a plan already carried out once: no checks, hints */
};

/*
 * Is one of these the program `name`, with or without a path? NULL-safe;
 * argc counts at most the entries up to a NULL.
 */
bool ddp_task_argv_has(int argc, char *const *argv, const char *name);

/* Does the command start torchrun, under one of its names? */
bool ddp_task_argv_torchrun(int argc, char *const *argv);

/*
 * What can be said of the plan on this node before the launch has come
 * together; with plan.life, t->library must be set. Returns 0, or -1 with *err.
 */
int ddp_task_check(struct ddp_task *t, struct ddp_err *err);

/*
 * Check the plan against this node (port free on rank 0's, interface there,
 * no loopback master across hosts), then set every variable. Returns 0, or
 * -1 with *err; the program must not be started then.
 */
int ddp_task_apply(struct ddp_task *t, const struct ddp_task_ops *ops,
		   struct ddp_err *err);

/* Frees the plan and what apply has made. */
void ddp_task_clear(struct ddp_task *t);

#endif
