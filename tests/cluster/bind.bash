# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034 # bats sets output, stderr
#
# A node for the tests of binding, on whatever machine this is: CPU 0 is NUMA
# node 0 and CPU 1 is NUMA node 1, says a saved topology (topology=), and there
# are four GPUs:
#
#	bus id	NUMA	number by bus id	/dev/nvidiaN
#	10:00.0	1	0			2
#	20:00.0	0	1			0
#	30:00.0	1	2			3
#	40:00.0	0	3			1
#
# So neither a number nor a minor number tells where a GPU is, and Slurm's GPU
# i (the device file i of gres.conf) is another one than CUDA's i where all may
# be opened.

BUSES=(0000:10:00.0 0000:20:00.0 0000:30:00.0 0000:40:00.0)
MINORS=(2 0 3 1)
UUIDS=(8932f937-d72c-4106-c12f-20bd9faed9f6 8932f938-aaaa-bbbb-cccc-20bd9faed9f6
	11112222-3333-4444-5555-666677778888 99990000-3333-4444-5555-666677778888)

# bind_up ARGS...: a cluster whose nodes look like that.
bind_up()
{
	local i
	taskset -c 0,1 true 2>/dev/null || skip "CPUs 0 and 1 may not be used"
	cluster_init
	# Heterogeneous jobs wait for backfill.
	launch_up --nodes 2 --gpus 4 --conf \
		SchedulerParameters=bf_interval=1,sched_min_interval=200000 \
		--plugin-args \
		"topology=$CLUSTER_DIR/topology.xml" "$@" || return 1
	"$PYTHON" "$TESTS/../binding/mkxml.py" here 2 \
		>"$CLUSTER_DIR/topology.xml" || return 1
	for i in 0 1 2 3; do
		bind_driver "$i" "${MINORS[i]}" || return 1
	done
}

bind_setup()
{
	launch_setup
	read -r -a NODE <<<"$DEVCLUSTER_NODES"
	first=
}

# A job that a test left beside it must not have the next one's GPUs.
bind_teardown()
{
	[[ -z $first ]] || { in_cluster scancel -u root; wait "$first" || true; }
	nodes_idle
}

# take_two_gpus: another job has the first two of NODE[0], until the test ends.
take_two_gpus()
{
	in_cluster srun -w "${NODE[0]}" -n1 --gpus-per-node=2 sleep 30 3>&- &
	first=$!
	wait_until 10 has_gpus_taken
}

has_gpus_taken()
{
	[[ $(in_cluster squeue -h -t R -o %T) == RUNNING ]]
}

# bind_driver I MINOR: what the driver says of the GPU number I.
bind_driver()
{
	local dir=$CLUSTER_DIR/proc/driver/nvidia/gpus/${BUSES[$1]}
	mkdir -p "$dir" && chmod 755 "$dir" &&
		printf 'Model: \t\t Fake\nGPU UUID: \t GPU-%s\nBus Location: \t %s\nDevice Minor: \t %s\n' \
			"${UUIDS[$1]}" "${BUSES[$1]}" "$2" >"$dir/information"
}

# The program of a rank: "RANK CUDA_VISIBLE_DEVICES DEVICE CPUS" and with WHAT
# the values of these variables.
# shellcheck disable=SC2016
SEE='set -- $SLURM_PROCID ${CUDA_VISIBLE_DEVICES-unset} ${DDP_LOCAL_DEVICE-unset} \
	$(grep ^Cpus_allowed_list /proc/self/status | cut -f 2)
for v in $WHAT; do eval "set -- \"\$@\" \${$v-unset}"; done
echo "$*"'

# placed SRUN-ARGS...: launches; the ranks' lines, sorted, in $output.
placed()
{
	launch --ddp-launch -N1 "$@" sh -c "$SEE" || return 1
	output=$(sort -n <<<"$output")
}

# is LINE...: the ranks said just that.
is() { same "$(printf '%s\n' "$@")" "$output"; }
