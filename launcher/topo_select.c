/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of --gpus and --cpus. */
#include "config.h"

#include "core/ddp_text.h"
#include "launcher/topo.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CPU_MAX 1048575
#define LIST_MAX 65536

static int add_gpu(struct topo_plan *p, unsigned gpu, struct ddp_err *err)
{
	for (unsigned i = 0; i < p->ngpus; i++)
		if (p->gpus[i] == gpu)
			return ddp_err_set(err, DDP_EINVAL,
					   "--gpus names GPU %u twice", gpu);
	p->gpus[p->ngpus++] = gpu;
	return 0;
}

/* "3b:00.0" is "0000:3b:00.0". */
static int find_bus(const struct topo *t, const char *word)
{
	const char *colon = strchr(word, ':');
	bool domain = colon && strchr(colon + 1, ':');

	for (unsigned i = 0; i < t->ngpus; i++) {
		const char *bus = t->gpu[i].bus;

		if (!strcasecmp(word, bus) ||
		    (!domain && !strncmp(bus, "0000:", 5) &&
		     !strcasecmp(word, bus + 5)))
			return (int)i;
	}
	return -1;
}

/* One word of the list: a number, a range, a bus id. */
static int add_word(struct topo_plan *p, const char *word, struct ddp_err *err)
{
	const struct topo *t = p->topo;
	const char *dash = strchr(word, '-');
	size_t n = dash ? (size_t)(dash - word) : strlen(word);
	uint32_t from, to;
	char safe[64];
	int gpu;

	if (strchr(word, ':')) {
		gpu = find_bus(t, word);
		if (gpu >= 0)
			return add_gpu(p, (unsigned)gpu, err);
	} else if (t->ngpus &&
		   !ddp_text_u32_n(word, n, 0, t->ngpus - 1, &from) &&
		   (!dash || !ddp_text_u32(dash + 1, from, t->ngpus - 1,
					   &to))) {
		for (to = dash ? to : from; from <= to; from++)
			if (add_gpu(p, from, err))
				return -1;
		return 0;
	}
	ddp_text_safe(word, safe, sizeof(safe));
	if (!t->ngpus)
		return ddp_err_set(err, DDP_EINVAL,
				   "--gpus %s: %s has no GPU", safe, t->label);
	return ddp_err_set(err, DDP_EINVAL, "--gpus %s: not there; %s has the "
			   "GPUs 0 to %u", safe, t->label, t->ngpus - 1);
}

int topo_select_gpus(struct topo_plan *p, const char *list,
		     struct ddp_err *err)
{
	char word[64];

	p->ngpus = 0;
	if (!list) {
		for (; p->ngpus < p->topo->ngpus; p->ngpus++)
			p->gpus[p->ngpus] = p->ngpus;
		return 0;
	}
	if (!strcmp(list, "none"))
		return 0;
	for (;;) {
		size_t n = strcspn(list, ",");

		if (!n || n >= sizeof(word))
			return ddp_err_set(err, DDP_EINVAL, "--gpus wants "
					   "numbers, ranges or bus ids, with "
					   "commas, or \"none\"");
		memcpy(word, list, n);
		word[n] = '\0';
		if (add_word(p, word, err))
			return -1;
		if (!list[n])
			return 0;
		list += n + 1;
	}
}

/* Digits, with '-' and ',' where hwloc allows them, and no huge number. */
static bool is_cpu_list(const char *list)
{
	size_t len = strlen(list);

	if (!len || len > LIST_MAX)
		return false;
	while (*list) {
		size_t n = strspn(list, "0123456789");
		uint32_t value, to;

		if (ddp_text_u32_n(list, n, 0, CPU_MAX, &value))
			return false;
		list += n;
		if (*list == '-') {
			n = strspn(++list, "0123456789");
			if (n && ddp_text_u32_n(list, n, value, CPU_MAX, &to))
				return false;
			list += n;
		}
		if (*list == ',' && list[1])
			list++;
		else if (*list)
			return false;
	}
	return true;
}

int topo_select_cpus(struct topo_plan *p, const char *list,
		     struct ddp_err *err)
{
	hwloc_const_bitmap_t allowed =
		hwloc_topology_get_allowed_cpuset(p->topo->hw);
	hwloc_const_bitmap_t here =
		hwloc_topology_get_topology_cpuset(p->topo->hw);

	p->cpus = hwloc_bitmap_alloc();
	if (!p->cpus)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (list && (!is_cpu_list(list) ||
		     hwloc_bitmap_list_sscanf(p->cpus, list)))
		return ddp_err_set(err, DDP_EINVAL, "--cpus wants numbers and "
				   "ranges with commas, like 0-3,8");
	if (!list && hwloc_bitmap_copy(p->cpus, allowed))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (hwloc_bitmap_and(p->cpus, p->cpus, allowed) ||
	    hwloc_bitmap_and(p->cpus, p->cpus, here))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (hwloc_bitmap_iszero(p->cpus))
		return ddp_err_set(err, DDP_EINVAL, list ? "--cpus names no "
				   "CPU that is allowed here" :
				   "no CPU is allowed here");
	return 0;
}
