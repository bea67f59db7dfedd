// SPDX-License-Identifier: Apache-2.0
// One rank of real NCCL for tests/device/life_nccl.py:
//
//	life_nccl RANK NRANKS ID-FILE COMMS END
//
// makes COMMS communicators, does an all-reduce on each and looks at its sum,
// and then, by END:
//
//	destroy	finalizes and destroys them, as a careful program does
//	leave	returns from main() with them alive
//	hang	rank 0 begins one more all-reduce, which the others never join
//	abort	the same, and another thread of rank 0 aborts that communicator
//
// Rank 0's unique ids go to the others through ID-FILE.0, ID-FILE.1, ...
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#define MOST 8
#define COUNT (1 << 20)

#define CUDA(call) do { \
	cudaError_t e_ = (call); \
	if (e_ != cudaSuccess) { \
		fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); \
		exit(20); \
	} \
} while (0)

#define NCCL(call) do { \
	ncclResult_t r_ = (call); \
	if (r_ != ncclSuccess) { \
		fprintf(stderr, "%s: %s\n", #call, ncclGetErrorString(r_)); \
		exit(21); \
	} \
} while (0)

static ncclComm_t comms[MOST];
static cudaStream_t streams[MOST];
static float *memory[MOST];

static void say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

// Through a file that appears whole.
static void share_id(int rank, const char *file, int i, ncclUniqueId *id)
{
	char name[4096], part[4200];
	FILE *f;

	snprintf(name, sizeof(name), "%s.%d", file, i);
	snprintf(part, sizeof(part), "%s.part", name);
	if (rank == 0) {
		NCCL(ncclGetUniqueId(id));
		f = fopen(part, "w");
		if (!f || fwrite(id, sizeof(*id), 1, f) != 1 || fclose(f) ||
		    rename(part, name))
			exit(22);
		return;
	}
	while (!(f = fopen(name, "r")))
		usleep(2000);
	if (fread(id, sizeof(*id), 1, f) != 1)
		exit(22);
	fclose(f);
}

static void fill(int i, float value)
{
	float *host = (float *)malloc(COUNT * sizeof(*host));

	for (int k = 0; host && k < COUNT; k++)
		host[k] = value;
	CUDA(cudaMemcpy(memory[i], host, COUNT * sizeof(*host),
			cudaMemcpyHostToDevice));
	free(host);
}

static void sum(int i, int rank, int nranks)
{
	float *host = (float *)malloc(COUNT * sizeof(*host));
	float want = (float)(nranks * (nranks + 1) / 2);

	fill(i, (float)(rank + 1));
	NCCL(ncclAllReduce(memory[i], memory[i], COUNT, ncclFloat, ncclSum,
			   comms[i], streams[i]));
	CUDA(cudaStreamSynchronize(streams[i]));
	CUDA(cudaMemcpy(host, memory[i], COUNT * sizeof(*host),
			cudaMemcpyDeviceToHost));
	for (int k = 0; k < COUNT; k++)
		if (host[k] != want) {
			fprintf(stderr, "[%d] is %g, not %g\n", k, host[k],
				want);
			exit(23);
		}
	free(host);
	say("sum ok");
}

static void *aborter(void *arg)
{
	sleep(1);
	NCCL(ncclCommAbort(comms[0]));
	say("aborted");
	return arg;
}

// Where the kernel waits for a peer that does not come.
static void hang(int rank, bool abort_it)
{
	pthread_t thread;

	if (rank != 0) {
		say("absent");
		for (;;)
			pause();
	}
	NCCL(ncclAllReduce(memory[0], memory[0], COUNT, ncclFloat, ncclSum,
			   comms[0], streams[0]));
	if (abort_it && pthread_create(&thread, nullptr, aborter, nullptr))
		exit(24);
	say("hanging");
	CUDA(cudaStreamSynchronize(streams[0]));
	say("over");
	if (abort_it)
		pthread_join(thread, nullptr);
}

int main(int argc, char **argv)
{
	int rank, nranks, n, version;

	if (argc != 6)
		return 2;
	rank = atoi(argv[1]);
	nranks = atoi(argv[2]);
	n = atoi(argv[4]);
	if (n < 1 || n > MOST)
		return 2;
	NCCL(ncclGetVersion(&version));
	printf("version %d\n", version);
	CUDA(cudaSetDevice(0));
	for (int i = 0; i < n; i++) {
		ncclUniqueId id;

		share_id(rank, argv[3], i, &id);
		NCCL(ncclCommInitRank(&comms[i], nranks, id, rank));
		CUDA(cudaStreamCreate(&streams[i]));
		CUDA(cudaMalloc((void **)&memory[i], COUNT * sizeof(float)));
		sum(i, rank, nranks);
	}
	if (!strcmp(argv[5], "hang") || !strcmp(argv[5], "abort"))
		hang(rank, !strcmp(argv[5], "abort"));
	else if (!strcmp(argv[5], "destroy"))
		for (int i = 0; i < n; i++) {
			NCCL(ncclCommFinalize(comms[i]));
			NCCL(ncclCommDestroy(comms[i]));
		}
	say("end");
	return 0;
}
