#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# case 16: heterogeneous jobs and steps are one contiguous world, under the
# plugin and under ddp-launch. The first component is on a later node than the
# second: the master is where global rank 0 is, though node lists are sorted.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

setup_file()
{
	# Heterogeneous jobs wait for the backfill scheduler.
	# Small job ids are those of every other fresh cluster on this machine,
	# and ddp-launch takes the port that follows from them unseen.
	launch_up --nodes 3 --gpus 0 --conf SchedulerParameters=bf_interval=1 \
		--conf "FirstJobId=$((RANDOM + 1000))"
}

teardown_file() { launch_down; }

setup()
{
	launch_setup
	read -r -a NODE <<<"$DEVCLUSTER_NODES"	# NODE[0] is the first
	DIR=$(new_dir)
	# The components' places: two tasks on the last node, then three on
	# the others.
	A=(-N1 -n2 -w "${NODE[2]}")
	B=(-N2 -n3 -w "${NODE[0]},${NODE[1]}")
	read -r _ _ ADDR <<<"$DEVCLUSTER_ADDRS"
	PLUGSTACK=$CLUSTER_DIR/etc/plugstack.conf
	[[ -e plugstack.on ]] || cp "$PLUGSTACK" plugstack.on
	cp plugstack.on "$PLUGSTACK"
	# A rank's program without quotes, for scripts in scripts.
	printf '%s\n' "set -- $DIR" "${RANK_DUMP//'$0'/'$1'}" >dump.sh
}

# whole DIR ARGS...: the world of both components, with rank 0's address.
whole()
{
	world "$1" --layout 0,1/2,3/4 --addr "$ADDR" "${@:2}" || return 1
	same "0 ${NODE[2]}" "$(var "$1" SLURMD_NODENAME | sed -n 1p)" ||
		return 1
	same 1 "$(var "$1" MASTER_PORT | cut -d ' ' -f 2 | sort -u | wc -l)" ||
		return 1
	same "" "$(var "$1" SLURM_DDP_PLAN)$(var "$1" SLURM_DDP_HET)"
}

# in_het CMD...: salloc of the two components, and CMD in it.
in_het()
{
	run --separate-stderr in_cluster salloc -Q "${A[@]}" : "${B[@]}" "$@"
	stderr=$(without_waiting <<<"$stderr")
	((status == 0)) && return 0
	printf 'exit code %s\n%s\n%s\n' "$status" "$output" "$stderr"
	return 1
}

# --- heterogeneous jobs ---------------------------------------------------------

@test "srun makes a heterogeneous job: plugin" {
	for mode in full stateless; do
		rm -f "$DIR"/*
		launch "${A[@]}" --ddp-launch=$mode sh dump.sh : \
			"${B[@]}" sh dump.sh
		same "" "$output$stderr"
		whole "$DIR"
	done
}

@test "srun makes a heterogeneous job: ddp-launch" {
	: >"$PLUGSTACK"
	launch "${A[@]}" ddp-launch sh dump.sh : \
		"${B[@]}" ddp-launch sh dump.sh
	same "" "$output$stderr"
	whole "$DIR"
}

@test "for an unprivileged user" {
	launch_as_nobody "${A[@]}" --ddp-launch sh dump.sh : \
		"${B[@]}" sh dump.sh
	whole "$DIR"
	same nobody "$(stat -c %U "$DIR"/*.env | sort -u)"
	rm -f "$DIR"/*
	: >"$PLUGSTACK"
	launch_as_nobody "${A[@]}" ddp-launch sh dump.sh : \
		"${B[@]}" ddp-launch sh dump.sh
	whole "$DIR"
}

@test "full mode: a rank of one component fails, the ranks of all end" {
	run --separate-stderr in_cluster srun "${A[@]}" --ddp-launch sleep 50 : \
		"${B[@]}" sh -c '[ $RANK != 3 ] || exit 7; exec sleep 50'
	same 7 "$status"
	says "ddp: rank 3 on node ${NODE[0]} failed first: exited with code 7" \
		"stopped: 4 ranks on 3 nodes (4 by SIGTERM)"
}

@test "salloc: --het-group=0,1 is one world, =1 and none are smaller ones" {
	in_het srun --het-group=0,1 --ddp-launch sh dump.sh
	same "" "$output$stderr"
	whole "$DIR"
	rm -f "$DIR"/*
	in_het srun --het-group=1 --ddp-launch sh dump.sh
	world "$DIR" --layout 0,1/2
	same "0 ${NODE[0]}" "$(var "$DIR" SLURMD_NODENAME | sed -n 1p)"
	rm -f "$DIR"/*
	in_het srun --ddp-launch sh dump.sh
	world "$DIR" --layout 0,1 --addr "$ADDR"
}

@test "the same with ddp-launch" {
	: >"$PLUGSTACK"
	in_het srun --het-group=0,1 ddp-launch sh dump.sh
	same "" "$output$stderr"
	whole "$DIR"
	rm -f "$DIR"/*
	in_het srun --het-group=1 ddp-launch sh dump.sh
	world "$DIR" --layout 0,1/2
	rm -f "$DIR"/*
	in_het srun ddp-launch sh dump.sh
	world "$DIR" --layout 0,1 --addr "$ADDR"
}

@test "sbatch: #SBATCH hetjob, the option from the script" {
	cat >job <<-X
		#!/bin/sh
		#SBATCH --ddp-launch
		#SBATCH ${A[*]}
		#SBATCH hetjob
		#SBATCH ${B[*]}
		srun --het-group=0,1 sh dump.sh
	X
	run -0 --separate-stderr in_cluster sbatch -W -o out.het job
	same "" "$(without_waiting <out.het)"
	whole "$DIR"
}

@test "two steps of it at once have two ports" {
	in_het sh -c 'for i in 1 2; do
		srun --overlap --het-group=0,1 --ddp-launch \
			sh -c "sleep 1; echo \$SLURM_STEP_ID \$MASTER_PORT" &
		done; wait'
	same 10 "$(wc -l <<<"$output")"
	same 2 "$(sort -u <<<"$output" | wc -l)"
	same 2 "$(cut -d ' ' -f 2 <<<"$output" | sort -u | wc -l)"
}

# --- heterogeneous steps of one allocation --------------------------------------

@test "components of one job: plugin and ddp-launch" {
	in_one() { run -0 --separate-stderr in_cluster salloc -Q -N3 \
		--ntasks-per-node=2 env -u SLURM_NTASKS_PER_NODE "$@"; }
	for mode in full stateless; do
		in_one srun "${A[@]}" --ddp-launch=$mode sh dump.sh : \
			"${B[@]}" sh dump.sh
		whole "$DIR"
		rm -f "$DIR"/*
	done
	: >"$PLUGSTACK"
	in_one srun "${A[@]}" ddp-launch sh dump.sh : \
		"${B[@]}" ddp-launch sh dump.sh
	whole "$DIR"
}

# --- options --------------------------------------------------------------------

@test "frameworks, port and address of the user's" {
	port=$(free_ports 1)
	launch "${A[@]}" --ddp-launch --ddp-master-port="$port" \
		--ddp-master-addr=box --ddp-frameworks=torch sh dump.sh : \
		"${B[@]}" sh dump.sh
	ADDR=box whole "$DIR" --port "$port" --frameworks torch
	rm -f "$DIR"/*
	: >"$PLUGSTACK"
	export SLURM_DDP_FRAMEWORKS=torch
	launch "${A[@]}" ddp-launch --master-port="$port" sh dump.sh : \
		"${B[@]}" ddp-launch --master-port="$port" sh dump.sh
	whole "$DIR" --port "$port" --frameworks torch
}

@test "a busy port is refused" {
	port=$(free_ports 1)
	hold_ports 0.0.0.0 "$port"
	fails in_cluster srun "${A[@]}" --ddp-launch=stateless \
		--ddp-master-port="$port" touch ran : "${B[@]}" touch ran
	says "ddp: error: " "master port $port is "
	fails in_cluster srun "${A[@]}" --ddp-launch --ddp-master-port="$port" \
		touch ran : "${B[@]}" touch ran
	release_ports
	same 75 "$status"
	says "ddp: the launch failed: no master port on node ${NODE[2]}: port $port is in use by python3 (pid "
	[[ ! -e ran ]]
}

@test "--ddp-explain, once, and nothing that the user had not set" {
	launch "${A[@]}" --ddp-launch --ddp-explain true : "${B[@]}" true
	says "5 tasks on 3 nodes" "tasks a node 2(x2),1"
	for v in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT PET_RDZV_ID; do
		says_times 1 "ddp:   $v "
	done
	says_not not-loaded-on-this-node
}

@test "tf: refused by the plugin, right with ddp-launch" {
	fails in_cluster srun "${A[@]}" --ddp-launch --ddp-frameworks=tf \
		touch ran : "${B[@]}" touch ran
	says "ddp: error: --ddp-frameworks=tf is not available for" \
		"leave tf out"
	[[ ! -e ran ]]
	: >"$PLUGSTACK"
	export SLURM_DDP_FRAMEWORKS=tf
	launch "${A[@]}" ddp-launch sh dump.sh : \
		"${B[@]}" ddp-launch sh dump.sh
	run -0 "$PYTHON" -c '
import json, sys
all = [json.loads(l.split(" ", 1)[1]) for l in sys.stdin]
assert [c["task"]["index"] for c in all] == list(range(5)), all
workers = all[0]["cluster"]["worker"]
assert len(set(workers)) == 5, workers
assert all[4]["cluster"] == all[0]["cluster"]
host = [w.split(":")[0] for w in workers]
assert host[0] == host[1] == sys.argv[1] != host[2] == host[3] != host[4]
' "$ADDR" <<<"$(var "$DIR" TF_CONFIG)"
}

@test "off means off for all components" {
	launch "${A[@]}" --ddp-launch=off sh dump.sh : "${B[@]}" sh dump.sh
	same 5 "$(find "$DIR" -name '*.env' | wc -l)"
	for v in RANK MASTER_PORT SLURM_DDP_HET SLURM_DDP_PLAN; do
		same "" "$(var "$DIR" "$v")"
	done
}

@test "in a container's place: ddp-launch sets the plugin's values again" {
	launch "${A[@]}" --ddp-launch --ddp-master-port=23471 \
		env RANK=99 MASTER_PORT=1 ddp-launch sh dump.sh : \
		"${B[@]}" env RANK=99 MASTER_PORT=1 ddp-launch sh dump.sh
	whole "$DIR" --port 23471
	rm -f "$DIR"/*
	launch "${A[@]}" --ddp-launch --ddp-master-port=23472 \
		env RANK=99 MASTER_PORT=1 ddp-launch-static sh dump.sh : \
		"${B[@]}" env RANK=99 MASTER_PORT=1 ddp-launch-static sh dump.sh
	whole "$DIR" --port 23472
}

@test "the same in a step of one component" {
	in_het srun --het-group=1 --ddp-launch --ddp-master-port=23473 \
		env RANK=99 MASTER_PORT=1 ddp-launch sh dump.sh
	world "$DIR" --layout 0,1/2 --port 23473
}

@test "launcher= names nothing: ranks refuse and say what to do" {
	sed -i 's,launcher=[^ ]*,launcher=/no/such/program,' "$PLUGSTACK"
	fails in_cluster srun "${A[@]}" --ddp-launch=stateless true : \
		"${B[@]}" --ddp-launch=stateless touch ran.missing
	same 1 "$status"
	# The first component has its plan from srun. The others ask here.
	for r in 2 3 4; do
		says ", rank $r: heterogeneous step: /no/such/program is not there"
	done
	says "launcher= in plugstack.conf"
	[[ ! -e ran.missing ]]
	# Other launches do not need it.
	launch -N2 -n3 --ddp-launch=stateless sh dump.sh
	world "$DIR" --count 3
	# In full mode the plan comes from the controller.
	rm -f "$DIR"/*
	launch "${A[@]}" --ddp-launch sh dump.sh : "${B[@]}" sh dump.sh
	whole "$DIR"
}

@test "the static ddp-launch cannot know: refused" {
	: >"$PLUGSTACK"
	fails in_cluster srun "${A[@]}" ddp-launch-static touch ran.static : \
		"${B[@]}" ddp-launch-static touch ran.static
	says_times 5 "ddp: error: node "
	says "built without Slurm" "srun --ddp-launch"
	[[ ! -e ran.static ]]
}

@test "exit codes" {
	for how in plugin shim; do
		[[ $how == plugin ]] || : >"$PLUGSTACK"
		launcher=(--ddp-launch) second=()
		[[ $how == plugin ]] || launcher=(ddp-launch) second=(ddp-launch)
		run --separate-stderr in_cluster srun "${A[@]}" \
			"${launcher[@]}" true : "${B[@]}" "${second[@]}" \
			sh -c '[ $RANK != 4 ] || exit 7'
		same 7 "$status"
	done
}

@test "afterwards the nodes are idle and the logs clean" {
	cp plugstack.on "$PLUGSTACK"
	! grep -aF '@slurm-ddp/' /proc/net/unix | grep -F "/${NODE[0]%1}" ||
		false
	nodes_idle
	logs_clean
}
