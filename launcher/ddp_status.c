/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-status JOB[.STEP] [--json]: asks the controllers of a job's steps on
 * this host what they see. They are found by the names of their sockets;
 * that a name's owner is the one it says, the kernel tells.
 *
 * Exit codes: 0; 1 nothing found here, or no answer; 2 a wrong call.
 */
#define _GNU_SOURCE
#include "config.h"

#include "core/ddp_io.h"
#include "core/ddp_text.h"

#include <inttypes.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <jansson.h>

#define PREFIX "@slurm-ddp/"
#define LISTENS 0x10000U	/* flag in /proc/net/unix */
#define ANSWER_MAX (64U * 1024 * 1024)
#define ANSWER_MS 15000

struct ask {
	uint32_t job, step;
	bool one_step, json;
	unsigned found, failed;
};

static void fail(const char *why)
{
	fprintf(stderr, "ddp-status: %s\n", why);
}

/* "JOB" or "JOB.STEP" in the first len bytes of text. */
static int read_id(const char *text, size_t len, uint32_t *job, uint32_t *step,
		   bool *one_step)
{
	const char *dot = memchr(text, '.', len);
	size_t n = dot ? (size_t)(dot - text) : len;

	*one_step = dot;
	if (ddp_text_u32_n(text, n, 1, UINT32_MAX, job))
		return -1;
	return dot ? ddp_text_u32_n(dot + 1, len - n - 1, 0, UINT32_MAX,
				    step) : 0;
}

/* Is this the name of a socket that was asked for? Fills its owner. */
static bool name_fits(const struct ask *a, const char *name, uint32_t *uid)
{
	uint32_t job, step;
	size_t n;
	bool one;

	if (strncmp(name, PREFIX, strlen(PREFIX)))
		return false;
	name += strlen(PREFIX);
	n = strcspn(name, "/");
	if (!name[n] || ddp_text_u32_n(name, n, 0, UINT32_MAX, uid))
		return false;
	name += n + 1;
	n = strcspn(name, "/");
	if (!name[n] || read_id(name, n, &job, &step, &one) || !one)
		return false;
	return job == a->job && (!a->one_step || step == a->step) &&
		(getuid() == 0 || *uid == getuid());
}

/* A connection to the socket if it belongs to uid, or -1. */
static int dial(const char *name, uint32_t uid)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct ucred who;
	socklen_t len = sizeof(who);
	size_t n = strlen(name);
	/* Non-blocking: whoever's socket it is may let its queue run full. */
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);

	if (fd < 0 || n >= sizeof(addr.sun_path))
		goto fail;
	memcpy(addr.sun_path + 1, name + 1, n - 1);
	if (connect(fd, (struct sockaddr *)&addr,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) ||
	    who.uid != uid)
		goto fail;
	return fd;
fail:
	if (fd >= 0)
		close(fd);
	return -1;
}

/* More to read, or the end of it, before `until`? */
static bool readable(int fd, int64_t until)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left = until - ddp_io_now_ms();

	return left > 0 && poll(&p, 1, (int)left) == 1;
}

/* The whole answer; it may be large, so it grows. NULL: none in time. */
static json_t *read_answer(int fd)
{
	size_t size = 1U << 20;
	int64_t until = ddp_io_now_ms() + ANSWER_MS;
	char *text = NULL;
	size_t used = 0;
	json_t *doc = NULL;
	ssize_t n;

	for (;; size *= 2) {
		char *more = size <= ANSWER_MAX ? realloc(text, size) : NULL;

		if (!more)
			break;
		text = more;
		while (used < size) {
			if (!readable(fd, until))
				goto parse;
			n = read(fd, text + used, size - used);
			if (n < 0 && (errno == EINTR || errno == EAGAIN))
				continue;
			if (n <= 0)
				goto parse;
			used += (size_t)n;
		}
	}
parse:
	if (text)
		doc = json_loadb(text, used, 0, NULL);
	free(text);
	return doc;
}

static const char *text_of(const json_t *o, const char *key, char *buf,
			   size_t size)
{
	const char *text = json_string_value(json_object_get(o, key));

	return ddp_text_safe(text ? text : "-", buf, size);
}

static long long number_of(const json_t *o, const char *key)
{
	return (long long)json_integer_value(json_object_get(o, key));
}

/* Ranks by the states of the life-cycle library: "2 ready, 6 running". */
static void print_lifecycle(const json_t *doc)
{
	json_t *counts = json_object_get(doc, "lifecycle");
	const char *key, *between = "lifecycle: ";
	json_t *n;
	char name[32];

	if (!json_is_object(counts))
		return;
	json_object_foreach(counts, key, n)
		if (json_integer_value(n) > 0) {
			printf("%s%lld %s", between,
			       (long long)json_integer_value(n),
			       ddp_text_safe(key, name, sizeof(name)));
			between = ", ";
		}
	putchar('\n');
}

static void print_rank(const json_t *r, bool life)
{
	char node[128], state[32], sig[24], stage[32];
	const json_t *code = json_object_get(r, "code");
	const json_t *signal = json_object_get(r, "signal");

	printf("%7lld  %-20s %9lld  ", number_of(r, "rank"),
	       text_of(r, "node", node, sizeof(node)), number_of(r, "pid"));
	if (life)
		printf("%-9s  ", text_of(r, "lifecycle", stage,
					 sizeof(stage)));
	printf("%s", text_of(r, "status", state, sizeof(state)));
	if (json_is_integer(code))
		printf(" %lld", (long long)json_integer_value(code));
	if (json_is_integer(signal))
		printf(" %s", ddp_text_signame((int)json_integer_value(signal),
					       sig, sizeof(sig)));
	putchar('\n');
}

/* Whose controller it is: the kernel says so, the controller could lie. */
static const char *user_name(uint32_t uid, char *buf, size_t size)
{
	const struct passwd *pw = getpwuid((uid_t)uid);

	if (pw)
		return ddp_text_safe(pw->pw_name, buf, size);
	snprintf(buf, size, "%" PRIu32, uid);
	return buf;
}

static void print_table(const json_t *doc, uint32_t uid)
{
	const json_t *master = json_object_get(doc, "master");
	const json_t *up = json_object_get(doc, "uptime");
	const json_t *cause = json_object_get(doc, "cause");
	const json_t *ranks = json_object_get(doc, "ranks");
	bool life = json_is_object(json_object_get(doc, "lifecycle"));
	char a[512], b[512], user[64];
	long long n = number_of(doc, "world_size"), m = number_of(doc, "nodes");

	printf("step %lld.%lld of %s: %s, %lld rank%s on %lld node%s (%lld "
	       "ready), master %s:%lld, up %.1f s\n", number_of(doc, "job"),
	       number_of(doc, "step"), user_name(uid, user, sizeof(user)),
	       text_of(doc, "status", a, sizeof(a)), n, n == 1 ? "" : "s",
	       m, m == 1 ? "" : "s", number_of(doc, "nodes_ready"),
	       text_of(master, "addr", b, sizeof(b)),
	       number_of(master, "port"),
	       json_number_value(up));
	if (json_is_object(cause))
		printf("cause: %s\n", text_of(cause, "text", a, sizeof(a)));
	text_of(doc, "last_event", a, sizeof(a));
	if (a[0])
		printf("last: %s\n", a);
	print_lifecycle(doc);
	printf("%7s  %-20s %9s  %s%s\n", "RANK", "NODE", "PID",
	       life ? "LIFECYCLE  " : "", "STATE");
	for (size_t i = 0; i < json_array_size(ranks); i++)
		print_rank(json_array_get(ranks, i), life);
}

static void ask_one(struct ask *a, const char *name, uint32_t uid)
{
	int fd = dial(name, uid);
	json_t *doc;

	if (fd < 0)
		return;		/* it has just ended, or is not what it says */
	a->found++;
	doc = read_answer(fd);
	close(fd);
	if (!json_is_object(doc)) {
		fail("a controller gave no answer");
		a->failed++;
	} else if (a->json) {
		(void)json_object_set_new(doc, "uid", json_integer(uid));
		(void)json_dumpf(doc, stdout, JSON_ENSURE_ASCII |
				 JSON_PRESERVE_ORDER | JSON_COMPACT);
		putchar('\n');
	} else {
		print_table(doc, uid);
	}
	json_decref(doc);
}

/* Every listening socket of that name. */
static void ask_all(struct ask *a)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[512];
	unsigned flags;
	uint32_t uid;
	int at;

	while (f && fgets(line, sizeof(line), f)) {
		at = 0;
		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "%*s %*x %*x %x %*x %*x %*u %n", &flags,
			   &at) < 1 || !at || !(flags & LISTENS) ||
		    !name_fits(a, line + at, &uid))
			continue;
		ask_one(a, line + at, uid);
	}
	if (f)
		fclose(f);
}

static void not_here(const struct ask *a, const char *id)
{
	fprintf(stderr, "ddp-status: no step of job %" PRIu32 "%s that you may "
		"ask about is watched on this host%s.\nIt must run where "
		"the step's srun runs (in a batch job: the job's first node), "
		"as the job's user:\n"
		"  srun --jobid=%" PRIu32 " --overlap -N1 -n1 -w HOST "
		"ddp-status %s\n", a->job, a->one_step ? " with this number" :
		"", a->one_step ? "" : " by srun --ddp-launch", a->job, id);
}

static void usage(FILE *f)
{
	fputs("usage: ddp-status [--json] JOB[.STEP]\n\n"
	      "What the controllers of a job's --ddp-launch steps see: ranks, "
	      "nodes, pids, state.\nSee ddp-status(1).\n", f);
}

int main(int argc, char **argv)
{
	static const struct option table[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 }
	};
	struct ask a = { .json = false };
	int c;

	while ((c = getopt_long(argc, argv, "", table, NULL)) >= 0) {
		if (c == 'h') {
			usage(stdout);
			return 0;
		}
		if (c == 'V') {
			printf("ddp-status %s\n", PACKAGE_VERSION);
			return 0;
		}
		if (c != 'j')
			return 2;
		a.json = true;
	}
	if (optind + 1 != argc || read_id(argv[optind], strlen(argv[optind]),
					  &a.job, &a.step, &a.one_step)) {
		char shown[64];

		if (optind + 1 == argc)
			fprintf(stderr, "ddp-status: \"%s\" is no JOB or "
				"JOB.STEP, two numbers (of an array's task, "
				"the id that squeue -O JobID shows)\n",
				ddp_text_safe(argv[optind], shown,
					      sizeof(shown)));
		usage(stderr);
		return 2;
	}
	ask_all(&a);
	if (!a.found)
		not_here(&a, argv[optind]);
	if (fflush(stdout))
		return 1;
	return a.found && !a.failed ? 0 : 1;
}
