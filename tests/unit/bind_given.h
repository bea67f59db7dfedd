/* SPDX-License-Identifier: Apache-2.0 */
/* What is given to the ranks of a node, for the tests of such plans. */
#ifndef BIND_GIVEN_H
#define BIND_GIVEN_H

#include "core/ddp_bind.h"

#include <string.h>

#define RANKS 256
#define PUS 256

/* What is given, and room for it. */
static struct {
	struct ddp_bind_fixed gpus, pus, both;
	uint64_t set[RANKS];
	uint32_t list[RANKS][PUS];
	const uint32_t *at[RANKS];
	unsigned n[RANKS];
} given;

static void give_nothing(void)
{
	memset(&given, 0, sizeof(given));
	for (unsigned r = 0; r < RANKS; r++)
		given.at[r] = given.list[r];
	given.both.gpus = given.gpus.gpus = given.set;
	given.both.pus = given.pus.pus = given.at;
	given.both.npus = given.pus.npus = given.n;
}

/* PUs from to end - 1 for a rank. */
static void give_pus(unsigned rank, unsigned from, unsigned end)
{
	given.n[rank] = 0;
	for (; from < end; from++)
		given.list[rank][given.n[rank]++] = from;
}

#endif
