/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_wire.h"

#include <string.h>

/*
 * One description of the fields serves both directions: put and get below
 * walk a payload, and `fields` visits the members of a message in order.
 */
struct cursor {
	uint8_t *out;		/* writing; NULL while reading */
	const uint8_t *in;
	size_t pos, size;
	bool bad;
};

static bool room(struct cursor *c, size_t n)
{
	if (c->bad || n > c->size - c->pos)
		c->bad = true;
	return !c->bad;
}

static void bytes(struct cursor *c, void *data, size_t n)
{
	if (!room(c, n))
		return;
	if (c->out)
		memcpy(c->out + c->pos, data, n);
	else
		memcpy(data, c->in + c->pos, n);
	c->pos += n;
}

static void number(struct cursor *c, uint64_t *value, unsigned n)
{
	if (!room(c, n))
		return;
	if (!c->out)
		*value = 0;
	for (unsigned i = 0; i < n; i++)
		if (c->out)
			c->out[c->pos + i] =
				(uint8_t)(*value >> 8 * (n - 1 - i));
		else
			*value = *value << 8 | c->in[c->pos + i];
	c->pos += n;
}

static void u8(struct cursor *c, uint8_t *value)
{
	uint64_t v = *value;

	number(c, &v, 1);
	*value = (uint8_t)v;
}

static void u16(struct cursor *c, uint16_t *value)
{
	uint64_t v = *value;

	number(c, &v, 2);
	*value = (uint16_t)v;
}

static void u32(struct cursor *c, uint32_t *value)
{
	uint64_t v = *value;

	number(c, &v, 4);
	*value = (uint32_t)v;
}

/* A text of at most size - 1 bytes; a NUL inside is not valid. */
static void text(struct cursor *c, char *buf, size_t size)
{
	uint16_t n = 0;

	if (c->out)
		n = (uint16_t)strnlen(buf, size - 1);
	u16(c, &n);
	if (!c->out && (n >= size || n > c->size - c->pos))
		c->bad = true;
	bytes(c, buf, n);
	if (c->out)
		return;
	buf[c->bad ? 0 : n] = '\0';
	if (strlen(buf) != n)
		c->bad = true;
}

static void ready_fields(struct cursor *c, struct ddp_msg *m)
{
	u32(c, &m->u.ready.node);
	number(c, &m->u.ready.now_us, 8);
	u32(c, &m->u.ready.ntasks);
	if (!m->u.ready.ntasks || m->u.ready.ntasks > DDP_WIRE_TASKS ||
	    !room(c, (size_t)m->u.ready.ntasks * 12)) {
		c->bad = true;
		return;
	}
	if (!c->out) {
		m->u.ready.raw = c->in + c->pos;
		m->u.ready.tasks = NULL;
		c->pos += (size_t)m->u.ready.ntasks * 12;
		return;
	}
	for (uint32_t i = 0; i < m->u.ready.ntasks; i++) {
		struct ddp_wire_task t = m->u.ready.tasks[i];

		u32(c, &t.rank);
		u32(c, &t.local);
		u32(c, &t.pid);
	}
}

static void plan_fields(struct cursor *c, struct ddp_msg *m)
{
	u8(c, &m->u.plan.flags);
	u16(c, &m->u.plan.port);
	u32(c, &m->u.plan.len);
	if (!room(c, m->u.plan.len))
		return;
	if (c->out && m->u.plan.len)
		memcpy(c->out + c->pos, m->u.plan.text, m->u.plan.len);
	else if (!c->out)
		m->u.plan.text = (const char *)c->in + c->pos;
	c->pos += m->u.plan.len;
	if (!c->out && m->u.plan.len &&
	    memchr(m->u.plan.text, '\0', m->u.plan.len))
		c->bad = true;
}

static void hello_fields(struct cursor *c, struct ddp_msg *m)
{
	uint32_t magic = DDP_WIRE_MAGIC;

	u32(c, &magic);
	u8(c, &m->u.hello.version);
	if (magic != DDP_WIRE_MAGIC)
		c->bad = true;
	u32(c, &m->u.hello.job);
	u32(c, &m->u.hello.step);
	text(c, m->u.hello.name, sizeof(m->u.hello.name));
	bytes(c, m->u.hello.nonce, DDP_NONCE_BYTES);
}

static void exit_fields(struct cursor *c, struct ddp_msg *m)
{
	u32(c, &m->u.exit.rank);
	u32(c, &m->u.exit.pid);
	u32(c, &m->u.exit.status);
	number(c, &m->u.exit.when_us, 8);
	u8(c, &m->u.exit.flags);
	text(c, m->u.exit.text, sizeof(m->u.exit.text));
}

static void states_fields(struct cursor *c, struct ddp_msg *m)
{
	u32(c, &m->u.states.n);
	if (!m->u.states.n || m->u.states.n > DDP_WIRE_TASKS ||
	    !room(c, (size_t)m->u.states.n * 5)) {
		c->bad = true;
		return;
	}
	if (!c->out) {
		m->u.states.raw = c->in + c->pos;
		m->u.states.list = NULL;
		c->pos += (size_t)m->u.states.n * 5;
		return;
	}
	for (uint32_t i = 0; i < m->u.states.n; i++) {
		struct ddp_wire_state s = m->u.states.list[i];

		u32(c, &s.rank);
		u8(c, &s.state);
	}
}

/* What is about the life-cycle library. */
static void fields_life(struct cursor *c, struct ddp_msg *m)
{
	switch (m->type) {
	case DDP_MSG_STATES:
		states_fields(c, m);
		break;
	case DDP_MSG_BLAME:
		u32(c, &m->u.blame.rank);
		u32(c, &m->u.blame.pid);
		number(c, &m->u.blame.when_us, 8);
		u8(c, &m->u.blame.code);
		u8(c, &m->u.blame.flags);
		text(c, m->u.blame.text, sizeof(m->u.blame.text));
		break;
	case DDP_MSG_LEFT:
		u32(c, &m->u.left.rank);
		number(c, &m->u.left.count, 8);
		u8(c, &m->u.left.mpi);
		break;
	case DDP_MSG_WAITS:
		u32(c, &m->u.waits.rank);
		number(c, &m->u.waits.count, 8);
		break;
	case DDP_MSG_ORDER:
		u8(c, &m->u.order.code);
		u32(c, &m->u.order.wait_ms);
		break;
	case DDP_MSG_PUT:
	case DDP_MSG_GET:
	case DDP_MSG_VALUE:
		text(c, m->u.pair.name, sizeof(m->u.pair.name));
		if (m->type != DDP_MSG_GET)
			text(c, m->u.pair.value, sizeof(m->u.pair.value));
		break;
	default:
		c->bad = true;
	}
}

static void fields_late(struct cursor *c, struct ddp_msg *m)
{
	switch (m->type) {
	case DDP_MSG_EXIT:
		exit_fields(c, m);
		break;
	case DDP_MSG_DYING:
		u32(c, &m->u.dying.rank);
		number(c, &m->u.dying.when_us, 8);
		break;
	case DDP_MSG_NOTE:
		u8(c, &m->u.note.kind);
		text(c, m->u.note.text, sizeof(m->u.note.text));
		if (!m->u.note.kind || m->u.note.kind > DDP_NOTE_LAST)
			c->bad = true;
		break;
	case DDP_MSG_ABORT:
		u8(c, &m->u.abort.signal);
		u32(c, &m->u.abort.grace_ms);
		text(c, m->u.abort.text, sizeof(m->u.abort.text));
		break;
	case DDP_MSG_GONE:
		u32(c, &m->u.gone.stopped);
		u32(c, &m->u.gone.others);
		u32(c, &m->u.gone.left);
		break;
	case DDP_MSG_BYE:
		break;
	default:
		fields_life(c, m);
	}
}

static void fields(struct cursor *c, struct ddp_msg *m)
{
	switch (m->type) {
	case DDP_MSG_HELLO:
		hello_fields(c, m);
		break;
	case DDP_MSG_CHALLENGE:
		bytes(c, m->u.challenge.nonce, DDP_NONCE_BYTES);
		bytes(c, m->u.challenge.mac, DDP_MAC_BYTES);
		break;
	case DDP_MSG_AUTH:
		bytes(c, m->u.auth.mac, DDP_MAC_BYTES);
		break;
	case DDP_MSG_WELCOME:
		u32(c, &m->u.welcome.ping_ms);
		u32(c, &m->u.welcome.silence_ms);
		u8(c, &m->u.welcome.signal);
		u32(c, &m->u.welcome.grace_ms);
		break;
	case DDP_MSG_RESERVE:
		u16(c, &m->u.reserve.port);
		u16(c, &m->u.reserve.lo);
		u16(c, &m->u.reserve.hi);
		break;
	case DDP_MSG_PORT:
		u16(c, &m->u.port.port);
		text(c, m->u.port.text, sizeof(m->u.port.text));
		break;
	case DDP_MSG_READY:
		ready_fields(c, m);
		break;
	case DDP_MSG_PLAN:
		plan_fields(c, m);
		break;
	case DDP_MSG_PING:
	case DDP_MSG_PONG:
		number(c, &m->u.ping.now_us, 8);
		break;
	default:
		fields_late(c, m);
	}
}

size_t ddp_wire_bound(const struct ddp_msg *m)
{
	size_t n = DDP_WIRE_HEAD + 1 + sizeof(m->u);

	if (m->type == DDP_MSG_READY)
		n += (size_t)m->u.ready.ntasks * 12;
	else if (m->type == DDP_MSG_PLAN)
		n += m->u.plan.len;
	else if (m->type == DDP_MSG_STATES)
		n += (size_t)m->u.states.n * 5;
	return n;
}

size_t ddp_wire_encode(const struct ddp_msg *m, uint8_t *buf, size_t size)
{
	struct cursor c = { .out = buf, .size = size };
	struct ddp_msg copy = *m;
	uint64_t len = 0, type = m->type;

	number(&c, &len, DDP_WIRE_HEAD);
	number(&c, &type, 1);
	fields(&c, &copy);
	len = c.pos - DDP_WIRE_HEAD;
	if (c.bad || len > DDP_WIRE_MAX)
		return 0;
	size = c.pos;
	c.pos = 0;
	number(&c, &len, DDP_WIRE_HEAD);
	return size;
}

int ddp_wire_decode(struct ddp_msg *m, const uint8_t *payload, size_t len,
		    struct ddp_err *err)
{
	struct cursor c = { .in = payload, .size = len };
	uint64_t type = 0;

	memset(m, 0, sizeof(*m));
	number(&c, &type, 1);
	if (c.bad || !type || type > DDP_MSG_LAST)
		return ddp_err_set(err, DDP_EINVAL, "control message of an "
				   "unknown type");
	m->type = (enum ddp_msg_type)type;
	fields(&c, m);
	if (c.bad || c.pos != len)
		return ddp_err_set(err, DDP_EINVAL, "malformed %s message of "
				   "%zu bytes", ddp_wire_name(m->type), len);
	return 0;
}

struct ddp_wire_task ddp_wire_task(const struct ddp_msg *m, uint32_t i)
{
	struct cursor c = { .in = m->u.ready.raw + (size_t)i * 12,
			    .size = 12 };
	struct ddp_wire_task t = { 0, 0, 0 };

	u32(&c, &t.rank);
	u32(&c, &t.local);
	u32(&c, &t.pid);
	return t;
}

struct ddp_wire_state ddp_wire_state(const struct ddp_msg *m, uint32_t i)
{
	struct cursor c = { .in = m->u.states.raw + (size_t)i * 5, .size = 5 };
	struct ddp_wire_state s = { 0, 0 };

	u32(&c, &s.rank);
	u8(&c, &s.state);
	return s;
}

uint32_t ddp_wire_length(const uint8_t *head)
{
	struct cursor c = { .in = head, .size = DDP_WIRE_HEAD };
	uint32_t n = 0;

	u32(&c, &n);
	return n;
}

const char *ddp_wire_name(enum ddp_msg_type type)
{
	static const char *const names[] = { "?", "HELLO", "CHALLENGE", "AUTH",
		"WELCOME", "RESERVE", "PORT", "READY", "PLAN", "PING", "PONG",
		"EXIT", "DYING", "NOTE", "ABORT", "GONE", "BYE", "STATES",
		"BLAME", "LEFT", "WAITS", "ORDER", "PUT", "GET", "VALUE" };

	return type <= DDP_MSG_LAST ? names[type] : names[0];
}
