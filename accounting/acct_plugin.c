/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acct_gather_interconnect/ddp: what the GPUs of a step did, as TRES. Slurm
 * loads it into slurmctld and slurmd, where it takes part in reading
 * acct_gather.conf and does nothing else, and into each slurmstepd.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

const char plugin_name[] = "slurm-ddp GPU accounting";
const char plugin_type[] = "acct_gather_interconnect/ddp";
const uint32_t plugin_version = DDP_GATHER_PLUGIN_VERSION;

int init(void);
int fini(void);
int acct_gather_interconnect_p_node_update(void);
void acct_gather_interconnect_p_conf_options(void *full, int *count);
void acct_gather_interconnect_p_conf_set(void *table);
void acct_gather_interconnect_p_conf_values(void *data);
int acct_gather_interconnect_p_get_data(void *data);

/* slurmctld may show it while it reads it again. */
static pthread_mutex_t conf_lock = PTHREAD_MUTEX_INITIALIZER;
static struct acct_conf conf;
static bool in_stepd, started;

static bool running_in_stepd(void)
{
	char exe[4096], *base;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n <= 0)
		return false;
	exe[n] = '\0';
	base = strrchr(exe, '/');
	/* A package that is replaced meanwhile: "slurmstepd (deleted)". */
	return base && !strncmp(base + 1, "slurmstepd", 10);
}

int init(void)
{
	int rc;

	in_stepd = running_in_stepd();
	if (!in_stepd || started || !ddp_gather_enabled())
		return SLURM_SUCCESS;
	rc = acct_watch_start();
	started = !rc;
	if (rc)
		slurm_info("ddp: no GPU accounting: %s", strerror(rc));
	/* A step without its values is better than no step. */
	return SLURM_SUCCESS;
}

/* Some releases ignore what it returns. */
int fini(void)
{
	if (started)
		acct_watch_end();
	started = false;
	return SLURM_SUCCESS;
}

/* Not in slurmstepd: slurmd has said it, and the user is not who can mend it. */
static void complain(const char *text)
{
	if (!in_stepd)
		slurm_error("ddp: %s", text);
}

void acct_gather_interconnect_p_conf_options(void *full, int *count)
{
	ddp_gather_conf_keys(full, count, acct_conf_keys, acct_conf_nkeys);
}

void acct_gather_interconnect_p_conf_set(void *table)
{
	pthread_mutex_lock(&conf_lock);
	acct_conf_read(&conf, ddp_gather_conf_get, table, complain);
	if (in_stepd)
		acct_watch_conf(&conf);
	pthread_mutex_unlock(&conf_lock);
}

void acct_gather_interconnect_p_conf_values(void *data)
{
	pthread_mutex_lock(&conf_lock);
	acct_conf_show(&conf, ddp_gather_conf_show, data);
	pthread_mutex_unlock(&conf_lock);
}

int acct_gather_interconnect_p_node_update(void)
{
	if (started)
		acct_watch_series();
	return SLURM_SUCCESS;
}

/* Another value than 0 would keep other plugins of this type from theirs. */
int acct_gather_interconnect_p_get_data(void *data)
{
	if (started && data)
		acct_watch_data(data);
	return 0;
}
