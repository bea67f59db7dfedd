#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs steps of every shape on a cluster and compares sacct with the truth.

    matrix.py run --cluster DIR --tasks DIR --task PROGRAM --gather NAME
                  --interval S --out FILE [--small] [--at-once N]
    matrix.py table FILE...

`run` starts one srun a cell: tasks a node, nodes, GPUs a task, child processes,
ends together or staggered, polls every 0 (none), 1, 30 s; each lives for 3, 4 or
5 s while the GPUs' load changes. Its lines are those of compare.py; what it
found is a line of JSON a cell in FILE. A cell that was wrong runs once more,
alone, which shows whether it is always so; it stays wrong.

`table` sums such files up, in Markdown, as in doc/accounting.md.
"""
import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare  # noqa: E402

KEYS = ("tasks", "nodes", "gpus", "children", "ends", "freq")
TITLES = {"gather": "jobacct_gather", "tasks": "tasks a node",
          "nodes": "nodes", "gpus": "GPUs a task", "children": "children",
          "ends": "tasks end", "freq": "poll interval, s"}
GPUS = 8  # a node
STAGGER = 0.3


def cells(small):
    ends = ("together", "staggered")
    if small:
        for tasks, nodes, gpus, more, freq in itertools.product(
                (1, 4), (1, 2), (1, 2), (0, 1), (0, 1, 30)):
            yield dict(zip(KEYS, (tasks, nodes, gpus, 4 * more, ends[more],
                                  freq)))
        return
    for values in itertools.product((1, 2, 4), (1, 2), (1, 2), (0, 4), ends,
                                    (0, 1, 30)):
        yield dict(zip(KEYS, values))


def label(cell):
    return "t{tasks}-n{nodes}-g{gpus}-c{children}-{ends}-f{freq}".format(
        **cell)


# --- the scenario ------------------------------------------------------------

def curves(m, f):
    """Of the GPU with the minor number m; f stretches its time."""
    if m == GPUS - 1:
        yield "sm 0:0.4\nmembw 0:0.2"
    else:
        yield (f"sm 0:{20 + 5 * m} {0.3 * f:g}:{70 - 9 * m} "
               f"{0.7 * f:g}:{97 - 4 * m}.5")
        yield f"membw 0:{60 - 5 * m} {1.1 * f:g}:{9 + 2 * m}"
    yield f"power 0:{90 + 20 * m} {0.9 * f:g}:{420 + 30 * m}"
    yield f"nvlink_rx 0:{40 + m}e9 {0.7 * f:g}:{170 - 11 * m}e9"
    yield f"nvlink_tx 0:{60 + 5 * m}e9"
    yield f"pcie_rx 0:{900 + 70 * m}e6 {f:g}:{2100 - 90 * m}e6"
    yield f"pcie_tx {0.5 * f:g}:{300 + 31 * m}e6 {1.5 * f:g}:40e6"


def scenario(dev, interval):
    """The highest level of each curve holds for 2.2 intervals."""
    f = 2 * interval
    lines = [f"origin {time.time():.6f}", f"period {1.8 * f:g}",
             f"devdir {dev}"]
    for m in (5, 2, 7, 0, 3, 6, 1, 4):
        lines.append(f"gpu minor={m} bus=0000:{0x90 - 16 * m:02x}:00.0 "
                     f"uuid=GPU-0000000{m}-0dd0-4000-8000-000000000000")
        lines += curves(m, f)
    return "\n".join(lines) + "\n"


# --- running -----------------------------------------------------------------

class Runner:
    def __init__(self, options):
        self.o, self.running = options, []

    def start(self, cell, seconds, name):
        freq = [] if cell["freq"] == 0 else \
            [f"--acctg-freq=task={cell['freq']}"]
        cmd = [self.o.devcluster, "--dir", self.o.cluster, "run", "--",
               "srun", "-Q", "-o", "/dev/null", f"-N{cell['nodes']}",
               f"--ntasks-per-node={cell['tasks']}",
               f"--gpus-per-task={cell['gpus']}", *freq, self.o.task,
               str(self.o.tasks), name, str(seconds), str(cell["children"]),
               str(STAGGER if cell["ends"] == "staggered" else 0)]
        # pylint: disable=consider-using-with # many at once
        self.running.append((name, time.monotonic(), subprocess.Popen(
            cmd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True)))

    def reap(self, at_most):
        """Until no more than at_most run."""
        while len(self.running) > at_most:
            for item in list(self.running):
                name, began, proc = item
                if proc.poll() is None:
                    if time.monotonic() - began > 120:
                        proc.kill()
                    continue
                self.running.remove(item)
                said = proc.stderr.read()
                proc.stderr.close()
                if proc.returncode:
                    raise SystemExit(f"matrix.py: srun of {name}: "
                                     f"{proc.returncode}\n{said}")
            time.sleep(0.02)

    def run(self, todo):
        """[(cell, seconds, name)]; not all launched at one instant."""
        for cell, seconds, name in todo:
            self.reap(self.o.at_once - 1)
            self.start(cell, seconds, name)
            time.sleep(self.o.gap)
        self.reap(0)


def record(options, cell, result, again):
    out = dict(cell, slurm=options.slurm, gather=options.gather,
               interval=float(options.interval), again=again,
               mean=result.mean, peaks=result.peaks, faults=result.faults,
               **{k: result.rel.get(k) for k in ("bytes", "energy", "idle")})
    with open(options.out, "a", encoding="ascii") as f:
        f.write(json.dumps(out) + "\n")


def run_cells(options, todo, again):
    runner = Runner(options)
    runner.run(todo)
    results = compare.compare(options, [name for _, _, name in todo])
    compare.show(results, options.verbose)
    for (cell, _, _), result in zip(todo, results):
        record(options, cell, result, again)
    return [item for item, r in zip(todo, results) if r.faults]


def slurm_version(options):
    cmd = [options.devcluster, "--dir", options.cluster, "run", "--", "srun",
           "-V"]
    return subprocess.run(cmd, check=True, capture_output=True, text=True,
                          timeout=60).stdout.split()[-1]


def run(argv):
    p = compare.parser()
    p.add_argument("--task", required=True, help="gpu_task, built")
    p.add_argument("--gather", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--small", action="store_true")
    p.add_argument("--at-once", type=int, default=4)
    p.add_argument("--gap", type=float, default=0.5)
    options = compare.prepare(p.parse_args(argv))
    options.slurm = slurm_version(options)
    (options.gpu_dir / "scenario").write_text(
        scenario(f"{options.cluster}/dev", float(options.interval)),
        encoding="ascii")
    todo = [(cell, 3 + i % 3 + 0.02 * (i % 7), label(cell))
            for i, cell in enumerate(cells(options.small))]
    wrong = run_cells(options, todo, False)
    for cell, seconds, name in wrong:
        print(f"once more, alone: {name}")
        run_cells(options, [(cell, seconds, name + "-again")], True)
    print(f"{len(todo)} cells, {len(wrong)} wrong")
    return 1 if wrong else 0


# --- the table ---------------------------------------------------------------

def worst(rows, key):
    values = [r[key] for r in rows if r[key] is not None]
    return f"{max(values):.2f}" if values else "–"


def line(slurm, title, rows):
    exact = sum(r["peaks"][0] for r in rows)
    peaks = sum(r["peaks"][1] for r in rows)
    wrong = sum(bool(r["faults"]) for r in rows)
    print(f"| {slurm} | {title} | {len(rows)} | {worst(rows, 'mean')} | "
          f"{worst(rows, 'bytes')} | {worst(rows, 'energy')} | "
          f"{worst(rows, 'idle')} | {exact} of {peaks} | {wrong} |")


def table(files):
    rows = []
    for name in files:
        with open(name, encoding="ascii") as f:
            rows += [json.loads(text) for text in f]
    rows = [r for r in rows if not r["again"]]
    print("| Slurm | cells with | cells | mean, points | bytes, % | "
          "energy, % | idle, % | peaks exact | cells wrong |")
    print("|---|---|---|---|---|---|---|---|---|")
    for slurm in sorted({r["slurm"] for r in rows}):
        mine = [r for r in rows if r["slurm"] == slurm]
        line(slurm, "**all**", mine)
        for key in ("gather",) + KEYS:
            for value in sorted({r[key] for r in mine}):
                line("", f"{TITLES[key]}: {value}",
                     [r for r in mine if r[key] == value])
    return 0


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "run":
        sys.exit(run(sys.argv[2:]))
    if len(sys.argv) > 2 and sys.argv[1] == "table":
        sys.exit(table(sys.argv[2:]))
    raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
