#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# run-tests: beside others
#
# The static ddp-launch inside a container's image: a root folder with nothing
# in it but that program, an entry point which sets launch variables of its
# own, as images and their hooks do, and a program that prints its environment.
# No Slurm, no Python, no library, no shell, no /proc.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; bats

load lib
load launch

setup_file()
{
	# Small job ids are those of every other fresh cluster on this machine,
	# and ddp-launch takes the port that follows from them unseen.
	launch_up --nodes 2 --gpus 0 \
		--conf "FirstJobId=$((RANDOM + 1000))"
	make_image "$CLUSTER_TMP/image"
}

teardown_file() { launch_down; }

setup()
{
	launch_setup
	read -r -a NODE <<<"$DEVCLUSTER_NODES"	# NODE[0] is the first
	DIR=$(new_dir)
	IMAGE=$CLUSTER_TMP/image
}

# make_image ROOT: no program of this system would run in it.
make_image()
{
	mkdir -p "$1/bin" "$1/out"
	chmod 1777 "$1/out"
	cp "$CLUSTER_DIR/bin/ddp-launch-static" "$1/bin/ddp-launch"
	cc -static -O1 -Wall -o "$1/bin/dump" -x c - <<-'X'
	/* The environment into /out/NODE.PID.env, and the CPUs into .cpus, as
	 * launch.bash's dump. */
	#define _GNU_SOURCE
	#include <sched.h>
	#include <stdio.h>
	#include <stdlib.h>
	#include <unistd.h>
	extern char **environ;
	static int cpus(char *path)
	{
		const char *comma = "";
		cpu_set_t set;
		FILE *f;

		__builtin_strcpy(path + __builtin_strlen(path) - 3, "cpus");
		f = fopen(path, "w");
		if (!f || sched_getaffinity(0, sizeof(set), &set))
			return 1;
		fputs("Cpus_allowed_list:\t", f);
		for (int i = 0; i < CPU_SETSIZE; i++)
			if (CPU_ISSET(i, &set)) {
				fprintf(f, "%s%d", comma, i);
				comma = ",";
			}
		fputs("\n", f);
		return fclose(f);
	}
	int main(int argc, char **argv)
	{
		const char *node = getenv("SLURMD_NODENAME");
		char path[300];
		FILE *f;

		if (argc != 2 || !node)
			return 99;
		snprintf(path, sizeof(path), "%s/%s.%ld.env", argv[1], node,
			 (long)getpid());
		f = fopen(path, "w");
		if (!f)
			return 98;
		for (char **e = environ; *e; e++)
			fwrite(*e, 1, __builtin_strlen(*e) + 1, f);
		printf("%s %s\n", getenv("SLURM_PROCID"),
		       getenv("SLURM_TASK_PID"));
		return fclose(f) || cpus(path) ? 97 : 0;
	}
	X
	cc -static -O1 -Wall -o "$1/bin/entry" -x c - <<-'X'
	/* An image's entry point: its own idea of a launch, then the command. */
	#include <stdlib.h>
	#include <unistd.h>
	int main(int argc, char **argv)
	{
		setenv("RANK", "99", 1);
		setenv("MASTER_PORT", "1", 1);
		setenv("MASTER_ADDR", "localhost", 1);
		unsetenv("WORLD_SIZE");
		setenv("PATH", "/bin", 1);
		if (argc > 1)
			execvp(argv[1], argv + 1);
		return 96;
	}
	X
}

# The dumps lack the line of the CPU set: taken from the task outside. It is
# what the program had, since a chroot changes no CPU set.
dumps()
{
	mv "$IMAGE"/out/*.env "$IMAGE"/out/*.cpus "$DIR"
}

@test "the image has nothing: no library, no Slurm, no Python, no shell" {
	same "bin bin/ddp-launch bin/dump bin/entry out" "$(cd "$IMAGE" &&
		find . -mindepth 1 -printf '%P\n' | sort | tr '\n' ' ' |
		sed 's/ $//')"
	shim=$IMAGE/bin/ddp-launch
	run -0 file -b "$shim"
	printf '# file ddp-launch: %s\n' "$output" >&3
	says "ELF 64-bit" "statically linked"
	# Its exit code is 1 for what it has nothing to list of.
	run -1 ldd "$shim"
	printf '# ldd ddp-launch: %s\n' "${output#$'\t'}" >&3
	says "not a dynamic executable"
	run -0 "$shim" --version
	printf '# ddp-launch --version: %s\n' "$output" >&3
	says "(static, without Slurm)"
	# It asks for no loader, and runs where there is none.
	run -1 grep -F ld-linux <(readelf -lW "$shim")
	run -0 chroot "$IMAGE" /bin/ddp-launch --version
	run -127 chroot "$IMAGE" /bin/sh -c true
}

@test "under the plugin: right for every rank, against the image's values" {
	launch -N2 -n5 --ddp-launch chroot "$IMAGE" /bin/entry \
		ddp-launch dump /out
	dumps
	world "$DIR" --layout 0,1,2,3/4 --set PATH=/bin
	says_times 1 "inherited RANK=99"
	says_times 1 "inherited MASTER_ADDR=localhost"
	# The program is the task's own process.
	while read -r procid pid; do
		[[ -e $(echo "$DIR"/*."$pid".env) ]]
		same "$procid" "$(tr '\0' '\n' <"$(echo "$DIR"/*."$pid".env)" |
			sed -n 's/^SLURM_PROCID=//p')"
	done <<<"$output"
}

@test "on an arbitrary layout, and with other frameworks" {
	printf '%s\n' "${NODE[1]}" "${NODE[0]}" "${NODE[1]}" >hosts
	export SLURM_HOSTFILE=$PWD/hosts
	launch -n3 -m arbitrary --ddp-launch --ddp-frameworks=jax \
		chroot "$IMAGE" /bin/entry ddp-launch dump /out
	dumps
	world "$DIR" --layout 0,2/1 --frameworks jax --set PATH=/bin
	DIR=$(new_dir)
	launch -n3 -m arbitrary --ddp-launch --ddp-frameworks=tf,horovod \
		chroot "$IMAGE" /bin/entry /bin/ddp-launch dump /out
	dumps
	same "$(printf '0 0\n1 0\n2 1')" "$(var "$DIR" HOROVOD_LOCAL_RANK)"
	run -0 "$PYTHON" -c '
import json, sys
all = [json.loads(l.split(" ", 1)[1]) for l in sys.stdin]
assert [c["task"]["index"] for c in all] == [0, 1, 2], all
host = [w.split(":")[0] for w in all[0]["cluster"]["worker"]]
assert host[0] == host[2] != host[1], host' <<<"$(var "$DIR" TF_CONFIG)"
}

@test "nothing of the plan reaches the program" {
	launch -N2 -n2 --ddp-launch chroot "$IMAGE" /bin/entry \
		ddp-launch dump /out
	dumps
	same "" "$(var "$DIR" SLURM_DDP_PLAN)$(var "$DIR" SLURM_DDP_HET)"
}

@test "without the plugin, on two nodes: refused, with what to do" {
	fails in_cluster srun -N2 -n3 chroot "$IMAGE" /bin/entry \
		ddp-launch dump /out
	same 1 "$status"
	says_times 3 "ddp: error: "
	# Without /proc it cannot tell whose order the ranks have, so that an
	# address alone would not help.
	says "built without Slurm" "in which order this step's ranks lie" \
		"srun --ddp-launch"
	says_not --master-addr
	fails in_cluster srun -N2 -n3 chroot "$IMAGE" /bin/entry \
		ddp-launch --master-addr="${DEVCLUSTER_ADDRS%% *}" dump /out
	says "in which order this step's ranks lie"
	same "" "$(ls "$IMAGE/out")"
}

# As a shell's program: the image's entry point with /proc mounted in $0.
WITH_PROC='mount --make-rprivate / && mount -t proc proc "$0/proc" &&
	exec chroot "$0" /bin/entry "$@"'

@test "without the plugin, with /proc: the address is missing on two nodes" {
	mkdir -p "$IMAGE/proc"
	fails in_cluster srun -N2 -n3 unshare -m sh -c "$WITH_PROC" "$IMAGE" \
		ddp-launch dump /out
	rmdir "$IMAGE/proc"
	same 1 "$status"
	says_times 3 "ddp: error: "
	says "built without Slurm" "the address of rank 0's node" \
		"srun --ddp-launch" "--master-addr=ADDR"
	same "" "$(ls "$IMAGE/out")"
}

@test "without the plugin, with /proc and --master-addr: right on two nodes" {
	addr=${DEVCLUSTER_ADDRS%% *}
	mkdir -p "$IMAGE/proc"
	launch -N2 -n5 unshare -m sh -c "$WITH_PROC" "$IMAGE" \
		ddp-launch --master-addr="$addr" dump /out
	rmdir "$IMAGE/proc"
	dumps
	world "$DIR" --layout 0,1,2,3/4 --addr "$addr" --set PATH=/bin
}

@test "without the plugin, on one node: right" {
	launch -N1 -n3 chroot "$IMAGE" /bin/entry ddp-launch dump /out
	dumps
	world "$DIR" --layout 0,1,2 --addr 127.0.0.1 --set PATH=/bin
}

@test "outside a step, and an unknown program" {
	run -2 --separate-stderr in_cluster chroot "$IMAGE" /bin/entry \
		ddp-launch dump /out
	says "ddp: error: not inside a Slurm step"
	run -2 --separate-stderr in_cluster srun -n1 --ddp-launch \
		chroot "$IMAGE" /bin/entry ddp-launch python3 train.py
	says "ddp: error: python3: No such file or directory"
}

@test "afterwards the nodes are idle and the logs clean" {
	nodes_idle
	logs_clean
}
