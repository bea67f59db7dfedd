/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts that SPANK does not hand to a plugin in srun: what --export
 * does to the environment, whether a --task-prolog will run after us (both
 * for warnings and checks only), and what was said to Slurm about bad exits
 * and binding.
 */
#include "config.h"

#include "compat/ddp_compat.h"
#include "spank/spank_ddp.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define CMDLINE_MAX (256 * 1024)

static char *cmdline;
static const char *export_list;
static bool task_prolog, keep_running, cpu_bind;
static enum ddp_gpu_said gpu_bind;
static char value[4096];

static size_t read_cmdline(void)
{
	size_t used = 0;
	ssize_t n;
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

	cmdline = fd < 0 ? NULL : malloc(CMDLINE_MAX + 1);
	while (cmdline && used < CMDLINE_MAX &&
	       (n = read(fd, cmdline + used, CMDLINE_MAX - used)) > 0)
		used += (size_t)n;
	if (fd >= 0)
		close(fd);
	if (cmdline)
		cmdline[used] = '\0';
	return used;
}

void ddp_cmdline_clear(void)
{
	free(cmdline);
	cmdline = NULL;
	export_list = NULL;
	task_prolog = keep_running = cpu_bind = false;
	gpu_bind = DDP_GPU_SAID_NOTHING;
}

/* -K0, -K1, --kill-on-bad-exit[=0|1] and its abbreviations. */
static void read_kill(const char *arg)
{
	const char *eq = strchr(arg, '=');

	if (!strncmp(arg, "-K", 2))
		keep_running = !strcmp(arg, "-K0");
	else if (!strncmp(arg, "--k", 3))
		keep_running = eq && !strcmp(eq, "=0");
}

/* "quiet" and "verbose" alone ask for no binding. */
static bool asks_binding(const char *text)
{
	while (*text) {
		size_t n = strcspn(text, ",:");

		if (!(n == 1 && (*text == 'q' || *text == 'v')) &&
		    !(n == 5 && !strncasecmp(text, "quiet", n)) &&
		    !(n == 7 && !strncasecmp(text, "verbose", n)) && n)
			return true;
		text += text[n] ? n + 1 : n;
	}
	return false;
}

static enum ddp_gpu_said gpu_said(const char *text)
{
	if (!asks_binding(text))
		return DDP_GPU_SAID_NOTHING;
	while (!strncmp(text, "verbose,", 8) || !strncmp(text, "v,", 2))
		text = strchr(text, ',') + 1;
	return strcasecmp(text, "none") ? DDP_GPU_SAID_BIND :
		DDP_GPU_SAID_NONE;
}

/* --name=VALUE, --name VALUE, and abbreviations down to min characters; '_'
 * as '-'. Returns the value, or NULL: another option. */
static const char *value_of(const char *arg, const char *next,
			    const char *name, size_t min)
{
	size_t n = strcspn(arg, "=");

	if (n < min || n > strlen(name))
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (arg[i] != name[i] && !(arg[i] == '_' && name[i] == '-'))
			return NULL;
	return arg[n] ? arg + n + 1 : next;
}

/* --tres-bind, the later name of --gpu-bind: "gres/gpu:single:1". */
static enum ddp_gpu_said tres_said(const char *text)
{
	const char *gpu = strstr(text, "gres/gpu:");

	return gpu ? gpu_said(gpu + strlen("gres/gpu:")) :
		DDP_GPU_SAID_NOTHING;
}

static void read_binds(const char *arg, const char *next)
{
	const char *cpu = value_of(arg, next, "--cpu-bind", 7);
	const char *gpu = value_of(arg, next, "--gpu-bind", 7);
	const char *tres = value_of(arg, next, "--tres-bind", 8);

	if (cpu)	/* "quiet" takes back nothing */
		cpu_bind |= asks_binding(cpu);
	if (gpu)
		gpu_bind = gpu_said(gpu);
	if (tres)
		gpu_bind = tres_said(tres);
}

/* What the environment said when srun began: it sets the same variables for
 * its own step. */
static bool env_cpu;
static enum ddp_gpu_said env_gpu;

/* What slurmstepd has told a task of its own binding is no user's wish for
 * the steps that this task starts. */
static bool in_task(void)
{
	const char *step = getenv("SLURM_STEP_ID");
	uint32_t id;

	return step && !ddp_text_u32(step, 0, UINT32_MAX, &id) &&
		ddp_compat_step_is_normal(id);
}

void ddp_cmdline_init(void)
{
	const char *cpu = getenv("SLURM_CPU_BIND");
	const char *gpu = getenv("SLURM_GPU_BIND");
	const char *tres = getenv("SLURM_TRES_BIND");

	env_cpu = cpu && !in_task() && asks_binding(cpu);
	env_gpu = gpu ? gpu_said(gpu) : DDP_GPU_SAID_NOTHING;
	if (tres)
		env_gpu = tres_said(tres);
	/* So sbatch hands --gpus-per-task on. */
	if ((tres && strstr(tres, "gres/gpu:per_task")) ||
	    (gpu && !strncmp(gpu, "per_task", 8)))
		env_gpu = DDP_GPU_SAID_NOTHING;
}

/*
 * Is this word of a heterogeneous srun's the program of a component, after
 * which all is its own until the next ":"? A word without a dash that is no
 * value of the option before it.
 */
static bool begins_program(const char *arg, const char *before)
{
	if (arg[0] == '-' || !strcmp(arg, ":"))
		return false;
	if (!strncmp(before, "--", 2))
		return strchr(before, '=');
	return before[0] != '-' || strlen(before) > 2;
}

void ddp_cmdline_read(int nprog)
{
	const char *env = getenv("SRUN_EXPORT_ENV");
	const char *before = ":";
	size_t used = read_cmdline();
	int argc = 0, i = 0;
	bool program = false;	/* of a heterogeneous srun */

	export_list = env ? env : getenv("SLURM_EXPORT_ENV");
	task_prolog = getenv("SLURM_TASK_PROLOG");
	env = getenv("SLURM_KILL_BAD_EXIT");
	keep_running = env && !strcmp(env, "0");
	cpu_bind = env_cpu;
	gpu_bind = env_gpu;
	for (size_t p = 0; p < used; p += strlen(cmdline + p) + 1)
		argc++;
	for (size_t p = 0; p < used && i < argc - nprog; i++) {
		const char *arg = cmdline + p;

		p += strlen(arg) + 1;
		if (!strcmp(arg, ":"))
			program = false;
		else if (!nprog && i && !program)
			program = begins_program(arg, before);
		before = arg;
		if (program)
			continue;
		if (!strncmp(arg, "--export=", 9))
			export_list = arg + 9;
		else if (!strcmp(arg, "--export") && p < used)
			export_list = cmdline + p;
		else if (!strncmp(arg, "--task-p", 8))
			task_prolog = true;
		else
			read_kill(arg);
		read_binds(arg, p < used ? cmdline + p : "");
	}
}

const char *ddp_cmdline_task_env(const char *name)
{
	const char *p = export_list;
	size_t len = strlen(name);
	bool all = !export_list;

	while (p && *p) {
		size_t n = strcspn(p, ",");

		if (n == 3 && !strncasecmp(p, "ALL", 3))
			all = true;
		if (n == len && !strncmp(p, name, len))
			return getenv(name);
		if (n > len && p[len] == '=' && !strncmp(p, name, len)) {
			n -= len + 1;
			if (n >= sizeof(value))
				n = sizeof(value) - 1;
			memcpy(value, p + len + 1, n);
			value[n] = '\0';
			return value;
		}
		p += p[n] ? n + 1 : n;
	}
	return all ? getenv(name) : NULL;
}

bool ddp_cmdline_task_prolog(void)
{
	return task_prolog;
}

bool ddp_cmdline_cpu_bind(void)
{
	return cpu_bind;
}

enum ddp_gpu_said ddp_cmdline_gpu_bind(void)
{
	return gpu_bind;
}

bool ddp_cmdline_keep_running(void)
{
	return keep_running;
}
