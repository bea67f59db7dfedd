/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A payload as a peer may send it. What is accepted must be written again to
 * the same bytes, within the bound that senders allocate.
 */
#include "core/ddp_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The tasks of a READY, for the way back. */
static struct ddp_wire_task *tasks_of(const struct ddp_msg *m)
{
	struct ddp_wire_task *t = calloc(m->u.ready.ntasks, sizeof(*t));

	for (uint32_t i = 0; t && i < m->u.ready.ntasks; i++)
		t[i] = ddp_wire_task(m, i);
	return t;
}

/* The same of a STATES. */
static struct ddp_wire_state *states_of(const struct ddp_msg *m)
{
	struct ddp_wire_state *s = calloc(m->u.states.n, sizeof(*s));

	for (uint32_t i = 0; s && i < m->u.states.n; i++)
		s[i] = ddp_wire_state(m, i);
	return s;
}

static void round_trip(struct ddp_msg *m, const uint8_t *data, size_t size)
{
	struct ddp_wire_task *tasks = NULL;
	struct ddp_wire_state *states = NULL;
	size_t bound = ddp_wire_bound(m), n;
	uint8_t *buf = malloc(bound);

	if (m->type == DDP_MSG_READY)
		m->u.ready.tasks = tasks = tasks_of(m);
	if (m->type == DDP_MSG_STATES)
		m->u.states.list = states = states_of(m);
	if (!buf || (m->type == DDP_MSG_READY && !tasks) ||
	    (m->type == DDP_MSG_STATES && !states))
		goto out;
	n = ddp_wire_encode(m, buf, bound);
	if (n != DDP_WIRE_HEAD + size || ddp_wire_length(buf) != size ||
	    memcmp(buf + DDP_WIRE_HEAD, data, size))
		abort();
out:
	free(tasks);
	free(states);
	free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_msg m;
	struct ddp_err err = { 0 };

	if (size > DDP_WIRE_MAX)
		return 0;
	if (!ddp_wire_decode(&m, data, size, &err))
		round_trip(&m, data, size);
	else if (!err.text[0])
		abort();
	return 0;
}
