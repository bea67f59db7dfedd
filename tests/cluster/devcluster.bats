#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# contrib/devcluster itself: it starts, runs, and above all leaves nothing.
# shellcheck disable=SC2016 # single quotes are for the tasks' shells
# shellcheck disable=SC2034 # loop counters
# shellcheck disable=SC2030,SC2031 # bats: each test is a subshell

bats_require_minimum_version 1.5.0
load lib

setup()
{
	[[ $EUID == 0 ]] || skip "needs root"
	cluster_init
	# Without the project's plugin: this is about the cluster alone.
	SMALL=(--plugin none --nodes 2 --gpus 2)
}

teardown()
{
	[[ $EUID == 0 ]] || return 0
	"$DEVCLUSTER" --dir "$CLUSTER_DIR" down || true
	[[ ! -d $CLUSTER_DIR.2 ]] || "$DEVCLUSTER" --dir "$CLUSTER_DIR.2" down
}

# has_trace KIND: the check below would see one if it were left.
has_trace() { cluster_traces | grep -q "^$1 "; }

@test "an error in the options exits 2 with usage" {
	for args in "--bogus up" "--nodes 0 up" "--nodes" "up down" "frob" \
		"run" "run --" "--user nobody up" "--conf nonsense up" \
		"--node-prefix A1 up" "--gpus=x up" "--netns=5 up" cut \
		"cut n1 up" ""; do
		# shellcheck disable=SC2086
		run -2 "$DEVCLUSTER" --dir "$CLUSTER_DIR" $args
		[[ $output == *"usage: devcluster"* ]]
		[[ ! -e $CLUSTER_DIR ]]
	done
}

@test "down where nothing is up is no error" {
	run -0 cluster_down
	mkdir "$CLUSTER_DIR"
	run -0 cluster_down
	[[ ! -e $CLUSTER_DIR ]]
}

@test "a folder of somebody else is refused and kept" {
	mkdir "$CLUSTER_DIR"
	echo precious >"$CLUSTER_DIR/file"
	run -1 cluster_up "${SMALL[@]}"
	[[ $output == *"not a devcluster folder"* ]]
	run -1 cluster_down
	[[ $(<"$CLUSTER_DIR/file") == precious ]]
	rm -r "$CLUSTER_DIR"

	ln -s /var/tmp "$CLUSTER_DIR"
	run -1 cluster_up "${SMALL[@]}"
	rm "$CLUSTER_DIR"

	mkdir "$CLUSTER_DIR"
	chown nobody "$CLUSTER_DIR"
	run -1 cluster_up "${SMALL[@]}"
	rmdir "$CLUSTER_DIR"
}

@test "up, down, and again: everything is there, then nothing" {
	for round in 1 2; do
		cluster_up "${SMALL[@]}"
		cluster_identity
		for kind in process socket port device folder claim; do
			has_trace "$kind"
		done
		run -1 grep -F "$CLUSTER_DIR" /proc/mounts
		run -0 cluster_run sinfo -h -o %T
		[[ $output == idle ]]
		run -0 cluster_run sacct -n
		cluster_down
		cluster_gone
	done
}

@test "\$(devcluster up) returns, with nothing on stdout" {
	run -0 timeout 60 bash -c \
		'x=$("$0" --dir "$@" up </dev/null) && echo "got:$x"' \
		"$DEVCLUSTER" "$CLUSTER_DIR" "${SMALL[@]}"
	[[ ${lines[-1]} == got: ]]
}

@test "up again is a no-op, with other options an error" {
	cluster_up "${SMALL[@]}"
	before=$(cluster_pid slurmctld)
	run -0 cluster_up "${SMALL[@]}"
	[[ $output == *"already up"* ]]
	[[ $(cluster_pid slurmctld) == "$before" ]]
	run -1 cluster_up "${SMALL[@]}" --cpus 3
	[[ $output == *"'down' first"* ]]
	run -1 "$DEVCLUSTER" --dir "$CLUSTER_DIR" --nodes 7 run -- true
	run -0 "$DEVCLUSTER" --dir "$CLUSTER_DIR" run -- true
}

@test "run boots; exit code, signal, stdin, stdout and cwd are the command's" {
	run -0 "$DEVCLUSTER" --dir "$CLUSTER_DIR" "${SMALL[@]}" run -- true
	run -7 cluster_run sh -c 'exit 7'
	run -137 cluster_run sh -c 'kill -9 $$'
	run -3 cluster_run srun sh -c 'exit 3'
	[[ $(echo hello | cluster_run cat) == hello ]]
	[[ $(cluster_run srun -n1 echo one 2>/dev/null) == one ]]
	cd /usr
	[[ $(cluster_run srun pwd) == /usr ]]
	"$DEVCLUSTER" --dir "$CLUSTER_DIR" run -- sleep 60 &
	pid=$!
	wait_until 5 grep -qx sleep "/proc/$pid/comm"
	kill -TERM "$pid"
	rc=0
	wait "$pid" || rc=$?
	[[ $rc == 143 ]]
}

@test "an unprivileged user's srun and sbatch run" {
	cluster_up "${SMALL[@]}"
	run -0 cluster_run_as nobody srun -N2 --gpus-per-node=1 \
		sh -c 'echo "$(id -un) $HOME $CUDA_VISIBLE_DEVICES"'
	[[ ${lines[0]} == "nobody /nonexistent 0" ]]
	out=$(mktemp -d)
	chown nobody "$out"
	cd "$out"
	printf '#!/bin/sh\nid -un\nsrun id -un\n' >job
	run -0 cluster_run_as nobody sbatch -o out job
	wait_until 20 bash -c '[[ $(grep -cs "^nobody$" out) == 2 ]]'
	cd /
	rm -r "$out"
	run -1 cluster_run_as no-such-user true
	[[ $output == *"no such user"* ]]
}

@test "nodes have addresses and ports of their own" {
	cluster_up "${SMALL[@]}"
	cluster_env
	[[ $DEVCLUSTER_ADDRS =~ ^(127\.[0-9]+\.[0-9]+)\.1\ (127\.[0-9]+\.[0-9]+)\.2$ ]]
	[[ ${BASH_REMATCH[1]} == "${BASH_REMATCH[2]}" ]]
	read -r lo hi </proc/sys/net/ipv4/ip_local_port_range
	for p in $DEVCLUSTER_CTLD_PORT $DEVCLUSTER_DBD_PORT \
		$DEVCLUSTER_NODE_PORTS; do
		((p < lo || p > hi))
	done
	run -0 "$DEVCLUSTER" --dir "$CLUSTER_DIR" status
	[[ $output == *slurmctld*yes* && $output == *idle* ]]
}

@test "two clusters start at the same moment and live side by side" {
	cluster_up "${SMALL[@]}" &
	one=$!
	"$DEVCLUSTER" --dir "$CLUSTER_DIR.2" "${SMALL[@]}" up &
	two=$!
	wait "$one"
	wait "$two"
	a=$(cluster_run srun -N2 printenv SLURMD_NODENAME | sort)
	b=$("$DEVCLUSTER" --dir "$CLUSTER_DIR.2" run -- \
		srun -N2 printenv SLURMD_NODENAME | sort)
	[[ -n $a && -n $b && $a != "$b" ]]
	cluster_identity
	cluster_down
	cluster_gone
	run -0 "$DEVCLUSTER" --dir "$CLUSTER_DIR.2" run -- srun -N2 true
}

@test "two starts of one cluster are one" {
	cluster_up "${SMALL[@]}" &
	one=$!
	cluster_up "${SMALL[@]}"
	wait "$one"
	run -0 cluster_run srun -N2 true
}

@test "down after kill -9 of slurmctld and of a slurmd" {
	for victim in slurmctld "slurmd-"; do
		cluster_up "${SMALL[@]}"
		cluster_identity
		[[ $victim == slurmctld ]] || victim+=$(cluster_node 1)
		kill -9 "$(cluster_pid "$victim")"
		run -1 "$DEVCLUSTER" --dir "$CLUSTER_DIR" status
		cluster_down
		cluster_gone
	done
}

@test "up starts again what has died" {
	cluster_up "${SMALL[@]}"
	kill -9 "$(cluster_pid slurmctld)" "$(cluster_pid "slurmd-$(cluster_node 2)")"
	run -0 cluster_up "${SMALL[@]}"
	run -0 cluster_run srun -N2 true
}

@test "down after kill -9 of up half way" {
	for stage in munged slurmdbd slurmctld; do
		"$DEVCLUSTER" --dir "$CLUSTER_DIR" "${SMALL[@]}" up 3>&- &
		up=$!
		wait_until 20 test -e "$CLUSTER_DIR/run/$stage.pid"
		kill -KILL "$up"
		wait "$up" || true
		[[ ! -e $CLUSTER_DIR/ready ]]
		cluster_identity
		has_trace process
		cluster_down
		cluster_gone
	done
}

@test "up after kill -9 of up half way cleans up and starts" {
	"$DEVCLUSTER" --dir "$CLUSTER_DIR" "${SMALL[@]}" up 3>&- &
	up=$!
	wait_until 20 test -e "$CLUSTER_DIR/run/slurmdbd.pid"
	kill -KILL "$up"
	wait "$up" || true
	run -0 cluster_up "${SMALL[@]}"
	[[ $output == *"cleaning up"* ]]
}

@test "an interrupted up leaves nothing" {
	for sig in INT TERM; do
		# bats ignores INT for what it starts in the background
		env --default-signal=INT \
			"$DEVCLUSTER" --dir "$CLUSTER_DIR" "${SMALL[@]}" up 3>&- &
		up=$!
		wait_until 20 test -e "$CLUSTER_DIR/run/slurmdbd.pid"
		cluster_identity
		kill -s "$sig" "$up"
		rc=0
		wait "$up" || rc=$?
		((rc == 130 || rc == 143))
		cluster_gone
	done
}

@test "a start that fails says why and leaves nothing" {
	run -1 cluster_up "${SMALL[@]}" --conf SlurmctldPort=none
	[[ $output == *"did not start"* ]]
	[[ $output == *SlurmctldPort* ]]
	[[ ! -e $CLUSTER_DIR ]]
	run -1 cluster_up --plugin /nonexistent.so
	[[ $output == *"no such plugin"* ]]
	[[ ! -e $CLUSTER_DIR ]]
}

@test "down ends running jobs, also what has left its session" {
	cluster_up "${SMALL[@]}"
	cluster_identity
	cluster_run_as nobody srun -N2 sh -c \
		'setsid sleep 3333 & trap "" TERM; sleep 3333; sleep 3333' 3>&- &
	client=$!
	wait_until 10 bash -c '(($(pgrep -cfx "sleep 3333") >= 4))'
	cluster_down
	# srun itself is not the cluster's: it tries on for a while.
	kill -KILL "$client"
	wait "$client" || true
	cluster_gone
}

@test "--conf replaces a line and adds one, --plugstack adds one" {
	cluster_up "${SMALL[@]}" --conf "killwait=7" \
		--conf "SLURMDDEBUG=debug2" \
		--conf "PartitionName=extra Nodes=ALL" \
		--plugstack "optional /nonexistent.so x=1"
	conf=$CLUSTER_DIR/etc/slurm.conf
	[[ $(grep -ci '^slurmddebug=' "$conf") == 1 ]]
	grep -qx 'SLURMDDEBUG=debug2' "$conf"
	grep -qx 'killwait=7' "$conf"
	[[ $(grep -c '^PartitionName=' "$conf") == 2 ]]
	grep -qx 'optional /nonexistent.so x=1' "$CLUSTER_DIR/etc/plugstack.conf"
	run -0 cluster_run scontrol show config
	[[ $output =~ KillWait\ +=\ 7\ sec ]]
}

@test "--cgroup confines the GPUs" {
	"$DEVCLUSTER" --dir "$CLUSTER_DIR" "${SMALL[@]}" --cgroup up ||
		{ grep -q ' /sys/fs/cgroup/devices cgroup rw' /proc/mounts ||
			skip "no writable cgroup v1 here"; false; }
	cluster_identity
	node=$(cluster_node 1)
	cluster_run srun -w "$node" --gpus-per-node=1 sleep 20 3>&- &
	client=$!
	wait_until 10 has_trace cgroup
	run cluster_run srun -w "$node" --gpus-per-node=1 sh -c \
		"echo \$CUDA_VISIBLE_DEVICES; for i in 0 1; do
			cat $CLUSTER_DIR/dev/nvidia\$i; done"
	echo "$output"
	[[ $(grep -c 'Operation not permitted' <<<"$output") == 1 ]]
	[[ $(grep -cE 'No such device or address' <<<"$output") == 1 ]]
	cluster_down
	kill -KILL "$client"
	cluster_gone
}

# reaches PLACE ADDR PORT: a TCP connection is made within a second.
reaches()
{
	nsenter "--net=/proc/$(cluster_pid "net-$1")/ns/net" -- timeout 1 \
		bash -c '</dev/tcp/$0/$1' "$2" "$3" 2>/dev/null
}

# A "!" before a command is no assertion.
cut_off() { ! reaches "$@"; }

# netns_works VERSION ARGS: nodes with their own networks of IPv4 or IPv6.
netns_works()
{
	local addr port links
	links=$(ip -br address)
	cluster_up "${SMALL[@]}" "--netns=$1" "${@:2}"
	cluster_identity
	cluster_env
	same_links() { [[ $(ip -br address) == "$links" ]]; }
	same_links
	read -r -a addr <<<"$DEVCLUSTER_ADDRS"
	read -r -a port <<<"$DEVCLUSTER_NODE_PORTS"
	[[ ${addr[0]} == 10.*.1 || $1 == 6 && ${addr[0]} == fd00:*::1 ]]
	run -0 cluster_run srun -N2 sh -c \
		'grep -o "eth[^:]*" /proc/net/dev; readlink /proc/self/ns/net'
	[[ $(grep -cx eth0 <<<"$output") == 2 ]]
	[[ $(grep '^net:' <<<"$output" | sort -u | wc -l) == 2 ]]
	[[ $output != *"$(readlink /proc/self/ns/net)"* ]]
	run -0 cluster_run_as nobody srun -N2 id -un
	run -0 cluster_run sh -c 'echo "#!/bin/sh" >"$0" && echo "srun -n1 id" \
		>>"$0" && sbatch -W -o "$0.out" "$0"' "$CLUSTER_DIR/tmp/job"
	grep uid= "$CLUSTER_DIR/tmp/job.out"
	reaches head "${addr[0]}" "${port[0]}"
	reaches "$(cluster_node 2)" "${addr[0]}" "${port[0]}"
	run -1 "$DEVCLUSTER" --dir "$CLUSTER_DIR" cut nonsense
	[[ $output == *"no such node: nonsense"* ]]
	"$DEVCLUSTER" --dir "$CLUSTER_DIR" cut "$(cluster_node 1)"
	cut_off head "${addr[0]}" "${port[0]}"
	cut_off "$(cluster_node 2)" "${addr[0]}" "${port[0]}"
	cut_off "$(cluster_node 1)" "${addr[1]}" "${port[1]}"
	reaches head "${addr[1]}" "${port[1]}"
	"$DEVCLUSTER" --dir "$CLUSTER_DIR" uncut "$(cluster_node 1)"
	wait_until 5 reaches head "${addr[0]}" "${port[0]}"
	"$DEVCLUSTER" --dir "$CLUSTER_DIR" cut head
	cut_off head "${addr[1]}" "${port[1]}"
	reaches "$(cluster_node 1)" "${addr[1]}" "${port[1]}"
	# Also with a network that is cut.
	cluster_down
	cluster_gone
	same_links
}

@test "--netns: nodes in networks of their own, which can be cut" {
	netns_works 4
}

@test "--netns=6: the same with IPv6 alone" {
	[[ -n ${DDP_LONG:-} ]] || skip "fault_net6 stands on it: with --all"
	[[ -e /proc/net/if_inet6 ]] || skip "no IPv6 here"
	netns_works 6
}

@test "--netns with --root" {
	[[ -n ${DDP_ROOT_TRIXIE:-} ]] ||
		skip "DDP_ROOT_TRIXIE is not set (contrib/mkroot makes one)"
	netns_works 4 --root "$DDP_ROOT_TRIXIE"
}

@test "--netns: down after kill -9 of up, of slurmctld and of a holder" {
	"$DEVCLUSTER" --dir "$CLUSTER_DIR" "${SMALL[@]}" --netns up 3>&- &
	up=$!
	wait_until 20 test -e "$CLUSTER_DIR/run/munged.pid"
	kill -KILL "$up"
	wait "$up" || true
	cluster_identity
	has_trace process
	cluster_down
	cluster_gone

	cluster_up "${SMALL[@]}" --netns
	cluster_identity
	kill -9 "$(cluster_pid slurmctld)" \
		"$(cluster_pid "slurmd-$(cluster_node 1)")"
	run -0 cluster_up "${SMALL[@]}" --netns
	run -0 cluster_run srun -N2 true
	kill -9 "$(cluster_pid net-wire)" "$(cluster_pid "net-$(cluster_node 1)")"
	run -1 cluster_up "${SMALL[@]}" --netns
	[[ $output == *"'down' first"* ]]
	cluster_down
	cluster_gone
}

@test "cut needs --netns" {
	cluster_up "${SMALL[@]}"
	run -1 "$DEVCLUSTER" --dir "$CLUSTER_DIR" cut "$(cluster_node 1)"
	[[ $output == *"needs a cluster with --netns"* ]]
}

@test "a plugin that does not load is named" {
	so=$(mktemp /var/tmp/ddp-t-XXXXXX.so)
	run -1 cluster_up --nodes 1 --plugin "$so" --plugin-args "a=1 b=2"
	rm -f "$so"
	[[ $output == *"slurmd-"*"did not start"* ]]
	[[ $output == *"spank_ddp.so"* ]]
	[[ ! -e $CLUSTER_DIR ]]
}

@test "--root: Slurm 24.11 of another root" {
	[[ -n ${DDP_ROOT_TRIXIE:-} ]] ||
		skip "DDP_ROOT_TRIXIE is not set (contrib/mkroot makes one)"
	stamp=$(mktemp)
	cluster_up "${SMALL[@]}" --root "$DDP_ROOT_TRIXIE"
	cluster_identity
	cluster_env
	[[ $DEVCLUSTER_SLURM_VERSION == 24.11.* ]]
	run -1 grep -F "$CLUSTER_DIR" /proc/mounts
	run -0 cluster_run_as nobody srun -N2 --gpus-per-node=1 \
		sh -c 'srun --version; id -un'
	[[ $output == *"24.11"*nobody* ]]
	kill -9 "$(cluster_pid slurmctld)"
	cluster_down
	cluster_gone
	# Nothing was written into the root.
	[[ -z $(find "$DDP_ROOT_TRIXIE" -xdev -newer "$stamp" 2>/dev/null) ]]
	rm -f "$stamp"
}
