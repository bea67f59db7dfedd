# SPDX-License-Identifier: Apache-2.0
"""ddp-gpu-sampler started as the accounting plugin starts it: its shared
memory and control socket, for tests."""
import fcntl
import mmap
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time

TOP = os.environ.get("top_builddir", ".")
SAMPLER = os.path.abspath(os.path.join(TOP, "ddp-gpu-sampler"))
FAKES = os.path.abspath(os.path.join(TOP, "tests", "fakes"))

# accounting/gpu_shm.h
MAGIC = 0x31475044
STARTING, SAMPLING, DONE, FAILED = range(4)
METRICS = ("sm", "membw", "nvlink", "pcie", "energy", "idle")
HEAD = struct.Struct("=IIIIqqqQ6d6d512s")
GPU = struct.Struct("=96sII7d")
SLOT = HEAD.size + 64 * GPU.size
SIZE = 16 + 2 * SLOT
STATE = ("state", "ngpus", "known_in", "known_out", "first", "last",
         "began", "readings")


# 3 and 4 are taken for good: a pipe of subprocess's there would be lost.
while os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) < 5:
    pass


class Totals:
    """One set of values; ins and outs hold the known ones alone."""

    def __init__(self, buf, at):
        h = HEAD.unpack_from(buf, at)
        for name, value in zip(STATE, h):
            setattr(self, name, value)
        self.ins = {m: h[8 + i] for i, m in enumerate(METRICS)
                    if self.known_in >> i & 1}
        self.outs = {m: h[14 + i] for i, m in enumerate(METRICS)
                     if self.known_out >> i & 1}
        self.text = h[20].split(b"\0")[0].decode()
        self.gpus = []
        for i in range(self.ngpus):
            g = GPU.unpack_from(buf, at + HEAD.size + i * GPU.size)
            self.gpus.append(dict(name=g[0].split(b"\0")[0].decode(),
                                  known=g[1], lost=g[2], sm=g[3]))

    def window(self):
        """[first, last] in seconds of CLOCK_REALTIME."""
        off = time.time() - time.monotonic()
        return self.first * 1e-9 + off, self.last * 1e-9 + off


class Folder:
    """The library and its scenario, where nobody may read them."""

    def __init__(self, scenario="", kind=""):
        # All parents must be root's, or ours: not below a build folder.
        self.path = tempfile.mkdtemp(prefix="sampler.", dir="/var/tmp")
        os.chmod(self.path, 0o755)
        self.library = os.path.join(self.path, "libnvidia-ml.so.1")
        self.log = os.path.join(self.path, "log")
        shutil.copy(os.path.join(FAKES, "libnvidia-ml" + kind,
                                 "libnvidia-ml.so.1"), self.library)
        os.chmod(self.library, 0o755)
        with open(self.log, "w"):
            pass
        os.chmod(self.log, 0o666)
        self.origin = time.time()
        with open(os.path.join(self.path, "scenario"), "w") as f:
            f.write(self.text(scenario))

    def text(self, scenario):
        return f"origin {self.origin:.6f}\nlog {self.log}\n{scenario}"

    def calls(self):
        with open(self.log) as f:
            return f.read().splitlines()

    def remove(self):
        shutil.rmtree(self.path, True)


class Sampler:
    def __init__(self, gpus, library=None, want=METRICS, interval=200,
                 extra=(), args=None, environ=None):
        self.fd = os.memfd_create("test", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, SIZE)
        self.map = mmap.mmap(self.fd, SIZE)
        struct.pack_into("=II", self.map, 0, MAGIC, SIZE)
        self.control, theirs = socket.socketpair(socket.AF_UNIX,
                                                 socket.SOCK_SEQPACKET)
        if args is None:
            args = ["--interval", str(interval), "--want", ",".join(want),
                    "--label", "1.0@n1"]
            args += ["--library", library] if library else []
            for gpu in gpus:
                args += ["--gpu", gpu]
        fds = [fcntl.fcntl(f, fcntl.F_DUPFD_CLOEXEC, 100)
               for f in (self.fd, theirs.fileno())]

        def give():
            for i, f in enumerate(fds):
                os.dup2(f, 3 + i)

        env = {k: v for k, v in os.environ.items() if "SAN_OPTIONS" in k}
        env.update(environ or {})
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [SAMPLER] + args + list(extra), env=env, preexec_fn=give,
            pass_fds=(3, 4), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=self.errors)
        theirs.close()
        for f in fds:
            os.close(f)
        self.pid = self.process.pid

    def read(self):
        """The current values, or None."""
        for _ in range(10):
            current = struct.unpack_from("=I", self.map, 12)[0]
            if not current:
                return None
            totals = Totals(self.map, 16 + (current & 1) * SLOT)
            if current == struct.unpack_from("=I", self.map, 12)[0]:
                return totals
        raise AssertionError("a torn set")

    def told_pid(self):
        return struct.unpack_from("=i", self.map, 8)[0]

    def until(self, what, limit=10):
        """Waits until what(values) is true; the values."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            totals = self.read()
            if totals and what(totals):
                return totals
            time.sleep(0.005)
        raise AssertionError("too late: " + self.said())

    def wait(self, limit=10):
        return self.process.wait(limit)

    def finish(self, limit=10):
        """The last reading: (exit status, values)."""
        try:
            self.control.send(b"F")
        except BrokenPipeError:
            raise AssertionError("it had ended: " + self.said())
        return self.wait(limit), self.read()

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def close(self):
        self.control.close()
        try:
            self.process.wait(0.5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self.map.close()
        self.errors.close()
        os.close(self.fd)
