# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# Processes: start them detached and recorded, find all that belong to the
# cluster, end those and no other.
#
# A record is D/run/NAME.pid with "PID STARTTIME" (field 22 of /proc/PID/stat),
# so that a pid that was used again is never taken for ours. Every daemon also
# carries DEVCLUSTER_MARK=ID in its environment. A process belongs to the
# cluster if it is recorded, has the mark, runs a program of D/bin or D/tmp
# (ddp-agent, ddp-controller and tests' own: they may keep no environment), is a slurmstepd that holds a file
# below D open, is a task on one of our nodes (SLURMD_NODENAME; node names are
# unique on this machine), sits in a cgroup of our nodes, or descends from one
# of these.

# proc_start PID: sets REPLY to its start time; 1 if it is gone or a zombie.
proc_start()
{
	local stat=''
	local -a f
	{ IFS= read -r -d '' stat <"/proc/$1/stat"; } 2>/dev/null
	[[ -n $stat ]] || return 1
	read -r -a f <<<"${stat##*) }"
	REPLY=${f[19]}
	[[ ${f[0]} != [ZX] ]]
}

# rec_pid NAME: sets REPLY to the pid of the recorded daemon if it is alive.
rec_pid()
{
	local pid start
	{ read -r pid start <"$D/run/$1.pid"; } 2>/dev/null || return 1
	proc_start "$pid" && [[ $REPLY == "$start" ]] || return 1
	REPLY=$pid
}

# spawn NAME CMD...: starts a daemon; stdout and stderr to D/log/NAME.out.
# In a root it starts inside the holder's namespace (see root.sh).
spawn()
{
	spawn_job "$@"
	disown "$SPAWNED"
}

# spawn_job: the same for a process that ends, and is waited for.
spawn_job()
{
	local name=$1
	shift
	rm -f -- "$D/run/$name.pid"
	(
		exec </dev/null >>"$D/log/$name.out" 2>&1
		exec setsid bash "$LIB/launch.sh" "$D/run/$name.pid" \
			"${ENTER[@]}" env -i PATH="$DAEMON_PATH" LANG=C.UTF-8 \
			HOME=/root USER=root SHELL=/bin/sh \
			SLURM_CONF="$D/etc/slurm.conf" \
			MYSQL_UNIX_PORT="$D/db/sock" \
			DEVCLUSTER_MARK="$ID" "$@"
	) &
	SPAWNED=$!
}

# tree_members: pids of the cluster's processes, one a line.
tree_members()
{
	local f pid start
	local -A seed=()

	for f in "$D"/run/*.pid; do
		[[ -e $f ]] || continue
		f=${f##*/}
		rec_pid "${f%.pid}" && seed[$REPLY]=1
	done
	while IFS= read -r pid; do
		seed[$pid]=1
	done < <(marked_pids; program_pids; stepd_pids; cgroup_pids)
	((${#seed[@]})) || return 0
	# status, not stat: there a newline in a process's name is escaped, so
	# that nobody can write a line for somebody else's pid.
	grep -H '^PPid:' /proc/[0-9]*/status 2>/dev/null |
		awk -v seeds="${!seed[*]}" -v self=$$ -f "$LIB/tree.awk"
}

marked_pids()
{
	local re="^(DEVCLUSTER_MARK=$ID|SLURMD_NODENAME=${NODE_PREFIX}[0-9]+)\$"
	grep -lzE "$re" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3
}

program_pids()
{
	# Not of all D: the programs of a root are at D/root.
	find /proc/[0-9]*/exe \( -lname "*$D/bin/*" -o -lname "*$D/tmp/*" \) \
		2>/dev/null | cut -d / -f 3
}

# slurmstepd overwrites its environment with its title.
stepd_pids()
{
	local p
	grep -lx slurmstepd /proc/[0-9]*/comm 2>/dev/null | while read -r p; do
		p=${p%/comm}
		find "$p/fd" -lname "*$D/*" -printf "${p##*/}\n" -quit \
			2>/dev/null
	done
}

# alive PID...: of these the ones that are, as PID:START; ours at this moment.
alive()
{
	local p
	for p; do
		proc_start "$p" && printf '%s:%s\n' "$p" "$REPLY"
	done
}

# signal_all SIG PID:START...: the start time is looked at again, right before.
signal_all()
{
	local sig=$1 p
	shift
	for p; do
		proc_start "${p%:*}" && [[ $REPLY == "${p#*:}" ]] &&
			kill -s "$sig" "${p%:*}" 2>/dev/null
	done
	return 0
}

# end_all: TERM, and after four seconds KILL, until nothing is left; looked up
# again each time, since a slurmd may just have started a job. 1 on failure.
end_all()
{
	local deadline=$((SECONDS + 20)) soft=$((SECONDS + 4)) p pids
	local -a now fresh
	local -A told=()
	while :; do
		pids=$(tree_members) || return 1
		# shellcheck disable=SC2086 # pids, one word each
		mapfile -t now < <(alive $pids)
		((${#now[@]})) || return 0
		((SECONDS < deadline)) || return 1
		if ((SECONDS >= soft)); then
			signal_all KILL "${now[@]}"
		else
			fresh=()
			for p in "${now[@]}"; do
				[[ -n ${told[$p]:-} ]] || fresh+=("$p")
				told[$p]=1
			done
			signal_all TERM "${fresh[@]}"
			# A suspended job would sleep through it.
			signal_all CONT "${fresh[@]}"
		fi
		sleep 0.15
	done
}
