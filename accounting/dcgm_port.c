/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/src_dcgm.h"

#include <stdio.h>

#define LISTENS 0x0a
#define SYSTEM_UIDS 1000	/* those of services are below */

int dcgm_port_check(const char *path, unsigned port, struct ddp_err *err)
{
	unsigned at, state, uid;
	char line[512];
	FILE *f = fopen(path, "re");
	int rc = 0;

	/* No such protocol here, or no view of it: nothing to hold against. */
	if (!f)
		return 0;
	while (!rc && fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %u",
			   &at, &state, &uid) != 3)
			continue;
		if (at == port && state == LISTENS && uid >= SYSTEM_UIDS)
			rc = ddp_err_set(err, DDP_EPOLICY,
				"DCGM's port %u is held by a process of user %u: not trusted",
				port, uid);
	}
	(void)fclose(f);
	return rc;
}
