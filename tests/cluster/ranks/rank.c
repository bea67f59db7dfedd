/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank: the program of the fault tests' ranks: does what it is told, and
 * starts fast.
 *
 *	rank SPEC:ACTION[,ACTION]... ...
 *
 * SPEC is a rank, "last", a range "1-3", a node index "@1" or "*"; the first
 * that fits this rank holds. The actions, in turn (see the table below):
 *
 *	exit=N		ends; at the end of the list: with 0
 *	after=MS	sleeps
 *	sleep		for ever
 *	kill=SIG	sends itself a signal (a number)
 *	segv, abort	dies so
 *	ignore=SIG	ignores it
 *	term=MS		on SIGTERM takes so long to "save", then exits 0
 *	catch=SIG	records each one
 *	join		all ranks connect to rank 0, and go on at once
 *	watch[=MS]	waits; exits with 1 so long after a connection breaks (20,
 *			what an exception takes to come up to the top)
 *	leave		closes the connections
 *	listen		rank 0 holds MASTER_PORT open
 *	daemon[=how]	a grandchild in a session of its own ignores SIGTERM;
 *			how: keep (stdout), clean (without environment)
 *	mem=MB		touches memory
 *	core=DIR	core dumps are wanted, there
 *	cd=DIR		goes there
 *	until=FILE	waits for it
 *	print=TEXT	a line; spam=N: N lines
 *	error=TEXT	into TORCHELASTIC_ERROR_FILE
 *
 * Where RANKS_LOG names a folder, each rank records there what happens to it:
 * lines "EVENT PID MICROSECONDS" in a file by its number.
 */
#define _GNU_SOURCE
#include "rank_star.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int rank, world, node;
static int log_fd = -1;
static volatile sig_atomic_t save_ms;

static int env_int(const char *a, const char *b, int other)
{
	const char *v = getenv(a);

	if (!v)
		v = getenv(b);
	return v ? atoi(v) : other;
}

static long long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void record(const char *event)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s %d %lld\n", event,
			 (int)getpid(), now_us());

	if (log_fd >= 0 && write(log_fd, line, (size_t)n) != n)
		_exit(99);
}

static void open_log(void)
{
	const char *dir = getenv("RANKS_LOG");
	char path[PATH_MAX];

	if (!dir)
		return;
	snprintf(path, sizeof(path), "%s/%d", dir, rank);
	log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (log_fd < 0) {
		perror(path);
		exit(99);
	}
}

static void nap(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* Handlers write and sleep only: both may be done there. */
static void on_term(int sig)
{
	(void)sig;
	record("term");
	nap(save_ms);
	record("saved");
	_exit(0);
}

static void on_caught(int sig)
{
	char event[32];

	snprintf(event, sizeof(event), "caught%d", sig);
	record(event);
}

static void do_exit(const char *arg)
{
	record("end");
	exit(atoi(arg));
}

static void do_after(const char *arg)
{
	nap(atol(arg));
}

static void do_sleep(const char *arg)
{
	(void)arg;
	for (;;)
		nap(3600 * 1000L);
}

static void do_kill(const char *arg)
{
	record("end");
	kill(getpid(), atoi(arg));
}

static void do_segv(const char *arg)
{
	volatile int *volatile nowhere = NULL;

	(void)arg;
	record("end");
	*nowhere = 1;
}

static void do_abort(const char *arg)
{
	(void)arg;
	record("end");
	abort();
}

static void do_ignore(const char *arg)
{
	signal(atoi(arg), SIG_IGN);
}

static void do_term(const char *arg)
{
	save_ms = atoi(arg);
	signal(SIGTERM, on_term);
}

static void do_catch(const char *arg)
{
	signal(atoi(arg), on_caught);
}

static void do_join(const char *arg)
{
	(void)arg;
	star_join(rank, world);
	record("joined");
}

static void do_watch(const char *arg)
{
	star_watch();
	record("broken");
	nap(*arg ? atol(arg) : 20);
	exit(1);
}

static void do_leave(const char *arg)
{
	(void)arg;
	star_leave();
}

static void do_listen(const char *arg)
{
	(void)arg;
	if (rank == 0)
		star_listen();
}

static void quiet(void)
{
	int fd = open("/dev/null", O_RDWR);

	if (fd < 0 || dup2(fd, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		_exit(99);
	close(fd);
}

static void do_daemon(const char *arg)
{
	char *const argv[] = { "rank", "*:ignore=15,sleep", NULL };
	char *const none[] = { NULL };

	if (fork())
		return;
	if (setsid() < 0 || fork())
		_exit(0);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	if (strcmp(arg, "keep"))
		quiet();
	record("daemon");
	star_leave();
	if (!strcmp(arg, "clean"))
		execve("/proc/self/exe", argv, none);
	do_sleep("");
}

static void do_mem(const char *arg)
{
	size_t n = (size_t)atol(arg) << 20;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(99);
	}
	memset(p, rank + 1, n);
}

static void do_cd(const char *arg)
{
	if (chdir(arg)) {
		perror(arg);
		exit(99);
	}
}

/* The kernel writes it into the working folder, with core_pattern as it is
 * after a boot; whoever wants it slow makes the folder slow. */
static void do_core(const char *arg)
{
	struct rlimit r = { RLIM_INFINITY, RLIM_INFINITY };

	do_cd(arg);
	if (setrlimit(RLIMIT_CORE, &r) || prctl(PR_SET_DUMPABLE, 1)) {
		perror("core");
		exit(99);
	}
}

static void do_until(const char *arg)
{
	while (access(arg, F_OK))
		nap(1);
}

static void do_print(const char *arg)
{
	puts(arg);
	fflush(stdout);
}

static void do_spam(const char *arg)
{
	int i, n = atoi(arg);

	for (i = 0; i < n; i++)
		printf("line %d of rank %d\n", i, rank);
	fflush(stdout);
}

static void do_error(const char *arg)
{
	const char *path = getenv("TORCHELASTIC_ERROR_FILE");
	FILE *f = path ? fopen(path, "w") : NULL;

	if (!f) {
		record("no-error-file");
		return;
	}
	fprintf(f, "%s", arg);
	fclose(f);
}

static const struct {
	const char *name;
	void (*act)(const char *arg);
} actions[] = {
	{ "exit", do_exit },	 { "after", do_after },
	{ "sleep", do_sleep },	 { "kill", do_kill },
	{ "segv", do_segv },	 { "abort", do_abort },
	{ "ignore", do_ignore }, { "term", do_term },
	{ "catch", do_catch },	 { "join", do_join },
	{ "watch", do_watch },	 { "leave", do_leave },
	{ "listen", do_listen }, { "daemon", do_daemon },
	{ "mem", do_mem },	 { "core", do_core },
	{ "cd", do_cd },	 { "until", do_until },
	{ "print", do_print },	 { "spam", do_spam },
	{ "error", do_error },
};

static void act(char *name)
{
	char *arg = strchr(name, '=');
	size_t i;

	if (arg)
		*arg++ = '\0';
	for (i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (!strcmp(name, actions[i].name)) {
			actions[i].act(arg ? arg : "");
			return;
		}
	fprintf(stderr, "rank: no such action: %s\n", name);
	exit(99);
}

static int fits(const char *spec)
{
	int a, b;

	if (!strcmp(spec, "*"))
		return 1;
	if (!strcmp(spec, "last"))
		return rank == world - 1;
	if (sscanf(spec, "@%d", &a) == 1)
		return node == a;
	if (sscanf(spec, "%d-%d", &a, &b) == 2)
		return rank >= a && rank <= b;
	return rank == atoi(spec);
}

int main(int argc, char **argv)
{
	char *list, *name;
	int i;

	rank = env_int("RANK", "SLURM_PROCID", 0);
	world = env_int("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", 1);
	node = env_int("SLURM_NODEID", "GROUP_RANK", 0);
	open_log();
	record("start");
	for (i = 1; i < argc; i++) {
		list = strchr(argv[i], ':');
		if (!list) {
			fprintf(stderr, "rank: no action in %s\n", argv[i]);
			return 99;
		}
		*list++ = '\0';
		if (!fits(argv[i]))
			continue;
		while ((name = strsep(&list, ",")))
			act(name);
		break;
	}
	record("end");
	return 0;
}
