#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# cases 10, 11, 12: the master port. Every rank has the same one (world says
# so), nobody else has it. In stateless mode it lies where nothing takes it by
# chance; in full mode it is held. thief.bats has those who take one on purpose.
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
	    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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

# step_ports MODE RANGE_CONF N: the ports of N steps of one job with the
# slurm.conf.
step_ports()
{
	in_cluster env SLURM_CONF="$2" salloc -Q -N2 --ntasks-per-node=1 \
		sh -c 'i=0; while [ $i -lt '"$3"' ]; do i=$((i + 1))
			srun --ddp-launch='"$1"' sh -c "[ \$RANK = 0 ] || echo \$MASTER_PORT"
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
@test "stateless: jobs 10042 and 20042, 7 and 4103, 5 and 16389: other ports" {
	# One after the other: nothing is there that would make one give way.
	for id in 5 7 4103 10042 16389 20042; do
		job_ids_from $id
		launch -N2 -n2 --ddp-launch=stateless sh -c '[ $RANK = 0 ] ||
			echo $MASTER_PORT >"$0/$SLURM_JOB_ID"' "$DIR"
	done
	for pair in "10042 20042" "7 4103" "5 16389"; do
		read -r a b <<<"$pair"
		[[ $(<"$DIR/$a") =~ ^[0-9]+$ && $(<"$DIR/$b") =~ ^[0-9]+$ ]]
		[[ $(<"$DIR/$a") != "$(<"$DIR/$b")" ]]
	done
}

# jobs_at_once MODE ID...
jobs_at_once()
{
	local mode=$1 id p pids=()
	shift
	cat_server >server.py
	for id; do
		job_ids_from "$id"
		in_cluster srun -N2 -n2 --mem=10 --ddp-launch="$mode" "$PYTHON" \
			"$PWD/server.py" "$DIR" $# >"out.$id" 2>&1 3>&- &
		pids+=("$!")
		wait_until 20 test -e "$DIR/$id.0"
	done
	for p in "${pids[@]}"; do
		wait "$p" || { tail out.*; return 1; }
	done
	same $# "$(cat "$DIR"/*.0 | sort -u | wc -l)"
}

@test "stateless: six such jobs at once, each with a server: no clash" {
	jobs_at_once stateless 30005 30007 34103 40042 46389 50042
}

@test "full: six jobs at once, each with a server: no clash" {
	jobs_at_once full 60005 60007 64103 70042 76389 80042
}

@test "stateless: ports outside the ephemeral range, no two steps share one" {
	mapfile -t ports < <(step_ports stateless "$SLURM_CONF" 20)
	same 20 "${#ports[@]}"
	for p in "${ports[@]}"; do
		((p >= 20000 && p <= 65535 && (p < LOW || p > HIGH)))
	done
	same 20 "$(printf '%s\n' "${ports[@]}" | sort -u | wc -l)"
}

@test "full: the port is held: no ordinary bind gets it, SO_REUSEADDR does" {
	cat >held.py <<-'X'
	import errno, os, socket, sys
	port = int(os.environ["MASTER_PORT"])
	for family in (socket.AF_INET, socket.AF_INET6):
	    for addr in ("", "127.0.0.1" if family == socket.AF_INET else "::1"):
	        s = socket.socket(family)
	        try:
	            s.bind((addr, port))
	            sys.exit("bound %r without SO_REUSEADDR" % addr)
	        except OSError as e:
	            if e.errno != errno.EADDRINUSE:
	                raise
	        s.close()
	s = socket.socket()
	s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
	s.bind(("", port))
	s.listen()
	print("listens")
	X
	launch_as_nobody -n1 --ddp-launch "$PYTHON" "$PWD/held.py"
	same listens "$output"
	# One of the user's, too.
	port=$(free_ports 1)
	launch_as_nobody -n1 --ddp-launch --ddp-master-port="$port" \
		"$PYTHON" "$PWD/held.py"
	same listens "$output"
}

@test "stateless: ports lie outside SrunPortRange" {
	own_conf -c SrunPortRange=20000-32000 "$(plugin_line)"
	mapfile -t ports < <(step_ports stateless "$OWN" 8)
	same 8 "${#ports[@]}"
	for p in "${ports[@]}"; do
		((p > 32000 && (p < LOW || p > HIGH)))
	done
	# Nothing is left above 20000: it looks below.
	own_conf -c SrunPortRange=20000-65000 "$(plugin_line)"
	mapfile -t ports < <(step_ports stateless "$OWN" 4)
	same 4 "${#ports[@]}"
	for p in "${ports[@]}"; do
		((p >= 1024 && (p < 20000 || p > 65000) && (p < LOW || p > HIGH)))
	done
}

@test "the site's port_range is all there is" {
	first=$(free_ports 11)
	own_conf "$(plugin_line) port_range=$first-$((first + 10))"
	for mode in stateless full; do
		mapfile -t ports < <(step_ports $mode "$OWN" 8)
		same 8 "${#ports[@]}"
		for p in "${ports[@]}"; do
			((p >= first && p <= first + 10))
		done
		# Ports that follow from the ids differ more than drawn ones.
		[[ $(printf '%s\n' "${ports[@]}" | sort -u | wc -l) -ge \
			$([[ $mode == full ]] && echo 3 || echo 6) ]]
	done
}

@test "a port that somebody holds is passed over, on whatever address" {
	for addr in 0.0.0.0 127.0.0.1 "${DEVCLUSTER_ADDRS%% *}" :: ::1; do
		first=$(free_ports 5)
		own_conf "$(plugin_line) port_range=$first-$((first + 4))"
		# All but the fourth.
		hold_ports "$addr" "$first" $((first + 1)) $((first + 2)) \
			$((first + 4))
		for mode in stateless full; do
			DIR=$(new_dir)
			run -0 --separate-stderr in_cluster env \
				SLURM_CONF="$OWN" srun -N2 -n3 \
				--ddp-launch=$mode sh -c "$RANK_DUMP" "$DIR"
			world "$DIR" --count 3 --port $((first + 3))
		done
		release_ports
	done
}

@test "every port is held: an error, and nothing starts" {
	first=$(free_ports 3)
	own_conf "$(plugin_line) port_range=$first-$((first + 2))"
	hold_ports 0.0.0.0 "$first" $((first + 1)) $((first + 2))
	fails in_cluster env SLURM_CONF="$OWN" srun -N2 -n2 \
		--ddp-launch=stateless touch ran
	says "ddp: error: " "candidate ports are in use" --ddp-master-port=PORT
	fails in_cluster env SLURM_CONF="$OWN" srun -N2 -n2 --ddp-launch \
		touch ran
	same 75 "$status"
	says "ddp: the launch failed: no master port on node ${DEVCLUSTER_NODES%% *}: no port of $first-$((first + 2)) is free"
	[[ ! -e ran ]]
}

@test "an explicit port" {
	port=$(free_ports 1)
	for mode in full stateless; do
		DIR=$(new_dir)
		launch -N2 -n3 --ddp-launch=$mode --ddp-master-port="$port" \
			sh -c "$RANK_DUMP" "$DIR"
		same "" "$stderr"
		world "$DIR" --count 3 --port "$port"
	done
}

@test "an explicit port that is held: an error that names it" {
	port=$(free_ports 1)
	hold_ports 0.0.0.0 "$port"
	fails in_cluster srun -N2 -n2 --ddp-launch=stateless \
		--ddp-master-port="$port" touch ran
	says "ddp: error: master port $port is in use on "
	fails in_cluster srun -N2 -n2 --ddp-launch --ddp-master-port="$port" \
		touch ran
	same 75 "$status"
	says "ddp: the launch failed: no master port on node ${DEVCLUSTER_NODES%% *}: port $port is in use by python3 (pid ${HOLDERS[0]}, user id 0)"
	[[ ! -e ran ]]
}

@test "an explicit port in the ephemeral range: one warning, or it is held" {
	port=$(((LOW + HIGH) / 2))
	launch -N2 -n4 --ddp-launch=stateless --ddp-master-port=$port \
		sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 4 --port $port
	says_times 1 "ddp: warning:"
	says "master port $port lies in net.ipv4.ip_local_port_range"
	DIR=$(new_dir)
	launch -N2 -n4 --ddp-launch --ddp-master-port=$port \
		sh -c "$RANK_DUMP" "$DIR"
	world "$DIR" --count 4 --port $port
	same "" "$stderr"
}

# grabbed MODE: a step whose port the node's Prolog takes, which runs when srun
# has already chosen.
grabbed()
{
	port=$(free_ports 1)
	rm -f grabbed
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
	fails in_cluster srun -N1 -n2 --ddp-launch="$1" \
		--ddp-master-port="$port" sh -c 'touch ran.$RANK'
	mv -f prolog.was prolog
	kill "$(<grab.pid)"
}

@test "a port taken between srun's choice and the start: an error" {
	grabbed stateless
	says "ddp: error: node ${DEVCLUSTER_NODES%% *}, rank 0: master port $port " \
		--ddp-master-port=PORT
	[[ ! -e ran.0 ]]
	rm -f ran.1
	grabbed full
	same 75 "$status"
	says "no master port on node ${DEVCLUSTER_NODES%% *}: port $port is in use by python3"
	[[ ! -e ran.0 && ! -e ran.1 ]]
}

# steps_at_once MODE...: six steps of one job, each with a server.
steps_at_once()
{
	run -0 --separate-stderr in_cluster salloc -Q -N2 -n2 sh -c '
		python=$0 server=$1 dir=$2
		shift 2
		for i in 1 2 3 4 5 6; do
			srun --overlap --ddp-launch=$1 "$python" "$server" "$dir" 6 &
			pids="$pids $!"
			set -- $* $1
			shift
		done
		rc=0
		for p in $pids; do wait $p || rc=1; done
		exit $rc' "$PYTHON" "$PWD/server.py" "$DIR" "$@"
	same "" "$output$stderr"
	same 6 "$(cat "$DIR"/* | sort -u | wc -l)"
}

@test "steps of one job at once, each with a server: no clash" {
	cat_server >server.py
	for modes in full stateless "full stateless"; do
		DIR=$(new_dir)
		# shellcheck disable=SC2086 # words
		steps_at_once $modes
	done
}

# A rank of PyTorch: rank 0 has the store, the others talk to it.
cat_store()
{
	cat <<-'X'
	import datetime, os, socket, sys, time
	import torch.distributed as dist
	rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
	port = int(os.environ["MASTER_PORT"])
	args = {} if len(sys.argv) < 3 else {"use_libuv": sys.argv[2] == "uv"}
	s = socket.socket()
	try:
	    if rank == 0:	# held until the store has it
	        s.bind(("", port))
	        sys.exit("the port was not held")
	except OSError:
	    pass
	s.close()
	time.sleep(float(sys.argv[1]))
	store = dist.TCPStore(os.environ["MASTER_ADDR"], port, n, rank == 0,
	                      datetime.timedelta(seconds=20), **args)
	store.set(str(rank), os.environ["PET_RDZV_ID"])
	for i in range(n):
	    if store.get(str(i)).decode() != os.environ["PET_RDZV_ID"]:
	        sys.exit("another step's store")
	store.add("done", 1)
	while rank == 0 and store.add("done", 0) < n:
	    time.sleep(0.01)
	print("met")
	X
}

@test "full: PyTorch's own store listens on the held port, soon or late" {
	in_cluster "$PYTHON" -c 'import torch' 2>/dev/null ||
		skip "no torch for $PYTHON${DDP_ROOT:+ in $DDP_ROOT}"
	cat_store >store.py
	# Which stores has this PyTorch? Before 2.2 one, then also libuv's; that
	# is left out of Debian's.
	mapfile -t kinds < <(in_cluster "$PYTHON" - <<-'X'
		import torch.distributed as d
		for name, args in (("", {}), ("plain", {"use_libuv": False}),
		                   ("uv", {"use_libuv": True})):
		    try:
		        d.TCPStore("127.0.0.1", 0, 1, True, **args)
		        print(name)
		    except (TypeError, RuntimeError):
		        pass
	X
	)
	((${#kinds[@]}))
	for kind in "${kinds[@]}"; do
		for late in 0 1; do
			launch_as_nobody -N2 -n4 --ddp-launch "$PYTHON" \
				"$PWD/store.py" $late ${kind:+"$kind"}
			same "$(yes met | sed 4q)" "$output"
			same "" "$stderr"
		done
	done
	# Several in one job, at once.
	run -0 --separate-stderr as_nobody salloc -Q -N2 -n2 sh -c '
		for i in 1 2 3; do
			srun --overlap --ddp-launch "$0" "$1" 0.5 $2 &
			pids="$pids $!"
		done
		for p in $pids; do wait $p || exit 1; done' "$PYTHON" \
		"$PWD/store.py" "${kinds[0]}"
	same "$(yes met | sed 6q)" "$output"
}

# What a store on libuv does, with the library itself.
@test "full: libuv listens on the held port" {
	cat >uv.py <<-'X'
	import ctypes, os, socket, sys
	uv = ctypes.CDLL("libuv.so.1")
	uv.uv_default_loop.restype = ctypes.c_void_p
	loop = ctypes.c_void_p(uv.uv_default_loop())
	port = int(os.environ["MASTER_PORT"])
	for make, any in ((uv.uv_ip6_addr, b"::"), (uv.uv_ip4_addr, b"0.0.0.0")):
	    tcp = ctypes.create_string_buffer(uv.uv_handle_size(12))	# UV_TCP
	    addr = ctypes.create_string_buffer(64)
	    never = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)(
	        lambda *_: None)
	    for rc in (uv.uv_tcp_init(loop, tcp), make(any, port, addr),
	               uv.uv_tcp_bind(tcp, addr, 0), uv.uv_listen(tcp, 8, never)):
	        if rc:
	            sys.exit("libuv: %d" % rc)
	    socket.create_connection((os.environ["MASTER_ADDR"], port), 5).close()
	    uv.uv_close(tcp, None)
	    uv.uv_run(loop, 0)
	print("listens")
	X
	in_cluster "$PYTHON" -c 'import ctypes; ctypes.CDLL("libuv.so.1")' ||
		skip "no libuv${DDP_ROOT:+ in $DDP_ROOT}"
	launch_as_nobody -n1 --ddp-launch "$PYTHON" "$PWD/uv.py"
	same listens "$output"
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
