/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node as boxes in a terminal: a box a package (two side by side where
 * there are several), in it the NUMA nodes with their ranks, GPUs and network
 * adapters. What is near more than one package has a box of its own.
 */
#include "config.h"

#include "core/ddp_text.h"
#include "launcher/topo.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define WIDEST 512
#define NARROWEST 24

/* Lines of a box; "" is a line across it. */
struct box {
	char **line;
	unsigned n, room;
	unsigned width;		/* of a line's text */
	bool failed;
	char title[64];
};

struct glyphs {
	const char *across, *down, *tl, *tr, *bl, *br, *left, *right;
};

static const struct glyphs ascii = { "-", "|", "+", "+", "+", "+", "+", "+" };
static const struct glyphs lines = { "─", "│", "┌", "┐", "└", "┘", "├", "┤" };

static void add_line(struct box *b, const char *text, size_t len)
{
	char *copy = strndup(text, len);

	if (b->n == b->room) {
		unsigned room = b->room ? 2 * b->room : 32;
		char **more = realloc(b->line, room * sizeof(*more));

		if (!more) {
			free(copy);
			b->failed = true;
			return;
		}
		b->line = more;
		b->room = room;
	}
	if (!copy)
		b->failed = true;
	else
		b->line[b->n++] = copy;
}

/*
 * A text of any length, broken after commas and blanks where it must; lines
 * after the first are indented by two more than it is.
 */
static void add_text(struct box *b, const char *text)
{
	size_t indent = strspn(text, " ") + 2, width = b->width;
	char buf[WIDEST];

	for (size_t skip = 0;; skip = indent) {
		size_t len = strlen(text), cut = width - skip;

		memset(buf, ' ', skip);
		if (len <= cut) {
			memcpy(buf + skip, text, len);
			add_line(b, buf, skip + len);
			return;
		}
		while (cut && text[cut - 1] != ',' && text[cut - 1] != ' ')
			cut--;
		if (cut <= indent)
			cut = width - skip;
		memcpy(buf + skip, text, cut);
		add_line(b, buf, skip + cut);
		text += cut;
	}
}

static void add(struct box *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void add(struct box *b, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (text)
		add_text(b, text);
	else
		b->failed = true;
	free(text);
}

static void free_box(struct box *b)
{
	for (unsigned i = 0; i < b->n; i++)
		free(b->line[i]);
	free(b->line);
}

static bool has_gpu(const struct topo_plan *p, unsigned rank, unsigned i)
{
	const struct ddp_bind_rank *r = &p->plan.ranks[rank];

	for (unsigned g = 0; g < r->ngpus; g++)
		if (p->gpus[r->gpus[g]] == i)
			return true;
	return false;
}

/* The ranks that have GPU i of the topology, as "rank 0-3,8"; or "free". */
static void owners(const struct topo_plan *p, unsigned i, char *buf,
		   size_t size)
{
	unsigned n = p->plan.nranks;
	bool selected = false;
	size_t pos = 0;

	buf[0] = '\0';
	for (unsigned r = 0, end; r < n; r = end + 1) {
		for (end = r; end < n && has_gpu(p, end, i);)
			end++;
		if (end == r)
			continue;
		if (ddp_text_add(buf, size, &pos, end > r + 1 ? "%s%u-%u" :
				 "%s%u", pos ? "," : "rank ", r, end - 1))
			break;
	}
	for (unsigned g = 0; g < p->ngpus; g++)
		selected |= p->gpus[g] == i;
	if (!pos)
		(void)ddp_text_copy(buf, size, selected ? "free" :
				    "not selected");
}

/* GPUs and adapters whose NUMA nodes are this set. */
static void add_devices(struct box *b, const struct topo_plan *p, uint64_t set)
{
	const struct topo *t = p->topo;
	char who[512];

	for (unsigned i = 0; i < t->ngpus; i++) {
		if (t->gpu[i].numa != set)
			continue;
		owners(p, i, who, sizeof(who));
		add(b, "  GPU %u %s: %s", i, t->gpu[i].bus, who);
	}
	for (unsigned i = 0; i < t->nnics; i++)
		if (t->nic[i].numa == set)
			add(b, "  NIC %s %s", t->nic[i].name, t->nic[i].bus);
}

static void add_ranks(struct box *b, const struct topo_plan *p, unsigned numa)
{
	const struct topo *t = p->topo;

	if (p->plan.policy == DDP_BIND_NONE)
		return;
	for (unsigned r = 0; r < p->plan.nranks; r++) {
		char *cpus;

		if (!(p->plan.ranks[r].numa >> numa & 1))
			continue;
		cpus = topo_rank_cpus(p, r, t->numa[numa]->cpuset);
		add(b, "  rank %u: CPU %s", r, cpus ? cpus : "?");
		free(cpus);
	}
}

static void add_numa(struct box *b, const struct topo_plan *p, unsigned numa)
{
	hwloc_obj_t obj = p->topo->numa[numa];
	char *cpus = NULL;

	if (hwloc_bitmap_list_asprintf(&cpus, obj->cpuset) < 0)
		cpus = NULL;
	add(b, "NUMA %u: CPU %s", obj->os_index, cpus ? cpus : "?");
	free(cpus);
	add_ranks(b, p, numa);
	add_devices(b, p, (uint64_t)1 << numa);
}

/* A package with its NUMA nodes; devices near several of them come first. */
static void fill_package(struct box *b, const struct topo_plan *p,
			 uint64_t set, uint64_t *drawn)
{
	const struct topo *t = p->topo;
	bool first = true;

	if (set & (set - 1)) {
		add_devices(b, p, set);
		first = !b->n;
	}
	for (unsigned i = 0; i < t->nnuma; i++) {
		if (!(set >> i & 1) || *drawn >> i & 1)
			continue;
		if (!first)
			add_line(b, "", 0);
		first = false;
		add_numa(b, p, i);
		*drawn |= (uint64_t)1 << i;
	}
}

static void print_edge(FILE *f, const struct glyphs *g, const struct box *b,
		       const char *left, const char *right, const char *title)
{
	size_t n = strlen(title);

	fputs(left, f);
	fputs(g->across, f);
	if (n)
		fprintf(f, " %s ", title);
	for (n = n ? n + 3 : 1; n < b->width + 2; n++)
		fputs(g->across, f);
	fputs(right, f);
}

/* Row i of a box: its top, a line of text, its bottom, or nothing. */
static void print_row(FILE *f, const struct glyphs *g, const struct box *b,
		      unsigned i, unsigned height)
{
	if (i == 0)
		print_edge(f, g, b, g->tl, g->tr, b->title);
	else if (i == height + 1)
		print_edge(f, g, b, g->bl, g->br, "");
	else if (i <= b->n && !b->line[i - 1][0])
		print_edge(f, g, b, g->left, g->right, "");
	else
		fprintf(f, "%s %-*s %s", g->down, (int)b->width,
			i <= b->n ? b->line[i - 1] : "", g->down);
}

/* One or two boxes, as high as the higher one. */
static int print_boxes(FILE *f, bool utf8, const struct box *b, unsigned n)
{
	const struct glyphs *g = utf8 ? &lines : &ascii;
	unsigned height = 0;

	for (unsigned k = 0; k < n; k++)
		if (b[k].n > height)
			height = b[k].n;
	for (unsigned i = 0; i < height + 2; i++) {
		for (unsigned k = 0; k < n; k++) {
			fputs(k ? " " : "", f);
			print_row(f, g, &b[k], i, height);
		}
		if (fputc('\n', f) == EOF)
			return -1;
	}
	return 0;
}

/* The packages' sets of NUMA nodes; what is in none is a set of its own. */
static unsigned find_sets(const struct topo *t, uint64_t *set,
			  char (*title)[64])
{
	hwloc_obj_t obj = NULL;
	uint64_t seen = 0, all = topo_numa_of(t,
			hwloc_topology_get_topology_cpuset(t->hw));
	unsigned n = 0;

	while ((obj = hwloc_get_next_obj_by_type(t->hw, HWLOC_OBJ_PACKAGE,
						 obj)) &&
	       n < DDP_BIND_NUMA) {
		uint64_t mine = topo_numa_of(t, obj->cpuset);

		if (!mine || mine & seen)
			continue;
		seen |= mine;
		set[n] = mine;
		snprintf(title[n++], 64, "Package %u", obj->os_index ==
			 HWLOC_UNKNOWN_INDEX ? obj->logical_index :
			 obj->os_index);
	}
	if (all & ~seen && n < DDP_BIND_NUMA) {
		set[n] = all & ~seen;
		snprintf(title[n++], 64, "Node");
	}
	return n;
}

/* Devices whose NUMA nodes are neither one nor all of a package. */
static void add_others(struct box *b, const struct topo_plan *p,
		       const uint64_t *set, unsigned nsets)
{
	const struct topo *t = p->topo;
	uint64_t done[DDP_BIND_GPUS + TOPO_NICS];
	unsigned n = 0;

	for (unsigned i = 0; i < t->ngpus + t->nnics; i++) {
		uint64_t numa = i < t->ngpus ? t->gpu[i].numa :
			t->nic[i - t->ngpus].numa;
		bool drawn = numa && !(numa & (numa - 1));

		for (unsigned k = 0; k < nsets; k++)
			drawn |= set[k] == numa;
		for (unsigned k = 0; k < n; k++)
			drawn |= done[k] == numa;
		if (drawn)
			continue;
		done[n++] = numa;
		add_text(b, numa ? "near several:" :
			 "near no NUMA node with CPUs:");
		add_devices(b, p, numa);
	}
}

int topo_show_drawing(const struct topo_plan *p, FILE *f, unsigned width,
		      bool utf8)
{
	uint64_t set[DDP_BIND_NUMA] = { 0 }, drawn = 0;
	char title[DDP_BIND_NUMA][64];
	unsigned n = find_sets(p->topo, set, title), wide;
	unsigned room = width < WIDEST ? width : WIDEST - 1;
	struct box other = { .title = "Node" };
	bool failed = false;
	int rc = 0;

	wide = n > 1 && room >= 2 * NARROWEST + 1 ? (room - 1) / 2 : room;
	wide = wide > NARROWEST ? wide : NARROWEST;
	for (unsigned i = 0; i < n && !rc; i += 2) {
		struct box b[2] = { { .width = wide - 4 },
				    { .width = wide - 4 } };
		unsigned two = i + 1 < n ? 2 : 1;

		for (unsigned k = 0; k < two; k++) {
			memcpy(b[k].title, title[i + k], sizeof(title[0]));
			fill_package(&b[k], p, set[i + k], &drawn);
			failed |= b[k].failed;
		}
		if (2 * wide < room)
			rc = print_boxes(f, utf8, b, two);
		else
			for (unsigned k = 0; k < two && !rc; k++)
				rc = print_boxes(f, utf8, &b[k], 1);
		free_box(&b[0]);
		free_box(&b[1]);
	}
	other.width = (room > NARROWEST ? room : NARROWEST) - 4;
	add_others(&other, p, set, n);
	if (other.n && !rc)
		rc = print_boxes(f, utf8, &other, 1);
	failed |= other.failed;
	free_box(&other);
	return failed ? -1 : rc;
}
