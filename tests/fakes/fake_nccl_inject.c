/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of the fake NCCL, from the environment. Each variable is a list,
 * separated by commas; RANK is that of the communicator, or where a call has
 * none FAKE_NCCL_RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK:
 *
 *	FAKE_NCCL_FAIL=FUNCTION:NTH[:RANK[:RESULT]]  (RESULT 3: internal error)
 *	FAKE_NCCL_SLOW=FUNCTION:MS[:RANK]
 *	FAKE_NCCL_HANG=FUNCTION:NTH[:RANK]
 *	FAKE_NCCL_ASYNC=MS:RESULT[:RANK]
 *	FAKE_NCCL_DETECT=1  a connection that breaks is ncclRemoteError
 *
 * NTH counts the calls of this process that match FUNCTION and RANK, from 1;
 * 0 and an empty field match all.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_RULES 16

static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned counts[3][MAX_RULES];

bool fake_flag(const char *name)
{
	const char *value = getenv(name);

	return value && strcmp(value, "1") == 0;
}

bool fake_detect(void)
{
	return fake_flag("FAKE_NCCL_DETECT");
}

static int process_rank(void)
{
	static const char *const names[] = {
		"FAKE_NCCL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"
	};
	unsigned i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	return -1;
}

/* One rule: up to four fields; numbers are -1 where empty. */
struct rule {
	char name[64];
	long field[3];
};

/* The next rule of a list; false at its end. Nonsense ends the program: a
 * test that injects nothing must not pass. */
static bool next_rule(const char **at, bool named, struct rule *rule)
{
	const char *text = *at;
	char *end;
	size_t size = strcspn(text, ":,");
	unsigned i = 0;

	if (!*text)
		return false;
	rule->name[0] = '\0';
	rule->field[0] = rule->field[1] = rule->field[2] = -1;
	if (named) {
		if (size >= sizeof(rule->name))
			goto bad;
		memcpy(rule->name, text, size);
		rule->name[size] = '\0';
		text += size + (text[size] == ':');
	}
	for (; *text && *text != ','; i++) {
		if (i == 3)
			goto bad;
		if (*text != ':') {
			rule->field[i] = strtol(text, &end, 10);
			if (end == text || (*end && *end != ':' && *end != ','))
				goto bad;
			text = end;
		}
		text += *text == ':';
	}
	*at = text + (*text == ',');
	return true;
bad:
	fprintf(stderr, "fake nccl: not a rule: %s\n", *at);
	_exit(99);
}

/*
 * The first rule of the variable that is meant for this call: its place of
 * the rank is at, and with counted its first field the number of the call.
 */
static bool find_rule(const char *variable, unsigned kind, const char *name,
		      int rank, bool counted, struct rule *rule)
{
	const char *list = getenv(variable);
	bool found = false;
	unsigned i, nth;

	for (i = 0; list && !found && i < MAX_RULES; i++) {
		if (!next_rule(&list, true, rule))
			return false;
		if (strcmp(rule->name, name) != 0 ||
		    (rule->field[1] >= 0 && rule->field[1] != rank))
			continue;
		pthread_mutex_lock(&count_lock);
		nth = ++counts[kind][i];
		pthread_mutex_unlock(&count_lock);
		found = !counted || rule->field[0] <= 0 ||
			rule->field[0] == (long)nth;
	}
	return found;
}

static struct timespec deadline(long ms)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_sec += ms / 1000;
	at.tv_nsec += ms % 1000 * 1000000;
	at.tv_sec += at.tv_nsec / 1000000000;
	at.tv_nsec %= 1000000000;
	return at;
}

static void slow(struct ncclComm *comm, long ms)
{
	struct timespec until = deadline(ms);

	if (!comm) {
		usleep((useconds_t)ms * 1000);
		return;
	}
	pthread_mutex_lock(&comm->lock);
	while (!comm->aborted &&
	       pthread_cond_timedwait(&comm->changed, &comm->lock, &until) == 0)
		;
	pthread_mutex_unlock(&comm->lock);
}

ncclResult_t fake_inject(const char *name, struct ncclComm *comm)
{
	int rank = comm ? comm->rank : process_rank();
	struct rule rule;

	if (find_rule("FAKE_NCCL_SLOW", 0, name, rank, false, &rule) &&
	    rule.field[0] > 0)
		slow(comm, rule.field[0]);
	if (find_rule("FAKE_NCCL_HANG", 1, name, rank, true, &rule)) {
		fake_log(name, comm, -1, "hangs");
		for (;;)
			pause();
	}
	if (find_rule("FAKE_NCCL_FAIL", 2, name, rank, true, &rule))
		return rule.field[2] > 0 ? (ncclResult_t)rule.field[2] :
			ncclInternalError;
	return ncclSuccess;
}

struct async {
	struct ncclComm *comm;
	unsigned number;
	long ms;
	ncclResult_t result;
};

static void *async_main(void *data)
{
	struct async *async = data;
	struct ncclComm *comm = async->comm;
	struct timespec until = deadline(async->ms);
	bool set = false;

	pthread_mutex_lock(&comm->lock);
	while (!comm->stopping && !comm->aborted &&
	       comm->number == async->number &&
	       pthread_cond_timedwait(&comm->changed, &comm->lock, &until) == 0)
		;
	if (!comm->stopping && !comm->aborted &&
	    comm->number == async->number) {
		comm->async = async->result;
		set = true;
		pthread_cond_broadcast(&comm->changed);
	}
	pthread_mutex_unlock(&comm->lock);
	if (set)
		fake_log("async", comm, async->result, NULL);
	free(async);
	return NULL;
}

void fake_inject_async(struct ncclComm *comm)
{
	const char *list = getenv("FAKE_NCCL_ASYNC");
	struct async *async;
	struct rule rule;
	pthread_t thread;

	while (list && next_rule(&list, false, &rule)) {
		if (rule.field[2] >= 0 && rule.field[2] != comm->rank)
			continue;
		async = malloc(sizeof(*async));
		if (!async)
			return;
		async->comm = comm;
		async->number = comm->number;
		async->ms = rule.field[0] > 0 ? rule.field[0] : 0;
		async->result = (ncclResult_t)rule.field[1];
		if (pthread_create(&thread, NULL, async_main, async) != 0)
			free(async);
		else
			pthread_detach(thread);
	}
}
