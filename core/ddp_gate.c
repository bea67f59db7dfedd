/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_gate.h"
#include "core/ddp_io.h"
#include "core/ddp_text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAGIC 0x44445047U	/* "DDPG" */
#define TEXT_AT 4096
/* Then two pages or more a task, which take no memory until they are used. */
#define SLOTS_AT (TEXT_AT + DDP_WIRE_MAX)
#define ASK_SIZE 8192
#define SLOT_SIZE (2 * ASK_SIZE)
#define FILE_SIZE (SLOTS_AT + DDP_PLACE_RANKS * SLOT_SIZE)

_Static_assert(sizeof(struct ddp_ask) <= ASK_SIZE &&
	       sizeof(struct ddp_placed) <= SLOT_SIZE - ASK_SIZE,
	       "a slot holds both");

/* The kernel's own limit is 278 messages; a node has two and more a task, and
 * an agent that has just been started may read late. */
#define SOCK_BYTES (4 << 20)

struct head {
	uint32_t magic;
	int32_t agent;		/* pid; 0: there is none */
	int32_t error;		/* then why: an errno */
	uint32_t state, port, len;
	char dir[DDP_GATE_DIR_MAX];
	char life[DDP_GATE_DIR_MAX];
};

static const struct ddp_gate none = DDP_GATE_NONE;

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void ddp_gate_close(struct ddp_gate *g)
{
	close_one(&g->file);
	close_one(&g->event);
	close_one(&g->ours);
	close_one(&g->agents);
}

/* The kernel kills who goes beyond this limit. */
static bool may_write(off_t size)
{
	struct rlimit r;

	return !getrlimit(RLIMIT_FSIZE, &r) &&
		(r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= (rlim_t)size);
}

static int make_file(void)
{
	struct head h = { .magic = MAGIC, .error = ECHILD };
	off_t size = may_write(FILE_SIZE) ? FILE_SIZE : SLOTS_AT;
	int fd = memfd_create("ddp-gate", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	/* Fixed in size: what the agent does later cannot make it shorter. */
	if (fd >= 0 && (ftruncate(fd, size) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
		  F_SEAL_SEAL) ||
	    pwrite(fd, &h, sizeof(h), 0) != sizeof(h))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Room for some 10,000 messages; past the system's limit if we are root. */
static void make_room(int sock)
{
	int size = SOCK_BYTES;

	if (setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		(void)setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &size,
				 sizeof(size));
}

int ddp_gate_make(struct ddp_gate *g, struct ddp_err *err)
{
	int pair[2] = { -1, -1 };

	*g = none;
	g->file = make_file();
	g->event = g->file < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->event < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
				       SOCK_NONBLOCK, 0, pair)) {
		ddp_err_set(err, DDP_ESYS, "the gate of the step could not be "
			    "made: %s", strerror(errno));
		ddp_gate_close(g);
		return -1;
	}
	make_room(pair[0]);
	g->ours = pair[0];
	g->agents = pair[1];
	return 0;
}

static int read_head(const struct ddp_gate *g, struct head *h)
{
	if (pread(g->file, h, sizeof(*h), 0) != sizeof(*h) ||
	    h->magic != MAGIC)
		return -1;
	h->dir[sizeof(h->dir) - 1] = '\0';
	h->life[sizeof(h->life) - 1] = '\0';
	return 0;
}

void ddp_gate_started(const struct ddp_gate *g, pid_t agent, int error)
{
	int32_t v[2] = { (int32_t)agent, error };

	/* Two fields only: the agent may be writing the others already. */
	(void)!pwrite(g->file, v, sizeof(v), offsetof(struct head, agent));
}

static int send_data(int sock, const void *data, size_t len, int pidfd)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { (void *)data, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (pidfd >= 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &pidfd, sizeof(int));
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)len ? 0 : -1;
}

int ddp_gate_send(int sock, const struct ddp_gate_msg *m, int pidfd)
{
	return send_data(sock, m, sizeof(*m), pidfd);
}

/* Both sides are of one build and one host: the structure travels as it is. */
struct conf_msg {
	uint32_t kind;
	struct ddp_gate_conf conf;
};

int ddp_gate_send_conf(int sock, const struct ddp_gate_conf *conf)
{
	struct conf_msg m;
	int rc;

	memset(&m, 0, sizeof(m));
	m.kind = DDP_GATE_CONF;
	m.conf = *conf;
	rc = send_data(sock, &m, sizeof(m), -1);
	explicit_bzero(&m, sizeof(m));
	return rc;
}

struct why_msg {
	uint32_t kind, local;
	char text[DDP_GATE_WHY_MAX];
};

_Static_assert(sizeof(struct why_msg) != sizeof(struct conf_msg) &&
	       sizeof(struct why_msg) != sizeof(struct ddp_gate_msg),
	       "messages are told apart by their size");

int ddp_gate_send_why(const struct ddp_gate *g, uint32_t local,
		      const char *text)
{
	struct why_msg m = { DDP_GATE_WHY, local, "" };
	struct head h;

	if (g->file < 0 || read_head(g, &h) || !h.agent ||
	    (kill((pid_t)h.agent, 0) && errno == ESRCH))
		return -1;
	memcpy(m.text, text, strnlen(text, sizeof(m.text) - 1));
	return send_data(g->ours, &m, sizeof(m), -1);
}

/* The descriptors of a message: the first is kept, others are closed. */
static int take_fd(struct msghdr *msg)
{
	int fd = -1, got;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c;
	     c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len;
		     at += sizeof(int)) {
			memcpy(&got, CMSG_DATA(c) + at, sizeof(int));
			if (fd < 0)
				fd = got;
			else
				close(got);
		}
	}
	return fd;
}

static void take_message(const char *buf, size_t n, struct ddp_gate_msg *m,
			 struct ddp_gate_conf *conf, char *why)
{
	memset(m, 0, sizeof(*m));
	if (n == sizeof(*m)) {
		memcpy(m, buf, sizeof(*m));
		if (m->kind == DDP_GATE_CONF || m->kind == DDP_GATE_WHY)
			m->kind = 0;
	} else if (n == sizeof(struct why_msg)) {
		m->kind = DDP_GATE_WHY;
		memcpy(&m->local, buf + offsetof(struct why_msg, local),
		       sizeof(m->local));
		memcpy(why, buf + offsetof(struct why_msg, text),
		       DDP_GATE_WHY_MAX);
		why[DDP_GATE_WHY_MAX - 1] = '\0';
	} else if (n == sizeof(struct conf_msg)) {
		memcpy(&m->kind, buf, sizeof(m->kind));
		memcpy(conf, buf + offsetof(struct conf_msg, conf),
		       sizeof(*conf));
		conf->name[sizeof(conf->name) - 1] = '\0';
		conf->control[sizeof(conf->control) - 1] = '\0';
		conf->helpers[sizeof(conf->helpers) - 1] = '\0';
		conf->topology[sizeof(conf->topology) - 1] = '\0';
		conf->sysroot[sizeof(conf->sysroot) - 1] = '\0';
	}
}

int ddp_gate_recv(int sock, struct ddp_gate_msg *m,
		  struct ddp_gate_conf *conf, char why[DDP_GATE_WHY_MAX],
		  int *pidfd)
{
	char buf[sizeof(struct conf_msg) + 1];
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1,
			      .msg_control = control.buf,
			      .msg_controllen = sizeof(control.buf) };
	ssize_t n;

	do
		n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	*pidfd = n > 0 ? take_fd(&msg) : -1;
	if (n <= 0)
		return n < 0 && errno == EAGAIN ?
			0 : -1;
	take_message(buf, (size_t)n, m, conf, why);
	return 1;
}

void ddp_gate_dir(const struct ddp_gate *g, const char *dir)
{
	char text[DDP_GATE_DIR_MAX] = "";

	if (strlen(dir) >= sizeof(text))
		return;
	strcpy(text, dir);
	(void)!pwrite(g->file, text, sizeof(text), offsetof(struct head, dir));
}

void ddp_gate_life(const struct ddp_gate *g, const char *name)
{
	char text[DDP_GATE_DIR_MAX] = "";

	if (!ddp_text_copy(text, sizeof(text), name))
		(void)!pwrite(g->file, text, sizeof(text),
			      offsetof(struct head, life));
}

void ddp_gate_get_dir(const struct ddp_gate *g, char dir[DDP_GATE_DIR_MAX])
{
	struct head h;

	dir[0] = '\0';
	if (g->file >= 0 && !read_head(g, &h))
		memcpy(dir, h.dir, DDP_GATE_DIR_MAX);
}

int ddp_gate_answer(const struct ddp_gate *g, enum ddp_gate_state state,
		    uint16_t port, const char *text, size_t len)
{
	uint32_t v[3] = { state, port, (uint32_t)len };
	uint64_t one = 1;

	/* Three fields only: slurmstepd may be writing the first ones. */
	if (len > DDP_WIRE_MAX ||
	    pwrite(g->file, text, len, TEXT_AT) != (ssize_t)len ||
	    pwrite(g->file, v, sizeof(v), offsetof(struct head, state)) !=
	    sizeof(v))
		return -1;
	return write(g->event, &one, sizeof(one)) == sizeof(one) ? 0 : -1;
}

/* 0, or -1: no such slot. */
static int slot_at(const struct ddp_gate *g, uint32_t local, off_t *at)
{
	struct stat st;

	*at = SLOTS_AT + (off_t)local * SLOT_SIZE;
	return g->file < 0 || local >= DDP_PLACE_RANKS ||
		fstat(g->file, &st) || st.st_size < FILE_SIZE ? -1 : 0;
}

int ddp_gate_put_ask(const struct ddp_gate *g, uint32_t local,
		     const struct ddp_ask *ask)
{
	off_t at;

	return !slot_at(g, local, &at) && may_write(at + SLOT_SIZE) &&
		pwrite(g->file, ask, sizeof(*ask), at) == sizeof(*ask) ?
		0 : -1;
}

int ddp_gate_get_ask(const struct ddp_gate *g, uint32_t local,
		     struct ddp_ask *ask)
{
	off_t at;

	if (slot_at(g, local, &at) ||
	    pread(g->file, ask, sizeof(*ask), at) != sizeof(*ask) ||
	    ask->valid != 1)
		return -1;
	ddp_ask_check(ask);
	return 0;
}

int ddp_gate_put_placed(const struct ddp_gate *g, uint32_t local,
			const struct ddp_placed *placed)
{
	off_t at;

	return !slot_at(g, local, &at) && may_write(at + SLOT_SIZE) &&
		pwrite(g->file, placed, sizeof(*placed), at + ASK_SIZE) ==
		sizeof(*placed) ? 0 : -1;
}

int ddp_gate_get_placed(const struct ddp_gate *g, uint32_t local,
			struct ddp_placed *placed)
{
	off_t at;

	if (slot_at(g, local, &at) ||
	    pread(g->file, placed, sizeof(*placed), at + ASK_SIZE) !=
	    sizeof(*placed) || placed->state == DDP_PLACE_NOTHING ||
	    placed->state > DDP_PLACE_REFUSED)
		return -1;
	ddp_placed_check(placed);
	return 0;
}

static int read_answer(const struct ddp_gate *g, struct ddp_gate_answer *out)
{
	struct head h;

	if (read_head(g, &h) || h.state == DDP_GATE_WAIT ||
	    h.state > DDP_GATE_REFUSED || h.len > DDP_WIRE_MAX ||
	    h.port > UINT16_MAX)
		return -1;
	out->text = calloc(1, h.len + 1U);
	if (!out->text ||
	    pread(g->file, out->text, h.len, TEXT_AT) != (ssize_t)h.len)
		return -1;
	out->state = (enum ddp_gate_state)h.state;
	out->port = (uint16_t)h.port;
	memcpy(out->dir, h.dir, sizeof(out->dir));
	memcpy(out->life, h.life, sizeof(out->life));
	return 0;
}

static int no_agent(const struct head *h, struct ddp_err *err)
{
	if (h->error == ENOSYS)
		return ddp_err_set(err, DDP_ESYS, "ddp-agent needs Linux 5.3 "
			"or later; use --ddp-launch=stateless");
	return ddp_err_set(err, DDP_ESYS, "ddp-agent could not be started "
		"(%s); install it on this node, or name its folder by "
		"helpers= in plugstack.conf", strerror(h->error));
}

/* Until the event, the agent's end or the deadline; 0 or -1 with *err. */
static int sleep_until(const struct ddp_gate *g, int agent, int timeout_ms,
		       struct ddp_err *err)
{
	struct pollfd p[2] = { { g->event, POLLIN, 0 }, { agent, POLLIN, 0 } };
	int64_t end = ddp_io_now_ms() + timeout_ms;

	for (;;) {
		int64_t left = end - ddp_io_now_ms();
		int n = poll(p, 2, left > 0 ? (int)left : 0);

		if (n < 0 && errno != EINTR)
			return ddp_err_set(err, DDP_ESYS, "poll: %s",
					   strerror(errno));
		if (n > 0 && p[0].revents)
			return 0;
		if (n > 0 && p[1].revents)
			return ddp_err_set(err, DDP_ESYS, "ddp-agent ended "
				"before the step could start; see the "
				"messages of the other nodes");
		if (n == 0 && left <= 0)
			return ddp_err_set(err, DDP_ESYS, "no start signal "
				"within %d s", timeout_ms / 1000);
	}
}

int ddp_gate_wait(const struct ddp_gate *g, int timeout_ms,
		  struct ddp_gate_answer *out, struct ddp_err *err)
{
	struct head h;
	int agent, rc;

	memset(out, 0, sizeof(*out));
	if (g->file < 0 || read_head(g, &h))
		return ddp_err_set(err, DDP_ESYS, "slurmstepd made no gate "
				   "for this step");
	if (h.agent <= 0)
		return no_agent(&h, err);
	agent = (int)syscall(SYS_pidfd_open, (pid_t)h.agent, 0);
	if (agent < 0) {	/* gone: perhaps after its answer */
		if (!read_answer(g, out))
			return 0;
		return ddp_err_set(err, DDP_ESYS, "ddp-agent ended before the "
				   "step could start");
	}
	rc = sleep_until(g, agent, timeout_ms, err);
	close(agent);
	if (!rc && read_answer(g, out))
		rc = ddp_err_set(err, DDP_ESYS, "ddp-agent gave no valid "
				 "answer");
	return rc;
}
