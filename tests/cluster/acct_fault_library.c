/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands before the fake NVML, and breaks the process that it is loaded into,
 * at once or after a second: "init segv", "abort", "exit", ...
 */
#include "acct_fault_mode.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static char mode[128];

static void break_it(const char *how)
{
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "exit"))
		exit(0);
	if (!strcmp(how, "segv"))
		raise(SIGSEGV);
	if (!strcmp(how, "stop"))
		raise(SIGSTOP);
	if (!strcmp(how, "sockets")) {
		close(3);
		close(4);
	}
	for (int i = 0; !strcmp(how, "print") && i < 100000; i++) {
		printf("driver: line %d of nonsense\n", i);
		fprintf(stderr, "driver: line %d of nonsense\n", i);
	}
}

static void *later(void *arg)
{
	(void)arg;
	sleep(1);
	break_it(mode);
	return NULL;
}

static void __attribute__((constructor)) begin(void)
{
	char node[256], path[4096];
	pthread_t t;

	if (read_mode(mode, sizeof(mode), node, sizeof(node)))
		mode[0] = '\0';
	snprintf(path, sizeof(path), DIR "/scenario.%s", node);
	setenv("FAKE_ML_SCENARIO", path, 1);
	if (!strncmp(mode, "init ", 5))
		break_it(mode + 5);
	else
		pthread_create(&t, NULL, later, NULL);
}
