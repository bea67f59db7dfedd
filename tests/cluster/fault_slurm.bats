#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The fault matrix: what Slurm and its users do to a step is no failure of it.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of fault.bash

load lib
load launch
load fault

setup_file()
{
	cluster_init
	# A requeued job waits until old credentials are void: 5 s, not 120.
	# Heterogeneous jobs wait for the backfill scheduler.
	fault_up --conf "$FAST_SBATCH,bf_interval=1" --conf \
		"AuthInfo=socket=$CLUSTER_DIR/run/munge.sock,cred_expire=5"
}

teardown_file() { launch_down; }
setup() { fault_setup; }

teardown()
{
	# A test that failed may have left one stopped.
	kill -CONT "$(cluster_pid "slurmd-${NODE[1]}")" 2>/dev/null || true
	fault_teardown
}

# cancelled SECONDS: the step ended so, and is no failure.
cancelled()
{
	finish_step "$1"
	if ((status == 0)) || [[ $stderr == *"failed first"* ]]; then
		echo "exit code $status"
		told
		return 1
	fi
	gone 2
}

# --- scancel --------------------------------------------------------------------

@test "scancel of a job in the queue" {
	SHAPE+=(--exclusive)
	in_cluster sbatch -o /dev/null --exclusive -N2 --wrap "sleep 60"
	wait_until 10 has_state RUNNING
	start_step '*:join,sleep'
	wait_until 10 has_state PENDING
	since_now
	in_cluster scancel "$(in_cluster squeue -h -t PENDING -o %i)"
	cancelled 5
	same "" "$(ls ranks)"
	[[ ! -e $REPORT ]] || same cancelled "$(report status)"
	in_cluster scancel --user=root
	clean
}

has_state() { in_cluster squeue -h -o %T | grep -qx "$1"; }

@test "scancel of a step and of a job at the barrier" {
	for what in step_id job_id; do
		kill -STOP "$(cluster_pid "slurmd-${NODE[1]}")"
		start_step '*:join,sleep'
		wait_until 10 at_barrier
		sleep 1		# slurmstepd takes signals once it is "running"
		in_cluster scancel "$($what)"
		# Slurm needs the stopped slurmd too; fault_net has a barrier
		# without that.
		sleep 1
		run ! at_barrier
		kill -CONT "$(cluster_pid "slurmd-${NODE[1]}")"
		cancelled 15
		# No program was started, before or after.
		same "" "$(ls ranks)"
		clean
	done
}

# at_barrier: two tasks of this cluster wait for the plan. Their name is not
# slurmstepd's, for linuxproc would not end them; its files they still have.
at_barrier()
{
	local p n=0
	while read -r p; do
		[[ -z $(find "${p%/comm}/fd" -lname "*$CLUSTER_DIR/*" -print \
			-quit 2>/dev/null) ]] || n=$((n + 1))
	done < <(grep -lx ddp-wait /proc/[0-9]*/comm 2>/dev/null)
	((n >= 2))
}

@test "scancel of a step and of a job that runs" {
	for what in step_id job_id; do
		rm -f ranks/*
		start_step '*:join,sleep'
		happened 4 joined
		in_cluster scancel "$($what)"
		cancelled 6
		same cancelled "$(report status)"
		clean
	done
}

@test "scancel while a gang is being ended" {
	TIMERS=(--ddp-node-timeout=1 --ddp-grace=5)
	for what in step_id job_id; do
		rm -f ranks/*
		start_step '3:join,exit=7' '*:ignore=15,join,sleep'
		happened 4 joined
		sleep 0.5
		in_cluster scancel -s KILL "$($what)"
		finish_step 8
		((status != 0))
		gone 2
		# It had failed before.
		says "rank 3 on node ${NODE[1]} failed first: exited with code 7"
		clean
	done
}

@test "case 26: a program that needs some time after TERM has KillWait" {
	# Longer than --ddp-grace, shorter than KillWait, which is 3 here.
	# (scancel of a step kills at once; so does Slurm without this project.)
	start_step '*:term=2000,join,sleep'
	happened 4 joined
	in_cluster scancel "$(job_id)"
	finish_step 8
	says_not "failed first"
	same "1 1 1 1" "$(for r in 0 1 2 3; do count saved $r; done | xargs)"
	same "1 1 1 1" "$(for r in 0 1 2 3; do count term $r; done | xargs)"
	clean
}

@test "case 26: ranks that end at different times after TERM" {
	start_step '0:term=100,join,sleep' '1:join,sleep' '*:term=2000,join,sleep'
	happened 4 joined
	in_cluster scancel "$(job_id)"
	cancelled 8
	same "1 1 1" "$(for r in 0 2 3; do count saved $r; done | xargs)"
	clean
}

@test "the time limit" {
	[[ -n ${DDP_LONG:-} ]] || skip "takes more than a minute: with --all"
	# Ranks that end well after TERM: srun's code is what plain srun's is, and
	# no failure is named.
	OPTS=(--time=1)
	LIMIT=200
	as_nobody srun -N2 --ntasks-per-node=2 --time=1 sh -c '
		trap "sleep 2; exit 0" TERM
		sleep 1000 & wait' >plain.out 2>&1 </dev/null 3>&- &
	plain=$!
	start_step '*:term=2000,join,sleep'
	happened 4 joined
	finish_step 190
	gone 2
	says "TIME LIMIT"
	says_not "failed first"
	same "1 1 1 1" "$(for r in 0 1 2 3; do count saved $r; done | xargs)"
	code=0
	wait "$plain" || code=$?
	grep "TIME LIMIT" plain.out
	same "$code" "$status"
	clean
}

@test "requeue: the old ranks are gone, the new ones start" {
	srun_args
	cat >job <<-Z
		#!/bin/sh
		#SBATCH -N2 --ntasks-per-node=2 --requeue -o $DIR/out
		test -z "\$SLURM_RESTART_COUNT" ||
			exec ${ARGS[*]} $PROG '*:join,print=again'
		${ARGS[*]} $PROG '*:join,sleep'
	Z
	id=$(as_nobody sbatch --parsable job)
	happened 4 joined
	in_cluster scontrol requeue "$id"
	gone 8
	wait_until 150 says_again
	wait_until 10 no_jobs
	clean
}

says_again() { (($(grep -c again "$DIR/out") == 4)); }
no_jobs() { [[ -z $(in_cluster squeue -h) ]]; }

# --- not dead, only stopped --------------------------------------------------------

@test "a rank that is stopped is not a dead one" {
	start_step '*:join,after=2500'
	happened 4 joined
	kill -STOP "$(rank_pid 1)" "$(rank_pid 2)"
	sleep 3.5
	events 2 end
	kill -CONT "$(rank_pid 1)" "$(rank_pid 2)"
	finish_step 8
	ended 0 12
	quiet
	clean
}

@test "a stopped rank is ended with its gang" {
	start_step '3:join,until=now,exit=7' '*:join,sleep'
	happened 4 joined
	kill -STOP "$(rank_pid 1)" "$(rank_pid 2)"
	since_now
	: >now
	finish_step 5
	ended 7 4
	named 3 "exited with code 7"
	clean
}

@test "scontrol suspend and resume" {
	start_step '*:join,after=1500'
	happened 4 joined
	job=$(job_id)
	in_cluster scontrol suspend "$job"
	sleep 3.5
	in_cluster scontrol resume "$job"
	finish_step 10
	ended 0 12
	quiet
	clean
}

# srun and its controller are in the job then, and stand still as well.
@test "scontrol suspend and resume of a batch job" {
	srun_args
	cat >job <<-Z
		#!/bin/sh
		#SBATCH -N2 --ntasks-per-node=2 -o $DIR/out -e $DIR/err
		${ARGS[*]} $PROG '*:join,after=1500'
		echo "srun said $?" >&2
	Z
	sed -i 's/srun said [0-9]*/srun said $?/' job
	id=$(as_nobody sbatch --parsable job)
	happened 4 joined
	in_cluster scontrol suspend "$id"
	sleep 4
	in_cluster scontrol resume "$id"
	wait_until 15 no_jobs
	same "srun said 0" "$(grep -h -e ddp: -e "srun said" "$DIR/err")"
	clean
}

@test "scancel of a suspended job" {
	start_step '*:join,sleep'
	happened 4 joined
	job=$(job_id)
	in_cluster scontrol suspend "$job"
	sleep 1.5
	in_cluster scancel "$job"
	cancelled 10
	clean
}

# --- signals of the user ------------------------------------------------------------

@test "case 24: scancel -s USR1 reaches each rank once" {
	start_step '*:catch=10,join,after=2500'
	happened 4 joined
	in_cluster scancel -s USR1 "$(step_id)"
	sleep 1
	for rank in 0 1 2 3; do
		same 1 "$(count caught10 "$rank")"
	done
	finish_step 8
	ended 0 8
	quiet
	clean
}

@test "a rank that dies of the user's signal is a failure" {
	start_step '2:join,sleep' '*:catch=10,join,sleep'
	happened 4 joined
	in_cluster scancel -s USR1 "$(step_id)"
	finish_step 8
	ended 138 8
	named 2 "killed by SIGUSR1"
	clean
}

# --- other steps --------------------------------------------------------------------

@test "heterogeneous steps: any component's rank ends all" {
	in_het()
	{
		SHAPE=(-N1 -n1 -w "${NODE[1]}")
		srun_args
		run --separate-stderr as_nobody "${ARGS[@]}" "$PROG" "$@" : \
			-N1 -n2 -w "${NODE[0]}" "$PROG" "$@"
		stderr=$(without_waiting <<<"$stderr")
	}
	in_het '*:join,print=hello'
	same "0 " "$status $stderr"
	says_times 3 hello
	for rank in 0 2; do
		rm -f ranks/*
		in_het "$rank:join,exit=7" '*:join,sleep'
		same 7 "$status"
		named "$rank" "exited with code 7" "${NODE[!rank]}"
	done
	clean
}

@test "one job's two steps at once do not end each other" {
	cat >both <<-'Z'
		rank=$1
		shift
		"$@" --exact "--ddp-report-file=$PWD/first" "$rank" \
			'3:join,after=300,exit=7' '*:join,sleep' 2>err1 &
		"$@" --exact "$rank" '*:join,after=1500' 2>err2
		echo "second $?"
		wait $!
		echo "first $?"
	Z
	srun_args
	run --separate-stderr as_nobody salloc -Q -N2 -n8 sh both "$PROG" \
		"${ARGS[@]}"
	says "second 0" "first 7"
	clean
}

@test "many steps in a row leave nothing" {
	n=${DDP_LONG:+200}
	cat >loop <<-'Z'
		rank=$1 n=$2
		shift 2
		for i in $(seq "$n"); do
			case $((i % 4)) in
			0) "$@" "$rank" '1:join,exit=3' '*:join,watch' ;;
			1) "$@" "$rank" '*:join' ;;
			2) "$@" "$rank" '2:segv' '*:join,sleep' ;;
			3) "$@" "$rank" '*:exit=0' ;;
			esac 2>>err
			echo "$i $?"
		done
	Z
	srun_args
	before=$(daemon_files)
	LIMIT=600
	run --separate-stderr as_nobody salloc -Q -N2 -n4 bash loop "$PROG" \
		"${n:-24}" "${ARGS[@]}"
	same "${n:-24}" "$(wc -l <<<"$output")"
	same "0 139 3" "$(cut -d ' ' -f 2 <<<"$output" | sort -u | xargs)"
	clean
	wait_until 15 daemons_as_before "$before" ||
		same "$before" "$(daemon_files)"
}

# daemon_files: how many each of Slurm's daemons has open.
daemon_files()
{
	local d
	for d in slurmctld "${NODE[@]/#/slurmd-}"; do
		find "/proc/$(cluster_pid "$d")/fd" -mindepth 1 | wc -l
	done
}

daemons_as_before() { [[ $(daemon_files) == "$1" ]]; }

@test "afterwards the logs are clean" { logs_clean; }
