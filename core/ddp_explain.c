/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void __attribute__((format(printf, 2, 3)))
say(const struct ddp_explain_ops *ops, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ops->line(ops->arg, text);
}

static int explain_var(void *arg, const struct ddp_var *v)
{
	const struct ddp_explain_ops *ops = arg;
	const char *had = ops->had(ops->arg, v->name);
	bool kept = (v->flags & DDP_VAR_DEFAULT) &&
		(had || (v->unless && ops->had(ops->arg, v->unless)));
	char value[48], shown[48];

	say(ops, "  %-31s %c %-22s %-42s %s", v->name,
	    v->flags & DDP_VAR_PER_RANK ? '*' : ' ',
	    kept ? "(user's)" : v->flags & DDP_VAR_ON_NODE ? "(node)" :
	    ddp_text_safe(v->value, value, sizeof(value)), v->source,
	    had ? ddp_text_safe(had, shown, sizeof(shown)) : "-");
	return 0;
}

static const struct ddp_var error_file = { DDP_ERROR_FILE_ENV, "",
	"for the message in ddp-agent's report",
	DDP_VAR_DEFAULT | DDP_VAR_PER_RANK | DDP_VAR_ON_NODE, NULL };

/* Of whichever vendor's that Slurm has set. */
static const struct ddp_var lists = { "CUDA_VISIBLE_DEVICES", "",
	"Slurm's GPUs, in the order of the ranks", DDP_VAR_ON_NODE, NULL };

/* Known on the nodes only, and only of GPUs. */
static const struct ddp_placed place = { .state = DDP_PLACE_DONE,
	.ndevices = 1, .devices = "0", .pci_order = true };

void ddp_explain(const struct ddp_plan *plan, const char *nodes,
		 const struct ddp_explain_ops *ops)
{
	struct ddp_rank r = { .node = plan->layout.first, .threads = 1,
			      .nodename = "node",
			      .placed = ops->places ? &place : NULL,
			      .life = plan->mode == DDP_MODE_FULL ? "" : NULL };
	char counts[512], order[512], fw[DDP_FW_TEXT], shown[256];

	if (ddp_layout_format(&plan->layout, counts, sizeof(counts), order,
			      sizeof(order), NULL))
		strcpy(counts, "irregular");
	if (plan->iface != DDP_IFACE_NONE)
		r.ifname = plan->iface == DDP_IFACE_NAME ? plan->ifname :
			"auto";
	say(ops, "step %u.%u (restart %u): mode %s, frameworks %s",
	    plan->job, plan->step, plan->restart, ddp_mode_name(plan->mode),
	    ddp_frameworks_text(plan->frameworks, fw, sizeof(fw)));
	say(ops, "%u tasks on %u nodes: %s, tasks a node %s%s",
	    plan->layout.ntasks, plan->layout.nnodes,
	    ddp_text_safe(nodes, shown, sizeof(shown)), counts,
	    plan->layout.first ? ", rank 0 is not on the first" : "");
	say(ops, "  %-31s   %-22s %-42s %s", "VARIABLE", "RANK 0", "FROM",
	    "USER HAD");
	(void)ddp_env_each(plan, &r, explain_var, (void *)ops);
	if (ops->places)
		(void)explain_var((void *)ops, &lists);
	if (plan->mode == DDP_MODE_FULL &&
	    plan->frameworks & DDP_FW_TORCHLIKE)
		(void)explain_var((void *)ops, &error_file);
	say(ops, "  * differs between ranks; (node): decided on the node");
}
