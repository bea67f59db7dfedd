/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where readings come from: a source opens a library, finds the GPUs that
 * were asked for and feeds a gpu_integ. One thread; it may block in a driver.
 */
#ifndef GPU_SOURCE_H
#define GPU_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "accounting/gpu_integ.h"
#include "accounting/gpu_shm.h"
#include "core/ddp_err.h"

enum gpu_ask_kind {
	GPU_ASK_MINOR,		/* of /dev/nvidiaN */
	GPU_ASK_PCI,
	GPU_ASK_UUID		/* of a GPU or a MIG device */
};

/* A GPU as it was asked for. */
struct gpu_ask {
	enum gpu_ask_kind kind;
	unsigned minor;
	struct { unsigned domain, bus, device; } pci;
	char uuid[GPU_NAME_MAX];
	char name[GPU_NAME_MAX];	/* as in the argument: minor=3 */
};

struct gpu_request {
	struct gpu_ask ask[GPU_MAX];
	unsigned ngpus;
	uint32_t want;			/* 1 << enum gpu_metric */
	unsigned interval_ms;
	double idle;			/* % */
	int64_t since;			/* the step began, CLOCK_MONOTONIC in
					 * ns; 0: not known */
	char library[4096];		/* "": the loader's path */
	uid_t owner;			/* whose libraries may be loaded, beside
					 * root's */
};

struct gpu_source {
	const char *name;

	/*
	 * Loads and connects. *state is for the calls below. At least one GPU
	 * was found; the others are lost to in from the start. Returns 0, or
	 * -1 with *err saying what to do; then there is nothing to close.
	 */
	int (*open)(const struct gpu_request *req, struct gpu_integ *in,
		    void **state, struct ddp_err *err);

	/*
	 * One reading of all GPUs into in; gpu_integ_tick() was called. The
	 * last one may come sooner after the one before than the interval.
	 */
	void (*read)(void *state, bool last);

	/* What gives metric of gpu, as a constant; NULL: nothing does. */
	const char *(*from)(void *state, unsigned gpu, enum gpu_metric metric);

	/* Library and driver, in a few words; valid until close. */
	const char *(*version)(void *state);

	/* Grows whenever from() may answer otherwise than before. */
	unsigned (*changes)(void *state);

	/* Readings must be at least so far apart, ms. */
	unsigned (*least_ms)(void *state);

	void (*close)(void *state);
};

extern const struct gpu_source gpu_source_nvml;
extern const struct gpu_source gpu_source_dcgm;

/*
 * The line for gpu_totals.text: version, and for each wanted metric what
 * gives it, with the number of GPUs where they differ; and which are lost.
 */
void gpu_source_text(const struct gpu_source *src, void *state,
		     const struct gpu_request *req, const struct gpu_integ *in,
		     char *buf, size_t size);

#endif
