/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master port of a stateless launch: a sequence of candidates that
 * depends on job, step and restart count only. Pure arithmetic; who probes
 * them is not decided here.
 */
#ifndef DDP_PORT_H
#define DDP_PORT_H

#include <stddef.h>
#include <stdint.h>

#define DDP_PORT_RANGES 64

/* Disjoint ascending ranges, both ends included; total ports in them. */
struct ddp_portset {
	unsigned n;
	uint32_t total;
	struct {
		uint32_t lo, hi;
	} range[DDP_PORT_RANGES];
};

/* The set lo…hi. */
void ddp_portset_init(struct ddp_portset *set, uint32_t lo, uint32_t hi);

/*
 * Take lo…hi out. When that would need more than DDP_PORT_RANGES ranges the
 * upper part of the split range is dropped: fewer ports, never a wrong one.
 */
void ddp_portset_exclude(struct ddp_portset *set, uint32_t lo, uint32_t hi);

/*
 * Candidate number `attempt` for the step; 0 if the set is empty.
 *
 * A rank-1 lattice: (a·job + b·step + c·restart + d·attempt) mod m, with m
 * the largest prime not above the number of ports, so that the differences
 * that occur in practice (10000, 4096, 16384 …) are no multiple of it, and
 * a, b, c the fractions of m that spread three dimensions best (powers of
 * 1/g, g^4 = g + 1), d the golden section: neighbouring jobs, steps and
 * attempts lie far apart, and m consecutive jobs never meet.
 */
uint16_t ddp_port_candidate(const struct ddp_portset *set, uint32_t job,
			    uint32_t step, uint32_t restart,
			    uint32_t attempt);

#endif
