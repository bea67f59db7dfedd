/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

/* srun asks slurmctld meanwhile, which may be slow; its end is an EOF. */
#define CONF_MS 600000

/* One read; the number of bytes, or -1 at the end, an error, the deadline. */
static ssize_t read_some(int fd, char *buf, size_t size, int64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		int64_t left = deadline - ddp_io_now_ms();
		ssize_t n;

		if (left <= 0)
			return -1;
		if (poll(&p, 1, (int)left) <= 0)
			continue;
		n = read(fd, buf, size);
		if (n > 0)
			return n;
		if (!n || (errno != EINTR && errno != EAGAIN))
			return -1;
	}
}

int ctl_conf_read(struct ctl *ctl, int fd, char *rest, size_t size,
		  struct ddp_err *err)
{
	int64_t deadline = ddp_io_now_ms() + CONF_MS;
	char *text = calloc(1, DDP_CTLCONF_MAX + 1), *end = NULL;
	size_t used = 0;
	ssize_t n;
	int rc;

	if (!text)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	while (!end && used < DDP_CTLCONF_MAX) {
		n = read_some(fd, text + used, DDP_CTLCONF_MAX - used,
			      deadline);
		if (n < 0)
			break;
		/* The empty line may have come in two pieces. */
		end = memmem(text + (used ? used - 1 : 0),
			     (size_t)n + (used ? 1 : 0), "\n\n", 2);
		used += (size_t)n;
	}
	if (!end || ddp_text_copy(rest, size, end + 2)) {
		rc = ddp_err_set(err, DDP_EINVAL, "no configuration came "
				 "from srun");
	} else {
		end[1] = '\0';
		rc = ddp_ctlconf_parse(&ctl->conf, text, err);
	}
	sodium_memzero(text, used);
	free(text);
	return rc;
}

static int name_cmp(const void *a, const void *b, void *arg)
{
	const struct ctl *ctl = arg;

	return strcmp(ctl->nodes[*(const uint32_t *)a].name,
		      ctl->nodes[*(const uint32_t *)b].name);
}

uint32_t ctl_conf_node(const struct ctl *ctl, const char *name)
{
	uint32_t lo = 0, hi = ctl->nnodes;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = strcmp(name, ctl->nodes[ctl->by_name[mid]].name);

		if (!c)
			return ctl->by_name[mid];
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return CTL_NONE;
}

/* Cuts conf.nodes into names. 0, or -1 if they are not nnodes. */
static int name_nodes(struct ctl *ctl)
{
	char *save = NULL;
	uint32_t n = 0;

	for (char *p = strtok_r(ctl->conf.nodes, ",", &save); p;
	     p = strtok_r(NULL, ",", &save)) {
		if (n == ctl->nnodes || strlen(p) >= DDP_WIRE_NAME)
			return -1;
		ctl->nodes[n++].name = p;
	}
	return n == ctl->nnodes ? 0 : -1;
}

static int tables_alloc(struct ctl *ctl, struct ddp_err *err)
{
	ctl->nnodes = ctl->plan.layout.nnodes;
	ctl->nranks = ctl->live = ctl->plan.layout.ntasks;
	ctl->nodes = calloc(ctl->nnodes, sizeof(*ctl->nodes));
	ctl->ranks = calloc(ctl->nranks, sizeof(*ctl->ranks));
	ctl->by_name = calloc(ctl->nnodes, sizeof(*ctl->by_name));
	if (!ctl->nodes || !ctl->ranks || !ctl->by_name)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	return 0;
}

int ctl_conf_tables(struct ctl *ctl, struct ddp_err *err)
{
	uint32_t most = 0;

	if (ddp_plan_parse(&ctl->plan, ctl->conf.plan, err) ||
	    tables_alloc(ctl, err))
		return -1;
	if (name_nodes(ctl))
		return ddp_err_set(err, DDP_EINCONS, "the names of the nodes "
				   "do not fit the plan's layout");
	for (uint32_t i = 0; i < ctl->nnodes; i++) {
		uint32_t tasks = ctl->plan.layout.tasks[i];

		ctl->by_name[i] = i;
		ctl->nodes[i].live = tasks;
		ctl->needed += tasks > 0;
		if (tasks > most)
			most = tasks;
	}
	for (uint32_t i = 0; i < ctl->nranks; i++) {
		ctl->ranks[i].node = CTL_NONE;
		ctl->ranks[i].status = DDP_STATUS_UNKNOWN;
	}
	qsort_r(ctl->by_name, ctl->nnodes, sizeof(*ctl->by_name), name_cmp,
		ctl);
	ctl->early_rank = ctl->left_mpi = CTL_NONE;
	ctl->life[DDP_LIFE_NONE] = ctl->nranks;
	/* The longest are READY, and texts of EXIT and NOTE. */
	ctl->frame_max = 64 + 12 * (size_t)most;
	if (ctl->frame_max < 2 * DDP_WIRE_TEXT)
		ctl->frame_max = 2 * DDP_WIRE_TEXT;
	return 0;
}

void ctl_conf_clear(struct ctl *ctl)
{
	for (size_t i = 0; i < ctl->nevents; i++)
		free(ctl->texts[i]);
	free(ctl->events);
	free(ctl->texts);
	free(ctl->nodes);
	free(ctl->ranks);
	free(ctl->by_name);
	ctl_pair_clear(ctl);
	ddp_plan_clear(&ctl->plan);
	sodium_memzero(ctl->conf.key, sizeof(ctl->conf.key));
	ddp_ctlconf_clear(&ctl->conf);
}
