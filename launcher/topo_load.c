/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a topology and finds its NUMA nodes. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/topo.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Longest time to load a file, and how a child ends that tried. */
#define REHEARSAL_S 60
#define GOOD 40
#define BAD 41

hwloc_obj_t topo_next(hwloc_obj_t obj)
{
	hwloc_obj_t child;

	/* A node's children: CPU side, memory, I/O, then what is misc. */
	child = obj->first_child ? obj->first_child :
		obj->memory_first_child ? obj->memory_first_child :
		obj->io_first_child ? obj->io_first_child :
		obj->misc_first_child;
	if (child)
		return child;
	for (; obj->parent; obj = obj->parent) {
		hwloc_obj_t up = obj->parent;

		if (obj->next_sibling)
			return obj->next_sibling;
		if (hwloc_obj_type_is_normal(obj->type) &&
		    up->memory_first_child)
			return up->memory_first_child;
		if ((hwloc_obj_type_is_normal(obj->type) ||
		     hwloc_obj_type_is_memory(obj->type)) && up->io_first_child)
			return up->io_first_child;
		if (obj->type != HWLOC_OBJ_MISC && up->misc_first_child)
			return up->misc_first_child;
	}
	return NULL;
}

static unsigned depth_of(hwloc_obj_t obj)
{
	unsigned n = 0;

	for (; obj->parent; obj = obj->parent)
		n++;
	return n;
}

unsigned topo_edges(hwloc_obj_t a, hwloc_obj_t b)
{
	unsigned da = depth_of(a), db = depth_of(b), edges = 0;

	for (; da > db; da--, edges++)
		a = a->parent;
	for (; db > da; db--, edges++)
		b = b->parent;
	for (; a != b; edges += 2) {
		a = a->parent;
		b = b->parent;
	}
	return edges;
}

uint64_t topo_numa_of(const struct topo *t, hwloc_const_bitmap_t set)
{
	uint64_t numa = 0;

	for (unsigned i = 0; set && i < t->nnuma; i++)
		if (hwloc_bitmap_intersects(t->numa[i]->cpuset, set))
			numa |= (uint64_t)1 << i;
	return numa;
}

/* Those with CPUs that are no GPU's memory. */
static int find_numa(struct topo *t, struct ddp_err *err)
{
	hwloc_obj_t obj = NULL;

	while ((obj = hwloc_get_next_obj_by_type(t->hw, HWLOC_OBJ_NUMANODE,
						 obj))) {
		if (!obj->cpuset || hwloc_bitmap_iszero(obj->cpuset) ||
		    (obj->subtype && !strcmp(obj->subtype, "GPUMemory")))
			continue;
		if (t->nnuma == DDP_BIND_NUMA)
			return ddp_err_set(err, DDP_EINVAL, "%s has more than "
					   "%d NUMA nodes with CPUs", t->label,
					   DDP_BIND_NUMA);
		t->numa[t->nnuma++] = obj;
	}
	return 0;
}

static int keep_devices(hwloc_topology_t hw)
{
	return hwloc_topology_set_io_types_filter(hw,
			HWLOC_TYPE_FILTER_KEEP_IMPORTANT) ||
		hwloc_topology_set_type_filter(hw, HWLOC_OBJ_MISC,
			HWLOC_TYPE_FILTER_KEEP_ALL) ||
		hwloc_topology_set_flags(hw,
			HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
}

/* Cores and NUMA nodes are all that is asked for: caches are most of what the
 * kernel has to be asked. */
static int keep_cpus(hwloc_topology_t hw)
{
	return hwloc_topology_set_io_types_filter(hw,
			HWLOC_TYPE_FILTER_KEEP_NONE) ||
		hwloc_topology_set_cache_types_filter(hw,
			HWLOC_TYPE_FILTER_KEEP_NONE) ||
		hwloc_topology_set_icache_types_filter(hw,
			HWLOC_TYPE_FILTER_KEEP_NONE) ||
		hwloc_topology_set_flags(hw,
			HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED |
			HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
			HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
			HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
}

static int set_source(struct topo *t, const char *file, bool devices,
		      struct ddp_err *err)
{
	struct stat st;

	if (hwloc_topology_init(&t->hw)) {
		t->hw = NULL;
		return ddp_err_set(err, DDP_ENOMEM, "hwloc cannot start");
	}
	if (file && (stat(file, &st) || access(file, R_OK)))
		return ddp_err_set(err, DDP_ESYS, "cannot read %s: %s", file,
				   strerror(errno));
	if (file && S_ISDIR(st.st_mode))
		return ddp_err_set(err, DDP_ESYS, "%s is a folder", file);
	/* It is read twice, and a pipe could keep us for ever. */
	if (file && !S_ISREG(st.st_mode))
		return ddp_err_set(err, DDP_ESYS, "%s is no regular file",
				   file);
	if (file && hwloc_topology_set_xml(t->hw, file))
		return ddp_err_set(err, DDP_EINVAL, "%s is no topology that "
				   "hwloc can read; save one with: lstopo "
				   "--of xml FILE", file);
	if (devices ? keep_devices(t->hw) : keep_cpus(t->hw))
		return ddp_err_set(err, DDP_ESYS, "hwloc takes no settings");
	return 0;
}

static int load(struct topo *t, const char *file, bool devices,
		struct ddp_err *err)
{
	if (set_source(t, file, devices, err))
		return -1;
	if (hwloc_topology_load(t->hw))
		return ddp_err_set(err, DDP_EINVAL, "hwloc cannot load %s%s",
				   file ? "the topology in " : "this ",
				   t->label);
	if (find_numa(t, err) || topo_find_devices(t, err))
		return -1;
	topo_find_links(t);
	return 0;
}

/* In a process of its own, which ends with its parent: load, and say what was
 * wrong to fd. */
static void rehearse(struct topo *t, const char *file, bool devices, int fd,
		     pid_t parent)
{
	const struct rlimit none = { 0, 0 };
	struct ddp_err err = { .code = DDP_OK };
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	const char *hide = getenv("HWLOC_HIDE_ERRORS");

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(BAD);
	(void)setrlimit(RLIMIT_CORE, &none);
	if (null >= 0 && hide && strcmp(hide, "0"))
		(void)dup2(null, STDERR_FILENO);
	(void)signal(SIGALRM, SIG_DFL);
	alarm(REHEARSAL_S);
	if (!load(t, file, devices, &err))
		_exit(GOOD);
	if (write(fd, err.text, strlen(err.text)) < 0)
		_exit(BAD);
	_exit(BAD);
}

/*
 * hwloc trusts what it reads: an object without its sets, say, makes it
 * crash. So a file is loaded by a child first. Returns 0, or -1.
 */
static int try_file(struct topo *t, const char *file, bool devices,
		    struct ddp_err *err)
{
	char text[DDP_ERR_TEXT];
	int pipes[2], status;
	ssize_t n;
	pid_t pid, self = getpid();

	if (pipe2(pipes, O_CLOEXEC))
		return ddp_err_set(err, DDP_ESYS, "pipe: %s", strerror(errno));
	pid = fork();
	if (!pid)
		rehearse(t, file, devices, pipes[1], self);
	close(pipes[1]);
	n = pid < 0 ? 0 : read(pipes[0], text, sizeof(text) - 1);
	close(pipes[0]);
	if (pid < 0)
		return ddp_err_set(err, DDP_ESYS, "fork: %s", strerror(errno));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return ddp_err_set(err, DDP_ESYS, "waitpid: %s",
					   strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == GOOD)
		return 0;
	text[n > 0 ? n : 0] = '\0';
	if (WIFEXITED(status) && WEXITSTATUS(status) == BAD && n > 0)
		return ddp_err_set(err, DDP_EINVAL, "%s", text);
	return ddp_err_set(err, DDP_EINVAL, "%s is no sound topology: hwloc "
			   "%s when it loads it; save it again with: lstopo "
			   "--of xml FILE", file, WIFSIGNALED(status) &&
			   WTERMSIG(status) == SIGALRM ? "takes too long" :
			   "crashes");
}

int topo_load(struct topo *t, const char *file, bool devices,
	      struct ddp_err *err)
{
	memset(t, 0, sizeof(*t));
	t->label = file ? file : "machine";
	/* What is wrong is said here, once. A user who wants hwloc's own
	 * words sets this. */
	if (setenv("HWLOC_HIDE_ERRORS", "2", 0))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (file && try_file(t, file, devices, err))
		return -1;
	return load(t, file, devices, err);
}

void topo_free(struct topo *t)
{
	if (t->hw)
		hwloc_topology_destroy(t->hw);
	t->hw = NULL;
}
