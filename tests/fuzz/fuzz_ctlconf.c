/* SPDX-License-Identifier: Apache-2.0 */
/* What srun tells its controller. */
#include "core/ddp_ctlconf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const struct ddp_ctlconf *c)
{
	struct ddp_ctlconf again;
	struct ddp_err err;
	char *text = ddp_ctlconf_format(c, &err);

	if (!text)	/* the written form may be longer */
		return;
	text[strlen(text) - 1] = '\0';
	if (ddp_ctlconf_parse(&again, text, &err) ||
	    strcmp(again.nodes, c->nodes) || strcmp(again.plan, c->plan) ||
	    strcmp(again.report, c->report) || again.srun != c->srun ||
	    again.abort != c->abort || again.node_ms != c->node_ms)
		abort();
	ddp_ctlconf_clear(&again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_ctlconf c;
	struct ddp_err err;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!ddp_ctlconf_parse(&c, text, &err)) {
		if (c.abort > DDP_ABORT_NONE || c.signal > 64 || c.srun < 0)
			abort();
		round_trip(&c);
	}
	ddp_ctlconf_clear(&c);
	free(text);
	return 0;
}
