#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ddp-controller and what agents say of the life-cycle library.

DDP_CONTROLLER is the program to test. Exit code 77: it is not set.
"""
import json
import os
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ctl_stub import (AFTER_ABORT, CONTROLLER, GET, JOB, LEFT,  # noqa: E402
                      PUT, VALUE, exited, text)
from test_controller import STATUS, Case  # noqa: E402

NONE, STARTING, READY, RUNNING, STOPPING, ABORTING, GONE = range(7)
WAIT = (15, 1000)       # the signal and the grace of ABORT


class Life(Case):
    def begin(self, counts=(2, 2), **kw):
        if "launcher" not in kw:
            kw["launcher"] = self.launcher("running")
        step = self.step(counts, life=True, **kw)
        return step, *self.started(step)

    def started(self, step, flags=2):
        agents = [step.agent(i).ready() for i in range(len(step.nodes))]
        agents[0].port()
        for a in agents:
            self.assertEqual(a.plan()[0], flags)
        return agents

    def ended(self, step, status=15):
        """ABORT with its order at all agents, which obey: its code, the
        lines that srun says, and its exit code."""
        codes = set()
        for a in step.agents:
            code, wait = a.order()
            codes.add(code)
            self.assertEqual(wait, 10000)
            self.assertEqual(a.abort()[0], WAIT)
            a.obey(status)
        self.assertEqual(len(codes), 1)
        code, said, _ = step.exit(143)
        self.assertEqual(codes, {code})
        return code, said

    def quiet(self, *agents, seconds=0.3):
        for a in agents:
            try:
                self.fail(a.recv(seconds))
            except socket.timeout:
                pass

    def status(self):
        out = subprocess.run([STATUS, "%d.0" % JOB, "--json"],
                             capture_output=True, text=True, timeout=20,
                             check=True)
        return json.loads(out.stdout)


class States(Life):
    def test_without_the_option(self):
        step = self.step()
        agents = self.started(step, flags=0)
        doc = self.status()
        self.assertIsNone(doc["lifecycle"])
        self.assertIsNone(doc["ranks"][0]["lifecycle"])
        agents[0].states((0, RUNNING))
        self.assertTrue(agents[0].closed())

    def test_in_the_status(self):
        step, a, b = self.begin()
        a.states((0, RUNNING), (1, STARTING))
        b.states((3, RUNNING))
        time.sleep(0.1)
        doc = self.status()
        self.assertEqual([r["lifecycle"] for r in doc["ranks"]],
                         ["running", "starting", "none", "running"])
        self.assertEqual(doc["lifecycle"], {
            "none": 1, "starting": 1, "ready": 0, "running": 2,
            "stopping": 0, "aborting": 0, "gone": 0})
        out = subprocess.run([STATUS, str(JOB)], capture_output=True,
                             text=True, timeout=20, check=True).stdout
        self.assertIn("lifecycle: 1 none, 1 starting, 2 running\n", out)
        self.assertRegex(out, r"\n +1  n1 +1001  starting   running\n")
        a.exit(0, 0)
        time.sleep(0.1)
        self.assertEqual(self.status()["ranks"][0]["lifecycle"], "gone")

    def test_wrong_ones(self):
        for bad in ((2, RUNNING), (9, RUNNING), (0, 7)):
            step, a, _ = self.begin()
            a.states(bad)
            self.assertTrue(a.closed(), bad)
            step.close()


class Ready(Life):
    def test_not_begun(self):
        """It holds up those that wait for it."""
        step, a, b = self.begin(ready=300)
        a.states((0, STARTING), (1, STARTING))
        b.states((3, STARTING))
        start = time.monotonic()
        code, said = self.ended(step)
        self.assertGreater(time.monotonic() - start, 0.29)
        self.assertEqual(code, 75)
        self.assertRegex(said[0], r"^say rank 2 on node n2 was not ready, pid "
                         r"1002, .*: 0\.3 s after the first one had begun to "
                         r"initialise MPI or NCCL \(--ddp-ready-timeout\); "
                         r"not begun: rank 2 on n2; waiting: rank 0 on "
                         r"n1, rank 1 on n1, rank 3 on n2$")

    def test_not_through(self):
        """Also with a communicator after MPI, or another one later."""
        step, a, b = self.begin(ready=300)
        a.states((0, READY), (1, READY))
        b.states((2, READY), (3, READY))
        self.quiet(a, b, seconds=0.5)
        b.states((3, STARTING))
        code, said = self.ended(step)
        self.assertEqual(code, 75)
        self.assertRegex(said[0], "^say rank 3 on node n2 was not ready.*; "
                         "not through: rank 3 on n2$")

    def test_not_in_it(self):
        """MPI is initialised, NCCL waits for one rank."""
        step, a, b = self.begin(ready=300)
        a.states((0, READY), (1, READY))
        b.states((2, STARTING), (3, READY))
        a.states((0, STARTING), (1, STARTING))
        code, said = self.ended(step)
        self.assertEqual(code, 75)
        self.assertRegex(said[0], "^say rank 3 on node n2 was not ready.*; not "
                         "in the next initialisation: rank 3 on n2; waiting: "
                         "rank 0 on n1, rank 1 on n1, rank 2 on n2$")

    def test_in_time(self):
        step, a, b = self.begin(ready=500)
        a.states((0, STARTING), (1, STARTING))
        b.states((2, READY), (3, STARTING))
        time.sleep(0.2)
        a.states((0, READY), (1, RUNNING))
        b.states((3, READY))
        self.quiet(a, b, seconds=0.6)

    def test_nobody_has_begun(self):
        _, a, b = self.begin(ready=100)
        self.quiet(a, b)

    def test_off(self):
        _, a, b = self.begin()
        a.states((0, STARTING))
        self.quiet(a, b)


class Cause(Life):
    def test_a_program_aborts(self):
        step, a, b = self.begin()
        b.blame(2, 7, "MPI_Abort, code 7")
        code, said = self.ended(step)
        self.assertEqual(code, 7)
        self.assertRegex(said[0], r"^say rank 2 on node n2 aborted first: "
                         r"MPI_Abort, code 7, exit code 7, pid 1002, at ")
        self.assertEqual(self.calls(), [])      # Slurm is not asked

    def test_its_end_is_no_other_failure(self):
        step, a, b = self.begin(abort=2)
        b.blame(2, 7, "MPI_Abort, code 7")
        b.exit(2, exited(9))
        for rank in (0, 1):
            a.exit(rank, 0)
        b.exit(3, 0)
        a.bye()
        b.bye()
        code, said, _ = step.exit(9)
        self.assertEqual(code, 7)
        self.assertEqual(len(said), 1, said)

    def test_others_killed_by_mpi(self):
        step, a, b = self.begin()
        b.blame(2, 7, "MPI_Abort, code 7")
        a.exit(0, 9)
        code, said = self.ended(step, 9)
        self.assertEqual(code, 7)

    def test_another_failure(self):
        """All are told its code."""
        step, a, b = self.begin()
        a.exit(1, exited(23))
        self.assertEqual(self.ended(step)[0], 23)

    def test_twice_and_of_others(self):
        step, a, b = self.begin()
        b.blame(0, 7, "not mine")
        self.assertTrue(b.closed())

    def test_cancelled(self):
        """Slurm's TERM: a rank that dies of it, and one that aborts then."""
        step, a, b = self.begin(launcher=self.launcher("cancelled", 0.3))
        a.exit(0, 15)
        end = time.monotonic() + 5
        while not self.calls():         # it is asked
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        b.blame(2, 1, "an error of NCCL")
        self.quiet(a, b, seconds=0.6)
        for x, rank in ((a, 1), (b, 2), (b, 3)):
            x.exit(rank, 15)
        for x in (a, b):
            x.bye()
        code, said, _ = step.exit(143)
        self.assertEqual((code, said), (-1, []))


class Left(Life):
    def test_without_mpi_finalize(self):
        step, a, b = self.begin()
        a.states((0, READY))
        b.states((2, READY), (3, RUNNING))
        start = time.monotonic()
        a.left(1, 0, mpi=1)
        a.exit(1, 0)
        code, said = self.ended(step)
        self.assertGreater(time.monotonic() - start, 0.09)
        self.assertEqual(code, 1)
        self.assertRegex(said[0], r"^say rank 1 on node n1 ended first, with "
                         r"exit code 0, .*: it has not called MPI_Finalize, "
                         r"and 3 ranks still run$")

    def test_others_do_not_use_mpi(self):
        step, a, b = self.begin()
        a.states((1, RUNNING))
        a.left(1, 0, mpi=1)
        a.exit(1, 0)
        self.quiet(a, b)

    def test_all_do(self):
        step, a, b = self.begin()
        for x, rank in ((a, 0), (a, 1), (b, 2), (b, 3)):
            x.left(rank, 0, mpi=1)
            x.exit(rank, 0)
        for x in (a, b):
            x.bye()
        time.sleep(0.3)
        self.assertEqual(step.exit(0)[:2], (-1, []))

    def test_somebody_waits(self):
        step, a, b = self.begin()
        a.left(1, 12)
        for x in (a, b):
            self.assertEqual(x.expect(LEFT)[4:12], (12).to_bytes(8, "big"))
        a.exit(1, 0)
        self.quiet(a, b)
        b.waits(3, 12)
        code, said = self.ended(step)
        self.assertEqual(code, 1)
        self.assertRegex(said[0], r"^say rank 1 on node n1 ended first, with "
                         r"exit code 0, .*: rank 3 waits for it in a "
                         r"collective of NCCL$")

    def test_nobody_waits(self):
        """They leave one after the other; one has work of its own."""
        step, a, b = self.begin()
        a.left(1, 12)
        b.left(2, 12)
        b.left(3, 13)
        for x in (a, b):
            x.expect(LEFT)
        self.quiet(a, b)        # once
        step.silent(0.2)
        for x, rank in ((a, 0), (a, 1), (b, 2), (b, 3)):
            x.exit(rank, 0)
        for x in (a, b):
            x.bye()
        self.assertEqual(step.exit(0)[:2], (-1, []))

    def test_the_lowest_is_named(self):
        step, a, b = self.begin()
        a.left(1, 12)
        b.expect(LEFT)
        b.left(2, 11)
        self.assertEqual(b.expect(LEFT)[4:12], (11).to_bytes(8, "big"))
        a.waits(0, 11)
        for x in (a, b):
            x.buf = b""
        self.assertRegex(step.exit(1, timeout=20)[1][0], "^say rank 2 on ")

    def test_nobody_has_left(self):
        step, a, b = self.begin()
        a.waits(0, 3)
        self.quiet(a, b)


class Values(Life):
    def test_before_and_after(self):
        step, a, b = self.begin()
        b.send(GET, text("nccl.0"))
        time.sleep(0.1)
        a.send(PUT, text("nccl.0") + text("00ff"))
        self.assertEqual(b.expect(VALUE), text("nccl.0") + text("00ff"))
        a.send(PUT, text("nccl.0") + text("1111"))     # the first counts
        a.send(GET, text("nccl.0"))
        self.assertEqual(a.expect(VALUE), text("nccl.0") + text("00ff"))
        self.quiet(a, b)

    def test_names(self):
        for bad in ("", "a/b", "n" * 32):
            step, a, _ = self.begin()
            a.send(GET, text(bad))
            self.assertTrue(a.closed(), bad)
            step.close()

    def test_bounded(self):
        step, a, b = self.begin()
        for i in range(300):
            a.send(PUT, text("n.%d" % i) + text("00"))
        self.assertRegex(step.line(), "^say warning: more than 256 names")
        a.send(GET, text("n.255"))
        a.expect(VALUE)
        a.send(GET, text("n.256"))
        self.quiet(a)
        self.assertTrue(step.silent())


if __name__ == "__main__":
    if not CONTROLLER:
        print("SKIP: DDP_CONTROLLER is not set")
        sys.exit(77)
    unittest.main()
