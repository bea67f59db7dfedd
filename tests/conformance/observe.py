#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""observe.py DIR [--until DIR COUNT]: what a task sees, into a file of DIR.

One JSON object: the environment as the kernel handed it over (order and
repeated names included), the host's name and the CPUs the task may use.
Nothing is interpreted here; expect.py does that. The file's name has step,
task and process, so that no two tasks share one, whatever they believe of
themselves. With --until the task then waits, at most 30 s, for COUNT files in
another folder: proof that two steps ran at the same time.
"""
import json
import os
import socket
import sys
import time


def text(path):
    try:
        with open(path) as f:
            return f.read().strip()
    except OSError:
        return None


def pairs():
    """The environ block, not os.environ: Python may add to that."""
    with open("/proc/self/environ", "rb") as f:
        raw = f.read()
    for item in raw.split(b"\0"):
        name, _, value = item.decode("utf-8", "backslashreplace").partition("=")
        if item:
            yield [name, value]


def held(port):
    """Is the port bound by somebody, who may not listen?"""
    if not (port or "").isdigit() or not 0 < int(port) < 65536:
        return None
    with socket.socket() as s:
        try:
            s.bind(("", int(port)))
        except OSError:
            return port
    return None


def observation():
    cpus = sorted(os.sched_getaffinity(0))
    topology = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list"
    return {
        "environ": list(pairs()),
        "hostname": socket.gethostname(),
        "cpus": cpus,
        "online": os.sysconf("SC_NPROCESSORS_ONLN"),
        "siblings": {c: text(topology % c) for c in cpus},
        "ephemeral": text("/proc/sys/net/ipv4/ip_local_port_range"),
        "reserved": text("/proc/sys/net/ipv4/ip_local_reserved_ports"),
        "held": held(os.environ.get("MASTER_PORT")),
        "tty": [os.isatty(fd) for fd in range(3)],
    }


def write(folder, seen):
    env = dict(seen["environ"])
    ids = [env.get("SLURM_" + n, "x") for n in ("JOB_ID", "STEP_ID", "PROCID")]
    name = ".".join(ids + [str(os.getpid())])
    path = os.path.join(folder, name)
    with open(path + ".part", "w") as f:
        json.dump(seen, f)
    os.rename(path + ".part", path + ".json")


def wait_for(folder, count):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if sum(n.endswith(".json") for n in os.listdir(folder)) >= count:
            return 0
        time.sleep(0.05)
    print("observe.py: the other step did not come", file=sys.stderr)
    return 3


def main():
    write(sys.argv[1], observation())
    if sys.argv[2:3] == ["--until"]:
        return wait_for(sys.argv[3], int(sys.argv[4]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
