/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a plan. The distance from a core to a GPU is how often the
 * set of CPUs grows on the way up from where the GPU hangs until the core is
 * in it. Between GPUs it is 0 over a direct link, else the edges between them
 * in the tree.
 */
#include "config.h"

#include "launcher/topo.h"

#include <stdlib.h>
#include <string.h>

/* Between GPUs where the place of one is not known. */
#define FAR 64

/* All arrays of the input, by their own names and writable. */
struct arrays {
	uint64_t *gpu_numa, *core_numa, *node_core_numa, *node_gpu_numa;
	uint32_t *gpu_pos, *pu_core, *node_core_pus;
	uint16_t *e, *d;
};

static int get_memory(struct topo_plan *p, struct arrays *a)
{
	int n = hwloc_get_nbobjs_by_type(p->topo->hw, HWLOC_OBJ_PU);
	size_t pus = n > 0 ? (size_t)n : 0, g = p->ngpus, all = p->topo->ngpus;
	char *at;

	at = calloc(1, (g + all + 2 * pus) * sizeof(uint64_t) +
		    pus * sizeof(hwloc_obj_t) +
		    (g + 2 * pus) * sizeof(uint32_t) +
		    (g * g + pus * g) * sizeof(uint16_t) + 64);
	if (!at)
		return -1;
	p->mem = at;
	a->gpu_numa = (uint64_t *)(void *)at;
	a->node_gpu_numa = a->gpu_numa + g;
	a->core_numa = a->node_gpu_numa + all;
	a->node_core_numa = a->core_numa + pus;
	p->pu = (hwloc_obj_t *)(void *)(a->node_core_numa + pus);
	a->gpu_pos = (uint32_t *)(void *)(p->pu + pus);
	a->pu_core = a->gpu_pos + g;
	a->node_core_pus = a->pu_core + pus;
	a->e = (uint16_t *)(void *)(a->node_core_pus + pus);
	a->d = a->e + g * g;
	p->in.gpu_numa = a->gpu_numa;
	p->in.node_gpu_numa = a->node_gpu_numa;
	p->in.core_numa = a->core_numa;
	p->in.node_core_numa = a->node_core_numa;
	p->in.gpu_pos = a->gpu_pos;
	p->in.pu_core = a->pu_core;
	p->in.node_core_pus = a->node_core_pus;
	p->in.e = a->e;
	p->in.d = a->d;
	return 0;
}

static uint16_t distance(hwloc_obj_t local, unsigned pu)
{
	unsigned d = 0;

	while (!hwloc_bitmap_isset(local->cpuset, pu) && local->parent) {
		if (!hwloc_bitmap_isequal(local->cpuset,
					  local->parent->cpuset))
			d++;
		local = local->parent;
	}
	return (uint16_t)(d < UINT16_MAX ? d : UINT16_MAX);
}

/* Equally far from everywhere, where the GPU's place is not known. */
static uint16_t to_gpu(const struct topo_plan *p, unsigned gpu, unsigned pu)
{
	unsigned i = p->gpus[gpu];

	return i == TOPO_GPU_UNKNOWN ? 0 : distance(p->topo->gpu[i].local, pu);
}

/* What is one core to us: the core, or the PU where there are no cores. */
static hwloc_obj_t core_of(const struct topo *t, hwloc_obj_t pu)
{
	hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(t->hw,
							  HWLOC_OBJ_CORE, pu);

	return core ? core : pu;
}

static uint64_t numa_of_pu(const struct topo *t, hwloc_obj_t pu)
{
	return topo_numa_of(t, pu->cpuset);
}

/* PUs in logical order, in cores; of the whole node and the allowed ones. */
static void fill_cores(struct topo_plan *p, struct arrays *a)
{
	const struct topo *t = p->topo;
	hwloc_obj_t pu = NULL, last = NULL, mine = NULL;

	while ((pu = hwloc_get_next_obj_by_type(t->hw, HWLOC_OBJ_PU, pu))) {
		hwloc_obj_t core = core_of(t, pu);
		unsigned n;

		if (core != last)
			a->node_core_numa[p->in.node_ncores++] =
				numa_of_pu(t, pu);
		a->node_core_pus[p->in.node_ncores - 1]++;
		last = core;
		if (!hwloc_bitmap_isset(p->cpus, pu->os_index))
			continue;
		if (core != mine) {
			n = p->in.ncores++;
			a->core_numa[n] = numa_of_pu(t, pu);
			for (unsigned g = 0; g < p->ngpus; g++)
				a->d[(size_t)n * p->ngpus + g] =
					to_gpu(p, g, pu->os_index);
		}
		mine = core;
		a->pu_core[p->in.npus] = p->in.ncores - 1;
		p->pu[p->in.npus++] = pu;
	}
}

/*
 * The order of GPUs: groups of linked ones together, by their first in the
 * tree; within a group, and without links, the tree's.
 */
static void order_gpus(struct topo_plan *p, struct arrays *a)
{
	const struct topo *t = p->topo;
	unsigned tree[DDP_BIND_GPUS], n = 0, next = 0;
	bool done[DDP_BIND_GPUS] = { false };

	for (hwloc_obj_t o = hwloc_get_root_obj(t->hw); o; o = topo_next(o))
		for (unsigned i = 0; i < p->ngpus; i++)
			if (p->gpus[i] != TOPO_GPU_UNKNOWN &&
			    t->gpu[p->gpus[i]].obj == o)
				tree[n++] = i;
	for (unsigned i = 0; i < n; i++) {
		bool in[DDP_BIND_GPUS] = { false }, grew = true;

		if (done[i])
			continue;
		for (in[i] = true; grew;) {
			grew = false;
			for (unsigned x = 0; x < n; x++)
				for (unsigned y = 0; y < n && in[x]; y++)
					if (!in[y] && t->linked
					    [p->gpus[tree[x]]]
					    [p->gpus[tree[y]]])
						in[y] = grew = true;
		}
		for (unsigned x = 0; x < n; x++) {
			if (!in[x])
				continue;
			a->gpu_pos[tree[x]] = next++;
			done[x] = true;
		}
	}
	for (unsigned i = 0; i < p->ngpus; i++)
		if (p->gpus[i] == TOPO_GPU_UNKNOWN)
			a->gpu_pos[i] = next++;
}

static uint16_t between(const struct topo *t, unsigned x, unsigned y)
{
	if (x == TOPO_GPU_UNKNOWN || y == TOPO_GPU_UNKNOWN)
		return FAR;
	return t->linked[x][y] ? 0 :
		(uint16_t)topo_edges(t->gpu[x].obj, t->gpu[y].obj);
}

static void fill_gpus(struct topo_plan *p, struct arrays *a)
{
	const struct topo *t = p->topo;

	for (unsigned i = 0; i < t->ngpus; i++)
		a->node_gpu_numa[i] = t->gpu[i].numa;
	for (unsigned i = 0; i < p->ngpus; i++) {
		if (p->gpus[i] != TOPO_GPU_UNKNOWN)
			a->gpu_numa[i] = t->gpu[p->gpus[i]].numa;
		for (unsigned j = 0; j < p->ngpus; j++)
			a->e[i * p->ngpus + j] = between(t, p->gpus[i],
							 p->gpus[j]);
	}
	order_gpus(p, a);
}

int topo_plan_fill(struct topo_plan *p, struct ddp_err *err)
{
	struct arrays a;

	if (get_memory(p, &a))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	p->in.ngpus = p->ngpus;
	p->in.node_ngpus = p->topo->ngpus;
	fill_cores(p, &a);
	fill_gpus(p, &a);
	return 0;
}

int topo_plan_decide(struct topo_plan *p, unsigned nranks,
		     enum ddp_bind_policy policy,
		     const struct ddp_bind_fixed *fixed, struct ddp_err *err)
{
	p->in.nranks = nranks;
	p->in.policy = policy;
	return fixed ? ddp_bind_make_fixed(&p->in, fixed, &p->plan, err) :
		ddp_bind_make(&p->in, &p->plan, err);
}

int topo_plan_make(struct topo_plan *p, unsigned nranks,
		   enum ddp_bind_policy policy, struct ddp_err *err)
{
	if (topo_plan_fill(p, err))
		return -1;
	if (!nranks)
		nranks = p->ngpus ? p->ngpus : 1;
	return topo_plan_decide(p, nranks, policy, NULL, err);
}

void topo_plan_free(struct topo_plan *p)
{
	ddp_bind_free(&p->plan);
	hwloc_bitmap_free(p->cpus);
	free(p->mem);
	p->cpus = NULL;
	p->mem = NULL;
}
