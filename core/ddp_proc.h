/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc says of other processes. All of it may be gone or another
 * process's by the next call: who sends a signal compares the start time.
 * Every read has a bound; nothing is kept.
 */
#ifndef DDP_PROC_H
#define DDP_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Of ddp_proc_stat.flags, as the kernel numbers them. */
#define DDP_PROC_EXITING 0x4U
#define DDP_PROC_DUMPCORE 0x200U
#define DDP_PROC_SIGNALED 0x400U

#define DDP_PROC_COMM 64	/* a command's name made printable, and NUL */

struct ddp_proc_stat {
	pid_t ppid, pgrp, session;
	char state;		/* 'R', 'S', … 'Z' for a zombie */
	uint32_t flags;
	uint32_t threads;	/* not yet ended; of a zombie's, too */
	uint64_t start;		/* clock ticks after boot; never 0 */
	uint32_t status;	/* wait status of a zombie; 0 also where we may
				 * not see it, see ddp_proc_open_to_us() */
};

struct ddp_proc_status {
	uid_t uid[4];		/* real, effective, saved, of files */
	gid_t gid[4];
	bool dumping;		/* its core is being written */
	uint64_t caught;	/* signal s has a handler: bit s - 1 */
	bool have_caught;
};

/* Which step, as its processes' environment says. */
struct ddp_proc_step {
	uint32_t job, step;
	const char *node;	/* NULL: any */
};

/* A small file below /proc/PID as a string. 0, or -1: none, or empty. */
int ddp_proc_read(pid_t pid, const char *name, char *buf, size_t size);

/* Texts of the files. 0, or -1 for what no kernel writes. */
int ddp_proc_parse_stat(const char *text, struct ddp_proc_stat *st);
int ddp_proc_parse_status(const char *text, struct ddp_proc_status *st);

/* 0, or -1: no such process, or not to be read. */
int ddp_proc_stat(pid_t pid, struct ddp_proc_stat *st);
int ddp_proc_status(pid_t pid, struct ddp_proc_status *st);

/* True if the kernel shows us what it hides from strangers: not of setuid
 * programs and those that are not dumpable. */
bool ddp_proc_open_to_us(pid_t pid);

/*
 * The wait status of a process that its parent has reaped, from a pidfd
 * that was open before (Linux 6.15). 0, or -1 if the kernel does not say.
 */
int ddp_proc_reaped(int pidfd, uint32_t *status);

/* Its command's name, printable; "?" if unknown. Returns buf. */
const char *ddp_proc_comm(pid_t pid, char *buf, size_t size);

/* True if the environment at its exec names the step. A main thread that has
 * ended shows none, though others run on: then one of theirs is looked at. */
bool ddp_proc_in_step(pid_t pid, const struct ddp_proc_step *step);

bool ddp_proc_thread_in_step(pid_t pid, const struct ddp_proc_step *step);

/* The same for the text of an open file. */
bool ddp_proc_environ(int fd, const struct ddp_proc_step *step);

/* True if one of its open files is this socket. */
bool ddp_proc_has_socket(pid_t pid, uint64_t inode);

/*
 * Visit every process whose files belong to uid or, as with setuid programs,
 * to root. A visitor that returns non-zero ends the walk, which returns that
 * value; else 0, or -1 without /proc.
 */
int ddp_proc_walk(uid_t uid, int (*visit)(pid_t pid, void *arg), void *arg);

#endif
