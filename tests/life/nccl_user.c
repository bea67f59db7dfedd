/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that does what its words say, for the tests of the fake NCCL:
 *
 *	nccl_user RANK NRANKS IDFILE WORD[:NUMBER]...
 *
 * After each word a line is printed: the word, its ncclResult_t (or CUDA's
 * code), a value, and the milliseconds it took. Rank 0 makes the id file.
 */
#include "config.h"

#include "tests/fakes/fake_nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT 1000
#define MAX_COMMS 8
#define MAX_RANKS 16

static int rank, nranks;
static const char *id_file;
static ncclComm_t comms[MAX_COMMS];
static int top;			/* comms[top] is the one in use */
static cudaStream_t stream;
/* What was enqueued before may still be at work: each has memory of its own. */
#define SLOTS 16
static int64_t slots[SLOTS][2][COUNT * MAX_RANKS];
static int64_t *in = slots[0][0], *out = slots[0][1];
static pthread_t threads[MAX_COMMS];
static int nthreads;

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void get_id(ncclUniqueId *id)
{
	char part[512];
	int fd;

	if (rank == 0) {
		snprintf(part, sizeof(part), "%s.part", id_file);
		if (ncclGetUniqueId(id) != ncclSuccess)
			exit(90);
		fd = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (fd < 0 || write(fd, id, sizeof(*id)) != sizeof(*id) ||
		    close(fd) < 0 || rename(part, id_file) < 0)
			exit(91);
		return;
	}
	while ((fd = open(id_file, O_RDONLY)) < 0)
		usleep(2000);
	if (read(fd, id, sizeof(*id)) != sizeof(*id))
		exit(92);
	close(fd);
}

static int init(bool blocking)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;

	get_id(&id);
	config.blocking = blocking;
	return ncclCommInitRankConfig(&comms[top], nranks, id, rank, &config);
}

/* Until nothing is in progress, at most 10 s. */
static int poll_state(ncclResult_t *state)
{
	double end = now_ms() + 10000;
	int rc;

	do {
		rc = ncclCommGetAsyncError(comms[top], state);
		usleep(500);
	} while (rc == ncclSuccess && *state == ncclInProgress &&
		 now_ms() < end);
	return rc;
}

static int poll_error(ncclResult_t *state)
{
	double end = now_ms() + 10000;
	int rc;

	do {
		rc = ncclCommGetAsyncError(comms[top], state);
		usleep(500);
	} while (rc == ncclSuccess && *state == ncclSuccess && now_ms() < end);
	return rc;
}

static void fill(void)
{
	static int slot;
	int i;

	slot = (slot + 1) % SLOTS;
	in = slots[slot][0];
	out = slots[slot][1];
	for (i = 0; i < COUNT * MAX_RANKS; i++) {
		in[i] = (int64_t)(rank + 1) * 100000 + i;
		out[i] = -1;
	}
}

static void *abort_main(void *data)
{
	int ms = *(int *)data;

	usleep((useconds_t)ms * 1000);
	/* Init may be about to set it. */
	printf("abort-in-thread %d\n",
	       (int)ncclCommAbort(__atomic_load_n(&comms[top],
						  __ATOMIC_ACQUIRE)));
	free(data);
	return NULL;
}

static int start_abort(int ms)
{
	int *arg = malloc(sizeof(*arg));

	if (!arg)
		return -1;
	*arg = ms;
	return pthread_create(&threads[nthreads++], NULL, abort_main, arg);
}

static int ring(void)
{
	int n, me, rc;

	ncclCommCount(comms[top], &n);
	ncclCommUserRank(comms[top], &me);
	rc = ncclGroupStart();
	rc |= ncclSend(in, COUNT, ncclInt64, (me + 1) % n, comms[top], stream);
	rc |= ncclRecv(out, COUNT, ncclInt64, (me + n - 1) % n, comms[top],
		       stream);
	return rc | ncclGroupEnd();
}

static int abort_all(void)
{
	int i, rc = ncclGroupStart();

	for (i = 0; i <= top; i++)
		rc |= ncclCommAbort(comms[i]);
	return rc | ncclGroupEnd();
}

/* A child as a loader of data has one: it ends without touching NCCL, or
 * with touch after a call on a communicator that is not its own. */
static int fork_child(int touch)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		exit(touch ? (int)ncclCommAbort(comms[top]) : 0);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int premul(void)
{
	int64_t factor = 3;
	ncclRedOp_t op;
	int rc = ncclRedOpCreatePreMulSum(&op, &factor, ncclInt64,
					  ncclScalarHostImmediate, comms[top]);

	if (rc == ncclSuccess)
		rc = ncclAllReduce(in, out, COUNT, ncclInt64, op, comms[top],
				   stream);
	/* The operator must live until the operation ran. */
	cudaStreamSynchronize(stream);
	return rc | ncclRedOpDestroy(op, comms[top]);
}

static bool is_collective(const char *word)
{
	static const char *const words[] = {
		"allreduce", "broadcast", "reduce", "allgather",
		"reducescatter", "send", "recv", "ring", "premul"
	};
	unsigned i;

	for (i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(word, words[i]))
			return true;
	return false;
}

static int collective(const char *word, int number)
{
	ncclComm_t comm = comms[top];

	fill();
	if (!strcmp(word, "allreduce"))
		return ncclAllReduce(in, out, COUNT, ncclInt64,
				     (ncclRedOp_t)number, comm, stream);
	if (!strcmp(word, "broadcast"))
		return ncclBroadcast(in, out, COUNT, ncclInt64, number, comm,
				     stream);
	if (!strcmp(word, "reduce"))
		return ncclReduce(in, out, COUNT, ncclInt64, ncclSum, number,
				  comm, stream);
	if (!strcmp(word, "allgather"))
		return ncclAllGather(in, out, COUNT, ncclInt64, comm, stream);
	if (!strcmp(word, "reducescatter"))
		return ncclReduceScatter(in, out, COUNT, ncclInt64, ncclSum,
					 comm, stream);
	if (!strcmp(word, "send"))
		return ncclSend(in, COUNT, ncclInt64, number, comm, stream);
	if (!strcmp(word, "recv"))
		return ncclRecv(out, COUNT, ncclInt64, number, comm, stream);
	if (!strcmp(word, "ring"))
		return ring();
	return premul();
}

static int split(int parts)
{
	ncclComm_t made = NULL;
	int rc = ncclCommSplit(comms[top], rank % parts, -rank, &made, NULL);

	if (rc == ncclSuccess)
		comms[++top] = made;
	return rc;
}

static int shrink(int without, int flags)
{
	ncclComm_t made = NULL;
	int rc = ncclCommShrink(comms[top], &without, 1, &made, NULL, flags);

	if (rc == ncclSuccess)
		comms[++top] = made;
	return rc;
}

static int life(const char *word, int number)
{
	if (!strcmp(word, "init"))
		return init(true);
	if (!strcmp(word, "initnb"))
		return init(false);
	if (!strcmp(word, "initall"))
		return ncclCommInitAll(comms, number, NULL);
	if (!strcmp(word, "split"))
		return split(number);
	if (!strcmp(word, "shrink"))
		return shrink(number, NCCL_SHRINK_DEFAULT);
	if (!strcmp(word, "shrinkabort"))
		return shrink(number, NCCL_SHRINK_ABORT);
	if (!strcmp(word, "revoke"))
		return ncclCommRevoke(comms[top], 0);
	if (!strcmp(word, "finalize"))
		return ncclCommFinalize(comms[top]);
	if (!strcmp(word, "destroy"))
		return ncclCommDestroy(comms[top]);
	if (!strcmp(word, "abort"))
		return ncclCommAbort(comms[top]);
	if (!strcmp(word, "abortall"))
		return abort_all();
	if (!strcmp(word, "abort-after"))
		return start_abort(number);
	return -1000;
}

static int other(const char *word, int number)
{
	if (!strcmp(word, "sync"))
		return cudaStreamSynchronize(stream);
	if (!strcmp(word, "query"))
		return cudaStreamQuery(stream);
	if (!strcmp(word, "pop"))
		return top-- > 0 ? 0 : -1;
	if (!strcmp(word, "push"))
		return ++top < MAX_COMMS ? 0 : -1;
	if (!strcmp(word, "join"))
		return pthread_join(threads[--nthreads], NULL);
	if (!strcmp(word, "fork"))
		return fork_child(number);
	if (!strcmp(word, "sleep"))
		return usleep((useconds_t)number * 1000);
	if (!strcmp(word, "exit"))
		exit(number);
	if (!strcmp(word, "kill"))
		return raise(SIGKILL);
	fprintf(stderr, "nccl_user: no such word: %s\n", word);
	exit(93);
}

static void obey(char *word)
{
	char *colon = strchr(word, ':');
	int number = colon ? atoi(colon + 1) : 0, rc;
	ncclResult_t state = ncclSuccess;
	double start = now_ms();
	int64_t value;

	if (colon)
		*colon = '\0';
	if (!strcmp(word, "state")) {
		rc = poll_state(&state);
	} else if (!strcmp(word, "error")) {
		rc = poll_error(&state);
	} else {
		rc = is_collective(word) ? collective(word, number) :
			life(word, number);
		if (rc == -1000)
			rc = other(word, number);
	}
	/* Until a sync the result belongs to the GPU. */
	value = !strcmp(word, "sync") || !strcmp(word, "premul") ? out[1] :
		(int64_t)state;
	printf("%s %d %lld %.1f\n", word, rc, (long long)value,
	       now_ms() - start);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int i;

	if (argc < 4 || atoi(argv[2]) > MAX_RANKS)
		return 94;
	rank = atoi(argv[1]);
	nranks = atoi(argv[2]);
	id_file = argv[3];
	cudaSetDevice(rank % 8);
	if (cudaStreamCreate(&stream) != cudaSuccess)
		return 95;
	for (i = 4; i < argc; i++)
		obey(argv[i]);
	while (nthreads)
		pthread_join(threads[--nthreads], NULL);
	return 0;
}
