/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank SOCKET [ignore]: one rank for the bench. It says that it is there,
 * then sleeps; told to fail, it says when it does and exits with 7. With
 * "ignore" SIGTERM does nothing to it.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	struct timespec t;
	uint64_t ns;
	char c;

	if (argc < 2 || strlen(argv[1]) >= sizeof(to.sun_path))
		return 2;
	strcpy(to.sun_path, argv[1]);
	if (argc > 2)
		signal(SIGTERM, SIG_IGN);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) ||
	    send(fd, "here", 4, 0) != 4) {
		perror(argv[1]);
		return 3;
	}
	if (recv(fd, &c, 1, 0) != 1)
		return 0;	/* the watcher is gone */
	clock_gettime(CLOCK_MONOTONIC, &t);
	ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	if (send(fd, &ns, sizeof(ns), MSG_NOSIGNAL) != sizeof(ns))
		return 3;
	_exit(7);
}
