#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# cases 9, 13, 14, 15, 18: the variables of every rank, whatever the layout and
# whatever the user's environment. check_world.py works each value out again
# from Slurm's own words. A TaskProlog has a file of its own.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

setup_file() { launch_up --nodes 4 --gpus 4; }
teardown_file() { launch_down; }

setup()
{
	launch_setup
	read -r -a NODE <<<"$DEVCLUSTER_NODES"	# NODE[0] is the first
	DIR=$(new_dir)
}

# ranks ARGS...: launch the dump program with srun's ARGS. No word is said.
ranks()
{
	launch "$@" --ddp-launch sh -c "$RANK_DUMP" "$DIR" &&
		same "" "$output$stderr"
}

@test "1(x4)" {
	ranks -N4 --ntasks-per-node=1
	world "$DIR" --layout 0/1/2/3
}

@test "4,1" {
	ranks -N2 -n5
	world "$DIR" --layout 0,1,2,3/4
	same "$(printf '%s 4\n' 0 1 2 3; echo 4 1)" "$(var "$DIR" LOCAL_WORLD_SIZE)"
}

@test "2(x3),1" {
	printf '%s\n' "${NODE[@]:0:3}" "${NODE[@]}" >hosts
	export SLURM_HOSTFILE=hosts
	ranks -n7 -m arbitrary
	world "$DIR" --layout 0,3/1,4/2,5/6
}

@test "2(x2), for another user" {
	launch_as_nobody -N2 --ntasks-per-node=2 --ddp-launch \
		sh -c "$RANK_DUMP" "$DIR"
	same "" "$output$stderr"
	world "$DIR" --layout 0,1/2,3
	same nobody "$(stat -c %U "$DIR"/*.env | sort -u)"
}

@test "one node, one task; one node, eight" {
	ranks -n1
	world "$DIR" --layout 0
	DIR=$(new_dir)
	ranks -N1 -n8
	world "$DIR" --layout 0,1,2,3,4,5,6,7
}

@test "cyclic: rank 1 is on the second node" {
	ranks -N2 -n4 -m cyclic --ntasks-per-node=2
	world "$DIR" --layout 0,2/1,3
	DIR=$(new_dir)
	ranks -N3 -n7 -m cyclic
	world "$DIR" --layout 0,3,4,5,6/1/2
}

@test "plane: uneven" {
	ranks -N2 -n6 -m plane=2
	world "$DIR" --layout 0,1,3,4,5/2
}

@test "a --multi-prog step is one world" {
	printf '%s\n' "set -- $DIR" "${RANK_DUMP//'$0'/'$1'}" >dump.sh
	printf '%s\n' "0-1 /bin/sh $PWD/dump.sh" "2 /bin/sh dump.sh" >multi.conf
	launch -N3 -n3 --ddp-launch --multi-prog multi.conf
	world "$DIR" --layout 0/1/2
}

@test "a step that is smaller than its allocation, on another node" {
	launched_by in_cluster -N2 --ntasks-per-node=2 \
		-w "${NODE[2]},${NODE[3]}" true
	run -0 --separate-stderr in_cluster salloc -Q -N2 --ntasks-per-node=2 \
		-w "${NODE[2]},${NODE[3]}" \
		srun -N1 -n1 -w "${NODE[3]}" --ddp-launch \
		sh -c "$RANK_DUMP" "$DIR"
	same "" "$output$stderr"
	world "$DIR" --layout 0
	same "0 ${NODE[3]}" "$(var "$DIR" SLURMD_NODENAME)"
	same "0 1" "$(var "$DIR" LOCAL_WORLD_SIZE)"
	same "0 1" "$(var "$DIR" WORLD_SIZE)"
}

@test "-r and a growing step inside an allocation" {
	two=$(new_dir)
	run -0 --separate-stderr in_cluster salloc -Q -N4 --ntasks-per-node=2 \
		sh -c 'srun -N2 -n3 -r 1 --ddp-launch sh -c "$1" "$2"
			srun -N4 -n8 --ddp-launch sh -c "$1" "$3"' \
		sh "$RANK_DUMP" "$DIR" "$two"
	world "$DIR" --count 3
	world "$two" --layout 0,1/2,3/4,5/6,7
	[[ $(var "$DIR" SLURMD_NODENAME) != *" ${NODE[0]}"* ]]
	same "0 0" "$(var "$DIR" SLURM_STEP_ID | sed -n 1p)"
	same "0 1" "$(var "$two" SLURM_STEP_ID | sed -n 1p)"
}

@test "the user's own TORCHELASTIC_ERROR_FILE is kept" {
	export TORCHELASTIC_ERROR_FILE=/dev/null
	for mode in full stateless; do
		launch -N2 -n2 --ddp-launch=$mode sh -c \
			'echo $TORCHELASTIC_ERROR_FILE'
		same $'/dev/null\n/dev/null' "$output"
	done
}

@test "srun inside a task: each step has its own world" {
	inner=$(new_dir)
	launch -N2 --ntasks-per-node=1 --ddp-launch sh -c '
		f=$2/$SLURMD_NODENAME.$$
		cat /proc/$$/environ >"$f.env"
		grep ^Cpus_allowed_list /proc/$$/status >"$f.cpus"
		[ "$RANK" = 0 ] || exit 0
		unset SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE SLURM_DISTRIBUTION
		srun --overlap -N1 -n1 --ddp-launch sh -c "$1" "$3"' \
		sh "$RANK_DUMP" "$DIR" "$inner"
	world "$DIR" --layout 0/1 --mode full
	world "$inner" --layout 0 --mode full
	[[ $(var "$DIR" TORCHELASTIC_ERROR_FILE) != \
		*"$(var "$inner" TORCHELASTIC_ERROR_FILE)"* ]]
	# The outer step's values are not the inner's, and it says so, once.
	says_times 1 "ddp: warning: inherited "
	says WORLD_SIZE=2 PET_NNODES=2
}

@test "srun without a launch inside a task: no plan is left over" {
	launch -N2 --ntasks-per-node=1 --ddp-launch sh -c '
		[ "$RANK" = 0 ] || exit 0
		srun --overlap -N1 -n1 sh -c "$0" "$1"' "$RANK_DUMP" "$DIR"
	same "" "$(var "$DIR" SLURM_DDP_PLAN)"
	same 1 "$(find "$DIR" -name '*.env' | wc -l)"
}

@test "full and stateless, by option and by environment; the option wins" {
	for mode in full stateless; do
		DIR=$(new_dir)
		launch -n2 --ddp-launch=$mode sh -c "$RANK_DUMP" "$DIR"
		world "$DIR" --count 2 --mode $mode
		DIR=$(new_dir)
		SLURM_DDP_LAUNCH=$mode launch -n2 sh -c "$RANK_DUMP" "$DIR"
		world "$DIR" --count 2 --mode $mode
	done
	DIR=$(new_dir)
	SLURM_DDP_LAUNCH=full launch -n2 --ddp-launch=off \
		sh -c "$RANK_DUMP" "$DIR"
	same "" "$(var "$DIR" RANK)"
	DIR=$(new_dir)
	SLURM_DDP_LAUNCH=off launch -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 2
}

@test "the environment's twin of every option; the option wins" {
	export SLURM_DDP_FRAMEWORKS=jax SLURM_DDP_MASTER_PORT=29999 \
		SLURM_DDP_MASTER_ADDR=127.99.0.1 SLURM_DDP_IFACE=lo \
		SLURM_DDP_EXPLAIN=1
	launch -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --frameworks jax --port 29999 --addr 127.99.0.1 \
		--set NCCL_SOCKET_IFNAME==lo --set GLOO_SOCKET_IFNAME=lo
	says "  MASTER_ADDR  "
	DIR=$(new_dir)
	launch -n2 --ddp-launch --ddp-frameworks=torch,jax \
		--ddp-master-port=29998 --ddp-master-addr=127.99.0.2 \
		--ddp-iface=none sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --port 29998 --addr 127.99.0.2
	DIR=$(new_dir)
	launch -n2 --ddp-launch --ddp-master-port=auto --ddp-master-addr=auto \
		sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --frameworks jax \
		--set NCCL_SOCKET_IFNAME==lo --set GLOO_SOCKET_IFNAME=lo
	[[ $(var "$DIR" MASTER_PORT) != *29999* ]]
}

@test "--ddp-frameworks: exactly what was asked for" {
	plain=$(new_dir)
	in_cluster srun -N2 -n2 sh -c "$RANK_DUMP" "$plain"
	for fw in torch jax torch,jax jax,torch; do
		for mode in full stateless; do
			DIR=$(new_dir)
			launch -N2 -n2 --ddp-launch=$mode --ddp-frameworks=$fw \
				sh -c "$RANK_DUMP" "$DIR"
			same "" "$output$stderr"
			world "$DIR" --frameworks $fw --mode $mode \
				--plain "$plain"
		done
	done
}

@test "an inherited value of an owned variable: replaced, one warning" {
	export MASTER_ADDR=n5 NODE_RANK=9 RANK=3
	launch -N2 --ntasks-per-node=2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --layout 0,1/2,3
	says_times 1 "ddp: warning:"
	says MASTER_ADDR=n5 NODE_RANK=9 RANK=3
	says_not WORLD_SIZE
}

@test "an inherited value that is right is no reason to warn" {
	export WORLD_SIZE=4 ROLE_NAME=default GROUP_WORLD_SIZE=2
	ranks -N2 --ntasks-per-node=2
	world "$DIR" --count 4
}

@test "--export=NONE" {
	export MASTER_ADDR=n5 OMP_NUM_THREADS=3 SECRET=1
	launch -N2 --ntasks-per-node=2 --export=NONE --ddp-launch \
		/bin/sh -c "$RANK_DUMP" "$DIR"
	same "" "$output$stderr"
	world "$DIR" --layout 0,1/2,3
	same "" "$(var "$DIR" SECRET)"
}

@test "--export=ALL,RANK=55 and --export=RANK=55" {
	export MASTER_ADDR=n5
	launch -N2 --ntasks-per-node=2 --export=ALL,RANK=55 --ddp-launch \
		/bin/sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --layout 0,1/2,3
	says_times 1 "ddp: warning:"
	says RANK=55 MASTER_ADDR=n5
	DIR=$(new_dir)
	launch -N2 --ntasks-per-node=2 --export=RANK=55 --ddp-launch \
		/bin/sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --layout 0,1/2,3
	says_times 1 "ddp: warning:"
	says RANK=55
	says_not MASTER_ADDR=n5
}

@test "the user's own soft values are kept" {
	export OMP_NUM_THREADS=13 TORCH_NCCL_ASYNC_ERROR_HANDLING=0 \
		NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib1
	ranks -N2 -n3 --ddp-iface=auto
	world "$DIR" --set OMP_NUM_THREADS=13 \
		--set TORCH_NCCL_ASYNC_ERROR_HANDLING=0 \
		--set NCCL_SOCKET_IFNAME=ib0 --set GLOO_SOCKET_IFNAME=ib1
	unset OMP_NUM_THREADS TORCH_NCCL_ASYNC_ERROR_HANDLING
	# The old name of the same switch.
	export NCCL_ASYNC_ERROR_HANDLING=0
	DIR=$(new_dir)
	ranks -N2 -n3
	world "$DIR" --unset TORCH_NCCL_ASYNC_ERROR_HANDLING \
		--set NCCL_ASYNC_ERROR_HANDLING=0 \
		--set NCCL_SOCKET_IFNAME=ib0 --set GLOO_SOCKET_IFNAME=ib1
}

@test "--ddp-iface=auto and a name" {
	for iface in auto lo; do
		DIR=$(new_dir)
		ranks -N2 -n3 --ddp-iface=$iface
		world "$DIR" --set NCCL_SOCKET_IFNAME==lo \
			--set GLOO_SOCKET_IFNAME=lo
	done
}

@test "--ddp-iface=auto leads to --ddp-master-addr" {
	addr=$(hostname -I 2>/dev/null | tr ' ' '\n' | grep -m 1 '^[0-9.]*$') ||
		skip "this machine has no address but loopback"
	iface=$("$PYTHON" - "$addr" <<-'X'
		import fcntl, socket, struct, sys
		s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
		for _, name in socket.if_nameindex():
		    try:
		        r = fcntl.ioctl(s, 0x8915, struct.pack("256s", name.encode()))
		    except OSError:
		        continue
		    if socket.inet_ntoa(r[20:24]) == sys.argv[1]:
		        print(name)
	X
	)
	[[ -n $iface && $iface != lo ]]
	ranks -N2 -n2 --ddp-iface=auto --ddp-master-addr="$addr"
	world "$DIR" --addr "$addr" --set "NCCL_SOCKET_IFNAME==$iface" \
		--set "GLOO_SOCKET_IFNAME=$iface"
}

@test "--ddp-iface with an interface that a node has not" {
	fails in_cluster srun -N2 -n2 --ddp-launch=stateless --ddp-iface=bad0 \
		touch ran
	says "ddp: error: node ${NODE[0]}, rank 0: --ddp-iface=bad0: no such" \
		"ddp: error: node ${NODE[1]}, rank 1: --ddp-iface=bad0: no such"
	[[ ! -e ran ]]
	# In full mode it is known before the start, and told once.
	fails in_cluster srun -N2 -n2 --ddp-launch --ddp-iface=bad0 touch ran
	same 75 "$status"
	says "ddp: the launch failed: a task on node" \
		"before its program was started: --ddp-iface=bad0: no such"
	same 1 "$(grep -c bad0 <<<"$stderr")"
	[[ ! -e ran ]]
}

@test "GPUs: torchrun's workers, and a hint where one task has them all" {
	launch -N2 --ntasks-per-node=1 --gpus-per-node=3 --ddp-launch \
		sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --layout 0/1
	same "$(printf '0 3\n1 3')" "$(var "$DIR" PET_NPROC_PER_NODE)"
	says_times 1 "ddp: hint: one task on node ${NODE[0]} sees 3 GPUs; --ntasks-per-node=3"
	DIR=$(new_dir)
	ranks -N2 --ntasks-per-node=2 --gpus-per-node=2
	world "$DIR" --layout 0,1/2,3
	DIR=$(new_dir)
	launch -N1 -n2 --gpus-per-task=1 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	says_times 1 "its device is index 0 (DDP_LOCAL_DEVICE), not LOCAL_RANK"
	world "$DIR" --layout 0,1
}

@test "torchrun in a task: a hint, and what it reads" {
	printf '#!/bin/sh\nexec sh -c "$@"\n' >torchrun
	chmod +x torchrun
	launch -N2 --ntasks-per-node=1 --ddp-launch ./torchrun "$RANK_DUMP" "$DIR"
	world "$DIR" --layout 0/1
	says_times 1 "ddp: hint: torchrun finds PET_NNODES"
	# Its workers, one a GPU, share the cores.
	DIR=$(new_dir)
	launch -N1 -n1 -c2 --gpus-per-node=2 --ddp-launch ./torchrun \
		"$RANK_DUMP" "$DIR"
	same "0 1" "$(var "$DIR" OMP_NUM_THREADS)"
	launch -N2 --ntasks-per-node=2 --ddp-launch ./torchrun true
	says_times 1 "ddp: hint: each of the 4 tasks runs a torchrun of its own"
}

@test "mpirun's own srun is left alone" {
	for name in orted prted hydra_pmi_proxy hydra_bstrap_proxy; do
		printf '#!/bin/sh\nexec sh -c "$@"\n' >$name
		chmod +x $name
		DIR=$(new_dir)
		launch -N2 -n2 --ddp-launch ./$name "$RANK_DUMP" "$DIR"
		same "" "$output$stderr"
		same "" "$(var "$DIR" RANK)$(var "$DIR" SLURM_DDP_PLAN)"
		same 2 "$(find "$DIR" -name '*.env' | wc -l)"
	done
}

@test "options without a launch: one warning, nothing set" {
	launch -n2 --ddp-master-port=29999 --ddp-explain sh -c "$RANK_DUMP" "$DIR"
	same "" "$(var "$DIR" RANK)"
	says_times 1 "ddp: warning:"
	says "--ddp-master-port" "--ddp-explain" \
		"no effect without --ddp-launch"
}

@test "a --task-prolog where the site has none: no rank goes on with its RANK" {
	printf '#!/bin/sh\necho export RANK=77\n' >task-prolog
	chmod 755 task-prolog
	run --separate-stderr in_cluster srun -N2 -n2 \
		--task-prolog="$PWD/task-prolog" --ddp-launch \
		sh -c 'sleep 2; touch "$0/survived"' "$DIR"
	((status == 137))
	says "RANK is 77 in the program's environment"
	[[ ! -e $DIR/survived ]]
	export SLURM_TASK_PROLOG=$PWD/task-prolog
	run --separate-stderr in_cluster srun -N2 -n2 --ddp-launch \
		sh -c 'sleep 2; touch "$0/survived"' "$DIR"
	((status == 137))
	[[ ! -e $DIR/survived ]]
}

@test "the exit code of a rank is srun's" {
	run -7 --separate-stderr in_cluster srun -N2 -n2 --ddp-launch \
		sh -c 'exit $((RANK * 7))'
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
