/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun's end of the channel: what the controller says is printed, and the
 * code it names becomes the exit code. Each test runs a child as srun and
 * plays the controller.
 */
#include "config.h"

#include "core/ddp_io.h"
#include "spank/spank_ddp.h"
#include "tests/unit/check_main.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int channel, said;
static pid_t srun;
static char text[8192];

/* A child that runs body() and exits with its result. */
static void start(int (*body)(void))
{
	int pair[2], out[2];

	ck_assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	ck_assert(!pipe(out));
	srun = fork();
	ck_assert_int_ge(srun, 0);
	if (!srun) {
		close(pair[0]);
		dup2(out[1], STDERR_FILENO);
		close(out[0]);
		close(out[1]);
		ddp_channel_init();
		if (ddp_channel_start(pair[1], 0, NULL))
			_exit(99);
		exit(body());
	}
	close(pair[1]);
	close(out[1]);
	channel = pair[0];
	said = out[0];
}

/* Status of the child; what it printed is in text. */
static int finish(void)
{
	char *all = ddp_io_read_all(said, sizeof(text), 20000);
	int status = -1;

	ck_assert_ptr_nonnull(all);
	strcpy(text, all);
	free(all);
	ck_assert(!ddp_io_wait(srun, &status));
	close(said);
	return status;
}

static void expect(const char *line)
{
	char buf[64];
	ssize_t n = read(channel, buf, sizeof(buf) - 1);

	buf[n > 0 ? n : 0] = '\0';
	ck_assert_str_eq(buf, line);
}

static int three(void) { return 3; }
static int none(void) { return 0; }

static int asleep(void)
{
	while (pause() < 0)
		;
	return 0;
}

START_TEST(code_of_the_cause)
{
	start(three);
	expect("exit 3\n");
	ck_assert(!ddp_io_write_all(channel, "say a b\nsay c\nend 7\n"));
	ck_assert_int_eq(WEXITSTATUS(finish()), 7);
	ck_assert_str_eq(text, "ddp: a b\nddp: c\n");
}
END_TEST

START_TEST(no_cause)
{
	start(three);
	expect("exit 3\n");
	ck_assert(!ddp_io_write_all(channel, "end -1\n"));
	ck_assert_int_eq(WEXITSTATUS(finish()), 3);
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(controller_is_gone)
{
	start(three);
	close(channel);
	ck_assert_int_eq(WEXITSTATUS(finish()), 75);
	ck_assert(strstr(text, "ddp-controller has died"));
	start(none);
	close(channel);
	ck_assert_int_eq(WEXITSTATUS(finish()), 0);
}
END_TEST

/* It is stopped, say: the wait has an end, and says why. */
START_TEST(controller_is_deaf)
{
	start(three);
	expect("exit 3\n");
	ck_assert_int_eq(WEXITSTATUS(finish()), 75);
	ck_assert(strstr(text, "ddp-controller does not answer"));
}
END_TEST

START_TEST(heard_and_answered)
{
	start(three);
	expect("exit 3\n");
	ck_assert(!ddp_io_write_all(channel, "wait 0\nend 9\n"));
	ck_assert_int_eq(WEXITSTATUS(finish()), 9);
	ck_assert_str_eq(text, "");
}
END_TEST

/* Other characters only where the terminal takes them for such. */
START_TEST(locales)
{
	static const char *const wide[] = { "de_DE.UTF-8", "C.utf8" };
	static const char *const narrow[] = { "C", "de_DE", "" };

	ck_assert(!unsetenv("LC_ALL") && !unsetenv("LC_CTYPE"));
	for (unsigned i = 0; i < 5; i++) {
		ck_assert(!setenv("LANG", i < 2 ? wide[i] : narrow[i - 2], 1));
		start(three);
		expect("exit 3\n");
		ck_assert(!ddp_io_write_all(channel, "say \xe2\x9c\x93 x\nend 7"
					    "\n"));
		ck_assert_int_eq(WEXITSTATUS(finish()), 7);
		ck_assert_str_eq(text, i < 2 ? "ddp: \xe2\x9c\x93 x\n" :
				 "ddp: ??? x\n");
	}
}
END_TEST

START_TEST(told_to_quit)
{
	start(asleep);
	ck_assert(!ddp_io_write_all(channel, "say lost n3\nquit 75\n"));
	ck_assert_int_eq(WEXITSTATUS(finish()), 75);
	ck_assert_str_eq(text, "ddp: lost n3\n");
}
END_TEST

/* srun forks; what such a child ends with is its own. */
static int forks(void)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		exit(5);
	ddp_io_wait(pid, &status);
	return WEXITSTATUS(status);
}

START_TEST(only_in_srun_itself)
{
	start(forks);
	expect("exit 5\n");
	ck_assert(!ddp_io_write_all(channel, "end 6\n"));
	ck_assert_int_eq(WEXITSTATUS(finish()), 6);
}
END_TEST

START_TEST(garbage_does_no_harm)
{
	char *big = malloc(300000);

	ck_assert_ptr_nonnull(big);
	memset(big, 'x', 299999);
	big[299999] = '\0';
	start(three);
	ck_assert(!ddp_io_write_all(channel, big));
	ck_assert(!ddp_io_write_all(channel, "\nend 999\nend x\nquit -1\n"
				    "end 4\n"));
	ck_assert_int_eq(WEXITSTATUS(finish()), 4);
	free(big);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { code_of_the_cause, no_cause,
		controller_is_gone, controller_is_deaf,
		heard_and_answered, locales, told_to_quit, only_in_srun_itself,
		garbage_does_no_harm };

	return check_run("channel", tests, CHECK_COUNT(tests), NULL);
}
