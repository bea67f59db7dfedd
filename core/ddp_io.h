/* SPDX-License-Identifier: Apache-2.0 */
/* Small files, and answers of other processes: bounded in size and in time. */
#ifndef DDP_IO_H
#define DDP_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The monotonic clock. */
int64_t ddp_io_now_ms(void);
int64_t ddp_io_now_us(void);

/*
 * All bytes until the end of the stream, as a malloc'ed string; NULL if
 * timeout_ms pass first, at an error, or if there are max bytes or more.
 */
char *ddp_io_read_all(int fd, size_t max, int timeout_ms);

/*
 * The first size - 1 bytes of a file, always terminated: for /proc and /sys.
 * Returns their number, or -1 if it cannot be opened or read.
 */
ssize_t ddp_io_read_file(const char *path, char *buf, size_t size);
/* The same for a path below the folder dir. */
ssize_t ddp_io_read_at(int dir, const char *path, char *buf, size_t size);

/* All of text, without SIGPIPE on sockets. 0 or -1. */
int ddp_io_write_all(int fd, const char *text);

/* waitpid() that signals do not interrupt; -1 if there is no such child. */
int ddp_io_wait(pid_t pid, int *status);

#endif
