/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cpus.h"
#include "core/ddp_probe.h"
#include "core/ddp_task.h"
#include "core/ddp_vis.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ddp_task_argv_has(int argc, char *const *argv, const char *name)
{
	for (int i = 0; argv && i < argc && argv[i]; i++) {
		const char *base = strrchr(argv[i], '/');

		if (!strcmp(base ? base + 1 : argv[i], name))
			return true;
	}
	return false;
}

bool ddp_task_argv_torchrun(int argc, char *const *argv)
{
	return ddp_task_argv_has(argc, argv, "torchrun") ||
	       ddp_task_argv_has(argc, argv, "torch.distributed.run") ||
	       ddp_task_argv_has(argc, argv, "torch.distributed.launch");
}

/* Entries of CUDA_VISIBLE_DEVICES; 0 if there is none. */
static uint32_t count_gpus(const struct ddp_task_ops *ops)
{
	char text[4096];
	uint32_t n = 1;

	if (!ops->get(ops->arg, "CUDA_VISIBLE_DEVICES", text, sizeof(text)) ||
	    ddp_vis_is_none(text))
		return 0;
	for (const char *p = text; (p = strchr(p, ',')); p++)
		n++;
	return n;
}

static int find_iface(struct ddp_task *t, struct ddp_err *err)
{
	char path[64];

	if (t->plan.iface == DDP_IFACE_NONE)
		return 0;
	if (t->plan.iface == DDP_IFACE_NAME) {
		snprintf(path, sizeof(path), "/sys/class/net/%s",
			 t->plan.ifname);
		if (access(path, F_OK))
			return ddp_err_set(err, DDP_EINVAL, "--ddp-iface=%s: "
				"no such interface on this node",
				t->plan.ifname);
		t->r.ifname = t->plan.ifname;
		return 0;
	}
	if (!t->plan.ip[0] ||
	    ddp_probe_iface(t->plan.ip, t->ifname, sizeof(t->ifname)) ||
	    (!strcmp(t->ifname, "lo") && t->plan.layout.nnodes > 1 &&
	     !ddp_text_is_loopback(t->plan.addr)))
		return ddp_err_set(err, DDP_ESYS, "--ddp-iface=auto: no "
			"interface leads to %s; name one", t->plan.addr);
	t->r.ifname = t->ifname;
	return 0;
}

/* A loopback address is right only if all nodes are this very host. */
static int check_loopback(const struct ddp_task *t, struct ddp_err *err)
{
	char host[DDP_HOST_MAX] = "";
	size_t n = strcspn(t->plan.host, ".");

	if (t->plan.layout.nnodes < 2 || !t->plan.host[0] ||
	    !ddp_text_is_loopback(t->plan.addr))
		return 0;
	(void)gethostname(host, sizeof(host) - 1);
	if (strcspn(host, ".") == n && !strncmp(host, t->plan.host, n))
		return 0;
	return ddp_err_set(err, DDP_EINCONS, "the master address %s is a "
		"loopback address, but rank 0 runs on host %s and this is %s; "
		"use --ddp-master-addr=ADDR, or correct NodeAddr in slurm.conf",
		t->plan.addr, t->plan.host, host);
}

static int check_free(const struct ddp_task *t, uint16_t port,
		      const struct ddp_task_ops *ops, struct ddp_err *err)
{
	char text[256];
	uint32_t lo, hi;

	if (ddp_probe_bind(port) == DDP_PORT_BUSY)
		return ddp_err_set(err, DDP_EBUSY, "master port %u is taken on "
			"this node by another program; start the step again "
			"(it gets another port), or use "
			"--ddp-master-port=PORT", port);
	if (!ddp_probe_ephemeral(&lo, &hi) && port >= lo && port <= hi) {
		snprintf(text, sizeof(text), "warning: node %s: master port "
			 "%u lies in net.ipv4.ip_local_port_range (%" PRIu32
			 "-%" PRIu32 "): an outgoing connection can take it",
			 t->r.nodename, port, lo, hi);
		ops->say(ops->arg, text);
	}
	return 0;
}

/* The ports this task's program will listen on must be free, here and now. */
static int check_ports(const struct ddp_task *t, const struct ddp_task_ops *ops,
		       struct ddp_err *err)
{
	uint16_t port;

	if (!t->held && !t->r.rank && check_free(t, t->plan.port, ops, err))
		return -1;
	if (!(t->plan.frameworks & DDP_FW_BIT(DDP_FW_TF)))
		return 0;
	port = ddp_env_tf_port(&t->plan, t->r.local);
	if (!port)
		return ddp_err_set(err, DDP_EINCONS, "the launch plan has no "
				   "tf port for local rank %" PRIu32,
				   t->r.local);
	return check_free(t, port, ops, err);
}

/* Longest LD_PRELOAD that is carried on. */
#define PRELOAD_MAX 32768U

/* A preload that is not there would only be a line of the dynamic linker's,
 * once a process. */
static int check_library(const struct ddp_task *t, struct ddp_err *err)
{
	if (!t->plan.life)
		return 0;
	if (!t->library || !t->library[0])
		return ddp_err_set(err, DDP_EINVAL, "--ddp-lifecycle: the path "
				   "of libddp_lifecycle.so is not known");
	if (strpbrk(t->library, ": \t\n"))
		return ddp_err_set(err, DDP_EINVAL, "--ddp-lifecycle: the path "
			"\"%.200s\" has a blank or a colon in it, which "
			"LD_PRELOAD cannot have", t->library);
	if (!access(t->library, R_OK))
		return 0;
	return ddp_err_set(err, DDP_ESYS, "--ddp-lifecycle: %.200s: %s; install "
		"it on every node (or name it by lifecycle_library= in "
		"plugstack.conf), mount it into the container, put it beside "
		"ddp-launch if you use that, or leave the option out",
		t->library, strerror(errno));
}

/* An entry of LD_PRELOAD, n bytes long: is it this library, wherever it is? */
static bool is_library(const char *entry, size_t n, const char *path)
{
	const char *name = strrchr(path, '/');
	size_t len = strlen(name ? name : path);

	return n >= len && !memcmp(entry + n - len, name ? name : path, len);
}

/* Copies the list without entries that are this library and are not there.
 * Returns whether one is there. */
static bool copy_preload(const char *list, const char *path, char *to)
{
	bool found = false;
	size_t pos = 0, n;

	for (; *list; list += n) {
		char entry[4096] = "";

		list += strspn(list, ": ");
		n = strcspn(list, ": ");
		if (n && n < sizeof(entry) && is_library(list, n, path)) {
			memcpy(entry, list, n);
			if (access(entry, R_OK))
				continue;
			found = true;
		}
		if (n && pos)
			to[pos++] = ':';
		memcpy(to + pos, list, n);
		pos += n;
	}
	to[pos] = '\0';
	return found;
}

/* How much of the list is runtimes of sanitizers, at its beginning: programs
 * that use them do not start if another library comes before. */
static size_t sanitizers(const char *list)
{
	static const char *const names[] = { "libasan.so", "libhwasan.so",
		"liblsan.so", "libtsan.so", "libubsan.so", "libclang_rt." };
	size_t end = 0, pos = 0, n, i;

	for (; list[pos]; pos = end + (list[end] == ':')) {
		const char *name = list + pos;

		n = strcspn(name, ":");
		for (const char *p = name; p < list + pos + n; p++)
			if (*p == '/')
				name = p + 1;
		for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			if (!strncmp(name, names[i], strlen(names[i])))
				break;
		if (i == sizeof(names) / sizeof(names[0]))
			break;
		end = pos + n;
	}
	return end;
}

/* LD_PRELOAD with the library before what the user has (but sanitizers), and
 * once. */
static int make_preload(struct ddp_task *t, const struct ddp_task_ops *ops,
			struct ddp_err *err)
{
	size_t size = PRELOAD_MAX + strlen(t->library) + 2;
	char *had = calloc(1, PRELOAD_MAX), *rest = calloc(1, PRELOAD_MAX);
	size_t first;
	int rc = 0;

	t->preload = had && rest ? malloc(size) : NULL;
	if (!t->preload)
		rc = ddp_err_set(err, DDP_ENOMEM, "out of memory");
	else if (ops->get(ops->arg, "LD_PRELOAD", had, PRELOAD_MAX) &&
		 strnlen(had, PRELOAD_MAX) >= PRELOAD_MAX - 1)
		rc = ddp_err_set(err, DDP_ENOSPC, "--ddp-lifecycle: LD_PRELOAD "
				 "is longer than %u bytes", PRELOAD_MAX - 2);
	else if (copy_preload(had, t->library, rest))
		(void)snprintf(t->preload, size, "%s", rest);
	else if (!(rc = check_library(t, err))) {
		first = sanitizers(rest);
		(void)snprintf(t->preload, size, "%.*s%s%s%s%s", (int)first,
			       rest, first ? ":" : "", t->library,
			       rest[0] && !first ? ":" : "", rest + first);
	}
	free(had);
	free(rest);
	t->r.preload = t->preload;
	return rc;
}

void ddp_task_clear(struct ddp_task *t)
{
	free(t->preload);
	t->preload = NULL;
	t->r.preload = NULL;
	ddp_plan_clear(&t->plan);
}

static void hint_gpus(const struct ddp_task *t, const struct ddp_task_ops *ops)
{
	char text[256];

	if (t->torchrun || t->r.rank || t->plan.layout.tasks[t->r.node] != 1 ||
	    t->r.gpus < 2 || !(t->plan.frameworks & DDP_FW_BIT(DDP_FW_TORCH)))
		return;
	snprintf(text, sizeof(text), "hint: one task on node %s sees %" PRIu32
		 " GPUs; --ntasks-per-node=%" PRIu32 " gives each GPU a rank",
		 t->r.nodename, t->r.gpus, t->r.gpus);
	ops->say(ops->arg, text);
}

static int set_var(void *arg, const struct ddp_var *v)
{
	const struct ddp_task_ops *ops = arg;
	char other[2];

	if (v->unless && ops->get(ops->arg, v->unless, other, sizeof(other)))
		return 0;
	return ops->set(ops->arg, v->name, v->value,
			!(v->flags & DDP_VAR_DEFAULT));
}

int ddp_task_check(struct ddp_task *t, struct ddp_err *err)
{
	return find_iface(t, err) || check_library(t, err) ? -1 : 0;
}

int ddp_task_apply(struct ddp_task *t, const struct ddp_task_ops *ops,
		   struct ddp_err *err)
{
	if (find_iface(t, err) || (t->plan.life && make_preload(t, ops, err)))
		return -1;
	if (!t->again && (check_loopback(t, err) || check_ports(t, ops, err)))
		return -1;
	t->r.threads = t->r.placed && t->r.placed->cores ?
		t->r.placed->cores :
		ddp_cpus_cores(t->plan.layout.tasks[t->r.node]);
	t->r.gpus = count_gpus(ops);
	/* torchrun starts a worker a GPU, and they share the cores. */
	if (t->torchrun && t->r.gpus > 1 && t->r.threads)
		t->r.threads = t->r.threads > t->r.gpus ?
			t->r.threads / t->r.gpus : 1;
	if (!t->again)
		hint_gpus(t, ops);
	if (!ddp_env_each(&t->plan, &t->r, set_var, (void *)ops))
		return 0;
	ddp_err_set(err, DDP_ENOMEM, "the environment could not be set");
	/* If it was TF_CONFIG, its own message says more. */
	if (t->plan.frameworks & DDP_FW_BIT(DDP_FW_TF))
		free(ddp_env_tf(&t->plan, &t->r, err));
	return -1;
}
