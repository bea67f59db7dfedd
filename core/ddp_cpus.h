/* SPDX-License-Identifier: Apache-2.0 */
/* The CPUs that the calling process may use, as a number of cores. */
#ifndef DDP_CPUS_H
#define DDP_CPUS_H

#include "core/ddp_place.h"

#include <stdint.h>

/*
 * Physical cores in the caller's affinity mask, counted through sysfs' SMT
 * siblings. If the mask is every online CPU of the host, nothing bound this
 * rank, and the cores are shared among the node's `ntasks` ranks (at least
 * one each). 0 if the mask cannot be read.
 */
uint32_t ddp_cpus_cores(uint32_t ntasks);

/* CPUs of a core of this machine: those of the first CPU's. 0: not known. */
uint32_t ddp_cpus_threads(void);

/* "0-3,8" and whatever may follow it into a set; numbers beyond it are left
 * out. The number of CPUs in it, or -1. */
int ddp_cpus_parse(const char *list, ddp_cpus set);

#endif
