/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error file that a failing program writes, as torch's elastic launcher
 * defines it (TORCHELASTIC_ERROR_FILE): JSON with the error's text under
 * "message", or one level deeper, "message" in "message".
 */
#ifndef DDP_ERRFILE_H
#define DDP_ERRFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DDP_ERRFILE_MAX (64U * 1024)

/*
 * The message, as one line for a terminal: valid UTF-8 without control
 * characters, escape sequences and marks that turn the direction of
 * writing; cut at size - 1 bytes, between characters. 0, or -1 and "" if
 * the text is not valid JSON from its first byte to its last, or has none.
 */
int ddp_errfile_message(const char *json, size_t len, char *out, size_t size);

/* Any text as such a line; blanks in a row become one. */
void ddp_errfile_plain(const char *text, char *out, size_t size);

/*
 * The same from the file `name` in a directory: a regular file of this uid,
 * no link, of at most DDP_ERRFILE_MAX bytes.
 */
int ddp_errfile_read(int dir, const char *name, uid_t uid, char *out,
		     size_t size);

/*
 * Is this the path of a file in a directory that some ddp-agent made? In the
 * environment of a step that a rank starts, it is the outer rank's.
 */
bool ddp_errfile_is_ours(const char *path);

/*
 * Remove a directory of error files that ddp-agent made ("/dev/shm/ddp-agent-…"
 * or "/tmp/ddp-agent-…", six characters), with the files in it. Any other name
 * is left alone, and so is what is no plain directory. Call it with the
 * user's ids only.
 */
void ddp_errfile_sweep(const char *dir);

#endif
