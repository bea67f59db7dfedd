# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of fault.bash and bats
#
# Nodes in networks of their own (devcluster --netns) that are cut: for IPv4
# and IPv6. Rank R is on node R.

cut_up()
{
	fault_up --nodes 3 "$@"
}

cut_setup()
{
	fault_setup
	SHAPE=(-N3 -n3)
}

cut_teardown()
{
	cut_restore
	fault_teardown
}

# cut_restore: all are joined again.
cut_restore()
{
	local n
	for n in head "${NODE[@]}"; do
		"$DEVCLUSTER" --dir "$CLUSTER_DIR" uncut "$n" || true
		[[ $n == head ]] || kill -CONT "$(cluster_pid "slurmd-$n")" || true
		# Rules of close_port.
		while in_net "$n" ip -6 rule del table 77 2>/dev/null; do :; done
		while in_net "$n" ip rule del table 77 2>/dev/null; do :; done
	done
}

cut_off_node() { "$DEVCLUSTER" --dir "$CLUSTER_DIR" cut "$1"; }
join_node() { "$DEVCLUSTER" --dir "$CLUSTER_DIR" uncut "$1"; }

# in_net PLACE CMD...
in_net() { nsenter "--net=/proc/$(cluster_pid "net-$1")/ns/net" -- "${@:2}"; }

# cut_clean: Slurm itself takes its time with a node that was away.
cut_clean()
{
	left_nothing 20 leftovers || return 1
	wait_until 150 all_idle && return 0
	in_cluster sinfo -N -o '%N %T %E'
	return 1
}

# cut_all_well: the launch works over these networks.
cut_all_well()
{
	ends 0 10 '*:join,print=hello'
	same "" "$stderr"
	says_times 3 hello
	rm -f ranks/*
	ends 7 5 '2:join,exit=7' '*:join,sleep'
	named 2 "exited with code 7" "${NODE[2]}"
	clean
}

# cut_lost K: node K is cut from all others while its ranks run.
cut_lost()
{
	start_step '*:ignore=15,join,sleep'
	happened 3 joined
	since_now
	cut_off_node "${NODE[$1]}"
	# One second of silence, one of grace: on both sides of the cut.
	gone 4
	finish_step 20
	join_node "${NODE[$1]}"
	ended 75 20
	blamed node-lost "node ${NODE[$1]} was lost first"
	says "did not answer: ${NODE[$1]}"
	same "['${NODE[$1]}']" "$(report unanswered)"
	cut_clean
}

# controller_port: where the controller listens.
controller_port()
{
	local pid inode
	pid=$(controller_pid)
	[[ -n $pid ]] || return 1
	inode=$(readlink "/proc/$pid/fd/3") || return 1
	inode=${inode#socket:[}
	awk -v i="${inode%]}" '$10 == i && $4 == "0A" {
			n = split($2, a, ":"); print a[n] }' \
		"/proc/$pid/net/tcp" "/proc/$pid/net/tcp6" |
		while read -r inode; do
			printf '%d\n' "$((16#$inode))"
			break
		done
}

# without_control HOW PLACE... -- SPEC...: a step whose controller cannot be
# reached from these nodes, by a firewall that drops or refuses. The nodes wait
# until the port is known.
without_control()
{
	local how=$1 n port
	local -a closed=()
	shift
	while [[ $1 != -- ]]; do
		closed+=("$1")
		shift
	done
	shift
	for n in "${NODE[@]}"; do
		kill -STOP "$(cluster_pid "slurmd-$n")"
	done
	start_step "$@"
	wait_until 10 controller_port
	port=$(controller_port)
	for n in "${closed[@]}"; do
		close_port "$how" "$n" "$port"
	done
	for n in "${NODE[@]}"; do
		kill -CONT "$(cluster_pid "slurmd-$n")"
	done
}

# close_port drop|reject NODE PORT: the node cannot connect there. Dropped is
# what goes to somebody who is not there.
close_port()
{
	local f=-4 nobody=${DEVCLUSTER_HEAD_ADDR%254}253
	[[ $DEVCLUSTER_HEAD_ADDR != *:* ]] ||
		f=-6 nobody=${DEVCLUSTER_HEAD_ADDR%fe}fd
	in_net "$2" ip "$f" rule add pref 10 ipproto tcp dport "$3" table 77 ||
		return 1
	# Before the rule of the host's own addresses nothing else fits.
	if [[ $1 == reject ]]; then
		in_net "$2" ip "$f" route replace unreachable default table 77
		return
	fi
	in_net "$2" ip "$f" neigh replace "$nobody" lladdr 02:00:00:00:00:99 \
		dev eth0 nud permanent &&
		in_net "$2" ip "$f" route replace default via "$nobody" \
			dev eth0 table 77
}
