/* SPDX-License-Identifier: Apache-2.0 */
/* Records of slurmdbd as plain values. */
#ifndef DDP_COMPAT_ACCT_REC_H
#define DDP_COMPAT_ACCT_REC_H

#include "compat/ddp_compat_acct_int.h"

/* A list of slurmdb_job_rec_t into *out, sorted. 0, or -1 with *err. */
int ddp_acct_records(const struct ddp_acct *a, ddp_acct_list list,
		     struct ddp_acct_jobs *out, struct ddp_err *err);

#endif
