/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a library late and keeps its names to itself, as Python does with
 * PyTorch: "late LIBRARY WORDS…" lets prog.c run there, linked with NCCL.
 * "late sym LIBRARY" calls NCCL by what dlsym() returns, as JAX does.
 * "late open LIBRARY…" only loads.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *open_it(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		(void)fprintf(stderr, "late: %s\n", dlerror());
	return handle;
}

int main(int argc, char **argv)
{
	int (*run)(int, char **);
	int (*id)(void *);
	char room[128];
	void *handle;

	if (argc < 2)
		return 2;
	if (argc > 2 && !strcmp(argv[1], "sym")) {
		handle = open_it(argv[2]);
		if (!handle)
			return 1;
		*(void **)&id = dlsym(handle, "ncclGetUniqueId");
		return id ? id(room) : 1;
	}
	if (!strcmp(argv[1], "open")) {
		for (int i = 2; i < argc; i++)
			if (!open_it(argv[i]))
				return 1;
		return 0;
	}
	handle = open_it(argv[1]);
	if (!handle)
		return 1;
	*(void **)&run = dlsym(handle, "prog_run");
	return run ? run(argc - 1, argv + 1) : 1;
}
