/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof that both ends of a control connection know the step's key:
 * HMAC-SHA256 over who speaks, of which step and node, and both nonces, so
 * that no answer can be used twice, by the other side, or for another step.
 */
#ifndef NET_AUTH_H
#define NET_AUTH_H

#include "core/ddp_wire.h"

enum net_role { NET_CONTROLLER = 'c', NET_AGENT = 'a' };

/* Once a process. 0, or -1 if there are no random numbers. */
int net_auth_init(void);

/* Random bytes; never fails after net_auth_init(). */
void net_auth_nonce(uint8_t *buf, size_t n);

/*
 * The proof of `role`, into mac (DDP_MAC_BYTES). hello: what the agent said
 * first (its nonce in it); nonce: the controller's.
 */
void net_auth_mac(const uint8_t *key, enum net_role role,
		  const struct ddp_msg *hello, const uint8_t *nonce,
		  uint8_t *mac);

/* Compares in constant time. */
bool net_auth_equal(const uint8_t *a, const uint8_t *b);

#endif
