/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler's own declarations of NVML's binary interface against the real
 * nvml.h, where configure found one: compiling is the test. Newer headers may
 * know more, but what is used here must be the same.
 */
#include "config.h"

#include "accounting/nvml_abi.h"

#include <stdio.h>

#ifdef HAVE_NVML_H
#include <nvml.h>
#include <stddef.h>

#define SAME(ours, theirs) \
	_Static_assert((long long)(ours) == (long long)(theirs), \
		       #ours " is not " #theirs)
#define SIZE(ours, theirs) SAME(sizeof(ours), sizeof(theirs))
#define AT(ours, of, theirs, member) \
	SAME(offsetof(ours, of), offsetof(theirs, member)); \
	SAME(sizeof(((ours *)0)->of), sizeof(((theirs *)0)->member))

SIZE(nv_device, nvmlDevice_t);
SIZE(int, nvmlReturn_t);
SIZE(int, nvmlValueType_t);
SIZE(int, nvmlPcieUtilCounter_t);

SAME(NV_OK, NVML_SUCCESS);
SAME(NV_UNINITIALIZED, NVML_ERROR_UNINITIALIZED);
SAME(NV_INVALID_ARGUMENT, NVML_ERROR_INVALID_ARGUMENT);
SAME(NV_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
SAME(NV_NO_PERMISSION, NVML_ERROR_NO_PERMISSION);
SAME(NV_NOT_FOUND, NVML_ERROR_NOT_FOUND);
SAME(NV_DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED);
SAME(NV_FUNCTION_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND);
SAME(NV_GPU_IS_LOST, NVML_ERROR_GPU_IS_LOST);
SAME(NV_LIB_RM_VERSION_MISMATCH, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
SAME(NV_UNKNOWN, NVML_ERROR_UNKNOWN);
#if NVML_API_VERSION >= 12
SAME(NV_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
SAME(NV_DEPRECATED, NVML_ERROR_DEPRECATED);
#endif

_Static_assert((int)NV_UUID_SIZE >= NVML_DEVICE_UUID_V2_BUFFER_SIZE,
	       "a UUID's buffer");
_Static_assert((int)NV_VERSION_SIZE >= NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE,
	       "a version's buffer");

SIZE(struct nv_pci, nvmlPciInfo_t);
AT(struct nv_pci, domain, nvmlPciInfo_t, domain);
AT(struct nv_pci, bus, nvmlPciInfo_t, bus);
AT(struct nv_pci, device, nvmlPciInfo_t, device);
AT(struct nv_pci, bus_id, nvmlPciInfo_t, busId);

SIZE(struct nv_util, nvmlUtilization_t);
AT(struct nv_util, gpu, nvmlUtilization_t, gpu);

SAME(NV_DOUBLE, NVML_VALUE_TYPE_DOUBLE);
SAME(NV_UINT, NVML_VALUE_TYPE_UNSIGNED_INT);
SAME(NV_ULONG, NVML_VALUE_TYPE_UNSIGNED_LONG);
SAME(NV_ULLONG, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
SAME(NV_LLONG, NVML_VALUE_TYPE_SIGNED_LONG_LONG);
#if NVML_API_VERSION >= 12
SAME(NV_INT, NVML_VALUE_TYPE_SIGNED_INT);
#endif

SIZE(union nv_value, nvmlValue_t);
SIZE(struct nv_field, nvmlFieldValue_t);
AT(struct nv_field, id, nvmlFieldValue_t, fieldId);
AT(struct nv_field, scope, nvmlFieldValue_t, scopeId);
AT(struct nv_field, time_us, nvmlFieldValue_t, timestamp);
AT(struct nv_field, type, nvmlFieldValue_t, valueType);
AT(struct nv_field, status, nvmlFieldValue_t, nvmlReturn);
AT(struct nv_field, value, nvmlFieldValue_t, value);

SAME(NV_FI_NVLINK_LINK_COUNT, NVML_FI_DEV_NVLINK_LINK_COUNT);
SAME(NV_FI_NVLINK_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX);
SAME(NV_FI_NVLINK_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX);
#ifdef NVML_FI_DEV_PCIE_COUNT_TX_BYTES
SAME(NV_FI_PCIE_TX, NVML_FI_DEV_PCIE_COUNT_TX_BYTES);
SAME(NV_FI_PCIE_RX, NVML_FI_DEV_PCIE_COUNT_RX_BYTES);
#endif
#ifdef NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES
SAME(NV_FI_NVLINK5_TX, NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES);
SAME(NV_FI_NVLINK5_RX, NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES);
#endif
_Static_assert(NV_LINKS >= NVML_NVLINK_MAX_LINKS, "raise NV_LINKS");

SAME(NV_PCIE_SENT, NVML_PCIE_UTIL_TX_BYTES);
SAME(NV_PCIE_RECEIVED, NVML_PCIE_UTIL_RX_BYTES);

#ifdef NVML_GPM_METRICS_GET_VERSION
SIZE(nv_sample, nvmlGpmSample_t);
SAME(NV_GPM_SM, NVML_GPM_METRIC_SM_UTIL);
SAME(NV_GPM_DRAM, NVML_GPM_METRIC_DRAM_BW_UTIL);
SAME(NV_GPM_PCIE_TX, NVML_GPM_METRIC_PCIE_TX_PER_SEC);
SAME(NV_GPM_PCIE_RX, NVML_GPM_METRIC_PCIE_RX_PER_SEC);
SAME(NV_GPM_NVLINK_RX, NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC);
SAME(NV_GPM_NVLINK_TX, NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC);
SAME(NV_GPM_SUPPORT_VERSION, NVML_GPM_SUPPORT_VERSION);
SAME(NV_GPM_GET_VERSION, NVML_GPM_METRICS_GET_VERSION);
SIZE(struct nv_gpm_support, nvmlGpmSupport_t);
AT(struct nv_gpm_support, supported, nvmlGpmSupport_t, isSupportedDevice);
SIZE(struct nv_gpm_metric, nvmlGpmMetric_t);
AT(struct nv_gpm_metric, id, nvmlGpmMetric_t, metricId);
AT(struct nv_gpm_metric, status, nvmlGpmMetric_t, nvmlReturn);
AT(struct nv_gpm_metric, value, nvmlGpmMetric_t, value);
AT(struct nv_gpm_get, version, nvmlGpmMetricsGet_t, version);
AT(struct nv_gpm_get, count, nvmlGpmMetricsGet_t, numMetrics);
AT(struct nv_gpm_get, sample1, nvmlGpmMetricsGet_t, sample1);
AT(struct nv_gpm_get, sample2, nvmlGpmMetricsGet_t, sample2);
SAME(offsetof(struct nv_gpm_get, metric),
     offsetof(nvmlGpmMetricsGet_t, metrics));
_Static_assert(NV_GPM_MAX >= (int)NVML_GPM_METRIC_MAX, "raise NV_GPM_MAX");
#endif

int main(void)
{
	printf("nvml_abi.h is as nvml.h of NVML %d has it\n",
	       NVML_API_VERSION);
	return 0;
}

#else
int main(void)
{
	printf("no nvml.h here, so nvml_abi.h is not compared with it (package libnvidia-ml-dev, cuda-nvml-dev-…; or configure --with-cuda)\n");
	return 77;
}
#endif
