/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the NVML source.
 *
 * Driver calls a reading and GPU, for the metrics that are wanted only:
 *	nvmlGpmSampleGet (or …MigSampleGet)	with GPM
 *	nvmlGpmMetricsGet			with GPM, from the second on
 *	nvmlDeviceGetFieldValues		NVLink; PCIe without GPM
 *	nvmlDeviceGetTotalEnergyConsumption	energy
 *	nvmlDeviceGetUtilizationRates		idle, without GPM's SM activity
 *	nvmlDeviceGetPcieThroughput, twice	PCIe, where nothing better is
 * So 4 with all metrics on Hopper, and none that lists processes: those hold
 * the driver's global lock for milliseconds. The last but one pair waits for
 * 20 ms a call.
 */
#ifndef SRC_NVML_H
#define SRC_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "accounting/gpu_integ.h"
#include "accounting/gpu_source.h"
#include "accounting/nvml_api.h"

#define NVML_MISSES 3	/* failures in a row that mean something */

/* What the driver said to the calls of one reading of one GPU. */
struct nvml_tally {
	unsigned calls, ok;
	bool lost;
};

/* Where a metric comes from. OPEN: a better source has not answered yet. */
enum nvml_from { NVML_OPEN, NVML_NONE, NVML_GPM, NVML_FIELDS, NVML_SAMPLED };

struct nvml_gpm_metric {
	unsigned id;
	enum gpu_chan chan;
	double unit;
	bool gave;		/* at least once */
	unsigned misses;	/* in a row */
};

#define NVML_GPM_METRICS 6
#define NVML_GPM_SAMPLES 3

struct nvml_gpm {
	bool on;
	nv_sample sample[NVML_GPM_SAMPLES];
	int64_t at[NVML_GPM_SAMPLES];
	int base;		/* integrated up to this sample; -1: none */
	int before;		/* the base before it; -1: none */
	unsigned n;
	struct nvml_gpm_metric metric[NVML_GPM_METRICS];
};

/* NVLink's and PCIe's counters are read in one call. */
#define NVML_FIELDS_MAX (2 * NV_LINKS + 2)

struct nvml_fields {
	bool probed;
	unsigned probes;	/* that failed */
	bool no_nvlink;		/* the GPU has no links */
	unsigned links;		/* number of entries in link */
	unsigned link[NV_LINKS];	/* scopes: NV_SCOPE_ALL, or links */
	unsigned received, sent;	/* ids of NVLink's fields */
	double unit;		/* bytes a count of theirs */

	enum nvml_from pcie;	/* what there is besides GPM */
	bool pcie_base;		/* read once, in case that GPM has it not */
	unsigned pcie_bits;
	double pcie_top;	/* bytes a second, INFINITY: not known */
	bool pcie_hint;		/* samples tell how often it went round */
	bool sampled, no_samples;	/* they came once; they never will */
	double pcie_rate[2];	/* of the latest samples; NAN: none */
};

struct nvml_gpu {
	bool found;
	bool mig;
	nv_device dev;		/* of a MIG device, its GPU's */
	nv_device mig_dev;
	unsigned gi;
	unsigned bad;		/* readings in a row without an answer */
	struct nvml_tally tally;

	struct nvml_gpm gpm;
	struct nvml_fields fields;
	enum nvml_from sm, membw, nvlink, pcie;
	bool energy, energy_gave;
	bool util, util_gave;
};

struct nvml {
	struct nvml_api api;
	int64_t (*now)(void);	/* CLOCK_MONOTONIC, ns */
	bool inited;
	const struct gpu_request *req;
	struct gpu_integ *in;
	char version[256];
	unsigned least_ms;
	unsigned changes;	/* of where metrics come from */
	struct nv_gpm_get get;			/* for all GPUs in turn */
	struct nv_field field[NVML_FIELDS_MAX];
	struct nvml_gpu gpu[GPU_MAX];
};

/* Notes what a call returned. True: it worked. */
bool nvml_ok(struct nvml_gpu *g, int rc);

/* The driver will never do it: not worth asking again. */
bool nvml_unsupported(int rc);

/* A metric is wanted; SM activity is for idle, too. */
bool nvml_wants(const struct nvml *n, enum gpu_metric metric);

/*
 * src_match.c: find the GPUs asked for. Those that are not there are lost to
 * the gpu_integ. -1 with *err if none is.
 */
int nvml_match(struct nvml *n, struct ddp_err *err);

/* src_gpm.c. Opening says whether GPM works for the GPU; reading may settle
 * where SM, DRAM, NVLink and PCIe come from. */
void nvml_gpm_open(struct nvml *n, struct nvml_gpu *g);
void nvml_gpm_want(struct nvml_gpu *g, enum gpu_metric metric);
bool nvml_gpm_asks(const struct nvml_gpu *g, enum gpu_chan chan);
void nvml_gpm_read(struct nvml *n, unsigned gpu, bool last);
void nvml_gpm_close(struct nvml *n, struct nvml_gpu *g);

/* src_field.c: NVLink and PCIe from counters and samples. The probe finds out
 * what the GPU has, at its first reading, before GPM's turn. */
void nvml_field_probe(struct nvml *n, struct nvml_gpu *g);
void nvml_field_read(struct nvml *n, unsigned gpu);

/*
 * src_nvml.c: what the source does with the functions in n->api and n->now,
 * wherever they are from. -1 with *err; nvml_stop() in either case.
 */
int nvml_start(struct nvml *n, const struct gpu_request *req,
	       struct gpu_integ *in, struct ddp_err *err);
void nvml_read(struct nvml *n, bool last);
const char *nvml_from(struct nvml *n, unsigned gpu, enum gpu_metric metric);
void nvml_stop(struct nvml *n);

#endif
