#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The life-cycle library with real NCCL on one real GPU. For a machine with
one GPU, nvcc and NCCL; by hand:

    contrib/build && top_builddir=_build/slurm-… python3 tests/device/life_nccl.py

Builds life_nccl.cu first; without a GPU it ends there. Where two ranks are
needed both are on the one GPU: to NCCL they are on two hosts (NCCL_HOSTID),
which talk over the loopback interface. Each row is run without the library
and with it; "ms" is from the signal, or the peer's death, to the end.

Expected: each line ends in "ok", with the library
    one, destroyed              2 sums of 2 ok, exit 0, nothing left to end
    one, left alive             2 sums, exit 0, 2 are "destroyed (0)"
    pair, destroyed             2 ranks, exit 0
    pair, left alive            2 ranks, exit 0, 1 each is destroyed or aborted
    program aborts one of two   "aborted" and "over": its own abort comes back,
                                the other one is ended by the library
    SIGTERM in a hung one       exit -15, 1 aborted, below 500 ms (without it:
                                as fast, but the driver ends the kernel)
    peer killed in a hung one   exit 1 by NCCL's asynchronous error, below
                                1000 ms (without the library: hangs)
Nothing of this was run yet: it was written, and compiled, without a GPU.
"""
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("top_builddir", "."))
LIBRARY = os.path.join(BUILD, ".libs", "libddp_lifecycle.so")
LIMIT = 60      # s, of any one program; NCCL's first start is slow
HUNG = 8        # s after which a row without the library "hangs"

failed = 0


def check(what, ok, seen):
    global failed
    failed += not ok
    print(f"{what:36} {seen:60} {'ok' if ok else 'FAILED'}", flush=True)


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def build(tmp):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        skip("no nvcc")
    dirs = sorted(glob.glob("/usr/local/cuda*/lib*/libnccl.so.2") +
                  glob.glob("/usr/lib/*/libnccl.so.2"))
    if not dirs:
        skip("no libnccl.so.2")
    lib = os.path.dirname(dirs[0])
    program = os.path.join(tmp, "life_nccl")
    subprocess.run([nvcc, "-O1", "-o", program,
                    os.path.join(HERE, "life_nccl.cu"),
                    "-I" + os.path.join(os.path.dirname(lib), "include"),
                    "-Xlinker", "-rpath=" + lib, "-Xlinker", dirs[0],
                    "-lpthread"],
                   check=True, timeout=600)
    return program


class Ranks:
    """One or two ranks of one run."""

    def __init__(self, program, n, comms, end, library):
        self.dir = tempfile.mkdtemp(prefix="life.")
        self.started = []
        for rank in range(n):
            env = {k: v for k, v in os.environ.items()
                   if not k.startswith(("NCCL_", "LD_PRELOAD", "DDP_"))}
            env.update(NCCL_HOSTID=f"life-{rank}", NCCL_SOCKET_IFNAME="lo",
                       NCCL_IB_DISABLE="1", DDP_LIFECYCLE_VERBOSE="1")
            if library:
                env["LD_PRELOAD"] = LIBRARY
            with open(self.path(rank, "out"), "w") as out, \
                    open(self.path(rank, "err"), "w") as err:
                self.started.append(subprocess.Popen(
                    [program, str(rank), str(n), os.path.join(self.dir, "id"),
                     str(comms), end], env=env, stdin=subprocess.DEVNULL,
                    stdout=out, stderr=err))

    def path(self, rank, what):
        return os.path.join(self.dir, f"{what}.{rank}")

    def text(self, rank, what="out"):
        with open(self.path(rank, what)) as f:
            return f.read()

    def until(self, rank, word):
        end = time.monotonic() + LIMIT
        while word not in self.text(rank):
            if time.monotonic() > end or \
                    self.started[rank].poll() is not None:
                return False
            time.sleep(0.01)
        return True

    def wait(self, rank, seconds):
        """The exit code, or None; ms is how long that took."""
        began = time.monotonic()
        try:
            code = self.started[rank].wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        self.ms = (time.monotonic() - began) * 1000
        return code

    def close(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.wait()
        shutil.rmtree(self.dir, True)


def ended(program, what, n, comms, end, library):
    """A run that ends by itself."""
    r = Ranks(program, n, comms, end, library)
    try:
        codes = [r.wait(i, LIMIT) for i in range(n)]
        sums = [r.text(i).count("sum ok") for i in range(n)]
        done = sum(r.text(i, "err").count("destroyed (0)") +
                   r.text(i, "err").count("aborted (0)") for i in range(n))
        left = n * comms if library and end == "leave" else 0
        check(what + (" (library)" if library else ""),
              codes == [0] * n and sums == [comms] * n and done == left,
              f"exit {codes}, sums {sums}, {done} ended by the library")
        if codes != [0] * n:
            print(r.text(0, "err"))
    finally:
        r.close()


def own_abort(program, library):
    r = Ranks(program, 2, 2, "abort", library)
    try:
        came = r.until(0, "over")
        code = r.wait(0, LIMIT)
        done = r.text(0, "err").count("communicator ")
        check("program aborts one of two" + (" (library)" if library else ""),
              came and code == 0 and "aborted" in r.text(0) and
              (done >= 1 if library else True),
              f"exit {code}, {done} notes of the library")
    finally:
        r.close()


def hung(program, library, by):
    """by(ranks): what happens while rank 0 hangs."""
    r = Ranks(program, 2, 1, "hang", library)
    try:
        began = r.until(0, "hanging") and r.until(1, "absent")
        time.sleep(1)
        alive = r.started[0].poll() is None
        by(r)
        code = r.wait(0, LIMIT if library else HUNG)
        return began and alive, code, r.ms, r.text(0, "err")
    finally:
        r.close()


def term(program, library):
    good, code, ms, err = hung(program, library, lambda r:
                               r.started[0].terminate())
    check("SIGTERM in a hung one" + (" (library)" if library else ""),
          good and code == -signal.SIGTERM and
          (not library or ("aborted (0)" in err and ms < 500)),
          f"exit {code} after {ms:.0f} ms")


def peer(program, library):
    good, code, ms, err = hung(program, library, lambda r:
                               r.started[1].kill())
    want = (code == 1 and "asynchronous error" in err and ms < 1000) \
        if library else code is None
    check("peer killed in a hung one" + (" (library)" if library else ""),
          good and want, "hangs" if code is None else
          f"exit {code} after {ms:.0f} ms")


def main():
    with tempfile.TemporaryDirectory() as tmp:
        program = build(tmp)
        if not glob.glob("/dev/nvidia[0-9]*"):
            skip("life_nccl.cu was built; no /dev/nvidia0 to run it")
        if not os.path.exists(LIBRARY):
            skip(f"no {LIBRARY}: set top_builddir")
        for library in (False, True):
            ended(program, "one, destroyed", 1, 2, "destroy", library)
            ended(program, "one, left alive", 1, 2, "leave", library)
            ended(program, "pair, destroyed", 2, 1, "destroy", library)
            ended(program, "pair, left alive", 2, 1, "leave", library)
            own_abort(program, library)
            term(program, library)
            peer(program, library)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
