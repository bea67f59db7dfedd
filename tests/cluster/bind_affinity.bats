#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# With task/affinity Slurm itself binds tasks to CPUs. What it does unasked is
# done better by the plan, within the same CPUs; what the user asked of it
# holds. bind.bash has the node; here Slurm, too, knows its two CPUs.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch
load bind

setup_file() { bind_up --cpus 2 --conf TaskPlugin=task/affinity; }
teardown_file() { launch_down; }
setup() { bind_setup; }

@test "affinity: Slurm's own binding is replaced within its CPUs" {
	placed -n2 --gpus-per-node=4
	is "0 1,0,3,2 0 0" "1 1,0,3,2 1 1"
	same "" "$stderr"
	# Slurm binds task 0 to CPU 0; its GPU 0 is next to CPU 1.
	placed -n2 --gpus-per-task=1
	is "0 0 0 1" "1 1 0 0"
	placed -n2
	is "0 unset unset 0" "1 unset unset 1"
}

# Case 32
@test "affinity: no CPU next to the GPU: the mask is left alone, one warning" {
	placed -n1 --gpus-per-node=1
	is "0 0 0 0"
	same "ddp: warning: node ${NODE[0]}: no CPU that Slurm gave (0) is next to the step's GPUs: ranks stay on the CPUs that Slurm gave them" "$stderr"
	fails in_cluster srun --ddp-launch -n1 --gpus-per-node=1 \
		--ddp-bind=restricted touch ran
	says "refused by --ddp-bind=restricted: got GPU 0 (NUMA 1) and CPUs of NUMA 0, 2 NUMA nodes together; on an empty node its request needs 1"
	[[ ! -e ran ]]
}

@test "affinity: --cpu-bind holds, GPUs follow, and that is said" {
	placed -n2 --gpus-per-node=4 --cpu-bind=map_cpu:1,0
	is "0 0,1,2,3 0 1" "1 0,1,2,3 1 0"
	same "ddp: hint: node ${NODE[0]}: --cpu-bind was given and holds: ranks stay on the CPUs that Slurm gave them" "$stderr"
	placed -n2 --gpus-per-node=4 --cpu-bind mask_cpu:0x2,0x1
	is "0 0,1,2,3 0 1" "1 0,1,2,3 1 0"
	placed -n2 --gpus-per-task=1 --cpu-bind=map_cpu:0,1
	is "0 0 0 0" "1 1 0 1"
	says "--cpu-bind was given and holds"
	SLURM_CPU_BIND=none placed -n2 --gpus-per-node=4
	same "0-1" "$(cut -d ' ' -f 4 <<<"$output" | sort -u)"
	says_times 1 "--cpu-bind was given and holds"
}

@test "affinity: --cpu-bind=none alone, --cpu-bind=quiet is none" {
	placed -n2 --gpus-per-node=4 --cpu-bind=quiet
	is "0 1,0,3,2 0 0" "1 1,0,3,2 1 1"
	same "" "$stderr"
	placed -n2 --gpus-per-node=2 --cpu-bind=none --ddp-bind=none
	is "0 0,1 unset 0-1" "1 0,1 unset 0-1"
}

@test "affinity: OMP_NUM_THREADS where ranks share their CPUs" {
	export WHAT=OMP_NUM_THREADS
	placed -n2 --gpus-per-node=4 --cpu-bind=none
	same "1" "$(cut -d ' ' -f 5 <<<"$output" | sort -u)"
}

@test "affinity: --mem-bind holds" {
	launch --ddp-launch -N1 -n2 --gpus-per-node=4 --mem-bind=map_mem:0 sh -c \
		'sed -n "1s/^[^ ]* \([^ ]*\).*/\1/p" /proc/self/numa_maps'
	same "bind:0" "$(sort -u <<<"$output")"
	launch --ddp-launch -N1 -n2 --gpus-per-node=4 --mem-bind=map_mem:0 \
		--ddp-bind=verify true
	same "" "$stderr"
}

@test "affinity: a policy judges what --cpu-bind and --gpu-bind made" {
	placed -n2 --gpus-per-node=4 --cpu-bind=map_cpu:1,0 --gpu-bind=map_gpu:0,1 \
		--ddp-bind=single-numa-node
	is "0 0 0 1" "1 1 0 0"
	fails in_cluster srun --ddp-launch -n2 --gpus-per-node=4 \
		--cpu-bind=map_cpu:0,1 --gpu-bind=map_gpu:0,1 \
		--ddp-bind=single-numa-node touch ran
	says "refused by --ddp-bind=single-numa-node: got GPU" "2 NUMA nodes together"
	[[ ! -e ran ]]
}

@test "affinity: in a batch job, nothing was said to Slurm" {
	cat >job.sh <<-'Y'
		#!/bin/bash
		srun --ddp-launch -n2 sh -c "$SEE"
	Y
	SEE=$SEE sbatch_wait in_cluster -N1 -n2 --gpus-per-node=4 -o out.txt job.sh
	output=$(sort out.txt)
	is "0 1,0,3,2 0 0" "1 1,0,3,2 1 1"
}

@test "affinity: verify" {
	placed -n2 --gpus-per-node=4 --ddp-bind=best-effort,verify
	is "0 1,0,3,2 0 0" "1 1,0,3,2 1 1"
	same "" "$stderr"
}
