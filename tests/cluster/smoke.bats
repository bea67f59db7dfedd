#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# The few things that must work on every Slurm: run-tests --slurm runs them on
# another generation.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

setup_file() { launch_up --nodes 2; }
teardown_file() { launch_down; }
setup() { launch_setup; }

# torch_here: can the cluster's own python import torch?
torch_here()
{
	in_cluster "$PYTHON" -c 'import torch' 2>/dev/null ||
		skip "no torch for $PYTHON${DDP_ROOT:+ in $DDP_ROOT}"
}

# trained: $output is a training of four ranks that learned something.
trained()
{
	local loss
	says "world size 4," "equal on 4 ranks"
	says_times 1 checksum
	loss=$(sed -n 's/^epoch .* loss //p' <<<"$output")
	[[ $(wc -l <<<"$loss") -ge 2 ]]
	same "$(sort -gr <<<"$loss")" "$loss"
}

@test "train_ddp.py trains on 2x2 ranks" {
	torch_here
	run -0 --separate-stderr in_cluster srun -N2 --ntasks-per-node=2 \
		--ddp-launch "$PYTHON" "$TESTS/../../contrib/examples/train_ddp.py"
	trained
}

@test "train_ddp.py trains for an unprivileged user" {
	torch_here
	run -0 --separate-stderr as_nobody srun -N2 --ntasks-per-node=2 \
		--ddp-launch "$PYTHON" "$TESTS/../../contrib/examples/train_ddp.py"
	trained
}

@test "each rank's variables, by Slurm's own account" {
	plain=$(new_dir)
	as_nobody srun -N2 -n3 sh -c "$RANK_DUMP" "$plain"
	for mode in full stateless; do
		dump=$(new_dir)
		run -0 --separate-stderr as_nobody srun -N2 -n3 \
			--ddp-launch=$mode sh -c "$RANK_DUMP" "$dump"
		same "" "$output$stderr"
		world "$dump" --count 3 --plain "$plain" --mode $mode
	done
}

@test "full mode: one fails, all end, and it is named" {
	run --separate-stderr as_nobody srun -N2 -n4 --ddp-launch \
		sh -c '[ $RANK != 2 ] || exit 7; exec sleep 60'
	same 7 "$status"
	says "ddp: rank 2 on node " "failed first: exited with code 7" \
		"stopped: 3 ranks"
}

@test "full mode beside stateless mode in one job" {
	run -0 --separate-stderr as_nobody salloc -Q -N2 -n4 sh -c '
		srun --overlap -N2 -n2 --ddp-launch sh -c "sleep 2; echo full \$RANK \$MASTER_PORT" & p=$!
		srun --overlap -N2 -n2 --ddp-launch=stateless sh -c "sleep 2; echo stateless \$RANK \$MASTER_PORT"
		srun --overlap -N2 -n2 --ddp-launch=off sh -c "echo off \${RANK-none} x"
		wait $p'
	same "" "$stderr"
	same "full 0,full 1,off none,off none,stateless 0,stateless 1" \
		"$(cut -d ' ' -f 1-2 <<<"$output" | sort | paste -sd ,)"
	same 2 "$(grep -v ^off <<<"$output" | cut -d ' ' -f 3 | sort -u | wc -l)"
}

@test "without the option nothing changes" {
	dump=$(new_dir)
	in_cluster srun -N2 -n2 sh -c "$RANK_DUMP" "$dump"
	for v in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT SLURM_DDP_PLAN \
		OMP_NUM_THREADS PET_RDZV_ID JAX_COORDINATOR_ADDRESS; do
		same "" "$(var "$dump" "$v")"
	done
	same "2" "$(find "$dump" -name '*.env' | wc -l)"
}

@test "srun, sbatch and salloc --help list the options" {
	for cmd in srun sbatch salloc; do
		run -0 in_cluster $cmd --help
		says "--ddp-launch=full|stateless|off" --ddp-explain \
			--ddp-frameworks=LIST "--ddp-master-port=auto|PORT" \
			"--ddp-master-addr=auto|ADDR" "--ddp-iface=none|auto|NAME"
		for opt in launch explain frameworks master-port master-addr \
			iface abort abort-signal grace exit-grace start-timeout \
			node-timeout control report-file lifecycle \
			ready-timeout; do
			same 1 "$(grep -c -- "  --ddp-$opt\([ =[]\|$\)" \
				<<<"$output")"
		done
	done
}

@test "an invalid value is refused before anything starts" {
	last=$(in_cluster srun sh -c 'echo "$SLURM_JOB_ID"')
	for args in --ddp-launch=bogus --ddp-frameworks=torch,caffe \
		--ddp-master-port=80 --ddp-master-addr=a/b --ddp-iface=a:b; do
		fails in_cluster srun $args touch started
		says "ddp: error: ${args%%=*}: \"${args#*=}\" is not valid; valid: "
	done
	[[ ! -e started ]]
	printf '#!/bin/sh\nsleep 1\n' >job
	fails in_cluster sbatch -o /dev/null --ddp-launch=bogus job
	says "valid: full, stateless, off"
	fails in_cluster salloc --ddp-launch=bogus true
	says "valid: full, stateless, off"
	# No job was made: the next one has the next number.
	same $((last + 1)) "$(in_cluster srun sh -c 'echo "$SLURM_JOB_ID"')"
}

@test "--ddp-explain tells each variable once, from one place" {
	run -0 --separate-stderr in_cluster srun -N2 -n3 --ddp-launch \
		--ddp-explain true
	same "" "$output"
	for v in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK \
		MASTER_ADDR MASTER_PORT GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME \
		ROLE_RANK ROLE_WORLD_SIZE PET_NNODES PET_NPROC_PER_NODE \
		PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT \
		PET_RDZV_ENDPOINT PET_RDZV_ID OMP_NUM_THREADS \
		TORCH_NCCL_ASYNC_ERROR_HANDLING JAX_COORDINATOR_ADDRESS \
		JAX_COORDINATOR_PORT; do
		says_times 1 "ddp:   $v "
	done
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
