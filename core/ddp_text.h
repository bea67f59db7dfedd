/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing short texts that a user, the environment or another
 * node may have chosen. Every function has a bound and refuses what it does
 * not know.
 */
#ifndef DDP_TEXT_H
#define DDP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest host name or address, and longest interface name, with the NUL. */
#define DDP_ADDR_MAX 256
#define DDP_IFNAME_MAX 16

/*
 * Strict decimal number: digits only, no sign, no blanks, at most ten of
 * them, min <= value <= max. Returns 0 and fills *out, or -1.
 */
int ddp_text_u32(const char *text, uint32_t min, uint32_t max, uint32_t *out);

/* The same for exactly the first len bytes of text. */
int ddp_text_u32_n(const char *text, size_t len, uint32_t min, uint32_t max,
		   uint32_t *out);

/*
 * A printable copy of text for a message: control bytes and bytes above 126
 * become '?', and what does not fit ends in "...". Returns buf.
 */
const char *ddp_text_safe(const char *text, char *buf, size_t size);

/* A host name (RFC 952 letters, digits, '-', '.', and '_'), an IPv4 or IPv6
 * address without scope. Not longer than DDP_ADDR_MAX - 1 bytes. */
bool ddp_text_is_addr(const char *text);

/* True for a numeric IPv6 address: it needs brackets before ":port". */
bool ddp_text_is_ipv6(const char *text);

/* A numeric address of the loopback network, or the name "localhost". */
bool ddp_text_is_loopback(const char *text);

/* The name of one network interface as Linux allows it, less the characters
 * that NCCL gives a meaning to ('^', '=', ',' and ':'). */
bool ddp_text_is_ifname(const char *text);

/*
 * Seconds with at most three decimals ("5", "0.5") in milliseconds, up to
 * about 49 days. Returns 0, or -1.
 */
int ddp_text_ms(const char *text, uint32_t *ms);

/*
 * A signal that can be sent to end a program, by name ("TERM", "SIGTERM") or
 * by number 1…31; -1 for others, and for STOP, TSTP, TTIN, TTOU, CONT and
 * CHLD, which end nothing.
 */
int ddp_text_signal(const char *text);

/* "SIGTERM", or "signal 40". Into buf (24 bytes suffice); returns buf. */
const char *ddp_text_signame(int sig, char *buf, size_t size);

/*
 * Append formatted text at *pos of buf. Returns 0, or -1 and an unchanged
 * *pos when it does not fit whole.
 */
int ddp_text_add(char *buf, size_t size, size_t *pos, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * Copy text whole, or return -1 and leave an empty string: a cut name would
 * be another name.
 */
int ddp_text_copy(char *buf, size_t size, const char *text);

#endif
