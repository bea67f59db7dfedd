/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's runtime, as far as the tests need it: memory is the host's, and a
 * stream is a thread that does what was put into it, in order. A stream that
 * nobody created is made at its first use: callers may bring handles of
 * their own. As on a GPU, nothing but its end ends an operation.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdlib.h>
#include <string.h>

struct work {
	struct work *next;
	cudaHostFn_t fn;
	void *data;
};

struct CUstream_st {
	struct CUstream_st *next;
	cudaStream_t key;
	struct work *first, **last;
	unsigned left;		/* not done */
	bool closing;
};

/* One lock for all streams; never held while an operation runs. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct CUstream_st *streams;
static _Thread_local int current;

/* A child of fork() has none of these threads, and no use for them. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void after_fork_child(void)
{
	streams = NULL;
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_child);
}

static void *stream_main(void *data)
{
	struct CUstream_st *stream = data, **at;
	struct work *work;

	pthread_mutex_lock(&lock);
	for (;;) {
		work = stream->first;
		if (!work && stream->closing)
			break;
		if (!work) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		stream->first = work->next;
		if (!stream->first)
			stream->last = &stream->first;
		pthread_mutex_unlock(&lock);
		work->fn(work->data);
		free(work);
		pthread_mutex_lock(&lock);
		stream->left--;
		pthread_cond_broadcast(&changed);
	}
	for (at = &streams; *at && *at != stream; at = &(*at)->next)
		;
	if (*at)
		*at = stream->next;
	pthread_mutex_unlock(&lock);
	free(stream);
	return NULL;
}

/* Locked. A key of NULL is the default stream, unless fresh. */
static struct CUstream_st *make(cudaStream_t key, bool fresh)
{
	struct CUstream_st *stream = calloc(1, sizeof(*stream));
	pthread_t thread;

	if (!stream)
		abort();
	stream->key = fresh ? stream : key;
	stream->last = &stream->first;
	if (pthread_create(&thread, NULL, stream_main, stream) != 0)
		abort();
	pthread_detach(thread);
	stream->next = streams;
	streams = stream;
	return stream;
}

static struct CUstream_st *find(cudaStream_t key)
{
	struct CUstream_st *stream;

	for (stream = streams; stream; stream = stream->next)
		if (stream->key == key && !stream->closing)
			break;
	return stream;
}

void fake_stream_add(cudaStream_t key, cudaHostFn_t fn, void *data)
{
	struct work *work = calloc(1, sizeof(*work));
	struct CUstream_st *stream;

	if (!work)
		abort();
	work->fn = fn;
	work->data = data;
	pthread_mutex_lock(&lock);
	stream = find(key);
	if (!stream)
		stream = make(key, false);
	*stream->last = work;
	stream->last = &work->next;
	stream->left++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

FAKE_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn,
					void *data)
{
	if (!fn)
		return cudaErrorInvalidValue;
	fake_stream_add(stream, fn, data);
	return cudaSuccess;
}

FAKE_API cudaError_t cudaStreamCreate(cudaStream_t *out)
{
	if (!out)
		return cudaErrorInvalidValue;
	pthread_mutex_lock(&lock);
	*out = make(NULL, true)->key;
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

/* Returns at once; what is in the stream is done first. */
FAKE_API cudaError_t cudaStreamDestroy(cudaStream_t key)
{
	struct CUstream_st *stream;

	pthread_mutex_lock(&lock);
	stream = key ? find(key) : NULL;
	if (stream)
		stream->closing = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return stream ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

FAKE_API cudaError_t cudaStreamQuery(cudaStream_t key)
{
	struct CUstream_st *stream;
	bool busy;

	pthread_mutex_lock(&lock);
	stream = find(key);
	busy = stream && stream->left;
	pthread_mutex_unlock(&lock);
	return busy ? cudaErrorNotReady : cudaSuccess;
}

FAKE_API cudaError_t cudaStreamSynchronize(cudaStream_t key)
{
	struct CUstream_st *stream;

	pthread_mutex_lock(&lock);
	/* Looked up again: it may be gone after the wait. */
	while ((stream = find(key)) && stream->left)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

FAKE_API cudaError_t cudaDeviceSynchronize(void)
{
	struct CUstream_st *stream;

	pthread_mutex_lock(&lock);
	do {
		for (stream = streams; stream; stream = stream->next)
			if (stream->left)
				break;
		if (stream)
			pthread_cond_wait(&changed, &lock);
	} while (stream);
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

FAKE_API cudaError_t cudaGetDeviceCount(int *count)
{
	const char *text = getenv("FAKE_CUDA_DEVICES");

	if (!count)
		return cudaErrorInvalidValue;
	*count = text ? atoi(text) : 8;
	return cudaSuccess;
}

FAKE_API cudaError_t cudaSetDevice(int device)
{
	int count;

	cudaGetDeviceCount(&count);
	if (device < 0 || device >= count)
		return cudaErrorInvalidDevice;
	current = device;
	return cudaSuccess;
}

FAKE_API cudaError_t cudaGetDevice(int *device)
{
	if (!device)
		return cudaErrorInvalidValue;
	*device = current;
	return cudaSuccess;
}

FAKE_API cudaError_t cudaMalloc(void **out, size_t size)
{
	if (!out)
		return cudaErrorInvalidValue;
	*out = malloc(size ? size : 1);
	return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

FAKE_API cudaError_t cudaFree(void *memory)
{
	free(memory);
	return cudaSuccess;
}

/* As CUDA's: after what is in the default stream. */
FAKE_API cudaError_t cudaMemcpy(void *to, const void *from, size_t size,
				enum cudaMemcpyKind kind)
{
	(void)kind;
	cudaStreamSynchronize(NULL);
	if (size)
		memmove(to, from, size);
	return cudaSuccess;
}
