/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorFlow wants to know every rank's address in every rank, so this one
 * variable grows with the step: it is made only when it was asked for.
 */
#include "config.h"

#include "core/ddp_env.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One environment string may have 128 KiB on Linux, name included. */
#define TF_CONFIG_MAX (120U * 1024)

uint16_t ddp_env_tf_port(const struct ddp_plan *plan, uint32_t local)
{
	const char *p = plan->tf_ports;
	uint32_t port;

	while (p && local--) {
		p = strchr(p, ',');
		if (p)
			p++;
	}
	if (!p || ddp_text_u32_n(p, strcspn(p, ","), 1024, UINT16_MAX, &port))
		return 0;
	return (uint16_t)port;
}

/* addr[i] points at the i-th of the comma separated addresses. */
static int split_addrs(const struct ddp_plan *plan, char *copy,
		       const char **addr)
{
	uint32_t n = 0;
	char *save = NULL;

	for (char *p = strtok_r(copy, ",", &save); p;
	     p = strtok_r(NULL, ",", &save)) {
		if (n == plan->layout.nnodes || !ddp_text_is_addr(p))
			return -1;
		addr[n++] = p;
	}
	return n == plan->layout.nnodes ? 0 : -1;
}

struct tf {
	const struct ddp_plan *plan;
	const char **addr;
	uint32_t *used;		/* workers so far on each node */
	uint32_t ranks;
	char *out;
	size_t pos;
};

static int add_worker(struct tf *t, uint32_t node)
{
	uint16_t port;
	const char *addr;

	if (node >= t->plan->layout.nnodes ||
	    t->used[node] >= t->plan->layout.tasks[node])
		return -1;
	addr = t->addr[node];
	port = ddp_env_tf_port(t->plan, t->used[node]++);
	if (!port)
		return -1;
	return ddp_text_add(t->out, TF_CONFIG_MAX, &t->pos,
			    ddp_text_is_ipv6(addr) ? "%s\"[%s]:%u\"" :
			    "%s\"%s:%u\"", t->ranks++ ? "," : "", addr, port);
}

/* The runs "NODE" or "NODE(xCOUNT)" of tf_map, in rank order. */
static int add_workers(struct tf *t)
{
	const char *p = t->plan->tf_map;

	for (;;) {
		size_t len = strcspn(p, ","), n = strcspn(p, "(,");
		uint32_t node, count = 1;

		if (ddp_text_u32_n(p, n, 0, DDP_NODES_MAX, &node))
			return -1;
		if (n < len && (len - n < 4 || p[n + 1] != 'x' ||
				p[len - 1] != ')' ||
				ddp_text_u32_n(p + n + 2, len - n - 3, 1,
					       DDP_TASKS_MAX, &count)))
			return -1;
		while (count--)
			if (add_worker(t, node))
				return -1;
		if (!p[len])
			return t->ranks == t->plan->layout.ntasks ? 0 : -1;
		p += len + 1;
	}
}

static int tf_write(struct tf *t, uint32_t rank)
{
	if (ddp_text_add(t->out, TF_CONFIG_MAX, &t->pos,
			 "{\"cluster\":{\"worker\":[") || add_workers(t))
		return -1;
	return ddp_text_add(t->out, TF_CONFIG_MAX, &t->pos,
			    "]},\"task\":{\"type\":\"worker\",\"index\":%"
			    PRIu32 "}}", rank);
}

char *ddp_env_tf(const struct ddp_plan *plan, const struct ddp_rank *r,
		 struct ddp_err *err)
{
	struct tf t = { .plan = plan };
	char *copy = plan->tf_addrs ? strdup(plan->tf_addrs) : NULL;
	int rc = -1;

	t.addr = calloc(plan->layout.nnodes, sizeof(*t.addr));
	t.used = calloc(plan->layout.nnodes, sizeof(*t.used));
	t.out = malloc(TF_CONFIG_MAX);
	if (copy && plan->tf_map && plan->tf_ports && t.addr && t.used &&
	    t.out && !split_addrs(plan, copy, t.addr))
		rc = tf_write(&t, r->rank);
	if (rc)
		ddp_err_set(err, DDP_EINCONS, "TF_CONFIG of %u ranks cannot "
			    "be written: the plan has no or wrong addresses, "
			    "or it would exceed %u bytes; leave tf out of "
			    "--ddp-frameworks", plan->layout.ntasks,
			    TF_CONFIG_MAX);
	free(copy);
	free(t.addr);
	free(t.used);
	if (rc) {
		free(t.out);
		t.out = NULL;
	}
	return t.out;
}
