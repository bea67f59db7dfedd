#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libddp_lifecycle.so in PyTorch: a real process group (gloo), workers that
load data (forked children), and a NCCL that comes late, with a library that
Python opens. Debian's PyTorch has no NCCL of its own; the late one is that of
the other tests (mini_nccl.c), linked into prog_late.so.
"""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from life_harness import LATE, SANITIZED, SRC, Case, Result  # noqa: E402

# The one that may have Debian's torch; never a pyenv's shim.
PYTHON = "/usr/bin/python3"
LIMIT = 120     # PyTorch takes seconds to load on a busy machine

RANK = os.path.join(SRC, "tests/life/torch_rank.py")


class Torch(Case):
    def ranks(self, preload, *words, **env):
        """Two ranks; their results."""
        started = [self.start_rank(r, preload, words, env) for r in (0, 1)]
        return [self.result(p) for p in started]

    def start_rank(self, rank, preload, words, env):
        e = self.environ(preload, {
            "DDP_LIFECYCLE_VERBOSE": "1", "LATE": LATE,
            "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore", **env})
        # A file of its own: two tests must not meet in it.
        e["MINI_LOG"] = f"{self.log}.{rank}"
        p = subprocess.Popen(
            [PYTHON, RANK, str(rank), "2",
             os.path.join(self.dir, f"store.{preload}"), *words], env=e,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        p.rank = rank
        self.addCleanup(self.end, p)
        return p

    def result(self, p):
        out, err = p.communicate(timeout=LIMIT)
        try:
            with open(f"{self.log}.{p.rank}") as f:
                log = f.read()
        except FileNotFoundError:
            log = ""
        r = Result(p.returncode, out, err, log, 0)
        self.assertNotIn("BAD", "\n".join(r.log), r)
        return r

    def test_gloo_and_workers(self):
        """Nothing of the library is heard, in no process, and the numbers
        are those without it."""
        for preload in (False, True):
            for r in self.ranks(preload):
                self.assertEqual(r.rc, 0, r)
                self.assertEqual(r.out, "sum [360.0, 3720.0]\n", r)
                self.assertNotIn("life", r.err, r)
                self.assertNotIn("slurm-ddp", r.err, r)

    def test_late_nccl(self):
        """It ends in order with the interpreter, and a worker that ends
        meanwhile ends nothing."""
        for r in self.ranks(True, "mpi_init", "comm", "coll", "0"):
            self.assertEqual(r.rc, 0, r)
            self.assertIn("loaded 16\n", r.out, r)
            self.assertEqual(r.log, [
                "MPI_Init", "ncclGetUniqueId", "ncclCommInitRank",
                "ncclAllReduce 1", "ncclAllReduce 1", "ncclCommFinalize 1",
                "ncclCommDestroy 1"], r)
            self.assertEqual(len(r.pids), 1, "a worker has called NCCL")

    def test_late_nccl_fails(self):
        """An asynchronous error while Python works: all is aborted."""
        for r in self.ranks(True, "mpi_init", "comm", "sleep", "20000",
                            MINI_ASYNC="300"):
            self.assertEqual(r.rc, 1, r)
            self.assertTrue(r.has("aborted 1", "MPI_Abort 1"), r)

    def test_term_without_nccl(self):
        """No handler of the library is there: the signal kills."""
        started = [self.start_rank(r, True, ("wait",), {}) for r in (0, 1)]
        for p in started:
            while "waiting" not in p.stdout.readline():
                self.assertIsNone(p.poll())
        for p in started:
            p.terminate()
        for p in started:
            self.assertEqual(self.result(p).rc, -15)


def has_torch():
    p = subprocess.run([PYTHON, "-c", "import torch.distributed as d; "
                        "raise SystemExit(not d.is_gloo_available())"],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=LIMIT)
    return p.returncode == 0


if __name__ == "__main__":
    if SANITIZED:
        print("test_torch: skipped, Python is not sanitized")
        sys.exit(77)
    if not os.path.exists(PYTHON) or not has_torch():
        print(f"test_torch: skipped, no torch with gloo for {PYTHON} "
              "(python3-torch)")
        sys.exit(77)
    unittest.main()
