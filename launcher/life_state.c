/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "launcher/life.h"

/*
 * Once running, a further communicator changes nothing: that a rank is still
 * starting is of interest before. After a stop there may be a new start (a
 * program that makes its communicators anew); after an abort there is none.
 */
enum ddp_life_state ddp_life_next(enum ddp_life_state state,
				  enum ddp_life_event event)
{
	if (state == DDP_LIFE_GONE || event == DDP_LIFE_END)
		return DDP_LIFE_GONE;
	if (state == DDP_LIFE_ABORTING || event == DDP_LIFE_ABORT)
		return DDP_LIFE_ABORTING;
	switch (event) {
	case DDP_LIFE_START:
		return state == DDP_LIFE_RUNNING ? state : DDP_LIFE_STARTING;
	case DDP_LIFE_BEGUN:
		return state == DDP_LIFE_STARTING ? DDP_LIFE_READY : state;
	case DDP_LIFE_RUN:
		return state == DDP_LIFE_STOPPING ? state : DDP_LIFE_RUNNING;
	case DDP_LIFE_STOP:
		return DDP_LIFE_STOPPING;
	default:
		return state;
	}
}

bool ddp_life_take(struct ddp_life_machine *m, enum ddp_life_event event)
{
	int old = atomic_load(&m->state), new;

	do {
		new = (int)ddp_life_next((enum ddp_life_state)old, event);
		if (new == old)
			return false;
	} while (!atomic_compare_exchange_weak(&m->state, &old, new));
	return true;
}

bool ddp_life_blame(struct ddp_life_machine *m,
		    const struct ddp_life_cause *cause)
{
	int none = 0;

	if (atomic_load(&m->state) == DDP_LIFE_GONE ||
	    !atomic_compare_exchange_strong(&m->cause_set, &none, 1))
		return false;
	m->cause = *cause;
	atomic_store(&m->cause_set, 2);
	(void)ddp_life_take(m, DDP_LIFE_ABORT);
	return true;
}

const struct ddp_life_cause *ddp_life_blamed(struct ddp_life_machine *m)
{
	return atomic_load(&m->cause_set) == 2 ? &m->cause : NULL;
}
