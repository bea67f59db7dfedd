/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurmstepd for tests of the agent: makes a gate, starts the agent and
 * tasks, tells it what happens. Says what it sees on stdout, a line each;
 * ends when its stdin does and all tasks are gone.
 *
 *	gate_helper agent=PATH job=7 step=0 node=n1 control=TEXT tasks=2
 *		[first=0] [index=0] [uid=0] [flag=NAME]…
 *		[place=POLICY] [helpers=DIR] [topology=FILE] COMMAND
 *
 * With place= every task asks for a place, by that policy.
 * Every task runs COMMAND in a shell once the gate is open.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_gate.h"
#include "core/ddp_io.h"
#include "core/ddp_seat.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *agent, *command, *flags = "";
static struct ddp_gate_conf conf = { .tasks = 1, .name = "n1" };
static uint32_t first, node;
static uid_t uid;
static struct ddp_gate gate;
static pid_t pids[256], group;
static struct ddp_ask ask;

static bool flag(const char *name)
{
	return strstr(flags, name);
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void option(char *text)
{
	char *v = strchr(text, '=');

	if (!v)
		die(text);
	*v++ = '\0';
	if (!strcmp(text, "agent"))
		agent = v;
	else if (!strcmp(text, "job"))
		conf.job = (uint32_t)atoi(v);
	else if (!strcmp(text, "step"))
		conf.step = (uint32_t)atoi(v);
	else if (!strcmp(text, "node"))
		(void)snprintf(conf.name, sizeof(conf.name), "%s", v);
	else if (!strcmp(text, "control"))
		(void)snprintf(conf.control, sizeof(conf.control), "%s", v);
	else if (!strcmp(text, "tasks"))
		conf.tasks = (uint32_t)atoi(v);
	else if (!strcmp(text, "first"))
		first = (uint32_t)atoi(v);
	else if (!strcmp(text, "index"))
		node = (uint32_t)atoi(v);
	else if (!strcmp(text, "uid"))
		uid = (uid_t)atoi(v);
	else if (!strcmp(text, "flags"))
		flags = v;
	else if (!strcmp(text, "helpers"))
		(void)snprintf(conf.helpers, sizeof(conf.helpers), "%s", v);
	else if (!strcmp(text, "topology"))
		(void)snprintf(conf.topology, sizeof(conf.topology), "%s", v);
	else if (!strcmp(text, "place"))
		conf.place = !ddp_bind_policy_parse(v, &ask.req.policy);
	else
		die(text);
}

static void become_user(void)
{
	if (uid && (setgroups(0, NULL) || setresgid(uid, uid, uid) ||
		    setresuid(uid, uid, uid)))
		die("setresuid");
}

static void exec_agent(void)
{
	static char *const argv[] = { (char *)"ddp-agent", NULL };
	static char *const envp[] = { (char *)"PATH=/usr/bin:/bin", NULL };
	int null = open("/dev/null", O_RDWR);
	int a = fcntl(gate.agents, F_DUPFD, 20);
	int f = fcntl(gate.file, F_DUPFD, 20);
	int e = fcntl(gate.event, F_DUPFD, 20);

	if (null < 0 || a < 0 || f < 0 || e < 0 || dup2(null, 0) < 0 ||
	    dup2(null, 1) < 0 || (!flag("stderr") && dup2(null, 2) < 0) ||
	    dup2(a, 3) < 0 || dup2(f, 4) < 0 || dup2(e, 5) < 0)
		die("dup2");
	(void)syscall(SYS_close_range, 6U, ~0U, 0U);
	become_user();
	if (chdir("/"))
		_exit(127);
	execve(agent, argv, envp);
	_exit(127);
}

/* Twice forked, as the plugin does it. */
static void start_agent(void)
{
	int p[2], status;
	pid_t pid, mid;

	if (pipe(p))
		die("pipe");
	mid = fork();
	if (!mid) {
		setsid();
		pid = fork();
		if (!pid)
			exec_agent();
		_exit(write(p[1], &pid, sizeof(pid)) != sizeof(pid));
	}
	if (read(p[0], &pid, sizeof(pid)) != sizeof(pid))
		die("agent");
	close(p[0]);
	close(p[1]);
	(void)ddp_io_wait(mid, &status);
	ddp_gate_started(&gate, pid, 0);
	dprintf(1, "agent %d\n", (int)pid);
}

static void set(const char *name, unsigned v)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", v);
	setenv(name, text, 1);
}

static void set_step(void)
{
	set("SLURM_JOB_ID", conf.job);
	set("SLURM_STEP_ID", conf.step);
	setenv("SLURMD_NODENAME", conf.name, 1);
}

static void run_epilog(void)
{
	if (fork())
		return;
	become_user();
	set_step();
	(void)syscall(SYS_close_range, 3U, ~0U, 0U);
	execl("/bin/sh", "sh", "-c", "./nap 0.3; echo >epilog", NULL);
	_exit(127);
}

/* Returns whether the agent can read it. */
static bool ask_place(uint32_t local)
{
	struct ddp_err err;

	if (!conf.place || (flag("oneasks") && local))
		return false;
	ask.rank = first + local;
	if (ddp_seat_look(&ask, "", &err))
		die(err.text);
	ask.valid = 1;
	return !ddp_gate_put_ask(&gate, local, &ask);
}

/* "place RANK STATE [WARNING or why]", in one line. */
static void tell_place(uint32_t local)
{
	static struct ddp_placed p;
	char *text;

	if (!conf.place)
		return;
	if (ddp_gate_get_placed(&gate, local, &p))
		memset(&p, 0, sizeof(p));
	text = p.state == DDP_PLACE_REFUSED ? p.why : p.warning;
	for (char *at = text; (at = strchr(at, '\n'));)
		*at = '/';
	dprintf(1, "place %u %u %s\n", first + local, p.state, text);
}

static void run_task(uint32_t local, int go)
{
	struct ddp_gate_msg m = { DDP_GATE_HERE, local, first + local, node,
				  (uint32_t)getpid(), 0 };
	struct ddp_gate_answer answer;
	struct ddp_err err = { DDP_OK, "" };
	char c, text[300];
	int rc;

	(void)!read(go, &c, 1);
	become_user();
	if (flag("absent") && local == 1)
		pause();
	prctl(PR_SET_DUMPABLE, 1);
	m.status = ask_place(local) ? DDP_GATE_ASKS : 0;
	(void)ddp_gate_send(gate.ours, &m, -1);
	rc = ddp_gate_wait(&gate, 30000, &answer, &err);
	tell_place(local);
	dprintf(1, "gate %u %d %u %s %s\n", m.rank,
		rc ? -1 : (int)answer.state, answer.port,
		answer.dir[0] ? answer.dir : "-",
		rc ? err.text : answer.text);
	if (rc || answer.state == DDP_GATE_REFUSED)
		_exit(1);
	if (answer.life[0])
		setenv("DDP_LIFECYCLE_SOCKET", answer.life, 1);
	set("RANK", m.rank);
	set("MASTER_PORT", answer.port);
	set_step();
	(void)snprintf(text, sizeof(text), "%s/%u.json", answer.dir, m.rank);
	setenv("TORCHELASTIC_ERROR_FILE", text, 1);
	if (!freopen("/dev/null", "w", stdout))
		_exit(127);
	(void)syscall(SYS_close_range, 3U, ~0U, 0U);
	execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(127);
}

static int start_task(uint32_t local)
{
	int go[2];

	if (pipe2(go, O_CLOEXEC))
		die("pipe");
	pids[local] = fork();
	if (!pids[local]) {
		close(go[1]);
		run_task(local, go[0]);
	}
	if (!group)
		group = pids[local];
	setpgid(pids[local], group);
	close(go[0]);
	return go[1];
}

static void start_tasks(void)
{
	int go[256];

	for (uint32_t i = 0; i < conf.tasks; i++)
		go[i] = start_task(i);
	for (uint32_t i = 0; i < conf.tasks; i++) {
		struct ddp_gate_msg m = { DDP_GATE_TASK, i, first + i, node,
					  (uint32_t)pids[i], 0 };
		int fd = flag("nopidfd") ? -1 :
			(int)syscall(SYS_pidfd_open, pids[i], 0);

		if (!flag("notask"))
			(void)ddp_gate_send(gate.ours, &m, fd);
		if (fd >= 0)
			close(fd);
		dprintf(1, "task %u %d\n", i, (int)pids[i]);
	}
	for (uint32_t i = 0; i < conf.tasks; i++)
		if (write(go[i], "", 1) != 1 || close(go[i]))
			die("go");
}

static void reaped(pid_t pid, int status)
{
	for (uint32_t i = 0; i < conf.tasks; i++) {
		struct ddp_gate_msg m = { DDP_GATE_EXITED, i, first + i, node,
					  (uint32_t)pid, (uint32_t)status };

		if (pids[i] != pid)
			continue;
		pids[i] = 0;
		if (!flag("noexited"))
			(void)ddp_gate_send(gate.ours, &m, -1);
		dprintf(1, "exited %u %d\n", i, status);
		if (flag("epilog"))
			run_epilog();
	}
}

/* slurmstepd is sometimes slow to reap. */
static bool next_end(siginfo_t *info)
{
	int rc;

	do
		rc = waitid(P_ALL, 0, info, WEXITED | WNOWAIT);
	while (rc && errno == EINTR);
	if (flag("late"))
		(void)usleep(50000);
	return !rc;
}

int main(int argc, char **argv)
{
	struct pollfd in = { 0, POLLIN, 0 };
	siginfo_t info;
	struct ddp_err err;
	int status;
	pid_t pid;

	for (int i = 1; i + 1 < argc; i++)
		option(argv[i]);
	command = argv[argc - 1];
	if (!agent || conf.tasks > 256 || ddp_gate_make(&gate, &err))
		return 2;
	conf.stepd = getpid();
	start_agent();
	if (ddp_gate_send_conf(gate.ours, &conf))
		die("conf");
	start_tasks();
	close(gate.agents);
	if (flag("noreap"))
		pause();
	while (next_end(&info))
		if ((pid = waitpid(info.si_pid, &status, 0)) > 0)
			reaped(pid, status);
	dprintf(1, "done\n");
	(void)poll(&in, 1, -1);
	return 0;
}
