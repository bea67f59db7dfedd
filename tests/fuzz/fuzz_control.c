/* SPDX-License-Identifier: Apache-2.0 */
/* The text that says where the controller is, as an agent may find it. */
#include "core/ddp_control.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const struct ddp_control *c)
{
	char text[DDP_CONTROL_MAX];
	struct ddp_control again;
	struct ddp_err err;

	if (!c->port || !c->naddrs || c->naddrs > DDP_CONTROL_ADDRS ||
	    !c->start_ms)
		abort();
	for (unsigned i = 0; i < c->naddrs; i++)
		if (!ddp_text_is_addr(c->addr[i]))
			abort();
	if (ddp_control_format(c, text, &err) ||
	    ddp_control_parse(&again, text, &err) ||
	    memcmp(&again, c, sizeof(again)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_control c;
	struct ddp_err err = { 0 };
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!ddp_control_parse(&c, text, &err))
		round_trip(&c);
	else if (!err.text[0])
		abort();
	free(text);
	return 0;
}
