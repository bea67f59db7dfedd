/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of MPI and NCCL that does what its arguments say, one after the
 * other. A number after a word is its argument: "mpi_abort 7", "sleep 100".
 * "thread WORD" does one in a thread of its own, and "fork" lets a child do
 * the rest, while the parent waits for it and says how it has ended.
 *
 * Built as a program, and as a library for one that opens it late.
 */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launcher/ddp_lifecycle.h"
#include "launcher/life_nccl.h"

int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);
int MPI_Abort(void *comm, int code);
void mpi_init_(int *ierr);
void mpi_finalize_(int *ierr);
void mpi_abort_(int *comm, int *code, int *ierr);
__attribute__((visibility("default"))) int prog_run(int argc, char **argv);
/* Opened late it does not have them. */
#pragma weak ddp_init
#pragma weak ddp_comm
#pragma weak ddp_ready
#pragma weak ddp_abort
#pragma weak ddp_finalize
#pragma weak ddp_state
#pragma weak ddp_state_name
#pragma weak ddp_life_error

#ifdef PROG_CONSTANTS
/* Whatever it is: the MPI that it runs with has numbers for handles. */
static void *world(void)
{
	const char *text = getenv("MINI_MPI_WORLD");

	return (void *)(text ? strtol(text, NULL, 0) : 0x44000000L);
}
#else
extern char ompi_mpi_comm_world[];
static void *world(void)
{
	return ompi_mpi_comm_world;
}
#endif

static void *comms[256];
static int ncomms;

static void say(const char *what, long n)
{
	char line[512];
	int len = snprintf(line, sizeof(line), "%.400s %ld\n", what, n);

	if (write(STDOUT_FILENO, line, (size_t)len) < 0)
		_exit(99);
}

static void sleep_ms(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000,
			      .tv_nsec = ms % 1000 * 1000000 };

	while (nanosleep(&t, &t))
		;
}

/* Rank 0 of n. */
static int comm_of(int n)
{
	struct ddp_nccl_id id;

	if (ncclGetUniqueId(&id))
		return -1;
	return ncclCommInitRank(&comms[ncomms++], n, id, 0);
}

static int new_comm(void)
{
	return comm_of(1);
}

static int config_comm(int blocking)
{
	struct ddp_nccl_config c = { .size = sizeof(c),
				     .magic = DDP_NCCL_MAGIC,
				     .version = 21400, .blocking = blocking };
	struct ddp_nccl_id id;

	memset(&id, 7, sizeof(id));
	return ncclCommInitRankConfig(&comms[ncomms++], 1, id, 0, &c);
}

static void group(long n)
{
	(void)ncclGroupStart();
	while (n-- > 0)
		(void)new_comm();
	(void)ncclGroupEnd();
}

static void many(long n)
{
	say("init_all", ncclCommInitAll(comms + ncomms, (int)n, NULL));
	ncomms += (int)n;
}

static void async_error(void)
{
	int error = -1;

	(void)ncclCommGetAsyncError(comms[0], &error);
	say("async", error);
}

__attribute__((noinline)) static void spin(long n)
{
	char byte = 0;

	/* The one that the mini library does not even log. */
	while (n-- > 0)
		(void)ncclAllReduce(&byte, &byte, 12345, 0, 0, comms[0], NULL);
}

static void on_term(int sig)
{
	say("handler", sig);
	_exit(33);
}

static int do_nccl(const char *w, long n)
{
	char byte = 0;

	if (!strcmp(w, "comm"))
		say(w, new_comm());
	else if (!strcmp(w, "comm_of"))
		say(w, comm_of((int)n));
	else if (!strcmp(w, "comm_config"))
		say(w, config_comm((int)n));
	else if (!strcmp(w, "group"))
		group(n);
	else if (!strcmp(w, "many"))
		many(n);
	else if (!strcmp(w, "split"))
		say(w, ncclCommSplit(comms[0], (int)n, 0, &comms[ncomms++],
				     NULL));
	else if (!strcmp(w, "coll"))
		say(w, ncclAllReduce(&byte, &byte, 1, 1, 0, comms[n], NULL));
	else if (!strcmp(w, "spin"))
		spin(n);
	else if (!strcmp(w, "finalize"))
		say(w, ncclCommFinalize(comms[n]));
	else if (!strcmp(w, "destroy"))
		say(w, ncclCommDestroy(comms[n]));
	else if (!strcmp(w, "abort"))
		say(w, ncclCommAbort(comms[n]));
	else if (!strcmp(w, "revoke"))
		say(w, ncclCommRevoke(comms[n], 0));
	else if (!strcmp(w, "async"))
		async_error();
	else
		return 0;
	return 1;
}

static int do_mpi(const char *w, long n)
{
	int ierr = 0, code = (int)n, comm = 0;

	if (!strcmp(w, "mpi_init"))
		say(w, MPI_Init(NULL, NULL));
	else if (!strcmp(w, "mpi_finalize"))
		say(w, MPI_Finalize());
	else if (!strcmp(w, "mpi_abort"))
		say(w, MPI_Abort(world(), code));
	else if (!strcmp(w, "f_init"))
		mpi_init_(&ierr);
	else if (!strcmp(w, "f_finalize"))
		mpi_finalize_(&ierr);
	else if (!strcmp(w, "f_abort"))
		mpi_abort_(&comm, &code, &ierr);
	else
		return 0;
	return 1;
}

static int do_api(const char *w, long n)
{
	int rc = 0;

	if (!strcmp(w, "ddp_init"))
		rc = ddp_init(NULL, NULL);
	else if (!strcmp(w, "ddp_comm"))
		rc = ddp_comm(&comms[ncomms++], NULL, (unsigned)n);
	else if (!strcmp(w, "ddp_ready"))
		rc = ddp_ready(NULL, comms[0], (unsigned)n);
	else if (!strcmp(w, "ddp_finalize"))
		rc = ddp_finalize();
	else if (!strcmp(w, "ddp_abort"))
		ddp_abort((int)n, "as it was told");
	else if (!strcmp(w, "ddp_state"))
		say(ddp_state_name(ddp_state()), ddp_state());
	else
		return 0;
	if (rc)
		say(ddp_life_error(), rc);
	else if (strcmp(w, "ddp_state"))
		say(w, rc);
	return 1;
}

static void do_one(const char *w, long n)
{
	if (do_nccl(w, n) || do_mpi(w, n) || do_api(w, n))
		return;
	if (!strcmp(w, "sleep"))
		sleep_ms(n);
	else if (!strcmp(w, "exit"))
		exit((int)n);
	else if (!strcmp(w, "say"))
		say(w, n);
	else if (!strcmp(w, "kill"))
		(void)kill(getpid(), (int)n);
	else if (!strcmp(w, "close_all"))
		for (int fd = 3; fd < 64; fd++)
			(void)close(fd);
	else if (!strcmp(w, "handler"))
		(void)signal((int)n, on_term);
	else if (!strcmp(w, "ignore"))
		(void)signal((int)n, SIG_IGN);
	else {
		(void)fprintf(stderr, "prog: what is %s?\n", w);
		exit(98);
	}
}

struct work {
	const char *word;
	long n;
};

static void *in_thread(void *arg)
{
	struct work *w = arg;

	do_one(w->word, w->n);
	free(w);
	return NULL;
}

static void thread(const char *word, long n)
{
	struct work *w = malloc(sizeof(*w));
	pthread_t t;

	if (!w)
		exit(97);
	w->word = word;
	w->n = n;
	if (pthread_create(&t, NULL, in_thread, w) || pthread_detach(t))
		exit(97);
}

/* Returns in the child. */
static void fork_here(void)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		return;
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		exit(96);
	say("child", WIFEXITED(status) ? WEXITSTATUS(status)
				       : 128 + WTERMSIG(status));
	exit(0);
}

/* "fork_kill SIG": a child gets the signal, the parent goes on. */
static void fork_kill(long sig)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		for (;;)
			(void)pause();
	if (pid < 0 || kill(pid, (int)sig) || waitpid(pid, &status, 0) < 0)
		exit(96);
	say("child", WIFEXITED(status) ? WEXITSTATUS(status)
				       : 128 + WTERMSIG(status));
}

int prog_run(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *w = argv[i];
		int in = !strcmp(w, "thread");
		long n = 0;

		if (in && i + 1 < argc)
			w = argv[++i];
		if (i + 1 < argc && strspn(argv[i + 1], "-0123456789") ==
				    strlen(argv[i + 1]))
			n = strtol(argv[++i], NULL, 10);
		if (in)
			thread(w, n);
		else if (!strcmp(w, "fork"))
			fork_here();
		else if (!strcmp(w, "fork_kill"))
			fork_kill(n);
		else
			do_one(w, n);
	}
	return 0;
}

#ifndef PROG_LATE
int main(int argc, char **argv)
{
	return prog_run(argc, argv);
}
#endif
