/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a shared library only from where none but root can have put it. */
#ifndef GPU_LIBRARY_H
#define GPU_LIBRARY_H

#include <sys/types.h>

#include "core/ddp_err.h"

/*
 * Opens the library at path, or if that is "" the first of names (NULL ends
 * the list) that the system's loader finds. Returns the handle; NULL with
 * *err.
 */
void *gpu_library_open(const char *path, uid_t owner,
		       const char *const *names, struct ddp_err *err);

#endif
