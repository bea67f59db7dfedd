/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two libraries: one has the name of CUDA's and nothing else; the other looks
 * like one that NCCL was linked into, with none of its names visible.
 */
__attribute__((visibility("default"))) const char *mini_inside(void);

const char *mini_inside(void)
{
#ifdef INSIDE
	return "NCCL_LL128_NTHREADS";
#else
	return "";
#endif
}
