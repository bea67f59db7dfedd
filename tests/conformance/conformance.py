#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The table of the conformance suite: layouts by (plugin, stateless, shim) x
Slurm: the plugin in full and in stateless mode, and ddp-launch.

Starts one private cluster at a time, runs the rows of layouts.py on it, and
has expect.py judge what the tasks saw. Ends with a line
"N passed, N failed, N skipped"; exit code 0 only without a failure.
"""
import argparse
import json
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import cell  # noqa: E402
import cluster as clusters  # noqa: E402
import layouts  # noqa: E402
import mutate  # noqa: E402

TOP = clusters.TOP
SUITES = {"24.11": "trixie", "26.05": "sid"}
COLUMNS = ("plugin", "stateless", "shim")
RECORDS = clusters.HERE / "records"

# Het jobs wait for the backfill scheduler: let it run often.
FAST = ["--conf", "SchedulerParameters=bf_interval=1,sched_min_interval=200000",
        "--conf", "SrunPortRange=61000-64500"]
CLUSTERS = {
    "main": ["--nodes", "5", "--cpus", "8", "--gpus", "4"],
    "odd": ["--nodes", "1", "--cpus", "4", "--gpus", "0"],
    "big": ["--nodes", "64", "--cpus", "4", "--gpus", "0"],
}
ODD = [("gpu-compute-on-demand-dy-g4dnxlarge-[1-2]", 2), ("b04-[09-10]", 2),
       ("rack[0-1]_blade[0-1]", 4), ("node[099-100]", 2), ("alpha", 1)]

MUTATED = ("one task", "cyclic", "plane=2", "uneven 4,1",
           "arbitrary interleaved 2,1,2,3,1",
           "het job, group 0 on a later node", "only tf", "only horovod",
           "inherited values", "default frameworks",
           "port and address given", "interface given",
           "odd node names, arbitrary")


def say(text=""):
    print(text, flush=True)


class Table:
    """Results by row and column, in the order they are wanted."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = {}
        self.extra = []		# (state, what, details)
        self.worlds = []	# for the mutation run

    def put(self, row, column, state, details):
        self.cells[row.name, column] = (state, details)

    def states(self):
        for r in self.rows:
            for c in self.columns:
                yield self.cells.get((r.name, c), ("FAIL", "not run"))[0]
        for state, _, _ in self.extra:
            yield state

    def text(self):
        wide = max(len(r.name) for r in self.rows)
        head = ["%s %s" % c for c in self.columns]
        cols = [max(8, len(h)) for h in head]
        names = [h.ljust(w) for h, w in zip(head, cols)]
        yield "  ".join([" " * wide] + names).rstrip()
        for r in self.rows:
            marks = [self.mark(r, c).ljust(w)
                     for c, w in zip(self.columns, cols)]
            yield "  ".join([r.name.ljust(wide)] + marks).rstrip()

    def notes(self):
        """Reasons of skips and refusals, each once, numbered."""
        out = []
        for r in self.rows:
            for c in self.columns:
                state, details = self.cells.get((r.name, c), ("FAIL", ""))
                if state in ("skip", "refuses") and details not in out:
                    out.append(details)
        return out

    def mark(self, r, c):
        state, details = self.cells.get((r.name, c), ("FAIL", ""))
        if state in ("skip", "refuses"):
            return "%s(%d)" % (state, self.notes().index(details) + 1)
        return state

    def print(self):
        say()
        for line in self.text():
            say(line)
        for i, note in enumerate(self.notes()):
            say("(%d) %s" % (i + 1, note))
        for r in self.rows:
            for c in self.columns:
                state, details = self.cells.get((r.name, c),
                                                ("FAIL", "not run"))
                if state == "FAIL":
                    self.failure("%s, %s %s" % ((r.name,) + c), details)
        for state, what, details in self.extra:
            if state == "FAIL":
                self.failure(what, details)
            else:
                say("%-8s %s" % (state, what))

    @staticmethod
    def failure(what, details):
        say("\nFAIL %s" % what)
        lines = details.splitlines() or ["no details"]
        for line in lines[:24]:
            say("    " + line[:400])
        if len(lines) > 24:
            say("    ... and %d more" % (len(lines) - 24))


# --- one Slurm ---------------------------------------------------------------

def here_version():
    out = clusters.bounded(["slurmd", "-V"], 10).out
    m = re.search(r"(\d+\.\d+)\.", out)
    return m.group(1) if m else None


def find_root(version, here):
    """The root folder of a Slurm; None for the machine's own."""
    if version == here:
        return None
    r = clusters.bounded([str(TOP / "contrib/mkroot"), "--suite",
                          SUITES[version], "--with", "python3-torch"], 1800)
    if r.rc:
        raise clusters.Broken("mkroot: " + r.tail())
    return r.out.strip().splitlines()[-1]


def build(root):
    """The build folder of the plugin and, where there is one, the shim."""
    r = clusters.bounded([str(TOP / "contrib/build"), "--quiet"] +
                         (["--root", root] if root else []), 900)
    if r.rc:
        raise clusters.Broken("contrib/build: " + r.tail())
    return pathlib.Path(r.out.strip().splitlines()[-1]).parent.parent


def find_shim(folder):
    for path in (folder / ".libs/ddp-launch", folder / "ddp-launch",
                 folder / "launcher/ddp-launch"):
        if path.is_file():
            return path
    return None


class Runner:
    def __init__(self, args, table):
        self.args, self.table = args, table
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="ddp-conf."))

    def slurm(self, version, here):
        columns = [c for c in self.table.columns if c[1] == version]
        try:
            root = find_root(version, here)
            folder = build(root)
        except clusters.Broken as e:
            for row in self.table.rows:
                self.all(row, columns, "FAIL", str(e))
            return
        shim = find_shim(folder)
        for name in CLUSTERS:
            rows = [r for r in self.table.rows if r.cluster == name]
            if rows:
                self.cluster(name, root, folder, shim, rows, columns)

    def all(self, row, columns, state, details):
        for c in columns:
            if (row.name, c) not in self.table.cells:
                self.table.put(row, c, state, details)

    def cluster(self, name, root, folder, shim, rows, columns):
        start = time.monotonic()
        version = columns[0][1]
        args = CLUSTERS[name] + FAST + [
            "--plugin", str(folder / ".libs/spank_ddp.so")]
        odd = ODD if name == "odd" else ()
        cl = clusters.Cluster(root, args, odd)
        if odd:
            prolog = self.work / "prolog"
            args = ["--conf", "TaskProlog=%s/tmp/prolog" % cl.dir]
            prolog.write_text("#!/bin/sh\necho export FROM_PROLOG=yes\n")
            cl.args += args
        try:
            with cl:
                if odd:
                    to = pathlib.Path(cl.tmp, "prolog")
                    to.write_text(prolog.read_text())
                    to.chmod(0o755)
                say("== Slurm %s, cluster %s: up in %.0f s" % (
                    version, name, time.monotonic() - start))
                cell.prepare(cl, shim)
                for c in columns:
                    self.column(c, cl, rows, shim)
                self.healthy(cl, "%s, cluster %s" % (version, name))
        except clusters.Broken as e:
            for row in rows:
                self.all(row, columns, "FAIL", str(e))

    def column(self, column, cl, rows, shim):
        if column[0] == "shim" and not shim:
            for row in rows:
                self.table.put(row, column, "skip", "ddp-launch is not built")
            return
        cl.plugin(column[0] != "shim")
        cl.plain = cell.plain_names(cl)
        for i, row in enumerate(rows):
            self.one(column, cl, row, i)

    def one(self, column, cl, row, i):
        start = time.monotonic()
        folder = "%s/%s.%d" % (cl.tmp, column[0], i)
        state, details, it = cell.run_cell(column[0], cl, row, folder)
        self.table.put(row, column, state, details)
        say("  %-8s %s %s: %s (%.1f s)" % (
            (state,) + column + (row.name, time.monotonic() - start)))
        if state == "FAIL":
            say("\n".join("      " + t[:200]
                          for t in details.splitlines()[:6]))
            self.keep_failure(column, cl, folder, i)
            if not cl.clear():
                raise clusters.Broken("after row %s the cluster is not idle: "
                                      "%s" % (row.name, cl.states()))
        elif state == "ok" and row.name in MUTATED and \
                column[1] == self.table.columns[0][1]:
            self.keep(row, it)
        shutil.rmtree(folder, ignore_errors=True)

    def keep_failure(self, column, cl, folder, i):
        if not self.args.keep:
            return
        to = pathlib.Path(self.args.keep,
                          "%s-%s-%d" % (column[0], cl.version, i))
        shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.part"))
        shutil.copytree(cl.dir + "/log", to / "log")

    def keep(self, row, it):
        nodes = cell.expect.parse_nodes(it.cl.nodes_text)
        for world, (seen, asked) in it.worlds.items():
            self.table.worlds.append(("%s %s %s, %s" % (
                row.name, it.column, it.cl.version, world), seen, asked,
                nodes))

    def healthy(self, cl, what):
        """No row may have drained a node, or made a daemon complain."""
        name = "all nodes idle, no daemon broken: " + what
        ok = clusters.wait_until(20, lambda: cl.empty() and cl.idle())
        wrong = [] if ok else [cl.states()]
        for log in pathlib.Path(cl.dir, "log").glob("slurm*.log"):
            wrong += [l for l in log.read_text(errors="replace").splitlines()
                      if re.search("segfault|segmentation|fatal|assert|stack "
                                   "smash|corrupt", l, re.I) and
                      "innodb" not in l]
        self.table.extra.append(
            ("FAIL" if wrong else "ok", name, "\n".join(wrong)))


# --- the rest ----------------------------------------------------------------

def mutation_run(table, worlds):
    start = time.monotonic()
    caught, total, missed = mutate.run(worlds, say)
    say("mutation run: %d of %d caught (%.0f s)" % (
        caught, total, time.monotonic() - start))
    ok = total > 0 and caught == total
    table.extra.append(("ok" if ok else "FAIL",
                        "mutation run: %d of %d caught" % (caught, total),
                        "\n".join(missed)))


def port_simulation(table):
    r = clusters.bounded([sys.executable, "-B",
                          str(clusters.HERE / "ports_sim.py")], 120)
    say(r.out.rstrip())
    table.extra.append(("FAIL" if r.rc else "ok", "port simulation",
                        r.tail()))


def record(folder, worlds):
    """Worlds for the tree (records/), one file each."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    for name, seen, asked, nodes in worlds:
        path = folder / (re.sub(r"[^a-z0-9]+", "-", name.lower()) + ".json")
        data = mutate.anonymous(name, seen, asked, nodes)
        path.write_text(json.dumps(data, indent=None, sort_keys=True) + "\n")


def parse_args():
    p = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Without --all and --slurm: this machine's Slurm and the rows "
        "marked for every day.")
    p.add_argument("--all", action="store_true", help="all rows, all Slurms")
    p.add_argument("--slurm", action="append", default=[], metavar="VERSION",
                   help="22.05, 24.11 or 26.05; again for more")
    p.add_argument("--rows", metavar="PATTERN",
                   help="rows (of all) whose name matches")
    p.add_argument("--columns", default=",".join(COLUMNS),
                   type=lambda s: s.split(","), metavar="LIST")
    p.add_argument("--mutate", action="store_true",
                   help="only the mutation run, on the recorded worlds")
    p.add_argument("--record", metavar="DIR",
                   help="write the worlds of the mutation run there")
    p.add_argument("--keep", metavar="DIR",
                   help="copy a failing cell's folder there")
    p.add_argument("--results", metavar="FILE",
                   help="also write one line a result there")
    p.add_argument("--list", action="store_true", help="print the rows")
    args = p.parse_args()
    if not set(args.columns) <= set(COLUMNS):
        p.error("--columns: " + ", ".join(COLUMNS))
    return args


def selected_rows(args):
    if args.rows:
        rows = [r for r in layouts.ROWS if re.search(args.rows, r.name)]
    else:
        rows = [r for r in layouts.ROWS if args.all or r.ci]
    if not rows:
        sys.exit("no row matches; see --list")
    return rows


def write_results(table, path):
    """One line a result for run-tests: state, name, reason; tabs between."""
    with open(path, "w") as f:
        for r in table.rows:
            for c in table.columns:
                state, details = table.cells.get((r.name, c),
                                                 ("FAIL", "not run"))
                f.write("%s\t%s, %s %s\t%s\n" % (
                    (state, r.name) + c +
                    (details.replace("\n", " ")[:200],)))
        for state, what, details in table.extra:
            f.write("%s\t%s\t\n" % (state, what))


def closing(table, results=None):
    table.print()
    if results:
        write_results(table, results)
    states = list(table.states())
    failed = states.count("FAIL")
    passed = states.count("ok") + states.count("refuses")
    say("\n%d passed, %d failed, %d skipped" % (
        passed, failed, states.count("skip")))
    return 1 if failed or not passed else 0


def on_signal(number, _):
    raise SystemExit(128 + number)


def main():
    args = parse_args()
    if args.list:
        for r in layouts.ROWS:
            say("%s %-6s %s" % ("*" if r.ci else " ", r.cluster, r.name))
        return 0
    for s in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, on_signal)
    if args.mutate:
        table = Table([], [])
        mutation_run(table, mutate.load(RECORDS))
        table.rows = []
        states = [s for s, _, _ in table.extra]
        for _, what, details in table.extra:
            say(details)
        say("\n%d passed, %d failed, 0 skipped" % (states.count("ok"),
                                                   states.count("FAIL")))
        return states.count("FAIL")
    here = here_version()
    versions = args.slurm or [here] + (list(SUITES) if args.all else [])
    for v in versions:
        if v != here and v not in SUITES:
            sys.exit("no Slurm %s: %s" % (v, ", ".join([here] + list(SUITES))))
    table = Table(selected_rows(args),
                  [(c, v) for v in versions for c in args.columns])
    runner = Runner(args, table)
    try:
        for v in versions:
            runner.slurm(v, here)
    finally:
        shutil.rmtree(runner.work, ignore_errors=True)
    if args.record:
        record(args.record, table.worlds)
    mutation_run(table, table.worlds or mutate.load(RECORDS))
    port_simulation(table)
    return closing(table, args.results)


if __name__ == "__main__":
    sys.exit(main())
