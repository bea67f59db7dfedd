/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a poll of Slurm's costs in the accounting plugin: get_data() for TASKS
 * tasks, TIMES times, for an instruction counter (tests/acct/check_cost.py)
 * or a clock (make bench; prints nanoseconds a call).
 *
 *	acct_cost TASKS TIMES
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct_watch.h"
#include "core/ddp_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurmdb.h>

#define NTRES 20

/* slurmstepd's: the places of the TRES in its arrays. */
int assoc_mgr_find_tres_pos(slurmdb_tres_rec_t *rec, int locked);

int assoc_mgr_find_tres_pos(slurmdb_tres_rec_t *rec, int locked)
{
	(void)locked;
	return rec->name ? (int)strlen(rec->name) : 3;
}

static void begin(unsigned tasks)
{
	struct acct_watch *w = &acct_watch;
	struct gpu_totals t = { .state = GPU_SAMPLING, .ngpus = 8,
				.known_in = 63, .known_out = 15 };
	int fd = gpu_shm_create(&w->sampler.shm);

	if (fd < 0)
		exit(1);
	close(fd);
	for (unsigned m = 0; m < GPU_METRICS; m++) {
		t.in[m] = t.out[m] = 50;
		w->pos[m] = 10 + (int)m;
	}
	gpu_shm_publish(w->sampler.shm, &t);
	w->rec.node_tasks = tasks;
	w->put = true;
	w->sampling = true;
}

int main(int argc, char **argv)
{
	static uint64_t data[NTRES][5];
	struct acct_part part;
	uint32_t tasks, times;
	struct timespec a, b;

	if (argc != 3 || ddp_text_u32(argv[1], 1, 100000, &tasks) ||
	    ddp_text_u32(argv[2], 1, 1000000, &times))
		return 2;
	begin(tasks);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint32_t i = 0; i < times; i++)
		for (uint32_t k = 0; k < tasks; k++) {
			acct_watch_data(data);
			/* Releases whose polls are by process do without. */
			if (!ddp_gather_polls_by_task() &&
			    !acct_watch_part(false, &part))
				return 1;
		}
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("%.0f\n", ((double)(b.tv_sec - a.tv_sec) * 1e9 +
			  (double)(b.tv_nsec - a.tv_nsec)) / times / tasks);
	return 0;
}
