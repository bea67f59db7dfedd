/* SPDX-License-Identifier: Apache-2.0 */
/* The input of a plan, sorted and gathered into classes of what is alike. */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

/* GPUs by position; there are few. */
static void sort_gpus(struct ddp_bind_prob *p)
{
	const struct ddp_bind_in *in = p->in;

	for (unsigned i = 0; i < p->g; i++) {
		unsigned at = i;

		while (at && in->gpu_pos[p->gpu[at - 1]] > in->gpu_pos[i]) {
			p->gpu[at] = p->gpu[at - 1];
			at--;
		}
		p->gpu[at] = i;
	}
	for (unsigned i = 0; i < p->g; i++)
		for (unsigned j = 0; j < p->g; j++)
			p->e[i][j] = i == j ? 0 :
				in->e[p->gpu[i] * p->g + p->gpu[j]];
}

enum ddp_bind_unit ddp_bind_unit_of(const struct ddp_bind_in *in)
{
	if (in->ncores >= in->nranks)
		return DDP_BIND_CORES;
	return in->npus >= in->nranks ? DDP_BIND_PUS : DDP_BIND_SHARED;
}

static void choose_unit(struct ddp_bind_prob *p)
{
	const struct ddp_bind_in *in = p->in;

	p->unit = ddp_bind_unit_of(in);
	p->nu = p->unit == DDP_BIND_PUS ? in->npus : in->ncores;
	for (unsigned u = 0; u < p->nu; u++)
		p->unit_core[u] = p->unit == DDP_BIND_PUS ? in->pu_core[u] : u;
	p->k = p->nu / p->n;
	p->kx = p->nu % p->n;
}

static bool same_core(const struct ddp_bind_prob *p, unsigned core, unsigned c)
{
	const uint16_t *d = p->in->d + (size_t)core * p->g;

	if (p->in->core_numa[core] != p->numa[c])
		return false;
	for (unsigned i = 0; i < p->g; i++)
		if (d[p->gpu[i]] != p->d[(size_t)c * p->g + i])
			return false;
	return true;
}

/* Classes of units; d still has a column for each GPU. */
static void class_units(struct ddp_bind_prob *p)
{
	unsigned last = 0;

	for (unsigned u = 0; u < p->nu; u++) {
		unsigned core = p->unit_core[u], c = last;

		if (!p->nc || !same_core(p, core, c))
			for (c = 0; c < p->nc && !same_core(p, core, c);)
				c++;
		if (c == p->nc) {
			p->numa[c] = p->in->core_numa[core];
			for (unsigned i = 0; i < p->g; i++)
				p->d[(size_t)c * p->g + i] =
					p->in->d[(size_t)core * p->g +
						 p->gpu[i]];
			p->nc++;
		}
		p->supply[c]++;
		p->unit_class[u] = c;
		last = c;
	}
}

static bool same_gpu(const struct ddp_bind_prob *p, unsigned i, unsigned j)
{
	if (p->unit == DDP_BIND_SHARED &&
	    p->in->gpu_numa[p->gpu[i]] != p->in->gpu_numa[p->gpu[j]])
		return false;
	for (size_t c = 0; c < p->nc; c++)
		if (p->d[c * p->g + i] != p->d[c * p->g + j])
			return false;
	return true;
}

/* Classes of GPUs, by their first members; d gets a column a class. */
static void class_gpus(struct ddp_bind_prob *p)
{
	unsigned first[DDP_BIND_GPUS];

	for (unsigned i = 0; i < p->g; i++) {
		unsigned j = 0;

		while (j < p->ng && !same_gpu(p, first[j], i))
			j++;
		if (j == p->ng) {
			first[p->ng++] = i;
			p->gnuma[j] = p->in->gpu_numa[p->gpu[i]];
		}
		p->members[j] |= (uint64_t)1 << i;
		p->size[j]++;
	}
	for (size_t c = 0; c < p->nc; c++)
		for (unsigned j = 0; j < p->ng; j++)
			p->d[c * p->ng + j] = p->d[c * p->g + first[j]];
}

static bool same_links(const struct ddp_bind_prob *p, unsigned i, unsigned j)
{
	for (unsigned x = 0; x < p->g; x++)
		if (x != i && x != j && p->e[i][x] != p->e[j][x])
			return false;
	return true;
}

/* A GPU's twin is of its class and as far from every other GPU. */
static void find_twins(struct ddp_bind_prob *p)
{
	for (unsigned j = 0; j < p->ng; j++) {
		for (unsigned i = 0; i < p->g; i++) {
			if (!(p->members[j] >> i & 1))
				continue;
			p->twin[i] = -1;
			for (unsigned b = i; b-- > 0;) {
				if (p->members[j] >> b & 1 &&
				    same_links(p, b, i)) {
					p->twin[i] = (int)b;
					break;
				}
			}
		}
	}
}

static int find_doms(struct ddp_bind_prob *p, struct ddp_err *err)
{
	for (unsigned c = 0; c < p->nc; c++) {
		unsigned i = 0;

		while (i < p->ndom && p->dom[i] != p->numa[c])
			i++;
		if (i == DDP_BIND_NUMA)
			return ddp_err_set(err, DDP_EINVAL,
					   "more than %d sets of NUMA nodes",
					   DDP_BIND_NUMA);
		if (i == p->ndom)
			p->dom[p->ndom++] = p->numa[c];
		p->dom_of[c] = i;
	}
	return 0;
}

int ddp_bind_prob_init(struct ddp_bind_prob *p, const struct ddp_bind_in *in,
		       struct ddp_err *err)
{
	size_t units = in->npus > in->ncores ? in->npus : in->ncores;
	size_t g = in->ngpus ? in->ngpus : 1;
	char *at;

	memset(p, 0, sizeof(*p));
	p->in = in;
	p->n = in->nranks;
	p->g = in->ngpus;
	p->budget = in->work ? in->work : DDP_BIND_WORK;
	p->work = p->budget;
	sort_gpus(p);
	at = calloc(units + 1, sizeof(uint64_t) + sizeof(*p->near) +
		    (4 + g) * sizeof(uint32_t));
	if (!at)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	p->mem = at;
	p->numa = (uint64_t *)(void *)at;
	p->near = (struct ddp_bind_near *)(p->numa + units);
	p->supply = (uint32_t *)(p->near + units);
	p->unit_class = p->supply + units;
	p->unit_core = p->unit_class + units;
	p->dom_of = p->unit_core + units;
	p->d = p->dom_of + units;
	choose_unit(p);
	class_units(p);
	class_gpus(p);
	find_twins(p);
	if (p->g && (ddp_bind_group_init(p) || ddp_bind_part_init(p) ||
		     ddp_bind_seen_init(p)))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	return find_doms(p, err);
}

void ddp_bind_prob_free(struct ddp_bind_prob *p)
{
	free(p->mem);
	free(p->memo);
	free(p->parts);
	free(p->fails);
	free(p->seen);
	free(p->count);
	p->mem = NULL;
	p->memo = NULL;
	p->parts = NULL;
	p->fails = NULL;
	p->seen = NULL;
	p->count = NULL;
}
