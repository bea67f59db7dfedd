# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# Starting and ending. Each start_* leaves a daemon alone that runs already,
# so that `up` on a cluster with a dead daemon starts just that one again.

# wait_daemon NAME SECONDS CMD...: until CMD succeeds; fails at once when the
# daemon has died.
wait_daemon()
{
	local name=$1 limit=$2
	shift 2
	# shellcheck disable=SC2317 # called through wait_for
	ready_or_dead() { "$@" || ! launched "$name"; }
	wait_for "$limit" ready_or_dead "$@" && "$@" && return 0
	failed "$name"
}

# launched NAME: it is on its way (not yet recorded) or alive.
launched() { [[ ! -e $D/run/$1.pid ]] || rec_pid "$1"; }

# failed NAME: shows why, as far as its logs tell; returns 1.
failed()
{
	local f n=$1
	say "$n did not start:"
	for f in "$D/log/$n.log" "$D/log/$n.out"; do
		[[ -s $f ]] || continue
		tail -n 15 -- "$f" | sed "s|^|  ${f##*/}: |" >&2
		break
	done
	return 1
}

# listening NAME PORT: somebody does where this daemon is, on any address.
# Looked up, not tried: a connection without a word would be an error in the
# daemon's log.
# shellcheck disable=SC2317 # called through wait_daemon
listening()
{
	rec_pid "$1" || return 1
	awk -v p="$(printf ':%04X$' "$2")" \
		'$2 ~ p && $4 == "0A" { found = 1 } END { exit !found }' \
		"/proc/$REPLY/net/tcp" "/proc/$REPLY/net/tcp6" 2>/dev/null
}

start_munge()
{
	rec_pid munged && return
	rm -f -- "$D/run/munge.sock"*
	spawn munged munged --foreground --key-file="$D/key/munge.key" \
		--socket="$D/run/munge.sock" --num-threads=2 \
		--pid-file="$D/run/munged.munge-pid" \
		--seed-file="$D/key/munge.seed" --log-file="$D/log/munged.log"
	wait_daemon munged 15 test -S "$D/run/munge.sock"
}

# The empty database, without its schema, is kept for the next time: making
# it is the slowest step of all. Names its place, by MariaDB's version.
db_template()
{
	local v
	v=$(in_place mariadbd --no-defaults --version) || return 1
	printf '%s/slurm-ddp/db-%s' "${XDG_CACHE_HOME:-/var/cache}" \
		"$(sed 's/.*Ver //; s/ .*//; s/[^A-Za-z0-9.+]/-/g' <<<"$v")"
}

# trusted DIR: root's own, and changed by nobody else.
trusted()
{
	[[ -d $1 && ! -L $1 && -O $1 ]] &&
		((!(8#$(stat -c %a -- "$1") & 8#022)))
}

make_db()
{
	local tpl tmp
	[[ -d $D/db/data ]] && return
	tpl=$(db_template) || tpl=''
	if [[ -n $tpl ]] && trusted "$tpl" && trusted "${tpl%/*}" &&
		cp -a --sparse=always -- "$tpl" "$D/db/data.new"; then
		mv -T -- "$D/db/data.new" "$D/db/data"
		return
	fi
	stage "making an empty database (kept for the next time)"
	rm -rf -- "$D/db/data.new"
	spawn_job db-install mariadb-install-db --no-defaults --user=root \
		--datadir="$D/db/data.new" --skip-test-db \
		--skip-name-resolve --force \
		--auth-root-authentication-method=normal \
		--innodb-log-file-size=8M --innodb-buffer-pool-size=32M
	wait "$SPAWNED" || { failed db-install; return 1; }
	rm -f -- "$D/run/db-install.pid"
	[[ -z $tpl ]] || keep_db "$tpl"
	mv -T -- "$D/db/data.new" "$D/db/data"
}

# keep_db TEMPLATE: copies the new database there, whole or not at all. That
# it cannot is no failure.
keep_db()
{
	local dir=${1%/*} tmp
	mkdir -p -- "$dir" 2>/dev/null && trusted "$dir" || return 0
	# What one that was killed here has left.
	find "$dir" -maxdepth 1 -name 'db-*.part.*' -mmin +60 \
		-exec rm -rf -- {} + 2>/dev/null
	tmp=$(mktemp -d -- "$1.part.XXXXXX") || return 0
	cp -a --sparse=always -- "$D/db/data.new" "$tmp/data" &&
		mv -T -- "$tmp/data" "$1" 2>/dev/null
	rm -rf -- "$tmp"
}

# It is thrown away with the cluster: no durability, and no accounts, since
# nobody but root reaches the socket.
start_db()
{
	rec_pid mariadbd && return
	make_db || return 1
	rm -f -- "$D/db/sock"
	spawn mariadbd mariadbd --no-defaults --user=root \
		--datadir="$D/db/data" --socket="$D/db/sock" \
		--tmpdir="$D/tmp" --pid-file="$D/run/mariadbd.sql-pid" \
		--skip-networking --skip-grant-tables --skip-log-bin \
		--performance-schema=OFF --innodb-buffer-pool-size=32M \
		--innodb-log-file-size=8M --innodb-doublewrite=0 \
		--innodb-flush-log-at-trx-commit=0 --innodb-fast-shutdown=2 \
		--innodb-use-native-aio=0 --innodb-lock-wait-timeout=900 \
		--loose-innodb-snapshot-isolation=OFF \
		--max-allowed-packet=16M --init-file="$D/etc/init.sql"
}

start_slurmds()
{
	local n node
	for ((n = 1; n <= O_nodes; n++)); do
		node=$NODE_PREFIX$n
		rec_pid "slurmd-$node" && continue
		set_enter "$node" || return 1
		spawn "slurmd-$node" slurmd -D -N "$node"
	done
	set_enter
}

start_dbd()
{
	rec_pid slurmdbd && return
	wait_daemon mariadbd 60 test -S "$D/db/sock" || return 1
	spawn slurmdbd slurmdbd -D
	wait_daemon slurmdbd 60 listening slurmdbd "$DBD_PORT"
}

start_ctld()
{
	rec_pid slurmctld && return
	spawn slurmctld slurmctld -D
	wait_daemon slurmctld 60 listening slurmctld "$CTLD_PORT"
}

slurm_client()
{
	SLURM_CONF=$D/etc/slurm.conf PATH=$DAEMON_PATH \
		client "${ENTER[@]}" "$@"
}

# shellcheck disable=SC2317 # called through wait_for
nodes_idle()
{
	(($(slurm_client sinfo -h -N -o '%N %T' 2>/dev/null |
		sort -u | grep -c "^${NODE_PREFIX}[0-9]* idle\$") == O_nodes))
}

# dead_slurmd: sets REPLY to the name of one that has died; 1 if there is none.
dead_slurmd()
{
	local n
	for ((n = 1; n <= O_nodes; n++)); do
		launched "slurmd-$NODE_PREFIX$n" && continue
		REPLY=slurmd-$NODE_PREFIX$n
		return 0
	done
	return 1
}

# shellcheck disable=SC2317 # called through wait_for
nodes_settled() { nodes_idle || dead_slurmd; }

# shellcheck disable=SC2317 # called through wait_for
accounting_answers()
{
	[[ $(slurm_client sacctmgr -nP list cluster format=controlport \
		2>/dev/null) == "$CTLD_PORT" ]] &&
		slurm_client sacct -n >/dev/null 2>&1
}

# wait_ready: all nodes idle and accounting there, or the one to blame.
wait_ready()
{
	wait_daemon slurmctld 60 accounting_answers || return 1
	stage "slurmctld is up, waiting for $O_nodes nodes"
	wait_for $((30 + O_nodes)) nodes_settled || true
	nodes_idle && return 0
	dead_slurmd && { failed "$REPLY"; return 1; }
	say "not all nodes became idle:"
	slurm_client sinfo -N -l >&2
	return 1
}

boot()
{
	start_holder || return 1
	start_net || return 1
	set_enter || return 1
	start_munge || return 1
	start_db || return 1
	stage "starting mariadbd, slurmdbd and $O_nodes slurmd"
	start_slurmds || return 1
	start_dbd || return 1
	stage "slurmdbd is up, starting slurmctld"
	start_ctld || return 1
	wait_ready
}

# all_daemons: the names of what `up` has started, one a line.
all_daemons()
{
	local f
	for f in "$D"/run/*.pid; do
		f=${f##*/}
		[[ -e $D/run/$f ]] && printf '%s\n' "${f%.pid}"
	done | sort -V
}

# count_alive: sets ALIVE and DEAD, lists of names.
count_alive()
{
	local d
	ALIVE=() DEAD=()
	while read -r d; do
		if rec_pid "$d"; then ALIVE+=("$d"); else DEAD+=("$d"); fi
	done < <(all_daemons)
}

# teardown: ends all, removes all; the lock is held. 1 with what is left said.
teardown()
{
	trap '' INT TERM HUP
	rm -f -- "$D/ready"
	if load_mark; then
		if ! end_all; then
			say "still alive: $(tree_members | paste -sd' ')"
			return 1
		fi
		remove_cgroups || return 1
	fi
	unclaim
	rm -rf --one-file-system -- "$D" || return 1
}
