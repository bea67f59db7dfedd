/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket of the life-cycle library, and who may use it: processes of this
 * user that descend from a live task, so many of them at most. Its name can be
 * seen by everybody on the node, so that everybody may try.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"
#include "launcher/net_auth.h"

#include "core/ddp_proc.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Connections in all, and a task's share of them, at least and at most: no task
 * takes the others' (mpirun in one may have many, python's workers some). */
#define MOST 4096U
#define SHARE_MIN 16U
#define SHARE_MAX 256U
#define AT_ONCE 16		/* the others' turn then */
#define BACKLOG 512
#define DEPTH_MAX 64U
/* After so much work the agent rests: it runs outside of the job's confinement,
 * where nobody is to keep it busy. In packets: of a stranger's connection, which
 * is closed at once, and of one whose task must be found. */
#define BURST 4096U
#define STRANGER 2U
#define CONNECTION 16U
#define REST_MS 100U
#define REST_MAX_MS 1000U

/* The live task that pid is, or descends from. 0, or -1: of none. */
static int find_task(const struct agent *a, pid_t pid, uint32_t *local,
		     uint32_t *depth)
{
	struct ddp_proc_stat st;

	for (*depth = 0; *depth < DEPTH_MAX && pid > 1; ++*depth) {
		for (uint32_t i = 0; i < a->ntasks; i++)
			if (a->tasks[i].pid == pid &&
			    a->tasks[i].life == TASK_LIVE) {
				*local = i;
				return 0;
			}
		if (ddp_proc_stat(pid, &st))
			return -1;
		pid = st.ppid;
	}
	return -1;
}

static uint32_t share(const struct agent *a)
{
	uint32_t n = a->ntasks ? MOST / a->ntasks : MOST;

	return n < SHARE_MIN ? SHARE_MIN : n > SHARE_MAX ? SHARE_MAX : n;
}

static void meet(struct agent *a, int fd)
{
	uint32_t local, depth;
	struct ucred who;
	socklen_t len = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) ||
	    who.uid != getuid()) {
		a->life.work += STRANGER;
		close(fd);
		return;
	}
	a->life.work += CONNECTION;
	if (a->life.nmates < MOST && !find_task(a, who.pid, &local, &depth) &&
	    a->tasks[local].nmates < share(a))
		agent_life_new(a, fd, who.pid, local, depth);
	else
		close(fd);
}

static void on_rested(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	if (a->life.event)
		(void)event_add(a->life.event, NULL);
}

static void rest(struct agent *a)
{
	uint32_t ms = a->life.work / BURST * REST_MS;

	a->life.work = 0;
	(void)event_del(a->life.event);
	agent_timer(a, &a->life.rest, ms < REST_MAX_MS ? ms : REST_MAX_MS,
		    on_rested, a);
}

static void on_connect(evutil_socket_t listener, short what, void *arg)
{
	struct agent *a = arg;

	(void)what;
	if (a->life.work >= BURST) {
		rest(a);
		return;
	}
	for (int i = 0; i < AT_ONCE; i++) {
		int fd = accept4((int)listener, NULL, NULL,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			/* Out of descriptors: it stays readable. */
			if (errno == EMFILE || errno == ENFILE ||
			    errno == ENOBUFS || errno == ENOMEM) {
				a->life.work = BURST;
				rest(a);
			}
			return;
		}
		meet(a, fd);
	}
}

/* In the abstract name space: no file to leave behind or to be mounted, and a
 * name that nobody can take before. */
static int make_socket(struct agent *a)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	uint8_t random[8];
	char hex[2 * sizeof(random) + 1];
	int fd, n;

	net_auth_nonce(random, sizeof(random));
	ddp_hex(random, sizeof(random), hex);
	n = snprintf(a->life.name, sizeof(a->life.name),
		     DDP_LIFE_PREFIX "%u.%u/%s", (unsigned)a->conf.job,
		     (unsigned)a->conf.step, hex);
	memcpy(addr.sun_path + 1, a->life.name + 1, (size_t)n - 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && !bind(fd, (struct sockaddr *)&addr, (socklen_t)(
			     offsetof(struct sockaddr_un, sun_path)) +
			     (socklen_t)n) && !listen(fd, BACKLOG))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

void agent_life_start(struct agent *a)
{
	char text[160];

	a->life.fd = make_socket(a);
	if (a->life.fd >= 0)
		a->life.event = event_new(a->base, a->life.fd,
					  EV_READ | EV_PERSIST, on_connect, a);
	if (a->life.event && !event_add(a->life.event, NULL)) {
		ddp_gate_life(&a->gate, a->life.name);
		return;
	}
	(void)snprintf(text, sizeof(text), "no socket for the life-cycle "
		       "library (%s): it works alone here", strerror(errno));
	agent_link_note(a, DDP_NOTE_WARNING, text);
}
