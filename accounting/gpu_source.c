/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/gpu_source.h"

#include "core/ddp_text.h"

#include <string.h>

static const char *const labels[GPU_METRICS] = {
	[GPU_SM] = "SM",
	[GPU_MEMBW] = "DRAM",
	[GPU_NVLINK] = "NVLink",
	[GPU_PCIE] = "PCIe",
	[GPU_ENERGY] = "energy",
	[GPU_IDLE] = "idle",
};

struct text {
	const struct gpu_source *src;
	void *state;
	unsigned ngpus;
	char *buf;
	size_t size, pos;
};

static const char *from(const struct text *t, unsigned gpu, enum gpu_metric m)
{
	const char *what = t->src->from(t->state, gpu, m);

	return what ? what : "unknown";
}

static bool seen(const struct text *t, unsigned gpu, enum gpu_metric m)
{
	unsigned g;

	for (g = 0; g < gpu; g++)
		if (!strcmp(from(t, g, m), from(t, gpu, m)))
			return true;
	return false;
}

/* "; PCIe: GPM", or "; PCIe: GPM on 3, unknown on 1". What does not fit is
 * left out: the line is for people. */
static void add_metric(struct text *t, enum gpu_metric m)
{
	unsigned g, h, n;

	(void)ddp_text_add(t->buf, t->size, &t->pos, "; %s:", labels[m]);
	for (g = 0; g < t->ngpus; g++) {
		if (seen(t, g, m))
			continue;
		for (n = 0, h = g; h < t->ngpus; h++)
			n += !strcmp(from(t, h, m), from(t, g, m));
		(void)ddp_text_add(t->buf, t->size, &t->pos, "%s %s",
				   g ? "," : "", from(t, g, m));
		if (n < t->ngpus)
			(void)ddp_text_add(t->buf, t->size, &t->pos, " on %u",
					   n);
	}
}

void gpu_source_text(const struct gpu_source *src, void *state,
		     const struct gpu_request *req, const struct gpu_integ *in,
		     char *buf, size_t size)
{
	struct text t = { .src = src, .state = state, .ngpus = req->ngpus,
			  .buf = buf, .size = size };
	const char *sep = "; lost: ";
	unsigned m, g;

	buf[0] = '\0';
	(void)ddp_text_add(buf, size, &t.pos, "%s", src->version(state));
	for (m = 0; m < GPU_METRICS; m++)
		if (req->want & 1u << m)
			add_metric(&t, m);
	for (g = 0; g < req->ngpus; g++) {
		if (!gpu_integ_is_lost(in, g))
			continue;
		(void)ddp_text_add(buf, size, &t.pos, "%s%s", sep,
				   req->ask[g].name);
		sep = ", ";
	}
}
