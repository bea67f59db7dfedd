#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# case 17: sbatch and salloc make the option the default of every srun in the
# job, and touch nothing else: not the batch script, not the extern and the
# interactive step, not a job that the job submits.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

setup_file()
{
	cluster_init
	# A requeued job waits until old credentials are void: 5 s, not 120.
	launch_up --nodes 2 --gpus 0 --conf PrologFlags=Contain \
		--conf "$FAST_SBATCH" \
		--conf LaunchParameters=use_interactive_step \
		--conf "AuthInfo=socket=$CLUSTER_DIR/run/munge.sock,cred_expire=5"
	# The program of a rank, for scripts: rank.sh DIR.
	printf '%s\n' "${RANK_DUMP//'$0'/'$1'}" >"$CLUSTER_TMP/rank.sh"
	sbatch_wait in_cluster -o /dev/null --wrap true
}

teardown_file() { launch_down; }

setup()
{
	launch_setup
	DIR=$(new_dir)
	RANK=$CLUSTER_TMP/rank.sh SBATCH=$CLUSTER_TMP/sbatch.sh
	mkdir -m 1777 "$DIR"/{0,1,2,3}
	cd "$DIR" || return 1
}

# script LINE...: ./job, a batch script.
script()
{
	printf '%s\n' '#!/bin/sh' "$@" >job
}

# submit ARGS...: ./job runs to its end and succeeds; $output is its output.
submit() { submit_by in_cluster "$@"; }

submit_by()
{
	local rc=0
	sbatch_wait "$1" -N2 --ntasks-per-node=2 -o "$DIR/out" "${@:2}" job \
		>sbatch.out 2>&1 || rc=$?
	output=$(without_waiting 2>/dev/null <out)
	stderr=$(grep -v '^Submitted' sbatch.out || true)
	((rc == 0)) && return 0
	printf 'sbatch: exit code %s\n%s\n%s\n' "$rc" "$stderr" "$output"
	return 1
}

# untouched FILE: an environment without any variable of the launch.
untouched()
{
	local v
	for v in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK \
		GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK \
		ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT PET_NNODES PET_RDZV_ID \
		PET_MASTER_ADDR JAX_COORDINATOR_ADDRESS JAX_COORDINATOR_PORT \
		OMP_NUM_THREADS TORCH_NCCL_ASYNC_ERROR_HANDLING SLURM_DDP_PLAN; do
		if grep -qz "^$v=" "$1"; then
			echo "$1 has $v"
			return 1
		fi
	done
	grep -qz '^SLURM_JOB_ID=' "$1"
}

# plain DIR N: N tasks, none of them launched.
plain()
{
	local f
	[[ $(find "$1" -name '*.env' | wc -l) == "$2" ]] || return 1
	for f in "$1"/*.env; do untouched "$f" || return 1; done
}

@test "#SBATCH --ddp-launch: each srun launches, the script is untouched" {
	script '#SBATCH --ddp-launch' \
		'cat /proc/$$/environ >batch' \
		"srun sh $RANK 0" \
		"env -u SLURM_NTASKS_PER_NODE srun -N2 -n3 sh $RANK 1" \
		"srun --ddp-launch=off sh $RANK 2" \
		"srun --ddp-launch=stateless -N1 -n1 sh $RANK 3"
	submit
	same "" "$output$stderr"
	untouched batch
	world 0 --layout 0,1/2,3
	world 1 --count 3
	plain 2 4
	world 3 --layout 0
	same "0 0" "$(var 0 SLURM_STEP_ID | sed -n 1p)"
	same "0 1" "$(var 1 SLURM_STEP_ID | sed -n 1p)"
	[[ $(var 0 MASTER_PORT) != "$(var 1 MASTER_PORT)" ]]
}

@test "for an unprivileged user, on the command line, with a value" {
	script 'cat /proc/$$/environ >batch' "srun sh $RANK 0"
	for opt in --ddp-launch --ddp-launch=stateless --ddp-launch=full; do
		rm -rf 0
		mkdir -m 1777 0
		submit_by as_nobody $opt
		same "" "$output$stderr"
		untouched batch
		world 0 --layout 0,1/2,3
	done
}

@test "SBATCH_DDP_LAUNCH; the option wins" {
	script "srun sh $RANK 0"
	SBATCH_DDP_LAUNCH=stateless submit
	world 0 --layout 0,1/2,3
	script "srun sh $RANK 1"
	SBATCH_DDP_LAUNCH=full submit --ddp-launch=off
	plain 1 4
	script '#SBATCH --ddp-launch=off' "srun sh $RANK 2"
	submit --ddp-launch
	world 2 --layout 0,1/2,3
	# srun's own variable is not sbatch's; but it reaches the srun inside.
	script '#SBATCH --ddp-launch=off' "srun sh $RANK 3"
	submit
	plain 3 4
}

@test "the other options are defaults too; srun's own win" {
	script "srun sh $RANK 0" \
		"srun --ddp-frameworks=torch --ddp-master-addr=127.9.9.9 sh $RANK 1" \
		"SLURM_DDP_FRAMEWORKS=torch,jax srun sh $RANK 2"
	submit --ddp-launch --ddp-frameworks=jax --ddp-master-addr=127.8.8.8 \
		--ddp-explain
	world 0 --frameworks jax --addr 127.8.8.8
	world 1 --frameworks torch --addr 127.9.9.9
	world 2 --frameworks torch,jax --addr 127.8.8.8
	says_times 3 "ddp:   MASTER_ADDR "
}

@test "sbatch --export=NONE" {
	script '#SBATCH --ddp-launch' 'cat /proc/$$/environ >batch' \
		"srun /bin/sh $RANK 0" "unset SLURM_EXPORT_ENV" \
		"srun --export=ALL,RANK=55 /bin/sh $RANK 1"
	export MASTER_ADDR=n5
	submit --export=NONE
	untouched batch
	world 0 --layout 0,1/2,3
	world 1 --layout 0,1/2,3
	says_times 1 "ddp: warning:"
	says RANK=55
	says_not n5
}

@test "a batch script's own wrong MASTER_ADDR: one warning" {
	script '#SBATCH --ddp-launch' \
		'export MASTER_ADDR=$(hostname) MASTER_PORT=29500' \
		"srun sh $RANK 0"
	submit
	world 0 --layout 0,1/2,3
	says_times 1 "ddp: warning:"
	says MASTER_ADDR= MASTER_PORT=29500
}

@test "sbatch inside a job does not inherit" {
	printf '%s\n' '#!/bin/sh' 'cat /proc/$$/environ >inner' \
		"srun sh $RANK 1" >inner.job
	printf '%s\n' '#!/bin/sh' "srun sh $RANK 2" >inner2.job
	script "srun sh $RANK 0" \
		"sh $SBATCH -N2 -n2 --mem=10 -o inner.out inner.job" \
		'export SLURM_DDP_LAUNCH=full' \
		"sh $SBATCH -N2 -n2 --mem=10 -o inner2.out inner2.job" \
		"sh $SBATCH -N2 -n2 --mem=10 -o inner3.out --ddp-launch --wrap 'srun sh $RANK 3'"
	submit --ddp-launch --mem=10
	world 0 --layout 0,1/2,3
	untouched inner
	plain 1 2
	plain 2 2
	# Unless it is asked for.
	world 3 --count 2
}

@test "sbatch inside a launched task does not inherit either" {
	printf '%s\n' '#!/bin/sh' "srun sh $RANK 1" >inner.job
	script '#SBATCH --ddp-launch' "srun sh $RANK 0" \
		'srun -N1 -n1 env -u RANK -u WORLD_SIZE -u LOCAL_RANK \
			-u LOCAL_WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT \
			sh -c "env -i PATH=\$PATH SLURM_CONF=\$SLURM_CONF \
			SLURM_JOB_ID=\$SLURM_JOB_ID \$(env | grep -E \
			^_?SLURM_\(SPANK\|DDP\)) sh '"$SBATCH"' -N2 -n2 \
			--mem=10 -o inner.out inner.job"'
	submit --mem=10
	plain 1 2
}

@test "salloc: the option and SALLOC_DDP_LAUNCH; the command is untouched" {
	run -0 --separate-stderr in_cluster salloc -Q -N2 -n2 --ddp-launch \
		sh -c 'cat /proc/$$/environ >alloc; srun sh "$0" 0
			srun --ddp-launch=off sh "$0" 1' "$RANK"
	same "" "$output$stderr"
	untouched alloc
	world 0 --count 2
	plain 1 2
	SALLOC_DDP_LAUNCH=full run -0 --separate-stderr in_cluster salloc -Q \
		-N2 -n2 srun sh "$RANK" 2
	world 2 --count 2
	SALLOC_DDP_LAUNCH=full run -0 --separate-stderr in_cluster salloc -Q \
		-N2 -n2 --ddp-launch=off srun sh "$RANK" 3
	plain 3 2
}

@test "salloc's interactive step is untouched" {
	printf '%s\n' '#!/bin/sh' 'cat /proc/$$/environ >"$0.env"' \
		"srun --overlap sh $RANK $DIR/0" >shell
	chmod 755 shell
	run -0 in_cluster env SHELL="$PWD/shell" "$PYTHON" -c 'import pty, sys
sys.exit(pty.spawn(["salloc", "-Q", "-N2", "-n2", "--ddp-launch"]))' </dev/null
	untouched shell.env
	grep -qzE '^SLURM_STEP_ID=(4294967290|-6)$' shell.env
	world 0 --count 2
}

@test "the extern step lives and ends well" {
	script '#SBATCH --ddp-launch' "srun sh $RANK 0"
	submit
	job=$(sed -n 's/^Submitted batch job //p' sbatch.out)
	for step in batch extern 0; do
		same "COMPLETED|0:0" "$(step_state "$job.$step")"
	done
}

@test "a job array: each element is a world of its own" {
	script '#SBATCH --ddp-launch' '#SBATCH --array=0-2' \
		"srun sh $RANK \$SLURM_ARRAY_TASK_ID"
	submit --mem=10
	for i in 0 1 2; do
		world $i --layout 0,1/2,3
		var $i MASTER_PORT | sed -n 's/^0 //p' >>ports
	done
	same 3 "$(sort -u ports | wc -l)"
}

@test "requeue: the same job and step, another restart, a good world" {
	script '#SBATCH --ddp-launch' '#SBATCH --requeue' \
		'n=${SLURM_RESTART_COUNT:-0}' \
		"srun --ddp-explain sh $RANK \$n 2>>explain" \
		'[ $n = 0 ] || exit 0' \
		'scontrol requeue $SLURM_JOB_ID; sleep 60'
	run -0 in_cluster sbatch -N2 --ntasks-per-node=2 -o out job
	wait_until 40 ended_twice
	world 0 --layout 0,1/2,3
	world 1 --layout 0,1/2,3
	same "$(var 0 SLURM_JOB_ID)" "$(var 1 SLURM_JOB_ID)"
	same "$(var 0 SLURM_STEP_ID)" "$(var 1 SLURM_STEP_ID)"
	same "$(printf '%s 1\n' 0 1 2 3)" "$(var 1 SLURM_RESTART_COUNT)"
	[[ $(var 0 MASTER_PORT) != "$(var 1 MASTER_PORT)" ]]
	grep -F "(restart 0)" explain
	grep -F "(restart 1)" explain
}

ended_twice()
{
	[[ $(find 1 -name '*.cpus' | wc -l) == 4 ]] &&
		[[ -z $(in_cluster squeue -h) ]]
}

@test "a hint where the script launches nothing" {
	script '#SBATCH --ddp-launch' 'echo python3 train.py'
	submit
	says_times 1 "ddp: hint: --ddp-launch was given to sbatch, but the script calls no srun"
	for cmd in srun mpirun mpiexec; do
		script '#SBATCH --ddp-launch' "true $cmd"
		submit
		same "" "$output"
	done
	script '#SBATCH --ddp-launch=off' 'true'
	submit
	same "" "$output"
	script 'true'
	submit
	same "" "$output"
}

@test "mpirun's own srun in such a job is left alone" {
	printf '#!/bin/sh\nexec sh "$@"\n' >orted
	chmod 755 orted
	script '#SBATCH --ddp-launch' "srun -N2 -n2 $DIR/orted $RANK 0" \
		"srun sh $RANK 1"
	submit
	plain 0 2
	world 1 --layout 0,1/2,3
}

@test "an invalid value in a script is refused by sbatch" {
	script '#SBATCH --ddp-launch=bogus' 'touch ran'
	run --separate-stderr in_cluster sbatch -o out job
	((status != 0))
	says 'ddp: error: --ddp-launch: "bogus" is not valid'
	script 'touch ran'
	export SBATCH_DDP_FRAMEWORKS=caffe
	fails in_cluster sbatch -o out job
	says "SBATCH_DDP_FRAMEWORKS" "valid: torch"
	same "" "$(in_cluster squeue -h)"
	[[ ! -e ran ]]
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
