/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of the fake NCCL: one line an event in the file FAKE_NCCL_LOG,
 *
 *	NS PID TID FUNCTION COMM RANK RESULT [TEXT]
 *
 * NS of CLOCK_MONOTONIC; COMM is the number of the communicator in its
 * process, RANK its rank, both "-" without one; RESULT is ncclResult_t, or
 * "-" when the call begins. Lines that begin with MISUSE, LEFT_WAITING and
 * LEFT_ALIVE have the same fields after that word.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t fake_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Opened for each line: programs close what they do not know. */
static void append(const char *line, size_t size)
{
	const char *path = getenv("FAKE_NCCL_LOG");
	int fd, saved = errno;

	if (!path || !*path)
		return;
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || write(fd, line, size) != (ssize_t)size)
		fprintf(stderr, "fake nccl: cannot log to %s\n", path);
	if (fd >= 0)
		close(fd);
	errno = saved;
}

static void put(const char *word, const char *name,
		const struct ncclComm *comm, const char *result,
		const char *more)
{
	char line[512], who[32] = "- -";
	int size;

	if (comm)
		snprintf(who, sizeof(who), "%u %d", comm->number, comm->rank);
	size = snprintf(line, sizeof(line), "%s%s%llu %d %ld %s %s %s%s%s\n",
			word, *word ? " " : "",
			(unsigned long long)fake_now_ns(), (int)getpid(),
			(long)syscall(SYS_gettid), name, who, result,
			more ? " " : "", more ? more : "");
	if (size > 0 && (size_t)size < sizeof(line))
		append(line, (size_t)size);
}

void fake_log(const char *name, const struct ncclComm *comm, int result,
	      const char *more)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", result);
	put("", name, comm, text, more);
}

void fake_log_enter(const char *name, const struct ncclComm *comm)
{
	put("", name, comm, "-", NULL);
}

void fake_misuse(const char *name, const struct ncclComm *comm,
		 const char *what)
{
	put("MISUSE", name, comm, "-", what);
}

void fake_left(const char *what, const struct ncclComm *comm, unsigned ops)
{
	char text[32];

	snprintf(text, sizeof(text), "operations=%u", ops);
	put(what, "exit", comm, "-", text);
}
