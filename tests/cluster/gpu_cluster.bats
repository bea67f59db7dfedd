#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# contrib/devcluster sets up the accounting of its fake GPUs; what it then
# counts is another file's matter.
#
# shellcheck disable=SC2016,SC2154 # code for other shells; bats

load lib
load launch

setup()
{
	local so
	cluster_init
	so=$("$TESTS/../../contrib/build" --quiet \
		${DDP_ROOT:+--root "$DDP_ROOT"} 3>&- | tail -n 1)
	[[ -f ${so%/*}/acct_gather_interconnect_ddp.so ]] ||
		skip "the accounting plugin is not built"
	DIR=$CLUSTER_DIR
}

teardown()
{
	[[ -d $CLUSTER_DIR ]] || return 0
	launch_down
}

# has FILE LINE: as a whole line.
has() { grep -qxF -- "$2" "$DIR/etc/$1"; }
lacks() { ! grep -q -- "$2" "$DIR/etc/$1"; }

@test "plugin, sampler, fake NVML and its scenario are in place" {
	launch_up --nodes 2 --gpus 3 --gpu-conf ddpgpuinterval=500 \
		--gpu-conf DdpGpuIdleThreshold=2
	[[ $(stat -c %a "$DIR/bin/ddp-gpu-sampler") == 755 ]]
	[[ -f $DIR/plugins/acct_gather_interconnect_ddp.so ]]
	has acct_gather.conf "DdpGpuLibrary=$DIR/gpu/libnvidia-ml.so.1"
	has acct_gather.conf "DdpGpuSampler=$DIR/bin/ddp-gpu-sampler"
	has acct_gather.conf ddpgpuinterval=500
	has acct_gather.conf DdpGpuIdleThreshold=2
	run -0 in_cluster scontrol show config
	[[ $output =~ PluginDir\ *=\ $DIR/plugins:/ ]]
	[[ $output =~ AcctGatherInterconnectType\ *=\ [a-z_/]*ddp ]]
	run -0 in_cluster sacctmgr -nP list tres format=type,name
	for tres in gres\|gpusm gres\|gpumembw gres\|gpuenergy gres\|gpuidle \
		ic\|nvlink ic\|pcie; do
		[[ $'\n'$output$'\n' == *$'\n'$tres$'\n'* ]]
	done
	# A user's program sees the GPUs, in another order than their minors.
	run -0 as_nobody python3 -c '
import ctypes, sys
ml = ctypes.CDLL(sys.argv[1])
assert ml.nvmlInit_v2() == 0
n, m, h = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_void_p()
ml.nvmlDeviceGetCount_v2(ctypes.byref(n))
for i in range(n.value):
    assert ml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(h)) == 0
    assert ml.nvmlDeviceGetMinorNumber(h, ctypes.byref(m)) == 0
    print(m.value)' "$DIR/gpu/libnvidia-ml.so.1"
	[[ $output == $'1\n2\n0' ]]
	run -0 in_cluster srun -N2 --gpus-per-node=2 true
	# A scenario that somebody has changed stays.
	echo '# mine' >>"$DIR/gpu/scenario"
	cluster_up ${DDP_ROOT:+--root "$DDP_ROOT"} --nodes 2 --gpus 3 \
		--gpu-conf ddpgpuinterval=500 --gpu-conf DdpGpuIdleThreshold=2
	[[ $(tail -n 1 "$DIR/gpu/scenario") == "# mine" ]]
}

@test "every number of GPUs has a scenario that the fake NVML takes" {
	launch_up --nodes 1 --gpus 0
	run -0 in_cluster srun -n2 true
	lib=$DIR/gpu/libnvidia-ml.so.1
	for g in 0 1 2 3 8 64; do
		# shellcheck disable=SC2034 # of the part's
		(
			# shellcheck disable=SC1091 # a part of devcluster
			. "$TESTS/../../contrib/devcluster.d/gpu.sh"
			O_gpus=$g D=$DIR
			write_scenario >"$DIR/tmp/scenario"
		)
		[[ $(FAKE_ML_SCENARIO=$DIR/tmp/scenario python3 -c '
import ctypes, sys
ml, n = ctypes.CDLL(sys.argv[1]), ctypes.c_uint()
assert ml.nvmlInit_v2() == 0
ml.nvmlDeviceGetCount_v2(ctypes.byref(n))
print(n.value)' "$lib") == "$g" ]]
	done
}

@test "a line of --conf wins, and its plugin needs no keys of ours" {
	launch_up --nodes 1 --conf \
		AcctGatherInterconnectType=acct_gather_interconnect/none
	lacks acct_gather.conf '^Ddp'
	run -0 in_cluster srun --gpus=1 true
}

@test "--no-gpu-acct leaves all of it out" {
	launch_up --nodes 1 --no-gpu-acct
	[[ ! -e $DIR/gpu && ! -e $DIR/bin/ddp-gpu-sampler ]]
	[[ ! -e $DIR/plugins/acct_gather_interconnect_ddp.so ]]
	[[ ! -e $DIR/etc/acct_gather.conf ]]
	has slurm.conf AccountingStorageTRES=gres/gpu
	lacks slurm.conf PluginDir
	run -0 in_cluster srun --gpus=1 true
	run -1 cluster_up ${DDP_ROOT:+--root "$DDP_ROOT"} --nodes 1
	[[ $output == *"'down' first"* ]]
}
