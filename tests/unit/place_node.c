/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cpus.h"
#include "core/ddp_io.h"
#include "tests/unit/place_node.h"

#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* hwloc looks for PCI devices through it; its leaks are not ours. */
const char *__lsan_default_suppressions(void)
	__attribute__((visibility("default")));

const char *__lsan_default_suppressions(void)
{
	return "leak:libpciaccess\n";
}

char node_dir[64] = "/tmp/ddp-place-XXXXXX";
static char root[80];
struct place node;

/* A program with its output to a file; true if it ends well. */
static bool run(char *const *argv, const char *out)
{
	pid_t pid = fork();
	int status, fd;

	if (!pid) {
		fd = out ? open(out, O_WRONLY | O_CREAT | O_TRUNC, 0644) : 1;
		if (fd >= 0 && dup2(fd, 1) == 1)
			execvp(argv[0], argv);
		_exit(127);
	}
	return pid > 0 && !ddp_io_wait(pid, &status) && !status;
}

static bool make_xml(const char *name)
{
	const char *top = getenv("top_srcdir");
	char script[512], what[64], *cpus;
	char *argv[] = { (char *)"python3", script, what, NULL, NULL };

	(void)snprintf(script, sizeof(script), "%s/tests/binding/mkxml.py",
		       top ? top : ".");
	(void)snprintf(what, sizeof(what), "%s", name);
	cpus = strchr(what, ' ');
	if (cpus) {
		*cpus++ = '\0';
		argv[3] = cpus;
	}
	return run(argv, node_xml(name));
}

bool node_begin(const char *const *names)
{
	if (!mkdtemp(node_dir))
		return false;
	for (; *names; names++)
		if (!make_xml(*names))
			return false;
	return true;
}

void node_fresh(void)
{
	(void)snprintf(root, sizeof(root), "%s/XXXXXX", node_dir);
	ck_assert_ptr_nonnull(mkdtemp(root));
}

void node_end(void)
{
	char *argv[] = { (char *)"rm", (char *)"-rf", node_dir, NULL };

	(void)run(argv, NULL);
}

const char *node_xml(const char *name)
{
	static char paths[4][160];
	static unsigned next;
	char *path = paths[next++ % 4];
	size_t pos = (size_t)snprintf(path, 100, "%s/", node_dir);

	for (; *name; name++)
		if (*name != ' ')
			path[pos++] = *name;
	strcpy(path + pos, ".xml");
	return path;
}

void node_write(const char *path, const char *text)
{
	char full[512];
	FILE *f;

	(void)snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *p = full + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		(void)mkdir(full, 0755);
	}
	f = fopen(full, "w");
	ck_assert_msg(f && fputs(text, f) >= 0 && !fclose(f), "%s", full);
}

static void make_tasks(unsigned n, const char *cpus)
{
	node.n = n;
	node.ask = calloc(n, sizeof(*node.ask));
	node.out = calloc(n, sizeof(*node.out));
	ck_assert(node.ask && node.out);
	for (unsigned i = 0; i < n; i++) {
		struct ddp_ask *a = &node.ask[i];

		a->valid = 1;
		a->rank = i;
		a->req.policy = DDP_BIND_BEST_EFFORT;
		ck_assert_int_gt(ddp_cpus_parse(cpus, a->cpus), 0);
		memcpy(a->widest, a->cpus, sizeof(a->widest));
	}
}

void node_load(const char *xml, unsigned n, const char *cpus)
{
	struct ddp_err err;

	node_free();
	node.topology = xml;
	node.sysroot = root;
	make_tasks(n, cpus);
	ck_assert_msg(!place_load(&node, true, &err), "%s", err.text);
}

void node_again(unsigned n, const char *cpus)
{
	struct place last = node;

	node.topo = NULL;
	node_free();
	node.topo = last.topo;
	node.plan = calloc(1, sizeof(*node.plan));
	ck_assert_ptr_nonnull(node.plan);
	node.topology = last.topology;
	node.sysroot = last.sysroot;
	memcpy(node.id, last.id, sizeof(node.id));
	make_tasks(n, cpus);
}

void node_list(const char *list)
{
	for (unsigned i = 0; i < node.n; i++) {
		node.ask[i].list_set = true;
		ck_assert(!ddp_text_copy(node.ask[i].list, DDP_PLACE_LIST,
					 list));
	}
}

void node_free(void)
{
	place_clear(&node);
	free(node.ask);
	free(node.out);
	memset(&node, 0, sizeof(node));
}

void node_driver(const char *bus, unsigned minor, const char *uuid)
{
	char path[128], text[512];

	(void)snprintf(path, sizeof(path), "proc/driver/nvidia/gpus/%s/"
		       "information", bus);
	(void)snprintf(text, sizeof(text), "Model: \t\t Fake\n"
		       "IRQ:   \t\t 7\nGPU UUID: \t %s\nVideo BIOS: \t ??\n"
		       "Bus Location: \t %s\nDevice Minor: \t %u\n", uuid, bus,
		       minor);
	node_write(path, text);
}

void node_kfd(unsigned number, unsigned simds, unsigned bus)
{
	char path[128], text[256];

	(void)snprintf(path, sizeof(path), "sys/class/kfd/kfd/topology/nodes/"
		       "%u/properties", number);
	(void)snprintf(text, sizeof(text), "cpu_cores_count %u\n"
		       "simd_count %u\nvendor_id 4098\nlocation_id %u\n"
		       "domain 0\nunique_id %u\n", simds ? 0 : 8, simds,
		       bus << 8, simds ? 0xabc000 + bus : 0);
	node_write(path, text);
}

const char *node_cpus(const ddp_cpus set)
{
	static char text[4096];
	size_t pos = 0;

	strcpy(text, "-");
	for (unsigned i = 0, last; i < DDP_PLACE_CPUS; i = last + 1) {
		last = i;
		if (!CPU_ISSET_S(i, sizeof(ddp_cpus), (const cpu_set_t *)set))
			continue;
		while (last + 1 < DDP_PLACE_CPUS &&
		       CPU_ISSET_S(last + 1, sizeof(ddp_cpus),
				   (const cpu_set_t *)set))
			last++;
		(void)ddp_text_add(text, sizeof(text), &pos, last > i ?
				   "%s%u-%u" : "%s%u", pos ? "," : "", i, last);
	}
	return text;
}

static bool ends(const char *text, size_t size)
{
	return strnlen(text, size) < size;
}

unsigned node_make(void)
{
	unsigned refused = place_make(&node), found = 0;

	for (unsigned i = 0; i < node.n; i++) {
		const struct ddp_placed *out = &node.out[i];

		ck_assert(out->state == DDP_PLACE_DONE ||
			  out->state == DDP_PLACE_REFUSED);
		found += out->state == DDP_PLACE_REFUSED;
		ck_assert_msg((out->state == DDP_PLACE_REFUSED) ==
			      (out->why[0] != '\0'), "%s", out->why);
		ck_assert(ends(out->hint, sizeof(out->hint)) &&
			  ends(out->warning, sizeof(out->warning)) &&
			  ends(out->shown, sizeof(out->shown)) &&
			  ends(out->why, sizeof(out->why)) &&
			  ends(out->list, sizeof(out->list)) &&
			  ends(out->devices, sizeof(out->devices)));
	}
	ck_assert_uint_eq(refused, found);
	return refused;
}

const char *node_answer(unsigned i)
{
	static char texts[4][DDP_PLACE_LIST + 512];
	static unsigned next;
	char *text = texts[next++ % 4];
	const struct ddp_placed *out = &node.out[i];

	(void)snprintf(text, sizeof(texts[0]), "%s|%s|%s",
		       out->ndevices ? out->devices : "-",
		       out->set_list ? out->list : "-",
		       out->set_cpus ? node_cpus(out->cpus) : "-");
	return text;
}
