/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SPANK plugin for the tests: FAKE_LIST of the task's environment becomes
 * its list of visible GPUs, in CUDA_VISIBLE_DEVICES or in the variables that
 * FAKE_VARS names. Sites do so for MIG devices. FAKE_FSIZE is a limit on the
 * size of files.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <slurm/spank.h>

SPANK_PLUGIN(fake_list, 1)

int slurm_spank_task_init(spank_t sp, int argc, char **argv)
{
	char list[8192], vars[1024] = "CUDA_VISIBLE_DEVICES", *save = NULL;

	struct rlimit limit;

	(void)argc;
	(void)argv;
	if (spank_getenv(sp, "FAKE_FSIZE", list, sizeof(list)) ==
	    ESPANK_SUCCESS) {
		limit.rlim_cur = limit.rlim_max = strtoul(list, NULL, 10);
		(void)setrlimit(RLIMIT_FSIZE, &limit);
	}
	if (spank_getenv(sp, "FAKE_LIST", list, sizeof(list)) != ESPANK_SUCCESS)
		return 0;
	(void)spank_getenv(sp, "FAKE_VARS", vars, sizeof(vars));
	for (char *v = strtok_r(vars, " ", &save); v;
	     v = strtok_r(NULL, " ", &save))
		spank_setenv(sp, v, list, 1);
	return 0;
}
