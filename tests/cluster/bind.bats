#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Every rank next to its GPU, with task/none and no device cgroup: every task
# may run anywhere and open everything. bind.bash has the node. The mask in
# /proc/self/status of each rank is compared with what follows from the table
# there; GPUs 1 and 3 are next to CPU 0, GPUs 0 and 2 next to CPU 1.
#
# Cases 28 to 32 are here and in bind_cgroup.bats.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch
load bind

setup_file() { bind_up --cpus 8; }
teardown_file() { launch_down; }
setup() { bind_setup; }
teardown() { bind_teardown; }

@test "the whole node: entry LOCAL_RANK is the nearest GPU" {
	export WHAT='JAX_LOCAL_DEVICE_IDS CUDA_DEVICE_ORDER OMP_NUM_THREADS'
	placed -n4 --gpus-per-node=4
	is "0 1,3,0,2 0 0 0 PCI_BUS_ID 1" "1 1,3,0,2 1 0 1 PCI_BUS_ID 1" \
		"2 1,3,0,2 2 1 2 PCI_BUS_ID 1" "3 1,3,0,2 3 1 3 PCI_BUS_ID 1"
	same "" "$stderr"
	placed -n4 --gpus-per-node=4 --ddp-launch=stateless
	is "0 1,3,0,2 0 0 0 PCI_BUS_ID 1" "1 1,3,0,2 1 0 1 PCI_BUS_ID 1" \
		"2 1,3,0,2 2 1 2 PCI_BUS_ID 1" "3 1,3,0,2 3 1 3 PCI_BUS_ID 1"
	same "" "$stderr"
}

@test "8 tasks on 4 GPUs: entry LOCAL_RANK modulo 4" {
	placed -n8 --gpus-per-node=4
	is "0 1,3,0,2 0 0" "1 1,3,0,2 1 0" "2 1,3,0,2 2 1" "3 1,3,0,2 3 1" \
		"4 1,3,0,2 0 0" "5 1,3,0,2 1 0" "6 1,3,0,2 2 1" "7 1,3,0,2 3 1"
}

# 6 ranks: two GPUs have two ranks each, and these are the first two entries.
@test "6 tasks on 4 GPUs, 3 on 4: uneven" {
	placed -n6 --gpus-per-node=4
	for r in 0 1 2 3 4 5; do
		read -r rank list device _ <<<"$(sed -n "$((r + 1))p" <<<"$output")"
		same "$r $((r % 4))" "$rank $device"
	done
	placed -n3 --gpus-per-node=4
	same "0 1 2" "$(awk '{ printf "%s%s", s, $3; s = " " }' <<<"$output")"
}

@test "several GPUs a rank: the first entries are one of each rank" {
	export WHAT='JAX_LOCAL_DEVICE_IDS'
	placed -n2 --gpus-per-node=4
	is "0 1,0,3,2 0 0 0,2" "1 1,0,3,2 1 1 1,3"
	# One task gets one CPU of Slurm here, and that is all it may have.
	placed -n1 --gpus-per-node=4
	is "0 1,3,0,2 0 0 0,1,2,3"
	placed -n1 -c2 --gpus-per-node=4
	is "0 1,3,0,2 0 0-1 0,1,2,3"
}

@test "--gpus-per-task=1: Slurm's GPU for each rank, index 0, its CPUs" {
	placed -n4 --gpus-per-task=1
	is "0 0 0 1" "1 1 0 0" "2 2 0 1" "3 3 0 0"
	says_times 1 "ddp: hint: node ${NODE[0]}: each rank sees its own GPUs only: its device is index 0"
}

# Case 30
@test "--gpu-bind=single:2, mask_gpu, map_gpu: as asked, and near" {
	placed -n4 --gpus-per-node=4 --gpu-bind=single:1
	is "0 0 0 1" "1 1 0 0" "2 2 0 1" "3 3 0 0"
	placed -n4 --gpus-per-node=4 --gpu-bind=single:2
	is "0 0 0 1" "1 0 0 1" "2 1 0 0" "3 1 0 0"
	placed -n8 --gpus-per-node=4 --gpu-bind=single:2
	is "0 0 0 1" "1 0 0 1" "2 1 0 0" "3 1 0 0" "4 2 0 1" "5 2 0 1" \
		"6 3 0 0" "7 3 0 0"
	export WHAT='JAX_LOCAL_DEVICE_IDS'
	placed -n2 --gpus-per-node=4 --gpu-bind=mask_gpu:0x5,0xa
	is "0 0,2 0 1 0,1" "1 1,3 0 0 0,1"
	unset WHAT
	placed -n2 --gpus-per-node=4 --gpu-bind=map_gpu:3,0
	is "0 3 0 0" "1 0 0 1"
}

# Both near CPU 0; each has one CPU of its own, and one of them is far.
@test "two ranks whose GPUs are at one NUMA node share the node's CPUs out" {
	placed -n2 --gpus-per-node=4 --gpu-bind=map_gpu:3,1
	same "0-1" "$(cut -d ' ' -f 4 <<<"$output" | sort -n | paste -sd-)"
	says_times 1 "ddp: warning: node ${NODE[0]}: too few of the CPUs that Slurm gave (0-1) are next to the GPUs of rank"
}

# Case 30: unset is not "no GPU": rank r takes device r of all there are. Later
# releases set the list of all.
@test "--gpu-bind=none: no list is set, ranks are placed by number" {
	if slurm_at_least 24.11; then
		placed -n4 --gpus-per-node=4 --gpu-bind=none
		is "0 1,3,0,2 0 0" "1 1,3,0,2 1 0" "2 1,3,0,2 2 1" "3 1,3,0,2 3 1"
		return
	fi
	placed -n4 --gpus-per-node=4 --gpu-bind=none
	is "0 unset 0 1" "1 unset 1 0" "2 unset 2 1" "3 unset 3 0"
	placed -n2 --gpus-per-node=2 --gpu-bind=none
	same "unset" "$(cut -d ' ' -f 2 <<<"$output" | sort -u)"
	says_times 1 "no list of them is set (as with --gpu-bind=none) and the tasks may open others"
}

# Case 28
@test "--ddp-gpus=node: all of the node's, also with --gpus-per-task" {
	placed -n4 --gpus-per-task=1 --ddp-gpus=node
	is "0 1,3,0,2 0 0" "1 1,3,0,2 1 0" "2 1,3,0,2 2 1" "3 1,3,0,2 3 1"
	same "" "$stderr"
	# An explicit --gpu-bind holds, and that is said.
	placed -n4 --gpus-per-node=4 --gpu-bind=single:1 --ddp-gpus=node
	is "0 0 0 1" "1 1 0 0" "2 2 0 1" "3 3 0 0"
	says_times 1 "ddp: hint: node ${NODE[0]}: --ddp-gpus=node: --gpu-bind was given and holds"
}

@test "--ddp-gpus=rank: each its own" {
	placed -n4 --gpus-per-node=4 --ddp-gpus=rank
	is "0 1 0 0" "1 3 0 0" "2 0 0 1" "3 2 0 1"
	says_times 1 "its device is index 0 (DDP_LOCAL_DEVICE), not LOCAL_RANK"
	placed -n2 --gpus-per-node=4 --ddp-gpus=rank --ddp-bind=none
	is "0 0,1 0 0-1" "1 2,3 0 0-1"
}

# Cases 28, 29: the second job on the node has GPUs 2 and 3.
@test "the second job on a node: its own GPUs only" {
	take_two_gpus
	placed -w "${NODE[0]}" -n2 --gpus-per-node=2
	is "0 3,2 0 0" "1 3,2 1 1"
	placed -w "${NODE[0]}" -n2 --gpus-per-task=1
	is "0 2 0 1" "1 3 0 0"
}

# Case 31. What sets such lists for Slurm: a SPANK plugin before ours.
@test "names in the list are kept, in any mixture" {
	lists_by_plugin
	export FAKE_LIST=GPU-8932f937,GPU-8932f938,MIG-GPU-11112222-3333-4444-5555-666677778888/1/0,3
	new=GPU-8932f938,3,GPU-8932f937,MIG-GPU-11112222-3333-4444-5555-666677778888/1/0
	placed -n4 --ddp-gpus=node
	is "0 $new 0 0" "1 $new 1 0" "2 $new 2 1" "3 $new 3 1"
	same "" "$stderr"
	# CUDA shows a process one MIG device: by default each sees its own.
	placed -n4
	is "0 GPU-8932f938 0 0" "1 3 0 0" "2 GPU-8932f937 0 1" \
		"3 MIG-GPU-11112222-3333-4444-5555-666677778888/1/0 0 1"
}

@test "what is not known stays as it is, and that is said" {
	lists_by_plugin
	FAKE_LIST=GPU-7777,9 placed -n2
	is "0 GPU-7777,9 0 0" "1 GPU-7777,9 1 1"
	says_times 1 "GPU GPU-7777 is not in this node's topology"
	for list in '0,,1' '0,0' ' ' '$(id)' "$(printf '%5000s' x)"; do
		FAKE_LIST=$list placed -n2
		same "unset 0 unset 1" "$(awk '{ printf "%s%s %s", s, $(NF - 1), $NF; s = " " }' \
			<<<"$output")"
		says_times 1 "the lists of visible GPUs are none that is known"
	done
	FAKE_LIST=GPU-7777 fails in_cluster srun -n1 --ddp-launch \
		--ddp-bind=single-numa-node touch ran
	says "GPU GPU-7777 is not in this node's topology: " \
		"refused by --ddp-bind=single-numa-node: the place of its GPU is not known"
	[[ ! -e ran ]]
}

@test "values that say that there is no GPU" {
	lists_by_plugin
	for list in '' -1 NoDevFiles void none; do
		FAKE_LIST=$list placed -n2
		same "unset 0 unset 1" "$(awk '{ printf "%s%s %s", s, $(NF - 1), $NF; s = " " }' \
			<<<"$output")"
		same "" "$stderr"
	done
}

# Two orders of the GPUs on one node would give one GPU to two ranks.
@test "stateless: a rank that is late: all of the node get a place or none" {
	lists_by_plugin
	export FAKE_RANK=1 FAKE_LATE=17
	placed -n3 --gpus-per-node=4 --ddp-launch=stateless
	same 1 "$(cut -d ' ' -f 2 <<<"$output" | sort -u | wc -l)"
	same "0 1 2" "$(awk '{ printf "%s%s", s, $3; s = " " }' <<<"$output")"
	same "" "$stderr"
	# Nobody answers any more: the agent of this step is stopped.
	FAKE_LATE=5
	LIMIT=120 launch -N1 -n2 --gpus-per-node=4 --ddp-launch=stateless \
		sh -c "$SEE" &
	job=$!
	wait_until 10 stop_agent
	wait "$job"
}

# stop_agent: SIGSTOP to this cluster's agent, then what ends its wait.
stop_agent()
{
	local pid
	for pid in $(pgrep -x ddp-agent); do
		[[ $(readlink "/proc/$pid/exe") == *"$CLUSTER_DIR/bin/ddp-agent" ]] ||
			continue
		kill -KILL "$pid" && return 0
	done
	return 1
}

@test "the user's CUDA_DEVICE_ORDER is replaced, and that is said" {
	export CUDA_DEVICE_ORDER=FASTEST_FIRST WHAT=CUDA_DEVICE_ORDER
	placed -n2 --gpus-per-node=4
	is "0 1,0,3,2 0 0 PCI_BUS_ID" "1 1,0,3,2 1 1 PCI_BUS_ID"
	says_times 1 "CUDA_DEVICE_ORDER=FASTEST_FIRST: replaced by PCI_BUS_ID"
}

@test "a launch inside a launch: the outer rank's device is not the inner one's" {
	export WHAT=JAX_LOCAL_DEVICE_IDS SEE
	launch --ddp-launch -N1 -n2 --gpus-per-node=4 sh -c '
		[ "$SLURM_PROCID" = 1 ] || exit 0
		exec srun --overlap --ddp-launch -N1 -n2 --gpus-per-node=4 sh -c "$SEE"'
	output=$(sort -n <<<"$output")
	is "0 1,0,3,2 0 0 0,2" "1 1,0,3,2 1 1 1,3"
}

@test "heterogeneous steps: the program's own words are not srun's" {
	launch --ddp-launch -N1 -n2 --gpus-per-node=4 sh -c "$SEE" x --cpu-bind=cores : \
		-N1 -n1 true
	output=$(sort -n <<<"$output")
	is "0 1,0,3,2 0 0" "1 1,0,3,2 1 1"
	says_not "--cpu-bind was given"
}

# An agent outside the step's cgroups, in a user's hands, would be a way out of
# them: nobody but root may look into it.
@test "ddp-agent and ddp-place are root's to look into" {
	same "711 711" "$(stat -c %a "$CLUSTER_DIR"/bin/ddp-{agent,place} |
		paste -sd ' ')"
	rm -f "$CLUSTER_TMP/seen"
	as_nobody srun --ddp-launch -N1 -n2 --gpus-per-node=4 sleep 3 3>&- &
	job=$!
	wait_until 10 agent_of_nobody
	same "Operation not permitted" "$(as_nobody sh -c "
		cat /proc/$AGENT/environ" 2>&1 | sed 's/Permission denied/Operation not permitted/; s/.*: //')"
	same root "$(stat -c %U "/proc/$AGENT/environ")"
	wait "$job"
}

agent_of_nobody()
{
	for AGENT in $(pgrep -x -u nobody ddp-agent); do
		[[ $(readlink "/proc/$AGENT/exe") == *"$CLUSTER_DIR/bin/ddp-agent" ]] &&
			return 0
	done
	return 1
}

# lists_by_plugin: from now on FAKE_LIST is the tasks' CUDA_VISIBLE_DEVICES, and
# FAKE_VARS may name other variables for it.
lists_by_plugin()
{
	local conf=$CLUSTER_DIR/etc/plugstack.conf
	grep -q fake_list "$conf" && return 0
	[[ -z ${DDP_ROOT:-} ]] || skip "the test's plugin is built for one Slurm only here"
	cc -shared -fPIC -o "$CLUSTER_DIR/fake_list.so" "$TESTS/fake_list.c" || return 1
	sed -i "1i required $CLUSTER_DIR/fake_list.so" "$conf"
}

@test "ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK and others that say the same" {
	export WHAT='ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK HIP_VISIBLE_DEVICES GPU_DEVICE_ORDINAL'
	lists_by_plugin
	export FAKE_LIST=0,1 GPU_DEVICE_ORDINAL=7 \
		FAKE_VARS='ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK HIP_VISIBLE_DEVICES'
	placed -n2
	is "0 unset 0 0 1,0 1,0 1,0 7" "1 unset 1 1 1,0 1,0 1,0 7"
}

@test "no GPU: CPUs are split in order" {
	placed -n2
	is "0 unset unset 0" "1 unset unset 1"
	placed -n4
	same "0-1" "$(cut -d ' ' -f 4 <<<"$output" | sort -u)"
	same "" "$stderr"
}

@test "--ddp-bind=none: nothing is touched, nobody is started for it" {
	placed -n4 --gpus-per-node=4 --ddp-bind=none
	is "0 0,1,2,3 unset 0-1" "1 0,1,2,3 unset 0-1" "2 0,1,2,3 unset 0-1" \
		"3 0,1,2,3 unset 0-1"
	export SLURM_DDP_BIND=none
	placed -n1 --gpus-per-node=4 --ddp-launch=stateless
	is "0 0,1,2,3 unset 0-1"
	placed -n2 --gpus-per-node=2 --ddp-bind=best-effort
	is "0 1,0 0 0" "1 1,0 1 1"
}

@test "the user's OMP_NUM_THREADS, JAX_LOCAL_DEVICE_IDS win" {
	export WHAT='OMP_NUM_THREADS JAX_LOCAL_DEVICE_IDS'
	export OMP_NUM_THREADS=7 JAX_LOCAL_DEVICE_IDS=3
	placed -n2 --gpus-per-node=2
	is "0 1,0 0 0 7 3" "1 1,0 1 1 7 3"
}

# --- policies: doc/binding.md shows these messages -----------------------------

@test "restricted: accepts what is best here, refuses what could be better" {
	placed -n2 --gpus-per-node=4 --ddp-bind=restricted
	is "0 1,0,3,2 0 0" "1 1,0,3,2 1 1"
	# Two GPUs of one NUMA node, and each rank needs a CPU: one of two is
	# far, on an empty node it would not be.
	fails in_cluster srun --ddp-launch -N1 -n2 --gpus-per-node=4 \
		--gpu-bind=map_gpu:3,1 --ddp-bind=restricted touch ran
	says "ddp: the launch failed: a task on node ${NODE[0]} (rank" \
		"refused by --ddp-bind=restricted: got GPU" \
		"2 NUMA nodes together; on an empty node its request needs 1"
	[[ ! -e ran ]]
	says_times 1 "refused by"
}

@test "single-numa-node: accepts and refuses, in full and stateless mode" {
	placed -n2 --gpus-per-node=4 --ddp-bind=single-numa-node
	is "0 1,0,3,2 0 0" "1 1,0,3,2 1 1"
	fails in_cluster srun --ddp-launch -N2 -n2 --gpus-per-node=4 \
		--ddp-bind=single-numa-node touch ran
	says "refused by --ddp-bind=single-numa-node: got GPU" \
		"2 NUMA nodes together; the policy allows 1"
	[[ ! -e ran ]]
	fails in_cluster srun --ddp-launch=stateless -N1 -n1 --gpus-per-node=4 \
		--ddp-bind=single-numa-node touch ran
	says_times 1 "ddp: error: node ${NODE[0]}, rank 0: refused by --ddp-bind=single-numa-node"
	[[ ! -e ran ]]
}

@test "a policy that cannot be judged refuses; best-effort goes on" {
	mv "$CLUSTER_DIR/bin/ddp-place" "$CLUSTER_DIR/bin/ddp-place.away"
	fails in_cluster srun --ddp-launch -N1 -n2 --ddp-bind=restricted touch ran
	says "the policy restricted cannot be judged: ddp-place could not be started"
	[[ ! -e ran ]]
	placed -n2 --gpus-per-node=2
	mv "$CLUSTER_DIR/bin/ddp-place.away" "$CLUSTER_DIR/bin/ddp-place"
	is "0 0,1 unset 0-1" "1 0,1 unset 0-1"
	says_times 1 "ddp: warning: node ${NODE[0]}: ranks are not bound to CPUs and GPUs: ddp-place could not be started"
}

# No room for the question in the gate's file.
@test "a low limit on file sizes: said once, and refused where it matters" {
	local mode
	lists_by_plugin
	export FAKE_FSIZE=100000
	for mode in full stateless; do
		placed -n2 --gpus-per-node=2 "--ddp-launch=$mode"
		is "0 0,1 unset 0-1" "1 0,1 unset 0-1"
		says_times 1 "ranks are not bound to CPUs and GPUs: no room to ask ddp-agent"
		fails in_cluster srun "--ddp-launch=$mode" -N1 -n2 \
			--ddp-bind=restricted touch ran
		says "no room to ask ddp-agent"
		[[ ! -e ran ]]
	done
}

@test "verify: mask and memory policy are looked at after the exec" {
	placed -n2 --gpus-per-node=4 --ddp-bind=best-effort,verify
	is "0 1,0,3,2 0 0" "1 1,0,3,2 1 1"
	same "" "$stderr"
	placed -n2 --gpus-per-node=4 --ddp-bind=verify --ddp-launch=stateless
	same "" "$stderr"
}

@test "memory: preferred on the near node, where there is one" {
	export WHAT=
	launch --ddp-launch -N1 -n2 --gpus-per-node=4 sh -c \
		'echo "$SLURM_PROCID $(sed -n "1s/^[^ ]* \([^:]*:*[^ ]*\).*/\1/p" /proc/self/numa_maps)"'
	# This machine has the NUMA node 0 at least; a node 1 perhaps.
	grep -E "^0 prefer( \(many\))?:0" <<<"$output"
}

@test "threads of the program inherit the place" {
	launch --ddp-launch -N1 -n2 --gpus-per-node=4 "$PYTHON" -c '
import os, threading
seen = []
t = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
t.start(); t.join()
print(os.environ["RANK"], *sorted(seen[0]))'
	same "$(printf '0 0\n1 1')" "$(sort <<<"$output")"
}

@test "--ddp-explain shows each rank's place" {
	launch --ddp-launch -N2 -n4 --ntasks-per-node=2 --gpus-per-node=2 \
		--ddp-explain true
	says_times 1 "ddp: node ${NODE[0]}, rank 0: GPU 0000:20:00.0, CPUs 0 (1 cores), NUMA 0"
	says_times 1 "ddp: node ${NODE[0]}, rank 1: GPU 0000:10:00.0, CPUs 1 (1 cores), NUMA 1"
	says_not "rank 2: GPU"
}

@test "wrong values: refused by srun with the valid ones" {
	for v in best restricted,x none,verify ''; do
		fails in_cluster srun --ddp-launch --ddp-bind="$v" true
		says "none, best-effort, restricted, single-numa-node"
	done
	fails in_cluster srun --ddp-launch --ddp-gpus=all true
	says 'valid: auto, node, rank'
}

@test "sbatch hands the options on; the variable of an outer step is no order" {
	cat >job.sh <<-'Y'
		#!/bin/bash
		echo "batch ${SLURM_DDP_PLACE-unset} $(grep ^Cpus_allowed_list /proc/self/status | cut -f 2)"
		srun --ddp-launch -n2 sh -c "$SEE"
	Y
	SEE=$SEE sbatch_wait in_cluster -N1 -n2 --gpus-per-node=4 \
		--ddp-gpus=rank -o out.txt --export=ALL job.sh
	output=$(sort out.txt)
	is "0 1,3 0 0" "1 0,2 0 1" "batch unset 0-1"
	export SLURM_DDP_PLACE='v=1;bind=none;verify=0;gpus=rank;cpu=0;gpu=0;explain=0'
	launch -N1 -n2 --gpus-per-node=4 sh -c "$SEE"
	same "$(printf '0 0,1,2,3 unset 0-1\n1 0,1,2,3 unset 0-1')" "$(sort <<<"$output")"
}

no_sleep() { ! in_cluster squeue -h -s -o %i | grep -q '[.]0'; }

@test "srun killed, ddp-place killed: the node stays well" {
	run in_cluster timeout -s KILL 1 srun --ddp-launch -N2 -n8 \
		--gpus-per-node=4 sleep 20
	same 137 "$status"
	# The ranks end with srun; the job is Slurm's to end.
	wait_until 10 no_sleep
	in_cluster scancel -u root
	nodes_idle
	logs_clean
}
