#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# ddp-report on a real slurmdbd: jobs that ran, with times and figures put
# into their records, against what follows from these by hand.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch
load report

setup_file()
{
	command -v mariadb >/dev/null || skip "no mariadb client"
	cluster_init
	# A requeued job waits until old credentials are void: 5 s, not 120.
	launch_up --nodes 2 --conf "AccountingStorageTRES=$REPORT_TRES" \
		--conf "$FAST_SBATCH" \
		--conf "AuthInfo=socket=$CLUSTER_DIR/run/munge.sock,cred_expire=5"
	cd "$CLUSTER_TMP" || return 1
	make_jobs
	fill_jobs
}

teardown_file() { launch_down; }
setup() { launch_setup; }

# batch_job NAME USER-COMMAND ARGS...: submits the script on stdin; sets the
# variable NAME to the job's number, for all tests.
batch_job()
{
	local name=$1 id
	shift
	{ echo '#!/bin/sh'; cat; } >"$CLUSTER_TMP/$name.sh"
	id=$("$1" sbatch --parsable -o /dev/null "${@:2}" \
		"$CLUSTER_TMP/$name.sh") || return 1
	export "$name=${id%%;*}"
}

make_jobs()
{
	local JOBS
	batch_job ONE in_cluster -N1 -n4 --gres=gpu:4 --job-name=one <<-'X'
		srun -n2 --gres=gpu:4 true
	X
	batch_job TWO in_cluster -N2 -n4 --gres=gpu:4 --job-name=two <<-'X'
		srun -n4 --gres=gpu:4 true
		srun -n2 -N2 --gres=gpu:4 true
	X
	batch_job ARRAY in_cluster -N1 --gres=gpu:1 --array=3,7 <<<'srun true'
	batch_job NOGPU in_cluster -N1 --job-name=nogpu <<<'srun true'
	batch_job LATE in_cluster -N1 --gres=gpu:1 <<<'srun --gres=gpu:1 true'
	batch_job NOBODY as_nobody -N1 --gres=gpu:2 <<<'srun --gres=gpu:2 true'
	LIMIT=60 in_cluster salloc -Q -N1 -n2 --gres=gpu:2 sh -c '
		echo $SLURM_JOB_ID >salloc.id
		srun --overlap -n1 --gres=gpu:2 sleep 2 &
		srun --overlap -n1 --gres=gpu:2 sleep 2 & wait'
	export SHARED
	SHARED=$(<salloc.id)
	batch_job AGAIN in_cluster -N1 --requeue --gres=gpu:1 <<-'X'
		[ -n "$SLURM_RESTART_COUNT" ] || sleep 120
		srun --gres=gpu:1 true
	X
	wait_until 30 job_runs "$AGAIN"
	in_cluster scontrol requeue "$AGAIN"
	export HET
	HET=$(LIMIT=60 in_cluster srun -n1 --gres=gpu:1 : -n1 --gres=gpu:2 \
		sh -c 'echo $SLURM_JOB_ID' | sort -n | head -n 1)
	JOBS=("$ONE" "$TWO" "$ARRAY" "$NOGPU" "$LATE" "$NOBODY" "$SHARED"
		"$AGAIN" "$HET")
	wait_until 90 ended "${JOBS[@]}"
	wait_until 30 runs_recorded 2
}

job_runs() { [[ $(in_cluster squeue -h -o %T -j "$1") == RUNNING ]]; }

# runs_recorded N: of the job that was requeued.
runs_recorded()
{
	[[ $(sql "SELECT COUNT(*) FROM $(cluster_name)_job_table
		WHERE id_job=$AGAIN AND time_end>0") == "$1" ]]
}

fill_jobs()
{
	local i
	# One node: 4 GPUs for an hour, the batch step saw all of it.
	i=$(db_index "$ONE")
	job_time "$i" 0 3600
	step_time "$i" batch 0 3600
	step_time "$i" 0 600 3000
	fill "$i" batch "gpusm=41 gpumembw=20 gpuenergy=3600000 gpuidle=4800 nvlink=0 pcie=1000" \
		"nvlink=0 pcie=2000" "gpusm=98 gpumembw=61"
	fill "$i" 0 "gpusm=123 gpumembw=61 gpuenergy=3000000 gpuidle=100" \
		"" "gpusm=97 gpumembw=60"
	# Two nodes, 8 GPUs, 1000 s; two steps, the second without DRAM.
	i=$(db_index "$TWO")
	job_time "$i" 4000 1000
	step_time "$i" batch 4000 5000
	step_time "$i" 0 4000 4100
	step_time "$i" 1 4100 4400
	fill "$i" batch "gpusm=30 gpuidle=3000" "" "gpusm=99"
	fill "$i" 0 "gpusm=340 gpumembw=202 nvlink=4000000000 gpuidle=80" \
		"nvlink=8000000000" "gpusm=96 gpumembw=70"
	fill "$i" 1 "gpusm=90 nvlink=2000000000 gpuidle=120" "nvlink=0" \
		"gpusm=97"
	# Two steps on the same two GPUs, one after the other's half.
	i=$(db_index "$SHARED")
	job_time "$i" 6000 400
	step_time "$i" 0 6000 6400
	step_time "$i" 1 6200 6400
	fill "$i" 0 "gpusm=60 gpuenergy=80000 gpuidle=40" "" "gpusm=80"
	fill "$i" 1 "gpusm=60 gpuenergy=40000 gpuidle=20" "" "gpusm=80"
	# Nobody's: idle for nine tenths.
	i=$(db_index "$NOBODY")
	job_time "$i" 7000 1000
	step_time "$i" batch 7000 8000
	fill "$i" batch "gpusm=9 gpuidle=1800" "" "gpusm=100"
	# Two runs of a job.
	i=$(db_index "$AGAIN" 1)
	job_time "$i" 9000 100
	step_time "$i" batch 9000 9100
	fill "$i" batch "gpusm=11" "" "gpusm=12"
	i=$(db_index "$AGAIN")
	job_time "$i" 9200 100
	step_time "$i" batch 9200 9300
	fill "$i" batch "gpusm=21" "" "gpusm=22"
}

@test "one node: the batch step's figures are the job's" {
	run -0 --separate-stderr report "$ONE" --parsable
	same "" "$stderr"
	has "$ONE" "" name=one user=root state=COMPLETED elapsed_seconds=3600 \
		start_time=2024-01-02T00:00:00Z end_time=2024-01-02T01:00:00Z \
		nodes=1 gpus=4 gpu_seconds=14400 sm_mean_percent=41.000 \
		sm_peak_percent=98.000 dram_mean_percent=20.000 \
		dram_peak_percent=61.000 energy_joules=3600000 \
		idle_gpu_seconds=4800 unused_gpu_seconds=0 tasks= \
		nvlink_received_bytes=0 nvlink_sent_bytes=0 \
		pcie_received_bytes=1000 pcie_sent_bytes=2000 marks=
	has "$ONE" batch gpus=4 sm_mean_percent=41.000
	# Two tasks: 123 and 61 are sums over them.
	has "$ONE" 0 tasks=2 gpus=4 gpu_seconds=9600 sm_mean_percent=61.000 \
		dram_mean_percent=30.000 energy_joules=3000000 \
		pcie_received_bytes= idle_gpu_seconds=100
	same 3 "$(grep -c "^$ONE|" <<<"$output")"
}

@test "several nodes: steps by their GPU time, and GPUs without a step" {
	run -0 --separate-stderr report "$TWO" --parsable
	# (85 % * 100 s + 45 % * 300 s) / 400 s; the second has no DRAM.
	has "$TWO" "" gpus=8 gpu_seconds=8000 sm_mean_percent=55.000 \
		sm_peak_percent=97.000 dram_mean_percent=50.000 \
		nvlink_received_bytes=6000000000 nvlink_sent_bytes=8000000000 \
		energy_joules= unused_gpu_seconds=4800 idle_gpu_seconds=5000 \
		marks=+
	has "$TWO" batch nodes=1 gpus=4 sm_mean_percent=30.000
	has "$TWO" 0 nodes=2 tasks=4 gpus=8 sm_mean_percent=85.000
	has "$TWO" 1 tasks=2 sm_mean_percent=45.000 dram_mean_percent= \
		nvlink_sent_bytes=0
	run -0 --separate-stderr report "$TWO" --json
	of_schema
	same '[55.0, 15000000.0, 200, 4800, 5000, ["dram_mean_percent", "dram_peak_percent"]]' \
		"$(json '[float(t["sm_mean_percent"]), float(t["nvlink_received_bytes_per_second"]), t["idle_in_steps_gpu_seconds"], t["unused_gpu_seconds"], t["idle_gpu_seconds"], t["partial"]] if (t := d["jobs"][0]["total"]) else 0')"
	same '"no-step"' "$(json 'd["jobs"][0]["advice"][0]["rule"]')"
	run -0 --separate-stderr report "$TWO"
	says "2.22 GPU-hours, idle 1.39 (62 %); no step on the GPUs in 1.33" \
		"! no step ran on the GPUs for 1.3 of 2.2 GPU-hours" \
		"50+" "+ not all of the GPU time has figures"
}

@test "steps that share GPUs are marked, and count once" {
	run -0 --separate-stderr report "$SHARED" --parsable
	# 400 s of the first and 200 s of the second, of which 200 s by halves.
	has "$SHARED" "" gpus=2 energy_joules=80000 idle_gpu_seconds=40 \
		sm_mean_percent=60.000 sm_peak_percent=80.000 \
		unused_gpu_seconds=0 marks='*'
	has "$SHARED" 0 energy_joules=80000 marks='*'
	has "$SHARED" 1 energy_joules=40000 marks='*'
	run -0 --separate-stderr report "$SHARED"
	says "60*" "* steps share GPUs: each one's figures are the whole GPUs'"
	run -0 --separate-stderr report "$SHARED" --json
	of_schema
	same 'true' "$(json 'd["jobs"][0]["steps"][0]["shares_gpus"]')"
	says '"estimated"'
}

@test "JOB.STEP, JOB.batch, several jobs, a list" {
	run -0 --separate-stderr report "$ONE.0" --parsable
	same 2 "${#lines[@]}"
	has "$ONE" 0 energy_joules=3000000
	run -0 --separate-stderr report "$ONE.batch" "$TWO.1,$TWO.0" --parsable
	same 4 "${#lines[@]}"
	same "$ONE|batch $TWO|1 $TWO|0" \
		"$(tail -n +2 <<<"$output" | cut -d '|' -f 1-2 | paste -sd ' ')"
	run -0 --separate-stderr report "$ONE.0"
	says_not "batch"
	run -0 --separate-stderr report "$ONE.0" --json
	of_schema
	same '["0"]' "$(json '[s["step"] for s in d["jobs"][0]["steps"]]')"
}

@test "what is not known is said, and the rest is shown" {
	run -1 --separate-stderr report 4000000 "$ONE" --parsable
	same "ddp-report: the accounting has no job 4000000" "$stderr"
	has "$ONE" "" sm_mean_percent=41.000
	run -1 --separate-stderr report "$ONE.9"
	same "ddp-report: job $ONE has no step 9 (yet)" "$stderr"
	same "" "$output"
	run -1 --separate-stderr report "${ARRAY}_5"
	same "ddp-report: the accounting has no job ${ARRAY}_5" "$stderr"
	run -1 --separate-stderr report -M elsewhere "$ONE" --json
	says "has no job $ONE on that cluster"
	of_schema
	same '[]' "$(json 'd["jobs"]')"
}

@test "array jobs" {
	run -0 --separate-stderr report "$ARRAY" --parsable
	same "${ARRAY}_3 ${ARRAY}_7" "$(tail -n +2 <<<"$output" |
		cut -d '|' -f 1 | uniq | paste -sd ' ')"
	run -0 --separate-stderr report "${ARRAY}_7" --json
	of_schema
	same "[\"${ARRAY}_7\", $ARRAY, 7]" "$(json '[d["jobs"][0][k] for k in ("job", "array_job_id", "array_task_id")]')"
	run -0 --separate-stderr report "${ARRAY}_3.0" --parsable
	has "${ARRAY}_3" 0 state=COMPLETED gpus=1 sm_mean_percent=
}

@test "heterogeneous jobs" {
	run -0 --separate-stderr report "$HET" --parsable
	has "$HET+0" "" gpus=1
	has "$HET+1" "" gpus=2
	run -0 --separate-stderr report "$HET+1" --json
	of_schema
	same "[1, \"$HET+1\", $HET, 1, $((HET + 1))]" "$(json '[len(d["jobs"])] + [d["jobs"][0][k] for k in ("job", "het_job_id", "het_job_offset", "job_id")]')"
	# The step is one of both: a part in each component's records.
	run -0 --separate-stderr report "$HET+1.0" --parsable
	same 2 "${#lines[@]}"
}

@test "a requeued job: its last run, or each" {
	run -0 --separate-stderr report "$AGAIN" --parsable
	has "$AGAIN" "" state=COMPLETED sm_mean_percent=21.000 \
		start_time=2024-01-02T02:33:20Z
	run -0 --separate-stderr report "$AGAIN" --duplicates --parsable
	same "REQUEUED 11.000,COMPLETED 21.000" "$(awk -F'|' \
		'$2 == "" { print $8, $16 }' <<<"$output" | paste -sd ,)"
	run -0 --separate-stderr report "$AGAIN" --duplicates --json
	of_schema
	same 2 "$(json 'len(d["jobs"])')"
}

@test "jobs without GPUs have no figures, and are not in the list" {
	run -0 --separate-stderr report "$NOGPU" --parsable
	has "$NOGPU" "" gpus=0 sm_mean_percent= idle_gpu_seconds= \
		unused_gpu_seconds=
	run -0 --separate-stderr report "$NOGPU"
	says_not "GPU-hours,"
	run -0 --separate-stderr report --all-users --since now-1days --parsable
	[[ $output != *"|nogpu|"* ]]
}

@test "many jobs, and the idle GPU-hours of each user" {
	window=(--since 2024-01-02 --until 2024-01-02T23:59)
	run -0 --separate-stderr report "${window[@]}" --parsable
	# root sees all; each run counts; nobody's job is among them
	same "$(printf '%s\n' "$ONE" "$TWO" "$SHARED" "$NOBODY" "$AGAIN" \
		"$AGAIN" | sort -n)" \
		"$(tail -n +2 <<<"$output" | cut -d '|' -f 1)"
	has "$TWO" "" idle_gpu_seconds=5000
	run -0 --separate-stderr report "${window[@]}" --json
	of_schema
	# root: 4800 + 5000 + 40; of 200 GPU-seconds nothing is known
	same '[["root", 5, 23400, 9840, 200], ["nobody", 1, 2000, 1800, 0]]' \
		"$(json '[[u[k] for k in ("user", "jobs", "gpu_seconds", "idle_gpu_seconds", "unknown_gpu_seconds")] for u in d["users"]]')"
	run -0 --separate-stderr report "${window[@]}"
	grep -qE "^$TWO .* 50\+ " <<<"$output"
	says "+ not all of the GPU time has figures"
	same "root 5 6.50 2.73 42 0.06" \
		"$(grep '^root  ' <<<"$output" | tr -s ' ')"
	same "nobody 1 0.56 0.50 90 0.00" \
		"$(tail -n 1 <<<"$output" | tr -s ' ')"
	run -0 --separate-stderr report --since 2024-01-02T01:05 \
		--until 2024-01-02T01:10 --parsable
	same "$TWO" "$(tail -n +2 <<<"$output" | cut -d '|' -f 1)"
	run -0 --separate-stderr report --since 2024-01-03 --until 2024-01-04
	same "no jobs with GPUs in that time" "$output"
}

@test "users, accounts and states" {
	window=(--since 2024-01-02 --until 2024-01-03)
	run -0 --separate-stderr report "${window[@]}" --user nobody --parsable
	same "$NOBODY" "$(tail -n +2 <<<"$output" | cut -d '|' -f 1)"
	run -0 --separate-stderr report "${window[@]}" \
		--user "$(id -u nobody)" --parsable
	same 2 "${#lines[@]}"
	# A user's own are the default, whoever asks.
	run -0 --separate-stderr as_nobody ddp-report "${window[@]}" --parsable
	same "$NOBODY" "$(tail -n +2 <<<"$output" | cut -d '|' -f 1)"
	run -0 --separate-stderr as_nobody ddp-report "${window[@]}" \
		--all-users --parsable
	same 7 "${#lines[@]}"
	run -0 --separate-stderr report "${window[@]}" --state requeued --parsable
	has "$AGAIN" "" sm_mean_percent=11.000
	same 2 "${#lines[@]}"
	run -0 --separate-stderr report "${window[@]}" --state cd,failed --parsable
	same 6 "${#lines[@]}"
	run -0 --separate-stderr report "${window[@]}" --account nosuch
	same "no jobs with GPUs in that time" "$output"
	run -0 --separate-stderr report "${window[@]}" \
		--account "$(sql "SELECT account FROM $(cluster_name)_job_table WHERE id_job=$ONE")" --parsable
	has "$ONE" "" sm_mean_percent=41.000
}

@test "a wrong call is said, with exit code 2" {
	while read -r -a args; do
		run -2 --separate-stderr report "${args[@]}"
		same "" "$output"
		[[ -n $stderr ]]
	done <<-'X'
		x
		0
		1.
		1_2+3
		1 2x
		--nosuch
		--json --parsable 1
		1 --since today
		--watch --since today
		--watch=0 1
		--watch=x 1
		--watch --json 1
		--since yesterdayx
		--since now-1fortnight
		--since today --until yesterday
		--user no.such.user.here
		--user ,
		--user root --all-users
		--state SLEEPING
		--account=
		--advise-after=-1 1
		--duplicates --since today
		-M
	X
	# Nothing at all: today's jobs.
	run -0 --separate-stderr report
	run -0 --separate-stderr report --help
	says "usage: ddp-report JOB[.STEP]..."
	run -0 --separate-stderr report --version
	[[ $output =~ ^ddp-report\ [0-9] ]]
}

@test "advice comes from known figures of long enough steps" {
	run -0 --separate-stderr report "$NOBODY"
	says_times 1 "! "
	says "! step batch: it looks as if one GPU of 2 worked"
	run -0 --separate-stderr report "$NOBODY" --advise-after=1001
	says_not "! "
	run -0 --separate-stderr report "$NOBODY.batch" --json
	same '["one-gpu-busy", "batch"]' "$(json '[d["jobs"][0]["advice"][0][k] for k in ("rule", "step")]')"
	run -0 --separate-stderr report "${ARRAY}_3"
	says_not "! "
}

# name_job NAME: that of the job ONE, in the database; any bytes.
name_job()
{
	sql "UPDATE $(cluster_name)_job_table SET job_name=0x$(printf '%s' \
		"$1" | od -An -v -tx1 | tr -d ' \n') WHERE id_job=$ONE"
}

# visible: no character in $output that is not seen, or turns the others.
visible()
{
	"$PYTHON" -c 'import sys, unicodedata
text = sys.stdin.buffer.read().decode()
bad = {c for c in text if c != "\n" and unicodedata.category(c)[0] == "C"}
sys.exit(f"not visible: {bad}" if bad else 0)' <<<"$output"
}

@test "texts of the database are harmless" {
	name_job $'x\033[31m|\\n\t\r'
	run -0 --separate-stderr report "$ONE" --parsable
	same 1 "$(grep -c "^$ONE||" <<<"$output")"
	has "$ONE" "" 'name=x?[31m?\n??'
	run -0 --separate-stderr report "$ONE" --json
	of_schema
	same '"x?[31m|\\n??"' "$(json 'd["jobs"][0]["name"]')"
	run -0 --separate-stderr report "$ONE"
	says "Job $ONE \"x?[31m|\\n??\" of"
	# What becomes of other bytes is the database's character set's matter.
	for name in $'a\xc2\x9b31m\xe2\x80\xae' $'\xff\xc3' $'\xc3\xa9\xe2\x80\x8b'; do
		name_job "$name" || continue
		run -0 --separate-stderr report "$ONE" --json
		of_schema
		visible
		run -0 --separate-stderr report "$ONE" --parsable
		visible
		run -0 --separate-stderr in_cluster env LC_ALL=C.UTF-8 \
			ddp-report "$ONE"
		visible
		run -0 --separate-stderr in_cluster env LC_ALL=C ddp-report "$ONE"
		same "" "$(LC_ALL=C tr -d ' -~\n' <<<"$output")"
	done
	name_job one
}

@test "the schema refuses what is not of it" {
	run -0 --separate-stderr report "$ONE" --json
	good=$output
	of_schema
	while read -r edit; do
		output=$(sed "$edit" <<<"$good")
		[[ $output != "$good" ]]
		! of_schema || same "refused: $edit" "accepted"
	done <<-'X'
		0,/"job_id"/s//"jobid"/
		s/"gpus": 4/"gpus": "4"/
		s/"gpus": 4/"gpus": -4/
		s/"gpus": 4/"gpus": 4.5/
		s/"sm_peak_percent": 98/"sm_peak_percent": 101/
		s/"idle_is_lower_bound": false/"idle_is_lower_bound": 0/
		s/"step": "batch"/"step": "Batch"/
		s/"schema": 1/"schema": 2/
		s/T00:00:00Z/ 00:00:00/
	X
}

# on_tty COLUMNS CMD...: its output on a terminal, in $output.
on_tty()
{
	local cols=$1
	shift
	run -0 timeout 60 script -qec "stty cols $cols rows 24; $(printf '%q ' \
		"$DEVCLUSTER" --dir "$CLUSTER_DIR" run -- "$@")" /dev/null
	output=${output//$'\r'/}
}

@test "a bar on a terminal, by its width, colours and characters" {
	command -v script >/dev/null || skip "no script(1)"
	export TERM=xterm LC_ALL=C.UTF-8
	on_tty 80 ddp-report "$ONE"
	says $'\033[' "█"
	# Advice may be longer.
	same "" "$(printf '%s\n' "$output" | sed 's/\x1b\[[0-9;]*m//g' |
		awk '!/^!/ && length > 80')"
	on_tty 200 ddp-report "$ONE"
	# 41 % of 40 cells, and the peak of 98 % in the last one
	says "████████████████▍······················│"
	on_tty 40 ddp-report "$ONE"
	says_not "█"
	on_tty 120 env NO_COLOR=1 ddp-report "$ONE"
	says "█"
	says_not $'\033'
	on_tty 200 env LC_ALL=C ddp-report "$ONE"
	says "################.......................|"
	says_not "█"
	run -0 --separate-stderr report "$ONE"
	says_not "█" $'\033'
}

@test "no slurmdbd, no accounting: a message says what to do" {
	own_conf -c AccountingStoragePort=1
	run -1 --separate-stderr in_cluster env SLURM_CONF="$OWN" ddp-report "$ONE"
	same "" "$output"
	says "slurmdbd on " "gave no answer" "is it running"
	own_conf -c AccountingStorageType=accounting_storage/none
	run -1 --separate-stderr in_cluster env SLURM_CONF="$OWN" ddp-report "$ONE"
	same "" "$output"
	says "keeps no accounting in slurmdbd" "ask the administrator"
}

@test "--watch shows a job until it ends" {
	id=$(in_cluster sbatch --parsable -o /dev/null -N1 --gres=gpu:1 \
		--wrap 'sleep 4')
	id=${id%%;*}
	wait_until 20 job_runs "$id"
	run -0 --separate-stderr report "$id" --watch=1
	same "" "$stderr"
	says RUNNING COMPLETED
	(($(grep -c '^20.*Z, every 1 s$' <<<"$output") >= 3))
	# One that has ended is shown once.
	run -0 --separate-stderr report "$ONE" --watch
	says_times 1 ", every 5 s"
	run -1 --separate-stderr report 4000000 --watch
	says "has no job 4000000"
}

# ends_now JOB: as if it had ended SECONDS ago, and its step's usage not come.
ends_now()
{
	local i at
	i=$(db_index "$1")
	at=$(($(date +%s) - ${2:-0}))
	sql "UPDATE $(cluster_name)_job_table SET time_start=$at - 100,
		time_end=$at WHERE job_db_inx=$i;
		UPDATE $(cluster_name)_step_table SET time_start=$at - 100,
		time_end=0, state=1, tres_usage_in_tot='' WHERE job_db_inx=$i
		AND id_step=0"
}

@test "a step whose usage has not come yet is awaited, for a minute" {
	local said="ddp-report: 1 step ended just now, and what it used is not in slurmdbd yet: ask again in some seconds"
	run -0 --separate-stderr report "$LATE" --parsable
	same "" "$stderr"
	ends_now "$LATE"
	in_cluster sacct -nP -j "$LATE.0" -o State | grep -qx COMPLETED
	run -0 --separate-stderr report "$LATE.0" --parsable
	same "$said" "$stderr"
	has "$LATE" 0 state=COMPLETED sm_mean_percent=
	run -0 --separate-stderr report "$LATE" --json
	same "$said" "$stderr"
	of_schema
	run -0 --separate-stderr report "$LATE.batch"
	same "" "$stderr"
	run -0 --separate-stderr report --since now-300 --parsable
	same "$said" "$stderr"
	report "$LATE" --watch=1 >watched 2>&1 3>&- &
	wait_until 10 grep -q COMPLETED watched
	fill "$(db_index "$LATE")" 0 "gpusm=73" "" "gpusm=91"
	wait_until 10 grep -q '^0 .* 73  *91 ' watched
	wait_until 10 pid_gone "$!"
	wait "$!"
	ends_now "$LATE" 61
	run -0 --separate-stderr report "$LATE"
	same "" "$stderr"
}

# The program itself gets the signal, as from a terminal.
@test "--watch ends at once on SIGINT" {
	id=$(in_cluster sbatch --parsable -o /dev/null -N1 --gres=gpu:1 \
		--wrap 'sleep 60')
	id=${id%%;*}
	wait_until 20 job_runs "$id"
	in_cluster python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' ddp-report "$id" --watch=30 >out 2>&1 3>&- &
	pid=$!
	wait_until 20 grep -q ", every 30 s" out
	wait_until 20 grep -q "^job " out
	p=$(pgrep -f "ddp-report $id --watch=30" | while read -r p; do
		[[ $(readlink "/proc/$p/exe") != *"${CLUSTER_DIR##*/}/bin/ddp-report" ]] ||
			echo "$p"
	done)
	kill -INT "$p"
	wait_until 3 pid_gone "$p"
	wait "$pid" || status=$?
	same 130 "$status"
	same 1 "$(grep -c ", every 30 s" out)"
	in_cluster scancel "$id"
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
