/* SPDX-License-Identifier: Apache-2.0 */
/* The phases of a step: start, heartbeats, a failure, the end. */
#define _GNU_SOURCE
#include "config.h"

#include "tests/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* No phase may take longer; a missing answer ends in this. */
#define PHASE_S 60

/* Lines from the controller to srun: say, wait, end, quit. */
static void take_line(struct sim *s)
{
	const char *line = s->line;

	if (!strncmp(line, "say ", 4))
		s->says++;
	else if (strcmp(line, "wait 0") &&
		 sscanf(line, "end %d", &s->code) != 1)
		sim_fail(s, "the controller said \"%.200s\"", line);
	if (getenv("SIM_VERBOSE"))
		fprintf(stderr, "%s\n", line);
}

void sim_step_srun(evutil_socket_t fd, short what, void *arg)
{
	struct sim *s = arg;
	char c;
	ssize_t n;

	(void)what;
	while ((n = read(fd, &c, 1)) == 1) {
		if (c != '\n' && s->line_used + 1 < sizeof(s->line)) {
			s->line[s->line_used++] = c;
			continue;
		}
		s->line[s->line_used] = '\0';
		s->line_used = 0;
		take_line(s);
	}
	if (n < 0 && errno == EAGAIN)
		return;
	event_del(s->srun_event);
	if (s->code == INT32_MIN)
		sim_fail(s, "the controller ended its line to srun");
}

void sim_step_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sim *s = arg;

	(void)fd;
	(void)what;
	sim_fail(s, "time is over: %u out, %u connecting, %u hello, %u auth, "
		 "%u ready, %u plan, %u abort, %u bye, %u closed; %u of %u "
		 "pongs", s->count[0], s->count[1], s->count[2], s->count[3],
		 s->count[4], s->count[5], s->count[6], s->count[7],
		 s->count[8], s->pongs, s->pings);
}

static void limit_phase(struct sim *s)
{
	struct timeval tv = { PHASE_S, 0 };

	event_add(s->timer, &tv);
}

static int turn(struct sim *s)
{
	if (!s->wrong[0] && event_base_loop(s->base, EVLOOP_ONCE))
		sim_fail(s, "the event loop ended");
	return s->wrong[0] ? -1 : 0;
}

/* The first agent alone, so that starting the controller is not counted.
 * Then all, with at most `window` agents between dialling and WELCOME: a kernel
 * drops what is beyond the listener's backlog, for a second and longer. */
static void phase_start(struct sim *s, struct sim_results *r)
{
	limit_phase(s);
	sim_agent_dial(&s->agents[s->dialled++]);
	while (s->count[SIM_READY] + s->count[SIM_PLAN] == 0)
		if (turn(s))
			return;
	sim_ctl_during(s, "barrier");
	limit_phase(s);
	r->hello = sim_ctl_time(s);
	while (s->count[SIM_PLAN] < s->conf.nodes) {
		while (s->dialled < s->conf.nodes && !s->wrong[0] &&
		       s->count[SIM_CONNECTING] + s->count[SIM_HELLO] +
		       s->count[SIM_AUTH] < s->conf.window)
			sim_agent_dial(&s->agents[s->dialled++]);
		if (turn(s))
			return;
	}
	r->plan = sim_ctl_time(s);
	r->plan.wall_ns = s->last_ns;
}

/* Rounds over all agents until so many pings have been answered. */
static int ping_until(struct sim *s, uint32_t n)
{
	struct ddp_msg m = { .type = DDP_MSG_PING };

	while (s->pongs < n) {
		while (s->pings < n &&
		       s->pings - s->pongs < s->conf.window && !s->wrong[0]) {
			m.u.ping.now_us = (uint64_t)sim_now() / 1000;
			sim_agent_send(&s->agents[s->pings++ % s->conf.nodes],
				       &m);
		}
		if (turn(s))
			return -1;
	}
	return 0;
}

/* The memory in use after the first round (or half of the pings) is the
 * base for its growth. */
static void phase_heartbeats(struct sim *s, struct sim_results *r)
{
	uint32_t n = s->conf.heartbeats, warm = s->conf.nodes;

	limit_phase(s);
	if (ping_until(s, warm < n ? warm : n / 2))
		return;
	r->rss = sim_ctl_status(s, "VmRSS");
	if (ping_until(s, n))
		return;
	r->grown = sim_ctl_status(s, "VmRSS") - r->rss;
	r->pinged = sim_ctl_time(s);
	r->switches = sim_ctl_status(s, "voluntary_ctxt_switches");
}

/* Sleep while the controller works: reading would take its CPU from it. */
static void stay_away(const struct sim *s)
{
	int64_t before, now = sim_ctl_time(s).ctl_ns;

	for (int i = 0; i < 250; i++) {
		before = now;
		usleep(20000);
		now = sim_ctl_time(s).ctl_ns;
		if (now - before < 100000)
			break;
	}
}

/* The last node's first rank exits with 7; that node need not hear ABORT if
 * it had one rank only. */
static void phase_abort(struct sim *s, struct sim_results *r)
{
	uint32_t expect = s->conf.nodes - (s->conf.tasks == 1);
	int64_t from = sim_now();

	limit_phase(s);
	s->hold = true;
	s->last_ns = from;
	sim_agent_exit(&s->agents[s->conf.nodes - 1], 0, 7 << 8, 0);
	stay_away(s);
	while (s->count[SIM_ABORT] < expect)
		if (turn(s))
			return;
	r->aborted = sim_ctl_time(s);
	r->abort_ns = s->last_ns - from;
}

/* Everything ends, srun asks for its exit code, the controller goes. */
static void phase_end(struct sim *s, struct sim_results *r)
{
	static const char text[] = "exit 143\n";

	limit_phase(s);
	s->hold = false;
	for (uint32_t i = 0; i < s->conf.nodes && !s->wrong[0]; i++)
		sim_agent_ended(&s->agents[i]);
	if (send(s->srun, text, sizeof(text) - 1, MSG_NOSIGNAL) !=
	    (ssize_t)sizeof(text) - 1)
		sim_fail(s, "exit: %s", strerror(errno));
	while (s->code == INT32_MIN)
		if (turn(s))
			return;
	r->ended = sim_ctl_time(s);
	while (s->count[SIM_CLOSED] < s->conf.nodes)
		if (turn(s))
			return;
	if (s->code != 7)
		sim_fail(s, "exit code %d instead of 7", s->code);
	if (!s->says)
		sim_fail(s, "no report for the user");
}

void sim_step_play(struct sim *s, struct sim_results *r)
{
	phase_start(s, r);
	if (!s->wrong[0])
		sim_ctl_during(s, "running");
	if (!s->wrong[0])
		phase_heartbeats(s, r);
	if (!s->wrong[0])
		phase_abort(s, r);
	if (!s->wrong[0])
		phase_end(s, r);
	r->complete = !s->wrong[0];
	r->status = sim_ctl_end(s, s->wrong[0] ? 0 : 10000, &r->peak);
	if (r->status)
		sim_fail(s, "the controller's wait status is %d", r->status);
}
