# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# up, down, status, env, run; cut and uncut are in net.sh.

# find_plugin: sets PLUGIN to the .so to load, building it if so wished;
# empty for none.
find_plugin()
{
	local out
	PLUGIN=''
	case $O_plugin in
	none) return ;;
	auto)
		[[ -x $HERE/build ]] ||
			die "no $HERE/build to make spank_ddp.so with: use --plugin PATH or --plugin none"
		stage "building the plugin"
		out=$("$HERE/build" ${O_root:+--root "$O_root"} {LOCK_FD}>&-) ||
			die "contrib/build failed"
		PLUGIN=${out##*$'\n'} ;;
	*) PLUGIN=$O_plugin ;;
	esac
	[[ -f $PLUGIN ]] || die "no such plugin: $PLUGIN"
}

# put_file FROM TO: by rename; a file some process has mapped is never
# written to.
put_file()
{
	cmp -s -- "$1" "$2" && return 0
	if ! { cp -- "$1" "$2.new" && chmod 755 "$2.new" &&
		mv -f -- "$2.new" "$2"; }; then
		die "cannot copy $1 to $2"
	fi
}

# put_plugin: the plugin and, from the same build, the programs into D. All
# are programs as they are, none of libtool's scripts: they are linked with no
# shared library of the build.
put_plugin()
{
	local program build
	[[ -n $PLUGIN ]] || return 0
	put_file "$PLUGIN" "$D/plugins/spank_ddp.so"
	build=${PLUGIN%/.libs/*}
	for program in ddp-launch ddp-launch-static "${HELPERS[@]}" ddp-status \
		ddp-report; do
		[[ ! -x $build/$program ]] ||
			put_file "$build/$program" "$D/bin/$program"
	done
	[[ ! -e $build/.libs/$LIFECYCLE ]] ||
		put_file "$build/.libs/$LIFECYCLE" "$D/bin/$LIFECYCLE"
	# As `make install` does: see launcher/Makefile.inc.
	for program in ddp-agent ddp-place; do
		[[ ! -e $D/bin/$program ]] || chmod 711 "$D/bin/$program"
	done
}

# on_exit: an `up` that did not come to its end leaves nothing.
# shellcheck disable=SC2317 # called by trap
on_exit()
{
	local rc=$?
	((BOOTING)) || exit "$rc"
	[[ ! -e $D/.devcluster ]] ||
		say "start failed: taking down what was started"
	BOOTING=0
	teardown || say "not all gone: run 'devcluster --dir $D down'"
	exit "$rc"
}

# cluster_state: with the lock held, sets STATE to none, half (a start that
# was cut short, or a restart of the machine) or up.
cluster_state()
{
	STATE=none
	[[ -e $D/.devcluster ]] || return 0
	STATE=half
	[[ -e $D/ready ]] && load_mark || return 0
	count_alive
	((${#ALIVE[@]} == 0)) || STATE=up
}

# boot_cluster: under the lock, with the wanted options set, up to "ready".
boot_cluster()
{
	BOOTING=1
	trap on_exit EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trap 'exit 129' HUP
	check_root
	check_length
	check_programs
	check_cgroup
	slurm_version
	find_plugin
	find_gpu_acct
	claim
	dump_options >"$D/options"
	write_config || die "cannot write below $D"
	put_plugin
	put_gpu_acct
	printf '%s\n' "$SLURM_VERSION" >"$D/version"
	stage "Slurm $SLURM_VERSION in $D, nodes ${NODE_PREFIX}1-$O_nodes"
	boot || exit 1
	: >"$D/ready"
	BOOTING=0
	trap - EXIT INT TERM HUP
	stage "ready: $O_nodes nodes, $O_gpus GPUs and $O_cpus CPUs each"
}

# repair: starts again what has died.
repair()
{
	say "starting again: ${DEAD[*]}"
	set_enter || die "the holder of the root or of a network is gone: 'down' first"
	boot || exit 1
	stage "ready again"
}

# ensure_up WANTED: WANTED is "exact" where a cluster that is up must have
# been started with these very options, "any" where it may be any.
ensure_up()
{
	while :; do
		make_dir
		lock_dir && break
	done
	cluster_state
	case $STATE in
	half)
		say "cleaning up a cluster that did not come up, or died"
		teardown || die "'down' failed"
		ensure_up "$1"
		return ;;
	none) boot_cluster ;;
	up)
		if [[ $1 == exact ]] && ! same_options; then
			die "$D is up with other options: 'down' first"
		fi
		load_options
		slurm_version_recorded
		if [[ $COMMAND == up ]]; then
			find_plugin
			find_gpu_acct
			put_plugin
			[[ ! -d $D/gpu ]] || put_gpu_acct
			if ((${#DEAD[@]})); then
				repair
			else
				say "already up in $D"
			fi
		fi ;;
	esac
	unlock_dir
}

slurm_version_recorded() { SLURM_VERSION=$(<"$D/version"); }

cmd_up() { ensure_up exact; }

cmd_down()
{
	if [[ ! -e $D ]]; then
		say "not up: no $D"
		return 0
	fi
	ours || die "$D is not a devcluster folder"
	lock_dir || return 0
	teardown || exit 1
	stage "down: $D is gone"
}

# attach: for status and env, which take no lock.
attach()
{
	[[ -e $D/ready ]] && ours && load_options && load_mark || return 1
	LAST_PORT=$((NODE_PORT + O_nodes - 1))
	slurm_version_recorded
	count_alive
	((${#ALIVE[@]})) && { set_enter || true; }
}

cmd_status()
{
	local d pid state
	attach || { say "not up: $D"; exit 3; }
	printf '%-20s %8s  %-5s  %s\n' DAEMON PID ALIVE LOG
	while read -r d; do
		pid=- state=no
		rec_pid "$d" && pid=$REPLY state=yes
		[[ -e $D/log/$d.log ]] || d+=' '
		printf '%-20s %8s  %-5s  %s\n' "$d" "$pid" "$state" \
			"$D/log/${d% }.$([[ $d == *' ' ]] && echo out || echo log)"
	done < <(all_daemons)
	printf '\n'
	if set_enter && rec_pid slurmctld && rec_pid munged; then
		slurm_client sinfo || true
	else
		# sinfo would try for a long time.
		printf 'no answer from slurmctld\n'
	fi
	((${#DEAD[@]} == 0))
}

cmd_env()
{
	local n names=() addrs=() ports=()
	attach || die "not up: $D"
	for ((n = 1; n <= O_nodes; n++)); do
		names+=("$NODE_PREFIX$n") addrs+=("$(node_addr "$n")")
		ports+=("$((NODE_PORT + n - 1))")
	done
	printf 'export %s=%q\n' \
		SLURM_CONF "$D/etc/slurm.conf" \
		DEVCLUSTER_DIR "$D" \
		DEVCLUSTER_ROOT "$O_root" \
		DEVCLUSTER_NODES "${names[*]}" \
		DEVCLUSTER_ADDRS "${addrs[*]}" \
		DEVCLUSTER_HEAD_ADDR "$(head_addr)" \
		DEVCLUSTER_NODE_PORTS "${ports[*]}" \
		DEVCLUSTER_CTLD_PORT "$CTLD_PORT" \
		DEVCLUSTER_DBD_PORT "$DBD_PORT" \
		DEVCLUSTER_SLURM_VERSION "$SLURM_VERSION"
}

# user_prefix: sets AS to what makes the rest run as O_user, who is looked up
# where it runs.
user_prefix()
{
	local pw uid gid home
	AS=()
	[[ -n $O_user ]] || return 0
	pw=$("${ENTER[@]}" getent passwd "$O_user") || die "no such user: $O_user"
	IFS=: read -r _ _ uid gid _ home _ <<<"$pw"
	AS=(setpriv "--reuid=$uid" "--regid=$gid" --init-groups --
		env "HOME=$home" "USER=${pw%%:*}" "LOGNAME=${pw%%:*}")
}

# cmd_run: becomes CMD, so that signals, stdin and the exit code are its own.
cmd_run()
{
	if ((EXPLICIT)); then ensure_up exact; else ensure_up any; fi
	set_enter || die "the holder of the root or of a network is gone: 'down' first"
	export SLURM_CONF=$D/etc/slurm.conf DEVCLUSTER_DIR=$D
	user_prefix
	[[ -z $O_root ]] || PATH=$DAEMON_PATH
	export PATH=$D/bin:$PATH
	exec "${ENTER[@]}" "${AS[@]}" "${CMD[@]}"
}
