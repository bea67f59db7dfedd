#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""watch.py SOCKET RANKS fail|agent|COMMAND...: waits for that many ranks (see
rank.c), lets something fail, and says after how many milliseconds the last
rank was gone. Prints "ready", then "MS ENDED" (or "error WHY").

    fail     the rank that came last exits with 7; counts from its own time
    agent    SIGKILL for the ddp-agent that watches the rank that came last
    COMMAND  is run; counts from its start
"""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

LIMIT = 120


def agent_of(pid):
    """The ddp-agent that holds a pidfd of this rank."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/comm", encoding="ascii") as f:
                if f.read().strip() != "ddp-agent":
                    continue
            for fd in os.listdir(f"/proc/{entry}/fdinfo"):
                with open(f"/proc/{entry}/fdinfo/{fd}",
                          encoding="ascii") as f:
                    if f"Pid:\t{pid}\n" in f.read():
                        return int(entry)
        except (OSError, ValueError):
            continue
    raise RuntimeError(f"no ddp-agent watches {pid}")


def act(what, last):
    """Lets it fail; the time of that."""
    conn, pid = last
    if what == ["fail"]:
        conn.send(b"x")
        return struct.unpack("=Q", conn.recv(8))[0]
    if what == ["agent"]:
        agent = agent_of(pid)
        start = time.monotonic_ns()
        os.kill(agent, signal.SIGKILL)
        return start
    start = time.monotonic_ns()
    subprocess.run(what, check=True, stdout=subprocess.DEVNULL)
    return start


def gather(server, count):
    ranks = {}
    last = None
    server.settimeout(LIMIT)
    while len(ranks) < count:
        conn, _ = server.accept()
        if conn.recv(16) != b"here":
            raise RuntimeError("a rank ended too early")
        pid = struct.unpack("3i", conn.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        ranks[os.pidfd_open(pid)] = conn
        last = conn, pid
    return ranks, last


def watch(path, count, what):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        os.chmod(path, 0o777)
        server.listen(count)
        print("ready", flush=True)
        ranks, last = gather(server, count)
        os.unlink(path)
    poll = select.poll()
    for fd in ranks:
        poll.register(fd, select.POLLIN)
    time.sleep(0.3)     # what the start left to do is over
    start = act(what, last)
    end = time.monotonic() + LIMIT
    gone = start
    left = set(ranks)
    while left:
        for fd, _ in poll.poll(max(0, end - time.monotonic()) * 1000):
            gone = time.monotonic_ns()
            poll.unregister(fd)
            left.discard(fd)
        if time.monotonic() > end:
            raise RuntimeError(f"{len(left)} ranks are still there")
    print(f"{(gone - start) / 1e6:.3f} {count}", flush=True)


def main():
    try:
        watch(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
    except (OSError, RuntimeError, struct.error,
            subprocess.SubprocessError) as error:
        print(f"error {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
