/* SPDX-License-Identifier: Apache-2.0 */
/* Lines between the life-cycle library and the agent. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/ddp_life.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_life_msg m, back;
	char line[DDP_LIFE_LINE];
	int n;

	if (ddp_life_parse((const char *)data, size, &m, NULL) ||
	    m.kind == DDP_LIFE_MSG_OTHER)
		return 0;
	/* What was read can be written, and reads the same. */
	n = ddp_life_format(&m, line, sizeof(line), NULL);
	if (n < 0 || ddp_life_parse(line, (size_t)n, &back, NULL) ||
	    back.kind != m.kind || back.code != m.code ||
	    back.state != m.state || back.pid != m.pid ||
	    back.limit_ms != m.limit_ms || back.count != m.count ||
	    back.mpi != m.mpi || back.size != m.size ||
	    memcmp(back.value, m.value, sizeof(m.value)) ||
	    strcmp(back.name, m.name) || strcmp(back.text, m.text))
		abort();
	return 0;
}
