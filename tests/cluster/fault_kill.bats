#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The fault matrix: what is killed, and ranks that do not want to be. Cases 25
# and 27: every rank ends in bounded time, with the cause.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of fault.bash

load lib
load launch
load fault
load stubborn

setup_file() { fault_up; }
teardown_file() { launch_down; }
setup() { fault_setup; }
teardown() { fault_teardown; }

@test "case 25: ranks that ignore SIGTERM, with daemons" { stubborn; }

@test "case 25: the rank that fails leaves a daemon" { stubborn_daemon; }

@test "case 25: the same when Slurm ends the step" {
	[[ -n ${DDP_LONG:-} ]] ||
		skip "half a minute of Slurm's own waits; fault_cgroup has it: with --all"
	stubborn_cancel
}

# running SPEC...: a step that runs, and waits for what is done to it.
running()
{
	start_step "$@"
	happened 4 joined
	since_now
}

# machine_failed SECONDS KIND TEXT: the step ends so in bounded time, with all
# ranks.
machine_failed()
{
	finish_step "$1"
	ended 75 "$1"
	blamed "$2" "$3"
	gone 2
	clean
}

@test "kill -9 of an agent, of rank 0's node or another" {
	for rank in 0 3; do
		rm -f ranks/*
		running '*:join,sleep'
		kill -KILL "$(agent_pid "$rank")"
		machine_failed 6 node-lost \
			"node ${NODE[rank / 2]} was lost first"
	done
}

@test "kill -9 of all agents" {
	running '*:join,sleep'
	kill -KILL "$(agent_pid 0)" "$(agent_pid 3)"
	machine_failed 6 node-lost "was lost first"
}

@test "kill -9 of the controller" {
	running '*:ignore=15,join,sleep'
	kill -KILL "$(controller_pid)"
	gone 4
	finish_step 8
	((status != 0))
	says "ddp: " controller
	clean
}

@test "kill -9 of a slurmstepd" {
	for rank in 0 3; do
		rm -f ranks/*
		running '*:ignore=15,join,sleep'
		kill -KILL "$(stepd_pid "$rank")"
		machine_failed 9 slurmstepd-died \
			"slurmstepd of node ${NODE[rank / 2]} died first"
	done
}

@test "kill -9 of a slurmstepd and its agent" {
	running '*:join,sleep'
	kill -KILL "$(stepd_pid 3)" "$(agent_pid 3)"
	finish_step 15
	((status != 0))
	says "${NODE[1]}"
	# Nobody is left on that node to end its ranks, Slurm neither; the
	# other node's are gone.
	wait_until 5 pid_gone "$(rank_pid 0)"
	wait_until 5 pid_gone "$(rank_pid 1)"
	kill -KILL "$(rank_pid 2)" "$(rank_pid 3)" 2>/dev/null || true
	# And nobody to remove the agent's folder, but the user's next agent
	# there, a minute later.
	find /dev/shm /tmp -maxdepth 1 -name 'ddp-agent-??????' -user nobody \
		-newer "$DIR/started" -exec rm -r {} +
	clean
}

@test "kill -9 of slurmd: the step runs on, and ends as always" {
	start_step '3:join,until=now,exit=7' '*:join,sleep'
	happened 4 joined
	kill -KILL "$(cluster_pid "slurmd-${NODE[1]}")"
	sleep 2.5
	events 0 end
	since_now
	: >now
	finish_step 10
	ended 7 10
	named 3 "exited with code 7"
	gone 2
	fault_repair
	clean
}

@test "SIGINT to srun: once tells the state, twice ends the step" {
	running '*:join,sleep'
	kill -INT "$SRUN"
	sleep 1.5
	events 0 end
	[[ -e /proc/$SRUN ]]
	kill -INT "$SRUN"
	sleep 0.2
	kill -INT "$SRUN"
	finish_step 8
	same 130 "$status"
	says_not "failed first"
	gone 2
	clean
}

@test "SIGTERM to srun" {
	running '*:join,sleep'
	kill -TERM "$SRUN"
	finish_step 8
	((status != 0))
	says_not "failed first"
	gone 2
	clean
}

@test "SIGINT twice: Python takes it as an exception, each rank at its pace" {
	cat >ki.py <<-'X'
		import os, sys, time
		open(sys.argv[1] + "/py." + os.environ["RANK"], "w").close()
		try:
		    time.sleep(60)
		except KeyboardInterrupt:
		    time.sleep(0.06 * int(os.environ["RANK"]))
		    raise
	X
	for pause in 0.2 0.5; do
		rm -f ranks/py.*
		PROG=$PYTHON start_step "$DIR/ki.py" "$DIR/ranks"
		wait_until 15 all_python
		# Two within a second, as srun counts seconds.
		for _ in 1 2 3 4 5; do
			kill -INT "$SRUN"
			sleep "$pause"
			! grep -q "sending Ctrl-C" "$DIR/err" || break
		done
		finish_step 12
		says_not "failed first"
		same cancelled "$(report status)"
		((status)) || { told; return 1; }
		clean
	done
}

all_python() { (($(find ranks -name 'py.*' | wc -l) == 4)); }

@test "SIGKILL to srun: all ranks end, and the report says why" {
	running '*:ignore=15,join,sleep'
	kill -KILL "$SRUN"
	gone 5
	wait_until 10 test -e "$REPORT"
	reported srun-died
	finish_step 5
	wait_until 20 no_steps || in_cluster squeue -s
	clean
}

no_steps() { [[ -z $(in_cluster squeue -h) ]]; }

@test "srun and its controller are killed at once" {
	running '*:ignore=15,join,sleep'
	kill -KILL "$SRUN" "$(controller_pid)"
	gone 5
	finish_step 5
	wait_until 20 no_steps || in_cluster squeue -s
	clean
}

@test "everything of a step is killed but its ranks" {
	running '*:join,sleep'
	kill -KILL "$SRUN" "$(controller_pid)" "$(agent_pid 0)" "$(agent_pid 3)"
	finish_step 5
	# Nothing of this project is left: Slurm's own end remains.
	in_cluster scancel "$(job_id)"
	gone 10
	clean
}

@test "afterwards the logs are clean" { logs_clean; }
