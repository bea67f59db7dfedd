/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the program ddp-gpu-sampler. */
#ifndef SAMPLER_H
#define SAMPLER_H

#include <stdbool.h>

#include "accounting/gpu_source.h"
#include "core/ddp_err.h"

struct sampler_args {
	struct gpu_request req;
	const struct gpu_source *source;
};

/*
 * The command line, strictly: each option with a value of its own, none twice
 * but --gpu. -1 with *err.
 */
int sampler_args_parse(int argc, const char *const *argv,
		       struct sampler_args *args, struct ddp_err *err);

/*
 * For good: outside Slurm's cgroups, as a user and group that are nobody else's
 * (65533), without capabilities or other groups, and no way back; not to be
 * traced; small limits. If the device files of the GPUs asked for are not open
 * to all, the groups that may open them stay.
 * Who is not root when it starts stays who it is. -1 with *err.
 */
int sampler_priv_drop(const struct gpu_request *req, struct ddp_err *err);

/*
 * The groups, none twice, that one must be in to open the device files below
 * dir for req. Returns how many, at most max; -1 with *err where root alone
 * may open one.
 */
int sampler_priv_groups(const char *dir, const struct gpu_request *req,
			gid_t *groups, int max, struct ddp_err *err);

#endif
