/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New connections. Anybody may connect: a stranger gets a little memory and
 * a few seconds to prove that it knows the step's key. When there are too
 * many, the oldest that has said nothing goes first, then the oldest whose
 * proof is missing. An agent that was crowded out tries again.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPT_BATCH 64
#define ACCEPT_AGAIN_MS 50

/* Descriptors for all else: streams, signals, epoll, helpers, status. */
#define FDS_OURS 64U
/* What is really open; enough where a limit is that low. */
#define FDS_MIN 20U
#define STRANGERS_MIN 4U

void ctl_accept_refuse(struct ctl_peer *p)
{
	p->ctl->refused++;
}

static void strangers_timer(struct ctl *ctl)
{
	const struct timeval tv = { 1, 0 };

	if ((ctl->nstrangers || ctl->nshaking) &&
	    !event_pending(ctl->stranger_timer, EV_TIMEOUT, NULL))
		event_add(ctl->stranger_timer, &tv);
}

/* All who came before; who has sent HELLO is not in the order of arrival. */
static void drop_old(struct ctl_peers *list, int64_t before)
{
	struct ctl_peer *p = TAILQ_FIRST(list), *next;

	for (; p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->heard_us > before)
			continue;
		ctl_accept_refuse(p);
		ctl_peer_free(p);
	}
}

static void on_strangers(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;
	int64_t before = ddp_io_now_us() - CTL_STRANGER_MS * 1000;

	(void)fd, (void)what;
	drop_old(&ctl->strangers, before);
	drop_old(&ctl->shaking, before);
	strangers_timer(ctl);
}

/* false if there is nobody who could go. */
static bool crowd_out(struct ctl *ctl)
{
	struct ctl_peer *p = TAILQ_FIRST(&ctl->strangers);

	if (!p)
		p = TAILQ_FIRST(&ctl->shaking);
	if (!p)
		return false;
	ctl_accept_refuse(p);
	ctl_peer_free(p);
	return true;
}

static unsigned awaited(const struct ctl *ctl)
{
	return ctl->phase == CTL_WAIT ? ctl->needed - ctl->ready : 0;
}

static void admit(struct ctl *ctl, int fd)
{
	int on = 1;
	unsigned silence = ctl->conf.node_ms;

	if (ctl->nstrangers + ctl->nshaking >=
	    ctl->max_strangers + awaited(ctl))
		(void)crowd_out(ctl);
	/* What is not TCP gets no such options, and no proof either. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence,
			 sizeof(silence));
	if (!ctl_peer_new(ctl, fd))
		close(fd);
}

static void on_listen_again(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;

	(void)fd, (void)what;
	if (ctl->listen)
		event_add(ctl->listen, NULL);
}

/* Out of descriptors or memory: not at once again, or the loop would spin. */
static void accept_failed(struct ctl *ctl)
{
	const struct timeval tv = { 0, ACCEPT_AGAIN_MS * 1000 };

	if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS &&
	    errno != ENOMEM)
		return;
	if (crowd_out(ctl))
		return;
	event_del(ctl->listen);
	event_add(ctl->listen_again, &tv);
}

static void on_listen(evutil_socket_t listener, short what, void *arg)
{
	struct ctl *ctl = arg;

	(void)what;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int fd = accept4(listener, NULL, NULL,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			accept_failed(ctl);
			break;
		}
		admit(ctl, fd);
	}
	strangers_timer(ctl);
}

/* As many descriptors as we may have; says so where they are too few. */
static void limit_fds(struct ctl *ctl)
{
	struct rlimit r;
	rlim_t need = (rlim_t)ctl->needed + FDS_MIN + STRANGERS_MIN, left;

	ctl->max_strangers = STRANGERS_MIN;
	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	r.rlim_cur = r.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &r);
	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	if (r.rlim_cur < need) {
		ctl_fail_launch(ctl, CTL_NONE, "%u nodes need %llu open files "
				"in srun's controller, but the limit here is "
				"%llu: raise it (ulimit -Hn) or use "
				"--ddp-launch=stateless", ctl->needed,
				(unsigned long long)need,
				(unsigned long long)r.rlim_cur);
		return;
	}
	if (r.rlim_cur < need - FDS_MIN + FDS_OURS)
		return;
	left = r.rlim_cur - ctl->needed - FDS_OURS;
	ctl->max_strangers = left < CTL_STRANGERS ? (unsigned)left :
		CTL_STRANGERS;
}

int ctl_accept_start(struct ctl *ctl, int fd)
{
	TAILQ_INIT(&ctl->strangers);
	TAILQ_INIT(&ctl->shaking);
	TAILQ_INIT(&ctl->agents);
	if (evutil_make_socket_nonblocking(fd))
		return -1;
	/* All nodes come at once. */
	if (listen(fd, 65535))
		return -1;
	ctl->listen = event_new(ctl->base, fd, EV_READ | EV_PERSIST, on_listen,
				ctl);
	ctl->listen_again = event_new(ctl->base, -1, 0, on_listen_again, ctl);
	ctl->stranger_timer = event_new(ctl->base, -1, 0, on_strangers, ctl);
	if (!ctl->listen || !ctl->listen_again || !ctl->stranger_timer)
		return -1;
	limit_fds(ctl);
	return event_add(ctl->listen, NULL);
}

static void free_all(struct ctl_peers *list)
{
	while (!TAILQ_EMPTY(list))
		ctl_peer_free(TAILQ_FIRST(list));
}

void ctl_accept_stop(struct ctl *ctl)
{
	free_all(&ctl->strangers);
	free_all(&ctl->shaking);
	free_all(&ctl->agents);
	if (ctl->listen) {
		event_free(ctl->listen);
		close(DDP_CTL_FD_LISTEN);
		ctl->listen = NULL;
	}
	if (ctl->listen_again)
		event_free(ctl->listen_again);
	if (ctl->stranger_timer)
		event_free(ctl->stranger_timer);
	ctl->listen_again = ctl->stranger_timer = NULL;
}
