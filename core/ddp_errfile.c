/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_errfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 32
#define BAD UINT32_MAX

/* What is being left out of the message: a terminal's escape sequence. */
enum skip { SKIP_NO, SKIP_ESC, SKIP_CSI, SKIP_STRING };

struct reader {
	const unsigned char *p, *end;
	char *out;		/* the message goes here, while `taking` */
	size_t size, pos;
	bool taking, full, found;
	enum skip skip;
};

static void put(struct reader *r, const char *s, size_t n)
{
	if (r->full || r->pos + n >= r->size) {
		r->full = true;
		return;
	}
	memcpy(r->out + r->pos, s, n);
	r->pos += n;
}

static void put_utf8(struct reader *r, uint32_t c)
{
	char b[4];
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	for (size_t i = n - 1; i; i--) {
		b[i] = (char)(0x80 | (c & 0x3f));
		c >>= 6;
	}
	b[0] = (char)(lead[n] | c);
	put(r, b, n);
}

static bool turns_direction(uint32_t c)
{
	return c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ||
	       c == 0xfeff;
}

/* True if c is part of an escape sequence, ECMA-48's forms. */
static bool in_escape(struct reader *r, uint32_t c)
{
	enum skip was = r->skip;

	if (c == 0x1b || c == 0x9b) {
		r->skip = c == 0x1b ? SKIP_ESC : SKIP_CSI;
		return true;
	}
	if (was == SKIP_ESC)
		r->skip = c == '[' ? SKIP_CSI : c && strchr("]PX^_", (int)c)
			? SKIP_STRING : c >= 0x20 && c <= 0x2f ? SKIP_ESC
			: SKIP_NO;
	else if (was == SKIP_CSI && (c < 0x20 || c > 0x3f))
		r->skip = SKIP_NO;
	else if (was == SKIP_STRING && (c == 7 || c == 0x9c || c == '\n'))
		r->skip = SKIP_NO;
	return was != SKIP_NO;
}

/* One character of a string of the file. */
static void take(struct reader *r, uint32_t c)
{
	if (!r->taking || (c < 0x10000 && in_escape(r, c)))
		return;
	if (c == '\n' || c == '\r' || c == '\t' || c == '\v' || c == '\f')
		c = ' ';
	if (c < 0x20 || (c >= 0x7f && c < 0xa0) || turns_direction(c))
		return;
	put_utf8(r, c == BAD || (c >= 0xd800 && c <= 0xdfff) ? '?' : c);
}

static void blanks(struct reader *r)
{
	while (r->p < r->end && *r->p && strchr(" \t\r\n", *r->p))
		r->p++;
}

static bool literal(struct reader *r, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n))
		return false;
	r->p += n;
	return true;
}

static int hex4(struct reader *r, uint32_t *v)
{
	*v = 0;
	if (r->end - r->p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		unsigned c = *r->p++, low = c | 0x20;

		if (c >= '0' && c <= '9')
			*v = *v << 4 | (c - '0');
		else if (low >= 'a' && low <= 'f')
			*v = *v << 4 | (low - 'a' + 10);
		else
			return -1;
	}
	return 0;
}

/* Behind "\u". Half a pair is taken as it is, and shown as '?'. */
static int read_unicode(struct reader *r)
{
	const unsigned char *back;
	uint32_t c, low;

	if (hex4(r, &c))
		return -1;
	back = r->p;
	if (c >= 0xd800 && c <= 0xdbff && literal(r, "\\u")) {
		if (hex4(r, &low))
			return -1;
		if (low >= 0xdc00 && low <= 0xdfff)
			c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		else
			r->p = back;
	}
	take(r, c);
	return 0;
}

static int read_escape(struct reader *r)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;
	unsigned char c;

	if (r->p == r->end)
		return -1;
	c = *r->p++;
	if (c == 'u')
		return read_unicode(r);
	at = c ? strchr(from, c) : NULL;
	if (!at)
		return -1;
	take(r, (unsigned char)to[at - from]);
	return 0;
}

/* A character of more than one byte; BAD for what is not UTF-8. */
static uint32_t read_utf8(struct reader *r)
{
	unsigned char c = *r->p++;
	unsigned n = c >= 0xf0 && c < 0xf5 ? 3 : c >= 0xe0 && c < 0xf0 ? 2 :
		     c >= 0xc2 && c < 0xe0 ? 1 : 0;
	static const uint32_t least[] = { 0, 0x80, 0x800, 0x10000 };
	const unsigned char *back = r->p;
	uint32_t v = c & (0x3fU >> n);

	for (unsigned i = 0; i < n; i++) {
		if (r->p == r->end || (*r->p & 0xc0) != 0x80) {
			r->p = back;
			return BAD;
		}
		v = v << 6 | (*r->p++ & 0x3fU);
	}
	return !n || v < least[n] || v > 0x10ffff ? BAD : v;
}

/* At the opening quote. is "message" is told of short strings without
 * escapes, as keys are. */
static int read_string(struct reader *r, bool *is_message)
{
	const unsigned char *from = r->p;

	if (r->p == r->end || *r->p++ != '"')
		return -1;
	while (r->p < r->end && *r->p != '"') {
		if (*r->p < 0x20)
			return -1;
		if (*r->p >= 0x80) {
			take(r, read_utf8(r));
		} else if (*r->p != '\\') {
			take(r, *r->p++);
		} else {
			r->p++;
			if (read_escape(r))
				return -1;
		}
	}
	if (r->p == r->end)
		return -1;
	r->p++;
	if (is_message)
		*is_message = r->p - from == 9 &&
			      !memcmp(from, "\"message\"", 9);
	return 0;
}

static int read_number(struct reader *r)
{
	const unsigned char *from = r->p;

	while (r->p < r->end && *r->p && strchr("+-.0123456789eE", *r->p))
		r->p++;
	return r->p == from ? -1 : 0;
}

static int read_value(struct reader *r, unsigned depth, bool wanted);

/* Behind the opening brace or bracket. `wanted`: its "message" is ours. */
static int read_members(struct reader *r, unsigned depth, bool object,
			bool wanted)
{
	const unsigned char close = object ? '}' : ']';
	bool message = false;

	blanks(r);
	if (r->p < r->end && *r->p == close) {
		r->p++;
		return 0;
	}
	for (;;) {
		blanks(r);
		if (object) {
			if (read_string(r, &message))
				return -1;
			blanks(r);
			if (r->p == r->end || *r->p++ != ':')
				return -1;
		}
		if (read_value(r, depth + 1, wanted && message))
			return -1;
		blanks(r);
		if (r->p == r->end)
			return -1;
		if (*r->p == close) {
			r->p++;
			return 0;
		}
		if (*r->p++ != ',')
			return -1;
	}
}

static int read_value(struct reader *r, unsigned depth, bool wanted)
{
	int rc;

	blanks(r);
	if (r->p == r->end || depth > DEPTH_MAX)
		return -1;
	switch (*r->p) {
	case '{':
		r->p++;
		return read_members(r, depth, true, wanted && depth < 2);
	case '[':
		r->p++;
		return read_members(r, depth, false, false);
	case '"':
		r->taking = wanted && depth && !r->found;
		r->found |= r->taking;
		rc = read_string(r, NULL);
		r->taking = false;
		return rc;
	default:
		return literal(r, "true") || literal(r, "false") ||
		       literal(r, "null") ? 0 : read_number(r);
	}
}

int ddp_errfile_message(const char *json, size_t len, char *out, size_t size)
{
	struct reader r = { .p = (const unsigned char *)json, .out = out,
			    .size = size };

	r.end = r.p + len;
	out[0] = '\0';
	if (read_value(&r, 0, true))
		return -1;
	blanks(&r);
	if (r.p != r.end || !r.found)
		return -1;
	while (r.pos && out[r.pos - 1] == ' ')
		r.pos--;
	out[r.pos] = '\0';
	return r.pos ? 0 : -1;
}

void ddp_errfile_plain(const char *text, char *out, size_t size)
{
	struct reader r = { .p = (const unsigned char *)text, .out = out,
			    .size = size, .taking = true };
	size_t before;

	r.end = r.p + strlen(text);
	while (r.p < r.end && !r.full) {
		before = r.pos;
		take(&r, *r.p < 0x80 ? *r.p++ : read_utf8(&r));
		if (r.pos == before + 1 && out[before] == ' ' &&
		    (!before || out[before - 1] == ' '))
			r.pos = before;
	}
	while (r.pos && out[r.pos - 1] == ' ')
		r.pos--;
	out[r.pos] = '\0';
}

int ddp_errfile_read(int dir, const char *name, uid_t uid, char *out,
		     size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW |
			O_NONBLOCK | O_NOCTTY);
	char *text = NULL;
	struct stat st;
	ssize_t n = -1;

	out[0] = '\0';
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == uid &&
	    st.st_size > 0 && st.st_size <= (off_t)DDP_ERRFILE_MAX)
		text = malloc((size_t)st.st_size);
	while (text && (n = read(fd, text, (size_t)st.st_size)) < 0 &&
	       errno == EINTR)
		;
	close(fd);
	if (n > 0)
		n = ddp_errfile_message(text, (size_t)n, out, size);
	else
		n = -1;
	free(text);
	return (int)n;
}

/* More files than this are somebody's own, and stay with the directory. */
#define FILES_MAX 20000

/* The length of an agent's directory at the beginning of a path; 0: none. */
static size_t our_name(const char *path)
{
	static const char *const where[] = { "/dev/shm/ddp-agent-",
		"/tmp/ddp-agent-" };

	for (unsigned i = 0; i < 2; i++) {
		size_t n = strlen(where[i]);

		if (!strncmp(path, where[i], n) &&
		    strcspn(path + n, "/.") == 6)
			return n + 6;
	}
	return 0;
}

bool ddp_errfile_is_ours(const char *path)
{
	size_t n = our_name(path);

	return n && path[n] == '/' && !strchr(path + n + 1, '/');
}

void ddp_errfile_sweep(const char *dir)
{
	struct dirent *e;
	size_t n = our_name(dir);
	int fd = n && !dir[n] ? open(dir, O_RDONLY | O_DIRECTORY |
				     O_NOFOLLOW | O_CLOEXEC) : -1;
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (unsigned i = 0; i < FILES_MAX && (e = readdir(list)); i++)
		(void)unlinkat(fd, e->d_name, 0);
	closedir(list);
	(void)rmdir(dir);
}
