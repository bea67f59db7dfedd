/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SPANK of our own for the adapter's unit tests: it answers what the test
 * put in, keeps a job environment, and records what was said.
 */
#ifndef SPANK_STUB_H
#define SPANK_STUB_H

#include <slurm/slurm.h>
#include <slurm/spank.h>

#define STUB_ENV_MAX 256

struct stub {
	spank_context_t context;
	uint32_t job, step, nnodes, node, ntasks, local_tasks, rank;
	int local;
	int argc;
	char **argv;
	slurm_step_layout_t *layout;	/* NULL: slurmctld answers with errno */
	const char *node_addr, *node_host;	/* NULL addr: no such node */
	unsigned rpcs;
	char asked[256];		/* the last node that was looked up */
	char *env[STUB_ENV_MAX];	/* "NAME=value" of the job */
	char log[65536];		/* all that was said */
	struct spank_option option[32];
	unsigned noptions;
};

extern struct stub stub;

/* Back to nothing; frees the environment. */
void stub_reset(spank_context_t context);
/* Call the callback of an option. Returns its result, or -2 if unknown. */
int stub_option(const char *name, const char *arg, int remote);
/* Value in the job's environment, or NULL. */
const char *stub_getenv(const char *name);
/* A spank_t to hand to the callbacks. */
spank_t stub_handle(void);

#endif
