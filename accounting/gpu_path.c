/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/gpu_path.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One name on the way to the file; is_last: the file itself. */
static int check_one(const char *path, uid_t owner, bool is_last,
		     struct ddp_err *err)
{
	const char *why = NULL;
	struct stat st;

	if (lstat(path, &st))
		return ddp_err_set(err, DDP_ESYS, "%s: %s", path,
				   strerror(errno));
	if (st.st_uid != 0 && st.st_uid != owner)
		why = "it does not belong to root";
	else if (S_ISLNK(st.st_mode))
		return 0;	/* its mode means nothing */
	else if (is_last && !S_ISREG(st.st_mode))
		why = "it is not a file";
	else if ((st.st_mode & (S_IWGRP | S_IWOTH)) &&
		 (is_last || !(st.st_mode & S_ISVTX)))
		why = "others than root may write there";
	if (why)
		return ddp_err_set(err, DDP_EPOLICY,
				   "%s is not used: %s", path, why);
	return 0;
}

/* Every prefix of path that ends before a slash, "/" and path itself. */
static int check_all(const char *path, uid_t owner, struct ddp_err *err)
{
	char part[PATH_MAX];
	size_t i, len = strlen(path);

	if (len >= sizeof(part))
		return ddp_err_set(err, DDP_EINVAL, "path too long");
	if (check_one("/", owner, false, err))
		return -1;
	for (i = 1; i <= len; i++) {
		if (path[i] && path[i] != '/')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (check_one(part, owner, !path[i], err))
			return -1;
	}
	return 0;
}

int gpu_path_check(const char *path, uid_t owner, char *resolved,
		      struct ddp_err *err)
{
	if (path[0] != '/')
		return ddp_err_set(err, DDP_EPOLICY,
			"%s is not used: not an absolute path", path);
	/* Who may change a link on the way may choose what is used; so both
	 * the path as it is written and where it leads are looked at. */
	if (check_all(path, owner, err))
		return -1;
	if (!realpath(path, resolved))
		return ddp_err_set(err, DDP_ESYS, "%s: %s", path,
				   strerror(errno));
	return check_all(resolved, owner, err);
}
