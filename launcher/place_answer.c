/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the plan to what each task is to do. Where all ranks see the whole
 * node, the list of GPUs is put in such an order that entry LOCAL_RANK, modulo
 * their number, is the rank's own: every framework takes that one by itself.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/place.h"

#include "core/ddp_text.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* GPUs in the order in which ranks shall see them. */
struct order {
	unsigned v[DDP_BIND_GPUS], n;
};

static const struct ddp_bind_rank *rank_of(const struct place *p, unsigned i)
{
	return &p->plan->plan.ranks[p->slot[i]];
}

static bool is_bound(const struct place *p)
{
	return p->req->policy != DDP_BIND_NONE && !p->fixed_cpus;
}

/*
 * As many GPUs as ranks, or more: the first of every rank, then the others.
 * Fewer: those with most ranks first, and ranks in turn; the plan's ranks are
 * alike, so any of them can be any of the plan's that has its GPU.
 */
static void order_gpus(struct place *p, struct order *o)
{
	const struct ddp_bind_plan *plan = &p->plan->plan;
	unsigned turn[DDP_BIND_GPUS] = { 0 }, ranks[DDP_BIND_GPUS] = { 0 };

	o->n = 0;
	if (p->ngpus >= p->n) {
		for (unsigned k = 0; o->n < p->ngpus; k++)
			for (unsigned i = 0; i < p->n; i++)
				if (k < plan->ranks[p->slot[i]].ngpus)
					o->v[o->n++] =
						plan->ranks[p->slot[i]].gpus[k];
		return;
	}
	for (unsigned i = 0; i < p->n; i++)
		if (!ranks[plan->ranks[i].gpus[0]]++)
			o->v[o->n++] = plan->ranks[i].gpus[0];
	for (unsigned i = 1; i < o->n; i++)	/* stable */
		for (unsigned at = i; at && ranks[o->v[at - 1]] <
		     ranks[o->v[at]]; at--) {
			unsigned x = o->v[at];

			o->v[at] = o->v[at - 1];
			o->v[at - 1] = x;
		}
	for (unsigned i = 0; i < p->n && !p->fixed_cpus; i++) {
		unsigned g = o->v[i % o->n], s = turn[g];

		while (plan->ranks[s].gpus[0] != g)
			s++;
		turn[g] = s + 1;
		p->slot[i] = s;
	}
}

/*
 * The GPUs of rank i in what it will see: their indices. seen: the list that
 * it will have, as numbers in p->gpu.
 */
static void tell_devices(const struct place *p, unsigned i,
			 const struct order *seen)
{
	const struct ddp_bind_rank *r = rank_of(p, i);
	struct ddp_placed *out = &p->out[i];
	size_t pos = 0;

	out->view = p->view;
	for (unsigned k = 0; k < r->ngpus; k++)
		for (unsigned at = 0; at < seen->n; at++) {
			if (seen->v[at] != r->gpus[k])
				continue;
			if (!out->ndevices++)
				out->device = at;
			(void)ddp_text_add(out->devices, sizeof(out->devices),
					   &pos, "%s%u", pos ? "," : "", at);
		}
}

/* The list that the rank has now, as numbers in p->gpu. */
static void seen_now(const struct place *p, unsigned i, struct order *o)
{
	const struct ddp_vis *v = &p->vis[i];

	o->n = 0;
	if (p->bare)
		for (; o->n < p->ngpus; o->n++)
			o->v[o->n] = o->n;
	for (unsigned w = 0; w < v->n && !p->bare; w++) {
		int g = place_entry(p, i, w);

		if (g >= 0)
			o->v[o->n++] = (unsigned)g;
	}
}

/* New words for all: those of the tasks that see the GPU now. */
static void set_list(const struct place *p, unsigned i, const struct order *o)
{
	struct ddp_placed *out = &p->out[i];
	size_t pos = 0;

	out->set_list = true;
	for (unsigned k = 0; k < o->n; k++) {
		const struct place_gpu *g = &p->gpu[o->v[k]];

		if (ddp_text_add(out->list, sizeof(out->list), &pos, "%s%s",
				 k ? "," : "", p->vis[g->ask].word[g->word]))
			out->set_list = false;
	}
}

static void answer_gpus(struct place *p, const struct order *node)
{
	uint32_t vendor = place_vendor(p);

	for (unsigned i = 0; i < p->n; i++) {
		struct order mine = *node;

		if (!p->lists || p->fixed_gpus) {
			seen_now(p, i, &mine);
		} else if (p->view == DDP_VIEW_RANK) {
			const struct ddp_bind_rank *r = rank_of(p, i);

			for (mine.n = 0; mine.n < r->ngpus; mine.n++)
				mine.v[mine.n] = r->gpus[mine.n];
			set_list(p, i, &mine);
		} else {
			set_list(p, i, &mine);
		}
		p->out[i].pci_order = p->topo->ngpus > 0;
		p->out[i].vendor = vendor;
		tell_devices(p, i, &mine);
	}
}

/* Ranks on each core of the plan; p->users. */
static void count_users(struct place *p)
{
	const struct topo_plan *t = p->plan;

	for (unsigned i = 0; i < p->n; i++) {
		const struct ddp_bind_rank *r = rank_of(p, i);

		for (unsigned u = 0; u < r->npus; u++)
			if (!u || t->in.pu_core[r->pus[u]] !=
			    t->in.pu_core[r->pus[u - 1]])
				p->users[t->in.pu_core[r->pus[u]]]++;
	}
}

/* Physical cores for the rank's threads: one that k ranks have counts 1/k. */
static uint32_t own_cores(const struct place *p, unsigned i)
{
	const struct ddp_bind_rank *r = rank_of(p, i);
	const uint32_t *core = p->plan->in.pu_core;
	double sum = 0;

	for (unsigned u = 0; u < r->npus; u++)
		if (!u || core[r->pus[u]] != core[r->pus[u - 1]])
			sum += 1.0 / p->users[core[r->pus[u]]];
	/* 3 times 1/3 is to be 1. */
	return sum < 1 ? 1 : (uint32_t)(sum + 1e-6);
}

/* all: every NUMA node of the machine. */
static void answer_cpus(const struct place *p, unsigned i, uint64_t all)
{
	const struct ddp_bind_rank *r = rank_of(p, i);
	struct ddp_placed *out = &p->out[i];
	const struct topo *t = p->topo;

	if (p->fixed_cpus || is_bound(p))
		out->cores = own_cores(p, i);
	if (!is_bound(p))
		return;
	out->set_cpus = true;
	for (unsigned u = 0; u < r->npus; u++) {
		unsigned cpu = p->plan->pu[r->pus[u]]->os_index;

		if (cpu < DDP_PLACE_CPUS)
			CPU_SET_S(cpu, sizeof(out->cpus),
				  (cpu_set_t *)out->cpus);
	}
	/* A rank that may run anywhere is best served by the kernel's way. */
	for (unsigned k = 0; k < t->nnuma && r->numa != all; k++) {
		unsigned node = t->numa[k]->os_index;

		if (!(r->numa >> k & 1) || node >= DDP_PLACE_NODES)
			continue;
		out->set_nodes = true;
		CPU_SET_S(node, sizeof(out->nodes), (cpu_set_t *)out->nodes);
	}
}

/* Is there a place of this rank's GPUs, and no CPU of it there? */
static bool is_far(const struct ddp_bind_rank *r)
{
	return r->ngpus && !r->remote && !(r->numa & r->gpu_numa);
}

/*
 * No rank can be near its GPUs: to move it gains nothing, so Slurm's masks
 * stay. Where only some are far, they keep their share of the CPUs, which no
 * other rank uses.
 */
static void check_far(struct place *p)
{
	char cpus[128], ranks[160] = "";
	uint64_t here = topo_numa_of(p->topo, p->cpus);
	unsigned far = 0, with = 0;
	bool near_ones = false;
	size_t pos = 0;

	for (unsigned i = 0; i < p->n; i++) {
		const struct ddp_bind_rank *r = rank_of(p, i);

		with += r->ngpus > 0;
		if (!is_far(r))
			continue;
		near_ones |= (r->gpu_numa & here) != 0;
		if (far++ < 8)
			(void)ddp_text_add(ranks, sizeof(ranks), &pos, "%s%u",
					   pos ? ", " : "", p->ask[i].rank);
	}
	if (!far)
		return;
	if (hwloc_bitmap_list_snprintf(cpus, sizeof(cpus), p->cpus) < 0)
		cpus[0] = '\0';
	if (near_ones) {
		place_warn(p, "too few of the CPUs that Slurm gave (%s) are "
			   "next to the GPUs of rank %s%s: other ranks have "
			   "them", cpus, ranks, far > 8 ? ", …" : "");
		return;
	}
	if (far < with || !is_bound(p)) {
		place_warn(p, "no CPU that Slurm gave (%s) is next to the GPUs "
			   "of rank %s%s", cpus, ranks, far > 8 ? ", …" : "");
		return;
	}
	place_warn(p, "no CPU that Slurm gave (%s) is next to the step's GPUs: "
		   "ranks stay on the CPUs that Slurm gave them", cpus);
	for (unsigned i = 0; i < p->n; i++)
		p->out[i].set_cpus = p->out[i].set_nodes = false;
}

/* "GPU 0000:3b:00.0, CPUs 8-11 (4 cores), NUMA node 1" */
static void show(const struct place *p, unsigned i)
{
	const struct ddp_bind_rank *r = rank_of(p, i);
	struct ddp_placed *out = &p->out[i];
	char numa[160], *cpus = topo_rank_cpus(p->plan, p->slot[i], NULL);
	size_t pos = 0;

	for (unsigned k = 0; k < r->ngpus; k++) {
		unsigned g = p->gpu[r->gpus[k]].gpu;

		(void)ddp_text_add(out->shown, sizeof(out->shown), &pos,
				   "%s%s", k ? ", " : "GPU ",
				   g == TOPO_GPU_UNKNOWN ? "(place not known)" :
				   p->topo->gpu[g].bus);
	}
	(void)ddp_text_add(out->shown, sizeof(out->shown), &pos,
			   "%s%s %s (%u cores), NUMA %s%s",
			   pos ? ", " : "", out->set_cpus ? "CPUs" :
			   "CPUs as Slurm has them:", cpus ? cpus : "?",
			   r->ncores, topo_numa_text(p->topo, r->numa, numa,
						     sizeof(numa)),
			   r->gpu_numa && !(r->gpu_numa & r->numa) ?
			   "; its GPU is elsewhere" : "");
	free(cpus);
}

static bool has_unknown_gpu(const struct place *p, unsigned i)
{
	const struct ddp_bind_rank *r = rank_of(p, i);

	for (unsigned k = 0; k < r->ngpus; k++)
		if (p->gpu[r->gpus[k]].gpu == TOPO_GPU_UNKNOWN)
			return true;
	return false;
}

/* What had gone wrong before the plan (so many bytes of warnings) stands in
 * front: it may be the reason. */
static void refuse(struct place *p, unsigned i, size_t before)
{
	struct ddp_placed *out = &p->out[i];
	char text[512];
	size_t pos = 0, n = strcspn(p->warning, "\n");

	if (n > before)
		n = before;
	out->state = DDP_PLACE_REFUSED;
	if (n)
		(void)ddp_text_add(out->why, sizeof(out->why), &pos, "%.*s; ",
				   (int)n, p->warning);
	if (has_unknown_gpu(p, i))
		(void)ddp_text_add(out->why, sizeof(out->why), &pos,
			"refused by --ddp-bind=%s: the place of its GPU is not "
			"known; look with ddp-topo on the node, or use "
			"--ddp-bind=best-effort",
			ddp_bind_policy_name(p->req->policy));
	else
		(void)ddp_text_add(out->why, sizeof(out->why), &pos,
			"refused by --ddp-bind=%s: %s; ask Slurm for %s, or "
			"use --ddp-bind=best-effort",
			ddp_bind_policy_name(p->req->policy),
			topo_refusal(p->plan, p->slot[i], text, sizeof(text)),
			rank_of(p, i)->ngpus ? "CPUs next to the GPUs" :
			"fewer CPUs a rank, or for those of one NUMA node");
}

static void hint(struct place *p)
{
	bool beyond = false;

	for (unsigned i = 0; i < p->n; i++)
		beyond |= p->out[i].view == DDP_VIEW_RANK &&
			p->out[i].ndevices && i >= p->out[i].ndevices;
	if (beyond)
		place_hint(p, "each rank sees its own GPUs only: its device is "
			   "index 0 (DDP_LOCAL_DEVICE), not LOCAL_RANK%s",
			   p->req->gpus == DDP_GPUS_RANK ? "" :
			   !p->per_rank ? "; CUDA shows a process one MIG "
			   "device" :
			   "; for cuda:LOCAL_RANK ask for --gpus-per-node "
			   "instead of --gpus-per-task or --gpu-bind");
	if (p->fixed_cpus && p->req->policy != DDP_BIND_NONE)
		place_hint(p, p->slurm_bound ?
			   "--cpu-bind was given and holds: ranks stay on the "
			   "CPUs that Slurm gave them" :
			   "--cpu-bind was given and holds, but Slurm has "
			   "bound no rank (--cpu-bind=none, or no "
			   "task/affinity in TaskPlugin): all run anywhere");
}

void place_answer(struct place *p)
{
	const struct topo *t = p->topo;
	uint64_t all = topo_numa_of(t, hwloc_topology_get_topology_cpuset(
					    t->hw));
	struct order node = { .n = 0 };
	size_t before = strlen(p->warning);

	for (unsigned i = 0; i < p->n; i++)
		p->slot[i] = i;
	if (p->ngpus && !p->fixed_gpus)
		order_gpus(p, &node);
	if (p->ngpus)
		answer_gpus(p, &node);
	count_users(p);
	for (unsigned i = 0; i < p->n; i++) {
		p->out[i].state = DDP_PLACE_DONE;
		answer_cpus(p, i, all);
	}
	check_far(p);
	hint(p);
	for (unsigned i = 0; i < p->n; i++) {
		show(p, i);
		/* Where a place is not known there is nothing to judge. */
		if (rank_of(p, i)->refused ||
		    (ddp_place_is_strict(p->req) && has_unknown_gpu(p, i)))
			refuse(p, i, before);
	}
}
