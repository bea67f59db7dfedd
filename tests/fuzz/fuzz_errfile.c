/* SPDX-License-Identifier: Apache-2.0 */
/* Error files: what is shown is one line of valid UTF-8, and nothing else. */
#include "core/ddp_errfile.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t sizes[] = { 1, 2, 7, 2048 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *out = malloc(sizes[i]);

		if (!out)
			return 0;
		if (ddp_errfile_message((const char *)data, size, out,
					sizes[i])) {
			free(out);
			continue;
		}
		if (strlen(out) >= sizes[i] || !*out)
			abort();
		for (const char *p = out; *p; p++)
			if ((unsigned char)*p < 0x20 || *p == 0x7f ||
			    (*p == '\xc2' && (unsigned char)p[1] < 0xa0))
				abort();
		free(out);
	}
	return 0;
}
