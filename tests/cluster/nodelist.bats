#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# cases 1-6 on a real Slurm: nodes whose names tools that parse node lists by
# hand get wrong. None of the names resolves, so that only NodeAddr can be the
# master's address.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

# NAMES COUNT: the odd nodes, each with a slurmd of its own.
ODD=(
	"gpu-compute-on-demand-dy-g4dnxlarge-[1-2] 2"
	"c1001a-s[11,17] 2"
	"c427-032 1"
	"c429-002 1"
	"b04-[09-10] 2"
	"node[099-100] 2"
	"host-[01,03] 2"
	"alpha 1"
	"beta 1"
	"rack[0-1]_blade[0-1] 4"
)

setup_file()
{
	local line names count total=1 port conf=()
	for line in "${ODD[@]}"; do
		((total += ${line##* }))
	done
	port=$(free_ports $total)
	# The only node whose NodeAddr is a name.
	conf=(--conf "NodeName=named NodeHostname=$(hostname -s) NodeAddr=localhost Port=$port CPUs=4 RealMemory=1000")
	total=1
	for line in "${ODD[@]}"; do
		names=${line% *} count=${line##* }
		conf+=(--conf "$(odd_line "$names" "$count" $((port + total)) \
			"$total")")
		((total += count))
	done
	# A step's socket has the node's name twice, and 107 bytes at most.
	cluster_init
	launch_up --conf "SlurmdSpoolDir=$CLUSTER_DIR/%n" --nodes 4 --gpus 0 "${conf[@]}"
	mapfile -t odd < <(in_cluster scontrol show hostnames \
		"$(sed 's/ [0-9]*$//' < <(printf '%s\n' "${ODD[@]}") | paste -sd,)")
	slurmd_start named "${odd[@]}"
	wait_until 30 all_idle || { in_cluster sinfo -N; return 1; }
}

# odd_line NAMES COUNT PORT ADDR: for slurm.conf.
odd_line()
{
	local ports=$3 addrs=$4
	(($2 == 1)) || ports="[$3-$(($3 + $2 - 1))]" addrs="[$4-$(($4 + $2 - 1))]"
	printf 'NodeName=%s NodeHostname=%s NodeAddr=127.77.7.%s Port=%s %s' \
		"$1" "$(hostname -s)" "$addrs" "$ports" "CPUs=4 RealMemory=1000"
}

teardown_file()
{
	slurmd_stop
	launch_down
}

setup() { launch_setup; }

# launched LIST COUNT [FIRST]: a rank on each of the nodes LIST; rank 0 is on
# FIRST (else where Slurm puts it), whose address in scontrol's record of it is
# everybody's MASTER_ADDR.
launched()
{
	local dump first addr
	dump=$(new_dir)
	launch -w "$1" -N "$2" \
		--ntasks-per-node=1 --ddp-launch sh -c "$RANK_DUMP" "$dump"
	same "" "$output$stderr" && world "$dump" --count "$2" || return 1
	first=$(var "$dump" SLURMD_NODENAME | sed -n 's/^0 //p')
	same "${3:-$first}" "$first" || return 1
	addr=$(in_cluster scontrol -o show node "$first" |
		sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p')
	[[ -n $addr ]] || return 1
	same "$(seq -f "%g $addr" 0 $(($2 - 1)))" "$(var "$dump" MASTER_ADDR)"
}

@test "no node name here resolves" {
	for n in alpha host-01 rack0_blade0 b04-09 "$(cluster_node 1)"; do
		run ! in_cluster getent hosts "$n"
	done
}

@test "a comma list, names in brackets with gaps" {
	launched alpha,beta 2 alpha
	launched "host-[01,03]" 2 host-01
	launched beta,host-01,host-03 3 beta
	launched "alpha,host-[01,03],c427-032" 4 alpha
}

@test "the whole dashed prefix" {
	launched "gpu-compute-on-demand-dy-g4dnxlarge-[1-2]" 2 \
		gpu-compute-on-demand-dy-g4dnxlarge-1
	launched "c1001a-s[11,17]" 2 c1001a-s11
	launched c427-032,c429-002 2 c427-032
	launched "gpu-compute-on-demand-dy-g4dnxlarge-2,c1001a-s17" 2
}

@test "zero padding" {
	launched "b04-[09-10]" 2 b04-09
	launched "node[099-100]" 2 node099
	launched b04-10 1 b04-10
}

@test "two dimensions" {
	launched "rack[0-1]_blade[0-1]" 4 rack0_blade0
	launched "rack1_blade[0-1]" 2 rack1_blade0
	launched rack0_blade1,rack1_blade1 2 rack0_blade1
}

@test "a list in another order than Slurm's" {
	launched node100,node099 2 node099
	launched rack1_blade1,rack0_blade1 2 rack0_blade1
}

@test "all odd nodes at once" {
	launched "$(in_cluster sinfo -h -o %N)" 23
}

@test "SLURM_HOSTFILE with -m arbitrary: rank 0 is not on the list's first" {
	n1=$(cluster_node 1) n4=$(cluster_node 4)
	printf '%s\n' "$n4" "$n4" "$n1" >hosts
	dump=$(new_dir)
	export SLURM_HOSTFILE=hosts
	launch -n3 \
		-m arbitrary --ddp-launch sh -c "$RANK_DUMP" "$dump"
	same "" "$output$stderr"
	world "$dump" --layout 0,1/2
	addr=$(in_cluster scontrol -o show node "$n4" |
		sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p')
	same "0 $addr" "$(var "$dump" MASTER_ADDR | sed -n 1p)"
	same "$(printf '0 %s\n1 %s\n2 %s' "$n4" "$n4" "$n1")" \
		"$(var "$dump" SLURMD_NODENAME)"
	same "$(printf '0 0\n1 0\n2 1')" "$(var "$dump" NODE_RANK)"

	# Interleaved: 0,2 on one node, 1,3 on the other, the list reversed.
	printf '%s\n' "$n4" "$n1" "$n4" "$n1" >hosts
	dump=$(new_dir)
	export SLURM_HOSTFILE=hosts
	launch -n4 \
		-m arbitrary --ddp-launch sh -c "$RANK_DUMP" "$dump"
	world "$dump" --layout 0,2/1,3
	same "0 $addr" "$(var "$dump" MASTER_ADDR | sed -n 1p)"
}

@test "a NodeAddr that is a name stays a name" {
	launched named 1 named
	launched "named,$(cluster_node 1)" 2
}

@test "--ddp-master-addr replaces NodeAddr" {
	for addr in 127.0.0.1 localhost ::1 my-master.example.org; do
		dump=$(new_dir)
		launch -w alpha,beta -N2 \
			--ddp-launch --ddp-master-addr="$addr" \
			sh -c "$RANK_DUMP" "$dump"
		same "" "$output$stderr"
		world "$dump" --count 2 --addr "$addr"
	done
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
