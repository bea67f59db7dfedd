#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ddp-controller against a played srun and played agents.

DDP_CONTROLLER is the program to test. Exit code 77: it is not set.
"""
import json
import os
import re
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ctl_stub import (ABORT, AFTER_ABORT, AUTH, BEFORE_PLAN,  # noqa: E402
                      CAUGHT_TERM, CONTROLLER, EXIT, HELLO, JOB, NO_JOB,
                      OOM, PING, PONG, PORT, PORT_STOLEN, READY, RESERVE,
                      STEPD_DIED, UNKNOWN, WARNING, Agent, Step, exited, frame,
                      now_us, text)

STATUS = os.environ.get("DDP_STATUS", os.path.join(
    os.path.dirname(CONTROLLER) or ".", "ddp-status"))


def children(pid):
    """Processes whose parent is pid."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as f:
                    if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                        found.append(int(name))
            except (OSError, IndexError):
                pass
    return found


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        start = time.monotonic()
        if os.environ.get("DDP_TIMES"):
            self.addCleanup(lambda: print("%5.1f s %s" % (
                time.monotonic() - start, self.id())))

    def step(self, *args, **kw):
        step = Step(*args, **kw)
        self.addCleanup(step.close)
        return step

    def launcher(self, answer, delay=0):
        """A ddp-launch that writes down how it was called."""
        path = os.path.join(self.dir.name, "launcher")
        with open(path, "w") as f:
            f.write("#!/bin/sh\necho \"$@\" >>%s/calls\nsleep %s\n"
                    "echo %s\n" % (self.dir.name, delay, answer))
        os.chmod(path, 0o755)
        return path

    def calls(self):
        try:
            with open(os.path.join(self.dir.name, "calls")) as f:
                return f.read().split("\n")[:-1]
        except FileNotFoundError:
            return []


class Handshake(Case):
    def test_success_is_silent_and_fast(self):
        step = self.step()
        for a in step.start():
            self.assertEqual(a.welcome, (5000, 20000, 15, 1000))
            a.finish()
        for a in step.agents:
            self.assertTrue(a.closed())
        code, said, took = step.exit(0)
        self.assertEqual((code, said), (-1, []))
        self.assertLess(took, 0.05)
        self.assertEqual(step.wait(1), 0)

    def test_wrong_key(self):
        step = self.step()
        bad = Agent(step, 0, key=bytes(32))
        bad.hello = bad.hello_frame()
        bad.sock.sendall(bad.hello)
        bad.theirs = bad.expect(2)[:32]
        bad.send(AUTH, bad.mac(b"a", bad.theirs))
        self.assertTrue(bad.closed())
        step.start()

    def test_role_is_part_of_the_proof(self):
        step = self.step()
        bad = Agent(step, 0)
        bad.hello = bad.hello_frame()
        bad.sock.sendall(bad.hello)
        got = bad.expect(2)
        bad.send(AUTH, got[32:])     # the controller's own proof
        self.assertTrue(bad.closed())

    def test_replay(self):
        step = self.step()
        first = step.agent(0)
        again = Agent(step, 0)
        again.sock.sendall(first.hello)
        again.expect(2)
        again.send(AUTH, first.proof)
        self.assertTrue(again.closed())

    def test_wrong_hello(self):
        step = self.step()
        for bad in (dict(magic=1), dict(version=2), dict(job=NO_JOB),
                    dict(stepid=1)):
            a = Agent(step, 0)
            a.sock.sendall(a.hello_frame(**bad))
            self.assertTrue(a.closed(), bad)
        step.start()

    def test_bad_frames(self):
        step = self.step()
        for raw in (b"\0\0\0\0", b"\0\0\2\1" + bytes(513), b"\xff" * 64,
                    frame(99), frame(READY, bytes(16)), frame(AUTH, bytes(32)),
                    frame(HELLO, bytes(20)), b"GET / HTTP/1.0\r\n\r\n",
                    frame(HELLO), os.urandom(300)):
            a = Agent(step, 0)
            a.sock.sendall(raw)
            self.assertTrue(a.closed(), raw)
        step.start()

    def test_message_out_of_turn(self):
        step = self.step()
        a, b = step.start()
        b.send(PORT, struct.pack(">H", 1) + text(""))
        self.assertTrue(b.closed())
        a.abort()
        a.obey()
        code, said, _ = step.exit(0)
        self.assertEqual(code, 75)
        self.assertIn("n2 was lost first", said[0])
        self.assertIn("broke the protocol", said[0])

    def test_rank_of_another_node(self):
        step = self.step()
        _, b = step.start()
        b.exit(0, exited(1))
        self.assertTrue(b.closed())

    def test_second_agent_of_a_node(self):
        step = self.step()
        first = step.agent(0).ready()
        twin = Agent(step, 0).auth().ready()
        self.assertTrue(twin.closed())
        Agent(step, 1).auth().close()
        step.agent(1).ready()
        first.port()
        for a in step.agents:
            a.plan()
            a.finish()
        self.assertEqual(step.exit(0)[:2], (-1, []))

    def test_agent_goes_before_ready(self):
        step = self.step()
        a = step.agent(0).ready()
        Agent(step, 1).auth().close()
        self.assertIn("n2 was lost before the start", a.abort()[1])
        a.obey()
        self.assertEqual(step.exit(1)[0], 75)

    def test_slow_bytes(self):
        step = self.step(counts=(1,))
        a = Agent(step, 0)
        for byte in a.hello_frame():
            a.sock.sendall(bytes([byte]))
        self.assertIsNotNone(a.recv())

    def test_silent_stranger_has_five_seconds(self):
        step = self.step()
        a, slow = Agent(step, 0), Agent(step, 0)
        start = time.monotonic()
        for byte in slow.hello_frame()[:16]:
            time.sleep(0.5)
            try:
                slow.sock.sendall(bytes([byte]))
            except ConnectionError:
                break
        self.assertTrue(slow.closed(1))
        self.assertTrue(a.closed(1))
        self.assertGreater(time.monotonic() - start, 3.5)
        self.assertLess(time.monotonic() - start, 9)
        step.start()

    def test_crowd_of_strangers(self):
        step = self.step()
        crowd = []
        for _ in range(1500):
            s = socket.create_connection(("127.0.0.1", step.port), 5)
            crowd.append(s)
        try:
            agents = step.start()
            fds = len(os.listdir("/proc/%d/fd" % step.pid))
            self.assertLess(fds, 1024 + 64)
            for a in agents:
                a.finish()
            self.assertEqual(step.exit(0)[:2], (-1, []))
        finally:
            for s in crowd:
                s.close()


class Barrier(Case):
    def test_missing_nodes_are_named(self):
        step = self.step(counts=(1,) * 12, start=400)
        a = step.agent(0).ready()
        step.agent(1)
        a.port()
        (sig, grace), why = a.abort()
        self.assertEqual((sig, grace), (15, 1000))
        self.assertIn("no connection from n3, n4", why)
        a.obey()
        step.agents[1].abort()
        step.agents[1].bye()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)
        self.assertIn("1 of 12 nodes ready after 0.4 s", said[0])
        self.assertIn("n3, n4, n5, n6, n7, n8, n9, n10 and 2 more", said[0])
        self.assertIn("connected, but tasks not ready: n2", said[0])

    def test_no_port_from_rank_0(self):
        step = self.step(start=300)
        step.agent(0).ready()
        step.agent(1).ready()
        step.obey()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)
        self.assertIn("no master port from n1", said[0])

    def test_no_plan_before_all(self):
        step = self.step()
        a = step.agent(0).ready()
        a.port(40001)
        with self.assertRaises(socket.timeout):
            a.plan(0.2)
        step.agent(1).ready()
        self.assertEqual(a.plan(), (0, 40001, ""))
        self.assertEqual(step.agents[1].plan(), (0, 40001, ""))

    def test_het_plan_is_whole(self):
        step = self.step(counts=(2, 1), het=True)
        a = step.agent(0).ready()
        b = step.agent(1).ready()
        a.port(40002)
        flags, port, plan = a.plan()
        self.assertEqual((flags, port), (0, 40002))
        self.assertIn(";port=40002;", plan)
        self.assertIn(";tasks=2,1", plan)
        self.assertEqual(b.plan()[2], plan)

    def test_reserve_says_range_or_port(self):
        step = self.step(lo=41000, hi=41010)
        a = step.agent(0).ready()
        self.assertEqual(struct.unpack(">HHH", a.expect(RESERVE)),
                         (0, 41000, 41010))
        a.send(PORT, struct.pack(">H", 42000) + text(""))
        self.assertTrue(a.closed())
        step = self.step(given=8, port=29500)
        a = step.agent(0).ready()
        self.assertEqual(struct.unpack(">HHH", a.expect(RESERVE)),
                         (29500, 0, 0))

    def test_no_port_says_why(self):
        step = self.step(given=8, port=29500)
        a = step.agent(0).ready()
        a.port(0, "port 29500 is in use by pid 5")
        self.assertIn("pid 5", a.abort()[1])
        a.obey()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)
        self.assertIn("no master port on node n1: port 29500 is in use",
                      said[0])

    def test_wrong_ranks(self):
        for tasks, why in (([2], "has 1 tasks where the plan has 2"),
                           ([2, 9], "rank 9, which is none"),
                           ([0, 2], "rank 0, which is another")):
            step = self.step()
            step.agent(0).ready()
            step.agent(1, tasks=tasks).ready()
            for a in step.agents:
                a.abort()
                a.gone()
                a.bye()
            code, said, _ = step.exit(1)
            self.assertEqual(code, 75)
            self.assertIn(why, said[0])

    def test_wrong_name(self):
        step = self.step()
        step.agent(1, name="n1").ready()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)
        self.assertIn("is n2 for srun", said[0])

    def test_node_lost_before_plan(self):
        step = self.step()
        a = step.agent(0).ready()
        step.agent(1).ready().close()
        self.assertIn("n2 was lost before the start", a.abort()[1])
        a.obey()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)

    def test_task_dies_before_plan(self):
        step = self.step(launcher=self.launcher("running"))
        a = step.agent(0).ready()
        step.agent(1).exit(2, 9, BEFORE_PLAN)
        self.assertIn("killed by SIGKILL", a.abort()[1])
        a.obey()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)
        self.assertIn("before its program was started", said[0])

    def test_task_refuses_before_plan(self):
        """It has said why: that Slurm has no such step any more, since all
        its tasks have ended, does not make it a cancelled one."""
        step = self.step(launcher=self.launcher("gone"))
        a = step.agent(1)
        a.exit(2, exited(1), BEFORE_PLAN, "refused by --ddp-bind")
        a.exit(3, exited(1), BEFORE_PLAN)
        a.bye()
        time.sleep(0.1)
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)
        self.assertIn("before its program was started: refused by --ddp-bind",
                      said[0])
        self.assertNotIn("--step-state %d.0" % JOB, self.calls())

    def test_cancelled_before_plan(self):
        step = self.step(launcher=self.launcher("cancelled"))
        step.agent(0).ready()
        step.agent(1).exit(2, 9, BEFORE_PLAN)
        step.agents[1].bye()
        time.sleep(0.1)
        code, said, _ = step.exit(1)
        self.assertEqual((code, said), (-1, []))
        self.assertEqual(self.calls(), ["--step-state %d.0" % JOB])

    def test_prefer_goes_on(self):
        step = self.step(prefer=1, start=300)
        a = step.agent(0).ready()
        self.assertEqual(a.plan(2)[0], 1)
        a.close()
        self.assertRegex(step.line(), "^say warning: 1 of 2 nodes .*n2")
        late = step.agent(1).ready()
        self.assertEqual(late.plan()[0], 1)
        late.close()
        self.assertEqual(step.exit(3)[:2], (-1, []))
        self.assertEqual(step.wait(1), 0)

    def test_exit_before_plan(self):
        step = self.step()
        step.agent(0).ready()
        code, said, took = step.exit(1)
        self.assertEqual(code, 75)
        self.assertIn("1 of 2 nodes had no agent", said[0])
        self.assertIn("no connection from n2", said[0])
        self.assertLess(took, 9)  # node 1 says nothing any more


class Failure(Case):
    def test_exit_7(self):
        step = self.step()
        a, b = step.start()
        b.exit(3, exited(7), message="\033[31mboom\033[0m\nline\x07 two")
        for x in (a, b):
            self.assertEqual(x.abort()[0], (15, 1000))
        a.obey()
        b.exit(2, 15, AFTER_ABORT)
        b.gone(1)
        b.bye()
        code, said, took = step.exit(143)
        self.assertEqual(code, 7)
        self.assertRegex(said[0], "^say rank 3 on node n2 failed first: exited "
                         r"with code 7, pid 1003, at \d\d:\d\d:\d\d\.\d{3}, "
                         r"\d+\.\d s after the start$")
        self.assertEqual(said[1], "say   message: boom line two")
        self.assertRegex(said[2], r"^say   stopped: 3 ranks on 2 nodes \(3 by "
                         r"SIGTERM\), all gone \d+ ms later$")
        self.assertEqual(len(said), 3)
        self.assertLess(took, 0.05)
        self.assertEqual(step.wait(1), 0)

    def test_segv_with_a_slow_core(self):
        """A dumps its core for a while, its peers exit 1 meanwhile."""
        step = self.step()
        a, b = step.start()
        b.exit(2, exited(1))
        b.exit(3, exited(1))
        a.abort()
        a.dying(0)
        a.exit(1, 15, AFTER_ABORT)
        time.sleep(0.3)
        a.exit(0, 11 | 0x80, AFTER_ABORT)
        a.gone(1)
        a.bye()
        b.gone(0)
        b.bye()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 139)
        self.assertIn("rank 0 on node n1 failed first: killed by SIGSEGV "
                      "(core dumped)", said[0])

    def test_order_by_the_nodes_own_times(self):
        step = self.step()
        a, b = step.start()
        time.sleep(0.1)
        t = now_us()
        a.exit(0, exited(3), when=t)
        b.exit(2, exited(4), when=t - 20000)
        for x in (a, b):
            x.abort()
            x.gone()
            x.bye()
        self.assertEqual(step.exit(1)[0], 4)

    def test_kill_asks_slurm(self):
        step = self.step(launcher=self.launcher("running"))
        a, b = step.start()
        a.exit(0, 9)
        a.abort()
        a.exit(1, 15, AFTER_ABORT)
        a.gone(1)
        a.bye()
        b.abort()
        b.obey()
        code, said, _ = step.exit(137)
        self.assertEqual(code, 137)
        self.assertIn("killed by SIGKILL", said[0])
        self.assertEqual(self.calls(), ["--step-state %d.0" % JOB])

    def test_cancelled(self):
        report = os.path.join(self.dir.name, "report")
        step = self.step(launcher=self.launcher("cancelled"), report=report)
        a, b = step.start()
        a.exit(0, 15)
        b.exit(2, exited(1), CAUGHT_TERM)
        time.sleep(0.2)
        a.exit(1, exited(9))
        with self.assertRaises(socket.timeout):
            a.recv(0.3)
        a.bye()
        b.exit(3, 15)
        b.bye()
        code, said, _ = step.exit(143)
        self.assertEqual((code, said), (-1, []))
        with open(report) as f:
            self.assertEqual(json.load(f)["status"], "cancelled")
        self.assertEqual(self.calls(), ["--step-state %d.0" % JOB])

    def test_cancelled_program_keeps_its_time(self):
        """srun leaves at once: the agents must not lose the controller."""
        step = self.step(launcher=self.launcher("cancelled"))
        a, b = step.start()
        a.exit(0, 15)
        time.sleep(0.2)
        self.assertEqual(step.exit(143)[0], -1)
        step.sock.close()
        self.assertFalse(b.closed(0.5))
        a.exit(1, 15)
        a.bye()
        b.exit(2, 15)
        b.exit(3, 15)
        b.bye()
        for agent in a, b:  # what its ranks left behind
            self.assertEqual(agent.abort()[0], (9, 0))
            agent.gone()
        self.assertEqual(step.wait(1), 0)

    def test_scancel_of_the_step_alone(self):
        """Slurm shows nothing; all ranks were killed, none by us."""
        step = self.step(launcher=self.launcher("running", 0.1))
        a, b = step.start()
        for x in (a, b):
            for rank in x.tasks:
                x.exit(rank, 9)
            x.bye()
        code, said, _ = step.exit(137)
        self.assertEqual((code, said), (-1, []))

    def test_a_signal_to_all_may_take_its_time(self):
        """Ctrl-C: Python raises KeyboardInterrupt, each rank at its pace;
        and Slurm sends SIGKILL to who is too slow."""
        for last in (2, 9):
            step = self.step(launcher=self.launcher("running"))
            a, b = step.start()
            for x, rank, status in ((a, 0, 2), (b, 2, 2), (a, 1, 2),
                                    (b, 3, last)):
                x.exit(rank, status)
                time.sleep(0.25)
            for x in (a, b):
                x.bye()
            code, said, _ = step.exit(130)
            self.assertEqual((code, said), (-1, []))

    def test_a_signal_to_one_rank_is_its_failure(self):
        for sig, least, most in ((9, 0, 0.3), (15, 0.4, 1.2)):
            step = self.step(launcher=self.launcher("running"))
            a, b = step.start()
            start = time.monotonic()
            a.exit(0, sig)
            b.abort()
            took = time.monotonic() - start
            self.assertTrue(least <= took < most, (sig, took))
            b.obey()
            a.abort()
            a.exit(1, 15, AFTER_ABORT)
            a.gone(1)
            a.bye()
            code, said, _ = step.exit(1)
            self.assertEqual(code, 128 + sig)
            self.assertIn("rank 0 on node n1 failed first", said[0])

    def test_peers_that_fail_end_the_wait(self):
        step = self.step(launcher=self.launcher("running"))
        a, b = step.start()
        start = time.monotonic()
        a.exit(0, 15)
        time.sleep(0.05)
        b.exit(2, exited(1))
        b.abort()
        self.assertLess(time.monotonic() - start, 0.4)

    def test_cancelled_after_some_had_ended(self):
        for status in (9, 2):
            step = self.step(launcher=self.launcher("running"))
            a, b = step.start()
            a.exit(1, 0)
            time.sleep(0.1)
            a.exit(0, status)
            a.bye()
            b.exit(2, status)
            b.exit(3, status)
            b.bye()
            code, said, _ = step.exit(137)
            self.assertEqual((code, said), (-1, []))

    def test_what_was_stopped_is_no_failure(self):
        """--ddp-abort=node: one failure; the other node ends much later."""
        path = os.path.join(self.dir.name, "report.json")
        step = self.step(abort=1, report=path)
        a, b = step.start()
        a.exit(0, exited(7))
        a.abort()
        a.exit(1, 15, AFTER_ABORT)
        a.gone(1)
        a.bye()
        time.sleep(0.6)
        b.finish()
        code, said, _ = step.exit(7)
        self.assertEqual((code, len(said)), (7, 2))
        later = re.search(r"stopped: 1 rank on 1 node \(1 by SIGTERM\), "
                          r"all gone (\d+) ms later$", said[1])
        self.assertLess(int(later[1]), 400)
        with open(path) as f:
            stopped = json.load(f)["stopped"]
        self.assertEqual(stopped["ranks"], 1)
        self.assertIsNotNone(stopped["last_gone"])

    def test_slurms_kill_before_the_grace_is_over(self):
        step = self.step(grace=5000)
        a, b = step.start()
        b.exit(3, exited(7))
        for x in (a, b):
            x.abort()
        a.obey(9)
        b.exit(2, 9, AFTER_ABORT)
        b.gone(1)
        b.bye()
        _, said, _ = step.exit(143)
        self.assertRegex(said[1], r"\(3 by SIGKILL\), all gone")

    def test_exit_with_the_configuration(self):
        """srun ends before its controller has read all."""
        for _ in range(5):
            step = self.step(launcher=self.launcher("cancelled"))
            code, _, took = step.exit(1, timeout=5)
            self.assertEqual(code, -1)
            self.assertLess(took, 2.5)

    def test_slurm_does_not_answer(self):
        step = self.step(launcher=self.launcher("running", 20))
        a, b = step.start()
        start = time.monotonic()
        a.exit(0, 15)
        b.abort(5)
        self.assertGreater(time.monotonic() - start, 2.8)
        kids = children(step.pid)
        b.obey()
        a.exit(1, 15, AFTER_ABORT)
        a.gone()
        a.bye()
        self.assertEqual(step.exit(143)[0], 143)
        self.assertEqual(step.wait(2), 0)
        del kids

    def test_other_failures_do_not_ask(self):
        step = self.step(launcher=self.launcher("cancelled"))
        a, b = step.start()
        a.exit(0, 11)
        b.abort(1)
        self.assertEqual(self.calls(), [])

    def test_out_of_memory(self):
        step = self.step(launcher=self.launcher("cancelled"))
        a, b = step.start()
        a.exit(0, 9, OOM)
        b.abort(1)
        b.obey()
        a.abort()
        a.exit(1, 15, AFTER_ABORT)
        a.gone()
        a.bye()
        code, said, _ = step.exit(137)
        self.assertEqual(code, 137)
        self.assertIn("out of memory", said[0])

    def test_unknown_status(self):
        step = self.step(counts=(1,))
        a, = step.start()
        a.exit(0, UNKNOWN)
        a.abort()
        a.gone()
        a.bye()
        self.assertEqual(step.exit(0)[0], 1)

    def test_stepd_died(self):
        step = self.step()
        a, b = step.start()
        b.note(STEPD_DIED)
        for x in (a, b):
            x.abort()
            x.obey()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)
        self.assertIn("slurmstepd of node n2 died first", said[0])

    def test_port_stolen(self):
        step = self.step()
        a, b = step.start()
        a.exit(0, exited(1), message="Address already in use")
        a.note(PORT_STOLEN, "pid 99 (thief) of user 5 listens there")
        a.abort()
        a.exit(1, 15, AFTER_ABORT)
        a.gone(1)
        a.bye()
        b.abort()
        b.obey()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)
        self.assertIn("master port 40000 of node n1", said[0])
        self.assertIn("thief", said[0])

    def test_warning_is_said(self):
        step = self.step()
        a, _ = step.start()
        a.note(WARNING, "something\nodd")
        self.assertEqual(step.line(),
                         "say warning: node n1: something odd")
        for _ in range(100):
            a.note(WARNING, "again")
        time.sleep(0.2)
        n = 0
        while not step.silent(0.1):
            n += 1
        self.assertLess(n, 17)

    def test_early_exit(self):
        step = self.step(exit=300)
        a, b = step.start()
        a.exit(0, 0)
        start = time.monotonic()
        self.assertIn("rank 0 on node n1 ended first", b.abort(2)[1])
        self.assertGreater(time.monotonic() - start, 0.25)
        b.obey()
        a.exit(1, 15, AFTER_ABORT)
        a.gone()
        a.bye()
        code, said, _ = step.exit(0)
        self.assertEqual(code, 1)
        self.assertIn("3 ranks ran on for 0.3 s", said[0])

    def test_early_exit_is_no_failure(self):
        step = self.step()
        a, b = step.start()
        a.finish()
        with self.assertRaises(socket.timeout):
            b.recv(0.3)
        b.finish()
        self.assertEqual(step.exit(0)[:2], (-1, []))

    def test_early_exit_of_a_cancelled_step(self):
        step = self.step(exit=300, launcher=self.launcher("cancelled"))
        a, b = step.start()
        a.exit(0, 0)
        with self.assertRaises(socket.timeout):
            b.recv(0.8)

    def test_abort_crosses_bye(self):
        step = self.step()
        a, b = step.start()
        a.finish()
        b.exit(2, exited(9))
        a.close()
        b.abort()
        b.exit(3, 15, AFTER_ABORT)
        b.gone(1)
        b.bye()
        code, _, took = step.exit(9)
        self.assertEqual(code, 9)
        self.assertLess(took, 0.5)

    def test_abort_node(self):
        step = self.step(abort=1)
        a, b = step.start()
        b.exit(3, exited(5))
        b.abort()
        b.exit(2, 15, AFTER_ABORT)
        b.gone(1)
        b.bye()
        with self.assertRaises(socket.timeout):
            a.recv(0.3)
        a.finish()
        code, said, _ = step.exit(5)
        self.assertEqual(code, 5)
        self.assertIn("rank 3 on node n2", said[0])

    def test_abort_none(self):
        step = self.step(abort=2)
        a, b = step.start()
        b.exit(3, exited(5))
        a.exit(0, exited(6))
        for x in (a, b):
            with self.assertRaises(socket.timeout):
                x.recv(0.2)
        a.exit(1, 0)
        a.bye()
        b.exit(2, 0)
        b.bye()
        code, said, _ = step.exit(6)
        self.assertEqual(code, 5)
        self.assertIn("failures: 2 in all", said[1])

    def test_abort_none_and_the_others_are_killed(self):
        """As Slurm's PMIx does: the first is a failure all the same."""
        step = self.step(abort=2, launcher=self.launcher("running"))
        a, b = step.start()
        b.exit(3, 9)
        for x in (a, b):
            with self.assertRaises(socket.timeout):
                x.recv(0.5)
        b.exit(2, 9)
        b.bye()
        a.exit(0, 9)
        a.exit(1, 9)
        a.bye()
        code, said, _ = step.exit(137)
        self.assertEqual(code, 137)
        self.assertIn("rank 3 on node n2 failed first", said[0])

    def test_last_resort(self):
        step = self.step(launcher=self.launcher("running"), grace=0)
        a, b = step.start()
        b.exit(3, exited(5))
        for x in (a, b):
            x.abort()
        a.obey()
        deadline = time.monotonic() + 8
        while not self.calls() and time.monotonic() < deadline:
            b.send(PING, struct.pack(">Q", now_us()))
            time.sleep(0.1)
        self.assertEqual(self.calls(), ["--kill-step %d.0" % JOB])
        code, said, _ = step.exit(137)
        self.assertEqual(code, 5)
        self.assertIn("did not answer: n2", said[-1])


class Loss(Case):
    def test_close(self):
        step = self.step(launcher=self.launcher("running"))
        a, b = step.start()
        b.close()
        start = time.monotonic()
        self.assertIn("n2 was lost first", a.abort()[1])
        self.assertLess(time.monotonic() - start, 0.1)
        a.obey()
        time.sleep(0.3)
        self.assertEqual(self.calls(), ["--kill-step %d.0" % JOB])
        code, said, _ = step.exit(1)
        self.assertEqual(code, 75)
        self.assertEqual(said[-1], "say   did not answer: n2")

    def test_reset(self):
        step = self.step()
        a, b = step.start()
        b.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                          struct.pack("ii", 1, 0))
        b.close()
        self.assertIn("n2 was lost first", a.abort()[1])

    def test_silence(self):
        step = self.step(node=600)
        a, b = step.start()
        self.assertEqual(a.welcome[:2], (150, 600))
        start = time.monotonic()
        a.sock.settimeout(0.1)
        got = None
        while not got and time.monotonic() - start < 3:
            a.send(PING, struct.pack(">Q", now_us()))
            try:
                got = a.abort(0.1)
            except socket.timeout:
                pass
        self.assertIn("nothing heard from its agent for 0.6 s", got[1])
        self.assertLess(time.monotonic() - start, 1.1)
        del b

    def test_stopped_controller_blames_nobody(self):
        step = self.step(node=500)
        a, b = step.start()
        os.kill(step.pid, signal.SIGSTOP)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            for x in (a, b):
                x.send(PING, struct.pack(">Q", now_us()))
            time.sleep(0.1)
        os.kill(step.pid, signal.SIGCONT)
        for x in (a, b):
            self.assertEqual(x.recv()[0], PONG)
            x.finish()
        self.assertEqual(step.exit(0)[:2], (-1, []))

    def test_quit(self):
        step = self.step(launcher=self.launcher("running"))
        a, b = step.start()
        b.close()
        a.abort()
        a.obey()
        lines = [step.line(10)]
        while not lines[-1].startswith("quit"):
            lines.append(step.line(10))
        self.assertEqual(lines[-1], "quit 75")
        self.assertIn("n2 was lost first", lines[0])
        self.assertEqual(step.exit(75)[:2], (75, []))

    def test_exit_bye_close_is_no_loss(self):
        step = self.step()
        a, b = step.start()
        b.finish()
        b.close()
        with self.assertRaises(socket.timeout):
            a.recv(0.3)
        a.finish()
        self.assertEqual(step.exit(0)[:2], (-1, []))

    def test_srun_killed(self):
        fake = subprocess.Popen(["sleep", "100"])
        self.addCleanup(fake.wait)
        report = os.path.join(self.dir.name, "report")
        step = self.step(fake_srun=fake.pid, report=report)
        a, b = step.start()
        fake.kill()
        for x in (a, b):
            self.assertIn("srun ended", x.abort()[1])
            x.obey()
        self.assertEqual(step.wait(2), 0)
        with open(report) as f:
            got = json.load(f)
        self.assertEqual((got["status"], got["cause"]["kind"]),
                         ("failed", "srun-died"))

    def test_channel_eof(self):
        step = self.step(grace=0)
        a, b = step.start()
        step.sock.close()
        a.abort()
        a.obey()
        b.abort()
        b.close()
        self.assertEqual(step.wait(5), 0)

    def test_eof_after_the_end(self):
        step = self.step()
        for a in step.start():
            a.finish()
        step.sock.close()
        self.assertEqual(step.wait(2), 0)

    def test_told_to_end(self):
        step = self.step(launcher=self.launcher("running"))
        a, b = step.start()
        os.kill(step.pid, signal.SIGTERM)
        for x in (a, b):
            self.assertIn("told to end", x.abort()[1])
            x.obey()
        code, said, _ = step.exit(1)
        self.assertEqual(code, 143)
        self.assertIn("the controller was told to end (SIGTERM)", said[0])

    def test_told_to_end_by_scancel(self):
        step = self.step(launcher=self.launcher("cancelled"))
        a, b = step.start()
        os.kill(step.pid, signal.SIGTERM)
        with self.assertRaises(socket.timeout):
            a.recv(0.5)
        for x in (a, b):
            x.exit(x.tasks[0], 15)
            x.exit(x.tasks[1], 15)
            x.bye()
        self.assertEqual(step.exit(143)[:2], (-1, []))


class Stopped(Case):
    def test_stood_still(self):
        """The controller is stopped, the agents give it up: their nodes are
        not to blame."""
        step = self.step(node=1000, launcher=self.launcher("running"))
        a, b = step.start()
        for _ in range(4):
            for x in (a, b):
                x.ping()
            time.sleep(0.2)
        os.kill(step.pid, signal.SIGSTOP)
        for _ in range(6):
            for x in (a, b):
                x.ping()
            time.sleep(0.25)
        for x in (a, b):
            x.close()
        time.sleep(0.5)
        os.kill(step.pid, signal.SIGCONT)
        code, said, _ = step.exit(143)
        self.assertEqual(code, 75)
        self.assertRegex(said[0], r"^say ddp-controller stood still for "
                         r"\d\.\d s or more")
        self.assertFalse(any("did not answer" in s for s in said), said)

    def test_a_node_that_closes_is_still_lost(self):
        step = self.step(node=1000, launcher=self.launcher("running"))
        a, b = step.start()
        for _ in range(8):
            for x in (a, b):
                x.ping()
            time.sleep(0.2)
        a.close()
        b.abort()
        b.obey()
        code, said, _ = step.exit(143)
        self.assertEqual(code, 75)
        self.assertIn("node n1 was lost first", said[0])


class Report(Case):
    def fail_one(self, step):
        a, b = step.start()
        b.exit(3, exited(7), message="boom \"x\"\n\xff")
        for x in (a, b):
            x.abort()
        a.obey()
        b.exit(2, 15, AFTER_ABORT)
        b.gone(1)
        b.bye()
        return step.exit(1)

    def test_json(self):
        path = os.path.join(self.dir.name, "report.json")
        code, said, _ = self.fail_one(self.step(report=path))
        self.assertEqual((code, len(said)), (7, 3))
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path) as f:
            r = json.load(f)
        self.assertEqual(
            (r["version"], r["job"], r["step"], r["status"], r["exit_code"],
             r["world_size"], r["nodes"]), (1, JOB, 0, "failed", 7, 4, 2))
        self.assertEqual(r["master"], {"addr": "127.0.0.1", "port": 40000})
        c = r["cause"]
        self.assertEqual((c["kind"], c["rank"], c["node"], c["pid"], c["code"],
                          c["signal"]), ("exit", 3, "n2", 1003, 7, None))
        self.assertIn("boom", c["message"])
        self.assertRegex(c["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")
        self.assertEqual(r["stopped"]["ranks"], 3)
        self.assertEqual([x["rank"] for x in r["ranks"]], [0, 1, 2, 3])
        self.assertEqual(r["ranks"][0]["signal"], 15)
        self.assertEqual(os.listdir(self.dir.name), ["report.json"])

    def test_ok(self):
        path = os.path.join(self.dir.name, "report.json")
        step = self.step(report=path)
        for a in step.start():
            a.finish()
        self.assertEqual(step.exit(0)[:2], (-1, []))
        with open(path) as f:
            r = json.load(f)
        self.assertEqual((r["status"], r["exit_code"], r["cause"]),
                         ("ok", 0, None))

    def test_no_folder(self):
        code, said, _ = self.fail_one(
            self.step(report=self.dir.name + "/none/report"))
        self.assertEqual(code, 7)
        # At once, and only once.
        self.assertIn("warning: no report in ", said[0])
        self.assertIn("No such file", said[0])
        self.assertEqual([s for s in said[1:] if "no report" in s], [])

    def test_folder_that_comes_later(self):
        path = self.dir.name + "/later"
        step = self.step(report=path + "/report")
        agents = step.start()
        os.mkdir(path)
        for a in agents:
            a.finish()
        code, said, _ = step.exit(0)
        self.assertEqual((code, len(said)), (-1, 1))
        self.assertTrue(os.path.exists(path + "/report"))

    def test_no_regular_file(self):
        """A device, a pipe, a socket are not replaced by a file."""
        fifo, long = self.dir.name + "/fifo", self.dir.name + "/" + 250 * "x"
        os.mkfifo(fifo)
        for path, why in ((fifo, "no regular file"), (long, "too long"),
                          (self.dir.name, "Is a directory")):
            code, said, _ = self.fail_one(self.step(report=path))
            self.assertEqual(code, 7)
            self.assertIn(why, said[0])
        self.assertTrue(stat.S_ISFIFO(os.lstat(fifo).st_mode))
        self.assertEqual(os.listdir(self.dir.name), ["fifo"])

    def test_file_size_limit(self):
        path = os.path.join(self.dir.name, "report")
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, old[1]))
        try:
            step = self.step(report=path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        code, said, _ = self.fail_one(step)
        self.assertEqual(code, 7)
        self.assertIn("File too large", said[-1])
        self.assertEqual(os.listdir(self.dir.name), [])

    def test_fields(self):
        path = os.path.join(self.dir.name, "report.json")
        step = self.step(report=path)
        a, b = step.start()
        a.exit(0, 11, message="gr\u00fc\u00df \u2713 \u202e\x1b[31mx")
        for x in (a, b):
            x.abort()
        a.exit(1, 15, AFTER_ABORT)
        a.gone(1)
        a.bye()
        b.obey()
        _, said, _ = step.exit(1)
        self.assertIn("say   message: gr\u00fc\u00df \u2713 x", said)
        with open(path) as f:
            r = json.load(f)
        self.assertEqual(r["cause"]["message"], "gr\u00fc\u00df \u2713 x")
        self.assertIs(r["watched"], True)
        self.assertRegex(r["end"], r"^\d{4}-\d\d-\d\dT[\d:.]{15}[+-]\d\d:\d\d$")
        self.assertLess(len(str(r["uptime"])), 14)

    def test_full_disk(self):
        where = os.path.join(self.dir.name, "full")
        os.mkdir(where)
        if os.getuid() or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=3", "tmpfs",
                 where], capture_output=True).returncode:
            self.skipTest("no small tmpfs can be mounted here")
        try:
            with open(where + "/fill", "wb") as f:
                try:
                    f.write(bytes(8192))
                    f.flush()
                except OSError:
                    pass
        except OSError:
            pass
        try:
            code, said, _ = self.fail_one(self.step(report=where + "/report"))
            self.assertEqual(code, 7)
            self.assertIn("No space left", said[-1])
            self.assertEqual(os.listdir(where), ["fill"])
        finally:
            subprocess.run(["umount", where], check=True)

    def test_link_is_not_followed(self):
        path = os.path.join(self.dir.name, "report")
        victim = os.path.join(self.dir.name, "victim")
        open(victim, "w").close()
        os.symlink(victim, path)
        self.fail_one(self.step(report=path))
        self.assertEqual(os.stat(victim).st_size, 0)
        self.assertFalse(os.path.islink(path))


class Fallback(Case):
    """--ddp-control=prefer, and a node that does not come."""

    def begun(self, **kw):
        step = self.step(counts=(1, 1), prefer=1, start=300, port=40123,
                         given=1, **kw)
        a = step.agent(0).ready()
        self.assertEqual(a.plan()[:2], (1, 40123))
        line = step.line()
        self.assertIn("not watched", line)
        self.assertNotIn("prefer or", line)
        a.bye()
        return step

    def test_report(self):
        path = os.path.join(self.dir.name, "report.json")
        for code, status in ((0, "ok"), (4, "failed")):
            step = self.begun(report=path)
            self.assertEqual(step.exit(code)[0], -1)
            with open(path) as f:
                r = json.load(f)
            self.assertEqual((r["status"], r["exit_code"]), (status, code))
            self.assertIs(r["watched"], False)
            self.assertEqual(r["master"]["port"], 40123)
            self.assertEqual([x["status"] for x in r["ranks"]],
                             ["unwatched"] * 2)

    @unittest.skipUnless(os.access(STATUS, os.X_OK), "ddp-status is not built")
    def test_status(self):
        step = self.begun()
        time.sleep(0.1)
        out = subprocess.run([STATUS, str(JOB)], capture_output=True,
                             text=True, timeout=10).stdout
        self.assertIn("stateless", out)
        self.assertIn("127.0.0.1:40123", out)
        self.assertIn("nobody watches", out)
        self.assertEqual(out.count("unwatched"), 2)
        step.exit(0)


class Status(Case):
    def names(self, job=JOB):
        with open("/proc/net/unix") as f:
            return re.findall(r"@(slurm-ddp/%d/%d\.0/[0-9a-f]{16})$" %
                              (os.getuid(), job), f.read(), re.M)

    def test_document(self):
        step = self.step(counts=(1, 1))
        a, b = step.start()
        a.exit(0, exited(3))
        b.abort()
        name, = self.names()
        s = socket.socket(socket.AF_UNIX)
        s.connect("\0" + name)
        data = b""
        while True:
            more = s.recv(65536)
            if not more:
                break
            data += more
        s.close()
        got = json.loads(data)
        self.assertEqual(got["status"], "aborting")
        self.assertEqual([r["status"] for r in got["ranks"]],
                         ["exited", "running"])
        self.assertEqual(got["ranks"][1]["pid"], 1001)
        time.sleep(0.1)
        self.assertEqual(children(step.pid), [])

    def test_slow_askers(self):
        step = self.step()
        step.start()
        name, = self.names()
        idle = []
        for _ in range(20):
            s = socket.socket(socket.AF_UNIX)
            s.connect("\0" + name)
            idle.append(s)
        for a in step.agents:
            a.finish()
        self.assertEqual(step.exit(0)[:2], (-1, []))
        self.assertEqual(step.wait(2), 0)
        for s in idle:
            s.close()

    @unittest.skipUnless(os.access(STATUS, os.X_OK), "ddp-status is not built")
    def test_hostile_sockets(self):
        """Who pretends to be a controller can neither hold us nor hide."""
        name = "\0slurm-ddp/%d/7%d.0/deadbeefdeadbeef"
        full, slow = 1 + os.getpid() % 1000, 2000 + os.getpid() % 1000
        keep = []
        s = socket.socket(socket.AF_UNIX)
        s.bind(name % (os.getuid(), full))
        s.listen(0)
        for _ in range(4):
            c = socket.socket(socket.AF_UNIX)
            c.setblocking(False)
            c.connect_ex(name % (os.getuid(), full))
            keep.append(c)
        start = time.monotonic()
        out = subprocess.run([STATUS, "7%d" % full], capture_output=True,
                             text=True, timeout=25)
        self.assertEqual(out.returncode, 1)
        self.assertLess(time.monotonic() - start, 5)
        s.close()
        s = socket.socket(socket.AF_UNIX)
        s.bind(name % (os.getuid(), slow))
        s.listen(1)
        p = subprocess.Popen([STATUS, "7%d" % slow], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
        c = s.accept()[0]
        start = time.monotonic()
        while p.poll() is None and time.monotonic() < start + 25:
            try:
                c.send(b" ")
            except OSError:
                pass
            time.sleep(0.5)
        self.assertEqual(p.poll(), 1)
        self.assertIn("gave no answer", p.communicate()[1])
        for x in (*keep, c, s):
            x.close()

    @unittest.skipUnless(os.access(STATUS, os.X_OK), "ddp-status is not built")
    def test_wrong_calls(self):
        for arg in ("abc", "31_1", "31.x"):
            out = subprocess.run([STATUS, arg], capture_output=True, text=True,
                                 timeout=10)
            self.assertEqual(out.returncode, 2)
            self.assertIn('"%s" is no JOB' % arg, out.stderr)

    @unittest.skipUnless(os.access(STATUS, os.X_OK), "ddp-status is not built")
    def test_program(self):
        step = self.step(counts=(1, 1))
        a, _ = step.start()
        a.exit(0, 11)
        time.sleep(0.1)
        out = subprocess.run([STATUS, str(JOB)], capture_output=True,
                             text=True, timeout=10)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertRegex(out.stdout, r"(?m)^ *0 +n1 +1000 +killed SIGSEGV")
        self.assertRegex(out.stdout, r"(?m)^ *1 +n2 +1001 +running")
        out = subprocess.run([STATUS, "%d.0" % JOB, "--json"],
                             capture_output=True, text=True, timeout=10)
        self.assertEqual(json.loads(out.stdout)["job"], JOB)
        out = subprocess.run([STATUS, str(NO_JOB)], capture_output=True,
                             text=True, timeout=10)
        self.assertEqual(out.returncode, 1)
        self.assertIn("srun --jobid=%d --overlap" % NO_JOB, out.stderr)


class ByHand(Case):
    def test_refuses(self):
        out = subprocess.run([CONTROLLER], capture_output=True, text=True,
                             timeout=5)
        self.assertEqual(out.returncode, 2)
        self.assertEqual(out.stderr.count("\n"), 1)

    def test_version(self):
        out = subprocess.run([CONTROLLER, "--version"], capture_output=True,
                             text=True, timeout=5)
        self.assertRegex(out.stdout, r"^ddp-controller \d")


if __name__ == "__main__":
    if not CONTROLLER:
        print("DDP_CONTROLLER, the program to test, is not set")
        sys.exit(77)
    unittest.main()
