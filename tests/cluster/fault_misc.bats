#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The fault matrix: the start, the report, and those who mean harm.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of fault.bash

load lib
load launch
load fault
load cut

setup_file() { fault_up; }
teardown_file() { launch_down; }
setup() { fault_setup; }

teardown()
{
	kill -CONT "$(cluster_pid "slurmd-${NODE[1]}")" 2>/dev/null || true
	[[ -z ${PEER:-} ]] || kill "$PEER" 2>/dev/null || true
	fault_teardown
}

# --- the start ---------------------------------------------------------------------

@test "a slow node at the start: no program starts before it is there" {
	kill -STOP "$(cluster_pid "slurmd-${NODE[1]}")"
	start_step '*:join,print=hello'
	sleep 3
	same "" "$(ls ranks)"
	kill -CONT "$(cluster_pid "slurmd-${NODE[1]}")"
	finish_step 10
	ended 0 15
	quiet
	clean
}

@test "a node that does not come: the launch fails, and names it" {
	OPTS=(--ddp-start-timeout=2)
	kill -STOP "$(cluster_pid "slurmd-${NODE[1]}")"
	start_step '*:join,sleep'
	finish_step 15
	kill -CONT "$(cluster_pid "slurmd-${NODE[1]}")"
	ended 75 15
	blamed launch "${NODE[1]}"
	says_not "from ${NODE[0]}"
	same launch-failed "$(report status)"
	same "" "$(ls ranks)"
	clean
	same "" "$(ls ranks)"
}

@test "an interface that is not there: no program starts, and it is said once" {
	OPTS=(--ddp-iface=none-such)
	ends 75 10 '*:join,sleep'
	says "the launch failed"
	says "--ddp-iface=none-such: no such interface on this node"
	same 1 "$(grep -c none-such <<<"$stderr")"
	same "" "$(ls ranks)"
	same launch-failed "$(report status)"
	clean
}

@test "an agent is killed at the barrier" {
	kill -STOP "$(cluster_pid "slurmd-${NODE[1]}")"
	start_step '*:join,sleep'
	wait_until 10 an_agent
	kill -KILL "$(an_agent)"
	kill -CONT "$(cluster_pid "slurmd-${NODE[1]}")"
	finish_step 12
	((status != 0))
	says "${NODE[0]}"
	same "" "$(ls ranks)"
	clean
}

an_agent()
{
	find /proc/[0-9]*/exe -lname "*$CLUSTER_DIR/bin/ddp-agent" \
		2>/dev/null | cut -d / -f 3 | grep .
}

@test "contain_spank: the plugin in short-lived children" {
	slurm_at_least 24.11 || skip "Slurm 24.11 has it first"
	conf=$CLUSTER_DIR/etc/slurm.conf
	cp "$conf" conf.before
	sed -i 's/^SlurmdParameters=.*/&,contain_spank/' "$conf"
	in_cluster scontrol reconfigure
	wait_until 20 all_idle
	ends 0 10 '*:join,print=hello'
	same "" "$stderr"
	rm -f ranks/*
	ends 7 6 '3:join,exit=7' '*:ignore=15,daemon,join,sleep'
	named 3 "exited with code 7"
	clean
	rm -f ranks/*
	start_step '*:join,sleep'
	happened 4 joined
	kill -KILL "$(stepd_pid 3)"
	finish_step 9
	ended 75 12
	clean
	cp conf.before "$conf"
	in_cluster scontrol reconfigure
	wait_until 20 all_idle
}

# --- the report ----------------------------------------------------------------------

@test "a full disk costs the report, not the step's code" {
	AS=in_cluster
	srun_args
	cat >full <<-'Z'
		mount -t tmpfs -o size=4k,mode=1777 ddp-test "$1" || exit 99
		head -c 1M /dev/zero >"$1/fill" 2>/dev/null
		cd "$1" && shift && exec "$@"
	Z
	mkdir disk
	REPORT=$DIR/disk/report.json
	srun_args
	run --separate-stderr in_cluster unshare -m --propagation private \
		sh full "$DIR/disk" "${ARGS[@]}" --chdir=/ "$PROG" \
		3:join,exit=7 '*:join,sleep'
	((status != 99)) || skip "no tmpfs here: ${stderr%%$'\n'*}"
	same 7 "$status"
	says_times 1 "no report in $REPORT: No space left on device"
	says "rank 3 on node ${NODE[1]} failed first: exited with code 7"
	clean
}

@test "a report that cannot be written is one line" {
	mkdir -m 755 closed
	ln -s /etc/passwd link
	chown -h nobody link
	for to in closed/report missing/report "$DIR"; do
		REPORT=$to
		rm -f ranks/*
		step 3:join,exit=7 '*:join,sleep'
		same 7 "$status"
		says_times 1 "no report in "
		says "failed first: exited with code 7"
	done
	# A link is replaced, not followed.
	REPORT=$DIR/link
	rm -f ranks/*
	ends 7 5 3:join,exit=7 '*:join,sleep'
	[[ ! -L link ]]
	same failed "$(report status)"
	grep -q ^root: /etc/passwd
	clean
}

# --- those who mean harm ----------------------------------------------------------------

# attacked ATTACK: somebody without the key at the controller, while it waits
# for a node and while the step runs; the step does not notice.
attacked()
{
	local phase
	for phase in start running; do
		rm -f ranks/* port now listening
		"$PYTHON" "$TESTS/hostile_peer.py" "$1" 127.0.0.1 port \
			>listening 2>attack.err </dev/null 3>&- &
		PEER=$!
		[[ $1 != replay ]] || wait_until 10 test -s listening
		[[ $phase == running ]] ||
			kill -STOP "$(cluster_pid "slurmd-${NODE[1]}")"
		start_step '3:join,until=now,exit=7' '*:join,sleep'
		if [[ $phase == running ]]; then
			happened 4 joined
		else
			wait_until 10 an_agent
			sleep 0.5
		fi
		controller_port >port.new && mv port.new port
		sleep 1
		kill -CONT "$(cluster_pid "slurmd-${NODE[1]}")"
		happened 4 joined
		attack_over "$1"
		: >now
		since_now
		finish_step 8
		ended 7 5
		named 3 "exited with code 7"
		says_not "hostile" "refused peers"
		PEER=''
	done
	clean
}

attack_over()
{
	local rc=0
	wait_until 60 pid_gone "$PEER" || return 1
	wait "$PEER" || rc=$?
	((rc == 0)) && return 0
	cat attack.err
	return 1
}

@test "garbage on the controller's port" { attacked garbage; }
@test "half frames on the controller's port" { attacked half; }
@test "a slow sender on the controller's port" { attacked slow; }
@test "a wrong proof on the controller's port" { attacked reflect; }
@test "an agent's words again on the controller's port" { attacked replay; }
@test "10,000 connections to the controller's port" { attacked flood; }

@test "its user can neither ptrace nor read agent and controller" {
	start_step '3:join,until=now,exit=7' '*:join,sleep'
	happened 4 joined
	cat >trace.py <<-'Z'
		import ctypes, os, sys
		libc = ctypes.CDLL(None, use_errno=True)
		for pid in map(int, sys.argv[1:]):
		    for request in (16, 0x4206):    # ATTACH, SEIZE
		        if libc.ptrace(request, pid, None, None) == 0:
		            sys.exit(f"ptrace {request} of {pid}")
		    for name in ("mem", "environ", "maps", "fd/3"):
		        try:
		            os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
		        except PermissionError:
		            continue
		        sys.exit(f"/proc/{pid}/{name} can be opened")
		print("refused")
	Z
	run as_nobody "$PYTHON" trace.py "$(agent_pid 0)" "$(agent_pid 3)" \
		"$(controller_pid)"
	same refused "$output"
	for pid in $(agent_pid 0) $(controller_pid); do
		same "nobody nobody" "$(ps -o user=,ruser= -p "$pid" | xargs)"
		# No capability, nobody's rights.
		same 0000000000000000 "$(awk '/^CapPrm:/ { print $2 }' "/proc/$pid/status")"
	done
	: >now
	finish_step 5
	named 3 "exited with code 7"
	clean
}

@test "agent and controller hold nothing but their own" {
	start_step '3:join,until=now,exit=7' '*:join,sleep'
	happened 4 joined
	sessions=" $(session "$SRUN") $(session "$(stepd_pid 0)") $(session "$(stepd_pid 3)") $(session "$(rank_pid 0)") $(session "$(rank_pid 3)") "
	mapfile -t pids < <(agent_pid 0; agent_pid 3; controller_pid)
	same 3 ${#pids[@]}
	for pid in "${pids[@]}"; do
		ls -l "/proc/$pid/fd" >>fds
		for fd in 0 1 2; do
			[[ $(readlink "/proc/$pid/fd/$fd") == */dev/null ]]
		done
		# In no session of srun or a task, no blocked signals, not protected from memory
		# shortage.
		[[ $sessions != *" $(session "$pid") "* ]]
		same 0000000000000000 "$(awk '/^SigBlk:/ { print $2 }' "/proc/$pid/status")"
		(($(<"/proc/$pid/oom_score_adj") >= 0))
		same "" "$(tr '\0' '\n' <"/proc/$pid/environ" | grep -vE "^(PATH|SLURM_CONF)=")"
	done
	# Neither srun's nor slurmstepd's files; a pipe has both ends here.
	same "" "$(grep -E "$CLUSTER_DIR/(log|spool|state)" fds)"
	same "" "$(grep -o 'pipe:.*' fds | sort | uniq -u)"
	: >now
	finish_step 5
	clean
}

session() { ps -o sid= -p "$1" | xargs; }

@test "case 37: the key is in no log, no ps line and no file of others" {
	key='key=[0-9a-f]{64}'
	OPTS=(--ddp-explain -vv)
	start_step '3:join,until=now,exit=7' '*:join,sleep'
	happened 4 joined
	for r in 0 1 2 3; do
		tr '\0' '\n' <"/proc/$(rank_pid $r)/environ" >>seen
	done
	run ! grep -E "SLURM_DDP_CONTROL|$key" seen
	for pid in "$SRUN" $(agent_pid 0) $(agent_pid 3) $(controller_pid) \
		$(stepd_pid 0) $(stepd_pid 3) $(rank_pid 0); do
		tr '\0' ' ' <"/proc/$pid/cmdline" >>seen
	done
	run ! grep -E "$key" seen
	in_cluster scontrol show step >seen
	in_cluster scontrol show job >>seen
	run ! grep -E "$key" seen
	: >now
	finish_step 8
	run ! grep -E "$key" "$DIR/out" "$DIR/err" "$REPORT"
	run ! grep -rE "$key" "$CLUSTER_DIR/log" "$CLUSTER_DIR/spool"
	clean
}

@test "afterwards the logs are clean" { logs_clean; }
