/* SPDX-License-Identifier: Apache-2.0 */
/* Option values and plugstack arguments: first byte chooses, rest is text. */
#include "core/ddp_site.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_options o;
	struct ddp_site site;
	struct ddp_err err;
	char *text;

	if (!size)
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	ddp_options_init(&o);
	ddp_site_init(&site);
	if (ddp_options_set(&o, (enum ddp_opt)(data[0] % DDP_OPT_COUNT), text,
			    &err) && strlen(err.text) >= sizeof(err.text))
		abort();
	if (o.addr[0] && !ddp_text_is_addr(o.addr))
		abort();
	if (o.port && o.port < 1024)
		abort();
	if (o.grace_ms > 3600000 || o.start_ms < 1000 || o.node_ms < 500 ||
	    o.abort > DDP_ABORT_NONE || !o.signal || o.signal > 31)
		abort();
	if (!o.frameworks || o.frameworks & ~DDP_FW_ALL)
		abort();
	if (!ddp_site_set(&site, text, &err) && site.port_lo > site.port_hi)
		abort();
	free(text);
	return 0;
}
