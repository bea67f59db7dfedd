#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The same where a device cgroup confines every task to its GPUs: a list then
# counts only what the task may open. bind.bash has the node. Slurm's GPU i is
# the device file nvidiai: 0 and 1 are next to CPU 0 (bus 20 and 40), 2 and 3
# next to CPU 1 (bus 10 and 30).
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch
load bind

setup_file()
{
	[[ -z ${DDP_ROOT:-} ]] || skip "cgroup v1 with 22.05 only"
	[[ -d /sys/fs/cgroup/devices ]] || skip "no device cgroup (version 1)"
	bind_up --cpus 8 --cgroup
}

teardown_file() { launch_down; }
setup() { bind_setup; }
teardown() { bind_teardown; }

@test "confined: the whole node" {
	placed -n4 --gpus-per-node=4
	is "0 1,3,0,2 0 0" "1 1,3,0,2 1 0" "2 1,3,0,2 2 1" "3 1,3,0,2 3 1"
	same "" "$stderr"
	placed -n8 --gpus-per-node=4
	is "0 1,3,0,2 0 0" "1 1,3,0,2 1 0" "2 1,3,0,2 2 1" "3 1,3,0,2 3 1" \
		"4 1,3,0,2 0 0" "5 1,3,0,2 1 0" "6 1,3,0,2 2 1" "7 1,3,0,2 3 1"
}

# "0,1" are what may be opened: nvidia0 and nvidia1, bus 20 and 40.
@test "confined: two of the node's GPUs" {
	placed -n4 --gpus-per-node=2
	is "0 0,1 0 0" "1 0,1 1 0" "2 0,1 0 0" "3 0,1 1 0"
	same "" "$stderr"
}

# Cases 28, 29: "0,1" is nvidia2 and nvidia3 then, bus 10 and 30.
@test "confined: the second job on a node" {
	take_two_gpus
	placed -w "${NODE[0]}" -n4 --gpus-per-node=2
	is "0 0,1 0 1" "1 0,1 1 1" "2 0,1 0 1" "3 0,1 1 1"
	placed -w "${NODE[0]}" -n2 --gpus-per-task=1
	same "0 0" "$(cut -d ' ' -f 2,3 <<<"$output" | sort -u)"
}

# Case 28: every task's own GPU is its "0".
@test "confined: --gpus-per-task=1, --gpu-bind" {
	placed -n4 --gpus-per-task=1
	is "0 0 0 0" "1 0 0 0" "2 0 0 1" "3 0 0 1"
	says_times 1 "its device is index 0 (DDP_LOCAL_DEVICE), not LOCAL_RANK"
	placed -n4 --gpus-per-node=4 --gpu-bind=single:2
	is "0 0 0 0" "1 0 0 0" "2 0 0 0" "3 0 0 0"
	placed -n2 --gpus-per-node=4 --gpu-bind=map_gpu:3,1
	is "0 0 0 1" "1 0 0 0"
	export WHAT='JAX_LOCAL_DEVICE_IDS'
	placed -n2 --gpus-per-node=4 --gpu-bind=mask_gpu:0xc,0x3
	is "0 0,1 0 1 0,1" "1 0,1 0 0 0,1"
}

@test "confined: --gpu-bind=none" {
	placed -n4 --gpus-per-node=4 --gpu-bind=none
	is "0 unset 0 1" "1 unset 1 0" "2 unset 2 1" "3 unset 3 0"
}

@test "confined: --ddp-gpus=node falls back, and says so once" {
	placed -n4 --gpus-per-task=1 --ddp-gpus=node
	is "0 0 0 0" "1 0 0 0" "2 0 0 1" "3 0 0 1"
	says_times 1 "--ddp-gpus=node: Slurm confines each task to its own GPUs"
	placed -n4 --gpus-per-node=4 --ddp-gpus=node
	is "0 1,3,0,2 0 0" "1 1,3,0,2 1 0" "2 1,3,0,2 2 1" "3 1,3,0,2 3 1"
	placed -n4 --gpus-per-node=4 --ddp-gpus=rank
	is "0 1 0 0" "1 3 0 0" "2 0 0 1" "3 2 0 1"
}

# The device files, as the programs open them: EPERM is another task's GPU, ENXIO
# a fake of one's own.
@test "confined: the device that a rank should take is one that it may open" {
	DIR=$CLUSTER_DIR launch --ddp-launch -N1 -n4 --gpus-per-task=1 "$PYTHON" -c '
import errno, os
def may(n):
    try:
        os.close(os.open("%s/dev/nvidia%d" % (os.environ["DIR"], n), os.O_RDWR))
    except OSError as e:
        return e.errno == errno.ENXIO
    return True
mine = [n for n in range(4) if may(n)]
print(os.environ["RANK"], mine, os.environ["CUDA_VISIBLE_DEVICES"],
      int(os.environ["DDP_LOCAL_DEVICE"]) < len(mine))'
	same "$(printf '%s\n' '0 [0] 0 True' '1 [1] 0 True' '2 [2] 0 True' \
		'3 [3] 0 True')" "$(sort <<<"$output")"
}

@test "confined: the driver does not say which device file is which" {
	mv "$CLUSTER_DIR/proc" "$CLUSTER_DIR/proc.away"
	placed -n2 --gpus-per-task=1 || true
	mv "$CLUSTER_DIR/proc.away" "$CLUSTER_DIR/proc"
	says "is not in this node's topology: its rank is placed without regard"
}
