/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a topology and finds its NUMA nodes. */
#include "config.h"

#include "launcher/topo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

hwloc_obj_t topo_next(hwloc_obj_t obj)
{
	hwloc_obj_t child;

	/* A node's children: CPU side, memory, I/O, then what is misc. */
	child = obj->first_child ? obj->first_child :
		obj->memory_first_child ? obj->memory_first_child :
		obj->io_first_child ? obj->io_first_child :
		obj->misc_first_child;
	if (child)
		return child;
	for (; obj->parent; obj = obj->parent) {
		hwloc_obj_t up = obj->parent;

		if (obj->next_sibling)
			return obj->next_sibling;
		if (hwloc_obj_type_is_normal(obj->type) &&
		    up->memory_first_child)
			return up->memory_first_child;
		if ((hwloc_obj_type_is_normal(obj->type) ||
		     hwloc_obj_type_is_memory(obj->type)) && up->io_first_child)
			return up->io_first_child;
		if (obj->type != HWLOC_OBJ_MISC && up->misc_first_child)
			return up->misc_first_child;
	}
	return NULL;
}

static unsigned depth_of(hwloc_obj_t obj)
{
	unsigned n = 0;

	for (; obj->parent; obj = obj->parent)
		n++;
	return n;
}

unsigned topo_edges(hwloc_obj_t a, hwloc_obj_t b)
{
	unsigned da = depth_of(a), db = depth_of(b), edges = 0;

	for (; da > db; da--, edges++)
		a = a->parent;
	for (; db > da; db--, edges++)
		b = b->parent;
	for (; a != b; edges += 2) {
		a = a->parent;
		b = b->parent;
	}
	return edges;
}

uint64_t topo_numa_of(const struct topo *t, hwloc_const_bitmap_t set)
{
	uint64_t numa = 0;

	for (unsigned i = 0; set && i < t->nnuma; i++)
		if (hwloc_bitmap_intersects(t->numa[i]->cpuset, set))
			numa |= (uint64_t)1 << i;
	return numa;
}

/* Those with CPUs that are no GPU's memory. */
static int find_numa(struct topo *t, struct ddp_err *err)
{
	hwloc_obj_t obj = NULL;

	while ((obj = hwloc_get_next_obj_by_type(t->hw, HWLOC_OBJ_NUMANODE,
						 obj))) {
		if (!obj->cpuset || hwloc_bitmap_iszero(obj->cpuset) ||
		    (obj->subtype && !strcmp(obj->subtype, "GPUMemory")))
			continue;
		if (t->nnuma == DDP_BIND_NUMA)
			return ddp_err_set(err, DDP_EINVAL, "%s has more than "
					   "%d NUMA nodes with CPUs", t->label,
					   DDP_BIND_NUMA);
		t->numa[t->nnuma++] = obj;
	}
	return 0;
}

static int set_source(struct topo *t, const char *file, struct ddp_err *err)
{
	struct stat st;

	if (hwloc_topology_init(&t->hw)) {
		t->hw = NULL;
		return ddp_err_set(err, DDP_ENOMEM, "hwloc cannot start");
	}
	if (file && (stat(file, &st) || access(file, R_OK)))
		return ddp_err_set(err, DDP_ESYS, "cannot read %s: %s", file,
				   strerror(errno));
	if (file && S_ISDIR(st.st_mode))
		return ddp_err_set(err, DDP_ESYS, "%s is a folder", file);
	if (file && hwloc_topology_set_xml(t->hw, file))
		return ddp_err_set(err, DDP_EINVAL, "%s is no topology that "
				   "hwloc can read; save one with: lstopo "
				   "--of xml FILE", file);
	if (hwloc_topology_set_io_types_filter(t->hw,
			HWLOC_TYPE_FILTER_KEEP_IMPORTANT) ||
	    hwloc_topology_set_type_filter(t->hw, HWLOC_OBJ_MISC,
			HWLOC_TYPE_FILTER_KEEP_ALL) ||
	    hwloc_topology_set_flags(t->hw,
			HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED))
		return ddp_err_set(err, DDP_ESYS, "hwloc takes no settings");
	return 0;
}

int topo_load(struct topo *t, const char *file, struct ddp_err *err)
{
	memset(t, 0, sizeof(*t));
	t->label = file ? file : "machine";
	/* What is wrong is said here, once. A user who wants hwloc's own
	 * words sets these. */
	if (setenv("HWLOC_HIDE_ERRORS", "2", 0))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (set_source(t, file, err))
		return -1;
	if (hwloc_topology_load(t->hw))
		return ddp_err_set(err, DDP_EINVAL, "hwloc cannot load %s%s",
				   file ? "the topology in " : "this ",
				   t->label);
	if (find_numa(t, err) || topo_find_devices(t, err))
		return -1;
	topo_find_links(t);
	return 0;
}

void topo_free(struct topo *t)
{
	if (t->hw)
		hwloc_topology_destroy(t->hw);
	t->hw = NULL;
}
