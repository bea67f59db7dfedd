/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_vis.h"

#include <string.h>

/* A number, with a tile of Intel's ("2.1"); or a name that NVIDIA's libraries
 * have given. */
static bool is_word(const char *p, size_t n)
{
	size_t digits = strspn(p, "0123456789");

	if (!n || n >= DDP_VIS_WORD)
		return false;
	if (digits)
		return digits == n || (p[digits] == '.' && digits + 1 < n &&
			digits + 1 + strspn(p + digits + 1, "0123456789") == n);
	if (n < 5 || (strncmp(p, "GPU-", 4) && strncmp(p, "MIG-", 4)))
		return false;
	for (size_t i = 4; i < n; i++)
		if (!((p[i] >= '0' && p[i] <= '9') ||
		      (p[i] >= 'a' && p[i] <= 'z') ||
		      (p[i] >= 'A' && p[i] <= 'Z') || strchr("-_./:", p[i])))
			return false;
	return true;
}

bool ddp_vis_is_none(const char *list)
{
	static const char *const none[] = { "", "-1", "NoDevFiles", "void",
					    "none" };

	for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		if (!strcmp(list, none[i]))
			return true;
	return false;
}

int ddp_vis_parse(struct ddp_vis *v, const char *list)
{
	v->n = 0;
	for (;;) {
		size_t n = strcspn(list, ",");

		if (v->n == DDP_VIS_MAX || !is_word(list, n))
			return -1;
		memcpy(v->word[v->n], list, n);
		v->word[v->n][n] = '\0';
		for (unsigned i = 0; i < v->n; i++)
			if (!strcmp(v->word[i], v->word[v->n]))
				return -1;
		v->n++;
		if (!list[n])
			return 0;
		list += n + 1;
	}
}

int ddp_vis_index(const char *word)
{
	uint32_t value;

	return ddp_text_u32(word, 0, 65535, &value) ? -1 : (int)value;
}

int ddp_vis_format(const struct ddp_vis *v, const unsigned *order, unsigned n,
		   char *buf, size_t size)
{
	size_t pos = 0;

	if (size)
		buf[0] = '\0';
	for (unsigned i = 0; i < n; i++)
		if (ddp_text_add(buf, size, &pos, "%s%s", i ? "," : "",
				 v->word[order[i]]))
			return -1;
	return 0;
}
