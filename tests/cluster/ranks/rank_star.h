/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands for a collective in the fault tests: every rank has a TCP
 * connection to rank 0 at MASTER_ADDR and MASTER_PORT. When one rank ends,
 * rank 0 sees it at once, and all others when rank 0 ends of it. Errors of the
 * set-up end the process with code 98.
 */
#ifndef RANK_STAR_H
#define RANK_STAR_H

/* Rank 0 listens on MASTER_PORT. */
void star_listen(void);

/* All connect, and return at the same moment. */
void star_join(int rank, int world);

/* Returns when a connection has ended. */
void star_watch(void);

/* Closes all. */
void star_leave(void);

#endif
