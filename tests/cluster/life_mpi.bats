#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The life-cycle library in real MPI jobs: cells of the hang matrix
# (tests/life/README.md) on one cluster, without the controller. With
# DDP_LONG=1 every cell that these MPIs have, beside the same without the
# library. With DDP_ROOT, the MPI of that root.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

# Where one breaks, and how, with Open MPI.
CELLS=(
	"fine" "kill in init" "kill in NCCL" "kill in MPI" "kill between"
	"kill in destroy" "kill in MPI_Finalize" "SIGTERM in NCCL"
	"exit 0, all ranks" "MPI_Abort in NCCL" "MPI_Abort in MPI"
	"MPI_Abort, a thread in init" "MPI_Abort by two" "asynchronous error"
	"forgets destroy" "aborts one of two" "fork, fine"
	"fork, kill in NCCL"
)
# What depends on the MPI: its start and end, its handles, how it hangs.
MPICH_CELLS=(
	"fine" "kill in init" "kill in MPI" "kill in MPI_Finalize"
	"exit 0, all ranks" "MPI_Abort in MPI" "MPI_Abort in NCCL"
	"asynchronous error" "forgets destroy"
)

setup_file()
{
	local so node
	[[ -n ${CLUSTER_DIR:-} ]] || cluster_init
	# PMIx' plugin wants a folder a node, and launch_up one that is there.
	launch_up --nodes 4 --cpus 4 --gpus 0 --no-gpu-acct --plugin none \
		--conf "$FAST_SBATCH" --conf "TmpFS=$CLUSTER_DIR/tmp/%n" ||
		return 1
	cluster_env
	for node in $DEVCLUSTER_NODES; do
		mkdir "$CLUSTER_TMP/$node"
	done
	so=$("$TESTS/../../contrib/build" --quiet) || return 1
	export BUILD=${so%/.libs/*}
	export LIBRARY=$BUILD/.libs/libddp_lifecycle.so
}

teardown_file() { launch_down; }

setup()
{
	launch_setup
	# As in tests/life/launchers.py.
	export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self
	export OMPI_MCA_btl_tcp_if_include=lo
}

# needs_mpi FILE PROGRAMS: this MPI's library on the nodes, and programs with it.
needs_mpi()
{
	[[ -x $BUILD/tests/life/$2 ]] ||
		skip "no MPI compiler where the project is built (libopenmpi-dev, libmpich-dev)"
	# mpicc may be another MPI's.
	readelf -d "$BUILD/tests/life/$2" | grep -qF "[$1]" ||
		skip "$2 was built with another MPI"
	in_cluster ldconfig -p | grep -q "$1" ||
		skip "no $1${DDP_ROOT:+ in $DDP_ROOT}"
}

# needs_type TYPE: of srun's --mpi.
needs_type()
{
	# On stderr, before 23.11.
	in_cluster srun --mpi=list 2>&1 | grep -qw "$1" ||
		skip "this Slurm has no --mpi=$1"
}

# matrix PROGRAM NAME...: these cells, all of them, or with DDP_LONG every one
# of the program's.
matrix()
{
	local program=$1 name args=() rows
	shift
	if [[ -n ${DDP_LONG:-} ]]; then
		args=(--only "srun/$program/")
	else
		args=(--skip-baseline)
		for name; do
			args+=(--cell "srun/$program/$name")
		done
	fi
	rows=$("$TESTS/../life/matrix.py" "${args[@]}" --list | wc -l)
	((rows >= $#))
	run timeout -k 60 $((60 + rows * ${DDP_LONG:+2}5)) \
		"$TESTS/../life/matrix.py" --at "$CLUSTER_DIR" \
		--programs "$PROGRAMS" --mpi "$TYPE" --library "$LIBRARY" \
		"${args[@]}"
	# What it took, in the log of the tests.
	printf '%s\n' "$output"
	((status == 0))
	same "$rows" "$(grep -c "^srun/$program/" <<<"$output")"
}

@test "Open MPI, --mpi=pmix: MPI and NCCL" {
	needs_mpi libmpi.so.40 life_mpi_nccl
	needs_type pmix
	PROGRAMS=$BUILD/tests/life TYPE=pmix
	matrix life_mpi_nccl "${CELLS[@]}"
	# Its launcher hands on what MPI_Abort was given.
	grep -q 'MPI_Abort in NCCL .* exit   7' <<<"$output"
}

@test "Open MPI, --mpi=pmix: MPI alone" {
	needs_mpi libmpi.so.40 life_mpi
	needs_type pmix
	PROGRAMS=$BUILD/tests/life TYPE=pmix
	matrix life_mpi fine "kill in MPI" "MPI_Abort in MPI"
}

@test "MPICH, --mpi=pmi2: MPI and NCCL" {
	needs_mpi libmpich.so.12 mpich/life_mpi_nccl
	needs_type pmi2
	PROGRAMS=$BUILD/tests/life/mpich TYPE=pmi2
	matrix life_mpi_nccl "${MPICH_CELLS[@]}"
}

@test "MPICH, --mpi=pmi2: MPI alone" {
	needs_mpi libmpich.so.12 mpich/life_mpi
	needs_type pmi2
	PROGRAMS=$BUILD/tests/life/mpich TYPE=pmi2
	matrix life_mpi fine "kill in MPI" "MPI_Abort in MPI"
}

@test "the library sees which MPI a program has" {
	needs_mpi libmpi.so.40 life_mpi
	export DDP_LIFECYCLE_VERBOSE=1
	run -0 in_cluster srun -n2 --mpi=pmix \
		--export="ALL,LD_PRELOAD=$LIBRARY" "$BUILD/tests/life/life_mpi"
	same 2 "$(grep -c 'MPI with Open MPI binary' <<<"$output")"
	needs_mpi libmpich.so.12 mpich/life_mpi
	run -0 in_cluster srun -n2 --mpi=pmi2 \
		--export="ALL,LD_PRELOAD=$LIBRARY" \
		"$BUILD/tests/life/mpich/life_mpi"
	same 2 "$(grep -c 'MPI with MPICH binary' <<<"$output")"
}

@test "PyTorch's gloo and its loaders of data, with the library" {
	in_cluster "$PYTHON" -c 'import torch' 2>/dev/null ||
		skip "no torch for $PYTHON${DDP_ROOT:+ in $DDP_ROOT}"
	DIR=$(new_dir)
	cp "$TESTS/../life/torch_rank.py" "$DIR"
	export DDP_LIFECYCLE_VERBOSE=1 GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
	run -0 --separate-stderr in_cluster srun -N2 -n2 --mpi=none \
		--export="ALL,LD_PRELOAD=$LIBRARY" sh -c \
		'exec "$0" "$1/torch_rank.py" $SLURM_PROCID 2 "$1/store"' \
		"$PYTHON" "$DIR"
	same "sum [360.0, 3720.0]
sum [360.0, 3720.0]" "$output"
	[[ $stderr != *slurm-ddp* ]]
}

# A job of two nodes whose ranks mpirun starts, for each way to break once as
# it is and once with the library. A line each: the code, and how many ranks
# began and reached their end.
cat_mpirun_job()
{
	cat <<-'X'
	#!/bin/bash
	one()
	{
		local rc
		rm -f pids
		timeout -k 5 30 mpirun --allow-run-as-root "${WITH[@]}" \
			"$PROGRAM" --pids "$PWD/pids" "$@" >out 2>&1
		rc=$?
		echo "$rc, $(grep -c ^start pids) of 4, $(grep -c ^end pids) ends: $*"
		((rc != 124)) || cat out
	}
	for preload in "" "$LIBRARY"; do
		WITH=(${preload:+-x "LD_PRELOAD=$preload"})
		one
		one --at mpi --by mpiabort
		one --at nccl --by kill
		one --at between --by _exit --code 5
	done
	X
}

@test "mpirun in sbatch: with the library what it is without" {
	[[ -z ${DDP_ROOT:-} ]] || skip "one is enough"
	needs_mpi libmpi.so.40 life_mpi_nccl
	command -v mpirun >/dev/null || skip "no mpirun (openmpi-bin)"
	mpirun --version | grep -q 'Open MPI' || skip "mpirun is another MPI's"
	DIR=$(new_dir)
	cd "$DIR"
	cat_mpirun_job >job
	export PROGRAM=$BUILD/tests/life/life_mpi_nccl LIBRARY
	export OMPI_MCA_oob_tcp_if_include=lo
	sbatch_wait in_cluster -N2 --ntasks-per-node=2 -o result job
	cat result
	same 8 "$(wc -l <result)"
	# Nothing but mpirun's own: the first half is the second one's model.
	same "$(head -n 4 result)" "$(tail -n 4 result)"
	grep -q '^0, 4 of 4, 4 ends: $' result
	grep -q '^7, 4 of 4, 0 ends: --at mpi --by mpiabort$' result
	grep -q '^137, 4 of 4, 0 ends: --at nccl --by kill$' result
	grep -q '^5, 4 of 4, 0 ends: --at between' result
}
