/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of /proc: a command's name, which anybody chooses, is in them. */
#include "core/ddp_cgmem.h"
#include "core/ddp_proc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_proc_stat st;
	struct ddp_proc_status status;
	char path[DDP_CGMEM_PATH], *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!ddp_proc_parse_stat(text, &st) && !st.start)
		abort();
	(void)ddp_proc_parse_status(text, &status);
	if (!ddp_cgmem_parse(text, path, sizeof(path)) &&
	    strncmp(path, "/sys/fs/cgroup/", 15))
		abort();
	free(text);
	return 0;
}
