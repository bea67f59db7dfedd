#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# What a launch costs: calls to slurmctld, system calls of the tasks, and
# memory as valgrind sees it.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

setup_file()
{
	local port
	port=$(free_ports 1)
	# One more node, whose slurmstepd can be another program.
	launch_up --nodes 4 --gpus 0 --cpus 16 --conf \
		"NodeName=other NodeHostname=$(hostname -s) NodeAddr=127.77.8.1 Port=$port CPUs=4 RealMemory=1000"
}

teardown_file()
{
	slurmd_stop
	launch_down
}

setup()
{
	launch_setup
	DIR=$(new_dir)
	cd "$DIR" || return 1
}

# --- slurmctld ------------------------------------------------------------------

# rpcs N ARGS...: the calls that an unprivileged user's srun of N tasks on four
# nodes makes to slurmctld; the least of three, since a busy one is asked again.
rpcs()
{
	local i n least=999
	for i in 1 2 3; do
		in_cluster sdiag -r >/dev/null
		as_nobody srun -Q -N4 -n"$1" "${@:2}" true >&2 || return 1
		n=$(in_cluster sdiag | sed -n \
			's/^[[:space:]]*nobody *( *65534) *count:\([0-9]*\) .*/\1/p')
		[[ -n $n ]] || { in_cluster sdiag >&2; return 1; }
		((n >= least)) || least=$n
	done
	echo "$least"
}

@test "calls to slurmctld: at most two more, whatever the number of tasks" {
	plain=$(rpcs 4)
	((plain >= 2))
	for mode in full stateless; do
		few=$(rpcs 4 --ddp-launch=$mode)
		many=$(rpcs 64 --ddp-launch=$mode)
		echo "plain $plain, $mode: 4 tasks $few, 64 tasks $many"
		((few > plain && few <= plain + 2))
		same "$few" "$many"
		# The options cost nothing more.
		same "$few" "$(rpcs 4 --ddp-launch=$mode --ddp-explain)"
	done
	same "$few" "$(rpcs 4 --ddp-launch --ddp-report-file=/dev/null)"
	same "$plain" "$(rpcs 4 --ddp-launch=off)"
}

# --- system calls of the tasks --------------------------------------------------

# traced NAME ARGS...: NAME.PID, the calls of a node's slurmd and of each
# process that it starts, while it runs a step of 4 tasks with srun's ARGS.
traced()
{
	local pid name=$1
	pid=$(cluster_pid "slurmd-${DEVCLUSTER_NODES%% *}")
	strace -ff -qq -o "$name" -p "$pid" -e signal=none -e \
		trace=execve,open,openat,creat,socket,connect,bind,mkdir,rename,unlink \
		3>&- &
	STRACE=$!
	wait_until 10 grep -q "^TracerPid:.*[1-9]" "/proc/$pid/status"
	in_cluster srun -Q -w "${DEVCLUSTER_NODES%% *}" -N1 -n4 "${@:2}" \
		/bin/true || return 1
	# The step's last act comes after srun's end.
	wait_until 10 no_stepd "$name" || return 1
	kill "$STRACE"
	wait "$STRACE" || true
}

# The slurmstepd of the trace has ended.
no_stepd()
{
	local file
	file=$(grep -l 'execve("[^"]*slurmstepd".* = 0' "$1".*) || return 1
	[[ ! -e /proc/${file##*.} ]]
}

# tasks NAME REGEX: the successful calls that match, of the four tasks until
# they become the program; without numbers that change from step to step.
tasks()
{
	local file
	grep -l 'execve("/bin/true".* = 0' "$1".* | while read -r file; do
		sed '/execve("\/bin\/true"/q' "$file"
	done | grep -E "$2" | grep -v ' = -1 E' |
		sed -E 's/0x[0-9a-f]+/X/g; s/[0-9]+/N/g' | sort | uniq -c
}

# readers NAME: processes that read the topology.
readers()
{
	grep -l '/sys/devices/system/cpu/cpu1/topology/' "$1".* | wc -l
}

@test "a task: no exec, no file written, no DNS, no connection more" {
	command -v strace >/dev/null || skip "no strace"
	# One before, so that caches are warm.
	in_cluster srun -w "${DEVCLUSTER_NODES%% *}" -n4 --ddp-launch true
	traced plain
	traced stateless --ddp-launch=stateless
	traced full --ddp-launch
	# All of a step is in it: slurmstepd and four tasks, and one agent, which
	# starts what reads the topology, once.
	for t in plain stateless full; do
		n=5
		[[ $t == plain ]] || n=7
		same $n "$(cat $t.* | grep -c 'execve(.* = 0')"
		same 4 "$(tasks $t execve | awk '{ print $1 }')"
	done
	for t in stateless full; do
		same 1 "$(cat $t.* | grep -c 'execve("[^"]*/ddp-agent".* = 0')"
		same 1 "$(cat $t.* | grep -c 'execve("[^"]*/ddp-place".* = 0')"
		# Who reads the whole topology looks into every core: one
		# process more than without us (slurmstepd does so itself).
		same $(($(readers plain) + 1)) "$(readers $t)"
	done
	writes='O_WRONLY|O_RDWR|O_CREAT|creat\(|mkdir\(|rename\(|unlink\('
	names='resolv.conf|/etc/hosts|nsswitch|gai.conf|htons\(53\)'
	same "" "$(tasks plain 'socket\(AF_INET')"
	for t in stateless full; do
		cat $t.* | grep -q 'open.*spank_ddp.so'
		same "$(tasks plain "$writes")" "$(tasks $t "$writes")"
		same "$(tasks plain 'connect\(')" "$(tasks $t 'connect\(')"
		same "$(tasks plain "$names")" "$(tasks $t "$names")"
	done
	# Only rank 0 makes sockets, one for each IP version: its last look at
	# the port. In full mode the agent holds that.
	same "      1" "$(tasks stateless 'socket\(AF_INET,' | cut -c 1-7)"
	same "" "$(tasks full 'socket\(AF_INET')"
}

@test "an agent: no DNS, no file but its folder's, one connection; it leaves" {
	command -v strace >/dev/null || skip "no strace"
	traced full --ddp-launch
	agent=$(grep -l 'execve("[^"]*/ddp-agent".* = 0' full.*)
	same 1 "$(wc -l <<<"$agent")"
	sed '1,/ddp-agent"/d' "$agent" >calls
	# What slurmstepd starts forks once and leaves: the child is the agent.
	child=$(grep -l '^mkdir("/dev/shm/ddp-agent-' full.*)
	same 1 "$(wc -l <<<"$child")"
	cat "$child" >>calls
	run ! grep -E 'resolv.conf|/etc/hosts|nsswitch|gai.conf|htons\(53\)' calls
	run ! grep -E 'execve|O_WRONLY|O_RDWR|O_CREAT|creat\(|rename\(' calls
	same 1 "$(grep -c '^mkdir("/dev/shm/ddp-agent-[A-Za-z0-9]*", 0700) *= 0' calls)"
	same 1 "$(grep -cE '^connect\(.*(= 0|EINPROGRESS)' calls)"
	wait_until 10 pid_gone "${child##*.}"
	# The folder is gone with it.
	folder=$(sed -n 's/^mkdir("\([^"]*\)".*/\1/p' calls)
	[[ $folder == /dev/shm/ddp-agent-* && ! -e $folder ]]
	wait_until 10 no_helpers
}

no_helpers()
{
	[[ -z $(find /proc/[0-9]*/exe -lname "*$CLUSTER_DIR/*ddp-[ac]*" \
		2>/dev/null) ]]
}

# What Slurm allocates it points into, behind a header: valgrind calls all of
# it "possibly lost". A plugin's own memory would be definitely lost.
VALGRIND="valgrind --leak-check=full --show-leak-kinds=definite,indirect
	--num-callers=40 --keep-debuginfo=yes"

# blamed FILE...: the records of valgrind's logs that have the plugin in their
# stack. Not those in which it has asked Slurm for a poll, and the poll lost
# something: 22.05 forgets the name of a file in /proc that has just gone.
blamed()
{
	cat "$@" | sed 's/^==[0-9]*== \{0,1\}//' |
		awk -v RS= '
			function polls(n, i, line) {
				n = split($0, line, "\n")
				for (i = 1; i <= n; i++) {
					if (line[i] ~ /jag_common_poll_data/)
						return 1
					if (line[i] ~ /spank_ddp|ddp_[a-z]|: acct_/)
						return 0
				}
			}
			/spank_ddp|ddp_[a-z]/ && !/Command:/ && !polls()' |
		head -c 4000
}

@test "srun under valgrind: no error and no leak of the plugin's" {
	[[ -z ${DDP_ROOT:-} ]] || skip "valgrind is not in $DDP_ROOT"
	command -v valgrind >/dev/null || skip "no valgrind"
	# The log shows the plugin where it is to blame: a leak of its own.
	i=0
	while read -r args; do
		i=$((i + 1))
		# shellcheck disable=SC2086
		run in_cluster $VALGRIND --log-file="$DIR/srun.$i" \
			srun -N2 -n3 $args true
		echo "$args: $status: ${output:0:1000}"
		grep -q 'ERROR SUMMARY' "srun.$i"
		same "" "$(blamed "srun.$i")"
	done <<-'X'
		--ddp-launch --ddp-explain --ddp-iface=auto --ddp-frameworks=torch
		--ddp-launch=stateless --ddp-explain --ddp-frameworks=torch,tf
		--ddp-launch --ddp-master-port=80
		--ddp-launch=off --ddp-master-port=29999
	X
}

@test "slurmstepd under valgrind: no error and no leak of the plugin's" {
	[[ -z ${DDP_ROOT:-} ]] || skip "valgrind is not in $DDP_ROOT"
	command -v valgrind >/dev/null || skip "no valgrind"
	stepd=/usr/sbin/slurmstepd
	[[ -x $stepd ]] || skip "no $stepd"
	cp "$stepd" "$CLUSTER_TMP/slurmstepd"
	mkdir "$CLUSTER_TMP/vg"
	cat >"$CLUSTER_TMP/wrapper" <<-X
		#!/bin/sh
		exec ${VALGRIND//$'\n'/ } --log-file=$CLUSTER_TMP/vg/%p \
			$CLUSTER_TMP/slurmstepd "\$@"
	X
	chmod 755 "$CLUSTER_TMP/wrapper"
	# In a mount namespace of its own, so that only this slurmd sees it.
	unshare -m --propagation private sh -c 'mount --bind "$1" "$2" &&
		exec "$3" --dir "$4" run -- slurmd -D -N other' sh \
		"$CLUSTER_TMP/wrapper" "$stepd" "$DEVCLUSTER" "$CLUSTER_DIR" \
		</dev/null >"$CLUSTER_TMP/slurmd-other.out" 2>&1 3>&- &
	echo "$!" >>"$CLUSTER_TMP/slurmds"
	wait_until 20 other_idle
	launch -w other -n2 --ddp-launch=stateless --ddp-iface=auto \
		sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 2 --set NCCL_SOCKET_IFNAME==lo \
		--set GLOO_SOCKET_IFNAME=lo
	# Refused by the task, and by TaskProlog's watcher.
	fails in_cluster srun -w other -n1 --ddp-launch=stateless \
		--ddp-iface=bad0 true
	# valgrind's kernel may have no pidfd_open(): then this is refused.
	run --separate-stderr in_cluster srun -w other -n2 --ddp-launch true
	((status == 0)) || says "ddp-agent needs Linux 5.3 or later"
	printf '#!/bin/sh\necho export OMP_NUM_THREADS=7\n' >prolog
	chmod 755 prolog
	launch -w other -n1 --ddp-launch=stateless \
		--task-prolog="$PWD/prolog" true
	wait_until 20 other_idle
	wait_until 20 four_summaries
	same "" "$(blamed "$CLUSTER_TMP"/vg/*)"
}

other_idle() { [[ $(in_cluster sinfo -h -n other -o %T) == idle ]]; }

four_summaries()
{
	(($(grep -l 'ERROR SUMMARY' "$CLUSTER_TMP"/vg/* | wc -l) >= 4))
}

@test "afterwards the logs are clean" {
	logs_clean
}
