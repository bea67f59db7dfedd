/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_options.h"

#include <signal.h>
#include <string.h>

/* Ports below this one need a privilege that the program does not have. */
#define PORT_MIN 1024

/* No valid value comes near this length. */
#define TEXT_MAX 512U

static const struct ddp_optdef optdefs[DDP_OPT_COUNT] = {
	[DDP_OPT_LAUNCH] = {
		"ddp-launch", "launch", "DDP_LAUNCH", "full|stateless|off",
		"start the step as one distributed training: every rank gets "
		"the environment its framework reads (no value: full)", 2 },
	[DDP_OPT_EXPLAIN] = {
		"ddp-explain", "explain", "DDP_EXPLAIN", NULL,
		"print each variable of the launch, its value and where it "
		"came from", 0 },
	[DDP_OPT_FRAMEWORKS] = {
		"ddp-frameworks", "frameworks", "DDP_FRAMEWORKS", "LIST",
		"set the variables of these frameworks: torch,jax (default), "
		"horovod,deepspeed,accelerate,lightning,tf", 1 },
	[DDP_OPT_MASTER_PORT] = {
		"ddp-master-port", "master-port", "DDP_MASTER_PORT",
		"auto|PORT", "port on which rank 0 listens", 1 },
	[DDP_OPT_MASTER_ADDR] = {
		"ddp-master-addr", "master-addr", "DDP_MASTER_ADDR",
		"auto|ADDR", "address of rank 0's node (auto: its NodeAddr)",
		1 },
	[DDP_OPT_IFACE] = {
		"ddp-iface", "iface", "DDP_IFACE", "none|auto|NAME",
		"network interface for NCCL and Gloo (auto: the one towards "
		"the master)", 1 },
	[DDP_OPT_ABORT] = {
		"ddp-abort", "abort", "DDP_ABORT", "gang|node|none",
		"what ends when a rank fails: the step, the ranks of its "
		"node, nothing else", 1 },
	[DDP_OPT_ABORT_SIGNAL] = {
		"ddp-abort-signal", "abort-signal", "DDP_ABORT_SIGNAL",
		"SIGNAL", "first signal to the other ranks (TERM)", 1 },
	[DDP_OPT_GRACE] = {
		"ddp-grace", "grace", "DDP_GRACE", "SECONDS",
		"from the first signal to KILL (5)", 1 },
	[DDP_OPT_EXIT_GRACE] = {
		"ddp-exit-grace", "exit-grace", "DDP_EXIT_GRACE",
		"off|SECONDS", "a rank that ends with 0 while others run is a "
		"failure after this time (off)", 1 },
	[DDP_OPT_START_TIMEOUT] = {
		"ddp-start-timeout", "start-timeout", "DDP_START_TIMEOUT",
		"SECONDS", "longest wait for every node (60)", 1 },
	[DDP_OPT_NODE_TIMEOUT] = {
		"ddp-node-timeout", "node-timeout", "DDP_NODE_TIMEOUT",
		"SECONDS", "a node that is silent for so long is lost (20)",
		1 },
	[DDP_OPT_CONTROL] = {
		"ddp-control", "control", "DDP_CONTROL", "require|prefer",
		"nodes that cannot reach srun: fail, or start stateless", 1 },
	[DDP_OPT_REPORT_FILE] = {
		"ddp-report-file", "report-file", "DDP_REPORT_FILE", "PATH",
		"write how the step ended as JSON (%j job, %s step)", 1 },
	[DDP_OPT_BIND] = {
		"ddp-bind", "bind", "DDP_BIND", "POLICY[,verify]",
		"put ranks on the CPUs and memory next to their GPUs: none, "
		"best-effort (default), restricted, single-numa-node", 1 },
	[DDP_OPT_GPUS] = {
		"ddp-gpus", "gpus", "DDP_GPUS", "auto|node|rank",
		"GPUs that a rank sees: as Slurm gave them, all of its node, "
		"its own", 1 },
	[DDP_OPT_LIFECYCLE] = {
		"ddp-lifecycle", "lifecycle", "DDP_LIFECYCLE", "on|off",
		"MPI and NCCL start and stop in order: preload "
		"libddp_lifecycle.so (no value: on)", 2 },
	[DDP_OPT_READY_TIMEOUT] = {
		"ddp-ready-timeout", "ready-timeout", "DDP_READY_TIMEOUT",
		"off|SECONDS", "with --ddp-lifecycle: longest wait until all "
		"ranks have initialised MPI and NCCL (off)", 1 },
};

static const char *const mode_names[] = { "off", "stateless", "full" };
static const char *const abort_names[] = { "gang", "node", "none" };
static const char *const gpus_names[] = { "auto", "node", "rank" };
static const char *const framework_names[DDP_FW_COUNT] = {
	"torch", "jax", "horovod", "deepspeed", "accelerate", "lightning", "tf"
};

const struct ddp_optdef *ddp_optdef_get(unsigned opt)
{
	return opt < DDP_OPT_COUNT ? &optdefs[opt] : NULL;
}

const char *ddp_mode_name(enum ddp_mode mode)
{
	return mode_names[mode];
}

const char *ddp_abort_name(enum ddp_abort a)
{
	return abort_names[a];
}

const char *ddp_gpus_name(enum ddp_gpus g)
{
	return gpus_names[g];
}

const char *ddp_framework_name(enum ddp_framework fw)
{
	return framework_names[fw];
}

void ddp_options_init(struct ddp_options *o)
{
	memset(o, 0, sizeof(*o));
	o->frameworks = DDP_FW_DEFAULT;
	o->signal = SIGTERM;
	o->grace_ms = 5000;
	o->start_ms = 60000;
	o->node_ms = 20000;
	o->bind = DDP_BIND_BEST_EFFORT;
}

const char *ddp_frameworks_text(unsigned set, char *buf, size_t size)
{
	size_t pos = 0;

	if (size)
		buf[0] = '\0';
	for (unsigned i = 0; i < DDP_FW_COUNT; i++)
		if (set & (1U << i) &&
		    ddp_text_add(buf, size, &pos, "%s%s", pos ? "," : "",
				 framework_names[i]))
			break;
	return buf;
}

static int bad_value(struct ddp_err *err, enum ddp_opt opt, const char *text,
		     const char *valid)
{
	char shown[64];

	return ddp_err_set(err, DDP_EINVAL,
			   "--%s: \"%s\" is not valid; valid: %s",
			   optdefs[opt].name,
			   ddp_text_safe(text, shown, sizeof(shown)), valid);
}

/* Which of n names the first len bytes of text are; -1: none. */
static int find_name(const char *const *names, int n, const char *text,
		     size_t len)
{
	for (int i = 0; i < n; i++)
		if (strlen(names[i]) == len && !memcmp(names[i], text, len))
			return i;
	return -1;
}

/* Slurm hands "no value" on as NULL, as "" or, through sbatch, as "(null)". */
static bool no_value(const char *text)
{
	return !text || !text[0] || !strcmp(text, "(null)");
}

static int set_launch(struct ddp_options *o, const char *text,
		      struct ddp_err *err)
{
	int i;

	if (no_value(text)) {
		o->mode = DDP_MODE_FULL;
		return 0;
	}
	i = find_name(mode_names, 3, text, strlen(text));
	if (i < 0)
		return bad_value(err, DDP_OPT_LAUNCH, text,
				 "full, stateless, off");
	o->mode = (enum ddp_mode)i;
	return 0;
}

static int set_explain(struct ddp_options *o, const char *text,
		       struct ddp_err *err)
{
	if (no_value(text) || !strcmp(text, "1") || !strcmp(text, "yes"))
		o->explain = true;
	else if (!strcmp(text, "0") || !strcmp(text, "no"))
		o->explain = false;
	else
		return bad_value(err, DDP_OPT_EXPLAIN, text, "1, 0, yes, no");
	return 0;
}

static int set_frameworks(struct ddp_options *o, const char *text,
			  struct ddp_err *err)
{
	char valid[DDP_FW_TEXT];
	unsigned set = 0;
	const char *p = text;

	for (;;) {
		size_t len = strcspn(p, ",");
		int fw = find_name(framework_names, DDP_FW_COUNT, p, len);

		if (fw < 0)
			return bad_value(err, DDP_OPT_FRAMEWORKS, text,
					 ddp_frameworks_text(DDP_FW_ALL, valid,
							     sizeof(valid)));
		set |= 1U << fw;
		if (!p[len])
			break;
		p += len + 1;
	}
	o->frameworks = set;
	return 0;
}

static int set_port(struct ddp_options *o, const char *text,
		    struct ddp_err *err)
{
	uint32_t port = 0;

	if (strcmp(text, "auto") &&
	    ddp_text_u32(text, PORT_MIN, UINT16_MAX, &port))
		return bad_value(err, DDP_OPT_MASTER_PORT, text,
				 "auto, or a port from 1024 to 65535");
	o->port = (uint16_t)port;
	return 0;
}

static int set_addr(struct ddp_options *o, const char *text,
		    struct ddp_err *err)
{
	if (!strcmp(text, "auto"))
		text = "";
	else if (!ddp_text_is_addr(text))
		return bad_value(err, DDP_OPT_MASTER_ADDR, text,
				 "auto, a host name, or an IPv4 or IPv6 "
				 "address");
	return ddp_text_copy(o->addr, sizeof(o->addr), text);
}

static int set_iface(struct ddp_options *o, const char *text,
		     struct ddp_err *err)
{
	if (!strcmp(text, "none") || !strcmp(text, "auto")) {
		o->iface = text[0] == 'n' ? DDP_IFACE_NONE : DDP_IFACE_AUTO;
		o->ifname[0] = '\0';
		return 0;
	}
	if (!ddp_text_is_ifname(text))
		return bad_value(err, DDP_OPT_IFACE, text,
				 "none, auto, or the name of one interface");
	o->iface = DDP_IFACE_NAME;
	return ddp_text_copy(o->ifname, sizeof(o->ifname), text);
}

static int set_abort(struct ddp_options *o, const char *text,
		     struct ddp_err *err)
{
	int i = find_name(abort_names, 3, text, strlen(text));

	if (i < 0)
		return bad_value(err, DDP_OPT_ABORT, text, "gang, node, none");
	o->abort = (enum ddp_abort)i;
	return 0;
}

static int set_signal(struct ddp_options *o, const char *text,
		      struct ddp_err *err)
{
	int sig = ddp_text_signal(text);

	if (sig < 0)
		return bad_value(err, DDP_OPT_ABORT_SIGNAL, text,
				 "a signal that can end a program, as TERM, "
				 "INT or USR1, or its number");
	o->signal = (uint8_t)sig;
	return 0;
}

/* Seconds with at most three decimals, between two bounds in ms. */
static int set_ms(uint32_t *out, enum ddp_opt opt, const char *text,
		  uint32_t min, uint32_t max, struct ddp_err *err)
{
	char valid[64];
	size_t pos = 0;
	uint32_t ms;

	if (!ddp_text_ms(text, &ms) && ms >= min && ms <= max) {
		*out = ms;
		return 0;
	}
	(void)ddp_text_add(valid, sizeof(valid), &pos,
			   "%sseconds from %g to %u",
			   opt == DDP_OPT_EXIT_GRACE ||
			   opt == DDP_OPT_READY_TIMEOUT ? "off, or " : "",
			   min / 1000.0, max / 1000);
	return bad_value(err, opt, text, valid);
}

static int set_exit_grace(struct ddp_options *o, const char *text,
			  struct ddp_err *err)
{
	if (strcmp(text, "off"))
		return set_ms(&o->exit_grace_ms, DDP_OPT_EXIT_GRACE, text, 100,
			      86400000, err);
	o->exit_grace_ms = 0;
	return 0;
}

static int set_lifecycle(struct ddp_options *o, const char *text,
			 struct ddp_err *err)
{
	if (no_value(text) || !strcmp(text, "on"))
		o->lifecycle = true;
	else if (!strcmp(text, "off"))
		o->lifecycle = false;
	else
		return bad_value(err, DDP_OPT_LIFECYCLE, text, "on, off");
	return 0;
}

static int set_ready(struct ddp_options *o, const char *text,
		     struct ddp_err *err)
{
	if (strcmp(text, "off"))
		return set_ms(&o->ready_ms, DDP_OPT_READY_TIMEOUT, text, 1000,
			      86400000, err);
	o->ready_ms = 0;
	return 0;
}

static int set_control(struct ddp_options *o, const char *text,
		       struct ddp_err *err)
{
	if (strcmp(text, "require") && strcmp(text, "prefer"))
		return bad_value(err, DDP_OPT_CONTROL, text,
				 "require, prefer");
	o->prefer = text[0] == 'p';
	return 0;
}

static int set_report(struct ddp_options *o, const char *text,
		      struct ddp_err *err)
{
	for (const char *p = text; *p; p++) {
		if ((unsigned char)*p < 32 || *p == 127)
			return bad_value(err, DDP_OPT_REPORT_FILE, text,
					 "the path of a file, without control "
					 "characters");
		if (*p == '%' && (!*++p || !strchr("js%", *p)))
			return bad_value(err, DDP_OPT_REPORT_FILE, text,
					 "a path where %j is the job's id, %s "
					 "the step's, and %% a %");
	}
	return ddp_text_copy(o->report, sizeof(o->report), text);
}

/* A policy, "verify", or both. */
static int set_bind(struct ddp_options *o, const char *text,
		    struct ddp_err *err)
{
	enum ddp_bind_policy policy = DDP_BIND_BEST_EFFORT;
	size_t n = strcspn(text, ",");
	bool verify = text[n] && !strcmp(text + n, ",verify");
	char word[32] = "";

	if (n < sizeof(word))
		memcpy(word, text, n);
	if (!strcmp(text, "verify"))
		verify = true;
	else if (ddp_bind_policy_parse(word, &policy) ||
		 (text[n] && !verify) ||
		 (verify && policy == DDP_BIND_NONE))
		return bad_value(err, DDP_OPT_BIND, text, "none, best-effort, "
				 "restricted, single-numa-node; all but none "
				 "also with \",verify\"");
	o->bind = policy;
	o->bind_verify = verify;
	return 0;
}

static int set_gpus(struct ddp_options *o, const char *text,
		    struct ddp_err *err)
{
	int i = find_name(gpus_names, 3, text, strlen(text));

	if (i < 0)
		return bad_value(err, DDP_OPT_GPUS, text, "auto, node, rank");
	o->gpus = (enum ddp_gpus)i;
	return 0;
}

static int set_late(struct ddp_options *o, enum ddp_opt opt, const char *text,
		    struct ddp_err *err)
{
	switch (opt) {
	case DDP_OPT_ABORT:
		return set_abort(o, text, err);
	case DDP_OPT_ABORT_SIGNAL:
		return set_signal(o, text, err);
	case DDP_OPT_GRACE:
		return set_ms(&o->grace_ms, opt, text, 0, 3600000, err);
	case DDP_OPT_EXIT_GRACE:
		return set_exit_grace(o, text, err);
	case DDP_OPT_START_TIMEOUT:
		return set_ms(&o->start_ms, opt, text, 1000, 600000, err);
	case DDP_OPT_NODE_TIMEOUT:
		return set_ms(&o->node_ms, opt, text, 500, 3600000, err);
	case DDP_OPT_CONTROL:
		return set_control(o, text, err);
	case DDP_OPT_BIND:
		return set_bind(o, text, err);
	case DDP_OPT_GPUS:
		return set_gpus(o, text, err);
	case DDP_OPT_LIFECYCLE:
		return set_lifecycle(o, text, err);
	case DDP_OPT_READY_TIMEOUT:
		return set_ready(o, text, err);
	default:
		return set_report(o, text, err);
	}
}

int ddp_options_set(struct ddp_options *o, enum ddp_opt opt, const char *text,
		    struct ddp_err *err)
{
	if ((unsigned)opt >= DDP_OPT_COUNT)
		return ddp_err_set(err, DDP_EINVAL, "no such option");
	if (!text && optdefs[opt].has_arg == 1)
		text = "";
	if (text && strnlen(text, TEXT_MAX) == TEXT_MAX)
		return ddp_err_set(err, DDP_EINVAL,
				   "--%s: a value of %u bytes or more is not "
				   "valid", optdefs[opt].name, TEXT_MAX);
	switch (opt) {
	case DDP_OPT_LAUNCH:
		return set_launch(o, text, err);
	case DDP_OPT_EXPLAIN:
		return set_explain(o, text, err);
	case DDP_OPT_FRAMEWORKS:
		return set_frameworks(o, text, err);
	case DDP_OPT_MASTER_PORT:
		return set_port(o, text, err);
	case DDP_OPT_MASTER_ADDR:
		return set_addr(o, text, err);
	case DDP_OPT_IFACE:
		return set_iface(o, text, err);
	default:
		return set_late(o, opt, text, err);
	}
}
