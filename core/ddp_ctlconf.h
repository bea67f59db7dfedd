/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What srun tells its controller, and what they say to each other while the
 * step runs, over one socket that only these two have. Lines of text.
 *
 *	srun → controller	the configuration, then an empty line;
 *				"exit STATUS"	srun is about to end
 *	controller → srun	"say TEXT"	a line for the user, now
 *				"end CODE"	the answer to "exit": srun's
 *						exit code, -1 to leave it
 *				"quit CODE"	end srun now: it would wait
 *						for nodes that are lost
 */
#ifndef DDP_CTLCONF_H
#define DDP_CTLCONF_H

#include "core/ddp_options.h"
#include "core/ddp_plan.h"
#include "core/ddp_wire.h"

#include <sys/types.h>

/* Descriptors of the controller program. */
#define DDP_CTL_FD_LISTEN 3
#define DDP_CTL_FD_SRUN 4

/* Longest line between srun and the controller, and longest configuration. */
#define DDP_CTL_LINE 1024
#define DDP_CTLCONF_MAX (1U << 20)

/* srun's exit code when the machine failed, not the program: EX_TEMPFAIL. */
#define DDP_EXIT_MACHINE 75

struct ddp_ctlconf {
	uint8_t key[DDP_KEY_BYTES];
	pid_t srun;
	uint32_t job, step;	/* as Slurm knows the step */
	uint16_t lo, hi;	/* master ports the site allows; 0, 0: any */
	enum ddp_abort abort;
	uint8_t signal;
	uint32_t grace_ms, exit_grace_ms, start_ms, node_ms;
	uint32_t ready_ms;
	bool prefer;
	char report[2 * DDP_PATH_MAX];	/* absolute, or "" */
	char launcher[DDP_PATH_MAX];	/* ddp-launch, for Slurm's RPCs */
	char *nodes;		/* names by global node index, comma separated */
	char *plan;		/* text of the launch plan, see ddp_plan.h */
};

/* A malloc'ed text with its empty line, or NULL with *err. */
char *ddp_ctlconf_format(const struct ddp_ctlconf *c, struct ddp_err *err);

/* Reads the text without its empty line. 0, or -1 with *err; free with
 * ddp_ctlconf_clear() in either case. */
int ddp_ctlconf_parse(struct ddp_ctlconf *c, const char *text,
		      struct ddp_err *err);
void ddp_ctlconf_clear(struct ddp_ctlconf *c);

#endif
