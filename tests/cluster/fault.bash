# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # bats sets output, status, stderr
#
# For the fault tests: a step of small programs (ranks/rank.c) that fail as
# told, and what must be true afterwards. After lib and launch:
#
#	load fault
#	setup_file() { fault_up; }
#	teardown_file() { launch_down; }
#	setup() { fault_setup; }
#
#	ends 7 5 3:join,exit=7 '*:join,sleep'	# code 7 within 5 seconds
#	named 3 "exited with code 7"		# on stderr and in the report
#	clean					# and nothing is left
#
# Times on the machine of a test are for detecting a hang, or a grace that was
# not kept; make bench measures.

# fault_up ARGS...: of devcluster. KillWait is Slurm's time between TERM and
# KILL.
fault_up()
{
	set -- --nodes 2 --gpus 0 --conf "$FAST_SBATCH" --conf KillWait=3 "$@"
	launch_up "$@" || return 1
	printf '%s\n' ${DDP_ROOT:+--root "$DDP_ROOT"} "$@" >"$CLUSTER_TMP/args"
	fault_build
}

# fault_repair: starts again what a test has killed.
fault_repair()
{
	local args
	mapfile -t args <"$CLUSTER_TMP/args"
	cluster_up "${args[@]}"
}

# Built there, where no other program of the machine is: whatever runs a file
# below the cluster's folder is the cluster's.
fault_build()
{
	command -v gcc >/dev/null || skip "no gcc"
	gcc -std=c11 -O1 -Wall -o "$CLUSTER_TMP/rank" "$TESTS"/ranks/*.c
}

fault_setup()
{
	launch_setup
	read -r -a NODE <<<"$DEVCLUSTER_NODES"
	DIR=$(new_dir)
	cd "$DIR" || return 1
	PROG=$CLUSTER_TMP/rank
	REPORT=$DIR/report.json
	export RANKS_LOG=$DIR/ranks
	mkdir -m 1777 "$RANKS_LOG"
	: >started
	# What a test changes for its steps.
	SHAPE=(-N2 --ntasks-per-node=2)
	OPTS=()
	TIMERS=(--ddp-node-timeout=1 --ddp-grace=1)
	AS=as_nobody
	STEPS=()
}

# A test that fails leaves nothing to the next one. (A bats test has passed where
# BATS_TEST_COMPLETED is set.)
fault_teardown()
{
	local pid
	[[ -z ${BATS_TEST_COMPLETED:-} && -n ${DIR:-} ]] || return 0
	for pid in "${STEPS[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	fault_repair || true
	in_cluster scancel -Q --user=nobody || true
	in_cluster scancel -Q --user=root || true
	wait_until 10 nothing_left || leftovers | grep -v slurmstepd |
		while IFS=/ read -r _ _ pid _; do
			[[ ! ${pid%% *} =~ ^[0-9]+$ ]] || kill -KILL "${pid%% *}"
		done
	rm -rf "$RANKS_LOG"
	wait_until 30 all_idle || true
}

# srun_args: sets ARGS to what a step is started with.
srun_args()
{
	ARGS=(srun "${SHAPE[@]}" --ddp-launch "${TIMERS[@]}"
		"--ddp-report-file=$REPORT" "${OPTS[@]}")
}

# step SPEC...: to its end. Sets status, output, stderr, and MS, the time.
step()
{
	local start=${EPOCHREALTIME/./}
	srun_args
	run --separate-stderr "$AS" "${ARGS[@]}" "$PROG" "$@"
	MS=$(((${EPOCHREALTIME/./} - start) / 1000))
	stderr=$(without_waiting <<<"$stderr")
}

# ends CODE SECONDS SPEC...: a step ends so.
ends()
{
	local code=$1 limit=$2
	shift 2
	step "$@"
	ended "$code" "$limit"
}

# ended CODE SECONDS: what step or finish_step has seen.
ended()
{
	((status == $1 && MS <= $2 * 1000)) && return 0
	printf 'exit code %s after %s ms, not %s within %s s\n' "$status" \
		"$MS" "$1" "$2"
	told
	return 1
}

# told: all that a step has said, for a failing test.
told()
{
	printf -- '--- stdout\n%s\n--- stderr\n%s\n--- report\n%s\n' \
		"${output:0:2000}" "${stderr:0:4000}" \
		"$(head -c 3000 "$REPORT" 2>/dev/null)"
	printf -- '--- ranks\n%s\n' "$(tail -n 6 "$RANKS_LOG"/* 2>/dev/null)"
}

# start_step SPEC...: in the background. SRUN is srun's own pid.
start_step()
{
	local cmd=("$DEVCLUSTER" --dir "$CLUSTER_DIR" --user nobody run --)
	srun_args
	[[ $AS == as_nobody ]] || cmd=("$DEVCLUSTER" --dir "$CLUSTER_DIR" run --)
	BEGAN=${EPOCHREALTIME/./}
	# bats ignores INT for what it starts in the background.
	env --default-signal=INT,QUIT "${cmd[@]}" "${ARGS[@]}" "$PROG" "$@" \
		</dev/null >"$DIR/out" 2>"$DIR/err" 3>&- &
	SRUN=$!
	STEPS+=("$SRUN")
}

# since_now: MS counts from here, not from the step's start.
since_now() { BEGAN=${EPOCHREALTIME/./}; }

# finish_step SECONDS: waits for its end; fills what step does.
finish_step()
{
	if ! wait_until "$1" pid_gone "$SRUN"; then
		output=$(<"$DIR/out") stderr=$(<"$DIR/err") status=-1
		echo "srun still runs after $1 s"
		told
		return 1
	fi
	MS=$(((${EPOCHREALTIME/./} - BEGAN) / 1000))
	status=0
	wait "$SRUN" || status=$?
	output=$(<"$DIR/out")
	stderr=$(without_waiting <"$DIR/err")
}

# happened N EVENT: N ranks have recorded it, or do within 15 seconds.
happened()
{
	wait_until 15 events "$1" "$2" && return 0
	printf 'not %s times: %s\n' "$1" "$2"
	output=$(cat "$DIR/out" 2>/dev/null) stderr=$(cat "$DIR/err" 2>/dev/null)
	told
	return 1
}

# events N EVENT: so many ranks have recorded it, by now.
events()
{
	(($(grep -ls "^$2 " "$RANKS_LOG"/* | wc -l) == $1))
}

# count EVENT RANK: how often it has.
count() { grep -c "^$1 " "$RANKS_LOG/$2"; }

# rank_pid RANK, event_us EVENT RANK: as it has recorded them.
rank_pid() { sed -n 's/^start \([0-9]*\) .*/\1/p' "$RANKS_LOG/$1"; }
event_us() { sed -n "s/^$1 [0-9]* //p" "$RANKS_LOG/$2" | head -n 1; }

# step_id: JOB.STEP of the one that runs.
step_id() { in_cluster squeue -h -s -o %i | grep -vE 'batch|extern' | tail -n 1; }
job_id() { local s; s=$(step_id); printf '%s\n' "${s%%.*}"; }

# --- who was it -----------------------------------------------------------------

# report PATH: a value of the report, like cause.rank; "null" is None.
report()
{
	"$PYTHON" - "$REPORT" "$1" <<-'Z'
	import json, sys
	with open(sys.argv[1]) as f:
	    value = json.load(f)
	for key in sys.argv[2].split("."):
	    value = value[int(key) if key.isdigit() else key]
	print(value)
	Z
}

# named RANK HOW [NODE]: as the first that failed, once, on stderr; the same
# in the report.
named()
{
	local node=${3:-${NODE[$1 / 2]}}
	if ! grep -qE "ddp: rank $1 on node $node failed first: $2, pid [0-9]+, at [0-9:.]+" <<<"$stderr" ||
		(($(grep -c 'failed first' <<<"$stderr") != 1)); then
		echo "not named: rank $1 on node $node, $2"
		told
		return 1
	fi
	same "failed $1 $node $status" "$(report status) $(report cause.rank) $(report cause.node) $(report exit_code)" &&
		same "$(rank_pid "$1")" "$(report cause.pid)"
}

# blamed KIND TEXT: a cause that is not a rank.
blamed()
{
	if [[ $stderr == *"ddp: "*"$2"* ]]; then
		reported "$1" && return 0
	fi
	echo "not named: $1, $2"
	told
	return 1
}

# reported KIND: the cause in the report.
reported()
{
	[[ $(report cause.kind) == "$1" ]] && return 0
	echo "not in the report: $1"
	told
	return 1
}

# quiet: nothing is said by this project.
quiet()
{
	[[ $stderr != *ddp:* ]] && return 0
	told
	return 1
}

# --- and nothing is left ----------------------------------------------------------

# leftovers: processes of steps (ranks, agents, controllers, slurmstepds),
# files and cgroups, one a line.
leftovers()
{
	local p path
	find /proc/[0-9]*/exe \( -lname "*$CLUSTER_DIR/bin/*" -o \
		-lname "*$CLUSTER_TMP/*" \) -printf 'process %h %l\n' \
		2>/dev/null
	grep -lx slurmstepd /proc/[0-9]*/comm 2>/dev/null | while read -r p; do
		find "${p%/comm}/fd" -lname "*$CLUSTER_DIR/*" \
			-printf "process $p\n" -quit 2>/dev/null
	done
	# The agents' folders. One that is locked has its agent, perhaps of
	# another cluster here; ours is among the processes.
	find /dev/shm /tmp -maxdepth 1 -name 'ddp-agent-??????' -user nobody \
		-newer "$DIR/started" -printf '%i %p\n' 2>/dev/null |
		while read -r p path; do
			grep -q ":$p 0 EOF\$" /proc/locks ||
				[[ ! -d $path ]] || echo "file $path"
		done
	find "$DIR" -maxdepth 1 -name "${REPORT##*/}.*" -printf 'file %p\n'
	groups_of_steps
}

nothing_left() { [[ -z $(leftovers) ]]; }

# clean: soon, and the nodes are idle, not drained.
clean()
{
	left_nothing 10 leftovers && nodes_idle
}

# gone SECONDS: no rank and no grandchild of one runs any more.
gone()
{
	wait_until "$1" no_ranks && return 0
	echo "still there after $1 s:"
	leftovers
	return 1
}

no_ranks()
{
	[[ -z $(find /proc/[0-9]*/exe -lname "*$CLUSTER_TMP/rank" \
		-print -quit 2>/dev/null) ]]
}

controller_pid()
{
	find /proc/[0-9]*/exe -lname "*$CLUSTER_DIR/bin/ddp-controller" \
		2>/dev/null | cut -d / -f 3
}

# agent_pid RANK: of its node: the agent that has a pidfd of this rank.
agent_pid()
{
	local p rank
	rank=$(rank_pid "$1")
	while read -r p; do
		grep -qsE "^Pid:[[:space:]]*$rank\$" "$p"/fdinfo/* || continue
		cut -d / -f 3 <<<"$p"
		return
	done < <(find /proc/[0-9]*/exe -lname "*$CLUSTER_DIR/bin/ddp-agent" \
		-printf '%h\n' 2>/dev/null)
	return 1
}

# stepd_pid RANK: its slurmstepd, which is its parent.
stepd_pid()
{
	awk '/^PPid:/ { print $2 }' "/proc/$(rank_pid "$1")/status"
}
