/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with MPI that starts, runs and stops by ddp_lifecycle.h: all ranks
 * are ready before the first one works, and a rank that fails ends all.
 *
 *	mpicc life_mpi.c -o life_mpi -Wl,--no-as-needed -lddp_lifecycle
 *	srun --mpi=pmix -N2 --ntasks-per-node=2 --ddp-launch \
 *		--ddp-lifecycle ./life_mpi
 *
 * The library must come before MPI's: mpicc adds that at the end.
 */
#include <mpi.h>
#include <stdio.h>

#include <ddp_lifecycle.h>

int main(int argc, char **argv)
{
	int rank, size, sum = 0;

	if (ddp_init(&argc, &argv)) {
		fprintf(stderr, "ddp_init: %s\n", ddp_life_error());
		return 1;
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);

	/* Whoever is not here within a minute is the fault. */
	if (ddp_ready(NULL, NULL, 60))
		ddp_abort(1, ddp_life_error());
	if (!rank)
		printf("%d ranks are %s\n", size,
		       ddp_state_name(ddp_state()));

	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != size * (size - 1) / 2)
		ddp_abort(2, "the sum is wrong");
	if (!rank)
		printf("the sum of all ranks is %d\n", sum);

	if (ddp_finalize()) {
		fprintf(stderr, "ddp_finalize: %s\n", ddp_life_error());
		return 1;
	}
	return 0;
}
