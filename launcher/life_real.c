/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/life_real.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

_Atomic(void *) ddp_life_real[DDP_LIFE_NFN];

#define DDP_LIFE_NAME(name) #name,
static const char *const names[DDP_LIFE_NFN] = {
	DDP_LIFE_FUNCTIONS(DDP_LIFE_NAME)
};
#undef DDP_LIFE_NAME

/* p, unless it is in this library: a call of it would not end. */
static void *foreign(void *p)
{
	Dl_info own, info;

	if (!p || !dladdr((void *)names, &own) || !dladdr(p, &info))
		return p;
	return own.dli_fbase == info.dli_fbase ? NULL : p;
}

/* In what the file at path brings with it, if it is loaded. */
static void *find_in(const char *path, const char *name)
{
	void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD), *p = NULL;

	if (handle) {
		p = foreign(dlsym(handle, name));
		(void)dlclose(handle);
	}
	return p;
}

void *ddp_life_find_beside(void *fn, const char *name)
{
	Dl_info info;
	void *p = NULL;

	if (dladdr(fn, &info) && info.dli_fname)
		p = find_in(info.dli_fname, name);
	(void)dlerror();
	return p;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

int ddp_life_is_in(void *fn, const char *prefix)
{
	Dl_info info;

	return dladdr(fn, &info) && info.dli_fname &&
	       !strncmp(base_name(info.dli_fname), prefix, strlen(prefix));
}

struct search {
	const char *prefix;
	char path[4096];
};

static int match_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;

	(void)size;
	if (strncmp(base_name(info->dlpi_name), s->prefix, strlen(s->prefix)) ||
	    strlen(info->dlpi_name) >= sizeof(s->path))
		return 0;
	memcpy(s->path, info->dlpi_name, strlen(info->dlpi_name) + 1);
	return 1;
}

/* In the first loaded object whose file's name begins so. */
static void *find_loaded(const char *prefix, const char *name)
{
	struct search s = { .prefix = prefix };

	return dl_iterate_phdr(match_object, &s) ? find_in(s.path, name) : NULL;
}

static void *find_name(const char *name, void *caller)
{
	void *p = foreign(dlsym(RTLD_NEXT, name));
	Dl_info info;

	/* A variable of a library may have its place in the program. */
	if (!strncmp(name, "ompi_", 5))
		p = dlsym(RTLD_DEFAULT, name);
	if (!p && caller && dladdr(caller, &info) && info.dli_fname)
		p = find_in(info.dli_fname, name);
	if (!p)
		p = find_loaded(strstr(name, "nccl") ? "libnccl.so" : "libmpi",
				name);
	return p;
}

void *ddp_life_find(enum ddp_life_fn fn, void *caller)
{
	void *p = ddp_life_found(fn);
	const char *name = names[fn];
	char other[64];

	if (p)
		return p;
	p = find_name(name, caller);
	if (!p) {
		(void)snprintf(other, sizeof(other), "%c%s",
			       name[0] == 'M' ? 'P' : 'p', name);
		p = find_name(other, caller);
	}
	/* What failed here is not the program's to find in dlerror(). */
	(void)dlerror();
	if (p)
		atomic_store_explicit(&ddp_life_real[fn], p,
				      memory_order_release);
	return p;
}

void ddp_life_find_ends(void *caller)
{
	static const enum ddp_life_fn ends[] = {
		DDP_FN_ncclCommFinalize, DDP_FN_ncclCommDestroy,
		DDP_FN_ncclCommAbort, DDP_FN_ncclCommGetAsyncError,
	};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		(void)ddp_life_find(ends[i], caller);
}

int ddp_life_is_first(enum ddp_life_fn fn)
{
	void *p = dlsym(RTLD_DEFAULT, names[fn]);
	Dl_info own, program, found;

	(void)dlerror();
	if (!p || !dladdr(p, &found) || !dladdr((void *)names, &own) ||
	    !dladdr((void *)getauxval(AT_ENTRY), &program))
		return 1;
	/* In the program it is a stub, if it takes the function's address. */
	return found.dli_fbase == own.dli_fbase ||
	       found.dli_fbase == program.dli_fbase;
}
