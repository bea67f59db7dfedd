#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# GPU accounting in other clusters than acct.bats has: some TRES only, no
# polls of Slurm, devices confined or values dealt at polls (by release), no
# GPUs, no plugin.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch
load acct

export INTERVAL=0.5

setup() { cluster_init; }

teardown()
{
	[[ -d $CLUSTER_DIR ]] || return 0
	steps_end || true
	logs_clean
	acct_down
}

# up ARGS...: a cluster, and all that setup() does elsewhere.
up()
{
	acct_up --cpus 32 --gpu-conf DdpGpuInterval=0.5 "$@"
	acct_setup
}

# calls_logged: the driver's calls are lines in $CALLS from now on.
calls_logged()
{
	CALLS=$CLUSTER_TMP/calls
	: >"$CALLS" && chmod 666 "$CALLS"
	acct_varied "log $CALLS" >"$GPU_DIR/scenario"
}

can_confine() { [[ -z ${DDP_ROOT:-} && -d /sys/fs/cgroup/devices ]]; }

# Slurm's own polls are off; they would not be for one task (24.11).
@test "some TRES only: no call for the others; JobAcctGatherFrequency=0" {
	up --nodes 1 --gpus 8 --conf JobAcctGatherFrequency=0 --conf \
		AccountingStorageTRES=gres/gpu,gres/gpusm,ic/pcie
	calls_logged
	step some 6 4 0.1 -n2 --gpus=2
	step other 6 0 0 -n1 --gpus=3
	steps_end
	right --absent membw,nvlink,energy,idle some other
	grep -q nvmlGpmMetricsGet "$CALLS"
	run -1 grep -E 'Energy|Process|Utilization' "$CALLS"
}

@test "a hostile task prolog where devices are confined" {
	can_confine || skip "cgroup v1 with 22.05 only"
	up --nodes 1 --gpus 8 --cgroup --conf \
		JobAcctGatherType=jobacct_gather/cgroup
	acct_varied >"$GPU_DIR/scenario"
	printf '#!/bin/sh\n%s\n' 'echo export SLURM_STEP_GPUS=6,7' \
		'echo export SLURM_JOB_GPUS=6,7' \
		'echo export CUDA_VISIBLE_DEVICES=6,7' >"$CLUSTER_TMP/prolog"
	chmod 755 "$CLUSTER_TMP/prolog"
	step hold 7 0 0 -n1 --gpus=1
	runs hold
	step forged 6 4 0 -n2 --gpus=2 --task-prolog="$CLUSTER_TMP/prolog"
	step plain 6 0 0.2 -n2 --gpus=2
	steps_end
	right hold plain
	# Of the first free ones after hold's.
	grep -qx 'step_gpus 0' "$(task_file hold)"
	right --gpus "${NODE[0]}=1,2" forged
}

@test "DdpGpuStepRecord=read: the same means, totals and peaks" {
	up --nodes 2 --gpus 8 --gpu-conf DdpGpuStepRecord=read
	acct_varied >"$GPU_DIR/scenario"
	if ! slurm_at_least 23.02; then
		# Its polls tell no tasks apart: refused, and said.
		step one 1 0 0 -N1 -n1 --gpus=1
		steps_end
		right --absent sm,membw,nvlink,pcie,energy,idle one
		grep -q 'needs DdpGpuStepRecord=write' \
			"$CLUSTER_DIR"/log/slurmd-*.log
		return
	fi
	step one 6 0 0 -N1 -n1 --gpus=1
	step four 6 4 0.2 -N1 -n4 --gpus-per-node=2
	step pair 6 0 0 -N2 -n2 --gpus-per-node=2 --acctg-freq=task=1
	step odd 6 0 0.3 -N2 -n3 --gpus-per-node=1
	steps_end
	right --main one four pair odd
}

@test "no GPUs on the node: no sampler" {
	up --nodes 1 --gpus 0
	calls_logged
	step none 1 0 0 -n2
	runs none 2
	# Of processes that end meanwhile grep finds no file.
	run grep -ls "$CLUSTER_DIR/bin/[d]dp-gpu-sampler" /proc/[0-9]*/cmdline
	same "" "$output"
	steps_end
	same "" "$(cat "$CALLS")"
	right --absent sm,membw,nvlink,pcie,energy,idle --gpus "${NODE[0]}=0" none
}

@test "Slurm gathers nothing: no values, and steps as without" {
	up --nodes 1 --gpus 8 --conf JobAcctGatherType=jobacct_gather/none
	acct_varied >"$GPU_DIR/scenario"
	step quiet 1 0 0 -n2 --gpus=2
	steps_end
	right --absent sm,membw,nvlink,pcie,energy,idle quiet
	nodes_idle
}

# stacked TYPE,TYPE: our plugin beside Slurm's own for network interfaces.
stacked()
{
	local tres=gres/gpu,gres/gpusm,gres/gpumembw,ic/nvlink,ic/pcie,gres/gpuenergy,gres/gpuidle
	up --nodes 1 --gpus 8 --gpu-conf SysfsInterfaces=lo \
		--conf "AcctGatherInterconnectType=$1" \
		--conf "AccountingStorageTRES=$tres,ic/sysfs"
	acct_varied >"$GPU_DIR/scenario"
	step both 6.2 0 0 -n2 --gpus=2 --acctg-freq=task=1
	step alone 6 4 0.2 -n3 --gpus=3
	# Bytes for the other one to count.
	runs both 2
	in_cluster scontrol ping >/dev/null
	steps_end
	right both alone
	step_row "$(id_of both)" TRESUsageInTot | grep -E '(^|,)ic/sysfs=[1-9]'
}

@test "stacked behind Slurm's sysfs plugin" {
	stacked acct_gather_interconnect/sysfs,acct_gather_interconnect/ddp
}

@test "stacked before Slurm's sysfs plugin" {
	[[ -n ${DDP_LONG:-} ]] || skip "as above, the other way round: with --all"
	stacked acct_gather_interconnect/ddp,acct_gather_interconnect/sysfs
}

# numbers: what Slurm itself has counted of a program that reads and writes
# known files, in a step with GPUs: "KEY..." of each column, and fs/disk. (Which
# of two tasks with the same number has the maximum is chance.)
numbers()
{
	local srun stepd=$CLUSTER_TMP/stepd
	head -c 3000000 /dev/zero >"$CLUSTER_TMP/in"
	# Every byte that a task reads or writes is counted, so each has a
	# fixed number of them: no /proc file, no pid of four or five digits.
	in_cluster srun -n2 --gpus=2 --acctg-freq=task=1 -o /dev/null sh -c '
		cat '"$CLUSTER_TMP/in"' >'"$CLUSTER_TMP"'/out.$SLURM_PROCID
		sleep 1.5
		printf %08d $PPID >'"$stepd"'.$SLURM_PROCID
		exec sleep 1' 3>&- &
	srun=$!
	wait_until 20 test -s "$stepd.0" || return 1
	awk '/^VmRSS/ { print $2 }' "/proc/$((10#$(<"$stepd.0")))/status" \
		>"$CLUSTER_TMP/rss"
	wait "$srun" || return 1
	step_state 1.0 >/dev/null
	in_cluster sacct -nP --noconvert -j 1.0 -o TRESUsageInAve,TRESUsageInTot,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMin,TRESUsageOutAve,TRESUsageOutTot,TRESUsageOutMax,TRESUsageOutMin |
		tr '|' '\n' | sed -E 's/(gres\/gpu[a-z]+|ic\/[a-z]+)=[^,]*,?//g; s/,$//
			s/\b(cpu|mem|vmem|pages)=[^,]*/\1/g'
	in_cluster sacct -nP --noconvert -j 1 -o AllocTRES,ReqTRES,NTasks,State
}

@test "what Slurm itself counts is what it is without the plugin" {
	local with rss
	up --nodes 1 --gpus 2
	in_cluster scontrol show config | grep -q 'AcctGatherInterconnectType.*ddp'
	with=$(numbers)
	[[ $with == *fs/disk=6* ]]
	rss=$(<"$CLUSTER_TMP/rss")
	acct_down
	cluster_init
	launch_up --nodes 1 --gpus 2 --cpus 32 --no-gpu-acct
	acct_setup
	run -0 --separate-stderr numbers
	# kB of slurmstepd: 1 MB more at most.
	echo "slurmstepd has $rss kB with the plugin, $(<"$CLUSTER_TMP/rss") without"
	((rss > 1000 && rss <= $(<"$CLUSTER_TMP/rss") + 1024))
	# Names of nodes differ.
	same "$(sed -E "s/[a-z0-9]+n1\b/NODE/g" <<<"$output")" \
		"$(sed -E "s/[a-z0-9]+n1\b/NODE/g" <<<"$with")"
}
