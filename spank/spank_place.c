/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place of a task. srun says what is wanted (one line in the launch
 * environment); a task tells the agent what Slurm has given it, waits at the
 * gate, and takes the place that it is then given: CPUs and memory of this
 * process, the lists of visible GPUs in its environment.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_cpus.h"
#include "core/ddp_seat.h"
#include "core/ddp_vis.h"
#include "spank/spank_ddp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* PCI's numbers of vendors. */
#define NVIDIA 0x10de
#define AMD 0x1002
#define INTEL 0x8086

/* Lists of visible GPUs that Slurm sets, by vendor; the first that is set
 * counts, and others that say the same are kept the same. */
static const struct {
	const char *name;
	uint32_t vendor;
} lists[] = {
	{ "CUDA_VISIBLE_DEVICES", NVIDIA }, { "ROCR_VISIBLE_DEVICES", AMD },
	{ "ZE_AFFINITY_MASK", INTEL }, { "HIP_VISIBLE_DEVICES", AMD },
	{ "GPU_DEVICE_ORDINAL", 0 },
};

#define LISTS (sizeof(lists) / sizeof(lists[0]))

int ddp_place_announce(const struct ddp_spank *state, struct ddp_err *err)
{
	const struct ddp_options *o = &state->options;
	struct ddp_place_req r = {
		.policy = o->bind, .verify = o->bind_verify, .gpus = o->gpus,
		.cpu_said = ddp_cmdline_cpu_bind(),
		.gpu_said = ddp_cmdline_gpu_bind(), .explain = o->explain,
	};
	char text[DDP_PLACE_MAX];

	if (r.policy == DDP_BIND_NONE && r.gpus == DDP_GPUS_AUTO)
		return 0;	/* nobody has anything to do */
	ddp_place_format(&r, text);
	return setenv(DDP_PLACE_ENV, text, 1) ?
		ddp_err_set(err, DDP_ENOMEM, "out of memory") : 0;
}

static bool get(spank_t sp, const char *name, char *buf, size_t size)
{
	return spank_getenv(sp, name, buf, (int)size) == ESPANK_SUCCESS;
}

/*
 * Slurm's cores of the step, where its idea of a core is the kernel's: it
 * counts as many CPUs a core as the kernel has threads.
 */
static void find_cores(spank_t sp, struct ddp_ask *ask)
{
	char *cores = NULL, text[16];
	uint32_t cpus;
	ddp_cpus set;
	int n;

	if (spank_get_item(sp, S_STEP_ALLOC_CORES, &cores) != ESPANK_SUCCESS ||
	    !cores || !get(sp, "SLURM_CPUS_ON_NODE", text, sizeof(text)) ||
	    ddp_text_u32(text, 1, DDP_PLACE_CPUS, &cpus))
		return;
	n = ddp_cpus_parse(cores, set);
	if (n > 0 && cpus == (uint32_t)n * ddp_cpus_threads())
		(void)ddp_text_copy(ask->cores, sizeof(ask->cores), cores);
}

static void find_list(spank_t sp, struct ddp_ask *ask)
{
	char text[16];

	for (unsigned i = 0; i < LISTS && !ask->list_set; i++) {
		spank_err_t rc = spank_getenv(sp, lists[i].name, ask->list,
					      sizeof(ask->list));

		ask->list_set = rc == ESPANK_SUCCESS || rc == ESPANK_NOSPACE;
		ask->vendor = ask->list_set ? lists[i].vendor : 0;
		if (rc == ESPANK_NOSPACE)	/* too long to be one */
			strcpy(ask->list, "?");
	}
	if (ask->list_set && ddp_vis_is_none(ask->list)) {
		ask->list_set = false;	/* and then none is the step's */
		return;
	}
	if (!get(sp, "SLURM_GPUS_ON_NODE", text, sizeof(text)) ||
	    ddp_text_u32(text, 0, DDP_BIND_GPUS, &ask->step_gpus))
		ask->step_gpus = 0;
}

int ddp_place_ask(spank_t sp, const struct ddp_spank *state, uint32_t rank,
		  struct ddp_ask *ask, struct ddp_err *err)
{
	char text[DDP_PLACE_MAX];
	spank_err_t rc = spank_getenv(sp, DDP_PLACE_ENV, text, sizeof(text));

	memset(ask, 0, sizeof(*ask));
	if (rc == ESPANK_ENV_NOEXIST)
		return 0;
	(void)spank_unsetenv(sp, DDP_PLACE_ENV);
	if (rc != ESPANK_SUCCESS)
		return ddp_err_set(err, DDP_EINVAL, DDP_PLACE_ENV
				   " is too long");
	if (ddp_place_parse(&ask->req, text, err))
		return -1;
	find_list(sp, ask);
	if (ddp_seat_look(ask, state->site.sysroot, err))
		return -1;
	ask->rank = rank;
	find_cores(sp, ask);
	ask->valid = 1;
	return 0;
}

static void say_lines(const char *node, const char *kind, char *text)
{
	char *save = NULL, *line, safe[DDP_PLACE_TEXT];

	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		dprintf(STDERR_FILENO, DDP_MSG "%s: node %s: %s\n", kind, node,
			ddp_text_safe(line, safe, sizeof(safe)));
}

/* "0,1,2" for n GPUs. */
static void first_numbers(unsigned n, char *buf, size_t size)
{
	size_t pos = 0;

	for (unsigned i = 0; i < n; i++)
		(void)ddp_text_add(buf, size, &pos, "%s%u", i ? "," : "", i);
}

/*
 * Every list that says what the counted one said. On AMD's GPUs
 * ROCR_VISIBLE_DEVICES comes first, and the others count what it leaves.
 */
static int set_lists(spank_t sp, const struct ddp_ask *ask,
		     const struct ddp_placed *placed, unsigned n)
{
	char had[DDP_PLACE_LIST], all[DDP_VIS_MAX * 4];
	bool amd = placed->vendor == AMD &&
		get(sp, "ROCR_VISIBLE_DEVICES", had, sizeof(had)) &&
		!strcmp(had, ask->list);

	first_numbers(n, all, sizeof(all));
	for (unsigned i = 0; i < LISTS; i++) {
		bool rocr = !strcmp(lists[i].name, "ROCR_VISIBLE_DEVICES");

		if (get(sp, lists[i].name, had, sizeof(had)) &&
		    !strcmp(had, ask->list) &&
		    spank_setenv(sp, lists[i].name, amd && !rocr ? all :
				 placed->list, 1) != ESPANK_SUCCESS)
			return -1;
	}
	return 0;
}

/*
 * Values that another launch has set for the rank from which this one was
 * started: they are not the user's.
 */
static void forget_outer(spank_t sp)
{
	char text[16];

	if (!get(sp, "DDP_LOCAL_DEVICE", text, sizeof(text)))
		return;
	(void)spank_unsetenv(sp, "DDP_LOCAL_DEVICE");
	(void)spank_unsetenv(sp, "JAX_LOCAL_DEVICE_IDS");
}

/* The user's own order would make other GPUs of the numbers. */
static void warn_order(spank_t sp, const struct ddp_placed *placed,
		       const struct ddp_place_facts *f)
{
	char had[64], safe[64];

	if (placed->ndevices && placed->pci_order && f->first &&
	    get(sp, "CUDA_DEVICE_ORDER", had, sizeof(had)) &&
	    strcmp(had, "PCI_BUS_ID"))
		dprintf(STDERR_FILENO, DDP_MSG "warning: node %s: "
			"CUDA_DEVICE_ORDER=%s: replaced by PCI_BUS_ID, by "
			"which GPUs were given to ranks\n", f->node,
			ddp_text_safe(had, safe, sizeof(safe)));
}

static void say(const struct ddp_ask *ask, struct ddp_placed *placed,
		const struct ddp_place_facts *f)
{
	char text[DDP_PLACE_TEXT];

	if (placed->warning[0])
		say_lines(f->node, "warning", placed->warning);
	if (placed->hint[0] && f->first)
		say_lines(f->node, "hint", placed->hint);
	if (ask->req.explain && f->first && placed->shown[0])
		dprintf(STDERR_FILENO, DDP_MSG "node %s, rank %" PRIu32
			": %s\n", f->node, f->rank,
			ddp_text_safe(placed->shown, text, sizeof(text)));
}

int ddp_place_take(spank_t sp, const struct ddp_ask *ask,
		   struct ddp_placed *placed, const struct ddp_place_facts *f,
		   struct ddp_err *err)
{
	struct ddp_vis vis;

	if (placed->set_list && (ddp_vis_parse(&vis, placed->list) ||
				 set_lists(sp, ask, placed, vis.n)))
		return ddp_err_set(err, DDP_EINCONS, "the agent's list of "
				   "GPUs is none");
	if (ddp_seat_take(placed, err))
		return -1;
	forget_outer(sp);
	if (!f->local)
		warn_order(sp, placed, f);
	say(ask, placed, f);
	return 0;
}
