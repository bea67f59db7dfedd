#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# cases 6 and 7: NodeAddr is a name which this host resolves to 127.0.1.1, as
# Debian's installer writes the host's own name into /etc/hosts. Other hosts
# would look for the master on themselves. NodeName resolves nowhere.
#
# The cluster and its srun live in a mount namespace with an /etc/hosts of
# their own; a process holds it until the file's tests are done.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

# own_addr: an IPv4 address of this host that others could reach, if any.
own_addr()
{
	ip -o -4 addr show scope global 2>/dev/null |
		sed -n '1s,.* inet \([0-9.]*\)/.*,\1,p'
}

setup_file()
{
	local port n addr
	[[ $EUID == 0 ]] || skip "needs root: it starts slurmds"
	# skip is for setup: here this bats takes it for a failure.
	[[ -z ${DDP_ROOT:-} ]] || return 0
	cluster_init
	export HOLD=$CLUSTER_DIR.hosts
	mkdir "$HOLD"
	addr=$(own_addr)
	printf '%s\n' "127.0.0.1 localhost" \
		"127.0.1.1 $(hostname) $(hostname -s) ddp-loop" \
		"${addr:-127.0.1.1} ddp-good" >"$HOLD/hosts"
	unshare -m sh -c 'mount --make-rprivate / &&
		mount --bind "$0/hosts" /etc/hosts && touch "$0/ready" &&
		exec sleep 3600' "$HOLD" </dev/null >&2 3>&- &
	echo "$!" >"$HOLD/pid"
	wait_until 10 test -e "$HOLD/ready" || return 1
	printf '%s\n' '#!/bin/sh' "exec nsenter -t $! -m sh -c 'cd \"\$0\" &&
		exec \"\$@\"' \"\$PWD\" $DEVCLUSTER \"\$@\"" >"$HOLD/devcluster"
	chmod 755 "$HOLD/devcluster"
	export DEVCLUSTER=$HOLD/devcluster

	port=$(free_ports 6)
	launch_up --nodes 1 --gpus 0 --conf "FirstJobId=$((RANDOM + 1000))" \
		--conf "$(nodes lb "[1-3]" ddp-loop \
		"[$port-$((port + 2))]")" --conf "$(nodes gd "[1-2]" ddp-good \
		"[$((port + 3))-$((port + 4))]")"
	slurmd_start lb1 lb2 lb3 gd1 gd2
	wait_until 30 all_idle || { in_cluster sinfo -N; return 1; }
}

# nodes PREFIX RANGE ADDR PORTS: a line for slurm.conf.
nodes()
{
	# Each is a host of its own to Slurm.
	printf 'NodeName=%s%s NodeHostname=%s-host%s NodeAddr=%s Port=%s %s' \
		"$1" "$2" "$1" "$2" "$3" "$4" "CPUs=4 RealMemory=1000"
}

teardown_file()
{
	[[ -n ${HOLD:-} ]] || return 0
	local rc=0
	slurmd_stop
	launch_down || rc=1
	kill "$(<"$HOLD/pid")" || rc=1
	rm -r "$HOLD"
	return $rc
}

setup()
{
	[[ -z ${DDP_ROOT:-} ]] ||
		skip "devcluster --root gives the cluster an /etc/hosts of its own"
	launch_setup
	DIR=$(new_dir)
	OWN_ADDR=$(own_addr)
}

needs_address()
{
	[[ -n $OWN_ADDR ]] || skip "this host has no address but loopback's"
}

resolves() { in_cluster getent ahostsv4 "$1" | sed -n '1s/ .*//p'; }

@test "the names resolve as these tests need it, and NodeName does not" {
	same 127.0.1.1 "$(resolves ddp-loop)"
	same 127.0.1.1 "$(resolves "$(hostname)")"
	for n in lb1 lb2 gd1; do
		run in_cluster getent hosts $n
		same 2 "$status"
	done
	run -0 in_cluster scontrol -o show node lb1
	says "NodeAddr=ddp-loop "
	# Only in the tests' namespace.
	run ! getent hosts ddp-loop
}

@test "case 7: on several nodes the master is an address that others reach" {
	needs_address
	launch -w "lb[1-3]" -N3 -n4 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	same "" "$output$stderr"
	world "$DIR" --count 4 --addr "$OWN_ADDR"
	# A TCP connection to it reaches this host.
	[[ $OWN_ADDR != 127.* ]]
	for v in PET_MASTER_ADDR PET_RDZV_ENDPOINT JAX_COORDINATOR_ADDRESS; do
		run var "$DIR" $v
		says_not 127. ddp-loop lb1
		says_times 4 "$OWN_ADDR"
	done
}

@test "from sbatch, whose srun runs on rank 0's own node" {
	needs_address
	printf '%s\n' '#!/bin/sh' 'srun sh -c "$1" "$2"' >job
	in_cluster sbatch -W -o out.loop -w "lb[1-2]" -N2 --ntasks-per-node=1 \
		--ddp-launch job "$RANK_DUMP" "$DIR"
	world "$DIR" --count 2 --addr "$OWN_ADDR"
}

@test "rank 0 can listen there and the others connect" {
	needs_address
	cat >meet.py <<-'X'
	import os, socket, time
	where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
	if os.environ["RANK"] == "0":
	    s = socket.socket()
	    # As every framework's store does: full mode holds the port.
	    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
	    s.bind(where)
	    s.listen()
	    s.settimeout(20)
	    for _ in range(2):
	        s.accept()[0].sendall(b"met")
	else:
	    end = time.time() + 20
	    while True:
	        try:
	            c = socket.create_connection(where, 5)
	            break
	        except OSError:
	            if time.time() > end:
	                raise
	            time.sleep(0.1)
	    print(c.recv(3).decode())
	X
	launch -w "lb[1-3]" -N3 -n3 --ddp-launch "$PYTHON" "$PWD/meet.py"
	same "$(printf 'met\nmet')" "$output"
}

@test "the address is the user's choice" {
	launch -w "lb[1-2]" -N2 -n2 --ddp-launch --ddp-master-addr=ddp-loop \
		sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 2 --addr ddp-loop
}

@test "a step on one node may keep the name" {
	launch -w lb2 -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	same "" "$output$stderr"
	world "$DIR" --layout 0,1 --addr ddp-loop
}

@test "case 6: a NodeAddr that resolves to a real address is the master" {
	needs_address
	launch -w "gd[1-2]" -N2 -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	same "" "$output$stderr"
	world "$DIR" --count 2 --addr ddp-good
}

@test "ddp-launch: no loopback master on several nodes either" {
	needs_address
	launch -w "gd[1-2]" -N2 -n2 ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 2 --addr ddp-good
	DIR=$(new_dir)
	launch -w lb3 -n2 ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --layout 0,1 --addr ddp-loop
	# The nodes cannot agree on another address without a word: the name,
	# which each of them resolves, and never 127.0.1.1.
	DIR=$(new_dir)
	launch -w "lb[1-2]" -N2 -n2 ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 2 --addr ddp-loop
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
