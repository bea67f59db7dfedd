#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# case 10, on purpose: a program of another user that binds with SO_REUSEADDR
# and listens on every port it can get, while steps start in full mode. No step
# is ever a wrong world, and one that does not start names the thief.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

# Of no user of the tests.
THIEF_UID=12345

setup_file() { launch_up --nodes 2 --gpus 0; }
teardown_file() { launch_down; }

setup()
{
	launch_setup
	DIR=$(new_dir)
	cd "$DIR" || return 1
	THIEF=''
	# With --all a thousand in the whole file.
	STARTS=${DDP_LONG:+400}
	STARTS=${STARTS:-20}
	cat_rank >rank.py
}

teardown()
{
	[[ -z $THIEF ]] || kill -KILL "$THIEF" || true
}

# The program of a rank. Rank 0 listens as a framework's store does and tells
# each rank which step it is; the others try until somebody answers. What is
# no answer of a store is an error, as it is for PyTorch.
cat_rank()
{
	cat <<-'X'
	import os, socket, sys, time
	me = (os.environ["PET_RDZV_ID"] + "\n").encode()
	n = int(os.environ["WORLD_SIZE"])
	at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
	if os.environ["RANK"] == "0":
	    time.sleep(float(sys.argv[1]))	# it loads its libraries
	    s = socket.socket(socket.AF_INET6)
	    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
	    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
	    s.bind(("::", at[1]))
	    s.listen()
	    for c in [s.accept()[0] for _ in range(n - 1)]:
	        c.sendall(me)
	    print("met")
	    sys.exit(0)
	end = time.monotonic() + 30
	while True:
	    try:
	        with socket.create_connection(at, 5) as c:
	            got = c.makefile("rb").readline()
	        if got:
	            break
	    except OSError:
	        pass
	    if time.monotonic() > end:
	        sys.exit("nobody is there")
	    time.sleep(0.01)
	if got == me:
	    print("met")
	elif got.startswith(b"THIEF"):
	    sys.exit("no answer of a store")
	else:
	    print("WRONG WORLD: %r, this is %r" % (got, me))
	X
}

# thief LOW HIGH RING
thief()
{
	"$PYTHON" -IS "$TESTS/thief.py" "$DIR/ready" "$DIR/log" $THIEF_UID "$@" \
		</dev/null >&2 3>&- &
	THIEF=$!
	wait_until 10 test -e ready
}

# start SECONDS ARGS...: one step of three ranks. Adds to GOOD or STOLEN; fails
# where it is neither a right world nor a thief's with its name.
start()
{
	run --separate-stderr as_nobody "${CONF[@]}" srun -N2 -n3 --ddp-launch \
		"${@:2}" "$PYTHON" -IS "$DIR/rank.py" "$1"
	if [[ $output == *WRONG* ]]; then
		echo "a wrong world: $output"
		return 1
	fi
	# srun's own sockets are stolen as well: no step was made.
	[[ $status == 0 || $stderr != *"unable to initialize step request socket"* ]] ||
		return 0
	if [[ $status == 0 && $output == $'met\nmet\nmet' ]]; then
		GOOD=$((GOOD + 1))
		return 0
	fi
	STOLEN=$((STOLEN + 1))
	[[ $status == 75 && $stderr == *"ddp: "*"user id $THIEF_UID"* ]] &&
		return 0
	printf 'exit code %s\n%s\n%s\n' "$status" "$output" "$stderr"
	return 1
}

# starts SECONDS ARGS...: STARTS of them; every failure is counted in BAD.
starts()
{
	GOOD=0 STOLEN=0 BAD=0
	while ((GOOD + STOLEN < STARTS)); do
		start "$@" || BAD=$((BAD + 1))
		((BAD < 10)) || break
	done
	# Into the log, also where all is well.
	echo "# $GOOD right, $STOLEN not started, $BAD of them without the" \
		"thief's name; $(wc -l <log) ports stolen" >&3
}

@test "a thief in the kernel's range: right worlds, or its name" {
	CONF=()
	read -r low high </proc/sys/net/ipv4/ip_local_port_range
	thief "$low" "$high" 200
	starts 0.1
	same 0 "$BAD"
	# Most of its victims are not ours.
	((GOOD > 0))
}

@test "a thief in a small port_range: right worlds, or its name" {
	first=$(free_ports 32)
	own_conf "$(plugin_line) port_range=$first-$((first + 31))"
	CONF=(env SLURM_CONF="$OWN")
	thief "$first" $((first + 31)) 4
	starts 0.1
	same 0 "$BAD"
	# It is there to steal.
	((STOLEN > 0 && $(wc -l <log) > 0))
}

@test "a thief of the port that the user names" {
	port=$(free_ports 1)
	CONF=()
	STARTS=$((STARTS / 4))
	# Once it has it first, then only when the agent holds it.
	thief "$port" "$port" 0
	starts 0.3 --ddp-master-port="$port"
	same "0 0" "$BAD $GOOD"
	kill -KILL "$THIEF"
	rm ready
	thief "$port" "$port" -1
	starts 0.3 --ddp-master-port="$port"
	same 0 "$BAD"
	((STOLEN > 0 && $(wc -l <log) > 0))
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
