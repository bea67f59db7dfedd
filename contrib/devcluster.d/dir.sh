# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# The folder of a cluster, its lock, and what it claims of the machine.
#
# D/.devcluster marks the folder as ours and holds ID, node prefix, address
# and ports. D/options is the way it was started. D/ready exists while it is
# up. A claim, one file a cluster in REGISTRY, keeps two clusters that start
# at the same moment from choosing the same ports or names; the folder goes
# with the last cluster.

REGISTRY=/run/slurm-ddp-devcluster

# Not below TMPDIR: `down` from another shell must find it again.
default_dir()
{
	local sum
	sum=$(printf '%s' "$CHECKOUT" | sha256sum)
	printf '/var/tmp/slurm-ddp-%d-%.8s' "$EUID" "$sum"
}

# resolve_dir: D as an absolute path that Slurm's files can hold.
resolve_dir()
{
	D=$(realpath -m -- "${O_dir:-$(default_dir)}")
	[[ $D =~ ^/[A-Za-z0-9._/+-]+$ ]] ||
		die "only letters, digits and ._+- in the folder's name: $D"
}

# check_length: a socket's path holds 107 bytes; the longest of ours is
# D/spool/NODE/NODE_JOBID.STEPID, with numbers of 7 and 10 digits.
check_length()
{
	local prefix=${O_node_prefix:-c000n}
	local max=$((107 - 27 - 2 * (${#prefix} + ${#O_nodes})))
	((${#D} <= max)) ||
		die "the folder's name is too long ($max bytes at most): $D"
}

# ours: D is a real folder of root's with our mark, or still empty because
# `up` was killed right after it had made it.
ours()
{
	[[ -d $D && ! -L $D && -O $D ]] || return 1
	[[ -f $D/.devcluster && ! -L $D/.devcluster && -O $D/.devcluster ]] ||
		[[ -z $(find "$D" -mindepth 1 ! -name lock \
			! -name .devcluster.new -print -quit) ]]
}

# Only root may be able to rename D or put something in its place.
check_parents()
{
	local p=$D mode
	while [[ $p != / ]]; do
		p=$(dirname -- "$p")
		[[ -e $p ]] || continue
		mode=$(stat -c %a -- "$p")
		[[ $(stat -c %u -- "$p") == 0 ]] ||
			die "$p does not belong to root: choose another --dir"
		((!(8#$mode & 8#022) || (8#$mode & 8#1000))) ||
			die "$p can be changed by others: choose another --dir"
	done
}

make_dir()
{
	check_parents
	mkdir -p -- "$(dirname -- "$D")" || die "cannot make $D"
	mkdir -m 755 -- "$D" 2>/dev/null
	ours || die "$D exists and is not a devcluster folder: remove it or choose another --dir"
}

# lock_dir: takes the lock of D. The file goes with D, so after the wait the
# lock may be that of a folder that is gone: then 1 (there is no cluster).
lock_dir()
{
	while :; do
		[[ -d $D ]] || return 1
		{ exec {LOCK_FD}>>"$D/lock"; } 2>/dev/null || return 1
		flock -w 1 "$LOCK_FD" ||
			say "waiting for another devcluster on $D"
		flock -w 300 "$LOCK_FD" ||
			die "another devcluster still holds $D/lock"
		[[ $D/lock -ef /proc/self/fd/$LOCK_FD ]] && return 0
		exec {LOCK_FD}>&-
	done
}

unlock_dir()
{
	exec {LOCK_FD}>&-
	LOCK_FD=9
}

# The lock of all clusters on this machine is on /root: always there, opened
# by nobody but root, and leaves nothing behind.
lock_machine()
{
	exec {MACHINE_FD}</root
	flock -w 60 "$MACHINE_FD" || die "the lock on /root is held by others"
}

unlock_machine() { exec {MACHINE_FD}<&-; }

# Claims of clusters whose folder is gone (a restart, a hand) are dropped.
drop_stale_claims()
{
	local f id dir
	for f in "$REGISTRY"/*; do
		[[ -f $f ]] || continue
		id=${f##*/}
		dir=$(sed -n 's/^DIR=//p' "$f")
		grep -qsx "ID=$id" "$dir/.devcluster" || rm -f -- "$f"
	done
}

claimed() { grep -qsx -- "$1=$2" "$REGISTRY"/*; }

# choose_id: a number from D's path, another one if it is taken. Sets ID,
# NODE_PREFIX and NET (127.X.Y): equal for the same D where possible.
choose_id()
{
	local try sum
	for try in '' 1 2 3 4 5 6 7 8 9; do
		sum=$(printf '%s' "$D$try" | sha256sum)
		NODE_PREFIX=${O_node_prefix:-c${sum:0:3}n}
		NET=127.$((16#${sum:4:2} % 254 + 1)).$((16#${sum:6:2}))
		claimed NODE_PREFIX "$NODE_PREFIX" || claimed NET "$NET" || break
		if [[ -n $O_node_prefix ]] &&
			claimed NODE_PREFIX "$NODE_PREFIX"; then
			die "node prefix $NODE_PREFIX is in use by another cluster here"
		fi
	done
	ID=${sum:0:8}-$$-${EPOCHREALTIME/./}
}

# used_ports: every local TCP port in use, in decimal, one a line.
used_ports()
{
	local hex
	while read -r hex; do
		printf '%d\n' "$((16#$hex))"
	done < <(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
		awk '$1 ~ /:$/ { n = split($2, a, ":"); print a[n] }' | sort -u)
	[[ ! -d $REGISTRY ]] || cat "$REGISTRY"/* 2>/dev/null |
		awk -F= '$1 == "PORTS" { split($2, r, "-")
			for (p = r[1]; p <= r[2]; p++) print p }'
}

# choose_ports: N+2 free ones in a row, outside of what the kernel gives to
# clients. Sets CTLD_PORT, DBD_PORT, NODE_PORT (first), LAST_PORT.
choose_ports()
{
	local lo hi first p need=$((O_nodes + 2)) i
	local -A used=()
	while read -r p; do
		used[$p]=1
	done < <(used_ports)
	read -r lo hi </proc/sys/net/ipv4/ip_local_port_range
	# Not always the same start: a port just given back may be in
	# TIME_WAIT at a peer, and other programs choose ports too.
	first=$((10000 + RANDOM % 16 * 512))
	for ((i = 0; i < 60000; i++)); do
		p=$((10000 + (first - 10000 + i) % 55000))
		if ((p >= lo && p <= hi)) || [[ -n ${used[$p]:-} ]]; then
			need=$((O_nodes + 2))
			continue
		fi
		((i)) && ((p == 10000)) && need=$((O_nodes + 2))
		((--need)) && continue
		LAST_PORT=$p CTLD_PORT=$((p - O_nodes - 1))
		DBD_PORT=$((CTLD_PORT + 1)) NODE_PORT=$((CTLD_PORT + 2))
		return 0
	done
	die "no $((O_nodes + 2)) free ports in a row outside $lo-$hi"
}

# claim: chooses and writes down, under the machine's lock.
claim()
{
	lock_machine
	mkdir -p "$REGISTRY" || die "cannot make $REGISTRY"
	drop_stale_claims
	choose_id
	choose_ports
	cat >"$D/.devcluster.new" <<-X
		ID=$ID
		NODE_PREFIX=$NODE_PREFIX
		NET=$NET
		CTLD_PORT=$CTLD_PORT
		DBD_PORT=$DBD_PORT
		NODE_PORT=$NODE_PORT
	X
	mv -f -- "$D/.devcluster.new" "$D/.devcluster"
	printf 'DIR=%s\nNODE_PREFIX=%s\nNET=%s\nPORTS=%s\n' "$D" \
		"$NODE_PREFIX" "$NET" "$CTLD_PORT-$LAST_PORT" >"$REGISTRY/$ID"
	unlock_machine
}

unclaim()
{
	lock_machine
	[[ -z ${ID:-} ]] || rm -f -- "$REGISTRY/$ID"
	rmdir "$REGISTRY" 2>/dev/null
	unlock_machine
}

# load_mark: the mark's values; 1 if there is none. Values are checked: the
# file is root's own, but it is evaluated nowhere.
load_mark()
{
	local key val
	ID='' NODE_PREFIX='' NET=''
	[[ -f $D/.devcluster ]] || return 1
	while IFS='=' read -r key val; do
		case $key in
		ID | NODE_PREFIX | NET | CTLD_PORT | DBD_PORT | NODE_PORT)
			printf -v "$key" '%s' "$val" ;;
		esac
	done <"$D/.devcluster"
	[[ -n $ID && -n $NODE_PREFIX && -n $NET ]]
}
