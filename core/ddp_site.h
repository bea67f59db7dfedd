/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the site's administrator decided: the arguments of the plugin's line
 * in plugstack.conf. srun applies them, and each node checks them again with
 * its own plugstack.conf, since a user can run srun with another one.
 */
#ifndef DDP_SITE_H
#define DDP_SITE_H

#include "core/ddp_options.h"

struct ddp_site {
	struct ddp_options defaults;	/* mode=, frameworks=, … */
	uint16_t port_lo, port_hi;	/* port_range=; 0, 0: not set */
	unsigned allowed;		/* allow=: bits 1 << ddp_opt */
	char launcher[256];		/* launcher=: path of ddp-launch */
	char helpers[256];	/* helpers=: folder of ddp-agent, -controller */
	char lifecycle[256];	/* lifecycle_library=: its path */
	char topology[256];	/* topology=: a node's saved one; "": none */
	char sysroot[256];	/* sysroot=: before /dev, /proc, /sys where
				 * GPUs are looked up; "": nothing */
};

void ddp_site_init(struct ddp_site *site);

/*
 * Take one plugstack.conf argument. Returns 0, or -1 with a message that
 * names the argument and what is valid; *site is then unchanged.
 */
int ddp_site_set(struct ddp_site *site, const char *arg, struct ddp_err *err);

/*
 * Does the site allow these options? given: bits 1 << ddp_opt of what the
 * user gave; port: the port the step will use (0: not known yet).
 */
int ddp_site_check(const struct ddp_site *site, unsigned given, uint16_t port,
		   struct ddp_err *err);

#endif
