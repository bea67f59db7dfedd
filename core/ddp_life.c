/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_life.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const states[DDP_LIFE_NSTATES] = {
	[DDP_LIFE_NONE] = "none",
	[DDP_LIFE_STARTING] = "starting",
	[DDP_LIFE_READY] = "ready",
	[DDP_LIFE_RUNNING] = "running",
	[DDP_LIFE_STOPPING] = "stopping",
	[DDP_LIFE_ABORTING] = "aborting",
	[DDP_LIFE_GONE] = "gone",
};

const char *ddp_life_state_name(enum ddp_life_state state)
{
	return (unsigned)state < DDP_LIFE_NSTATES ? states[state] : states[0];
}

/* n bytes of from as one line of text, cut at size. */
static void copy_text(char *to, size_t size, const char *from, size_t n)
{
	size_t i;

	for (i = 0; i < n && i + 1 < size; i++)
		to[i] = from[i] >= ' ' && from[i] < 0x7f ? from[i] : ' ';
	to[i] = '\0';
}

bool ddp_life_is_name(const char *name)
{
	size_t n = strnlen(name, DDP_LIFE_NAME);

	return n && n < DDP_LIFE_NAME &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz"
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* "WORD NAME HEX", or without a value "WORD NAME"; -1: they are not valid. */
static int format_pair(const char *word, const struct ddp_life_msg *m,
		       bool value, char *line, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	char hex[2 * DDP_LIFE_VALUE + 1];

	if (!ddp_life_is_name(m->name) ||
	    (value && (!m->size || m->size > DDP_LIFE_VALUE)))
		return -1;
	if (!value)
		return snprintf(line, size, "%s %s\n", word, m->name);
	for (uint32_t i = 0; i < m->size; i++) {
		hex[2 * i] = digits[m->value[i] >> 4];
		hex[2 * i + 1] = digits[m->value[i] & 15];
	}
	hex[2 * m->size] = '\0';
	return snprintf(line, size, "%s %s %s\n", word, m->name, hex);
}

static int format_late(const struct ddp_life_msg *m, char *line, size_t size)
{
	switch (m->kind) {
	case DDP_LIFE_MSG_LEFT:
		return snprintf(line, size, "left %" PRIu64 " %d\n", m->count,
				m->mpi);
	case DDP_LIFE_MSG_WAITS:
		return snprintf(line, size, "waits %" PRIu64 "\n", m->count);
	case DDP_LIFE_MSG_PUT:
		return format_pair("put", m, true, line, size);
	case DDP_LIFE_MSG_GET:
		return format_pair("get", m, false, line, size);
	case DDP_LIFE_MSG_VALUE:
		return format_pair("value", m, true, line, size);
	default:
		return -1;
	}
}

static int format_life(const struct ddp_life_msg *m, char *line, size_t size)
{
	return m->limit_ms ?
		snprintf(line, size, "life %u %" PRIu32 " %" PRIu32 "\n",
			 m->version, m->pid, m->limit_ms) :
		snprintf(line, size, "life %u %" PRIu32 "\n", m->version,
			 m->pid);
}

int ddp_life_format(const struct ddp_life_msg *m, char *line, size_t size,
		    struct ddp_err *err)
{
	char text[DDP_LIFE_TEXT];
	int n = -1;

	copy_text(text, sizeof(text), m->text, strnlen(m->text,
						       sizeof(m->text)));
	if (m->code < 0 || m->code > 255)
		return ddp_err_set(err, DDP_EINVAL, "code %d", m->code);
	switch (m->kind) {
	case DDP_LIFE_MSG_LIFE:
		n = format_life(m, line, size);
		break;
	case DDP_LIFE_MSG_STATE:
		n = snprintf(line, size, "state %s\n",
			     ddp_life_state_name(m->state));
		break;
	case DDP_LIFE_MSG_CAUSE:
		n = snprintf(line, size, "cause %d %s\n", m->code, text);
		break;
	case DDP_LIFE_MSG_ABORT:
		n = snprintf(line, size, "abort %d %s\n", m->code, text);
		break;
	default:
		n = format_late(m, line, size);
	}
	if (n < 0)
		return ddp_err_set(err, DDP_EINVAL, "no such message: %d",
				   (int)m->kind);
	if ((size_t)n >= size)
		return ddp_err_set(err, DDP_ENOSPC, "a line of %d bytes", n);
	return n;
}

/* A place in a line that is being read. */
struct reader {
	const char *at, *end;
};

static bool take_word(struct reader *r, const char **word, size_t *len)
{
	while (r->at < r->end && *r->at == ' ')
		r->at++;
	*word = r->at;
	while (r->at < r->end && *r->at != ' ')
		r->at++;
	*len = (size_t)(r->at - *word);
	return *len > 0;
}

/* Of at most 18 digits, which 64 bits hold. */
static bool take_count(struct reader *r, uint64_t max, uint64_t *value)
{
	const char *word;
	uint64_t n = 0;
	size_t len;

	if (!take_word(r, &word, &len) || len > 18)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (word[i] < '0' || word[i] > '9')
			return false;
		n = n * 10 + (uint64_t)(word[i] - '0');
	}
	*value = n;
	return n <= max;
}

static bool take_number(struct reader *r, uint32_t max, uint32_t *value)
{
	uint64_t n = 0;
	bool good = take_count(r, max, &n);

	*value = (uint32_t)n;
	return good;
}

static bool take_name(struct reader *r, char name[DDP_LIFE_NAME])
{
	const char *word;
	size_t len;

	if (!take_word(r, &word, &len) || len >= DDP_LIFE_NAME)
		return false;
	memcpy(name, word, len);
	name[len] = '\0';
	return ddp_life_is_name(name);
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_value(struct reader *r, struct ddp_life_msg *m)
{
	const char *word;
	size_t len;

	if (!take_word(r, &word, &len) || len % 2 || len > 2 * DDP_LIFE_VALUE)
		return false;
	for (size_t i = 0; i < len; i += 2) {
		int hi = digit(word[i]), lo = digit(word[i + 1]);

		if (hi < 0 || lo < 0)
			return false;
		m->value[i / 2] = (uint8_t)(hi << 4 | lo);
	}
	m->size = (uint32_t)(len / 2);
	return true;
}

static bool take_state(struct reader *r, enum ddp_life_state *state)
{
	const char *word;
	size_t len;

	if (!take_word(r, &word, &len))
		return false;
	for (unsigned i = 0; i < DDP_LIFE_NSTATES; i++)
		if (strlen(states[i]) == len && !memcmp(states[i], word, len)) {
			*state = (enum ddp_life_state)i;
			return true;
		}
	return false;
}

static bool take_cause(struct reader *r, struct ddp_life_msg *m)
{
	uint32_t code;

	if (!take_number(r, 255, &code))
		return false;
	m->code = (int)code;
	if (r->at < r->end)
		r->at++;
	copy_text(m->text, sizeof(m->text), r->at, (size_t)(r->end - r->at));
	r->at = r->end;
	return true;
}

static enum ddp_life_kind kind_of(const char *word, size_t len)
{
	static const struct {
		const char *word;
		enum ddp_life_kind kind;
	} kinds[] = {
		{ "life", DDP_LIFE_MSG_LIFE }, { "state", DDP_LIFE_MSG_STATE },
		{ "cause", DDP_LIFE_MSG_CAUSE }, { "abort", DDP_LIFE_MSG_ABORT },
		{ "left", DDP_LIFE_MSG_LEFT }, { "waits", DDP_LIFE_MSG_WAITS },
		{ "put", DDP_LIFE_MSG_PUT }, { "get", DDP_LIFE_MSG_GET },
		{ "value", DDP_LIFE_MSG_VALUE },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strlen(kinds[i].word) == len &&
		    !memcmp(kinds[i].word, word, len))
			return kinds[i].kind;
	return DDP_LIFE_MSG_OTHER;
}

/* A count has 18 digits at most. */
#define COUNT_MAX 999999999999999999U

static bool take_life(struct reader *r, struct ddp_life_msg *m)
{
	uint32_t version;
	struct reader before;

	if (!take_number(r, UINT16_MAX, &version) ||
	    !take_number(r, INT32_MAX, &m->pid) || !m->pid)
		return false;
	m->version = version;
	before = *r;
	if (!take_number(r, INT32_MAX, &m->limit_ms)) {
		*r = before;	/* there is none, or another word */
		m->limit_ms = 0;
	}
	return true;
}

static bool take_left(struct reader *r, struct ddp_life_msg *m)
{
	uint32_t mpi;

	if (!take_count(r, COUNT_MAX, &m->count) || !take_number(r, 1, &mpi))
		return false;
	m->mpi = mpi;
	return true;
}

static bool take_late(struct reader *r, struct ddp_life_msg *m)
{
	switch (m->kind) {
	case DDP_LIFE_MSG_LEFT:
		return take_left(r, m);
	case DDP_LIFE_MSG_WAITS:
		return take_count(r, COUNT_MAX, &m->count);
	case DDP_LIFE_MSG_GET:
		return take_name(r, m->name);
	case DDP_LIFE_MSG_PUT:
	case DDP_LIFE_MSG_VALUE:
		return take_name(r, m->name) && take_value(r, m);
	default:
		return false;
	}
}

int ddp_life_parse(const char *line, size_t len, struct ddp_life_msg *m,
		   struct ddp_err *err)
{
	struct reader r = { line, line + len };
	const char *word;
	bool good = true;
	size_t n;

	memset(m, 0, sizeof(*m));
	if (len && line[len - 1] == '\n')
		r.end--;
	if (len >= DDP_LIFE_LINE || !take_word(&r, &word, &n))
		return ddp_err_set(err, DDP_EINVAL, "a line of %zu bytes", len);
	m->kind = kind_of(word, n);
	switch (m->kind) {
	case DDP_LIFE_MSG_LIFE:
		good = take_life(&r, m);
		break;
	case DDP_LIFE_MSG_STATE:
		good = take_state(&r, &m->state);
		break;
	case DDP_LIFE_MSG_CAUSE:
	case DDP_LIFE_MSG_ABORT:
		good = take_cause(&r, m);
		break;
	case DDP_LIFE_MSG_OTHER:
		return 0;
	default:
		good = take_late(&r, m);
	}
	/* More words may follow in a later version. */
	if (good)
		return 0;
	memset(m, 0, sizeof(*m));
	return ddp_err_set(err, DDP_EINVAL, "a malformed line");
}
