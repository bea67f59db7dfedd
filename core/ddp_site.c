/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_site.h"

#include <string.h>

#define VALID_ARGS "mode=, frameworks=, iface=, port_range=, allow=, " \
	"launcher=, helpers=, abort=, abort_signal=, grace=, exit_grace=, " \
	"start_timeout=, node_timeout=, control=, bind=, gpus=, lifecycle=, " \
	"ready_timeout=, lifecycle_library=, topology=, sysroot="

#ifndef DDP_LAUNCHER
#define DDP_LAUNCHER "/usr/bin/ddp-launch"
#endif
#ifndef DDP_HELPERS
#define DDP_HELPERS "/usr/libexec/slurm-ddp"
#endif
#ifndef DDP_LIFECYCLE_LIBRARY
#define DDP_LIFECYCLE_LIBRARY "/usr/lib/libddp_lifecycle.so"
#endif

void ddp_site_init(struct ddp_site *site)
{
	memset(site, 0, sizeof(*site));
	ddp_options_init(&site->defaults);
	site->allowed = (1U << DDP_OPT_COUNT) - 1;
	(void)ddp_text_copy(site->launcher, sizeof(site->launcher),
			    DDP_LAUNCHER);
	(void)ddp_text_copy(site->helpers, sizeof(site->helpers),
			    DDP_HELPERS);
	(void)ddp_text_copy(site->lifecycle, sizeof(site->lifecycle),
			    DDP_LIFECYCLE_LIBRARY);
}

static int bad_arg(struct ddp_err *err, const char *arg, const char *why)
{
	char shown[64];

	return ddp_err_set(err, DDP_EINVAL,
			   "plugstack.conf: argument \"%s\" ignored: %s",
			   ddp_text_safe(arg, shown, sizeof(shown)), why);
}

static int set_range(struct ddp_site *site, const char *arg, const char *text,
		     struct ddp_err *err)
{
	const char *dash = strchr(text, '-');
	uint32_t lo, hi;

	if (!dash ||
	    ddp_text_u32_n(text, (size_t)(dash - text), 1024, 65535, &lo) ||
	    ddp_text_u32(dash + 1, lo, 65535, &hi))
		return bad_arg(err, arg, "valid: port_range=LOW-HIGH with "
			       "1024 <= LOW <= HIGH <= 65535");
	site->port_lo = (uint16_t)lo;
	site->port_hi = (uint16_t)hi;
	return 0;
}

static int option_find(const char *key, size_t len)
{
	for (int i = 0; i < DDP_OPT_COUNT; i++) {
		const char *name = ddp_optdef_get((unsigned)i)->key;

		if (strlen(name) == len && !memcmp(name, key, len))
			return i;
	}
	return -1;
}

static int set_allow(struct ddp_site *site, const char *arg, const char *text,
		     struct ddp_err *err)
{
	unsigned allowed = 0;
	const char *p = text;

	for (;;) {
		size_t len = strcspn(p, ",");
		int opt = option_find(p, len);

		if (opt < 0)
			return bad_arg(err, arg, "valid: allow=launch,explain,"
				       "frameworks,master-port,master-addr,"
				       "iface,abort,abort-signal,grace,"
				       "exit-grace,start-timeout,"
				       "node-timeout,control,report-file,"
				       "bind,gpus,lifecycle,ready-timeout");
		allowed |= 1U << opt;
		if (!p[len])
			break;
		p += len + 1;
	}
	site->allowed = allowed;
	return 0;
}

static int set_default(struct ddp_site *site, enum ddp_opt opt,
		       const char *arg, const char *text, struct ddp_err *err)
{
	struct ddp_err why;

	if (!text[0])
		return bad_arg(err, arg, "it has no value");
	if (ddp_options_set(&site->defaults, opt, text, &why))
		return bad_arg(err, arg, why.text);
	return 0;
}

static int set_path(char *to, size_t size, const char *arg, const char *text,
		    const char *valid, struct ddp_err *err)
{
	char path[256];

	if (text[0] != '/' || ddp_text_copy(path, sizeof(path), text))
		return bad_arg(err, arg, valid);
	return ddp_text_copy(to, size, path);
}

/* Arguments that are the site's default of an option. */
static const struct {
	const char *name;
	enum ddp_opt opt;
} defaults[] = {
	{ "mode", DDP_OPT_LAUNCH },
	{ "frameworks", DDP_OPT_FRAMEWORKS },
	{ "iface", DDP_OPT_IFACE },
	{ "abort", DDP_OPT_ABORT },
	{ "abort_signal", DDP_OPT_ABORT_SIGNAL },
	{ "grace", DDP_OPT_GRACE },
	{ "exit_grace", DDP_OPT_EXIT_GRACE },
	{ "start_timeout", DDP_OPT_START_TIMEOUT },
	{ "node_timeout", DDP_OPT_NODE_TIMEOUT },
	{ "control", DDP_OPT_CONTROL },
	{ "bind", DDP_OPT_BIND },
	{ "gpus", DDP_OPT_GPUS },
	{ "lifecycle", DDP_OPT_LIFECYCLE },
	{ "ready_timeout", DDP_OPT_READY_TIMEOUT },
};

static bool is_key(const char *arg, size_t len, const char *name)
{
	return len == strlen(name) && !memcmp(arg, name, len);
}

int ddp_site_set(struct ddp_site *site, const char *arg, struct ddp_err *err)
{
	const char *value = strchr(arg, '=');
	size_t len = value ? (size_t)(value - arg) : 0;

	for (unsigned i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
		if (is_key(arg, len, defaults[i].name))
			return set_default(site, defaults[i].opt, arg,
					   value + 1, err);
	if (is_key(arg, len, "port_range"))
		return set_range(site, arg, value + 1, err);
	if (is_key(arg, len, "allow"))
		return set_allow(site, arg, value + 1, err);
	if (is_key(arg, len, "launcher"))
		return set_path(site->launcher, sizeof(site->launcher), arg,
				value + 1, "valid: launcher=/absolute/path/of/"
				"ddp-launch", err);
	if (is_key(arg, len, "helpers"))
		return set_path(site->helpers, sizeof(site->helpers), arg,
				value + 1, "valid: helpers=/absolute/folder/"
				"of ddp-agent and ddp-controller", err);
	if (is_key(arg, len, "lifecycle_library"))
		return set_path(site->lifecycle, sizeof(site->lifecycle), arg,
				value + 1, "valid: lifecycle_library=/absolute"
				"/path/of/libddp_lifecycle.so", err);
	if (is_key(arg, len, "topology"))
		return set_path(site->topology, sizeof(site->topology), arg,
				value + 1, "valid: topology=/absolute/path of "
				"a file that lstopo --of xml wrote", err);
	if (is_key(arg, len, "sysroot"))
		return set_path(site->sysroot, sizeof(site->sysroot), arg,
				value + 1, "valid: sysroot=/absolute/folder "
				"with the dev, proc and sys of the GPUs", err);
	return bad_arg(err, arg, "valid arguments: " VALID_ARGS);
}

int ddp_site_check(const struct ddp_site *site, unsigned given, uint16_t port,
		   struct ddp_err *err)
{
	unsigned denied = given & ~site->allowed;

	for (unsigned i = 0; i < DDP_OPT_COUNT; i++)
		if (denied & (1U << i))
			return ddp_err_set(err, DDP_EPOLICY,
				"--%s is not allowed on this cluster "
				"(plugstack.conf: allow=); leave it out",
				ddp_optdef_get(i)->name);
	if (port && site->port_lo &&
	    (port < site->port_lo || port > site->port_hi))
		return ddp_err_set(err, DDP_EPOLICY,
				   "master port %u is outside port_range="
				   "%u-%u of plugstack.conf here; use "
				   "--ddp-master-port=auto or a port inside, "
				   "and give the submit host's plugstack.conf "
				   "the same port_range", port, site->port_lo,
				   site->port_hi);
	return 0;
}
