/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPUs have a direct link, from hwloc's matrices of bandwidths. Only the
 * values between GPUs count, not those to switches, CPUs or themselves. Two
 * are linked if theirs is more than the smallest one, or if all are the same
 * and not 0 (all hang at one switch).
 */
#include "config.h"

#include "launcher/topo.h"

#include <hwloc/distances.h>
#include <string.h>

#define MATRICES 16

/* The GPU that an object belongs to, or -1. */
static int gpu_of(const struct topo *t, hwloc_obj_t obj)
{
	for (; obj && hwloc_obj_type_is_io(obj->type); obj = obj->parent)
		for (unsigned i = 0; i < t->ngpus; i++)
			if (t->gpu[i].obj == obj)
				return (int)i;
	return -1;
}

static bool is_link_matrix(const struct topo *t,
			   struct hwloc_distances_s *m)
{
	const char *name = hwloc_distances_get_name(t->hw, m);

	if (!(m->kind & HWLOC_DISTANCES_KIND_MEANS_BANDWIDTH))
		return false;
	return (name && !strcmp(name, "NVLinkBandwidth")) ||
		m->kind & HWLOC_DISTANCES_KIND_HETEROGENEOUS_TYPES;
}

static void read_matrix(struct topo *t, const struct hwloc_distances_s *m)
{
	uint64_t v[DDP_BIND_GPUS][DDP_BIND_GPUS], least = UINT64_MAX, most = 0;
	bool known[DDP_BIND_GPUS][DDP_BIND_GPUS] = { { false } };
	unsigned n = m->nbobjs;

	memset(v, 0, sizeof(v));
	for (unsigned a = 0; a < n; a++) {
		int i = m->objs[a] ? gpu_of(t, m->objs[a]) : -1;

		for (unsigned b = 0; b < n && i >= 0; b++) {
			int j = m->objs[b] ? gpu_of(t, m->objs[b]) : -1;
			uint64_t x = m->values[(size_t)a * n + b];

			if (j < 0 || i == j)
				continue;
			known[i][j] = known[j][i] = true;
			if (x > v[i][j])
				v[i][j] = v[j][i] = x;
			least = x < least ? x : least;
			most = x > most ? x : most;
		}
	}
	for (unsigned i = 0; i < t->ngpus; i++)
		for (unsigned j = 0; j < t->ngpus; j++)
			if (known[i][j] && v[i][j] &&
			    (v[i][j] > least || least == most))
				t->linked[i][j] = true;
}

void topo_find_links(struct topo *t)
{
	struct hwloc_distances_s *m[MATRICES];
	unsigned n = MATRICES;

	if (hwloc_distances_get(t->hw, &n, m, 0, 0))
		return;
	for (unsigned i = 0; i < n && i < MATRICES; i++) {
		if (is_link_matrix(t, m[i]))
			read_matrix(t, m[i]);
		hwloc_distances_release(t->hw, m[i]);
	}
}
