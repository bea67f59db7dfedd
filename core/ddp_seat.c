/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cpus.h"
#include "core/ddp_io.h"
#include "core/ddp_seat.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From linux/mempolicy.h, which not every libc's headers go with. */
#define POLICY_PREFERRED 1
#define POLICY_PREFERRED_MANY 5

#define RENDER_FIRST 128

/* The kernel cuts a mask of all CPUs down to the cpuset. */
static int find_widest(struct ddp_ask *ask, struct ddp_err *err)
{
	ddp_cpus all;

	memset(all, 0xff, sizeof(all));
	if (sched_getaffinity(0, sizeof(ask->cpus), (cpu_set_t *)ask->cpus))
		return ddp_err_set(err, DDP_ESYS, "the CPU mask cannot be "
				   "read: %s", strerror(errno));
	memcpy(ask->widest, ask->cpus, sizeof(ask->widest));
	if (!sched_setaffinity(0, sizeof(all), (cpu_set_t *)all) &&
	    sched_getaffinity(0, sizeof(ask->widest),
			      (cpu_set_t *)ask->widest))
		memcpy(ask->widest, ask->cpus, sizeof(ask->widest));
	if (sched_setaffinity(0, sizeof(ask->cpus), (cpu_set_t *)ask->cpus))
		return ddp_err_set(err, DDP_ESYS, "the CPU mask cannot be "
				   "set: %s", strerror(errno));
	return 0;
}

/*
 * access() asks the device cgroup too, and unlike open() wakes no GPU. All
 * that are there and may not be opened count as withheld.
 */
static void find_devices(const char *sysroot, const char *name, unsigned first,
			 uint64_t *there, uint64_t *open)
{
	char path[320];

	for (unsigned i = 0; i < 64; i++) {
		(void)snprintf(path, sizeof(path), "%s/dev/%s%u", sysroot,
			       name, first + i);
		if (access(path, F_OK))
			continue;
		*there |= (uint64_t)1 << i;
		if (!access(path, R_OK | W_OK))
			*open |= (uint64_t)1 << i;
	}
}

int ddp_seat_look(struct ddp_ask *ask, const char *sysroot,
		  struct ddp_err *err)
{
	char path[320];

	if (!ask->list_set && !ask->step_gpus)
		return find_widest(ask, err);
	find_devices(sysroot, "nvidia", 0, &ask->there, &ask->open);
	(void)snprintf(path, sizeof(path), "%s/dev/dri", sysroot);
	if (!access(path, F_OK))
		find_devices(sysroot, "dri/renderD", RENDER_FIRST,
			     &ask->render_there, &ask->render_open);
	return find_widest(ask, err);
}

static bool any_cpu(const ddp_cpus set)
{
	for (unsigned i = 0; i < DDP_PLACE_WORDS(DDP_PLACE_CPUS); i++)
		if (set[i])
			return true;
	return false;
}

/* Nodes where the caller may have memory, of those wanted; 0 or -1. */
static int allowed_nodes(const struct ddp_placed *placed, ddp_nodes nodes)
{
	unsigned n = 0;

	memset(nodes, 0, sizeof(ddp_nodes));
	/* 4: MPOL_F_MEMS_ALLOWED */
	if (syscall(SYS_get_mempolicy, NULL, nodes, DDP_PLACE_NODES, NULL, 4))
		return -1;
	for (unsigned i = 0; i < DDP_PLACE_WORDS(DDP_PLACE_NODES); i++) {
		nodes[i] &= placed->nodes[i];
		n += (unsigned)__builtin_popcountl(nodes[i]);
	}
	return n ? 0 : -1;
}

/* Preferred, not forced: a full node must not end a training. Kernels before
 * 5.15 know one preferred node only: the first. */
static void prefer_memory(struct ddp_placed *placed)
{
	ddp_nodes nodes;
	int had = 0;

	if (!placed->set_nodes ||
	    syscall(SYS_get_mempolicy, &had, NULL, 0, NULL, 0) || had ||
	    allowed_nodes(placed, nodes)) {
		placed->set_nodes = false;
		return;
	}
	if (!syscall(SYS_set_mempolicy, POLICY_PREFERRED_MANY, nodes,
		     DDP_PLACE_NODES))
		return;
	for (unsigned i = 0; i < DDP_PLACE_WORDS(DDP_PLACE_NODES); i++) {
		if (!nodes[i])
			continue;
		nodes[i] &= -nodes[i];
		memset(nodes + i + 1, 0, sizeof(ddp_nodes) -
		       (i + 1) * sizeof(*nodes));
		break;
	}
	placed->set_nodes = !syscall(SYS_set_mempolicy, POLICY_PREFERRED, nodes,
				     DDP_PLACE_NODES);
}

int ddp_seat_take(struct ddp_placed *placed, struct ddp_err *err)
{
	if (!placed->set_cpus || !any_cpu(placed->cpus))
		return 0;
	if (sched_setaffinity(0, sizeof(placed->cpus),
			      (const cpu_set_t *)placed->cpus))
		return ddp_err_set(err, DDP_ESYS, "the CPUs of its place "
				   "cannot be taken: %s", strerror(errno));
	prefer_memory(placed);
	return 0;
}

static int verify_cpus(int proc, const struct ddp_placed *placed,
		       struct ddp_err *err)
{
	static const char key[] = "\nCpus_allowed_list:\t";
	char text[16384], shown[160], *at;
	ddp_cpus has;

	at = ddp_io_read_at(proc, "status", text, sizeof(text)) > 0 ?
		strstr(text, key) : NULL;
	if (!at)
		return 1;
	at += sizeof(key) - 1;
	at[strcspn(at, "\n")] = '\0';
	if (ddp_cpus_parse(at, has) < 0)
		return 1;
	for (unsigned i = 0; i < DDP_PLACE_WORDS(DDP_PLACE_CPUS); i++)
		if (has[i] & ~placed->cpus[i])
			return ddp_err_set(err, DDP_EINCONS, "the program may "
				"run on CPUs %s, which are not those of its "
				"place", ddp_text_safe(at, shown,
						       sizeof(shown)));
	return 0;
}

/* Areas without a policy of their own show the process's. */
static int verify_memory(int proc, struct ddp_err *err)
{
	char text[4096], policy[32];
	unsigned long address;

	if (ddp_io_read_at(proc, "numa_maps", text, sizeof(text)) <= 0 ||
	    sscanf(text, "%lx %31s", &address, policy) != 2)
		return 1;
	if (strncmp(policy, "prefer", 6))
		return ddp_err_set(err, DDP_EINCONS, "the program's memory "
			"policy is %s, not the preferred nodes of its place",
			policy);
	return 0;
}

int ddp_seat_verify(int proc, const struct ddp_placed *placed,
		    struct ddp_err *err)
{
	int rc = 0;

	if (placed->set_cpus)
		rc = verify_cpus(proc, placed, err);
	if (!rc && placed->set_cpus && placed->set_nodes)
		rc = verify_memory(proc, err);
	if (rc > 0)
		(void)ddp_err_set(err, DDP_ESYS, "--ddp-bind=…,verify: "
			"/proc does not show where the program runs");
	return rc;
}
