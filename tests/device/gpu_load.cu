// SPDX-License-Identifier: Apache-2.0
// A known load for one GPU, and when it began and ended (CLOCK_REALTIME):
//
//	gpu_load busy PERCENT SECONDS	so many percent of the SMs spin
//	gpu_load in|out BYTES TIMES	copies to the GPU, or from it
//	gpu_load idle SECONDS		a context and nothing else
//
// Prints "BEGIN END BYTES-OR-SMS SMS".
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>

#define TRY(call) do { \
	cudaError_t e_ = (call); \
	if (e_ != cudaSuccess) { \
		fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); \
		exit(1); \
	} \
} while (0)

// One block an SM: it takes all the shared memory that there is.
__global__ void spin(unsigned long long ns)
{
	extern __shared__ char whole_room[];
	unsigned long long begin, now;

	whole_room[threadIdx.x] = 0;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (now - begin < ns);
}

static double now()
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	cudaDeviceProp prop;
	double begin, end;
	double what = 0;

	if (argc < 3)
		return 2;
	TRY(cudaGetDeviceProperties(&prop, 0));
	TRY(cudaFree(nullptr));
	if (!strcmp(argv[1], "busy") && argc == 4) {
		int blocks = (int)(prop.multiProcessorCount * atof(argv[2]) /
				   100 + 0.5);
		int room = (int)prop.sharedMemPerBlockOptin;

		TRY(cudaFuncSetAttribute(spin,
			cudaFuncAttributeMaxDynamicSharedMemorySize, room));
		begin = now();
		if (blocks)
			spin<<<blocks, 1024, room>>>(
				(unsigned long long)(atof(argv[3]) * 1e9));
		TRY(cudaGetLastError());
		TRY(cudaDeviceSynchronize());
		end = now();
		what = blocks;
	} else if (argc == 4) {
		size_t size = (size_t)atof(argv[2]);
		bool in = !strcmp(argv[1], "in");
		void *host, *gpu;

		TRY(cudaMallocHost(&host, size));
		TRY(cudaMalloc(&gpu, size));
		begin = now();
		for (int i = 0; i < atoi(argv[3]); i++)
			TRY(cudaMemcpy(in ? gpu : host, in ? host : gpu, size,
				       in ? cudaMemcpyHostToDevice :
				       cudaMemcpyDeviceToHost));
		end = now();
		what = (double)size * atoi(argv[3]);
	} else {
		begin = now();
		usleep((useconds_t)(atof(argv[2]) * 1e6));
		end = now();
	}
	printf("%.6f %.6f %.0f %d\n", begin, end, what,
	       prop.multiProcessorCount);
	return 0;
}
