/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_err.h"

#include <stdarg.h>
#include <stdio.h>

int ddp_err_set(struct ddp_err *err, enum ddp_errcode code,
		const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -1;
	err->code = code;
	va_start(ap, fmt);
	if (vsnprintf(err->text, sizeof(err->text), fmt, ap) < 0)
		err->text[0] = '\0';
	va_end(ap);
	return -1;
}
