/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of a task's environment, in slurmstepd and in tasks. */
#include "config.h"

#include "spank/spank_ddp.h"

bool ddp_spank_is_set(spank_t sp, const char *name)
{
	char probe[2];

	return spank_getenv(sp, name, probe, sizeof(probe)) !=
		ESPANK_ENV_NOEXIST;
}

bool ddp_spank_env_u32(spank_t sp, const char *name, uint32_t *out)
{
	char text[16];

	return spank_getenv(sp, name, text, sizeof(text)) == ESPANK_SUCCESS &&
		!ddp_text_u32(text, 0, UINT32_MAX, out);
}
