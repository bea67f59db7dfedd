/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SPANK plugin for the tests: FAKE_LIST of the task's environment becomes
 * its list of visible GPUs, in CUDA_VISIBLE_DEVICES or in the variables that
 * FAKE_VARS names. Sites do so for MIG devices. FAKE_LATE seconds pass first
 * in the rank FAKE_RANK, as where a container is imported. FAKE_FSIZE is a
 * limit on the size of files.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(fake_list, 1)

static int get(spank_t sp, const char *name, char *buf, int size)
{
	return spank_getenv(sp, name, buf, size) == ESPANK_SUCCESS;
}

static void be_late(spank_t sp)
{
	char late[16], rank[16], mine[16];

	if (get(sp, "FAKE_LATE", late, sizeof(late)) &&
	    get(sp, "FAKE_RANK", rank, sizeof(rank)) &&
	    get(sp, "SLURM_PROCID", mine, sizeof(mine)) && !strcmp(rank, mine))
		sleep((unsigned)atoi(late));
}

static void limit_files(spank_t sp)
{
	struct rlimit limit;
	char text[16];

	if (!get(sp, "FAKE_FSIZE", text, sizeof(text)))
		return;
	limit.rlim_cur = limit.rlim_max = strtoul(text, NULL, 10);
	(void)setrlimit(RLIMIT_FSIZE, &limit);
}

int slurm_spank_task_init(spank_t sp, int argc, char **argv)
{
	char list[8192], vars[1024] = "CUDA_VISIBLE_DEVICES", *save = NULL;

	(void)argc;
	(void)argv;
	be_late(sp);
	limit_files(sp);
	if (!get(sp, "FAKE_LIST", list, sizeof(list)))
		return 0;
	(void)get(sp, "FAKE_VARS", vars, sizeof(vars));
	for (char *v = strtok_r(vars, " ", &save); v;
	     v = strtok_r(NULL, " ", &save))
		spank_setenv(sp, v, list, 1);
	return 0;
}
