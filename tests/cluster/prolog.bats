#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# case 18: a TaskProlog runs after the plugin, and what it exports wins. The
# values of the launch hold, or the step ends with an error that names the
# variable. The programs here live for a while, as trainings do.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

setup_file()
{
	cluster_init
	# Every test writes the site's prolog that it wants.
	launch_up --nodes 2 --gpus 0 \
		--conf "TaskProlog=$CLUSTER_DIR/tmp/task-prolog"
}

teardown_file() { launch_down; }

setup()
{
	launch_setup
	DIR=$(new_dir)
	site_prolog ''
}

# prolog FILE LINE...: a script that prints, so Slurm sets or unsets.
prolog()
{
	local file=$1
	shift
	{
		echo '#!/bin/sh'
		printf '%s\n' "$@"
	} >"$file.new"
	chmod 755 "$file.new"
	mv -f "$file.new" "$file"
}

site_prolog() { prolog "$CLUSTER_TMP/task-prolog" "$@"; }

LIVE='sleep 2; touch "$0/survived.$SLURM_PROCID"'

# stopped TEXT ARGS...: srun ARGS fails, says TEXT, and no rank goes on.
stopped()
{
	run --separate-stderr in_cluster srun "${@:2}" --ddp-launch \
		sh -c "$LIVE" "$DIR"
	((status == 137)) || { echo "exit code $status: $stderr"; return 1; }
	says "ddp: error: node " "$1" || return 1
	same "" "$(ls "$DIR")"
}

@test "the site's prolog sets RANK: an error that names it" {
	site_prolog 'echo export RANK=77'
	stopped "RANK is 77 in the program's environment, the launch set 1" \
		-N2 -n2
	says "a TaskProlog changes it"
	nodes_idle
}

@test "--task-prolog does, also by SLURM_TASK_PROLOG" {
	prolog mine 'echo export MASTER_ADDR=evil'
	stopped "MASTER_ADDR is evil" -N2 -n2 "--task-prolog=$PWD/mine"
	export SLURM_TASK_PROLOG=$PWD/mine
	stopped "MASTER_ADDR is evil" -N2 -n2
}

@test "on one rank alone: that rank and its variable are named" {
	site_prolog '[ "$SLURM_PROCID" != 2 ] || echo export JAX_COORDINATOR_PORT=1'
	run --separate-stderr in_cluster srun -N2 --ntasks-per-node=2 \
		--ddp-launch sh -c "$LIVE" "$DIR"
	[[ $status == 137 ]]
	says "rank 2: JAX_COORDINATOR_PORT is 1"
	says_times 1 "ddp: error:"
	[[ ! -e $DIR/survived.2 ]]
}

@test "each owned variable is watched" {
	for v in WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK MASTER_PORT \
		GROUP_RANK ROLE_NAME PET_RDZV_ENDPOINT JAX_COORDINATOR_ADDRESS; do
		site_prolog "echo export $v=nonsense"
		run --separate-stderr in_cluster srun -n1 --ddp-launch \
			sh -c "$LIVE" "$DIR"
		[[ $status == 137 ]]
		says_times 1 "ddp: error: node "
		says "rank 0: $v is nonsense in the program's environment"
	done
	same "" "$(ls "$DIR")"
}

@test "a prolog that takes a variable away" {
	site_prolog 'echo unset MASTER_PORT'
	stopped "MASTER_PORT is missing in the program's environment" -N2 -n2
}

@test "several variables: one line for each" {
	site_prolog 'echo export RANK=77' 'echo export WORLD_SIZE=78'
	stopped "RANK is 77" -n1
	says_times 2 "ddp: error:"
	says "WORLD_SIZE is 78"
}

@test "for an unprivileged user" {
	site_prolog 'echo export RANK=77'
	run --separate-stderr as_nobody srun -N2 -n2 --ddp-launch \
		sh -c "$LIVE" "$DIR"
	[[ $status == 137 ]]
	says "RANK is 77"
	same "" "$(ls "$DIR")"
}

@test "a prolog's soft, own and equal values are no error" {
	site_prolog 'echo export OMP_NUM_THREADS=17' 'echo export MINE=1' \
		'echo export "RANK=$RANK"' 'echo print hello'
	launch -N2 --ntasks-per-node=2 --ddp-launch sh -c "$RANK_DUMP;$LIVE" \
		"$DIR"
	same "" "$stderr"
	says_times 4 hello
	world "$DIR" --layout 0,1/2,3 --set OMP_NUM_THREADS=17 --set MINE=1
	same 4 "$(find "$DIR" -name 'survived.*' | wc -l)"
}

@test "the prolog itself sees the launch's values" {
	site_prolog "echo \"\$RANK \$MASTER_PORT\" >>$DIR/seen"
	launch -N2 -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	same "$(var "$DIR" MASTER_PORT)" "$(sort "$DIR/seen")"
}

@test "without a launch a prolog may do as it likes" {
	site_prolog 'echo export RANK=77'
	launch -N2 -n2 sh -c "$RANK_DUMP;$LIVE" "$DIR"
	same "" "$output$stderr"
	same "$(printf '0 77\n1 77')" "$(var "$DIR" RANK)"
	launch -N2 -n2 --ddp-launch=off true
	same "" "$output$stderr"
}

@test "the watcher ends with its task, and leaves its exit code alone" {
	run -5 --separate-stderr in_cluster srun -n1 --ddp-launch \
		sh -c 'sleep 1; exit 5'
	# Nothing is left that has the task's environment.
	job=$(in_cluster srun -n1 --ddp-launch sh -c 'echo $SLURM_JOB_ID')
	wait_until 5 no_process_of "$job"
}

no_process_of()
{
	! grep -lzsxF "SLURM_JOB_ID=$1" /proc/[0-9]*/environ |
		xargs -r grep -lzsF "$CLUSTER_DIR" | grep -q .
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
