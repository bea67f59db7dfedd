/* SPDX-License-Identifier: Apache-2.0 */
/* The lines for the user: who was first, what was done, who did not answer. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define MESSAGE_MAX 400

/* The clocks of nodes and of timers are not exact. */
#define GRACE_SLACK_US 100000

const struct ddp_cause *ctl_report_cause(const struct ctl *ctl, size_t *index)
{
	size_t i = ddp_cause_pick(ctl->events, ctl->nevents);

	if (i == ctl->nevents || ctl->phase == CTL_CANCELLED)
		return NULL;
	if (index)
		*index = i;
	return &ctl->events[i];
}

/* ", at 14:03:22.417, 12.3 s after the start" */
static void when_text(const struct ctl *ctl, int64_t when_us, char *buf,
		      size_t size)
{
	int64_t real = when_us + ctl->real_us;
	time_t s = (time_t)(real / 1000000);
	size_t pos = 0;
	struct tm tm;

	buf[0] = '\0';
	if (!localtime_r(&s, &tm))
		return;
	(void)ddp_text_add(buf, size, &pos, "at %02d:%02d:%02d.%03d",
			   tm.tm_hour, tm.tm_min, tm.tm_sec,
			   (int)(real % 1000000 / 1000));
	if (ctl->plan_us && when_us >= ctl->plan_us)
		(void)ddp_text_add(buf, size, &pos, ", %.1f s after the start",
				   (double)(when_us - ctl->plan_us) / 1e6);
}

static const char *node_name(const struct ctl *ctl, uint32_t node)
{
	return node < ctl->nnodes ? ctl->nodes[node].name : "?";
}

static void rank_line(const struct ctl *ctl, const struct ddp_cause *c,
		      const char *when, char *buf, size_t size)
{
	char how[64];

	snprintf(buf, size, "rank %u on node %.100s failed first: %s, pid %u, "
		 "%s", c->rank, node_name(ctl, c->node),
		 ddp_cause_status_text(c->status, c->flags, how, sizeof(how)),
		 c->pid, when);
}

void ctl_report_line(const struct ctl *ctl, size_t event, char *buf,
		     size_t size)
{
	const struct ddp_cause *c = &ctl->events[event];
	const char *text = ctl->texts[event], *node = node_name(ctl, c->node);
	char when[80];

	if (!text)
		text = "";
	when_text(ctl, c->when_us, when, sizeof(when));
	switch (c->kind) {
	case DDP_CAUSE_EXIT:
	case DDP_CAUSE_SIGNAL:
	case DDP_CAUSE_UNKNOWN:
		rank_line(ctl, c, when, buf, size);
		break;
	case DDP_CAUSE_EARLY:
		snprintf(buf, size, "rank %u on node %.100s ended first, with "
			 "exit code 0, %s: %.200s", c->rank, node, when, text);
		break;
	case DDP_CAUSE_PROGRAM:
		snprintf(buf, size, "rank %u on node %.100s aborted first: "
			 "%.300s, exit code %d, pid %u, %s", c->rank, node,
			 text[0] ? text : "it does not say why",
			 ddp_cause_code(c), c->pid, when);
		break;
	case DDP_CAUSE_NOT_READY:
		snprintf(buf, size, "rank %u on node %.100s was not ready, pid "
			 "%u, %s: %.1400s", c->rank, node, c->pid, when, text);
		break;
	case DDP_CAUSE_NODE:
		snprintf(buf, size, "node %.100s was lost first, %s: %.200s",
			 node, when, text);
		break;
	case DDP_CAUSE_STEPD:
		snprintf(buf, size, "slurmstepd of node %.100s died first, %s",
			 node, when);
		break;
	case DDP_CAUSE_PORT:
		snprintf(buf, size, "the master port %u of node %.100s was "
			 "taken by another program, %s: %.400s", ctl->port,
			 node, when, text);
		break;
	case DDP_CAUSE_LAUNCH:
		snprintf(buf, size, "the launch failed: %s", text);
		break;
	case DDP_CAUSE_SRUN:
		snprintf(buf, size, "srun ended (killed?), %s", when);
		break;
	case DDP_CAUSE_CONTROLLER:
		snprintf(buf, size, "ddp-controller %.200s, %s", text, when);
		break;
	case DDP_CAUSE_TOLD:
		snprintf(buf, size, "the controller was told to end (%s), %s",
			 text, when);
		break;
	}
}

static void say_message(struct ctl *ctl, size_t event)
{
	enum ddp_cause_kind kind = ctl->events[event].kind;
	char plain[MESSAGE_MAX + 1];

	if (!ctl->texts[event] || kind > DDP_CAUSE_UNKNOWN)
		return;
	ddp_errfile_plain(ctl->texts[event], plain, sizeof(plain));
	if (plain[0])
		ctl_say(ctl, "  message: %s", plain);
}

static int signal_of(const struct ctl_rank *r)
{
	return r->status != DDP_STATUS_UNKNOWN && WIFSIGNALED((int)r->status) ?
		WTERMSIG((int)r->status) : 0;
}

void ctl_report_stopped(const struct ctl *ctl, struct ctl_stopped *s)
{
	uint8_t *seen = calloc(ctl->nnodes, 1);

	memset(s, 0, sizeof(*s));
	for (uint32_t i = 0; i < ctl->nranks; i++) {
		const struct ctl_rank *r = &ctl->ranks[i];
		int sig = signal_of(r);

		if (r->state != RANK_ENDED || r->dying ||
		    !(r->flags & DDP_EXIT_AFTER_ABORT))
			continue;
		s->ranks++;
		if (r->when_us > s->last_us)
			s->last_us = r->when_us;
		if (sig == ctl->conf.signal)
			s->by_signal++;
		else if (sig == SIGKILL)
			s->by_kill++;
		if (sig == SIGKILL && (!s->kill_us || r->when_us < s->kill_us))
			s->kill_us = r->when_us;
		if (seen && !seen[r->node]) {
			seen[r->node] = 1;
			s->nodes++;
		}
	}
	for (uint32_t i = 0; i < ctl->nnodes; i++) {
		s->others += ctl->nodes[i].others;
		s->left += ctl->nodes[i].left;
	}
	free(seen);
}

/* " (6 by SIGTERM, 1 by SIGKILL after 5 s)". Slurm's own SIGKILL may come
 * before the grace is over: then it was not ours. */
static void how_stopped(const struct ctl *ctl, const struct ctl_stopped *s,
			char *line, size_t size, size_t *pos)
{
	int64_t grace_us = 1000 * (int64_t)ctl->conf.grace_ms;
	char sig[24];

	if (s->by_signal)
		(void)ddp_text_add(line, size, pos, " (%u by %s%s",
				   s->by_signal,
				   ddp_text_signame(ctl->conf.signal, sig,
						    sizeof(sig)),
				   s->by_kill ? "" : ")");
	if (!s->by_kill)
		return;
	(void)ddp_text_add(line, size, pos, "%s%u by SIGKILL",
			   s->by_signal ? ", " : " (", s->by_kill);
	if (s->kill_us - ctl->abort_us >= grace_us - GRACE_SLACK_US)
		(void)ddp_text_add(line, size, pos, " after %.4g s",
				   ctl->conf.grace_ms / 1000.0);
	(void)ddp_text_add(line, size, pos, ")");
}

/* "7 ranks on 2 nodes (…), 3 other processes, all gone 12 ms later" */
static void say_stopped(struct ctl *ctl, const struct ddp_cause *c)
{
	struct ctl_stopped s;
	char line[512];
	size_t pos = 0, size = sizeof(line);

	ctl_report_stopped(ctl, &s);
	if (!s.ranks && !s.others && !s.left)
		return;
	(void)ddp_text_add(line, size, &pos, "  stopped: %u rank%s on %u "
			   "node%s", s.ranks, s.ranks == 1 ? "" : "s",
			   s.nodes, s.nodes == 1 ? "" : "s");
	how_stopped(ctl, &s, line, size, &pos);
	if (s.others)
		(void)ddp_text_add(line, size, &pos, ", %u other process%s",
				   s.others, s.others == 1 ? "" : "es");
	if (s.left)
		(void)ddp_text_add(line, size, &pos, ", %u could not be ended",
				   s.left);
	else if (s.ranks && s.last_us > c->when_us)
		(void)ddp_text_add(line, size, &pos, ", all gone %lld ms later",
				   (long long)(s.last_us - c->when_us) / 1000);
	ctl_say(ctl, "%s", line);
}

size_t ctl_report_failures(const struct ctl *ctl)
{
	size_t n = 0;

	for (size_t i = 0; i < ctl->nevents; i++)
		n += !ddp_cause_is_effect(&ctl->events[i]);
	return n;
}

bool ctl_report_unanswered(const struct ctl_node *n)
{
	return n->state == NODE_LOST || (n->aborted && !n->settled);
}

void ctl_report_say(struct ctl *ctl)
{
	size_t i;
	const struct ddp_cause *c = ctl_report_cause(ctl, &i);
	char line[DDP_CTL_LINE];

	if (!c)
		return;
	ctl_report_line(ctl, i, line, sizeof(line));
	ctl_say(ctl, "%s", line);
	say_message(ctl, i);
	say_stopped(ctl, c);
	if (ctl->conf.abort != DDP_ABORT_GANG && !ctl->launch_failed &&
	    ctl_report_failures(ctl) > 1)
		ctl_say(ctl, "  failures: %zu in all",
			ctl_report_failures(ctl));
	/* Who has given up a controller that stood still did not keep silent. */
	if (c->kind != DDP_CAUSE_CONTROLLER &&
	    ctl_plan_names(ctl, ctl_report_unanswered, line, sizeof(line)))
		ctl_say(ctl, "  did not answer: %s", line);
	if (ctl->refused && ctl->launch_failed)
		ctl_say(ctl, "  refused peers: %u connections without the "
			"step's key", ctl->refused);
}

const char *ctl_report_status(const struct ctl *ctl)
{
	if (ctl->phase == CTL_CANCELLED)
		return "cancelled";
	if (ctl->launch_failed)
		return "launch-failed";
	if (ctl->nevents)
		return "failed";
	if (!ctl->plan_us && ctl->phase != CTL_STATELESS)
		return "cancelled";
	return ctl->exit_asked && ctl->exit_status ? "failed" : "ok";
}
