/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ddp_plan_clear(struct ddp_plan *plan)
{
	ddp_layout_clear(&plan->layout);
	free(plan->tf_addrs);
	free(plan->tf_ports);
	free(plan->tf_map);
	memset(plan, 0, sizeof(*plan));
}

static const char *iface_text(const struct ddp_plan *plan)
{
	return plan->iface == DDP_IFACE_NONE ? "none" :
	       plan->iface == DDP_IFACE_AUTO ? "auto" : plan->ifname;
}

/* The fields that not every plan has. */
static int add_optional(const struct ddp_plan *plan, const char *order,
			char *text, size_t *pos)
{
	const struct {
		const char *key, *value;
	} f[] = {
		{ "order", order }, { "ip", plan->ip }, { "host", plan->host },
		{ "tfaddrs", plan->tf_addrs }, { "tfports", plan->tf_ports },
		{ "tfmap", plan->tf_map }, { "het", plan->het ? "1" : NULL },
		{ "life", plan->life ? "1" : NULL },
	};

	for (unsigned i = 0; i < sizeof(f) / sizeof(f[0]); i++)
		if (f[i].value && f[i].value[0] &&
		    ddp_text_add(text, DDP_PLAN_MAX, pos, ";%s=%s", f[i].key,
				 f[i].value))
			return -1;
	return 0;
}

static int add_required(const struct ddp_plan *plan, const char *counts,
			char *text, size_t *pos)
{
	char fw[DDP_FW_TEXT];

	return ddp_text_add(text, DDP_PLAN_MAX, pos,
			    "v=1;job=%" PRIu32 ";step=%" PRIu32 ";restart=%"
			    PRIu32 ";mode=%s;fw=%s;given=%u;addr=%s;port=%u;"
			    "verify=%d;iface=%s;tasks=%s",
			    plan->job, plan->step, plan->restart,
			    ddp_mode_name(plan->mode),
			    ddp_frameworks_text(plan->frameworks, fw,
						sizeof(fw)),
			    plan->given, plan->addr, plan->port, plan->verify,
			    iface_text(plan), counts);
}

char *ddp_plan_format(const struct ddp_plan *plan, struct ddp_err *err)
{
	char *counts = malloc(DDP_PLAN_MAX), *order = malloc(DDP_PLAN_MAX);
	char *text = malloc(DDP_PLAN_MAX);
	size_t pos = 0;
	int rc = -1;

	if (!counts || !order || !text)
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
	else if (!ddp_layout_format(&plan->layout, counts, DDP_PLAN_MAX, order,
				    DDP_PLAN_MAX, err)) {
		rc = add_required(plan, counts, text, &pos) ||
			add_optional(plan, order, text, &pos) ?
			ddp_err_set(err, DDP_ENOSPC, "step layout: %u tasks on "
				    "%u nodes take more than the %u bytes of a "
				    "launch plan", plan->layout.ntasks,
				    plan->layout.nnodes, DDP_PLAN_MAX) : 0;
	}
	free(counts);
	free(order);
	if (rc) {
		free(text);
		text = NULL;
	}
	return text;
}

/* Runs of ranks on one node, "NODE(xCOUNT)". */
static int map_text(uint32_t ntasks, const uint32_t *node, char *text)
{
	size_t pos = 0;

	for (uint32_t i = 0, n; i < ntasks; i += n) {
		for (n = 1; i + n < ntasks && node[i + n] == node[i]; n++)
			;
		if (ddp_text_add(text, DDP_PLAN_MAX, &pos, "%s%" PRIu32,
				 i ? "," : "", node[i]) ||
		    (n > 1 && ddp_text_add(text, DDP_PLAN_MAX, &pos,
					   "(x%" PRIu32 ")", n)))
			return -1;
	}
	return 0;
}

char *ddp_plan_map(const struct ddp_layout *l, uint32_t *const *tids,
		   struct ddp_err *err)
{
	uint32_t *node = calloc(l->ntasks, sizeof(*node));
	char *text = malloc(DDP_PLAN_MAX);

	if (!node || !text) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		goto fail;
	}
	for (uint32_t i = 0; i < l->nnodes; i++)
		for (uint32_t k = 0; k < l->tasks[i]; k++)
			node[tids[i][k]] = i;
	if (map_text(l->ntasks, node, text)) {
		ddp_err_set(err, DDP_ENOSPC, "--ddp-frameworks=tf: %u tasks "
			    "in this order are too many for TF_CONFIG",
			    l->ntasks);
		goto fail;
	}
	free(node);
	return text;
fail:
	free(node);
	free(text);
	return NULL;
}

enum plan_key {
	KEY_JOB, KEY_STEP, KEY_RESTART, KEY_MODE, KEY_FW, KEY_GIVEN, KEY_ADDR,
	KEY_PORT, KEY_VERIFY, KEY_IFACE, KEY_TASKS, KEY_LAST_REQUIRED,
	KEY_ORDER = KEY_LAST_REQUIRED, KEY_IP, KEY_HOST, KEY_TFADDRS,
	KEY_TFPORTS, KEY_TFMAP, KEY_HET, KEY_LIFE, KEY_COUNT
};

static const char *const key_names[KEY_COUNT] = {
	"job", "step", "restart", "mode", "fw", "given", "addr", "port",
	"verify", "iface", "tasks", "order", "ip", "host",
	"tfaddrs", "tfports", "tfmap", "het", "life"
};

/* value[key] points into the caller's copy of the text; NULL if absent. */
struct fields {
	const char *value[KEY_COUNT];
};

static int split_field(struct fields *f, char *field, struct ddp_err *err)
{
	char *value = strchr(field, '=');
	char shown[32];

	if (value) {
		*value++ = '\0';
		for (unsigned i = 0; i < KEY_COUNT; i++)
			if (!strcmp(field, key_names[i]) && !f->value[i]) {
				f->value[i] = value;
				return 0;
			}
	}
	return ddp_err_set(err, DDP_EINCONS,
			   "launch plan: field \"%s\" is unknown here: srun "
			   "and this node have different versions of "
			   "spank_ddp.so",
			   ddp_text_safe(field, shown, sizeof(shown)));
}

static int split(struct fields *f, char *text, struct ddp_err *err)
{
	char *save = NULL;

	memset(f, 0, sizeof(*f));
	for (char *p = strtok_r(text, ";", &save); p;
	     p = strtok_r(NULL, ";", &save))
		if (split_field(f, p, err))
			return -1;
	for (unsigned i = 0; i < KEY_LAST_REQUIRED; i++)
		if (!f->value[i])
			return ddp_err_set(err, DDP_EINCONS,
					   "launch plan: field \"%s\" is "
					   "missing", key_names[i]);
	return 0;
}

static int bad_field(struct ddp_err *err, const struct fields *f,
		     enum plan_key key)
{
	char shown[64];

	return ddp_err_set(err, DDP_EINCONS,
			   "launch plan: bad value \"%s\" of field \"%s\"",
			   ddp_text_safe(f->value[key], shown, sizeof(shown)),
			   key_names[key]);
}

static int read_numbers(struct ddp_plan *plan, const struct fields *f,
			struct ddp_err *err)
{
	const struct {
		enum plan_key key;
		uint32_t min, max;
		uint32_t *out;
	} number[] = {
		{ KEY_JOB, 1, UINT32_MAX, &plan->job },
		{ KEY_STEP, 0, UINT32_MAX, &plan->step },
		{ KEY_RESTART, 0, UINT32_MAX, &plan->restart },
	};
	uint32_t given, port, verify;

	for (unsigned i = 0; i < sizeof(number) / sizeof(number[0]); i++)
		if (ddp_text_u32(f->value[number[i].key], number[i].min,
				 number[i].max, number[i].out))
			return bad_field(err, f, number[i].key);
	if (ddp_text_u32(f->value[KEY_GIVEN], 0, (1U << DDP_OPT_COUNT) - 1,
			 &given))
		return bad_field(err, f, KEY_GIVEN);
	/* 0: rank 0's agent reserves one, in full mode. */
	if (ddp_text_u32(f->value[KEY_PORT], 0, UINT16_MAX, &port) ||
	    (port && port < 1024))
		return bad_field(err, f, KEY_PORT);
	if (ddp_text_u32(f->value[KEY_VERIFY], 0, 1, &verify))
		return bad_field(err, f, KEY_VERIFY);
	if (f->value[KEY_HET] && strcmp(f->value[KEY_HET], "1"))
		return bad_field(err, f, KEY_HET);
	if (f->value[KEY_LIFE] && strcmp(f->value[KEY_LIFE], "1"))
		return bad_field(err, f, KEY_LIFE);
	plan->het = f->value[KEY_HET];
	plan->life = f->value[KEY_LIFE];
	plan->given = given;
	plan->port = (uint16_t)port;
	plan->verify = verify;
	return 0;
}

/* Values that are also options go through the options' own validator. */
static int read_options(struct ddp_plan *plan, const struct fields *f,
			struct ddp_err *err)
{
	struct ddp_options o;

	ddp_options_init(&o);
	if (!f->value[KEY_MODE][0] ||
	    ddp_options_set(&o, DDP_OPT_LAUNCH, f->value[KEY_MODE], NULL))
		return bad_field(err, f, KEY_MODE);
	if (ddp_options_set(&o, DDP_OPT_FRAMEWORKS, f->value[KEY_FW], NULL))
		return bad_field(err, f, KEY_FW);
	if (ddp_options_set(&o, DDP_OPT_IFACE, f->value[KEY_IFACE], NULL))
		return bad_field(err, f, KEY_IFACE);
	plan->mode = o.mode;
	if (!plan->port && plan->mode != DDP_MODE_FULL)
		return bad_field(err, f, KEY_PORT);
	plan->frameworks = o.frameworks;
	plan->iface = o.iface;
	return ddp_text_copy(plan->ifname, sizeof(plan->ifname), o.ifname);
}

static int read_addresses(struct ddp_plan *plan, const struct fields *f,
			  struct ddp_err *err)
{
	const char *ip = f->value[KEY_IP], *host = f->value[KEY_HOST];

	if (!ddp_text_is_addr(f->value[KEY_ADDR]) ||
	    ddp_text_copy(plan->addr, sizeof(plan->addr), f->value[KEY_ADDR]))
		return bad_field(err, f, KEY_ADDR);
	if (ip && (!ddp_text_is_addr(ip) ||
		   ddp_text_copy(plan->ip, sizeof(plan->ip), ip)))
		return bad_field(err, f, KEY_IP);
	if (host && (!ddp_text_is_addr(host) ||
		     ddp_text_copy(plan->host, sizeof(plan->host), host)))
		return bad_field(err, f, KEY_HOST);
	return 0;
}

/* All three or none; their contents are checked where they are used. */
static int read_tf(struct ddp_plan *plan, const struct fields *f,
		   struct ddp_err *err)
{
	const char *addrs = f->value[KEY_TFADDRS];
	const char *ports = f->value[KEY_TFPORTS];
	const char *map = f->value[KEY_TFMAP];

	if (!addrs && !ports && !map)
		return 0;
	if (!addrs || !ports || !map)
		return ddp_err_set(err, DDP_EINCONS, "launch plan: half of the "
				   "fields for tf is missing");
	/* Empty is not absent: it would not be written again. */
	if (!addrs[0])
		return bad_field(err, f, KEY_TFADDRS);
	if (!ports[0])
		return bad_field(err, f, KEY_TFPORTS);
	if (!map[0])
		return bad_field(err, f, KEY_TFMAP);
	plan->tf_addrs = strdup(addrs);
	plan->tf_ports = strdup(ports);
	plan->tf_map = strdup(map);
	if (!plan->tf_addrs || !plan->tf_ports || !plan->tf_map)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	return 0;
}

int ddp_plan_parse(struct ddp_plan *plan, const char *text,
		   struct ddp_err *err)
{
	struct fields f;
	char *copy = NULL;
	int rc = -1;

	memset(plan, 0, sizeof(*plan));
	if (strnlen(text, DDP_PLAN_MAX) == DDP_PLAN_MAX)
		return ddp_err_set(err, DDP_ENOSPC, "launch plan: too long");
	if (!strcmp(text, DDP_PLAN_REFUSED))
		return ddp_err_set(err, DDP_EINCONS, "srun could not plan this "
				   "launch; see its message");
	if (strncmp(text, "v=1;", 4))
		return ddp_err_set(err, DDP_EINCONS,
				   "launch plan: not version 1: srun and this "
				   "node have different versions of "
				   "spank_ddp.so");
	copy = strdup(text + 4);
	if (!copy)
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (!split(&f, copy, err) && !read_numbers(plan, &f, err) &&
	    !read_options(plan, &f, err) && !read_addresses(plan, &f, err) &&
	    !read_tf(plan, &f, err) &&
	    !ddp_layout_parse(&plan->layout, f.value[KEY_TASKS],
			      f.value[KEY_ORDER], err))
		rc = 0;
	if (rc)
		ddp_plan_clear(plan);
	free(copy);
	return rc;
}
