#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# GPU accounting with ASan and UBSan: slurmd and slurmstepd of one node have the
# sanitizers' library before all others, and there the plugin and the sampler are
# those of `contrib/build --sanitizers`. (Under valgrind slurmstepd has no title,
# so that the plugin does not know its step.)
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch
load acct

export INTERVAL=0.5

# No sanitizers' library in another root.
wanted() { [[ -n ${DDP_LONG:-} && -z ${DDP_ROOT:-} ]]; }

setup_file()
{
	if wanted; then
		cluster_init
		acct_up --nodes 1 --gpus 8 --cpus 64 \
			--gpu-conf DdpGpuInterval=0.5
		sanitized_node
	fi
}

teardown_file()
{
	if wanted; then
		slurmd_stop
		acct_down
	fi
}

setup()
{
	wanted || skip "builds all once more: with --all, not in a root"
	acct_setup
	cd "$CLUSTER_TMP" || return 1
	acct_varied >"$GPU_DIR/scenario"
}

teardown()
{
	if wanted; then
		steps_end || true
		nodes_idle
		logs_clean
		# Where each process would have written what it found.
		! find "$CLUSTER_TMP" -maxdepth 1 -name 'asan.*' \
			-exec cat {} + | grep .
	fi
}

# The node's slurmd again, in a mount namespace where the plugin and the
# sampler are others.
sanitized_node()
{
	local so asan pid node
	node=$(cluster_node 1)
	so=$("$TESTS/../../contrib/build" --quiet --sanitizers 3>&- | tail -n 1)
	asan=$(gcc -print-file-name=libasan.so)
	[[ -f $so && $asan == /* ]] || skip "no sanitizers"
	pid=$(cluster_pid "slurmd-$node")
	kill "$pid"
	wait_until 20 pid_gone "$pid"
	unshare -m --propagation private sh -c '
		mount --bind "$1/.libs/acct_gather_interconnect_ddp.so" \
			"$2/plugins/acct_gather_interconnect_ddp.so" &&
		mount --bind "$1/ddp-gpu-sampler" "$2/bin/ddp-gpu-sampler" &&
		exec "$3" --dir "$2" run -- env "LD_PRELOAD=$4" \
			"ASAN_OPTIONS=log_path=$5/asan:detect_leaks=0" \
			"UBSAN_OPTIONS=log_path=$5/asan:print_stacktrace=1" \
			slurmd -D -N "$6"' sh "$(dirname "$(dirname "$so")")" \
		"$CLUSTER_DIR" "$DEVCLUSTER" "$asan" "$CLUSTER_TMP" "$node" \
		</dev/null >"$CLUSTER_TMP/slurmd-asan.out" 2>&1 3>&- &
	pid=$!
	echo "$pid" >>"$CLUSTER_TMP/slurmds"
	wait_until 30 is_sanitized "$pid" || {
		cat "$CLUSTER_TMP/slurmd-asan.out"
		return 1
	}
	in_cluster scontrol reconfigure
	wait_until 30 all_idle
}

is_sanitized()
{
	local maps
	maps=$(<"/proc/$1/maps")
	[[ $(<"/proc/$1/comm") == slurmd && $maps == *libasan* &&
		$maps == *acct_gather_interconnect_ddp* ]]
}

# began LABEL SECONDS CHILDREN STAGGER SRUN-ARGS...: a step whose tasks run. The
# allocator of gcc 12's ASan is not made for fork() beside other threads: a task
# may wait for ever, before it is one, for a lock that a thread held (one step in
# a hundred). That one is killed, and the step begun again.
began()
{
	local try p
	for ((try = 1; try <= 3; try++)); do
		step "$@"
		wait_until 10 has_begun "$1" && return 0
		echo "$1 has not begun"
		forked_stepds | while read -r p; do
			grep -H futex "/proc/$p/wchan" && kill -KILL "$p"
		done
		steps_end || true
	done
	return 1
}

# Children of slurmstepd that are to become tasks.
forked_stepds()
{
	local p parent
	grep -lx slurmstepd /proc/[0-9]*/comm 2>/dev/null | cut -d / -f 3 |
		while read -r p; do
		parent=$(cut -d ' ' -f 4 "/proc/$p/stat" 2>/dev/null) || continue
		[[ $(<"/proc/$parent/comm") != slurmstepd ]] || echo "$p"
	done
}

# has_values LABEL...: no more than that, since all is slow here.
has_values()
{
	local l m
	for l; do
		for m in sm membw energy idle; do
			step_row "$(id_of "$l")" TRESUsageInTot |
				grep -E "gres/gpu$m=[0-9]+"
		done
	done
}

@test "steps of every kind" {
	began two 3 4 0.2 -n2 --gpus-per-task=1
	# The step's own slurmstepd, and its sampler.
	(($(grep -ls libasan /proc/[0-9]*/maps | xargs -rn1 dirname |
		xargs -rI@ cat @/comm | grep -cxE 'slurmstepd|ddp-gpu-sampl.*') >= 2))
	began many 3 0 0 -n16 --gpus=2 --acctg-freq=task=1
	began none 0.5 0 0 -n2
	steps_end
	has_values two many
	step short 0.3 0 0 -n1 --gpus=1
	steps_end || true
	in_cluster timeout 30 sbatch -W -o /dev/null -n2 --gpus=2 --wrap \
		"srun -o /dev/null $TASK $TASKS inner 1 0 0" || true
}

@test "cancelled, killed; a sampler that dies, a driver that hangs" {
	began gone 60 0 0 -n2 --gpus=2
	in_cluster scancel "$(id_of gone)"
	steps_end || true
	acct_varied "hang nvmlGpmSampleGet at=5" >"$GPU_DIR/scenario"
	began hang 2 0 0 -n1 --gpus=1
	steps_end
	acct_varied "fail nvmlInit_v2 code=999" >"$GPU_DIR/scenario"
	began fail 0.5 0 0 -n1 --gpus=1
	steps_end
	acct_varied >"$GPU_DIR/scenario"
	began die 3 0 0 -n1 --gpus=1
	sleep 1
	grep -ls "$CLUSTER_DIR/bin/[d]dp-gpu-sampler" /proc/[0-9]*/cmdline |
		cut -d / -f 3 | xargs -r kill -KILL
	steps_end
	has_values die
}

# The net catches what is in it.
@test "a sanitizer's word is seen" {
	echo 'int main(int c, char **v) { char a[4]; a[c + 3] = (char)c; return a[c + 3]; }' |
		gcc -fsanitize=address -x c - -o overflow
	run env "ASAN_OPTIONS=log_path=$CLUSTER_TMP/asan" ./overflow
	grep -q stack-buffer-overflow "$CLUSTER_TMP"/asan.*
	rm "$CLUSTER_TMP"/asan.*
}
