# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # bats sets output, lines, stderr
#
# For the tests of spank_ddp.so on a real Slurm. In a .bats file:
#
#	load lib
#	load launch
#	setup_file() { launch_up --nodes 2; }
#	teardown_file() { launch_down; }
#	setup() { launch_setup; }
#
# DDP_ROOT, the root folder of another Slurm, runs them on that one. CLUSTER_TMP
# is a folder that all users and nodes can write to, and the tests' own.

bats_require_minimum_version 1.5.0

# What the caller of the tests has set must not reach a launch.
launch_clean_env()
{
	local v
	for v in $(compgen -e); do
		case $v in
		SLURM* | SRUN_* | SBATCH_* | SALLOC_* | PET_* | ROLE_* | \
			GROUP_* | JAX_* | NCCL_* | TORCH_* | GLOO_* | \
			RANK | LOCAL_RANK | NODE_RANK | WORLD_SIZE | \
			LOCAL_WORLD_SIZE | MASTER_* | OMP_* | USE_LIBUV | \
			CUDA_VISIBLE_DEVICES) unset "$v" ;;
		esac
	done
}
launch_clean_env

# The one Python that may have Debian's torch; never a pyenv's shim.
PYTHON=/usr/bin/python3
TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Above every real wait here, so that a hang is a failure with a name.
LIMIT=${LIMIT:-60}

# launch_up ARGS...: a cluster of devcluster's options, on DDP_ROOT if set.
# A failure to start is a failure of the file, except where nothing can start.
launch_up()
{
	[[ $EUID == 0 ]] || skip "needs root: it starts slurmds"
	[[ -n ${CLUSTER_DIR:-} ]] || cluster_init
	cluster_up ${DDP_ROOT:+--root "$DDP_ROOT"} "$@" >&2 || return 1
	export CLUSTER_TMP=$CLUSTER_DIR/tmp
	chmod 1777 "$CLUSTER_TMP"
}

# launch_down: and the proof that nothing of the cluster is left.
launch_down()
{
	[[ -n ${CLUSTER_DIR:-} ]] || return 0
	cluster_identity || return 1
	cluster_down || return 1
	cluster_gone
}

launch_setup()
{
	# srun hands its folder on to the tasks: one that all nodes have.
	cd "$CLUSTER_TMP" || return 1
	cluster_env
}

# slurm_at_least MAJOR.MINOR: of the cluster.
slurm_at_least()
{
	local have
	have=$(cut -d . -f 1-2 <<<"$DEVCLUSTER_SLURM_VERSION")
	[[ $(printf '%s\n' "$1" "$have" | sort -V | head -n 1) == "$1" ]]
}

# in_cluster CMD..., as_nobody CMD...: with the cluster's SLURM_CONF, bounded.
in_cluster() { timeout -k 5 "$LIMIT" "$DEVCLUSTER" --dir "$CLUSTER_DIR" run -- "$@"; }

as_nobody()
{
	timeout -k 5 "$LIMIT" "$DEVCLUSTER" --dir "$CLUSTER_DIR" \
		--user nobody run -- "$@"
}

# launch ARGS..., launch_as_nobody ARGS...: srun must succeed. Fills output and
# stderr, without what srun says of waiting for nodes.
launch() { launched_by in_cluster "$@"; }
launch_as_nobody() { launched_by as_nobody "$@"; }

# without_waiting: a filter for what srun says while it waits for resources.
without_waiting()
{
	grep -vE '^(srun: (job [0-9]+ (queued and waiting for|has been allocated) resources|Job [0-9]+ step creation temporarily disabled, retrying.*|Step created for (StepId=|job ).*))?$'
	return 0
}

launched_by()
{
	run --separate-stderr "$1" srun "${@:2}"
	if ((status)); then
		printf 'exit code %s from srun %.300s\n%s\n%s\n' "$status" \
			"${*:2}" "${output:0:2000}" "${stderr:0:4000}"
		return 1
	fi
	stderr=$(without_waiting <<<"$stderr")
	return 0
}

# sbatch_wait CMD ARGS...: in_cluster or as_nobody sbatch ARGS, until the job
# is over; fails with it. (sbatch -W looks only every few seconds.)
sbatch_wait()
{
	[[ -e $CLUSTER_TMP/sbatch.sh ]] || cat >"$CLUSTER_TMP/sbatch.sh" <<-'X'
		id=$(sbatch --parsable "$@") || exit 1
		id=${id%;*}
		echo "Submitted batch job $id"
		while squeue -h -j "$id" 2>/dev/null | grep -q .; do
			sleep 0.1
		done
		codes=$(scontrol show job "$id" | grep -o ' ExitCode=.*' | sort -u)
		[ "$codes" = " ExitCode=0:0" ] || { echo "$codes" >&2; exit 1; }
	X
	"$1" sh "$CLUSTER_TMP/sbatch.sh" "${@:2}"
}

# Jobs start when they are submitted, not within the next seconds.
# shellcheck disable=SC2034
FAST_SBATCH=SchedulerParameters=batch_sched_delay=0,sched_min_interval=0

# new_dir: prints a new folder in which every user can write.
new_dir()
{
	local d
	d=$(mktemp -d "$CLUSTER_TMP/t.XXXXXX") || return 1
	chmod 1777 "$d"
	printf '%s\n' "$d"
}

# The program of a rank: it writes down its very environment, as the kernel
# has it, and the CPUs that it may use, into the folder $0.
# shellcheck disable=SC2016,SC2034
RANK_DUMP='f=$0/$SLURMD_NODENAME.$$
cat /proc/$$/environ >"$f.env" && grep ^Cpus_allowed_list /proc/$$/status >"$f.cpus"'

# world DIR ARGS...: are the dumps in DIR one world as check_world.py works it
# out from Slurm's own words? ARGS are that script's.
world()
{
	local dir=$1
	shift
	[[ -e $CLUSTER_TMP/nodes ]] ||
		in_cluster scontrol -o show node >"$CLUSTER_TMP/nodes"
	"$PYTHON" "$TESTS/check_world.py" --nodes "$CLUSTER_TMP/nodes" "$@" "$dir"
}

# var DIR NAME: "PROCID VALUE" of each dump that has NAME, by rank.
var()
{
	"$PYTHON" "$TESTS/check_world.py" --print "$2" "$1"
}

# --- what a command said; on stdout and stderr unless separate ---------------

# says TEXT...: each stands in $output or $stderr, literally.
says()
{
	local t
	for t; do
		[[ $output$'\n'${stderr-} == *"$t"* ]] && continue
		printf 'not said: %s\n--- output\n%s\n--- stderr\n%s\n' "$t" \
			"$output" "${stderr-}"
		return 1
	done
}

# says_not TEXT...: none does.
says_not()
{
	local t
	for t; do
		[[ $output$'\n'${stderr-} == *"$t"* ]] || continue
		printf 'should not be said: %s\n--- output\n%s\n--- stderr\n%s\n' \
			"$t" "$output" "${stderr-}"
		return 1
	done
}

# says_times N TEXT: N lines have it.
says_times()
{
	local n
	n=$(grep -cF -- "$2" <<<"$output"$'\n'"${stderr-}")
	[[ $n == "$1" ]] && return 0
	printf '%s lines with "%s", not %s:\n%s\n%s\n' "$n" "$2" "$1" \
		"$output" "${stderr-}"
	return 1
}

# same EXPECTED GOT
same()
{
	[[ $1 == "$2" ]] && return 0
	printf 'expected:\n%s\ngot:\n%s\n' "$1" "$2"
	return 1
}

# fails CMD...: it exits with another code than 0, and not by the time limit
# or a signal. Fills output and stderr.
fails()
{
	run --separate-stderr "$@"
	((status != 0 && status != 124 && status < 128 || status == 255)) &&
		return 0
	printf 'exit code %s from: %s\n%s\n%s\n' "$status" "${*:0:200}" \
		"${output:0:2000}" "${stderr:0:2000}"
	return 1
}

# --- the state of the cluster -------------------------------------------------

# nodes_idle: every node is idle within a few seconds; none was drained.
nodes_idle()
{
	wait_until 20 all_idle && return 0
	in_cluster sinfo -N -o '%N %T %E'
	return 1
}

# A "planned" node is idle too: backfill has a waiting job in mind for it.
all_idle()
{
	[[ $(in_cluster sinfo -h -o %T | sed 's/^planned$/idle/' | sort -u) == idle ]]
}

# logs_clean: no daemon and no step died or says that it is broken.
logs_clean()
{
	! grep -hiE 'segfault|segmentation|fatal|assert|stack smash|corrupt' \
		"$CLUSTER_DIR"/log/slurmctld.log "$CLUSTER_DIR"/log/slurmd-*.log
}

# step_row JOB.STEP FIELDS: what the accounting has, once the step is over. The
# end of a job comes before that of its last step, which sacct shows as ended
# from then on: with the job's state, without an exit code, and without usage.
# Where there is none after 10 s it is a step that had none.
step_row()
{
	local i s
	for ((i = 0; i < 50; i++)); do
		s=$(in_cluster sacct -n -P --noconvert -j "$1" \
			-o "End,TRESUsageInTot,$2")
		row_whole <<<"$s" && break
		sleep 0.2
	done
	cut -d '|' -f 3- <<<"$s"
}

# The first two fields of every line are there.
row_whole()
{
	awk -F '|' '!$1 || $1 == "Unknown" || !$2 { bad = 1 }
		END { exit bad || !NR }'
}

step_state() { step_row "$1" State,ExitCode; }

# --- nodes with names of their own ---------------------------------------------

# free_ports N: the first of N ports in a row that nobody listens on, above
# devcluster's and below those that steps take by themselves (20000 and up):
# ddp-launch cannot try its ports out, and a slurmd that sat on one would look
# like a thief.
free_ports()
{
	"$PYTHON" - "$1" <<-'X'
	import random, socket, sys
	n = int(sys.argv[1])
	def free(port):
	    with socket.socket() as s:
	        return s.connect_ex(("127.0.0.1", port)) != 0
	for _ in range(1000):
	    first = random.randrange(18500, 20000 - n)
	    if all(free(first + i) for i in range(n)):
	        print(first)
	        sys.exit(0)
	sys.exit("no free ports")
	X
}

# slurmd_start NAME...: a slurmd for each of these nodes; slurmd_stop ends
# what it has started.
slurmd_start()
{
	local n
	for n; do
		# exec, so that the pid is slurmd's own.
		exec "$DEVCLUSTER" --dir "$CLUSTER_DIR" run -- slurmd -D -N "$n" \
			</dev/null >"$CLUSTER_TMP/slurmd-$n.out" 2>&1 3>&- &
		echo "$!" >>"$CLUSTER_TMP/slurmds"
	done
}

slurmd_stop()
{
	local pid
	[[ -e ${CLUSTER_TMP:-}/slurmds ]] || return 0
	while read -r pid; do
		kill "$pid" 2>/dev/null || true
	done <"$CLUSTER_TMP/slurmds"
	while read -r pid; do
		wait_until 10 pid_gone "$pid" || kill -9 "$pid" 2>/dev/null
	done <"$CLUSTER_TMP/slurmds"
	return 0
}

pid_gone() { [[ ! -e /proc/$1 || $(pid_state "$1") == [Z-] ]]; }

# pid_state PID: R, S, Z …; - if it has gone meanwhile.
pid_state() { cut -d ' ' -f 3 "/proc/$1/stat" 2>/dev/null || echo -; }

# --- srun with another configuration than the nodes' ---------------------------

# own_conf [-c KEY=VALUE]... [LINE]...: sets OWN to a slurm.conf like the
# cluster's, with these keys and a plugstack.conf of these lines. A user can do
# the same; run it by: in_cluster env SLURM_CONF="$OWN" srun ...
own_conf()
{
	local dir
	dir=$(new_dir) || return 1
	OWN=$dir/slurm.conf
	cp "$CLUSTER_DIR/etc/slurm.conf" "$OWN"
	set_key "PlugStackConfig=$dir/plugstack.conf"
	while [[ ${1:-} == -c ]]; do
		set_key "$2"
		shift 2
	done
	if (($#)); then
		printf '%s\n' "$@" >"$dir/plugstack.conf"
	else
		: >"$dir/plugstack.conf"
	fi
}

set_key()
{
	sed -i "/^${1%%=*}=/d" "$OWN" && printf '%s\n' "$1" >>"$OWN"
}

# The cluster's plugin, as a line of plugstack.conf names it.
plugin_line() { printf '%s %s' "${1:-required}" "$(plugin)"; }
plugin()
{
	printf '%s launcher=%s helpers=%s' "$CLUSTER_DIR/plugins/spank_ddp.so" \
		"$CLUSTER_DIR/bin/ddp-launch" "$CLUSTER_DIR/bin"
}

# --- ports ----------------------------------------------------------------------

# hold_ports ADDR PORT...: somebody listens there until release_ports, or two
# minutes have passed.
hold_ports()
{
	local ready
	ready=$(mktemp -u "$CLUSTER_TMP/held.XXXXXX")
	"$PYTHON" "$TESTS/hold_ports.py" "$ready" "$@" </dev/null >&2 3>&- &
	HOLDERS+=("$!")
	wait_until 5 test -e "$ready"
}

release_ports()
{
	((${#HOLDERS[@]})) || return 0
	kill "${HOLDERS[@]}" 2>/dev/null || true
	wait "${HOLDERS[@]}" 2>/dev/null || true
	HOLDERS=()
}
HOLDERS=()

# build_so FILE [CC ARGS]...: a plugin from the C code on stdin, against the
# headers of the cluster's Slurm.
build_so()
{
	local inc
	command -v gcc >/dev/null || skip "no gcc"
	inc=$(new_dir) || return 1
	ln -s "${DDP_ROOT:-}/usr/include/slurm" "$inc/slurm"
	gcc -shared -fPIC -I"$inc" "${@:2}" -x c -o "$1" - && chmod 755 "$1"
}
