#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# cases 8, 19, 23, 24: ddp-launch, the launch without the plugin. Here the
# nodes and srun have no plugin unless a test calls plugin_on; with_plugin
# compares the two launches variable by variable.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154,SC2317 # code for other
# shells; bats; functions called by name

load lib
load launch

setup_file()
{
	# Small job ids are those of every other fresh cluster on this machine,
	# and ddp-launch takes the port that follows from them unseen.
	launch_up --nodes 4 --gpus 0 \
		--conf "FirstJobId=$((RANDOM + 1000))"
	cp "$CLUSTER_DIR/etc/plugstack.conf" "$CLUSTER_TMP/plugstack.on"
}

teardown_file() { launch_down; }

setup()
{
	launch_setup
	read -r -a NODE <<<"$DEVCLUSTER_NODES"	# NODE[0] is the first
	DIR=$(new_dir)
	plugin_off
}

# Every srun and every step reads the file again.
plugin_off() { : >"$CLUSTER_DIR/etc/plugstack.conf"; }
plugin_on() { cp "$CLUSTER_TMP/plugstack.on" "$CLUSTER_DIR/etc/plugstack.conf"; }

# compare_env A B: the two steps' dumps, rank by rank and variable by variable.
# Left out is what tells two steps apart, the rank's error file that full mode
# adds, and the number of the port: but each variable that has the port must have
# the step's own.
compare_env()
{
	"$PYTHON" - "$@" <<-'X'
	import glob, re, sys
	OTHER = """SLURM_TASK_PID SLURM_SRUN_COMM_PORT SLURM_STEP_LAUNCHER_PORT
	    SLURM_JOB_ID SLURM_JOBID SLURM_STEP_ID SLURM_STEPID SLURM_JOB_NAME
	    SLURM_JOB_START_TIME SLURM_JOB_END_TIME""".split()
	def ranks(folder):
	    out = {}
	    for path in glob.glob(folder + "/*.env"):
	        with open(path) as f:
	            env = dict(kv.partition("=")[::2]
	                       for kv in f.read().split("\0") if kv)
	        out[int(env["SLURM_PROCID"])] = plain(env)
	    return out
	def plain(env):
	    if re.fullmatch(r"/(dev/shm|tmp)/ddp-agent-\w{6}/%s\.json" %
	                    env["SLURM_PROCID"],
	                    env.get("TORCHELASTIC_ERROR_FILE", "")):
	        del env["TORCHELASTIC_ERROR_FILE"]
	    port = env["MASTER_PORT"]
	    step = "%s.%s" % (env["SLURM_JOB_ID"], env["SLURM_STEP_ID"])
	    for k, v in env.items():
	        if k.startswith(("MASTER_", "PET_", "JAX_")):
	            v = re.sub(r"(^|:)%s$" % port, r"\1PORT", v)
	            env[k] = "STEP" if v == step else v
	        if k == "TF_CONFIG":
	            env[k] = re.sub(r':\d+"', ':PORT"', v)
	    return {k: v for k, v in env.items() if k not in OTHER
	            and not k.startswith("_SLURM_SPANK_OPTION_")}
	a, b = ranks(sys.argv[1]), ranks(sys.argv[2])
	wrong = [] if a and sorted(a) == sorted(b) else [
	    "ranks %s and %s" % (sorted(a), sorted(b))]
	for r in sorted(set(a) & set(b)):
	    wrong += ["rank %d: %s is %r and %r" % (r, k, a[r].get(k), b[r].get(k))
	              for k in sorted(set(a[r]) | set(b[r]))
	              if a[r].get(k) != b[r].get(k)]
	    if a[r].get("RANK") != str(r):
	        wrong.append("rank %d: RANK=%s" % (r, a[r].get("RANK")))
	print("\n".join(wrong), end="\n" if wrong else "")
	sys.exit(bool(wrong))
	X
}

# alike LAYOUT ARGS...: srun ARGS under the shim gives LAYOUT, the world that
# Slurm's own words say, and what the plugin gives. (ddp-launch binds nothing.)
alike()
{
	local layout=$1 shim=$DIR/shim plugin=$DIR/plugin
	shift
	rm -rf "$shim" "$plugin"
	mkdir -m 1777 "$shim" "$plugin"
	plugin_off
	"${BY:-launch}" "$@" ddp-launch sh -c "$RANK_DUMP" "$shim" || return 1
	same "" "$output$stderr" || return 1
	world "$shim" --layout "$layout" || return 1
	plugin_on
	"${BY:-launch}" "$@" --ddp-launch --ddp-bind=none \
		sh -c "$RANK_DUMP" "$plugin" || return 1
	plugin_off
	compare_env "$shim" "$plugin"
}

# --- the environment ----------------------------------------------------------

@test "block and uneven: the plugin's environment" {
	alike 0,1/2,3/4,5/6,7 -N4 --ntasks-per-node=2
	alike 0,1,2,3/4 -N2 -n5
}

@test "cyclic and plane" {
	alike 0,2/1,3 -N2 -n4 -m cyclic --ntasks-per-node=2
	alike 0,3,4,5,6/1/2 -N3 -n7 -m cyclic
	alike 0,1,3,4,5/2 -N2 -n6 -m plane=2
}

@test "arbitrary: rank 0 is where the file says" {
	printf '%s\n' "${NODE[1]}" "${NODE[0]}" "${NODE[3]}" "${NODE[0]}" >hosts
	export SLURM_HOSTFILE=hosts
	alike 0/1,3/2 -n4 -m arbitrary
	same "0 ${NODE[1]}" "$(var "$DIR/shim" SLURMD_NODENAME | sed -n 1p)"
}

@test "one task; one node" {
	alike 0 -n1
	alike 0,1,2,3,4,5,6,7 -N1 -n8
}

@test "eight tasks a node at once" {
	alike 0,1,2,3,4,5,6,7/8,9,10,11,12,13,14,15 -N2 --ntasks-per-node=8
}

@test "an unprivileged user" {
	BY=launch_as_nobody alike 0,1/2 -N2 -n3
	same nobody "$(stat -c %U "$DIR"/shim/*.env | sort -u)"
}

@test "a step that is smaller than its allocation" {
	run -0 --separate-stderr in_cluster salloc -Q -N3 --ntasks-per-node=2 \
		srun -N1 -n1 -w "${NODE[2]}" ddp-launch \
		sh -c "$RANK_DUMP" "$DIR"
	same "" "$output$stderr"
	world "$DIR" --layout 0
	same "0 ${NODE[2]}" "$(var "$DIR" SLURMD_NODENAME)"
}

@test "every framework" {
	for fw in torch jax horovod deepspeed,jax accelerate lightning,horovod; do
		export SLURM_DDP_FRAMEWORKS=$fw
		rm -rf "${DIR:?}"/*
		mkdir -m 1777 "$DIR/shim" "$DIR/plugin"
		launch -N2 -n3 ddp-launch sh -c "$RANK_DUMP" "$DIR/shim"
		same "" "$output$stderr"
		plugin_on
		launch -N2 -n3 --ddp-launch --ddp-bind=none sh -c "$RANK_DUMP" "$DIR/plugin"
		plugin_off
		compare_env "$DIR/shim" "$DIR/plugin"
	done
	same "$(printf '0 0\n1 1\n2 0')" "$(var "$DIR/shim" HOROVOD_LOCAL_RANK)"
}

@test "tf: every rank's address, in the order of the ranks" {
	export SLURM_DDP_FRAMEWORKS=tf
	mkdir -m 1777 "$DIR/shim" "$DIR/plugin"
	layout=(-N2 -n4 -m cyclic --ntasks-per-node=2)
	launch "${layout[@]}" ddp-launch sh -c "$RANK_DUMP" "$DIR/shim"
	plugin_on
	launch "${layout[@]}" --ddp-launch --ddp-bind=none sh -c "$RANK_DUMP" "$DIR/plugin"
	compare_env "$DIR/shim" "$DIR/plugin"
	run -0 "$PYTHON" -c '
import json, sys
all = [json.loads(l.split(" ", 1)[1]) for l in sys.stdin]
workers = all[0]["cluster"]["worker"]
assert len(all) == 4 == len(set(workers)), workers
assert [c["task"]["index"] for c in all] == list(range(4))
assert all[3]["cluster"] == all[0]["cluster"]
host = [w.rsplit(":", 1)[0] for w in workers]
assert host[0] == host[2] != host[1] == host[3], host
' <<<"$(var "$DIR/shim" TF_CONFIG)"
}

@test "it adds the launch's variables and nothing else" {
	mkdir -m 1777 "$DIR/plain" "$DIR/shim"
	in_cluster srun -N2 -n3 sh -c "$RANK_DUMP" "$DIR/plain"
	launch -N2 -n3 ddp-launch sh -c "$RANK_DUMP" "$DIR/shim"
	world "$DIR/shim" --count 3 --plain "$DIR/plain" --mode stateless
}

@test "inherited launch variables are replaced, with a warning by rank 0" {
	launch -N2 -n4 --export=ALL,RANK=99,MASTER_ADDR=n5,OMP_NUM_THREADS=3 \
		ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 4 --set OMP_NUM_THREADS=3
	says_times 1 "ddp: warning: inherited RANK=99"
	says_times 1 "ddp: warning: inherited MASTER_ADDR=n5"
	says_not OMP_NUM_THREADS
}

@test "--export=NONE" {
	# There may be no PATH then.
	launch --export=NONE -N2 -n3 "$CLUSTER_DIR/bin/ddp-launch" \
		/bin/sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 3
}

# --- what it needs, and what it costs -----------------------------------------

# rpcs KIND CMD...: how many such requests slurmctld gets meanwhile.
rpcs()
{
	local kind=$1
	shift
	in_cluster sdiag -r >/dev/null || return 1
	"$@" >&2 || return 1
	in_cluster sdiag >"$DIR/sdiag"
	grep -q 'REQUEST_JOB_STEP_CREATE' "$DIR/sdiag" || return 1
	sed -n '/by message type/,/by user/p' "$DIR/sdiag" | awk -v k="$kind" '
		$1 ~ k { sub(/.*count:/, ""); n += $1 } END { print n + 0 }'
}

@test "no request to slurmctld for an ordinary step" {
	step() { in_cluster srun -N2 -n5 ddp-launch true; }
	same 0 "$(rpcs 'STEP_LAYOUT|NODE_INFO' step)"
	step() { in_cluster srun -N2 -n4 -m cyclic ddp-launch true; }
	same 0 "$(rpcs 'STEP_LAYOUT|NODE_INFO' step)"
	# One node: its tasks cannot lie otherwise, whoever ordered them.
	printf '%s\n' "${NODE[0]}" "${NODE[0]}" >hosts
	step() { in_cluster env SLURM_HOSTFILE=hosts \
		srun -n2 -m arbitrary ddp-launch true; }
	same 0 "$(rpcs 'STEP_LAYOUT|NODE_INFO' step)"
}

@test "arbitrary and tf: one request a node, not a task" {
	printf '%s\n' "${NODE[0]}" "${NODE[0]}" "${NODE[1]}" "${NODE[1]}" \
		"${NODE[1]}" "${NODE[2]}" "${NODE[2]}" >hosts
	step() { in_cluster env SLURM_HOSTFILE=hosts \
		srun -n7 -m arbitrary ddp-launch true; }
	same 3 "$(rpcs STEP_LAYOUT step)"
	same 0 "$(rpcs NODE_INFO step)"
	step() { in_cluster srun -N2 -n9 ddp-launch --frameworks=torch,tf true; }
	same 2 "$(rpcs STEP_LAYOUT step)"
	same 0 "$(rpcs NODE_INFO step)"
}

@test "no other program is executed, also where slurmctld is asked" {
	in_cluster strace -f -o /dev/null true 2>/dev/null ||
		skip "strace cannot trace here${DDP_ROOT:+ (in $DDP_ROOT)}"
	printf '%s\n' "${NODE[1]}" "${NODE[0]}" "${NODE[0]}" >hosts
	for args in "-N2 -n3" "-n3 -m arbitrary"; do
		rm -f "$DIR"/*
		[[ $args == -N2* ]] || export SLURM_HOSTFILE=hosts
		# shellcheck disable=SC2086 # words
		launch $args \
			sh -c 'exec strace -ff -e trace=execve,execveat \
				-o "$0/$SLURM_PROCID" ddp-launch true' "$DIR"
		# A file for each process: the launcher's own one and those
		# of its helpers, which execute nothing.
		for r in 0 1 2; do
			cat "$DIR/$r".* | grep '^exec.* = 0$' >"$DIR/execs"
			same 2 "$(wc -l <"$DIR/execs")"
			sed -n 1p "$DIR/execs" | grep -F '"ddp-launch", "true"'
			sed -n 2p "$DIR/execs" | grep -F '["true"]'
		done
	done
}

@test "case 8: no scontrol and no Python in PATH, of srun or of the task" {
	mkdir bin
	in_cluster sh -c 'for c in srun ddp-launch sh cat grep; do
		ln -sf "$(command -v $c)" bin/$c; done'
	! in_cluster env "PATH=$PWD/bin" sh -c 'command -v scontrol python3' ||
		false
	printf '%s\n' "${NODE[1]}" "${NODE[0]}" "${NODE[1]}" >hosts
	export SLURM_HOSTFILE=hosts
	run -0 --separate-stderr in_cluster env "PATH=$PWD/bin" srun \
		-n3 -m arbitrary ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --layout 0,2/1
	DIR=$(new_dir)
	plugin_on
	run -0 --separate-stderr in_cluster env "PATH=$PWD/bin" srun \
		-n3 -m arbitrary --ddp-launch --ddp-bind=none sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --layout 0,2/1
	rm -r bin
}

# --- it becomes the program ---------------------------------------------------

@test "the same process" {
	launch -N2 -n4 ddp-launch bash -c 'echo $$ $SLURM_TASK_PID $PPID \
		"$(cut -d " " -f 4 /proc/$$/stat)"'
	same 4 "$(wc -l <<<"$output")"
	while read -r pid task parent stat; do
		same "$task $parent" "$pid $stat"
	done <<<"$output"
}

@test "the program has no child and no descriptor of the launcher's" {
	# No other program runs here: it would be a child.
	look='read -r c </proc/$$/task/$$/children; f=(/proc/$$/fd/*)
		echo "children $c descriptors ${f[*]##*/}"'
	plain=$(in_cluster srun -n4 bash -c "$look")
	launch -n4 ddp-launch bash -c "$look"
	same "$plain" "$output"
	says_times 4 "children  descriptors"
}

# code WANT CMD...: srun's exit code under the shim, and under the plugin.
code()
{
	local want=$1
	shift
	plugin_off
	run --separate-stderr in_cluster srun -N2 -n2 ddp-launch "$@"
	same "$want" "$status" || return 1
	plugin_on
	run --separate-stderr in_cluster srun -N2 -n2 --ddp-launch "$@"
	same "$want" "$status"
}

@test "case 23: exit codes and signals" {
	printf 'no program\n' >"$PWD/file"
	chmod 644 file
	code 0 true
	code 3 sh -c 'exit 3'
	code 255 sh -c 'exit 255'
	code 139 sh -c 'kill -SEGV $$'
	code 137 sh -c 'kill -KILL $$'
	code 143 sh -c 'kill -TERM $$'
	code 2 ./no/such/program
	code 2 no-such-program
	code 13 "$PWD/file"
	# With the reason, in one line a task.
	plugin_off
	run --separate-stderr in_cluster srun -n1 ddp-launch no-such-program
	says_times 1 "ddp: error: no-such-program: No such file or directory"
	run --separate-stderr in_cluster srun -n1 ddp-launch "$PWD/file"
	says_times 1 "ddp: error: $PWD/file: Permission denied"
}

# usr1 ARGS...: two tasks each count the USR1 they get by one scancel.
usr1()
{
	local pid job
	rm -f "$DIR"/*
	in_cluster srun -N1 -n2 "$@" "$PYTHON" -c '
import os, signal, sys, time
n = []
signal.signal(signal.SIGUSR1, lambda *a: n.append(1))
me = sys.argv[1] + "/" + os.environ["SLURM_PROCID"]
open(me + ".new", "w").write(os.environ["SLURM_JOB_ID"])
os.rename(me + ".new", me + ".up")
end = time.time() + 20
while not n and time.time() < end:
    time.sleep(0.05)
time.sleep(1)
open(me + ".got", "w").write("%s %d\n" % (os.environ["RANK"], len(n)))
' "$DIR" 3>&- &
	pid=$!
	wait_until 20 test -e "$DIR/0.up" -a -e "$DIR/1.up" || return 1
	job=$(<"$DIR/0.up")
	in_cluster scancel -s USR1 "$job.0"
	wait "$pid" || return 1
	same "$(printf '0 1\n1 1')" "$(cat "$DIR/0.got" "$DIR/1.got")"
}

@test "case 24: the program gets exactly one USR1" {
	usr1 ddp-launch
	plugin_on
	usr1 --ddp-launch
}

# --- not inside a step --------------------------------------------------------

@test "case 19: outside any step" {
	run -2 --separate-stderr in_cluster ddp-launch touch ran
	says "ddp: error: not inside a Slurm step" "srun ddp-launch"
	run -2 --separate-stderr in_cluster env -i SLURM_JOB_ID=1 \
		"$CLUSTER_DIR/bin/ddp-launch" touch ran
	says "ddp: error: not inside a Slurm step (SLURM_STEP_ID is not set)"
	run -2 --separate-stderr in_cluster env -i SLURM_JOB_ID=1 \
		"$CLUSTER_DIR/bin/ddp-launch-static" touch ran
	says "ddp: error: not inside a Slurm step (SLURM_STEP_ID is not set)"
	run -2 --separate-stderr in_cluster salloc -Q -n1 ddp-launch touch ran
	says "ddp: error: not inside a Slurm step"
	[[ ! -e ran ]]
}

@test "in a batch script: exit 2, and the srun in it works" {
	printf '%s\n' '#!/bin/sh' 'ddp-launch touch ran' 'echo "code $?"' \
		'srun -n2 ddp-launch sh -c "echo rank \$RANK"' >job
	in_cluster sbatch -W -N1 -n2 -o out.batch job
	output=$(<out.batch)
	says "not inside a Slurm step" "code 2" "rank 0" "rank 1"
	[[ ! -e ran ]]
}

@test "in a batch script that a task submitted: its variables are stale" {
	printf '%s\n' '#!/bin/sh' 'echo "step id $SLURM_STEP_ID"' \
		'ddp-launch touch ran' 'echo "code $?"' >job
	in_cluster srun -N1 -n1 ddp-launch \
		sbatch -W -N1 -n1 --overcommit -w "${NODE[3]}" -o out.stale job
	output=$(<out.stale)
	says "step id 0" "code 2" \
		"not inside a Slurm step but in the batch of job"
	[[ ! -e ran ]]
}

# handmade NAME=VALUE...: both builds in a step of four tasks that somebody made
# up, with these changes; they refuse with one line.
handmade()
{
	local b
	for b in ddp-launch ddp-launch-static; do
		run --separate-stderr timeout 50 env -i SLURM_JOB_ID=1 \
			"SLURM_CONF=$SLURM_CONF" \
			SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=1 \
			SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1 \
			SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=4 \
			SLURM_GTIDS=0,1,2,3 SLURM_STEP_NODELIST="${NODE[0]}" \
			SLURMD_NODENAME="$b-$((++MADE))" "$@" \
			"$CLUSTER_DIR/bin/$b" --master-addr=10.0.0.1 touch ran
		((status == 1 || status == 2)) || {
			printf 'exit code %s with %.200s\n' "$status" "$*"
			return 1
		}
		same 1 "$(wc -l <<<"$stderr")" || return 1
		[[ -z $output && $stderr == "ddp: error: "* &&
			${#stderr} -lt 1000 ]] || {
			printf '%.200s: %s\n' "$*" "$stderr"
			return 1
		}
		# Nothing of it reaches a terminal as control bytes.
		[[ $stderr != *[$'\001'-$'\037']* ]] || return 1
	done
	[[ ! -e ran ]]
}

@test "case 19: a step whose variables are garbage" {
	[[ -z $DDP_ROOT ]] || skip "ddp-launch itself runs in $DDP_ROOT only"
	long=$(head -c 120000 /dev/zero | tr '\0' 7)	# near the kernel's limit
	MADE=0
	for v in SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID SLURM_LOCALID \
		SLURM_NODEID SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS \
		SLURM_STEP_TASKS_PER_NODE SLURM_GTIDS; do
		for bad in -1 4294967296 18446744073709551617 "$long" '%s%n%n' \
			$'1\n2' $'1\e[2J' ' 1' 1x 0x1 1e3 ٣ ",,,"; do
			handmade "$v=$bad"
		done
	done
	for v in SLURM_JOB_ID SLURM_PROCID SLURM_STEP_NUM_TASKS \
		SLURM_STEP_TASKS_PER_NODE; do
		handmade "$v="
	done
}

@test "case 19: a step whose variables contradict each other" {
	[[ -z $DDP_ROOT ]] || skip "ddp-launch itself runs in $DDP_ROOT only"
	MADE=0
	handmade SLURM_STEP_TASKS_PER_NODE=3
	handmade SLURM_STEP_TASKS_PER_NODE='2(x2)'
	handmade SLURM_STEP_TASKS_PER_NODE='4(x1000000)'
	handmade SLURM_STEP_TASKS_PER_NODE='4(x0)'
	handmade SLURM_GTIDS=0,1,2
	handmade SLURM_GTIDS=0,1,2,3,4
	handmade SLURM_GTIDS=1,0,2,3
	handmade SLURM_GTIDS=0,2,1,3
	handmade SLURM_PROCID=4
	handmade SLURM_LOCALID=4
	handmade SLURM_LOCALID=2
	handmade SLURM_NODEID=1
	handmade SLURM_STEP_NUM_NODES=2
	handmade SLURM_STEP_NUM_TASKS=5
	says "contradict each other"
}

@test "the same in a real step" {
	for bad in SLURM_STEP_NUM_TASKS=5 SLURM_STEP_NUM_NODES=3 \
		SLURM_PROCID=4 SLURM_NODEID=7 SLURM_STEP_TASKS_PER_NODE=3,1 \
		SLURM_GTIDS=0 SLURM_STEP_NUM_TASKS=-4 SLURM_DDP_PLAN=v=1 \
		SLURM_DDP_PLAN='v=1;refused=1'; do
		fails in_cluster srun -N2 --ntasks-per-node=2 env "$bad" \
			ddp-launch touch "ran.$bad"
		says "ddp: error:"
		[[ ! -e ran.$bad ]]
	done
}

# --- options ------------------------------------------------------------------

@test "bad values: exit 2 with the list of valid ones" {
	for bad in frameworks=caffe frameworks= 'frameworks=torch,,' \
		frameworks=Torch master-port=80 master-port=65536 \
		master-port=-1 master-port=%s%n master-addr=a/b \
		$'master-addr=a\nb' master-addr= iface=a:b iface=; do
		run -2 --separate-stderr in_cluster srun -n1 ddp-launch \
			"--$bad" touch ran
		says_times 1 "ddp: error: "
		says "is not valid; valid: "
		# The twin, where empty is as good as unset.
		[[ -n ${bad#*=} ]] || continue
		name=${bad%%=*} name=${name//-/_}
		run -2 --separate-stderr in_cluster env \
			"SLURM_DDP_${name^^}=${bad#*=}" srun -n1 ddp-launch \
			touch ran
		says "is not valid; valid: "
	done
	run -2 --separate-stderr in_cluster srun -n1 ddp-launch \
		--frameworks=x touch ran
	for fw in torch jax horovod deepspeed accelerate lightning tf; do
		says "$fw"
	done
	[[ ! -e ran ]]
}

@test "long values, unknown options, no command" {
	long=$(head -c 100000 /dev/zero | tr '\0' x)
	for opt in frameworks master-port master-addr iface; do
		run -2 --separate-stderr in_cluster ddp-launch "--$opt=$long" \
			touch ran
		says "ddp: error: " "is not valid"
		((${#stderr} < 1000))
	done
	run -2 --separate-stderr in_cluster ddp-launch --nonsense touch ran
	says "--nonsense"
	run -2 --separate-stderr in_cluster srun -n1 ddp-launch
	says "ddp: error: no command"
	run -2 --separate-stderr in_cluster ddp-launch --frameworks
	[[ ! -e ran ]]
}

@test "options, their variables, and which one wins" {
	export SLURM_DDP_FRAMEWORKS=torch SLURM_DDP_MASTER_PORT=23457 \
		SLURM_DDP_MASTER_ADDR=other SLURM_DDP_IFACE=lo
	launch -n1 ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --frameworks torch --port 23457 --addr other \
		--set NCCL_SOCKET_IFNAME==lo --set GLOO_SOCKET_IFNAME=lo
	DIR=$(new_dir)
	launch -n1 ddp-launch --frameworks=jax --master-port 23458 \
		--master-addr mine --iface=none sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --frameworks jax --port 23458 --addr mine
}

@test "options after the command are the command's" {
	launch -n1 ddp-launch echo --frameworks=caffe --help
	same "--frameworks=caffe --help" "$output"
	launch -n1 ddp-launch --master-addr=a -- printenv MASTER_ADDR
	same a "$output"
}

@test "--help and --version, outside a step" {
	run -0 --separate-stderr in_cluster ddp-launch --help
	same "" "$stderr"
	for opt in --explain --frameworks=LIST "--master-port=auto|PORT" \
		"--master-addr=auto|ADDR" "--iface=none|auto|NAME" --version; do
		says_times 1 "  $opt "
	done
	run -0 in_cluster ddp-launch --version
	says "ddp-launch " "(Slurm $DEVCLUSTER_SLURM_VERSION)"
	run -0 in_cluster ddp-launch-static --version
	says "static, without Slurm"
}

@test "--explain, and SLURM_DDP_EXPLAIN: once a step" {
	for how in option variable; do
		if [[ $how == option ]]; then
			launch -N2 -n4 ddp-launch --explain true
		else
			launch --export=ALL,SLURM_DDP_EXPLAIN=1 -N2 -n4 \
				ddp-launch true
		fi
		says_times 1 "ddp: step "
		for v in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK \
			MASTER_ADDR MASTER_PORT PET_RDZV_ID \
			OMP_NUM_THREADS JAX_COORDINATOR_PORT; do
			says_times 1 "ddp:   $v "
		done
	done
}

@test "--master-port that is busy on rank 0's node: refused, and named" {
	port=$(free_ports 1)
	hold_ports 0.0.0.0 "$port"
	run -1 --separate-stderr in_cluster srun -N2 -n3 ddp-launch \
		--master-port="$port" sh -c 'touch busy.$RANK'
	release_ports
	says_times 1 "ddp: error: "
	says "node ${NODE[0]}, rank 0: master port $port is taken"
	[[ ! -e busy.0 ]]
}

@test "two calls in one task have their own options" {
	# The second call of a fast rank must not get the first one's answer.
	launch -N1 -n4 sh -c '[ $SLURM_PROCID = 0 ] || sleep 0.5
		ddp-launch --frameworks=torch --master-port=23461 true
		ddp-launch --frameworks=horovod --master-port=23462 \
			sh -c "echo \$HOROVOD_RANK \$MASTER_PORT"'
	same "$(printf '%s 23462\n' 0 1 2 3)" "$(sort <<<"$output")"
}

# --- under the plugin ---------------------------------------------------------

@test "under the plugin its values are set again, last" {
	plugin_on
	for cmd in "env RANK=99 MASTER_PORT=1 WORLD_SIZE=3 ddp-launch" \
		"env RANK=99 MASTER_PORT=1 $CLUSTER_DIR/bin/ddp-launch" \
		"env -u MASTER_ADDR RANK= ddp-launch"; do
		DIR=$(new_dir)
		# shellcheck disable=SC2086 # words
		launch -N2 -n5 --ddp-launch --ddp-master-port=23463 $cmd \
			sh -c "$RANK_DUMP" "$DIR"
		world "$DIR" --layout 0,1,2,3/4 --port 23463
		same "" "$(var "$DIR" SLURM_DDP_PLAN)"
		says_times 1 "ddp: warning: inherited RANK="
	done
}

@test "also where rank 0 is not on the first node" {
	printf '%s\n' "${NODE[1]}" "${NODE[0]}" "${NODE[1]}" >hosts
	export SLURM_HOSTFILE=hosts
	plugin_on
	mkdir -m 1777 "$DIR/again" "$DIR/plugin"
	launch -n3 -m arbitrary --ddp-launch env RANK=99 MASTER_PORT=1 \
		ddp-launch sh -c "$RANK_DUMP" "$DIR/again"
	world "$DIR/again" --layout 0,2/1
	launch -n3 -m arbitrary --ddp-launch sh -c "$RANK_DUMP" "$DIR/plugin"
	compare_env "$DIR/again" "$DIR/plugin"
}

@test "inside a script of the task's: one world, nothing of the plan is left" {
	plugin_on
	launch -N2 -n3 --ddp-launch sh -c 'RANK=99 MASTER_PORT=1 \
		exec ddp-launch sh -c "$0" "$1"' "$RANK_DUMP" "$DIR"
	world "$DIR" --layout 0,1/2
}

@test "without ddp-launch in the command no program sees a plan" {
	plugin_on
	launch -N2 -n3 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	same "" "$(var "$DIR" SLURM_DDP_PLAN)$(var "$DIR" SLURM_DDP_HET)"
}

@test "a plan of another step is refused" {
	plugin_on
	launch -n1 --ddp-launch sh -c 'echo "$SLURM_JOB_ID"'
	fails in_cluster srun -n1 --ddp-launch env \
		"SLURM_DDP_PLAN=v=1;job=1;step=0;restart=0;mode=full;fw=torch;given=0;addr=evil;port=31041;verify=0;iface=none;tasks=2(x2)" \
		ddp-launch touch ran
	says "ddp: error:"
	[[ ! -e ran ]]
}

# --- afterwards ---------------------------------------------------------------

no_process_of()
{
	! grep -lzsxF "SLURM_JOB_ID=$1" /proc/[0-9]*/environ |
		xargs -r grep -lzsF "$CLUSTER_DIR" | grep -q .
}

no_socket() { ! grep -aF '@slurm-ddp/' /proc/net/unix | grep -qF "/${NODE[0]%1}"; }

# nothing_left JOB: soon after its step, no socket and no process.
nothing_left()
{
	[[ $1 =~ ^[0-9]+$ ]] || return 1
	wait_until 3 no_socket && wait_until 3 no_process_of "$1" && return 0
	grep -aF '@slurm-ddp/' /proc/net/unix
	return 1
}

@test "nothing is left of a step" {
	launch -N2 --ntasks-per-node=8 ddp-launch sh -c 'echo $SLURM_JOB_ID'
	nothing_left "${output%%$'\n'*}"
	run --separate-stderr in_cluster srun -N1 -n4 ddp-launch no-such-program
	((status == 2))
	wait_until 3 no_socket
}

@test "nor of one in which only some tasks call it" {
	launch -N1 -n4 sh -c 'echo $SLURM_JOB_ID
		[ $SLURM_PROCID != 0 ] || exec ddp-launch true'
	nothing_left "${output%%$'\n'*}"
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
