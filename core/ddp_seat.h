/* SPDX-License-Identifier: Apache-2.0 */
/* A task and its place: what it may use now, and how it moves there. */
#ifndef DDP_SEAT_H
#define DDP_SEAT_H

#include "core/ddp_place.h"

/*
 * Where the caller may run now, where its cpuset would let it, and, if *ask
 * says that it has GPUs, which of their devices below sysroot it may open,
 * into *ask. Changes nothing for good. 0, or -1 with *err.
 */
int ddp_seat_look(struct ddp_ask *ask, const char *sysroot,
		  struct ddp_err *err);

/*
 * Take the CPUs and prefer the memory of the answer; what is exec'ed inherits
 * both. CPUs outside the cpuset are left out. A memory policy that is there
 * (--mem-bind) stays; set_nodes is then false, as where no wanted node may be
 * used. 0, or -1 with *err: the caller is where it was.
 */
int ddp_seat_take(struct ddp_placed *placed, struct ddp_err *err);

/*
 * Does the process run as placed and as ddp_seat_take() left it? CPUs from /proc/PID/status, memory from its
 * numa_maps. proc: a descriptor of /proc/PID. 0; -1 with *err that says what
 * differs; 1 with *err: it cannot be told.
 */
int ddp_seat_verify(int proc, const struct ddp_placed *placed,
		    struct ddp_err *err);

#endif
