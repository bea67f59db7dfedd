/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scenario's lines that begin a GPU, or a MIG device of the last one:
 *
 *	gpu minor=N bus=DDDD:BB:DD.F uuid=TEXT [name="TEXT"] [gpm=yes|no]
 *		[nvlink=LIST] [pcie=LIST] [energy=yes|no] [util=yes|no] [mig]
 *	mig gi=N ci=N uuid=TEXT [gpm=yes|no]
 *
 * LIST names, with commas, where the traffic is to be had, or is none: fields,
 * throughput (PCIe only), gpm, v5 (NVLink only, the fields of NVLink 5). What
 * is not in it is not supported. Without it: fields, gpm, and for PCIe
 * throughput. gpm there means nothing with gpm=no.
 */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned bit;
} sources[] = {
	{ "fields", FROM_FIELDS }, { "throughput", FROM_THROUGHPUT },
	{ "gpm", FROM_GPM }, { "v5", FROM_V5 }
};

static bool parse_sources(char *text, unsigned allowed, unsigned *bits)
{
	char *comma = NULL;
	size_t i;

	*bits = 0;
	if (!text || !strcmp(text, "none"))
		return true;
	for (; text; text = comma) {
		comma = strchr(text, ',');
		if (comma)
			*comma++ = '\0';
		for (i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
			if (!strcmp(text, sources[i].name))
				break;
		if (i == sizeof(sources) / sizeof(sources[0]) ||
		    !(sources[i].bit & allowed))
			return false;
		*bits |= sources[i].bit;
	}
	return true;
}

/* The words of a line that nobody took; "mig" is one for a GPU. */
static bool all_taken(const struct fake_line *line, bool *mig)
{
	unsigned i;

	for (i = 1; i < line->count; i++) {
		if (mig && !strcmp(line->word[i], "mig"))
			*mig = true;
		else if (line->word[i][0])
			return false;
	}
	return true;
}

static const char *parse_identity(struct fake_gpu *gpu, struct fake_line *line)
{
	const char *minor = fake_line_key(line, 1, "minor");
	const char *bus = fake_line_key(line, 1, "bus");
	const char *uuid = fake_line_key(line, 1, "uuid");
	const char *name = fake_line_key(line, 1, "name");
	unsigned long number;
	unsigned function;
	int end = 0;

	if (!minor || !fake_unsigned(minor, 255, &number))
		return "minor= is not there, or no number up to 255";
	gpu->minor = (unsigned)number;
	if (!bus || sscanf(bus, "%8x:%2x:%2x.%1x%n", &gpu->domain, &gpu->bus,
			   &gpu->device, &function, &end) != 4 ||
	    bus[end] || function || gpu->bus > 0xff || gpu->device > 31)
		return "bus= is not there, or not like 0000:10:00.0";
	if (!uuid || !*uuid || !fake_copy(gpu->unit.uuid, FAKE_UUID, uuid))
		return "uuid= is not there, or too long";
	if (!fake_copy(gpu->name, FAKE_NAME,
		       name && *name ? name : "NVIDIA Fake GPU"))
		return "name= is too long";
	return NULL;
}

static const char *parse_abilities(struct fake_gpu *gpu, struct fake_line *line)
{
	const char *gpm = fake_line_key(line, 1, "gpm");
	const char *energy = fake_line_key(line, 1, "energy");
	const char *util = fake_line_key(line, 1, "util");
	char *nvlink = fake_line_key(line, 1, "nvlink");
	char *pcie = fake_line_key(line, 1, "pcie");

	gpu->unit.gpm = gpu->energy = gpu->util = true;
	gpu->nvlink = FROM_FIELDS | FROM_GPM;
	gpu->pcie = FROM_FIELDS | FROM_THROUGHPUT | FROM_GPM;
	if ((gpm && !fake_yesno(gpm, &gpu->unit.gpm)) ||
	    (energy && !fake_yesno(energy, &gpu->energy)) ||
	    (util && !fake_yesno(util, &gpu->util)))
		return "gpm=, energy= and util= are yes or no";
	if (nvlink && !parse_sources(nvlink, FROM_FIELDS | FROM_GPM | FROM_V5,
				     &gpu->nvlink))
		return "nvlink= is fields, gpm, v5 or none";
	if (pcie && !parse_sources(pcie, FROM_FIELDS | FROM_GPM |
				   FROM_THROUGHPUT, &gpu->pcie))
		return "pcie= is fields, throughput, gpm or none";
	return NULL;
}

/* Whether two units, of which neither is a copy, are the same one. */
static bool same(const struct fake_unit *a, const struct fake_unit *b)
{
	if (!strcmp(a->uuid, b->uuid))
		return true;
	if (!a->is_mig && !b->is_mig)
		return a->gpu->minor == b->gpu->minor;
	return a->is_mig && b->is_mig && a->gpu == b->gpu && a->gi == b->gi &&
		a->ci == b->ci;
}

/* Whether it was there before; unit is not yet counted. */
static bool seen(const struct fake_scenario *s, const struct fake_unit *unit)
{
	unsigned i, j;

	for (i = 0; i < s->ngpus; i++) {
		if (same(&s->gpu[i].unit, unit))
			return true;
		for (j = 0; j < s->gpu[i].nmigs; j++)
			if (same(&s->gpu[i].migs[j], unit))
				return true;
	}
	return false;
}

const char *fake_gpu_parse(struct fake_scenario *s, struct fake_unit **unit,
			   struct fake_line *line)
{
	struct fake_gpu *gpu = &s->gpu[s->ngpus];
	const char *wrong;

	if (s->ngpus == FAKE_GPUS)
		return "too many GPUs";
	memset(gpu, 0, sizeof(*gpu));
	gpu->unit.gpu = gpu;
	gpu->lost = gpu->reset = INFINITY;
	gpu->wrap32 = s->wrap32;
	wrong = parse_identity(gpu, line);
	if (!wrong)
		wrong = parse_abilities(gpu, line);
	if (wrong)
		return wrong;
	if (!all_taken(line, &gpu->mig))
		return "a word that a GPU does not know, or knows already";
	if (seen(s, &gpu->unit))
		return "this GPU, by minor or UUID, was there already";
	s->ngpus++;
	*unit = &gpu->unit;
	return NULL;
}

const char *fake_mig_parse(struct fake_scenario *s, struct fake_unit **unit,
			   struct fake_line *line)
{
	struct fake_gpu *gpu = s->ngpus ? &s->gpu[s->ngpus - 1] : NULL;
	const char *gi = fake_line_key(line, 1, "gi");
	const char *ci = fake_line_key(line, 1, "ci");
	const char *uuid = fake_line_key(line, 1, "uuid");
	const char *gpm = fake_line_key(line, 1, "gpm");
	unsigned long gi_id, ci_id;
	struct fake_unit *mig;

	if (!gpu || gpu->nmigs == FAKE_MIGS)
		return "a MIG device without a GPU, or too many";
	mig = &gpu->migs[gpu->nmigs];
	memset(mig, 0, sizeof(*mig));
	mig->gpu = gpu;
	mig->is_mig = true;
	mig->gpm = gpu->unit.gpm;
	if (!gi || !fake_unsigned(gi, 1000, &gi_id) ||
	    !ci || !fake_unsigned(ci, 1000, &ci_id))
		return "gi= and ci= are not there, or no numbers";
	mig->gi = (unsigned)gi_id;
	mig->ci = (unsigned)ci_id;
	if (!uuid || !*uuid || !fake_copy(mig->uuid, FAKE_UUID, uuid))
		return "uuid= is not there, or too long";
	if (gpm && !fake_yesno(gpm, &mig->gpm))
		return "gpm= is yes or no";
	if (!all_taken(line, NULL))
		return "a word that a MIG device does not know";
	if (seen(s, mig))
		return "this MIG device was there already";
	gpu->mig = true;
	gpu->nmigs++;
	*unit = mig;
	return NULL;
}
