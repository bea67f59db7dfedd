/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_master.h"
#include "core/ddp_probe.h"

#include <stdlib.h>

/* Candidates that are tried, and how long a silent host is waited for. */
#define PORT_TRIES 64U
#define PROBE_MS 300

void ddp_master_pool(const struct ddp_site *site, uint16_t srun_lo,
		     uint16_t srun_hi, struct ddp_portset *set)
{
	if (site->port_lo) {	/* the site knows better than any rule */
		ddp_portset_init(set, site->port_lo, site->port_hi);
		return;
	}
	for (uint32_t low = 20000;; low = 1024) {
		ddp_portset_init(set, low, 65535);
		ddp_probe_exclude(set);
		if (srun_lo)
			ddp_portset_exclude(set, srun_lo, srun_hi);
		if (set->total >= PORT_TRIES || low == 1024)
			return;
	}
}

/* What is known of ports on rank 0's host, and how. */
struct prober {
	const struct ddp_plan *plan;
	const struct ddp_portset *set;
	bool probe, local;
	uint32_t attempt;
};

static enum ddp_probe_result probe(const struct prober *p, uint16_t port)
{
	if (!p->probe || !p->plan->ip[0])
		return DDP_PORT_UNKNOWN;
	if (p->local)
		return ddp_probe_bind(port);
	return ddp_probe_connect(p->plan->ip, port, PROBE_MS);
}

/*
 * The next candidate without a listener. A host that does not answer in time
 * is not asked again: rank 0 binds the port once more before it starts.
 */
static int next_port(struct prober *p, uint16_t *port, struct ddp_err *err)
{
	const struct ddp_plan *plan = p->plan;

	for (uint32_t end = p->attempt + PORT_TRIES; p->attempt < end;) {
		*port = ddp_port_candidate(p->set, plan->job, plan->step,
					   plan->restart, p->attempt++);
		if (probe(p, *port) != DDP_PORT_BUSY)
			return 0;
	}
	return ddp_err_set(err, DDP_EBUSY, "%u candidate ports are in use on "
			   "%s; use --ddp-master-port=PORT", PORT_TRIES,
			   plan->addr);
}

/* One port for each local rank that any node has, none of them twice. */
static int choose_tf(struct prober *p, struct ddp_plan *plan,
		     struct ddp_err *err)
{
	uint32_t most = 0;
	size_t size, pos = 0;
	uint16_t port;

	for (uint32_t i = 0; i < plan->layout.nnodes; i++)
		if (plan->layout.tasks[i] > most)
			most = plan->layout.tasks[i];
	if (most > DDP_TF_LOCAL_MAX || p->set->total < 2 * most + PORT_TRIES)
		return ddp_err_set(err, DDP_EINVAL, "--ddp-frameworks=tf: %u "
				   "tasks on a node need more ports than "
				   "there are", most);
	size = (size_t)most * 6 + 1;
	plan->tf_ports = calloc(1, size);
	if (!plan->tf_ports)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < most; i++) {
		do {
			if (next_port(p, &port, err))
				return -1;
		} while (port == plan->port);
		if (ddp_text_add(plan->tf_ports, size, &pos, "%s%u",
				 i ? "," : "", port))
			return ddp_err_set(err, DDP_ENOSPC, "tf ports");
	}
	return 0;
}

int ddp_master_choose(struct ddp_plan *plan, const struct ddp_portset *set,
		      bool want_probe, struct ddp_err *err)
{
	struct prober p = { .plan = plan, .set = set, .probe = want_probe };
	bool tf = plan->frameworks & DDP_FW_BIT(DDP_FW_TF);

	p.local = plan->ip[0] && ddp_probe_is_local(plan->ip);
	if (plan->port && probe(&p, plan->port) == DDP_PORT_BUSY)
		return ddp_err_set(err, DDP_EBUSY, "master port %u is in use "
				   "on %s; choose another one or "
				   "--ddp-master-port=auto", plan->port,
				   plan->addr);
	if ((!plan->port || tf) && !set->total)
		return ddp_err_set(err, DDP_EBUSY, "no port is left outside "
			"net.ipv4.ip_local_port_range and SrunPortRange; use "
			"--ddp-master-port=PORT, or set port_range= in "
			"plugstack.conf");
	if (!plan->port && next_port(&p, &plan->port, err))
		return -1;
	return tf ? choose_tf(&p, plan, err) : 0;
}
