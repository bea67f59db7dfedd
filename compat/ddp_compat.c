/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

/* A pointer in every release, though hostlist_t itself became a structure. */
typedef __typeof__(slurm_hostlist_create(NULL)) ddp_hostlist;

/*
 * The configuration as srun and slurmstepd have read it. The structure is
 * public, the variable is exported without a header; weak, so that a Slurm
 * that hides it costs a default instead of the plugin. SPANK loads a plugin
 * only into the release it was built for, so the layouts agree.
 */
extern slurm_conf_t slurm_conf __attribute__((weak));

int ddp_compat_layout(uint32_t job, uint32_t step, struct ddp_layout *l,
		      char **nodes, struct ddp_err *err)
{
	slurm_step_id_t id;
	slurm_step_layout_t *s;
	int rc;

	memset(&id, 0, sizeof(id));
	id.job_id = job;
	id.step_id = step;
	id.step_het_comp = NO_VAL;
	*nodes = NULL;
	s = slurm_job_step_layout_get(&id);
	if (!s)
		return ddp_err_set(err, DDP_ESYS, "slurmctld gave no layout of "
				   "step %u.%u: %s", job, step,
				   slurm_strerror(errno));
	rc = ddp_layout_from_tids(l, s->node_cnt, s->task_cnt, s->tasks,
				  s->tids, err);
	if (!rc && !(*nodes = strdup(s->node_list ? s->node_list : ""))) {
		ddp_layout_clear(l);
		rc = ddp_err_set(err, DDP_ENOMEM, "out of memory");
	}
	slurm_job_step_layout_free(s);
	return rc;
}

int ddp_compat_node_name(const char *nodes, uint32_t index, char *name,
			 size_t size, struct ddp_err *err)
{
	char shown[128];
	ddp_hostlist list = slurm_hostlist_create(nodes);
	char *host = NULL;
	int rc = -1;

	for (uint32_t i = 0; list && i <= index; i++) {
		free(host);
		host = slurm_hostlist_shift(list);
		if (!host)
			break;
	}
	/* libslurm takes some broken lists ("n[1") and answers "n]". */
	if (host && ddp_text_is_addr(host))
		rc = ddp_text_copy(name, size, host);
	if (rc)
		ddp_err_set(err, DDP_EINVAL, "node list \"%s\" has no node "
			    "number %u", ddp_text_safe(nodes, shown,
						       sizeof(shown)), index);
	free(host);
	if (list)
		slurm_hostlist_destroy(list);
	return rc;
}

int ddp_compat_node(const char *name, struct ddp_compat_node *node,
		    struct ddp_err *err)
{
	node_info_msg_t *msg = NULL;
	const node_info_t *n;
	int rc = -1;

	if (slurm_load_node_single(&msg, (char *)name, SHOW_ALL))
		return ddp_err_set(err, DDP_ESYS, "slurmctld gave no record of "
				   "node %s: %s", name, slurm_strerror(errno));
	n = msg->record_count == 1 ? msg->node_array : NULL;
	if (n && n->node_addr &&
	    !ddp_text_copy(node->addr, sizeof(node->addr), n->node_addr) &&
	    !ddp_text_copy(node->host, sizeof(node->host),
			   n->node_hostname ? n->node_hostname : ""))
		rc = 0;
	else
		ddp_err_set(err, DDP_EINCONS, "slurmctld's record of node %s "
			    "has no address", name);
	slurm_free_node_info_msg(msg);
	return rc;
}

bool ddp_compat_srun_ports(uint16_t *lo, uint16_t *hi)
{
	const uint16_t *range = &slurm_conf ? slurm_conf.srun_port_range : NULL;

	if (!range || !range[0] || range[0] > range[1])
		return false;
	*lo = range[0];
	*hi = range[1];
	return true;
}

bool ddp_compat_task_prolog(void)
{
	return &slurm_conf && slurm_conf.task_prolog;
}

bool ddp_compat_step_is_normal(uint32_t step)
{
	return step <= SLURM_MAX_NORMAL_STEP_ID;
}

bool ddp_compat_step_is_batch(uint32_t step)
{
	return step == SLURM_BATCH_SCRIPT;
}
