/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with MPI and NCCL that starts, runs and stops by ddp_lifecycle.h.
 * MPI carries NCCL's unique id; both are ready on all ranks before the first
 * one works; NCCL ends before MPI does, and a rank that fails ends all.
 *
 *	mpicc life_mpi_nccl.c -o life_mpi_nccl -I/usr/local/cuda/include \
 *		-Wl,--no-as-needed -lddp_lifecycle -lnccl \
 *		-L/usr/local/cuda/lib64 -lcudart
 *	srun --mpi=pmix -N2 --gpus-per-node=2 --ntasks-per-node=2 --ddp-launch \
 *		--ddp-lifecycle ./life_mpi_nccl
 *
 * The library must come before MPI's and NCCL's.
 */
#include <cuda_runtime.h>
#include <mpi.h>
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

/* Which GPU: what --ddp-launch has found, else by turns. */
static void take_gpu(int rank)
{
	const char *text = getenv("DDP_LOCAL_DEVICE");
	int count = 0;

	CUDA(cudaGetDeviceCount(&count));
	if (!count)
		ddp_abort(3, "no GPU");
	CUDA(cudaSetDevice(text ? atoi(text) : rank % count));
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
	int rank, size;
	float sum;

	if (ddp_init(&argc, &argv)) {
		fprintf(stderr, "ddp_init: %s\n", ddp_life_error());
		return 1;
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	take_gpu(rank);

	/* Whoever is not here within two minutes is the fault. */
	if (ddp_comm(&handle, NULL, 120) || ddp_ready(NULL, handle, 120))
		ddp_abort(1, ddp_life_error());
	nccl = handle;
	if (!rank)
		printf("%d ranks are %s\n", size,
		       ddp_state_name(ddp_state()));

	sum = add_ones(nccl);
	if (sum != (float)size)
		ddp_abort(2, "the sum is wrong");
	if (!rank)
		printf("the sum of ones is %.0f\n", (double)sum);

	/* Ends the communicator, too: it need not be destroyed before. */
	if (ddp_finalize()) {
		fprintf(stderr, "ddp_finalize: %s\n", ddp_life_error());
		return 1;
	}
	return 0;
}
