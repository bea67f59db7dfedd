#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The accounting of GPUs where steps, jobs and Slurm's daemons end in every
# other way than well.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of acct_fault.bash

load lib
load launch
load acct_fault

setup_file() { faulty_up --nodes 8; }
teardown_file() { launch_down; }
setup() { faulty_setup; }
teardown() { faulty_teardown; }

now_us() { printf '%s\n' "${EPOCHREALTIME/./}"; }

@test "tasks crash, fail and are killed" {
	begin_cmd 0 sh -c 'sleep 3; kill -SEGV $$'
	begin_cmd 1 sh -c 'sleep 3; exit $((SLURM_PROCID * 3))'
	begin_cmd 2 sh -c 'sleep 3; kill -KILL $$'
	begin_cmd 3 sh -c 'sleep $((2 + SLURM_PROCID)); kill -KILL $PPID'
	OPTS=(-K1)
	begin_cmd 4 sh -c '[ $SLURM_PROCID = 0 ] || exec sleep 60; sleep 3; exit 7'
	OPTS=()
	begin_cmd 5 sh -c 'setsid sleep 7 >/dev/null 2>&1 & sleep 3'
	finish 0 139 FAILED
	finish 1 3 FAILED
	finish 2 137 FAILED
	finish 3 137 CANCELLED
	finish 5 0 COMPLETED
	for k in 0 1 2 3 5; do covers "$k" 2700 3600; done
	wait "${SRUN[4]}" || true
	wait_until 10 pid_gone "$(stepd_of 4)"
	row_of 4 >/dev/null
	covers 4 2700 4000
	clean
}

@test "steps and jobs are cancelled, and lose srun" {
	for k in 0 1 2 3; do begin "$k" 60; done
	running 0 1 2 3
	sleep 2.5
	in_cluster scancel "$(id_of 0 | cut -d . -f 1)"
	in_cluster scancel -s KILL "$(id_of 1 | cut -d . -f 1)"
	in_cluster scancel "$(id_of 2)"
	kill -KILL "${SRUN[3]}"
	END_US=$(now_us)
	rm -f ./*.end
	for k in 0 1 2; do
		wait "${SRUN[k]}" || true
		wait_until 10 pid_gone "$(stepd_of "$k")"
		stepd_in_time "$k" "$END_US"
		row_of "$k" >/dev/null
		covers "$k" 2300 3600
		[[ $(cut -d '|' -f 1 "$DIR/$k.row") == CANCELLED* ]]
	done
	# Slurm lets the tasks go on; somebody has to end them.
	in_cluster scancel "$(id_of 3 | cut -d . -f 1)"
	wait_until 10 pid_gone "$(stepd_of 3)"
	row_of 3 >/dev/null
	covers 3 2300 5500
	clean
}

@test "slurmstepd is killed: its sampler ends" {
	begin 0 60
	running 0
	sampling 0
	s=$(sampler_of 0)
	# Nobody ends the tasks then.
	tasks=$(children "$(stepd_of 0)")
	for p in $tasks; do tasks+=" $(children "$p")"; done
	kill -KILL "$(stepd_of 0)"
	wait_until 3 pid_gone "$s"
	kill -KILL "${SRUN[0]}"
	in_cluster scancel "$(id_of 0 | cut -d . -f 1)"
	for p in $tasks; do kill -KILL "$p" || true; done
	clean
}

children() { cat "/proc/$1"/task/*/children; }

@test "scontrol suspend and resume; reconfigure meanwhile" {
	begin 0 4
	begin 1 4
	running 0 1
	sleep 1
	in_cluster scontrol suspend "$(id_of 0 | cut -d . -f 1)"
	in_cluster scontrol reconfigure
	sleep 1
	in_cluster scontrol resume "$(id_of 0 | cut -d . -f 1)"
	finish 0
	finish 1
	covers 0 3700 6000
	covers 1 3700 4400
	clean
}

@test "daemons are restarted meanwhile" {
	for k in 0 1; do begin "$k" 4; done
	running 0 1
	for d in slurmctld slurmdbd "slurmd-${NODE[0]}"; do
		p=$(cluster_pid "$d")
		kill -TERM "$p"
		wait_until 15 pid_gone "$p"
	done
	# It waits for nodes that have nothing to do. slurmstepd tries for as
	# long as slurmctld is away to tell it of the end.
	faulty_repair || true
	for k in 0 1; do
		wait_until 60 pid_gone "${SRUN[k]}"
		wait_until 60 pid_gone "$(stepd_of "$k")"
		same COMPLETED "$(state_of "$k")"
		covers "$k" 3700 4500
	done
	wait_until 60 all_idle
	clean
}

# Slurm waits for two minutes before it starts the job again.
@test "a job is requeued" {
	[[ -n ${DDP_LONG:-} ]] || skip "with DDP_LONG=1"
	scenario 0
	cat >job <<-Z
		#!/bin/sh
		#SBATCH -n2 --gpus=2 -w ${NODE[0]} -o /dev/null
		srun -n2 $CLUSTER_TMP/prog $DIR/0 sleep 3
		[ "\$SLURM_RESTART_COUNT" = 1 ] || sleep 60
	Z
	id=$(as_nobody sbatch --parsable --requeue job)
	running 0
	wait_until 10 test -e 0.end
	sleep 0.5
	rm -f 0.end
	in_cluster scontrol requeue "$id"
	wait_until 150 test -e 0.end
	wait_until 10 no_jobs
	wait_until 10 two_runs
	for i in 1 2; do
		sed -n "${i}p" rows >0.row
		covers 0 2700 3500
	done
	clean
}

no_jobs() { [[ -z $(in_cluster squeue -h) ]]; }

# two_runs: both of them are in the accounting, in the file rows.
two_runs()
{
	in_cluster sacct -D -n -P --noconvert -j "$id" \
		-o State,ExitCode,End,TRESUsageInAve,TRESUsageInTot,TRESUsageOutMax,TRESUsageOutTot,JobID |
		grep -F "$id.0" | grep -v Unknown |
		awk -F '|' '$5 != ""' >rows
	(($(wc -l <rows) == 2))
}

@test "launches that fail" {
	before=$(drained)
	for k in 0 1 2; do scenario "$k"; done
	run as_nobody srun -Q -w "${NODE[0]}" -n2 --gpus=2 ./not-there
	same 2 "$status"
	run as_nobody srun -Q -w "${NODE[1]}" -n2 --gpus=2 --chdir=/not-there true
	same 0 "$status"
	printf '#!/bin/sh\nexit 3\n' >prolog
	chmod 755 prolog
	run as_nobody srun -Q -w "${NODE[2]}" -n2 --gpus=2 --task-prolog="$DIR/prolog" true
	[[ $status != 124 ]]
	run as_nobody srun -Q -w "${NODE[2]}" -n2 --gpus=2 /dev/null
	((status && status != 124))
	same "$before" "$(drained)"
	clean
}

drained() { in_cluster sinfo -h -R; }

@test "epilogs that take long are not the step's time" {
	printf '#!/bin/sh\nsleep 2\n' >epilog
	chmod 755 epilog
	OPTS=(--task-epilog="$DIR/epilog" --epilog="$DIR/epilog")
	begin_cmd 0 sleep 3
	wait_until 15 pid_gone "${SRUN[0]}"
	wait_until 10 pid_gone "$(stepd_of 0)"
	row_of 0 >/dev/null
	covers 0 2700 3500
	clean
}

@test "extreme environments" {
	export SLURMD_NODENAME=$'x\ny' LD_PRELOAD=/not/there.so \
		LD_LIBRARY_PATH=/tmp SLURM_STEP_GPUS=7,8,9 FAKE_ML_SCENARIO=/dev/null
	big=$(head -c 120000 /dev/zero | tr '\0' x)
	export BIG_A=$big BIG_B=$big BIG_C=$big BIG_D=$big BIG_E=$big
	begin 0 3
	OPTS=(--export=NONE)
	begin 1 3
	unset SLURMD_NODENAME LD_PRELOAD LD_LIBRARY_PATH SLURM_STEP_GPUS \
		FAKE_ML_SCENARIO "${!BIG_@}"
	for k in 0 1; do finish "$k"; covers "$k" 2800 3500; done
	clean
}

# The user of the job is "nobody", as whom daemons may run too.
@test "users cannot signal, trace or read the sampler" {
	cat >attack.py <<-'Z'
	import ctypes, os, signal, sys
	libc = ctypes.CDLL(None, use_errno=True)
	def sampler():
	    for p in os.listdir("/proc"):
	        try:
	            args = open("/proc/%s/cmdline" % p).read().split("\0")
	        except (OSError, UnicodeDecodeError):
	            continue
	        if "--label" in args and args[args.index("--label") + 1] == sys.argv[1]:
	            return int(p)
	    return None
	def told(what, call):
	    try:
	        call()
	        print(what, "worked")
	    except OSError as e:
	        print(what, e.errno)
	def attach():
	    if libc.ptrace(16, pid, 0, 0):
	        raise OSError(ctypes.get_errno(), "")
	pid = sampler()
	for sig in ("STOP", "KILL", "TERM", "IO", "CONT"):
	    told(sig, lambda: os.kill(pid, getattr(signal, "SIG" + sig)))
	told("ptrace", attach)
	for name in "mem", "environ", "maps", "auxv", "fd/3":
	    told(name, lambda: open("/proc/%d/%s" % (pid, name), "rb").read(1))
	Z
	begin 0 3
	sampling 0
	sleep 0.5
	run as_nobody env "$PYTHON" "$DIR/attack.py" "$(id_of 0)@${NODE[0]}"
	same "$(printf '%s 1\n' STOP KILL TERM IO CONT ptrace; printf '%s 13\n' mem environ maps auxv fd/3)" "$output"
	finish 0
	covers 0 2700 3400
	clean
}

@test "steps in a row leave nothing" {
	scenario 0
	cat >loop <<-'Z'
		for i in $(seq "$1"); do
			case $((i % 3)) in
			0) srun -Q -n2 --gpus=2 true ;;
			1) srun -Q -n1 --gpus=1 --overlap sleep 0.0$((i % 10)) ;;
			2) srun -Q -n2 --gpus=2 false ;;
			esac
		done
		exit 0
	Z
	LIMIT=300 as_nobody salloc -Q -w "${NODE[0]}" -n2 --gpus=2 bash loop "${DDP_LONG:+5}50"
	clean
}

@test "many tasks on one node" {
	scenario 0
	rm -f 0.*
	as_nobody srun -Q -w "${NODE[0]}" -n250 -O --gpus=2 --mem=500 \
		"$CLUSTER_TMP/prog" "$DIR/0" sleep 3 &
	wait $!
	wait_until 10 pid_gone "$(stepd_of 0)"
	row_of 0 >/dev/null
	# Its tasks do not all begin and end at once.
	covers 0 2700 8000
	clean
}

@test "afterwards the logs are clean" { logs_clean; }
