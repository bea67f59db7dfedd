/* SPDX-License-Identifier: Apache-2.0 */
/* What we draw on, and the bar of a row. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/report_app.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void report_screen_init(struct report_screen *s)
{
	const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
	struct winsize w;

	s->tty = isatty(STDOUT_FILENO);
	s->colour = s->tty && !(no_colour && *no_colour) && term &&
		strcmp(term, "dumb");
	s->utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	s->width = 80;
	if (s->tty && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col)
		s->width = w.ws_col;
}

static size_t put(char *buf, size_t size, size_t used, const char *text)
{
	size_t n = strlen(text);

	if (used + n >= size)
		return used;
	memcpy(buf + used, text, n + 1);
	return used + n;
}

const char *report_bar(const struct report_values *v, unsigned cells, bool utf8,
		       char *buf, size_t size)
{
	static const char *const part[] = { "", "▏", "▎", "▍", "▌", "▋", "▊",
		"▉" };
	unsigned eighths, peak = cells;
	size_t used = 0;

	if (size)
		*buf = '\0';
	if (!report_known(v, REPORT_SM) || !cells)
		return buf;
	eighths = (unsigned)(v->v[REPORT_SM] / 100 * cells * 8 + 0.5);
	if (!utf8)	/* whole cells */
		eighths = (eighths + 4) / 8 * 8;
	if (report_known(v, REPORT_SM_PEAK) && v->v[REPORT_SM_PEAK] > 0)
		peak = (unsigned)((v->v[REPORT_SM_PEAK] * cells + 99) / 100) -
			1;
	for (unsigned i = 0; i < cells; i++) {
		const char *cell = utf8 ? "·" : ".";

		if (eighths >= 8 * (i + 1))
			cell = utf8 ? "█" : "#";
		else if (eighths > 8 * i && eighths % 8)
			cell = part[eighths % 8];
		if (i == peak)
			cell = utf8 ? "│" : "|";
		used = put(buf, size, used, cell);
	}
	return buf;
}

const char *report_bar_colour(const struct report_values *v)
{
	if (!report_known(v, REPORT_SM))
		return NULL;
	return v->v[REPORT_SM] >= 70 ? "green" :
		v->v[REPORT_SM] >= 30 ? "yellow" : "red";
}
