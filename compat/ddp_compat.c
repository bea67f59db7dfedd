/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "compat/ddp_compat.h"
#include "core/ddp_text.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

/* A pointer in every release, though hostlist_t itself became a structure. */
typedef __typeof__(slurm_hostlist_create(NULL)) ddp_hostlist;

/*
 * The configuration as srun, slurmstepd or slurm_init() have read it. The
 * structure is public, the variable is exported without a header; weak, so
 * that a Slurm that hides it costs a default instead of the plugin. SPANK
 * loads a plugin only into the release it was built for, and the library's
 * soname changes with each, so the layouts agree.
 */
extern slurm_conf_t slurm_conf __attribute__((weak));
extern char *slurm_conf_get_nodeaddr(const char *) __attribute__((weak));
extern char *slurm_conf_get_hostname(const char *) __attribute__((weak));
extern char *slurm_conf_get_aliases(const char *) __attribute__((weak));
extern int slurm_conf_get_addr(const char *, slurm_addr_t *, uint16_t)
	__attribute__((weak));
extern void slurm_xfree(void **) __attribute__((weak));

int ddp_compat_node_name(const char *nodes, uint32_t index, char *name,
			 size_t size, struct ddp_err *err)
{
	char shown[128];
	ddp_hostlist list = slurm_hostlist_create(nodes);
	char *host = NULL;
	int rc = -1;

	for (uint32_t i = 0; list && i <= index; i++) {
		free(host);
		host = slurm_hostlist_shift(list);
		if (!host)
			break;
	}
	/* libslurm takes some broken lists ("n[1") and answers "n]". */
	if (host && ddp_text_is_addr(host))
		rc = ddp_text_copy(name, size, host);
	if (rc)
		ddp_err_set(err, DDP_EINVAL, "node list \"%s\" has no node "
			    "number %u", ddp_text_safe(nodes, shown,
						       sizeof(shown)), index);
	free(host);
	if (list)
		slurm_hostlist_destroy(list);
	return rc;
}

char *ddp_compat_node_names(const char *nodes, struct ddp_err *err)
{
	ddp_hostlist list = slurm_hostlist_create(nodes);
	size_t size = 0, used = 0;
	char *all = NULL, *host, *more;
	bool ok = list;

	while (ok && (host = slurm_hostlist_shift(list))) {
		size_t n = strlen(host);

		ok = ddp_text_is_addr(host);
		if (ok && used + n + 2 > size) {
			size = 2 * size + n + 64;
			more = realloc(all, size);
			ok = more;
			all = more ? more : all;
		}
		if (ok)
			used += (size_t)sprintf(all + used, "%s%s",
						used ? "," : "", host);
		free(host);
	}
	if (list)
		slurm_hostlist_destroy(list);
	if (ok && all)
		return all;
	free(all);
	ddp_err_set(err, DDP_EINVAL, "the step's node list is not valid");
	return NULL;
}

/* addr and host into *node; both are data of slurmctld or slurm.conf. */
static int node_fill(struct ddp_compat_node *node, const char *name,
		     const char *addr, const char *host, struct ddp_err *err)
{
	if (!addr || ddp_text_copy(node->addr, sizeof(node->addr), addr))
		return ddp_err_set(err, DDP_EINCONS, "the record of node %s "
				   "has no address", name);
	if (!host || ddp_text_copy(node->host, sizeof(node->host), host))
		node->host[0] = '\0';
	return 0;
}

int ddp_compat_node(const char *name, struct ddp_compat_node *node,
		    struct ddp_err *err)
{
	node_info_msg_t *msg = NULL;
	const node_info_t *n;
	int rc;

	if (slurm_load_node_single(&msg, (char *)name, SHOW_ALL))
		return ddp_err_set(err, DDP_ESYS, "slurmctld gave no record of "
				   "node %s: %s", name, slurm_strerror(errno));
	n = msg->record_count == 1 ? msg->node_array : NULL;
	rc = node_fill(node, name, n ? n->node_addr : NULL,
		       n ? n->node_hostname : NULL, err);
	slurm_free_node_info_msg(msg);
	return rc;
}

/*
 * The text of NodeAddr can be asked for by NodeHostname only. Where a host
 * has several nodes (a test cluster) that would be any of them: then the
 * numeric address of this very node has to do.
 */
static int conf_addr(const char *name, char *host, char *addr, size_t size)
{
	char *alias = slurm_conf_get_aliases(host), *text = NULL;
	slurm_addr_t ss;
	int rc = -1;

	if (alias && !strcmp(alias, name))
		text = slurm_conf_get_nodeaddr(host);
	if (text)
		rc = ddp_text_copy(addr, size, text);
	else if (!slurm_conf_get_addr(name, &ss, 0))
		rc = getnameinfo((struct sockaddr *)&ss, sizeof(ss), addr,
				 (socklen_t)size, NULL, 0, NI_NUMERICHOST);
	if (text)
		slurm_xfree((void **)&text);
	if (alias)
		slurm_xfree((void **)&alias);
	return rc;
}

int ddp_compat_node_conf(const char *name, struct ddp_compat_node *node,
			 struct ddp_err *err)
{
	char addr[sizeof(node->addr)], *host = NULL;
	int rc;

	if (slurm_conf_get_nodeaddr && slurm_conf_get_hostname &&
	    slurm_conf_get_aliases && slurm_conf_get_addr && slurm_xfree)
		host = slurm_conf_get_hostname(name);
	rc = node_fill(node, name, host && !conf_addr(name, host, addr,
		       sizeof(addr)) ? addr : NULL, host, err);
	if (host)
		slurm_xfree((void **)&host);
	return rc;
}

int ddp_compat_master_addr(struct ddp_plan *plan, const char *nodes, bool rpc,
			   struct ddp_err *err)
{
	bool given = plan->given & (1U << DDP_OPT_MASTER_ADDR);
	struct ddp_compat_node node;
	char name[256], shown[64];

	/* The nodes refuse a loopback address unless all are rank 0's host. */
	if (given && (plan->layout.nnodes < 2 ||
		      !ddp_text_is_loopback(plan->addr)))
		return 0;
	if (ddp_compat_node_name(nodes, plan->layout.first, name, sizeof(name),
				 err))
		return -1;
	/* slurmctld may keep nodes from users (PrivateData=nodes), and the
	 * configuration may not know a dynamic one: each stands in. */
	if (rpc ? ddp_compat_node(name, &node, err) &&
		  ddp_compat_node_conf(name, &node, NULL) :
		  ddp_compat_node_conf(name, &node, NULL) &&
		  ddp_compat_node(name, &node, err))
		return -1;
	if (!given && !ddp_text_is_addr(node.addr))
		return ddp_err_set(err, DDP_EINVAL, "NodeAddr \"%s\" of node "
			"%s is no address; use --ddp-master-addr=ADDR",
			ddp_text_safe(node.addr, shown, sizeof(shown)), name);
	if (!ddp_text_is_addr(node.host) ||
	    ddp_text_copy(plan->host, sizeof(plan->host), node.host))
		plan->host[0] = '\0';
	if (given)
		return 0;
	return ddp_text_copy(plan->addr, sizeof(plan->addr), node.addr);
}

int ddp_compat_controller(char *addr, size_t size)
{
	if (!&slurm_conf || !slurm_conf.control_cnt ||
	    !slurm_conf.control_addr || !slurm_conf.control_addr[0])
		return -1;
	return ddp_text_copy(addr, size, slurm_conf.control_addr[0]);
}

static const char *addr_of(const node_info_msg_t *msg, const char *name)
{
	for (uint32_t i = 0; i < msg->record_count; i++)
		if (msg->node_array[i].name &&
		    !strcmp(msg->node_array[i].name, name))
			return msg->node_array[i].node_addr;
	return NULL;
}

/* One address more at *pos of text. */
static int add_addr(const char *name, const node_info_msg_t *msg, char *text,
		    size_t size, size_t *pos, struct ddp_err *err)
{
	struct ddp_compat_node node;

	if (msg ? node_fill(&node, name, addr_of(msg, name), NULL, err) :
		  ddp_compat_node_conf(name, &node, err))
		return -1;
	if (!ddp_text_is_addr(node.addr) ||
	    ddp_text_add(text, size, pos, "%s%s", *pos ? "," : "", node.addr))
		return ddp_err_set(err, DDP_EINVAL, "the address of node %s "
				   "is not usable", name);
	return 0;
}

char *ddp_compat_node_addrs(const char *nodes, uint32_t nnodes, bool rpc,
			    struct ddp_err *err)
{
	ddp_hostlist list = slurm_hostlist_create(nodes);
	size_t size = (size_t)nnodes * DDP_ADDR_MAX + 1, pos = 0;
	node_info_msg_t *msg = NULL;
	char *text = malloc(size), *host;
	int rc = 0;

	if (!list || !text)
		rc = ddp_err_set(err, DDP_ENOMEM, "out of memory");
	else if (rpc && slurm_load_node((time_t)0, &msg, SHOW_ALL))
		msg = NULL;	/* PrivateData=nodes: the configuration then */
	for (uint32_t i = 0; !rc && i < nnodes; i++) {
		host = slurm_hostlist_shift(list);
		if (host)
			rc = add_addr(host, msg, text, size, &pos, err);
		else
			rc = ddp_err_set(err, DDP_EINCONS, "the step's node "
					 "list is too short");
		free(host);
	}
	if (msg)
		slurm_free_node_info_msg(msg);
	if (list)
		slurm_hostlist_destroy(list);
	if (rc) {
		free(text);
		text = NULL;
	}
	return text;
}

bool ddp_compat_srun_ports(uint16_t *lo, uint16_t *hi)
{
	const uint16_t *range = &slurm_conf ? slurm_conf.srun_port_range : NULL;

	if (!range || !range[0] || range[0] > range[1])
		return false;
	*lo = range[0];
	*hi = range[1];
	return true;
}

bool ddp_compat_task_prolog(void)
{
	return &slurm_conf && slurm_conf.task_prolog;
}

bool ddp_compat_step_is_normal(uint32_t step)
{
	return step <= SLURM_MAX_NORMAL_STEP_ID;
}

bool ddp_compat_step_is_batch(uint32_t step)
{
	return step == SLURM_BATCH_SCRIPT;
}
