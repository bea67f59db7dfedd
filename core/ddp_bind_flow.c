/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transportation problem of ddp_bind_int.h, by successive shortest paths:
 * after each augmentation the flow is the cheapest of its amount, so the last
 * one is the cheapest of all. What a type must have (lo) is wanted before
 * what it may have: its arc to the sink is cheaper by more than any path can
 * cost, so that the total is right whenever that is possible.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

#define FAR INT64_MAX
#define WANTED ((int64_t)1 << 50)

int ddp_bind_net_init(struct ddp_bind_net *net, unsigned nc, unsigned nt)
{
	size_t c = nc, t = nt;
	char *at;

	memset(net, 0, sizeof(*net));
	at = calloc(1, (c + t) * (2 * sizeof(int64_t) + 4 * sizeof(int32_t)) +
		    2 * c * t * sizeof(uint32_t) + 64);
	net->mem = at;
	if (!at)
		return -1;
	net->pc = (int64_t *)(void *)at;
	net->pt = net->pc + c;
	net->supply = (uint32_t *)(void *)(net->pt + t);
	net->left = net->supply + c;
	net->lo = net->left + c;
	net->hi = net->lo + t;
	net->load = net->hi + t;
	net->fc = (int32_t *)(void *)(net->load + t);
	net->ft = net->fc + c;
	net->cost = (uint32_t *)(void *)(net->ft + t);
	net->flow = net->cost + c * t;
	return 0;
}

void ddp_bind_net_free(struct ddp_bind_net *net)
{
	free(net->mem);
	memset(net, 0, sizeof(*net));
}

/* One round of Bellman and Ford's over the arcs. True if a distance fell. */
static bool relax(struct ddp_bind_net *net, bool paths)
{
	bool fell = false;

	for (unsigned c = 0; c < net->nc; c++) {
		const uint32_t *cost = net->cost + (size_t)c * net->nt;
		const uint32_t *flow = net->flow + (size_t)c * net->nt;

		for (unsigned t = 0; t < net->nt && net->pc[c] != FAR; t++) {
			if (cost[t] != DDP_BIND_FORBID &&
			    net->pc[c] + cost[t] < net->pt[t]) {
				net->pt[t] = net->pc[c] + cost[t];
				if (paths)
					net->ft[t] = (int32_t)c;
				fell = true;
			}
		}
		for (unsigned t = 0; t < net->nt; t++) {
			if (flow[t] && net->pt[t] != FAR &&
			    net->pt[t] - cost[t] < net->pc[c]) {
				net->pc[c] = net->pt[t] - cost[t];
				if (paths)
					net->fc[c] = (int32_t)t;
				fell = true;
			}
		}
	}
	return fell;
}

/* The type at the end of the shortest path to the sink, or -1. */
static int nearest(const struct ddp_bind_net *net)
{
	int64_t best = FAR;
	int end = -1;

	for (unsigned t = 0; t < net->nt; t++) {
		int64_t way = net->pt[t];

		if (way == FAR || net->load[t] >= net->hi[t])
			continue;
		if (net->load[t] < net->lo[t])
			way -= WANTED;
		if (way < best) {
			best = way;
			end = (int)t;
		}
	}
	return end;
}

/* Does a type have less than it must? */
static bool lacks(const struct ddp_bind_net *net)
{
	for (unsigned t = 0; t < net->nt; t++)
		if (net->load[t] < net->lo[t])
			return true;
	return false;
}

/* As much as fits along the path that ends at type end. */
static void augment(struct ddp_bind_net *net, unsigned end)
{
	bool wanted = net->load[end] < net->lo[end];
	uint32_t cap = (wanted ? net->lo[end] : net->hi[end]) - net->load[end];
	size_t nt = net->nt;
	unsigned t, c;

	for (t = end;; t = (unsigned)net->fc[c]) {
		c = (unsigned)net->ft[t];
		if (net->fc[c] < 0)
			break;
		if (net->flow[c * nt + (unsigned)net->fc[c]] < cap)
			cap = net->flow[c * nt + (unsigned)net->fc[c]];
	}
	if (net->left[c] < cap)
		cap = net->left[c];
	net->left[c] -= cap;
	net->load[end] += cap;
	for (t = end;; t = (unsigned)net->fc[c]) {
		c = (unsigned)net->ft[t];
		net->flow[c * nt + t] += cap;
		if (net->fc[c] < 0)
			return;
		net->flow[c * nt + (unsigned)net->fc[c]] -= cap;
	}
}

static int64_t total(const struct ddp_bind_net *net)
{
	int64_t sum = 0;

	if (lacks(net))
		return -1;
	for (size_t i = 0; i < (size_t)net->nc * net->nt; i++)
		if (net->flow[i])
			sum += (int64_t)net->flow[i] * net->cost[i];
	return sum;
}

/* Does it only matter which arcs there are? */
static bool is_flat(const struct ddp_bind_net *net)
{
	for (size_t i = 0; i < (size_t)net->nc * net->nt; i++)
		if (net->cost[i] && net->cost[i] != DDP_BIND_FORBID)
			return false;
	return true;
}

/*
 * Where all arcs cost the same, an arc to a type that still wants something
 * is a shortest path; and if none does, one to a type that can take more is.
 */
static void fill_flat(struct ddp_bind_net *net, const uint32_t *bound)
{
	for (unsigned c = 0; c < net->nc; c++) {
		size_t row = (size_t)c * net->nt;

		for (unsigned t = 0; t < net->nt && net->left[c]; t++) {
			uint32_t n;

			if (net->cost[row + t] == DDP_BIND_FORBID ||
			    net->load[t] >= bound[t])
				continue;
			n = bound[t] - net->load[t];
			if (net->left[c] < n)
				n = net->left[c];
			net->flow[row + t] += n;
			net->load[t] += n;
			net->left[c] -= n;
		}
	}
}

static void start_flat(struct ddp_bind_net *net)
{
	fill_flat(net, net->lo);
	if (!lacks(net))
		fill_flat(net, net->hi);
}

/*
 * The same where no arc is free: breadth first to a type that wants more, or
 * takes more when none does; pc is the queue. -1: there is none.
 */
static int search_flat(struct ddp_bind_net *net)
{
	const uint32_t *bound = lacks(net) ? net->lo : net->hi;
	unsigned head = 0, tail = 0;

	for (unsigned c = 0; c < net->nc; c++) {
		net->fc[c] = net->left[c] ? -1 : -2;
		if (net->left[c])
			net->pc[tail++] = c;
	}
	for (unsigned t = 0; t < net->nt; t++)
		net->ft[t] = -1;
	while (head < tail) {
		unsigned c = (unsigned)net->pc[head++];
		const uint32_t *cost = net->cost + (size_t)c * net->nt;

		for (unsigned t = 0; t < net->nt; t++) {
			if (cost[t] == DDP_BIND_FORBID || net->ft[t] >= 0)
				continue;
			net->ft[t] = (int32_t)c;
			if (net->load[t] < bound[t])
				return (int)t;
			for (unsigned b = 0; b < net->nc; b++) {
				if (net->fc[b] != -2 ||
				    !net->flow[(size_t)b * net->nt + t])
					continue;
				net->fc[b] = (int32_t)t;
				net->pc[tail++] = b;
			}
		}
	}
	return -1;
}

/* The end of a shortest path with costs, or -1. */
static int search(struct ddp_bind_net *net, int64_t *work)
{
	int end;

	for (unsigned c = 0; c < net->nc; c++) {
		net->pc[c] = net->left[c] ? 0 : FAR;
		net->fc[c] = -1;
	}
	for (unsigned t = 0; t < net->nt; t++)
		net->pt[t] = FAR;
	do
		*work -= (int64_t)net->nc * net->nt;
	while (relax(net, true));
	end = nearest(net);
	/* What is out of reach now stays so: a new way back leads only to
	 * where one can go already. */
	if (end >= 0 && net->load[end] >= net->lo[end] && lacks(net))
		return -1;
	return end;
}

static uint64_t sum_left(const struct ddp_bind_net *net)
{
	uint64_t sum = 0;

	for (unsigned c = 0; c < net->nc; c++)
		sum += net->left[c];
	return sum;
}

int64_t ddp_bind_net_solve(struct ddp_bind_net *net, int64_t *work)
{
	bool flat = is_flat(net);
	uint64_t room = 0;

	memset(net->flow, 0, (size_t)net->nc * net->nt * sizeof(*net->flow));
	memset(net->load, 0, net->nt * sizeof(*net->load));
	memcpy(net->left, net->supply, net->nc * sizeof(*net->left));
	for (unsigned t = 0; t < net->nt; t++)
		room += net->hi[t];
	*work -= (int64_t)net->nc * net->nt;
	if (room < sum_left(net))
		return -1;
	if (flat)
		start_flat(net);
	while (sum_left(net)) {
		int end = flat ? search_flat(net) : search(net, work);

		*work -= (int64_t)net->nc * net->nt;
		if (end < 0)
			return -1;
		augment(net, (unsigned)end);
	}
	return total(net);
}

/* The arcs between a type and the sink, without those of what is wanted:
 * they are full in any flow. */
static bool relax_sink(struct ddp_bind_net *net)
{
	bool fell = false;

	for (unsigned t = 0; t < net->nt; t++) {
		if (net->load[t] < net->hi[t] && net->pt[t] < net->ps) {
			net->ps = net->pt[t];
			fell = true;
		}
		if (net->load[t] > net->lo[t] && net->ps < net->pt[t]) {
			net->pt[t] = net->ps;
			fell = true;
		}
	}
	return fell;
}

void ddp_bind_net_duals(struct ddp_bind_net *net, int64_t *work)
{
	bool fell;

	memset(net->pc, 0, net->nc * sizeof(*net->pc));
	memset(net->pt, 0, net->nt * sizeof(*net->pt));
	net->ps = 0;
	do {
		*work -= (int64_t)net->nc * net->nt;
		fell = relax(net, false);
		fell |= relax_sink(net);
	} while (fell);
}
