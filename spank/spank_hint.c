/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "spank/spank_ddp.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does the first MiB of the file contain the word anywhere? */
static bool file_mentions(const char *path, const char *word)
{
	char *text = malloc((1 << 20) + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t used = 0;
	ssize_t n;
	bool found = true;	/* what cannot be read is not complained of */

	while (text && fd >= 0 && used < 1 << 20 &&
	       (n = read(fd, text + used, (1 << 20) - used)) > 0)
		used += (size_t)n;
	if (used)
		found = memmem(text, used, word, strlen(word));
	if (fd >= 0)
		close(fd);
	free(text);
	return found;
}

/* The batch script is left alone; it only hears if it launches nothing. */
void ddp_hint_batch(spank_t sp)
{
	char mode[16], **argv = NULL;
	int argc = 0;

	if (spank_getenv(sp, "SLURM_DDP_LAUNCH", mode, sizeof(mode)) !=
	    ESPANK_SUCCESS || !strcmp(mode, "off") ||
	    spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS ||
	    argc < 1 || !argv || !argv[0])
		return;
	if (!file_mentions(argv[0], "srun") &&
	    !file_mentions(argv[0], "mpirun") &&
	    !file_mentions(argv[0], "mpiexec"))
		dprintf(STDERR_FILENO, DDP_MSG "hint: --ddp-launch was given "
			"to sbatch, but the script calls no srun: the script "
			"itself is not launched as ranks; write \"srun "
			"python3 train.py\" in it\n");
}
