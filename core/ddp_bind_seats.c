/* SPDX-License-Identifier: Apache-2.0 */
/* From a block to what each of its ranks gets of each column. */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

/* More seats times columns than this, and circles are left as they are. */
#define CIRCLES 65536

void ddp_bind_seats_fill(struct ddp_bind_face *f,
			 const struct ddp_bind_block *b, unsigned i, unsigned a,
			 uint32_t *y)
{
	const struct ddp_bind_net *net = &f->net;
	uint32_t extra = net->load[i] - f->p->k * a;
	uint32_t want = f->p->k + (extra > 0), seat = 0, at = 0;

	for (unsigned c = 0; c < f->ncol; c++) {
		uint32_t have;

		if (!(b->doms >> f->dom[c] & 1))
			continue;
		have = net->flow[(size_t)at++ * net->nt + i];
		while (have) {
			uint32_t n = have < want ? have : want;

			y[(size_t)seat * f->ncol + c] += n;
			have -= n;
			want -= n;
			if (!want && ++seat < a)
				want = f->p->k + (seat < extra);
			else if (!want)
				break;
		}
	}
}

/* A forest of lines between seats and columns, and a way through it. */
struct forest {
	unsigned seats, cols;
	uint32_t *y;
	uint8_t *in;		/* [seats][cols] */
	int *from;		/* of each seat, then of each column */
	unsigned *queue;
};

/* Points are seats, then columns. True if there is a way from a to b. */
static bool find_way(struct forest *w, unsigned a, unsigned b)
{
	unsigned n = w->seats + w->cols, head = 0, tail = 0;

	for (unsigned i = 0; i < n; i++)
		w->from[i] = -1;
	w->from[a] = (int)a;
	w->queue[tail++] = a;
	while (head < tail && w->from[b] < 0) {
		unsigned at = w->queue[head++];
		bool seat = at < w->seats;

		for (unsigned i = seat ? w->seats : 0;
		     i < (seat ? n : w->seats); i++) {
			size_t line = seat ?
				(size_t)at * w->cols + (i - w->seats) :
				(size_t)i * w->cols + (at - w->seats);

			if (w->from[i] >= 0 || !w->in[line])
				continue;
			w->from[i] = (int)at;
			w->queue[tail++] = i;
		}
	}
	return w->from[b] >= 0;
}

/*
 * The new line from seat s to column c closes a circle with the way that was
 * found: move units around it, away from the new line and from every second
 * one after it, until one of these is empty.
 */
static void break_circle(struct forest *w, unsigned s, unsigned c)
{
	size_t line = (size_t)s * w->cols + c;
	uint32_t move = w->y[line];

	for (int pass = 0; pass < 2; pass++) {
		bool less = false;	/* the line at c's end grows */
		unsigned at = w->seats + c;

		while (at != s) {
			unsigned to = (unsigned)w->from[at];
			size_t l = at < w->seats ?
				(size_t)at * w->cols + (to - w->seats) :
				(size_t)to * w->cols + (at - w->seats);

			if (!pass && less && w->y[l] < move)
				move = w->y[l];
			if (pass) {
				w->y[l] = less ? w->y[l] - move :
					w->y[l] + move;
				w->in[l] = w->y[l] > 0;
			}
			less = !less;
			at = to;
		}
	}
	w->y[line] -= move;
	w->in[line] = w->y[line] > 0;
}

/* Lines between seats and columns without a circle: the fewest there are. */
static void no_circles(uint32_t *y, unsigned seats, unsigned cols)
{
	struct forest w = { .seats = seats, .cols = cols, .y = y };
	size_t n = (size_t)seats * cols;

	if (n > CIRCLES)
		return;
	w.in = calloc(n, 1);
	w.from = calloc(seats + cols, sizeof(*w.from));
	w.queue = calloc(seats + cols, sizeof(*w.queue));
	for (unsigned s = 0; s < seats && w.in && w.from && w.queue; s++) {
		for (unsigned c = 0; c < cols; c++) {
			size_t line = (size_t)s * cols + c;

			if (!y[line])
				continue;
			if (find_way(&w, s, seats + c))
				break_circle(&w, s, c);
			else
				w.in[line] = 1;
		}
	}
	free(w.in);
	free(w.from);
	free(w.queue);
}

/* The first column of the domain of column c. */
static unsigned first_column(const struct ddp_bind_face *f, unsigned c)
{
	unsigned i = 0;

	while (f->dom[i] != f->dom[c])
		i++;
	return i;
}

/*
 * A regular block: domains instead of columns, the fewest lines, and back to
 * columns, each domain's from the first seat to the last.
 */
static void fewest_lines(const struct ddp_bind_face *f,
			 const struct ddp_bind_block *b, uint32_t *y,
			 unsigned seats)
{
	size_t nc = f->ncol;

	for (unsigned c = 0; c < nc; c++) {
		unsigned to = first_column(f, c);

		for (unsigned s = 0; s < seats && to != c; s++) {
			y[s * nc + to] += y[s * nc + c];
			y[s * nc + c] = 0;
		}
	}
	no_circles(y, seats, f->ncol);
	for (unsigned c = f->ncol; c-- > 0;) {
		unsigned from = first_column(f, c);
		uint32_t left = f->supply[c];

		if (from == c || !(b->doms >> f->dom[c] & 1))
			continue;
		for (unsigned s = seats; s-- > 0 && left;) {
			uint32_t n = y[s * nc + from] < left ?
				y[s * nc + from] : left;

			y[s * nc + from] -= n;
			y[s * nc + c] += n;
			left -= n;
		}
	}
}

int ddp_bind_seats(struct ddp_bind_face *f, const struct ddp_bind_block *b,
		   uint32_t *y)
{
	unsigned seats = 0, types = 0;
	bool several = (b->doms & (b->doms - 1)) != 0;
	bool regular = ddp_bind_block_regular(f, b);

	for (unsigned t = 0; t < f->nt; t++)
		seats += b->a[t];
	memset(y, 0, (size_t)seats * f->ncol * sizeof(*y));
	if (several && !regular && !ddp_bind_pattern_seats(f, b, y))
		return 0;
	if (!ddp_bind_block_fits(f, b))
		return -1;
	seats = 0;
	for (unsigned t = 0; t < f->nt; t++) {
		if (!b->a[t])
			continue;
		ddp_bind_seats_fill(f, b, types++, b->a[t],
				    y + (size_t)seats * f->ncol);
		seats += b->a[t];
	}
	if (several && regular)
		fewest_lines(f, b, y, seats);
	else if (several)
		no_circles(y, seats, f->ncol);
	return 0;
}
