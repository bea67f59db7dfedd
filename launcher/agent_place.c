/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks' places: ddp-place reads the topology while the tasks still come,
 * and makes the plan when all are here. The agent only waits, and no longer
 * than PLACE_MS.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"
#include "launcher/place_result.h"

#include "core/ddp_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child's descriptors in their places, and no other. */
static void __attribute__((noreturn)) become_child(const struct agent *a,
						   int go, int result)
{
	char path[sizeof(a->conf.helpers) + 16], tasks[16];
	char *argv[] = { (char *)"ddp-place", tasks, (char *)a->conf.topology,
			 (char *)a->conf.sysroot, NULL };
	char *env[] = { (char *)"PATH=/usr/bin:/bin", NULL };
	const int fds[] = { [PLACE_FD_RESULT - 3] = result,
			    [PLACE_FD_FILE - 3] = a->gate.file,
			    [PLACE_FD_GO - 3] = go };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)snprintf(path, sizeof(path), "%s/ddp-place", a->conf.helpers);
	(void)snprintf(tasks, sizeof(tasks), "%u", a->ntasks);
	if (!ddp_child_detach(fds, 3))
		execve(path, argv, env);
	_exit(127);
}

static void end_child(struct agent *a)
{
	struct agent_place *p = &a->place;

	agent_event_free(&p->event);
	agent_event_free(&p->timer);
	if (p->go >= 0)
		close(p->go);
	if (p->result >= 0)
		close(p->result);
	p->go = p->result = -1;
	if (p->child > 0) {
		/* Reaped by the kernel, should it take its time: it is the
		 * only child there ever is. */
		(void)signal(SIGCHLD, SIG_IGN);
		(void)kill(p->child, SIGKILL);
		(void)waitpid(p->child, NULL, WNOHANG);
	}
	p->child = 0;
}

void agent_place_free(struct agent *a)
{
	end_child(a);
}

/* There is no plan: said by the first task, or refused where a policy had to
 * be judged. */
static void answer_failed(struct agent *a, const char *why)
{
	struct ddp_placed *out = calloc(1, sizeof(*out));
	struct ddp_ask *ask = calloc(1, sizeof(*ask));

	for (uint32_t i = 0; out && ask && i < a->ntasks; i++) {
		bool strict = !ddp_gate_get_ask(&a->gate, i, ask) &&
			ddp_place_is_strict(&ask->req);
		size_t pos = 0;

		memset(out, 0, sizeof(*out));
		out->state = strict ? DDP_PLACE_REFUSED : DDP_PLACE_DONE;
		a->place.refused += strict;
		if (strict)
			ddp_place_unjudged(&ask->req, why, out->why,
					   sizeof(out->why));
		else if (!i)
			(void)ddp_text_add(out->warning, sizeof(out->warning),
				&pos, "ranks are not bound to CPUs and GPUs: "
				"%s", why);
		if (ddp_gate_put_placed(&a->gate, i, out))
			break;
	}
	free(out);
	free(ask);
}

/* The tasks that are refused: their reasons go where their ends go. */
static void tell_refused(struct agent *a)
{
	struct ddp_placed *out = calloc(1, sizeof(*out));

	for (uint32_t i = 0; out && i < a->ntasks; i++)
		if (!ddp_gate_get_placed(&a->gate, i, out) &&
		    out->state == DDP_PLACE_REFUSED)
			agent_task_why(a, i, out->why);
	free(out);
	agent_gate_refuse(a, "");
}

static void done(struct agent *a)
{
	end_child(a);
	a->place.state = PLACE_DONE;
	if (a->place.refused)
		tell_refused(a);
	else if (a->alone)
		agent_gate_stateless(a, 0, "", 0);
	else
		agent_task_tell(a);
}

/* It ended without a word. */
static const char *why_no_result(struct agent *a)
{
	int status;

	/* It has closed its end: it is ending, with a status that this no
	 * longer changes, or has no more to say. */
	(void)kill(a->place.child, SIGKILL);
	if (waitpid(a->place.child, &status, 0) != a->place.child)
		status = 0;
	a->place.child = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return "ddp-place could not be started; install it beside "
			"ddp-agent";
	return "ddp-place, which reads the topology, crashed; try ddp-topo on "
		"this node";
}

static void done_without(struct agent *a)
{
	answer_failed(a, a->place.why);
	done(a);
}

/* No plan will come. Said once all tasks are here to hear it. */
static void failed(struct agent *a, const char *why)
{
	struct agent_place *p = &a->place;

	end_child(a);
	(void)ddp_text_copy(p->why, sizeof(p->why), why);
	if (p->state == PLACE_RUNS)
		done_without(a);
}

static void on_result(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;
	struct place_result r = { 0, 0 };
	char text[DDP_ERR_TEXT], shown[DDP_ERR_TEXT];
	ssize_t n;

	(void)what;
	n = read((int)fd, text, sizeof(text) - 1);
	if (n < 0 && errno == EINTR)
		return;
	if (n == sizeof(r))
		memcpy(&r, text, sizeof(r));
	text[n > 0 ? n : 0] = '\0';
	if (r.magic != PLACE_MAGIC) {
		failed(a, n > 0 ? ddp_text_safe(text, shown, sizeof(shown)) :
		       why_no_result(a));
		return;
	}
	a->place.refused = r.refused;
	done(a);
}

static const char *too_slow(const struct agent *a)
{
	return a->conf.topology[0] ?
		"the file that topology= in plugstack.conf names could not be "
		"read within 10 s" :
		"the topology of this node could not be read within 10 s; try "
		"ddp-topo there, or give topology= in plugstack.conf a saved "
		"one";
}

/*
 * ddp-place is too slow; or, in stateless mode, some ranks are so late that
 * the others cannot wait. None of the node gets a place then: two orders of
 * the GPUs would give one of them to two ranks.
 */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct agent *a = arg;
	bool late = a->place.state == PLACE_WAITS;

	(void)fd;
	(void)what;
	a->place.state = PLACE_RUNS;
	failed(a, late ? "not all ranks of this node came within 60 s" :
	       too_slow(a));
}

/* 0, or -1: no child. */
static int start_child(struct agent *a)
{
	struct agent_place *p = &a->place;
	int go[2], result[2];

	if (pipe2(go, O_CLOEXEC))
		return -1;
	if (pipe2(result, O_CLOEXEC)) {
		close(go[0]);
		close(go[1]);
		return -1;
	}
	p->child = fork();
	if (!p->child)
		become_child(a, go[0], result[1]);
	close(go[0]);
	close(result[1]);
	p->go = go[1];
	p->result = result[0];
	if (p->child < 0)
		return -1;
	p->event = event_new(a->base, p->result, EV_READ | EV_PERSIST,
			     on_result, a);
	return p->event && !event_add(p->event, NULL) ? 0 : -1;
}

/* While slurmstepd still forks the tasks. */
void agent_place_start(struct agent *a)
{
	struct agent_place *p = &a->place;

	if (!a->conf.place)
		return;
	p->state = PLACE_WAITS;
	if (start_child(a))
		failed(a, "no process for it could be started");
}

/* If it is gone, its end of the other pipe says so. */
static void tell_child(const struct agent *a, char word)
{
	if (a->place.go >= 0)
		(void)!write(a->place.go, &word, 1);
}

void agent_place_here(struct agent *a, bool asks, bool gpus)
{
	struct agent_place *p = &a->place;

	if (asks && !p->asks++) {
		tell_child(a, gpus ? PLACE_DEVICES : PLACE_CPUS);
		if (a->alone && p->state == PLACE_WAITS)
			agent_timer(a, &p->timer, DDP_PLACE_LATE_MS, on_timer,
				    a);
	}
	if (p->state != PLACE_WAITS || a->nhere < a->ntasks)
		return;
	p->state = PLACE_RUNS;
	if (!p->asks) {
		end_child(a);
		p->state = PLACE_DONE;
	} else if (p->why[0]) {
		done_without(a);
	} else {
		tell_child(a, PLACE_GO);
		agent_timer(a, &p->timer, PLACE_MS, on_timer, a);
	}
}

bool agent_place_pending(const struct agent *a)
{
	return a->place.state == PLACE_WAITS || a->place.state == PLACE_RUNS;
}
