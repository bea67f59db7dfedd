/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a scenario as the fake NVML does, and then looks at every curve: 0, or
 * 1 if NVML does not start with it. For tests of the parser: as a program it
 * is built with sanitizers.
 */
#include "config.h"

#include "tests/fakes/fake_ml.h"

#include <stdlib.h>

int main(void)
{
	const struct fake_scenario *s = &fake_scenario;
	long double now;
	unsigned i, j;
	int id;

	if (fake_init(FN_nvmlInit_v2))
		return 1;
	now = fake_now();
	for (i = 0; i < s->ngpus; i++) {
		for (id = 0; id < CURVES; id++) {
			fake_counter(&s->gpu[i], id, now, 1);
			for (j = 0; j < s->gpu[i].nmigs; j++)
				fake_mean(&s->gpu[i].migs[j], id, now - 1, now);
		}
	}
	fake_done();
	free(fake_scenario.points);
	return 0;
}
