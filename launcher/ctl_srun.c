/* SPDX-License-Identifier: Apache-2.0 */
/* The channel to srun, and srun's own end. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>

/* srun does not read: what it gets after that is lost. */
#define SRUN_OUT_MAX 65536
#define DRAIN_MS 1000

static void put(struct ctl *ctl, const char *line)
{
	struct evbuffer *out;

	if (!ctl->srun)
		return;
	out = bufferevent_get_output(ctl->srun);
	if (evbuffer_get_length(out) + strlen(line) <= SRUN_OUT_MAX)
		bufferevent_write(ctl->srun, line, strlen(line));
}

void ctl_say(struct ctl *ctl, const char *fmt, ...)
{
	char text[DDP_CTL_LINE - 8], line[DDP_CTL_LINE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 32 || *p == 127)
			*p = '?';
	snprintf(line, sizeof(line), "say %s\n", text);
	put(ctl, line);
}

void ctl_srun_tell(struct ctl *ctl, const char *word, int code)
{
	char line[64];

	snprintf(line, sizeof(line), "%s %d\n", word, code);
	put(ctl, line);
}

static void gone(struct ctl *ctl)
{
	if (ctl->srun) {
		bufferevent_free(ctl->srun);
		ctl->srun = NULL;
	}
	ctl_end_srun_gone(ctl);
}

static void on_line(struct ctl *ctl, const char *line)
{
	char *end;
	long status;

	if (strncmp(line, "exit ", 5))
		return;
	status = strtol(line + 5, &end, 10);
	if (end != line + 5 && !*end)
		ctl_end_exit(ctl, (int)status);
}

static void on_read(struct bufferevent *be, void *arg)
{
	struct ctl *ctl = arg;
	struct evbuffer *in = bufferevent_get_input(be);
	char *line;

	while ((line = evbuffer_readln(in, NULL, EVBUFFER_EOL_LF))) {
		on_line(ctl, line);
		free(line);
		if (!ctl->srun)
			return;
	}
	if (evbuffer_get_length(in) > DDP_CTL_LINE)
		gone(ctl);
}

static void on_written(struct bufferevent *be, void *arg)
{
	struct ctl *ctl = arg;

	if (ctl->draining && !evbuffer_get_length(bufferevent_get_output(be)))
		event_base_loopbreak(ctl->base);
}

static void on_channel(struct bufferevent *be, short what, void *arg)
{
	(void)be;
	if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
		gone(arg);
}

static void on_drained(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;

	(void)fd, (void)what;
	event_base_loopbreak(ctl->base);
}

void ctl_srun_drain(struct ctl *ctl)
{
	if (ctl->draining)
		return;
	ctl->draining = true;
	ctl_timer(ctl, &ctl->last_timer, on_drained, DRAIN_MS);
	/* Mostly the kernel takes all of it now. */
	if (ctl->srun)
		bufferevent_flush(ctl->srun, EV_WRITE, BEV_FLUSH);
}

static void on_srun_ended(evutil_socket_t fd, short what, void *arg)
{
	struct ctl *ctl = arg;

	(void)fd, (void)what;
	event_del(ctl->srun_pid);
	gone(ctl);
}

/* EOF of the channel may come late: somebody may have inherited it. */
static void watch_pid(struct ctl *ctl)
{
	ctl->srun_pidfd = (int)syscall(SYS_pidfd_open, ctl->conf.srun, 0);
	if (ctl->srun_pidfd < 0)
		return;
	ctl->srun_pid = event_new(ctl->base, ctl->srun_pidfd, EV_READ,
				  on_srun_ended, ctl);
	if (ctl->srun_pid)
		event_add(ctl->srun_pid, NULL);
}

/*
 * What was read behind the configuration: srun may be about to end already.
 * A bufferevent's input takes only its own reads: it is opened for this.
 */
static int take_rest(struct ctl *ctl, const char *rest)
{
	struct evbuffer *in = bufferevent_get_input(ctl->srun);
	int rc;

	if (!rest[0])
		return 0;
	if (evbuffer_unfreeze(in, 0))
		return -1;
	rc = evbuffer_add(in, rest, strlen(rest));
	if (evbuffer_freeze(in, 0) || rc)
		return -1;
	bufferevent_trigger(ctl->srun, EV_READ, BEV_TRIG_IGNORE_WATERMARKS |
			    BEV_TRIG_DEFER_CALLBACKS);
	return 0;
}

int ctl_srun_start(struct ctl *ctl, int fd, const char *rest)
{
	if (evutil_make_socket_nonblocking(fd))
		return -1;
	ctl->srun = bufferevent_socket_new(ctl->base, fd,
					   BEV_OPT_CLOSE_ON_FREE);
	if (!ctl->srun)
		return -1;
	bufferevent_setcb(ctl->srun, on_read, on_written, on_channel, ctl);
	bufferevent_enable(ctl->srun, EV_READ | EV_WRITE);
	watch_pid(ctl);
	return take_rest(ctl, rest);
}
