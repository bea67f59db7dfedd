/* SPDX-License-Identifier: Apache-2.0 */
/* Small nodes for the unit tests of the binding plan. */
#ifndef BIND_NODE_H
#define BIND_NODE_H

#include "core/ddp_bind.h"

#include <string.h>

#define CORES 64
#define GPUS 16

/* A node: cores and GPUs each in a NUMA node, NUMA nodes in two sockets. */
static struct {
	struct ddp_bind_in in;
	uint64_t gpu_numa[GPUS], core_numa[CORES];
	uint32_t pos[GPUS], pu_core[4 * CORES], core_pus[CORES];
	uint16_t e[GPUS * GPUS], d[CORES * GPUS];
	unsigned core_at[CORES], gpu_at[GPUS];
} node;

/*
 * cores cores and gpus GPUs, in equal shares and in order, in numa nodes; smt
 * PUs a core. Two NUMA nodes a socket if there are more than two.
 */
static void build(unsigned numa, unsigned cores, unsigned gpus, unsigned smt)
{
	struct ddp_bind_in *in = &node.in;

	memset(&node, 0, sizeof(node));
	for (unsigned c = 0; c < cores; c++) {
		node.core_at[c] = c * numa / cores;
		node.core_numa[c] = 1U << node.core_at[c];
		node.core_pus[c] = smt;
		for (unsigned t = 0; t < smt; t++)
			node.pu_core[in->npus++] = c;
	}
	for (unsigned g = 0; g < gpus; g++) {
		node.gpu_at[g] = g * numa / gpus;
		node.gpu_numa[g] = 1U << node.gpu_at[g];
		node.pos[g] = g;
	}
	in->ncores = in->node_ncores = cores;
	in->ngpus = in->node_ngpus = gpus;
	in->policy = DDP_BIND_BEST_EFFORT;
	in->gpu_numa = in->node_gpu_numa = node.gpu_numa;
	in->core_numa = in->node_core_numa = node.core_numa;
	in->gpu_pos = node.pos;
	in->pu_core = node.pu_core;
	in->node_core_pus = node.core_pus;
	in->e = node.e;
	in->d = node.d;
}

/* Distances: 0 in the NUMA node, 1 in the socket, 2 beyond; 1 if that is
 * all there is. Between GPUs 2 for neighbours, 4 in a NUMA node, else 8. */
static void measure(unsigned numa)
{
	unsigned g = node.in.ngpus;

	for (unsigned i = 0; i < g; i++) {
		for (unsigned c = 0; c < node.in.ncores; c++) {
			unsigned a = node.core_at[c], b = node.gpu_at[i];

			node.d[c * g + i] = a == b ? 0 :
				numa > 2 && a / 2 != b / 2 ? 2 : 1;
		}
		for (unsigned j = 0; j < g; j++)
			node.e[i * g + j] = i == j ? 0 : i / 2 == j / 2 ? 2 :
				node.gpu_at[i] == node.gpu_at[j] ? 4 : 8;
	}
}

static void node_of(unsigned numa, unsigned cores, unsigned gpus, unsigned smt)
{
	build(numa, cores, gpus, smt);
	measure(numa);
}

#endif
