/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "core/ddp_io.h"
#include "core/ddp_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define EPHEMERAL "/proc/sys/net/ipv4/ip_local_port_range"
#define RESERVED "/proc/sys/net/ipv4/ip_local_reserved_ports"

/* Bind the wildcard address of one family. */
static enum ddp_probe_result bind_family(int family, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int on = 1, rc, fd;

	memset(&ss, 0, sizeof(ss));
	ss.ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		((struct sockaddr_in *)&ss)->sin_port = htons(port);
		len = sizeof(struct sockaddr_in);
	} else {
		((struct sockaddr_in6 *)&ss)->sin6_port = htons(port);
		len = sizeof(struct sockaddr_in6);
	}
	fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return DDP_PORT_UNKNOWN;
	if (family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on,
				 sizeof(on));
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	rc = bind(fd, (struct sockaddr *)&ss, len);
	rc = rc ? errno : 0;
	close(fd);
	if (rc == EADDRINUSE)
		return DDP_PORT_BUSY;
	return rc ? DDP_PORT_UNKNOWN : DDP_PORT_FREE;
}

enum ddp_probe_result ddp_probe_bind(uint16_t port)
{
	enum ddp_probe_result v4 = bind_family(AF_INET, port);
	enum ddp_probe_result v6 = bind_family(AF_INET6, port);

	if (v4 == DDP_PORT_BUSY || v6 == DDP_PORT_BUSY)
		return DDP_PORT_BUSY;
	if (v4 == DDP_PORT_UNKNOWN && v6 == DDP_PORT_UNKNOWN)
		return DDP_PORT_UNKNOWN;
	return DDP_PORT_FREE;
}

static socklen_t numeric(const char *ip, uint16_t port,
			 struct sockaddr_storage *ss)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST,
				  .ai_socktype = SOCK_STREAM }, *res;
	socklen_t len;

	if (getaddrinfo(ip, NULL, &hints, &res))
		return 0;
	memset(ss, 0, sizeof(*ss));
	len = res->ai_addrlen;
	memcpy(ss, res->ai_addr, len);
	freeaddrinfo(res);
	if (ss->ss_family == AF_INET)
		((struct sockaddr_in *)ss)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)ss)->sin6_port = htons(port);
	return len;
}

/* The outcome of a connection attempt under way on fd. */
static enum ddp_probe_result connect_wait(int fd, int timeout_ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int error = 0;

	if (poll(&pfd, 1, timeout_ms) != 1 ||
	    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len))
		return DDP_PORT_UNKNOWN;
	if (!error)
		return DDP_PORT_BUSY;
	return error == ECONNREFUSED ? DDP_PORT_FREE : DDP_PORT_UNKNOWN;
}

enum ddp_probe_result ddp_probe_connect(const char *ip, uint16_t port,
					int timeout_ms)
{
	enum ddp_probe_result result = DDP_PORT_UNKNOWN;
	struct sockaddr_storage ss;
	socklen_t len = numeric(ip, port, &ss);
	int fd;

	if (!len)
		return DDP_PORT_UNKNOWN;
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
		    0);
	if (fd < 0)
		return DDP_PORT_UNKNOWN;
	if (!connect(fd, (struct sockaddr *)&ss, len))
		result = DDP_PORT_BUSY;
	else if (errno == ECONNREFUSED)
		result = DDP_PORT_FREE;
	else if (errno == EINPROGRESS)
		result = connect_wait(fd, timeout_ms);
	close(fd);
	return result;
}

bool ddp_probe_is_local(const char *ip)
{
	struct sockaddr_storage ss;
	socklen_t len = numeric(ip, 0, &ss);
	int fd, rc;

	if (!len)
		return false;
	fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	rc = bind(fd, (struct sockaddr *)&ss, len);
	close(fd);
	return !rc;
}

int ddp_probe_resolve(const char *addr, char *ip)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *res = NULL;
	char text[DDP_ADDR_MAX];
	int rc = -1;

	ip[0] = '\0';
	if (getaddrinfo(addr, NULL, &hints, &res))
		return -1;
	for (struct addrinfo *a = res; a; a = a->ai_next) {
		if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof(text),
				NULL, 0, NI_NUMERICHOST) ||
		    !ddp_text_is_addr(text))
			continue;
		if (rc && !ddp_text_copy(ip, DDP_ADDR_MAX, text))
			rc = 0;
		if (!ddp_text_is_loopback(text)) {
			rc = ddp_text_copy(ip, DDP_ADDR_MAX, text);
			break;
		}
	}
	freeaddrinfo(res);
	return rc;
}

int ddp_probe_ephemeral(uint32_t *lo, uint32_t *hi)
{
	char text[64];
	unsigned a, b;

	if (ddp_io_read_file(EPHEMERAL, text, sizeof(text)) < 0 ||
	    sscanf(text, "%u %u", &a, &b) != 2 || a > b || b > 65535)
		return -1;
	*lo = a;
	*hi = b;
	return 0;
}

void ddp_probe_exclude(struct ddp_portset *set)
{
	char text[4096], *save = NULL;
	uint32_t lo, hi;

	if (!ddp_probe_ephemeral(&lo, &hi))
		ddp_portset_exclude(set, lo, hi);
	if (ddp_io_read_file(RESERVED, text, sizeof(text)) < 0)
		return;
	for (char *p = strtok_r(text, ",\n", &save); p;
	     p = strtok_r(NULL, ",\n", &save)) {
		unsigned a, b;
		int n = sscanf(p, "%u-%u", &a, &b);

		if (n >= 1)
			ddp_portset_exclude(set, a, n == 2 ? b : a);
	}
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	if (!a || a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return !memcmp(&((const struct sockaddr_in *)a)->sin_addr,
			       &((const struct sockaddr_in *)b)->sin_addr,
			       sizeof(struct in_addr));
	return a->sa_family == AF_INET6 &&
	       !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		       &((const struct sockaddr_in6 *)b)->sin6_addr,
		       sizeof(struct in6_addr));
}

int ddp_probe_iface(const char *ip, char *ifname, size_t size)
{
	struct sockaddr_storage ss;
	socklen_t len = numeric(ip, 9, &ss), own = sizeof(ss);
	struct ifaddrs *list = NULL;
	int rc = -1, fd;

	if (!len)
		return -1;
	fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	/* connect() on a datagram socket only asks the routing table. */
	if (!connect(fd, (struct sockaddr *)&ss, len) &&
	    !getsockname(fd, (struct sockaddr *)&ss, &own) &&
	    !getifaddrs(&list))
		for (struct ifaddrs *i = list; i && rc; i = i->ifa_next)
			if (same_address(i->ifa_addr, (struct sockaddr *)&ss))
				rc = ddp_text_copy(ifname, size, i->ifa_name);
	freeifaddrs(list);
	close(fd);
	return rc;
}

/* Worth telling other hosts? Then its numeric form is in ip. */
static bool is_routable(const struct sockaddr *a, socklen_t len, char *ip)
{
	char text[DDP_ADDR_MAX];

	if (!a || (a->sa_family != AF_INET && a->sa_family != AF_INET6) ||
	    getnameinfo(a, len, text, sizeof(text), NULL, 0, NI_NUMERICHOST) ||
	    !ddp_text_is_addr(text) || ddp_text_is_loopback(text) ||
	    !strncmp(text, "fe80:", 5) || !strncmp(text, "169.254.", 8))
		return false;
	return !ddp_text_copy(ip, DDP_ADDR_MAX, text);
}

static int own_towards(const char *towards, char *ip)
{
	char target[DDP_ADDR_MAX];
	struct sockaddr_storage ss;
	socklen_t len, own = sizeof(ss);
	int fd, rc = -1;

	if (ddp_probe_resolve(towards, target))
		return -1;
	len = numeric(target, 9, &ss);
	fd = len ? socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
	if (fd < 0)
		return -1;
	if (!connect(fd, (struct sockaddr *)&ss, len) &&
	    !getsockname(fd, (struct sockaddr *)&ss, &own) &&
	    is_routable((struct sockaddr *)&ss, own, ip))
		rc = 0;
	close(fd);
	return rc;
}

int ddp_probe_own(const char *towards, char *ip)
{
	struct ifaddrs *list = NULL;
	int rc = -1;

	if (towards && !own_towards(towards, ip))
		return 0;
	if (getifaddrs(&list))
		return -1;
	for (struct ifaddrs *i = list; i && rc; i = i->ifa_next)
		if (i->ifa_addr &&
		    is_routable(i->ifa_addr, i->ifa_addr->sa_family == AF_INET ?
				sizeof(struct sockaddr_in) :
				sizeof(struct sockaddr_in6), ip))
			rc = 0;
	freeifaddrs(list);
	return rc;
}

static void add_address(char list[DDP_PROBE_ADDRS][DDP_PROBE_ADDR],
			unsigned *n, const char *ip)
{
	if (*n == DDP_PROBE_ADDRS || strlen(ip) >= DDP_PROBE_ADDR)
		return;
	for (unsigned i = 0; i < *n; i++)
		if (!strcmp(list[i], ip))
			return;
	strcpy(list[(*n)++], ip);
}

unsigned ddp_probe_all(const char *towards,
		       char list[DDP_PROBE_ADDRS][DDP_PROBE_ADDR])
{
	struct ifaddrs *all = NULL;
	char ip[DDP_ADDR_MAX];
	unsigned n = 0;

	if (towards && !own_towards(towards, ip))
		add_address(list, &n, ip);
	if (getifaddrs(&all))
		all = NULL;
	for (struct ifaddrs *i = all; i; i = i->ifa_next)
		if (i->ifa_addr &&
		    is_routable(i->ifa_addr, i->ifa_addr->sa_family == AF_INET ?
				sizeof(struct sockaddr_in) :
				sizeof(struct sockaddr_in6), ip))
			add_address(list, &n, ip);
	if (all)
		freeifaddrs(all);
	add_address(list, &n, "127.0.0.1");
	add_address(list, &n, "::1");
	return n;
}
