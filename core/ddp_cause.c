/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cause.h"
#include "core/ddp_ctlconf.h"
#include "core/ddp_text.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

enum ddp_cause_kind ddp_cause_of_status(uint32_t status)
{
	if (status == DDP_STATUS_UNKNOWN)
		return DDP_CAUSE_UNKNOWN;
	if (WIFSIGNALED((int)status))
		return DDP_CAUSE_SIGNAL;
	return WEXITSTATUS((int)status) ? DDP_CAUSE_EXIT :
		(enum ddp_cause_kind)0;
}

static int signal_of(const struct ddp_cause *c)
{
	return c->status != DDP_STATUS_UNKNOWN &&
		WIFSIGNALED((int)c->status) ? WTERMSIG((int)c->status) : 0;
}

/* Nobody sends these to end a program: it did that to itself. */
static bool is_fault(const struct ddp_cause *c)
{
	switch (signal_of(c)) {
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGSYS:
	case SIGTRAP:
		return true;
	}
	return false;
}

bool ddp_cause_is_effect(const struct ddp_cause *c)
{
	return (c->flags & DDP_EXIT_AFTER_ABORT) && !c->dying && !is_fault(c);
}

bool ddp_cause_is_suspect(const struct ddp_cause *c)
{
	/* Slurm also signals the controller of a batch job; a rank with a
	 * handler may answer with exit code 0. srun is not asked about: it
	 * ends without a word only when it is killed, and then Slurm calls
	 * the step cancelled for that reason. */
	if (c->flags & DDP_EXIT_BEFORE_PLAN || c->kind == DDP_CAUSE_TOLD ||
	    c->kind == DDP_CAUSE_EARLY)
		return true;
	if (c->kind == DDP_CAUSE_EXIT)
		return c->flags & DDP_EXIT_CAUGHT_TERM;
	if (c->kind != DDP_CAUSE_SIGNAL || c->flags & DDP_EXIT_OOM)
		return false;
	switch (signal_of(c)) {
	case SIGTERM:
	case SIGKILL:
	case SIGINT:
	case SIGHUP:
	case SIGCONT:
	case SIGUSR1:
	case SIGUSR2:
	case SIGXCPU:
		return true;
	}
	return false;
}

bool ddp_cause_is_machine(const struct ddp_cause *c)
{
	return (c->kind >= DDP_CAUSE_NODE && c->kind <= DDP_CAUSE_LAUNCH) ||
		c->kind == DDP_CAUSE_CONTROLLER;
}

static int weight(const struct ddp_cause *c)
{
	if (c->kind == DDP_CAUSE_SIGNAL)
		return signal_of(c) == SIGPIPE ? 0 : 3;
	return c->kind >= DDP_CAUSE_NODE ? 2 : 1;
}

static bool is_one(const struct ddp_cause *c)
{
	return WEXITSTATUS((int)c->status) == 1;
}

static bool has_code(const struct ddp_cause *c)
{
	return c->kind == DDP_CAUSE_EXIT || c->kind == DDP_CAUSE_PROGRAM;
}

/* MPI_Abort() has the other ranks killed: then the time decides. */
static bool says_abort(const struct ddp_cause *a, const struct ddp_cause *b)
{
	int sig = signal_of(b);

	return a->kind == DDP_CAUSE_PROGRAM && b->kind == DDP_CAUSE_SIGNAL &&
	       (sig == SIGKILL || sig == SIGTERM) &&
	       !(b->flags & DDP_EXIT_OOM);
}

/* Is a the cause rather than b, both within the window? */
static bool better(const struct ddp_cause *a, const struct ddp_cause *b)
{
	if (says_abort(a, b) || says_abort(b, a))
		return a->when_us < b->when_us;
	if (weight(a) != weight(b))
		return weight(a) > weight(b);
	/* 1 is what an exception about a broken connection ends with, and
	 * sockets are closed some ms before a process is seen to be gone. */
	if (has_code(a) && has_code(b) && is_one(a) != is_one(b))
		return is_one(b);
	if (a->when_us != b->when_us)
		return a->when_us < b->when_us;
	return a->rank < b->rank;
}

/* The earliest that is no effect; n if there is none. */
static size_t earliest(const struct ddp_cause *c, size_t n)
{
	size_t first = n;

	for (size_t i = 0; i < n; i++)
		if (!ddp_cause_is_effect(&c[i]) &&
		    (first == n || c[i].when_us < c[first].when_us))
			first = i;
	return first;
}

/* What is seen later than the failure that it brought about. */
static size_t behind(const struct ddp_cause *c, size_t n, size_t best)
{
	bool thief = c[best].kind == DDP_CAUSE_EXIT ||
		c[best].kind == DDP_CAUSE_EARLY;
	bool shepherd = c[best].kind == DDP_CAUSE_SIGNAL &&
		signal_of(&c[best]) == SIGKILL &&
		!(c[best].flags & DDP_EXIT_OOM);

	for (size_t i = 0; i < n; i++) {
		int64_t later = c[i].when_us - c[best].when_us;

		if ((thief && c[i].kind == DDP_CAUSE_PORT &&
		     later <= DDP_CAUSE_THIEF_US) ||
		    (shepherd && c[i].kind == DDP_CAUSE_SRUN &&
		     later <= DDP_CAUSE_SRUN_US))
			return i;
	}
	return best;
}

size_t ddp_cause_pick(const struct ddp_cause *c, size_t n)
{
	size_t first = earliest(c, n), best = first;
	int64_t end, early;

	if (first == n)
		return n;
	end = c[first].when_us + DDP_CAUSE_WINDOW_US + c[first].slack_us;
	for (size_t i = 0; i < n; i++) {
		early = c[i].when_us - c[i].slack_us -
			(c[i].dying ? DDP_CAUSE_DYING_US : 0);
		if (!ddp_cause_is_effect(&c[i]) && early <= end &&
		    better(&c[i], &c[best]))
			best = i;
	}
	return behind(c, n, best);
}

int ddp_cause_code(const struct ddp_cause *c)
{
	switch (c->kind) {
	case DDP_CAUSE_EXIT:
		return WEXITSTATUS((int)c->status);
	case DDP_CAUSE_PROGRAM:
		/* An abort is no success, whatever code it was given. */
		return WEXITSTATUS((int)c->status) ?
			WEXITSTATUS((int)c->status) : 1;
	case DDP_CAUSE_SIGNAL:
		return 128 + signal_of(c);
	case DDP_CAUSE_TOLD:
		return 128 + SIGTERM;
	case DDP_CAUSE_UNKNOWN:
	case DDP_CAUSE_EARLY:
	case DDP_CAUSE_SRUN:
		return 1;
	default:
		return DDP_EXIT_MACHINE;
	}
}

const char *ddp_cause_name(enum ddp_cause_kind kind)
{
	static const char *const names[] = { "none", "exit", "signal",
		"unknown-end", "early-exit", "abort", "not-ready",
		"node-lost", "slurmstepd-died",
		"port-stolen", "launch", "srun-died", "controller-told",
		"controller-stalled" };

	return kind <= DDP_CAUSE_LAST ? names[kind] : names[0];
}

const char *ddp_cause_status_text(uint32_t status, uint8_t flags, char *buf,
				  size_t size)
{
	char name[24];

	if (status == DDP_STATUS_UNKNOWN)
		snprintf(buf, size, "ended, nobody could tell how");
	else if (WIFSIGNALED((int)status))
		snprintf(buf, size, "killed by %s%s%s",
			 ddp_text_signame(WTERMSIG((int)status), name,
					  sizeof(name)),
			 WCOREDUMP((int)status) ? " (core dumped)" : "",
			 flags & DDP_EXIT_OOM ? " (out of memory)" : "");
	else
		snprintf(buf, size, "exited with code %d",
			 WEXITSTATUS((int)status));
	return buf;
}
