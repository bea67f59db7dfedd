/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of the core: a kind and one line of text that names the remedy.
 * The core never logs; the adapter that called it does, once.
 */
#ifndef DDP_ERR_H
#define DDP_ERR_H

enum ddp_errcode {
	DDP_OK = 0,
	DDP_EINVAL,	/* a value is malformed */
	DDP_EPOLICY,	/* the site does not allow it */
	DDP_EINCONS,	/* two sources contradict each other */
	DDP_EBUSY,	/* a port is taken */
	DDP_ENOSPC,	/* a bound of the format is exceeded */
	DDP_ENOMEM,
	DDP_ESYS	/* a system call failed */
};

#define DDP_ERR_TEXT 768

struct ddp_err {
	enum ddp_errcode code;
	char text[DDP_ERR_TEXT];
};

/*
 * Fill *err (may be NULL) with the code and a formatted text, cut at
 * DDP_ERR_TEXT - 1 bytes. Always returns -1, so that a caller can write
 * `return ddp_err_set(err, …)`.
 */
int ddp_err_set(struct ddp_err *err, enum ddp_errcode code,
		const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
