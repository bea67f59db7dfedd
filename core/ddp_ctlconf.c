/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_control.h"
#include "core/ddp_ctlconf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The numbers, in the order in which they are written. */
enum { N_SRUN, N_JOB, N_STEP, N_LO, N_HI, N_ABORT, N_SIGNAL, N_GRACE, N_EXIT,
       N_START, N_NODE, N_PREFER, N_READY, N_COUNT };

static const struct {
	const char *key;
	uint32_t max;
} numbers[N_COUNT] = {
	{ "srun", INT32_MAX }, { "job", UINT32_MAX }, { "step", UINT32_MAX },
	{ "lo", UINT16_MAX }, { "hi", UINT16_MAX },
	{ "abort", DDP_ABORT_NONE }, { "signal", 64 },
	{ "grace", UINT32_MAX }, { "exit", UINT32_MAX },
	{ "start", UINT32_MAX }, { "node", UINT32_MAX }, { "prefer", 1 },
	{ "ready", UINT32_MAX }
};

static void numbers_of(const struct ddp_ctlconf *c, uint32_t v[N_COUNT])
{
	v[N_SRUN] = (uint32_t)c->srun;
	v[N_JOB] = c->job;
	v[N_STEP] = c->step;
	v[N_LO] = c->lo;
	v[N_HI] = c->hi;
	v[N_ABORT] = c->abort;
	v[N_SIGNAL] = c->signal;
	v[N_GRACE] = c->grace_ms;
	v[N_EXIT] = c->exit_grace_ms;
	v[N_START] = c->start_ms;
	v[N_NODE] = c->node_ms;
	v[N_PREFER] = c->prefer;
	v[N_READY] = c->ready_ms;
}

static void numbers_to(struct ddp_ctlconf *c, const uint32_t v[N_COUNT])
{
	c->srun = (pid_t)v[N_SRUN];
	c->job = v[N_JOB];
	c->step = v[N_STEP];
	c->lo = (uint16_t)v[N_LO];
	c->hi = (uint16_t)v[N_HI];
	c->abort = (enum ddp_abort)v[N_ABORT];
	c->signal = (uint8_t)v[N_SIGNAL];
	c->grace_ms = v[N_GRACE];
	c->exit_grace_ms = v[N_EXIT];
	c->start_ms = v[N_START];
	c->node_ms = v[N_NODE];
	c->prefer = v[N_PREFER];
	c->ready_ms = v[N_READY];
}

char *ddp_ctlconf_format(const struct ddp_ctlconf *c, struct ddp_err *err)
{
	char key[2 * DDP_KEY_BYTES + 1], *text = malloc(DDP_CTLCONF_MAX);
	uint32_t v[N_COUNT];
	size_t pos = 0;
	int rc;

	if (!text) {
		ddp_err_set(err, DDP_ENOMEM, "out of memory");
		return NULL;
	}
	numbers_of(c, v);
	ddp_hex(c->key, sizeof(c->key), key);
	rc = ddp_text_add(text, DDP_CTLCONF_MAX, &pos, "key=%s\n", key);
	for (unsigned i = 0; !rc && i < N_COUNT; i++)
		rc = ddp_text_add(text, DDP_CTLCONF_MAX, &pos, "%s=%" PRIu32
				  "\n", numbers[i].key, v[i]);
	if (!rc)
		rc = ddp_text_add(text, DDP_CTLCONF_MAX, &pos, "report=%s\n"
				  "launcher=%s\nnodes=%s\nplan=%s\n\n",
				  c->report, c->launcher, c->nodes, c->plan);
	if (!rc)
		return text;
	free(text);
	ddp_err_set(err, DDP_ENOSPC, "the step has too many nodes for full "
		    "mode; use --ddp-launch=stateless");
	return NULL;
}

/* The value of the next line, which must be `key`; *p moves behind it. */
static const char *next(const char **p, const char *key, size_t *len)
{
	size_t n = strlen(key);
	const char *value;

	if (strncmp(*p, key, n) || (*p)[n] != '=')
		return NULL;
	value = *p + n + 1;
	*len = strcspn(value, "\n");
	*p = value + *len + (value[*len] == '\n');
	return value;
}

static int next_copy(const char **p, const char *key, char *buf, size_t size)
{
	size_t len;
	const char *value = next(p, key, &len);

	if (!value || len >= size)
		return -1;
	memcpy(buf, value, len);
	buf[len] = '\0';
	return 0;
}

static char *next_dup(const char **p, const char *key)
{
	size_t len;
	const char *value = next(p, key, &len);

	return value ? strndup(value, len) : NULL;
}

int ddp_ctlconf_parse(struct ddp_ctlconf *c, const char *text,
		      struct ddp_err *err)
{
	uint32_t v[N_COUNT];
	const char *p = text, *value;
	size_t len;
	int rc;

	memset(c, 0, sizeof(*c));
	value = next(&p, "key", &len);
	rc = value ? ddp_unhex(value, len, c->key, sizeof(c->key)) : -1;
	for (unsigned i = 0; !rc && i < N_COUNT; i++) {
		value = next(&p, numbers[i].key, &len);
		rc = value ? ddp_text_u32_n(value, len, 0, numbers[i].max,
					    &v[i]) : -1;
	}
	if (!rc) {
		numbers_to(c, v);
		rc = next_copy(&p, "report", c->report, sizeof(c->report)) ||
		     next_copy(&p, "launcher", c->launcher,
			       sizeof(c->launcher));
	}
	if (!rc) {
		c->nodes = next_dup(&p, "nodes");
		c->plan = next_dup(&p, "plan");
		rc = !c->nodes || !c->plan || *p;
	}
	return rc ? ddp_err_set(err, DDP_EINVAL, "the controller's "
				"configuration is malformed at byte %zu",
				(size_t)(p - text)) : 0;
}

void ddp_ctlconf_clear(struct ddp_ctlconf *c)
{
	free(c->nodes);
	free(c->plan);
	memset(c, 0, sizeof(*c));
}
