/* SPDX-License-Identifier: Apache-2.0 */
/* Task counts and node order: the input is split at the first newline. */
#include "core/ddp_layout.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct ddp_layout *l)
{
	uint64_t sum = 0;
	uint64_t ranks = 0;

	for (uint32_t i = 0; i < l->nnodes; i++) {
		sum += l->tasks[i];
		ranks += l->rank[i];
		if (l->rank[i] >= l->nnodes)
			abort();
	}
	if (sum != l->ntasks || l->rank[l->first] != 0 ||
	    ranks != (uint64_t)l->nnodes * (l->nnodes - 1) / 2)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_layout l;
	struct ddp_err err;
	char *text = malloc(size + 1), *order;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	order = strchr(text, '\n');
	if (order)
		*order++ = '\0';
	if (!ddp_layout_parse(&l, text, order, &err))
		check(&l);
	ddp_layout_clear(&l);
	free(text);
	return 0;
}
