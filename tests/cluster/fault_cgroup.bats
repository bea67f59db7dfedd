#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The fault matrix with Slurm's cgroups: memory, and what they must not keep.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of fault.bash

load lib
load launch
load fault
load stubborn

setup_file()
{
	local c
	for c in freezer devices memory; do
		grep -qE "^[^ ]+ /sys/fs/cgroup/$c cgroup rw" /proc/mounts ||
			skip "no writable cgroup v1 here"
	done
	fault_up --cgroup=memory --conf DebugFlags=cgroup
}

teardown_file() { launch_down; }
setup()
{
	fault_setup
	HOW+=("=clean") COUNTED=
}


teardown() { fault_teardown; }

@test "all well" {
	ends 0 10 '*:join,print=hello'
	same "" "$stderr"
	clean
}

@test "a rank takes more memory than its step has" {
	OPTS=(--mem=60)
	ends 137 10 '3:join,mem=300,sleep' '*:join,sleep'
	named 3 "killed by SIGKILL \\(out of memory\\)"
	clean
}

@test "a rank fails" {
	ends 7 5 '3:join,exit=7' '*:join,sleep'
	named 3 "exited with code 7"
	clean
}

@test "case 25: ranks that ignore SIGTERM, with daemons" { stubborn; }

@test "case 25: the rank that fails leaves a daemon" { stubborn_daemon; }

@test "case 25: the same when Slurm ends the step" { stubborn_cancel; }

@test "scontrol suspend and resume: the freezer is no failure" {
	start_step '*:join,after=1500'
	happened 4 joined
	job=$(job_id)
	in_cluster scontrol suspend "$job"
	sleep 3
	in_cluster scontrol resume "$job"
	finish_step 10
	ended 0 10
	quiet
	clean
}

@test "20 steps leave no cgroup" {
	srun_args
	for _ in {1..20}; do
		as_nobody "${ARGS[@]}" true
	done
	clean
}

@test "afterwards the logs are clean" { logs_clean; }
