/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPUs of the step on this node. Where the tasks' masks differ from their
 * cpuset, Slurm has shared them out (task/affinity): together they are the
 * step's. Where they do not, the cpuset is all that is known from the kernel;
 * without one (task/none) that is the whole node, and the cores that Slurm
 * counts for the step are taken instead.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cpus.h"
#include "launcher/place.h"

#include <sched.h>
#include <string.h>

static int add_mask(hwloc_bitmap_t set, const ddp_cpus mask)
{
	for (unsigned i = 0; i < DDP_PLACE_WORDS(DDP_PLACE_CPUS); i++)
		for (unsigned long w = mask[i]; w; w &= w - 1)
			if (hwloc_bitmap_set(set, i * 8 * sizeof(w) +
					     (unsigned)__builtin_ctzl(w)))
				return -1;
	return 0;
}

/*
 * Slurm numbers the cores of a node from 0, socket by socket, as hwloc does
 * logically. The task has made sure that they are the same kind of core.
 */
static int add_cores(const struct place *p, hwloc_bitmap_t set)
{
	ddp_cpus cores;

	if (ddp_cpus_parse(p->ask[0].cores, cores) <= 0)
		return -1;
	for (unsigned i = 0; i < DDP_PLACE_CPUS; i++) {
		hwloc_obj_t core;

		if (!CPU_ISSET_S(i, sizeof(cores), (cpu_set_t *)cores))
			continue;
		core = hwloc_get_obj_by_type(p->topo->hw, HWLOC_OBJ_CORE, i);
		if (!core || hwloc_bitmap_or(set, set, core->cpuset))
			return -1;
	}
	return 0;
}

/* The step's own cores within the set, if they are known and in it. */
static void keep_cores(const struct place *p, hwloc_bitmap_t set)
{
	hwloc_bitmap_t cores = hwloc_bitmap_alloc();

	if (cores && p->ask[0].cores[0] && !add_cores(p, cores) &&
	    hwloc_bitmap_isincluded(cores, set))
		(void)hwloc_bitmap_copy(set, cores);
	hwloc_bitmap_free(cores);
}

int place_find_cpus(struct place *p, struct ddp_err *err)
{
	hwloc_const_bitmap_t all =
		hwloc_topology_get_topology_cpuset(p->topo->hw);
	int rc = 0;

	p->fixed_cpus = p->req->cpu_said;
	for (unsigned i = 0; i < p->n; i++)
		p->slurm_bound |= memcmp(p->ask[i].cpus, p->ask[i].widest,
				sizeof(p->ask[i].cpus)) != 0;
	p->cpus = hwloc_bitmap_alloc();
	for (unsigned i = 0; i < p->n && p->cpus && !rc; i++)
		rc = add_mask(p->cpus, p->slurm_bound || p->fixed_cpus ?
			      p->ask[i].cpus : p->ask[i].widest);
	if (!p->cpus || rc || hwloc_bitmap_and(p->cpus, p->cpus, all))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (!p->slurm_bound && !p->fixed_cpus)
		keep_cores(p, p->cpus);
	return hwloc_bitmap_iszero(p->cpus) ?
		ddp_err_set(err, DDP_EINCONS, "none of the step's CPUs is in "
			    "the topology of this node") : 0;
}
