/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/acct.h"
#include "core/ddp_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTERVAL_MIN 100
#define INTERVAL_MAX 60000
#define INTERVAL_DEFAULT 1000
#define IDLE_DEFAULT 1.0

enum { K_INTERVAL, K_SOURCE, K_IDLE, K_LIBRARY, K_SAMPLER, K_RECORD };

const char *const acct_conf_keys[] = {
	[K_INTERVAL] = "DdpGpuInterval",
	[K_SOURCE] = "DdpGpuSource",
	[K_IDLE] = "DdpGpuIdleThreshold",
	[K_LIBRARY] = "DdpGpuLibrary",
	[K_SAMPLER] = "DdpGpuSampler",
	[K_RECORD] = "DdpGpuStepRecord",
};
const unsigned acct_conf_nkeys =
	sizeof(acct_conf_keys) / sizeof(*acct_conf_keys);

static int set_interval(struct acct_conf *c, const char *v)
{
	uint32_t ms;

	if (ddp_text_ms(v, &ms) || ms < INTERVAL_MIN || ms > INTERVAL_MAX)
		return -1;
	c->interval_ms = ms;
	return 0;
}

static int set_idle(struct acct_conf *c, const char *v)
{
	char *end;
	double d = strtod(v, &end);

	if (end == v || *end || !isfinite(d) || d < 0 || d > 100)
		return -1;
	c->idle = d;
	return 0;
}

static int set_path(char **path, const char *v)
{
	if (v[0] != '/')
		return -1;
	free(*path);
	*path = strdup(v);
	return *path ? 0 : -1;
}

static int set_source(struct acct_conf *c, const char *v)
{
	if (strcmp(v, "auto") && strcmp(v, "nvml") && strcmp(v, "dcgm"))
		return -1;
	c->dcgm = !strcmp(v, "dcgm");
	return 0;
}

static int set_record(struct acct_conf *c, const char *v)
{
	if (strcmp(v, "write") && strcmp(v, "read"))
		return -1;
	c->write = !strcmp(v, "write");
	return 0;
}

static int set(struct acct_conf *c, unsigned key, const char *v)
{
	switch (key) {
	case K_INTERVAL:
		return set_interval(c, v);
	case K_SOURCE:
		return set_source(c, v);
	case K_IDLE:
		return set_idle(c, v);
	case K_LIBRARY:
		return set_path(&c->library, v);
	case K_SAMPLER:
		return set_path(&c->sampler, v);
	default:
		return set_record(c, v);
	}
}

static const char *const wanted[] = {
	[K_INTERVAL] = "seconds from 0.1 to 60",
	[K_SOURCE] = "auto, nvml or dcgm",
	[K_IDLE] = "a percentage from 0 to 100",
	[K_LIBRARY] = "an absolute path",
	[K_SAMPLER] = "an absolute path",
	[K_RECORD] = "write or read",
};

void acct_conf_read(struct acct_conf *conf,
		    char *(*get)(void *table, const char *key), void *table,
		    void (*complain)(const char *text))
{
	char text[256], shown[96], *value;

	free(conf->library);
	free(conf->sampler);
	*conf = (struct acct_conf){
		.interval_ms = INTERVAL_DEFAULT, .idle = IDLE_DEFAULT,
		.write = true, .sampler = strdup(DDP_HELPERS
						  "/ddp-gpu-sampler"),
	};
	for (unsigned k = 0; k < acct_conf_nkeys; k++) {
		value = get(table, acct_conf_keys[k]);
		if (value && set(conf, k, value)) {
			snprintf(text, sizeof(text), "acct_gather.conf: %s=%s "
				 "is not %s: left at its default",
				 acct_conf_keys[k],
				 ddp_text_safe(value, shown, sizeof(shown)),
				 wanted[k]);
			complain(text);
		}
		free(value);
	}
}

void acct_conf_show(const struct acct_conf *conf,
		    void (*show)(void *arg, const char *key, const char *value),
		    void *arg)
{
	char text[32];

	snprintf(text, sizeof(text), "%u.%03u s", conf->interval_ms / 1000,
		 conf->interval_ms % 1000);
	show(arg, acct_conf_keys[K_INTERVAL], text);
	show(arg, acct_conf_keys[K_SOURCE], conf->dcgm ? "dcgm" : "auto");
	snprintf(text, sizeof(text), "%g %%", conf->idle);
	show(arg, acct_conf_keys[K_IDLE], text);
	show(arg, acct_conf_keys[K_LIBRARY],
	     conf->library ? conf->library : "(loader's path)");
	show(arg, acct_conf_keys[K_SAMPLER],
	     conf->sampler ? conf->sampler : "(none)");
	show(arg, acct_conf_keys[K_RECORD], conf->write ? "write" : "read");
}
