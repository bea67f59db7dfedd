/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_options.h"

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
};

static const char *const mode_names[] = { "off", "stateless", "full" };
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

const char *ddp_framework_name(enum ddp_framework fw)
{
	return framework_names[fw];
}

void ddp_options_init(struct ddp_options *o)
{
	memset(o, 0, sizeof(*o));
	o->frameworks = DDP_FW_DEFAULT;
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

/* Slurm hands "no value" on as NULL, as "" or, through sbatch, as "(null)". */
static bool no_value(const char *text)
{
	return !text || !text[0] || !strcmp(text, "(null)");
}

static int set_launch(struct ddp_options *o, const char *text,
		      struct ddp_err *err)
{
	if (no_value(text)) {
		o->mode = DDP_MODE_FULL;
		return 0;
	}
	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(text, mode_names[i])) {
			o->mode = (enum ddp_mode)i;
			return 0;
		}
	return bad_value(err, DDP_OPT_LAUNCH, text, "full, stateless, off");
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

static int framework_find(const char *name, size_t len)
{
	for (int i = 0; i < DDP_FW_COUNT; i++)
		if (strlen(framework_names[i]) == len &&
		    !memcmp(framework_names[i], name, len))
			return i;
	return -1;
}

static int set_frameworks(struct ddp_options *o, const char *text,
			  struct ddp_err *err)
{
	char valid[DDP_FW_TEXT];
	unsigned set = 0;
	const char *p = text;

	for (;;) {
		size_t len = strcspn(p, ",");
		int fw = framework_find(p, len);

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
	default:
		return set_iface(o, text, err);
	}
}
