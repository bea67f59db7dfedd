#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libddp_lifecycle.so in a process of a step: what it says to the node's agent
and what it does of what that says. The agent is played."""
import os
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from life_harness import LIMIT, AgentCase  # noqa: E402


class Step(AgentCase):
    def begin(self, words, program="prog", **env):
        """The process, and its connection with "life" read."""
        env.setdefault("WORLD_SIZE", "4")
        p = self.start(words, program, preload=program == "prog",
                       DDP_LIFECYCLE_SOCKET=self.name, **env)
        c, _ = self.server.accept()
        c.settimeout(LIMIT)
        self.addCleanup(c.close)
        self.assertEqual(self.line(c), f"life 1 {p.pid} 10000")
        return p, c

    @staticmethod
    def line(c):
        """The next one; "" at the end."""
        try:
            return c.recv(1000).decode().rstrip("\n")
        except ConnectionResetError:
            return ""

    def until(self, c, word):
        """The next line that begins with the word."""
        while (line := self.line(c)):
            if line.split()[0] == word:
                return line
        self.fail("no " + word)

    def rest(self, c, *words):
        """Those of these words that still come."""
        got = []
        while (line := self.line(c)):
            if line.split()[0] in words:
                got.append(line)
        return got


class Connect(Step):
    def test_when_there_is_room(self):
        """Others are before it."""
        self.server.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.connect("\0" + self.name[1:])
            p = self.start("comm coll destroy", preload=True,
                           DDP_LIFECYCLE_SOCKET=self.name, WORLD_SIZE="4")
            time.sleep(0.3)
            self.server.accept()[0].close()
            c, _ = self.server.accept()
            self.addCleanup(c.close)
            self.assertEqual(self.line(c), f"life 1 {p.pid} 10000")
        r = self.wait(p)
        self.assertEqual((r.rc, r.err), (0, ""), r)


class Abort(Step):
    def test_ordered(self):
        """The agents end the others: MPI is not asked to kill them."""
        p, c = self.begin("mpi_init comm mpi_abort 7", MINI_MPI_ABORT="hang")
        self.assertEqual(self.until(c, "cause"), "cause 7 MPI_Abort, code 7")
        c.send(b"abort 7 rank 0 aborted first\n")
        r = self.wait(p)
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1"), r)
        self.assertNotIn("MPI_Abort 7", r.log, r)
        self.assertLess(r.seconds, 1, r)

    def test_not_ordered(self):
        """As with --ddp-abort=none: MPI ends the others."""
        p, c = self.begin("mpi_init comm mpi_abort 7")
        self.until(c, "cause")
        r = self.wait(p)
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 7"), r)
        self.assertGreater(r.seconds, 0.9, r)

    def test_agent_goes_away(self):
        p, c = self.begin("mpi_init comm mpi_abort 7")
        self.until(c, "cause")
        c.close()
        r = self.wait(p)
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 7"), r)
        self.assertLess(r.seconds, 0.9, r)

    def test_code_0_is_none(self):
        p, c = self.begin("mpi_init comm mpi_abort 0")
        self.until(c, "cause")
        c.send(b"abort 1 x\n")
        self.assertEqual(self.wait(p).rc, 1)

    def test_signal_is_no_cause(self):
        """It may be Slurm's; and the end tells it."""
        p, c = self.begin("mpi_init comm coll 0 sleep 20000")
        self.until_log("ncclAllReduce")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(self.rest(c, "cause"), [])
        self.assertEqual(self.wait(p).rc, -signal.SIGTERM)


class Leave(Step):
    def test_mpi(self):
        p, c = self.begin("mpi_init exit 0")
        self.assertEqual(self.rest(c, "left"), ["left 0 1"])
        self.assertEqual(self.wait(p).rc, 0)

    def test_collectives(self):
        """Those of the first communicator of the whole world."""
        p, c = self.begin("comm coll 0 comm_of 4 coll 1 coll 1 comm_of 4 "
                          "coll 2 exit 0")
        self.assertEqual(self.rest(c, "left"), ["left 2 0"])
        self.assertEqual(self.wait(p).rc, 0)

    def test_what_is_no_such_end(self):
        for words in ("comm_of 4 coll 0 exit 7",            # a failure
                      "comm_of 4 coll 0 destroy 0 exit 0",  # in order
                      "comm_of 2 coll 0 exit 0",            # of a few
                      "mpi_init comm mpi_finalize exit 0"):
            p, c = self.begin(words)
            self.assertEqual(self.rest(c, "left", "waits"), [], words)
            self.wait(p)

    def test_without_world_size(self):
        p, c = self.begin("comm_of 4 coll 0 exit 0", WORLD_SIZE="four")
        self.assertEqual(self.rest(c, "left"), [])
        self.wait(p)

    def test_waits_already(self):
        p, c = self.begin("comm_of 4 coll 0 coll 0 sleep 20000")
        end = time.monotonic() + LIMIT
        while self.read_log().count("ncclAllReduce") < 2:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)
        c.send(b"left 3 0\n")     # has called more: nobody waits
        c.send(b"left 2 0\n")     # as many
        time.sleep(0.2)
        c.send(b"left 1 0\n")
        self.assertEqual(self.until(c, "waits"), "waits 1")
        c.send(b"left 0 0\n")     # once is enough
        c.send(b"abort 1 x\n")
        self.assertEqual(self.rest(c, "waits"), [])
        self.assertEqual(self.wait(p).rc, 1)

    def test_waits_later(self):
        p, c = self.begin("comm_of 4 coll 0 sleep 400 comm coll 1 sleep 100 "
                          "coll 0 sleep 20000")
        self.until(c, "state")
        c.send(b"left 1 0\n")
        start = time.monotonic()
        self.assertEqual(self.until(c, "waits"), "waits 1")
        # Not at the collective of another communicator.
        self.assertGreater(time.monotonic() - start, 0.3)
        c.send(b"abort 1 x\n")
        self.wait(p)

    def test_work_of_its_own(self):
        p, c = self.begin("comm_of 4 coll 0 sleep 300 exit 0")
        self.until(c, "state")
        c.send(b"left 1 0\n")
        self.assertEqual(self.rest(c, "waits"), [])
        self.assertEqual(self.wait(p).rc, 0)


class UniqueId(Step):
    def test_rank_0_puts(self):
        p, c = self.begin("ddp_comm 5 ddp_comm 5", "prog_api", RANK="0")
        name, value = self.until(c, "put").split()[1:]
        self.assertEqual((name, len(value), value[-2:]),
                         ("nccl.0", 256, "07"))
        self.assertEqual(self.until(c, "put").split()[1], "nccl.1")
        self.assertEqual(self.wait(p).rc, 0)

    def test_others_get(self):
        p, c = self.begin("ddp_comm 5", "prog_api", RANK="3")
        self.assertEqual(self.until(c, "get"), "get nccl.0")
        c.send(b"value nccl.1 " + b"07" * 128 + b"\n")    # another one's
        c.send(b"value nccl.0 " + b"07" * 128 + b"\n")
        r = self.wait(p)
        self.assertEqual(r.rc, 0, r)
        self.assertIn("ddp_comm 0", r.out, r)
        self.assertIn("ncclCommInitRank", r.log, r)     # not "BAD id"

    def test_limit(self):
        p, c = self.begin("ddp_comm 1", "prog_api", RANK="3")
        self.until(c, "get")
        r = self.wait(p)
        self.assertEqual(r.rc, 75, r)

    def test_wrong_size(self):
        p, c = self.begin("ddp_comm 5", "prog_api", RANK="3")
        self.until(c, "get")
        c.send(b"value nccl.0 0707\n")
        self.assertIn("nothing carries NCCL's unique id", self.wait(p).out)

    def test_agent_goes_away(self):
        p, c = self.begin("ddp_comm 5", "prog_api", RANK="3")
        self.until(c, "get")
        c.close()
        self.assertIn("the node's agent is gone", self.wait(p).out)

    def test_no_rank(self):
        p, c = self.begin("ddp_comm 5", "prog_api", RANK="4")
        self.assertIn("RANK and WORLD_SIZE are not set", self.wait(p).out)


if __name__ == "__main__":
    unittest.main()
