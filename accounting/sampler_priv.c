/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/sampler.h"

#include "core/ddp_child.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Not nobody (65534): jobs and daemons that are nobody could stop and kill it.
 * This one is free on every system: the last of those that neither Debian nor
 * systemd give to anyone.
 */
#define NOONE 65533
#define FIRST_FREE 5		/* 3 and 4 are given, see sampler_main.c */
#define FILES 512		/* the driver opens several a GPU */
#define GROUPS 8
#define MINORS 64		/* looked at where minors are not given */

/* Adds the group that path needs, if it needs one. */
static int add_group(const char *path, gid_t *groups, int *n, int max,
		     struct ddp_err *err)
{
	struct stat st;
	int i;

	/* Not there: the driver may make it, or the GPU is not ours to see. */
	if (stat(path, &st) || (st.st_mode & 0006) == 0006)
		return 0;
	/* The group root opens far more than GPUs. */
	if ((st.st_mode & 0060) != 0060 || st.st_gid == 0)
		return ddp_err_set(err, DDP_EPOLICY,
			"%s is for root alone: give it a group, or all, with NVreg_DeviceFileGID or NVreg_DeviceFileMode",
			path);
	for (i = 0; i < *n; i++)
		if (groups[i] == st.st_gid)
			return 0;
	if (*n == max)
		return ddp_err_set(err, DDP_ENOSPC,
			"the device files of the GPUs are of too many groups");
	groups[(*n)++] = st.st_gid;
	return 0;
}

int sampler_priv_groups(const char *dir, const struct gpu_request *req,
			gid_t *groups, int max, struct ddp_err *err)
{
	char path[PATH_MAX];
	bool all = false;
	unsigned k;
	int n = 0;

	for (k = 0; k < req->ngpus; k++) {
		all |= req->ask[k].kind != GPU_ASK_MINOR;
		if (req->ask[k].kind != GPU_ASK_MINOR)
			continue;
		(void)snprintf(path, sizeof(path), "%s/nvidia%u", dir,
			       req->ask[k].minor);
		if (add_group(path, groups, &n, max, err))
			return -1;
	}
	/* Which of them it is, only the driver knows. */
	for (k = 0; all && k < MINORS; k++) {
		(void)snprintf(path, sizeof(path), "%s/nvidia%u", dir, k);
		(void)add_group(path, groups, &n, max, NULL);
	}
	(void)snprintf(path, sizeof(path), "%s/nvidiactl", dir);
	return add_group(path, groups, &n, max, err) ? -1 : n;
}

static int no_caps(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2];

	memset(none, 0, sizeof(none));
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) &&
	    errno != EINVAL)
		return -1;
	return (int)syscall(SYS_capset, &head, none);
}

static int be_noone(const struct gpu_request *req, struct ddp_err *err)
{
	gid_t groups[GROUPS];
	int n, cap;

	n = sampler_priv_groups("/dev", req, groups, GROUPS, err);
	if (n < 0)
		return -1;
	/* While it may: nothing that it executes ever gets any. */
	for (cap = 0; cap <= 63; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (setgroups((size_t)n, groups) ||
	    setresgid(NOONE, NOONE, NOONE) ||
	    setresuid(NOONE, NOONE, NOONE) || no_caps())
		return ddp_err_set(err, DDP_ESYS,
			"ddp-gpu-sampler cannot become user %d: %s", NOONE,
			strerror(errno));
	if (!setresuid(0, 0, 0) || !setuid(0) || geteuid() != NOONE ||
	    getegid() != NOONE)
		return ddp_err_set(err, DDP_ESYS,
			"ddp-gpu-sampler could become root again");
	return 0;
}

static int limit(int what, rlim_t max)
{
	struct rlimit r;

	if (getrlimit(what, &r))
		return -1;
	if (r.rlim_max > max)
		r.rlim_max = max;
	if (r.rlim_cur > r.rlim_max || what == RLIMIT_NOFILE)
		r.rlim_cur = r.rlim_max;
	return setrlimit(what, &r);
}

int sampler_priv_drop(const struct gpu_request *req, struct ddp_err *err)
{
	ddp_child_leave_cgroups();
	ddp_child_close_from(FIRST_FREE);
	ddp_child_oom_normal();
	(void)umask(077);
	/* Tools for debugging keep descriptors of their own: no must. */
	(void)limit(RLIMIT_NOFILE, FILES);
	if (chdir("/") || limit(RLIMIT_CORE, 0))
		return ddp_err_set(err, DDP_ESYS, "ddp-gpu-sampler: %s",
				   strerror(errno));
	if ((!geteuid() || !getuid()) && be_noone(req, err))
		return -1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return ddp_err_set(err, DDP_ESYS, "ddp-gpu-sampler: %s",
				   strerror(errno));
	return 0;
}
