/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as one JSON object; what is not known is null. */
#include "config.h"

#include "launcher/topo.h"

#include <stdlib.h>

#include <jansson.h>

static json_t *numa_list(const struct topo *t, uint64_t set)
{
	json_t *list = json_array();
	unsigned v[DDP_BIND_NUMA], n = 0;

	for (unsigned i = 0; i < t->nnuma; i++) {
		unsigned at, x = t->numa[i]->os_index;

		if (!(set >> i & 1))
			continue;
		for (at = n++; at && v[at - 1] > x; at--)
			v[at] = v[at - 1];
		v[at] = x;
	}
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, json_integer(v[i]));
	return list;
}

static json_t *string_or_null(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

/* Takes text. */
static json_t *cpus_or_null(char *text)
{
	json_t *value = string_or_null(text);

	free(text);
	return value;
}

static json_t *gpu_object(const struct topo *t, unsigned i)
{
	const struct topo_gpu *g = &t->gpu[i];
	char *cpus = NULL;

	if (g->local->cpuset && !hwloc_bitmap_iszero(g->local->cpuset) &&
	    hwloc_bitmap_list_asprintf(&cpus, g->local->cpuset) < 0)
		cpus = NULL;
	return json_pack("{s:i,s:o,s:o,s:o,s:o}", "index", (int)i,
			 "bus", string_or_null(g->bus),
			 "name", string_or_null(g->name),
			 "numa", numa_list(t, g->numa),
			 "cpus", cpus_or_null(cpus));
}

static json_t *rank_object(const struct topo_plan *p, unsigned rank)
{
	const struct ddp_bind_rank *r = &p->plan.ranks[rank];
	bool bound = p->plan.policy != DDP_BIND_NONE;
	json_t *gpus = json_array();
	char text[1024];

	for (unsigned i = 0; i < r->ngpus; i++)
		json_array_append_new(gpus, json_integer(p->gpus[r->gpus[i]]));
	return json_pack("{s:i,s:o,s:o,s:i,s:o,s:o,s:o,s:o}",
			 "rank", (int)rank, "gpus", gpus,
			 "cpus", cpus_or_null(topo_rank_cpus(p, rank, NULL)),
			 "cores", (int)r->ncores,
			 "numa", numa_list(p->topo, r->numa),
			 "gpu_numa", numa_list(p->topo, r->gpu_numa),
			 "d1", bound ? json_integer((json_int_t)r->d1) :
			 json_null(),
			 "refused", r->refused ? json_string(
				 topo_refusal(p, rank, text, sizeof(text))) :
			 json_null());
}

static json_t *nic_object(const struct topo *t, unsigned i)
{
	const struct topo_nic *nic = &t->nic[i];

	return json_pack("{s:o,s:o,s:o}", "name", string_or_null(nic->name),
			 "bus", string_or_null(nic->bus),
			 "numa", numa_list(t, nic->numa));
}

static json_t *whole(const struct topo_plan *p)
{
	const struct ddp_bind_plan *b = &p->plan;
	bool bound = b->policy != DDP_BIND_NONE;
	json_t *o = json_object(), *gpus = json_array();
	json_t *ranks = json_array(), *nics = json_array();

	json_object_set_new(o, "version", json_integer(1));
	json_object_set_new(o, "topology", json_string(p->topo->label));
	json_object_set_new(o, "ntasks", json_integer(b->nranks));
	json_object_set_new(o, "policy",
			    json_string(ddp_bind_policy_name(b->policy)));
	json_object_set_new(o, "optimal", bound ? json_boolean(b->optimal) :
			    json_null());
	json_object_set_new(o, "d1", bound ? json_integer((json_int_t)b->d1) :
			    json_null());
	json_object_set_new(o, "d2", json_integer((json_int_t)b->d2));
	json_object_set_new(o, "numa", bound ?
			    json_integer((json_int_t)b->numa) : json_null());
	json_object_set_new(o, "shared", bound ?
			    json_boolean(b->unit == DDP_BIND_SHARED) :
			    json_true());
	for (unsigned i = 0; i < p->ngpus; i++)
		json_array_append_new(gpus, gpu_object(p->topo, p->gpus[i]));
	for (unsigned i = 0; i < b->nranks; i++)
		json_array_append_new(ranks, rank_object(p, i));
	for (unsigned i = 0; i < p->topo->nnics; i++)
		json_array_append_new(nics, nic_object(p->topo, i));
	json_object_set_new(o, "gpus", gpus);
	json_object_set_new(o, "ranks", ranks);
	json_object_set_new(o, "nics", nics);
	return o;
}

int topo_show_json(const struct topo_plan *p, FILE *f)
{
	json_t *o = whole(p);
	int rc = json_dumpf(o, f, JSON_ENSURE_ASCII | JSON_PRESERVE_ORDER |
			    JSON_COMPACT);

	json_decref(o);
	return rc || fputc('\n', f) == EOF ? -1 : 0;
}
