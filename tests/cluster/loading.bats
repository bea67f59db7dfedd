#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# case 33 and the site's policy: how the plugin is loaded, on srun's side, on
# the nodes, on both; and what plugstack.conf's arguments do, also against a
# user who brings a slurm.conf of their own.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

EXAMPLE=$TESTS/../../contrib/examples/train_ddp.py
CHECK_ENV=$TESTS/../../contrib/examples/check_env.py
SENTINEL=spank_ddp.so-not-loaded-on-this-node

setup_file()
{
	launch_up --nodes 2 --gpus 0 --conf "$FAST_SBATCH"
	# Two that Slurm refuses: of another release, and no library at all.
	build_so "$CLUSTER_TMP/old.so" <<-'X'
		const char plugin_name[] = "ddp";
		const char plugin_type[] = "spank";
		const unsigned int plugin_version = 0x150800;
		const unsigned int spank_plugin_version = 1;
	X
	echo "no library" >"$CLUSTER_TMP/text.so"
	cp "$CLUSTER_DIR/plugins/spank_ddp.so" "$CLUSTER_TMP/second.so"
}

teardown_file() { launch_down; }

setup()
{
	launch_setup
	DIR=$(new_dir)
	cd "$DIR" || return 1
	PLUGIN=$(plugin)
	site "required $PLUGIN"
}

# site LINE...: the cluster's plugstack.conf; slurmstepd and srun read it when
# they start.
site()
{
	local conf=$CLUSTER_DIR/etc/plugstack.conf
	if (($#)); then
		printf '%s\n' "$@" >"$conf.new"
	else
		: >"$conf.new"
	fi
	mv -f "$conf.new" "$conf"
}

# node_refuses TEXT ARGS...: a step of two tasks with the user's own slurm.conf,
# in both modes. In full mode the first that refuses may end the others before
# they speak.
node_refuses()
{
	local text=$1 mode
	shift
	for mode in stateless full; do
		fails own -N2 -n2 --ddp-launch=$mode "$@" touch ran || return 1
		if [[ $mode == stateless ]]; then
			says "ddp: error: node ${DEVCLUSTER_NODES%% *}, rank 0: $text" ||
				return 1
		else
			grep -qE "^ddp: error: node [^ ]+, rank [01]: $text" \
				<<<"$stderr" || { echo "$stderr"; return 1; }
		fi
		[[ ! -e ran ]] || return 1
	done
}

# own ARGS...: srun with the slurm.conf of own_conf; for run.
own() { in_cluster env SLURM_CONF="$OWN" srun "$@"; }

@test "required, and the file is missing: no step, and the file is named" {
	site "required $DIR/none.so"
	fails in_cluster srun -n1 touch ran
	says none.so
	[[ ! -e ran ]]
	fails in_cluster sbatch -o /dev/null --wrap true
	says none.so
}

@test "optional, and the file is missing: steps run, the option is unknown" {
	site "optional $DIR/none.so"
	run -0 in_cluster srun -n1 true
	fails in_cluster srun -n1 --ddp-launch touch ran
	says --ddp-launch
	[[ ! -e ran ]]
}

@test "a plugin for another Slurm, and no plugin at all" {
	for so in "$CLUSTER_TMP/old.so" "$CLUSTER_TMP/text.so"; do
		site "required $so"
		fails in_cluster srun -n1 touch ran
		says "${so##*/}"
		site "optional $so"
		run -0 in_cluster srun -n1 true
		fails in_cluster srun -n1 --ddp-launch touch ran
		[[ ! -e ran ]]
	done
}

@test "the project's own plugin for another Slurm" {
	mine=$(cut -d . -f 1-2 <<<"$DEVCLUSTER_SLURM_VERSION")
	other=$(find "$TESTS/../../_build" -maxdepth 3 -path '*/.libs/spank_ddp.so' \
		-not -path "*/slurm-$mine.*" | sed -n 1p)
	[[ -n $other ]] || skip "the plugin is built for one Slurm only here"
	cp "$other" other.so
	site "required $DIR/other.so"
	fails in_cluster srun -n1 touch ran
	says other.so
	site "optional $DIR/other.so"
	run -0 in_cluster srun -n1 true
	[[ ! -e ran ]]
}

@test "on srun's side only: the sentinel" {
	own_conf "required $PLUGIN"
	site
	run -0 own -N2 -n2 --ddp-launch=stateless sh -c \
		'for v in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE \
			MASTER_ADDR MASTER_PORT; do printenv $v; done'
	same "$(yes $SENTINEL | sed 12q)" "$output"
	run own -N2 -n2 --ddp-launch "$PYTHON" "$CHECK_ENV"
	((status == 75))
	says $SENTINEL
}

@test "on srun's side only, full mode: the step fails, and the nodes are named" {
	own_conf "required $PLUGIN"
	site
	# No gate on the nodes: whatever the program does, it was no launch.
	for program in true "sh -c 'exit 3'" "sleep 50"; do
		run --separate-stderr own -N2 -n2 --ddp-launch \
			--ddp-start-timeout=2 sh -c "$program"
		same 75 "$status"
		says "ddp: the launch failed: " "no connection from ${DEVCLUSTER_NODES%% *}"
	done
	run --separate-stderr own -N2 -n2 --ddp-launch --ddp-control=prefer \
		--ddp-start-timeout=1 sh -c 'sleep 2; echo $RANK'
	same "0 $SENTINEL" "$status $(sort -u <<<"$output")"
	says "ddp: warning: 0 of 2 nodes reached the controller"
}

@test "on srun's side only: a training stops at once and says why" {
	in_cluster "$PYTHON" -c 'import torch' 2>/dev/null ||
		skip "no torch for $PYTHON${DDP_ROOT:+ in $DDP_ROOT}"
	own_conf "required $PLUGIN"
	site
	start=$SECONDS
	run own -N2 -n2 --ddp-launch "$PYTHON" "$EXAMPLE"
	((status == 75 && SECONDS - start < 25))
	says $SENTINEL "not complete on this node"
	# Without the example's own look at the variable: PyTorch says it.
	run own -N2 -n2 --ddp-launch "$PYTHON" -c 'import torch.distributed as d
d.init_process_group("gloo")'
	((status == 75))
	says $SENTINEL
}

@test "a node whose plugin is missing, is old or is none" {
	own_conf "required $PLUGIN"
	for so in "$DIR/none.so" "$CLUSTER_TMP/old.so" "$CLUSTER_TMP/text.so"; do
		site "optional $so"
		run own -N2 -n2 --ddp-launch "$PYTHON" "$CHECK_ENV"
		((status == 75))
		says $SENTINEL
		site "required $so"
		# Slurm's own words, and in 22.05 its own exit code: 0.
		run own -N2 -n2 --ddp-launch touch ran
		says "launch failed: "
		[[ ! -e ran ]]
	done
	site
	nodes_idle
}

@test "on the nodes only: srun does not know the option" {
	own_conf
	fails own -n1 --ddp-launch touch ran
	says --ddp-launch
	[[ ! -e ran ]]
	run -0 own -n1 sh -c 'echo "${RANK-unset}"'
	same unset "$output"
	run own -n1 "$PYTHON" "$CHECK_ENV"
	((status == 1))
}

@test "listed twice: one launch" {
	for second in "$PLUGIN" "$CLUSTER_TMP/second.so"; do
		site "required $PLUGIN" "required $second"
		rm -f "$DIR"/*.env "$DIR"/*.cpus
		launch -N2 -n3 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
		world "$DIR" --count 3
		MASTER_ADDR=n5 launch -N2 -n2 --ddp-launch --ddp-explain true
		says_times 1 "MASTER_ADDR=n5"
		says_times 1 "ddp:   MASTER_ADDR "
	done
}

@test "bad arguments: a line for each, the rest holds, the cluster works" {
	site "required $PLUGIN bogus=1 frameworks=jax mode=sometimes port_range=9-8 allow=all %s%n"
	: >"$CLUSTER_TMP/logs"
	launch -N2 -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 2 --frameworks jax
	for arg in bogus=1 mode=sometimes port_range=9-8 allow=all %s%n; do
		says_times 1 "ddp: plugstack.conf: argument \"$arg\" ignored: "
		# The node, too, said it once for this step.
		same 1 "$(sed -n '/bogus=1/,$p' \
			"$CLUSTER_DIR/log/slurmd-${DEVCLUSTER_NODES%% *}.log" |
			grep -cF "argument \"$arg\" ignored")"
	done
	says "mode=, frameworks=, iface=, port_range=, allow=" \
		"full, stateless, off" "port_range=LOW-HIGH" \
		"allow=launch,explain,frameworks,master-port,master-addr,iface"
	launch -n1 true
	run -0 sbatch_wait in_cluster -o "$DIR/out" --wrap true
	nodes_idle
}

@test "mode=: the launch is the default, and can be turned off" {
	site "required $PLUGIN mode=stateless"
	launch -N2 -n3 sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 3
	launch -n1 --ddp-launch=off sh -c 'echo "${RANK-unset}"'
	same unset "$output"
	SLURM_DDP_LAUNCH=off launch -n1 sh -c 'echo "${RANK-unset}"'
	same unset "$output"
	run -0 sbatch_wait in_cluster -o "$DIR/out" --wrap \
		'echo "${RANK-unset}"; srun sh -c "echo \$RANK"'
	same $'unset\n0' "$(<"$DIR/out")"
}

@test "frameworks= and iface= are defaults" {
	site "required $PLUGIN frameworks=torch iface=lo"
	launch -N2 -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --frameworks torch --set NCCL_SOCKET_IFNAME==lo \
		--set GLOO_SOCKET_IFNAME=lo
	DIR=$(new_dir)
	launch -N2 -n2 --ddp-launch --ddp-frameworks=jax --ddp-iface=none \
		sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --frameworks jax
}

@test "allow=: what is not in it is refused" {
	site "required $PLUGIN allow=launch,frameworks"
	launch -n1 --ddp-launch --ddp-frameworks=jax true
	same "" "$stderr"
	for args in --ddp-master-port=29999 --ddp-master-addr=127.0.0.1 \
		--ddp-iface=lo --ddp-explain; do
		fails in_cluster srun --ddp-launch $args touch ran
		says "ddp: error: ${args%%=*} is not allowed on this cluster"
	done
	fails env SLURM_DDP_IFACE=lo "$DEVCLUSTER" --dir "$CLUSTER_DIR" run -- \
		srun --ddp-launch touch ran
	says "ddp: error: --ddp-iface is not allowed"
	fails in_cluster sbatch -o /dev/null --ddp-master-port=29999 \
		--wrap "touch ran"
	says "ddp: error: --ddp-master-port is not allowed"
	site "required $PLUGIN mode=stateless allow=explain"
	fails in_cluster srun --ddp-launch=off touch ran
	says "ddp: error: --ddp-launch is not allowed"
	[[ ! -e ran ]]
}

@test "allow= holds on the node, whatever slurm.conf the user brings" {
	site "required $PLUGIN allow=launch"
	own_conf "required $PLUGIN"
	run -0 own -n1 --ddp-launch sh -c 'echo $RANK'
	same 0 "$output"
	for args in --ddp-master-port=29999 --ddp-master-addr=127.0.0.1 \
		--ddp-iface=lo --ddp-frameworks=jax; do
		node_refuses "${args%%=*} is not allowed" $args
	done
}

@test "port_range= holds for a port that the user names" {
	first=$(free_ports 20)
	site "required $PLUGIN port_range=$first-$((first + 9))"
	launch -n1 --ddp-launch --ddp-master-port=$((first + 9)) \
		sh -c 'echo $MASTER_PORT'
	same $((first + 9)) "$output"
	fails in_cluster srun --ddp-launch --ddp-master-port=$((first + 10)) \
		touch ran
	says "ddp: error: master port $((first + 10)) " \
		"port_range=$first-$((first + 9))"
	[[ ! -e ran ]]
}

@test "port_range= holds on the node, whatever slurm.conf the user brings" {
	first=$(free_ports 20)
	site "required $PLUGIN port_range=$first-$((first + 9))"
	own_conf "required $PLUGIN port_range=$((first + 10))-$((first + 19))"
	for args in --ddp-master-port=auto --ddp-master-port=$((first + 12)); do
		node_refuses "master port " $args
		says "port_range=$first-$((first + 9))"
	done
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
	same "" "$(in_cluster sinfo -h -R)"
	launch -N2 -n2 --ddp-launch true
}
