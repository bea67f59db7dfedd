/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-gpu-sampler: integrates what the driver says of the GPUs of one step on
 * this node, for the accounting plugin in slurmstepd, which starts it and
 * reads the memory that both share. A driver call may never return: this
 * process is one that can be left behind.
 *
 * 3 is that memory (gpu_shm.h), 4 a SOCK_SEQPACKET socket: one byte 'F' asks
 * for the last reading, its end for the end of this process, at once. Exit
 * status: 0 after the last reading, 1 when the socket ended, 2 when it could
 * not begin; the memory then says why.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/sampler.h"

#include "core/ddp_child.h"
#include "core/ddp_text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SHM_FD 3
#define CONTROL_FD 4
#define EARLY_MS 120
#define MS 1000000		/* ns */

#ifdef __SANITIZE_ADDRESS__
/* The leak checker must ptrace us, which nobody may. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

struct sampler {
	struct sampler_args args;
	struct gpu_shm *shm;
	struct gpu_integ *in;
	void *state;		/* of the source */
	unsigned changes;
	struct gpu_totals totals;
};

static int64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The socket may end while a driver call hangs. */
static void on_io(int sig)
{
	struct pollfd p = { .fd = CONTROL_FD, .events = POLLRDHUP };

	(void)sig;
	if (poll(&p, 1, 0) == 1 && p.revents)
		_exit(1);
}

static int watch_control(struct ddp_err *err)
{
	struct sigaction io = { .sa_handler = on_io, .sa_flags = SA_RESTART };
	int flags = fcntl(CONTROL_FD, F_GETFL);

	if (sigaction(SIGIO, &io, NULL) || flags < 0 ||
	    fcntl(CONTROL_FD, F_SETOWN, getpid()) ||
	    fcntl(CONTROL_FD, F_SETFL, flags | O_ASYNC | O_NONBLOCK))
		return ddp_err_set(err, DDP_ESYS,
			"ddp-gpu-sampler: no control socket: %s",
			strerror(errno));
	on_io(SIGIO);		/* it may have ended before */
	return 0;
}

/* What ended the wait: the last call (true), or the deadline; exits when nobody
 * listens any more. */
static bool wait_until(struct sampler *s, int64_t deadline)
{
	struct pollfd p = { .fd = CONTROL_FD, .events = POLLIN };
	struct timespec ts;
	int64_t left;
	struct gpu_last_call call;
	ssize_t n;

	for (;;) {
		left = deadline - now_ns();
		if (left < 0)
			left = 0;
		ts.tv_sec = left / 1000000000;
		ts.tv_nsec = left % 1000000000;
		n = ppoll(&p, 1, &ts, NULL);
		if (!n)
			return false;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			_exit(1);
		n = recv(CONTROL_FD, &call, sizeof(call), MSG_DONTWAIT);
		if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
			_exit(1);
		if (n < 1 || call.what != GPU_LAST_CALL)
			continue;
		if (n == sizeof(call) && call.until > 0)
			gpu_integ_until(s->in, call.until);
		return true;
	}
}

static void publish(struct sampler *s, enum gpu_state state)
{
	s->totals.state = state;
	gpu_shm_publish(s->shm, &s->totals);
}

static void reading(struct sampler *s, bool last)
{
	const struct gpu_source *src = s->args.source;
	const struct gpu_request *req = &s->args.req;
	unsigned changes;

	gpu_integ_tick(s->in, now_ns());
	src->read(s->state, last);
	gpu_integ_totals(s->in, req->want, &s->totals);
	changes = src->changes(s->state);
	if (!s->totals.text[0] || changes != s->changes)
		gpu_source_text(src, s->state, req, s->in, s->totals.text,
				sizeof(s->totals.text));
	s->changes = changes;
	publish(s, last ? GPU_DONE : GPU_SAMPLING);
}

/*
 * One wake-up an interval. Who comes late, after a stop or a slow call, goes
 * on from now: no readings in a burst, and none too close to the one before.
 * When it is known that the step has begun a little before, the second reading
 * is an early one: what was before the first is taken to be like it.
 */
static void sample(struct sampler *s)
{
	int64_t period = (int64_t)s->args.req.interval_ms * MS;
	int64_t least = (int64_t)s->args.source->least_ms(s->state) * MS;
	int64_t next = now_ns(), now;
	bool early = s->args.req.since && period > 2 * EARLY_MS * MS;

	if (period < least)
		period = least;
	while (!wait_until(s, next)) {
		reading(s, false);
		if (early && wait_until(s, next + EARLY_MS * MS))
			break;
		if (early)
			reading(s, false);
		early = false;
		next += period;
		now = now_ns();
		if (next - now < period / 2)
			next = now + period;
	}
	reading(s, true);
}

static int begin(struct sampler *s, int argc, const char *const *argv,
		 struct ddp_err *err)
{
	const struct gpu_request *req = &s->args.req;
	unsigned k;

	if (sampler_args_parse(argc, argv, &s->args, err) ||
	    sampler_priv_drop(req, err) || watch_control(err))
		return -1;
	s->in = gpu_integ_create(req->ngpus, req->interval_ms * 1e-3,
				 req->idle);
	if (!s->in)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	gpu_integ_since(s->in, req->since);
	for (k = 0; k < req->ngpus; k++)
		memcpy(s->totals.gpu[k].name, req->ask[k].name,
		       sizeof(s->totals.gpu[k].name));
	return s->args.source->open(req, s->in, &s->state, err);
}

int main(int argc, char **argv)
{
	static struct sampler s;
	struct ddp_err err = { .code = DDP_OK };

	ddp_child_signals();
	s.shm = gpu_shm_attach(SHM_FD);
	if (!s.shm) {
		fprintf(stderr, "ddp-gpu-sampler is started by the accounting plugin: no shared memory as descriptor %d\n",
			SHM_FD);
		return 2;
	}
	s.shm->pid = getpid();
	if (begin(&s, argc, (const char *const *)argv, &err)) {
		fprintf(stderr, "%s\n", err.text);
		(void)ddp_text_safe(err.text, s.totals.text,
				    sizeof(s.totals.text));
		publish(&s, GPU_FAILED);
		return 2;
	}
	sample(&s);
	s.args.source->close(s.state);
	gpu_integ_destroy(s.in);
	gpu_shm_unmap(s.shm);
	return 0;
}
