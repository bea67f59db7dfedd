/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where options come from. SPANK hands them to a callback without saying
 * whether the command line or the environment spoke; both are kept apart
 * here, so that the order of precedence is ours.
 */
#define _GNU_SOURCE
#include "config.h"

#include "spank/spank_ddp.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>

/* Slurm's name for an option of this plugin in the environment of a job;
 * sbatch and salloc put it behind one more SLURM_SPANK_. */
#define SPANK_ENV "_SLURM_SPANK_OPTION_ddp_"
#define SPANK_JOB_ENV "SLURM_SPANK_" SPANK_ENV

enum source { SRC_JOB, SRC_ENV, SRC_COMMAND, SRC_COUNT };

static const char *env_prefix;
static char *texts[SRC_COUNT][DDP_OPT_COUNT];

/* prefix + the option's name as Slurm writes it: '-' becomes '_'. */
static void spank_env_name(const char *prefix, unsigned opt, char *buf,
			   size_t size)
{
	const char *name = ddp_optdef_get(opt)->name;
	size_t n = strlen(prefix);

	snprintf(buf, size, "%s%s", prefix, name);
	for (; buf[n]; n++)
		if (!isalnum((unsigned char)buf[n]))
			buf[n] = '_';
}

static int keep(enum source src, unsigned opt, const char *text)
{
	free(texts[src][opt]);
	texts[src][opt] = strdup(text ? text : "");
	return texts[src][opt] ? 0 : -1;
}

/*
 * Slurm's callback. Before the command line it is called with the very
 * pointer that getenv() returns for what sbatch or salloc handed on.
 */
static int option_cb(int val, const char *text, int remote)
{
	struct ddp_options scratch;
	struct ddp_err err;
	char name[128];

	if (remote)	/* root: the nodes read the plan, as the user */
		return 0;
	ddp_options_init(&scratch);
	if (ddp_options_set(&scratch, (enum ddp_opt)val, text, &err)) {
		slurm_spank_log(DDP_MSG "error: %s", err.text);
		return -1;
	}
	spank_env_name(SPANK_JOB_ENV, (unsigned)val, name, sizeof(name));
	if (text && text == getenv(name))
		return keep(SRC_JOB, (unsigned)val, text);
	return keep(SRC_COMMAND, (unsigned)val, text);
}

void ddp_spank_options_register(spank_t sp, const char *prefix)
{
	env_prefix = prefix;
	for (unsigned i = 0; i < DDP_OPT_COUNT; i++) {
		const struct ddp_optdef *def = ddp_optdef_get(i);
		struct spank_option o = {
			.name = (char *)def->name,
			.arginfo = (char *)def->arginfo,
			.usage = (char *)def->usage,
			.has_arg = def->has_arg,
			.val = (int)i,
			.cb = option_cb,
		};

		if (spank_option_register(sp, &o) != ESPANK_SUCCESS)
			slurm_error(DDP_MSG "option --%s not registered",
				    def->name);
	}
}

/* The environment twin of an option; an empty one counts as unset. */
static const char *twin(const char *prefix, unsigned opt, char *name,
			size_t size)
{
	const char *text;

	snprintf(name, size, "%s%s", prefix, ddp_optdef_get(opt)->env);
	text = getenv(name);
	return text && text[0] ? text : NULL;
}

static int read_twins(struct ddp_err *err)
{
	struct ddp_options scratch;
	struct ddp_err why;
	char name[64];

	ddp_options_init(&scratch);
	for (unsigned i = 0; i < DDP_OPT_COUNT; i++) {
		const char *text = twin(env_prefix, i, name, sizeof(name));

		if (!text)
			continue;
		if (ddp_options_set(&scratch, (enum ddp_opt)i, text, &why))
			return ddp_err_set(err, why.code,
					   "environment variable %s: %s",
					   name, why.text);
		if (keep(SRC_ENV, i, text))
			return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	}
	return 0;
}

int ddp_spank_options_resolve(struct ddp_spank *state, struct ddp_err *err)
{
	if (read_twins(err))
		return -1;
	state->options = state->site.defaults;
	state->given = 0;
	for (unsigned src = 0; src < SRC_COUNT; src++)
		for (unsigned i = 0; i < DDP_OPT_COUNT; i++) {
			if (!texts[src][i])
				continue;
			if (ddp_options_set(&state->options, (enum ddp_opt)i,
					    texts[src][i], err))
				return -1;
			state->given |= 1U << i;
		}
	if (!state->options.addr[0])
		state->given &= ~(1U << DDP_OPT_MASTER_ADDR);
	if (!state->options.port)
		state->given &= ~(1U << DDP_OPT_MASTER_PORT);
	return ddp_site_check(&state->site, state->given, state->options.port,
			      err);
}

int ddp_spank_options_export(const struct ddp_spank *state)
{
	char name[64];

	for (unsigned i = 0; i < DDP_OPT_COUNT; i++) {
		const char *text = NULL;

		for (unsigned src = 0; src < SRC_COUNT; src++)
			if (texts[src][i])
				text = texts[src][i];
		if (!text)
			continue;
		if (i == DDP_OPT_LAUNCH)	/* "" would count as unset */
			text = ddp_mode_name(state->options.mode);
		else if (i == DDP_OPT_EXPLAIN)
			text = state->options.explain ? "1" : "0";
		else if (i == DDP_OPT_LIFECYCLE)
			text = state->options.lifecycle ? "on" : "off";
		snprintf(name, sizeof(name), "SLURM_%s",
			 ddp_optdef_get(i)->env);
		if (setenv(name, text, 1))
			return -1;
	}
	return 0;
}

void ddp_spank_options_forget(void)
{
	char name[128];

	for (unsigned i = 0; i < DDP_OPT_COUNT; i++) {
		snprintf(name, sizeof(name), "SLURM_%s",
			 ddp_optdef_get(i)->env);
		unsetenv(name);
		spank_env_name(SPANK_JOB_ENV, i, name, sizeof(name));
		unsetenv(name);
		spank_env_name(SPANK_ENV, i, name, sizeof(name));
		unsetenv(name);
	}
}

void ddp_spank_options_unset(spank_t sp)
{
	char name[128];

	for (unsigned i = 0; i < DDP_OPT_COUNT; i++) {
		spank_env_name(SPANK_ENV, i, name, sizeof(name));
		(void)spank_unsetenv(sp, name);
	}
}

void ddp_spank_options_clear(void)
{
	for (unsigned src = 0; src < SRC_COUNT; src++)
		for (unsigned i = 0; i < DDP_OPT_COUNT; i++) {
			free(texts[src][i]);
			texts[src][i] = NULL;
		}
}

void ddp_spank_options_idle(const struct ddp_spank *state)
{
	char list[256] = "";
	size_t pos = 0;

	if (state->options.mode != DDP_MODE_OFF || texts[SRC_COMMAND][0])
		return;
	for (unsigned i = 1; i < DDP_OPT_COUNT; i++)
		if (texts[SRC_COMMAND][i] &&
		    ddp_text_add(list, sizeof(list), &pos, " --%s",
				 ddp_optdef_get(i)->name))
			break;
	if (pos)
		slurm_spank_log(DDP_MSG "warning:%s has no effect without "
				"--ddp-launch", list);
}
