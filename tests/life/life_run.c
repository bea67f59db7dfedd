/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of life_mpi (WITH_MPI), life_nccl (WITH_NCCL) and life_mpi_nccl
 * (both): in each iteration an MPI_Allreduce and an ncclAllReduce, whose
 * results are looked at. It ends as a careful program does; errors that a
 * call returns end it by MPI_Abort, or exit, with 20.
 */
#include "config.h"

#include "tests/life/life_prog.h"

#ifdef WITH_MPI
#include <mpi.h>
#endif
#ifdef WITH_NCCL
#include "tests/fakes/fake_nccl.h"
#endif

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 256
#define FAILED 20

void life_mpi_abort(int code)
{
#ifdef WITH_MPI
	MPI_Abort(MPI_COMM_WORLD, code);
#endif
	exit(code);
}

static void fail(const struct life *life, const char *what)
{
	fprintf(stderr, "life: rank %d: %s\n", life->rank, what);
	life_note(life, "failed");
	life_mpi_abort(FAILED);
}

#ifdef WITH_MPI
static void mpi_start(struct life *life, int *argc, char ***argv)
{
	int got;

	/* A thread of its own may call MPI_Abort. */
	MPI_Init_thread(argc, argv, life->by == BY_MPI_ABORT ?
			MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &got);
	MPI_Comm_rank(MPI_COMM_WORLD, &life->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &life->nranks);
}

static void mpi_step(const struct life *life, int i)
{
	double mine = life->rank + i, sum = 0;
	int n = life->nranks;

	life_inside(life, AT_MPI, i);
	MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	if (sum < n * (n - 1) / 2 + n * i - 0.1 ||
	    sum > n * (n - 1) / 2 + n * i + 0.1)
		fail(life, "MPI_Allreduce: wrong sum");
}
#endif

#ifdef WITH_NCCL
static ncclComm_t comm, second;
static cudaStream_t stream, other_stream;
static float *gpu;

static void check(const struct life *life, ncclResult_t result,
		  const char *what)
{
	char text[128];

	if (result == ncclSuccess)
		return;
	snprintf(text, sizeof(text), "%s: %s", what,
		 ncclGetErrorString(result));
	fail(life, text);
}

/* Through a file, where there is no MPI. */
#ifndef WITH_MPI
static void share_id(const struct life *life, ncclUniqueId *id)
{
	char part[512];
	int fd;

	if (!life->id_file)
		fail(life, "--id is missing");
	if (life->rank == 0) {
		snprintf(part, sizeof(part), "%s.part", life->id_file);
		fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0 || write(fd, id, sizeof(*id)) != sizeof(*id) ||
		    close(fd) < 0 || rename(part, life->id_file) < 0)
			fail(life, "cannot write the id");
		return;
	}
	while ((fd = open(life->id_file, O_RDONLY | O_CLOEXEC)) < 0)
		usleep(2000);
	if (read(fd, id, sizeof(*id)) != sizeof(*id))
		fail(life, "cannot read the id");
	close(fd);
}

static int number(const char *name, const char *other)
{
	const char *text = getenv(name);

	if (!text)
		text = getenv(other);
	return text ? atoi(text) : -1;
}
#else
static void share_id(const struct life *life, ncclUniqueId *id)
{
	(void)life;
	MPI_Bcast(id, sizeof(*id), MPI_BYTE, 0, MPI_COMM_WORLD);
}
#endif

static void nccl_start(const struct life *life)
{
	ncclUniqueId id;
	int devices;

	if (cudaGetDeviceCount(&devices) != cudaSuccess ||
	    cudaSetDevice(life->rank % devices) != cudaSuccess ||
	    cudaStreamCreate(&stream) != cudaSuccess ||
	    cudaStreamCreate(&other_stream) != cudaSuccess ||
	    cudaMalloc((void **)&gpu, COUNT * sizeof(*gpu)) != cudaSuccess)
		fail(life, "CUDA");
	life_here(life, AT_BEFORE_ID);
	if (life->rank == 0)
		check(life, ncclGetUniqueId(&id), "ncclGetUniqueId");
	share_id(life, &id);
	life_here(life, AT_AFTER_ID);
	check(life, ncclCommInitRank(&comm, life->nranks, id, life->rank),
	      "ncclCommInitRank");
	if (life->second)
		check(life, ncclCommSplit(comm, 0, life->rank, &second, NULL),
		      "ncclCommSplit");
}

/* The victim's own operation cannot end before its neighbour comes, nor
 * anybody else's without the victim: it is the root. */
static void nccl_inside(const struct life *life, int i)
{
	int root = life->victim < 0 ? 0 : life->victim;

	if (life->at != AT_NCCL || i != life->iteration)
		return;
	life_inside(life, AT_NCCL, i);
	check(life, ncclReduce(gpu, gpu, COUNT, ncclFloat32, ncclSum, root,
			       comm, stream), "ncclReduce");
	cudaStreamSynchronize(stream);
}

/* Half of the ranks never come to this operation; who waits sees that, and
 * gives the communicator up. The first one goes on. */
static void give_up_second(const struct life *life)
{
	if (life->rank % 2 == 0)
		check(life, ncclAllReduce(gpu, gpu, COUNT, ncclFloat32,
					  ncclSum, second, other_stream),
		      "ncclAllReduce");
	usleep(50000);
	check(life, ncclCommAbort(second), "ncclCommAbort");
	second = NULL;
	cudaStreamSynchronize(other_stream);
}

static void nccl_step(const struct life *life, int i)
{
	int k, n = life->nranks;
	float host[COUNT];

	nccl_inside(life, i);
	if (second && i == life->iteration)
		give_up_second(life);
	for (k = 0; k < COUNT; k++)
		host[k] = (float)(life->rank + k);
	cudaMemcpy(gpu, host, sizeof(host), cudaMemcpyHostToDevice);
	check(life, ncclAllReduce(gpu, gpu, COUNT, ncclFloat32, ncclSum, comm,
				  stream), "ncclAllReduce");
	cudaStreamSynchronize(stream);
	cudaMemcpy(host, gpu, sizeof(host), cudaMemcpyDeviceToHost);
	for (k = 0; k < COUNT; k++)
		if (host[k] < (float)(n * (n - 1) / 2 + n * k) - 0.1f ||
		    host[k] > (float)(n * (n - 1) / 2 + n * k) + 0.1f)
			fail(life, "ncclAllReduce: wrong sum");
}

static void nccl_end(const struct life *life)
{
	check(life, ncclCommFinalize(comm), "ncclCommFinalize");
	check(life, ncclCommDestroy(comm), "ncclCommDestroy");
	cudaFree(gpu);
	cudaStreamDestroy(stream);
	cudaStreamDestroy(other_stream);
}
#endif

int main(int argc, char **argv)
{
	struct life life;
	int i;

	if (life_parse(&life, argc, argv) < 0)
		return 2;
	life.rank = -1;
	if (getenv("SLURM_PROCID"))
		life.rank = atoi(getenv("SLURM_PROCID"));
#ifdef WITH_MPI
	life_note(&life, "start");
	mpi_start(&life, &argc, &argv);
#else
	life.rank = number("SLURM_PROCID", "LIFE_RANK");
	life.nranks = number("SLURM_NTASKS", "LIFE_NRANKS");
	if (life.rank < 0 || life.nranks < 1)
		return 2;
	life_note(&life, "start");
#endif
#ifdef WITH_NCCL
	nccl_start(&life);
#endif
	life_fork(&life);
	life_note(&life, "ready");
	for (i = 0; i < life.iterations; i++) {
#ifdef WITH_NCCL
		nccl_step(&life, i);
#endif
		if (i == life.iteration)
			life_here(&life, AT_BETWEEN);
#ifdef WITH_MPI
		mpi_step(&life, i);
#endif
		usleep(1000);
	}
	life_here(&life, AT_FINALIZE);
#ifdef WITH_NCCL
	if (!life.forget)
		nccl_end(&life);
#endif
	life_here(&life, AT_MPI_FINALIZE);
#ifdef WITH_MPI
	MPI_Finalize();
#endif
	life_note(&life, "end");
	return 0;
}
