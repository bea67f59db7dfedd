#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sacct says of steps, beside the truth.

    compare.py --cluster DIR --tasks DIR [options] LABEL...

LABEL is what gpu_task was called with: its files in TASKS/LABEL say when each
task of one step began and ended, where, and which GPUs Slurm gave. truth.py
works out from the scenario what these GPUs did in that time; from that come
the columns of sacct, as doc/accounting.md has them. One line of a table a step
is printed, and what is wrong; the exit code is 1 if anything is. CLUSTER/stalls,
if it is there, is of stalls.c.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import time
from fractions import Fraction

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from expected import PERCENT, Stalls, Step, Want  # noqa: E402

FIELDS = ("JobIDRaw,JobID,State,NTasks,Start,End,TRESUsageInAve,"
          "TRESUsageInTot,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMin,"
          "TRESUsageOutMax,TRESUsageOutTot,AllocTRES").split(",")
USAGE = slice(6, -1)
NAMES = {"sm": "gres/gpusm", "membw": "gres/gpumembw", "nvlink": "ic/nvlink",
         "pcie": "ic/pcie", "energy": "gres/gpuenergy",
         "idle": "gres/gpuidle"}


# --- what is there ----------------------------------------------------------

def tres(text):
    out = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        if re.fullmatch(r"[0-9]+", value):
            out[name] = int(value)
    return out


def sacct(options, jobs):
    cmd = [*options.sacct, "--noconvert", "-nPD", "-j", ",".join(jobs), "-o",
           ",".join(FIELDS)]
    out = subprocess.run(cmd, check=True, capture_output=True, text=True,
                         timeout=60).stdout
    rows = {}
    for line in out.splitlines():
        row = dict(zip(FIELDS, line.split("|")))
        rows.setdefault(row["JobIDRaw"], []).append(row)
    return rows


def component(step, rows):
    """Of a heterogeneous step, where slurmstepd's title does not say which
    (26.05): the one that has as many GPUs and tasks."""
    gpus = sum(len(n.gpus) for n in step.nodes.values())
    return [r for name, runs in rows.items() for r in runs
            if name.startswith(step.id + "+") and
            r["NTasks"] == str(step.ntasks) and
            tres(r["AllocTRES"]).get("gres/gpu") == gpus]


def find(step, rows, patient):
    runs = sorted(rows.get(step.id) or component(step, rows),
                  key=lambda r: r["Start"])
    if len(runs) <= step.restart:
        return None
    row = runs[step.restart]
    over = row["State"].split()[0] not in ("RUNNING", "PENDING", "")
    # sacct shows a step as ended as soon as its job is: what it used comes
    # after that, if anything does.
    if patient and not row["TRESUsageInTot"]:
        return None
    return row if over and row["End"] != "Unknown" else None


def find_all(options, steps):
    """Records reach the database a moment after the end."""
    jobs = sorted({s.id.partition(".")[0] for s in steps}, key=int)
    begin = time.monotonic()
    while True:
        waited = time.monotonic() - begin
        rows = sacct(options, jobs)
        found = [find(s, rows, waited < 10) for s in steps]
        if all(found) or waited > 30:
            return found
        time.sleep(0.3)


# --- one beside the other ---------------------------------------------------

class Result:
    def __init__(self, step, row):
        self.step, self.row, self.faults = step, row, []
        # Worst errors: points of means, % of the others; (exact, all) peaks.
        self.mean, self.rel, self.peaks = 0.0, {}, [0, 0]
        self.lost = 0.0  # seconds around an end in which nobody could look
        self.cells = []

    def fault(self, text):
        self.faults.append(text)

    def value(self, column, metric, limits, options):
        have = tres(self.row[column]).get(NAMES[metric])
        where = f"{column} {NAMES[metric]}"
        if limits is None:
            if have is not None:
                self.fault(f"{where}={have}, must be unset")
            return
        if have is None:
            if not options.unset_ok:
                self.fault(f"{where} is unset, truth {limits.want:.6g}")
            return
        if not limits.lo <= have <= limits.hi:
            self.fault(f"{where}={have}, truth {limits.want:.8g} "
                       f"({limits.lo:.8g} to {limits.hi:.8g})")
        self.note(column, metric, limits, have)

    def note(self, column, metric, limits, have):
        self.cells.append((f"{column[9:]} {NAMES[metric]}", limits.want, have))
        if column == "TRESUsageInAve":
            self.mean = max(self.mean, abs(have - limits.want))
        elif column == "TRESUsageOutMax":
            if limits.lo == limits.hi:
                self.peaks[1] += 1
                self.peaks[0] += have == limits.hi
        elif limits.want > 0 and have is not None:
            err = max(0, abs(have - limits.want) -
                      len(self.step.nodes)) / limits.want * 100
            if metric != "idle" or have >= limits.want * 0.99 - 1 or \
                    limits.lo >= limits.want * 0.98 - len(self.step.nodes):
                kind = "bytes" if metric in ("nvlink", "pcie") else metric
                self.rel[kind] = max(self.rel.get(kind, 0.0), err)

    def shape(self, want):
        """What holds between columns, whatever the truth is."""
        row, tasks = self.row, self.step.ntasks
        if row["NTasks"] != str(tasks):
            self.fault(f"NTasks={row['NTasks']}, {tasks} have run")
        total, ave = tres(row["TRESUsageInTot"]), tres(row["TRESUsageInAve"])
        for name in NAMES.values():
            if name in total and ave.get(name) != total[name] // tasks:
                self.fault(f"{name}: InAve={ave.get(name)} of "
                           f"{total[name]} in {tasks} tasks")
        # Of how many tasks the values are.
        out = tres(row["TRESUsageOutTot"])
        for metric in ("sm", "membw", "energy", "idle"):
            name = NAMES[metric]
            if out.get(name) != (tasks if name in total else None):
                self.fault(f"{name}: OutTot={out.get(name)}, {tasks} tasks")
        for column in FIELDS[USAGE]:
            if re.search(r"1844674407\d{10}", row[column]):
                self.fault(f"{column}={row[column]}")
        if "ic/pcie" in total and len(self.step.nodes) > 1:
            self.extremes(want)

    def extremes(self, want):
        """Max, Min and MaxNode of a counter, over nodes."""
        by = {n: t["pcie_rx"] for n, t in want.by_node.items()}
        top, low = max(by.values()), min(by.values())
        for name, pick in (("Max", max), ("Min", min)):
            have = tres(self.row[f"TRESUsageIn{name}"]).get("ic/pcie", -1)
            if not pick(want.values("pcie_rx", min)) * 0.99 - 1 <= have <= \
                    pick(want.values("pcie_rx", max)) * 1.01 + 1:
                self.fault(f"TRESUsageIn{name} ic/pcie={have}, truth "
                           f"{pick(by.values()):.8g}")
        node = re.search(r"ic/pcie=([^,]*)", self.row["TRESUsageInMaxNode"])
        if low < top * 0.85 and (not node or by.get(node[1]) != top):
            self.fault(f"TRESUsageInMaxNode {node and node[1]}, truth {by}")


def compare(options, labels):
    steps = [Step(options.tasks / name) for name in labels]
    results = []
    for step, row in zip(steps, find_all(options, steps)):
        result = Result(step, row)
        results.append(result)
        if row is None:
            result.fault("no record of its end in sacct")
            continue
        if row["State"].split()[0] != options.state:
            result.fault(f"State={row['State']}")
        want = Want(step, options)
        result.lost = float(want.lost)
        for column, metrics in want.columns().items():
            for metric, limits in metrics.items():
                result.value(column, metric, limits, options)
        if not options.main:
            result.shape(want)
    return results


def show(results, verbose):
    for r in results:
        errors = "  ".join(f"{k} {v:.2f} %" for k, v in sorted(r.rel.items()))
        if r.lost:
            errors += f"  stalls {r.lost * 1000:.0f} ms"
        print(f"| {r.step.label} | {r.step.id} | {r.step.seconds:.2f} s | "
              f"means {r.mean:.2f} points  {errors}  peaks {r.peaks[0]} of "
              f"{r.peaks[1]} | {'WRONG' if r.faults else 'right'} |")
        if verbose or r.faults:
            for name, want, have in r.cells:
                print(f"    {name}: truth {want:.8g}, sacct {have}")
        for f in r.faults:
            print(f"    WRONG: {f}")


def parser():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--cluster", required=True, metavar="DIR")
    p.add_argument("--devcluster", default=str(
        pathlib.Path(__file__).resolve().parents[2] / "contrib/devcluster"))
    p.add_argument("--tasks", required=True, type=pathlib.Path)
    p.add_argument("--gpu-dir", type=pathlib.Path,
                   help="of the scenarios (CLUSTER/gpu)")
    p.add_argument("--interval", default=Fraction(1), type=Fraction)
    p.add_argument("--idle", default=Fraction(1), type=Fraction)
    p.add_argument("--absent", default="", help="metrics that must be unset")
    p.add_argument("--busy", action="store_true",
                   help="without GPM kernels run all the time: idle is 0")
    p.add_argument("--unset-ok", action="store_true",
                   help="a step so short that its values may be unset")
    p.add_argument("--state", default="COMPLETED")
    p.add_argument("--gpus", action="append", default=[],
                   metavar="NODE=MINOR,...",
                   help="instead of what the tasks' environment says")
    p.add_argument("--main", action="store_true",
                   help="DdpGpuStepRecord=read: the main columns only")
    p.add_argument("--verbose", action="store_true")
    return p


def prepare(options):
    options.gpu_dir = options.gpu_dir or \
        pathlib.Path(options.cluster) / "gpu"
    options.stalls = Stalls(pathlib.Path(options.cluster) / "stalls")
    options.absent = [m for m in options.absent.split(",") if m]
    if set(options.absent) - set(NAMES):
        raise SystemExit(f"compare.py: not metrics: {options.absent}")
    options.gpus = {n: {int(m) for m in v.split(",")} for n, v in
                    (g.split("=") for g in options.gpus)}
    options.sacct = [options.devcluster, "--dir", options.cluster, "run",
                     "--", "sacct"]
    return options


def main():
    p = parser()
    p.add_argument("labels", nargs="+", metavar="LABEL")
    options = prepare(p.parse_args())
    results = compare(options, options.labels)
    show(results, options.verbose)
    sys.exit(1 if any(r.faults for r in results) else 0)


if __name__ == "__main__":
    main()
