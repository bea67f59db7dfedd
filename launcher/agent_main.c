/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"
#include "launcher/net_auth.h"

#include "core/ddp_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How long the controller may take to close after BYE. */
#define END_MS 5000
/* The same where this process is in a cgroup of the step's (version 2): Slurm
 * waits for a second until that is empty, and ends leftovers itself. */
#define END_CGROUP_MS 500
/* Without a controller this process ends when the tasks have their places; if
 * none ever comes, after this time. */
#define ALONE_MS 600000

#ifdef __SANITIZE_ADDRESS__
/* The leak checker must ptrace us, which nobody may. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

uint64_t agent_now_us(void)
{
	return (uint64_t)ddp_io_now_us();
}

void agent_timer(struct agent *a, struct event **timer, uint32_t ms,
		 event_callback_fn fn, void *arg)
{
	struct timeval tv = { ms / 1000, (ms % 1000) * 1000 };

	if (!*timer)
		*timer = event_new(a->base, -1, 0, fn, arg);
	if (!*timer || event_add(*timer, &tv))
		event_base_loopbreak(a->base);
}

void agent_event_free(struct event **event)
{
	if (*event)
		event_free(*event);
	*event = NULL;
}

static bool aborting(const struct agent *a)
{
	return a->abort.state != ABORT_NO && a->abort.state != ABORT_DONE;
}

/* An abort under way begins the end anew when it is over. */
static void on_end(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	if (!aborting(a))
		event_base_loopbreak(a->base);
}

static bool in_step_cgroup(void)
{
	char text[4096];

	(void)ddp_io_read_file("/proc/self/cgroup", text, sizeof(text));
	return strstr(text, "/job_") && strstr(text, "/step_");
}

/* All is told; the controller may still say ABORT, for leftovers. */
static void begin_end(struct agent *a)
{
	struct ddp_msg bye = { .type = DDP_MSG_BYE };

	if (a->link.state != LINK_UP && a->link.state != LINK_DIALS) {
		event_base_loopbreak(a->base);
		return;
	}
	if (a->link.state == LINK_UP && !a->link.bye) {
		agent_link_send(a, &bye);
		a->link.bye = true;
	}
	if (!a->ending)
		agent_timer(a, &a->end_timer, in_step_cgroup() ?
			    END_CGROUP_MS : END_MS, on_end, a);
	a->ending = true;
}

void agent_check(struct agent *a)
{
	if (!agent_task_all_gone(a))
		return;
	if (aborting(a))
		agent_abort_check(a);
	else
		begin_end(a);
}

/* No controller: the ranks of this node are this agent's to end. */
static void end_alone(struct agent *a, const char *why)
{
	bool later = !a->answered;

	agent_gate_refuse(a, why);
	agent_life_why(a, why);
	a->life.wanted = true;
	agent_abort_start(a, a->end_signal, a->end_grace_ms, later);
	agent_check(a);
}

static void on_start_timeout(evutil_socket_t fd, short what, void *arg)
{
	char tried[1200], text[DDP_WIRE_TEXT];
	struct agent *a = arg;

	(void)fd;
	(void)what;
	if (a->answered || a->link.state == LINK_UP)
		return;
	agent_dial_report(a, tried, sizeof(tried));
	agent_dial_stop(a);
	a->link.state = LINK_CLOSED;
	if (!a->control.required) {
		agent_gate_stateless(a, 0, "", 0);
		return;
	}
	(void)snprintf(text, sizeof(text), "no connection from node %s to "
		"srun's controller within %u s (%s); open the firewall for "
		"it (SrunPortRange in slurm.conf names its ports), or use "
		"--ddp-control=prefer or --ddp-launch=stateless",
		a->conf.name, a->control.start_ms / 1000, tried);
	end_alone(a, text);
}

static void on_stepd(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;

	(void)fd;
	(void)what;
	agent_event_free(&a->stepd_event);
	/* It ends after its last task: look at these first. */
	agent_gate_drain(a);
	agent_task_poll(a);
	a->stepd_gone = true;
	agent_task_orphans(a);
	if (!agent_task_all_gone(a)) {
		agent_link_note(a, DDP_NOTE_STEPD_DIED, "");
		end_alone(a, "slurmstepd has died");
	}
	agent_check(a);
}

void agent_on_up(struct agent *a)
{
	agent_task_tell(a);
	agent_check(a);
}

static void on_plan(struct agent *a, const struct ddp_msg *m)
{
	/* Only what READY was said for. */
	if (a->answered || a->abort.state != ABORT_NO)
		return;
	if (m->u.plan.flags & DDP_PLAN_STATELESS) {
		agent_gate_stateless(a, m->u.plan.port, m->u.plan.text,
				     m->u.plan.len);
		return;
	}
	if (!a->ready_sent)
		return;
	agent_task_opened(a);
	agent_dir_make(a);
	if (m->u.plan.flags & DDP_PLAN_LIFE)
		agent_life_start(a);
	agent_gate_open(a, m);
	agent_port_watch(a);
}

static void on_abort(struct agent *a, const struct ddp_msg *m)
{
	const char *why = m->u.abort.text;
	bool later = !a->answered;
	int sig = m->u.abort.signal;

	/* Ends before this moment are no consequence of it. */
	agent_gate_drain(a);
	agent_task_poll(a);
	agent_gate_refuse(a, *why ? why : "the launch was ended");
	agent_life_why(a, *why ? why : "the step is ended");
	if (sig < 1 || sig >= NSIG)
		sig = SIGTERM;
	agent_abort_start(a, sig, m->u.abort.grace_ms, later);
	agent_check(a);
}

void agent_on_message(struct agent *a, const struct ddp_msg *m)
{
	switch (m->type) {
	case DDP_MSG_RESERVE:
		agent_port_reserve(a, m);
		break;
	case DDP_MSG_PLAN:
		on_plan(a, m);
		break;
	case DDP_MSG_ABORT:
		on_abort(a, m);
		break;
	case DDP_MSG_PONG:
		break;
	case DDP_MSG_ORDER:
		agent_life_on_order(a, m);
		break;
	case DDP_MSG_LEFT:
		agent_life_on_left(a, m);
		break;
	case DDP_MSG_VALUE:
		agent_pair_on_value(a, m);
		break;
	default:
		agent_link_close(a);
		agent_on_lost(a, "srun's controller does not speak the "
			      "protocol");
	}
}

void agent_on_lost(struct agent *a, const char *why)
{
	if (!a->ending)
		end_alone(a, why);
	else if (!aborting(a))
		event_base_loopbreak(a->base);
}

/* 0 if the descriptors are those of a gate. */
static int check_fds(void)
{
	char link[32] = "";
	int domain = 0, type = 0;
	socklen_t n = sizeof(int), m = sizeof(int);
	struct stat st;

	if (getsockopt(DDP_GATE_FD_SOCK, SOL_SOCKET, SO_DOMAIN, &domain, &n) ||
	    getsockopt(DDP_GATE_FD_SOCK, SOL_SOCKET, SO_TYPE, &type, &m) ||
	    domain != AF_UNIX || type != SOCK_SEQPACKET)
		return -1;
	if (fcntl(DDP_GATE_FD_FILE, F_GET_SEALS) < 0 ||
	    fstat(DDP_GATE_FD_FILE, &st) || !S_ISREG(st.st_mode))
		return -1;
	if (readlink("/proc/self/fd/5", link, sizeof(link) - 1) < 0 ||
	    strcmp(link, "anon_inode:[eventfd]"))
		return -1;
	for (int fd = DDP_GATE_FD_SOCK; fd <= DDP_GATE_FD_EVENT; fd++)
		if (fcntl(fd, F_SETFD, FD_CLOEXEC))
			return -1;
	return 0;
}

static struct event_base *make_base(void)
{
	struct event_config *config = event_config_new();
	struct event_base *base = NULL;

	if (config && !event_config_set_flag(config,
			EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV))
		base = event_base_new_with_config(config);
	if (config)
		event_config_free(config);
	return base;
}

/* slurmstepd has said what this step is. */
int agent_gate_start(struct agent *a)
{
	uint32_t ms;

	if (agent_task_init(a))
		return -1;
	agent_place_start(a);
	if (a->stepd >= 0)
		a->stepd_event = event_new(a->base, a->stepd, EV_READ,
					   on_stepd, a);
	if (!a->stepd_event || event_add(a->stepd_event, NULL))
		return -1;
	if (a->alone) {
		a->control.required = false;
		agent_timer(a, &a->end_timer, ALONE_MS, on_end, a);
		return 0;
	}
	if (agent_dial_start(a))
		return -1;
	ms = a->control.start_ms;
	agent_timer(a, &a->start_timer, a->control.required ? ms : ms / 2,
		    on_start_timeout, a);
	return 0;
}

static void clear(struct agent *a)
{
	agent_dir_remove(a);
	agent_life_free(a);
	agent_place_free(a);
	agent_port_free(a);
	agent_abort_free(a);
	agent_link_close(a);
	agent_dial_stop(a);
	agent_task_free(a);
	agent_event_free(&a->gate_event);
	agent_event_free(&a->stepd_event);
	agent_event_free(&a->start_timer);
	agent_event_free(&a->end_timer);
	explicit_bzero(&a->control, sizeof(a->control));
	event_base_free(a->base);
}

static void raise_files(void)
{
	struct rlimit r;

	if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* slurmstepd waits for this process; the agent is another, and its pid must
 * be known before slurmstepd forks the first task. */
static void detach(const struct ddp_gate *gate)
{
	pid_t pid = fork();

	if (!pid)
		return;
	ddp_gate_started(gate, pid < 0 ? 0 : pid, pid < 0 ? errno : 0);
	_exit(0);
}

static void on_gate(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	agent_gate_drain(arg);
}

int main(int argc, char **argv)
{
	static struct agent a = {
		.gate = { DDP_GATE_FD_FILE, DDP_GATE_FD_EVENT, -1,
			  DDP_GATE_FD_SOCK },
		.stepd = -1, .dir = -1, .port = { .fd = -1 },
		.place = { .go = -1, .result = -1 },
		.end_signal = SIGTERM, .end_grace_ms = 5000,
	};

	(void)prctl(PR_SET_DUMPABLE, 0);
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("ddp-agent " PACKAGE_VERSION);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "--detach") && !check_fds())
		detach(&a.gate);
	else if (argc > 1 || check_fds()) {
		fputs("ddp-agent: slurmstepd starts me for --ddp-launch; there "
		      "is nothing to run by hand\n", stderr);
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	agent_life_init(&a);
	raise_files();
	a.base = net_auth_init() ? NULL : make_base();
	if (!a.base)
		return 1;
	a.gate_event = event_new(a.base, DDP_GATE_FD_SOCK,
				 EV_READ | EV_PERSIST, on_gate, &a);
	if (a.gate_event && !event_add(a.gate_event, NULL)) {
		agent_timer(&a, &a.end_timer, 30000, on_end, &a);
		(void)event_base_dispatch(a.base);
	}
	clear(&a);
	return 0;
}
