/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPU is which. The one name that all agree on is the PCI bus id: the
 * kernel's, hwloc's and the driver's. From it: the driver's minor number (the
 * device file, which the device cgroup rules over) and the UUID. A number in
 * a list of visible GPUs is neither: it counts the GPUs that the process may
 * open, by CUDA in the order of bus ids (CUDA_DEVICE_ORDER=PCI_BUS_ID), by
 * ROCm in the order of the kernel's KFD nodes.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_io.h"
#include "core/ddp_text.h"
#include "launcher/place.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NVIDIA 0x10de
#define AMD 0x1002
#define RENDER_FIRST 128
#define KFD "/sys/class/kfd/kfd/topology/nodes"

static unsigned vendor_of(const struct topo_gpu *g)
{
	return g->obj->type == HWLOC_OBJ_PCI_DEVICE ?
		g->obj->attr->pcidev.vendor_id : 0;
}

/* The value behind "name:", without what follows the first blank. */
static bool line_value(const char *text, const char *name, char *buf,
		       size_t size)
{
	const char *p = strstr(text, name);
	size_t n;

	if (!p)
		return false;
	p += strlen(name);
	p += strspn(p, ": \t");
	n = strcspn(p, " \t\r\n");
	if (!n || n >= size)
		return false;
	memcpy(buf, p, n);
	buf[n] = '\0';
	return true;
}

/* /proc/driver/nvidia/gpus/BUS/information */
static void ask_driver(const struct place *p, unsigned gpu, struct place_id *id)
{
	char path[512], text[4096], value[64];
	uint32_t minor;

	(void)snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus/%s/"
		       "information", p->sysroot, p->topo->gpu[gpu].bus);
	if (ddp_io_read_file(path, text, sizeof(text)) <= 0)
		return;
	if (line_value(text, "Device Minor", value, sizeof(value)) &&
	    !ddp_text_u32(value, 0, 255, &minor))
		id->nvidia = (int)minor;
	/* "GPU-????…" where the device was never opened. */
	if (line_value(text, "GPU UUID", value, sizeof(value)) &&
	    !strncmp(value, "GPU-", 4) && !strchr(value, '?'))
		(void)ddp_text_copy(id->uuid, sizeof(id->uuid), value);
}

/* What hwloc has found below the PCI device. */
static void ask_topology(const struct topo_gpu *g, struct place_id *id)
{
	uint32_t n;

	for (hwloc_obj_t os = g->obj->io_first_child; os;
	     os = os->next_sibling) {
		const char *uuid = hwloc_obj_get_info_by_name(os, "NVIDIAUUID");

		if (os->name && !strncmp(os->name, "renderD", 7) &&
		    !ddp_text_u32(os->name + 7, RENDER_FIRST,
				  RENDER_FIRST + 63, &n))
			id->render = (int)n;
		if (uuid && !id->uuid[0])
			(void)ddp_text_copy(id->uuid, sizeof(id->uuid), uuid);
	}
}

/* A number behind "name " in a KFD file; 0 or -1. */
static int kfd_number(const char *text, const char *name, uint32_t *out)
{
	char value[32];

	return line_value(text, name, value, sizeof(value)) ?
		ddp_text_u32(value, 0, UINT32_MAX, out) : -1;
}

/* As ROCm writes it: "GPU-" and 16 digits; a GPU without one has 0. */
static void kfd_uuid(const char *text, char *uuid, size_t size)
{
	char value[32], *end;
	unsigned long long id;

	if (!line_value(text, "unique_id", value, sizeof(value)))
		return;
	id = strtoull(value, &end, 10);
	if (id && !*end)
		(void)snprintf(uuid, size, "GPU-%016llx", id);
}

/* GPUs that the kernel's compute driver lists as its node i. */
static void take_kfd_node(struct place *p, unsigned node)
{
	uint32_t simds, where, domain = 0;
	char path[512], text[4096], bus[TOPO_BUS];

	(void)snprintf(path, sizeof(path), "%s" KFD "/%u/properties",
		       p->sysroot, node);
	if (ddp_io_read_file(path, text, sizeof(text)) <= 0 ||
	    kfd_number(text, "simd_count", &simds) || !simds ||
	    kfd_number(text, "location_id", &where))
		return;
	(void)kfd_number(text, "\ndomain", &domain);
	(void)snprintf(bus, sizeof(bus), "%04x:%02x:%02x.%x", domain & 0xffff,
		       where >> 8 & 0xff, where >> 3 & 0x1f, where & 7);
	for (unsigned i = 0; i < p->topo->ngpus; i++)
		if (vendor_of(&p->topo->gpu[i]) == AMD &&
		    !strcmp(p->topo->gpu[i].bus, bus)) {
			p->id[i].order = node;
			kfd_uuid(text, p->id[i].uuid, sizeof(p->id[i].uuid));
		}
}

static void ask_kfd(struct place *p)
{
	char path[512];
	struct dirent *e;
	uint32_t node;
	DIR *d;

	(void)snprintf(path, sizeof(path), "%s" KFD, p->sysroot);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (!ddp_text_u32(e->d_name, 0, 4095, &node))
			take_kfd_node(p, node);
	if (d)
		closedir(d);
}

void place_identify(struct place *p)
{
	bool amd = false;

	for (unsigned i = 0; i < p->topo->ngpus; i++) {
		const struct topo_gpu *g = &p->topo->gpu[i];
		struct place_id *id = &p->id[i];

		id->nvidia = id->render = -1;
		id->order = i;
		id->uuid[0] = '\0';
		if (vendor_of(g) == NVIDIA && g->bus[0])
			ask_driver(p, i, id);
		ask_topology(g, id);
		amd |= vendor_of(g) == AMD;
	}
	if (amd)
		ask_kfd(p);
}

/* 1: the task may open the GPU; 0: not; -1: that cannot be told. */
static int may_open(const struct place *p, const struct ddp_ask *ask,
		    unsigned gpu)
{
	bool nvidia = vendor_of(&p->topo->gpu[gpu]) == NVIDIA;
	int n = nvidia ? p->id[gpu].nvidia : p->id[gpu].render - RENDER_FIRST;
	uint64_t there = nvidia ? ask->there : ask->render_there;
	uint64_t open = nvidia ? ask->open : ask->render_open;

	if (there == open)	/* nothing is withheld */
		return 1;
	if (n < 0 || n > 63 || !(there >> n & 1))
		return -1;
	return open >> n & 1 ? 1 : 0;
}

/* One that NVIDIA's driver does not list, where it lists others, is not its
 * (given to a virtual machine, say), and is not counted by CUDA. */
static bool has_driver(const struct place *p, unsigned gpu)
{
	bool any = false;

	for (unsigned i = 0; i < p->topo->ngpus; i++)
		any |= p->id[i].nvidia >= 0;
	return !any || vendor_of(&p->topo->gpu[gpu]) != NVIDIA ||
		p->id[gpu].nvidia >= 0;
}

/* A library counts its vendor's GPUs alone; what is not known counts all. */
static bool counts(const struct place *p, const struct ddp_ask *ask,
		   unsigned gpu)
{
	bool any = false;

	for (unsigned i = 0; i < p->topo->ngpus; i++)
		any |= vendor_of(&p->topo->gpu[i]) == ask->vendor;
	return (!any || vendor_of(&p->topo->gpu[gpu]) == ask->vendor) &&
		has_driver(p, gpu);
}

uint32_t place_vendor(const struct place *p)
{
	for (unsigned i = 0; i < p->ngpus; i++)
		if (p->gpu[i].gpu != TOPO_GPU_UNKNOWN)
			return vendor_of(&p->topo->gpu[p->gpu[i].gpu]);
	return 0;
}

int place_visible(const struct place *p, const struct ddp_ask *ask,
		  unsigned *gpus)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->topo->ngpus; i++) {
		int rc = counts(p, ask, i) ? may_open(p, ask, i) : 0;
		unsigned at = n;

		if (rc < 0)
			return -1;
		if (!rc)
			continue;
		for (; at && p->id[gpus[at - 1]].order > p->id[i].order; at--)
			gpus[at] = gpus[at - 1];
		gpus[at] = i;
		n++;
	}
	return (int)n;
}

static unsigned by_number(const struct place *p, const struct ddp_ask *ask,
			  unsigned number)
{
	unsigned gpus[DDP_BIND_GPUS];
	int n = place_visible(p, ask, gpus);

	return n > 0 && number < (unsigned)n ? gpus[number] : TOPO_GPU_UNKNOWN;
}

/* A UUID, or the beginning of one if no other begins so. */
static unsigned by_uuid(const struct place *p, const char *uuid, size_t len)
{
	unsigned found = TOPO_GPU_UNKNOWN;

	for (unsigned i = 0; i < p->topo->ngpus; i++) {
		if (strlen(p->id[i].uuid) < len ||
		    strncasecmp(p->id[i].uuid, uuid, len))
			continue;
		if (found != TOPO_GPU_UNKNOWN)
			return TOPO_GPU_UNKNOWN;
		found = i;
	}
	return found;
}

static unsigned by_bus(const struct place *p, const char *bus)
{
	for (unsigned i = 0; i < p->topo->ngpus; i++)
		if (!strcasecmp(p->topo->gpu[i].bus, bus))
			return i;
	return TOPO_GPU_UNKNOWN;
}

/* "MIG-GPU-uuid/gi/ci" names its GPU; for "MIG-uuid" NVML is asked. */
static unsigned by_mig(const struct place *p, const char *word)
{
	char bus[TOPO_BUS];

	if (!strncmp(word, "MIG-GPU-", 8))
		return by_uuid(p, word + 4, strcspn(word + 4, "/"));
	return place_mig_bus(word, bus, sizeof(bus)) ? TOPO_GPU_UNKNOWN :
		by_bus(p, bus);
}

unsigned place_find_gpu(const struct place *p, const struct ddp_ask *ask,
			const char *word)
{
	size_t n = strspn(word, "0123456789");
	uint32_t number;

	/* "2", or "2.1": a tile of Intel's. */
	if (n && (!word[n] || word[n] == '.'))
		return ddp_text_u32_n(word, n, 0, DDP_BIND_GPUS, &number) ?
			TOPO_GPU_UNKNOWN : by_number(p, ask, number);
	if (!strncmp(word, "MIG-", 4))
		return by_mig(p, word);
	if (!strncmp(word, "GPU-", 4) && strlen(word) > 6)
		return by_uuid(p, word, strlen(word));
	return TOPO_GPU_UNKNOWN;
}
