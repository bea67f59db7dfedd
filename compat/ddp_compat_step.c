/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a step, of one component or of several. */
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

void ddp_compat_step_clear(struct ddp_compat_step *s)
{
	ddp_layout_clear(&s->layout);
	free(s->nodes);
	free(s->map);
	s->nodes = NULL;
	s->map = NULL;
}

static slurm_step_layout_t *layout_get(uint32_t job, uint32_t step,
				       uint32_t comp)
{
	slurm_step_id_t id;

	memset(&id, 0, sizeof(id));
	id.job_id = job;
	id.step_id = step;
	id.step_het_comp = comp;
	return slurm_job_step_layout_get(&id);
}

/* One array over all components: what ddp_layout_from_tids() wants. */
struct merged {
	uint32_t nnodes, ntasks;
	uint16_t *tasks;
	uint32_t **tids;
	uint32_t *ids;	/* the memory behind tids */
	char *nodes;
	size_t pos, size;
};

static void merged_clear(struct merged *m)
{
	free(m->tasks);
	free(m->tids);
	free(m->ids);
	free(m->nodes);
}

/* Copy one component behind the others; global ids are offset by its place. */
static int merge_one(struct merged *m, const slurm_step_layout_t *s)
{
	uint32_t offset = m->ntasks, next = m->ntasks;

	for (uint32_t i = 0; i < s->node_cnt; i++) {
		m->tasks[m->nnodes] = s->tasks[i];
		m->tids[m->nnodes++] = m->ids + next;
		for (uint32_t k = 0; k < s->tasks[i]; k++)
			if (next - offset < s->task_cnt)
				m->ids[next++] = s->tids[i][k] + offset;
			else
				return -1;
	}
	m->ntasks += s->task_cnt;
	if (next != m->ntasks)
		return -1;
	return ddp_text_add(m->nodes, m->size, &m->pos, "%s%s",
			    m->pos ? "," : "", s->node_list);
}

static int merge(slurm_step_layout_t **s, unsigned n, struct merged *m,
		 struct ddp_err *err)
{
	uint64_t nodes = 0, tasks = 0;

	memset(m, 0, sizeof(*m));
	for (unsigned i = 0; i < n; i++) {
		nodes += s[i]->node_cnt;
		tasks += s[i]->task_cnt;
		m->size += s[i]->node_list ? strlen(s[i]->node_list) + 2 : 0;
	}
	if (!nodes || nodes > DDP_NODES_MAX || !tasks || tasks > DDP_TASKS_MAX)
		return ddp_err_set(err, DDP_EINCONS, "step layout: %u "
				   "components, empty or too large", n);
	m->tasks = calloc(nodes, sizeof(*m->tasks));
	m->tids = calloc(nodes, sizeof(*m->tids));
	m->ids = calloc(tasks, sizeof(*m->ids));
	m->nodes = calloc(1, m->size + 1);
	if (!m->tasks || !m->tids || !m->ids || !m->nodes)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	for (unsigned i = 0; i < n; i++)
		if (!s[i]->node_list || merge_one(m, s[i]))
			return ddp_err_set(err, DDP_EINCONS, "step layout: "
				"tasks announced and tasks listed differ");
	return 0;
}

/* Fills *out from n components and frees them. */
static int step_fill(slurm_step_layout_t **s, unsigned n, bool want_map,
		     struct ddp_compat_step *out, struct ddp_err *err)
{
	struct merged m;
	int rc = merge(s, n, &m, err);

	if (!rc)
		rc = ddp_layout_from_tids(&out->layout, m.nnodes, m.ntasks,
					  m.tasks, m.tids, err);
	if (!rc && want_map &&
	    !(out->map = ddp_plan_map(&out->layout, m.tids, err)))
		rc = -1;
	if (!rc) {
		out->nodes = m.nodes;
		m.nodes = NULL;
	}
	merged_clear(&m);
	for (unsigned i = 0; i < n; i++)
		slurm_job_step_layout_free(s[i]);
	return rc;
}

int ddp_compat_step_get(uint32_t job, uint32_t step, bool want_map,
			struct ddp_compat_step *out, struct ddp_err *err)
{
	slurm_step_layout_t *s = layout_get(job, step, NO_VAL);

	memset(out, 0, sizeof(*out));
	if (!s)
		return ddp_err_set(err, DDP_ESYS, "slurmctld gave no layout of "
				   "step %u.%u: %s", job, step,
				   slurm_strerror(errno));
	return step_fill(&s, 1, want_map, out, err);
}

int ddp_compat_het_get(const uint32_t *jobs, unsigned njobs, uint32_t job,
		       uint32_t step, bool want_map,
		       struct ddp_compat_step *out, struct ddp_err *err)
{
	slurm_step_layout_t *s[DDP_HET_MAX];
	unsigned n = 0, max = njobs ? njobs : DDP_HET_MAX;

	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < max && i < DDP_HET_MAX; i++) {
		/* A job's component may have no part in this step; the
		 * components of one job are numbered without a gap. */
		slurm_step_layout_t *one = njobs ?
			layout_get(jobs[i], step, NO_VAL) :
			layout_get(job, step, i);

		if (one)
			s[n++] = one;
		else if (!njobs)
			break;
	}
	if (!n)
		return ddp_err_set(err, DDP_ESYS, "slurmctld gave no layout of "
				   "heterogeneous step %u.%u: %s", job, step,
				   slurm_strerror(errno));
	return step_fill(s, n, want_map, out, err);
}

/* srun exports the ids under the one or, when it allocates, the old name. */
unsigned ddp_compat_het_jobs(uint32_t *jobs)
{
	static const char *const kinds[] = { "HET", "PACK" };
	char name[64];

	if (!getenv("SLURM_HET_SIZE"))
		return 0;
	for (unsigned k = 0; k < 2; k++) {
		unsigned n = 0;

		for (; n < DDP_HET_MAX; n++) {
			snprintf(name, sizeof(name),
				 "SLURM_JOB_ID_%s_GROUP_%u", kinds[k], n);
			if (ddp_text_u32(getenv(name), 1, UINT32_MAX,
					 &jobs[n]))
				break;
		}
		if (n)
			return n;
	}
	return 0;
}
