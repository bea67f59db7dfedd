/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/place.h"

#include "core/ddp_text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/*
 * hwloc's plugins that start a whole GPU runtime for what sysfs and NVML tell
 * faster, and those for which hwloc has a small part of its own (PCI by sysfs,
 * its own XML): loading them takes longer than all the rest.
 */
#define NOT_LOADED "hwloc_cuda.so,hwloc_opencl.so,hwloc_gl.so," \
	"hwloc_levelzero.so,hwloc_pci.so,hwloc_xml_libxml.so"

/* Texts of several sentences: one line each, in the order of their coming. */
static void __attribute__((format(printf, 2, 0)))
add_line(char *to, const char *fmt, va_list ap)
{
	size_t pos = strlen(to);

	if (pos && pos + 1 < DDP_PLACE_TEXT)
		to[pos++] = '\n';
	(void)vsnprintf(to + pos, DDP_PLACE_TEXT - pos, fmt, ap);
}

void place_hint(struct place *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_line(p->hint, fmt, ap);
	va_end(ap);
}

void place_warn(struct place *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_line(p->warning, fmt, ap);
	va_end(ap);
}

static int load_topology(struct place *p, bool devices, struct ddp_err *err)
{
	struct ddp_err why;

	if (p->topology[0]) {
		if (!topo_load(p->topo, p->topology, devices, &why))
			return 0;
		place_warn(p, "topology= of plugstack.conf: %s; this machine "
			   "is looked at instead", why.text);
		topo_free(p->topo);
	}
	return topo_load(p->topo, NULL, devices, err);
}

int place_load(struct place *p, bool devices, struct ddp_err *err)
{
	p->topo = calloc(1, sizeof(*p->topo));
	p->plan = calloc(1, sizeof(*p->plan));
	if (!p->topo || !p->plan ||
	    setenv("HWLOC_PLUGINS_BLACKLIST", NOT_LOADED, 1) ||
	    setenv("HWLOC_COMPONENTS", "-x86", 1))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (load_topology(p, devices, err))
		return -1;
	p->devices = devices;
	place_identify(p);
	return 0;
}

void place_clear(struct place *p)
{
	if (p->plan)
		topo_plan_free(p->plan);
	if (p->topo)
		topo_free(p->topo);
	free(p->plan);
	free(p->topo);
	free(p->vis);
	free(p->sees);
	free(p->slot);
	free(p->users);
	place_mig_end();
	hwloc_bitmap_free(p->cpus);
	p->plan = NULL;
	p->topo = NULL;
	p->vis = NULL;
	p->sees = NULL;
	p->slot = NULL;
	p->users = NULL;
	p->cpus = NULL;
}

/* PUs of the plan where each task may run now; rows of one array. */
static int given_pus(struct place *p, const uint32_t **pus, unsigned *npus,
		     uint32_t *all, struct ddp_err *err)
{
	const struct topo_plan *t = p->plan;

	for (unsigned i = 0; i < p->n; i++) {
		uint32_t *row = all + (size_t)i * t->in.npus;

		pus[i] = row;
		for (unsigned u = 0; u < t->in.npus; u++)
			if (CPU_ISSET_S(t->pu[u]->os_index,
					sizeof(p->ask[i].cpus),
					(cpu_set_t *)p->ask[i].cpus))
				row[npus[i]++] = u;
		if (!npus[i])
			return ddp_err_set(err, DDP_EINCONS, "the CPUs of rank "
				"%u are not in the topology",
				p->ask[i].rank);
	}
	return 0;
}

static int decide(struct place *p, struct ddp_err *err)
{
	struct topo_plan *t = p->plan;
	const uint32_t **pus = calloc(p->n, sizeof(*pus));
	unsigned *npus = calloc(p->n, sizeof(*npus));
	uint32_t *all = calloc((size_t)p->n * t->in.npus + 1, sizeof(*all));
	struct ddp_bind_fixed fixed = { NULL, NULL, NULL };
	int rc = -1;

	t->in.work = PLACE_WORK;
	if (!pus || !npus || !all) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto out;
	}
	if (p->fixed_cpus) {
		if (given_pus(p, pus, npus, all, err))
			goto out;
		fixed.pus = pus;
		fixed.npus = npus;
	}
	if (p->fixed_gpus)
		fixed.gpus = p->sees;
	rc = topo_plan_decide(t, p->n, p->req->policy,
			      p->fixed_cpus || p->fixed_gpus ? &fixed : NULL,
			      err);
out:
	free(pus);
	free(npus);
	free(all);
	return rc;
}

static int make_plan(struct place *p, struct ddp_err *err)
{
	struct topo_plan *t = p->plan;

	p->vis = calloc(p->n, sizeof(*p->vis));
	p->sees = calloc(p->n, sizeof(*p->sees));
	p->slot = calloc(p->n, sizeof(*p->slot));
	if (!p->vis || !p->sees || !p->slot)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	place_find_gpus(p);
	if (place_find_cpus(p, err))
		return -1;
	t->topo = p->topo;
	t->ngpus = p->ngpus;
	for (unsigned i = 0; i < p->ngpus; i++)
		t->gpus[i] = p->gpu[i].gpu;
	t->cpus = hwloc_bitmap_dup(p->cpus);
	if (!t->cpus)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (topo_plan_fill(t, err))
		return -1;
	p->users = calloc(t->in.ncores + 1U, sizeof(*p->users));
	if (!p->users)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	return decide(p, err);
}

/* No plan: ranks stay where they are, unless the policy must know. */
static void answer_nothing(struct place *p, const struct ddp_err *err)
{
	bool strict = ddp_place_is_strict(p->req);

	for (unsigned i = 0; i < p->n; i++) {
		p->out[i].state = strict ? DDP_PLACE_REFUSED : DDP_PLACE_DONE;
		if (strict)
			ddp_place_unjudged(p->req, err->text, p->out[i].why,
					   DDP_PLACE_TEXT);
	}
	place_warn(p, "ranks are not bound to CPUs: %s", err->text);
}

/* Written by other processes of the user's. */
static void check_asks(struct place *p)
{
	for (unsigned i = 0; i < p->n; i++) {
		struct ddp_place_req *r = &p->ask[i].req;

		if ((unsigned)r->policy > DDP_BIND_SINGLE_NUMA ||
		    (unsigned)r->gpus > DDP_GPUS_RANK ||
		    (unsigned)r->gpu_said > DDP_GPU_SAID_NONE)
			memset(r, 0, sizeof(*r));
	}
	p->req = &p->ask[0].req;
}

unsigned place_make(struct place *p)
{
	struct ddp_err err;
	unsigned refused = 0;

	check_asks(p);
	if (make_plan(p, &err))
		answer_nothing(p, &err);
	else
		place_answer(p);
	for (unsigned i = 0; i < p->n; i++)
		refused += p->out[i].state == DDP_PLACE_REFUSED;
	if (p->n && !refused) {
		memcpy(p->out[0].hint, p->hint, sizeof(p->hint));
		memcpy(p->out[0].warning, p->warning, sizeof(p->warning));
	}
	return refused;
}
