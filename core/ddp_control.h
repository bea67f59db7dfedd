/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a step's controller is and how to prove that one belongs to the
 * step: what srun hands to the nodes, as one line of text in the launch
 * environment under DDP_CONTROL_ENV. It holds the step's key: it is taken
 * out again before the program starts, and never logged.
 */
#ifndef DDP_CONTROL_H
#define DDP_CONTROL_H

#include "core/ddp_probe.h"
#include "core/ddp_text.h"
#include "core/ddp_wire.h"

/* Named SLURM_… so that --export=NONE lets it pass. */
#define DDP_CONTROL_ENV "SLURM_DDP_CHANNEL"

#define DDP_CONTROL_ADDRS DDP_PROBE_ADDRS
#define DDP_CONTROL_ADDR DDP_PROBE_ADDR	/* a numeric address, with the NUL */
#define DDP_CONTROL_MAX 1024	/* the text, with the NUL */

struct ddp_control {
	uint16_t port;
	uint8_t key[DDP_KEY_BYTES];
	bool required;		/* no connection is a failure of the launch */
	uint32_t start_ms;	/* longest wait for the whole step */
	unsigned naddrs;	/* addresses of srun's host, best first */
	char addr[DDP_CONTROL_ADDRS][DDP_CONTROL_ADDR];
};

/* "v=1;port=…;need=…;start=…;addrs=a,b;key=…" into buf (DDP_CONTROL_MAX
 * bytes). 0, or -1 with *err. */
int ddp_control_format(const struct ddp_control *c, char *buf,
		       struct ddp_err *err);

/* Reads a text that may come from anybody. 0, or -1 with *err, which never
 * shows the text. */
int ddp_control_parse(struct ddp_control *c, const char *text,
		      struct ddp_err *err);

/* n bytes as 2n hex digits and a NUL into out; and back from exactly 2n
 * lower-case digits, 0 or -1. */
void ddp_hex(const uint8_t *data, size_t n, char *out);
int ddp_unhex(const char *text, size_t len, uint8_t *out, size_t n);

#endif
