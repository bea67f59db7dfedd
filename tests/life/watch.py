# SPDX-License-Identifier: Apache-2.0
"""Processes that note themselves in a file, watched by pidfd until they end."""
import os
import select
import signal
import time


class Watched:
    """Lines are "WORD PID RANK NS": start and child are processes that come,
    fault is where one breaks, failed where a call gave an error."""

    def __init__(self, path):
        self.path, self.offset = path, 0
        self.fds = {}           # pidfd: pid
        self.gone = {}          # pid: ns
        self.faults = []        # ns
        self.words = []         # (word, pid, rank, ns)
        self.poll = select.poll()

    def read(self):
        try:
            with open(self.path, "rb") as f:
                f.seek(self.offset)
                data = f.read()
        except FileNotFoundError:
            return
        data = data[:data.rfind(b"\n") + 1]
        self.offset += len(data)
        for line in data.decode().splitlines():
            word, pid, rank, ns = line.split()
            self.words.append((word, int(pid), int(rank), int(ns)))
            if word in ("fault", "failed"):
                self.faults.append(int(ns))
            if word in ("start", "child"):
                self.add(int(pid))

    def add(self, pid):
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.gone[pid] = time.monotonic_ns()
            return
        self.fds[fd] = pid
        self.poll.register(fd, select.POLLIN)

    def step(self, ms):
        """Waits at most ms for news."""
        self.read()
        for fd, _ in self.poll.poll(ms) if self.fds else ():
            self.gone[self.fds.pop(fd)] = time.monotonic_ns()
            self.poll.unregister(fd)
            os.close(fd)
        if not self.fds:
            time.sleep(ms / 1000)

    def alive(self):
        self.read()
        return list(self.fds.values())

    def kill(self):
        """By pidfd: never another process of the same number."""
        self.read()
        for fd in list(self.fds):
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = {}

    def count(self, word):
        return sum(1 for w in self.words if w[0] == word)

    def last_gone(self):
        return max(self.gone.values()) if self.gone else None
