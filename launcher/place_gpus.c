/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of the step on this node: what the tasks see now, what that is in
 * the topology, and what they shall see.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/place.h"

#include <string.h>

static bool same_devices(const struct ddp_ask *a, const struct ddp_ask *b)
{
	return a->there == b->there && a->open == b->open &&
		a->render_there == b->render_there &&
		a->render_open == b->render_open;
}

/*
 * The same words are the same GPUs only for tasks that may open the same
 * devices: with a device cgroup of its own each task's first GPU is "0".
 */
static bool same_view(const struct ddp_ask *a, const struct ddp_ask *b)
{
	return !strcmp(a->list, b->list) && same_devices(a, b);
}

/* "2", or "2.1", a tile of Intel's, counts what the task may open: what is
 * behind the number. NULL: a name, which is the same for all. */
static const char *behind_number(const char *word)
{
	size_t n = strspn(word, "0123456789");

	return n && (!word[n] || word[n] == '.') ? word + n : NULL;
}

static bool same_gpu(const struct place *p, const struct place_gpu *g,
		     unsigned gpu, unsigned ask, const char *word)
{
	const char *had = p->vis[g->ask].word[g->word];
	const char *x = behind_number(word), *y = behind_number(had);

	if (!x || !y)
		return !strcmp(word, had);
	if (g->gpu != TOPO_GPU_UNKNOWN || gpu != TOPO_GPU_UNKNOWN)
		return g->gpu == gpu && !strcmp(x, y);
	return !strcmp(word, had) &&
		same_devices(&p->ask[ask], &p->ask[g->ask]);
}

int place_entry(const struct place *p, unsigned ask, unsigned word)
{
	const char *text = p->vis[ask].word[word];
	unsigned gpu = behind_number(text) ?
		place_find_gpu(p, &p->ask[ask], text) : TOPO_GPU_UNKNOWN;

	for (unsigned g = 0; g < p->ngpus; g++)
		if (p->sees[ask] >> g & 1 &&
		    same_gpu(p, &p->gpu[g], gpu, ask, text))
			return (int)g;
	return -1;
}

/* The number in p->gpu of what this entry names; -1: there are too many. */
static int add_gpu(struct place *p, unsigned ask, unsigned word)
{
	const char *text = p->vis[ask].word[word];
	unsigned gpu = place_find_gpu(p, &p->ask[ask], text);

	for (unsigned i = 0; i < p->ngpus; i++)
		if (same_gpu(p, &p->gpu[i], gpu, ask, text))
			return (int)i;
	if (p->ngpus == DDP_BIND_GPUS)
		return -1;
	p->gpu[p->ngpus] = (struct place_gpu){ gpu, ask, word };
	return (int)p->ngpus++;
}

static int add_list(struct place *p, unsigned ask)
{
	for (unsigned w = 0; w < p->vis[ask].n; w++) {
		int g = add_gpu(p, ask, w);

		if (g < 0)
			return -1;
		p->sees[ask] |= (uint64_t)1 << g;
	}
	return 0;
}

/* Names are looked up once for tasks that see the same. */
static int add_lists(struct place *p)
{
	for (unsigned i = 0; i < p->n; i++) {
		unsigned k = 0;

		while (!same_view(&p->ask[k], &p->ask[i]))
			k++;
		if (k < i)
			p->sees[i] = p->sees[k];
		else if (add_list(p, i))
			return -1;
	}
	return 0;
}

/* Each task has a list, and it is one? */
static bool read_lists(struct place *p)
{
	for (unsigned i = 0; i < p->n; i++)
		if (!p->ask[i].list_set ||
		    ddp_vis_parse(&p->vis[i], p->ask[i].list))
			return false;
	return true;
}

/*
 * --gpu-bind=none, or a site whose Slurm sets no list: every task sees what
 * it may open, and takes entry LOCAL_RANK of that. It is known only if these
 * are as many as Slurm says the step has.
 */
static void find_bare(struct place *p)
{
	unsigned gpus[DDP_BIND_GPUS];
	int n = place_visible(p, &p->ask[0], gpus);

	for (unsigned i = 1; i < p->n; i++)
		if (!same_devices(&p->ask[0], &p->ask[i]))
			n = -1;
	if (n <= 0 || (uint32_t)n != p->ask[0].step_gpus) {
		if (p->topo->ngpus)
			place_warn(p, "the step has GPUs, but no list of them "
				   "is set (as with --gpu-bind=none) and the "
				   "tasks may open others: ranks are placed "
				   "without regard to GPUs");
		return;
	}
	p->bare = p->fixed_gpus = true;
	p->view = DDP_VIEW_NODE;
	p->ngpus = (unsigned)n;
	for (unsigned i = 0; i < p->ngpus; i++)
		p->gpu[i].gpu = gpus[i];
	for (unsigned i = 0; i < p->n; i++)
		p->sees[i] = (uint64_t)1 << i % p->ngpus;
}

/* Each rank sees its own: may and can they all see all? */
static bool can_widen(struct place *p)
{
	if (p->req->gpu_said != DDP_GPU_SAID_NOTHING) {
		place_hint(p, "--ddp-gpus=node: --gpu-bind was given and "
			   "holds: each rank sees its own GPUs");
		return false;
	}
	for (unsigned i = 1; i < p->n; i++)
		if (!same_devices(&p->ask[0], &p->ask[i])) {
			place_hint(p, "--ddp-gpus=node: Slurm confines each "
				   "task to its own GPUs (ConstrainDevices): "
				   "each rank sees its own; ask for "
				   "--gpus-per-node instead of "
				   "--gpus-per-task");
			return false;
		}
	return true;
}

/* Of several MIG devices CUDA shows a process the first alone. */
static bool has_mig(const struct place *p)
{
	for (unsigned w = 0; w < p->vis[0].n; w++)
		if (!strncmp(p->vis[0].word[w], "MIG-", 4))
			return true;
	return false;
}

static void choose_view(struct place *p)
{
	bool wide = p->req->gpus == DDP_GPUS_NODE;

	for (unsigned i = 1; i < p->n; i++)
		p->per_rank |= !same_view(&p->ask[0], &p->ask[i]);
	if (!p->per_rank)
		p->view = p->n > 1 && (p->req->gpus == DDP_GPUS_RANK ||
				       (!wide && has_mig(p))) ?
			DDP_VIEW_RANK : DDP_VIEW_NODE;
	else
		p->view = wide && can_widen(p) ? DDP_VIEW_NODE : DDP_VIEW_RANK;
	p->fixed_gpus = p->per_rank && p->view == DDP_VIEW_RANK;
}

static void warn_unknown(struct place *p)
{
	for (unsigned i = 0; i < p->ngpus && p->topo->ngpus; i++) {
		const struct place_gpu *g = &p->gpu[i];

		if (g->gpu == TOPO_GPU_UNKNOWN) {
			place_warn(p, "GPU %s is not in this node's topology: "
				   "its rank is placed without regard to it",
				   p->vis[g->ask].word[g->word]);
			return;
		}
	}
}

/* All GPUs in one list: can it be as long as that? */
static void check_length(struct place *p)
{
	size_t len = 0;

	for (unsigned i = 0; i < p->ngpus; i++)
		len += strlen(p->vis[p->gpu[i].ask].word[p->gpu[i].word]) + 1;
	if (!p->per_rank || p->view != DDP_VIEW_NODE || len <= DDP_PLACE_LIST)
		return;
	place_hint(p, "--ddp-gpus=node: a list of all GPUs is too long: each "
		   "rank sees its own GPUs");
	p->view = DDP_VIEW_RANK;
	p->fixed_gpus = true;
}

void place_find_gpus(struct place *p)
{
	bool any = false, none = true;

	for (unsigned i = 0; i < p->n; i++) {
		any |= p->ask[i].list_set;
		none &= !p->ask[i].list_set ||
			ddp_vis_is_none(p->ask[i].list);
	}
	p->view = DDP_VIEW_UNKNOWN;
	if (!any) {
		if (p->ask[0].step_gpus)
			find_bare(p);
		return;
	}
	if (none)
		return;
	p->lists = read_lists(p);
	if (p->lists) {
		choose_view(p);
		p->lists = !add_lists(p);
	}
	if (!p->lists) {
		place_warn(p, "the lists of visible GPUs are none that is "
			   "known: they stay as they are, and ranks are "
			   "placed without regard to GPUs");
		p->view = DDP_VIEW_UNKNOWN;
		p->fixed_gpus = false;
		p->ngpus = 0;
		return;
	}
	check_length(p);
	warn_unknown(p);
}
