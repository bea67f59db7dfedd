#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# case 20: what a user can write into an option, the environment or the launch
# plan. Never a crash, never a drained node; what is not valid is refused, in
# srun before anything starts, on the node before the program does.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

setup_file()
{
	launch_up --nodes 2 --gpus 0 --conf "$FAST_SBATCH"
	daemons >"$CLUSTER_TMP/daemons"
}

teardown_file() { launch_down; }

setup()
{
	launch_setup
	DIR=$(new_dir)
	cd "$DIR" || return 1
	# The longest text that Linux lets through exec.
	BIG=$(head -c 131000 /dev/zero | tr '\0' A)
	BAD=(bogus '%s%s%s%n%n%n%n' $'full\n' 'fünf' $'\x01\x7f\xff\e[31m'
		' full' '$(touch ran)' "$BIG")
	MORE=(FULL 'full,off' -1 '../../etc/passwd' $'a\nb' 'full;stateless'
		'(nil)' '((null))' "${BIG:0:512}")
}

daemons()
{
	local f
	for f in "$CLUSTER_DIR"/run/*.pid; do
		printf '%s %s\n' "${f##*/}" "$(cut -d ' ' -f 1 "$f")"
	done
}

# refused CMD...: it fails with the list of valid modes, in text that a
# terminal can show, and starts nothing. As an unprivileged user.
refused()
{
	local ours
	fails as_nobody "$@" || return 1
	ours=$(grep -a 'ddp: error:' <<<"$stderr")
	[[ $ours == *"valid: full, stateless, off"* ||
		$ours == *"512 bytes or more is not valid"* ]] &&
		[[ ${#ours} -lt 400 ]] &&
		! LC_ALL=C grep -q '[^ -~]' <<<"$ours" && return 0
	printf 'from %s\nsaid: %s\nall: %s\n' "${*:0:80}" "${ours:0:400}" \
		"${stderr:0:400}"
	return 1
}

# no_job: the next job has the next number after LAST.
no_job()
{
	local next
	next=$(in_cluster srun sh -c 'echo "$SLURM_JOB_ID"')
	same $((LAST + 1)) "$next" && [[ ! -e ran ]]
}

last_job() { LAST=$(in_cluster srun sh -c 'echo "$SLURM_JOB_ID"'); }

@test "bad values of the option" {
	last_job
	for text in "${BAD[@]}" "${MORE[@]}"; do
		refused srun "--ddp-launch=$text" touch ran
	done
	no_job
}

@test "bad values in SLURM_DDP_LAUNCH" {
	last_job
	for text in "${BAD[@]}"; do
		SLURM_DDP_LAUNCH=$text refused srun touch ran
		says "environment variable SLURM_DDP_LAUNCH"
	done
	no_job
}

@test "bad values in what sbatch hands on by SLURM_SPANK_" {
	last_job
	for text in "${BAD[@]}"; do
		export SLURM_SPANK__SLURM_SPANK_OPTION_ddp_ddp_launch=$text
		refused srun touch ran
	done
	unset SLURM_SPANK__SLURM_SPANK_OPTION_ddp_ddp_launch
	no_job
}

@test "bad values in SBATCH_DDP_LAUNCH and SALLOC_DDP_LAUNCH" {
	last_job
	for text in "${BAD[@]}"; do
		SBATCH_DDP_LAUNCH=$text refused sbatch -o /dev/null \
			--wrap "touch ran"
		SALLOC_DDP_LAUNCH=$text refused salloc touch ran
	done
	no_job
}

@test "one MB behind #SBATCH" {
	last_job
	for text in '%s%n' 'fünf' "$(head -c 1048576 /dev/zero | tr '\0' A)"; do
		printf '#!/bin/sh\n#SBATCH --ddp-launch=%s\ntouch ran\n' "$text" \
			>job
		refused sbatch -o /dev/null job
	done
	# A NUL byte ends the line for sbatch, or the script is refused.
	printf '#!/bin/sh\n#SBATCH --ddp-launch=full\0off\ntouch ran\n' >job
	fails as_nobody sbatch -o /dev/null job
	no_job
}

@test "bad values of every other option, by every way" {
	last_job
	for opt in explain frameworks master-port master-addr iface abort \
		abort-signal grace exit-grace start-timeout node-timeout \
		control lifecycle ready-timeout; do
		name=DDP_${opt^^}
		name=${name//-/_}
		for text in '%s%n%s%n' $'a\nfünf/' "$BIG"; do
			if [[ $opt != explain ]]; then
				fails as_nobody srun --ddp-launch \
					"--ddp-$opt=$text" touch ran
				says "ddp: error: --ddp-$opt"
			fi
			fails as_nobody env "SLURM_$name=$text" \
				srun --ddp-launch touch ran
			says "ddp: error: environment variable SLURM_$name: --ddp-$opt"
			fails as_nobody env "SBATCH_$name=$text" \
				sbatch -o /dev/null --wrap "touch ran"
			says "ddp: error: environment variable SBATCH_$name: --ddp-$opt"
			fails as_nobody env \
				"SLURM_SPANK__SLURM_SPANK_OPTION_ddp_ddp_${opt//-/_}=$text" \
				srun touch ran
			says "ddp: error: --ddp-$opt"
		done
	done
	no_job
}

@test "near misses of valid values" {
	last_job
	for args in --ddp-master-port= --ddp-master-port=1023 \
		--ddp-master-port=65536 --ddp-master-port=4294968319 \
		--ddp-master-port=+2000 --ddp-master-port=0x7d0 \
		--ddp-master-port=2000. --ddp-frameworks= \
		'--ddp-frameworks=torch,' --ddp-frameworks=,torch \
		--ddp-frameworks=Torch --ddp-master-addr= \
		--ddp-master-addr=-x --ddp-master-addr=a:b \
		'--ddp-master-addr=[::1]' --ddp-master-addr=fe80::1%eth0 \
		--ddp-iface= --ddp-iface=sixteen-letters0 --ddp-iface=../lo \
		--ddp-iface=^lo --ddp-iface=lo,eth0; do
		fails in_cluster srun --ddp-launch "$args" touch ran
		says "ddp: error: ${args%%=*}: "
	done
	no_job
}

@test "an option's text that only the node sees" {
	# A plugin of the user's own, with our name and our options, that
	# takes any text: Slurm sends it to the nodes, where root reads it.
	build_so "$DIR/fake.so" <<-'X'
		#include <slurm/spank.h>
		SPANK_PLUGIN(ddp, 1)
		static int any(int val, const char *text, int remote)
		{ (void)val; (void)text; (void)remote; return 0; }
		int slurm_spank_init(spank_t sp, int ac, char **av)
		{
			static char *names[] = { "ddp-launch", "ddp-explain",
				"ddp-frameworks", "ddp-master-port",
				"ddp-master-addr", "ddp-iface", "ddp-abort",
				"ddp-grace", "ddp-control",
				"ddp-report-file" };
			(void)ac; (void)av;
			for (int i = 0; i < 10; i++) {
				struct spank_option o = { names[i], "X", "x", 1,
							  i, any };
				spank_option_register(sp, &o);
			}
			return 0;
		}
	X
	own_conf "required $DIR/fake.so"
	for text in "${BAD[@]}"; do
		run -0 --separate-stderr as_nobody env SLURM_CONF="$OWN" \
			srun -N2 -n2 "--ddp-launch=$text" \
			"--ddp-master-port=$text" "--ddp-grace=$text" \
			"--ddp-report-file=$text" sh -c 'echo "R=$RANK"'
		same $'R=\nR=' "$output"
	done
}

# --- the plan, from a srun without the plugin -----------------------------------

# plans: from the file plans, each line "NAME TEXT" is the plan of one step of
# one job; the results are NAME.rc, NAME.out, NAME.err. @J and @S stand for the
# job's and the step's number.
plans()
{
	own_conf
	cat >driver.sh <<-'X'
		step=0
		while read -r name text; do
			text=$(printf '%s' "$text" |
				sed "s/@J/$SLURM_JOB_ID/g; s/@S/$step/g")
			[ "$name" != huge ] || text=$(cat huge.text)
			[ "$name" != big ] || text=$text$(head -c 100000 huge.text)
			[ "$name" != newline ] || text="$text
		;"
			SLURM_DDP_PLAN=$text srun -N2 -n3 -l \
				sh -c 'echo "ran $RANK $MASTER_ADDR:$MASTER_PORT ${SLURM_DDP_PLAN-gone}"' \
				</dev/null >$name.out 2>$name.err
			echo $? >$name.rc
			step=$((step + 1))
		done <plans
	X
	printf '%s' "$BIG" >huge.text
	run -0 --separate-stderr as_nobody env SLURM_CONF="$OWN" \
		salloc -Q -N2 -n3 sh driver.sh
}

GOOD='job=@J;step=@S;restart=0;mode=stateless;fw=torch,jax;given=0;addr=127.0.0.1;port=29999;verify=0;iface=none;tasks=2,1'

# A good plan by hand is no attack: whoever writes it sets their own variables.
@test "a plan that is right in every field is followed" {
	printf 'good v=1;%s\n' "$GOOD" >plans
	plans
	same 0 "$(<good.rc)"
	same "$(printf '%s: ran %s 127.0.0.1:29999 gone\n' 0 0 1 1 2 2)" \
		"$(sort good.out)"
}

@test "a plan with anything wrong in it is refused by the node" {
	{
		echo 'word garbage'
		echo 'format %s%n%s%n'
		echo 'v2 v=2;x=1'
		echo 'v1 v=1'
		echo 'v1b v=1;'
		echo 'refused v=1;refused=1'
		echo 'huge x'
		echo "big v=1;$GOOD;host="
		echo "newline v=1;$GOOD"
		echo "noequal v=1;$GOOD;rubbish"
		echo "unknown v=1;$GOOD;color=red"
		echo "twice v=1;$GOOD;port=29998"
		echo "missing v=1;${GOOD/addr=127.0.0.1;/}"
		echo "otherjob v=1;${GOOD/@J/999999}"
		echo "job0 v=1;${GOOD/@J/0}"
		echo "jobneg v=1;${GOOD/@J/-1}"
		echo "joblong v=1;${GOOD/@J/00000000000000@J}"
		echo "otherstep v=1;${GOOD/@S/77}"
		echo "stepbig v=1;${GOOD/@S/4294967296}"
		echo "fewer v=1;${GOOD/2,1/2}"
		echo "more v=1;${GOOD/2,1/2,1,1}"
		echo "swapped v=1;${GOOD/2,1/1,2}"
		echo "many v=1;${GOOD/2,1/3,1}"
		echo "nodes v=1;${GOOD/2,1/1(x65537)}"
		echo "tasks v=1;${GOOD/2,1/65535(x65536)}"
		echo "bomb v=1;${GOOD/2,1/1(x65536),1(x65536),1(x65536)}"
		echo "empty v=1;${GOOD/2,1/}"
		echo "comma v=1;${GOOD/2,1/2,1,}"
		echo "paren v=1;${GOOD/2,1/2(x,1}"
		echo "order v=1;$GOOD;order=0,0"
		echo "order1 v=1;$GOOD;order=1,0"
		echo "order2 v=1;$GOOD;order=0-99999"
		echo "order3 v=1;$GOOD;order=0"
		echo "port0 v=1;${GOOD/29999/0}"
		echo "port80 v=1;${GOOD/29999/80}"
		echo "portbig v=1;${GOOD/29999/65536}"
		echo "addr v=1;${GOOD/127.0.0.1/a b}"
		echo "addr2 v=1;${GOOD/127.0.0.1/}"
		echo "ip v=1;$GOOD;ip=%s"
		echo "host v=1;$GOOD;host=../x"
		echo "iface v=1;${GOOD/iface=none/iface=../../../etc}"
		echo "iface2 v=1;${GOOD/iface=none/iface=nosuch0}"
		echo "fw v=1;${GOOD/torch,jax/caffe}"
		echo "mode v=1;${GOOD/mode=stateless/mode=root}"
		echo "full v=1;${GOOD/mode=stateless/mode=full}"
		echo "given v=1;${GOOD/given=0/given=4294967295}"
		echo "verify v=1;${GOOD/verify=0/verify=2}"
	} >plans
	LIMIT=120 plans
	while read -r name _; do
		# Refused by rank 0 at least: each rank checks what it knows.
		if [[ $(<"$name.rc") != 1 ]] || grep -q '^0: ran' "$name.out" ||
		   ! grep -qE '^[0-9]: ddp: error: node [^ ]+, rank [0-9]: ' \
			"$name.err" || LC_ALL=C grep -q '[^ -~]' "$name.err"; then
			echo "$name: exit code $(<"$name.rc")"
			head -c 2000 "$name.out" "$name.err"
			bad=1
		fi
	done <plans
	[[ -z ${bad:-} ]]
	# Full mode is srun's and its controller's to give.
	same 3 "$(grep -c 'is for full mode, but srun named no controller' \
		full.err)"
}

@test "srun with the plugin drops a plan from the environment" {
	for text in garbage "v=1;refused=1" "$BIG"; do
		export SLURM_DDP_PLAN=$text
		for args in "" --ddp-launch=off; do
			run -0 --separate-stderr as_nobody srun $args -N2 -n2 \
				sh -c 'echo ${SLURM_DDP_PLAN-gone} ${RANK-unset}'
			same $'gone unset\ngone unset' "$output"
		done
		launch_as_nobody -N2 -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
		world "$DIR" --count 2
		rm -f "$DIR"/*.env "$DIR"/*.cpus
	done
}

@test "a control channel in the environment: srun drops it, a node refuses it" {
	key=$(head -c 64 /dev/zero | tr '\0' a)
	good="v=1;port=9;need=1;start=1000;addrs=127.0.0.1;key=$key"
	for text in garbage "$BIG" "$good" "${good/port=9/port=99999}" \
		"${good/127.0.0.1/%s%n}" "$good;key=$key" "${good%a}"; do
		export SLURM_DDP_CHANNEL=$text
		# With the plugin it is srun's own or none.
		for args in "" --ddp-launch=off --ddp-launch=stateless \
			--ddp-launch; do
			run -0 --separate-stderr as_nobody srun $args -N2 -n2 \
				sh -c 'echo ${SLURM_DDP_CHANNEL-gone}'
			same $'gone\ngone' "$output"
		done
		# Without it the node has what the user wrote.
		own_conf
		run --separate-stderr as_nobody env SLURM_CONF="$OWN" \
			srun -N2 -n2 touch ran
		same 1 "$status"
		says "ddp: error: node "
		run ! env LC_ALL=C grep '[^ -~]' <<<"$stderr"
	done
	unset SLURM_DDP_CHANNEL
	[[ ! -e ran ]]
	wait_until 10 no_agents
}

no_agents()
{
	[[ -z $(find /proc/[0-9]*/exe -lname "*$CLUSTER_DIR/*ddp-agent" \
		2>/dev/null) ]]
}

@test "names of report files that are none" {
	last_job
	for text in $'a\nb' $'\e[31m' "$BIG" a%n a%; do
		fails as_nobody srun --ddp-launch "--ddp-report-file=$text" \
			touch ran
		says "ddp: error: --ddp-report-file: "
		fails as_nobody env "SLURM_DDP_REPORT_FILE=$text" \
			srun --ddp-launch touch ran
		says "variable SLURM_DDP_REPORT_FILE: --ddp-report-file"
	done
	no_job
	# No format but %j and %s; a place that is none costs the report, not the
	# step.
	launch_as_nobody -n1 --ddp-launch "--ddp-report-file=$DIR/%s%%n%%d" true
	[[ -s $DIR/0%n%d ]]
	for text in "$DIR" /proc/self/x "$DIR/no/x" /dev/full; do
		launch_as_nobody -n1 --ddp-launch "--ddp-report-file=$text" true
		says "ddp: warning: no report in "
	done
	ln -s "$DIR/target" "$DIR/link"
	run -0 --separate-stderr as_nobody srun -n1 --ddp-launch \
		"--ddp-report-file=$DIR/link" true
	[[ ! -e $DIR/target ]]
	# Root could replace a device.
	mknod "$DIR/null" c 1 3
	launch -n1 --ddp-launch "--ddp-report-file=$DIR/null" true
	says "no report in $DIR/null: what is there is no regular file"
	[[ -c $DIR/null ]]
	rm "$DIR/null"
	# Nor may a file grow: the cause is told all the same.
	run as_nobody bash -c 'set -o pipefail
		(ulimit -f 0; exec srun -n1 --ddp-launch \
			"--ddp-report-file=$0" sh -c "exit 3") 2>&1 | cat
		' "$DIR/limit"
	echo "$output"
	same 3 "$status"
	[[ $output == *"no report in $DIR/limit: File too large"* ]]
	[[ $output == *"exited with code 3"* ]]
	same "" "$(find "$DIR" -maxdepth 1 -name 'limit*')"
}

@test "a plan in the environment of sbatch: the script runs all the same" {
	for text in garbage "v=1;refused=1" "${BIG:0:130000}"; do
		rm -f out
		SLURM_DDP_PLAN=$text run -0 sbatch_wait as_nobody -o "$DIR/out" \
			--wrap 'echo script; srun sh -c "echo \${SLURM_DDP_PLAN-gone}"'
		same $'script\ngone' "$(<out)"
	done
}

# --- other things that the plugin reads ------------------------------------------

@test "inherited values with control bytes: harmless in the warning" {
	export RANK=$'\e[31m\n%s%n' MASTER_ADDR=$BIG PET_RDZV_ID='%n%n%n'
	launch_as_nobody -N2 -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 2
	says_times 1 "ddp: warning:"
	[[ ${#stderr} -lt 1000 ]]
	run ! env LC_ALL=C grep '[^ -~]' <<<"$stderr"
}

@test "restart counts, GPU lists and export lists that are none" {
	export SLURM_RESTART_COUNT=$BIG CUDA_VISIBLE_DEVICES=$BIG \
		SLURM_EXPORT_ENV=ALL,$BIG
	launch_as_nobody -N2 -n2 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	unset SLURM_RESTART_COUNT SLURM_EXPORT_ENV
	world "$DIR" --count 2 --set "PET_NPROC_PER_NODE=1"
	export CUDA_VISIBLE_DEVICES=,,,,,,
	DIR=$(new_dir)
	launch_as_nobody -N1 -n1 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
	same 1 "$(find "$DIR" -name '*.env' | wc -l)"
}

@test "a command line of 340 KB; the program's arguments are not srun's" {
	export MASTER_ADDR=n5
	run -0 --separate-stderr as_nobody sh -c 'exec srun -n1 --ddp-launch \
		sh -c "$0" "$1" --export=RANK=66 --task-prolog=/x $(seq 60000)' \
		"$RANK_DUMP" "$DIR"
	world "$DIR" --count 1
	says_times 1 "ddp: warning: inherited MASTER_ADDR=n5:"
}

@test "closed descriptors" {
	for fds in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
		rm -f "$DIR"/*.env "$DIR"/*.cpus
		run -0 as_nobody sh -c "exec srun -N2 -n2 --ddp-launch \
			sh -c \"\$0\" \"\$1\" $fds" "$RANK_DUMP" "$DIR"
		world "$DIR" --count 2
	done
}

@test "few descriptors, little memory" {
	run -0 as_nobody sh -c 'ulimit -n 32; exec srun -N2 -n2 --ddp-launch \
		sh -c "$0" "$1"' "$RANK_DUMP" "$DIR"
	world "$DIR" --count 2
}

@test "the accounting has what was" {
	id=$(in_cluster srun -N2 -n2 --ddp-launch sh -c 'echo "$SLURM_JOB_ID"' |
		sort -u)
	same "COMPLETED|0:0" "$(step_state "$id.0")"
	own_conf
	export SLURM_DDP_PLAN=garbage
	run -1 in_cluster env SLURM_CONF="$OWN" srun -N2 -n2 touch ran
	unset SLURM_DDP_PLAN
	same "FAILED|1:0" "$(step_state "$((id + 1)).0")"
	[[ ! -e ran ]]
	same "" "$(in_cluster squeue -h)"
}

@test "every daemon lives, the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
	same "$(<"$CLUSTER_TMP/daemons")" "$(daemons)"
	while read -r _ pid; do kill -0 "$pid"; done <"$CLUSTER_TMP/daemons"
	same "" "$(in_cluster sinfo -h -R)"
	launch -N2 -n2 --ddp-launch true
}
