/* SPDX-License-Identifier: Apache-2.0 */
/* The CPUs that the calling process may use, as a number of cores. */
#ifndef DDP_CPUS_H
#define DDP_CPUS_H

#include <stdint.h>

/*
 * Physical cores in the caller's affinity mask, counted through sysfs' SMT
 * siblings. If the mask is every online CPU of the host, nothing bound this
 * rank, and the cores are shared among the node's `ntasks` ranks (at least
 * one each). 0 if the mask cannot be read.
 */
uint32_t ddp_cpus_cores(uint32_t ntasks);

#endif
