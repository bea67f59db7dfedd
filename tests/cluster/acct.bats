#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# What sacct says of the GPUs of steps, beside the truth about the scenario
# that they were in: every number here was read from slurmdbd. acct_other.bats
# has what needs another configuration, acct_matrix.bats the long matrix of steps
# of 3 s and more. Here they last for 6 s: 1 % is asked for, and 30 ms in which
# the machine runs something else, when a step begins, are that of 3 s.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch
load acct
load report

export INTERVAL=0.5

setup_file()
{
	cluster_init
	# A requeued job waits until old credentials are void: 5 s, not 120.
	# Heterogeneous jobs wait for backfill.
	acct_up --nodes 2 --gpus 8 --cpus 64 --gpu-conf DdpGpuInterval=0.5 \
		--conf PrologFlags=Contain \
		--conf LaunchParameters=use_interactive_step \
		--conf "${FAST_SBATCH/,*/,bf_interval=1,sched_min_interval=0}" \
		--conf "AuthInfo=socket=$CLUSTER_DIR/run/munge.sock,cred_expire=5"
}

teardown_file() { acct_down; }

setup()
{
	acct_setup
	acct_varied >"$GPU_DIR/scenario"
	rm -f "$GPU_DIR"/scenario.*
}

teardown()
{
	steps_end || true
	nodes_idle
	logs_clean
}

# log_of NODE FILE: from now on the driver's calls on NODE are lines in FILE.
log_of()
{
	: >"$2" && chmod 666 "$2" &&
		acct_varied "log $2" >"$GPU_DIR/scenario.$1"
}

# samplers: pids of this cluster's.
samplers()
{
	grep -ls "$CLUSTER_DIR/bin/[d]dp-gpu-sampler" /proc/[0-9]*/cmdline |
		cut -d / -f 3
}

# column LABEL COLUMN TRES: of sacct.
column()
{
	step_row "$(id_of "$1")" "$2" | tr , '\n' | sed -n "s|^$3=||p"
}

# --- the numbers ------------------------------------------------------------------

# Cases 34 and 35: node 2 has GPUs at constant levels, node 1 curves.
@test "one node: 1, 2, 4 tasks; children; staggered ends; only the step's GPUs" {
	acct_flat 10 20 30 40 99 99 99 99 >"$GPU_DIR/scenario.${NODE[1]}"
	step hold 8 0 0 -w "${NODE[1]}" -n1 --gpus=2
	step one 6.1 0 0 -w "${NODE[0]}" -n1 --gpus=1
	step two 6 4 0 -w "${NODE[0]}" -n2 --gpus-per-node=2
	step four 6 4 0.2 -w "${NODE[0]}" -n4 --gpus-per-task=1
	runs hold
	step case35 6 0 0 -w "${NODE[1]}" -n1 --gpus=2
	runs case35
	step case34 6 0 0 -w "${NODE[1]}" -n1 --gpus=4
	steps_end
	right hold case35 case34 one two four
	# As the cases have them, in so many words.
	grep -qx 'step_gpus 2,3' "$(task_file case35)"
	same "gres/gpumembw=35,gres/gpusm=35" \
		"$(step_row "$(id_of case35)" TRESUsageInAve | tr , '\n' |
			grep -E 'gpu(sm|membw)=' | paste -sd,)"
	same "gres/gpumembw=99,gres/gpusm=99" \
		"$(step_row "$(id_of case34)" TRESUsageInAve | tr , '\n' |
			grep -E 'gpu(sm|membw)=' | paste -sd,)"
}

@test "two nodes: unequal tasks, another frequency, a subset of the job's GPUs" {
	acct_flat 10 20 30 40 50 60 70 80 >"$GPU_DIR/scenario.${NODE[1]}"
	step pair 6 0 0 -N2 -n2 --gpus-per-node=2
	step fours 6 0 0.15 -N2 -n4 --gpus-per-node=2 --acctg-freq=task=1
	step odd 6 4 0 -N2 -n3 --gpus-per-node=1
	in_cluster salloc -N2 -n4 --gpus-per-node=3 \
		srun -o /dev/null -N1 -n2 --gpus-per-node=1 --exact "$TASK" "$TASKS" sub \
		6 0 0 >/dev/null 2>sub.err 3>&- &
	started sub
	step launched 6 0 0 -N2 -n4 --gpus-per-node=1 --ddp-launch
	steps_end
	right pair fours odd sub launched
	# Of three GPUs that the job has there.
	[[ $(sed -n 's/^step_gpus //p' "$(task_file sub)") == [0-7] ]]
}

@test "steps of one second and less: right, or unset" {
	local i
	for i in 1 2 3; do
		step "short$i" 1 0 0 -N1 -n"$i" --gpus-per-node="$i"
	done
	step short4 1 4 0 -N2 -n4 --gpus-per-node=1
	steps_end
	right --unset-ok short1 short2 short3 short4
	for i in 1 2; do
		step "flash$i" 0.2 0 0 -N1 -n"$i" --gpus-per-node="$i"
		step "gone$i" 0 0 0 -N1 -n"$i" --gpus-per-node="$i"
	done
	steps_end
	right --unset-ok flash1 flash2
	# Nothing can be told of a few milliseconds.
	right --absent sm,membw,nvlink,pcie,energy,idle gone1 gone2
}

# --- kinds of steps and jobs ------------------------------------------------------

# The script's own window is that of a task.
batch_script()
{
	cat <<-X
		#!/bin/bash
		begin=\$EPOCHREALTIME
		srun -o /dev/null -n2 $TASK $TASKS nested 6 0 0.1
		srun -o /dev/null --overlap -n1 $TASK $TASKS over1 6.2 0 0 &
		srun -o /dev/null --overlap -n1 $TASK $TASKS over2 6 0 0 &
		wait
		mkdir -p $TASKS/batch
		f=$TASKS/batch/\$SLURMD_NODENAME.0
		printf '%s\n' "step \$SLURM_JOB_ID.batch" "restart " \
			"node \$SLURMD_NODENAME" "step_gpus " \
			"job_gpus \$SLURM_JOB_GPUS" "start \$begin" >\$f
		echo "end \$EPOCHREALTIME" >>\$f
	X
}

# Slurm adds up what the nodes say: who says nothing makes the sum too small.
@test "two nodes, one of them late, or unable to measure" {
	local id m
	acct_flat 40 40 40 >"$GPU_DIR/scenario.${NODE[0]}"
	{
		acct_flat 40 40 40
		echo "slow nvmlInit_v2 ms=200"
	} >"$GPU_DIR/scenario.${NODE[1]}"
	step late 1 0 0 -N2 -n2 --gpus-per-node=1
	runs late 2
	steps_end
	right late
	{
		acct_flat 80 80 80
		echo "fail nvmlInit_v2 code=999"
	} >"$GPU_DIR/scenario.${NODE[1]}"
	step part 3 0 0 -N2 -n3 --gpus-per-node=1 -m plane=2
	steps_end
	id=$(id_of part)
	for m in gres/gpusm gres/gpumembw gres/gpuenergy gres/gpuidle; do
		same "2" "$(column part TRESUsageOutTot "$m")"
	done
	same "40" "$(column part TRESUsageInMax gres/gpusm)"
	run -0 --separate-stderr in_cluster ddp-report "$id" --parsable
	has "${id%.*}" "${id#*.}" sm_mean_percent=40.000 tasks=3 marks=+
	run -0 --separate-stderr in_cluster ddp-report "$id"
	says "40+" "+ not all of the GPU time has figures"
}

# Its agent is there long before the ranks, which start when all are: the GPUs
# are not the ranks' before that.
@test "--ddp-launch: what a node waits for the other one is not the step's" {
	cat >wait.sh <<-X
		kill -STOP \$SLOW
		(sleep 1; kill -CONT \$SLOW) >/dev/null 2>&1 &
		srun -o /dev/null --ddp-launch $TASK $TASKS waited 6 0 0
		wait
	X
	SLOW=$(cluster_pid "slurmd-${NODE[1]}") in_cluster salloc -N2 -n4 \
		--gpus-per-node=2 bash wait.sh >/dev/null 2>waited.err 3>&- &
	STEPS+=("$!:waited")
	steps_end
	right waited
}

# slurmstepd waits for the program that becomes the agent: it is its child for
# that long, and no task.
@test "--ddp-launch: what slurmstepd runs before the tasks is not the step's" {
	local bin=$CLUSTER_DIR/bin
	mv "$bin/ddp-agent" "$bin/ddp-agent.real"
	printf '#!/bin/sh\nsleep 0.7\nexec %s "$@"\n' "$bin/ddp-agent.real" \
		>"$bin/ddp-agent"
	chmod 755 "$bin/ddp-agent"
	step slow 6 0 0 -N2 -n4 --gpus-per-node=2 --ddp-launch
	steps_end
	mv "$bin/ddp-agent.real" "$bin/ddp-agent"
	right slow
}

@test "batch, nested and overlapping steps, extern, array, salloc" {
	local id
	batch_script >batch.sh
	# Neither of the two says how many tasks it has.
	# Its steps' files are missing where it could not start them: it says why.
	sbatch_wait in_cluster -N1 --mincpus=4 --gpus=2 -o "$PWD/batch.said" \
		batch.sh >batch.out 2>&1 3>&- &
	STEPS+=("$!:batch")
	runs nested
	cat >array.sh <<-X
		#!/bin/sh
		srun -o /dev/null $TASK $TASKS array\$SLURM_ARRAY_TASK_ID 6 0 0
	X
	sbatch_wait in_cluster --array=3-4 --gpus=1 -o /dev/null array.sh \
		>array.out 2>&1 3>&- &
	STEPS+=("$!:array")
	runs array3
	# With use_interactive_step salloc's own command is a step, too.
	in_cluster salloc -N1 -n1 --gpus=2 srun -o /dev/null "$TASK" "$TASKS" \
		alloc 6 0 0 >/dev/null 2>alloc.err 3>&- &
	STEPS+=("$!:alloc")
	steps_end
	cat batch.said
	right batch nested over1 over2 array3 array4 alloc
	id=$(id_of nested)
	# extern has none.
	run -0 step_row "${id%.*}.extern" State,TRESUsageInTot
	[[ $output == COMPLETED* ]]
	same "" "$(gpu_keys "$output")"
}

@test "heterogeneous job and step, a requeued job" {
	local id
	cat >again.sh <<-X
		#!/bin/sh
		srun -o /dev/null $TASK $TASKS run\${SLURM_RESTART_COUNT:-0} 6 0 0
		[ -n "\$SLURM_RESTART_COUNT" ] || {
			scontrol requeue \$SLURM_JOB_ID
			sleep 60
		}
	X
	# 26.05 waits for a minute before it starts a requeued job.
	LIMIT=150 sbatch_wait in_cluster --requeue -n1 --gpus=1 -o /dev/null again.sh \
		>again.out 2>&1 3>&- &
	STEPS+=("$!:again")
	in_cluster srun -o /dev/null -N1 -n1 --gpus=1 "$TASK" "$TASKS" het0 6 0 0 : \
		-N1 -n2 --gpus=2 "$TASK" "$TASKS" het1 6 0 0.2 2>het.err 3>&- &
	STEPS+=("$!:het")
	# Two components of a step in one allocation.
	in_cluster salloc -N2 -n4 --gpus-per-node=2 srun -o /dev/null \
		-N1 -n1 --gpus=1 --exact "$TASK" "$TASKS" comp0 6 0 0 : \
		-N1 -n1 --gpus=2 --exact "$TASK" "$TASKS" comp1 6 0 0 \
		>/dev/null 2>comp.err 3>&- &
	STEPS+=("$!:comp")
	steps_end
	right het0 het1 comp0 comp1 run0 run1
}

# --- nobody is asked who need not be ----------------------------------------------

@test "a step without GPUs: no sampler, no call of the driver" {
	log_of "${NODE[0]}" "$CLUSTER_TMP/calls"
	step none 1 0 0 -w "${NODE[0]}" -n2
	runs none 2
	same "" "$(samplers)"
	steps_end
	same "" "$(cat "$CLUSTER_TMP/calls")"
	right --absent sm,membw,nvlink,pcie,energy,idle --gpus "${NODE[0]}=0" none
	# Though the GPUs of its job are asked for by others.
	step some 1.2 0 0 -w "${NODE[0]}" -n1 --gpus=2
	runs some
	wait_until 5 eval '[[ -n $(samplers) ]]'
	# Not root, and nobody who has jobs.
	(($(ps -o uid= -p "$(samplers)") > 60000))
	steps_end
	grep -q '^nvmlGpmSampleGet ' "$CLUSTER_TMP/calls"
	run -1 grep -i process "$CLUSTER_TMP/calls"
	same "" "$(samplers)"
}

# --- the user's environment -------------------------------------------------------

# trace_so FILE MARK: a library that leaves the name of every program that
# loads it in MARK.
trace_so()
{
	: >"$2" && chmod 666 "$2"
	gcc -shared -fPIC -x c -o "$1" - <<-X
		#include <fcntl.h>
		#include <unistd.h>
		__attribute__((constructor)) static void trace(void)
		{
			char exe[4096];
			long n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
			int fd = open("$2", O_WRONLY | O_APPEND);

			exe[n > 0 ? n : 0] = '\n';
			(void)!write(fd, exe, (n > 0 ? n : 0) + 1);
			close(fd);
		}
	X
}

@test "a hostile task prolog, LD_LIBRARY_PATH, LD_PRELOAD: the step's GPUs all the same" {
	local dir mark=$CLUSTER_TMP/mark job gpus
	acct_flat 10 20 30 40 50 60 70 80 >"$GPU_DIR/scenario"
	dir=$(new_dir)
	trace_so "$dir/libnvidia-ml.so.1" "$mark"
	cat >"$dir/prolog" <<-'X'
		#!/bin/sh
		echo export SLURM_STEP_GPUS=6,7
		echo export SLURM_JOB_GPUS=6,7
		echo export CUDA_VISIBLE_DEVICES=6,7
		echo export SLURM_JOB_ID=1
		echo export SLURM_STEP_ID=77
	X
	chmod 755 "$dir/prolog"
	cat >"$dir/job" <<-X
		#!/bin/sh
		LD_PRELOAD=$dir/libnvidia-ml.so.1 LD_LIBRARY_PATH=$dir \
		FAKE_ML_SCENARIO=/dev/null srun -o /dev/null \
		--task-prolog=$dir/prolog -n2 $TASK $TASKS forged 6 0 0
	X
	job=$(in_cluster sbatch --parsable -w "${NODE[0]}" -n2 --gpus=2 -o "$dir/out" \
		"$dir/job")
	runs forged 2
	gpus=$(in_cluster scontrol -d show job "$job" |
		sed -n 's/.*GRES=gpu[^(]*(IDX:\([0-9,-]*\)).*/\1/p')
	same 0-1 "$gpus"
	grep -qx 'step_gpus 6,7' "$(task_file forged)"
	wait_until 20 eval '[[ -z $(in_cluster squeue -h -j '"$job"') ]]'
	right --gpus "${NODE[0]}=0,1" forged
	# It did reach the user's own programs, and no others.
	grep -q 'srun' "$mark"
	run -1 grep -E '/(ddp-[^/]*|slurmstepd|slurmd)$' "$mark"
}

# --- what the driver does not give, and what is broken ----------------------------

@test "GPUs without GPM, without energy, without NVLink: unset, the rest is there" {
	acct_varied | sed 's/^gpu .*/& gpm=no nvlink=none/' \
		>"$GPU_DIR/scenario.${NODE[0]}"
	acct_varied | sed 's/^gpu .*/& energy=no pcie=none/' \
		>"$GPU_DIR/scenario.${NODE[1]}"
	step nogpm 6 0 0 -w "${NODE[0]}" -n1 --gpus=1
	step noenergy 6 0 0 -w "${NODE[1]}" -n2 --gpus=2
	steps_end
	# Kernel time stands in for idleness, and all GPUs are busy by it.
	right --busy nogpm
	right --absent energy,pcie noenergy
}

# Case 36
@test "the library is missing, somebody else's, or not NVML: unset, one line in the log" {
	local lib=$GPU_DIR/libnvidia-ml.so.1 log=$CLUSTER_DIR/log/slurmd-${NODE[0]}.log
	local what
	mv "$lib" "$lib.away"
	for what in missing writable empty; do
		case $what in
		writable) cp "$lib.away" "$lib" && chmod 666 "$lib" ;;
		empty) rm -f "$lib" && gcc -shared -fPIC -x c -o "$lib" - <<<'int nothing;' &&
			chmod 755 "$lib" ;;
		esac
		step "$what" 0.3 0 0 -w "${NODE[0]}" -n1 --gpus=1
		steps_end || break
	done
	rm -f "$lib"
	mv "$lib.away" "$lib"
	for what in missing writable empty; do
		right --absent sm,membw,nvlink,pcie,energy,idle "$what"
		run -0 grep "ddp: step $(id_of "$what"): no GPU accounting: " "$log"
		((${#lines[@]} == 1))
		if [[ $what == empty ]]; then says nvmlInit_v2; else says "$lib"; fi
	done
	run -0 in_cluster sacct -nP --noconvert -o ALL
	says_not 18446744073709551614
}

# --- running steps ----------------------------------------------------------------

@test "sstat: values of a running step, from 23.02 on" {
	local id keys
	step live 6 0 0 -N1 -n2 --gpus=2 --acctg-freq=task=1
	runs live
	id=$(id_of live)
	sleep 2
	run -0 in_cluster sstat -nP --noconvert -j "$id" -o TRESUsageInTot,TRESUsageOutMax
	keys=$(gpu_keys "$output")
	steps_end
	if slurm_at_least 23.02; then
		same gres/gpuenergy,gres/gpuidle,gres/gpumembw,gres/gpusm,ic/nvlink,ic/pcie "$keys"
	else
		same "" "$keys"
	fi
	right live
}

@test "scontrol shows the configuration" {
	run -0 in_cluster scontrol show config
	for want in 'DdpGpuInterval *= 0.500 s' 'DdpGpuSource *= auto' \
		'DdpGpuIdleThreshold *= 1 %' 'DdpGpuStepRecord *= write' \
		"DdpGpuLibrary *= $GPU_DIR/libnvidia-ml.so.1" \
		"DdpGpuSampler *= $CLUSTER_DIR/bin/ddp-gpu-sampler"; do
		grep -q "^$want\$" <<<"$output" || { echo "no: $want"; return 1; }
	done
}
