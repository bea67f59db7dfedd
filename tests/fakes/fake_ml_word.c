/* SPDX-License-Identifier: Apache-2.0 */
/* The words and numbers of a scenario. */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/*
 * Ends the word at text and returns what is after it; quotes are taken out.
 * NULL: a quote stays open.
 */
static char *end_word(char *text)
{
	char *to = text;
	bool quoted = false;

	for (; *text && (quoted || (!blank(*text) && *text != '#')); text++) {
		if (*text == '"')
			quoted = !quoted;
		else
			*to++ = *text;
	}
	if (quoted)
		return NULL;
	/* The rest is a comment. */
	if (*text == '#')
		*text = '\0';
	else if (*text)
		text++;
	*to = '\0';
	return text;
}

int fake_line_split(struct fake_line *line, char *text)
{
	line->count = 0;
	for (;;) {
		while (blank(*text))
			text++;
		if (!*text || *text == '#')
			return 0;
		if (line->count == FAKE_WORDS)
			return -1;
		line->word[line->count++] = text;
		text = end_word(text);
		if (!text)
			return -1;
	}
}

char *fake_line_key(struct fake_line *line, unsigned from, const char *key)
{
	size_t length = strlen(key);
	char *word;
	unsigned i;

	for (i = from; i < line->count; i++) {
		word = line->word[i];
		if (strncmp(word, key, length) || word[length] != '=')
			continue;
		line->word[i] = word + strlen(word);
		return word + length + 1;
	}
	return NULL;
}

bool fake_number(const char *text, double min, double max, double *out)
{
	char *end;
	double value;

	if (!*text || blank(*text))
		return false;
	value = strtod(text, &end);
	/* Also false for a NaN. */
	if (*end || !(value >= min && value <= max))
		return false;
	*out = value;
	return true;
}

bool fake_unsigned(const char *text, unsigned long max, unsigned long *out)
{
	unsigned long value;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (*end || errno || value > max)
		return false;
	*out = value;
	return true;
}

bool fake_yesno(const char *text, bool *out)
{
	*out = !strcmp(text, "yes");
	return *out || !strcmp(text, "no");
}

bool fake_copy(char *to, size_t size, const char *text)
{
	size_t length = strlen(text);

	if (length >= size)
		return false;
	memcpy(to, text, length + 1);
	return true;
}
