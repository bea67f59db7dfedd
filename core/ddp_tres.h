/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's lists of countable things, "1=4,2=400,1001=8": TRES id and count. */
#ifndef DDP_TRES_H
#define DDP_TRES_H

#include <stdint.h>

/*
 * The count of one TRES in a list. Returns 0, or -1 with *count untouched:
 * the list does not have it, is malformed before it, or has one of the values
 * by which Slurm says that it does not know (2^64 - 1 and 2^64 - 2).
 */
int ddp_tres_count(const char *list, uint32_t id, uint64_t *count);

#endif
