/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_text.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ddp_text_u32_n(const char *text, size_t len, uint32_t min, uint32_t max,
		   uint32_t *out)
{
	uint64_t value = 0;

	if (!text || !len || len > 10)
		return -1;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	if (value < min || value > max)
		return -1;
	*out = (uint32_t)value;
	return 0;
}

int ddp_text_u32(const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
	return text ? ddp_text_u32_n(text, strnlen(text, 11), min, max, out)
		    : -1;
}

const char *ddp_text_safe(const char *text, char *buf, size_t size)
{
	size_t i;

	if (!size)
		return "";
	if (!text)
		text = "";
	for (i = 0; i + 1 < size && text[i]; i++)
		buf[i] = text[i] < 32 || text[i] > 126 ? '?' : text[i];
	buf[i] = '\0';
	if (text[i] && size > 4)
		memcpy(buf + size - 4, "...", 4);
	return buf;
}

static bool is_alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	       (c >= 'A' && c <= 'Z');
}

bool ddp_text_is_ipv6(const char *text)
{
	struct in6_addr addr;

	return text && inet_pton(AF_INET6, text, &addr) == 1;
}

bool ddp_text_is_addr(const char *text)
{
	size_t len;

	if (!text)
		return false;
	if (ddp_text_is_ipv6(text))
		return true;
	len = strnlen(text, DDP_ADDR_MAX);
	if (!len || len >= DDP_ADDR_MAX || !is_alnum(text[0]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_alnum(text[i]) && !strchr("-._", text[i]))
			return false;
	return true;
}

bool ddp_text_is_loopback(const char *text)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, text, &v4) == 1)
		return (ntohl(v4.s_addr) >> 24) == 127;
	if (inet_pton(AF_INET6, text, &v6) != 1)
		return !strcmp(text, "localhost");
	if (IN6_IS_ADDR_V4MAPPED(&v6))
		return v6.s6_addr[12] == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6);
}

bool ddp_text_is_ifname(const char *text)
{
	size_t len;

	if (!text)
		return false;
	len = strnlen(text, DDP_IFNAME_MAX);
	if (!len || len >= DDP_IFNAME_MAX || !is_alnum(text[0]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_alnum(text[i]) && !strchr("-._@", text[i]))
			return false;
	return true;
}

int ddp_text_add(char *buf, size_t size, size_t *pos, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (*pos >= size)
		return -1;
	va_start(ap, fmt);
	n = vsnprintf(buf + *pos, size - *pos, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= size - *pos) {
		buf[*pos] = '\0';
		return -1;
	}
	*pos += (size_t)n;
	return 0;
}

int ddp_text_copy(char *buf, size_t size, const char *text)
{
	size_t len = strnlen(text, size);

	if (len >= size) {
		buf[0] = '\0';
		return -1;
	}
	memcpy(buf, text, len + 1);
	return 0;
}

int ddp_text_ms(const char *text, uint32_t *ms)
{
	size_t whole = strcspn(text, "."), n = 0;
	uint32_t s, frac = 0, scale = 1000;

	if (ddp_text_u32_n(text, whole, 0, UINT32_MAX / 1000 - 1, &s))
		return -1;
	if (text[whole]) {
		n = strlen(text + whole + 1);
		if (!n || n > 3 ||
		    ddp_text_u32_n(text + whole + 1, n, 0, 999, &frac))
			return -1;
		while (n--)
			scale /= 10;
	}
	*ms = s * 1000 + frac * scale;
	return 0;
}

static const struct {
	const char *name;
	int sig;
} signals[] = {
	{ "HUP", SIGHUP }, { "INT", SIGINT }, { "QUIT", SIGQUIT },
	{ "ILL", SIGILL }, { "TRAP", SIGTRAP }, { "ABRT", SIGABRT },
	{ "BUS", SIGBUS }, { "FPE", SIGFPE }, { "KILL", SIGKILL },
	{ "USR1", SIGUSR1 }, { "SEGV", SIGSEGV }, { "USR2", SIGUSR2 },
	{ "PIPE", SIGPIPE }, { "ALRM", SIGALRM }, { "TERM", SIGTERM },
	{ "XCPU", SIGXCPU }, { "XFSZ", SIGXFSZ }, { "VTALRM", SIGVTALRM },
	{ "PROF", SIGPROF }, { "POLL", SIGPOLL }, { "SYS", SIGSYS },
	{ "WINCH", SIGWINCH }, { "URG", SIGURG }, { "PWR", SIGPWR },
	{ "STKFLT", SIGSTKFLT }
};

int ddp_text_signal(const char *text)
{
	uint32_t n = 0;

	(void)ddp_text_u32(text, 1, 31, &n);
	if (!strncmp(text, "SIG", 3))
		text += 3;
	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (n ? (int)n == signals[i].sig :
		    !strcmp(text, signals[i].name))
			return signals[i].sig;
	return -1;
}

const char *ddp_text_signame(int sig, char *buf, size_t size)
{
	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (signals[i].sig == sig) {
			snprintf(buf, size, "SIG%s", signals[i].name);
			return buf;
		}
	snprintf(buf, size, "signal %d", sig);
	return buf;
}
