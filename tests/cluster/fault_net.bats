#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The fault matrix: networks that are cut, case 27, and a controller that
# cannot be reached.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of fault.bash

load lib
load launch
load fault
load cut

setup_file() { cut_up --netns; }
teardown_file() { launch_down; }
setup() { cut_setup; }
teardown() { cut_teardown; }

@test "all well, and a failure, between networks" { cut_all_well; }

@test "a node is cut off while its rank runs" { cut_lost 2; }

@test "rank 0's node is cut off" { cut_lost 0; }

@test "srun's host is cut off: every rank ends" {
	start_step '*:ignore=15,join,sleep'
	happened 3 joined
	since_now
	cut_off_node head
	gone 4
	finish_step 25
	join_node head
	ended 75 25
	blamed node-lost "was lost first"
	cut_clean
}

@test "a cut that is shorter than the time limit is none" {
	TIMERS=(--ddp-node-timeout=5 --ddp-grace=1)
	start_step '*:join,after=5000'
	happened 3 joined
	cut_off_node "${NODE[1]}"
	sleep 2
	join_node "${NODE[1]}"
	finish_step 15
	ended 0 15
	quiet
	cut_clean
}

@test "a node that is cut off while the gang is being ended" {
	TIMERS=(--ddp-node-timeout=1 --ddp-grace=3)
	start_step '0:join,until=now,exit=7' '*:ignore=15,join,sleep'
	happened 3 joined
	since_now
	: >now
	sleep 0.5
	cut_off_node "${NODE[2]}"
	gone 6
	finish_step 25
	join_node "${NODE[2]}"
	ended 7 25
	says "rank 0 on node ${NODE[0]} failed first: exited with code 7" \
		"did not answer: ${NODE[2]}"
	cut_clean
}

# --- no way to the controller --------------------------------------------------------

@test "--ddp-control=require: the launch fails, and says what to do" {
	for how in drop reject; do
		rm -f ranks/*
		OPTS=(--ddp-start-timeout=3)
		without_control "$how" "${NODE[1]}" -- '*:join,sleep'
		finish_step 15
		ended 75 15
		says "${NODE[1]}" --ddp-control=prefer
		same launch-failed "$(report status)"
		same "" "$(ls ranks)"
		cut_clean
		cut_restore
	done
}

@test "scancel of a step and of a job at the barrier works at once" {
	OPTS=(--ddp-start-timeout=60)
	for what in step_id job_id; do
		without_control drop "${NODE[1]}" -- '*:join,sleep'
		wait_until 10 at_barrier
		sleep 0.5
		since_now
		in_cluster scancel "$($what)"
		finish_step 8
		((status != 0))
		says_not "failed first"
		same "" "$(ls ranks)"
		cut_clean
		cut_restore
	done
}

# at_barrier: all tasks wait for the plan, under a name of their own.
at_barrier() { (($(grep -lx ddp-wait /proc/[0-9]*/comm 2>/dev/null | wc -l) >= 3)); }

@test "--ddp-control=prefer: it starts without, with one warning" {
	for how in drop reject; do
		rm -f ranks/*
		OPTS=(--ddp-start-timeout=4 --ddp-control=prefer)
		without_control "$how" "${NODE[@]}" -- '*:join,print=hello'
		finish_step 20
		ended 0 20
		says_times 3 hello
		says_times 1 "ddp: warning"
		cut_clean
		cut_restore
	done
}

@test "--ddp-control=prefer where one node has no way" {
	OPTS=(--ddp-start-timeout=4 --ddp-control=prefer)
	without_control drop "${NODE[2]}" -- '*:join,print=hello'
	finish_step 20
	ended 0 20
	says_times 3 hello
	says_times 1 "ddp: warning"
	cut_clean
}

@test "afterwards the logs are clean" { logs_clean; }
