/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product's own choice of ports, for ports_sim.py: reads lines
 * "job step restart" and prints for each its first ATTEMPTS candidates, in
 * the pool that a step gets on this host without SrunPortRange and
 * port_range=. The first line of output is the pool's size.
 */
#include "config.h"

#include "core/ddp_master.h"

#include <inttypes.h>
#include <stdio.h>

#define ATTEMPTS 64U	/* as many as a launch tries */

int main(void)
{
	struct ddp_portset set;
	struct ddp_site site;
	uint32_t job, step, restart;
	int n;

	ddp_site_init(&site);
	ddp_master_pool(&site, 0, 0, &set);
	printf("%" PRIu32 "\n", set.total);
	while ((n = scanf("%" SCNu32 " %" SCNu32 " %" SCNu32, &job, &step,
			  &restart)) == 3)
		for (uint32_t i = 0; i < ATTEMPTS; i++)
			printf("%u%c", ddp_port_candidate(&set, job, step,
							  restart, i),
			       i + 1 < ATTEMPTS ? ' ' : '\n');
	return n == EOF && !ferror(stdout) && !fflush(stdout) ? 0 : 1;
}
