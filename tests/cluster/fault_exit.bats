#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The fault matrix: ranks that end by themselves, and who was first.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of fault.bash

load lib
load launch
load fault

setup_file() { fault_up; }
teardown_file() { launch_down; }
setup() { fault_setup; }
teardown() { fault_teardown; }

@test "all well: nothing is said, and the report says so" {
	ends 0 10 '*:join,print=hello'
	same "" "$stderr"
	says_times 4 hello
	same "ok None 0 4 2" "$(report status) $(report cause) $(report exit_code) $(report world_size) $(report nodes)"
	same "600 nobody" "$(stat -c '%a %U' "$REPORT")"
	clean
}

@test "a rank exits with 1, 7 or 255: that code, on either node" {
	for code in 1 7 255; do
		for rank in 0 3; do
			rm -f ranks/*
			ends "$code" 5 "$rank:join,exit=$code" '*:join,sleep'
			named "$rank" "exited with code $code"
			says "stopped: 3 ranks on 2 nodes (3 by SIGTERM)"
			same 3 "$(report stopped.ranks)"
		done
	done
	clean
}

@test "case 21: its peers sit in a collective, and break with it" {
	ends 7 5 '3:join,after=300,exit=7' '*:join,watch'
	named 3 "exited with code 7"
	clean
}

@test "case 23: a signal is 128 and its number" {
	for what in segv:139:SIGSEGV abort:134:SIGABRT kill=9:137:SIGKILL \
		kill=15:143:SIGTERM kill=8:136:SIGFPE; do
		IFS=: read -r action code name <<<"$what"
		rm -f ranks/*
		ends "$code" 8 "2:join,$action" '*:join,sleep'
		named 2 "killed by $name( \\(core dumped\\))?"
		same "signal $((code - 128))" "$(report cause.kind) $(report cause.signal)"
	done
	clean
}

@test "case 23: a program that is missing, or no program" {
	srun_args
	run --separate-stderr as_nobody "${ARGS[@]}" ./missing
	[[ $status == 2 ]] || told
	same 2 "$status"
	says "missing: No such file or directory"
	: >plain
	run --separate-stderr as_nobody "${ARGS[@]}" ./plain
	same 13 "$status"
	clean
}

@test "the failing rank's error file is told, as one plain line" {
	text='\u001b[31mRuntimeError: \u001b]0;x\u0007out of\nmemory\u001b[0m'
	ends 3 5 "1:join,error={\"message\": \"$text\"},exit=3" '*:join,sleep'
	named 1 "exited with code 3"
	says "  message: RuntimeError: out of memory"
	same "RuntimeError: out of memory" "$(report cause.message)"
	says_not $'\e'
	clean
}

@test "two ranks within 10 ms: the earlier one" {
	turns=0 clear=0
	while ((clear < (${DDP_LONG:+20}+5))); do
		((turns++ < 3 * (${DDP_LONG:+20}+5))) || { told; return 1; }
		rm -f ranks/*
		step '1:join,after=100,exit=5' \
			'2:ignore=15,join,after=106,exit=6' '*:join,watch'
		# On a busy machine it is not as planned: the other may be first,
		# or be first to want it and last to get there.
		if (($(event_us end 1) < $(event_us end 2))); then
			[[ $(report ranks.1.time) < $(report ranks.2.time) ]] ||
				continue
			named 1 "exited with code 5"
		else
			[[ $(report ranks.2.time) < $(report ranks.1.time) ]] ||
				continue
			named 2 "exited with code 6"
		fi
		((++clear))
	done
	clean
}

@test "SIGPIPE is a cause where there is no other" {
	# Once all are there: who is still on the way to it sees more.
	ends 141 5 '1:join,after=200,kill=13' '*:join,sleep'
	named 1 "killed by SIGPIPE"
	clean
}

# slow_core: makes the folder CORE, where each write waits for the disk, and
# sets MB: a core of that size takes three seconds.
slow_core()
{
	local ms start mb=16 again=0
	[[ $(</proc/sys/kernel/core_pattern) == core ]] ||
		skip "core_pattern is not core"
	CORE=$DIR/core
	mkdir -m 1777 "$CORE"
	chattr +S "$CORE" 2>/dev/null ||
		skip "no synchronous folders on this file system (chattr +S)"
	while :; do
		start=${EPOCHREALTIME/./}
		"$PROG" "*:mem=$mb,core=$CORE,segv" 2>/dev/null || true
		ms=$(((${EPOCHREALTIME/./} - start) / 1000))
		rm -f "$CORE"/* ranks/*
		# The second time the disk is awake.
		if ((ms < 300 && mb < 2048)); then
			mb=$((mb * 4))
		elif ((again++)); then
			break
		fi
	done
	MB=$((mb * 3000 / ms))
	((MB < 3000)) || skip "cores are written too fast: $mb MB in $ms ms"
}

@test "a core that takes three seconds: its rank is named, not its peers" {
	slow_core
	# Its connections end first, as those of a device do.
	# Time enough on a busy disk: what is cut off is the next test's.
	TIMERS=(--ddp-node-timeout=1 --ddp-grace=40)
	turns=0 slow=0
	while ((slow < (${DDP_LONG:+45}+5))); do
		# The disk may be faster than when it was measured.
		((turns++ < 3 * (${DDP_LONG:+45}+5))) || { told; return 1; }
		rm -f ranks/* "$CORE"/core*
		ends 139 45 "2:mem=$MB,core=$CORE,join,after=50,leave,segv" \
			'*:join,watch'
		named 2 "killed by SIGSEGV \\(core dumped\\)"
		[[ -s $(echo "$CORE"/core*) ]]
		# It was slow indeed: the peers had long ended.
		if ((MS > 1200)); then
			((++slow))
		elif ((MB < 2000)); then
			MB=$((MB * 3 / 2))
		fi
	done
	clean
}

@test "a core that takes longer than the grace is cut off, and named" {
	slow_core
	ends 139 8 "2:mem=$((MB * 4)),core=$CORE,join,after=50,leave,segv" \
		'*:join,watch'
	named 2 "killed by SIGSEGV( \\(core dumped\\))?"
	clean
}

@test "a rank that exits 0 before the others is no failure" {
	ends 0 10 '0:join,exit=0' '*:join,after=1500'
	same "" "$stderr"
	ends 0 10 'last:join,exit=0' '*:join,after=1500'
	same "" "$stderr"
	clean
}

@test "case 22: --ddp-exit-grace makes it one" {
	OPTS=(--ddp-exit-grace=1)
	for rank in 0 3; do
		rm -f ranks/*
		ends 1 5 "$rank:join,exit=0" '*:join,sleep'
		((MS >= 1000))
		blamed early-exit "rank $rank on node ${NODE[rank / 2]} ended first, with exit code 0"
	done
	clean
}

@test "it is reported after 30 s" {
	[[ -n ${DDP_LONG:-} ]] || skip "takes 33 s: with --all"
	ends 0 45 '0:join,exit=0' '*:join,after=33000'
	says_times 1 "ddp: rank 0 on node ${NODE[0]} ended with exit code 0 30 s ago, 3 ranks still run"
	same ok "$(report status)"
	clean
}

# --- who is ended ---------------------------------------------------------------

@test "--ddp-abort=node ends the ranks of that node" {
	OPTS=(--ddp-abort=node)
	ends 7 8 '3:join,after=100,exit=7' '2:join,sleep' '*:join,after=2000'
	named 3 "exited with code 7"
	((MS >= 2000))
	same "1 1" "$(count end 0) $(count end 1)"
	run ! count end 2
	clean
}

@test "--ddp-abort=none ends nothing, and names the first" {
	OPTS=(--ddp-abort=none)
	ends 7 8 '3:join,exit=7' '2:join,after=500,exit=8' '*:join,after=1500'
	named 3 "exited with code 7"
	same "1 1" "$(count end 0) $(count end 1)"
	clean
}

@test "srun's --kill-on-bad-exit beside it" {
	# Who says that the others shall run on has it so.
	OPTS=(--kill-on-bad-exit=0)
	ends 7 5 '3:join,exit=7' '*:join,after=800'
	named 3 "exited with code 7"
	same "1 1 1" "$(count end 0) $(count end 1) $(count end 2)"
	rm -f ranks/*
	OPTS=(--kill-on-bad-exit=1)
	ends 7 8 '3:join,exit=7' '*:join,sleep'
	named 3 "exited with code 7"
	# Slurm ends all where this project would not.
	rm -f ranks/*
	OPTS=(--kill-on-bad-exit=1 --ddp-abort=none)
	ends 7 8 '3:join,exit=7' '*:join,sleep'
	named 3 "exited with code 7"
	clean
}

@test "--ddp-abort-signal comes once to each rank" {
	OPTS=(--ddp-abort-signal=USR1)
	ends 7 5 '3:join,exit=7' '*:catch=10,join,sleep'
	named 3 "exited with code 7"
	says "3 by SIGKILL after 1 s"
	for rank in 0 1 2; do
		same 1 "$(count caught10 "$rank")"
	done
	((MS >= 1000))
	clean
}

@test "--ddp-grace=0 kills at once; a rank may use its grace" {
	TIMERS=(--ddp-node-timeout=1 --ddp-grace=0)
	ends 7 3 '3:join,exit=7' '*:ignore=15,join,sleep'
	named 3 "exited with code 7"
	rm -f ranks/*
	TIMERS=(--ddp-node-timeout=1 --ddp-grace=4)
	ends 7 6 '3:join,exit=7' '*:term=1500,join,sleep'
	named 3 "exited with code 7"
	same "1 1 1" "$(count saved 0) $(count saved 1) $(count saved 2)"
	clean
}

@test "what was printed before the end arrives" {
	ends 7 8 '3:spam=2000,join,exit=7' '*:spam=2000,join,sleep'
	named 3 "exited with code 7"
	same 8000 "$(wc -l <<<"$output")"
	clean
}

@test "afterwards the logs are clean" { logs_clean; }
