/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "launcher/net_auth.h"

#include <string.h>

#include <sodium.h>

_Static_assert(crypto_auth_hmacsha256_BYTES == DDP_MAC_BYTES, "MAC size");
_Static_assert(crypto_auth_hmacsha256_KEYBYTES == DDP_KEY_BYTES, "key size");

int net_auth_init(void)
{
	return sodium_init() < 0 ? -1 : 0;
}

void net_auth_nonce(uint8_t *buf, size_t n)
{
	randombytes_buf(buf, n);
}

void net_auth_mac(const uint8_t *key, enum net_role role,
		  const struct ddp_msg *hello, const uint8_t *nonce,
		  uint8_t *mac)
{
	crypto_auth_hmacsha256_state st;
	uint8_t frame[DDP_WIRE_HEAD + DDP_WIRE_FIRST_MAX];
	uint8_t who[5] = { 'd', 'd', 'p', DDP_WIRE_VERSION, (uint8_t)role };
	size_t n = ddp_wire_encode(hello, frame, sizeof(frame));

	/* The frame of HELLO says its own length, so fields cannot shift. */
	crypto_auth_hmacsha256_init(&st, key, DDP_KEY_BYTES);
	crypto_auth_hmacsha256_update(&st, who, sizeof(who));
	crypto_auth_hmacsha256_update(&st, frame, n);
	crypto_auth_hmacsha256_update(&st, nonce, DDP_NONCE_BYTES);
	crypto_auth_hmacsha256_final(&st, mac);
	sodium_memzero(&st, sizeof(st));
}

bool net_auth_equal(const uint8_t *a, const uint8_t *b)
{
	return !sodium_memcmp(a, b, DDP_MAC_BYTES);
}
