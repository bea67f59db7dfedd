/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-place: reads the topology of the node and finds the places of a step's
 * tasks. Started by ddp-agent, once a node and step, while the tasks still
 * come; it holds the gate's file, where the questions are and the answers go.
 * A program of its own: it needs hwloc, which reads much of what others have
 * written, and memory for a moment only.
 *
 *	ddp-place TASKS TOPOLOGY SYSROOT
 *	3	what came of it: struct place_result, or a text
 *	4	the gate's file
 *	5	a letter when the first question is there, whether the tasks
 *		have GPUs, and one when all are there
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_gate.h"
#include "core/ddp_text.h"
#include "launcher/place.h"
#include "launcher/place_result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int get_asks(const struct ddp_gate *gate, struct place *p)
{
	int rc = 0;

	p->ask = calloc(p->n, sizeof(*p->ask));
	p->out = calloc(p->n, sizeof(*p->out));
	if (!p->ask || !p->out)
		return -1;
	for (uint32_t i = 0; i < p->n && !rc; i++)
		rc = ddp_gate_get_ask(gate, i, &p->ask[i]);
	return rc;
}

static int put_answers(const struct ddp_gate *gate, const struct place *p)
{
	int rc = 0;

	for (uint32_t i = 0; i < p->n && !rc; i++)
		rc = ddp_gate_put_placed(gate, i, &p->out[i]);
	return rc;
}

static void tell(const void *data, size_t len)
{
	if (write(PLACE_FD_RESULT, data, len) != (ssize_t)len)
		_exit(1);
}

static bool is_file(int fd)
{
	struct stat st;

	return fcntl(fd, F_GET_SEALS) >= 0 && !fstat(fd, &st) &&
		S_ISREG(st.st_mode);
}

/* The agent's next word; 0 when it has ended. */
static char next_word(void)
{
	char word = 0;

	while (read(PLACE_FD_GO, &word, 1) < 0 && errno == EINTR)
		;
	return word;
}

/* Where the first task has no GPU, but another one. */
static bool any_gpu(const struct place *p)
{
	bool any = false;

	for (unsigned i = 0; i < p->n && !any; i++)
		any = p->ask[i].list_set || p->ask[i].step_gpus;
	return any;
}

/* Bounded in time: hwloc may hang over a device or a file system. */
static int load(struct place *p, bool devices, struct ddp_err *err)
{
	int rc;

	alarm(PLACE_MS / 1000 + 1);
	rc = place_load(p, devices, err);
	alarm(0);	/* tasks may be late */
	return rc;
}

static int run(struct place *p)
{
	const struct ddp_gate gate = { PLACE_FD_FILE, -1, -1, -1 };
	struct place_result r = { PLACE_MAGIC, 0 };
	struct ddp_err err = { DDP_OK, "" };
	char word = next_word();
	int rc;

	if (word != PLACE_CPUS && word != PLACE_DEVICES)
		return 1;
	rc = load(p, word == PLACE_DEVICES, &err);
	if (next_word() != PLACE_GO)
		return 1;
	if (!rc && get_asks(&gate, p))
		return 1;
	if (!rc && !p->devices && any_gpu(p)) {
		place_clear(p);
		rc = load(p, true, &err);
	}
	alarm(PLACE_MS / 1000 + 1);
	if (rc) {
		tell(err.text, strlen(err.text));
	} else {
		r.refused = place_make(p);
		if (!put_answers(&gate, p))
			tell(&r, sizeof(r));
	}
	place_clear(p);
	free(p->ask);
	free(p->out);
	return 0;
}

int main(int argc, char **argv)
{
	const struct rlimit none = { 0, 0 };
	struct place p = { .n = 0 };
	uint32_t tasks;

	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("ddp-place " PACKAGE_VERSION);
		return 0;
	}
	if (argc != 4 || ddp_text_u32(argv[1], 1, DDP_PLACE_RANKS, &tasks) ||
	    !is_file(PLACE_FD_FILE)) {
		fputs("ddp-place: ddp-agent starts me; ddp-topo shows what I "
		      "would do\n", stderr);
		return 2;
	}
	/* As ddp-agent, whose child this is, outside the step's cgroups. */
	(void)prctl(PR_SET_DUMPABLE, 0);
	(void)setrlimit(RLIMIT_CORE, &none);
	p.n = tasks;
	p.topology = argv[2];
	p.sysroot = argv[3];
	return run(&p);
}
