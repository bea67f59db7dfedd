/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to slurmdbd: its TRES, and what is asked of it. */
#include "config.h"

#include "compat/ddp_compat_acct.h"
#include "compat/ddp_compat_acct_int.h"
#include "compat/ddp_compat_acct_rec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <slurm/slurm_errno.h>

extern slurm_conf_t slurm_conf __attribute__((weak));

static const struct {
	const char *type, *name;
} metrics[DDP_ACCT_METRICS] = {
	[DDP_ACCT_SM] = { "gres", "gpusm" },
	[DDP_ACCT_MEMBW] = { "gres", "gpumembw" },
	[DDP_ACCT_NVLINK] = { "ic", "nvlink" },
	[DDP_ACCT_PCIE] = { "ic", "pcie" },
	[DDP_ACCT_ENERGY] = { "gres", "gpuenergy" },
	[DDP_ACCT_IDLE] = { "gres", "gpuidle" },
};

static void note_tres(struct ddp_acct *a, const slurmdb_tres_rec_t *t)
{
	if (!t->type || !t->name)
		return;
	for (unsigned m = 0; m < DDP_ACCT_METRICS; m++)
		if (!strcasecmp(t->type, metrics[m].type) &&
		    !strcasecmp(t->name, metrics[m].name))
			a->metric[m] = t->id;
	if (strcasecmp(t->type, "gres"))
		return;
	if (!strcasecmp(t->name, "gpu"))
		a->gpu = t->id;
	else if (!strncasecmp(t->name, "gpu:", 4) &&
		 a->ngpu_types < DDP_ACCT_GPU_TYPES)
		a->gpu_type[a->ngpu_types++] = t->id;
}

/* slurmdbd's place as configured, and what went wrong there. */
static int no_answer(struct ddp_err *err, int error)
{
	const char *host = &slurm_conf ? slurm_conf.accounting_storage_host :
		NULL;
	const char *why = error ? slurm_strerror(error) : "no reason given";

	return ddp_err_set(err, DDP_ESYS, "slurmdbd%s%s gave no answer (%s): "
			   "is it running, and is munge? `sacctmgr show "
			   "cluster` must work first", host ? " on " : "",
			   host ? host : "", why);
}

static int load_tres(struct ddp_acct *a, struct ddp_err *err)
{
	slurmdb_tres_cond_t cond;
	slurmdb_tres_rec_t *t;
	ddp_acct_list list;
	ddp_acct_iter it;

	memset(&cond, 0, sizeof(cond));
	cond.count = NO_VAL;
	errno = 0;
	list = slurmdb_tres_get(a->db, &cond);
	if (!list)
		return no_answer(err, errno);
	it = slurm_list_iterator_create(list);
	while ((t = slurm_list_next(it))) {
		a->ntres++;
		note_tres(a, t);
	}
	slurm_list_iterator_destroy(it);
	slurm_list_destroy(list);
	return 0;
}

struct ddp_acct *ddp_acct_open(struct ddp_err *err)
{
	struct ddp_acct *a = calloc(1, sizeof(*a));
	static bool ready;
	const char *type;
	uint16_t flags = 0;

	if (!a) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		return NULL;
	}
	a->live_ms = DDP_ACCT_LIVE_MS;
	if (!ready)
		slurm_init(NULL);
	ready = true;
	type = &slurm_conf ? slurm_conf.accounting_storage_type :
		"accounting_storage/slurmdbd";
	if (!type || !strstr(type, "slurmdbd")) {
		ddp_err_set(err, DDP_ESYS, "this cluster keeps no accounting "
			    "in slurmdbd (AccountingStorageType is %s): "
			    "without slurmdbd there is nothing to report; ask "
			    "the administrator for accounting_storage/slurmdbd",
			    type ? type : "not set");
		goto fail;
	}
	errno = 0;
	a->db = slurmdb_connection_get(&flags);
	if (!a->db) {
		no_answer(err, errno);
		goto fail;
	}
	if (!load_tres(a, err))
		return a;
fail:
	ddp_acct_close(a);
	return NULL;
}

void ddp_acct_close(struct ddp_acct *a)
{
	if (!a)
		return;
	if (a->db)
		slurmdb_connection_close(&a->db);
	free(a);
}

bool ddp_acct_has_metrics(const struct ddp_acct *a)
{
	for (unsigned m = 0; m < DDP_ACCT_METRICS; m++)
		if (a->metric[m])
			return true;
	return false;
}

/* What a question needs besides Slurm's own structure. */
struct ask {
	slurmdb_job_cond_t cond;
	slurm_selected_step_t *ids;
	char (*users)[16];
	ddp_acct_list clusters, steps, userids, accounts;
};

static void ask_clear(struct ask *k)
{
	/* The lists do not own what is in them. */
	if (k->clusters)
		slurm_list_destroy(k->clusters);
	if (k->steps)
		slurm_list_destroy(k->steps);
	if (k->userids)
		slurm_list_destroy(k->userids);
	if (k->accounts)
		slurm_list_destroy(k->accounts);
	free(k->ids);
	free(k->users);
}

static void ask_ids(struct ask *k, const struct ddp_acct_query *q)
{
	k->steps = slurm_list_create(NULL);
	for (size_t i = 0; i < q->nids; i++) {
		slurm_selected_step_t *s = &k->ids[i];

		s->step_id.job_id = q->ids[i].job;
		s->step_id.step_id = NO_VAL;
		s->step_id.step_het_comp = NO_VAL;
		s->array_task_id = q->ids[i].task == DDP_ACCT_NONE ? NO_VAL :
			q->ids[i].task;
		s->het_job_offset = q->ids[i].offset == DDP_ACCT_NONE ?
			NO_VAL : q->ids[i].offset;
		slurm_list_append(k->steps, s);
	}
	k->cond.step_list = k->steps;
	/* Their whole times, not those within a window. */
	k->cond.flags |= JOBCOND_FLAG_NO_DEFAULT_USAGE;
	/* 0 would give jobs without their steps. */
	k->cond.usage_end = time(NULL);
}

static void ask_many(struct ask *k, const struct ddp_acct_query *q)
{
	k->cond.usage_start = (time_t)q->since;
	k->cond.usage_end = (time_t)q->until;
	if (q->nusers)
		k->userids = slurm_list_create(NULL);
	for (size_t i = 0; i < q->nusers; i++) {
		snprintf(k->users[i], sizeof(k->users[i]), "%u", q->users[i]);
		slurm_list_append(k->userids, k->users[i]);
	}
	if (q->naccounts)
		k->accounts = slurm_list_create(NULL);
	for (size_t i = 0; i < q->naccounts; i++)
		slurm_list_append(k->accounts, q->accounts[i]);
	k->cond.userid_list = k->userids;
	k->cond.acct_list = k->accounts;
}

static int ask_make(struct ask *k, const struct ddp_acct_query *q)
{
	const char *cluster = q->cluster;

	memset(k, 0, sizeof(*k));
	k->ids = calloc(q->nids + 1, sizeof(*k->ids));
	k->users = calloc(q->nusers + 1, sizeof(*k->users));
	if (!k->ids || !k->users)
		return -1;
	if (!cluster && &slurm_conf)
		cluster = slurm_conf.cluster_name;
	if (cluster) {
		k->clusters = slurm_list_create(NULL);
		slurm_list_append(k->clusters, (char *)cluster);
		k->cond.cluster_list = k->clusters;
	}
	/* Any other value asks for jobs started by one of the schedulers. */
	k->cond.db_flags = SLURMDB_JOB_FLAG_NOTSET;
	k->cond.flags = JOBCOND_FLAG_DUP | JOBCOND_FLAG_NO_TRUNC;
	if (q->nids)
		ask_ids(k, q);
	else
		ask_many(k, q);
	return 0;
}

int ddp_acct_jobs_get(struct ddp_acct *a, const struct ddp_acct_query *q,
		      struct ddp_acct_jobs *out, struct ddp_err *err)
{
	ddp_acct_list list;
	struct ask k;
	int rc;

	memset(out, 0, sizeof(*out));
	if (ask_make(&k, q)) {
		ask_clear(&k);
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	}
	errno = 0;
	list = slurmdb_jobs_get(a->db, &k.cond);
	rc = list ? ddp_acct_records(a, list, out, err) :
		no_answer(err, errno);
	if (list)
		slurm_list_destroy(list);
	ask_clear(&k);
	return rc;
}
