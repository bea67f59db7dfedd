/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as a table. */
#include "config.h"

#include "launcher/topo.h"

#include <stdlib.h>

#include <libsmartcols.h>

enum { RANK, GPUS, BUS, CPUS, CORES, NUMA, GPU_NUMA, D1, POLICY, COLUMNS };

static const struct {
	const char *name;
	int flags;
} columns[COLUMNS] = {
	[RANK] = { "RANK", SCOLS_FL_RIGHT },
	[GPUS] = { "GPU", 0 },
	[BUS] = { "BUS", 0 },
	[CPUS] = { "CPUS", SCOLS_FL_WRAP },
	[CORES] = { "CORES", SCOLS_FL_RIGHT },
	[NUMA] = { "NUMA", 0 },
	[GPU_NUMA] = { "GPU-NUMA", 0 },
	[D1] = { "DISTANCE", SCOLS_FL_RIGHT },
	[POLICY] = { "POLICY", 0 },
};

/* The bus id of the rank's first GPU, and how many it has besides. */
static void bus_text(const struct topo_plan *p, const struct ddp_bind_rank *r,
		     char *buf, size_t size)
{
	const char *bus = r->ngpus ? p->topo->gpu[p->gpus[r->gpus[0]]].bus : "";

	if (r->ngpus > 1)
		snprintf(buf, size, "%s +%u", *bus ? bus : "-", r->ngpus - 1);
	else
		snprintf(buf, size, "%s", *bus ? bus : "-");
}

static int set(struct libscols_line *line, int column, const char *text)
{
	return scols_line_set_data(line, (size_t)column, text);
}

static int set_number(struct libscols_line *line, int column, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return set(line, column, text);
}

static int add_rank(struct libscols_table *table, const struct topo_plan *p,
		    unsigned rank)
{
	const struct ddp_bind_rank *r = &p->plan.ranks[rank];
	struct libscols_line *line = scols_table_new_line(table, NULL);
	bool bound = p->plan.policy != DDP_BIND_NONE;
	char buf[4096], *cpus;
	int rc;

	if (!line)
		return -1;
	cpus = topo_rank_cpus(p, rank, NULL);
	if (!cpus)
		return -1;
	rc = set_number(line, RANK, rank) | set(line, CPUS, cpus) |
		set_number(line, CORES, r->ncores) |
		set(line, GPUS, topo_gpus_text(p, rank, buf, sizeof(buf)));
	free(cpus);
	bus_text(p, r, buf, sizeof(buf));
	rc |= set(line, BUS, buf);
	rc |= set(line, NUMA, topo_numa_text(p->topo, r->numa, buf,
					     sizeof(buf)));
	rc |= set(line, GPU_NUMA, topo_numa_text(p->topo, r->gpu_numa, buf,
						 sizeof(buf)));
	rc |= bound ? set_number(line, D1, r->d1) : set(line, D1, "-");
	return rc | set(line, POLICY, r->refused ? "refused" : "ok");
}

/* What is said once about all ranks. */
static void summary(const struct topo_plan *p, FILE *f)
{
	const struct ddp_bind_plan *b = &p->plan;

	fprintf(f, "%s: %u GPUs of %u, %u cores, %u CPUs for %u rank%s, policy "
		"%s\n", p->topo->label, p->ngpus, p->topo->ngpus, p->in.ncores,
		p->in.npus, b->nranks, b->nranks == 1 ? "" : "s",
		ddp_bind_policy_name(b->policy));
	if (b->policy == DDP_BIND_NONE) {
		fputs("nothing is bound; GPUs in the given order\n", f);
		return;
	}
	fprintf(f, "distance CPU to GPU %llu, GPU to GPU %llu, NUMA nodes "
		"touched %llu: %s\n", (unsigned long long)b->d1,
		(unsigned long long)b->d2, (unsigned long long)b->numa,
		b->optimal ? "the optimum" : "not proven to be the optimum");
	if (b->unit == DDP_BIND_SHARED)
		fputs("fewer CPUs than ranks: ranks share CPUs\n", f);
	else if (b->unit == DDP_BIND_PUS)
		fputs("fewer cores than ranks: ranks share cores\n", f);
}

int topo_show_table(const struct topo_plan *p, FILE *f)
{
	struct libscols_table *table = scols_new_table();
	int rc = -1;

	if (!table)
		return -1;
	summary(p, f);
	scols_table_set_stream(table, f);
	for (int i = 0; i < COLUMNS; i++)
		if (!scols_table_new_column(table, columns[i].name, 0,
					    columns[i].flags))
			goto out;
	for (unsigned i = 0; i < p->plan.nranks; i++)
		if (add_rank(table, p, i))
			goto out;
	rc = scols_print_table(table) ? -1 : 0;
out:
	scols_unref_table(table);
	return rc;
}
