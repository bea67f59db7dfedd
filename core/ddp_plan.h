/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a launch: all that srun knows and a node needs, as one line of
 * text that travels in the launch environment under DDP_PLAN_ENV.
 *
 * The text is "v=1;key=value;…". A node refuses what it does not know, so
 * that srun and node plugins of different versions say so instead of
 * starting a wrong world.
 */
#ifndef DDP_PLAN_H
#define DDP_PLAN_H

#include "core/ddp_layout.h"
#include "core/ddp_options.h"

/* Named SLURM_… so that --export=NONE lets it pass. */
#define DDP_PLAN_ENV "SLURM_DDP_PLAN"

/*
 * For heterogeneous steps srun can reach every component only before it
 * knows their layout: a plan with a layout of one task, to be completed on
 * the nodes.
 */
#define DDP_HET_ENV "SLURM_DDP_HET"

/* Longest plan; Linux takes 128 KiB for one environment string. */
#define DDP_PLAN_MAX (120U * 1024)

/* A step that must not start: srun could not make a plan. */
#define DDP_PLAN_REFUSED "v=1;refused=1"

/* srun had the plugin and was told not to launch. */
#define DDP_PLAN_OFF "v=1;off=1"

#define DDP_HOST_MAX 65

struct ddp_plan {
	uint32_t job, step, restart;
	enum ddp_mode mode;
	unsigned frameworks;
	unsigned given;		/* bits 1 << ddp_opt the user gave */
	char addr[DDP_ADDR_MAX];	/* MASTER_ADDR */
	char ip[DDP_ADDR_MAX];	/* numeric form of addr, "" if unknown */
	char host[DDP_HOST_MAX];	/* host name of rank 0's node, or "" */
	uint16_t port;
	bool het;		/* several components: ids are global */
	bool life;		/* preload the life-cycle library */
	bool verify;		/* a TaskProlog may change the environment */
	enum ddp_iface iface;
	char ifname[DDP_IFNAME_MAX];
	struct ddp_layout layout;
	char *tf_addrs;		/* TensorFlow: addresses by node index, "," */
	char *tf_ports;		/* one port for each local rank, "," */
	char *tf_map;		/* node of each rank, as runs "0(x4),1(x4)" */
};

/*
 * The node of each rank, as tf_map wants it, from Slurm's task ids. Returns
 * a malloc'ed string, or NULL with *err.
 */
char *ddp_plan_map(const struct ddp_layout *l, uint32_t *const *tids,
		   struct ddp_err *err);

/* Writes the text, at most DDP_PLAN_MAX bytes with the NUL. Returns a
 * malloc'ed string, or NULL with *err. */
char *ddp_plan_format(const struct ddp_plan *plan, struct ddp_err *err);

/*
 * Reads a text that may come from anybody. Returns 0, or -1 and an empty
 * plan. Free with ddp_plan_clear() in either case.
 */
int ddp_plan_parse(struct ddp_plan *plan, const char *text,
		   struct ddp_err *err);

void ddp_plan_clear(struct ddp_plan *plan);

#endif
