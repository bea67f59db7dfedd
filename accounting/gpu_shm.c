/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "accounting/gpu_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 4

int gpu_shm_create(struct gpu_shm **shm)
{
	struct gpu_shm *p = MAP_FAILED;
	int fd, saved;

	fd = memfd_create("ddp-gpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, sizeof(*p)) ||
	    fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto error;
	p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		goto error;
	p->magic = GPU_SHM_MAGIC;
	p->size = sizeof(*p);
	*shm = p;
	return fd;
error:
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

struct gpu_shm *gpu_shm_attach(int fd)
{
	struct gpu_shm *p;
	struct stat st;

	if (fstat(fd, &st))
		return NULL;
	if ((uintmax_t)st.st_size != sizeof(*p)) {
		errno = EINVAL;
		return NULL;
	}
	p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (p->magic != GPU_SHM_MAGIC || p->size != sizeof(*p)) {
		gpu_shm_unmap(p);
		errno = EINVAL;
		return NULL;
	}
	return p;
}

void gpu_shm_unmap(struct gpu_shm *shm)
{
	if (shm)
		munmap(shm, sizeof(*shm));
}

void gpu_shm_publish(struct gpu_shm *shm, const struct gpu_totals *totals)
{
	uint32_t next = atomic_load_explicit(&shm->current,
					     memory_order_relaxed) + 1;
	size_t size = sizeof(*totals);

	/* Readers look at so many GPUs only. */
	if (totals->ngpus < GPU_MAX)
		size = offsetof(struct gpu_totals, gpu) +
		       totals->ngpus * sizeof(totals->gpu[0]);

	/* 0 means that nothing was published. */
	if (!next)
		next = 2;
	/* Who sees the slot change sees that it is no longer current. */
	atomic_thread_fence(memory_order_release);
	memcpy(&shm->slot[next & 1], totals, size);
	atomic_store_explicit(&shm->current, next, memory_order_release);
}

static bool good(double v) { return isfinite(v) && v >= 0; }

static void harmless_last(struct gpu_last *l)
{
	const double *v[] = { &l->sm, &l->membw, &l->nvlink_in, &l->nvlink_out,
			      &l->pcie_in, &l->pcie_out, &l->power };
	unsigned i;

	l->name[sizeof(l->name) - 1] = '\0';
	for (i = 0; i < sizeof(v) / sizeof(*v); i++)
		if (!good(*v[i]))
			l->known = 0;
}

static void harmless(struct gpu_totals *t)
{
	unsigned m;

	if (t->state > GPU_FAILED)
		t->state = GPU_FAILED;
	if (t->ngpus > GPU_MAX)
		t->ngpus = GPU_MAX;
	t->text[sizeof(t->text) - 1] = '\0';
	for (m = 0; m < GPU_METRICS; m++) {
		double top = gpu_metric_is_percent(m) ? 100 : 1e18;

		if (!good(t->in[m]) || t->in[m] > top)
			t->known_in &= ~(1u << m);
		if (!good(t->out[m]) || t->out[m] > top)
			t->known_out &= ~(1u << m);
	}
	for (m = 0; m < t->ngpus; m++)
		harmless_last(&t->gpu[m]);
}

/* What there is of a set with so many GPUs; polls copy it often. */
static size_t length(uint32_t ngpus)
{
	return offsetof(struct gpu_totals, gpu) +
		(ngpus > GPU_MAX ? GPU_MAX : ngpus) * sizeof(struct gpu_last);
}

bool gpu_shm_read(const struct gpu_shm *shm, struct gpu_totals *out)
{
	const struct gpu_totals *slot;
	struct gpu_totals copy;
	uint32_t before, after;
	unsigned i;

	for (i = 0; i < TRIES; i++) {
		before = atomic_load_explicit(&shm->current,
					      memory_order_acquire);
		if (!before)
			return false;
		slot = &shm->slot[before & 1];
		memcpy(&copy, slot, length(0));
		memcpy(copy.gpu, slot->gpu, length(copy.ngpus) - length(0));
		atomic_thread_fence(memory_order_acquire);
		after = atomic_load_explicit(&shm->current,
					     memory_order_relaxed);
		/* The writer may have begun with this slot's next use only
		 * after it made the other one current. */
		if (before == after) {
			harmless(&copy);
			memcpy(out, &copy, length(copy.ngpus));
			return true;
		}
	}
	return false;
}
