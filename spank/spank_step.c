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
#include "core/ddp_task.h"
#include "spank/spank_ddp.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What slurmstepd itself says of a task; ids are the whole step's. */
struct facts {
	uint32_t job, step, nnodes, ntasks, node, local_tasks, rank, local;
	uint32_t shown;		/* the rank for messages: always the global */
	char name[128];
};

/*
 * Say why and end the task. Not by the return code: Slurm adds two lines of
 * noise to it, and ignores it where plugstack.conf says "optional".
 */
static void __attribute__((noreturn)) refuse(const struct facts *f,
					     const struct ddp_err *err)
{
	(void)ddp_agent_why(f->local, err->text);
	dprintf(STDERR_FILENO, DDP_MSG "error: node %s, rank %" PRIu32 ": %s\n",
		f->name, f->shown, err->text);
	_exit(1);
}

static bool get_u32(spank_t sp, spank_item_t item, uint32_t *out)
{
	return spank_get_item(sp, item, out) == ESPANK_SUCCESS;
}

/* All of a task on its way to the program. */
struct start {
	struct facts f;
	struct ddp_task t;
	struct ddp_ask ask;
	struct ddp_placed placed;
	struct ddp_gate_answer answer;
};

/* slurmstepd has set these in the task's environment itself, just before. */
static bool env_u32(spank_t sp, const char *name, uint32_t *out)
{
	char text[16];

	return spank_getenv(sp, name, text, sizeof(text)) == ESPANK_SUCCESS &&
		!ddp_text_u32(text, 0, UINT32_MAX, out);
}

static int get_facts(spank_t sp, struct facts *f, struct ddp_err *err)
{
	int local = 0;

	if (spank_getenv(sp, "SLURMD_NODENAME", f->name, sizeof(f->name)) !=
	    ESPANK_SUCCESS)
		strcpy(f->name, "?");
	if (!get_u32(sp, S_TASK_GLOBAL_ID, &f->rank) ||
	    !get_u32(sp, S_JOB_ID, &f->job) ||
	    !get_u32(sp, S_JOB_STEPID, &f->step) ||
	    !get_u32(sp, S_JOB_NNODES, &f->nnodes) ||
	    !get_u32(sp, S_JOB_TOTAL_TASK_COUNT, &f->ntasks) ||
	    !get_u32(sp, S_JOB_NODEID, &f->node) ||
	    !get_u32(sp, S_JOB_LOCAL_TASK_COUNT, &f->local_tasks) ||
	    spank_get_item(sp, S_TASK_ID, &local) != ESPANK_SUCCESS)
		return ddp_err_set(err, DDP_ESYS, "slurmstepd does not say "
				   "which task this is");
	f->local = (uint32_t)local;
	if (!env_u32(sp, "SLURM_PROCID", &f->shown))
		f->shown = f->rank;
	/* In a heterogeneous job the first component's, as tasks see it. */
	(void)env_u32(sp, "SLURM_JOB_ID", &f->job);
	return 0;
}

/* SPANK's ids are of one component; the environment has the global ones. */
static int globalize(spank_t sp, struct facts *f,
		     const struct ddp_layout *l, struct ddp_err *err)
{
	if (!env_u32(sp, "SLURM_PROCID", &f->rank) ||
	    !env_u32(sp, "SLURM_NODEID", &f->node))
		return ddp_err_set(err, DDP_ESYS, "slurmstepd does not say "
				   "which task this is");
	f->nnodes = l->nnodes;
	f->ntasks = l->ntasks;
	return 0;
}

/* slurmstepd's counts decide over the plan's. */
static int check_plan(const struct facts *f, const struct ddp_plan *plan,
		      struct ddp_err *err)
{
	const struct ddp_layout *l = &plan->layout;

	if (f->job != plan->job || f->step != plan->step)
		return ddp_err_set(err, DDP_EINCONS, "the launch plan is for "
			"step %u.%u, this is %u.%u; unset " DDP_PLAN_ENV,
			plan->job, plan->step, f->job, f->step);
	if (f->nnodes != l->nnodes || f->ntasks != l->ntasks ||
	    f->node >= l->nnodes || f->rank >= l->ntasks ||
	    l->tasks[f->node] != f->local_tasks ||
	    f->local >= f->local_tasks || (!f->rank && f->node != l->first))
		return ddp_err_set(err, DDP_EINCONS, "the launch plan has %u "
			"tasks on %u nodes, slurmstepd has %u on %u (node %u: "
			"%u tasks)", l->ntasks, l->nnodes, f->ntasks,
			f->nnodes, f->node, f->local_tasks);
	return 0;
}

/* A launch was asked for, and this srun knows nothing of launches. */
static void warn_no_plan(spank_t sp)
{
	char mode[16], probe[2];

	if (spank_getenv(sp, "SLURM_DDP_LAUNCH", mode, sizeof(mode)) !=
	    ESPANK_SUCCESS || !mode[0] || !strcmp(mode, "off") ||
	    spank_getenv(sp, DDP_HET_ENV, probe, sizeof(probe)) !=
	    ESPANK_ENV_NOEXIST)
		return;
	dprintf(STDERR_FILENO, DDP_MSG "warning: SLURM_DDP_LAUNCH is set, but "
		"srun made no launch plan: the plugstack.conf that srun reads "
		"does not load spank_ddp.so\n");
}

/* The text of the plan; NULL if this task is no launch of ours. */
static char *read_plan(spank_t sp, const struct ddp_spank *state,
		       const struct facts *f)
{
	char *text = malloc(DDP_PLAN_MAX), probe[2];
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
	if (spank_getenv(sp, DDP_HET_ENV, probe, sizeof(probe)) ==
	    ESPANK_ENV_NOEXIST)
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
		ddp_err_set(&err, DDP_ESYS, "the policy %s cannot be judged: "
			    "%s", ddp_bind_policy_name(s->ask.req.policy),
			    why);
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

static int carry_out(spank_t sp, const struct ddp_spank *state,
		     struct start *s, const char *text, struct ddp_err *err)
{
	const struct ddp_task_ops ops = { task_get, task_set, task_say, sp };
	const struct ddp_gate_answer *a = &s->answer;
	struct ddp_task *t = &s->t;
	struct facts *f = &s->f;
	char **argv = NULL;
	int argc = 0;

	if (spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS)
		argc = 0;
	if (ddp_plan_parse(&t->plan, text, err) || take_answer(t, a, err) ||
	    (t->plan.het && globalize(sp, f, &t->plan.layout, err)) ||
	    check_plan(f, &t->plan, err) ||
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

static bool has_control(spank_t sp)
{
	char probe[2];

	return spank_getenv(sp, DDP_CONTROL_ENV, probe, sizeof(probe)) !=
		ESPANK_ENV_NOEXIST;
}

/*
 * With a controller: what is wrong with this node is said before the step
 * may start, so that no program starts anywhere. The controller says it then,
 * once; it has the text from the agent.
 */
static void check_early(spank_t sp, const struct facts *f, struct ddp_task *t)
{
	char *text = malloc(DDP_PLAN_MAX);
	struct ddp_err err;

	if (text && has_control(sp) &&
	    spank_getenv(sp, DDP_PLAN_ENV, text, (int)DDP_PLAN_MAX) ==
	    ESPANK_SUCCESS && !ddp_plan_parse(&t->plan, text, &err) &&
	    t->plan.mode == DDP_MODE_FULL && !t->plan.het &&
	    (check_plan(f, &t->plan, &err) || ddp_task_check(t, &err))) {
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
	char probe[2];

	return spank_getenv(sp, DDP_PLAN_ENV, probe, sizeof(probe)) !=
		ESPANK_ENV_NOEXIST ||
		spank_getenv(sp, DDP_HET_ENV, probe, sizeof(probe)) !=
		ESPANK_ENV_NOEXIST;
}

/*
 * With a controller: until the whole step may start. Also for the ranks'
 * places on this node; else at once.
 */
static void wait_for_start(spank_t sp, const struct ddp_spank *state,
			   struct start *s)
{
	bool control = has_control(sp);
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

	rc = get_facts(sp, &s->f, &err);
	if (!rc) {
		check_early(sp, &s->f, &s->t);
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
	ddp_plan_clear(&s->t.plan);
	if (rc)
		refuse(&s->f, &err);
}

/* Does the first MiB of the file contain the word anywhere? */
static bool file_mentions(const char *path, const char *word)
{
	char *text = malloc((1 << 20) + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t used = 0;
	ssize_t n;
	bool found = true;	/* what cannot be read is not complained of */

	while (text && fd >= 0 && used < 1 << 20 &&
	       (n = read(fd, text + used, (1 << 20) - used)) > 0)
		used += (size_t)n;
	if (used)
		found = memmem(text, used, word, strlen(word));
	if (fd >= 0)
		close(fd);
	free(text);
	return found;
}

/* The batch script is left alone; it only hears if it launches nothing. */
static void hint_batch(spank_t sp)
{
	char mode[16], **argv = NULL;
	int argc = 0;

	if (spank_getenv(sp, "SLURM_DDP_LAUNCH", mode, sizeof(mode)) !=
	    ESPANK_SUCCESS || !strcmp(mode, "off") ||
	    spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS ||
	    argc < 1 || !argv || !argv[0])
		return;
	if (!file_mentions(argv[0], "srun") &&
	    !file_mentions(argv[0], "mpirun") &&
	    !file_mentions(argv[0], "mpiexec"))
		dprintf(STDERR_FILENO, DDP_MSG "hint: --ddp-launch was given "
			"to sbatch, but the script calls no srun: the script "
			"itself is not launched as ranks; write \"srun "
			"python3 train.py\" in it\n");
}

int ddp_step_task_init(spank_t sp, const struct ddp_spank *state)
{
	struct start *s;
	uint32_t step = 0;

	if (!get_u32(sp, S_JOB_STEPID, &step))
		return 0;
	if (!ddp_compat_step_is_normal(step)) {
		if (ddp_compat_step_is_batch(step))
			hint_batch(sp);
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -1;
	launch_task(sp, state, s);
	free(s);
	return 0;
}
