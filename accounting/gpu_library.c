/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/gpu_library.h"
#include "accounting/gpu_path.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

void *gpu_library_open(const char *path, uid_t owner, const char *const *names,
		       struct ddp_err *err)
{
	char resolved[PATH_MAX];
	void *lib = NULL;
	const char *why;

	if (path[0]) {
		if (gpu_path_check(path, owner, resolved, err))
			return NULL;
		lib = dlopen(resolved, RTLD_NOW | RTLD_LOCAL);
	} else if (getenv("LD_LIBRARY_PATH")) {
		(void)ddp_err_set(err, DDP_EPOLICY,
			"no library is looked for with LD_LIBRARY_PATH set; name it with --library");
		return NULL;
	}
	for (; !path[0] && !lib && *names; names++)
		lib = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
	if (lib)
		return lib;
	why = dlerror();
	(void)ddp_err_set(err, DDP_ESYS, "%s", why ? why : "dlopen failed");
	return NULL;
}
