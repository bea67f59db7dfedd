#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The accounting of GPUs inside Slurm's cgroups: the sampler is not in the
# step's, and a sampler that the kernel does not let die keeps nothing.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of acct_fault.bash

load lib
load launch
load acct_fault

setup_file()
{
	local c
	[[ -z ${DDP_ROOT:-} ]] || skip "cgroup v1 with 22.05 only"
	for c in freezer devices memory; do
		grep -qE "^[^ ]+ /sys/fs/cgroup/$c cgroup rw" /proc/mounts ||
			skip "no writable cgroup v1 here"
	done
	faulty_up --nodes 4 --cgroup=memory --conf DebugFlags=cgroup
}

teardown_file() { launch_down; }
setup() { faulty_setup; }

teardown()
{
	[[ -z ${ICE:-} ]] || thaw
	faulty_teardown
}

@test "the sampler is in no cgroup of the step" {
	begin 0 3
	sampling 0
	sleep 0.3
	run ! grep -F /slurm "/proc/$(sampler_of 0)/cgroup"
	run grep -F /slurm "/proc/$(stepd_of 0)/cgroup"
	same 0 "$status"
	finish 0
	covers 0 2700 3400
	clean
}

@test "cancelled, killed, out of memory, suspended" {
	for k in 0 1 2; do begin "$k" 60; done
	OPTS=(--mem=60)
	begin_cmd 3 "$PYTHON" -c 'import time; time.sleep(3); x = b"x" * (300 << 20); time.sleep(60)'
	running 0 1 2 3
	in_cluster scontrol suspend "$(id_of 2 | cut -d . -f 1)"
	sleep 2.5
	in_cluster scontrol resume "$(id_of 2 | cut -d . -f 1)"
	for k in 0 2; do in_cluster scancel "$(id_of "$k" | cut -d . -f 1)"; done
	in_cluster scancel -s KILL "$(id_of 1 | cut -d . -f 1)"
	END_US=${EPOCHREALTIME/./}
	rm -f ./*.end
	for k in 0 1 2 3; do
		wait "${SRUN[k]}" || true
		wait_until 10 pid_gone "$(stepd_of "$k")"
	done
	for k in 0 1 2; do
		stepd_in_time "$k" "$END_US"
		[[ $(state_of "$k") == CANCELLED* ]]
		covers "$k" 2300 4500
	done
	[[ $(state_of 3) == OUT_OF_ME* ]]
	covers 3 2700 5000
	clean
}

# As one that a call in the driver holds: it dies when that returns.
@test "a sampler that cannot be killed" {
	begin 0 3
	sampling 0
	sleep 0.6
	s=$(sampler_of 0)
	ICE=/sys/fs/cgroup/freezer/ddp-ice.$$
	mkdir "$ICE"
	echo "$s" >"$ICE/cgroup.procs"
	echo FROZEN >"$ICE/freezer.state"
	wait_until 5 grep -qx FROZEN "$ICE/freezer.state"
	finish 0
	covers 0 300 2500
	wait_until 5 all_idle
	# Another step on this node has a sampler of its own.
	[[ -e /proc/$s ]]
	begin 0 3
	finish 0
	covers 0 2700 3400
	thaw
	wait_until 5 pid_gone "$s"
	clean
}

thaw()
{
	echo THAWED >"$ICE/freezer.state" || true
	wait_until 5 rmdir "$ICE" 2>/dev/null
	ICE=''
}

@test "steps in a row leave no cgroup" {
	scenario 0
	LIMIT=120 as_nobody salloc -Q -w "${NODE[0]}" -n2 --gpus=2 --mem=300 bash -c '
		for i in {1..20}; do
			srun -Q -n2 --gpus=2 --mem=200 sleep 0.0$((i % 8))
		done'
	clean
	wait_until 10 no_step_groups
}

no_step_groups()
{
	[[ -z $(find /sys/fs/cgroup -path "*/slurm_${NODE[0]%1}*" -name 'step_*') ]]
}

@test "afterwards the logs are clean" { logs_clean; }
