/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment contract: which variables a rank gets for each framework,
 * and from which fact each one comes. One table for setting them, for
 * checking them and for --ddp-explain.
 */
#ifndef DDP_ENV_H
#define DDP_ENV_H

#include "core/ddp_place.h"
#include "core/ddp_plan.h"

/* What is known of one rank. All counts and ids are of the step. */
struct ddp_rank {
	uint32_t rank;		/* global task id */
	uint32_t local;		/* task id on its node */
	uint32_t node;		/* Slurm's node index in the step */
	uint32_t threads;	/* physical cores for its threads; 0: unknown */
	uint32_t gpus;		/* GPUs it sees; 0: none or unknown */
	const char *nodename;	/* Slurm's name of its node, or NULL */
	const char *ifname;	/* its network interface, NULL: set none */
	const struct ddp_placed *placed;	/* its place, or NULL */
	const char *preload;	/* whole LD_PRELOAD, where the plan has life */
	const char *life;	/* socket of its node's agent, or NULL */
};

enum ddp_var_flags {
	DDP_VAR_PER_RANK = 1,	/* differs between the ranks of a step */
	DDP_VAR_DEFAULT = 2,	/* the user's own value wins */
	DDP_VAR_ON_NODE = 4,	/* only the node knows the value */
	DDP_VAR_ADDS = 8	/* the value has the user's own in it */
};

struct ddp_var {
	const char *name;
	const char *value;
	const char *source;	/* where the value comes from, for people */
	unsigned flags;
	const char *unless;	/* also left alone if this one is set */
};

/* Return 0 to go on, anything else to stop. *v is valid for the call. */
typedef int (*ddp_env_fn)(void *arg, const struct ddp_var *v);

/*
 * Call fn for every variable of the plan's frameworks, each name once.
 * Returns 0, the first non-zero result of fn, or -1 if a value does not fit
 * (an address longer than DDP_ADDR_MAX).
 */
int ddp_env_each(const struct ddp_plan *plan, const struct ddp_rank *r,
		 ddp_env_fn fn, void *arg);

/*
 * TF_CONFIG of a rank, malloc'ed; NULL with *err if the plan's tf fields are
 * missing or broken, or if it would not fit into one environment string.
 */
char *ddp_env_tf(const struct ddp_plan *plan, const struct ddp_rank *r,
		 struct ddp_err *err);

/* The port of this rank's own TensorFlow server; 0 if the plan has none. */
uint16_t ddp_env_tf_port(const struct ddp_plan *plan, uint32_t local);

/* Names that srun sets to DDP_SENTINEL until a node's plugin replaces them,
 * so that a framework on a node without it stops at once. NULL at the end. */
extern const char *const ddp_env_sentinels[];

#define DDP_SENTINEL "spank_ddp.so-not-loaded-on-this-node"

/* Frameworks that read PyTorch's variables. */
#define DDP_FW_TORCHLIKE (DDP_FW_BIT(DDP_FW_TORCH) | \
	DDP_FW_BIT(DDP_FW_DEEPSPEED) | DDP_FW_BIT(DDP_FW_ACCELERATE) | \
	DDP_FW_BIT(DDP_FW_LIGHTNING))

/* Where torch writes the exception that ends a rank; in full mode, for the
 * agent, unless the user has one of his own. */
#define DDP_ERROR_FILE_ENV "TORCHELASTIC_ERROR_FILE"

#endif
