/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "rank_star.h"

#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct pollfd *peers;	/* rank 0: all others; others: rank 0 */
static int npeers;
static int listener = -1;

static void fail(const char *what)
{
	perror(what);
	exit(98);
}

static struct addrinfo *master(void)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	const char *addr = getenv("MASTER_ADDR");
	const char *port = getenv("MASTER_PORT");
	struct addrinfo *res;

	if (!addr || !port || getaddrinfo(addr, port, &hints, &res)) {
		fprintf(stderr, "rank: no address %s port %s\n",
			addr ? addr : "", port ? port : "");
		exit(98);
	}
	return res;
}

void star_listen(void)
{
	struct addrinfo *a = master();
	int on = 1;

	listener = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 ||
	    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)))
		fail("socket");
	if (bind(listener, a->ai_addr, a->ai_addrlen))
		fail("bind");
	if (listen(listener, 1024))
		fail("listen");
	freeaddrinfo(a);
}

static void accept_all(int n)
{
	int i;

	for (i = 0; i < n; i++) {
		peers[i].fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (peers[i].fd < 0)
			fail("accept");
	}
	for (i = 0; i < n; i++)
		if (write(peers[i].fd, "g", 1) != 1)
			fail("write");
}

static void dial(void)
{
	struct addrinfo *a = master();
	char go;
	int i, fd;

	/* Rank 0 may not have come so far yet. */
	for (i = 0; i < 3000; i++) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			fail("socket");
		if (!connect(fd, a->ai_addr, a->ai_addrlen))
			break;
		close(fd);
		fd = -1;
		usleep(10000);
	}
	freeaddrinfo(a);
	if (fd < 0)
		fail("connect");
	if (read(fd, &go, 1) != 1)
		fail("read");
	peers[0].fd = fd;
}

void star_join(int rank, int world)
{
	int i;

	npeers = rank ? 1 : world - 1;
	peers = calloc((size_t)npeers + 1, sizeof(*peers));
	if (!peers)
		fail("calloc");
	for (i = 0; i < npeers; i++)
		peers[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
	if (rank) {
		dial();
		return;
	}
	if (listener < 0)
		star_listen();
	accept_all(npeers);
}

void star_watch(void)
{
	while (poll(peers, (nfds_t)npeers, -1) <= 0)
		;
}

void star_leave(void)
{
	int i;

	for (i = 0; i < npeers; i++)
		if (peers[i].fd >= 0)
			close(peers[i].fd);
	npeers = 0;
	if (listener >= 0)
		close(listener);
	listener = -1;
}
