/* SPDX-License-Identifier: Apache-2.0 */
/* What every call goes through: counting, the log, and the rules. */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Calls of this process, of all its scenarios: [0] all, [1 + i] for GPU i. */
static atomic_ulong calls[FAKE_FNS][1 + FAKE_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint users;
static int log_fd = -1;

bool fake_log_open(void)
{
	const char *path = fake_scenario.log;

	if (log_fd >= 0)
		close(log_fd);
	log_fd = -1;
	if (!path[0])
		return true;
	log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (log_fd < 0)
		fake_say("log %s: %s", path, strerror(errno));
	return log_fd >= 0;
}

static void write_log(enum fake_fn fn, int index)
{
	char text[80];
	int n;

	if (log_fd < 0)
		return;
	if (index < 0)
		n = snprintf(text, sizeof(text), "%s\n", fake_fn_name[fn]);
	else
		n = snprintf(text, sizeof(text), "%s %d\n", fake_fn_name[fn],
			     index);
	if (write(log_fd, text, (size_t)n) != n)
		fake_say("log: %s", strerror(errno));
}

/* Sleeps, whatever signals come; 0: for ever. */
static void hang(double seconds)
{
	struct timespec left = { 0, 0 };

	if (seconds <= 0) {
		for (;;)
			pause();
	}
	left.tv_sec = (time_t)seconds;
	left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

int fake_enter(enum fake_fn fn, const struct fake_gpu *gpu)
{
	const struct fake_scenario *s = &fake_scenario;
	int index = gpu ? (int)(gpu - s->gpu) : -1, code = ML_OK;
	unsigned long all, own = 0, n;
	const struct fake_rule *rule;
	unsigned i;

	all = atomic_fetch_add(&calls[fn][0], 1) + 1;
	if (gpu)
		own = atomic_fetch_add(&calls[fn][1 + index], 1) + 1;
	write_log(fn, index);
	for (i = 0; i < s->nrules; i++) {
		rule = &s->rule[i];
		if (rule->fn != fn || (rule->gpu >= 0 && rule->gpu != index))
			continue;
		n = rule->gpu >= 0 ? own : all;
		if (n < rule->at || n - rule->at >= rule->count)
			continue;
		if (rule->kind == RULE_FAIL)
			code = code ? code : rule->code;
		else if (rule->kind == RULE_HANG || rule->seconds > 0)
			hang(rule->seconds);
	}
	return code;
}

/* The unit that a handle stands for; NULL for none. */
static struct fake_unit *look_up(const void *handle)
{
	struct fake_gpu *gpu;
	unsigned i, j;

	for (i = 0; i < fake_scenario.ngpus; i++) {
		gpu = &fake_scenario.gpu[i];
		if (gpu->hidden)
			continue;
		if (handle == &gpu->unit)
			return &gpu->unit;
		for (j = 0; j < gpu->nmigs; j++)
			if (handle == &gpu->migs[j])
				return &gpu->migs[j];
	}
	return NULL;
}

int fake_enter_any(enum fake_fn fn, const struct fake_gpu *gpu)
{
	return atomic_load(&users) ? fake_enter(fn, gpu) : ML_UNINITIALIZED;
}

int fake_enter_unit(enum fake_fn fn, const void *handle,
		    struct fake_unit **unit)
{
	int code;

	*unit = NULL;
	if (!atomic_load(&users))
		return ML_UNINITIALIZED;
	*unit = look_up(handle);
	code = fake_enter(fn, *unit ? (*unit)->gpu : NULL);
	if (code)
		return code;
	if (!*unit)
		return ML_INVALID;
	return fake_now() >= (*unit)->gpu->lost ? ML_LOST : ML_OK;
}

int fake_enter_gpu(enum fake_fn fn, const void *handle, struct fake_gpu **gpu)
{
	struct fake_unit *unit;
	int code = fake_enter_unit(fn, handle, &unit);

	*gpu = unit ? unit->gpu : NULL;
	return !code && unit->is_mig ? ML_NOT_SUPPORTED : code;
}

int fake_init(enum fake_fn fn)
{
	int code = ML_OK;

	pthread_mutex_lock(&lock);
	if (!atomic_load(&users))
		code = fake_scenario_load();
	if (!code)
		atomic_fetch_add(&users, 1);
	pthread_mutex_unlock(&lock);
	/* It may hang, so not with the lock. */
	if (!code)
		code = fake_enter(fn, NULL);
	else
		return code;
	if (code)
		atomic_fetch_sub(&users, 1);
	return code;
}

int fake_done(void)
{
	unsigned now;
	int code;

	if (!atomic_load(&users))
		return ML_UNINITIALIZED;
	code = fake_enter(FN_nvmlShutdown, NULL);
	now = atomic_load(&users);
	while (!code && now && !atomic_compare_exchange_weak(&users, &now,
							     now - 1))
		;
	return code;
}

int fake_text(char *buffer, unsigned size, const char *text)
{
	if (!buffer)
		return ML_INVALID;
	return fake_copy(buffer, size, text) ? ML_OK : ML_SIZE;
}
