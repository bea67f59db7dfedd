# SPDX-License-Identifier: Apache-2.0
"""Several processes that are one communicator, and what they logged."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

LIFE = os.environ.get("DDP_LIFE", "")
USER = os.environ.get("DDP_NCCL_USER") or os.path.join(LIFE, "nccl_user")
# ncclResult_t
(SUCCESS, CUDA, SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE,
 PROGRESS) = range(8)


class Line:
    """One of the log: word is "", MISUSE, LEFT_WAITING or LEFT_ALIVE."""

    def __init__(self, text):
        f = text.split()
        self.word = "" if f[0].isdigit() else f.pop(0)
        self.ns, self.pid, self.tid = int(f[0]), int(f[1]), int(f[2])
        self.function = f[3]
        self.comm = None if f[4] == "-" else int(f[4])
        self.rank = None if f[5] == "-" else int(f[5])
        self.result = None if f[6] == "-" else int(f[6])
        self.more = " ".join(f[7:])
        self.text = text.strip()


def read_log(path):
    try:
        with open(path, encoding="ascii") as f:
            return [Line(x) for x in f if x.strip()]
    except FileNotFoundError:
        return []


class Word:
    """What one word of nccl_user did."""

    def __init__(self, text):
        f = text.split()
        self.name, self.rc = f[0], int(f[1])
        self.value = int(f[2]) if len(f) > 2 else None
        self.ms = float(f[3]) if len(f) > 3 else None


class Ranks(unittest.TestCase):
    LIMIT = 20 if not os.environ.get("DDP_NCCL_USER") else 60

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="fakenccl.")
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.log_path = os.path.join(self.dir, "log")
        self.processes = []
        self.addCleanup(self.kill)

    def kill(self):
        for p in self.processes:
            if p.poll() is None:
                p.send_signal(signal.SIGKILL)
            p.wait()

    def start(self, words, env=None):
        """words[R] are rank R's; env is for all."""
        e = {k: v for k, v in os.environ.items()
             if not k.startswith(("FAKE_NCCL_", "SLURM_", "OMPI_"))}
        e.update(FAKE_NCCL_LOG=self.log_path, **(env or {}))
        started = []
        for r, text in enumerate(words):
            out = open(os.path.join(self.dir, "out.%d" % r), "w",
                       encoding="ascii")
            p = subprocess.Popen(
                [USER, str(r), str(len(words)),
                 os.path.join(self.dir, "id")] + text.split(),
                stdout=out, stdin=subprocess.DEVNULL, env=e)
            out.close()
            started.append(p)
        self.processes += started
        return started

    def words(self, rank):
        with open(os.path.join(self.dir, "out.%d" % rank),
                  encoding="ascii") as f:
            return [Word(x) for x in f.read().splitlines()]

    def word(self, rank, name, which=0):
        found = [w for w in self.words(rank) if w.name == name]
        self.assertGreater(len(found), which, "rank %d has no %s: %s" % (
            rank, name, [w.name for w in self.words(rank)]))
        return found[which]

    def finish(self, started, codes=0):
        """All end within the limit, with these exit codes."""
        end = time.monotonic() + self.LIMIT
        for p in started:
            try:
                p.wait(max(0.01, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail("rank %d does not end; log:\n%s" % (
                    started.index(p),
                    "\n".join(x.text for x in self.log()[-30:])))
        if codes == 0:
            codes = [0] * len(started)
        self.assertEqual([p.returncode for p in started], codes)

    def run_ranks(self, words, env=None, codes=0):
        self.finish(self.start(words, env), codes)

    def until(self, what, seconds=None):
        """Waits until what() is true."""
        end = time.monotonic() + (seconds or self.LIMIT)
        while not what():
            self.assertLess(time.monotonic(), end, "waited in vain")
            time.sleep(0.005)

    def log(self):
        return read_log(self.log_path)

    def misuses(self):
        return [x for x in self.log() if x.word == "MISUSE"]

    def assert_clean(self):
        bad = [x.text for x in self.log()
               if x.word in ("MISUSE", "LEFT_WAITING", "LEFT_ALIVE")]
        self.assertEqual(bad, [])
