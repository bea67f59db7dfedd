# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# --netns: each slurmd in a network namespace of its own. One process a
# namespace, its holder (net-NODE, net-head for slurmctld, slurmdbd and what
# `run` starts, net-wire for the bridge), keeps it and waits; namespaces have no
# name in the file system. With the holders go the namespaces, their links and
# addresses, so there is nothing else to remove, whatever dies. There is no way
# from these networks to the machine's.

# node_addr WHERE: of node number WHERE, or "head".
node_addr()
{
	local n=$1
	case $O_netns in
	no) printf '%s.%s' "$NET" "$n" ;;
	4) printf '10.%s.%s' "${NET#127.}" "${n/#head/254}" ;;
	# Decimal digits in a hexadecimal place: only names, and different.
	6) printf 'fd00:ddb:%s::%s' "$(tr . : <<<"${NET#127.}")" "${n/#head/fe}" ;;
	esac
}

# head_addr: where slurmctld and slurmdbd are found.
head_addr()
{
	if [[ $O_netns == no ]]; then
		printf '127.0.0.1'
	else
		node_addr head
	fi
}

# net_places: head and the nodes, one a line; the wire is not one of them.
net_places()
{
	local n
	echo head
	for ((n = 1; n <= O_nodes; n++)); do
		printf '%s\n' "$NODE_PREFIX$n"
	done
}

# has_own_net NAME: its holder has left this namespace.
# shellcheck disable=SC2317 # called through wait_daemon
has_own_net()
{
	rec_pid "$1" || return 1
	[[ $(readlink "/proc/$REPLY/ns/net") != "$(readlink /proc/$$/ns/net)" ]]
}

# wire_ip ARGS: ip(8) where the bridge is.
wire_ip()
{
	rec_pid net-wire || return 1
	nsenter "--net=/proc/$REPLY/ns/net" -- ip "$@"
}

make_bridge()
{
	wire_ip link add br0 type bridge stp_state 0 mcast_snooping 0 &&
		wire_ip link set br0 up
}

# connect_place NAME ADDR: gives it its address and its link, which the bridge
# knows by the pid of the holder: the name of an interface is short.
connect_place()
{
	local pid prefix=24
	rec_pid "net-$1" || return 1
	pid=$REPLY
	[[ $O_netns == 4 ]] || prefix='64 nodad'
	wire_ip -batch - <<-Z || return 1
		link add p$pid type veth peer name eth0 netns $pid
		link set p$pid master br0
		link set p$pid up
	Z
	nsenter "--net=/proc/$pid/ns/net" -- ip -batch - <<-Z
		link set lo up
		link set eth0 up
		addr add $2/$prefix dev eth0
	Z
}

start_net()
{
	local p
	[[ $O_netns != no ]] || return 0
	if [[ -e $D/run/net-wire.pid ]]; then
		for p in wire $(net_places); do
			rec_pid "net-$p" ||
				die "the holder of a network is gone (net-$p): 'down' first"
		done
		return 0
	fi
	ENTER=()
	for p in wire $(net_places); do
		spawn "net-$p" unshare -n sleep infinity
	done
	for p in wire $(net_places); do
		wait_daemon "net-$p" 20 has_own_net "net-$p" || return 1
	done
	make_bridge || { say "cannot make a bridge"; return 1; }
	for p in $(net_places); do
		connect_place "$p" "$(node_addr "${p#"$NODE_PREFIX"}")" ||
			{ say "cannot make the network of $p"; return 1; }
	done
}

# cmd_cut, cmd_uncut: PLACE's link ends at the bridge, or beside it. No link
# goes down, so that nobody is told.
cmd_cut() { set_port nomaster; }
cmd_uncut() { set_port master br0; }

set_port()
{
	attach || die "not up: $D"
	[[ $O_netns != no ]] || die "$COMMAND needs a cluster with --netns"
	grep -qxF -- "$PLACE" < <(net_places) ||
		die "no such node: $PLACE (head, ${NODE_PREFIX}1-$O_nodes)"
	rec_pid "net-$PLACE" || die "its network is gone: 'down' first"
	wire_ip link set "p$REPLY" "$@" ||
		die "cannot $COMMAND $PLACE"
}
