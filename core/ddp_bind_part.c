/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The third stage over all parts. Many splits differ in one part only, and
 * the two sockets of a node are alike, so what a part takes is remembered by
 * what it looks like.
 */
#include "config.h"

#include "core/ddp_bind_int.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 128
#define LOOKS 64	/* words; larger parts are not remembered */

struct part {
	unsigned words, u;
	bool exact;		/* else u is a lower bound */
	uint32_t looks[LOOKS];
};

struct ddp_bind_parts {
	struct part slot[SLOTS];
	struct ddp_bind_block blocks[DDP_BIND_NUMA];
};

int ddp_bind_part_init(struct ddp_bind_prob *p)
{
	p->parts = calloc(1, sizeof(*p->parts));
	return p->parts && !ddp_bind_numa_init(p) ? 0 : -1;
}

static void add(struct part *p, uint32_t word)
{
	if (p->words < LOOKS)
		p->looks[p->words] = word;
	p->words++;
}

/* All that the answer depends on. */
static void describe(const struct ddp_bind_face *f, struct part *p)
{
	p->words = 0;
	add(p, f->nt << 16 | f->ncol);
	for (unsigned t = 0; t < f->nt; t++)
		add(p, (uint32_t)f->ranks[t] << 2 |
		    (uint32_t)(f->force[t] + 1));
	for (unsigned c = 0; c < f->ncol; c++) {
		const uint8_t *row = f->arc + (size_t)c * f->nt;

		add(p, f->supply[c]);
		add(p, f->dom[c]);
		for (unsigned t = 0; t < f->nt;) {
			uint32_t bits = 0;

			for (unsigned i = 0; i < 32 && t < f->nt; i++, t++)
				bits |= (uint32_t)row[t] << i;
			add(p, bits);
		}
	}
	add(p, f->disjoint);
	for (unsigned i = 0; i < f->ndom; i++) {
		add(p, (uint32_t)__builtin_popcountll(f->numa[i]));
		if (f->disjoint)
			continue;
		add(p, (uint32_t)f->numa[i]);
		add(p, (uint32_t)(f->numa[i] >> 32));
	}
}

static struct part *slot_of(struct ddp_bind_prob *p, const struct part *looks)
{
	uint64_t h = looks->words;

	for (unsigned i = 0; i < looks->words && i < LOOKS; i++)
		h = (h ^ looks->looks[i]) * 0x9e3779b97f4a7c15U;
	return &p->parts->slot[(h >> 40) % SLOTS];
}

static unsigned solve_part(struct ddp_bind_face *f, unsigned cap)
{
	struct part looks, *slot;
	unsigned nblocks, u;
	bool proven = true;

	describe(f, &looks);
	slot = slot_of(f->p, &looks);
	if (looks.words <= LOOKS && slot->words == looks.words &&
	    !memcmp(slot->looks, looks.looks, looks.words * sizeof(uint32_t))) {
		if (slot->exact || slot->u > cap)
			return slot->u <= cap ? slot->u : cap + 1;
	}
	u = ddp_bind_numa(f, cap, f->p->parts->blocks, &nblocks, &proven);
	if (proven && looks.words <= LOOKS) {
		*slot = looks;
		slot->u = u;
		slot->exact = u <= cap;
	}
	return u;
}

unsigned ddp_bind_numa_all(struct ddp_bind_faces *fs, unsigned cap)
{
	unsigned least = 0, sum = 0;

	for (unsigned i = 0; i < fs->nparts; i++) {
		ddp_bind_face_take(fs, i);
		least += ddp_bind_face_floor(&fs->face);
	}
	for (unsigned i = 0; i < fs->nparts && sum + least <= cap; i++) {
		ddp_bind_face_take(fs, i);
		least -= ddp_bind_face_floor(&fs->face);
		sum += solve_part(&fs->face, cap - sum - least);
	}
	if (fs->p->work < 0 && cap < UINT32_MAX - 1)
		return cap + 1;
	return sum + least <= cap ? sum + least : cap + 1;
}
