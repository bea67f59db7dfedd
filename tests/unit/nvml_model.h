/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver for unit tests of the NVML source: GPUs with set loads, and a clock
 * that stands still until it is moved.
 */
#ifndef NVML_MODEL_H
#define NVML_MODEL_H

#include "accounting/src_nvml.h"

enum model_load {
	M_SM, M_MEMBW, M_UTIL, M_NV_RX, M_NV_TX, M_PCIE_RX, M_PCIE_TX, M_WATT,
	M_LOADS
};

/* The functions that can be counted and made to fail. */
enum model_fn {
	F_INIT, F_COUNT, F_BY_INDEX, F_BY_UUID, F_FIELDS, F_ENERGY, F_UTIL,
	F_PCIE, F_GPM_SUPPORT, F_GPM_ALLOC, F_GPM_SAMPLE, F_GPM_MIG,
	F_GPM_METRICS, F_FNS
};

#define MODEL_GPUS 4

struct model_gpu {
	unsigned minor, bus;
	const char *uuid;
	struct model_gpu *parent;	/* of a MIG device */
	unsigned gi;
	bool lost;
	bool gpm, gpm_nvlink, gpm_pcie;
	bool nvlink, nvlink5;		/* fields */
	int links;			/* link count, -1: does not say */
	bool pcie, wide;		/* fields; of 64 bits */
	bool samples;			/* of PCIe */
	bool energy, util;
	unsigned gen, lanes;		/* of PCIe; 0: does not say */
	double load[M_LOADS];
	double sum[M_LOADS];		/* the integral, and where it began */
};

struct model {
	struct model_gpu gpu[MODEL_GPUS];
	unsigned ngpus;			/* those with an index */
	int64_t now;
	unsigned calls[F_FNS];
	unsigned samples;		/* allocated */
	int fail[F_FNS];		/* what it returns … */
	unsigned times[F_FNS];		/* … so often */
	unsigned gpm_fail, gpm_code;	/* a GPM metric id, and its status */
	double gpm_value;		/* if the status is 0 */
	int no;				/* "not supported" of a field, if not 0 */
	unsigned close;			/* GPM asked for less than 100 ms */
	uint64_t garble;		/* not 0: answers are random */
};

extern struct model model;

/* One more GPU of Hopper's kind that does nothing. */
struct model_gpu *model_add(void);

/* Time goes by with the loads as they are. */
void model_step(double seconds);

void model_api(struct nvml_api *api);
int64_t model_now(void);

#endif
