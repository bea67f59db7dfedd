/* SPDX-License-Identifier: Apache-2.0 */
/* What slurmstepd itself says of a task: what a plan has to agree with. */
#ifndef DDP_SPANK_FACTS_H
#define DDP_SPANK_FACTS_H

#include "core/ddp_err.h"
#include "core/ddp_plan.h"

#include <slurm/spank.h>
#include <stdint.h>

/* Ids are the component's in a heterogeneous step, until globalized. */
struct ddp_facts {
	uint32_t job, step, nnodes, ntasks, node, local_tasks, rank, local;
	uint32_t shown;		/* the rank for messages: always the global */
	char name[128];
};

/* In task_init. -1 with *err: slurmstepd does not say. name is set always. */
int ddp_facts_get(spank_t sp, struct ddp_facts *f, struct ddp_err *err);

/* The whole heterogeneous step's ids and counts. -1 with *err. */
int ddp_facts_globalize(spank_t sp, struct ddp_facts *f,
			const struct ddp_layout *l, struct ddp_err *err);

/* Does the plan agree? slurmstepd's counts decide. -1 with *err: no. */
int ddp_facts_check(const struct ddp_facts *f, const struct ddp_plan *plan,
		    struct ddp_err *err);

#endif
