# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts; bats
#
# For the tests that break the accounting of GPUs: steps that run side by side,
# each on a node of its own with a scenario of its own, and what must be true
# of each whatever broke. After lib and launch:
#
#	load acct_fault
#	setup_file() { faulty_up --nodes 4; }
#	teardown_file() { launch_down; }
#	setup() { faulty_setup; }
#
#	scenario 0 "hang nvmlInit_v2"	# what the driver of node 0 does
#	begin 0 3			# a step of two tasks and 3 seconds there
#	finish 0			# exit code 0, slurmstepd gone in time
#	covers 0 none			# and nothing was stored
#
# Both GPUs always do the same, so that values say what was measured: a mean of
# 50 % of SMs with a peak of 60, and 400 J, 2 GB (in) and 4 GB (out) of NVLink,
# 200 MB and 400 MB of PCIe in each second that was. Steps last for 3 s where
# values must be there: of a short one that began while this machine was busy
# nothing may be known.

# faulty_up ARGS...: of devcluster.
faulty_up()
{
	set -- --gpus 2 --gpu-conf DdpGpuInterval=0.2 \
		--conf "$FAST_SBATCH" --conf KillWait=2 "$@"
	launch_up "$@" || return 1
	printf '%s\n' ${DDP_ROOT:+--root "$DDP_ROOT"} "$@" >"$CLUSTER_TMP/args"
	[[ -e $CLUSTER_DIR/bin/ddp-gpu-sampler ]] ||
		skip "the build has no GPU accounting"
	cp -p "$CLUSTER_DIR/bin/ddp-gpu-sampler" "$CLUSTER_DIR/gpu/sampler.real"
	cp -p "$CLUSTER_DIR/gpu/libnvidia-ml.so.1" "$CLUSTER_DIR/gpu/library.real"
	cat >"$CLUSTER_TMP/prog" <<-'Z'
		#!/bin/sh
		# prog FILE CMD...: FILE.stepd gets the job, the step and
		# slurmstepd's pid; FILE.end the time when CMD has ended.
		echo "$SLURM_JOB_ID.$SLURM_STEP_ID $PPID" >"$1.stepd"
		f=$1
		shift
		"$@"
		rc=$?
		date +%s%6N >"$f.end"
		exit $rc
	Z
	chmod 755 "$CLUSTER_TMP/prog"
}

faulty_setup()
{
	launch_setup
	read -r -a NODE <<<"$DEVCLUSTER_NODES"
	DIR=$(new_dir)
	cd "$DIR" || return 1
	SRUN=() OPTS=()
	: >started
}

# faulty_repair: starts again what a test has killed.
faulty_repair()
{
	local args
	mapfile -t args <"$CLUSTER_TMP/args"
	cluster_up "${args[@]}"
}

# Nothing of a test that failed is in the way of the next one.
faulty_teardown()
{
	local pid
	rm -f "$CLUSTER_DIR"/gpu/scenario.* "$CLUSTER_DIR"/gpu/mode.*
	put_root ddp-gpu-sampler bin sampler.real
	put_root libnvidia-ml.so.1 gpu library.real
	[[ -z ${BATS_TEST_COMPLETED:-} && -n ${DIR:-} ]] || return 0
	for pid in "${SRUN[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
	done
	grep -h "] ddp: " "$CLUSTER_DIR"/log/slurmd-*.log | tail -n 30
	faulty_repair || true
	in_cluster scancel -Q --user=nobody || true
	in_cluster scancel -Q --user=root || true
	wait_until 20 all_idle || true
}

# scenario K LINE...: lines for the whole driver; "0:LINE" and "1:LINE" are of
# the GPU with that index. GPU_IS: more words for the lines of the GPUs.
scenario()
{
	local k=$1 i line
	local -a gpu=("sm 0:40|membw 0:20|power 0:100" "sm 0:60|membw 0:40|power 0:300")
	shift
	{
		printf 'origin %s\ndevdir %s\n' "$EPOCHREALTIME" "$CLUSTER_DIR/dev"
		for line; do
			[[ $line == [01]:* ]] || printf '%s\n' "$line"
		done
		for i in 0 1; do
			printf 'gpu minor=%d bus=0000:%02x:00.0 uuid=GPU-%d %s\n' \
				$((1 - i)) $((i + 4)) "$i" "${GPU_IS:-}"
			printf '%s\n' "${gpu[i]//|/$'\n'}" "util 0:99" \
				"nvlink_rx 0:1e9" "nvlink_tx 0:2e9" \
				"pcie_rx 0:1e8" "pcie_tx 0:2e8"
			for line; do
				[[ $line != "$i":* ]] || printf '%s\n' "${line#*:}"
			done
		done
	} >"$CLUSTER_DIR/gpu/scenario.${NODE[k]}.new"
	mv "$CLUSTER_DIR/gpu/scenario.${NODE[k]}.new" \
		"$CLUSTER_DIR/gpu/scenario.${NODE[k]}"
}

# begin_cmd K CMD...: a step of two tasks on node K, in the background, of a
# user who is not root.
begin_cmd()
{
	local k=$1
	shift
	[[ -e $CLUSTER_DIR/gpu/scenario.${NODE[k]} ]] || scenario "$k"
	rm -f "$DIR/$k".*
	env --default-signal=INT,QUIT "$DEVCLUSTER" --dir "$CLUSTER_DIR" \
		--user nobody run -- srun -Q -w "${NODE[k]}" -n2 --gpus=2 \
		--mem=200 "${OPTS[@]}" "$CLUSTER_TMP/prog" "$DIR/$k" "$@" \
		</dev/null >"$DIR/$k.out" 2>"$DIR/$k.err" 3>&- &
	SRUN[k]=$!
}

# begin K SECONDS
begin() { begin_cmd "$1" sleep "$2"; }

# running K...: until the tasks of these run.
running()
{
	local k
	for k; do
		wait_until 15 test -s "$DIR/$k.stepd" && continue
		echo "node $k: no task after 15 s"
		cat "$DIR/$k.out" "$DIR/$k.err"
		return 1
	done
}

id_of() { cut -d ' ' -f 1 "$DIR/$1.stepd"; }
stepd_of() { cut -d ' ' -f 2 "$DIR/$1.stepd"; }

# sampler_of K: its pid; while there is none: fails.
sampler_of()
{
	local p
	for p in $(find /proc/[0-9]*/exe -lname "*$CLUSTER_DIR/bin/ddp-gpu-sampler" \
		2>/dev/null | cut -d / -f 3); do
		[[ $(tr '\0' ' ' <"/proc/$p/cmdline") == *"--label $(id_of "$1")@${NODE[$1]} "* ]] ||
			continue
		printf '%s\n' "$p"
		return 0
	done 2>/dev/null
	return 1
}

# sampling K: waits for it.
sampling() { running "$1" && wait_until 5 sampler_of "$1" >/dev/null; }

# finish K [CODE [STATE]]: srun ends with CODE, slurmstepd within two seconds of
# the last task (more than that and some for a busy machine is a failure), the
# accounting has STATE. A task that could not say when it ended ended at END_US.
finish()
{
	local k=$1 rc=0 now end
	if ! wait_until "${FINISH:-20}" pid_gone "${SRUN[k]}"; then
		echo "node $k: srun still runs"
		return 1
	fi
	wait "${SRUN[k]}" || rc=$?
	if ! wait_until 10 pid_gone "$(stepd_of "$k")"; then
		echo "node $k: slurmstepd does not end"
		return 1
	fi
	now=${EPOCHREALTIME/./}
	end=$(cat "$DIR/$k.end" 2>/dev/null || echo "${END_US:-$now}")
	if ((rc != ${2:-0})); then
		echo "node $k: srun ended with $rc, not ${2:-0}"
		cat "$DIR/$k.err"
		return 1
	fi
	# Steps are looked at one after the other: what the log says counts.
	stepd_in_time "$k" "$end" || return 1
	same "${3:-COMPLETED}" "$(state_of "$k")"
}

# stepd_in_time K END_US: when slurmstepd said "done with job" (or "step").
stepd_in_time()
{
	local line t
	line=$(grep -E "\[(StepId=)?$(id_of "$1")[^]]*\] (stepd_cleanup: )?done with " \
		"$CLUSTER_DIR/log/slurmd-${NODE[$1]}.log" | tail -n 1)
	t=${line%%]*} t=${t#[}
	if [[ -z $t ]]; then
		echo "node $1: no end of the step in the log"
		tail -n 5 "$CLUSTER_DIR/log/slurmd-${NODE[$1]}.log"
		return 1
	fi
	t=$(date -d "${t/T/ }" +%s%6N)
	((t - $2 < 2300000)) && return 0
	echo "node $1: slurmstepd ended $(((t - $2) / 1000)) ms after the tasks"
	return 1
}

# row_of K: the step's row in the accounting, once it is over there.
row_of()
{
	step_row "$(id_of "$1")" \
		State,ExitCode,End,TRESUsageInAve,TRESUsageInTot,TRESUsageOutMax,TRESUsageOutTot |
		tail -n 1 | tee "$DIR/$1.row"
}

state_of() { row_of "$1" | cut -d '|' -f 1; }

# usage K COLUMN TRES: a value of the row that finish has fetched, "-" if it is
# not there. COLUMN: 4 in-ave, 5 in-tot, 6 out-max, 7 out-tot.
usage()
{
	local v
	v=$(cut -d '|' -f "$2" "$DIR/$1.row" | tr , '\n' | sed -n "s|^$3=||p")
	printf '%s\n' "${v:--}"
}

# in_range K WHAT VALUE LOW HIGH
in_range()
{
	[[ $3 =~ ^[0-9]+$ ]] && (($3 >= $4 && $3 <= $5)) && return 0
	echo "node $1: $2 is $3, not $4 to $5"
	cat "$DIR/$1.row"
	grep -h "ddp: step $(id_of "$1")" "$CLUSTER_DIR"/log/slurmd-*.log
	return 1
}

GPU_TRES=(gres/gpusm gres/gpumembw gres/gpuenergy gres/gpuidle ic/nvlink ic/pcie)

# covers K LOW HIGH: all values are there and those of LOW to HIGH
# milliseconds. covers K none: none is there.
covers()
{
	local t
	if [[ $2 == none ]]; then
		for t in "${GPU_TRES[@]}"; do
			[[ $(usage "$1" 5 "$t") == - ]] && continue
			echo "node $1: $t should not be known"
			cat "$DIR/$1.row"
			return 1
		done
		return 0
	fi
	in_range "$1" gpusm "$(usage "$1" 4 gres/gpusm)" 49 51 &&
		in_range "$1" "gpusm's peak" "$(usage "$1" 6 gres/gpusm)" 60 60 &&
		in_range "$1" gpumembw "$(usage "$1" 4 gres/gpumembw)" 29 31 &&
		in_range "$1" "gpumembw's peak" "$(usage "$1" 6 gres/gpumembw)" 40 40 &&
		in_range "$1" gpuidle "$(usage "$1" 5 gres/gpuidle)" 0 0 &&
		in_range "$1" joules "$(usage "$1" 5 gres/gpuenergy)" \
			$(($2 * 4 / 10)) $(($3 * 4 / 10)) &&
		in_range "$1" "NVLink in" "$(usage "$1" 5 ic/nvlink)" \
			$(($2 * 2000000)) $(($3 * 2000000)) &&
		in_range "$1" "NVLink out" "$(usage "$1" 7 ic/nvlink)" \
			$(($2 * 4000000)) $(($3 * 4000000)) &&
		in_range "$1" "PCIe in" "$(usage "$1" 5 ic/pcie)" \
			$(($2 * 200000)) $(($3 * 200000)) &&
		in_range "$1" "PCIe out" "$(usage "$1" 7 ic/pcie)" \
			$(($2 * 400000)) $(($3 * 400000))
}

# never_wrong K LOW HIGH [SLACK]: each value is that of LOW to HIGH ms, or not
# there; means within SLACK (1) points.
never_wrong()
{
	local sm bw j nv pc slack=${4:-1}
	sm=$(usage "$1" 4 gres/gpusm) bw=$(usage "$1" 4 gres/gpumembw)
	j=$(usage "$1" 5 gres/gpuenergy) nv=$(usage "$1" 5 ic/nvlink)
	pc=$(usage "$1" 5 ic/pcie)
	[[ $sm == - ]] || in_range "$1" gpusm "$sm" \
		$((50 - slack)) $((50 + slack)) || return 1
	[[ $bw == - ]] || in_range "$1" gpumembw "$bw" \
		$((30 - slack)) $((30 + slack)) || return 1
	[[ $j == - ]] || in_range "$1" joules "$j" $(($2 * 4 / 10)) \
		$(($3 * 4 / 10)) || return 1
	[[ $nv == - ]] || in_range "$1" NVLink "$nv" $(($2 * 2000000)) \
		$(($3 * 2000000)) || return 1
	[[ $pc == - ]] || in_range "$1" PCIe "$pc" $(($2 * 200000)) \
		$(($3 * 200000))
}

# logged K TEXT: slurmd's log says it of the step.
logged()
{
	grep -F "ddp: step $(id_of "$1")" "$CLUSTER_DIR/log/slurmd-${NODE[$1]}.log" |
		grep -qF -- "$2" && return 0
	echo "node $1: the log has not \"$2\" but"
	grep -F "[$(id_of "$1")]" "$CLUSTER_DIR/log/slurmd-${NODE[$1]}.log"
	return 1
}

# traces: processes, shared memory and cgroups of steps, one a line.
traces()
{
	local p
	find /proc/[0-9]*/exe \( -lname "*$CLUSTER_DIR/bin/*" -o \
		-lname "*$CLUSTER_TMP/*" \) -printf 'process %h %l\n' \
		2>/dev/null
	grep -lx slurmstepd /proc/[0-9]*/comm 2>/dev/null | while read -r p; do
		find "${p%/comm}/fd" -lname "*$CLUSTER_DIR/*" \
			-printf "process $p\n" -quit 2>/dev/null
	done
	groups_of_steps
}

# clean: nothing is left, and the nodes are idle, not drained.
clean()
{
	left_nothing 10 traces && nodes_idle
}

# put_root NAME FOLDER FILE: a file of the cluster's, as root alone may change it.
put_root()
{
	cmp -s "$CLUSTER_DIR/gpu/$3" "$CLUSTER_DIR/$2/$1" &&
		[[ $(stat -c '%a %u' "$CLUSTER_DIR/$2/$1") == "755 0" ]] && return
	install -m 755 "$CLUSTER_DIR/gpu/$3" "$CLUSTER_DIR/$2/$1.new" &&
		mv "$CLUSTER_DIR/$2/$1.new" "$CLUSTER_DIR/$2/$1"
}

# mode K WORD...: what the broken sampler or library of node K does.
mode()
{
	printf '%s\n' "${*:2}" >"$CLUSTER_DIR/gpu/mode.${NODE[$1]}"
}

# broken_sampler: the sampler is tests/cluster/acct_fault_sampler.c from now on.
broken_sampler()
{
	command -v gcc >/dev/null || skip "no gcc"
	gcc -static -O1 -Wall -I"$TESTS/../.." -DDIR="\"$CLUSTER_DIR/gpu\"" \
		-o "$CLUSTER_DIR/gpu/sampler.broken" \
		"$TESTS/acct_fault_sampler.c" &&
		put_root ddp-gpu-sampler bin sampler.broken
}

# broken_library: the same for the driver's, with tests/cluster/
# acct_fault_library.c before the fake one.
broken_library()
{
	command -v gcc >/dev/null || skip "no gcc"
	mkdir -p "$CLUSTER_DIR/gpu/real"
	cp -p "$CLUSTER_DIR/gpu/library.real" \
		"$CLUSTER_DIR/gpu/real/libnvidia-ml.so.1"
	gcc -shared -fPIC -O1 -Wall -DDIR="\"$CLUSTER_DIR/gpu\"" \
		-o "$CLUSTER_DIR/gpu/library.broken" \
		"$TESTS/acct_fault_library.c" -Wl,--no-as-needed \
		"$CLUSTER_DIR/gpu/real/libnvidia-ml.so.1" \
		-Wl,-rpath,"$CLUSTER_DIR/gpu/real" -lpthread &&
		put_root libnvidia-ml.so.1 gpu library.broken
}
