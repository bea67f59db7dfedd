/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with NCCL and without MPI, by ddp_lifecycle.h: the controller of
 * srun --ddp-launch carries NCCL's unique id from rank 0 to the others.
 *
 *	cc life_nccl.c -o life_nccl -I/usr/local/cuda/include \
 *		-Wl,--no-as-needed -lddp_lifecycle -lnccl \
 *		-L/usr/local/cuda/lib64 -lcudart
 *	srun -N2 --gpus-per-node=2 --ntasks-per-node=2 --ddp-launch \
 *		--ddp-lifecycle ./life_nccl
 *
 * The library must come before NCCL's.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include <ddp_lifecycle.h>

#define COUNT 1024

/* A failed call ends all ranks, with the communicators aborted first. */
#define CUDA(call) \
	do { \
		if ((call) != cudaSuccess) \
			ddp_abort(3, #call); \
	} while (0)
#define NCCL(call) \
	do { \
		if ((call) != ncclSuccess) \
			ddp_abort(4, #call); \
	} while (0)

/* A number that the launch has set. */
static int number(const char *name)
{
	const char *text = getenv(name);

	return text ? atoi(text) : 0;
}

/* Which GPU: what --ddp-launch has found, else by turns. */
static void take_gpu(void)
{
	const char *text = getenv("DDP_LOCAL_DEVICE");
	int count = 0;

	CUDA(cudaGetDeviceCount(&count));
	if (!count)
		ddp_abort(3, "no GPU");
	CUDA(cudaSetDevice(text ? atoi(text) : number("LOCAL_RANK") % count));
}

/* The sum of 1.0 of each rank, by NCCL. */
static float add_ones(ncclComm_t nccl)
{
	float host[COUNT], *device;
	cudaStream_t stream;

	for (int i = 0; i < COUNT; i++)
		host[i] = 1.0f;
	CUDA(cudaStreamCreate(&stream));
	CUDA(cudaMalloc((void **)&device, sizeof(host)));
	CUDA(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice));
	NCCL(ncclAllReduce(device, device, COUNT, ncclFloat, ncclSum, nccl,
			   stream));
	CUDA(cudaStreamSynchronize(stream));
	CUDA(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
	CUDA(cudaFree(device));
	CUDA(cudaStreamDestroy(stream));
	return host[COUNT - 1];
}

int main(int argc, char **argv)
{
	ncclComm_t nccl;
	void *handle;
	float sum;

	if (ddp_init(&argc, &argv)) {
		fprintf(stderr, "ddp_init: %s\n", ddp_life_error());
		return 1;
	}
	take_gpu();

	/* After two minutes a rank that is missing ends all. */
	if (ddp_comm(&handle, NULL, 120))
		ddp_abort(2, ddp_life_error());
	nccl = (ncclComm_t)handle;
	if (ddp_ready(NULL, nccl, 120))
		ddp_abort(2, ddp_life_error());

	sum = add_ones(nccl);
	if (sum != (float)number("WORLD_SIZE"))
		ddp_abort(5, "the sum is wrong");
	if (!number("RANK"))
		printf("%d ranks, sum %.0f\n", number("WORLD_SIZE"), sum);
	fflush(stdout);

	/* The communicator, in order with the other ranks. */
	if (ddp_finalize()) {
		fprintf(stderr, "ddp_finalize: %s\n", ddp_life_error());
		return 1;
	}
	return 0;
}
