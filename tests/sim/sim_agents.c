/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_agents [OPTIONS] CONTROLLER: plays a step of many nodes (see sim.h)
 * and prints one line of JSON; exits with 1 if anything was wrong, missing
 * or beyond a limit, and with 77 if this machine allows too few sockets.
 *
 * The time from the first HELLO to the last PLAN has the simulator's own
 * work in it: plan_ms is what remains of the wall time without the
 * simulator's CPU time, but not less than the controller's CPU time. The
 * time from EXIT to the last ABORT is taken from the kernel's time stamps of
 * what arrived, and read only when the controller has done its work.
 */
#define _GNU_SOURCE
#include "config.h"

#include "tests/sim/sim.h"

#include "launcher/net_auth.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->wrong[0]) {
		va_start(ap, fmt);
		vsnprintf(s->wrong, sizeof(s->wrong), fmt, ap);
		va_end(ap);
	}
	if (s->base)
		event_base_loopbreak(s->base);
}

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static void over(struct sim *s, const char *what, double value,
		 uint32_t limit)
{
	if (limit && value > limit)
		sim_fail(s, "%s: %.1f is more than %u", what, value, limit);
}

static double plan_ms(const struct sim_results *r)
{
	int64_t left = r->plan.wall_ns - r->hello.wall_ns -
		       (r->plan.self_ns - r->hello.self_ns);
	int64_t ctl = r->plan.ctl_ns - r->hello.ctl_ns;

	left = left > ctl ? left : ctl;
	return ms(left > 0 ? left : 0);
}

static void print_results(const struct sim *s, const struct sim_results *r)
{
	printf("{\"nodes\":%u,\"tasks\":%u,\"plan_ms\":%.1f,"
	       "\"plan_wall_ms\":%.1f,\"plan_sim_cpu_ms\":%.1f,"
	       "\"plan_ctl_cpu_ms\":%.1f,", s->conf.nodes, s->conf.tasks,
	       plan_ms(r), ms(r->plan.wall_ns - r->hello.wall_ns),
	       ms(r->plan.self_ns - r->hello.self_ns),
	       ms(r->plan.ctl_ns - r->hello.ctl_ns));
	printf("\"heartbeats\":%u,\"ping_ctl_us\":%.2f,\"switches\":%ld,"
	       "\"rss_kb\":%ld,\"growth_kb\":%ld,\"peak_kb\":%ld,",
	       s->pongs, s->pongs ? ms(r->pinged.ctl_ns - r->plan.ctl_ns) *
	       1000 / s->pongs : 0, r->switches, r->rss, r->grown, r->peak);
	printf("\"abort_ms\":%.1f,\"abort_ctl_cpu_ms\":%.1f,\"end_ms\":%.1f,"
	       "\"end_ctl_cpu_ms\":%.1f,\"says\":%u,\"code\":%d,\"ok\":%s",
	       ms(r->abort_ns), ms(r->aborted.ctl_ns - r->pinged.ctl_ns),
	       ms(r->ended.wall_ns - r->aborted.wall_ns),
	       ms(r->ended.ctl_ns - r->aborted.ctl_ns), s->says,
	       s->code == INT32_MIN ? -1 : s->code,
	       s->wrong[0] ? "false" : "true");
	printf("}\n");
}

static void check_limits(struct sim *s, const struct sim_results *r)
{
	over(s, "ms from hello to plan", plan_ms(r), s->conf.plan_limit_ms);
	over(s, "ms from exit to abort", ms(r->abort_ns),
	     s->conf.abort_limit_ms);
	over(s, "kB of memory", (double)r->peak, s->conf.rss_limit_kb);
	over(s, "kB of growth", (double)r->grown, s->conf.growth_limit_kb);
}

static int prepare(struct sim *s)
{
	struct event_config *c = event_config_new();

	s->code = INT32_MIN;
	s->count[SIM_OUT] = s->conf.nodes;
	s->agents = calloc(s->conf.nodes, sizeof(*s->agents));
	if (!c || !s->agents || net_auth_init() ||
	    event_config_set_flag(c, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST))
		return -1;
	for (uint32_t i = 0; i < s->conf.nodes; i++) {
		s->agents[i].sim = s;
		s->agents[i].node = i;
		s->agents[i].fd = -1;
	}
	net_auth_nonce(s->key, sizeof(s->key));
	if (sim_ctl_start(s))
		return -1;
	s->base = event_base_new_with_config(c);
	event_config_free(c);
	s->timer = evtimer_new(s->base, sim_step_timer, s);
	s->srun_event = event_new(s->base, s->srun, EV_READ | EV_PERSIST,
				  sim_step_srun, s);
	return s->base && s->timer && s->srun_event ?
		event_add(s->srun_event, NULL) : -1;
}

/* Sockets for all agents here, and in the controller, which inherits it. */
static int raise_limit(uint32_t nodes)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return -1;
	if (l.rlim_max < nodes + 64) {
		fprintf(stderr, "sim_agents: %lu open files are too few for "
			"%u nodes\n", (unsigned long)l.rlim_max, nodes);
		return -1;
	}
	l.rlim_cur = l.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &l);
}

static const struct {
	const char *name;
	size_t at;
	uint32_t min, max, value;
} options[] = {
#define O(name, field, min, max, value) \
	{ name, offsetof(struct sim_conf, field), min, max, value }
	O("nodes", nodes, 1, 60000, 10240),
	O("tasks", tasks, 1, 64, 1),
	O("heartbeats", heartbeats, 0, 100000000, 100000),
	O("window", window, 1, 60000, 2000),
	O("port", port, 0, 65535, 0),
	O("node-timeout", node_ms, 500, 3600000, 60000),
	O("plan-limit", plan_limit_ms, 0, 600000, 1000),
	O("abort-limit", abort_limit_ms, 0, 600000, 100),
	O("rss-limit", rss_limit_kb, 0, 100000000, 65536),
	O("growth-limit", growth_limit_kb, 0, 100000000, 256),
#undef O
};

#define OPTIONS (sizeof(options) / sizeof(options[0]))

static int parse(struct sim_conf *c, int argc, char **argv)
{
	struct option longs[OPTIONS + 2] = { { 0 } };
	int i;

	for (unsigned k = 0; k < OPTIONS; k++) {
		longs[k].name = options[k].name;
		longs[k].has_arg = required_argument;
		longs[k].val = (int)k + 1;
		memcpy((char *)c + options[k].at, &options[k].value, 4);
	}
	longs[OPTIONS] = (struct option){ "during", required_argument, NULL,
					  (int)OPTIONS + 1 };
	while ((i = getopt_long(argc, argv, "", longs, NULL)) > 0) {
		uint32_t v;

		if (i == (int)OPTIONS + 1) {
			c->during = optarg;
			continue;
		}
		if (i > (int)OPTIONS || ddp_text_u32(optarg,
				options[i - 1].min, options[i - 1].max, &v))
			return -1;
		memcpy((char *)c + options[i - 1].at, &v, 4);
	}
	c->controller = argv[optind];
	return optind + 1 == argc ? 0 : -1;
}

int main(int argc, char **argv)
{
	static struct sim s;
	struct sim_results r = { .rss = -1, .peak = -1 };

	if (parse(&s.conf, argc, argv)) {
		fprintf(stderr, "usage: sim_agents [OPTIONS] CONTROLLER\n");
		for (unsigned k = 0; k < OPTIONS; k++)
			fprintf(stderr, "  --%s=N (%u)\n", options[k].name,
				options[k].value);
		fprintf(stderr, "  --during=COMMAND\n");
		return 2;
	}
	if (raise_limit(s.conf.nodes))
		return 77;
	if (prepare(&s)) {
		fprintf(stderr, "sim_agents: %s\n", s.wrong[0] ? s.wrong :
			"out of memory");
		return 1;
	}
	sim_step_play(&s, &r);
	if (r.complete)
		check_limits(&s, &r);
	if (r.complete)
		print_results(&s, &r);
	else
		printf("{\"nodes\":%u,\"tasks\":%u,\"ok\":false}\n",
		       s.conf.nodes, s.conf.tasks);
	if (s.wrong[0])
		fprintf(stderr, "sim_agents: %s\n", s.wrong);
	return s.wrong[0] ? 1 : 0;
}
