#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ddp-agent alone, between a controller and a slurmstepd that are played."""
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import agent_harness as h  # noqa: E402
from agent_harness import alive, until  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        self.ctl = h.Controller()
        self.addCleanup(self.ctl.close)

    def step(self, command="nap 60", **kw):
        control = kw.pop("control", None)
        if control is None:
            control = self.ctl.text()
        s = h.Step(control, command, **kw)
        self.addCleanup(s.close)
        return s

    def started(self, command="nap 60", welcome=None, port=0, plan="",
                **kw):
        """A step whose programs run: (step, connection)."""
        s = self.step(command, **kw)
        c = self.ctl.accept()
        c.handshake(**(welcome or {}))
        self.ready = c.next(h.READY)
        c.plan(port=port, plan=plan)
        s.gate(len(s.pids))
        return s, c

    def exits(self, c, n):
        return {m.rank: m for m in (c.next(h.EXIT) for _ in range(n))}

    def gone(self, s, c=None, limit=8.0):
        if c:
            c.close()
        self.assertTrue(s.agent_gone(limit), "the agent is still there")
        for pid in s.pids:
            self.assertFalse(alive(pid))


class Start(Case):
    def test_handshake_barrier_gate(self):
        s = self.step(tasks=3, first=4, index=2, node="node-7")
        c = self.ctl.accept()
        c.handshake()
        self.assertEqual((c.job, c.step, c.name), (s.job, 3, "node-7"))
        m = c.next(h.READY)
        self.assertEqual(m.node, 2)
        self.assertEqual([t[:2] for t in m.tasks],
                         [(4, 0), (5, 1), (6, 2)])
        self.assertEqual([t[2] for t in m.tasks], s.pids)
        self.assertLess(abs(m.now - h.now_us()), 1000000)
        time.sleep(0.2)
        self.assertFalse([x for x in s.lines if x.startswith("gate")])
        c.plan(port=12345, plan="v=1;the=plan")
        for rank, state, port, d, plan in s.gate(3):
            self.assertEqual((state, port, plan), (1, 12345, "v=1;the=plan"))
            self.assertEqual(os.stat(d).st_mode & 0o777, 0o700)
        c.abort(grace=0)
        self.exits(c, 3)
        c.next(h.GONE)
        c.next(h.BYE)
        self.gone(s, c)
        self.assertFalse(os.path.exists(d))

    def test_wrong_key(self):
        """A peer that does not know the key gets no proof."""
        s = self.step(control=self.ctl.text(start=1500))
        c = self.ctl.accept()
        c.challenge(key=b"x" * 32)
        self.assertIsNone(c.get())
        c = self.ctl.accept()
        c.put(h.WELCOME, b"\0" * 13)
        try:
            while (m := c.get()):
                self.assertEqual(m.type, h.HELLO)
        except ConnectionResetError:
            pass
        c = self.ctl.accept()
        c.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.ctl.sock.close()
        g = s.gate(2)
        self.assertEqual(g[0][1], 3)
        self.gone(s)

    def test_refused(self):
        """require, and nobody there: what was tried and what to do."""
        self.ctl.sock.close()
        s = self.step(control=self.ctl.text(start=1000, addrs="127.0.0.1,::1"
                                            ",192.0.2.1"))
        g = s.gate(2)
        took = time.monotonic() - s.started
        self.assertEqual(g[0][1], 3)
        self.assertGreater(took, 0.9)
        self.assertLess(took, 1.5)
        for word in ("127.0.0.1 port", "refused", "::1 port", "192.0.2.1",
                     "SrunPortRange", "--ddp-control=prefer", "n1"):
            self.assertIn(word, g[0][4])
        self.gone(s)

    def test_prefer(self):
        self.ctl.sock.close()
        s = self.step("exit 0", control=self.ctl.text(start=1000, need=0))
        g = s.gate(2)
        took = time.monotonic() - s.started
        self.assertEqual([x[1] for x in g], [2, 2])
        self.assertEqual(g[0][3], "-")
        self.assertLess(took, 0.8)
        self.assertTrue(s.agent_gone(1))

    def test_plan_stateless(self):
        s = self.step("nap 0.3")
        c = self.ctl.accept()
        c.handshake()
        c.next(h.READY)
        c.plan(flags=1, port=77)
        self.assertEqual([x[1:3] for x in s.gate(2)], [(2, 77), (2, 77)])
        c.next(h.BYE)
        self.assertTrue(s.agent_gone(2))
        self.assertEqual([w[2] for w in s.line("exited", 2)], ["0", "0"])

    def test_addresses(self):
        """The first is silent, the second refuses, the third is IPv6."""
        silent = socket.socket()
        silent.bind(("127.0.0.2", 0))
        silent.listen(1)
        port = silent.getsockname()[1]
        ctl = socket.socket(socket.AF_INET6)
        ctl.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ctl.bind(("::1", port))
        ctl.listen(5)
        self.ctl.sock.close()
        self.ctl.sock = ctl
        s = self.step(control=self.ctl.text(
            addrs="127.0.0.2,127.0.0.3,::1", port=port))
        c = self.ctl.accept()
        self.assertLess(time.monotonic() - s.started, 0.5)
        c.handshake()
        c.next(h.READY)
        silent.settimeout(1)
        other = h.Connection(silent.accept()[0])
        self.assertEqual(other.get().type, h.HELLO)
        self.assertIsNone(other.get())
        silent.close()
        other.close()

    def test_late_controller(self):
        port = self.ctl.port
        self.ctl.sock.close()
        s = self.step()
        time.sleep(0.5)
        self.ctl.sock = socket.socket()
        self.ctl.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.ctl.sock.bind(("127.0.0.1", port))
        self.ctl.sock.listen(5)
        c = self.ctl.accept()
        c.handshake()
        c.next(h.READY)
        self.assertTrue(alive(s.agent))

    def test_bad_control(self):
        s = self.step(control="v=1;port=0")
        g = s.gate(2)
        self.assertEqual(g[0][1], 3)
        self.assertIn("SLURM_DDP_CHANNEL", g[0][4])
        self.gone(s)

    def test_no_pidfds_no_task_messages(self):
        for flags in ("nopidfd", "notask", "noexited"):
            with self.subTest(flags):
                s, c = self.started("nap 0.$RANK; exit 7", flags=flags)
                e = self.exits(c, 2)
                self.assertEqual([e[r].status for r in (0, 1)],
                                 [7 << 8, 7 << 8])
                c.next(h.BYE)
                self.gone(s, c)

    def test_dies_before_plan(self):
        s = self.step()
        c = self.ctl.accept()
        c.handshake()
        c.next(h.READY)
        os.kill(s.pids[1], signal.SIGKILL)
        m = c.next(h.EXIT)
        self.assertEqual((m.rank, m.status), (1, 9))
        self.assertTrue(m.flags & h.BEFORE_PLAN)
        c.abort(why="node n2 is missing")
        m = c.next(h.EXIT)
        self.assertEqual(m.rank, 0)
        self.assertEqual(m.status, 1 << 8)
        self.assertEqual(s.gate(1)[0][1], 3)
        self.assertIn("n2 is missing", s.gate(1)[0][4])
        c.next(h.GONE)
        c.next(h.BYE)
        self.gone(s, c)

    def test_absent_task(self):
        """One never reaches the gate; the other is not there any more."""
        s = self.step(flags="absent")
        c = self.ctl.accept()
        c.handshake()
        until(lambda: state_of_wait(s.pids[0]), 1)
        c.abort(grace=300)
        e = self.exits(c, 2)
        self.assertEqual(e[1].status, 15)
        c.next(h.GONE)
        c.next(h.BYE)
        self.gone(s, c)

    def test_by_hand(self):
        for args, rc in (([], 2), (["x"], 2), (["--version"], 0)):
            p = subprocess.run([h.AGENT, *args], capture_output=True,
                               text=True, timeout=5, check=False)
            self.assertEqual(p.returncode, rc)
            self.assertEqual((p.stderr + p.stdout).count("\n"), 1)


def state_of_wait(pid):
    return h.state(pid) == "S"


class Ends(Case):
    def test_statuses(self):
        s, c = self.started(
            "case $RANK in 0) exit 0;; 1) nap 0.1; exit 7;; "
            "2) nap 0.2; kill -SEGV $$;; 3) nap 0.3; kill -KILL $$;; "
            "*) trap '' USR1; trap 'exit 3' TERM; nap 0.4; exit 255; esac",
            tasks=5, welcome={"ping": 50})
        got = [c.next(h.EXIT) for _ in range(5)]
        self.assertEqual([m.rank for m in got], [0, 1, 2, 3, 4])
        self.assertEqual([m.status & 0x7f7f for m in got],
                         [0, 7 << 8, 11, 9, 0x7f00 & (255 << 8)])
        self.assertEqual([m.pid for m in got], s.pids)
        when = [m.when for m in got]
        self.assertEqual(when, sorted(when))
        for a, b in zip(when, when[1:]):
            self.assertLess(abs(b - a - 100000), 60000)
        self.assertEqual([bool(m.flags & h.CAUGHT_TERM) for m in got],
                         [False] * 4 + [True])
        self.assertFalse(any(m.flags & (h.AFTER_ABORT | h.BEFORE_PLAN |
                                        h.OOM) for m in got))
        c.next(h.BYE)
        self.gone(s, c)

    @unittest.skipUnless(
        h.UID and os.access("/sys/fs/cgroup/memory", os.W_OK),
        "needs root and the memory cgroup of version 1")
    def test_memory_kill(self):
        group = f"/sys/fs/cgroup/memory/ddp-test-{os.getpid()}"
        os.mkdir(group)
        self.addCleanup(os.rmdir, group)
        with open(group + "/memory.limit_in_bytes", "w") as f:
            f.write("20M")
        s = self.step("[ $RANK = 0 ] && kill -KILL $$; nap 0.1; exec python3 "
                      "-c 'bytearray(b\"x\" * (200 << 20))'")
        c = self.ctl.accept()
        c.handshake()
        c.next(h.READY)
        with open(group + "/cgroup.procs", "w") as f:
            f.write(str(s.pids[1]))
        c.plan()
        e = self.exits(c, 2)
        self.assertEqual([e[0].status, e[1].status], [9, 9])
        self.assertFalse(e[0].flags & h.OOM)
        self.assertTrue(e[1].flags & h.OOM)

    def test_not_dumpable_program(self):
        """Its status is hidden from us: it is asked for, not taken as 0."""
        for i in range(10):
            s, c = self.started(
                "exec python3 -c 'import ctypes, os, time; ctypes.CDLL(None)"
                ".prctl(4, 0); time.sleep(0.05); os._exit(9)'", flags="late")
            e = self.exits(c, 2)
            self.assertEqual([m.status for m in e.values()], [9 << 8] * 2)
            c.next(h.BYE)
            self.gone(s, c)

    def test_error_file(self):
        s, c = self.started(
            "case $RANK in "
            "0) printf '{\"message\": {\"message\": \"Boom\\\\u001b[31m %s\", "
            "\"extraInfo\": {\"py_callstack\": \"x\"}}}' red "
            ">$TORCHELASTIC_ERROR_FILE; exit 1;; "
            "1) ln -s /etc/passwd $TORCHELASTIC_ERROR_FILE; exit 1;; "
            "2) mkfifo $TORCHELASTIC_ERROR_FILE; exit 1;; "
            "3) head -c 70000 /dev/zero >$TORCHELASTIC_ERROR_FILE; exit 1;; "
            "esac", tasks=4)
        e = self.exits(c, 4)
        self.assertEqual([e[r].text for r in range(4)],
                         ["Boom red", "", "", ""])
        d = s.gate(4)[0][3]
        self.assertTrue(os.path.isdir(d))
        c.next(h.BYE)
        self.gone(s, c)
        self.assertFalse(os.path.exists(d))

    def test_other_directories(self):
        """Young ones, others' files and others' directories are kept."""
        old = [f"/dev/shm/ddp-agent-{os.getpid()}-{i}" for i in range(2)]
        for d in old:
            os.mkdir(d, 0o700)
            self.addCleanup(subprocess.run, ["rm", "-rf", d], check=False)
            with open(d + "/0.json", "w"):
                pass
        os.chown(old[0], h.UID or os.getuid(), -1)
        s, c = self.started("exit 0")
        self.exits(c, 2)
        c.next(h.BYE)
        self.gone(s, c)
        self.assertEqual([os.listdir(d) for d in old], [["0.json"]] * 2)

    def test_bye_without_close(self):
        """The controller need not close: not for ever."""
        s, c = self.started("exit 0")
        self.exits(c, 2)
        c.next(h.BYE)
        self.assertTrue(alive(s.agent))
        self.assertTrue(s.agent_gone(6))

    def test_stopped_is_not_dead(self):
        s, c = self.started(welcome={"ping": 50, "silence": 200})
        for p in s.pids:
            os.kill(p, signal.SIGSTOP)
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            try:
                self.fail(c.next(limit=0.1))
            except TimeoutError:
                pass
        self.assertGreater(c.pings, 5)
        c.abort(grace=1000)
        e = self.exits(c, 2)
        self.assertEqual({m.status for m in e.values()}, {15})
        c.next(h.GONE)


class Abort(Case):
    def test_gang(self):
        s, c = self.started(tasks=8)
        t = time.monotonic()
        c.abort(grace=5000)
        e = self.exits(c, 8)
        self.assertEqual({m.status for m in e.values()}, {15})
        self.assertTrue(all(m.flags & h.AFTER_ABORT for m in e.values()))
        m = c.next(h.GONE)
        took = time.monotonic() - t
        self.assertEqual((m.stopped, m.left), (8, 0))
        c.next(h.BYE)
        self.assertLess(took, 0.5)
        self.gone(s, c)

    def test_ignoring_and_hidden(self):
        """TERM ignored, a daemon of its own session, one without the
        environment, one of another node and one of another job."""
        s, c = self.started(
            "trap '' TERM; setsid nap 61 & echo $! >d1; "
            "env -i ./nap 62 & echo $! >d2; "
            "SLURMD_NODENAME=n2 setsid -f sh -c 'echo $$ >d3; exec nap 63';"
            "SLURM_JOB_ID=1 setsid -f sh -c 'echo $$ >d4; exec nap 64'; "
            "setsid -f sh -c 'echo $$ >d5; exec nap 65'; "
            "while :; do nap 1; done", tasks=1)

        def pid(n):
            path = f"{s.dir}/d{n}"
            until(lambda: os.path.exists(path) and os.path.getsize(path))
            with open(path) as f:
                return int(f.read())
        pids = [pid(n) for n in range(1, 6)]
        until(lambda: all(os.getpgid(pids[i]) == pids[i] or i == 1
                          for i in range(5)), 1)
        time.sleep(0.1)
        t = time.monotonic()
        c.abort(grace=400)
        m = c.next(h.EXIT)
        took = time.monotonic() - t
        self.assertEqual(m.status, 9)
        self.assertGreater(took, 0.39)
        self.assertLess(took, 0.6)
        m = c.next(h.GONE)
        self.assertEqual((m.stopped, m.left), (1, 0))
        self.assertGreaterEqual(m.others, 3)
        self.assertEqual([alive(p) for p in pids],
                         [False, False, True, True, False])
        for p in pids[2:4]:
            os.kill(p, signal.SIGKILL)
        c.next(h.BYE)
        self.gone(s, c)

    def test_no_environment(self):
        """Daemons that only their parents know, and who have none soon."""
        for ends in ("sleep 0.1; exit 1", "nap 0.2; nap 0.2; nap 60"):
            s, c = self.started(
                f"trap '{ends}' TERM; env -i setsid /bin/sleep 61.5 & "
                "echo $! >d.$RANK; nap 60 & wait; nap 60", tasks=2)
            pids = [int(until(lambda r=r: self.content(s, f"d.{r}")))
                    for r in range(2)]
            until(lambda: all(h.state(p) for p in pids))
            time.sleep(0.1)
            c.abort(grace=400)
            m = c.next(h.EXIT, h.GONE, limit=5)
            while m.type != h.GONE:
                m = c.next(h.EXIT, h.GONE, limit=5)
            self.assertEqual([p for p in pids if alive(p)], [])
            s.close()

    @staticmethod
    def content(s, name):
        try:
            with open(os.path.join(s.dir, name)) as f:
                return f.read().strip()
        except OSError:
            return ""

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_main_thread_has_ended(self):
        """A zombie for who looks at it, and yet it runs."""
        with tempfile.TemporaryDirectory() as d:
            os.chmod(d, 0o755)
            with open(f"{d}/z.c", "w") as f:
                f.write("#include <pthread.h>\n#include <unistd.h>\n"
                        "static void *t(void *p) { sleep(62); return p; }\n"
                        "int main(void) { pthread_t x; setsid(); "
                        "pthread_create(&x, 0, t, 0); pthread_exit(0); }\n")
            subprocess.run(["cc", "-pthread", "-o", f"{d}/z", f"{d}/z.c"],
                           check=True)
            s, c = self.started(f"({d}/z & echo $! >d.$RANK); exec nap 60",
                                tasks=1)
            pid = int(until(lambda: self.content(s, "d.0")))
            self.assertTrue(until(lambda: h.state(pid) == "Z"))
            self.assertEqual(self.threads(pid), 2)
            c.abort(grace=0)
            m = c.next(h.EXIT, h.GONE, limit=5)
            while m.type != h.GONE:
                m = c.next(h.EXIT, h.GONE, limit=5)
            # Its main thread is a zombie either way: the others count.
            self.assertTrue(until(lambda: self.threads(pid) <= 1, 2))

    @staticmethod
    def threads(pid):
        try:
            return len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            return 0

    @unittest.skipUnless(h.UID and shutil.which("unshare"), "needs root")
    def test_number_of_a_group_used_again(self):
        """A stranger has got the pid, and so the group, of a rank that had
        ended: not touched. In a pid namespace: numbers can be chosen."""
        p = subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", sys.executable,
             __file__, "Reuse.check"], capture_output=True, text=True,
            timeout=60, env={**os.environ, "DDP_REUSE": "1"})
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)

    def test_epilog(self):
        """A TaskEpilog looks like a process of the step, and is not."""
        s, c = self.started("[ $RANK = 1 ] && exit 1; exec nap 60",
                            flags="epilog")
        self.assertEqual(c.next(h.EXIT).rank, 1)
        c.abort()
        self.assertEqual(c.next(h.EXIT).rank, 0)
        m = c.next(h.GONE)
        self.assertEqual((m.stopped, m.others, m.left), (1, 0, 0))
        self.assertTrue(until(lambda: os.path.exists(s.dir + "/epilog"), 2))
        c.next(h.BYE)
        self.gone(s, c)

    def test_once(self):
        """Each process gets the signal once."""
        s, c = self.started(
            "exec python3 -c '\n"
            "import os, signal, time\n"
            "n = 0\n"
            "def f(*a):\n"
            "    global n\n"
            "    n += 1\n"
            "signal.signal(signal.SIGUSR1, f)\n"
            "open(\"up\" + os.environ[\"RANK\"], \"w\")\n"
            "end = time.time() + 20\n"
            "while not n and time.time() < end: time.sleep(0.01)\n"
            "time.sleep(0.2)\n"
            "os._exit(n)'", tasks=3)
        until(lambda: all(os.path.exists(f"{s.dir}/up{r}")
                          for r in range(3)))
        c.abort(sig=signal.SIGUSR1, grace=3000)
        e = self.exits(c, 3)
        self.assertEqual({m.status for m in e.values()}, {1 << 8})
        c.next(h.GONE)

    def test_after_bye(self):
        """Leftovers of a step whose tasks have ended."""
        s, c = self.started("setsid nap 61 & echo $! >d; nap 0.2; exit 0",
                            tasks=1)
        self.exits(c, 1)
        c.next(h.BYE)
        with open(f"{s.dir}/d") as f:
            pid = int(f.read())
        self.assertTrue(alive(pid))
        c.abort()
        m = c.next(h.GONE)
        self.assertEqual((m.stopped, m.others, m.left), (0, 1, 0))
        self.assertFalse(alive(pid))
        self.gone(s, c)

    def test_dying(self):
        """Killed by a signal, but not dead yet when ABORT comes."""
        libc = h.ctypes.CDLL(None, use_errno=True)
        s, c = self.started("kill -STOP $$; exec nap 60")
        pid = s.pids[1]
        until(lambda: h.state(pid) == "T")
        # PTRACE_SEIZE with PTRACE_O_TRACEEXIT holds it at its end.
        rc = libc.ptrace(0x4206, pid, None, h.ctypes.c_void_p(0x40))
        self.assertEqual(rc, 0, os.strerror(h.ctypes.get_errno()))
        os.kill(pid, signal.SIGSEGV)
        os.kill(pid, signal.SIGCONT)

        def at_exit():
            got, status = os.waitpid(pid, os.WNOHANG | 0x40000000)
            if got and status >> 8 == (5 | 6 << 8):
                return True
            if got:
                sig = os.WSTOPSIG(status) if status >> 16 == 0 else 0
                libc.ptrace(7, pid, None, h.ctypes.c_void_p(sig))
            return False
        self.assertTrue(until(at_exit))
        t = h.now_us()
        os.kill(s.pids[0], signal.SIGCONT)
        c.abort(grace=300)
        m = c.next(h.DYING)
        self.assertEqual(m.rank, 1)
        self.assertLess(abs(m.when - t), 300000)
        m = c.next(h.EXIT)
        self.assertEqual((m.rank, m.status), (0, 15))
        libc.ptrace(17, pid, None, None)
        m = c.next(h.EXIT)
        self.assertEqual((m.rank, m.status & 0x7f), (1, 11))
        m = c.next(h.GONE)
        self.assertEqual(m.stopped, 1)

    def test_core(self):
        """A core that takes a while is not cut short before the grace."""
        with open("/proc/sys/kernel/core_pattern") as f:
            if f.read().startswith("|"):
                self.skipTest("cores are piped to a program")
        s, c = self.started(
            "if [ $RANK = 0 ]; then ulimit -c unlimited && exec python3 -c '\n"
            "import os\nb = bytearray(700 << 20)\n"
            "for i in range(0, len(b), 4096): b[i] = 1\n"
            "os.abort()'; fi; nap 60")

        def dumping():
            try:
                with open(f"/proc/{s.pids[0]}/status") as f:
                    return "CoreDumping:\t1" in f.read()
            except OSError:
                return False
        if not until(dumping, 20, 0.001):
            self.skipTest("no core was seen being written")
        c.abort(grace=20000)
        m = c.next(h.DYING)
        self.assertEqual(m.rank, 0)
        e = self.exits(c, 1)
        self.assertEqual(e[1].status, 15)
        m = c.next(h.EXIT, limit=20)
        self.assertEqual(m.status, 6 | 0x80)
        c.next(h.GONE)


class Lost(Case):
    def stubborn(self):
        """Two ranks that ignore SIGTERM, once they do."""
        s, c = self.started("trap '' TERM; : >up.$RANK; "
                            "while :; do nap 1; done", welcome={"grace": 300})
        self.assertTrue(until(lambda: all(
            os.path.exists(f"{s.dir}/up.{r}") for r in range(2))))
        return s, c

    def test_controller_closes(self):
        s, c = self.stubborn()
        t = time.monotonic()
        c.close()
        self.gone(s)
        self.assertLess(time.monotonic() - t, 1)
        self.assertEqual({int(w[2]) for w in s.line("exited", 2)}, {9})

    def test_controller_silent(self):
        s, c = self.started(welcome={"ping": 100, "silence": 400})
        t = time.monotonic()
        until(lambda: not alive(s.pids[0]))
        self.assertLess(time.monotonic() - t, 0.7)
        self.gone(s)

    def test_controller_lost_before_plan(self):
        s = self.step()
        c = self.ctl.accept()
        c.handshake()
        c.next(h.READY)
        c.close()
        self.assertEqual([g[1] for g in s.gate(2)], [3, 3])
        self.gone(s, limit=2)

    def test_stepd_killed(self):
        s, c = self.stubborn()
        s.proc.kill()
        m = c.next(h.NOTE)
        self.assertEqual(m.kind, h.STEPD_DIED)
        e = self.exits(c, 2)
        self.assertTrue(all(m.status in (9, 0xffffffff)
                            for m in e.values()))
        m = c.next(h.GONE)
        self.assertEqual(m.left, 0)
        c.next(h.BYE)
        self.gone(s, c)

    def test_both_killed(self):
        s, c = self.started()
        d = s.gate(2)[0][3]
        s.proc.kill()
        c.close()
        self.gone(s, limit=2)
        self.assertFalse(os.path.exists(d))

    def test_stepd_killed_at_the_gate(self):
        s = self.step()
        c = self.ctl.accept()
        c.handshake()
        c.next(h.READY)
        s.proc.kill()
        m = c.next(h.NOTE)
        self.assertEqual(m.kind, h.STEPD_DIED)
        self.exits(c, 2)
        c.next(h.GONE)
        c.next(h.BYE)
        self.gone(s, c)

    def test_agent_stopped(self):
        """An agent that was stopped does not think its peer is lost."""
        s, c = self.started(welcome={"ping": 100, "silence": 500})
        os.kill(s.agent, signal.SIGSTOP)
        time.sleep(1.7)
        os.kill(s.agent, signal.SIGCONT)
        c.next(h.EXIT, limit=0.3) if not alive(s.pids[0]) else None
        try:
            self.fail(c.next(limit=0.3))
        except TimeoutError:
            pass
        self.assertTrue(alive(s.pids[0]))

    def test_bad_messages(self):
        for data in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\1\x63",
                     b"\0\0\0\1\x08", b"\0\0\0\1\x01"):
            with self.subTest(data):
                s, c = self.started("nap 60", tasks=1)
                c.sock.sendall(data)
                self.gone(s, limit=3)
                c.close()


SERVER = """
import os, socket, sys, time
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(41, 26, 0)
for i in range(int(sys.argv[2])):
    if os.fork(): os._exit(os.wait()[1] >> 8)
s.bind(("::", int(sys.argv[1])))
s.listen(5)
time.sleep(60)
"""


class Port(Case):
    def setUp(self):
        super().setUp()
        self.server = f"/tmp/ddp-server-{os.getpid()}.py"
        with open(self.server, "w") as f:
            f.write(SERVER)
        self.addCleanup(os.unlink, self.server)

    def reserved(self, command, **want):
        s = self.step(command)
        c = self.ctl.accept()
        c.handshake()
        c.next(h.READY)
        m = c.reserve(**want)
        self.assertEqual(m.text, "")
        return s, c, m.port

    def listen(self, port, uid=0):
        p = subprocess.Popen(
            ["/bin/sh", "-c", f"exec python3 {self.server} {port} 0"],
            user=uid, group=uid, extra_groups=[] if h.UID else None,
            env={"PATH": "/usr/bin:/bin"})
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p

    def test_held_and_used(self):
        for children in (0, 1):
            s, c, port = self.reserved(
                f"[ $RANK = 1 ] || exec python3 {self.server} $MASTER_PORT "
                f"{children}; nap 60")
            with socket.socket() as sock, self.assertRaises(OSError):
                sock.bind(("127.0.0.1", port))
            c.plan(port=port)
            m = c.next(h.NOTE)
            self.assertEqual(m.kind, h.PORT_USED, m)
            c.abort(grace=0)

    @staticmethod
    def free_ports(n):
        """The first of n ports in a row that nobody has now."""
        for _ in range(1000):
            first = random.randrange(20000, 30000)
            socks = [socket.socket() for _ in range(n)]
            try:
                for i, s in enumerate(socks):
                    s.bind(("", first + i))
                return first
            except OSError:
                pass
            finally:
                for s in socks:
                    s.close()
        raise AssertionError("no free ports")

    def test_range_and_fixed(self):
        at = self.free_ports(5)
        s, c, port = self.reserved("nap 60", lo=at, hi=at + 3)
        self.assertIn(port, range(at, at + 4))
        m = c.reserve(port=at + 2)
        self.assertEqual(m.port, at + 2)
        p = self.listen(at + 3)
        until(lambda: not h.subprocess.call(
            ["python3", "-c", "import socket; "
             f"socket.create_connection(('127.0.0.1', {at + 3}))"],
            stderr=subprocess.DEVNULL))
        m = c.reserve(port=at + 3)
        self.assertEqual(m.port, 0)
        self.assertIn("in use by", m.text)
        self.assertIn("user id 0" if h.UID else f"pid {p.pid}", m.text)
        m = c.reserve(lo=at + 3, hi=at + 3)
        self.assertEqual(m.port, 0)
        self.assertIn(f"no port of {at + 3}-{at + 3}", m.text)
        m = c.reserve(lo=at + 3, hi=at + 4)
        self.assertEqual(m.port, at + 4)

    def test_thief_of_ones_own(self):
        s, c, port = self.reserved("nap 60")
        p = self.listen(port, h.UID)
        c.plan(port=port)
        m = c.next(h.NOTE)
        self.assertEqual(m.kind, h.PORT_STOLEN)
        self.assertIn(f"pid {p.pid}", m.text)
        self.assertIn(str(port), m.text)

    @unittest.skipUnless(h.UID, "needs root")
    def test_thief_of_another_user(self):
        s, c, port = self.reserved("nap 60")
        c.plan(port=port)
        s.gate(2)
        self.listen(port, h.UID + 1)
        m = c.next(h.NOTE)
        self.assertEqual(m.kind, h.PORT_STOLEN)
        self.assertIn(f"user id {h.UID + 1}", m.text)

    def test_rank_0_fails_first(self):
        """PORT_STOLEN comes before the EXIT that it explains."""
        s, c, port = self.reserved(
            "[ $RANK = 1 ] && exec nap 60; nap 1.3; exit 1")
        c.plan(port=port)
        s.gate(2)
        time.sleep(0.7)     # between two looks
        self.listen(port, h.UID)
        m = c.next(h.NOTE)
        self.assertEqual(m.kind, h.PORT_STOLEN)
        m = c.next(h.EXIT)
        self.assertEqual(m.rank, 0)


class Place(Case):
    """The tasks ask for places; ddp-place is played, but for the first."""

    def fake(self, script):
        d = tempfile.mkdtemp(prefix="ddp-test-")
        self.addCleanup(shutil.rmtree, d)
        os.chmod(d, 0o755)
        if script is not None:
            with open(f"{d}/ddp-place", "w") as f:
                f.write("#!/bin/sh\n" + script + "\n")
            os.chmod(f"{d}/ddp-place", 0o755)
        return d

    def asking(self, script, place="best-effort", **kw):
        return self.step(place=place, helpers=self.fake(script), **kw)

    def connected(self, s):
        c = self.ctl.accept()
        c.handshake(grace=200)
        return c

    @staticmethod
    def places(s):
        """[rank, state, text] of every task."""
        return sorted((int(w[1]), int(w[2]), " ".join(w[3:]))
                      for w in s.line("place", len(s.pids)))

    @staticmethod
    def children(pid):
        """Processes that it has started, zombies too."""
        found = []
        for p in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{p}/stat") as f:
                    if f.read().rsplit(") ", 1)[1].split()[1] == str(pid):
                        found.append(int(p))
            except OSError:
                pass
        return found

    def clean(self, s):
        """No process and no pipe is left of it."""
        self.assertTrue(until(lambda: not self.children(s.agent), 2),
                        "a child of the agent is left")
        if os.getuid() == 0:
            fds = [os.readlink(f"/proc/{s.agent}/fd/{n}")
                   for n in os.listdir(f"/proc/{s.agent}/fd")]
            # Both ends of one are its own.
            self.assertEqual([x for x in fds if x.startswith("pipe:") and
                              fds.count(x) != 2], [])

    def go_on(self, s, c, warning):
        """best-effort: the step starts, with one warning."""
        c.next(h.READY)
        c.plan()
        self.assertEqual({g[1] for g in s.gate(2)}, {1})
        got = self.places(s)
        self.assertEqual([p[:2] for p in got], [(0, 1), (1, 1)])
        self.assertIn(warning, got[0][2])
        if warning:
            self.assertIn("ranks are not bound to CPUs and GPUs", got[0][2])
        self.assertEqual(got[1][2], "")
        self.clean(s)
        c.abort(grace=0)
        self.gone(s, c)

    def refused(self, s, c, why):
        """A policy that cannot be judged: no program starts."""
        e = self.exits(c, 2)
        self.assertTrue(all(m.flags & h.BEFORE_PLAN for m in e.values()))
        self.assertTrue(all(why in m.text for m in e.values()), e)
        self.assertEqual({g[1] for g in s.gate(2)}, {3})
        for rank, state, text in self.places(s):
            self.assertEqual(state, 2)
            self.assertIn("the policy restricted cannot be judged", text)
            self.assertIn(why, text)
        self.clean(s)
        c.abort(grace=0)
        self.gone(s, c)

    FAILS = {
        "crash": ("kill -SEGV $$", "crashed"),
        "killed": ("kill -KILL $$", "crashed"),
        "ends at once": ("exit 0", "crashed"),
        "ends with an error": ("exit 3", "crashed"),
        "missing": (None, "ddp-place could not be started"),
        "says why": ("printf 'no topology' >&3", "no topology"),
        "eight bytes": ("printf abcdefgh >&3", "abcdefgh"),
        "garbage": ("head -c 3000 /dev/urandom >&3; exec sleep 20", ""),
        "control characters": ("printf 'a\\033[31mb\\nc' >&3", "a?[31mb?c"),
        "closes, and stays": ("exec 3>&-; exec sleep 20", "crashed"),
        "reads, and crashes": ("head -c 1 <&5 >/dev/null; kill -ABRT $$", "crashed"),
    }

    def test_fails(self):
        for name, (script, warning) in self.FAILS.items():
            with self.subTest(name):
                s = self.asking(script)
                self.go_on(s, self.connected(s), warning)
                s.close()

    def test_fails_strict(self):
        for name, (script, warning) in self.FAILS.items():
            with self.subTest(name):
                s = self.asking(script, place="restricted")
                self.refused(s, self.connected(s), warning)
                s.close()

    def test_stateless(self):
        """Without a controller the agent is there for the places alone."""
        for script in ("exit 1", None):
            s = self.asking(script, control="", command="nap 0.1")
            self.assertEqual({g[1] for g in s.gate(2)}, {2})
            self.assertIn("not bound", self.places(s)[0][2])
            self.assertTrue(s.agent_gone(2), "the agent is still there")
            s.close()
        s = self.asking("exit 1", place="single-numa-node", control="")
        self.assertEqual({g[1] for g in s.gate(2)}, {3})
        self.assertEqual({p[1] for p in self.places(s)}, {2})
        self.assertTrue(s.agent_gone(2), "the agent is still there")

    def test_hangs(self):
        """Ten seconds, and no longer."""
        s = self.asking("exec sleep 60")
        c = self.connected(s)
        t = time.monotonic()
        m = c.next(h.READY, limit=15)
        took = time.monotonic() - t
        self.assertGreater(took, 8)
        self.assertLess(took, 12)
        self.assertGreater(c.pings, 5)
        c.plan()
        self.assertIn("could not be read within 10 s", self.places(s)[0][2])
        self.clean(s)
        self.assertEqual(m.node, 0)

    def test_agent_killed(self):
        """ddp-place goes too, and its own children."""
        s = self.asking("exec sleep 60")
        self.connected(s)
        kids = until(lambda: self.children(s.agent))
        os.kill(s.agent, signal.SIGKILL)
        self.assertTrue(until(lambda: not any(map(alive, kids)), 2))
        self.assertEqual({g[1] for g in s.gate(2)}, {-1})

    def test_places_killed_by_hand(self):
        s = self.asking("exec sleep 60", place="restricted")
        c = self.connected(s)
        kids = until(lambda: self.children(s.agent))
        for pid in kids:
            os.kill(pid, signal.SIGKILL)
        self.refused(s, c, "crashed")

    def test_real(self):
        """This machine, also where topology= would be read for ever."""
        helpers = os.path.dirname(os.path.abspath(h.AGENT))
        s = self.step(place="best-effort", helpers=helpers)
        c = self.connected(s)
        c.next(h.READY)
        c.plan()
        self.assertEqual([p[1] for p in self.places(s)], [1, 1])
        self.clean(s)
        c.abort(grace=0)
        s.close()
        fifo = self.fake(None) + "/fifo"
        os.mkfifo(fifo, 0o644)
        s = self.step(place="best-effort", helpers=helpers, topology=fifo)
        self.connected(s)
        self.assertIn("is no regular file; this machine is looked at instead",
                      self.places_after(s))

    def places_after(self, s):
        c = self.ctl.open[-1]
        c.next(h.READY)
        c.plan()
        return self.places(s)[0][2]

    def test_not_all_ask(self):
        """What one asks is not what all ask: said, not guessed."""
        helpers = os.path.dirname(os.path.abspath(h.AGENT))
        s = self.step(place="best-effort", helpers=helpers, flags="oneasks")
        c = self.connected(s)
        c.next(h.READY)
        c.plan()
        got = self.places(s)
        self.assertEqual([p[1] for p in got], [1, 1])
        self.assertIn("not bound", got[0][2])


class Reuse(Case):
    """Run by test_number_of_a_group_used_again."""

    def check(self):
        s, c = self.started("[ $RANK = 0 ] && exec /bin/true; "
                            "exec setsid nap 60", tasks=2)
        c.next(h.EXIT)
        first = s.pids[0]
        self.assertTrue(until(lambda: not h.state(first)))
        time.sleep(0.1)
        with open("/proc/sys/kernel/ns_last_pid", "w") as f:
            f.write(str(first - 1))
        p = subprocess.Popen(["/bin/sleep", "63"], user=h.UID, group=h.UID,
                             extra_groups=[], start_new_session=True, env={})
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.assertEqual(p.pid, first)
        c.abort(grace=0)
        m = c.next(h.EXIT, h.GONE)
        while m.type != h.GONE:
            m = c.next(h.EXIT, h.GONE)
        self.assertIsNone(p.poll())


class Cost(Case):
    def test_sleeps(self):
        s, c = self.started(welcome={"ping": 1000, "silence": 20000})

        def switches():
            with open(f"/proc/{s.agent}/status") as f:
                return sum(int(x.split()[1]) for x in f if "ctxt" in x)
        time.sleep(0.2)
        before, t = switches(), time.monotonic()
        while time.monotonic() < t + 3:
            try:
                self.fail(c.next(limit=0.5))
            except TimeoutError:
                pass
        n = switches() - before
        self.assertLess(n, 15)

    def test_not_dumpable(self):
        s, c = self.started()
        self.assertEqual(os.stat(f"/proc/{s.agent}/mem").st_uid, 0)
        fds = os.listdir(f"/proc/{s.agent}/fd")
        self.assertLess(len(fds), 20)


if __name__ == "__main__":
    unittest.main()
