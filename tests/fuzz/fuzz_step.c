/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm's variables as ddp-launch reads them: one line of the input for each
 * variable, "-" for unset; the last line is a slurmstepd's title.
 */
#include "launcher/launch_step.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = { "SLURM_JOB_ID", "SLURM_STEP_ID",
	"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
	"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES",
	"SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST", "SLURMD_NODENAME",
	"SLURM_GTIDS", "SLURM_DISTRIBUTION", "SLURM_HET_SIZE" };

#define NAMES (sizeof(names) / sizeof(names[0]))

/* setenv() never frees what it replaces; putenv() leaves that to us. */
static void set(unsigned i, const char *value)
{
	static char *kept[NAMES];
	char *now = NULL;

	if (!strcmp(value, "-"))
		unsetenv(names[i]);
	else if (asprintf(&now, "%s=%s", names[i], value) < 0 || putenv(now))
		abort();
	free(kept[i]);
	kept[i] = now;
}

static void check(const struct launch_step *s)
{
	struct ddp_layout l;
	struct ddp_err err;

	if (s->procid >= s->ntasks || s->nodeid >= s->nnodes)
		abort();
	if (launch_step_layout(s, &l, &err))
		return;
	if (l.nnodes != s->nnodes || l.ntasks != s->ntasks ||
	    s->localid >= l.tasks[s->nodeid])
		abort();
	ddp_layout_clear(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct launch_step s;
	struct ddp_err err;
	char *text = malloc(size + 1), *p = text, *next;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	for (unsigned i = 0; i < NAMES; i++, p = next) {
		next = p + strcspn(p, "\n");
		if (*next)
			*next++ = '\0';
		set(i, p);
	}
	if (!launch_step_read(&s, &err))
		check(&s);
	memset(&s, 0, sizeof(s));
	if (!launch_step_title(&s, p, &err) && s.seen && !s.job)
		abort();
	free(text);
	return 0;
}
