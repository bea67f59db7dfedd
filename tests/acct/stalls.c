/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When this machine gave no CPU to who asks for it first of all:
 *
 *	stalls FILE
 *
 * A thread on each CPU sleeps for 4 ms again and again, before all others by
 * its nice value. Where it comes more than 4 ms late, FILE gets a line "CPU
 * FROM TO" (CLOCK_REALTIME): when it should have run, and when it did. So late
 * may come who looks for the beginning or the end of a step, too; compare.py
 * takes that into account, and says so. It runs until it is killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define EVERY_NS 4000000
#define LATE_NS 4000000

static int out;

static int64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_until(int64_t ns)
{
	struct timespec t = { .tv_sec = ns / 1000000000,
			      .tv_nsec = ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) ==
	       EINTR)
		;
}

static void say(int cpu, int64_t late)
{
	double to = (double)now_ns(CLOCK_REALTIME) * 1e-9;
	char line[128];
	int n = snprintf(line, sizeof(line), "%d %.6f %.6f\n", cpu,
			 to - (double)late * 1e-9, to);

	/* O_APPEND: a line of each thread is whole. */
	if (write(out, line, (size_t)n) != n)
		exit(1);
}

static void *watch(void *arg)
{
	int cpu = (int)(intptr_t)arg;
	int64_t next, late;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) ||
	    setpriority(PRIO_PROCESS, 0, -20))
		exit(1);
	for (;;) {
		next = now_ns(CLOCK_MONOTONIC) + EVERY_NS;
		sleep_until(next);
		late = now_ns(CLOCK_MONOTONIC) - next;
		if (late > LATE_NS)
			say(cpu, late);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	cpu_set_t may;
	pthread_t t;
	int cpu;

	if (argc != 2 || sched_getaffinity(0, sizeof(may), &may))
		return 2;
	out = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (out < 0)
		return 1;
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &may) &&
		    pthread_create(&t, NULL, watch, (void *)(intptr_t)cpu))
			return 1;
	for (;;)
		pause();
}
