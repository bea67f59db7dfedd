/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task that holds GPUs for a while, and says when it began and ended and
 * what Slurm told it of its GPUs:
 *
 *	gpu_task DIR LABEL SECONDS [CHILDREN [STAGGER]]
 *
 * It has CHILDREN processes of its own meanwhile, as data loaders are, and
 * lives STAGGER seconds longer for each rank on the node before it. It writes
 * DIR/LABEL/NODE.PID, lines "key value"; times are CLOCK_REALTIME. Which step
 * it belongs to it takes from slurmstepd, its parent, not from the environment.
 * With GPU_TASK_DEV, a folder, it also writes which DIR/nvidiaN it may open: where
 * devices are confined that is what it holds, whatever it is told. What
 * compare.py makes of it is the truth of the step.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHILDREN_MAX 64
#define DEVICES_MAX 64

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v ? v : "";
}

static struct timespec now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t;
}

static FILE *create(const char *dir, const char *label)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, label);
	if (mkdir(path, 0777) && errno != EEXIST)
		return NULL;
	(void)chmod(path, 01777);
	snprintf(path, sizeof(path), "%s/%s/%s.%d", dir, label,
		 env("SLURMD_NODENAME"), (int)getpid());
	return fopen(path, "w");
}

static void say_time(FILE *f, const char *key, struct timespec t)
{
	fprintf(f, "%s %lld.%09ld\n", key, (long long)t.tv_sec, t.tv_nsec);
	fflush(f);
}

static pid_t start_child(pid_t parent)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		for (;;)
			pause();
	_exit(0);
}

/* "12.0", as in "slurmstepd: [12.0]"; "" if the parent is another one. */
static void read_step(char *step, size_t size)
{
	static const char before[] = "slurmstepd: [";
	char path[64], title[256] = "", *end;
	FILE *f;

	step[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)getppid());
	f = fopen(path, "r");
	if (!f)
		return;
	if (fgets(title, sizeof(title), f) &&
	    !strncmp(title, before, strlen(before)) &&
	    (end = strchr(title, ']'))) {
		*end = '\0';
		snprintf(step, size, "%s", title + strlen(before));
	}
	fclose(f);
}

/* The devices are of no driver: ENXIO says that it may, EPERM that it may not. */
static void say_devices(FILE *f, const char *dir)
{
	char path[4096];
	const char *comma = "";
	int i, fd;

	fprintf(f, "opens ");
	for (i = 0; i < DEVICES_MAX; i++) {
		snprintf(path, sizeof(path), "%s/nvidia%d", dir, i);
		fd = open(path, O_RDWR);
		if (fd < 0 && errno != ENXIO && errno != ENODEV)
			continue;
		fprintf(f, "%s%d", comma, i);
		comma = ",";
		if (fd >= 0)
			close(fd);
	}
	fprintf(f, "\n");
}

static void sleep_until(struct timespec t, double seconds)
{
	long long ns = t.tv_nsec + (long long)(seconds * 1e9);

	t.tv_sec += ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) ==
	       EINTR)
		;
}

int main(int argc, char **argv)
{
	struct timespec begin = now();
	pid_t child[CHILDREN_MAX];
	int i, n = argc > 4 ? atoi(argv[4]) : 0;
	double stagger = argc > 5 ? atof(argv[5]) : 0;
	char step[256];
	FILE *f;

	if (argc < 4 || n < 0 || n > CHILDREN_MAX)
		return 2;
	f = create(argv[1], argv[2]);
	if (!f)
		return 1;
	read_step(step, sizeof(step));
	fprintf(f, "step %s\nrestart %s\nnode %s\nrank %s\n", step,
		env("SLURM_RESTART_COUNT"), env("SLURMD_NODENAME"),
		env("SLURM_PROCID"));
	fprintf(f, "step_gpus %s\njob_gpus %s\n", env("SLURM_STEP_GPUS"),
		env("SLURM_JOB_GPUS"));
	if (env("GPU_TASK_DEV")[0])
		say_devices(f, env("GPU_TASK_DEV"));
	say_time(f, "start", begin);
	for (i = 0; i < n; i++)
		child[i] = start_child(getpid());
	sleep_until(begin, atof(argv[3]) + stagger * atoi(env("SLURM_LOCALID")));
	for (i = 0; i < n; i++)
		if (child[i] > 0)
			kill(child[i], SIGKILL);
	for (i = 0; i < n; i++)
		if (child[i] > 0)
			waitpid(child[i], NULL, 0);
	say_time(f, "end", now());
	return fclose(f) ? 1 : 0;
}
