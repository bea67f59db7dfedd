/* SPDX-License-Identifier: Apache-2.0 */
/* Between ddp-agent and ddp-place, see launcher/place_main.c. */
#ifndef PLACE_RESULT_H
#define PLACE_RESULT_H

#include <stdint.h>

#define PLACE_FD_RESULT 3
#define PLACE_FD_FILE 4
#define PLACE_FD_GO 5

/* From the last task's question to the answer; as long for the topology. */
#define PLACE_MS 10000

/* What the agent says. */
#define PLACE_CPUS 'c'		/* read the topology without devices, … */
#define PLACE_DEVICES 'd'	/* … with them; */
#define PLACE_GO 'g'		/* make the plan */

#define PLACE_MAGIC 0x504c4143U

struct place_result {
	uint32_t magic;
	uint32_t refused;	/* tasks */
};

#endif
