/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun [options] ddp-launch [options] CMD…
 *
 * Sets the launch environment of this task and becomes CMD: same process,
 * signals and exit code. Exit codes of its own: 2 for a wrong call or outside
 * a step, 1 if the launch cannot be made right, errno if CMD cannot be
 * started (as Slurm itself does).
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_explain.h"
#include "core/ddp_site.h"
#include "core/ddp_task.h"
#include "launcher/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Options of this program: those of the plugin without "ddp-". */
static const enum ddp_opt our_options[] = { DDP_OPT_EXPLAIN,
	DDP_OPT_FRAMEWORKS, DDP_OPT_MASTER_PORT, DDP_OPT_MASTER_ADDR,
	DDP_OPT_IFACE, DDP_OPT_LIFECYCLE };

#define NOPTIONS (sizeof(our_options) / sizeof(our_options[0]))
#define OPT_HELP 100
#define OPT_VERSION 101
#define OPT_COMPLETE 102
#define OPT_STATE 103
#define OPT_KILL 104

struct launch {
	struct launch_step step;
	struct ddp_options options;
	char library[4096];	/* libddp_lifecycle.so */
	unsigned given;
	bool commanded;	/* some of it on the command line */
};

static void __attribute__((noreturn)) fail(int code, const struct ddp_err *err)
{
	const char *node = getenv("SLURMD_NODENAME");
	const char *rank = getenv("SLURM_PROCID");
	char n[64], r[16];

	if (node && rank && code != 2)
		fprintf(stderr, LAUNCH_MSG "error: node %s, rank %s: %s\n",
			ddp_text_safe(node, n, sizeof(n)),
			ddp_text_safe(rank, r, sizeof(r)), err->text);
	else
		fprintf(stderr, LAUNCH_MSG "error: %s\n", err->text);
	exit(code);
}

static void help(void)
{
	printf("usage: srun [srun's options] ddp-launch [options] COMMAND…\n\n"
	       "Gives every rank of the step the environment its framework "
	       "reads, then runs COMMAND.\n\n");
	for (unsigned i = 0; i < NOPTIONS; i++) {
		const struct ddp_optdef *d = ddp_optdef_get(our_options[i]);
		char name[64];

		snprintf(name, sizeof(name), "--%s%s%s%s", d->key,
			 !d->arginfo ? "" : d->has_arg == 2 ? "[=" : "=",
			 d->arginfo ? d->arginfo : "",
			 d->has_arg == 2 ? "]" : "");
		printf("  %-26s %s\n", name, d->usage);
	}
	printf("  %-26s %s\n  %-26s %s\n\n"
	       "Each also as --ddp-frameworks and so on, as srun has it, and "
	       "as environment: SLURM_DDP_FRAMEWORKS and so on. See "
	       "ddp-launch(1).\n", "--help", "this text", "--version",
	       "the version, and whether Slurm is built in");
}

static void set_option(struct launch *l, enum ddp_opt opt, const char *text)
{
	struct ddp_err err;

	if (ddp_options_set(&l->options, opt, text, &err))
		fail(2, &err);
	l->given |= 1U << opt;
}

static void read_environment(struct launch *l)
{
	char name[64];

	for (unsigned i = 0; i < NOPTIONS; i++) {
		const char *text;

		snprintf(name, sizeof(name), "SLURM_%s",
			 ddp_optdef_get(our_options[i])->env);
		text = getenv(name);
		if (text && text[0])
			set_option(l, our_options[i], text);
	}
}

/* How many tasks this node has, as far as Slurm's variables tell. */
static uint32_t local_tasks(void)
{
	const char *p = getenv("SLURM_GTIDS");
	uint32_t n = 1;

	for (; p && *p; p++)
		n += *p == ',';
	return n;
}

/* The plugin's announcement of a heterogeneous step, made whole. */
static char *make_announced(void *arg, struct ddp_err *err)
{
	const struct launch *l = arg;
	const char *left = getenv(DDP_HET_ENV);
	struct ddp_plan plan;
	char *text;

	if (!left) {
		ddp_err_set(err, DDP_EINVAL, DDP_HET_ENV " is not set");
		return NULL;
	}
	if (ddp_plan_parse(&plan, left, err))
		return NULL;
	plan.job = l->step.global_job;
	plan.step = l->step.step;
	plan.het = true;
	if (!(plan.given & (1U << DDP_OPT_MASTER_ADDR)))
		plan.addr[0] = '\0';
	ddp_layout_clear(&plan.layout);
	text = launch_slurm_plan(&plan, &l->step, err);
	ddp_plan_clear(&plan);
	return text;
}

/* For the plugin: the plan on stdout, or why there is none on stderr. */
static void __attribute__((noreturn)) complete_plan(struct launch *l)
{
	struct ddp_err err;
	char *text = NULL;

	if (!launch_step_read(&l->step, &err)) {
		l->step.het = true;
		const char *left = getenv(DDP_HET_ENV);

		text = launch_once(&l->step, left ? left : "", local_tasks(),
				   make_announced, l, &err);
	}
	if (!text)
		fail(1, &err);
	if (fputs(text, stdout) < 0 || fflush(stdout))
		exit(1);
	exit(0);
}

/* Options up to the command; returns the index of the command in argv. */
static int read_options(struct launch *l, int argc, char **argv)
{
	struct option table[2 * NOPTIONS + 6] = {
		{ "help", no_argument, NULL, OPT_HELP },
		{ "version", no_argument, NULL, OPT_VERSION },
		{ "complete-plan", no_argument, NULL, OPT_COMPLETE },
		{ "step-state", required_argument, NULL, OPT_STATE },
		{ "kill-step", required_argument, NULL, OPT_KILL },
	};
	struct option *o = table + 5;
	int c;

	/* Also under srun's names: messages speak of those. */
	for (unsigned i = 0; i < NOPTIONS; i++) {
		const struct ddp_optdef *d = ddp_optdef_get(our_options[i]);

		*o++ = (struct option){ d->key, d->has_arg, NULL, (int)i };
		*o++ = (struct option){ d->name, d->has_arg, NULL, (int)i };
	}
	while ((c = getopt_long(argc, argv, "+", table, NULL)) >= 0) {
		if (c == OPT_HELP) {
			help();
			exit(0);
		}
		if (c == OPT_VERSION) {
			printf("ddp-launch %s (%s)\n", PACKAGE_VERSION,
			       launch_slurm_built() ? "Slurm " SLURM_VERSION :
			       "static, without Slurm");
			exit(0);
		}
		if (c == OPT_COMPLETE)
			complete_plan(l);
		if (c == OPT_STATE)
			exit(launch_slurm_state(optarg));
		if (c == OPT_KILL)
			exit(launch_slurm_kill(optarg));
		if (c >= (int)NOPTIONS)
			exit(2);	/* getopt has said what is wrong */
		set_option(l, our_options[c], optarg);
		l->commanded = true;
	}
	return optind;
}

static void plan_init(const struct launch *l, struct ddp_plan *plan)
{
	const char *restart = getenv("SLURM_RESTART_COUNT");

	memset(plan, 0, sizeof(*plan));
	plan->job = l->step.global_job;
	plan->step = l->step.step;
	plan->mode = DDP_MODE_STATELESS;
	plan->frameworks = l->options.frameworks;
	plan->given = l->given;
	plan->port = l->options.port;
	plan->iface = l->options.iface;
	plan->het = l->step.het;
	plan->life = l->options.lifecycle;
	memcpy(plan->ifname, l->options.ifname, sizeof(plan->ifname));
	memcpy(plan->addr, l->options.addr, sizeof(plan->addr));
	if (restart)
		(void)ddp_text_u32(restart, 0, UINT32_MAX, &plan->restart);
}

/* launch_once()'s answer: the whole plan as text. */
static char *make_plan(void *arg, struct ddp_err *err)
{
	struct launch *l = arg;
	struct ddp_plan plan;
	char *text = NULL;

	plan_init(l, &plan);
	if (!launch_step_layout_known(&l->step, plan.frameworks) ||
	    !launch_step_layout(&l->step, &plan.layout, err))
		text = launch_slurm_plan(&plan, &l->step, err);
	ddp_plan_clear(&plan);
	return text;
}

/* The plugin's plan if it left one, else one of our own. */
static void get_plan(struct launch *l, struct ddp_task *t)
{
	const char *left = getenv(DDP_PLAN_ENV);
	const char *restart = getenv("SLURM_RESTART_COUNT");
	char question[DDP_ADDR_MAX + 128], *text;
	struct ddp_err err;

	if (left && left[0] && strcmp(left, DDP_PLAN_OFF)) {
		if (ddp_plan_parse(&t->plan, left, &err))
			fail(1, &err);
		t->again = true;
		if (l->commanded && !l->step.procid)
			fprintf(stderr, LAUNCH_MSG "warning: ddp-launch's own "
				"options have no effect under srun "
				"--ddp-launch; give them to srun\n");
		return;
	}
	snprintf(question, sizeof(question), "%.16s %u %u %u %s %d %s %d",
		 restart ? restart : "", l->given, l->options.frameworks,
		 l->options.port, l->options.addr, (int)l->options.iface,
		 l->options.ifname, l->options.lifecycle);
	text = launch_once(&l->step, question, local_tasks(), make_plan, l,
			   &err);
	if (!text || ddp_plan_parse(&t->plan, text, &err))
		fail(1, &err);
	free(text);
}

static void check_plan(const struct launch *l, const struct ddp_task *t)
{
	const struct launch_step *s = &l->step;
	const struct ddp_layout *layout = &t->plan.layout;
	struct ddp_err err;

	if (t->plan.job == s->global_job && t->plan.step == s->step &&
	    layout->ntasks == s->ntasks && layout->nnodes == s->nnodes &&
	    s->nodeid < layout->nnodes && s->procid < layout->ntasks &&
	    s->localid < layout->tasks[s->nodeid] &&
	    (s->procid || s->nodeid == layout->first))
		return;
	ddp_err_set(&err, DDP_EINCONS, "the launch plan is for step %u.%u with "
		    "%u tasks on %u nodes; this is task %u of %u in step "
		    "%u.%u; unset " DDP_PLAN_ENV, t->plan.job, t->plan.step,
		    layout->ntasks, layout->nnodes, s->procid, s->ntasks,
		    s->global_job, s->step);
	fail(1, &err);
}

static bool env_get(void *arg, const char *name, char *buf, size_t size)
{
	const char *text = getenv(name);

	(void)arg;
	if (!text)
		return false;
	snprintf(buf, size, "%s", text);
	return true;
}

static int env_set(void *arg, const char *name, const char *value,
		   bool overwrite)
{
	(void)arg;
	return setenv(name, value, overwrite);
}

static void env_say(void *arg, const char *text)
{
	(void)arg;
	fprintf(stderr, LAUNCH_MSG "%s\n", text);
}

static const char *env_had(void *arg, const char *name)
{
	(void)arg;
	return getenv(name);
}

/* Collects what the launch replaces, for one warning of rank 0. */
static int warn_replaced(void *arg, const struct ddp_var *v)
{
	const char *had = getenv(v->name);
	char shown[64];

	(void)arg;
	if (had && !(v->flags & (DDP_VAR_DEFAULT | DDP_VAR_ADDS)) && strcmp(had, v->value) &&
	    strcmp(had, DDP_SENTINEL))
		fprintf(stderr, LAUNCH_MSG "warning: inherited %s=%s: replaced "
			"by the launch\n", v->name,
			ddp_text_safe(had, shown, sizeof(shown)));
	return 0;
}

static void speak(const struct launch *l, const struct ddp_task *t)
{
	const struct ddp_explain_ops ops = { env_say, env_had, NULL, false };

	if (t->r.rank)
		return;
	(void)ddp_env_each(&t->plan, &t->r, warn_replaced, NULL);
	if (l->options.explain)
		ddp_explain(&t->plan, l->step.nodes, &ops);
}

/* Beside this program, as in an image, or where both were installed. */
static void find_library(struct launch *l)
{
	static const char name[] = "libddp_lifecycle.so";
	struct ddp_site site;
	ssize_t n = readlink("/proc/self/exe", l->library,
			     sizeof(l->library) - sizeof(name));
	char *slash;

	l->library[n > 0 ? n : 0] = '\0';
	slash = strrchr(l->library, '/');
	if (slash) {
		memcpy(slash + 1, name, sizeof(name));
		if (!access(l->library, R_OK))
			return;
	}
	ddp_site_init(&site);
	(void)ddp_text_copy(l->library, sizeof(l->library), site.lifecycle);
}

/*
 * Look the program up in PATH and exec it, as Slurm does: unlike execvp()
 * without handing a file that is no program to a shell. Returns the errno.
 */
static int exec_path(char **argv)
{
	const char *path = getenv("PATH");
	char full[4096];
	int error = ENOENT;

	if (strchr(argv[0], '/')) {
		execv(argv[0], argv);
		return errno;
	}
	for (const char *p = path ? path : ""; *p;) {
		size_t len = strcspn(p, ":");
		int n = snprintf(full, sizeof(full), "%.*s/%s",
				 len ? (int)len : 1, len ? p : ".", argv[0]);

		if (n > 0 && (size_t)n < sizeof(full)) {
			execv(full, argv);
			if (errno != ENOENT && errno != ENOTDIR)
				error = errno;
			if (errno != ENOENT && errno != ENOTDIR &&
			    errno != EACCES)
				return errno;
		}
		p += p[len] ? len + 1 : len;
	}
	return error;
}

/* Never returns: the program, or the errno why there is none. */
static void __attribute__((noreturn)) become(char **argv)
{
	int error = exec_path(argv);

	fprintf(stderr, LAUNCH_MSG "error: %s: %s\n", argv[0],
		strerror(error));
	exit(error);
}

/*
 * A program may be started with some of its streams closed. Ours must not
 * land on their numbers; close-on-exec, so that CMD finds them closed again.
 */
static void hold_streams(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	const struct ddp_task_ops ops = { env_get, env_set, env_say, NULL };
	static struct launch l;
	struct ddp_task t;
	struct ddp_err err;
	int rc, first;

	hold_streams();
	memset(&l, 0, sizeof(l));
	memset(&t, 0, sizeof(t));
	ddp_options_init(&l.options);
	read_environment(&l);
	first = read_options(&l, argc, argv);
	if (first >= argc) {
		ddp_err_set(&err, DDP_EINVAL, "no command; usage: srun "
			    "ddp-launch [options] COMMAND…");
		fail(2, &err);
	}
	rc = launch_step_read(&l.step, &err);
	if (rc)
		fail(rc > 0 ? 2 : 1, &err);
	get_plan(&l, &t);
	check_plan(&l, &t);
	t.r.rank = l.step.procid;
	t.r.local = l.step.localid;
	t.r.node = l.step.nodeid;
	t.r.nodename = l.step.nodename;
	t.torchrun = ddp_task_argv_torchrun(argc - first, argv + first);
	find_library(&l);
	t.library = l.library;
	speak(&l, &t);
	if (ddp_task_apply(&t, &ops, &err))
		fail(1, &err);
	unsetenv(DDP_PLAN_ENV);
	unsetenv(DDP_HET_ENV);
	ddp_task_clear(&t);
	become(argv + first);
}
