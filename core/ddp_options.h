/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a user can ask of a launch: the option table shared by srun, sbatch,
 * salloc, the environment and plugstack.conf, and one validator for all.
 */
#ifndef DDP_OPTIONS_H
#define DDP_OPTIONS_H

#include "core/ddp_bind.h"
#include "core/ddp_err.h"
#include "core/ddp_text.h"

enum ddp_opt {
	DDP_OPT_LAUNCH,
	DDP_OPT_EXPLAIN,
	DDP_OPT_FRAMEWORKS,
	DDP_OPT_MASTER_PORT,
	DDP_OPT_MASTER_ADDR,
	DDP_OPT_IFACE,
	DDP_OPT_ABORT,
	DDP_OPT_ABORT_SIGNAL,
	DDP_OPT_GRACE,
	DDP_OPT_EXIT_GRACE,
	DDP_OPT_START_TIMEOUT,
	DDP_OPT_NODE_TIMEOUT,
	DDP_OPT_CONTROL,
	DDP_OPT_REPORT_FILE,
	DDP_OPT_BIND,
	DDP_OPT_GPUS,
	DDP_OPT_LIFECYCLE,
	DDP_OPT_READY_TIMEOUT,
	DDP_OPT_COUNT
};

enum ddp_mode { DDP_MODE_OFF, DDP_MODE_STATELESS, DDP_MODE_FULL };

enum ddp_framework {
	DDP_FW_TORCH,
	DDP_FW_JAX,
	DDP_FW_HOROVOD,
	DDP_FW_DEEPSPEED,
	DDP_FW_ACCELERATE,
	DDP_FW_LIGHTNING,
	DDP_FW_TF,
	DDP_FW_COUNT
};

#define DDP_FW_TEXT 80
#define DDP_FW_BIT(fw) (1U << (fw))
#define DDP_FW_ALL (DDP_FW_BIT(DDP_FW_COUNT) - 1)

/* What is set when nobody says which: cheap, and in nobody's way. */
#define DDP_FW_DEFAULT (DDP_FW_BIT(DDP_FW_TORCH) | DDP_FW_BIT(DDP_FW_JAX))

/* What ends when a rank fails: the step, the ranks of its node, nothing. */
enum ddp_abort { DDP_ABORT_GANG, DDP_ABORT_NODE, DDP_ABORT_NONE };

#define DDP_PATH_MAX 512

/* What a rank sees: as Slurm gave it, all GPUs of its node's step, its own. */
enum ddp_gpus { DDP_GPUS_AUTO, DDP_GPUS_NODE, DDP_GPUS_RANK };

enum ddp_iface { DDP_IFACE_NONE, DDP_IFACE_AUTO, DDP_IFACE_NAME };

/* How an option is spelled. has_arg as in SPANK: 0 no, 1 yes, 2 optional. */
struct ddp_optdef {
	const char *name;	/* "ddp-master-port", after "--" */
	const char *key;	/* "master-port", in plugstack.conf's allow= */
	const char *env;	/* "DDP_MASTER_PORT", after SLURM_ or SBATCH_ */
	const char *arginfo;	/* "auto|PORT", NULL without argument */
	const char *usage;
	int has_arg;
};

/* port 0 and an empty addr mean auto. frameworks: bits 1 << ddp_framework. */
struct ddp_options {
	enum ddp_mode mode;
	bool explain;
	unsigned frameworks;
	uint16_t port;
	char addr[DDP_ADDR_MAX];
	enum ddp_iface iface;
	char ifname[DDP_IFNAME_MAX];
	enum ddp_abort abort;
	uint8_t signal;		/* the first one to the other ranks */
	uint32_t grace_ms;	/* from it to SIGKILL */
	uint32_t exit_grace_ms;	/* 0: an early exit 0 is only reported */
	uint32_t start_ms;	/* until every node is there */
	uint32_t node_ms;	/* silence after which a node is lost */
	bool prefer;		/* go on without the control channel */
	char report[DDP_PATH_MAX];	/* "" for none */
	enum ddp_bind_policy bind;
	bool bind_verify;	/* look again after the exec */
	enum ddp_gpus gpus;
	bool lifecycle;		/* preload libddp_lifecycle.so */
	uint32_t ready_ms;	/* for MPI and NCCL to be ready; 0: no limit */
};

/* The definition of an option; NULL outside the table. */
const struct ddp_optdef *ddp_optdef_get(unsigned opt);

/* Defaults: off, no explain, DDP_FW_DEFAULT, port and address auto, no iface;
 * gang, SIGTERM, 5 s, no exit grace, 60 s, 20 s, control required, no report;
 * best-effort, not verified, GPUs as Slurm says; no life-cycle library. */
void ddp_options_init(struct ddp_options *o);

/*
 * Set one option from its text. Text may be NULL, "" or Slurm's "(null)"
 * where a value is optional: --ddp-launch means full, --ddp-explain means 1,
 * --ddp-lifecycle means on.
 * Returns 0, or -1 with a message that lists the valid values; *o is then
 * unchanged.
 */
int ddp_options_set(struct ddp_options *o, enum ddp_opt opt, const char *text,
		    struct ddp_err *err);

const char *ddp_abort_name(enum ddp_abort a);
const char *ddp_gpus_name(enum ddp_gpus g);
const char *ddp_mode_name(enum ddp_mode mode);
const char *ddp_framework_name(enum ddp_framework fw);

/* "torch,jax" for a set of bits, into buf (DDP_FW_TEXT bytes suffice). */
const char *ddp_frameworks_text(unsigned set, char *buf, size_t size);

#endif
