#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ddp-agent and processes that use the life-cycle library, which are played
by life_peer.py in the tasks; controller and slurmstepd are played too."""
import os
import shlex
import shutil
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agent_harness as h  # noqa: E402
from agent_harness import until  # noqa: E402

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "life_peer.py")
NONE, STARTING, READY, RUNNING, STOPPING, ABORTING, GONE = range(7)


class Case(unittest.TestCase):
    def setUp(self):
        self.ctl = h.Controller()
        self.addCleanup(self.ctl.close)

    def run_peers(self, *words, tasks=1, flags=h.LIFE, before="exec ", **kw):
        """Tasks that run life_peer.py; with several, words[R] are R's."""
        if tasks == 1:
            command = before + "python3 life_peer.py " + shlex.join(words)
        else:
            command = "case $RANK in " + " ".join(
                "%d) exec python3 life_peer.py %s;;" % (r, w)
                for r, w in enumerate(words)) + " esac"
        s = h.Step(self.ctl.text(), command, tasks=tasks)
        self.addCleanup(s.close)
        shutil.copy(PEER, s.dir)
        os.chmod(os.path.join(s.dir, "life_peer.py"), 0o755)
        c = self.ctl.accept()
        c.handshake(**kw)
        c.next(h.READY)
        c.plan(flags=flags)
        s.gate(tasks)
        self.s, self.c = s, c
        return s, c

    def got(self, rank=0):
        try:
            with open(os.path.join(self.s.dir, "got.%d" % rank)) as f:
                return f.read().splitlines()[1:]
        except FileNotFoundError:
            return []

    def name(self, rank=0):
        path = os.path.join(self.s.dir, "got.%d" % rank)
        until(lambda: os.path.exists(path) and os.path.getsize(path))
        with open(path) as f:
            return f.readline().split(" ", 1)[1].rstrip("\n")

    def has_got(self, *lines, rank=0, limit=5):
        until(lambda: len(self.got(rank)) >= len(lines), limit)
        self.assertEqual(self.got(rank)[:len(lines)], list(lines))

    def nothing(self, seconds=0.3):
        """No message but pings."""
        try:
            self.fail("%r" % self.c.next(limit=seconds))
        except socket.timeout:
            pass

    def states(self):
        return self.c.next(h.STATES).states

    def end(self):
        """ABORT at once, and all that follows from it."""
        self.c.abort(grace=0)
        while self.c.next().type != h.BYE:
            pass
        self.c.close()
        self.assertTrue(self.s.agent_gone(), "the agent is still there")


class States(Case):
    def test_without_the_option(self):
        self.run_peers("sleep=30", flags=0)
        self.assertEqual(self.name(), "")
        self.end()

    def test_changes_are_collected(self):
        self.run_peers("hello", "send=state starting", "send=state ready",
                       "send=state running", "sleep=0.2",
                       "send=state stopping", "send=state gone", "hold")
        self.assertRegex(self.name(), r"^@slurm-ddp/life/\d+\.3/[0-9a-f]{16}$")
        self.assertEqual(self.states(), [(0, RUNNING)])
        self.assertEqual(self.states(), [(0, GONE)])
        self.end()

    def test_every_rank(self):
        self.run_peers("hello 'send=state ready' hold",
                       "sleep=0.3 hello 'send=state starting' hold", tasks=2)
        self.assertEqual(self.states(), [(0, READY)])
        self.assertEqual(self.states(), [(1, STARTING)])
        self.end()

    def test_children_do_not_count(self):
        """Whether they come later or first."""
        self.run_peers("child:hello,send=state aborting,sleep=30", "sleep=0.2",
                       "hello", "send=state running",
                       "child:hello,send=state gone,sleep=30", "sleep=0.3",
                       "send=state stopping", "hold")
        self.assertEqual(self.states(), [(0, ABORTING)])    # the only one yet
        self.assertEqual(self.states(), [(0, RUNNING)])
        self.assertEqual(self.states(), [(0, STOPPING)])
        self.end()

    def test_a_shell_around(self):
        """The rank's program need not be the task itself."""
        self.run_peers("hello", "send=state running",
                       "child:hello,send=state gone,sleep=30", "hold",
                       before=":; ")
        self.assertEqual(self.states(), [(0, RUNNING)])
        self.nothing()
        self.end()

    def test_disappears(self):
        """Without "gone": the end of the process tells more."""
        self.run_peers("hello", "send=state running", "sleep=0.2",
                       "exit=0")
        self.assertEqual(self.states(), [(0, RUNNING)])
        m = self.c.next(h.EXIT)
        self.assertEqual((m.rank, m.status), (0, 0))
        self.c.next(h.BYE)

    def test_says_before_life(self):
        self.run_peers("dial", "send=state running", "send=life 1 5",
                       "send=state stopping", "hold")
        self.assertEqual(self.states(), [(0, STOPPING)])
        self.end()


class Cause(Case):
    def test_once(self):
        self.run_peers("hello", "send=cause 7 MPI_Abort, code 7",
                       "send=cause 8 again", "hold")
        m = self.c.next(h.BLAME)
        self.assertEqual((m.rank, m.code, m.text),
                         (0, 7, "MPI_Abort, code 7"))
        self.assertEqual(m.pid, self.s.pids[0])
        self.assertLess(abs(m.when - h.now_us()), 1000000)
        self.nothing()
        self.end()

    def test_of_a_child(self):
        """It is the rank's that it belongs to."""
        self.run_peers("child:hello,send=cause 9 x,sleep=30", "sleep=30")
        m = self.c.next(h.BLAME)
        self.assertEqual((m.rank, m.code), (0, 9))
        self.assertNotEqual(m.pid, self.s.pids[0])
        self.end()

    def test_leaves_and_waits(self):
        self.run_peers("hello send='left 12 0' send='left 13 1' hold",
                       "hello recv send='waits 12' send='waits 12' hold",
                       tasks=2)
        m = self.c.next(h.LEFT)
        self.assertEqual((m.rank, m.count, m.mpi), (0, 12, 0))
        self.c.left(5, 12)
        m = self.c.next(h.WAITS)
        self.assertEqual((m.rank, m.count), (1, 12))
        self.has_got("left 12 0", rank=1)
        self.nothing()
        self.end()

    def test_the_next_program_is_another(self):
        """A script whose first program has left a communicator behind."""
        self.run_peers("hello", "send=left 3 0", "send=waits 12",
                       "send=state running", "hold",
                       before="python3 life_peer.py hello 'send=left 12 0' "
                       "exit=0; sleep 0.3; exec ")
        m = self.c.next(h.LEFT)
        self.assertEqual((m.rank, m.count), (0, 12))
        self.c.left(5, 12)
        self.assertEqual(self.states(), [(0, RUNNING)])
        self.c.left(5, 2)
        self.nothing()
        self.assertEqual([x for x in self.got() if x[:4] == "left"], [])
        self.end()

    def test_a_late_one_hears_of_who_has_left(self):
        """The lowest number, and each that is lower."""
        self.run_peers("sleep=0.6", "hello", "recv", "recv", "hold")
        self.name()
        for count in (12, 13, 11):
            self.c.left(5, count)
        self.has_got("left 11 0")
        self.c.left(6, 11)
        self.c.left(6, 3)
        self.has_got("left 11 0", "left 3 0")
        self.nothing()
        self.end()


class Abort(Case):
    def test_they_end_by_themselves(self):
        """No signal comes before they had their time."""
        self.run_peers("deaf", "hello=10000", "send=state running", "recv",
                       "sleep=0.2", "exit=7")
        self.states()
        self.c.order(7)
        self.c.abort(grace=5000, why="rank 3 failed first")
        m = self.c.next(h.EXIT)
        self.assertEqual((m.status, m.flags & h.AFTER_ABORT),
                         (7 << 8, h.AFTER_ABORT))
        m = self.c.next(h.GONE)
        self.assertEqual((m.stopped, m.left), (1, 0))
        self.c.next(h.BYE)
        self.assertEqual(self.got(), ["abort 7 rank 3 failed first"])

    def test_one_that_is_stopped(self):
        for before in ("exec ", ":; "):     # the task itself, or below it
            self.run_peers("hello=10000", "send=cause 1 x", "recv", "exit=7",
                           before=before)
            os.kill(self.c.next(h.BLAME).pid, signal.SIGSTOP)
            start = time.monotonic()
            self.c.order(7)
            self.c.abort(grace=5000)
            # The shell is signalled when nobody is left to wait for.
            self.assertIn(self.c.next(h.EXIT).status, (7 << 8, 15))
            self.assertLess(time.monotonic() - start, 3)
            self.c.next(h.GONE)
            self.c.next(h.BYE)
            self.c.close()

    def test_no_longer_than_they_say(self):
        self.run_peers("hello=300", "send=state running", "hold", "sleep=30")
        self.states()
        start = time.monotonic()
        self.c.order(7)
        self.c.abort(grace=5000)
        m = self.c.next(h.EXIT)
        self.assertEqual(m.status, signal.SIGTERM)
        self.assertGreater(time.monotonic() - start, 0.28)
        self.assertLess(time.monotonic() - start, 2)

    def test_no_longer_than_the_controller_says(self):
        self.run_peers("deaf", "hello=60000", "send=state running", "hold",
                       "sleep=30")
        self.states()
        start = time.monotonic()
        self.c.order(7, wait=200)
        self.c.abort(grace=300)
        m = self.c.next(h.EXIT)
        self.assertEqual(m.status, signal.SIGKILL)
        self.assertGreater(time.monotonic() - start, 0.48)
        self.assertLess(time.monotonic() - start, 2)
        self.assertIn("SIGTERM", self.got())

    def test_who_does_not_listen_is_not_waited_for(self):
        self.run_peers("dial", "sleep=30")
        self.name()
        time.sleep(0.3)
        start = time.monotonic()
        self.c.order(7)
        self.c.abort(grace=5000)
        self.assertEqual(self.c.next(h.EXIT).status, signal.SIGTERM)
        self.assertLess(time.monotonic() - start, 1)

    def test_children_are_told(self):
        self.run_peers("child:hello,hold", "hello", "send=state running",
                       "recv", "sleep=0.2", "exit=7")
        self.states()
        until(lambda: False, 0.3)
        self.c.order(7)
        self.c.abort(grace=5000, why="x")
        self.c.next(h.EXIT)
        self.c.next(h.GONE)
        self.assertEqual(self.got().count("abort 7 x"), 2)

    def test_a_late_one_is_told(self):
        self.run_peers("hello send='state running' hold sleep=30",
                       "sleep=0.6 hello recv exit=5", tasks=2)
        self.states()
        self.c.order(7, wait=1500)
        self.c.abort(grace=5000, why="x")
        m = self.c.next(h.EXIT)
        self.assertEqual((m.rank, m.status), (1, 5 << 8))
        self.has_got("abort 7 x", rank=1)

    def test_the_controller_is_lost(self):
        self.run_peers("deaf", "hello", "send=state running", "recv",
                       "sleep=0.1", "exit=5", grace=5000)
        self.states()
        self.c.close()
        self.has_got("abort 75 the connection to srun's controller was lost")
        self.assertTrue(self.s.agent_gone(4))

    def test_nothing_is_blamed_afterwards(self):
        self.run_peers("hello", "send=state running", "recv",
                       "send=cause 9 because of that", "sleep=0.2", "exit=9")
        self.states()
        self.c.order(7)
        self.c.abort(grace=5000)
        self.assertEqual(self.c.next(h.EXIT).status, 9 << 8)


class Values(Case):
    def test_put_and_get(self):
        """Asked for once a node, and kept."""
        self.run_peers("hello send='put nccl.0 00ff' send='get nccl.1' recv "
                       "hold", "hello send='get nccl.1' recv "
                       "send='get nccl.1' recv hold", tasks=2)
        seen = [self.c.next(h.PUT, h.GET) for _ in range(2)]
        seen.sort(key=lambda m: m.type)
        self.assertEqual([(m.name, m.value) for m in seen],
                         [("nccl.0", "00ff"), ("nccl.1", None)])
        time.sleep(0.3)
        self.c.value("nccl.2", "aa")    # nobody's
        self.c.value("nccl.1", "0102")
        self.has_got("value nccl.1 0102")
        self.has_got("value nccl.1 0102", "value nccl.1 0102", rank=1)
        self.nothing()
        self.end()

    def test_what_is_none(self):
        self.run_peers("hello", "send=get a", "recv", "hold")
        self.c.next(h.GET)
        self.c.value("a", "xyz")        # no hex
        self.c.value("a", "")
        self.nothing()
        self.assertEqual(self.got(), [])
        self.end()


class Hostile(Case):
    def connect(self, name):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(s.close)
        s.settimeout(5)
        s.connect("\0" + name[1:])
        return s

    def test_strangers(self):
        """Of another user, and of no task."""
        self.run_peers("sleep=30")
        s = self.connect(self.name())
        self.assertEqual(s.recv(10), b"")
        if h.UID:
            pid = os.fork()
            if not pid:
                os.setgid(h.UID)
                os.setuid(h.UID)
                s = self.connect(self.name())
                os._exit(0 if s.recv(10) == b"" else 1)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.nothing()
        self.end()

    def test_garbage(self):
        """It is left out; who says more than anybody has to is cut off."""
        junk = ["raw=" + x.hex() for x in (
            b"\0" * 100, b"\xff" * 511, b"a" * 4000, b"state", b"state lost",
            b"life", b"abort 1 me", b"cause 999 x", b"left -1 0", b"put a b",
            b"get ../x", b"value a 00", b"\n", b"state running" + b"\0" * 9,
            os.urandom(400))]
        self.run_peers("hello", *junk, "send=state ready", "hold")
        self.assertEqual(self.states(), [(0, READY)])
        self.end()

    def test_flood(self):
        self.run_peers("hello", *["raw=00"] * 4200, "hold", "sleep=30")
        self.has_got("end")
        self.assertTrue(h.alive(self.s.agent))
        self.end()

    def test_connects_again_and_again(self):
        """The agent's time is not the tasks' to spend."""
        self.run_peers("sleep=0.3", "again=3000", "sleep=0.5", "hello",
                       "send=state running", "hold")
        self.name()
        start = time.monotonic()
        self.assertEqual(self.states(), [(0, RUNNING)])
        self.assertGreater(time.monotonic() - start, 0.8 + 0.8)
        self.end()

    def test_many_connections(self):
        """A task's share, which leaves the others theirs."""
        self.run_peers("many=300", "sleep=0.5", "open", "sleep=30")
        until(lambda: len(self.got()) == 300, 20)
        self.assertEqual((self.got().count("open"),
                          self.got().count("closed")), (256, 44))
        self.end()

    def test_messages_of_the_controller(self):
        """Without the option they mean nothing, and harm nobody."""
        self.run_peers("sleep=30", flags=0)
        self.c.left(0, 1)
        self.c.value("a", "00")
        self.c.order(7)
        self.nothing()
        self.end()


if __name__ == "__main__":
    if not os.path.exists(h.AGENT):
        print("SKIP: ddp-agent is not built")
        sys.exit(77)
    unittest.main()
