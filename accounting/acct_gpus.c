/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPUs are the step's: slurmstepd's own list of the step's GRES says so.
 * A task's environment would say it too (SLURM_STEP_GPUS), but a task prolog of
 * the user's can write there what it likes.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct.h"
#include "core/ddp_io.h"
#include "core/ddp_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NVIDIA_MAJOR 195
#define DEVICES_MAX 512
#define ENVIRON_MAX (1 << 20)

struct device {
	int index;
	bool alloc, mig;
	uint32_t minor;
	char uuid[GPU_NAME_MAX];
};

struct devices {
	unsigned n;
	struct device v[DEVICES_MAX];
};

static bool is_gpu_file(const char *path)
{
	const char *base = path ? strrchr(path, '/') : NULL;

	base = base ? base + 1 : path;
	return base && !strncmp(base, "nvidia", 6) &&
		base[6] >= '0' && base[6] <= '9';
}

/* The files of one GPU, or MIG device, have the same index. */
static struct device *of_index(struct devices *d, int index)
{
	for (unsigned i = 0; i < d->n; i++)
		if (d->v[i].index == index)
			return &d->v[i];
	if (d->n == DEVICES_MAX)
		return NULL;
	d->v[d->n] = (struct device){ .index = index };
	return &d->v[d->n++];
}

static void visit(const struct ddp_gather_device *dev, void *arg)
{
	bool mig = dev->uuid && !strncmp(dev->uuid, "MIG-", 4);
	struct device *d;

	if (!mig && (dev->major != NVIDIA_MAJOR || !is_gpu_file(dev->path)))
		return;
	d = of_index(arg, dev->index);
	if (!d)
		return;
	d->alloc = d->alloc || dev->alloc;
	if (mig) {
		d->mig = !ddp_text_copy(d->uuid, sizeof(d->uuid), dev->uuid);
	} else {
		d->minor = dev->minor;
	}
}

static void take(struct acct_gpus *gpus, const struct device *d)
{
	if (gpus->n == GPU_MAX)
		return;
	if (d->mig)
		snprintf(gpus->arg[gpus->n++], GPU_NAME_MAX, "uuid=%.80s",
			 d->uuid);
	else
		snprintf(gpus->arg[gpus->n++], GPU_NAME_MAX, "minor=%u",
			 d->minor);
}

static int from_record(const struct acct_step *s,
		       const struct ddp_gather_record *rec,
		       struct devices *d, struct acct_gpus *gpus,
		       struct ddp_err *err)
{
	void *list = ddp_gather_record_gres(rec, false);
	bool is_job = false;

	/* A batch script has what its job has on the node. */
	if (!list && s->kind == ACCT_BATCH) {
		list = ddp_gather_record_gres(rec, true);
		is_job = true;
	}
	if (!list)
		return 0;
	if (ddp_gather_devices(list, is_job, visit, d) < 0)
		return ddp_err_set(err, DDP_EINCONS, "slurmstepd has no list "
				   "of GRES devices");
	for (unsigned i = 0; i < d->n; i++)
		if (d->v[i].alloc)
			take(gpus, &d->v[i]);
	return 0;
}

char *acct_environ(pid_t pid, const char *name)
{
	size_t len = strlen(name);
	char path[64], *all, *s, *value = NULL;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	all = malloc(ENVIRON_MAX);
	if (!all)
		return NULL;
	n = ddp_io_read_file(path, all, ENVIRON_MAX);
	for (s = all; n > 0 && s < all + n; s += strlen(s) + 1)
		if (!strncmp(s, name, len) && s[len] == '=') {
			value = strdup(s + len + 1);
			break;
		}
	free(all);
	return value;
}

int acct_gpus_find(const struct acct_step *s,
		   const struct ddp_gather_record *rec, struct acct_gpus *gpus,
		   struct ddp_err *err)
{
	struct devices *d = calloc(1, sizeof(*d));
	int rc;

	gpus->n = 0;
	if (!d)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	rc = from_record(s, rec, d, gpus, err);
	free(d);
	return rc;
}
