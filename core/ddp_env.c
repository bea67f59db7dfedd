/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To add a framework: its bit and name in ddp_options, a function here that
 * puts its variables, and a line in the table at the end.
 */
#include "config.h"

#include "core/ddp_env.h"
#include "core/ddp_life.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char *const ddp_env_sentinels[] = {
	"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
	"MASTER_PORT", NULL
};

/* The walk over the variables: stops at the first non-zero rc. */
struct walk {
	const struct ddp_plan *plan;
	const struct ddp_rank *r;
	ddp_env_fn fn;
	void *arg;
	int rc;
};

#define OWN 0
#define EACH DDP_VAR_PER_RANK
#define SOFT DDP_VAR_DEFAULT
#define NODE (DDP_VAR_PER_RANK | DDP_VAR_ON_NODE)
/* Port 0: rank 0's node has yet to reserve one. */
#define PORT(w) ((w)->plan->port ? OWN : DDP_VAR_ON_NODE)

static void put(struct walk *w, const char *name, const char *value,
		const char *source, unsigned flags)
{
	struct ddp_var v = { name, value, source, flags, NULL };

	if (!w->rc)
		w->rc = w->fn(w->arg, &v);
}

static void put_u32(struct walk *w, const char *name, uint32_t value,
		    const char *source, unsigned flags)
{
	char text[16];

	snprintf(text, sizeof(text), "%" PRIu32, value);
	put(w, name, text, source, flags);
}

/* "address:port", with brackets around a numeric IPv6 address. */
static void put_endpoint(struct walk *w, const char *name, const char *source)
{
	char text[DDP_ADDR_MAX + 16];
	const char *addr = w->plan->addr;
	int n;

	n = snprintf(text, sizeof(text),
		     ddp_text_is_ipv6(addr) ? "[%s]:%u" : "%s:%u", addr,
		     w->plan->port);
	if (n < 0 || (size_t)n >= sizeof(text))
		w->rc = w->rc ? w->rc : -1;
	else
		put(w, name, text, source, PORT(w));
}

static const char *port_source(const struct ddp_plan *plan)
{
	if (plan->given & (1U << DDP_OPT_MASTER_PORT))
		return "--ddp-master-port";
	if (!plan->port)
		return "reserved by rank 0's node at the start";
	return plan->het ? "drawn at random; free on rank 0's node" :
		"job, step, restart; free on rank 0's node";
}

static void put_world(struct walk *w)
{
	const struct ddp_layout *l = &w->plan->layout;
	uint32_t noderank = l->rank[w->r->node];

	put_u32(w, "RANK", w->r->rank, "global task id", EACH);
	put_u32(w, "WORLD_SIZE", l->ntasks, "tasks in the step", OWN);
	put_u32(w, "LOCAL_RANK", w->r->local, "task id on the node", EACH);
	put_u32(w, "LOCAL_WORLD_SIZE", l->tasks[w->r->node],
		"tasks on this node", EACH);
	put_u32(w, "NODE_RANK", noderank, "node, by lowest rank", EACH);
	put(w, "MASTER_ADDR", w->plan->addr,
	    w->plan->given & (1U << DDP_OPT_MASTER_ADDR) ?
	    "--ddp-master-addr" : "NodeAddr of rank 0's node", OWN);
	put_u32(w, "MASTER_PORT", w->plan->port, port_source(w->plan),
		PORT(w));
}

/*
 * For people who run torchrun inside a task: every task is one torchrun
 * agent, whatever the number of tasks a node, and each starts one worker a
 * GPU that it sees.
 */
static void put_torchrun(struct walk *w)
{
	char id[32];

	put_u32(w, "PET_NNODES", w->plan->layout.ntasks,
		"torchrun: one agent a task", OWN);
	put_u32(w, "PET_NODE_RANK", w->r->rank, "torchrun: RANK", EACH);
	put_u32(w, "PET_NPROC_PER_NODE", w->r->gpus ? w->r->gpus : 1,
		"torchrun: GPUs of the task", NODE);
	put(w, "PET_MASTER_ADDR", w->plan->addr, "torchrun: MASTER_ADDR", OWN);
	put_u32(w, "PET_MASTER_PORT", w->plan->port, "torchrun: MASTER_PORT",
		PORT(w));
	put_endpoint(w, "PET_RDZV_ENDPOINT", "torchrun: address:port");
	snprintf(id, sizeof(id), "%" PRIu32 ".%" PRIu32, w->plan->job,
		 w->plan->step);
	put(w, "PET_RDZV_ID", id, "torchrun: job.step", OWN);
}

static void put_torch(struct walk *w)
{
	struct ddp_var async = { "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1",
		"a failed collective ends the rank", SOFT,
		"NCCL_ASYNC_ERROR_HANDLING" };
	const struct ddp_layout *l = &w->plan->layout;

	put_u32(w, "GROUP_RANK", l->rank[w->r->node], "NODE_RANK", EACH);
	put_u32(w, "GROUP_WORLD_SIZE", l->nnodes, "nodes in the step", OWN);
	put(w, "ROLE_NAME", "default", "one role", OWN);
	put_u32(w, "ROLE_RANK", w->r->rank, "RANK", EACH);
	put_u32(w, "ROLE_WORLD_SIZE", l->ntasks, "WORLD_SIZE", OWN);
	if (w->r->threads)
		put_u32(w, "OMP_NUM_THREADS", w->r->threads,
			"cores of the rank's CPU set", SOFT | NODE);
	if (!w->rc)
		w->rc = w->fn(w->arg, &async);
	put_torchrun(w);
}

/* The static set: enough where MPI or a rendezvous of the user's own ties the
 * ranks together; a Gloo rendezvous server is not announced, none exists. */
static void put_horovod(struct walk *w)
{
	const struct ddp_layout *l = &w->plan->layout;

	if (w->r->nodename)
		put(w, "HOROVOD_HOSTNAME", w->r->nodename, "name of the node",
		    NODE);
	put_u32(w, "HOROVOD_RANK", w->r->rank, "RANK", EACH);
	put_u32(w, "HOROVOD_SIZE", l->ntasks, "WORLD_SIZE", OWN);
	put_u32(w, "HOROVOD_LOCAL_RANK", w->r->local, "LOCAL_RANK", EACH);
	put_u32(w, "HOROVOD_LOCAL_SIZE", l->tasks[w->r->node],
		"LOCAL_WORLD_SIZE", EACH);
	put_u32(w, "HOROVOD_CROSS_RANK",
		ddp_layout_cross_rank(l, w->r->node, w->r->local),
		"place among nodes with this LOCAL_RANK", EACH);
	put_u32(w, "HOROVOD_CROSS_SIZE",
		ddp_layout_cross_size(l, w->r->local),
		"nodes with this LOCAL_RANK", EACH);
}

static void put_deepspeed(struct walk *w)
{
	const struct ddp_layout *l = &w->plan->layout;

	put_u32(w, "LOCAL_SIZE", l->tasks[w->r->node], "LOCAL_WORLD_SIZE",
		EACH);
	put_u32(w, "CROSS_RANK",
		ddp_layout_cross_rank(l, w->r->node, w->r->local),
		"place among nodes with this LOCAL_RANK", EACH);
	put_u32(w, "CROSS_SIZE", ddp_layout_cross_size(l, w->r->local),
		"nodes with this LOCAL_RANK", EACH);
}

static void put_tf(struct walk *w)
{
	char *text = w->rc ? NULL : ddp_env_tf(w->plan, w->r, NULL);

	if (text)
		put(w, "TF_CONFIG", text, "every rank's address:port", EACH);
	else if (!w->rc)
		w->rc = -1;
	free(text);
}

/* jax.distributed takes LOCAL_RANK where nobody says otherwise. */
static void put_jax(struct walk *w)
{
	if (w->r->placed && w->r->placed->ndevices)
		put(w, "JAX_LOCAL_DEVICE_IDS", w->r->placed->devices,
		    "indices of the rank's GPUs", SOFT | NODE);
	put_endpoint(w, "JAX_COORDINATOR_ADDRESS", "address:port");
	put_u32(w, "JAX_COORDINATOR_PORT", w->plan->port, "MASTER_PORT",
		PORT(w));
}

/* Which of the GPUs that the rank sees is its own. */
static void put_place(struct walk *w)
{
	const struct ddp_placed *p = w->r->placed;

	if (!p || !p->ndevices)
		return;
	put_u32(w, "DDP_LOCAL_DEVICE", p->device, "index of the rank's GPU",
		NODE);
	if (p->pci_order)
		put(w, "CUDA_DEVICE_ORDER", "PCI_BUS_ID",
		    "GPUs are counted by bus id", NODE);
}

/* NCCL takes a prefix unless '=' asks for the exact name. */
static void put_iface(struct walk *w)
{
	char exact[DDP_IFNAME_MAX + 1];

	if (!w->r->ifname)
		return;
	snprintf(exact, sizeof(exact), "=%s", w->r->ifname);
	put(w, "NCCL_SOCKET_IFNAME", exact, "--ddp-iface", SOFT | NODE);
	put(w, "GLOO_SOCKET_IFNAME", w->r->ifname, "--ddp-iface", SOFT | NODE);
	if (w->plan->frameworks & DDP_FW_BIT(DDP_FW_HOROVOD))
		put(w, "HOROVOD_GLOO_IFACE", w->r->ifname, "--ddp-iface",
		    SOFT | NODE);
}

/* The life-cycle library, and where it finds the node's agent. */
static void put_life(struct walk *w)
{
	if (!w->plan->life)
		return;
	put(w, "LD_PRELOAD", w->r->preload ? w->r->preload : "",
	    "--ddp-lifecycle, before your own",
	    DDP_VAR_ON_NODE | DDP_VAR_ADDS);
	if (w->r->life)
		put(w, DDP_LIFE_SOCKET, w->r->life, "--ddp-lifecycle: the "
		    "node's agent", DDP_VAR_ON_NODE);
}

int ddp_env_each(const struct ddp_plan *plan, const struct ddp_rank *r,
		 ddp_env_fn fn, void *arg)
{
	/* Frameworks on top of torch read torch's variables. */
	static const struct {
		unsigned bits;
		void (*put)(struct walk *w);
	} set[] = {
		{ DDP_FW_TORCHLIKE, put_torch },
		{ DDP_FW_BIT(DDP_FW_JAX), put_jax },
		{ DDP_FW_BIT(DDP_FW_HOROVOD), put_horovod },
		{ DDP_FW_BIT(DDP_FW_DEEPSPEED), put_deepspeed },
		{ DDP_FW_BIT(DDP_FW_TF), put_tf },
	};
	struct walk w = { plan, r, fn, arg, 0 };

	put_world(&w);
	for (unsigned i = 0; i < sizeof(set) / sizeof(set[0]); i++)
		if (plan->frameworks & set[i].bits)
			set[i].put(&w);
	put_place(&w);
	put_iface(&w);
	put_life(&w);
	return w.rc;
}
