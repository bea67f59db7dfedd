/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/fakes/spank_stub.h"

#include <errno.h>
#include <slurm/slurm_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stub stub;

/* Slurm's own structure is opaque; the address of anything will do. */
spank_t stub_handle(void)
{
	return (spank_t)(void *)&stub;
}

void stub_reset(spank_context_t context)
{
	for (unsigned i = 0; i < STUB_ENV_MAX; i++)
		free(stub.env[i]);
	memset(&stub, 0, sizeof(stub));
	stub.context = context;
}

static char **env_slot(const char *name)
{
	size_t n = strlen(name);

	for (unsigned i = 0; i < STUB_ENV_MAX; i++)
		if (stub.env[i] && !strncmp(stub.env[i], name, n) &&
		    stub.env[i][n] == '=')
			return &stub.env[i];
	return NULL;
}

const char *stub_getenv(const char *name)
{
	char **slot = env_slot(name);

	return slot ? *slot + strlen(name) + 1 : NULL;
}

int stub_option(const char *name, const char *arg, int remote)
{
	for (unsigned i = 0; i < stub.noptions; i++)
		if (!strcmp(stub.option[i].name, name))
			return stub.option[i].cb(stub.option[i].val, arg,
						 remote);
	return -2;
}

spank_context_t spank_context(void)
{
	return stub.context;
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *opt)
{
	(void)sp;
	if (stub.noptions == 32)
		return ESPANK_NOSPACE;
	stub.option[stub.noptions++] = *opt;
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
	va_list ap;
	spank_err_t rc = ESPANK_SUCCESS;

	(void)sp;
	va_start(ap, item);
	switch (item) {
	case S_JOB_ID:
		*va_arg(ap, uint32_t *) = stub.job;
		break;
	case S_JOB_STEPID:
		*va_arg(ap, uint32_t *) = stub.step;
		break;
	case S_JOB_NNODES:
		*va_arg(ap, uint32_t *) = stub.nnodes;
		break;
	case S_JOB_NODEID:
		*va_arg(ap, uint32_t *) = stub.node;
		break;
	case S_JOB_TOTAL_TASK_COUNT:
		*va_arg(ap, uint32_t *) = stub.ntasks;
		break;
	case S_JOB_LOCAL_TASK_COUNT:
		*va_arg(ap, uint32_t *) = stub.local_tasks;
		break;
	case S_TASK_GLOBAL_ID:
		*va_arg(ap, uint32_t *) = stub.rank;
		break;
	case S_TASK_ID:
		*va_arg(ap, int *) = stub.local;
		break;
	case S_JOB_ARGV:
		*va_arg(ap, int *) = stub.argc;
		*va_arg(ap, char ***) = stub.argv;
		break;
	default:
		rc = ESPANK_BAD_ARG;
	}
	va_end(ap);
	return rc;
}

spank_err_t spank_getenv(spank_t sp, const char *var, char *buf, int len)
{
	const char *value = stub_getenv(var);

	(void)sp;
	if (!value)
		return ESPANK_ENV_NOEXIST;
	return snprintf(buf, (size_t)len, "%s", value) >= len ?
		ESPANK_NOSPACE : ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t sp, const char *var, const char *val,
			 int overwrite)
{
	char **slot = env_slot(var);

	(void)sp;
	if (slot && !overwrite)
		return ESPANK_ENV_EXISTS;
	for (unsigned i = 0; !slot && i < STUB_ENV_MAX; i++)
		if (!stub.env[i])
			slot = &stub.env[i];
	if (!slot)
		return ESPANK_NOSPACE;
	free(*slot);
	return asprintf(slot, "%s=%s", var, val) < 0 ? ESPANK_ERROR :
		ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *var)
{
	char **slot = env_slot(var);

	(void)sp;
	if (slot) {
		free(*slot);
		*slot = NULL;
	}
	return ESPANK_SUCCESS;
}

static void __attribute__((format(printf, 1, 0)))
record(const char *fmt, va_list ap)
{
	size_t n = strlen(stub.log);

	vsnprintf(stub.log + n, sizeof(stub.log) - n, fmt, ap);
	strncat(stub.log, "\n", sizeof(stub.log) - strlen(stub.log) - 1);
}

void slurm_spank_log(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	record(fmt, ap);
	va_end(ap);
}

void slurm_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	record(fmt, ap);
	va_end(ap);
}

slurm_step_layout_t *slurm_job_step_layout_get(slurm_step_id_t *id)
{
	stub.rpcs++;
	if (!stub.layout || id->job_id != stub.job ||
	    id->step_id != stub.step) {
		errno = ESLURM_INVALID_JOB_ID;
		return NULL;
	}
	return stub.layout;
}

void slurm_job_step_layout_free(slurm_step_layout_t *layout)
{
	(void)layout;	/* the test's own */
}

static node_info_t stub_node;
static node_info_msg_t stub_nodes;

int slurm_load_node_single(node_info_msg_t **resp, char *name, uint16_t flags)
{
	(void)flags;
	stub.rpcs++;
	snprintf(stub.asked, sizeof(stub.asked), "%s", name);
	if (!stub.node_addr) {
		errno = ESLURM_INVALID_NODE_NAME;
		return -1;
	}
	memset(&stub_node, 0, sizeof(stub_node));
	memset(&stub_nodes, 0, sizeof(stub_nodes));
	stub_node.node_addr = (char *)stub.node_addr;
	stub_node.node_hostname = (char *)stub.node_host;
	stub_nodes.record_count = 1;
	stub_nodes.node_array = &stub_node;
	*resp = &stub_nodes;
	return 0;
}

void slurm_free_node_info_msg(node_info_msg_t *msg)
{
	(void)msg;
}

/*
 * The configuration knows no node. Without these, libslurm would look for a
 * slurm.conf on the network, for a minute.
 */
char *slurm_conf_get_hostname(const char *name);
char *slurm_conf_get_nodeaddr(const char *host);
char *slurm_conf_get_aliases(const char *host);
int slurm_conf_get_addr(const char *name, slurm_addr_t *addr, uint16_t flags);

char *slurm_conf_get_hostname(const char *name)
{
	(void)name;
	return NULL;
}

char *slurm_conf_get_nodeaddr(const char *host)
{
	(void)host;
	return NULL;
}

char *slurm_conf_get_aliases(const char *host)
{
	(void)host;
	return NULL;
}

int slurm_conf_get_addr(const char *name, slurm_addr_t *addr, uint16_t flags)
{
	(void)name;
	(void)addr;
	(void)flags;
	return -1;
}
