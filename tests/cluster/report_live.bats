#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ddp-report and steps that still run: their values come from the nodes, where
# a plugin of the tests' own says what every process did.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch
load report

setup_file()
{
	command -v gcc >/dev/null || skip "no gcc"
	# In /tmp, which every root has; users' commands look into it too.
	PLUGINS=$(mktemp -d /tmp/ddp-report.XXXXXX)
	export PLUGINS
	chmod 755 "$PLUGINS"
	mkdir "$PLUGINS/include"
	ln -s "${DDP_ROOT:-}/usr/include/slurm" "$PLUGINS/include/slurm"
	gcc -shared -fPIC -I"$PLUGINS/include" "$TESTS/fake_gather.c" \
		-o "$PLUGINS/acct_gather_interconnect_known.so"
	cluster_init
	launch_up --nodes 2 --conf "AccountingStorageTRES=$REPORT_TRES" \
		--conf "$FAST_SBATCH" --conf JobAcctGatherFrequency=1 \
		--conf AcctGatherInterconnectType=acct_gather_interconnect/known \
		--conf "PluginDir=$(plugin_dir):$PLUGINS"
	cd "$CLUSTER_TMP" || return 1
	start_job
}

teardown_file()
{
	launch_down
	rm -rf -- "${PLUGINS:-/tmp/none}"
}
setup() { launch_setup; }

# Where the distribution has Slurm's own plugins.
plugin_dir()
{
	local f
	for f in "${DDP_ROOT:-}"/usr/lib/*/slurm-wlm "${DDP_ROOT:-}"/usr/lib*/slurm; do
		[[ -d $f ]] || continue
		printf '%s\n' "${f#"${DDP_ROOT:-}"}"
		return
	done
	return 1
}

# A job of nobody's on two nodes: one step that has ended, one that runs.
start_job()
{
	cat >job.sh <<-'X'
		#!/bin/sh
		srun -n2 -N2 --gres=gpu:1 sleep 4
		srun -n4 -N2 --gres=gpu:2 \
			sh -c 'echo $PPID >stepd.$SLURMD_NODENAME; exec sleep 300'
	X
	JOB=$(as_nobody sbatch --parsable -o /dev/null -N2 -n4 --gres=gpu:2 job.sh)
	export JOB
	wait_until 60 step_recorded 1
}

step_recorded()
{
	[[ -n $(sql "SELECT id_step FROM $(cluster_name)_step_table
		JOIN $(cluster_name)_job_table USING (job_db_inx)
		WHERE id_job=$JOB AND id_step=$1") ]]
}

# step_live: the running step has values.
step_live()
{
	run report "$JOB.1" --parsable
	[[ $(value "$JOB" 1 sm_mean_percent) == 50.000 ]]
}

@test "a running step's values are those of now" {
	wait_until 30 step_live
	run -0 --separate-stderr report "$JOB" --parsable
	same "" "$stderr"
	# Four tasks: sums over tasks and nodes, means and peaks are not.
	has "$JOB" 1 state=RUNNING end_time= nodes=2 tasks=4 gpus=4 \
		sm_mean_percent=50.000 sm_peak_percent=90.000 \
		dram_mean_percent= dram_peak_percent= \
		nvlink_received_bytes=4000000 nvlink_sent_bytes=8000000 \
		pcie_received_bytes= energy_joules=28 idle_gpu_seconds=0
	# The step that has ended, from the database.
	has "$JOB" 0 state=COMPLETED sm_mean_percent=50.000 \
		nvlink_received_bytes=2000000 energy_joules=14
	has "$JOB" "" state=RUNNING sm_mean_percent=50.000 \
		nvlink_received_bytes=6000000 energy_joules=42
	run -0 --separate-stderr report "$JOB" --json
	of_schema
	same '[null, "RUNNING"]' "$(json '[d["jobs"][0][k] for k in ("end_time", "state")]')"
}

@test "its user sees them, another one what the database has" {
	wait_until 30 step_live
	run -0 --separate-stderr as_nobody ddp-report "$JOB.1" --parsable
	same "" "$stderr"
	has "$JOB" 1 sm_mean_percent=50.000
	run -0 --separate-stderr timeout 60 "$DEVCLUSTER" --dir "$CLUSTER_DIR" \
		--user daemon run -- ddp-report "$JOB" --parsable
	same "" "$stderr"
	has "$JOB" 1 state=RUNNING sm_mean_percent= energy_joules=
	has "$JOB" 0 sm_mean_percent=50.000
	# Not the running step's share: at least this.
	has "$JOB" "" energy_joules=14 marks=+
}

@test "a step's daemon that does not answer costs values, and 15 s at most" {
	wait_until 30 step_live
	p=$(<"stepd.$(cluster_node 1)")
	[[ $(<"/proc/$p/comm") == slurmstepd ]]
	kill -STOP "$p"
	t=$SECONDS
	run --separate-stderr report "$JOB" --parsable
	t=$((SECONDS - t))
	kill -CONT "$p"
	same "0 " "$status $stderr"
	((t >= 10 && t <= 20))
	has "$JOB" 1 sm_mean_percent=
	has "$JOB" 0 sm_mean_percent=50.000
}

@test "--watch goes from values of now to those of the database" {
	wait_until 30 step_live
	report "$JOB.1" --watch=1 >out 2>err 3>&- &
	pid=$!
	wait_until 20 grep -q "RUNNING .* 50 " out
	in_cluster scancel "$JOB"
	wait "$pid"
	grep -q "CANCELLED" out
	same "" "$(<err)"
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
