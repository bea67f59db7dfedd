/* SPDX-License-Identifier: Apache-2.0 */
/* Files that root runs or loads: only from where none but root can put them. */
#ifndef GPU_PATH_H
#define GPU_PATH_H

#include <sys/types.h>

#include "core/ddp_err.h"

/*
 * 0 if path is absolute, and it and each folder above it, symbolic links
 * included, belong to root or to owner and nobody else may write there; a
 * folder as /var/tmp, where others may only add files (sticky), is good
 * enough. Else -1, with *err naming what is wrong. On success resolved (of
 * PATH_MAX bytes) is the same path without symbolic links.
 */
int gpu_path_check(const char *path, uid_t owner, char *resolved,
		   struct ddp_err *err);

#endif
