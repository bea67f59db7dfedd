/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurmstepd's record of a step, played by memory of our own: what does not
 * look as it must is refused, and no pointer in it can do harm.
 */
#define _GNU_SOURCE
#include "config.h"

#include "compat/ddp_compat_gather.h"
#include "compat/ddp_compat_jobacct.h"
#include "tests/unit/check_main.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NTRES 12
#define HEAD_AT 112
#define TAIL_AT 640
#define PAGE 4096

/* As in compat/ddp_compat_record.c, written down again from Slurm's order. */
struct record_head {
	slurm_step_id_t id;
	uint32_t array_job, array_task, nnodes, ntasks, nodeid, node_tasks;
};

struct record_tail {
	int32_t jmgr_pid, pgid;
	uint32_t flags, overcommit;
	void *envtp;
	uint64_t cont_id;
	void *batchdir;
	struct gather_jobacct *jobacct;
	uint64_t open_mode;
	void *options;
	uint64_t restart_cnt;
	void *job_cores, *step_cores, *job_gres, *step_gres;
};

static char *page;	/* one page of record; the next one is not there */
static char *record;
static struct record_head *head;
static struct record_tail *tail;
static struct gather_jobacct usage, of_task;
static uint32_t ids[NTRES];
static uint64_t numbers[14][NTRES];
static struct ddp_gather_task task;

/* What slurmstepd brings. */
struct gather_jobacct *jobacct_gather_stat_task(pid_t pid, bool update);
void jobacctinfo_destroy(void *p);

struct gather_jobacct *jobacct_gather_stat_task(pid_t pid, bool update)
{
	struct gather_jobacct *copy;

	(void)update;
	if (pid != 4711)
		return NULL;
	copy = malloc(sizeof(*copy));
	ck_assert_ptr_nonnull(copy);
	*copy = of_task;
	return copy;
}

void jobacctinfo_destroy(void *p)
{
	free(p);
}

static void fill_usage(struct gather_jobacct *u)
{
	uint64_t **arrays[] = {
		&u->in_max, &u->in_max_node, &u->in_max_task, &u->in_min,
		&u->in_min_node, &u->in_min_task, &u->in_tot, &u->out_max,
		&u->out_max_node, &u->out_max_task, &u->out_min,
		&u->out_min_node, &u->out_min_task, &u->out_tot,
	};

	memset(u, 0, sizeof(*u));
	u->ntres = NTRES;
	u->tres_ids = ids;
	for (unsigned i = 0; i < 14; i++)
		*arrays[i] = numbers[i];
}

static void setup(void)
{
	page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	ck_assert_int_eq(munmap(page + PAGE, PAGE), 0);
	record = page + 1024;
	head = (struct record_head *)(record + HEAD_AT);
	tail = (struct record_tail *)(record + TAIL_AT);
	head->id.job_id = 12;
	head->id.step_id = 3;
	head->nnodes = 2;
	head->ntasks = 8;
	head->nodeid = 1;
	head->node_tasks = 4;
	tail->jmgr_pid = getpid();
	tail->pgid = 4711;
	tail->cont_id = (uint64_t)getpid();
	tail->jobacct = &usage;
	memset(numbers, 0xff, sizeof(numbers));
	for (uint32_t i = 0; i < NTRES; i++)
		ids[i] = i + 1;
	fill_usage(&usage);
	fill_usage(&of_task);
	of_task.id.taskid = 4;
	of_task.id.nodeid = 1;
	of_task.id.step = record;
	ck_assert(ddp_gather_is_task(4711, &task));
}

static int find(struct ddp_gather_record *rec)
{
	struct ddp_err err = { .text = "" };
	int rc = ddp_gather_record_find(&task, 12, 3, rec, &err);

	ck_assert_int_eq(rc ? err.text[0] != '\0' : 1, 1);
	return rc;
}

START_TEST(found_and_written)
{
	struct ddp_gather_usage u[2] = {
		{ .pos = 5, .in_tot = 340, .in_max = 85, .out_tot = 99,
		  .out_max = 99 },
		{ .pos = 7, .in_tot = 1000, .in_max = 1000,
		  .out_tot = DDP_GATHER_UNSET, .out_max = DDP_GATHER_UNSET },
	};
	struct ddp_gather_record rec;
	struct ddp_err err;

	ck_assert(!ddp_gather_is_task(1, &task));
	ck_assert(ddp_gather_is_task(4711, &task));
	ck_assert_int_eq(find(&rec), 0);
	ck_assert_uint_eq(rec.node_tasks, 4);
	ck_assert_uint_eq(rec.nodeid, 1);
	ck_assert_int_eq(ddp_gather_record_put(&rec, 1, u, 2, &err), 0);
	ck_assert_uint_eq(usage.in_tot[5], 340);
	ck_assert_uint_eq(usage.in_max[5], 85);
	ck_assert_uint_eq(usage.in_min[5], 85);
	ck_assert_uint_eq(usage.in_max_node[5], 1);
	ck_assert_uint_eq(usage.out_max[5], 99);
	ck_assert_uint_eq(usage.in_tot[7], 1000);
	ck_assert_uint_eq(usage.out_tot[7], UINT64_MAX);
	ck_assert_uint_eq(usage.out_max_node[7], UINT64_MAX);
	/* Its neighbours are Slurm's. */
	for (unsigned i = 0; i < 14; i++)
		for (unsigned k = 0; k < NTRES; k++)
			if (k != 5 && k != 7)
				ck_assert_uint_eq(numbers[i][k], UINT64_MAX);
}
END_TEST

/* Each change alone is one too many. */
START_TEST(another_layout_is_refused)
{
	static uint32_t other_ids[NTRES];
	struct ddp_gather_record rec;
	struct record_head h = *head;
	struct record_tail t = *tail;
	struct gather_jobacct u = usage;

#define REFUSED(change) do { \
	change; \
	ck_assert_msg(find(&rec) == -1, "accepted: %s", #change); \
	*head = h; *tail = t; usage = u; \
	ck_assert_int_eq(find(&rec), 0); \
} while (0)
	REFUSED(head->id.job_id = 13);
	REFUSED(head->id.step_id = 4);
	REFUSED(head->nnodes = 0);
	REFUSED(head->nnodes = 0; head->nodeid = 0);
	REFUSED(head->nodeid = 2);
	REFUSED(head->node_tasks = 0);
	REFUSED(head->node_tasks = 9);
	REFUSED(tail->jmgr_pid++);
	REFUSED(tail->pgid = 0);
	REFUSED(tail->cont_id = 99);
	REFUSED(tail->jobacct = NULL);
	REFUSED(tail->jobacct = (void *)16);
	REFUSED(tail->jobacct = (void *)(page + PAGE));
	REFUSED(usage.ntres = NTRES + 1);
	REFUSED(usage.ntres = 0);
	REFUSED(usage.tres_ids = NULL);
	REFUSED(usage.tres_ids = other_ids);
	REFUSED(usage.in_tot = NULL);
	REFUSED(usage.in_tot = (uint64_t *)(page + PAGE - 16));
	REFUSED(usage.out_max = (uint64_t *)((char *)numbers + 4));
#undef REFUSED
}
END_TEST

/* 22.05 does not count the nodes of a batch script's record. */
START_TEST(batch_script)
{
	struct ddp_gather_record rec;
	struct ddp_err err;

	head->id.step_id = SLURM_BATCH_SCRIPT;
	head->nnodes = head->nodeid = 0;
	head->node_tasks = 1;
	ck_assert_int_eq(ddp_gather_record_find(&task, 12, SLURM_BATCH_SCRIPT,
						&rec, &err), 0);
	ck_assert_uint_eq(rec.nodeid, 0);
	ck_assert_uint_eq(rec.node_tasks, 1);
	/* The job did not say how many tasks it has. */
	head->ntasks = 0;
	ck_assert_int_eq(ddp_gather_record_find(&task, 12, SLURM_BATCH_SCRIPT,
						&rec, &err), 0);
	ck_assert_uint_eq(rec.node_tasks, 1);
	head->node_tasks = 0;
	ck_assert_int_eq(ddp_gather_record_find(&task, 12, SLURM_BATCH_SCRIPT,
						&rec, &err), -1);
	head->node_tasks = 1;
	head->nodeid = 1;
	ck_assert_int_eq(ddp_gather_record_find(&task, 12, SLURM_BATCH_SCRIPT,
						&rec, &err), -1);
}
END_TEST

/* Two places that look right: nobody can tell which one is. */
START_TEST(two_candidates_are_refused)
{
	struct ddp_gather_record rec;

	memcpy(record + TAIL_AT + 160, tail, sizeof(*tail));
	ck_assert_int_eq(find(&rec), -1);
	memset(record + TAIL_AT + 160, 0, sizeof(*tail));
	memcpy(record + HEAD_AT + 64, head, sizeof(*head));
	ck_assert_int_eq(find(&rec), -1);
}
END_TEST

START_TEST(record_at_the_end_of_memory)
{
	struct ddp_gather_record rec;

	task.step = page + PAGE - 64;
	ck_assert_int_eq(find(&rec), -1);
	task.step = page + PAGE;
	ck_assert_int_eq(find(&rec), -1);
	task.step = (void *)8;
	ck_assert_int_eq(find(&rec), -1);
	task.step = NULL;
	ck_assert_int_eq(find(&rec), -1);
	/* All that is needed is there, and not a byte more. */
	memmove(page + PAGE - TAIL_AT - 128, record, TAIL_AT + 128);
	task.step = page + PAGE - TAIL_AT - 128;
	ck_assert_int_eq(find(&rec), 0);
}
END_TEST

START_TEST(gone_before_it_is_written)
{
	struct ddp_gather_usage u = { .pos = 5, .in_tot = 1 };
	struct ddp_gather_record rec;
	struct ddp_err err;

	ck_assert_int_eq(find(&rec), 0);
	usage.ntres--;
	ck_assert_int_eq(ddp_gather_record_put(&rec, 1, &u, 1, &err), -1);
	usage.ntres++;
	tail->jmgr_pid = 1;
	ck_assert_int_eq(ddp_gather_record_put(&rec, 1, &u, 1, &err), -1);
	ck_assert_int_eq(munmap(page, PAGE), 0);
	ck_assert_int_eq(ddp_gather_record_put(&rec, 1, &u, 1, &err), -1);
	ck_assert_ptr_null(ddp_gather_record_gres(&rec, false));
	ck_assert_uint_eq(usage.in_tot[5], UINT64_MAX);
}
END_TEST

START_TEST(lists_look_like_lists)
{
	static uint64_t no_list[64];
	struct ddp_gather_record rec;
	void *list = slurm_list_create(NULL);

	ck_assert_int_eq(find(&rec), 0);
	ck_assert_ptr_null(ddp_gather_record_gres(&rec, false));
	tail->step_gres = list;
	ck_assert_ptr_eq(ddp_gather_record_gres(&rec, false), list);
	ck_assert_ptr_null(ddp_gather_record_gres(&rec, true));
	tail->job_gres = list;
	ck_assert_ptr_eq(ddp_gather_record_gres(&rec, true), list);
	tail->step_gres = no_list;
	ck_assert_ptr_null(ddp_gather_record_gres(&rec, false));
	tail->step_gres = page + PAGE;
	ck_assert_ptr_null(ddp_gather_record_gres(&rec, false));
	slurm_list_destroy(list);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { found_and_written,
		another_layout_is_refused, batch_script, two_candidates_are_refused,
		record_at_the_end_of_memory, gone_before_it_is_written,
		lists_look_like_lists };

	return check_run("acct_record", tests, CHECK_COUNT(tests), setup);
}
