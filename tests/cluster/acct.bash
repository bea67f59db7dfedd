# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # bats sets output, stderr
#
# For the tests of GPU accounting on a real Slurm, slurmdbd and MariaDB: what
# sacct says is compared with the truth about a scenario. After lib and launch.
#
#	acct_up ARGS...		a cluster with the plugin, and gpu_task in it
#	acct_down		its end
#	acct_varied FILE	a scenario with curves, of 8 GPUs
#	step LABEL SECONDS CHILDREN STAGGER SRUN-ARGS...   in the background
#	steps_end		waits for all of them
#	right ARGS... LABEL...	compare.py: sacct has what is true

ACCT=$(cd "$TESTS/../acct" && pwd)

# acct_up ARGS...: of devcluster.
acct_up()
{
	local so
	unset GPU_TASK_DEV
	[[ " $* " != *" --cgroup"* ]] || export GPU_TASK_DEV=$CLUSTER_DIR/dev
	[[ $EUID == 0 ]] || skip "needs root: it starts slurmds"
	command -v gcc >/dev/null || skip "no gcc"
	so=$("$TESTS/../../contrib/build" --quiet \
		${DDP_ROOT:+--root "$DDP_ROOT"} 3>&- | tail -n 1)
	[[ -f ${so%/*}/acct_gather_interconnect_ddp.so ]] ||
		skip "the accounting plugin is not built"
	# When a task began it says itself, once it has a CPU: other work on
	# this machine must not keep it waiting for one.
	renice -n -10 -p "$BASHPID" >/dev/null 2>&1 || true
	launch_up "$@" || return 1
	# Static: for the C library of every root.
	gcc -static -O1 -o "$CLUSTER_TMP/gpu_task" "$ACCT/gpu_task.c" &&
		chmod 755 "$CLUSTER_TMP/gpu_task" &&
		mkdir -m 1777 "$CLUSTER_TMP/tasks" || return 1
	gcc -O1 -pthread -o "$CLUSTER_DIR/bin/stalls" "$ACCT/stalls.c" || return 1
	"$CLUSTER_DIR/bin/stalls" "$CLUSTER_DIR/stalls" </dev/null >/dev/null \
		2>&1 3>&- &
	export STALLS_PID=$!
}

acct_down()
{
	if [[ -n ${STALLS_PID:-} ]]; then
		kill "$STALLS_PID" 2>/dev/null || true
		wait "$STALLS_PID" 2>/dev/null || true
		unset STALLS_PID
	fi
	launch_down
}

acct_setup()
{
	launch_setup
	read -r -a NODE <<<"$DEVCLUSTER_NODES"
	GPU_DIR=$CLUSTER_DIR/gpu
	TASKS=$CLUSTER_TMP/tasks
	TASK=$CLUSTER_TMP/gpu_task
	STEPS=()
}

# now: for `origin`.
now() { printf '%s\n' "$EPOCHREALTIME"; }

# acct_varied [LINE...]: a scenario of 8 GPUs whose curves repeat every 1.8 s.
# The highest level of each holds for 1.1 s: with readings every 0.5 s every
# step of 3 s has one that lies wholly in it. NVML's order is none of Slurm's.
# GPU 7 is idle all the time, GPU 5 at times.
acct_varied()
{
	local m
	printf 'origin %s\nperiod 1.8\ndevdir %s\n' "$(now)" "$CLUSTER_DIR/dev"
	printf '%s\n' "$@"
	for m in 5 2 7 0 3 6 1 4; do
		printf 'gpu minor=%d bus=0000:%02x:00.0 uuid=GPU-0000000%d-0dd0-4000-8000-000000000000\n' \
			"$m" $((0x90 - 16 * m)) "$m"
		case $m in
		7) printf 'sm 0:0.4\nmembw 0:0.2\n' ;;
		5) printf 'sm 0:0.5 0.7:61.5\nmembw 0:0.1 0.7:33\n' ;;
		*) printf 'sm 0:%d 0.3:%d 0.7:%d.5\nmembw 0:%d 1.1:%d\n' \
			$((20 + 5 * m)) $((70 - 9 * m)) $((97 - 4 * m)) \
			$((60 - 5 * m)) $((9 + 2 * m)) ;;
		esac
		printf 'util 0:100\npower 0:%d 0.9:%d\n' $((90 + 20 * m)) \
			$((420 + 30 * m))
		printf 'nvlink_rx 0:%de9 0.7:%de9\nnvlink_tx 0:%de9\n' \
			$((40 + m)) $((170 - 11 * m)) $((60 + 5 * m))
		printf 'pcie_rx 0:%de6 1:%de6\npcie_tx 0.5:%de6 1.5:0\n' \
			$((900 + 70 * m)) $((2100 - 90 * m)) $((300 + 31 * m))
		# Counters that go round soon.
		printf 'base pcie_rx %d\nbase energy 123.456\n' \
			$((4294967295 - 1000000 * m))
	done
}

# acct_flat LEVEL...: GPU 0, 1, ... are at these percents all the time.
acct_flat()
{
	local m=0 level
	printf 'origin %s\ndevdir %s\n' "$(now)" "$CLUSTER_DIR/dev"
	for level; do
		printf 'gpu minor=%d bus=0000:%02x:00.0 uuid=GPU-0000000%d-0dd0-4000-8000-000000000000\n' \
			"$m" $((0x90 - 8 * m)) "$m"
		printf 'sm 0:%s\nmembw 0:%s\nutil 0:100\npower 0:%d\n' "$level" \
			"$level" $((200 + 10 * m))
		printf 'nvlink_rx 0:%de9\nnvlink_tx 0:%de9\npcie_rx 0:%de6\npcie_tx 0:%de6\n' \
			$((10 + m)) $((20 + m)) $((100 + m)) $((200 + m))
		m=$((m + 1))
	done
}

# step LABEL SECONDS CHILDREN STAGGER SRUN-ARGS...
step()
{
	in_cluster srun -o /dev/null "${@:5}" "$TASK" "$TASKS" "$1" "$2" "$3" \
		"$4" 2>"$CLUSTER_TMP/$1.err" 3>&- &
	started "$1"
}

# started LABEL: the step in the background, whose end is waited for. One start
# at a time: where the sampler waits for a CPU meanwhile, what the GPUs did until
# its first reading is a guess.
started()
{
	STEPS+=("$!:$1")
	sleep 0.6
}

steps_end()
{
	local s rc=0
	for s in "${STEPS[@]}"; do
		wait "${s%%:*}" && continue
		rc=1
		echo "srun of ${s#*:}:"
		cat "$CLUSTER_TMP/${s#*:}.err" 2>/dev/null || true
	done
	STEPS=()
	return "$rc"
}

# runs LABEL [N]: N tasks (1) have begun.
runs()
{
	wait_until 20 has_begun "$@" && return 0
	cat "$CLUSTER_TMP/$1.err" || true
	return 1
}

has_begun()
{
	local n
	n=$(grep -ls '^start ' "$TASKS/$1"/* 2>/dev/null | wc -l)
	((n >= ${2:-1}))
}

# right [OPTIONS] LABEL...
right()
{
	"$PYTHON" "$ACCT/compare.py" --devcluster "$DEVCLUSTER" \
		--cluster "$CLUSTER_DIR" --tasks "$TASKS" \
		--interval "$INTERVAL" "$@"
}

# id_of LABEL: JOB.STEP
id_of() { sed -n 's/^step //p' "$(task_file "$1")"; }

task_file() { find "$TASKS/$1" -type f | head -n 1; }

# gpu_keys TEXT: the TRES of ours in it, sorted, with commas.
gpu_keys()
{
	tr -s ',|' '\n' <<<"$1" | sed -n 's/^\(gres\/gpu[a-z]*\|ic\/[a-z]*\)=.*/\1/p' |
		sort -u | paste -sd,
}
