# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Shared by the cluster tests: one private cluster a test file or test, and
# the proof that nothing of it stays. In a .bats file:
#
#	load lib
#	setup_file() { cluster_init; cluster_up --nodes 2; }
#	teardown_file() { cluster_down; }
#
# Other clusters may live on the machine, so "nothing" means: nothing that
# carries this cluster's folder, node names, mark or ports.

DEVCLUSTER=${DEVCLUSTER:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/contrib/devcluster}

# cluster_init [NAME]: sets and exports CLUSTER_DIR. Not below bats' own
# folders: those are closed to other users, and jobs run as some.
cluster_init()
{
	CLUSTER_DIR=$(mktemp -u "/var/tmp/ddp-t.XXXXXX")${1:+.$1}
	export CLUSTER_DIR
}

# cluster_up ARGS...: options of devcluster.
cluster_up() { "$DEVCLUSTER" --dir "$CLUSTER_DIR" "$@" up; }

# cluster_run CMD..., cluster_run_as USER CMD...
cluster_run() { "$DEVCLUSTER" --dir "$CLUSTER_DIR" run -- "$@"; }

cluster_run_as()
{
	local user=$1
	shift
	"$DEVCLUSTER" --dir "$CLUSTER_DIR" --user "$user" run -- "$@"
}

cluster_down() { "$DEVCLUSTER" --dir "$CLUSTER_DIR" down; }

# cluster_env: SLURM_CONF, DEVCLUSTER_NODES, ... into this shell.
cluster_env()
{
	local out
	out=$("$DEVCLUSTER" --dir "$CLUSTER_DIR" env) || return 1
	eval "$out"
}

# cluster_node K: name of the K-th node; cluster_pid NAME: of a daemon.
cluster_node()
{
	local -a n
	cluster_env || return 1
	read -r -a n <<<"$DEVCLUSTER_NODES"
	printf '%s\n' "${n[$1 - 1]}"
}

cluster_pid() { cut -d ' ' -f 1 "$CLUSTER_DIR/run/$1.pid"; }

# cluster_identity: remembers in CLUSTER_ID what traces are looked for; as
# early as the folder has its mark.
cluster_identity()
{
	local key val
	CLUSTER_ID=()
	while IFS='=' read -r key val; do
		case $key in
		ID) CLUSTER_ID[0]=$val ;;
		NODE_PREFIX) CLUSTER_ID[1]=$val ;;
		CTLD_PORT | DBD_PORT | NODE_PORT) CLUSTER_ID+=("$val") ;;
		esac
	done <"$CLUSTER_DIR/.devcluster"
}

# cluster_traces: one line for each process, mount, socket, device, cgroup,
# folder and claim of the remembered cluster.
cluster_traces()
{
	local id=${CLUSTER_ID[0]} node=${CLUSTER_ID[1]} d=$CLUSTER_DIR p
	{
		grep -lzF -e "DEVCLUSTER_MARK=$id" -e "SLURMD_NODENAME=$node" \
			/proc/[0-9]*/environ
		grep -lF -e "$d/" /proc/[0-9]*/cmdline
		find /proc/[0-9]*/exe -lname "*$d/bin/*" -o -lname "*$d/tmp/*"
		find /proc/[0-9]*/fd -lname "*$d/*"
	} 2>/dev/null | while IFS=/ read -r _ _ p _; do
		# Not this test, its helpers, nor a zombie, which only waits for
		# a lazy parent.
		[[ $p == self || $p == "$$" || $p == "$BASHPID" ]] && continue
		grep -qs '^State:.[^ZX]' "/proc/$p/status" || continue
		grep -qsx -e grep -e bats -e bash "/proc/$p/comm" && continue
		echo "process $p $(tr '\0' ' ' <"/proc/$p/cmdline")"
	done | sort -u
	grep -hF "$d/" /proc/[0-9]*/mounts 2>/dev/null | sort -u |
		sed 's/^/mount /'
	grep -F "$d/" /proc/net/unix | sed 's/^/socket /'
	for p in "${CLUSTER_ID[@]:2}"; do
		grep -hi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$p") [0-9A-F:]* 0A" \
			/proc/net/tcp /proc/net/tcp6 | sed "s/^/port $p /"
	done
	find "$d" -type c -printf 'device %p\n' 2>/dev/null
	[[ ! -e $d ]] || echo "folder $d"
	find /sys/fs/cgroup -name "*slurm_${node}[0-9]*" -printf 'cgroup %p\n' \
		2>/dev/null
	find /run/slurm-ddp-devcluster -name "$id" -printf 'claim %p\n' \
		2>/dev/null
	return 0
}

# cluster_gone: fails and shows what is left.
cluster_gone()
{
	local left
	left=$(cluster_traces)
	[[ -z $left ]] && return 0
	printf 'left behind:\n%s\n' "$left"
	return 1
}

# groups_of_steps: their cgroups and who is in them, one a line. Not one that
# is empty and that slurmstepd says it could not remove: the kernel may want a
# moment for what has just been in it, and Slurm tries five times at once, and
# never again (DebugFlags=cgroup). Where it finds a process, one of ours, it
# does not say that.
groups_of_steps()
{
	local path procs
	# shellcheck disable=SC2153 # the tests' nodes
	find /sys/fs/cgroup -path "*/slurm_${NODE[0]%[0-9]*}*/job_*" -type d \
		-links 2 2>/dev/null | while read -r path; do
			procs=$(cat "$path/cgroup.procs" 2>/dev/null) || continue
			[[ -z $procs ]] && grep -qF "Unable to rmdir($path)" \
				"$CLUSTER_DIR"/log/slurmd-*.log && continue
			echo "cgroup $path" "$procs"
		done
	return 0
}

# left_nothing SECONDS LISTER: until then LISTER prints nothing; else shows it.
left_nothing()
{
	local end=$((SECONDS + $1)) left
	while left=$("$2"); [[ -n $left ]]; do
		if ((SECONDS > end)); then
			printf 'left behind:\n%s\n' "$left"
			return 1
		fi
		sleep 0.1
	done
}

# machine_snapshot: the whole machine, for a test that has it to itself:
# take one before and one after, and diff them.
machine_snapshot()
{
	local s
	for s in /proc/[0-9]*/comm; do
		cat "$s" 2>/dev/null
	done | grep -E '^(munged|mariadbd|mysqld|slurm|srun|sbatch|ddp)' | sort
	sort /proc/mounts
	awk '$4 == "0A" { print $2 }' /proc/net/tcp /proc/net/tcp6 | sort
	find /sys/fs/cgroup -name 'slurm*' | sort
	find /var/tmp /tmp /run -xdev -type c 2>/dev/null | sort
	ls -d /run/slurm-ddp-devcluster /var/tmp/slurm-ddp-* 2>/dev/null
	return 0
}

# wait_until SECONDS CMD...
wait_until()
{
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		# Seconds are counted in whole ones: not fewer than asked for.
		((SECONDS <= end)) || return 1
		sleep 0.1
	done
}
