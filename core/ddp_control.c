/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_control.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>

/* Ten minutes: --ddp-start-timeout allows no more. */
#define START_MAX_MS 600000

void ddp_hex(const uint8_t *data, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		*out++ = digits[data[i] >> 4];
		*out++ = digits[data[i] & 15];
	}
	*out = '\0';
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int ddp_unhex(const char *text, size_t len, uint8_t *out, size_t n)
{
	if (len != 2 * n)
		return -1;
	for (size_t i = 0; i < n; i++) {
		int hi = digit(text[2 * i]), lo = digit(text[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -1;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return 0;
}

int ddp_control_format(const struct ddp_control *c, char *buf,
		       struct ddp_err *err)
{
	char key[2 * DDP_KEY_BYTES + 1];
	size_t pos = 0;
	int rc;

	ddp_hex(c->key, sizeof(c->key), key);
	rc = ddp_text_add(buf, DDP_CONTROL_MAX, &pos,
			  "v=1;port=%u;need=%d;start=%" PRIu32 ";addrs=",
			  c->port, c->required, c->start_ms);
	for (unsigned i = 0; !rc && i < c->naddrs; i++)
		rc = ddp_text_add(buf, DDP_CONTROL_MAX, &pos, "%s%s",
				  i ? "," : "", c->addr[i]);
	if (!rc)
		rc = ddp_text_add(buf, DDP_CONTROL_MAX, &pos, ";key=%s", key);
	return rc ? ddp_err_set(err, DDP_ENOSPC, "control text: too long") : 0;
}

static bool is_numeric(const char *addr)
{
	uint8_t ip[16];

	return inet_pton(AF_INET, addr, ip) == 1 ||
	       inet_pton(AF_INET6, addr, ip) == 1;
}

static int read_addrs(struct ddp_control *c, const char *p, size_t len)
{
	while (len) {
		size_t n = strcspn(p, ",;");
		char *to = c->addr[c->naddrs];

		if (!n || n >= DDP_CONTROL_ADDR ||
		    c->naddrs == DDP_CONTROL_ADDRS)
			return -1;
		memcpy(to, p, n);
		to[n] = '\0';
		if (!is_numeric(to))
			return -1;
		c->naddrs++;
		if (n == len)
			return 0;
		p += n + 1;
		len -= n + 1;
	}
	return -1;
}

static int read_field(struct ddp_control *c, unsigned i, const char *p,
		      size_t len)
{
	uint32_t v;

	switch (i) {
	case 0:
		return ddp_text_u32_n(p, len, 1, 1, &v);
	case 1:
		if (ddp_text_u32_n(p, len, 1, UINT16_MAX, &v))
			return -1;
		c->port = (uint16_t)v;
		return 0;
	case 2:
		if (ddp_text_u32_n(p, len, 0, 1, &v))
			return -1;
		c->required = v;
		return 0;
	case 3:
		return ddp_text_u32_n(p, len, 1, START_MAX_MS, &c->start_ms);
	case 4:
		return read_addrs(c, p, len);
	default:
		return ddp_unhex(p, len, c->key, sizeof(c->key));
	}
}

/* The fields come in one order only: there is one writer. */
int ddp_control_parse(struct ddp_control *c, const char *text,
		      struct ddp_err *err)
{
	static const char *const keys[] = { "v=", "port=", "need=", "start=",
					    "addrs=", "key=" };
	const char *p = text;

	memset(c, 0, sizeof(*c));
	for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		size_t k = strlen(keys[i]), len;

		if (strncmp(p, keys[i], k))
			return ddp_err_set(err, DDP_EINVAL, DDP_CONTROL_ENV
					   ": field %s missing", keys[i]);
		p += k;
		len = strcspn(p, ";");
		if (read_field(c, i, p, len))
			return ddp_err_set(err, DDP_EINVAL, DDP_CONTROL_ENV
					   ": field %s is not valid", keys[i]);
		p += len;
		if (*p == ';')
			p++;
	}
	return *p || p[-1] == ';' ? ddp_err_set(err, DDP_EINVAL,
			DDP_CONTROL_ENV ": more than expected") : 0;
}
