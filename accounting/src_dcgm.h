/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the DCGM source. */
#ifndef SRC_DCGM_H
#define SRC_DCGM_H

#include <stdbool.h>
#include <stdint.h>

#include "accounting/dcgm_abi.h"
#include "accounting/gpu_source.h"
#include "core/ddp_err.h"

/* DCGM's functions. */
struct dcgm_api {
	int (*init)(void);
	int (*shutdown)(void);
	int (*connect)(const char *address, struct dc_connect *options,
		       uintptr_t *handle);
	int (*disconnect)(uintptr_t handle);
	const char *(*error_text)(int rc);
	int (*devices)(uintptr_t handle, unsigned int *ids, int *n);
	int (*group)(uintptr_t handle, int type, const char *name,
		     uintptr_t *group);
	int (*group_add)(uintptr_t handle, uintptr_t group, int kind,
			 unsigned int id);
	int (*fields)(uintptr_t handle, int n, const unsigned short *ids,
		      const char *name, uintptr_t *fields);
	int (*fields_free)(uintptr_t handle, uintptr_t fields);
	int (*watch)(uintptr_t handle, uintptr_t group, uintptr_t fields,
		     long long every_us, double keep_s, int keep);
	int (*latest)(uintptr_t handle, struct dc_entity *entities,
		      unsigned int n, unsigned short *fields,
		      unsigned int nfields, unsigned int flags,
		      struct dc_value *values);
};

#define DCGM_FIELDS 7

struct dcgm_gpu {
	bool found;
	unsigned id;			/* DCGM's */
	unsigned bad;			/* readings in a row that failed */
	bool gave[DCGM_FIELDS];
	int64_t ts[DCGM_FIELDS];	/* of the latest value, us since 1970 */
	int64_t at[DCGM_FIELDS];	/* the same in our clock, ns */
};

struct dcgm {
	struct dcgm_api api;
	bool inited, connected;
	uintptr_t handle, group;
	const struct gpu_request *req;
	struct gpu_integ *in;
	int64_t start;			/* of our clock, ns */
	unsigned changes;
	unsigned n;			/* fields that are watched */
	unsigned field[DCGM_FIELDS];	/* indices into the table of fields */
	struct dcgm_gpu gpu[GPU_MAX];
	struct dc_value value[DCGM_FIELDS];
};

/*
 * Anybody may listen on the host engine's port where that does not run. -1
 * with *err if one who listens there, as path (/proc/net/tcp or tcp6) has it,
 * is a user and no service.
 */
int dcgm_port_check(const char *path, unsigned port, struct ddp_err *err);

/* dcgm_find.c: which of DCGM's GPUs are asked for; as nvml_match(). */
int dcgm_match(struct dcgm *d, struct ddp_err *err);

#endif
