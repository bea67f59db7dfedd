/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread in slurmstepd. Until the first task has begun it looks at the
 * children of slurmstepd every few milliseconds, and touches nothing else:
 * during the launch threads run with the user's ids for moments. Then it finds
 * the GPUs, starts the sampler, and sleeps until a task ends. When the last
 * one has, it takes the last reading: that is the step's time.
 *
 * Its own lock is never held while it calls Slurm: Slurm polls, and calls
 * acct_watch_data(), with locks of its own that such a call would take.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct_watch.h"
#include "core/ddp_io.h"
#include "core/ddp_text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <slurm/spank.h>

#define STACK (256 * 1024)
#define SOONER 10		/* in nice values */
#define LOOK_MOST_MS 200
/* Tasks that no pidfd tells of are looked at so often. */
#define AGAIN_MS 25
/* Of so many looks the cheapest one counts. */
#define COSTS 4
/* Children that have not exec'd are looked at for so long once tasks run. */
#define PENDING_MS 600000

struct acct_watch acct_watch = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.stop = -1,
	.sampler = { .control = -1, .pidfd = -1 },
};

static struct acct_watch *const w = &acct_watch;

static void copy_conf(struct acct_conf *to, const struct acct_conf *from)
{
	free(to->library);
	free(to->sampler);
	*to = *from;
	to->library = from->library ? strdup(from->library) : NULL;
	to->sampler = from->sampler ? strdup(from->sampler) : NULL;
}

void acct_watch_conf(const struct acct_conf *conf)
{
	pthread_mutex_lock(&w->lock);
	copy_conf(&w->next_conf, conf);
	pthread_mutex_unlock(&w->lock);
}

void acct_watch_take_conf(void)
{
	pthread_mutex_lock(&w->lock);
	copy_conf(&w->conf, &w->next_conf);
	pthread_mutex_unlock(&w->lock);
}

void acct_say(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	slurm_info("ddp: step %s: %s", w->step.name, text);
}

static bool stopped(void)
{
	struct pollfd p = { .fd = w->stop, .events = POLLIN };

	/* Not where it fails: slurmstepd's other threads change their ids, and
	 * the C library interrupts every thread for that. */
	return poll(&p, 1, 0) > 0;
}

/* What a look costs. By the clock it would seem to cost the more the busier the
 * node is, which is just where it must not be put off. */
static int64_t cpu_us(void)
{
	struct timespec t;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t))
		return 0;
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* What the next look will cost, us. One look that met an interrupt says nothing
 * of it, and to put it off for that would miss the beginning by as much. */
static int64_t next_cost(int64_t took_us)
{
	static int64_t last[COSTS];
	static unsigned looks;
	int64_t least = took_us;

	last[looks++ % COSTS] = took_us;
	for (unsigned i = 0; i < COSTS && i < looks; i++)
		if (last[i] < least)
			least = last[i];
	return least;
}

/* Finer at first, when most launches end, then ever coarser; and most of the
 * time asleep where there are many children to look at. */
static int look_ms(int64_t since, int64_t cost_us)
{
	int ms = since < 2000 ? 3 : since < 10000 ? 10 : since < 60000 ? 25 :
		100;
	int soon = acct_tasks_look_in(&w->tasks);

	if (soon >= 0 && soon < ms)
		return soon;
	return cost_us > LOOK_MOST_MS * 1000 / 8 ? LOOK_MOST_MS :
		ms + (int)(8 * cost_us / 1000);
}

/* --- while tasks run --- */

/* pollfds of all that can happen: [0] the end, [1] the sampler, tasks. */
static struct pollfd *pollfds(unsigned *n)
{
	struct pollfd *p = calloc(w->tasks.n + 2, sizeof(*p));

	if (!p)
		return NULL;
	p[0] = (struct pollfd){ .fd = w->stop, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = w->sampler.pidfd, .events = POLLIN };
	*n = 2;
	for (unsigned i = 0; i < w->tasks.n; i++)
		if (w->tasks.v[i].pidfd >= 0)
			p[(*n)++] = (struct pollfd){
				.fd = w->tasks.v[i].pidfd, .events = POLLIN };
	return p;
}

/* A task whose pidfd is readable has ended. */
static void close_ended(const struct pollfd *p, unsigned n)
{
	for (unsigned k = 2; k < n; k++) {
		if (!p[k].revents)
			continue;
		for (unsigned i = 0; i < w->tasks.n; i++)
			if (w->tasks.v[i].pidfd == p[k].fd) {
				close(p[k].fd);
				w->tasks.v[i].pidfd = -1;
				w->tasks.v[i].ended = true;
			}
	}
}

static bool any_alive(void)
{
	for (unsigned i = 0; i < w->tasks.n; i++)
		if (!w->tasks.v[i].ended)
			return true;
	return false;
}

/* The sampler is gone while tasks run: what it has said of it. */
static void sampler_ended(void)
{
	struct gpu_totals t;
	int error = 0;

	if (recv(w->sampler.control, &error, sizeof(error), MSG_DONTWAIT) ==
	    sizeof(error))
		acct_say("cannot run %s: %s", w->conf.sampler,
			 strerror(error));
	else if (acct_watch_read(&t) && t.state == GPU_FAILED)
		acct_say("no GPU accounting: %s", t.text);
	else
		acct_say("the GPU sampler has ended; what it had measured so "
			 "far is kept");
	close(w->sampler.pidfd);
	w->sampler.pidfd = -1;
	w->said = true;
}

/* Until something happens, or it is time to look for tasks again. */
static void wait_event(int ms)
{
	struct pollfd *p;
	unsigned n;

	if (acct_tasks_look_again(&w->tasks) && (ms < 0 || ms > AGAIN_MS))
		ms = AGAIN_MS;
	p = pollfds(&n);
	if (!p) {
		/* Nothing to wait with: come again. */
		poll(NULL, 0, AGAIN_MS);
		return;
	}
	if (poll(p, n, ms) > 0) {
		if (p[1].revents)
			sampler_ended();
		close_ended(p, n);
	}
	free(p);
}

/* --- the beginning --- */

static void read_title(void)
{
	char title[256];
	ssize_t n = ddp_io_read_file("/proc/self/cmdline", title,
				     sizeof(title));

	acct_step_parse(n > 0 ? title : "", &w->step);
}

/* Copies what get_data() looks at. */
static void share_tasks(void)
{
	struct acct_task *copy = malloc(w->tasks.n * sizeof(*copy) + 1);

	if (!copy)
		return;
	memcpy(copy, w->tasks.v, w->tasks.n * sizeof(*copy));
	pthread_mutex_lock(&w->lock);
	free(w->seen.v);
	w->seen.v = copy;
	w->seen.n = w->tasks.n;
	pthread_mutex_unlock(&w->lock);
}

static bool look_for_tasks(void)
{
	unsigned found = acct_tasks_look(&w->tasks, w->rec.node_tasks);

	if (found && !w->since)
		w->since = w->tasks.v[0].exec * 1000;
	if (found && !w->put)
		share_tasks();
	return found;
}

bool acct_watch_read(struct gpu_totals *t)
{
	if (!gpu_shm_read(w->sampler.shm, t))
		return false;
	if (!acct_totals_check(t, w->ngpus, w->since,
			       ddp_io_now_us() * 1000 + 1000))
		t->state = GPU_BROKEN;
	return true;
}

/*
 * A step shorter than Slurm's own interval may not be polled at all. Where
 * values come from polls alone, one is made when tasks have begun.
 */
static void kick(void)
{
	if (w->sampling && !w->put)
		ddp_gather_poll();
}

static void watch(void)
{
	int64_t began = ddp_io_now_ms(), age, took, cost;
	bool found, pending;

	while (!stopped()) {
		took = cpu_us();
		if (w->step.kind == ACCT_UNKNOWN)
			read_title();
		if (w->step.kind == ACCT_OTHER)
			return;
		found = look_for_tasks();
		cost = next_cost(cpu_us() - took);
		if (found) {
			if (!w->begun && acct_watch_begin())
				break;
			kick();
		}
		age = ddp_io_now_ms() - began;
		pending = !w->begun ||
			(w->tasks.pending && age < PENDING_MS);
		if (!pending && !any_alive())
			break;
		wait_event(pending ? look_ms(age, cost) : -1);
	}
	acct_watch_last();
}

static void *thread(void *arg)
{
	int nice;

	prctl(PR_SET_NAME, "ddp_gpu");
	/* Who looks late, or reads late, counts wrongly: this thread and the
	 * sampler come before programs that always have something to do. Not
	 * more than this thread: 0 is the caller. */
	errno = 0;
	nice = getpriority(PRIO_PROCESS, 0);
	if (!errno)
		(void)setpriority(PRIO_PROCESS, 0, nice - SOONER);
	watch();
	pthread_mutex_lock(&w->lock);
	w->over = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return arg;
}

/* --- from other threads --- */

int acct_watch_start(void)
{
	const char *node = getenv("SLURMD_NODENAME");
	pthread_condattr_t cond;
	pthread_attr_t attr;
	sigset_t all, old;
	int rc;

	/* Only now: other threads may change the environment later. */
	if (ddp_text_copy(w->node, sizeof(w->node),
			  node ? node : ""))
		w->node[0] = '\0';
	w->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->stop < 0)
		return errno;
	pthread_condattr_init(&cond);
	pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
	pthread_cond_init(&w->changed, &cond);
	pthread_condattr_destroy(&cond);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	/* slurmstepd's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&w->thread, &attr, thread, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	w->running = !rc;
	return rc;
}
