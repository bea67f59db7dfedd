/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-topo: the binding plan of a node, this one or a saved one, as a table,
 * a drawing, JSON or a picture. The plan is core/ddp_bind.c's.
 *
 * Exit codes: 0; 1 the policy refuses a rank, or something failed; 2 a wrong
 * call.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_text.h"
#include "launcher/topo.h"

#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct call {
	const char *input, *gpus, *cpus, *svg;
	uint32_t ntasks;
	enum ddp_bind_policy policy;
	bool json, drawing, done;
};

static void say(const char *what)
{
	fprintf(stderr, "ddp-topo: %s\n", what);
}

static void usage(FILE *f)
{
	fputs("usage: ddp-topo [--input FILE.xml] [--ntasks N] [--gpus LIST]\n"
	      "                [--cpus LIST] [--policy POLICY] [--json]\n"
	      "                [--svg FILE] [--no-drawing]\n\n"
	      "Which rank gets which GPUs and CPUs on this node, or on that "
	      "of a topology\nsaved with lstopo. See ddp-topo(1).\n", f);
}

/* A value that is no option's own letter. Returns 0, or 2. */
static int take_value(struct call *c, int option, const char *value)
{
	char safe[64];

	if (option == 'n' && ddp_text_u32(value, 1, DDP_BIND_RANKS,
					  &c->ntasks)) {
		fprintf(stderr, "ddp-topo: --ntasks %s: wanted is a number "
			"from 1 to %d\n",
			ddp_text_safe(value, safe, sizeof(safe)),
			DDP_BIND_RANKS);
		return 2;
	}
	if (option == 'p' && ddp_bind_policy_parse(value, &c->policy)) {
		fprintf(stderr, "ddp-topo: --policy %s: wanted is none, "
			"best-effort, restricted or single-numa-node\n",
			ddp_text_safe(value, safe, sizeof(safe)));
		return 2;
	}
	if (option == 'i')
		c->input = value;
	else if (option == 'g')
		c->gpus = value;
	else if (option == 'c')
		c->cpus = value;
	else if (option == 's')
		c->svg = value;
	return 0;
}

/* Returns 0, or 2 after a message. */
static int read_call(struct call *c, int argc, char **argv)
{
	static const struct option table[] = {
		{ "input", required_argument, NULL, 'i' },
		{ "ntasks", required_argument, NULL, 'n' },
		{ "gpus", required_argument, NULL, 'g' },
		{ "cpus", required_argument, NULL, 'c' },
		{ "policy", required_argument, NULL, 'p' },
		{ "svg", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, 'j' },
		{ "no-drawing", no_argument, NULL, 'd' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 }
	};
	int o;

	while ((o = getopt_long(argc, argv, "", table, NULL)) >= 0) {
		if (o == 'h')
			usage(stdout);
		else if (o == 'V')
			printf("ddp-topo %s\n", PACKAGE_VERSION);
		else if (o == 'j')
			c->json = true;
		else if (o == 'd')
			c->drawing = false;
		else if (o == '?' || take_value(c, o, optarg))
			return 2;
		if (o == 'h' || o == 'V') {
			c->done = true;
			return 0;
		}
	}
	if (optind < argc) {
		usage(stderr);
		return 2;
	}
	return 0;
}

/* Columns of the terminal, or 80. */
static unsigned width(void)
{
	struct winsize w;

	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col >= 40)
		return w.ws_col < 160 ? w.ws_col : 160;
	return 80;
}

static int show(const struct call *c, struct topo_plan *p)
{
	bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	struct ddp_err err;
	int rc = 0;

	if (c->json) {
		rc = topo_show_json(p, stdout);
	} else {
		rc = topo_show_table(p, stdout);
		if (!rc && c->drawing)
			rc = topo_show_drawing(p, stdout, width(), utf8);
	}
	if (rc || fflush(stdout)) {
		say("cannot write the plan");
		return 1;
	}
	if (c->svg && topo_show_svg(p, c->svg, &err)) {
		say(err.text);
		return 1;
	}
	if (!p->plan.nrefused)
		return 0;
	topo_show_refused(p, "ddp-topo");
	return 1;
}

/* Returns the exit code. */
static int run(const struct call *c, struct topo *t, struct topo_plan *p)
{
	struct ddp_err err;

	if (topo_load(t, c->input, true, &err)) {
		say(err.text);
		return 1;
	}
	p->topo = t;
	if (topo_select_gpus(p, c->gpus, &err) ||
	    topo_select_cpus(p, c->cpus, &err)) {
		say(err.text);
		return err.code == DDP_EINVAL ? 2 : 1;
	}
	if (topo_plan_make(p, c->ntasks, c->policy, &err)) {
		say(err.text);
		return 1;
	}
	return show(c, p);
}

int main(int argc, char **argv)
{
	struct call c = { .policy = DDP_BIND_BEST_EFFORT, .drawing = true };
	struct topo_plan *p = calloc(1, sizeof(*p));
	struct topo *t = calloc(1, sizeof(*t));
	int rc;

	setlocale(LC_ALL, "");
	rc = read_call(&c, argc, argv);
	if (!rc && !c.done) {
		rc = 1;
		if (t && p)
			rc = run(&c, t, p);
		else
			say("out of memory");
	}
	if (p)
		topo_plan_free(p);
	if (t)
		topo_free(t);
	free(p);
	free(t);
	return rc;
}
