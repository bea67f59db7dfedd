#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The hang matrix: programs that break in each place, without the life-cycle
library and with it. For each cell the time from the fault to the end of the
last process, and the exit code of what launched it.

    matrix.py --programs BUILD/tests/life [--library PATH] [--only TEXT]...
"""
import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cells import ANY, NEVER, cells  # noqa: E402
from launchers import Mpirun, Plain, Srun  # noqa: E402
from ranks import read_log  # noqa: E402
from watch import Watched  # noqa: E402


class Outcome:
    """ms is None where there was no fault; hangs: ended by the matrix."""

    def __init__(self):
        self.ms = self.code = None
        self.hangs = self.broken = False
        self.tries = 1
        self.left = 0           # processes alive when the launcher had ended
        self.misuses = []
        self.waiting = 0        # operations that nobody ended
        self.exits = {}         # LEFT_WAITING and LEFT_ALIVE: how many
        self.output = ""

    def text(self):
        if self.broken:
            return "does not start"
        time_ = "-" if self.ms is None else "%.0f ms" % self.ms
        out = "%9s  exit %3s" % ("hangs" if self.hangs else time_,
                                 "-" if self.hangs else self.code)
        if self.tries > 1:
            out += "  at start %d" % self.tries
        if self.left:
            out += "  %d left behind" % self.left
        if self.waiting > 0:
            out += "  %d operations left" % self.waiting
        if self.exits.get("LEFT_ALIVE"):
            out += "  %d alive at exit" % self.exits["LEFT_ALIVE"]
        if self.misuses:
            out += "  %d misuses" % len(self.misuses)
        return out


def exit_code(started):
    """That of the first process that failed; by signal N as 128 + N."""
    codes = [p.returncode for p in started if p.returncode]
    if not codes:
        return 0
    return codes[0] if codes[0] > 0 else 128 - codes[0]


def unfinished(log):
    """Launched operations without a "kernel" line: nobody ended them."""
    launches = sum(1 for x in log if x.result == 0 and x.function in (
        "ncclAllReduce", "ncclReduce"))
    return launches - sum(1 for x in log if x.function == "kernel")


class Matrix:
    def __init__(self, options):
        self.options = options
        self.made = {}

    def launcher(self, name):
        if name not in self.made:
            self.made[name] = {
                "srun": lambda: Srun(self.options.plugin, self.options.mpi,
                                     self.options.at),
                "mpirun": Mpirun, "plain": Plain}[name]()
            if self.options.srun:
                self.made[name].extra = tuple(
                    "--" + x for x in
                    self.options.srun.lstrip("-").split(",--"))
        return self.made[name]

    def close(self):
        for launcher in self.made.values():
            launcher.close()

    def run(self, cell, preload):
        """Open MPI 4.1's MPI_Init sometimes crashes on a loaded machine: what
        did not start is started again, twice at most."""
        for tries in range(1, 4):
            outcome = self.run_once(cell, preload)
            outcome.tries = tries
            if not outcome.broken or outcome.hangs:
                break
        return outcome

    def run_once(self, cell, preload):
        with tempfile.TemporaryDirectory(
                prefix="life.", dir=self.launcher(cell.launcher).dir) as d:
            os.chmod(d, 0o755)
            return self.run_in(d, cell, preload)

    def run_in(self, d, cell, preload):
        launcher = self.launcher(cell.launcher)
        pids, log = os.path.join(d, "pids"), os.path.join(d, "log")
        args = cell.args.split() + ["--pids", pids]
        if cell.program == "life_nccl":
            args += ["--id", os.path.join(d, "id")]
        commands, env = launcher.command(
            cell, os.path.join(self.options.programs, cell.program), args,
            {"FAKE_NCCL_LOG": log, **cell.env}, preload)
        watched = Watched(pids)
        with open(os.path.join(d, "out"), "w+", encoding="utf-8",
                  errors="replace") as out:
            started = [subprocess.Popen(c, env=env, stdout=out, stderr=out,
                                        stdin=subprocess.DEVNULL)
                       for c in commands]
            try:
                outcome = self.wait(launcher, started, watched)
            finally:
                self.end(started, watched)
            out.seek(0)
            outcome.output = out.read()
        self.judge(cell, outcome, watched, read_log(log), launcher.ranks)
        watched.close()
        return outcome

    def wait(self, launcher, started, watched):
        """Until all have ended, or the limit."""
        outcome = Outcome()
        end = time.monotonic() + self.options.limit
        launched = None
        while time.monotonic() < end:
            watched.step(2)
            if any(p.poll() is None for p in started):
                continue
            launched = launched or time.monotonic()
            if not watched.alive():
                outcome.code = exit_code(started)
                return outcome
            # Children see a moment later that their parent is gone.
            if time.monotonic() > launched + 0.2:
                outcome.left = max(outcome.left, len(watched.alive()))
        outcome.hangs = True
        self.end(started, watched)
        launcher.cleanup()
        return outcome

    def end(self, started, watched):
        """Everything of the cell, by recorded pid; a launcher then ends."""
        limit = time.monotonic() + 10
        while time.monotonic() < limit:
            watched.kill()
            watched.step(10)
            if not watched.alive() and all(p.poll() is not None
                                           for p in started):
                return
        for p in started:
            if p.poll() is None:
                p.kill()
            p.wait()

    def judge(self, cell, outcome, watched, log, ranks):
        faults = [x.ns for x in log if x.function == "async"] \
            if cell.from_async else watched.faults
        if faults and watched.gone and not outcome.hangs:
            outcome.ms = (watched.last_gone() - min(faults)) / 1e6
        outcome.broken = watched.count("start") < ranks or (
            "--at" in cell.args and not faults) or (
            "--at" not in cell.args and cell.code == 0 and
            watched.count("ready") < ranks)
        outcome.misuses = [x.text for x in log if x.word == "MISUSE"]
        outcome.waiting = unfinished(log)
        for line in log:
            if line.word.startswith("LEFT"):
                outcome.exits[line.word] = outcome.exits.get(line.word, 0) + 1


def verdict(cell, outcome, options):
    """What is wrong with a cell that ran with the library; "" for nothing."""
    if outcome.broken:
        return "does not start"
    # --codes: with the controller, which sees what the library cannot.
    bound = cell.alone if cell.alone and not options.codes else options.bound
    if outcome.hangs and bound != NEVER:
        return "hangs"
    wrong = []
    if outcome.ms is not None and bound != NEVER and outcome.ms > bound:
        wrong.append("later than %d ms" % bound)
    if cell.code is not ANY and outcome.code != cell.code and (
            options.codes or cell.code == 0):
        wrong.append("exit %d, not %d" % (outcome.code, cell.code))
    if outcome.left:
        wrong.append("processes left behind")
    if outcome.misuses:
        wrong.append(outcome.misuses[0])
    if outcome.exits.get("LEFT_WAITING"):
        wrong.append("%d exits with operations that wait"
                     % outcome.exits["LEFT_WAITING"])
    return ", ".join(wrong)


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--programs", default=os.environ.get("DDP_LIFE"),
                   help="folder of life_mpi, life_nccl, life_mpi_nccl")
    p.add_argument("--library", help="preloaded in a second run of each cell")
    p.add_argument("--only", action="append", metavar="TEXT",
                   help="cells whose title contains it")
    p.add_argument("--cell", action="append", metavar="TITLE",
                   help="this cell, by its whole title")
    p.add_argument("--not", action="append", metavar="TEXT", dest="without")
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--limit", type=float, default=15, help="s, of a cell")
    p.add_argument("--bound", type=float, default=500,
                   help="ms from the fault to the last end, with the library")
    p.add_argument("--codes", action="store_true",
                   help="with the library, the exit code is the first cause's")
    p.add_argument("--skip-baseline", action="store_true")
    p.add_argument("--plugin", default="none", help="devcluster's --plugin")
    p.add_argument("--mpi", default="pmix", help="srun's --mpi (pmix)")
    p.add_argument("--at", metavar="FOLDER",
                   help="a dev cluster of 4 nodes that is up; TmpFS with %%n")
    p.add_argument("--srun", metavar="OPTIONS",
                   help="srun's options in a second run of each of its cells,"
                   "\nwith commas: --ddp-launch,--ddp-lifecycle; no library is"
                   "\npreloaded then, that is the plugin's")
    p.add_argument("--list", action="store_true")
    p.add_argument("--verbose", action="store_true", help="what they print")
    options = p.parse_args()
    if not options.list and not options.programs:
        p.error("--programs is missing")
    return options


def chosen(options):
    for cell in cells(options.mpi):
        if options.cell and cell.title not in options.cell:
            continue
        if options.only and not any(t in cell.title for t in options.only):
            continue
        if options.srun and not options.library and cell.launcher != "srun":
            continue
        if options.without and any(t in cell.title for t in options.without):
            continue
        yield cell


def summary(title, times):
    """Of a cell that ran several times."""
    if len(times) > 1:
        print("%-52s | %d runs: median %.0f ms, worst %.0f ms" % (
            title, len(times), statistics.median(times), max(times)),
            flush=True)


def run_cell(matrix, cell, options):
    """The number of things that are wrong."""
    bad = 0
    times = {"without": [], "with": []}
    for _ in range(options.repeat):
        row = "%-52s" % cell.title
        if not options.skip_baseline:
            outcome = matrix.run(cell, None)
            row += " | " + outcome.text()
            if outcome.ms is not None:
                times["without"].append(outcome.ms)
            if outcome.broken or (cell.name == "fine" and outcome.code != 0):
                bad += 1
                row += "  WRONG"
            if options.verbose or outcome.broken:
                row += "\n" + outcome.output
        if options.library or options.srun:
            outcome = matrix.run(cell, options.library or "")
            why = verdict(cell, outcome, options)
            bad += bool(why)
            if outcome.ms is not None:
                times["with"].append(outcome.ms)
            row += " | " + outcome.text() + (
                "  FAILED: " + why if why else "")
            if options.verbose or why:
                row += "\n" + outcome.output
        print(row, flush=True)
    for which, found in times.items():
        summary("%s (%s)" % (cell.title, which), found)
    return bad


def main():
    options = parse()
    # A time limit of whoever runs this must not leave a cluster up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    matrix = Matrix(options)
    bad = missing = 0
    try:
        for cell in chosen(options):
            if options.list:
                print(cell.title)
                continue
            if not os.path.exists(os.path.join(options.programs,
                                               cell.program)):
                missing += 1
                continue
            bad += run_cell(matrix, cell, options)
    finally:
        matrix.close()
    if missing:
        print("SKIP: %d cells: their program is not built (no mpicc?)"
              % missing)
    if bad:
        print("%d cells are wrong" % bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
