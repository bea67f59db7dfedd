/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the ports of a stateless launch: which are candidates, which of
 * them are free. */
#ifndef DDP_MASTER_H
#define DDP_MASTER_H

#include "core/ddp_plan.h"
#include "core/ddp_port.h"
#include "core/ddp_site.h"

/* Local ranks that can have a TensorFlow server of their own. */
#define DDP_TF_LOCAL_MAX 256U

/*
 * The ports a step may use: the site's port_range if there is one, else
 * 20000–65535 without what the kernel hands out by itself, what the
 * administrator reserved, and srun_lo…srun_hi (SrunPortRange; 0, 0: not
 * set). Falls back to 1024–65535 where that leaves too few.
 */
void ddp_master_pool(const struct ddp_site *site, uint16_t srun_lo,
		     uint16_t srun_hi, struct ddp_portset *set);

/*
 * Fill plan->port (auto if it is 0) with the first candidate that has no
 * listener on the host of plan->ip; probe false takes the first candidate
 * unseen, for callers that must all come to the same one without talking.
 * For --ddp-frameworks=tf also plan->tf_ports, one port a local rank.
 * Returns 0, or -1 with the remedy.
 */
int ddp_master_choose(struct ddp_plan *plan, const struct ddp_portset *set,
		      bool probe, struct ddp_err *err);

#endif
