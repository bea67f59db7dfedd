/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that leaves with exit(0) is no failure in itself: the others may have
 * work of their own left. It is one when they wait for it. That shows in the
 * number of collectives called on the first communicator of the whole world:
 * whoever has called more than the one that has left waits for ever. So the
 * one that leaves says its number, the agents tell the others, and they
 * answer if theirs is higher, now or later. Nobody is asked while all is well.
 *
 * With MPI it is simpler: who has not called MPI_Finalize() breaks its rules.
 */
#include "config.h"

#include "launcher/life.h"

#include <stdlib.h>

/* The lowest number of one that has left. */
static _Atomic uint64_t left_at;
static _Atomic bool world_known, told;

void ddp_life_world_begun(void *comm, int n)
{
	if (!ddp_life_on() || n < 2 || (unsigned)n != ddp_life.world_size ||
	    atomic_exchange(&world_known, true))
		return;
	atomic_store(&ddp_life.world, comm);
}

void ddp_life_world_ended(void *comm)
{
	if (comm)
		(void)atomic_compare_exchange_strong(&ddp_life.world, &comm,
						     NULL);
}

void ddp_life_leave(void)
{
	bool mpi = ddp_life_mpi_active();

	if (mpi || atomic_load(&ddp_life.world))
		ddp_life_link_left(atomic_load(&ddp_life.calls), mpi);
}

void ddp_life_left(uint64_t count)
{
	uint64_t had = atomic_load(&left_at);

	while (count < had &&
	       !atomic_compare_exchange_weak(&left_at, &had, count))
		;
	/* First the flag: a call that does not see it is seen below. */
	atomic_fetch_or(&ddp_life.hot, DDP_HOT_LEFT);
	ddp_life_left_look();
}

void ddp_life_left_look(void)
{
	uint64_t calls = atomic_load(&ddp_life.calls);

	if (!atomic_load(&ddp_life.world) || calls <= atomic_load(&left_at) ||
	    atomic_exchange(&told, true))
		return;
	atomic_fetch_and(&ddp_life.hot, ~(unsigned)DDP_HOT_LEFT);
	ddp_life_note("waits for a rank that has left");
	ddp_life_link_waits(atomic_load(&left_at));
}

void ddp_life_left_forget(void)
{
	const char *text = getenv("WORLD_SIZE");
	char *end = NULL;
	long n = text ? strtol(text, &end, 10) : 0;

	ddp_life.world_size = end && !*end && n > 1 && n < INT32_MAX ?
		(unsigned)n : 0;
	atomic_store(&ddp_life.world, NULL);
	atomic_store(&ddp_life.calls, 0);
	atomic_store(&left_at, UINT64_MAX);
	atomic_store(&world_known, false);
	atomic_store(&told, false);
}
