/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lines of a scenario mean. Times are seconds after the origin.
 *
 *	origin SECONDS		of CLOCK_REALTIME; 0
 *	period SECONDS		the curves repeat
 *	devdir DIR		a GPU is hidden where DIR/nvidiaMINOR may not
 *				be opened (EPERM, EACCES)
 *	log FILE		a line for each call: FUNCTION [INDEX]
 *	driver TEXT nvml TEXT	versions
 *	gpu …, mig …		see fake_ml_gpuline.c; then, for this GPU or
 *				MIG device:
 *	CURVE T:VALUE …		sm, membw, util (%), nvlink_rx, nvlink_tx,
 *				pcie_rx, pcie_tx (bytes a second), power (W)
 *	base COUNTER VALUE	nvlink_rx … pcie_tx (bytes), energy (mJ): what
 *				it is at the origin
 *	wrap pcie 32|64		bits of the PCIe counters, of all GPUs where it
 *				is before the first one
 *	reset T			its counters begin at 0 again
 *	lost T			it is lost from then on
 *	fail FUNCTION code=C [at=N] [count=M] [gpu=I]
 *	hang FUNCTION [at=N] [count=M] [gpu=I] [seconds=S]
 *	slow FUNCTION ms=MS [gpu=I]
 *				I is an index; calls are counted for the
 *				process (with gpu=I those for I alone), the
 *				first is 1. at is 1; count is all of them for
 *				fail, and 1 for hang.
 */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const fake_fn_name[FAKE_FNS] = {
#define X(name) #name,
	FAKE_FUNCTIONS(X)
#undef X
};

const char *const fake_curve_name[CURVES] = {
	"sm", "membw", "util", "nvlink_rx", "nvlink_tx", "pcie_rx", "pcie_tx",
	"power"
};

/* Highest value of a curve. */
static double highest(enum fake_curve_id id)
{
	return id <= CURVE_UTIL ? 100 : id == CURVE_POWER ? 1e6 : 1e15;
}

/* One T:VALUE. */
static const char *parse_point(const struct fake_scenario *s, char *word,
			       enum fake_curve_id id, struct fake_point *point)
{
	char *colon = strchr(word, ':');

	if (!colon)
		return "a point is TIME:VALUE";
	*colon = '\0';
	if (!fake_number(word, 0, 1e12, &point->t))
		return "a point's time is no number from 0 on";
	if (s->period > 0 && point->t >= s->period)
		return "a point lies beyond the period";
	if (!fake_number(colon + 1, 0, highest(id), &point->value))
		return "a point's value is no number, or too high";
	return NULL;
}

static const char *parse_curve(struct fake_scenario *s, struct fake_unit *unit,
			       struct fake_line *line, enum fake_curve_id id)
{
	struct fake_point *first = s->points + s->npoints, *point = first;
	const char *wrong;
	unsigned i;

	if (!unit)
		return "a curve before any GPU";
	if (line->count < 2)
		return "a curve without a point";
	if (unit->curve[id].count)
		return "this curve was there already";
	for (i = 1; i < line->count; i++, point++) {
		if (s->npoints == s->maxpoints)
			return "too many points";
		wrong = parse_point(s, line->word[i], id, point);
		if (wrong)
			return wrong;
		if (i > 1 && point->t <= point[-1].t)
			return "points are not in the order of time";
		s->npoints++;
	}
	fake_curve_set(&unit->curve[id], first, line->count - 1);
	return NULL;
}

static const char *parse_base(struct fake_unit *unit, struct fake_line *line)
{
	unsigned id;

	if (!unit || unit->is_mig || line->count != 3)
		return "not 'base COUNTER VALUE' after a GPU";
	for (id = CURVE_NVLINK_RX; id < CURVE_POWER; id++)
		if (!strcmp(line->word[1], fake_curve_name[id]))
			break;
	if (id == CURVE_POWER && strcmp(line->word[1], "energy"))
		return "no such counter";
	if (!fake_number(line->word[2], 0, 0x1p63, &unit->gpu->base[id]))
		return "no number for a counter";
	if (id == CURVE_POWER)
		unit->gpu->base[id] /= 1000;
	return NULL;
}

static const char *parse_wrap(struct fake_scenario *s, struct fake_unit *unit,
			      struct fake_line *line)
{
	bool *wrap32 = unit ? &unit->gpu->wrap32 : &s->wrap32;

	if (line->count != 3 || strcmp(line->word[1], "pcie"))
		return "not 'wrap pcie 32' or 'wrap pcie 64'";
	*wrap32 = !strcmp(line->word[2], "32");
	if (!*wrap32 && strcmp(line->word[2], "64"))
		return "not 'wrap pcie 32' or 'wrap pcie 64'";
	return NULL;
}

static const char *parse_moment(struct fake_unit *unit, struct fake_line *line)
{
	double *moment;

	if (!unit || unit->is_mig || line->count != 2)
		return "not 'lost TIME' or 'reset TIME' after a GPU";
	moment = line->word[0][0] == 'l' ? &unit->gpu->lost : &unit->gpu->reset;
	return fake_number(line->word[1], 0, 1e12, moment) ? NULL :
		"its time is no number from 0 on";
}

/* The numbers of a rule. */
static const char *parse_limits(struct fake_rule *rule, struct fake_line *line)
{
	const char *word;
	unsigned long n;
	unsigned i;

	if ((word = fake_line_key(line, 2, "at")) &&
	    (!fake_unsigned(word, ULONG_MAX / 4, &rule->at) || !rule->at))
		return "at= is no number from 1 on";
	if ((word = fake_line_key(line, 2, "count")) &&
	    !fake_unsigned(word, ULONG_MAX / 4, &rule->count))
		return "count= is no number";
	if ((word = fake_line_key(line, 2, "gpu"))) {
		if (!fake_unsigned(word, FAKE_GPUS - 1, &n))
			return "gpu= is no index";
		rule->gpu = (int)n;
	}
	for (i = 2; i < line->count; i++)
		if (line->word[i][0])
			return "a word that such a rule does not know";
	return NULL;
}

static const char *parse_rule(struct fake_scenario *s, struct fake_line *line)
{
	struct fake_rule *rule = &s->rule[s->nrules];
	unsigned long code = 0;
	const char *word;
	int fn;

	if (s->nrules == FAKE_RULES)
		return "too many rules";
	for (fn = 0; line->count > 1 && fn < FAKE_FNS; fn++)
		if (!strcmp(line->word[1], fake_fn_name[fn]))
			break;
	if (line->count < 2 || fn == FAKE_FNS)
		return "no such function of NVML here";
	*rule = (struct fake_rule){ .fn = (enum fake_fn)fn, .gpu = -1,
		.at = 1, .count = ULONG_MAX / 4 };
	if (line->word[0][0] == 'f') {
		rule->kind = RULE_FAIL;
		word = fake_line_key(line, 2, "code");
		if (!word || !fake_unsigned(word, 999, &code) || !code)
			return "code= is not there, or not from 1 to 999";
		rule->code = (int)code;
	} else if (line->word[0][0] == 'h') {
		rule->kind = RULE_HANG;
		rule->count = 1;
		word = fake_line_key(line, 2, "seconds");
		if (word && !fake_number(word, 1e-3, 1e6, &rule->seconds))
			return "seconds= is no number";
	} else {
		rule->kind = RULE_SLOW;
		word = fake_line_key(line, 2, "ms");
		if (!word || !fake_number(word, 0, 1e6, &rule->seconds))
			return "ms= is not there, or no number";
		rule->seconds /= 1000;
	}
	s->nrules++;
	return parse_limits(rule, line);
}

/* origin keeps more digits than a double has. */
static const char *parse_origin(struct fake_scenario *s, const char *text)
{
	double rough;
	char *end;

	if (!fake_number(text, 0, 1e11, &rough))
		return "origin is no number of seconds";
	s->origin = strtold(text, &end);
	return NULL;
}

static const char *parse_global(struct fake_scenario *s, struct fake_line *line)
{
	const char *key = line->word[0], *value = line->word[1];

	if (!strcmp(key, "driver") && line->count == 4 &&
	    !strcmp(line->word[2], "nvml"))
		return fake_copy(s->driver, sizeof(s->driver), value) &&
			fake_copy(s->nvml, sizeof(s->nvml), line->word[3]) ?
			NULL : "too long a version";
	if (line->count != 2)
		return "no such word, or not with that many others";
	if (!strcmp(key, "origin"))
		return parse_origin(s, value);
	if (!strcmp(key, "devdir"))
		return fake_copy(s->devdir, sizeof(s->devdir), value) ? NULL :
			"too long a path";
	if (!strcmp(key, "log"))
		return fake_copy(s->log, sizeof(s->log), value) ? NULL :
			"too long a path";
	if (!strcmp(key, "period") && s->npoints)
		return "period is after a curve";
	if (!strcmp(key, "period"))
		return fake_number(value, 1e-3, 1e9, &s->period) ? NULL :
			"period is no number of seconds";
	return "no such word";
}

const char *fake_line_parse(struct fake_scenario *s, struct fake_unit **unit,
			    struct fake_line *line)
{
	const char *key = line->word[0];
	int id;

	for (id = 0; id < CURVES; id++)
		if (!strcmp(key, fake_curve_name[id]))
			return parse_curve(s, *unit, line,
					   (enum fake_curve_id)id);
	if (!strcmp(key, "gpu"))
		return fake_gpu_parse(s, unit, line);
	if (!strcmp(key, "mig"))
		return fake_mig_parse(s, unit, line);
	if (!strcmp(key, "base"))
		return parse_base(*unit, line);
	if (!strcmp(key, "wrap"))
		return parse_wrap(s, *unit, line);
	if (!strcmp(key, "lost") || !strcmp(key, "reset"))
		return parse_moment(*unit, line);
	if (!strcmp(key, "fail") || !strcmp(key, "hang") ||
	    !strcmp(key, "slow"))
		return parse_rule(s, line);
	return parse_global(s, line);
}
