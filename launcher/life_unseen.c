/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A NCCL whose calls do not come by here, which must be said, since nothing of
 * it is ended in order:
 *
 * - libnccl is loaded, no call of it was seen, and no loaded object names it
 *   as needed: then it was opened by dlopen(), and is called by what dlsym()
 *   has returned. (If one does name it, that one's calls would come by: it
 *   has made none, like a PyTorch that uses gloo.)
 * - it is part of another object: no libnccl is loaded, but libcuda is, and
 *   the read-only data of a loaded object has the name of a setting that only
 *   NCCL itself reads. Looked for in a program that uses MPI alone, and in
 *   so many bytes at most.
 */
#define _GNU_SOURCE
#include "config.h"

#include "launcher/life.h"
#include "launcher/life_real.h"

#include <link.h>
#include <string.h>

#define SCAN_MAX (128UL << 20)

struct look {
	bool loaded, needed, cuda, inside;
	bool deep;
	size_t budget;
};

/* As two pieces, so that this library does not find itself. */
static const char mark_head[] = "NCCL_LL128";
static const char mark_tail[] = "_NTHREADS";

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_nccl(const char *path)
{
	return !strncmp(base_name(path), "libnccl.so", 10);
}

static bool names_nccl(const struct dl_phdr_info *info, const ElfW(Dyn) *dyn)
{
	const char *strings = NULL;

	for (const ElfW(Dyn) *d = dyn; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_STRTAB) {
			ElfW(Addr) at = d->d_un.d_ptr;

			/* Not relocated in the vDSO, and on some machines. */
			if (at < info->dlpi_addr)
				at += info->dlpi_addr;
			strings = (const char *)at;
		}
	for (const ElfW(Dyn) *d = dyn; strings && d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_NEEDED &&
		    is_nccl(strings + d->d_un.d_val))
			return true;
	return false;
}

static bool has_mark(const char *p, size_t n)
{
	const char *end = p + n;

	while (p < end &&
	       (p = memmem(p, (size_t)(end - p), mark_head,
			   sizeof(mark_head) - 1)) != NULL) {
		p += sizeof(mark_head) - 1;
		if ((size_t)(end - p) >= sizeof(mark_tail) &&
		    !memcmp(p, mark_tail, sizeof(mark_tail)))
			return true;
	}
	return false;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct look *l = arg;

	(void)size;
	l->loaded |= is_nccl(info->dlpi_name);
	l->cuda |= !strncmp(base_name(info->dlpi_name), "libcuda.so", 10);
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			l->needed |= names_nccl(info, (const ElfW(Dyn) *)
				(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
	return 0;
}

static int scan(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct look *l = arg;

	(void)size;
	for (int i = 0; !l->inside && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || (p->p_flags & PF_W) ||
		    !(p->p_flags & PF_R) || p->p_filesz > l->budget)
			continue;
		l->budget -= p->p_filesz;
		l->inside = has_mark((const char *)info->dlpi_addr +
				     p->p_vaddr, p->p_filesz);
	}
	return l->inside;
}

static bool seen(void)
{
	for (int fn = DDP_FN_ncclGetUniqueId; fn <= DDP_FN_ncclRecv; fn++)
		if (ddp_life_found((enum ddp_life_fn)fn))
			return true;
	return false;
}

void ddp_life_unseen(bool deep)
{
	static _Atomic bool said;
	struct look l = { .deep = deep, .budget = SCAN_MAX };

	if (atomic_load(&said) || seen())
		return;
	(void)dl_iterate_phdr(look_at, &l);
	if (!l.loaded && l.cuda && deep)
		(void)dl_iterate_phdr(scan, &l);
	if (!(l.loaded && !l.needed) && !l.inside)
		return;
	if (!atomic_exchange(&said, true))
		ddp_life_say("NCCL is loaded but its calls are not seen (statically linked, or resolved by dlsym): its communicators are not ended in order");
}
