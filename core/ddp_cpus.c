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

#define CPUS_MAX 8192

/* Without SMT every CPU is a core, and no further file is read. */
static int smt_active(void)
{
	char text[8];

	return ddp_io_read_file("/sys/devices/system/cpu/smt/active", text,
				sizeof(text)) > 0 && text[0] == '1';
}

/* Take the siblings of cpu ("0,64" or "0-1") out of the set. */
static void drop_siblings(cpu_set_t *set, size_t size, int cpu)
{
	char path[96], text[256], *p = text, *end;

	CPU_CLR_S((size_t)cpu, size, set);
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/"
		 "thread_siblings_list", cpu);
	if (ddp_io_read_file(path, text, sizeof(text)) <= 0)
		return;
	for (;;) {
		unsigned long first = strtoul(p, &end, 10), last = first;

		if (end == p)
			return;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && first < CPUS_MAX; first++)
			CPU_CLR_S(first, size, set);
		if (*end != ',')
			return;
		p = end + 1;
	}
}

uint32_t ddp_cpus_threads(void)
{
	char text[256];
	ddp_cpus set;
	int n;

	if (ddp_io_read_file("/sys/devices/system/cpu/cpu0/topology/"
			     "thread_siblings_list", text, sizeof(text)) <= 0)
		return 0;
	n = ddp_cpus_parse(text, set);
	return n > 0 ? (uint32_t)n : 0;
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

uint32_t ddp_cpus_cores(uint32_t ntasks)
{
	size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
	cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
	uint32_t cpus, cores = 0;

	if (!set)
		return 0;
	if (sched_getaffinity(0, size, set)) {
		CPU_FREE(set);
		return 0;
	}
	cpus = (uint32_t)CPU_COUNT_S(size, set);
	if (!smt_active())
		cores = cpus;
	else
		for (int i = 0; i < CPUS_MAX; i++)
			if (CPU_ISSET_S((size_t)i, size, set)) {
				cores++;
				drop_siblings(set, size, i);
			}
	CPU_FREE(set);
	if (ntasks > 1 && (long)cpus >= sysconf(_SC_NPROCESSORS_ONLN))
		cores = cores / ntasks ? cores / ntasks : 1;
	return cores;
}
