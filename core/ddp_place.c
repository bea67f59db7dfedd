/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_place.h"

#include <stdio.h>
#include <string.h>

void ddp_place_format(const struct ddp_place_req *r, char *buf)
{
	snprintf(buf, DDP_PLACE_MAX,
		 "v=1;bind=%s;verify=%d;gpus=%s;cpu=%d;gpu=%d;explain=%d",
		 ddp_bind_policy_name(r->policy), r->verify,
		 ddp_gpus_name(r->gpus), r->cpu_said, (int)r->gpu_said,
		 r->explain);
}

static int read_bool(const char *text, bool *out)
{
	if (strcmp(text, "0") && strcmp(text, "1"))
		return -1;
	*out = text[0] == '1';
	return 0;
}

static int read_field(struct ddp_place_req *r, unsigned i, const char *text)
{
	struct ddp_options o;
	uint32_t said;

	switch (i) {
	case 0:
		return strcmp(text, "1") ? -1 : 0;
	case 1:
		return ddp_bind_policy_parse(text, &r->policy);
	case 2:
		return read_bool(text, &r->verify);
	case 3:
		ddp_options_init(&o);
		if (ddp_options_set(&o, DDP_OPT_GPUS, text, NULL))
			return -1;
		r->gpus = o.gpus;
		return 0;
	case 4:
		return read_bool(text, &r->cpu_said);
	case 5:
		if (ddp_text_u32(text, 0, DDP_GPU_SAID_NONE, &said))
			return -1;
		r->gpu_said = (enum ddp_gpu_said)said;
		return 0;
	default:
		return read_bool(text, &r->explain);
	}
}

/* The fields come in one order only: there is one writer. */
int ddp_place_parse(struct ddp_place_req *r, const char *text,
		    struct ddp_err *err)
{
	static const char *const keys[] = { "v=", "bind=", "verify=", "gpus=",
					    "cpu=", "gpu=", "explain=" };
	char copy[DDP_PLACE_MAX], *p = copy;

	memset(r, 0, sizeof(*r));
	if (ddp_text_copy(copy, sizeof(copy), text))
		return ddp_err_set(err, DDP_EINVAL, DDP_PLACE_ENV
				   " is too long");
	for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		size_t k = strlen(keys[i]);
		char *end = strchr(p, ';');

		if (end)
			*end = '\0';
		if (strncmp(p, keys[i], k) || read_field(r, i, p + k))
			return ddp_err_set(err, DDP_EINCONS, DDP_PLACE_ENV
				": field %s is not valid: srun and this node "
				"have different versions of spank_ddp.so",
				keys[i]);
		p = end ? end + 1 : p + strlen(p);
	}
	return *p ? ddp_err_set(err, DDP_EINCONS, DDP_PLACE_ENV ": more than "
				"expected") : 0;
}

bool ddp_place_is_strict(const struct ddp_place_req *r)
{
	return r->policy == DDP_BIND_RESTRICTED ||
		r->policy == DDP_BIND_SINGLE_NUMA;
}

void ddp_place_unjudged(const struct ddp_place_req *r, const char *why,
			char *buf, size_t size)
{
	snprintf(buf, size, "the policy %s cannot be judged: %s",
		 ddp_bind_policy_name(r->policy), why);
}

/* Any other byte than 0 and 1 is no bool to the compiler. */
static void check_bool(bool *b)
{
	unsigned char byte;

	memcpy(&byte, b, sizeof(byte));
	*b = byte != 0;
}

void ddp_ask_check(struct ddp_ask *a)
{
	a->list[sizeof(a->list) - 1] = '\0';
	a->cores[sizeof(a->cores) - 1] = '\0';
	check_bool(&a->req.verify);
	check_bool(&a->req.cpu_said);
	check_bool(&a->req.explain);
	check_bool(&a->list_set);
}

void ddp_placed_check(struct ddp_placed *p)
{
	check_bool(&p->set_cpus);
	check_bool(&p->set_nodes);
	check_bool(&p->set_list);
	check_bool(&p->pci_order);
	p->devices[sizeof(p->devices) - 1] = '\0';
	p->list[sizeof(p->list) - 1] = '\0';
	p->hint[sizeof(p->hint) - 1] = '\0';
	p->warning[sizeof(p->warning) - 1] = '\0';
	p->shown[sizeof(p->shown) - 1] = '\0';
	p->why[sizeof(p->why) - 1] = '\0';
	if (p->device >= DDP_BIND_GPUS || p->ndevices > DDP_BIND_GPUS)
		p->device = p->ndevices = 0;
}
