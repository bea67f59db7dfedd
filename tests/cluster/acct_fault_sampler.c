/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the place of the sampler: publishes what no sampler would.
 *
 *	false		ends at once
 *	forever		says nothing, heeds nothing, does not end
 *	random		bytes
 *	gpus, nan, percent, joules, bytes, idle, early, late, backward, mean
 *			values with that one thing wrong
 *	text		good values, and line ends in the text
 *	good		good values: 10 J
 *	size		tries to shrink the memory
 */
#include "acct_fault_mode.h"

#include "accounting/gpu_shm.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static char mode[128];

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int is(const char *word) { return !strcmp(mode, word); }

static void good(struct gpu_totals *t, int64_t from)
{
	memset(t, 0, sizeof(*t));
	t->state = GPU_SAMPLING;
	t->ngpus = 2;
	t->known_in = t->known_out = 63;
	t->first = t->began = from;
	t->last = now();
	t->readings = 3;
	for (unsigned m = 0; m < GPU_METRICS; m++)
		t->in[m] = t->out[m] = m == GPU_IDLE ? 0 : 10;
}

static void spoil(struct gpu_totals *t)
{
	if (is("gpus"))
		t->ngpus = 0xfffffff0u;
	if (is("nan"))
		for (unsigned m = 0; m < GPU_METRICS; m++)
			t->in[m] = t->out[m] = m % 2 ? NAN : -INFINITY;
	if (is("percent"))
		t->in[GPU_SM] = t->out[GPU_MEMBW] = 101;
	if (is("joules"))
		t->in[GPU_ENERGY] = 1e17;
	if (is("bytes"))
		t->out[GPU_NVLINK] = 1e18;
	if (is("idle"))
		t->in[GPU_IDLE] = 1000;
	if (is("early"))
		t->first = 1;
	if (is("late"))
		t->last += 3600000000000;
	if (is("backward"))
		t->first = t->last + 1;
	if (is("text")) {
		memset(t->text, '\n', sizeof(t->text));
		t->state = GPU_FAILED;
	}
}

int main(void)
{
	struct gpu_shm *shm;
	struct gpu_totals t;
	char node[256];
	int64_t from = now();
	unsigned char *p;

	if (read_mode(mode, sizeof(mode), node, sizeof(node)) || is("false"))
		return 1;
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED, 3,
		   0);
	if (shm == MAP_FAILED)
		return 2;
	signal(SIGTERM, SIG_IGN);
	srand((unsigned)getpid());
	if (is("size") && !ftruncate(3, 0))
		return 3;
	for (p = (unsigned char *)shm; is("random"); usleep(1000))
		for (size_t i = 0; i < sizeof(*shm); i++)
			p[i] = (unsigned char)(rand() >> 8);
	for (uint32_t n = 1; !is("forever"); n++) {
		good(&t, from);
		spoil(&t);
		memcpy(&shm->slot[n & 1], &t, sizeof(t));
		atomic_store(&shm->current, n);
		usleep(50000);
	}
	for (;;)
		pause();
}
