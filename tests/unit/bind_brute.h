/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Least values of a binding plan by trying all ways, for tiny nodes. Knows
 * nothing of how the product finds them.
 */
#ifndef BIND_BRUTE_H
#define BIND_BRUTE_H

#include "core/ddp_bind.h"

struct bind_least {
	uint64_t first, second;	/* of the least first, the least */
};

/* All ways to split the units evenly: D1 and U. Not for shared PUs. */
struct bind_least bind_brute_cpus(const struct ddp_bind_in *in,
				  const uint64_t *gpus, bool by_pu);

/* All ways to share the GPUs evenly: D1, by core, and D2. */
struct bind_least bind_brute_gpus(const struct ddp_bind_in *in,
				  const struct ddp_bind_fixed *fixed);

/* D1 of one rank, by core or by PU, and its D2. */
uint64_t bind_brute_d1(const struct ddp_bind_in *in, uint64_t gpus,
		       const uint32_t *pus, unsigned npus, bool by_pu);
uint64_t bind_brute_d2(const struct ddp_bind_in *in, uint64_t gpus);

#endif
