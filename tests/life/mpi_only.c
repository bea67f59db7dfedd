/* SPDX-License-Identifier: Apache-2.0 */
/* Of MPI alone it knows; what else is loaded is the tests' doing. */
int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);

int main(int argc, char **argv)
{
	if (MPI_Init(&argc, &argv))
		return 1;
	return MPI_Finalize();
}
