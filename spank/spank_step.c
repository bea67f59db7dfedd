/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task on its node, between the drop to the user's ids and the exec of the
 * program. The plan is hostile text until it agrees with what slurmstepd
 * itself says of the step. A failure ends the task with a message: a rank
 * that runs with a wrong world is worse than one that does not run.
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_control.h"
#include "core/ddp_errfile.h"
#include "core/ddp_life.h"
#include "core/ddp_task.h"
#include "spank/spank_ddp.h"
#include "spank/spank_facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All of a task on its way to the program. */
struct start {
	struct ddp_facts f;
	struct ddp_task t;
	struct ddp_ask ask;
	struct ddp_placed placed;
	struct ddp_gate_answer answer;
};

/*
 * Say why and end the task. Not by the return code: Slurm adds two lines of
 * noise to it, and ignores it where plugstack.conf says "optional".
 */
static void __attribute__((noreturn)) refuse(const struct ddp_facts *f,
					     const struct ddp_err *err)
{
	(void)ddp_agent_why(f->local, err->text);
	dprintf(STDERR_FILENO, DDP_MSG "error: node %s, rank %" PRIu32 ": %s\n",
		f->name, f->shown, err->text);
	_exit(1);
}

/* A launch was asked for, and this srun knows nothing of launches. */
static void warn_no_plan(spank_t sp)
{
	char mode[16];

	if (spank_getenv(sp, "SLURM_DDP_LAUNCH", mode, sizeof(mode)) !=
	    ESPANK_SUCCESS || !mode[0] || !strcmp(mode, "off") ||
	    ddp_spank_is_set(sp, DDP_HET_ENV))
		return;
	dprintf(STDERR_FILENO, DDP_MSG "warning: SLURM_DDP_LAUNCH is set, but "
		"srun made no launch plan: the plugstack.conf that srun reads "
		"does not load spank_ddp.so\n");
}

/* The text of the plan; NULL if this task is no launch of ours. */
static char *read_plan(spank_t sp, const struct ddp_spank *state,
		       const struct ddp_facts *f)
{
	char *text = malloc(DDP_PLAN_MAX);
	struct ddp_err err;
	spank_err_t rc;

	if (!text) {
		ddp_err_set(&err, DDP_ENOMEM, "out of memory");
		refuse(f, &err);
	}
	rc = spank_getenv(sp, DDP_PLAN_ENV, text, (int)DDP_PLAN_MAX);
	if (rc == ESPANK_SUCCESS && text[0] && strcmp(text, DDP_PLAN_OFF))
		return text;
	if (rc == ESPANK_ENV_NOEXIST && !f->rank)
		warn_no_plan(sp);
	free(text);
	if (rc == ESPANK_NOSPACE) {
		ddp_err_set(&err, DDP_ENOSPC, "launch plan: too long");
		refuse(f, &err);
	}
	if (!ddp_spank_is_set(sp, DDP_HET_ENV))
		return NULL;
	text = ddp_het_plan(sp, state, &err);
	if (!text)
		refuse(f, &err);
	return text;
}

static bool task_get(void *arg, const char *name, char *buf, size_t size)
{
	spank_err_t rc = spank_getenv(arg, name, buf, (int)size);

	return rc == ESPANK_SUCCESS || rc == ESPANK_NOSPACE;
}

static int task_set(void *arg, const char *name, const char *value,
		    bool overwrite)
{
	spank_err_t rc = spank_setenv(arg, name, value, overwrite);

	return rc == ESPANK_SUCCESS || rc == ESPANK_ENV_EXISTS ? 0 : -1;
}

static void task_say(void *arg, const char *text)
{
	(void)arg;
	dprintf(STDERR_FILENO, DDP_MSG "%s\n", text);
}

/*
 * Does the command run ddp-launch somewhere, say inside a container? Then
 * the plan stays in the environment: the program carries it out once more,
 * after whatever the container's image set, and removes it.
 */
static bool has_shim(int argc, char **argv)
{
	return ddp_task_argv_has(argc, argv, "ddp-launch") ||
		ddp_task_argv_has(argc, argv, "ddp-launch-static");
}

/* The plan as it was carried out, for the ddp-launch inside. */
static int hand_on(spank_t sp, const struct ddp_plan *plan)
{
	char *text = ddp_plan_format(plan, NULL);
	int rc = text ? task_set(sp, DDP_PLAN_ENV, text, true) : -1;

	free(text);
	return rc;
}

/* With a controller: it decides the port, and that all may start. */
static int take_answer(struct ddp_task *t, const struct ddp_gate_answer *a,
		       struct ddp_err *err)
{
	if (t->plan.mode == DDP_MODE_FULL && a->state == DDP_GATE_WAIT)
		return ddp_err_set(err, DDP_EINCONS, "the launch plan is for "
			"full mode, but srun named no controller");
	if (a->state == DDP_GATE_OPEN && a->port)
		t->plan.port = a->port;
	t->held = a->state == DDP_GATE_OPEN;
	if (!t->plan.port)
		return ddp_err_set(err, DDP_EINCONS, "the launch plan has no "
				   "master port");
	return 0;
}

/* The file in the agent's folder where torch leaves its exception. What an
 * outer step's rank has handed on is not the user's choice. */
static int set_error_file(spank_t sp, const struct ddp_task *t,
			  const struct ddp_gate_answer *a)
{
	char path[DDP_GATE_DIR_MAX + 24], had[DDP_GATE_DIR_MAX + 24];

	if (spank_getenv(sp, DDP_ERROR_FILE_ENV, had, sizeof(had)) ==
	    ESPANK_SUCCESS && ddp_errfile_is_ours(had))
		(void)spank_unsetenv(sp, DDP_ERROR_FILE_ENV);
	if (a->state != DDP_GATE_OPEN || !a->dir[0] ||
	    !(t->plan.frameworks & DDP_FW_TORCHLIKE))
		return 0;
	if (access(a->dir, W_OK))	/* in a /tmp or /dev/shm of its own */
		return 0;
	snprintf(path, sizeof(path), "%s/%" PRIu32 ".json", a->dir, t->r.rank);
	return task_set(sp, DDP_ERROR_FILE_ENV, path, false);
}

/* Nobody made a plan of places: said once a node, and refused where a policy
 * had to be judged. */
static void no_place(struct start *s, const char *why)
{
	struct ddp_err err;

	if (ddp_place_is_strict(&s->ask.req)) {
		ddp_place_unjudged(&s->ask.req, why, err.text,
				   sizeof(err.text));
		refuse(&s->f, &err);
	}
	if (!s->f.local)
		dprintf(STDERR_FILENO, DDP_MSG "warning: node %s: ranks are "
			"not bound to CPUs and GPUs: %s\n", s->f.name, why);
	s->ask.valid = 0;
}

/* CPUs, memory and GPUs, and what the environment tells of them. */
static int take_place(spank_t sp, struct start *s, struct ddp_err *err)
{
	const struct ddp_place_facts facts = { s->f.name, s->f.rank,
		s->f.local, s->f.node == s->t.plan.layout.first };

	if (s->placed.state != DDP_PLACE_DONE) {
		if (s->ask.valid)
			no_place(s, s->answer.state == DDP_GATE_STATELESS ?
				 "the step went on without its controller "
				 "before they were found" : DDP_PLACE_NO_ROOM);
		return 0;
	}
	s->t.r.placed = &s->placed;
	return ddp_place_take(sp, &s->ask, &s->placed, &facts, err);
}

static int start_watch(const struct start *s, const char *command,
		       struct ddp_err *err)
{
	const struct ddp_plan *plan = &s->t.plan;
	bool env = plan->verify || ddp_compat_task_prolog();
	bool place = s->ask.valid && s->ask.req.verify &&
		s->placed.state == DDP_PLACE_DONE;

	return env || place ? ddp_verify_start(plan, &s->t.r, command, env,
					       place, err) : 0;
}

/* The socket of an outer step's agent, which a task has handed on. */
static void forget_socket(spank_t sp)
{
	static const char ours[] = DDP_LIFE_PREFIX;
	char had[DDP_GATE_DIR_MAX];

	if (spank_getenv(sp, DDP_LIFE_SOCKET, had, sizeof(had)) ==
	    ESPANK_SUCCESS && !strncmp(had, ours, sizeof(ours) - 1))
		(void)spank_unsetenv(sp, DDP_LIFE_SOCKET);
}

static int carry_out(spank_t sp, const struct ddp_spank *state,
		     struct start *s, const char *text, struct ddp_err *err)
{
	const struct ddp_task_ops ops = { task_get, task_set, task_say, sp };
	const struct ddp_gate_answer *a = &s->answer;
	struct ddp_task *t = &s->t;
	struct ddp_facts *f = &s->f;
	char **argv = NULL;
	int argc = 0;

	if (spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS)
		argc = 0;
	if (ddp_plan_parse(&t->plan, text, err) || take_answer(t, a, err) ||
	    (t->plan.het && ddp_facts_globalize(sp, f, &t->plan.layout, err)) ||
	    ddp_facts_check(f, &t->plan, err) ||
	    ddp_site_check(&state->site, t->plan.given, t->plan.port, err))
		return -1;
	/* Without a controller srun's plan reaches one component only, and the
	 * others need the launcher: without it all refuse, not half a world. */
	if (t->plan.het && a->state != DDP_GATE_OPEN &&
	    access(state->site.launcher, X_OK))
		return ddp_err_set(err, DDP_ESYS, "heterogeneous step: %s is "
			"not there; install it, or name it by launcher= in "
			"plugstack.conf", state->site.launcher);
	t->r.rank = f->rank;
	t->r.local = f->local;
	t->r.node = f->node;
	t->r.nodename = f->name;
	t->torchrun = ddp_task_argv_torchrun(argc, argv);
	t->library = state->site.lifecycle;
	t->r.life = a->state == DDP_GATE_OPEN && a->life[0] ? a->life : NULL;
	forget_socket(sp);
	if (take_place(sp, s, err) || ddp_task_apply(t, &ops, err))
		return -1;
	if (set_error_file(sp, t, a) ||
	    (has_shim(argc, argv) && hand_on(sp, &t->plan)))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	return start_watch(s, argc ? argv[0] : "", err);
}

/* Slurm's messages are shortened for this launch, not for the program. */
static void unset_reduce(spank_t sp)
{
	char text[16];

	if (spank_getenv(sp, DDP_REDUCE_ENV, text, sizeof(text)) ==
	    ESPANK_SUCCESS && !strcmp(text, DDP_REDUCE_OURS))
		(void)spank_unsetenv(sp, DDP_REDUCE_ENV);
}

/*
 * With a controller: what is wrong with this node is said before the step
 * may start, so that no program starts anywhere. The controller says it then,
 * once; it has the text from the agent.
 */
static void check_early(spank_t sp, const struct ddp_spank *state,
			const struct ddp_facts *f, struct ddp_task *t)
{
	char *text = malloc(DDP_PLAN_MAX);
	struct ddp_err err;

	t->library = state->site.lifecycle;
	if (text && ddp_spank_is_set(sp, DDP_CONTROL_ENV) &&
	    spank_getenv(sp, DDP_PLAN_ENV, text, (int)DDP_PLAN_MAX) ==
	    ESPANK_SUCCESS && !ddp_plan_parse(&t->plan, text, &err) &&
	    t->plan.mode == DDP_MODE_FULL && !t->plan.het &&
	    (ddp_facts_check(f, &t->plan, &err) || ddp_task_check(t, &err))) {
		if (ddp_agent_why(f->local, err.text))
			refuse(f, &err);
		_exit(1);
	}
	free(text);
	ddp_plan_clear(&t->plan);
}

/* A launch of ours? Only then is there anything to wait for. */
static bool has_plan(spank_t sp)
{
	return ddp_spank_is_set(sp, DDP_PLAN_ENV) ||
		ddp_spank_is_set(sp, DDP_HET_ENV);
}

/*
 * With a controller: until the whole step may start. Also for the ranks'
 * places on this node; else at once.
 */
static void wait_for_start(spank_t sp, const struct ddp_spank *state,
			   struct start *s)
{
	bool control = ddp_spank_is_set(sp, DDP_CONTROL_ENV);
	struct ddp_err err;
	int rc = 0;

	if (has_plan(sp))
		rc = ddp_place_ask(sp, state, s->f.shown, &s->ask, &err);
	if (rc)
		refuse(&s->f, &err);
	rc = ddp_agent_wait(sp, &s->ask, &s->answer, &s->placed, &err);
	if (rc && !control) {
		no_place(s, err.text);
		return;
	}
	if (!rc && s->answer.state == DDP_GATE_REFUSED) {
		if (!control && s->placed.state != DDP_PLACE_REFUSED)
			_exit(1);	/* another rank says why */
		rc = ddp_err_set(&err, DDP_ESYS, "%s", control ?
				 s->answer.text : s->placed.why);
	}
	if (rc)
		refuse(&s->f, &err);
}

static void launch_task(spank_t sp, const struct ddp_spank *state,
			struct start *s)
{
	struct ddp_err err;
	char *text;
	int rc;

	rc = ddp_facts_get(sp, &s->f, &err);
	if (!rc) {
		check_early(sp, state, &s->f, &s->t);
		wait_for_start(sp, state, s);
	}
	text = s->answer.text;
	if (!text || !text[0]) {
		free(text);
		text = read_plan(sp, state, &s->f);
	}
	(void)spank_unsetenv(sp, DDP_PLAN_ENV);
	(void)spank_unsetenv(sp, DDP_PLACE_ENV);
	unset_reduce(sp);
	if (!text)
		return;
	(void)spank_unsetenv(sp, DDP_HET_ENV);
	ddp_spank_options_unset(sp);
	if (!rc)
		rc = carry_out(sp, state, s, text, &err);
	free(text);
	ddp_task_clear(&s->t);
	if (rc)
		refuse(&s->f, &err);
}

int ddp_step_task_init(spank_t sp, const struct ddp_spank *state)
{
	struct start *s;
	uint32_t step = 0;

	if (spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return 0;
	if (!ddp_compat_step_is_normal(step)) {
		if (ddp_compat_step_is_batch(step))
			ddp_hint_batch(sp);
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -1;
	launch_task(sp, state, s);
	free(s);
	return 0;
}
