/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_port.h"

#include <stdbool.h>
#include <string.h>

void ddp_portset_init(struct ddp_portset *set, uint32_t lo, uint32_t hi)
{
	memset(set, 0, sizeof(*set));
	if (lo > hi)
		return;
	set->n = 1;
	set->range[0].lo = lo;
	set->range[0].hi = hi;
	set->total = hi - lo + 1;
}

static void range_add(struct ddp_portset *set, uint32_t lo, uint32_t hi)
{
	if (lo > hi || set->n == DDP_PORT_RANGES)
		return;
	set->range[set->n].lo = lo;
	set->range[set->n].hi = hi;
	set->n++;
	set->total += hi - lo + 1;
}

void ddp_portset_exclude(struct ddp_portset *set, uint32_t lo, uint32_t hi)
{
	struct ddp_portset out;

	if (lo > hi)
		return;
	memset(&out, 0, sizeof(out));
	for (unsigned i = 0; i < set->n; i++) {
		uint32_t a = set->range[i].lo, b = set->range[i].hi;

		if (hi < a || lo > b) {
			range_add(&out, a, b);
			continue;
		}
		if (lo > a)
			range_add(&out, a, lo - 1);
		if (hi < b)
			range_add(&out, hi + 1, b);
	}
	*set = out;
}

static uint16_t port_nth(const struct ddp_portset *set, uint32_t n)
{
	for (unsigned i = 0; i < set->n; i++) {
		uint32_t size = set->range[i].hi - set->range[i].lo + 1;

		if (n < size)
			return (uint16_t)(set->range[i].lo + n);
		n -= size;
	}
	return 0;
}

static bool is_prime(uint32_t n)
{
	for (uint32_t d = 2; d * d <= n; d++)
		if (n % d == 0)
			return false;
	return n > 1;
}

/* The stride next to ratio·m that is not 0 (mod m); ratio in 2^-32. */
static uint64_t stride(uint32_t m, uint32_t ratio)
{
	uint64_t s = ((uint64_t)m * ratio) >> 32;

	return s ? s : 1;
}

uint16_t ddp_port_candidate(const struct ddp_portset *set, uint32_t job,
			    uint32_t step, uint32_t restart,
			    uint32_t attempt)
{
	uint32_t m = set->total;
	uint64_t x;

	if (!m)
		return 0;
	while (m > 2 && !is_prime(m))
		m--;
	x = stride(m, 3518319154U) * (job % m);	/* 0.8191725134 */
	x += stride(m, 2882110344U) * (step % m);	/* 0.6710436067 */
	x += stride(m, 2360945575U) * (restart % m);	/* 0.5497004779 */
	x += stride(m, 2654435769U) * (attempt % m);	/* 0.6180339887 */
	return port_nth(set, (uint32_t)(x % m));
}
