/* SPDX-License-Identifier: Apache-2.0 */
/* Short texts about ranks: lists of CPUs, GPUs and NUMA nodes, refusals. */
#include "config.h"

#include "core/ddp_text.h"
#include "launcher/topo.h"

#include <stdlib.h>
#include <string.h>

/* Refused ranks that are named. */
#define NAMED 4

char *topo_rank_cpus(const struct topo_plan *p, unsigned rank,
		     hwloc_const_bitmap_t within)
{
	const struct ddp_bind_rank *r = &p->plan.ranks[rank];
	hwloc_bitmap_t set = hwloc_bitmap_alloc();
	char *text = NULL;
	int rc = set ? 0 : -1;

	for (unsigned i = 0; i < r->npus && !rc; i++)
		rc = hwloc_bitmap_set(set, p->pu[r->pus[i]]->os_index);
	if (!rc && within)
		rc = hwloc_bitmap_and(set, set, within);
	if (!rc && hwloc_bitmap_list_asprintf(&text, set) < 0)
		text = NULL;
	hwloc_bitmap_free(set);
	return text;
}

/* "0-2,5" of count sorted numbers. */
static const char *list_text(const unsigned *v, unsigned count, char *buf,
			     size_t size)
{
	size_t pos = 0;

	if (ddp_text_copy(buf, size, "-"))
		return "";
	for (unsigned i = 0; i < count;) {
		unsigned n = 1;

		while (i + n < count && v[i + n] == v[i] + n)
			n++;
		if (ddp_text_add(buf, size, &pos, n > 1 ? "%s%u-%u" : "%s%u",
				 i ? "," : "", v[i], v[i + n - 1]))
			break;
		i += n;
	}
	return buf;
}

static int by_number(const void *a, const void *b)
{
	const unsigned *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

const char *topo_numa_text(const struct topo *t, uint64_t set, char *buf,
			   size_t size)
{
	unsigned v[DDP_BIND_NUMA], n = 0;

	for (unsigned i = 0; i < t->nnuma; i++)
		if (set >> i & 1)
			v[n++] = t->numa[i]->os_index;
	qsort(v, n, sizeof(v[0]), by_number);
	return list_text(v, n, buf, size);
}

const char *topo_gpus_text(const struct topo_plan *p, unsigned rank, char *buf,
			   size_t size)
{
	const struct ddp_bind_rank *r = &p->plan.ranks[rank];
	unsigned v[DDP_BIND_GPUS] = { 0 }, n = 0, unknown = 0;
	size_t pos;

	for (unsigned i = 0; i < r->ngpus; i++) {
		unsigned gpu = p->gpus[r->gpus[i]];

		if (gpu == TOPO_GPU_UNKNOWN)
			unknown++;
		else
			v[n++] = gpu;
	}
	list_text(v, n, buf, size);
	pos = n ? strlen(buf) : 0;
	for (; unknown; unknown--, n++)
		(void)ddp_text_add(buf, size, &pos, n ? ",?" : "?");
	return buf;
}

const char *topo_refusal(const struct topo_plan *p, unsigned rank, char *buf,
			 size_t size)
{
	const struct ddp_bind_rank *r = &p->plan.ranks[rank];
	char gpus[256], gnuma[256], cnuma[256];
	size_t pos = 0;

	buf[0] = '\0';
	topo_gpus_text(p, rank, gpus, sizeof(gpus));
	topo_numa_text(p->topo, r->gpu_numa, gnuma, sizeof(gnuma));
	topo_numa_text(p->topo, r->numa, cnuma, sizeof(cnuma));
	if (r->ngpus)
		(void)ddp_text_add(buf, size, &pos, "got GPU %s (%s%s%s) and ",
				   gpus, r->gpu_numa ? "NUMA " : "",
				   r->gpu_numa ? gnuma : "near no NUMA node "
				   "with CPUs", r->gpu_numa && r->remote ?
				   ", one near none" : "");
	else
		(void)ddp_text_add(buf, size, &pos, "got ");
	(void)ddp_text_add(buf, size, &pos, "CPUs of NUMA %s, %u NUMA nodes "
			   "together; %s %u", cnuma, r->got,
			   p->plan.policy == DDP_BIND_RESTRICTED ?
			   "on an empty node its request needs" :
			   "the policy allows", r->needed);
	return buf;
}

void topo_show_refused(const struct topo_plan *p, const char *prog)
{
	unsigned named = 0;
	char text[1024];

	for (unsigned r = 0; r < p->plan.nranks && named < NAMED; r++) {
		if (!p->plan.ranks[r].refused)
			continue;
		fprintf(stderr, "%s: rank %u is refused by the policy %s: %s\n",
			prog, r, ddp_bind_policy_name(p->plan.policy),
			topo_refusal(p, r, text, sizeof(text)));
		named++;
	}
	if (p->plan.nrefused > named)
		fprintf(stderr, "%s: and %u more ranks\n", prog,
			p->plan.nrefused - named);
	fprintf(stderr, "%s: take %s, or the policy best-effort\n", prog,
		p->plan.policy == DDP_BIND_RESTRICTED ?
		"CPUs next to the GPUs, or another number of ranks" :
		"more ranks with fewer GPUs and CPUs each, or CPUs next to "
		"the GPUs");
}
