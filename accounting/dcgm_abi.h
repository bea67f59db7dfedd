/* SPDX-License-Identifier: Apache-2.0 */
/* What of DCGM's binary interface (versions 3 and 4) the sampler uses. */
#ifndef DCGM_ABI_H
#define DCGM_ABI_H

#include <stdint.h>

/* Of structures that carry their version: their size, and a number. */
#define DC_VERSION(type, number) \
	((unsigned int)(sizeof(type) | (unsigned long)(number) << 24))

enum {
	DC_OK = 0,
	DC_GPU_IS_LOST = -18
};

enum {
	DC_ENTITY_GPU = 1,
	DC_GROUP_EMPTY = 1,
	DC_LIVE = 1,			/* ask the driver, not the cache */
	DC_GPUS_MAX = 32,
	DC_PORT = 5555			/* of the host engine */
};

/* Numbers from here on mean that there is no value, and why. */
#define DC_BLANK_INT 0x7ffffffffffffff0LL
#define DC_BLANK_DOUBLE 140737488355328.0

enum dc_field_id {
	DC_FI_UUID = 54,		/* string */
	DC_FI_MINOR = 55,		/* integer */
	DC_FI_PCI = 57,			/* string */
	DC_FI_ENERGY = 156,		/* integer, mJ */
	DC_FI_SM = 1002,		/* double, 0 to 1 */
	DC_FI_DRAM = 1005,		/* double, 0 to 1 */
	DC_FI_PCIE_TX = 1009,		/* integer, bytes a second */
	DC_FI_PCIE_RX = 1010,
	DC_FI_NVLINK_TX = 1011,
	DC_FI_NVLINK_RX = 1012
};

struct dc_connect {
	unsigned int version;		/* 2 */
	unsigned int persist;
	unsigned int timeout_ms;
	unsigned int is_unix;
};

struct dc_entity {
	unsigned int group, id;
};

struct dc_value {
	unsigned int version;
	unsigned int group, id;		/* the entity */
	unsigned short field;
	unsigned short type;		/* 'd', 'i', 's' */
	int status;
	unsigned int unused;
	int64_t ts;			/* microseconds since 1970 */
	union {
		int64_t i;
		double d;
		char s[256];
		char blob[4096];
	} value;
};

_Static_assert(sizeof(struct dc_value) == 4128, "dcgmFieldValue_v2");

#endif
