#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sacct must say of a step: from the files that its tasks have written
(gpu_task.c) and the truth about the scenario (truth.py), by the columns of
doc/accounting.md.

A peak is the highest mean over one interval. Where the highest level of a curve
holds for two intervals, one reading lies wholly in it: the peak is exact.
Elsewhere it lies between what the least lucky and the luckiest readings give.
In the same way idle time is counted in whole readings. When the first task
began is known to some milliseconds: in steps of less than 3 s the truth may be
that of a window 50 ms longer or shorter at each end; where the sampler came later
than that, there are no values. At any length the window may be longer or shorter
by what the machine stood still around that end of it (stalls.c): nobody can have
seen then when a task began or ended.
"""
import pathlib
import sys
from fractions import Fraction

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import truth as tr  # noqa: E402

PERCENT = ("sm", "membw")
# How much of a level's time may go to a reading that comes late.
LATE = Fraction(15, 100)


# --- what the tasks wrote ---------------------------------------------------

class Node:
    """One node of a step: its tasks' window and its GPUs."""

    def __init__(self):
        self.start, self.end, self.tasks, self.gpus = None, None, 0, set()

    def add(self, task):
        begin, end = Fraction(task["start"]), Fraction(task["end"])
        self.start = begin if self.start is None else min(self.start, begin)
        self.end = end if self.end is None else max(self.end, end)
        self.tasks += 1
        batch = task["step"].endswith(".batch")
        words = task["job_gpus"] if batch else task["step_gpus"]
        # Where devices are confined each task is told of its own as 0, 1, ...
        words = task.get("opens", words)
        self.gpus |= {int(w) for w in words.split(",") if w}


class Step:
    def __init__(self, path):
        self.label, self.nodes = path.name, {}
        tasks = [read_task(f) for f in sorted(path.iterdir())]
        if not tasks:
            raise SystemExit(f"compare.py: nobody has run as {path.name}")
        ids = {(t["step"], t["restart"]) for t in tasks}
        if len(ids) != 1:
            raise SystemExit(f"compare.py: {path.name} is several steps")
        self.id, restart = ids.pop()
        self.restart = int(restart or 0)
        for t in tasks:
            self.nodes.setdefault(t["node"], Node()).add(t)

    @property
    def ntasks(self):
        return sum(n.tasks for n in self.nodes.values())

    @property
    def seconds(self):
        return float(max(n.end - n.start for n in self.nodes.values()))


def read_task(path):
    task = {}
    for line in path.read_text(encoding="ascii").splitlines():
        key, _, value = line.partition(" ")
        task[key] = value
    if "end" not in task:
        raise SystemExit(f"compare.py: {path} does not say when it ended")
    return task


# --- when nobody could look -------------------------------------------------

class Stalls:
    """What stalls.c wrote; no file, no stall."""

    def __init__(self, path):
        text = path.read_text(encoding="ascii") if path.exists() else ""
        self.spans = sorted((Fraction(a), Fraction(b)) for _, a, b in
                            (line.split() for line in text.splitlines()
                             if line.count(" ") == 2))

    def near(self, start, end):
        """Seconds of those that reach into start … end, on any CPU."""
        total, upto = Fraction(0), Fraction(0)
        for a, b in self.spans:
            if b >= start and a <= end:
                total += max(Fraction(0), b - max(a, upto))
                upto = max(upto, b)
        return total

    def begin(self, t):
        """The task was seen, and the sampler started, around t."""
        return self.near(t - Fraction(1, 20), t + Fraction(15, 100))

    def end(self, t):
        return self.near(t - Fraction(1, 50), t + Fraction(15, 100))


# --- what must be there -----------------------------------------------------

class Limits:
    """lo..hi: what sacct may say; want: the truth. None: must not be there."""

    def __init__(self, want, lo, hi):
        self.want, self.lo, self.hi = want, lo, hi


def steps_of(curve, start, end, period):
    """[(from, to, value)] with equal neighbours joined."""
    out, at = [], start
    for dt, v in curve.pieces(start, end, period):
        if out and out[-1][2] == v:
            out[-1] = (out[-1][0], at + dt, v)
        else:
            out.append((at, at + dt, v))
        at += dt
    return out


def least_peak(curve, start, end, period, interval):
    """The highest reading where the phase of the readings is the worst."""
    if end - start <= interval:
        return curve.integral(start, end, period) / (end - start)
    worst = None
    for i in range(20):
        at, best = start + interval * i / 20, Fraction(0)
        while at + interval <= end:
            mean = curve.integral(at, at + interval, period) / interval
            best = max(best, mean)
            at += interval
        worst = best if worst is None else min(worst, best)
    return worst


def peak_limits(units, name, start, end, period, interval):
    """The truth, and the least that is right."""
    want, least = Fraction(0), Fraction(0)
    for u in units:
        curve = getattr(u, name)
        levels = steps_of(curve, start, end, period)
        top = max(v for _, _, v in levels)
        hold = max(b - a for a, b, v in levels if v == top)
        sure = top if hold >= min(2 * interval, end - start - LATE) + LATE \
            or len(levels) == 1 else \
            least_peak(curve, start, end, period, interval)
        want, least = max(want, top), max(least, sure)
    return want, least


def idle_slack(units, node, origin, period, interval, idle):
    """Idle seconds that may be lost in readings that were not idle wholly."""
    lost = Fraction(0)
    for u in units:
        quiet = [v < idle for _, _, v in
                 steps_of(u.sm, node.start - origin, node.end - origin,
                          period)]
        edges = sum(a != b for a, b in zip(quiet, quiet[1:]))
        lost += edges * (interval + LATE)
    return lost


class Want:
    """What sacct must say of a step; {column: {metric: Limits or None}}."""

    def __init__(self, step, options):
        self.step, self.o, self.lost = step, options, Fraction(0)
        self.by_node = {n: self.node(n, x) for n, x in step.nodes.items()}

    def node(self, name, node):
        path = self.o.gpu_dir / f"scenario.{name}"
        if not path.exists():
            path = self.o.gpu_dir / "scenario"
        sc = tr.Scenario(path.read_text(encoding="utf-8"))
        minors = self.o.gpus.get(name, node.gpus)
        units = sc.find(sorted(minors), [])
        t = self.truth(sc, units, node, 0, 0)
        # What it may be if the window is known to 50 ms only, or worse.
        d = Fraction(5, 100) \
            if node.end - node.start < Fraction(29, 10) else Fraction(0)
        if node.end - node.start <= 3 * d:
            d = Fraction(0)
        da, db = self.o.stalls.begin(node.start), self.o.stalls.end(node.end)
        self.lost = max(self.lost, da, db)
        off = [(a, b) for a in (-d - da, d + da) for b in (-d - db, d + db)
               if node.start + a < node.end + b]
        t["near"] = [self.truth(sc, units, node, a, b) for a, b in off]
        for m in PERCENT:
            t[m + "_least"] = None if t[m + "_peak"] is None else \
                min(float(peak_limits(units, m, node.start - sc.origin + a,
                                      node.end - sc.origin + b, sc.period,
                                      self.o.interval)[1]) for a, b in off)
        t["idle_lost"] = float(idle_slack(units, node, sc.origin, sc.period,
                                          self.o.interval, self.o.idle))
        t["tasks"] = node.tasks
        if self.o.busy and not t["idle_s"]:
            # Of GPUs on which kernels run all the time, says `util`.
            t["idle_s"] = 0
        return t

    def truth(self, sc, units, node, a, b):
        return tr.truth(sc, units, node.start + a - sc.origin,
                        node.end + b - sc.origin, self.o.idle)

    def values(self, key, pick=None):
        """Of each node; pick (min, max): of the windows near the true one."""
        v = [pick(n[key] or 0 for n in t["near"]) if pick and
             t[key] is not None else t[key] for t in self.by_node.values()]
        return None if any(x is None for x in v) else v

    def known(self, metric, key):
        if metric in self.o.absent:
            return None
        return self.values(key)

    def mean(self, m):
        v = self.known(m, m + "_mean")
        if v is None:
            return None
        tasks = [t["tasks"] for t in self.by_node.values()]

        def mean(values):
            return sum(a * b for a, b in zip(values, tasks)) / sum(tasks)

        return Limits(mean(v), mean(self.values(m + "_mean", min)) - 1,
                      mean(self.values(m + "_mean", max)) + 1)

    def peak(self, m):
        v = self.known(m, m + "_peak")
        if v is None:
            return None
        least = max(self.values(m + "_least"))
        return Limits(max(v), half_up(least), half_up(max(v)))

    def total(self, m, key, slack=0):
        v = self.known(m, key)
        if v is None:
            return None
        low, high = sum(self.values(key, min)), sum(self.values(key, max))
        return Limits(sum(v), low * 0.99 - len(v) - slack,
                      high * 1.01 + len(v))

    def columns(self):
        lost = sum(self.values("idle_lost"))
        return {
            "TRESUsageInAve": {m: self.mean(m) for m in PERCENT},
            "TRESUsageOutMax": {m: self.peak(m) for m in PERCENT},
            "TRESUsageInTot": {
                "nvlink": self.total("nvlink", "nvlink_rx"),
                "pcie": self.total("pcie", "pcie_rx"),
                "energy": self.total("energy", "energy_j"),
                "idle": self.total("idle", "idle_s", lost)},
            "TRESUsageOutTot": {
                "nvlink": self.total("nvlink", "nvlink_tx"),
                "pcie": self.total("pcie", "pcie_tx")},
        }


def half_up(v):
    return int(float(v) + 0.5)
