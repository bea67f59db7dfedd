#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# --ddp-lifecycle: programs of MPI and NCCL that break, on four nodes of two
# ranks each. NCCL is the fake of tests/life, MPI is the distribution's; both
# are this machine's, so only its own Slurm is tested.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of fault.bash

load lib
load launch
load fault

setup_file()
{
	local so
	# skip is for setup: here this bats takes it for a failure.
	[[ -z ${DDP_ROOT:-} ]] || return 0
	so=$(cd "$TESTS/../.." && contrib/build --quiet) || return 1
	BUILD=${so%/.libs/*}
	export BUILD
	# Slurm's PMIx plugin has a unix socket of each step there: a short path,
	# and one a node.
	PMIX=$(mktemp -d /var/tmp/ddp-l.XXXXXX)
	export PMIX
	chmod 755 "$PMIX"
	fault_up --nodes 4 --cpus 4 --conf "TmpFS=$PMIX/%n" || return 1
	cluster_env
	for n in $DEVCLUSTER_NODES; do
		mkdir "$PMIX/$n"
	done
}

teardown_file()
{
	[[ -z ${DDP_ROOT:-} ]] || return 0
	launch_down
	rm -rf -- "${PMIX:-/tmp/none}"
}

setup()
{
	[[ -z ${DDP_ROOT:-} ]] || skip "the programs are this machine's"
	fault_setup
	AS=in_cluster
	SHAPE=(-N4 --ntasks-per-node=2)
	TIMERS=()
	OPTS=(--ddp-lifecycle)
	# Open MPI takes the nodes for machines of their own, whose shared memory
	# has the same names; all of them are at the loopback interface.
	export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self
	export OMPI_MCA_btl_tcp_if_include=lo
}
teardown() { [[ -n ${DDP_ROOT:-} ]] || fault_teardown; }

# program NAME: of tests/life.
program()
{
	PROG=$BUILD/tests/life/$1
	[[ -x $PROG ]] || skip "no $1: no mpicc was found"
	MPI=(--mpi=none)
	[[ $1 != *mpi* ]] || MPI=(--mpi=pmix)
}

# run_life ARGS...: a step of the program, to its end. Open MPI 4.1's MPI_Init
# sometimes crashes on a busy machine: what did not start is started again.
run_life()
{
	for _ in 1 2 3; do
		rm -f id pids
		OPTS=("${MPI[@]}" --ddp-lifecycle "${MORE[@]}")
		if [[ $PROG == */life_nccl ]]; then
			step "$@" --id "$DIR/id" --pids "$DIR/pids"
		else
			step "$@" --pids "$DIR/pids"
		fi
		[[ $(grep -c '^start' pids) == 8 &&
			$stderr != *"Failing at address: (nil)"* ]] && return 0
	done
	told
	return 1
}
MORE=()

# ends_so CODE ARGS...: with this code; all ranks are gone within half a second
# of the fault, as the controller saw it.
ends_so()
{
	local code=$1 ms
	shift
	run_life "$@"
	ended "$code" 20
	ms=$(sed -n 's/.*all gone \([0-9]*\) ms later$/\1/p' <<<"$stderr")
	((${ms:-0} <= 500)) && return 0
	echo "all gone after $ms ms"
	told
	return 1
}

# first TEXT: rank 1 is named so.
first()
{
	grep -qE "^ddp: rank 1 on node ${NODE[0]} $1" <<<"$stderr" && return 0
	echo "not named: rank 1, $1"
	told
	return 1
}

@test "all well: nothing is said" {
	for p in life_mpi_nccl life_nccl life_mpi; do
		program $p
		run_life
		ended 0 20
		quiet
		same "ok None" "$(report status) $(report cause)"
		same "gone" "$(report ranks.7.lifecycle)"
	done
	clean
}

@test "a rank is killed in a collective of NCCL" {
	for p in life_mpi_nccl life_nccl; do
		program $p
		ends_so 137 --at nccl --by kill
		first "failed first: killed by SIGKILL"
		same 7 "$(report stopped.ranks)"
	done
	clean
}

@test "a rank exits with 7, also without finalizing anything" {
	for p in life_mpi_nccl life_nccl; do
		program $p
		ends_so 7 --at nccl --by _exit
		first "failed first: exited with code 7"
		ends_so 7 --at between --by exit
		first "failed first: exited with code 7"
	done
	clean
}

@test "MPI_Abort by two ranks" {
	program life_mpi_nccl
	ends_so 7 --at between --by mpiabort --two
	grep -qE "^ddp: rank [12] on node .* aborted first: MPI_Abort, code 7, exit code 7, pid" <<<"$stderr"
	same "abort 7" "$(report cause.kind) $(report cause.code)"
	clean
}

@test "an asynchronous error of NCCL" {
	FAKE_NCCL_ASYNC=$(printf '1500:6:%s,' 0 2 3 4 5 6 7)
	export FAKE_NCCL_ASYNC=${FAKE_NCCL_ASYNC%,}
	for p in life_mpi_nccl life_nccl; do
		program $p
		ends_so 1 --at nccl --by stall --iterations 1000
		says "aborted first: NCCL: asynchronous error 6"
	done
	clean
}

@test "a rank leaves with 0 while others need it" {
	program life_mpi_nccl
	ends_so 1 --at between --by exit --code 0
	first "ended first, with exit code 0, .*: it has not called MPI_Finalize, and 7 ranks still run\$"
	reported early-exit
	program life_nccl
	ends_so 1 --at between --by exit --code 0
	first "ended first, with exit code 0, .*: rank [0-9] waits for it in a collective of NCCL\$"
	reported early-exit
	clean
}

@test "the next program of a rank does not miss who left the one before" {
	program life_nccl
	printf '%s\n' '#!/bin/sh' \
		'at="--at between --by exit --code 0 --rank all"' \
		'"$PROG" --id "$DIR/a" --pids "$DIR/p1" $at || exit' \
		'exec "$PROG" --id "$DIR/b" --pids "$DIR/p2" --iterations 300' \
		>two.sh
	chmod 755 two.sh
	export PROG DIR
	launch -N4 --ntasks-per-node=2 --mpi=none --ddp-launch --ddp-lifecycle \
		./two.sh
	same "" "$stderr"
	clean
}

@test "ranks that all leave with 0 have not failed" {
	for p in life_mpi_nccl life_nccl; do
		program $p
		run_life --at between --by exit --code 0 --rank all
		ended 0 20
		same "ok" "$(report status)"
	done
	clean
}

@test "a rank that never gets ready is named" {
	MORE=(--ddp-ready-timeout=2)
	program life_nccl
	run_life --at after-id --by stall
	ended 75 20
	first "was not ready, pid [0-9]+, .*: 2 s after the first one had begun to initialise MPI or NCCL \(--ddp-ready-timeout\); not begun: rank 1 on ${NODE[0]}; waiting: "
	program life_mpi_nccl
	run_life --at after-id --by stall
	ended 75 20
	first "was not ready, pid [0-9]+, .*; not in the next initialisation: rank 1 on"
	reported not-ready
	clean
}

# status_is TEXT...: ddp-status says so.
status_is()
{
	run in_cluster ddp-status "$ID"
	says "$@"
}

@test "ddp-status shows the states" {
	program life_nccl
	OPTS=("${MPI[@]}" --ddp-lifecycle)
	start_step --at nccl --by stall --iterations 1000 --id "$DIR/id" \
		--pids "$DIR/pids"
	wait_until 10 grep -qs start pids
	ID=$(step_id)
	wait_until 10 status_is "lifecycle: 8 running"
	run -0 in_cluster ddp-status "$ID"
	[[ $(grep -cE '^ +[0-7]  .*  running    running$' <<<"$output") == 8 ]]
	run -0 in_cluster ddp-status --json "$ID"
	says '"lifecycle":{"none":0,"starting":0,"ready":0,"running":8,' \
		'"status":"running","lifecycle":"running"'
	in_cluster scancel "$ID"
	finish_step 20
	clean
}

@test "children of a rank: they are no ranks, and are gone with them" {
	program life_mpi_nccl
	run_life --children 2
	ended 0 20
	ends_so 137 --children 2 --at nccl --by kill
	first "failed first: killed by SIGKILL"
	same 16 "$(grep -c '^child' pids)"
	while read -r _ pid _; do
		wait_until 5 pid_gone "$pid"
	done < <(grep '^child' pids)
	clean
}

@test "scancel is nobody's fault" {
	program life_nccl
	OPTS=("${MPI[@]}" --ddp-lifecycle)
	start_step --at nccl --by stall --iterations 1000 --id "$DIR/id" \
		--pids "$DIR/pids"
	wait_until 10 grep -qs start pids
	ID=$(step_id)
	wait_until 10 status_is "lifecycle: 8 running"
	in_cluster scancel "$ID"
	finish_step 20
	[[ $stderr != *"ddp: rank"* ]]
	clean
}

@test "the unique id goes over the controller, without MPI" {
	for name in nccl.h cuda_runtime.h; do
		printf '%s\n' '#include "tests/fakes/fake_nccl.h"' \
			'#define ncclFloat ncclFloat32' >"$name"
	done
	top=$(cd "$TESTS/../.." && pwd)
	gcc -Wall -I. -I"$top" -I"$top/launcher" \
		"$top/contrib/examples/life_nccl.c" -o life_nccl \
		-Wl,--no-as-needed -L"$BUILD/.libs" -lddp_lifecycle \
		"$BUILD/tests/fakes/libnccl/libnccl.so.2" \
		-Wl,-rpath,"$BUILD/.libs:$BUILD/tests/fakes/libnccl"
	launch -N4 --ntasks-per-node=2 --mpi=none --ddp-launch --ddp-lifecycle \
		./life_nccl
	same "8 ranks, sum 8" "$output"
	same "" "$stderr"
	# Without an agent nobody carries it.
	fails in_cluster srun -N4 --ntasks-per-node=2 --mpi=none \
		--ddp-launch=stateless --ddp-lifecycle ./life_nccl
	says "there is no agent: nothing carries NCCL's unique id (start it by srun --ddp-launch=full --ddp-lifecycle"
}

@test "what a task gets" {
	lib=$CLUSTER_DIR/bin/libddp_lifecycle.so
	vars='echo "$LD_PRELOAD|$DDP_LIFECYCLE_SOCKET"'
	launch -n1 --ddp-launch --ddp-lifecycle sh -c "$vars"
	[[ $output =~ ^"$lib|@slurm-ddp/life/"[0-9]+\.0/[0-9a-f]{16}$ ]]
	# Before what the user has, and once.
	libm=$(ldconfig -p | sed -n 's/.*=> \(.*libm\.so\.6\)$/\1/p' | head -n 1)
	launch -n1 --export=ALL,LD_PRELOAD="$libm" --ddp-launch --ddp-lifecycle \
		sh -c "$vars"
	[[ $output == "$lib:$libm|@"* ]]
	launch -n1 --export=ALL,LD_PRELOAD="$lib" --ddp-launch --ddp-lifecycle \
		sh -c "$vars"
	[[ $output == "$lib|@"* ]]
	# But sanitizers, without which nothing starts.
	ln -s "$libm" libasan.so.8
	launch -n1 --export=ALL,LD_PRELOAD="$PWD/libasan.so.8" --ddp-launch \
		--ddp-lifecycle sh -c "$vars"
	[[ $output == "$PWD/libasan.so.8:$lib|@"* ]]
	launch -n1 --ddp-launch=stateless --ddp-lifecycle sh -c "$vars"
	same "$lib|" "$output"
	launch -n1 --ddp-launch --ddp-lifecycle=off sh -c "$vars"
	same "|" "$output"
	launch -n1 --ddp-launch sh -c "$vars"
	same "|" "$output"
	run -0 in_cluster env SLURM_DDP_LIFECYCLE=on srun -n1 --ddp-launch \
		sh -c "$vars"
	says "$lib|@"
	# A batch script's option is its steps'.
	printf '%s\n' '#!/bin/sh' '#SBATCH --ddp-launch' \
		'#SBATCH --ddp-lifecycle' "srun -n1 sh -c '$vars' >got" >job.sh
	sbatch_wait in_cluster -o /dev/null -n1 job.sh
	[[ $(<got) == "$lib|@"* ]]
	# And without the plugin.
	launch -n1 ddp-launch --lifecycle sh -c "$vars"
	same "$lib|" "$output"
	launch -n1 --ddp-launch --ddp-lifecycle --ddp-explain true
	says "LD_PRELOAD" "DDP_LIFECYCLE_SOCKET"
	launch -n1 --ddp-launch --ddp-ready-timeout=60 true
	says "ddp: warning: --ddp-ready-timeout has no effect without --ddp-lifecycle"
	launch -n1 --ddp-lifecycle true
	says "ddp: warning: --ddp-lifecycle has no effect without --ddp-launch"
}

@test "a library that is not there is said before anything starts" {
	lib=$CLUSTER_DIR/bin/libddp_lifecycle.so
	mv "$lib" "$lib.away"
	run --separate-stderr in_cluster srun -N2 -n2 --ddp-launch \
		--ddp-lifecycle touch ran
	full=$status said=$output$stderr
	run --separate-stderr in_cluster srun -N2 -n2 --ddp-launch=stateless \
		--ddp-lifecycle touch ran
	stateless=$status
	mv "$lib.away" "$lib"
	((full != 0 && stateless != 0))
	says "--ddp-lifecycle: $lib: No such file or directory; install it on every node (or name it by lifecycle_library= in plugstack.conf), mount it into the container, put it beside ddp-launch if you use that"
	output=$said stderr=''
	says "--ddp-lifecycle: $lib: No such file or directory"
	[[ ! -e ran ]]
	clean
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
