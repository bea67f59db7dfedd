# SPDX-License-Identifier: Apache-2.0
"""A devcluster for the conformance suite, and bounded commands on it.

Jobs run as an ordinary user. What is started here is remembered and ended by
its own id; the cluster's folder goes with the cluster.
"""
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
USER = "nobody"


class Broken(Exception):
    """The cluster itself does not work: no row can be judged on it."""


class Result:
    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err

    def tail(self):
        lines = (self.out + self.err).strip().splitlines()
        return "\n".join(lines[-12:])


def bounded(argv, limit, **kw):
    """Run argv in a session of its own, at most limit seconds. Returns a
    Result; rc is 124 when the time is over."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, \
            tempfile.TemporaryFile("w+", errors="replace") as err:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out,
                             stderr=err, start_new_session=True, **kw)
        try:
            rc = p.wait(limit)
        except BaseException as e:
            rc = end_group(p)
            if not isinstance(e, subprocess.TimeoutExpired):
                raise
        texts = []
        for f in (out, err):
            f.seek(0)
            texts.append(f.read())
        return Result(rc, *texts)


def end_group(p):
    for sig in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(p.pid, sig)
        except ProcessLookupError:
            pass
        try:
            p.wait(5)
        except subprocess.TimeoutExpired:
            continue
    return 124


def wait_until(seconds, what):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def free_ports(count):
    """The first of count ports in a row that nobody listens on, chosen at
    random above devcluster's and below those that steps take by themselves
    (20000 and up): ddp-launch cannot try its ports out, and a slurmd that sat
    on one would look like a thief."""
    def free(port):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) != 0
    for _ in range(200):
        first = random.randrange(18500, 20000 - count)
        if all(free(first + i) for i in range(count)):
            return first
    raise Broken("no free ports")


class Cluster:
    """Use with `with`: it is taken down whatever happens inside."""

    def __init__(self, root, args, odd=()):
        """args: devcluster's; odd: (NodeName list, count) of nodes whose
        names devcluster itself does not make."""
        self.root, self.args, self.odd = root, list(args), odd
        self.dir = tempfile.mktemp(prefix="ddp-c.", dir="/var/tmp")
        self.slurmds = []

    def devcluster(self, *args):
        return [str(TOP / "contrib/devcluster"), "--dir", self.dir, *args]

    def up(self):
        argv = self.devcluster(*self.args)
        if self.root:
            argv += ["--root", self.root]
        argv += [a for line in self.odd_lines() for a in ("--conf", line)]
        r = bounded(argv + ["up"], 180)
        if r.rc:
            raise Broken("devcluster up: " + r.tail())
        self.tmp = self.dir + "/tmp"
        os.chmod(self.tmp, 0o1777)
        env = bounded(self.devcluster("env"), 20).out
        self.names = re.search(r"DEVCLUSTER_NODES=(.*)", env).group(1)
        self.names = self.names.replace("\\ ", " ").strip("'").split()
        self.version = re.search(r"SLURM_VERSION=(\d+\.\d+)", env).group(1)
        self.start_odd()
        self.nodes_text = self.root_run("scontrol", "-o", "show", "node").out
        ports = re.search(r"SrunPortRange\s*= (\d+)-(\d+)",
                          self.root_run("scontrol", "show", "config").out)
        self.srun_ports = ports and tuple(map(int, ports.groups()))
        if self.srun_ports == (0, 0):
            self.srun_ports = None

    def odd_lines(self):
        host, first, at = socket.gethostname().split(".")[0], 0, 1
        if self.odd:
            # A step's socket has the node's name twice, 107 bytes at most.
            yield "SlurmdSpoolDir=%s/%%n" % self.dir
            first = free_ports(sum(n for _, n in self.odd))
        for names, n in self.odd:
            span = "%d" if n == 1 else "[%d-%d]"
            port, addr = [span % ((x,) if n == 1 else (x, x + n - 1))
                          for x in (first + at - 1, at)]
            yield ("NodeName=%s NodeHostname=%s NodeAddr=127.78.7.%s Port=%s "
                   "CPUs=4 RealMemory=1000" % (names, host, addr, port))
            at += n

    def start_odd(self):
        if not self.odd:
            return
        mine = set(self.names)
        every = self.root_run("sinfo", "-h", "-N", "-o", "%N").out.split()
        self.names = sorted(set(every) - mine)
        for name in self.names:
            log = open("%s/slurmd-%s.out" % (self.tmp, name), "w")
            self.slurmds.append(subprocess.Popen(
                self.devcluster("run", "--", "slurmd", "-D", "-N", name),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True))
            log.close()
        if not wait_until(40, self.idle):
            raise Broken("odd nodes: " + self.states())

    def down(self):
        for p in self.slurmds:
            p.terminate()
        for p in self.slurmds:
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
        r = bounded(self.devcluster("down"), 120)
        if r.rc or os.path.exists(self.dir):
            print("devcluster down failed: " + r.tail(), flush=True)
            return False
        return True

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def root_run(self, *argv, limit=30):
        return bounded(self.devcluster("run", "--", *argv), limit)

    def user_run(self, *argv, limit=60, user=USER):
        """As the user, with an environment of nothing but a login's."""
        return bounded(self.devcluster(
            "--user", user, "run", "--", "env", "-i",
            "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C.UTF-8",
            "HOME=/nonexistent", "USER=" + user, "LOGNAME=" + user,
            "SLURM_CONF=%s/etc/slurm.conf" % self.dir, *argv), limit,
            cwd=self.tmp)

    def states(self):
        return self.root_run("sinfo", "-h", "-N", "-o", "%N %T %E").out

    def idle(self):
        out = self.root_run("sinfo", "-h", "-o", "%T").out.split()
        return bool(out) and set(out) == {"idle"}

    def empty(self):
        return not self.root_run("squeue", "-h").out.strip()

    def clear(self):
        """No job of a failed row may disturb the next one."""
        for user in (USER, "root"):
            self.root_run("scancel", "-u", user)
        return wait_until(30, lambda: self.empty() and self.idle())

    def plugin(self, on):
        """With or without the plugin, on all nodes, for the steps to come."""
        path = pathlib.Path(self.dir, "etc/plugstack.conf")
        if not hasattr(self, "plugstack"):
            self.plugstack = path.read_text()
        path.write_text(self.plugstack if on else "")
        r = self.root_run("srun", "-n1", "sh", "-c",
                          "grep -c spank_ddp /proc/$PPID/maps")
        there = r.out.strip() not in ("", "0")
        if there != on:
            raise Broken("the plugin is %s on the nodes: %s" % (
                "there" if there else "not there", r.tail()))
