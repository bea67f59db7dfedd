/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accounting plugin's thread beside those of slurmstepd, which this process
 * plays: its title does not say which step it is, so there is nothing to find.
 */
#define _GNU_SOURCE
#include "config.h"

#include "accounting/acct_watch.h"
#include "tests/unit/check_main.h"

#include <unistd.h>

static bool over(void)
{
	bool is;

	pthread_mutex_lock(&acct_watch.lock);
	is = acct_watch.over;
	pthread_mutex_unlock(&acct_watch.lock);
	return is;
}

/* Each of these interrupts every thread, whatever signals it blocks. */
START_TEST(changes_of_ids_do_not_end_it)
{
	ck_assert_int_eq(acct_watch_start(), 0);
	for (int i = 0; i < 120000; i++)
		ck_assert_int_eq(setegid(getegid()), 0);
	ck_assert(!over());
	acct_watch_end();
	ck_assert(over());
}
END_TEST

START_TEST(its_end_ends_it)
{
	ck_assert_int_eq(acct_watch_start(), 0);
	usleep(20000);
	ck_assert(!over());
	acct_watch_end();
	ck_assert(over());
	ck_assert(!acct_watch.have_totals);
}
END_TEST

int main(void)
{
	const TTest *const list[] = {
		changes_of_ids_do_not_end_it,
		its_end_ends_it,
	};

	return check_run("acct_watch", list, CHECK_COUNT(list), NULL);
}
