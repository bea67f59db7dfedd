/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/life/life_prog.h"

#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INSIDE_MS 50	/* after that the victim breaks */
#define LATE_MS 150	/* so much later its neighbour comes */

static const char *const points[] = {
	"none", "start", "before-id", "after-id", "nccl", "mpi", "between",
	"finalize", "mpi-finalize", NULL
};

static const char *const kinds[] = {
	"kill", "term", "segv", "abort", "exit", "_exit", "mpiabort", "stall",
	NULL
};

static int lookup(const char *const *names, const char *name)
{
	int i;

	for (i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return i;
	fprintf(stderr, "life: no such word: %s\n", name);
	exit(2);
}

static const struct option options[] = {
	{ "at", required_argument, NULL, 'a' },
	{ "by", required_argument, NULL, 'b' },
	{ "rank", required_argument, NULL, 'r' },
	{ "two", no_argument, NULL, '2' },
	{ "threaded", no_argument, NULL, 't' },
	{ "forget", no_argument, NULL, 'o' },
	{ "second", no_argument, NULL, 's' },
	{ "children", required_argument, NULL, 'f' },
	{ "code", required_argument, NULL, 'c' },
	{ "iteration", required_argument, NULL, 'k' },
	{ "iterations", required_argument, NULL, 'n' },
	{ "id", required_argument, NULL, 'i' },
	{ "pids", required_argument, NULL, 'p' },
	{ NULL, 0, NULL, 0 }
};

static int take(struct life *life, int option)
{
	switch (option) {
	case 'a':
		life->at = (enum life_point)lookup(points, optarg);
		return 0;
	case 'b':
		life->by = (enum life_kind)lookup(kinds, optarg);
		return 0;
	case 'r':
		life->victim = strcmp(optarg, "all") ? atoi(optarg) : LIFE_ALL;
		return 0;
	case '2':
		life->two = true;
		return 0;
	case 't':
		life->threaded = true;
		return 0;
	case 'o':
		life->forget = true;
		return 0;
	case 's':
		life->second = true;
		return 0;
	case 'f':
		life->children = atoi(optarg);
		return 0;
	case 'c':
		life->code = atoi(optarg);
		return 0;
	case 'k':
		life->iteration = atoi(optarg);
		return 0;
	case 'n':
		life->iterations = atoi(optarg);
		return 0;
	case 'i':
		life->id_file = optarg;
		return 0;
	case 'p':
		life->pids = optarg;
		return 0;
	default:
		return -1;
	}
}

int life_parse(struct life *life, int argc, char **argv)
{
	int option;

	memset(life, 0, sizeof(*life));
	life->victim = 1;
	life->code = 7;
	life->iteration = 5;
	life->iterations = 10;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (take(life, option) < 0)
			return -1;
	return optind == argc ? 0 : -1;
}

void life_note(const struct life *life, const char *what)
{
	struct timespec now;
	char line[128];
	int fd, size;

	if (!life->pids)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	size = snprintf(line, sizeof(line), "%s %d %d %lld%09ld\n", what,
			(int)getpid(), life->rank, (long long)now.tv_sec,
			now.tv_nsec);
	fd = open(life->pids, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, line, (size_t)size) != size) {
		perror(life->pids);
		_exit(3);
	}
	close(fd);
}

bool life_is_victim(const struct life *life)
{
	return life->victim == LIFE_ALL || life->rank == life->victim ||
	       (life->two && life->rank == (life->victim + 1) % life->nranks);
}

static void sleep_ms(int ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&time, NULL);
}

static void die(const struct life *life)
{
	life_note(life, "fault");
	switch (life->by) {
	case BY_KILL:
		raise(SIGKILL);
		break;
	case BY_TERM:
		kill(getpid(), SIGTERM);
		break;
	case BY_SEGV:
		raise(SIGSEGV);
		break;
	case BY_ABORT:
		abort();
	case BY_EXIT:
		exit(life->code);
	case BY_QUICK_EXIT:
		_exit(life->code);
	case BY_MPI_ABORT:
		life_mpi_abort(life->code);
		break;
	case BY_STALL:
		break;
	}
	/* A handler may have caught it: then this rank stalls. */
	for (;;)
		pause();
}

static void *later_main(void *data)
{
	sleep_ms(INSIDE_MS);
	die(data);
	return NULL;
}

static void later(const struct life *life)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, later_main, (void *)life) != 0)
		exit(4);
	pthread_detach(thread);
}

static bool is_late(const struct life *life)
{
	return life->rank == (life->victim + 1 + life->two) % life->nranks;
}

void life_here(const struct life *life, enum life_point at)
{
	if (life->at != at)
		return;
	if (!life_is_victim(life)) {
		if (life->threaded && is_late(life))
			sleep_ms(LATE_MS);
		return;
	}
	if (life->threaded) {
		later(life);
		return;
	}
	/* The others get where they shall wait. */
	sleep_ms(INSIDE_MS);
	die(life);
}

void life_inside(const struct life *life, enum life_point at, int iteration)
{
	if (life->at != at || iteration != life->iteration)
		return;
	if (life_is_victim(life)) {
		/* Who stalls does so instead: it must not take part. */
		if (life->by == BY_STALL)
			die(life);
		later(life);
	} else if (is_late(life)) {
		sleep_ms(LATE_MS);
	}
}

static void child(const struct life *life, int fd)
{
	char byte;

	life_note(life, "child");
	while (read(fd, &byte, 1) > 0)
		;
	exit(0);
}

void life_fork(const struct life *life)
{
	static int keep[2];
	int i, fds[2];

	for (i = 0; i < life->children && i < 2; i++) {
		if (pipe2(fds, O_CLOEXEC) < 0)
			exit(5);
		switch (fork()) {
		case -1:
			exit(5);
		case 0:
			close(fds[1]);
			if (i)
				close(keep[0]);
			child(life, fds[0]);
			break;
		default:
			close(fds[0]);
			keep[i] = fds[1];
		}
	}
}
