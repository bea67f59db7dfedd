/* SPDX-License-Identifier: Apache-2.0 */
/* What was said to srun about binding: this program is called as srun is. */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_io.h"
#include "spank/spank_ddp.h"
#include "tests/unit/check_main.h"

#include <sys/wait.h>
#include <unistd.h>

#define CALLED "DDP_TEST_CALLED"

/* The answer of a srun that was called so; the program is the last word. */
static int call(const char *const *argv, const char *cpu, const char *gpu)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		if (cpu)
			setenv("SLURM_CPU_BIND", cpu, 1);
		if (gpu)
			setenv("SLURM_GPU_BIND", gpu, 1);
		setenv(CALLED, "1", 1);
		execv("/proc/self/exe", (char *const *)argv);
		_exit(127);
	}
	ck_assert(!ddp_io_wait(pid, &status));
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) >= 16);
	return WEXITSTATUS(status) - 16;
}

/* Up to two words of a command line. */
static int said(const char *one, const char *two, const char *cpu,
		const char *gpu)
{
	const char *argv[6] = { "srun", "-n2" };
	unsigned n = 2;

	if (one)
		argv[n++] = one;
	if (two)
		argv[n++] = two;
	argv[n++] = "./prog";
	return call(argv, cpu, gpu);
}

START_TEST(cpu_bind)
{
	static const struct {
		const char *one, *two, *env;
		bool said;
	} t[] = {
		{ NULL, NULL, NULL, false },
		{ "--cpu-bind=cores", NULL, NULL, true },
		{ "--cpu-bind=none", NULL, NULL, true },
		{ "--cpu-bind=map_cpu:0,1", NULL, NULL, true },
		{ "--cpu-bind", "mask_cpu:0x1", NULL, true },
		{ "--cpu_bind=rank", NULL, NULL, true },
		{ "--cpu_bind", "no", NULL, true },
		{ "--cpu-b=threads", NULL, NULL, true },
		{ "--cpu-bin", "sockets", NULL, true },
		{ "--cpu-bind=quiet", NULL, NULL, false },
		{ "--cpu-bind=v", NULL, NULL, false },
		{ "--cpu-bind", "verbose", NULL, false },
		{ "--cpu-bind=VERBOSE", NULL, NULL, false },
		{ "--cpu-bind=q,cores", NULL, NULL, true },
		{ "--cpu-bind=verbose,none", NULL, NULL, true },
		{ "--cpu-bind=quiet,verbose", NULL, NULL, false },
		{ "--cpu-bind=", NULL, NULL, false },
		{ "--cpu-binds=cores", NULL, NULL, false },
		{ "--cpu-freq=high", "--cpus-per-task=2", NULL, false },
		{ "--cpu=x", NULL, NULL, false },
		{ NULL, NULL, "cores", true },
		{ NULL, NULL, "quiet,mask_cpu:0x3", true },
		{ NULL, NULL, "verbose", false },
		{ NULL, NULL, "", false },
		{ "--cpu-bind=quiet", NULL, "cores", true },
		{ "--cpu-bind=none", "--cpu-bind=verbose", NULL, true },
	};

	for (unsigned i = 0; i < CHECK_COUNT(t); i++)
		ck_assert_msg(said(t[i].one, t[i].two, t[i].env, NULL) ==
			      (t[i].said ? 4 : 0), "%u: %s", i,
			      t[i].one ? t[i].one : "-");
}
END_TEST

START_TEST(gpu_bind)
{
	static const struct {
		const char *one, *two, *env;
		enum ddp_gpu_said said;
	} t[] = {
		{ NULL, NULL, NULL, DDP_GPU_SAID_NOTHING },
		{ "--gpu-bind=none", NULL, NULL, DDP_GPU_SAID_NONE },
		{ "--gpu-bind=None", NULL, NULL, DDP_GPU_SAID_NONE },
		{ "--gpu-bind", "none", NULL, DDP_GPU_SAID_NONE },
		{ "--gpu-bind=verbose,none", NULL, NULL, DDP_GPU_SAID_NONE },
		{ "--gpu-bind=v,none", NULL, NULL, DDP_GPU_SAID_NONE },
		{ "--gpu-bind=closest", NULL, NULL, DDP_GPU_SAID_BIND },
		{ "--gpu-bind=verbose,closest", NULL, NULL,
		  DDP_GPU_SAID_BIND },
		{ "--gpu-b=map_gpu:0,1", NULL, NULL, DDP_GPU_SAID_BIND },
		{ "--gpu-bin", "single:2", NULL, DDP_GPU_SAID_BIND },
		{ "--gpu-bind=per_task:1", NULL, NULL, DDP_GPU_SAID_BIND },
		{ "--gpu-bind=verbose", NULL, NULL, DDP_GPU_SAID_NOTHING },
		{ "--gpu-bind=", NULL, NULL, DDP_GPU_SAID_NOTHING },
		{ "--gpu-freq=low", "--gpus=2", NULL, DDP_GPU_SAID_NOTHING },
		{ NULL, NULL, "none", DDP_GPU_SAID_NONE },
		{ NULL, NULL, "single:1", DDP_GPU_SAID_BIND },
		{ NULL, NULL, "verbose", DDP_GPU_SAID_NOTHING },
		{ "--gpu-bind=none", NULL, "closest", DDP_GPU_SAID_NONE },
		{ "--gpu-bind=closest", "--gpu-bind=none", NULL,
		  DDP_GPU_SAID_NONE },
	};

	for (unsigned i = 0; i < CHECK_COUNT(t); i++)
		ck_assert_msg(said(t[i].one, t[i].two, NULL, t[i].env) ==
			      (int)t[i].said, "%u: %s", i,
			      t[i].one ? t[i].one : "-");
}
END_TEST

/* The words behind the program are its own; one at the end has no value. */
START_TEST(of_the_program)
{
	const char *own[] = { "srun", "./prog", "--cpu-bind=cores", NULL };
	const char *last[] = { "srun", "--cpu-bind", "./prog", NULL };

	setenv(CALLED "_WORDS", "2", 1);
	ck_assert_int_eq(call(own, NULL, NULL), 0);
	setenv(CALLED "_WORDS", "1", 1);
	ck_assert_int_eq(call(last, NULL, NULL), 4);
	setenv(CALLED "_WORDS", "0", 1);
	own[1] = "--cpu-bind";
	own[2] = NULL;
	ck_assert_int_eq(call(own, NULL, NULL), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { cpu_bind, gpu_bind, of_the_program };
	const char *words = getenv(CALLED "_WORDS");

	if (getenv(CALLED)) {
		ddp_cmdline_init();
		ddp_cmdline_read(words ? atoi(words) : 1);
		return 16 + 4 * ddp_cmdline_cpu_bind() +
			(int)ddp_cmdline_gpu_bind();
	}
	unsetenv("SLURM_CPU_BIND");
	unsetenv("SLURM_GPU_BIND");
	return check_run("cmdline", tests, CHECK_COUNT(tests), NULL);
}
