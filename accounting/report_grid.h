/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, by libsmartcols. */
#ifndef REPORT_GRID_H
#define REPORT_GRID_H

#include "accounting/report_app.h"

struct report_column {
	const char *name;
	bool right;
};

struct report_grid;

/* NULL: out of memory. */
struct report_grid *report_grid_new(const struct report_column *columns,
				    size_t n, const struct report_screen *s,
				    FILE *f);
void report_grid_free(struct report_grid *g);

/* Leaves a column out; its cells may be filled all the same. */
void report_grid_hide(struct report_grid *g, size_t column);

/* Starts a row. 0 or -1. */
int report_grid_row(struct report_grid *g);

/* A cell of the row that was started last. 0 or -1. */
int report_grid_set(struct report_grid *g, size_t column, const char *text);

/* Columns of the terminal that are taken so far, with their gaps. */
size_t report_grid_width(const struct report_grid *g);

/* A cell of any row, in a colour of libsmartcols' if not NULL. 0 or -1. */
int report_grid_put(struct report_grid *g, size_t row, size_t column,
		    const char *text, const char *colour);

/* Cells for bars in the last column, `column`; 0: there is no room. */
unsigned report_bar_cells(const struct report_grid *g, size_t column,
			  const struct report_screen *s);

/* 0 or -1. */
int report_grid_print(struct report_grid *g);

#endif
