/* SPDX-License-Identifier: Apache-2.0 */
/* The SPANK adapter against a stub: srun, sbatch and a task on a node. */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_env.h"
#include "core/ddp_place.h"
#include "tests/fakes/spank_stub.h"
#include "tests/unit/check_main.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPANK_JOB "SLURM_SPANK__SLURM_SPANK_OPTION_ddp_"

static uint32_t ids0[] = { 2 }, ids1[] = { 0, 1 };
static uint32_t *tids[] = { ids0, ids1 };
static uint16_t tasks[] = { 1, 2 };
static char list[] = "n[1,4]";
static slurm_step_layout_t layout;
static char *args[8];
static int nargs;

/* An srun of 3 tasks on two nodes, arbitrary: rank 0 on the second. */
static void start(spank_context_t context)
{
	slurm_spank_exit(stub_handle(), 0, NULL);
	stub_reset(context);
	memset(&layout, 0, sizeof(layout));
	layout.node_cnt = 2;
	layout.node_list = list;
	layout.tasks = tasks;
	layout.tids = tids;
	layout.task_cnt = 3;
	stub.job = 7;
	stub.step = 1;
	stub.nnodes = 2;
	stub.ntasks = 3;
	stub.layout = &layout;
	stub.node_addr = "127.0.0.7";
	stub.node_host = "box";
	ck_assert(!slurm_spank_init(stub_handle(), nargs, args));
}

static void setup(void)
{
	static const char *const names[] = { "RANK", "WORLD_SIZE",
		"LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
		"SLURM_JOB_ID", "SLURM_DDP_LAUNCH", "SLURM_DDP_PLAN",
		"SLURM_RESTART_COUNT", "SLURM_EXPORT_ENV", NULL };

	for (unsigned i = 0; names[i]; i++)
		unsetenv(names[i]);
	nargs = 0;
}

static int srun(void)
{
	ck_assert(!slurm_spank_init_post_opt(stub_handle(), 0, NULL));
	return slurm_spank_local_user_init(stub_handle(), 0, NULL);
}

static void said(const char *text)
{
	ck_assert_msg(strstr(stub.log, text), "\"%s\" not in: %s", text,
		      stub.log);
}

START_TEST(registers_options)
{
	start(S_CTX_LOCAL);
	ck_assert_uint_eq(stub.noptions, DDP_OPT_COUNT);
	start(S_CTX_REMOTE);
	ck_assert_uint_eq(stub.noptions, DDP_OPT_COUNT);
	start(S_CTX_ALLOCATOR);
	ck_assert_uint_eq(stub.noptions, DDP_OPT_COUNT);
	start(S_CTX_SLURMD);
	ck_assert_uint_eq(stub.noptions, 0);
}
END_TEST

START_TEST(off_by_default)
{
	setenv(DDP_PLAN_ENV, "left over", 1);
	start(S_CTX_LOCAL);
	ck_assert(!srun());
	ck_assert_uint_eq(stub.rpcs, 0);
	ck_assert_ptr_null(getenv(DDP_PLAN_ENV));
	ck_assert_ptr_null(getenv("RANK"));
	ck_assert_str_eq(stub.log, "");
}
END_TEST

START_TEST(srun_plan)
{
	struct ddp_plan plan;
	struct ddp_err err;

	start(S_CTX_LOCAL);
	setenv("SLURM_RESTART_COUNT", "3", 1);
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	ck_assert(!srun());
	ck_assert_uint_eq(stub.rpcs, 2);
	ck_assert_str_eq(stub.asked, "n4");
	ck_assert_msg(!ddp_plan_parse(&plan, getenv(DDP_PLAN_ENV), &err), "%s",
		      err.text);
	ck_assert_uint_eq(plan.job, 7);
	ck_assert_uint_eq(plan.step, 1);
	ck_assert_uint_eq(plan.restart, 3);
	ck_assert_str_eq(plan.addr, "127.0.0.7");
	ck_assert_str_eq(plan.host, "box");
	ck_assert_uint_eq(plan.layout.first, 1);
	ck_assert_uint_ge(plan.port, 1024);
	for (unsigned i = 0; ddp_env_sentinels[i]; i++)
		ck_assert_str_eq(getenv(ddp_env_sentinels[i]), DDP_SENTINEL);
	ddp_plan_clear(&plan);
}
END_TEST

/* What is wanted of the places goes to the nodes; an older order does not. */
START_TEST(srun_place)
{
	setenv(DDP_PLACE_ENV, "left over", 1);
	start(S_CTX_LOCAL);
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	ck_assert(!stub_option("ddp-gpus", "rank", 0));
	ck_assert(!srun());
	ck_assert_str_eq(getenv(DDP_PLACE_ENV), "v=1;bind=best-effort;verify=0;"
			 "gpus=rank;cpu=0;gpu=0;explain=0");
	start(S_CTX_LOCAL);
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	ck_assert(!stub_option("ddp-bind", "none", 0));
	ck_assert(!srun());
	ck_assert_ptr_null(getenv(DDP_PLACE_ENV));
}
END_TEST

static int log_fd;

static void write_log(void)
{
	const char *plan = getenv(DDP_PLAN_ENV);

	dprintf(log_fd, "%s\n%s", stub.log, plan ? plan : "");
}

/* srun() in a child that must exit with 1, and what it said last. */
static void srun_exits(const char *text)
{
	static char out[4096];
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	ck_assert(!pipe(fds));
	pid = fork();
	if (!pid) {
		log_fd = fds[1];
		atexit(write_log);
		(void)srun();
		exit(0);
	}
	close(fds[1]);
	n = read(fds[0], out, sizeof(out) - 1);
	out[n > 0 ? n : 0] = '\0';
	close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert_msg(strstr(out, text), "\"%s\" not in: %s", text, out);
	ck_assert(strstr(out, DDP_PLAN_REFUSED));
}

/* The return code alone would be ignored for an "optional" plugin. */
START_TEST(srun_failures)
{
	start(S_CTX_LOCAL);
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	stub.layout = NULL;
	srun_exits("no layout of step 7.1");
}
END_TEST

START_TEST(srun_no_node)
{
	start(S_CTX_LOCAL);
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	stub.node_addr = NULL;
	srun_exits("no record of node n4");
}
END_TEST

/* Told not to launch, srun says so to the nodes if they could think else. */
START_TEST(srun_off_is_said)
{
	setenv("SLURM_DDP_LAUNCH", "full", 1);
	start(S_CTX_LOCAL);
	ck_assert(!stub_option("ddp-launch", "off", 0));
	ck_assert(!srun());
	ck_assert_str_eq(getenv(DDP_PLAN_ENV), DDP_PLAN_OFF);
}
END_TEST

START_TEST(inherited_is_named_once)
{
	start(S_CTX_LOCAL);
	setenv("MASTER_ADDR", "n5", 1);
	setenv("RANK", "55", 1);
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	ck_assert(!srun());
	said("RANK=55");
	said("MASTER_ADDR=n5");
	ck_assert_ptr_null(strstr(strstr(stub.log, "warning") + 1, "warning"));
}
END_TEST

/* sbatch's (by Slurm's own variable) gives way to the environment. */
START_TEST(precedence)
{
	setenv(SPANK_JOB "ddp_launch", "stateless", 1);
	start(S_CTX_LOCAL);
	ck_assert(!stub_option("ddp-launch", getenv(SPANK_JOB "ddp_launch"),
			       0));
	ck_assert(!srun());
	ck_assert_ptr_nonnull(getenv(DDP_PLAN_ENV));
	setenv("SLURM_DDP_LAUNCH", "off", 1);
	start(S_CTX_LOCAL);
	ck_assert(!stub_option("ddp-launch", getenv(SPANK_JOB "ddp_launch"),
			       0));
	ck_assert(!srun());
	ck_assert_ptr_null(getenv(DDP_PLAN_ENV));
}
END_TEST

/* plugstack.conf lists the plugin twice: one launch, no false component. */
START_TEST(listed_twice)
{
	start(S_CTX_LOCAL);
	ck_assert(!slurm_spank_init(stub_handle(), 0, NULL));
	said("twice");
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	for (unsigned i = 0; i < 2; i++)
		ck_assert(!slurm_spank_init_post_opt(stub_handle(), 0, NULL));
	for (unsigned i = 0; i < 2; i++)
		ck_assert(!slurm_spank_local_user_init(stub_handle(), 0,
						       NULL));
	ck_assert_uint_eq(stub.rpcs, 2);
	ck_assert_ptr_nonnull(getenv(DDP_PLAN_ENV));
	ck_assert_ptr_null(strstr(stub.log, "error: "));
}
END_TEST

START_TEST(command_line_wins)
{
	setenv("SLURM_DDP_LAUNCH", "off", 1);
	start(S_CTX_LOCAL);
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	ck_assert(!srun());
	ck_assert_ptr_nonnull(getenv(DDP_PLAN_ENV));
	ck_assert(strstr(getenv(DDP_PLAN_ENV), "mode=stateless"));
}
END_TEST

START_TEST(bad_options)
{
	start(S_CTX_LOCAL);
	ck_assert_int_eq(stub_option("ddp-launch", "%s%n", 0), -1);
	said("full, stateless, off");
	ck_assert_int_eq(stub_option("ddp-master-port", "22", 0), -1);
	ck_assert_int_eq(stub_option("ddp-frameworks", "caffe", 0), -1);
	said("torch,jax");
	/* on a node the bytes are not even looked at */
	start(S_CTX_REMOTE);
	ck_assert_int_eq(stub_option("ddp-launch", "%s%n", 1), 0);
	ck_assert_str_eq(stub.log, "");
}
END_TEST

START_TEST(site_arguments)
{
	static char mode[] = "mode=stateless", bad[] = "ports=1";

	args[0] = mode;
	args[1] = bad;
	nargs = 2;
	start(S_CTX_LOCAL);
	said("\"ports=1\" ignored");
	ck_assert(!srun());
	ck_assert_ptr_nonnull(getenv(DDP_PLAN_ENV));
}
END_TEST

START_TEST(mpirun_is_left_alone)
{
	static char orted[] = "/usr/bin/orted", *argv[] = { orted, NULL };

	start(S_CTX_LOCAL);
	stub.argc = 1;
	stub.argv = argv;
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	ck_assert(!srun());
	ck_assert_uint_eq(stub.rpcs, 0);
	ck_assert_ptr_null(getenv(DDP_PLAN_ENV));
}
END_TEST

START_TEST(torchrun_hint)
{
	static char torchrun[] = "torchrun", *argv[] = { torchrun, NULL };

	start(S_CTX_LOCAL);
	stub.argc = 1;
	stub.argv = argv;
	ck_assert(!stub_option("ddp-launch", "stateless", 0));
	ck_assert(!srun());
	said("torchrun");
}
END_TEST

START_TEST(sbatch_hands_on)
{
	start(S_CTX_ALLOCATOR);
	ck_assert(!stub_option("ddp-launch", NULL, 0));
	ck_assert(!slurm_spank_init_post_opt(stub_handle(), 0, NULL));
	ck_assert_str_eq(getenv("SLURM_DDP_LAUNCH"), "full");
	ck_assert_ptr_null(getenv(DDP_PLAN_ENV));
	ck_assert_ptr_null(getenv("RANK"));
}
END_TEST

START_TEST(nested_sbatch_forgets)
{
	setenv("SLURM_JOB_ID", "7", 1);
	setenv("SLURM_DDP_LAUNCH", "full", 1);
	setenv(SPANK_JOB "ddp_launch", "full", 1);
	start(S_CTX_ALLOCATOR);
	ck_assert_ptr_null(getenv("SLURM_DDP_LAUNCH"));
	ck_assert_ptr_null(getenv(SPANK_JOB "ddp_launch"));
}
END_TEST

/* A task, in a child: its stderr is in said_by_task, its status returned. */
static char said_by_task[4096];
static char env_of_task[8192];

static int run_task(void)
{
	int err[2], out[2], status;
	pid_t pid;
	ssize_t n;

	ck_assert(!pipe(err) && !pipe(out));
	pid = fork();
	if (!pid) {
		dup2(err[1], STDERR_FILENO);
		if (slurm_spank_task_init(stub_handle(), 0, NULL))
			_exit(99);
		for (unsigned i = 0; i < STUB_ENV_MAX; i++)
			if (stub.env[i])
				dprintf(out[1], "%s\n", stub.env[i]);
		_exit(0);
	}
	close(err[1]);
	close(out[1]);
	n = read(err[0], said_by_task, sizeof(said_by_task) - 1);
	said_by_task[n > 0 ? n : 0] = '\0';
	n = read(out[0], env_of_task, sizeof(env_of_task) - 1);
	env_of_task[n > 0 ? n : 0] = '\0';
	close(err[0]);
	close(out[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

#define PLAN "v=1;job=7;step=1;restart=0;mode=stateless;fw=torch;given=0;" \
	"addr=10.0.0.7;port=20007;verify=0;iface=none;tasks=1,2;order=1,0"

/* Task 1 of node n4: global rank 1, the node is the second of Slurm's. */
static void task(const char *plan)
{
	start(S_CTX_REMOTE);
	stub.node = 1;
	stub.local_tasks = 2;
	stub.local = 1;
	stub.rank = 1;
	spank_setenv(stub_handle(), "SLURMD_NODENAME", "n4", 1);
	spank_setenv(stub_handle(), "RANK", DDP_SENTINEL, 1);
	spank_setenv(stub_handle(), "OMP_NUM_THREADS", "5", 1);
	if (plan)
		spank_setenv(stub_handle(), DDP_PLAN_ENV, plan, 1);
}

START_TEST(task_environment)
{
	task(PLAN);
	ck_assert_int_eq(run_task(), 0);
	ck_assert_str_eq(said_by_task, "");
	ck_assert(strstr(env_of_task, "RANK=1\n"));
	ck_assert(strstr(env_of_task, "LOCAL_WORLD_SIZE=2\n"));
	ck_assert(strstr(env_of_task, "NODE_RANK=0\n"));
	ck_assert(strstr(env_of_task, "OMP_NUM_THREADS=5\n"));
	ck_assert(!strstr(env_of_task, DDP_PLAN_ENV));
	ck_assert(!strstr(env_of_task, DDP_SENTINEL));
}
END_TEST

START_TEST(task_without_plan)
{
	task(NULL);
	ck_assert_int_eq(run_task(), 0);
	ck_assert(strstr(env_of_task, "RANK=" DDP_SENTINEL));
}
END_TEST

START_TEST(task_without_plan_but_asked)
{
	task(NULL);
	stub.rank = 0;
	spank_setenv(stub_handle(), "SLURM_DDP_LAUNCH", "full", 1);
	ck_assert_int_eq(run_task(), 0);
	ck_assert(strstr(said_by_task, "srun made no launch plan"));
	task(DDP_PLAN_OFF);
	stub.rank = 0;
	spank_setenv(stub_handle(), "SLURM_DDP_LAUNCH", "full", 1);
	ck_assert_int_eq(run_task(), 0);
	ck_assert_str_eq(said_by_task, "");
	ck_assert(!strstr(env_of_task, DDP_PLAN_ENV));
}
END_TEST

/* In a step that a rank has started: its file is not this step's. */
START_TEST(error_file_of_an_outer_rank)
{
	task(PLAN);
	spank_setenv(stub_handle(), "TORCHELASTIC_ERROR_FILE",
		     "/dev/shm/ddp-agent-a1B2c3/0.json", 1);
	ck_assert_int_eq(run_task(), 0);
	ck_assert(!strstr(env_of_task, "TORCHELASTIC"));
	task(PLAN);
	spank_setenv(stub_handle(), "TORCHELASTIC_ERROR_FILE",
		     "/dev/shm/ddp-mine/0.json", 1);
	ck_assert_int_eq(run_task(), 0);
	ck_assert(strstr(env_of_task, "=/dev/shm/ddp-mine/0.json"));
}
END_TEST

START_TEST(batch_step_is_left_alone)
{
	task(PLAN);
	stub.step = SLURM_BATCH_SCRIPT;
	ck_assert_int_eq(run_task(), 0);
	ck_assert(strstr(env_of_task, DDP_PLAN_ENV));
	stub.step = SLURM_EXTERN_CONT;
	ck_assert_int_eq(run_task(), 0);
	ck_assert(strstr(env_of_task, DDP_PLAN_ENV));
}
END_TEST

/* Whatever contradicts slurmstepd ends the task before the program. */
START_TEST(task_refuses)
{
	static const char *const bad[] = {
		"garbage", DDP_PLAN_REFUSED,
		"v=1;job=8;step=1;restart=0;mode=stateless;fw=torch;given=0;"
		"addr=10.0.0.7;port=20007;verify=0;iface=none;tasks=1,2",
		"v=1;job=7;step=1;restart=0;mode=stateless;fw=torch;given=0;"
		"addr=10.0.0.7;port=20007;verify=0;iface=none;tasks=2,1",
		"v=1;job=7;step=1;restart=0;mode=stateless;fw=torch;given=0;"
		"addr=10.0.0.7;port=20007;verify=0;iface=none;tasks=3",
		"v=1;job=7;step=1;restart=0;mode=stateless;fw=torch;given=0;"
		"addr=10.0.0.7;port=20007;verify=0;iface=nope;tasks=1,2",
	};

	for (unsigned i = 0; i < CHECK_COUNT(bad); i++) {
		task(bad[i]);
		ck_assert_msg(run_task() == 1, "%s", bad[i]);
		ck_assert_msg(strstr(said_by_task, "ddp: error: node n4, "
				     "rank 1: "), "%s", said_by_task);
	}
}
END_TEST

/* There is no agent: said, and refused where a policy has to be judged. */
START_TEST(task_place)
{
	ddp_cpus before, after;

	ck_assert(!sched_getaffinity(0, sizeof(before), (cpu_set_t *)before));
	task(PLAN);
	stub.local = 0;
	spank_setenv(stub_handle(), DDP_PLACE_ENV, "v=1;bind=best-effort;"
		     "verify=0;gpus=auto;cpu=0;gpu=0;explain=0", 1);
	ck_assert_int_eq(run_task(), 0);
	ck_assert_msg(strstr(said_by_task, "ranks are not bound to CPUs and "
			     "GPUs"), "%s", said_by_task);
	ck_assert(!strstr(env_of_task, DDP_PLACE_ENV));
	task(PLAN);
	spank_setenv(stub_handle(), DDP_PLACE_ENV, "v=1;bind=restricted;"
		     "verify=0;gpus=auto;cpu=0;gpu=0;explain=0", 1);
	ck_assert_int_eq(run_task(), 1);
	task(PLAN);
	spank_setenv(stub_handle(), DDP_PLACE_ENV, "v=2", 1);
	ck_assert_int_eq(run_task(), 1);
	ck_assert(strstr(said_by_task, "different versions"));
	ck_assert(!sched_getaffinity(0, sizeof(after), (cpu_set_t *)after));
	ck_assert_mem_eq(before, after, sizeof(cpu_set_t));
}
END_TEST

START_TEST(task_checks_site)
{
	static char range[] = "port_range=30000-30010";

	args[0] = range;
	nargs = 1;
	task(PLAN);
	ck_assert_int_eq(run_task(), 1);
	ck_assert(strstr(said_by_task, "30000-30010"));
}
END_TEST

START_TEST(loopback_master)
{
	task("v=1;job=7;step=1;restart=0;mode=stateless;fw=torch;given=0;"
	     "addr=127.0.0.7;port=20007;verify=0;iface=none;tasks=1,2;"
	     "order=1,0;host=no-such-host");
	ck_assert_int_eq(run_task(), 1);
	ck_assert(strstr(said_by_task, "loopback"));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { registers_options,
		off_by_default, srun_plan, srun_place, srun_failures, srun_no_node, srun_off_is_said,
		inherited_is_named_once, precedence, command_line_wins, listed_twice,
		bad_options,
		site_arguments, mpirun_is_left_alone, torchrun_hint,
		sbatch_hands_on, nested_sbatch_forgets, task_environment,
		task_without_plan, task_without_plan_but_asked,
		error_file_of_an_outer_rank,
		batch_step_is_left_alone, task_refuses,
		task_place, task_checks_site, loopback_master };

	return check_run("spank", tests, CHECK_COUNT(tests), setup);
}
