/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch decided and why, as lines for people. */
#ifndef DDP_EXPLAIN_H
#define DDP_EXPLAIN_H

#include "core/ddp_env.h"

/* line: one line without newline. had: what the user had set, or NULL. */
struct ddp_explain_ops {
	void (*line)(void *arg, const char *text);
	const char *(*had)(void *arg, const char *name);
	void *arg;
	bool places;		/* ranks get GPUs, if there are any */
};

/*
 * The step, its nodes and every variable with its value on rank 0 (facts of
 * other nodes are marked), its source and the user's own value. nodes:
 * Slurm's node list.
 */
void ddp_explain(const struct ddp_plan *plan, const char *nodes,
		 const struct ddp_explain_ops *ops);

#endif
