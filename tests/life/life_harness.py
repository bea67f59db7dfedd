# SPDX-License-Identifier: Apache-2.0
"""A harness for libddp_lifecycle.so in processes whose NCCL and MPI are played.

mini_nccl.c and mini_mpi.c log each call, and "BAD" what a real library would
crash of; prog.c does what its arguments say.
"""
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

TOP = os.path.abspath(os.environ["top_builddir"])
SRC = os.path.abspath(os.environ["top_srcdir"])
LIFE = os.path.join(TOP, "tests/life")
LIBRARY = os.path.join(TOP, ".libs/libddp_lifecycle.so")
SANITIZED = os.environ.get("SANITIZERS", "no") != "no"
LATE = os.path.join(LIFE, "libs/prog_late.so")
NCCL = os.path.join(LIFE, "libs/libnccl.so.2")
UNSEEN = ("slurm-ddp: NCCL is loaded but its calls are not seen (statically "
          "linked, or resolved by dlsym): its communicators are not ended in "
          "order")
LIMIT = 30      # seconds for any process here; most need 0.1


class Result:
    def __init__(self, rc, out, err, log, seconds):
        self.rc, self.out, self.err, self.seconds = rc, out, err, seconds
        self.log = [line.split(" ", 1)[1] for line in log.splitlines()]
        self.pids = {int(line.split(" ", 1)[0]) for line in log.splitlines()}

    def __repr__(self):
        return (f"code {self.rc} after {self.seconds:.2f} s\n"
                f"out: {self.out}\nerr: {self.err}\nlog: {self.log}")

    def has(self, *words):
        """Whether the log has these lines in this order."""
        at = iter(self.log)
        return all(any(line == word for line in at) for word in words)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.log = os.path.join(self.dir, "log")

    def environ(self, preload, env):
        e = {k: v for k, v in os.environ.items()
             if not k.startswith(("MINI_", "DDP_LIFECYCLE", "LD_PRELOAD"))}
        e["MINI_LOG"] = self.log
        if preload:
            e["LD_PRELOAD"] = LIBRARY
        # The library comes before the sanitizer's own.
        e["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0"
        e["TSAN_OPTIONS"] = "exitcode=66:die_after_fork=0:atexit_sleep_ms=20"
        e.update(env)
        return e

    def start(self, words, program="prog", preload=True, **env):
        self.began = time.monotonic()
        p = subprocess.Popen(
            [program if "/" in program else os.path.join(LIFE, program)] +
            (words.split() if isinstance(words, str) else words),
            env=self.environ(preload, env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, p)
        return p

    @staticmethod
    def end(p):
        if p.poll() is None:
            p.kill()
        p.communicate()

    def wait(self, p, good=True):
        try:
            out, err = p.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            self.fail(f"does not end\nout: {out}\nerr: {err}\n"
                      f"log: {self.read_log()}")
        r = Result(p.returncode, out, err, self.read_log(),
                   time.monotonic() - self.began)
        if good:
            self.assertNotIn("BAD", "\n".join(r.log), r)
        self.assertNotIn("Sanitizer", err)
        return r

    def run_prog(self, words, program="prog", preload=True, **env):
        return self.wait(self.start(words, program, preload, **env))

    def read_log(self):
        try:
            with open(self.log) as f:
                return f.read()
        except OSError:
            return ""

    def until_log(self, word):
        end = time.monotonic() + LIMIT
        while word not in self.read_log():
            self.assertLess(time.monotonic(), end, f"no {word}")
            time.sleep(0.005)


class AgentCase(Case):
    """With the socket of an agent, self.name, at which the test listens."""

    def setUp(self):
        super().setUp()
        self.name = "@ddp-life-test-" + os.path.basename(self.dir)
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server.bind("\0" + self.name[1:])
        self.server.listen(1)
        self.server.settimeout(LIMIT)
        self.addCleanup(self.server.close)
