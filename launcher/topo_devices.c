/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which devices are GPUs, and which are network adapters. A GPU is a PCI
 * device, however many OS devices (cuda0, nvml0, card1, …) hang below it; a
 * chip that only drives a display is none.
 */
#include "config.h"

#include "core/ddp_text.h"
#include "launcher/topo.h"

#include <stdlib.h>
#include <string.h>

#define NVIDIA 0x10de
#define AMD 0x1002
#define INTEL 0x8086
#define CLASS_3D 0x0302
#define CLASS_DISPLAY 0x0380

/* In the order in which they count where no PCI device is known. */
static const char *const backends[] = { "cuda", "nvml", "rsmi", "ze",
					"opencl" };

/* The backend that an OS device's name begins with, or -1. */
static int backend_of(hwloc_obj_t os)
{
	if (os->type != HWLOC_OBJ_OS_DEVICE || !os->name)
		return -1;
	for (unsigned i = 0; i < sizeof(backends) / sizeof(*backends); i++)
		if (!strncmp(os->name, backends[i], strlen(backends[i])))
			return (int)i;
	return -1;
}

static bool computes(hwloc_obj_t os)
{
	return os->type == HWLOC_OBJ_OS_DEVICE && backend_of(os) >= 0 &&
		(os->attr->osdev.type == HWLOC_OBJ_OSDEV_GPU ||
		 os->attr->osdev.type == HWLOC_OBJ_OSDEV_COPROC);
}

static bool renders(hwloc_obj_t os)
{
	return os->type == HWLOC_OBJ_OS_DEVICE && os->name &&
		!strncmp(os->name, "renderD", 7);
}

static bool is_gpu(hwloc_obj_t pci)
{
	unsigned class = pci->attr->pcidev.class_id;
	unsigned vendor = pci->attr->pcidev.vendor_id;

	if (class >> 8 != 0x03 ||
	    (vendor != NVIDIA && vendor != AMD && vendor != INTEL))
		return false;
	if (class == CLASS_3D)
		return true;
	for (hwloc_obj_t os = pci->io_first_child; os; os = os->next_sibling)
		if (computes(os) || (vendor == AMD && class == CLASS_DISPLAY &&
				     renders(os)))
			return true;
	return false;
}

static void bus_of(hwloc_obj_t obj, char *buf)
{
	const struct hwloc_pcidev_attr_s *a;

	buf[0] = '\0';
	while (obj && obj->type != HWLOC_OBJ_PCI_DEVICE &&
	       hwloc_obj_type_is_io(obj->type))
		obj = obj->parent;
	if (!obj || obj->type != HWLOC_OBJ_PCI_DEVICE)
		return;
	a = &obj->attr->pcidev;
	snprintf(buf, TOPO_BUS, "%04x:%02x:%02x.%x", (unsigned)a->domain,
		 (unsigned)a->bus, (unsigned)a->dev, (unsigned)a->func);
}

static void name_of(hwloc_obj_t obj, char *buf, size_t size)
{
	const char *name = NULL;

	for (hwloc_obj_t os = obj->io_first_child; os && !name;
	     os = os->next_sibling)
		name = hwloc_obj_get_info_by_name(os, "GPUModel");
	if (!name)
		name = hwloc_obj_get_info_by_name(obj, "GPUModel");
	if (!name)
		name = obj->name;
	if (!name)
		name = hwloc_obj_get_info_by_name(obj, "PCIDevice");
	ddp_text_safe(name ? name : "", buf, size);
}

/* The nearest object above that says which CPUs are near. */
static hwloc_obj_t local_of(hwloc_obj_t obj)
{
	while (obj->parent && (hwloc_obj_type_is_io(obj->type) || !obj->cpuset))
		obj = obj->parent;
	return obj;
}

static int add_gpu(struct topo *t, hwloc_obj_t obj, struct ddp_err *err)
{
	struct topo_gpu *g = &t->gpu[t->ngpus];

	if (t->ngpus == DDP_BIND_GPUS)
		return ddp_err_set(err, DDP_EINVAL, "%s has more than %d GPUs",
				   t->label, DDP_BIND_GPUS);
	g->obj = obj;
	g->local = local_of(obj);
	g->numa = topo_numa_of(t, g->local->cpuset);
	bus_of(obj, g->bus);
	name_of(obj, g->name, sizeof(g->name));
	t->ngpus++;
	return 0;
}

static int by_bus(const void *a, const void *b)
{
	const struct topo_gpu *x = a, *y = b;
	const struct hwloc_pcidev_attr_s *p = &x->obj->attr->pcidev;
	const struct hwloc_pcidev_attr_s *q = &y->obj->attr->pcidev;

	if (p->domain != q->domain)
		return p->domain < q->domain ? -1 : 1;
	if (p->bus != q->bus)
		return p->bus < q->bus ? -1 : 1;
	if (p->dev != q->dev)
		return p->dev < q->dev ? -1 : 1;
	return (int)p->func - (int)q->func;
}

/* OS devices of one backend, where no GPU has a PCI device. */
static int find_plain_gpus(struct topo *t, struct ddp_err *err)
{
	for (unsigned i = 0; i < sizeof(backends) / sizeof(*backends); i++) {
		hwloc_obj_t os = NULL;

		while ((os = hwloc_get_next_osdev(t->hw, os)))
			if (computes(os) && backend_of(os) == (int)i &&
			    os->parent->type != HWLOC_OBJ_PCI_DEVICE &&
			    add_gpu(t, os, err))
				return -1;
		if (t->ngpus)
			break;
	}
	return 0;
}

static void find_nics(struct topo *t)
{
	hwloc_obj_t os = NULL;

	while ((os = hwloc_get_next_osdev(t->hw, os))) {
		struct topo_nic *n = &t->nic[t->nnics];

		if (os->attr->osdev.type != HWLOC_OBJ_OSDEV_NETWORK &&
		    os->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS)
			continue;
		if (t->nnics == TOPO_NICS)
			return;
		n->obj = os;
		n->numa = topo_numa_of(t, local_of(os)->cpuset);
		bus_of(os, n->bus);
		ddp_text_safe(os->name ? os->name : "", n->name,
			      sizeof(n->name));
		t->nnics++;
	}
}

int topo_find_devices(struct topo *t, struct ddp_err *err)
{
	hwloc_obj_t pci = NULL;

	while ((pci = hwloc_get_next_pcidev(t->hw, pci)))
		if (is_gpu(pci) && add_gpu(t, pci, err))
			return -1;
	if (t->ngpus)
		qsort(t->gpu, t->ngpus, sizeof(t->gpu[0]), by_bus);
	else if (find_plain_gpus(t, err))
		return -1;
	find_nics(t);
	return 0;
}
