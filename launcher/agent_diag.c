/* SPDX-License-Identifier: Apache-2.0 */
/* The listeners of a TCP port, from the kernel's sock_diag. */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define LISTEN_STATE 10	/* TCP_LISTEN, which two headers define */

struct request {
	struct nlmsghdr head;
	struct inet_diag_req_v2 req;
};

static int ask(int fd, int family, uint16_t port)
{
	struct request r;

	memset(&r, 0, sizeof(r));
	r.head.nlmsg_len = sizeof(r);
	r.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	r.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	r.req.sdiag_family = (uint8_t)family;
	r.req.sdiag_protocol = IPPROTO_TCP;
	r.req.idiag_states = 1U << LISTEN_STATE;
	r.req.id.idiag_sport = htons(port);
	return send(fd, &r, sizeof(r), 0) == sizeof(r) ? 0 : -1;
}

/* One answer: 1 at its end, 0 if more come, -1. */
static int take(char *buf, size_t len, uint16_t port,
		struct agent_listener *out, unsigned max, unsigned *n)
{
	for (size_t at = 0; at + sizeof(struct nlmsghdr) <= len;) {
		struct nlmsghdr h;
		struct inet_diag_msg m;

		memcpy(&h, buf + at, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > len - at)
			return -1;
		if (h.nlmsg_type == NLMSG_DONE)
			return 1;
		if (h.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
		    h.nlmsg_len < NLMSG_HDRLEN + sizeof(m))
			return -1;
		memcpy(&m, buf + at + NLMSG_HDRLEN, sizeof(m));
		if (m.idiag_state == LISTEN_STATE &&
		    ntohs(m.id.idiag_sport) == port && *n < max) {
			out[*n].uid = m.idiag_uid;
			out[(*n)++].inode = m.idiag_inode;
		}
		at += NLMSG_ALIGN(h.nlmsg_len);
	}
	return 0;
}

static int listeners(int fd, int family, uint16_t port,
		     struct agent_listener *out, unsigned max, unsigned *n)
{
	_Alignas(struct nlmsghdr) char buf[8192];
	int rc = ask(fd, family, port);

	while (!rc) {
		ssize_t got = recv(fd, buf, sizeof(buf), 0);

		if (got < 0 && errno == EINTR)
			continue;
		rc = got <= 0 ? -1
		   : take(buf, (size_t)got, port, out, max, n);
	}
	return rc < 0 ? -1 : 0;
}

int agent_diag_listeners(uint16_t port, struct agent_listener *out,
			 unsigned max)
{
	static const struct timeval limit = { 1, 0 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC,
			NETLINK_SOCK_DIAG);
	unsigned n = 0;
	int rc;

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	rc = listeners(fd, AF_INET, port, out, max, &n);
	/* A kernel without IPv6 has nobody there. */
	(void)listeners(fd, AF_INET6, port, out, max, &n);
	close(fd);
	return rc && !n ? -1 : (int)n;
}
