/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of places: lists of GPUs and of CPUs, and what srun wants. What is
 * accepted must survive being written and read again.
 */
#include "core/ddp_cpus.h"
#include "core/ddp_vis.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void lists(const char *text)
{
	char again[DDP_VIS_MAX * DDP_VIS_WORD];
	unsigned order[DDP_VIS_MAX];
	struct ddp_vis v;

	if (ddp_vis_parse(&v, text))
		return;
	if (!v.n || v.n > DDP_VIS_MAX)
		abort();
	for (unsigned i = 0; i < v.n; i++) {
		order[i] = i;
		if (ddp_vis_index(v.word[i]) > 65535)
			abort();
	}
	if (ddp_vis_format(&v, order, v.n, again, sizeof(again)) ||
	    strcmp(again, text))
		abort();
}

static void wanted(const char *text)
{
	struct ddp_place_req r, s;
	char again[DDP_PLACE_MAX];
	struct ddp_err err;

	if (ddp_place_parse(&r, text, &err))
		return;
	ddp_place_format(&r, again);
	if (ddp_place_parse(&s, again, &err) || r.policy != s.policy ||
	    r.verify != s.verify || r.gpus != s.gpus ||
	    r.cpu_said != s.cpu_said || r.gpu_said != s.gpu_said ||
	    r.explain != s.explain)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	ddp_cpus set;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	lists(text);
	wanted(text);
	if (ddp_cpus_parse(text, set) > DDP_PLACE_CPUS)
		abort();
	free(text);
	return 0;
}
