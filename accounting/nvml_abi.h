/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of NVML's binary interface the sampler uses, declared here in names of
 * its own, so that no SDK is needed to build. tests/unit/check_nvml_abi.c
 * compares sizes, offsets and numbers with nvml.h where that is installed.
 */
#ifndef NVML_ABI_H
#define NVML_ABI_H

/* Devices and GPM samples are pointers that only the library looks into. */
typedef void *nv_device;
typedef void *nv_sample;

/* What every function returns. */
enum nv_return {
	NV_OK = 0,
	NV_UNINITIALIZED = 1,
	NV_INVALID_ARGUMENT = 2,
	NV_NOT_SUPPORTED = 3,
	NV_NO_PERMISSION = 4,
	NV_NOT_FOUND = 6,
	NV_DRIVER_NOT_LOADED = 9,
	NV_FUNCTION_NOT_FOUND = 13,
	NV_GPU_IS_LOST = 15,
	NV_LIB_RM_VERSION_MISMATCH = 18,
	NV_ARGUMENT_VERSION_MISMATCH = 25,
	NV_DEPRECATED = 26,
	NV_UNKNOWN = 999
};

enum {
	NV_UUID_SIZE = 96,		/* of buffers, with the NUL */
	NV_VERSION_SIZE = 80
};

struct nv_pci {
	char legacy[16];
	unsigned int domain, bus, device;
	unsigned int ids, subsystem;
	char bus_id[32];
};

struct nv_util {
	unsigned int gpu;	/* % of time that a kernel ran */
	unsigned int memory;
};

/* --- fields ------------------------------------------------------------- */

enum nv_field_id {
	NV_FI_NVLINK_LINK_COUNT = 91,
	NV_FI_NVLINK_DATA_TX = 138,	/* KiB; scope: link, or all of them */
	NV_FI_NVLINK_DATA_RX = 139,
	NV_FI_PCIE_TX = 197,		/* bytes; may wrap */
	NV_FI_PCIE_RX = 198,
	NV_FI_NVLINK5_TX = 202,		/* bytes; scope: link */
	NV_FI_NVLINK5_RX = 204
};

#define NV_SCOPE_ALL 0xffffffffu
#define NV_LINKS 36			/* links of a GPU, at most */

enum nv_type {
	NV_DOUBLE = 0,
	NV_UINT = 1,
	NV_ULONG = 2,
	NV_ULLONG = 3,
	NV_LLONG = 4,
	NV_INT = 5,
	NV_USHORT = 6
};

union nv_value {
	double d;
	int i;
	unsigned int u;
	unsigned long ul;
	unsigned long long ull;
	signed long long ll;
	unsigned short us;
};

struct nv_field {
	unsigned int id;
	unsigned int scope;
	long long time_us;
	long long latency_us;
	int type;			/* enum nv_type */
	int status;			/* enum nv_return */
	union nv_value value;
};

/* --- PCIe throughput over 20 ms ----------------------------------------- */

enum {
	NV_PCIE_SENT = 0,
	NV_PCIE_RECEIVED = 1
};

/* --- GPM ---------------------------------------------------------------- */

enum nv_gpm_id {
	NV_GPM_SM = 2,			/* % */
	NV_GPM_DRAM = 10,
	NV_GPM_PCIE_TX = 20,		/* MiB/s */
	NV_GPM_PCIE_RX = 21,
	NV_GPM_NVLINK_RX = 60,		/* MiB/s; received comes first here */
	NV_GPM_NVLINK_TX = 61
};

enum {
	NV_GPM_SUPPORT_VERSION = 1,
	NV_GPM_GET_VERSION = 1
};

/* The array's size grew from release to release with the version unchanged,
 * and the library is told only how many entries are asked for: room for all
 * that the newest could know, and more. */
#define NV_GPM_MAX 512

struct nv_gpm_support {
	unsigned int version;
	unsigned int supported;
};

struct nv_gpm_metric {
	unsigned int id;
	int status;			/* enum nv_return */
	double value;
	char *text[3];
};

struct nv_gpm_get {
	unsigned int version;
	unsigned int count;
	nv_sample sample1, sample2;
	struct nv_gpm_metric metric[NV_GPM_MAX];
};

#endif
