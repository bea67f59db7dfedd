/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: slurmstepd, tasks and agent in processes of their own. */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_gate.h"
#include "core/ddp_io.h"
#include "tests/unit/check_main.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ddp_gate g;
static char why[DDP_GATE_WHY_MAX];
static struct ddp_gate_answer ans;
static struct ddp_err err;

static void setup(void)
{
	memset(&err, 0, sizeof(err));
	ck_assert_msg(!ddp_gate_make(&g, &err), "%s", err.text);
}

static int pidfd_of(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* A child that runs act() and then waits to be killed, if `stay`. */
static pid_t child(void (*act)(void), bool stay)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	if (act)
		act();
	while (stay)
		pause();
	_exit(0);
}

static void end(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	ck_assert(!ddp_io_wait(pid, &status));
}

/* Wait at the gate, as a task, for `ms` at most; the time taken. */
static int64_t wait_ms(int ms, int rc)
{
	int64_t from = ddp_io_now_ms();

	free(ans.text);
	ck_assert_msg(ddp_gate_wait(&g, ms, &ans, &err) == rc, "%s",
		      err.text);
	return ddp_io_now_ms() - from;
}

START_TEST(made)
{
	int fds[4];

	memcpy(fds, (int[]){ g.file, g.event, g.ours, g.agents },
	       sizeof(fds));
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_ge(fds[i], 0);
		ck_assert(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
	}
	ddp_gate_close(&g);
	ddp_gate_close(&g);
	for (unsigned i = 0; i < 4; i++)
		ck_assert(fcntl(fds[i], F_GETFD) < 0);
	ck_assert_int_eq(g.file, -1);
}
END_TEST

START_TEST(no_gate)
{
	ddp_gate_close(&g);
	wait_ms(1000, -1);
	ck_assert(strstr(err.text, "no gate"));
}
END_TEST

START_TEST(last_words)
{
	struct ddp_gate_conf conf;
	struct ddp_gate_msg m;
	char long_text[2 * DDP_GATE_WHY_MAX];
	int fd;

	/* Nobody would tell it. */
	ck_assert(ddp_gate_send_why(&g, 3, "no eth9"));
	ddp_gate_started(&g, getpid(), 0);
	ck_assert(!ddp_gate_send_why(&g, 3, "no eth9"));
	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	ck_assert(!ddp_gate_send_why(&g, 4, long_text));
	ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &conf, why, &fd), 1);
	ck_assert_uint_eq(m.kind, DDP_GATE_WHY);
	ck_assert_uint_eq(m.local, 3);
	ck_assert_str_eq(why, "no eth9");
	ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &conf, why, &fd), 1);
	ck_assert_uint_eq(m.local, 4);
	ck_assert_uint_eq(strlen(why), DDP_GATE_WHY_MAX - 1);
	/* The kind alone is none. */
	m = (struct ddp_gate_msg){ .kind = DDP_GATE_WHY };
	ck_assert(!ddp_gate_send(g.ours, &m, -1));
	ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &conf, why, &fd), 1);
	ck_assert_uint_eq(m.kind, 0);
}
END_TEST

START_TEST(conf_and_tasks)
{
	struct ddp_gate_conf in, out;
	struct ddp_gate_msg m, t = { DDP_GATE_TASK, 1, 7, 2, 0, 0 };
	pid_t pid = child(NULL, true);
	int fd = pidfd_of(pid), got;
	struct pollfd p;

	memset(&in, 0, sizeof(in));
	in.job = 7;
	in.step = 1;
	in.tasks = 4;
	in.stepd = 42;
	strcpy(in.name, "n1");
	memset(in.control, 'c', sizeof(in.control) - 1);
	t.pid = (uint32_t)pid;
	ck_assert(!ddp_gate_send_conf(g.ours, &in));
	ck_assert(!ddp_gate_send(g.ours, &t, fd));
	close(fd);
	t.kind = DDP_GATE_HERE;
	ck_assert(!ddp_gate_send(g.ours, &t, -1));
	ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &out, why,
					       &got), 1);
	ck_assert_uint_eq(m.kind, DDP_GATE_CONF);
	ck_assert_mem_eq(&in, &out, sizeof(in));
	ck_assert_int_eq(got, -1);
	ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &out, why,
					       &got), 1);
	ck_assert_uint_eq(m.kind, DDP_GATE_TASK);
	ck_assert_uint_eq(m.rank, 7);
	ck_assert_int_ge(got, 0);
	ck_assert(fcntl(got, F_GETFD) & FD_CLOEXEC);
	p = (struct pollfd){ got, POLLIN, 0 };
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	end(pid);
	ck_assert_int_eq(poll(&p, 1, 1000), 1);
	close(got);
	ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &out, why,
					       &got), 1);
	ck_assert_uint_eq(m.kind, DDP_GATE_HERE);
	ck_assert_int_eq(got, -1);
	ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &out, why,
					       &got), 0);
	close(g.ours);
	g.ours = -1;
	ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &out, why,
					       &got), -1);
}
END_TEST

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Sends len bytes, with nfds descriptors. */
static void send_raw(size_t len, unsigned nfds)
{
	static char data[8192];
	char control[CMSG_SPACE(8 * sizeof(int))] = { 0 };
	struct iovec iov = { data, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	memset(data, 1, sizeof(data));
	if (nfds) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		for (unsigned i = 0; i < nfds; i++)
			memcpy(CMSG_DATA(c) + i * sizeof(int), &g.event,
			       sizeof(int));
	}
	ck_assert_int_eq(sendmsg(g.ours, &msg, 0), (ssize_t)len);
}

/* Messages of other sizes are for nobody; no descriptor is left open. */
START_TEST(strange)
{
	static const size_t sizes[] = { 1, sizeof(struct ddp_gate_msg) - 1,
		sizeof(struct ddp_gate_msg) + 1, 8192 };
	struct ddp_gate_conf conf;
	struct ddp_gate_msg m = { .kind = DDP_GATE_CONF };
	int fd, before = open_fds();

	for (unsigned i = 0; i < CHECK_COUNT(sizes); i++) {
		send_raw(sizes[i], 0);
		ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &conf, why,
					       &fd), 1);
		ck_assert_uint_eq(m.kind, 0);
	}
	for (unsigned n = 1; n <= 8; n++) {
		send_raw(sizeof(m), n);
		ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &conf, why,
					       &fd), 1);
		ck_assert_int_ge(fd, 0);
		close(fd);
		ck_assert_int_eq(open_fds(), before);
	}
	/* A configuration without its contents is none. */
	m.kind = DDP_GATE_CONF;
	ck_assert(!ddp_gate_send(g.ours, &m, -1));
	ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &conf, why,
					       &fd), 1);
	ck_assert_uint_eq(m.kind, 0);
}
END_TEST

/* An agent that has not come to read yet loses nothing of a large node. */
START_TEST(many_tasks)
{
	struct ddp_gate_conf conf;
	struct ddp_gate_msg m = { .kind = DDP_GATE_TASK };
	int self = pidfd_of(getpid()), fd;
	uint32_t n = geteuid() ? 128 : 1024;	/* see make_room() */

	for (m.local = 0; m.local < n; m.local++) {
		m.kind = DDP_GATE_TASK;
		ck_assert_msg(!ddp_gate_send(g.ours, &m, self), "task %u",
			      m.local);
		m.kind = DDP_GATE_HERE;
		ck_assert_msg(!ddp_gate_send(g.ours, &m, -1), "task %u",
			      m.local);
	}
	for (uint32_t i = 0; i < 2 * n; i++) {
		ck_assert_int_eq(ddp_gate_recv(g.agents, &m, &conf, why,
					       &fd), 1);
		ck_assert_uint_eq(m.local, i / 2);
		if (fd >= 0)
			close(fd);
	}
	close(self);
}
END_TEST

START_TEST(send_to_nobody)
{
	struct ddp_gate_msg m = { .kind = DDP_GATE_TASK };

	close(g.agents);
	g.agents = -1;
	ck_assert_int_eq(ddp_gate_send(g.ours, &m, -1), -1);
	ck_assert_int_eq(errno, EPIPE);
}
END_TEST

static void answer_open(void)
{
	usleep(50000);
	ddp_gate_dir(&g, "/tmp/ddp-x");
	ddp_gate_life(&g, "@slurm-ddp/life/7.0/x");
	if (ddp_gate_answer(&g, DDP_GATE_OPEN, 29500, "v=1;x", 5))
		_exit(1);
}

/* Several tasks wait at once, and one comes late. */
START_TEST(opened)
{
	pid_t agent = child(answer_open, true), task[4];
	int status;

	ddp_gate_started(&g, agent, 0);
	for (unsigned i = 0; i < 4; i++) {
		task[i] = fork();
		ck_assert_int_ge(task[i], 0);
		if (!task[i])
			_exit(ddp_gate_wait(&g, 5000, &ans, &err) ||
			      ans.port != 29500 || strcmp(ans.text, "v=1;x"));
	}
	ck_assert_int_lt(wait_ms(5000, 0), 2000);
	ck_assert_int_eq(ans.state, DDP_GATE_OPEN);
	ck_assert_uint_eq(ans.port, 29500);
	ck_assert_str_eq(ans.text, "v=1;x");
	ck_assert_str_eq(ans.dir, "/tmp/ddp-x");
	ck_assert_str_eq(ans.life, "@slurm-ddp/life/7.0/x");
	for (unsigned i = 0; i < 4; i++) {
		ck_assert(!ddp_io_wait(task[i], &status));
		ck_assert_int_eq(status, 0);
	}
	wait_ms(5000, 0);
	ck_assert_str_eq(ans.text, "v=1;x");
	end(agent);
	wait_ms(5000, 0);	/* it died after its answer */
	ck_assert_uint_eq(ans.port, 29500);
}
END_TEST

START_TEST(refused_and_stateless)
{
	static char text[DDP_WIRE_MAX + 1];
	pid_t agent = child(NULL, true);

	ddp_gate_started(&g, agent, 0);
	ck_assert(!ddp_gate_answer(&g, DDP_GATE_REFUSED, 0, "no route", 8));
	wait_ms(1000, 0);
	ck_assert_int_eq(ans.state, DDP_GATE_REFUSED);
	ck_assert_str_eq(ans.text, "no route");
	ck_assert(!ddp_gate_answer(&g, DDP_GATE_STATELESS, 0, "", 0));
	wait_ms(1000, 0);
	ck_assert_int_eq(ans.state, DDP_GATE_STATELESS);
	ck_assert_str_eq(ans.text, "");
	memset(text, 't', sizeof(text));
	ck_assert(ddp_gate_answer(&g, DDP_GATE_OPEN, 1, text, sizeof(text)));
	ck_assert(!ddp_gate_answer(&g, DDP_GATE_OPEN, 1, text,
				   DDP_WIRE_MAX));
	wait_ms(1000, 0);
	ck_assert_uint_eq(strlen(ans.text), DDP_WIRE_MAX);
	end(agent);
}
END_TEST

static void pause_50(void)
{
	usleep(50000);
}

START_TEST(agent_died)
{
	pid_t agent = child(pause_50, false);
	int status;

	ddp_gate_started(&g, agent, 0);
	ck_assert_int_lt(wait_ms(20000, -1), 5000);
	ck_assert(strstr(err.text, "ddp-agent ended"));
	ddp_io_wait(agent, &status);
	ck_assert_int_lt(wait_ms(20000, -1), 5000);
	ck_assert(strstr(err.text, "ddp-agent ended"));
}
END_TEST

START_TEST(time_limit)
{
	pid_t agent = child(NULL, true);
	int64_t took;

	ddp_gate_started(&g, agent, 0);
	took = wait_ms(200, -1);
	ck_assert_int_ge(took, 199);
	ck_assert_int_lt(took, 2000);
	ck_assert(strstr(err.text, "no start signal"));
	end(agent);
}
END_TEST

START_TEST(no_agent)
{
	wait_ms(5000, -1);	/* nobody has said anything */
	ck_assert(strstr(err.text, "could not be started"));
	ddp_gate_started(&g, 0, ENOENT);
	ck_assert_int_lt(wait_ms(5000, -1), 1000);
	ck_assert(strstr(err.text, strerror(ENOENT)));
	ck_assert(strstr(err.text, "helpers="));
	ddp_gate_started(&g, 0, ENOSYS);
	wait_ms(5000, -1);
	ck_assert(strstr(err.text, "Linux 5.3"));
}
END_TEST

/* An agent may be quicker than slurmstepd's note that it was started. */
static void answer_often(void)
{
	for (;;)
		if (ddp_gate_answer(&g, DDP_GATE_REFUSED, 0, "bad", 3))
			_exit(1);
}

START_TEST(answer_first)
{
	pid_t agent = child(answer_often, false);
	int32_t said;

	for (int32_t i = 1; i < 200000; i++) {
		ddp_gate_started(&g, i, 0);
		ck_assert_int_eq(pread(g.file, &said, sizeof(said),
				       sizeof(said)), sizeof(said));
		ck_assert_int_eq(said, i);
	}
	ddp_gate_started(&g, agent, 0);
	wait_ms(5000, 0);
	ck_assert_int_eq(ans.state, DDP_GATE_REFUSED);
	ck_assert_str_eq(ans.text, "bad");
	end(agent);
}
END_TEST

/* A SIGBUS or a short read in a task would need a shorter file. */
START_TEST(file_is_sealed)
{
	char byte = 0;
	off_t size = lseek(g.file, 0, SEEK_END);

	ck_assert_int_gt(size, DDP_WIRE_MAX);
	ck_assert_int_eq(ftruncate(g.file, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(g.file, size + 1), -1);
	ck_assert_int_eq(pwrite(g.file, &byte, 1, size), -1);
	ck_assert_int_eq(fcntl(g.file, F_ADD_SEALS, F_SEAL_WRITE), -1);
	ck_assert(fallocate(g.file, FALLOC_FL_PUNCH_HOLE |
			    FALLOC_FL_KEEP_SIZE, 0, size) == 0);
	wait_ms(100, -1);	/* no magic any more: no gate */
	ck_assert_int_eq(lseek(g.file, 0, SEEK_END), size);
}
END_TEST

/* Whatever the agent writes, a task gets an answer or an error. */
START_TEST(garbage)
{
	pid_t agent = child(NULL, true);
	uint32_t words[40];
	unsigned seed = 1;

	for (unsigned i = 0; i < 3000; i++) {
		ddp_gate_started(&g, agent, 0);
		ck_assert(!ddp_gate_answer(&g, DDP_GATE_OPEN, 1, "x", 1));
		ck_assert_int_eq(pread(g.file, words, sizeof(words), 0),
				 sizeof(words));
		for (unsigned k = 0; k <= i % 4; k++) {
			seed = seed * 1103515245 + 12345;
			words[2 + (seed >> 16) % 38] =
				(seed >> 8) % 3 ? seed >> 24 : seed;
		}
		ck_assert_int_eq(pwrite(g.file, words, sizeof(words), 0),
				 sizeof(words));
		free(ans.text);
		if (ddp_gate_wait(&g, 1000, &ans, &err))
			continue;
		ck_assert_ptr_nonnull(ans.text);
		ck_assert_uint_lt(strnlen(ans.dir, sizeof(ans.dir)),
				  sizeof(ans.dir));
		ck_assert(ans.state == DDP_GATE_OPEN ||
			  ans.state == DDP_GATE_STATELESS ||
			  ans.state == DDP_GATE_REFUSED);
	}
	end(agent);
}
END_TEST

START_TEST(dir_too_long)
{
	char dir[DDP_GATE_DIR_MAX + 1];
	pid_t agent = child(NULL, true);

	ddp_gate_started(&g, agent, 0);
	memset(dir, 'd', DDP_GATE_DIR_MAX);
	dir[DDP_GATE_DIR_MAX] = '\0';
	ddp_gate_dir(&g, dir);
	ck_assert(!ddp_gate_answer(&g, DDP_GATE_OPEN, 1, "", 0));
	wait_ms(1000, 0);
	ck_assert_str_eq(ans.dir, "");
	ck_assert_str_eq(ans.life, "");
	dir[DDP_GATE_DIR_MAX - 1] = '\0';
	ddp_gate_dir(&g, dir);
	wait_ms(1000, 0);
	ck_assert_str_eq(ans.dir, dir);
	end(agent);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { made, no_gate, conf_and_tasks,
		last_words, strange,
		many_tasks, send_to_nobody, opened, refused_and_stateless,
		agent_died, time_limit, no_agent, answer_first,
		file_is_sealed, garbage, dir_too_long };

	return check_run("gate", tests, CHECK_COUNT(tests), setup);
}
