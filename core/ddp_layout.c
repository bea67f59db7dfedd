/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_layout.h"
#include "core/ddp_text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void ddp_layout_clear(struct ddp_layout *l)
{
	free(l->tasks);
	free(l->rank);
	memset(l, 0, sizeof(*l));
}

static int layout_alloc(struct ddp_layout *l, uint32_t nnodes,
			struct ddp_err *err)
{
	memset(l, 0, sizeof(*l));
	if (!nnodes || nnodes > DDP_NODES_MAX)
		return ddp_err_set(err, DDP_EINCONS,
				   "step layout: %u nodes", nnodes);
	l->tasks = calloc(nnodes, sizeof(*l->tasks));
	l->rank = calloc(nnodes, sizeof(*l->rank));
	if (!l->tasks || !l->rank) {
		ddp_layout_clear(l);
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	}
	l->nnodes = nnodes;
	return 0;
}

/* A node and the lowest global rank on it. */
struct lowest {
	uint32_t tid;
	uint32_t node;
};

static int lowest_cmp(const void *a, const void *b)
{
	const struct lowest *x = a, *y = b;

	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Mark each id of one node in seen (one byte an id) and find the lowest. */
static int node_tids(uint32_t node, const uint32_t *tids, uint32_t count,
		     uint32_t ntasks, unsigned char *seen, struct lowest *low,
		     struct ddp_err *err)
{
	low->node = node;
	low->tid = UINT32_MAX;	/* a node without tasks comes last */
	for (uint32_t i = 0; i < count; i++) {
		if (tids[i] >= ntasks || seen[tids[i]])
			return ddp_err_set(err, DDP_EINCONS,
				"step layout: task %u of %u on node %u is %s",
				tids[i], ntasks, node, tids[i] >= ntasks ?
				"out of range" : "listed twice");
		seen[tids[i]] = 1;
		if (tids[i] < low->tid)
			low->tid = tids[i];
	}
	return 0;
}

static int layout_fill(struct ddp_layout *l, const uint16_t *tasks,
		       uint32_t *const *tids, unsigned char *seen,
		       struct lowest *low, struct ddp_err *err)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < l->nnodes; i++) {
		l->tasks[i] = tasks[i];
		sum += tasks[i];
		if (node_tids(i, tids[i], tasks[i], l->ntasks, seen, &low[i],
			      err))
			return -1;
	}
	if (sum != l->ntasks)
		return ddp_err_set(err, DDP_EINCONS,
				   "step layout: %u tasks announced, %u listed",
				   l->ntasks, sum);
	qsort(low, l->nnodes, sizeof(*low), lowest_cmp);
	for (uint32_t r = 0; r < l->nnodes; r++)
		l->rank[low[r].node] = r;
	l->first = low[0].node;
	return 0;
}

int ddp_layout_from_tids(struct ddp_layout *l, uint32_t nnodes,
			 uint32_t ntasks, const uint16_t *tasks,
			 uint32_t *const *tids, struct ddp_err *err)
{
	unsigned char *seen = NULL;
	struct lowest *low = NULL;
	int rc = -1;

	if (layout_alloc(l, nnodes, err))
		return -1;
	if (!ntasks || ntasks > DDP_TASKS_MAX) {
		ddp_err_set(err, DDP_EINCONS, "step layout: %u tasks", ntasks);
		goto out;
	}
	l->ntasks = ntasks;
	seen = calloc(ntasks, 1);
	low = calloc(nnodes, sizeof(*low));
	if (!seen || !low)
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
	else
		rc = layout_fill(l, tasks, tids, seen, low, err);
out:
	free(seen);
	free(low);
	if (rc)
		ddp_layout_clear(l);
	return rc;
}

int ddp_layout_format(const struct ddp_layout *l, char *counts, size_t nc,
		      char *order, size_t no, struct ddp_err *err)
{
	size_t pc = 0, po = 0;
	bool identity = true, fits = nc && no;

	for (uint32_t i = 0, n; fits && i < l->nnodes; i += n) {
		for (n = 1; i + n < l->nnodes; n++)
			if (l->tasks[i + n] != l->tasks[i])
				break;
		fits = !ddp_text_add(counts, nc, &pc, "%s%u", i ? "," : "",
				     l->tasks[i]);
		if (fits && n > 1)
			fits = !ddp_text_add(counts, nc, &pc, "(x%u)", n);
	}
	if (fits)
		order[0] = '\0';
	for (uint32_t i = 0; i < l->nnodes; i++)
		identity = identity && l->rank[i] == i;
	for (uint32_t i = 0, n; fits && !identity && i < l->nnodes; i += n) {
		for (n = 1; i + n < l->nnodes; n++)
			if (l->rank[i + n] != l->rank[i] + n)
				break;
		fits = !ddp_text_add(order, no, &po, "%s%u", i ? "," : "",
				     l->rank[i]);
		if (fits && n > 1)
			fits = !ddp_text_add(order, no, &po, "-%u",
					     l->rank[i] + n - 1);
	}
	if (!fits)
		return ddp_err_set(err, DDP_ENOSPC,
				   "step layout: %u nodes are too irregular "
				   "to describe", l->nnodes);
	return 0;
}

/* "COUNT" or "COUNT(xREPEAT)" in the first len bytes of text. */
static int parse_run(const char *text, size_t len, uint32_t *count,
		     uint32_t *repeat)
{
	const char *paren = memchr(text, '(', len);
	size_t n = paren ? (size_t)(paren - text) : len;

	*repeat = 1;
	if (ddp_text_u32_n(text, n, 0, UINT16_MAX, count))
		return -1;
	if (!paren)
		return 0;
	len -= n;
	if (len < 4 || paren[1] != 'x' || paren[len - 1] != ')')
		return -1;
	return ddp_text_u32_n(paren + 2, len - 3, 1, DDP_NODES_MAX, repeat);
}

/*
 * One pass over the counts: with l->tasks NULL it only adds up nnodes and
 * ntasks, otherwise it fills the array that the first pass sized.
 */
static int walk_counts(struct ddp_layout *l, const char *text)
{
	uint64_t nodes = 0, tasks = 0;

	for (;;) {
		size_t len = strcspn(text, ",");
		uint32_t count, repeat;

		if (parse_run(text, len, &count, &repeat))
			return -1;
		if (nodes + repeat > DDP_NODES_MAX)
			return -1;
		for (uint32_t i = 0; l->tasks && i < repeat; i++)
			l->tasks[nodes + i] = count;
		nodes += repeat;
		tasks += (uint64_t)count * repeat;
		if (tasks > DDP_TASKS_MAX)
			return -1;
		if (!text[len])
			break;
		text += len + 1;
	}
	l->nnodes = (uint32_t)nodes;
	l->ntasks = (uint32_t)tasks;
	return tasks ? 0 : -1;
}

/* "FIRST" or "FIRST-LAST" in the first len bytes of text. */
static int parse_range(const char *text, size_t len, uint32_t max,
		       uint32_t *first, uint32_t *last)
{
	const char *dash = memchr(text, '-', len);
	size_t n = dash ? (size_t)(dash - text) : len;

	if (ddp_text_u32_n(text, n, 0, max, first))
		return -1;
	*last = *first;
	if (!dash)
		return 0;
	return ddp_text_u32_n(dash + 1, len - n - 1, *first, max, last);
}

static int parse_order(struct ddp_layout *l, const char *text)
{
	unsigned char *seen = calloc(l->nnodes, 1);
	uint32_t node = 0;
	int rc = -1;

	while (seen) {
		size_t len = strcspn(text, ",");
		uint32_t first, last;

		if (parse_range(text, len, l->nnodes - 1, &first, &last))
			break;
		for (; first <= last && node < l->nnodes; first++, node++) {
			if (seen[first])
				goto out;
			seen[first] = 1;
			l->rank[node] = first;
			if (!first)
				l->first = node;
		}
		if (first <= last)
			break;
		if (!text[len]) {
			rc = node == l->nnodes ? 0 : -1;
			break;
		}
		text += len + 1;
	}
out:
	free(seen);
	return rc;
}

int ddp_layout_parse(struct ddp_layout *l, const char *counts,
		     const char *order, struct ddp_err *err)
{
	struct ddp_layout size;
	char shown[64];

	memset(l, 0, sizeof(*l));
	memset(&size, 0, sizeof(size));
	if (!counts || walk_counts(&size, counts))
		return ddp_err_set(err, DDP_EINCONS,
				   "step layout: bad task counts \"%s\"",
				   ddp_text_safe(counts, shown, sizeof(shown)));
	if (layout_alloc(l, size.nnodes, err))
		return -1;
	if (walk_counts(l, counts)) {
		ddp_layout_clear(l);
		return ddp_err_set(err, DDP_EINCONS, "step layout: bad counts");
	}
	for (uint32_t i = 0; i < l->nnodes; i++)
		l->rank[i] = i;
	if (order && order[0] && parse_order(l, order)) {
		ddp_layout_clear(l);
		return ddp_err_set(err, DDP_EINCONS,
				   "step layout: bad node order \"%s\"",
				   ddp_text_safe(order, shown, sizeof(shown)));
	}
	return 0;
}

uint32_t ddp_layout_cross_size(const struct ddp_layout *l, uint32_t local)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->nnodes; i++)
		n += l->tasks[i] > local;
	return n;
}

uint32_t ddp_layout_cross_rank(const struct ddp_layout *l, uint32_t node,
			       uint32_t local)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->nnodes; i++)
		n += l->tasks[i] > local && l->rank[i] < l->rank[node];
	return n;
}
