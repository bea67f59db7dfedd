# SPDX-License-Identifier: Apache-2.0
"""A controller and a slurmstepd for tests of one agent."""
import atexit
import ctypes
import hashlib
import hmac
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

AGENT = os.environ.get("DDP_AGENT", "ddp-agent")
HELPER = os.environ.get("DDP_GATE_HELPER", "gate_helper")
KEY = bytes(range(32))
UID = 54321 if os.getuid() == 0 else 0   # 0: as who runs the tests
NAMES = ("? HELLO CHALLENGE AUTH WELCOME RESERVE PORT READY PLAN PING PONG "
         "EXIT DYING NOTE ABORT GONE BYE STATES BLAME LEFT WAITS ORDER PUT "
         "GET VALUE").split()
(HELLO, CHALLENGE, AUTH, WELCOME, RESERVE, PORT, READY, PLAN, PING, PONG,
 EXIT, DYING, NOTE, ABORT, GONE, BYE, STATES, BLAME, LEFT, WAITS, ORDER, PUT,
 GET, VALUE) = range(1, 25)
STATELESS, LIFE = 1, 2
AFTER_ABORT, CAUGHT_TERM, BEFORE_PLAN, OOM = 1, 2, 4, 8
STEPD_DIED, PORT_STOLEN, PORT_USED, WARNING = 1, 2, 3, 4

# Orphans of the tests are reaped here, whatever process 1 does.
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


@atexit.register
def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def now_us():
    return time.monotonic_ns() // 1000


def state(pid):
    """'Z', 'S', …; '' if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(") ", 1)[1][0]
    except OSError:
        return ""


def alive(pid):
    s = state(pid)
    if s == "Z":
        try:
            os.waitpid(pid, os.WNOHANG)
        except OSError:
            pass
    return s not in ("", "Z", "X")


def until(what, limit=5.0, step=0.005):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(step)
    return what()


def text(s):
    s = s.encode()
    return struct.pack(">H", len(s)) + s


class Message:
    """A decoded message: type and the fields by name."""

    def __init__(self, data):
        self.type, self.data = data[0], data[1:]
        f = {EXIT: self._exit, READY: self._ready, PORT: self._port,
             NOTE: self._note, DYING: self._dying, GONE: self._gone,
             STATES: self._states, BLAME: self._blame, LEFT: self._left,
             WAITS: self._left, PUT: self._pair, GET: self._pair}
        f.get(self.type, lambda: None)()

    def _exit(self):
        (self.rank, self.pid, self.status, self.when,
         self.flags) = struct.unpack_from(">IIIQB", self.data)
        self.text = self.data[23:].decode()

    def _ready(self):
        self.node, self.now, n = struct.unpack_from(">IQI", self.data)
        self.tasks = [struct.unpack_from(">III", self.data, 16 + 12 * i)
                      for i in range(n)]

    def _port(self):
        self.port, = struct.unpack_from(">H", self.data)
        self.text = self.data[4:].decode()

    def _note(self):
        self.kind, self.text = self.data[0], self.data[3:].decode()

    def _dying(self):
        self.rank, self.when = struct.unpack(">IQ", self.data)

    def _gone(self):
        self.stopped, self.others, self.left = struct.unpack(">III",
                                                             self.data)

    def _states(self):
        n, = struct.unpack_from(">I", self.data)
        self.states = [struct.unpack_from(">IB", self.data, 4 + 5 * i)
                       for i in range(n)]

    def _blame(self):
        (self.rank, self.pid, self.when, self.code,
         self.flags) = struct.unpack_from(">IIQBB", self.data)
        self.text = self.data[20:].decode()

    def _left(self):
        self.rank, self.count = struct.unpack_from(">IQ", self.data)
        self.mpi = self.data[12] if len(self.data) > 12 else None

    def _pair(self):
        texts, at = [], 0
        while at < len(self.data):
            n, = struct.unpack_from(">H", self.data, at)
            texts.append(self.data[at + 2:at + 2 + n].decode())
            at += 2 + n
        self.name, self.value = (texts + [None])[:2]

    def __repr__(self):
        more = {k: v for k, v in vars(self).items() if k != "data"}
        return f"{NAMES[self.type]} {more}"


class Connection:
    """One connection of an agent."""

    def __init__(self, sock):
        self.sock, self.pings, self.job = sock, 0, None

    def close(self):
        self.sock.close()

    def _read(self, n):
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                return None
            data += more
        return data

    def get(self, limit=5.0):
        """The next message, None at the end; answers no pings."""
        self.sock.settimeout(limit)
        head = self._read(4)
        if head is None:
            return None
        data = self._read(struct.unpack(">I", head)[0])
        return None if data is None else Message(data)

    def next(self, *types, limit=5.0):
        """The next message that is no PING, which are answered."""
        end = time.monotonic() + limit
        while True:
            m = self.get(max(0.001, end - time.monotonic()))
            if m and m.type == PING:
                self.pings += 1
                self.put(PONG, m.data)
                continue
            if types and (m is None or m.type not in types):
                raise AssertionError(f"{m} instead of "
                                     f"{[NAMES[t] for t in types]}")
            return m

    def put(self, kind, data=b""):
        self.sock.sendall(struct.pack(">IB", len(data) + 1, kind) + data)

    def mac(self, key, role, hello, nonce):
        frame = struct.pack(">IB", len(hello) + 1, HELLO) + hello
        return hmac.new(key, b"ddp\x01" + role + frame + nonce,
                        hashlib.sha256).digest()

    def challenge(self, key=KEY):
        m = self.get()
        assert m.type == HELLO, m
        self.hello, self.nonce = m.data, os.urandom(32)
        self.job, self.step = struct.unpack_from(">II", m.data, 5)
        n, = struct.unpack_from(">H", m.data, 13)
        self.name = m.data[15:15 + n].decode()
        self.put(CHALLENGE, self.nonce +
                 self.mac(key, b"c", self.hello, self.nonce))

    def handshake(self, ping=1000, silence=20000, sig=15, grace=500):
        self.challenge()
        m = self.get()
        assert m.type == AUTH, m
        assert m.data == self.mac(KEY, b"a", self.hello, self.nonce)
        self.put(WELCOME, struct.pack(">IIBI", ping, silence, sig, grace))

    def plan(self, flags=0, port=0, plan=""):
        plan = plan.encode()
        self.put(PLAN, struct.pack(">BHI", flags, port, len(plan)) + plan)

    def abort(self, sig=15, grace=500, why="because"):
        self.put(ABORT, struct.pack(">BI", sig, grace) + text(why))

    def order(self, code=7, wait=10000):
        self.put(ORDER, struct.pack(">BI", code, wait))

    def left(self, rank, count, mpi=0):
        self.put(LEFT, struct.pack(">IQB", rank, count, mpi))

    def value(self, name, value):
        self.put(VALUE, text(name) + text(value))

    def reserve(self, port=0, lo=0, hi=0):
        self.put(RESERVE, struct.pack(">HHH", port, lo, hi))
        return self.next(PORT)


class Controller:
    def __init__(self, host="127.0.0.1", backlog=20):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.sock = socket.socket(family)
        self.sock.bind((host, 0))
        self.sock.listen(backlog)
        self.host, self.port = host, self.sock.getsockname()[1]
        self.open = []

    def text(self, need=1, start=30000, addrs=None, port=None):
        return (f"v=1;port={port or self.port};need={need};start={start};"
                f"addrs={addrs or self.host};key={KEY.hex()}")

    def accept(self, limit=5.0):
        self.sock.settimeout(limit)
        c = Connection(self.sock.accept()[0])
        self.open.append(c)
        return c

    def close(self):
        self.sock.close()
        for c in self.open:
            c.close()


class Step:
    """gate_helper with its agent and tasks."""

    jobs = os.getpid() % 100000 * 100

    def __init__(self, control, command="nap 60", tasks=2, node="n1",
                 job=None, flags="", first=0, index=0, **more):
        if job is None:
            Step.jobs += 1
            job = Step.jobs
        self.job, self.lines = job, []
        self.dir = tempfile.mkdtemp(prefix="ddp-test-")
        os.chmod(self.dir, 0o777)
        # A name of its own: who ends processes by name does not mean ours.
        os.symlink("/bin/sleep", f"{self.dir}/nap")
        self.proc = subprocess.Popen(
            [HELPER, f"agent={AGENT}", f"job={job}", "step=3",
             f"node={node}", f"control={control}", f"tasks={tasks}",
             f"first={first}", f"index={index}", f"uid={UID}",
             f"flags={flags}", *(f"{k}={v}" for k, v in more.items()),
             command], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True, cwd=self.dir,
            env={**os.environ, "PATH": f"{self.dir}:/usr/bin:/bin"})
        self.started = time.monotonic()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        self.agent = int(self.line("agent")[0][1])
        self.pids = [int(w[2]) for w in self.line("task", tasks)]

    def _read(self):
        for line in self.proc.stdout:
            self.lines.append(line.decode().rstrip("\n"))

    def line(self, word, n=1, limit=5.0):
        """The first n lines that begin with a word, split."""
        def got():
            return [w for w in (s.split(" ", 5) for s in list(self.lines))
                    if w[0] == word]
        until(lambda: len(got()) >= n, limit)
        assert len(got()) >= n, f"{n} x {word}: {self.lines}"
        return got()

    def gate(self, n=1, limit=5.0):
        """[rank, state, port, dir, text] of the tasks at the gate."""
        return [(int(w[1]), int(w[2]), int(w[3]), w[4],
                 w[5] if len(w) > 5 else "")
                for w in self.line("gate", n, limit)]

    def agent_gone(self, limit=8.0):
        return until(lambda: not alive(self.agent), limit)

    def close(self):
        """What a test left; the tests assert before."""
        for pid in [self.agent, *self.pids, -self.pids[0]]:
            if pid < 0 or alive(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        until(lambda: not alive(self.agent), 2)
        self.proc.stdin.close()
        try:
            self.proc.wait(2)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        self.proc.stdout.close()
        dirs = {w[4] for w in (x.split(" ") for x in self.lines)
                if w[0] == "gate" and w[4] != "-"}
        subprocess.run(["rm", "-rf", self.dir, *dirs], check=False)
