/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat_gather.h"
#include "compat/ddp_compat_jobacct.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <slurm/slurm_errno.h>

/* One element of the array of a poll. */
struct gather_data {
#if DDP_GATHER_BY_TASK
	uint64_t last_time;
#endif
	uint64_t num_reads, num_writes;
	uint64_t size_read, size_write;
};

struct gres_device {
	int index, alloc;
	uint32_t major, minor;
	int type;
	int dev_num;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
	uint32_t flags;
#endif
	char *path, *unique_id;
};

extern int assoc_mgr_find_tres_pos(slurmdb_tres_rec_t *, int)
	__attribute__((weak));
extern void *gres_g_get_devices(void *, bool, uint16_t, char *, int, void *)
	__attribute__((weak));

/* As in compat/ddp_compat.c. */
extern slurm_conf_t slurm_conf __attribute__((weak));

bool ddp_gather_enabled(void)
{
	const char *type = &slurm_conf ? slurm_conf.job_acct_gather_type :
		NULL;

	return ddp_gather_type_gathers(type);
}

int ddp_gather_pos(const char *type, const char *name)
{
	slurmdb_tres_rec_t rec;
	char t[32], n[32];

	if (!assoc_mgr_find_tres_pos)
		return -1;
	/* Slurm's function takes them as not const; it changes nothing. */
	memset(&rec, 0, sizeof(rec));
	strncpy(t, type, sizeof(t) - 1);
	t[sizeof(t) - 1] = '\0';
	rec.type = t;
	if (name) {
		strncpy(n, name, sizeof(n) - 1);
		n[sizeof(n) - 1] = '\0';
		rec.name = n;
	}
	return assoc_mgr_find_tres_pos(&rec, 0);
}

void ddp_gather_set(void *data, int pos, uint64_t in, uint64_t out)
{
	struct gather_data *d = data;

	if (pos < 0)
		return;
	d[pos].size_read = in;
	d[pos].size_write = out;
}

bool ddp_gather_by_task(const void *data, bool *dead)
{
#if DDP_GATHER_BY_TASK
	const struct gather_data *d = data;
	static int vmem = -1;

	/* Written once, always the same. */
	if (vmem < 0)
		vmem = ddp_gather_pos("vmem", NULL);
	*dead = vmem >= 0 && d[vmem].size_read == DDP_GATHER_UNSET;
	return vmem >= 0;
#else
	(void)data;
	*dead = false;
	return false;
#endif
}

bool ddp_gather_polls_by_task(void)
{
	return DDP_GATHER_BY_TASK;
}

int ddp_gather_devices(void *list, bool is_job,
		       void (*visit)(const struct ddp_gather_device *, void *),
		       void *arg)
{
	struct gres_device *dev;
	list_itr *itr;
	void *devices;
	int n = 0;

	if (!gres_g_get_devices)
		return -1;
	/* The last two arguments matter for --gpu-bind alone. */
	devices = gres_g_get_devices(list, is_job, 0, NULL, 0, NULL);
	if (!devices)
		return 0;
	itr = slurm_list_iterator_create(devices);
	while ((dev = slurm_list_next(itr))) {
		struct ddp_gather_device d = {
			.index = dev->index, .alloc = dev->alloc != 0,
			.major = dev->major, .minor = dev->minor,
			.path = dev->path, .uuid = dev->unique_id,
		};

		visit(&d, arg);
		n++;
	}
	slurm_list_iterator_destroy(itr);
	slurm_list_destroy(devices);
	return n;
}

/* --- acct_gather.conf --- */

struct parse_option {
	char *key;
	int type;
	void *handler, *destroy, *line_options;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
	void *pack, *unpack;
#endif
};

struct key_pair {
	char *name, *value;
};

#define PARSE_STRING 1
#define KEYS_MAX 16

extern void slurm_transfer_s_p_options(void *, struct parse_option *, int *)
	__attribute__((weak));
extern int slurm_s_p_get_string(char **, const char *, const void *)
	__attribute__((weak));
extern void slurm_xfree(void **) __attribute__((weak));
extern void *slurm_xcalloc(size_t, size_t, bool, bool, const char *, int,
			   const char *) __attribute__((weak));
extern char *slurm_xstrdup(const char *) __attribute__((weak));

void ddp_gather_conf_keys(void *full_options, int *count,
			  const char *const *keys, unsigned n)
{
	struct parse_option opt[KEYS_MAX + 1];
	unsigned i;

	if (!slurm_transfer_s_p_options || n > KEYS_MAX)
		return;
	memset(opt, 0, sizeof(opt));
	for (i = 0; i < n; i++) {
		/* Slurm copies what it keeps. */
		opt[i].key = (char *)(uintptr_t)keys[i];
		opt[i].type = PARSE_STRING;
	}
	slurm_transfer_s_p_options(full_options, opt, count);
}

char *ddp_gather_conf_get(void *table, const char *key)
{
	char *value = NULL, *copy;

	if (!table || !slurm_s_p_get_string || !slurm_xfree ||
	    !slurm_s_p_get_string(&value, key, table) || !value)
		return NULL;
	copy = strdup(value);
	slurm_xfree((void **)&value);
	return copy;
}

void ddp_gather_conf_show(void *data, const char *key, const char *value)
{
	struct key_pair *pair;
	void **list = data;

	if (!list || !*list || !slurm_xcalloc || !slurm_xstrdup)
		return;
	/* Slurm frees it with its own functions. */
	pair = slurm_xcalloc(1, sizeof(*pair), true, false, __FILE__, __LINE__,
			     __func__);
	pair->name = slurm_xstrdup(key);
	pair->value = slurm_xstrdup(value);
	slurm_list_append(*list, pair);
}

/* --- time series --- */

struct series_column {
	char *name;
	int type;
};

#define COLUMN_DOUBLE 2
#define COLUMNS_MAX 16
#define NO_PARENT (-1)

extern bool acct_gather_profile_g_is_active(uint32_t) __attribute__((weak));
extern int acct_gather_profile_g_create_dataset(const char *, int64_t,
						struct series_column *)
	__attribute__((weak));
extern int acct_gather_profile_g_add_sample_data(int, void *, time_t)
	__attribute__((weak));

bool ddp_gather_profiling(void)
{
	return acct_gather_profile_g_is_active &&
		acct_gather_profile_g_create_dataset &&
		acct_gather_profile_g_add_sample_data &&
		acct_gather_profile_g_is_active(ACCT_GATHER_PROFILE_NETWORK);
}

int ddp_gather_series(const char *name, const char *const *cols, unsigned n)
{
	struct series_column c[COLUMNS_MAX + 1];
	unsigned i;
	int id;

	if (n > COLUMNS_MAX)
		return -1;
	memset(c, 0, sizeof(c));
	for (i = 0; i < n; i++) {
		c[i].name = (char *)(uintptr_t)cols[i];
		c[i].type = COLUMN_DOUBLE;
	}
	id = acct_gather_profile_g_create_dataset(name, NO_PARENT, c);
	return id < 0 ? -1 : id;
}

void ddp_gather_series_add(int id, double *values)
{
	(void)acct_gather_profile_g_add_sample_data(id, values, time(NULL));
}
