#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# cases 10, 11, 12: the master port. Every rank has the same one (world says
# so), nobody else has it, and it lies where nothing takes it by chance.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

setup_file()
{
	cluster_init
	launch_up --nodes 2 --gpus 0 --conf "Prolog=$CLUSTER_DIR/tmp/prolog"
	printf '#!/bin/sh\nexit 0\n' >"$CLUSTER_TMP/prolog"
	chmod 755 "$CLUSTER_TMP/prolog"
}

teardown_file() { launch_down; }

setup()
{
	launch_setup
	DIR=$(new_dir)
	read -r LOW HIGH </proc/sys/net/ipv4/ip_local_port_range
}

teardown() { release_ports; }

# The program of a rank: rank 0 listens where it was told, as a framework's
# store does, and stays until everybody of all launches has been seen.
cat_server()
{
	cat <<-'X'
	import os, socket, sys, time
	folder, want = sys.argv[1], int(sys.argv[2])
	if os.environ["RANK"] == "0":
	    s = socket.socket()
	    s.bind(("0.0.0.0", int(os.environ["MASTER_PORT"])))
	    s.listen()
	    name = "%s/%s.%s" % (folder, os.environ["SLURM_JOB_ID"],
	                         os.environ["SLURM_STEP_ID"])
	    with open(name, "w") as f:
	        f.write(os.environ["MASTER_PORT"] + "\n")
	    end = time.time() + 45
	    while len([n for n in os.listdir(folder) if "." in n]) < want:
	        if time.time() > end:
	            sys.exit("others have not come")
	        time.sleep(0.05)
	    time.sleep(0.5)
	X
}

# step_ports RANGE_CONF N: the ports of N steps of one job with the slurm.conf.
step_ports()
{
	in_cluster env SLURM_CONF="$1" salloc -Q -N2 --ntasks-per-node=1 \
		sh -c 'i=0; while [ $i -lt '"$2"' ]; do i=$((i + 1)) 
			srun --ddp-launch sh -c "[ \$RANK = 0 ] || echo \$MASTER_PORT"
		done'
}

# job_ids_from ID: the next job has this id; ids only grow.
job_ids_from()
{
	local conf=$CLUSTER_DIR/etc/slurm.conf
	sed -i '/^FirstJobId=/d' "$conf"
	echo "FirstJobId=$1" >>"$conf"
	in_cluster scontrol reconfigure
	wait_until 20 all_idle_or_busy
}

all_idle_or_busy()
{
	run in_cluster sinfo -h -o %t
	((status == 0)) && ! grep -qvE '^(idle|mix|alloc)$' <<<"$output"
}

# The first test, while job ids are small.
@test "jobs 10042 and 20042, 7 and 4103, 5 and 16389: other ports" {
	# One after the other: nothing is there that would make one give way.
	for id in 5 7 4103 10042 16389 20042; do
		job_ids_from $id
		launch -N2 -n2 --ddp-launch sh -c '[ $RANK = 0 ] ||
			echo $MASTER_PORT >"$0/$SLURM_JOB_ID"' "$DIR"
	done
	for pair in "10042 20042" "7 4103" "5 16389"; do
		read -r a b <<<"$pair"
		[[ $(<"$DIR/$a") =~ ^[0-9]+$ && $(<"$DIR/$b") =~ ^[0-9]+$ ]]
		[[ $(<"$DIR/$a") != "$(<"$DIR/$b")" ]]
	done
}

@test "six such jobs at once, each with a server: no clash" {
	cat_server >server.py
	for id in 30005 30007 34103 40042 46389 50042; do
		job_ids_from $id
		in_cluster srun -N2 -n2 --mem=10 --ddp-launch "$PYTHON" \
			"$PWD/server.py" "$DIR" 6 >"out.$id" 2>&1 3>&- &
		pids+=("$!")
		wait_until 20 test -e "$DIR/$id.0"
	done
	for p in "${pids[@]}"; do wait "$p" || { tail out.*; false; }; done
	same 6 "$(cat "$DIR"/*.0 | sort -u | wc -l)"
}

@test "ports lie outside the ephemeral range, and no two steps share one" {
	mapfile -t ports < <(step_ports "$SLURM_CONF" 20)
	same 20 "${#ports[@]}"
	for p in "${ports[@]}"; do
		((p >= 20000 && p <= 65535 && (p < LOW || p > HIGH)))
	done
	same 20 "$(printf '%s\n' "${ports[@]}" | sort -u | wc -l)"
}

@test "ports lie outside SrunPortRange" {
	own_conf -c SrunPortRange=20000-32000 "$(plugin_line)"
	mapfile -t ports < <(step_ports "$OWN" 8)
	same 8 "${#ports[@]}"
	for p in "${ports[@]}"; do
		((p > 32000 && (p < LOW || p > HIGH)))
	done
	# Nothing is left above 20000: it looks below.
	own_conf -c SrunPortRange=20000-65000 "$(plugin_line)"
	mapfile -t ports < <(step_ports "$OWN" 4)
	same 4 "${#ports[@]}"
	for p in "${ports[@]}"; do
		((p >= 1024 && (p < 20000 || p > 65000) && (p < LOW || p > HIGH)))
	done
}

@test "the site's port_range is all there is" {
	first=$(free_ports 11)
	own_conf "$(plugin_line) port_range=$first-$((first + 10))"
	mapfile -t ports < <(step_ports "$OWN" 8)
	same 8 "${#ports[@]}"
	for p in "${ports[@]}"; do
		((p >= first && p <= first + 10))
	done
	[[ $(printf '%s\n' "${ports[@]}" | sort -u | wc -l) -ge 6 ]]
}

@test "a port that somebody holds is passed over, on whatever address" {
	for addr in 0.0.0.0 127.0.0.1 "${DEVCLUSTER_ADDRS%% *}" :: ::1; do
		first=$(free_ports 5)
		own_conf "$(plugin_line) port_range=$first-$((first + 4))"
		# All but the fourth.
		hold_ports "$addr" "$first" $((first + 1)) $((first + 2)) \
			$((first + 4))
		DIR=$(new_dir)
		run -0 --separate-stderr in_cluster env SLURM_CONF="$OWN" \
			srun -N2 -n3 --ddp-launch sh -c "$RANK_DUMP" "$DIR"
		world "$DIR" --count 3 --port $((first + 3))
		release_ports
	done
}

@test "every port is held: an error, and nothing starts" {
	first=$(free_ports 3)
	own_conf "$(plugin_line) port_range=$first-$((first + 2))"
	hold_ports 0.0.0.0 "$first" $((first + 1)) $((first + 2))
	fails in_cluster env SLURM_CONF="$OWN" srun -N2 -n2 --ddp-launch \
		touch ran
	says "ddp: error: " "candidate ports are in use" --ddp-master-port=PORT
	[[ ! -e ran ]]
}

@test "an explicit port" {
	port=$(free_ports 1)
	launch -N2 -n3 --ddp-launch --ddp-master-port="$port" \
		sh -c "$RANK_DUMP" "$DIR"
	same "" "$stderr"
	world "$DIR" --count 3 --port "$port"
}

@test "an explicit port that is held: an error that names it" {
	port=$(free_ports 1)
	hold_ports 0.0.0.0 "$port"
	fails in_cluster srun -N2 -n2 --ddp-launch --ddp-master-port="$port" \
		touch ran
	says "ddp: error: master port $port is in use on "
	[[ ! -e ran ]]
}

@test "an explicit port in the ephemeral range: one warning" {
	port=$(((LOW + HIGH) / 2))
	launch -N2 -n4 --ddp-launch --ddp-master-port=$port \
		sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 4 --port $port
	says_times 1 "ddp: warning:"
	says "master port $port lies in net.ipv4.ip_local_port_range"
}

@test "a port taken between srun's choice and the start: an error" {
	# The node's Prolog runs when srun has already chosen.
	port=$(free_ports 1)
	cat >grab <<-X
		#!/bin/sh
		[ -e $PWD/grabbed ] && exit 0
		setsid $PYTHON $TESTS/hold_ports.py $PWD/grabbed 0.0.0.0 $port \
			</dev/null >/dev/null 2>&1 &
		echo \$! >$PWD/grab.pid
		for i in 1 2 3 4 5 6 7 8 9 10; do
			[ -e $PWD/grabbed ] && exit 0
			sleep 0.5
		done
	X
	chmod 755 grab
	cp prolog prolog.was
	mv -f grab prolog
	fails in_cluster srun -N1 -n2 --ddp-launch --ddp-master-port="$port" \
		sh -c 'touch ran.$RANK'
	mv -f prolog.was prolog
	kill "$(<grab.pid)"
	says "ddp: error: node ${DEVCLUSTER_NODES%% *}, rank 0: master port $port " \
		--ddp-master-port=PORT
	[[ ! -e ran.0 ]]
}

@test "steps of one job at once, each with a server: no clash" {
	cat_server >server.py
	run -0 --separate-stderr in_cluster salloc -Q -N2 -n2 sh -c '
		for i in 1 2 3 4 5 6; do
			srun --overlap --ddp-launch "$0" "$1" "$2" 6 &
			pids="$pids $!"
		done
		rc=0
		for p in $pids; do wait $p || rc=1; done
		exit $rc' "$PYTHON" "$PWD/server.py" "$DIR"
	same "" "$output$stderr"
	same 6 "$(cat "$DIR"/* | sort -u | wc -l)"
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
