/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurmstepd's side of full mode, and of the ranks' places: a gate before
 * anything runs, an agent that is the user's own program and no child of
 * slurmstepd's, and word to it of every task. slurmstepd never waits for the
 * agent and believes nothing of it. The functions may be called in short-lived
 * children of slurmstepd (SlurmdParameters=contain_spank): they share nothing
 * but descriptors.
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_child.h"
#include "core/ddp_control.h"
#include "core/ddp_errfile.h"
#include "core/ddp_gate.h"
#include "core/ddp_io.h"
#include "core/ddp_place.h"
#include "spank/spank_ddp.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <slurm/slurm.h>

/* The agent answers within --ddp-start-timeout; beyond it by this much. */
#define ANSWER_EXTRA_MS 15000

/* Longest wait for the agent's program to start. */
#define START_MS 10000
/* Longest time that the removal of an agent's files may take. */
#define CLEAN_SECONDS 2

/* A task whose node is refused: until it is ended with the others. */
#define REFUSED_MS 15000

static struct ddp_gate gate = DDP_GATE_NONE;
static bool controlled;	/* there is a controller; the agent tells it why */
static pid_t stepd;
static uid_t user;
static gid_t group;

static int pidfd_of(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

void ddp_agent_gate(spank_t sp)
{
	struct ddp_err err;
	uint32_t step;

	if (spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
	    !ddp_compat_step_is_normal(step) ||
	    (!ddp_spank_is_set(sp, DDP_CONTROL_ENV) &&
	     !ddp_spank_is_set(sp, DDP_PLACE_ENV)))
		return;
	controlled = ddp_spank_is_set(sp, DDP_CONTROL_ENV);
	stepd = getpid();
	if (spank_get_item(sp, S_JOB_UID, &user) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_GID, &group) != ESPANK_SUCCESS)
		return;
	ddp_drain_init();
	if (ddp_gate_make(&gate, &err))	/* the tasks will say so */
		slurm_error(DDP_MSG "%s", err.text);
}

/* False if the child has not ended in time. */
static bool wait_child(pid_t pid, int ms)
{
	struct pollfd p = { pidfd_of(pid), POLLIN, 0 };
	int64_t end = ddp_io_now_ms() + ms, left = ms;
	int status, n = 0;

	while (p.fd >= 0 && left > 0 && (n = poll(&p, 1, (int)left)) < 0)
		left = end - ddp_io_now_ms();
	if (p.fd >= 0)
		close(p.fd);
	if (n > 0)
		(void)ddp_io_wait(pid, &status);
	return n > 0;
}

/*
 * An agent that was killed leaves its directory of error files. The name is
 * the user's word, so it is the user, in a process of its own, who removes
 * it; normally there is none and nothing is forked.
 */
static void clean_up(void)
{
	char dir[DDP_GATE_DIR_MAX];
	pid_t pid;

	ddp_gate_get_dir(&gate, dir);
	if (!dir[0] || getpid() != stepd)
		return;
	pid = fork();
	if (!pid) {
		ddp_child_signals();	/* slurmstepd blocks SIGALRM */
		alarm(CLEAN_SECONDS);
		if (!setgroups(0, NULL) && !setresgid(group, group, group) &&
		    !setresuid(user, user, user))
			ddp_errfile_sweep(dir);
		_exit(0);
	}
	/* The user can stop it; slurmstepd ends now, and init takes it. */
	if (pid > 0 && !wait_child(pid, (CLEAN_SECONDS + 1) * 1000))
		(void)kill(pid, SIGKILL);
}

void ddp_agent_clear(void)
{
	if (gate.file < 0)
		return;
	clean_up();
	ddp_gate_close(&gate);
}

/* From slurmstepd's mixed ids to the user's alone, for good. 0 or errno. */
static int become_user(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (!uid || !setresuid(-1, 0, -1)) {
		ddp_child_leave_cgroups();
		ddp_child_oom_normal();
	}
	if (setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
		return errno;
	/* It must not come back. */
	return uid && !setresuid(-1, 0, -1) ? EPERM : 0;
}

/*
 * slurmstepd's child becomes the agent's program, which forks at once, says
 * its pid at the gate and lets slurmstepd go on: so the agent is nobody's
 * child but init's, and slurmstepd, which is big, is copied only once.
 */
static void __attribute__((noreturn)) become_agent(const char *path)
{
	char *argv[] = { (char *)"ddp-agent", (char *)"--detach", NULL };
	char *env[] = { (char *)"PATH=/usr/bin:/bin", NULL };
	const int fds[] = { [DDP_GATE_FD_SOCK - 3] = gate.agents,
			    [DDP_GATE_FD_FILE - 3] = gate.file,
			    [DDP_GATE_FD_EVENT - 3] = gate.event };
	int rc = become_user();

	umask(077);
	if (!rc)
		rc = ddp_child_detach(fds, 3);
	if (!rc)
		gate.file = DDP_GATE_FD_FILE;
	if (!rc && !chdir("/")) {
		execve(path, argv, env);
		rc = errno;
	}
	ddp_gate_started(&gate, 0, rc);
	_exit(127);
}

static void send_conf(spank_t sp, const struct ddp_site *site)
{
	const char *name = getenv("SLURMD_NODENAME");
	struct ddp_gate_conf conf;

	memset(&conf, 0, sizeof(conf));
	conf.stepd = stepd;
	(void)spank_get_item(sp, S_JOB_ID, &conf.job);
	(void)spank_get_item(sp, S_JOB_STEPID, &conf.step);
	(void)spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &conf.tasks);
	/* In a heterogeneous job the first component's, as tasks see it. */
	(void)ddp_spank_env_u32(sp, "SLURM_JOB_ID", &conf.job);
	(void)ddp_text_copy(conf.name, sizeof(conf.name), name ? name : "?");
	conf.place = ddp_spank_is_set(sp, DDP_PLACE_ENV);
	memcpy(conf.helpers, site->helpers, sizeof(conf.helpers));
	memcpy(conf.topology, site->topology, sizeof(conf.topology));
	memcpy(conf.sysroot, site->sysroot, sizeof(conf.sysroot));
	if (!ddp_spank_is_set(sp, DDP_CONTROL_ENV) ||
	    spank_getenv(sp, DDP_CONTROL_ENV, conf.control,
			 sizeof(conf.control)) == ESPANK_SUCCESS)
		(void)ddp_gate_send_conf(gate.ours, &conf);
	explicit_bzero(&conf, sizeof(conf));
}

/* A file system that hangs must not hang slurmstepd. */
static void wait_started(pid_t pid)
{
	if (wait_child(pid, START_MS))
		return;
	kill(pid, SIGKILL);
	ddp_gate_started(&gate, 0, ETIMEDOUT);
}

void ddp_agent_start(spank_t sp, const struct ddp_spank *state)
{
	char path[sizeof(state->site.helpers) + 16];
	pid_t pid;
	int fd;

	if (gate.file < 0)
		return;
	snprintf(path, sizeof(path), "%s/ddp-agent", state->site.helpers);
	fd = pidfd_of(getpid());
	if (fd < 0) {
		ddp_gate_started(&gate, 0, ENOSYS);
		return;
	}
	close(fd);
	send_conf(sp, &state->site);
	pid = fork();
	if (!pid)
		become_agent(path);
	if (pid < 0)
		ddp_gate_started(&gate, 0, errno);
	else
		wait_started(pid);
	close(gate.agents);
	gate.agents = -1;
}

void ddp_agent_task(spank_t sp)
{
	struct ddp_gate_msg m = { .kind = DDP_GATE_TASK };
	int local = 0, fd;
	pid_t pid = 0;

	if (gate.file < 0 ||
	    spank_get_item(sp, S_TASK_PID, &pid) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_TASK_GLOBAL_ID, &m.rank) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_TASK_ID, &local) != ESPANK_SUCCESS)
		return;
	m.local = (uint32_t)local;
	m.pid = (uint32_t)pid;
	fd = pidfd_of(pid);	/* it waits: the pid cannot be another's */
	(void)ddp_gate_send(gate.ours, &m, fd);
	if (fd >= 0)
		close(fd);
}

void ddp_agent_exited(spank_t sp)
{
	struct ddp_gate_msg m = { .kind = DDP_GATE_EXITED };
	int local = 0, status = 0;
	pid_t pid = 0;

	if (gate.file < 0 ||
	    spank_get_item(sp, S_TASK_PID, &pid) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_TASK_EXIT_STATUS, &status) !=
	    ESPANK_SUCCESS ||
	    spank_get_item(sp, S_TASK_ID, &local) != ESPANK_SUCCESS)
		return;
	m.local = (uint32_t)local;
	m.pid = (uint32_t)pid;
	m.status = (uint32_t)status;
	(void)ddp_gate_send(gate.ours, &m, -1);
	/* The agent knows: the others are being ended now. */
	if (status && controlled)
		ddp_drain();
}

/* Tell the agent that this task waits; ids are the whole step's. */
static int tell_here(spank_t sp, const struct ddp_ask *ask,
		     struct ddp_err *err)
{
	struct ddp_gate_msg m = { .kind = DDP_GATE_HERE,
				  .pid = (uint32_t)getpid() };
	int local = 0, lost;

	if (spank_get_item(sp, S_TASK_ID, &local) != ESPANK_SUCCESS ||
	    !ddp_spank_env_u32(sp, "SLURM_PROCID", &m.rank) ||
	    !ddp_spank_env_u32(sp, "SLURM_NODEID", &m.node))
		return ddp_err_set(err, DDP_ESYS, "slurmstepd does not say "
				   "which task this is");
	m.local = (uint32_t)local;
	lost = ask->valid && ddp_gate_put_ask(&gate, m.local, ask);
	if (ask->valid && !lost)
		m.status = DDP_GATE_ASKS |
			(ask->list_set || ask->step_gpus ? DDP_GATE_GPUS : 0);
	/* Full, if the agent is slow; should nobody read it, the wait says
	 * so. */
	for (int i = 0; i < 500 && ddp_gate_send(gate.ours, &m, -1) &&
	     errno == EAGAIN; i++)
		(void)poll(NULL, 0, 20);
	/* Without a controller there is nothing else to wait for; and nobody
	 * else knows of a policy that is to be judged. */
	return lost && gate.file >= 0 &&
		(!controlled || ddp_place_is_strict(&ask->req)) ?
		ddp_err_set(err, DDP_ESYS, DDP_PLACE_NO_ROOM) : 0;
}

/*
 * Ranks of this node were refused their places, and no program starts. The
 * agent has each one's reason for the controller, which ends the others of
 * the step; without a controller each says its own.
 */
static void end_refused(const struct ddp_placed *placed)
{
	if (!controlled)
		return;
	if (placed->state != DDP_PLACE_REFUSED)
		(void)poll(NULL, 0, REFUSED_MS);
	_exit(1);
}

/*
 * The wait itself, as a process that Slurm can end: proctrack/linuxproc spares
 * what is called slurmstepd when it kills, and some releases have SIGTERM
 * blocked until the exec. All is put back afterwards.
 */
static int wait_killable(int ms, uint32_t local, struct ddp_gate_answer *out,
			 struct ddp_placed *placed, struct ddp_err *err)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL }, old;
	sigset_t term, mask;
	char name[17] = "";
	int rc;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	(void)prctl(PR_GET_NAME, name);
	(void)prctl(PR_SET_NAME, "ddp-wait");
	(void)sigaction(SIGTERM, &dfl, &old);
	(void)sigprocmask(SIG_UNBLOCK, &term, &mask);
	rc = ddp_gate_wait(&gate, ms, out, err);
	if (!rc && ddp_gate_get_placed(&gate, local, placed))
		placed->state = DDP_PLACE_NOTHING;
	if (!rc && out->state == DDP_GATE_REFUSED && out->text &&
	    !out->text[0])
		end_refused(placed);
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
	(void)sigaction(SIGTERM, &old, NULL);
	(void)prctl(PR_SET_NAME, name);
	return rc;
}

int ddp_agent_why(uint32_t local, const char *text)
{
	return ddp_gate_send_why(&gate, local, text);
}

/* The key does not stay in this process. 0, or -1 with *err. */
static int take_control(spank_t sp, uint32_t *start_ms, struct ddp_err *err)
{
	struct ddp_control control;
	char text[DDP_CONTROL_MAX];
	spank_err_t got = spank_getenv(sp, DDP_CONTROL_ENV, text,
				       sizeof(text));
	int rc;

	*start_ms = 0;
	(void)spank_unsetenv(sp, DDP_CONTROL_ENV);
	if (got == ESPANK_ENV_NOEXIST)
		return 0;
	if (got != ESPANK_SUCCESS)
		return ddp_err_set(err, DDP_EINVAL, DDP_CONTROL_ENV
				   " is too long");
	rc = ddp_control_parse(&control, text, err);
	*start_ms = control.start_ms;
	explicit_bzero(text, sizeof(text));
	explicit_bzero(control.key, sizeof(control.key));
	return rc;
}

int ddp_agent_wait(spank_t sp, const struct ddp_ask *ask,
		   struct ddp_gate_answer *out, struct ddp_placed *placed,
		   struct ddp_err *err)
{
	static const struct ddp_ask withdrawn;
	uint32_t start_ms;
	int local = 0, rc;

	memset(out, 0, sizeof(*out));
	placed->state = DDP_PLACE_NOTHING;
	if (take_control(sp, &start_ms, err))
		return -1;
	if (!start_ms && !ask->valid)
		return 0;
	if (tell_here(sp, ask, err))
		return -1;
	(void)spank_get_item(sp, S_TASK_ID, &local);
	rc = wait_killable(start_ms ? (int)start_ms + ANSWER_EXTRA_MS :
			   DDP_PLACE_WAIT_MS, (uint32_t)local, out, placed,
			   err);
	/* It goes without: so must the node's others, if they still come. */
	if (rc && !start_ms)
		(void)ddp_gate_put_ask(&gate, (uint32_t)local, &withdrawn);
	return rc;
}
