/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/report_grid.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <libsmartcols.h>

#define COLUMNS_MAX 24

struct report_grid {
	struct libscols_table *table;
	struct libscols_line *line;
	size_t n, width[COLUMNS_MAX];
	bool hidden[COLUMNS_MAX];
};

/* Columns that a text takes on a terminal. */
static size_t text_width(const char *text)
{
	wchar_t wide[256];
	size_t n = mbstowcs(wide, text, 256);
	int w = n == (size_t)-1 ? -1 : wcswidth(wide, n);

	return w < 0 ? strlen(text) : (size_t)w;
}

static int setup(struct report_grid *g, const struct report_column *columns,
		 const struct report_screen *s, FILE *f)
{
	scols_table_set_stream(g->table, f);
	/* f may be memory: what it will be shown on is known here only. */
	if (scols_table_set_termforce(g->table, s->tty ?
				      SCOLS_TERMFORCE_ALWAYS :
				      SCOLS_TERMFORCE_NEVER) ||
	    scols_table_enable_colors(g->table, s->colour))
		return -1;
	if (s->tty)
		scols_table_set_termwidth(g->table, s->width);
	for (size_t i = 0; i < g->n; i++) {
		g->width[i] = strlen(columns[i].name);
		if (!scols_table_new_column(g->table, columns[i].name, 0,
					    columns[i].right ? SCOLS_FL_RIGHT :
					    0))
			return -1;
	}
	return 0;
}

struct report_grid *report_grid_new(const struct report_column *columns,
				    size_t n, const struct report_screen *s,
				    FILE *f)
{
	struct report_grid *g = calloc(1, sizeof(*g));

	if (!g || n > COLUMNS_MAX) {
		free(g);
		return NULL;
	}
	g->n = n;
	g->table = scols_new_table();
	if (g->table && !setup(g, columns, s, f))
		return g;
	report_grid_free(g);
	return NULL;
}

void report_grid_free(struct report_grid *g)
{
	if (g && g->table)
		scols_unref_table(g->table);
	free(g);
}

void report_grid_hide(struct report_grid *g, size_t column)
{
	struct libscols_column *c = scols_table_get_column(g->table, column);

	g->hidden[column] = c && !scols_column_set_flags(c, SCOLS_FL_HIDDEN);
}

int report_grid_row(struct report_grid *g)
{
	g->line = scols_table_new_line(g->table, NULL);
	return g->line ? 0 : -1;
}

int report_grid_set(struct report_grid *g, size_t column, const char *text)
{
	size_t w = text_width(text);

	if (w > g->width[column])
		g->width[column] = w;
	return scols_line_set_data(g->line, column, text) ? -1 : 0;
}

size_t report_grid_width(const struct report_grid *g)
{
	size_t sum = 0;

	for (size_t i = 0; i < g->n; i++)
		sum += g->hidden[i] ? 0 : g->width[i] + 1;
	return sum ? sum - 1 : 0;
}

unsigned report_bar_cells(const struct report_grid *g, size_t column,
			  const struct report_screen *s)
{
	/* The column's name is in the width already. */
	size_t taken = report_grid_width(g) - g->width[column];
	size_t cells = s->width > taken ? s->width - taken : 0;

	return cells < 8 ? 0 : cells > REPORT_BAR_CELLS ? REPORT_BAR_CELLS :
		(unsigned)cells;
}

int report_grid_put(struct report_grid *g, size_t row, size_t column,
		    const char *text, const char *colour)
{
	struct libscols_line *line = scols_table_get_line(g->table, row);
	struct libscols_cell *cell = line ? scols_line_get_cell(line, column) :
		NULL;

	if (!cell || scols_line_set_data(line, column, text))
		return -1;
	return colour && scols_cell_set_color(cell, colour) ? -1 : 0;
}

int report_grid_print(struct report_grid *g)
{
	return scols_print_table(g->table) ? -1 : 0;
}
