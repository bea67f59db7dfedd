/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the sampler and the accounting plugin share. */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/gpu_shm.h"
#include "tests/unit/check_main.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct gpu_shm *shm;
static int fd;
static struct gpu_totals t;

static void setup(void)
{
	fd = gpu_shm_create(&shm);
	ck_assert_int_ge(fd, 0);
}

START_TEST(starts_empty)
{
	struct gpu_totals before;

	memset(&t, 0x5a, sizeof(t));
	before = t;
	ck_assert(!gpu_shm_read(shm, &t));
	ck_assert(!memcmp(&t, &before, sizeof(t)));
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	/* Nobody can make a reader fall off its end. */
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(ftruncate(fd, 1 << 20), -1);
}
END_TEST

START_TEST(attaches)
{
	struct gpu_shm *other = gpu_shm_attach(fd);
	int bad;

	ck_assert_ptr_nonnull(other);
	other->pid = 4711;
	ck_assert_int_eq(shm->pid, 4711);
	t = (struct gpu_totals){ .state = GPU_SAMPLING, .ngpus = 2,
		.known_in = 1, .in = { 12.5 } };
	gpu_shm_publish(other, &t);
	gpu_shm_unmap(other);
	memset(&t, 0, sizeof(t));
	ck_assert(gpu_shm_read(shm, &t));
	ck_assert_uint_eq(t.state, GPU_SAMPLING);
	ck_assert_uint_eq(t.known_in, 1);
	ck_assert(t.in[0] >= 12.5 && t.in[0] <= 12.5);

	ck_assert_ptr_null(gpu_shm_attach(-1));
	bad = memfd_create("bad", MFD_CLOEXEC);
	ck_assert_ptr_null(gpu_shm_attach(bad));
	ck_assert(!ftruncate(bad, sizeof(struct gpu_shm)));
	ck_assert_ptr_null(gpu_shm_attach(bad));
	ck_assert_int_eq(errno, EINVAL);
	close(bad);
	gpu_shm_unmap(NULL);
}
END_TEST

/* Each slot in turn, and 0 never comes back as a generation. */
START_TEST(generations)
{
	static const uint32_t at[] = { 0, 1, 2, 0x7fffffff, 0xfffffffe,
				       0xffffffff };
	unsigned i, k;

	for (i = 0; i < CHECK_COUNT(at); i++) {
		atomic_store(&shm->current, at[i]);
		for (k = 0; k < 5; k++) {
			uint32_t old = atomic_load(&shm->current), now;

			t = (struct gpu_totals){ .readings = 100 * i + k };
			gpu_shm_publish(shm, &t);
			now = atomic_load(&shm->current);
			ck_assert_uint_ne(now, 0);
			ck_assert_uint_eq(now & 1, ~old & 1);
			ck_assert(gpu_shm_read(shm, &t));
			ck_assert_uint_eq(t.readings, 100 * i + k);
		}
	}
}
END_TEST

/* What a sampler gone mad could leave there. */
START_TEST(made_harmless)
{
	unsigned m;

	memset(&t, 0xff, sizeof(t));
	for (m = 0; m < GPU_METRICS; m++) {
		t.in[m] = m % 2 ? NAN : -1;
		t.out[m] = m % 2 ? INFINITY : 1e30;
	}
	gpu_shm_publish(shm, &t);
	memset(&t, 0, sizeof(t));
	ck_assert(gpu_shm_read(shm, &t));
	ck_assert_uint_eq(t.state, GPU_FAILED);
	ck_assert_uint_eq(t.ngpus, GPU_MAX);
	ck_assert_uint_eq(t.known_in & ((1u << GPU_METRICS) - 1), 0);
	ck_assert_uint_eq(t.known_out & ((1u << GPU_METRICS) - 1), 0);
	ck_assert_ptr_nonnull(memchr(t.text, 0, sizeof(t.text)));
	for (m = 0; m < GPU_MAX; m++) {
		ck_assert_ptr_nonnull(memchr(t.gpu[m].name, 0, GPU_NAME_MAX));
		ck_assert_uint_eq(t.gpu[m].known, 0);
	}
	t = (struct gpu_totals){ .known_in = 0x3f, .known_out = 0x3f,
		.in = { 100.1, 100, 1e17, 0, 5, 0 }, .out = { 100, 101 } };
	gpu_shm_publish(shm, &t);
	ck_assert(gpu_shm_read(shm, &t));
	ck_assert_uint_eq(t.known_in, 0x3e);
	ck_assert_uint_eq(t.known_out, 0x3d);
}
END_TEST

/* Every word of a set says which one it is. */
static void mark(struct gpu_totals *totals, uint64_t n)
{
	unsigned i;

	memset(totals, 0, sizeof(*totals));
	totals->state = GPU_SAMPLING;
	totals->ngpus = GPU_MAX;
	totals->known_in = totals->known_out = (1u << GPU_METRICS) - 1;
	totals->readings = n;
	totals->first = totals->last = (int64_t)n;
	for (i = 0; i < GPU_METRICS; i++)
		totals->in[i] = totals->out[i] = (double)(n % 100);
	for (i = 0; i < GPU_MAX; i++)
		totals->gpu[i].sm = totals->gpu[i].power = (double)n;
}

/* As fast as it can: a torn set would show. */
static void write_on(void)
{
	struct gpu_shm *own = gpu_shm_attach(fd);
	struct gpu_totals totals;
	uint64_t n;

	if (!own)
		_exit(1);
	for (n = 1;; n++) {
		mark(&totals, n);
		gpu_shm_publish(own, &totals);
	}
}

static int64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Reads for so long; the number of good reads. */
static unsigned read_on(int64_t us)
{
	static struct gpu_totals want;
	int64_t end = now_us() + us;
	unsigned good = 0;

	do {
		if (!gpu_shm_read(shm, &t))
			continue;
		mark(&want, t.readings);
		ck_assert_msg(!memcmp(&t, &want, sizeof(t)), "a torn set");
		good++;
	} while (now_us() < end);
	return good;
}

/* Killed at any instant, it leaves the last whole set. */
START_TEST(killed_writer)
{
	unsigned round, good = 0;
	int status;
	pid_t pid;

	for (round = 0; round < 150; round++) {
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid)
			write_on();
		good += read_on(1000 + round * 37 % 4000);
		ck_assert(!kill(pid, SIGKILL));
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFSIGNALED(status));
		/* Nobody writes now: the first try is good. */
		if (atomic_load(&shm->current))
			ck_assert_uint_gt(read_on(0), 0);
	}
	ck_assert_uint_gt(good, 0);
}
END_TEST

int main(void)
{
	const TTest *tests[] = {
		starts_empty, attaches, generations, made_harmless,
		killed_writer,
	};

	return check_run("gpu_shm", tests, CHECK_COUNT(tests), setup);
}
