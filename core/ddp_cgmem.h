/* SPDX-License-Identifier: Apache-2.0 */
/* How often the kernel ended a process of a memory cgroup to free memory. */
#ifndef DDP_CGMEM_H
#define DDP_CGMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DDP_CGMEM_PATH 512

/* Where the counter of the process's cgroup is (version 1 or 2), from the
 * text of its /proc/PID/cgroup. 0, or -1 without a path. */
int ddp_cgmem_parse(char *text, char *path, size_t size);

/* The same for a process. */
int ddp_cgmem_path(pid_t pid, char *path, size_t size);

/* Is the process frozen by a cgroup (version 1 or 2)? */
bool ddp_cgmem_frozen(pid_t pid);

/* The counter; 0 if it cannot be read. */
uint64_t ddp_cgmem_kills(const char *path);

#endif
