/* SPDX-License-Identifier: Apache-2.0 */
/* One main() for the unit tests: a suite of one case with a list of tests. */
#ifndef CHECK_MAIN_H
#define CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>

#define CHECK_COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* setup may be NULL. Returns the exit status of the test program. */
static int check_run(const char *name, const TTest *const *tests, size_t n,
		     void (*setup)(void))
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	if (setup)
		tcase_add_checked_fixture(tc, setup, NULL);
	for (size_t i = 0; i < n; i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
