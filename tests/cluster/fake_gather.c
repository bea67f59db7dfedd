/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin that says of every process that its GPUs were 50 % busy, 90 % at
 * most, received 1 MB and sent 2 MB over NVLink, used 7 J and never idled: so
 * that running steps have values which a test knows. Memory bandwidth and
 * PCIe it does not know.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurmdb.h>

const char plugin_name[] = "values that a test knows";
const char plugin_type[] = "acct_gather_interconnect/known";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

struct data {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
	uint64_t last_time;
#endif
	uint64_t num_reads, num_writes, size_read, size_write;
};

extern int assoc_mgr_find_tres_pos(slurmdb_tres_rec_t *, bool)
	__attribute__((weak));

int init(void)
{
	return 0;
}

int fini(void)
{
	return 0;
}

int acct_gather_interconnect_p_node_update(void)
{
	return 0;
}

void acct_gather_interconnect_p_conf_options(void *options, int *count)
{
	(void)options;
	(void)count;
}

void acct_gather_interconnect_p_conf_set(void *table)
{
	(void)table;
}

void acct_gather_interconnect_p_conf_values(void *list)
{
	(void)list;
}

static void put(struct data *d, char *type, char *name, uint64_t in,
		uint64_t out)
{
	slurmdb_tres_rec_t tres;
	int at;

	memset(&tres, 0, sizeof(tres));
	tres.type = type;
	tres.name = name;
	at = assoc_mgr_find_tres_pos ?
		assoc_mgr_find_tres_pos(&tres, false) : -1;
	if (at < 0)
		return;
	d[at].size_read = in;
	d[at].size_write = out;
}

int acct_gather_interconnect_p_get_data(void *data)
{
	put(data, "gres", "gpusm", 50, 90);
	put(data, "ic", "nvlink", 1000000, 2000000);
	put(data, "gres", "gpuenergy", 7, UINT64_MAX);
	put(data, "gres", "gpuidle", 0, UINT64_MAX);
	return 0;
}
