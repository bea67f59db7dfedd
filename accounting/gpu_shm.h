/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sampler (ddp-gpu-sampler, one a node and step) has integrated so
 * far, in memory that it shares with the accounting plugin in slurmstepd.
 *
 * One writer, the sampler; readers never wait for it. There are two slots: the
 * writer fills the one that nobody reads and then makes it the current one, so
 * that a sampler which is stopped or killed at any instant leaves the last
 * whole set of values readable.
 */
#ifndef GPU_SHM_H
#define GPU_SHM_H

#include <stdbool.h>
#include <stdint.h>

#define GPU_MAX 64		/* GPUs or MIG devices of a step on a node */
#define GPU_NAME_MAX 96

/* The TRES, in the order of the masks below. */
enum gpu_metric {
	GPU_SM,			/* gres/gpusm */
	GPU_MEMBW,		/* gres/gpumembw */
	GPU_NVLINK,		/* ic/nvlink */
	GPU_PCIE,		/* ic/pcie */
	GPU_ENERGY,		/* gres/gpuenergy */
	GPU_IDLE,		/* gres/gpuidle */
	GPU_METRICS
};

/* In percent, as a mean and a peak; the others are sums. */
static inline bool gpu_metric_is_percent(unsigned m)
{
	return m == GPU_SM || m == GPU_MEMBW;
}

/* Is it in a mask of known metrics? */
static inline bool gpu_metric_in(uint32_t mask, unsigned m)
{
	return mask & (1u << m);
}

enum gpu_state {
	GPU_STARTING,		/* nothing read yet */
	GPU_SAMPLING,
	GPU_DONE,		/* the last reading is in; nothing follows */
	GPU_FAILED		/* no values, see text; nothing follows */
};

/* The latest interval of one GPU, for time series and ddp-report --watch. */
struct gpu_last {
	char name[GPU_NAME_MAX];	/* as given to the sampler: minor=3 */
	uint32_t known;			/* bits 1 << GPU_SM … GPU_ENERGY */
	uint32_t lost;			/* fell off the bus, or stopped to answer */
	double sm, membw;		/* % */
	double nvlink_in, nvlink_out;	/* bytes a second, received and sent */
	double pcie_in, pcie_out;
	double power;			/* W */
};

/*
 * Integrals over [first, last]. A metric is known when every GPU of the step
 * has given it at least once; only then is its bit set and its value valid.
 *
 *	metric		in				out
 *	GPU_SM, _MEMBW	mean % over GPUs and time	highest reading of a GPU, %
 *	GPU_NVLINK, _PCIE	bytes received		bytes sent
 *	GPU_ENERGY	joules				never known
 *	GPU_IDLE	GPU-seconds below the threshold	never known
 */
struct gpu_totals {
	uint32_t state;			/* enum gpu_state */
	uint32_t ngpus;
	uint32_t known_in, known_out;	/* bits 1 << enum gpu_metric */
	int64_t first, last;		/* CLOCK_MONOTONIC, ns */
	int64_t began;			/* of the first reading; what was from
					 * first until then is an estimate */
	uint64_t readings;
	double in[GPU_METRICS];
	double out[GPU_METRICS];
	/* One line: in GPU_SAMPLING which source gives what, in GPU_FAILED
	 * why there is nothing and what to do; empty if there is no news. */
	char text[512];
	struct gpu_last gpu[GPU_MAX];
};

struct gpu_shm {
	uint32_t magic;			/* GPU_SHM_MAGIC */
	uint32_t size;			/* of this structure */
	int32_t pid;			/* the sampler's, once it runs */
	_Atomic uint32_t current;	/* generation; slot[current & 1] */
	struct gpu_totals slot[2];
};

/*
 * What the plugin says when the step has ended: the last reading now, and
 * nothing that was after until (CLOCK_MONOTONIC, ns) counts. The first byte
 * alone will do where that is not known.
 */
struct gpu_last_call {
	char what;			/* GPU_LAST_CALL */
	int64_t until;
};

#define GPU_LAST_CALL 'F'

#define GPU_SHM_MAGIC 0x31475044u	/* "DPG1" */

/*
 * A new, zeroed area in a memfd (close-on-exec, of fixed size). Returns the
 * descriptor with *shm mapped, or -1 with errno.
 */
int gpu_shm_create(struct gpu_shm **shm);

/* The sampler's side: maps fd after looking at its size and magic. NULL with
 * errno. */
struct gpu_shm *gpu_shm_attach(int fd);

void gpu_shm_unmap(struct gpu_shm *shm);

/* Writer: makes *totals the current values. */
void gpu_shm_publish(struct gpu_shm *shm, const struct gpu_totals *totals);

/*
 * Reader: copies the current values; false (and *out untouched) while nothing
 * was published, or if the writer was faster in each of a few tries. What it
 * gives is made harmless: states and counts in range, text ended, numbers
 * finite and not negative, percentages at most 100, else the metric is
 * unknown.
 */
bool gpu_shm_read(const struct gpu_shm *shm, struct gpu_totals *out);

#endif
