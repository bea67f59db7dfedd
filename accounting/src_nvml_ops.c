/* SPDX-License-Identifier: Apache-2.0 */
/* The NVML source as gpu_source.h wants it, over the driver's library. */
#include "config.h"

#include "accounting/gpu_library.h"
#include "accounting/src_nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void op_close(void *state)
{
	struct nvml *n = state;

	nvml_stop(n);
	/* The library stays: what it started may still run in it. */
	free(n);
}

static int op_open(const struct gpu_request *req, struct gpu_integ *in,
		   void **state, struct ddp_err *err)
{
	static const char *const names[] = { "libnvidia-ml.so.1", NULL };
	struct ddp_err why = { .code = DDP_OK };
	struct nvml *n = calloc(1, sizeof(*n));
	void *library;

	if (!n)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	n->now = now_ns;
	library = gpu_library_open(req->library, req->owner, names, &why);
	if (!library) {
		(void)ddp_err_set(err, why.code,
			"no NVML: %s; install the driver's libnvidia-ml or set DdpGpuLibrary",
			why.text);
		goto error;
	}
	if (nvml_api_load(library, &n->api, err) ||
	    nvml_start(n, req, in, err))
		goto error;
	*state = n;
	return 0;
error:
	op_close(n);
	return -1;
}

static void op_read(void *state, bool last)
{
	nvml_read(state, last);
}

static const char *op_from(void *state, unsigned gpu, enum gpu_metric metric)
{
	return nvml_from(state, gpu, metric);
}

static const char *op_version(void *state)
{
	return ((struct nvml *)state)->version;
}

static unsigned op_least_ms(void *state)
{
	return ((struct nvml *)state)->least_ms;
}

static unsigned op_changes(void *state)
{
	return ((struct nvml *)state)->changes;
}

const struct gpu_source gpu_source_nvml = {
	.name = "nvml",
	.open = op_open,
	.read = op_read,
	.from = op_from,
	.version = op_version,
	.changes = op_changes,
	.least_ms = op_least_ms,
	.close = op_close,
};
