/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cpus.h"
#include "core/ddp_io.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Without SMT every CPU is a core, and no further file is read. */
static int smt_active(void)
{
	char text[8];

	return ddp_io_read_file("/sys/devices/system/cpu/smt/active", text,
				sizeof(text)) > 0 && text[0] == '1';
}

/* Without strtoul()'s blanks and signs. 0, or -1: there is no number. */
static int read_number(const char *text, char **end, unsigned long *out)
{
	if (*text < '0' || *text > '9')
		return -1;
	*out = strtoul(text, end, 10);
	return 0;
}

int ddp_cpus_parse(const char *list, ddp_cpus set)
{
	memset(set, 0, sizeof(ddp_cpus));
	for (;;) {
		unsigned long from, to;
		char *end;

		if (read_number(list, &end, &from))
			return -1;
		to = from;
		if (*end == '-' && read_number(end + 1, &end, &to))
			return -1;
		for (; from <= to && from < DDP_PLACE_CPUS; from++)
			CPU_SET_S(from, sizeof(ddp_cpus), (cpu_set_t *)set);
		if (*end != ',')
			return CPU_COUNT_S(sizeof(ddp_cpus),
					   (cpu_set_t *)set);
		list = end + 1;
	}
}

/* The CPUs of this CPU's core, itself among them. As ddp_cpus_parse(). */
static int siblings(unsigned cpu, ddp_cpus set)
{
	char path[96], text[256];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/topology/"
		 "thread_siblings_list", cpu);
	return ddp_io_read_file(path, text, sizeof(text)) > 0 ?
		ddp_cpus_parse(text, set) : -1;
}

uint32_t ddp_cpus_threads(void)
{
	ddp_cpus set;
	int n = siblings(0, set);

	return n > 0 ? (uint32_t)n : 0;
}

/* Every core is counted at the first of its CPUs, and those are taken out. */
static uint32_t count_cores(ddp_cpus left)
{
	uint32_t cores = 0;
	ddp_cpus core;

	for (unsigned i = 0; i < DDP_PLACE_CPUS; i++) {
		if (!CPU_ISSET_S(i, sizeof(core), (cpu_set_t *)left))
			continue;
		cores++;
		if (siblings(i, core) < 0)
			continue;
		for (unsigned w = 0; w < DDP_PLACE_WORDS(DDP_PLACE_CPUS); w++)
			left[w] &= ~core[w];
	}
	return cores;
}

uint32_t ddp_cpus_cores(uint32_t ntasks)
{
	ddp_cpus set;
	uint32_t cpus, cores;

	if (sched_getaffinity(0, sizeof(set), (cpu_set_t *)set))
		return 0;
	cpus = (uint32_t)CPU_COUNT_S(sizeof(set), (cpu_set_t *)set);
	cores = smt_active() ? count_cores(set) : cpus;
	if (ntasks > 1 && (long)cpus >= sysconf(_SC_NPROCESSORS_ONLN))
		cores = cores / ntasks ? cores / ntasks : 1;
	return cores;
}
