/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All cheapest ways to hand out cores at once. By complementary slackness a
 * flow is optimal if and only if it uses arcs of reduced cost 0 alone, and
 * fills, or leaves empty, those arcs to the sink whose reduced cost is less,
 * or more, than 0. One set of optimal potentials thus describes every optimal
 * flow. Of the arcs with reduced cost 0 an optimal flow can use one only if
 * this one does, or if it lies on a circle of such arcs along which the flow
 * can be moved: its ends are then in one knot (a strongly connected component
 * of the residual network).
 *
 * Types and classes that no such arc ties together never exchange anything:
 * they are parts with problems of their own. On a node of two sockets these
 * are mostly the sockets.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

int ddp_bind_faces_init(struct ddp_bind_faces *fs, struct ddp_bind_prob *p)
{
	struct ddp_bind_face *f = &fs->face;
	size_t nc = p->nc, nv = nc + DDP_BIND_TYPES + 1;
	unsigned seats = p->n < DDP_BIND_PATTERN ? p->n : DDP_BIND_PATTERN;

	memset(fs, 0, sizeof(*fs));
	fs->p = f->p = p;
	/* Room for one more row of arcs: it is compared before it is kept. */
	fs->mem = calloc(1, (3 * nv + 3 * nc) * sizeof(uint32_t) + nv +
			 (nc + 1) * DDP_BIND_TYPES);
	if (!fs->mem ||
	    ddp_bind_net_init(&f->net, p->nc, DDP_BIND_TYPES + seats)) {
		ddp_bind_faces_free(fs);
		return -1;
	}
	fs->part = fs->mem;
	fs->knot = fs->part + nv;
	fs->queue = fs->knot + nv;
	f->supply = fs->queue + nv;
	f->dom = f->supply + nc;
	f->col_of = f->dom + nc;
	fs->seen = (uint8_t *)(f->col_of + nc);
	f->arc = fs->seen + nv;
	return 0;
}

void ddp_bind_faces_free(struct ddp_bind_faces *fs)
{
	ddp_bind_net_free(&fs->face.net);
	free(fs->mem);
	fs->mem = NULL;
}

/* Can flow be moved from point a to point b? Classes, types, the sink. */
static bool residual(const struct ddp_bind_net *net, unsigned a, unsigned b)
{
	unsigned sink = net->nc + net->nt, c, t;

	if (b < a)
		return a == sink ? b >= net->nc && net->pt[b - net->nc] ==
			net->ps && net->load[b - net->nc] >
			net->lo[b - net->nc] :
			b < net->nc && a >= net->nc &&
			net->flow[(size_t)b * net->nt + (a - net->nc)];
	if (b == sink)
		return a >= net->nc && net->pt[a - net->nc] == net->ps &&
			net->load[a - net->nc] < net->hi[a - net->nc];
	if (a >= net->nc || b < net->nc)
		return false;
	c = a;
	t = b - net->nc;
	return net->cost[(size_t)c * net->nt + t] != DDP_BIND_FORBID &&
		net->pc[c] + net->cost[(size_t)c * net->nt + t] == net->pt[t];
}

/* Mark what can be reached from a point, forward or backward. */
static void reach(struct ddp_bind_faces *fs, unsigned from, bool forward,
		  uint8_t mark)
{
	const struct ddp_bind_net *net = fs->net;
	unsigned nv = net->nc + net->nt + 1, head = 0, tail = 0;

	fs->seen[from] |= mark;
	fs->queue[tail++] = from;
	while (head < tail) {
		unsigned at = fs->queue[head++];

		for (unsigned i = 0; i < nv; i++) {
			if (fs->seen[i] & mark ||
			    !(forward ? residual(net, at, i) :
			      residual(net, i, at)))
				continue;
			fs->seen[i] |= mark;
			fs->queue[tail++] = i;
		}
		fs->p->work -= nv;
	}
}

static void find_knots(struct ddp_bind_faces *fs)
{
	unsigned nv = fs->net->nc + fs->net->nt + 1;

	for (unsigned i = 0; i < nv; i++)
		fs->knot[i] = UINT32_MAX;
	for (unsigned i = 0; i < nv; i++) {
		if (fs->knot[i] != UINT32_MAX)
			continue;
		memset(fs->seen, 0, nv);
		reach(fs, i, true, 1);
		reach(fs, i, false, 2);
		for (unsigned v = i; v < nv; v++)
			if (fs->seen[v] == 3)
				fs->knot[v] = i;
	}
}

static bool used(const struct ddp_bind_faces *fs, unsigned c, unsigned t)
{
	const struct ddp_bind_net *net = fs->net;

	return net->flow[(size_t)c * net->nt + t] ||
		(fs->knot[c] == fs->knot[net->nc + t] &&
		 residual(net, c, net->nc + t));
}

/* Number the parts: what used arcs tie together. */
static void find_parts(struct ddp_bind_faces *fs)
{
	unsigned nc = fs->net->nc, nt = fs->net->nt;

	fs->nparts = 0;
	for (unsigned i = 0; i < nc + nt; i++)
		fs->part[i] = UINT32_MAX;
	for (unsigned i = 0; i < nc; i++) {
		unsigned head = 0, tail = 0;

		if (fs->part[i] != UINT32_MAX)
			continue;
		fs->part[i] = fs->nparts;
		fs->queue[tail++] = i;
		while (head < tail) {
			unsigned at = fs->queue[head++];
			unsigned v = at < nc ? nc : 0;

			for (; v < (at < nc ? nc + nt : nc); v++) {
				if (fs->part[v] != UINT32_MAX ||
				    !(at < nc ? used(fs, at, v - nc) :
				      used(fs, v, at - nc)))
					continue;
				fs->part[v] = fs->nparts;
				fs->queue[tail++] = v;
			}
		}
		fs->nparts++;
	}
}

void ddp_bind_faces_find(struct ddp_bind_faces *fs, struct ddp_bind_net *net,
			 const struct ddp_bind_type *types)
{
	fs->net = net;
	fs->types = types;
	ddp_bind_net_duals(net, &fs->p->work);
	find_knots(fs);
	find_parts(fs);
}

static void take_types(struct ddp_bind_faces *fs, unsigned part)
{
	struct ddp_bind_face *f = &fs->face;
	const struct ddp_bind_net *net = fs->net;

	f->nt = f->n = 0;
	for (unsigned t = 0; t < net->nt; t++) {
		unsigned i = f->nt;
		bool stays = net->pt[t] != net->ps ||
			fs->knot[net->nc + t] != fs->knot[net->nc + net->nt];

		if (fs->part[net->nc + t] != part)
			continue;
		f->type[i] = t;
		f->ranks[i] = (uint16_t)fs->types[t].ranks;
		f->n += f->ranks[i];
		f->force[i] = 0;
		if (stays && net->load[t] == net->lo[t])
			f->force[i] = -1;
		else if (stays && net->load[t] == net->hi[t])
			f->force[i] = 1;
		f->nt++;
	}
}

static unsigned take_domain(struct ddp_bind_face *f, uint64_t numa)
{
	unsigned i = 0;

	while (i < f->ndom && f->numa[i] != numa)
		i++;
	if (i == f->ndom) {
		f->numa[f->ndom++] = numa;
		f->dom_supply[i] = 0;
	}
	return i;
}

static void take_columns(struct ddp_bind_faces *fs, unsigned part)
{
	struct ddp_bind_face *f = &fs->face;
	struct ddp_bind_prob *p = f->p;

	f->ncol = f->ndom = 0;
	memset(f->reach, 0, f->nt * sizeof(*f->reach));
	for (unsigned c = 0; c < p->nc; c++) {
		uint8_t *row = f->arc + (size_t)f->ncol * f->nt;
		unsigned col = 0, dom;

		f->col_of[c] = UINT32_MAX;
		if (fs->part[c] != part)
			continue;
		dom = take_domain(f, p->numa[c]);
		for (unsigned t = 0; t < f->nt; t++) {
			row[t] = used(fs, c, f->type[t]);
			f->reach[t] |= (uint64_t)row[t] << dom;
		}
		while (col < f->ncol && (f->dom[col] != dom ||
		       memcmp(f->arc + (size_t)col * f->nt, row, f->nt)))
			col++;
		if (col == f->ncol) {
			f->supply[col] = 0;
			f->dom[f->ncol++] = dom;
		}
		f->supply[col] += p->supply[c];
		f->dom_supply[dom] += p->supply[c];
		f->col_of[c] = col;
	}
}

/* The i-th column of a domain, or -1. */
static int column(const struct ddp_bind_face *f, unsigned dom, unsigned i)
{
	for (unsigned c = 0; c < f->ncol; c++)
		if (f->dom[c] == dom && !i--)
			return (int)c;
	return -1;
}

/* Domains that can stand for each other. */
static bool alike(const struct ddp_bind_face *f, unsigned a, unsigned b)
{
	if (!f->disjoint || __builtin_popcountll(f->numa[a]) !=
	    __builtin_popcountll(f->numa[b]))
		return false;
	for (unsigned i = 0;; i++) {
		int x = column(f, a, i), y = column(f, b, i);

		if (x < 0 || y < 0)
			return x == y;
		if (f->supply[x] != f->supply[y] ||
		    memcmp(f->arc + (size_t)x * f->nt,
			   f->arc + (size_t)y * f->nt, f->nt))
			return false;
	}
}

static void find_kinds(struct ddp_bind_face *f)
{
	uint64_t all = 0;

	f->disjoint = f->regular = true;
	f->weight = DDP_BIND_NUMA;
	for (unsigned i = 0; i < f->ndom; i++) {
		unsigned w = (unsigned)__builtin_popcountll(f->numa[i]);

		if (all & f->numa[i])
			f->disjoint = false;
		all |= f->numa[i];
		if (i && w != f->weight)
			f->regular = false;
		if (w < f->weight)
			f->weight = w;
		if (column(f, i, 1) >= 0)
			f->regular = false;
		f->single[i] = ddp_bind_fills(f->p, f->dom_supply[i]);
	}
	f->regular = f->regular && f->disjoint;
	for (unsigned i = 0; i < f->ndom; i++) {
		f->kind[i] = i;
		for (unsigned b = 0; b < i && f->kind[i] == i; b++)
			if (f->kind[b] == b && alike(f, b, i))
				f->kind[i] = b;
	}
}

void ddp_bind_face_take(struct ddp_bind_faces *fs, unsigned i)
{
	take_types(fs, i);
	take_columns(fs, i);
	find_kinds(&fs->face);
}

void ddp_bind_face_bounds(const struct ddp_bind_face *f, unsigned t,
			  unsigned a, uint32_t *lo, uint32_t *hi)
{
	const struct ddp_bind_prob *p = f->p;

	*lo = p->k * a;
	*hi = (p->k + (p->kx > 0)) * a;
	if (f->force[t] < 0)
		*hi = *lo;
	else if (f->force[t] > 0)
		*lo = *hi;
}
