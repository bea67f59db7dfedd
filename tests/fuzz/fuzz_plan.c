/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan as a node reads it. What is accepted must survive being written
 * and read again, and every rank's variables must be producible.
 */
#include "core/ddp_env.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count(void *arg, const struct ddp_var *v)
{
	*(size_t *)arg += strlen(v->name) + strlen(v->value);
	return 0;
}

static void round_trip(const struct ddp_plan *plan)
{
	struct ddp_plan again;
	struct ddp_err err;
	struct ddp_rank r = { .node = plan->layout.nnodes - 1, .threads = 1,
			      .ifname = plan->ifname };
	size_t total = 0;
	char *text;

	if (plan->layout.first >= plan->layout.nnodes)
		abort();
	text = plan->frameworks & DDP_FW_BIT(DDP_FW_TF) ?
		ddp_env_tf(plan, &r, &err) : strdup("");
	if (!text)	/* tf was asked for and its fields are no good */
		return;
	free(text);
	if (ddp_env_each(plan, &r, count, &total) || !total)
		abort();
	text = ddp_plan_format(plan, &err);
	if (!text)	/* written form may be longer than what was read */
		return;
	if (ddp_plan_parse(&again, text, &err))
		abort();
	if (again.layout.ntasks != plan->layout.ntasks ||
	    again.layout.first != plan->layout.first ||
	    again.port != plan->port || strcmp(again.addr, plan->addr))
		abort();
	ddp_plan_clear(&again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_plan plan;
	struct ddp_err err;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!ddp_plan_parse(&plan, text, &err))
		round_trip(&plan);
	ddp_plan_clear(&plan);
	free(text);
	return 0;
}
