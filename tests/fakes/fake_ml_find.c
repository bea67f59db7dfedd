/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which scenario: FAKE_ML_SCENARIO in the environment, else beside the library
 * scenario.NODE, if the process was started with --label X@NODE, else
 * scenario. And which of its GPUs a device cgroup leaves to this process.
 */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCENARIO_MAX = 1 << 20, LABEL_MAX = 256 };

struct fake_scenario fake_scenario;

void fake_say(const char *format, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	fprintf(stderr, "fake libnvidia-ml: %s\n", text);
}

/*
 * At most max bytes of a file, ended with a NUL, to be freed; NULL with errno,
 * EFBIG if there is more.
 */
static char *read_all(const char *path, size_t max)
{
	char *text = malloc(max + 2);
	size_t have = 0;
	ssize_t got = 1;
	int fd = -1;

	if (!text)
		return NULL;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && got && have <= max) {
		got = read(fd, text + have, max + 1 - have);
		if (got < 0 && errno != EINTR)
			break;
		have += got > 0 ? (size_t)got : 0;
	}
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && got >= 0 && have <= max) {
		text[have] = '\0';
		if (have == strlen(text) || !strcmp(path, "/proc/self/cmdline"))
			return text;
		errno = EINVAL;
	} else if (fd >= 0 && got >= 0) {
		errno = EFBIG;
	}
	free(text);
	return NULL;
}

/* The NODE of --label X@NODE on this process's command line. */
static bool own_node(char node[LABEL_MAX])
{
	char *args = read_all("/proc/self/cmdline", 1 << 16);
	const char *arg, *at = NULL;
	bool next = false, good = false;

	/* read_all ends with one NUL more than the last argument. */
	for (arg = args; arg && *arg; arg += strlen(arg) + 1) {
		if (next || !strncmp(arg, "--label=", 8)) {
			at = strrchr(arg, '@');
			break;
		}
		next = !strcmp(arg, "--label");
	}
	if (at && at[1] && !strchr(at, '/'))
		good = fake_copy(node, LABEL_MAX, at + 1);
	free(args);
	return good;
}

/* The path of the scenario; false if it cannot be told. */
static bool find(char path[PATH_MAX])
{
	const char *given = getenv("FAKE_ML_SCENARIO"), *slash;
	char node[LABEL_MAX];
	Dl_info self;
	int dir, n;

	if (given && *given)
		return fake_copy(path, PATH_MAX, given);
	if (!dladdr(&fake_scenario, &self) || !self.dli_fname)
		return false;
	slash = strrchr(self.dli_fname, '/');
	dir = slash ? (int)(slash - self.dli_fname) : 1;
	if (!slash)
		self.dli_fname = ".";
	if (own_node(node)) {
		n = snprintf(path, PATH_MAX, "%.*s/scenario.%s", dir,
			     self.dli_fname, node);
		if (n < PATH_MAX && !access(path, F_OK))
			return true;
	}
	n = snprintf(path, PATH_MAX, "%.*s/scenario", dir, self.dli_fname);
	return n < PATH_MAX;
}

/* Room for the points of all curves: each has a colon. */
static bool make_points(struct fake_scenario *s, const char *text)
{
	size_t colons = 1;

	for (; *text; text++)
		colons += *text == ':';
	s->points = calloc(colons, sizeof(*s->points));
	s->maxpoints = s->points ? colons : 0;
	return s->points != NULL;
}

/* All lines of text, which it changes. -1 with a word on stderr. */
static int parse(struct fake_scenario *s, const char *path, char *text)
{
	static struct fake_line line;
	struct fake_unit *unit = NULL;
	const char *wrong = NULL;
	char *next;

	line.number = 0;
	for (; text && !wrong; text = next) {
		next = strchr(text, '\n');
		if (next)
			*next++ = '\0';
		line.number++;
		if (fake_line_split(&line, text) < 0)
			wrong = "an open quote, or too many words";
		else if (line.count)
			wrong = fake_line_parse(s, &unit, &line);
	}
	if (wrong)
		fake_say("%s, line %u: %s", path, line.number, wrong);
	return wrong ? -1 : 0;
}

/* The driver shows a GPU to those who may open its device. */
static void look_at_devices(struct fake_scenario *s)
{
	char path[PATH_MAX + 32];
	unsigned i;
	int fd;

	for (i = 0; s->devdir[0] && i < s->ngpus; i++) {
		snprintf(path, sizeof(path), "%s/nvidia%u", s->devdir,
			 s->gpu[i].minor);
		fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		s->gpu[i].hidden = fd < 0 && (errno == EPERM ||
					      errno == EACCES);
		if (fd >= 0)
			close(fd);
	}
}

static void reset(struct fake_scenario *s)
{
	free(s->points);
	s->points = NULL;
	s->npoints = s->maxpoints = 0;
	s->origin = 0;
	s->period = 0;
	s->wrap32 = true;
	s->ngpus = s->nrules = 0;
	s->devdir[0] = s->log[0] = '\0';
	fake_copy(s->driver, sizeof(s->driver), "580.95");
	fake_copy(s->nvml, sizeof(s->nvml), "13");
}

int fake_scenario_load(void)
{
	struct fake_scenario *s = &fake_scenario;
	char path[PATH_MAX], *text = NULL;
	int rc = ML_UNKNOWN;

	reset(s);
	if (!find(path)) {
		fake_say("its own path is not to be found");
		return ML_UNKNOWN;
	}
	text = read_all(path, SCENARIO_MAX);
	if (!text) {
		fake_say("%s: %s", path, strerror(errno));
		return errno == ENOENT ? ML_NO_DRIVER : ML_UNKNOWN;
	}
	if (!make_points(s, text))
		rc = ML_MEMORY;
	else if (!parse(s, path, text) && fake_log_open())
		rc = ML_OK;
	if (!rc)
		look_at_devices(s);
	free(text);
	return rc;
}
