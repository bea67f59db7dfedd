/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_tres.h"

/* Digits only, without overflow; *text moves behind them. */
static int take_number(const char **text, uint64_t *out)
{
	const char *p = *text;
	uint64_t value = 0;

	for (; *p >= '0' && *p <= '9'; p++) {
		uint64_t digit = (uint64_t)(*p - '0');

		if (value > (UINT64_MAX - digit) / 10)
			return -1;
		value = value * 10 + digit;
	}
	if (p == *text)
		return -1;
	*text = p;
	*out = value;
	return 0;
}

int ddp_tres_count(const char *list, uint32_t id, uint64_t *count)
{
	uint64_t key, value;

	while (list && *list) {
		if (take_number(&list, &key) || *list++ != '=' ||
		    take_number(&list, &value) || (*list && *list != ','))
			return -1;
		if (key == id) {
			if (value >= UINT64_MAX - 1)
				return -1;
			*count = value;
			return 0;
		}
		if (*list)
			list++;
	}
	return -1;
}
