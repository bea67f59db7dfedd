# SPDX-License-Identifier: Apache-2.0
"""Plays srun and the agents for one ddp-controller: no Slurm is needed."""
import fcntl
import hashlib
import hmac
import os
import signal
import socket
import struct
import time

CONTROLLER = os.environ.get("DDP_CONTROLLER", "")

(HELLO, CHALLENGE, AUTH, WELCOME, RESERVE, PORT, READY, PLAN, PING, PONG,
 EXIT, DYING, NOTE, ABORT, GONE, BYE, STATES, BLAME, LEFT, WAITS, ORDER, PUT,
 GET, VALUE) = range(1, 25)
AFTER_ABORT, CAUGHT_TERM, BEFORE_PLAN, OOM = 1, 2, 4, 8
STEPD_DIED, PORT_STOLEN, PORT_USED, WARNING = 1, 2, 3, 4
UNKNOWN = 0xffffffff
MAGIC = 0x44445043
# ddp-status looks at all of the machine: no other run has this job.
JOB = 1000000 + 2 * os.getpid()
NO_JOB = JOB + 1


def now_us():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def text(value):
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def frame(kind, fields=b""):
    payload = bytes([kind]) + fields
    return struct.pack(">I", len(payload)) + payload


def exited(code):
    return code << 8


class Agent:
    """One node's agent; every step of the protocol is a method."""

    def __init__(self, step, node, name=None, tasks=None, key=None):
        self.step, self.node = step, node
        self.name = step.nodes[node] if name is None else name
        self.tasks = step.ranks[node] if tasks is None else tasks
        self.key = step.key if key is None else key
        self.sock = socket.create_connection(("127.0.0.1", step.port), 5)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = b""
        step.socks.append(self.sock)

    def send(self, kind, fields=b""):
        self.sock.sendall(frame(kind, fields))

    def recv(self, timeout=5):
        """(type, fields), or None at the end of the stream."""
        self.sock.settimeout(timeout)
        while True:
            if len(self.buf) >= 4:
                size = struct.unpack(">I", self.buf[:4])[0]
                if len(self.buf) >= 4 + size:
                    payload = self.buf[4:4 + size]
                    self.buf = self.buf[4 + size:]
                    return payload[0], payload[1:]
            try:
                data = self.sock.recv(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self.buf += data

    def expect(self, kind, timeout=5):
        """The fields of the next message of this type.

        PONG is skipped, and RESERVE by who does not wait for it."""
        while True:
            got = self.recv(timeout)
            assert got is not None, "connection closed, wanted %d" % kind
            if got[0] == kind:
                return got[1]
            assert got[0] in (PONG, RESERVE), (got, kind)

    def hello_frame(self, **changes):
        v = dict(magic=MAGIC, version=1, job=self.step.job, stepid=0,
                 nonce=os.urandom(32))
        v.update(changes)
        self.nonce = v["nonce"]
        return frame(HELLO, struct.pack(">IBII", v["magic"], v["version"],
                                        v["job"], v["stepid"]) +
                     text(self.name) + v["nonce"])

    def mac(self, role, nonce):
        return hmac.new(self.key, b"ddp" + bytes([1]) + role + self.hello +
                        nonce, hashlib.sha256).digest()

    def auth(self):
        self.hello = self.hello_frame()
        self.sock.sendall(self.hello)
        got = self.expect(CHALLENGE)
        self.theirs, mac = got[:32], got[32:]
        assert mac == self.mac(b"c", self.theirs), "the controller's proof"
        self.proof = self.mac(b"a", self.theirs)
        self.send(AUTH, self.proof)
        got = self.expect(WELCOME)
        self.welcome = struct.unpack(">IIBI", got)
        return self

    def ready(self):
        body = struct.pack(">IQI", self.node, now_us(), len(self.tasks))
        for local, rank in enumerate(self.tasks):
            body += struct.pack(">III", rank, local, 1000 + rank)
        self.send(READY, body)
        return self

    def port(self, port=40000, why=""):
        self.expect(RESERVE)
        self.send(PORT, struct.pack(">H", port) + text(why))

    def plan(self, timeout=5):
        got = self.expect(PLAN, timeout)
        flags, port, size = struct.unpack(">BHI", got[:7])
        return flags, port, got[7:7 + size].decode()

    def exit(self, rank, status, flags=0, message="", when=None):
        self.send(EXIT, struct.pack(
            ">IIIQB", rank, 1000 + rank, status,
            now_us() if when is None else when, flags) + text(message))

    def ping(self):
        self.send(PING, struct.pack(">Q", now_us()))

    def dying(self, rank):
        self.send(DYING, struct.pack(">IQ", rank, now_us()))

    def note(self, kind, message=""):
        self.send(NOTE, bytes([kind]) + text(message))

    def abort(self, timeout=5):
        got = self.expect(ABORT, timeout)
        return struct.unpack(">BI", got[:5]), got[7:].decode()

    def states(self, *pairs):
        self.send(STATES, struct.pack(">I", len(pairs)) + b"".join(
            struct.pack(">IB", *p) for p in pairs))

    def blame(self, rank, code, message, flags=0):
        self.send(BLAME, struct.pack(">IIQBB", rank, 1000 + rank, now_us(),
                                     code, flags) + text(message))

    def left(self, rank, count, mpi=0):
        self.send(LEFT, struct.pack(">IQB", rank, count, mpi))

    def waits(self, rank, count):
        self.send(WAITS, struct.pack(">IQ", rank, count))

    def order(self, timeout=5):
        return struct.unpack(">BI", self.expect(ORDER, timeout))

    def gone(self, stopped=0, others=0, left=0):
        self.send(GONE, struct.pack(">III", stopped, others, left))

    def bye(self):
        self.send(BYE)

    def obey(self, status=15):
        """ABORT came: all ranks of the node end, then GONE and BYE."""
        for rank in self.tasks:
            self.exit(rank, status, AFTER_ABORT)
        self.gone(len(self.tasks))
        self.bye()

    def finish(self):
        for rank in self.tasks:
            self.exit(rank, 0)
        self.bye()

    def close(self):
        self.sock.close()

    def closed(self, timeout=5):
        """Is the stream at its end, after whatever was left in it?"""
        while True:
            try:
                if self.recv(timeout) is None:
                    return True
            except socket.timeout:
                return False


class Step:
    """A controller with what srun would hold of it."""

    def __init__(self, counts=(2, 2), nodes=None, het=False, plan=None,
                 given=0, port=0, fake_srun=None, life=False, **conf):
        self.key = os.urandom(32)
        self.job = JOB
        self.nodes = nodes or ["n%d" % (i + 1) for i in range(len(counts))]
        self.ranks, first = [], 0
        for n in counts:
            self.ranks.append(list(range(first, first + n)))
            first += n
        self.world = first
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self.sock, theirs = socket.socketpair()
        values = dict(srun=fake_srun or os.getpid(), job=self.job, step=0,
                      lo=0, hi=0, abort=0, signal=15, grace=1000, exit=0,
                      start=10000, node=20000, prefer=0, ready=0)
        self.report = conf.pop("report", "")
        self.launcher = conf.pop("launcher", "")
        values.update(conf)
        if plan is None:
            plan = ("v=1;job=%d;step=0;restart=0;mode=full;fw=torch;given=%d;"
                    "addr=127.0.0.1;port=%d;verify=0;iface=none;tasks=%s%s" %
                    (JOB, given, port, ",".join(map(str, counts)),
                     (";het=1" if het else "") + (";life=1" if life else "")))
        lines = ["key=" + self.key.hex()]
        lines += ["%s=%d" % kv for kv in values.items()]
        lines += ["report=" + self.report, "launcher=" + self.launcher,
                  "nodes=" + ",".join(self.nodes), "plan=" + plan, "", ""]
        self.pid = self.spawn(listener, theirs)
        listener.close()
        theirs.close()
        self.sock.sendall("\n".join(lines).encode())
        self.text = b""
        self.agents, self.socks = [], []

    @staticmethod
    def spawn(listener, channel):
        # posix_spawn-like: both on their numbers, nothing else.
        high = [fcntl.fcntl(f.fileno(), fcntl.F_DUPFD, 100)
                for f in (listener, channel)]
        pid = os.posix_spawn(
            CONTROLLER, [CONTROLLER],
            {"PATH": os.environ["PATH"],
             # It lets nobody trace it, as LeakSanitizer must.
             "ASAN_OPTIONS": "detect_leaks=0"}, file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, high[0], 3),
                (os.POSIX_SPAWN_DUP2, high[1], 4)])
        for fd in high:
            os.close(fd)
        return pid

    def line(self, timeout=5):
        """The next line from the controller, None at the end."""
        self.sock.settimeout(timeout)
        while b"\n" not in self.text:
            try:
                data = self.sock.recv(4096)
            except ConnectionError:
                return None
            if not data:
                return None
            self.text += data
        line, self.text = self.text.split(b"\n", 1)
        return line.decode()

    def silent(self, seconds=0.2):
        try:
            return self.line(seconds) is None
        except socket.timeout:
            return True

    def exit(self, status=0, timeout=15):
        """Says exit; (code, said lines, seconds until the answer)."""
        start = time.monotonic()
        self.sock.sendall(b"exit %d\n" % status)
        said = []
        while True:
            line = self.line(timeout)
            assert line is not None, ("no answer", said)
            if line.startswith("end "):
                return int(line[4:]), said, time.monotonic() - start
            if line == "wait 0":    # it has heard
                continue
            assert line.startswith(("say ", "quit ")), line
            said.append(line)

    def agent(self, node, **kw):
        a = Agent(self, node, **kw).auth()
        self.agents.append(a)
        return a

    def obey(self):
        """All agents do what ABORT says."""
        for a in self.agents:
            a.abort()
            a.obey()

    def start(self, port=40000):
        """All agents through the barrier."""
        agents = [self.agent(i).ready() for i in range(len(self.nodes))]
        agents[0].port(port)
        for a in agents:
            assert a.plan()[1] == port
        return agents

    def wait(self, timeout=5):
        """The controller's exit status; it must end in time."""
        end = time.monotonic() + timeout
        while self.pid and time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
            time.sleep(0.005)
        assert not self.pid, "the controller did not end"
        return self.status

    def close(self):
        for s in self.socks + [self.sock]:
            s.close()
        try:
            self.wait(0.2)
        except AssertionError:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
            return
        assert self.status == 0, "controller ended with %d" % self.status
