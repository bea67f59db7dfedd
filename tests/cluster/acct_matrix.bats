#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# GPU accounting in every shape of step: tests/acct/matrix.py has the cells.
# DDP_ACCT_RESULTS, a file, gets a line of JSON a cell more; doc/accounting.md
# has the table that `tests/acct/matrix.py table` makes of them; the cluster's
# logs are kept beside it (FILE.log.N) where a cell was wrong. DDP_ACCT_SMALL
# asks for fewer cells.
#
# shellcheck disable=SC2154 # bats

load lib
load launch
load acct

setup()
{
	[[ -n ${DDP_LONG:-} ]] || skip "takes minutes: with --all"
	cluster_init
}

teardown()
{
	[[ -d $CLUSTER_DIR ]] || return 0
	# Why a cell was wrong, the nodes' logs may say.
	[[ -z ${DDP_ACCT_RESULTS:-} || ${BATS_TEST_COMPLETED:-} == 1 ]] ||
		cp -r "$CLUSTER_DIR/log" "$DDP_ACCT_RESULTS.log.$BATS_TEST_NUMBER"
	logs_clean
	acct_down
}

# matrix GATHER INTERVAL ARGS...: of acct_up.
matrix()
{
	acct_up --nodes 8 --gpus 8 --cpus 64 --gpu-conf DdpGpuInterval="$2" \
		--conf JobAcctGatherFrequency=0 \
		--conf JobAcctGatherType="jobacct_gather/$1" "${@:3}"
	acct_setup
	"$PYTHON" "$ACCT/matrix.py" run --devcluster "$DEVCLUSTER" \
		--cluster "$CLUSTER_DIR" --tasks "$TASKS" --task "$TASK" \
		--gather "$1" --interval "$2" \
		--out "${DDP_ACCT_RESULTS:-$BATS_TEST_TMPDIR/results}" \
		${DDP_ACCT_SMALL:+--small}
	nodes_idle
}

@test "jobacct_gather/linux, a reading a second" { matrix linux 1; }

@test "jobacct_gather/cgroup, two readings a second" {
	[[ -z ${DDP_ROOT:-} && -d /sys/fs/cgroup/devices ]] ||
		skip "cgroup v1 with 22.05 only"
	matrix cgroup 0.5 --cgroup=memory
}
