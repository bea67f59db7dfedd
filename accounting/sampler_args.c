/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/sampler.h"

#include "core/ddp_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_MIN 100
#define INTERVAL_MAX 60000
#define INTERVAL 1000
#define IDLE 1.0		/* % */
#define MINOR_MAX 1048575	/* of a device file in Linux */

typedef int parse_fn(struct sampler_args *args, const char *value);

static int parse_interval(struct sampler_args *args, const char *value)
{
	uint32_t ms;

	if (ddp_text_u32(value, INTERVAL_MIN, INTERVAL_MAX, &ms))
		return -1;
	args->req.interval_ms = ms;
	return 0;
}

/* Digits with at most one point between them: no sign, no exponent. */
static int parse_idle(struct sampler_args *args, const char *value)
{
	size_t len = strspn(value, "0123456789."), whole;

	whole = strspn(value, "0123456789");
	if (value[len] || !whole || len > 16 ||
	    (value[whole] == '.' && (!value[whole + 1] ||
				     strchr(value + whole + 1, '.'))))
		return -1;
	args->req.idle = strtod(value, NULL);
	return args->req.idle <= 100 ? 0 : -1;
}

static int parse_source(struct sampler_args *args, const char *value)
{
	if (!strcmp(value, "auto") || !strcmp(value, gpu_source_nvml.name))
		args->source = &gpu_source_nvml;
	else if (!strcmp(value, gpu_source_dcgm.name))
		args->source = &gpu_source_dcgm;
	else
		return -1;
	return 0;
}

static int parse_library(struct sampler_args *args, const char *value)
{
	return ddp_text_copy(args->req.library, sizeof(args->req.library),
			     value);
}

static int parse_want(struct sampler_args *args, const char *value)
{
	static const char *const names[GPU_METRICS] = {
		[GPU_SM] = "sm", [GPU_MEMBW] = "membw",
		[GPU_NVLINK] = "nvlink", [GPU_PCIE] = "pcie",
		[GPU_ENERGY] = "energy", [GPU_IDLE] = "idle",
	};
	size_t len;
	unsigned m;

	for (;; value += len + 1) {
		len = strcspn(value, ",");
		for (m = 0; m < GPU_METRICS; m++)
			if (len == strlen(names[m]) &&
			    !strncmp(value, names[m], len))
				break;
		if (m == GPU_METRICS || (args->req.want & 1u << m))
			return -1;
		args->req.want |= 1u << m;
		if (!value[len])
			return 0;
	}
}

/* Shown by ps alone. */
static int parse_label(struct sampler_args *args, const char *value)
{
	(void)args;
	return strlen(value) < 256 ? 0 : -1;
}

/* Exactly so many hexadecimal digits, or at least one if digits is 0. */
static int hex(const char **text, unsigned digits, char end, unsigned *value)
{
	size_t len = strspn(*text, "0123456789abcdefABCDEF");

	if ((digits ? len != digits : !len || len > 8) || (*text)[len] != end)
		return -1;
	*value = (unsigned)strtoul(*text, NULL, 16);
	*text += len + (end != '\0');
	return 0;
}

static int parse_pci(struct gpu_ask *ask, const char *text)
{
	unsigned function;

	ask->kind = GPU_ASK_PCI;
	return hex(&text, 0, ':', &ask->pci.domain) ||
	       hex(&text, 2, ':', &ask->pci.bus) ||
	       hex(&text, 2, '.', &ask->pci.device) ||
	       hex(&text, 1, '\0', &function) ? -1 : 0;
}

static int parse_uuid(struct gpu_ask *ask, const char *text)
{
	ask->kind = GPU_ASK_UUID;
	if (strncmp(text, "GPU-", 4) && strncmp(text, "MIG-", 4))
		return -1;
	if (text[strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz"
			"ABCDEFGHIJKLMNOPQRSTUVWXYZ-/")])
		return -1;
	return ddp_text_copy(ask->uuid, sizeof(ask->uuid), text);
}

static int parse_gpu(struct sampler_args *args, const char *value)
{
	struct gpu_request *req = &args->req;
	struct gpu_ask *ask = &req->ask[req->ngpus];
	uint32_t minor;
	unsigned k;

	if (req->ngpus == GPU_MAX ||
	    ddp_text_copy(ask->name, sizeof(ask->name), value))
		return -1;
	for (k = 0; k < req->ngpus; k++)
		if (!strcmp(req->ask[k].name, value))
			return -1;
	req->ngpus++;
	if (!strncmp(value, "pci=", 4))
		return parse_pci(ask, value + 4);
	if (!strncmp(value, "uuid=", 5))
		return parse_uuid(ask, value + 5);
	if (strncmp(value, "minor=", 6) ||
	    ddp_text_u32(value + 6, 0, MINOR_MAX, &minor))
		return -1;
	ask->kind = GPU_ASK_MINOR;
	ask->minor = minor;
	return 0;
}

static int parse_since(struct sampler_args *args, const char *value)
{
	char *end;
	long long ns;

	errno = 0;
	ns = strtoll(value, &end, 10);
	if (errno || *end || value[0] < '0' || value[0] > '9')
		return -1;
	args->req.since = ns;
	return 0;
}

static const struct {
	const char *name;
	parse_fn *parse;
	bool many;
} options[] = {
	{ "--gpu", parse_gpu, true },
	{ "--idle", parse_idle, false },
	{ "--interval", parse_interval, false },
	{ "--label", parse_label, false },
	{ "--library", parse_library, false },
	{ "--since", parse_since, false },
	{ "--source", parse_source, false },
	{ "--want", parse_want, false },
};

#define OPTIONS (sizeof(options) / sizeof(options[0]))

int sampler_args_parse(int argc, const char *const *argv,
		       struct sampler_args *args, struct ddp_err *err)
{
	unsigned k, seen = 0;
	char safe[80];
	int i;

	memset(args, 0, sizeof(*args));
	args->req.interval_ms = INTERVAL;
	args->req.idle = IDLE;
	args->req.owner = geteuid();
	args->source = &gpu_source_nvml;
	for (i = 1; i < argc; i += 2) {
		for (k = 0; k < OPTIONS; k++)
			if (!strcmp(argv[i], options[k].name))
				break;
		if (k == OPTIONS || i + 1 == argc ||
		    (!options[k].many && (seen & 1u << k)) ||
		    options[k].parse(args, argv[i + 1]))
			return ddp_err_set(err, DDP_EINVAL,
				"ddp-gpu-sampler: bad argument: %s",
				ddp_text_safe(k == OPTIONS || i + 1 == argc ?
					      argv[i] : argv[i + 1],
					      safe, sizeof(safe)));
		seen |= 1u << k;
	}
	if (!args->req.ngpus || !args->req.want)
		return ddp_err_set(err, DDP_EINVAL,
			"ddp-gpu-sampler: --want and at least one --gpu are needed");
	return 0;
}
