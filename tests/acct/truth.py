#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the GPUs of a scenario did, worked out from the scenario alone.

    truth.py SCENARIO --gpus MINOR,... [--mig UUID]... --from T0 --to T1
             [--idle PERCENT] [--no-gpm] [--no-fields] [--relative]

T0 and T1 are seconds of CLOCK_REALTIME (with --relative: after the
scenario's origin). One JSON object: means over GPUs and time (%), peaks (the
highest value of any GPU, %), bytes, joules and idle GPU-seconds (time in which
SM activity is below --idle), null for what one of the GPUs does not give.
--no-gpm and --no-fields: through a library without these functions.

A GPU that is lost counts until then; one that is lost from the beginning has
given nothing, so all is null.

This shares nothing with the library in tests/fakes but the format, which
fake_ml_parse.c and fake_ml_gpuline.c describe. Numbers are exact fractions.
"""
import argparse
import json
import shlex
import sys
from fractions import Fraction

CURVES = ("sm", "membw", "util", "nvlink_rx", "nvlink_tx", "pcie_rx",
          "pcie_tx", "power")
NEVER = Fraction(10) ** 30


class Curve:
    """Steps [(t, value)]; before the first one it has its value too."""

    def __init__(self, words):
        self.steps = [tuple(Fraction(x) for x in w.split(":")) for w in words]

    def pieces(self, start, end, period):
        """(seconds, value) of each piece of constant value in [start, end)."""
        if period is None:
            yield from self._once(start, end)
            return
        at = start
        while at < end:
            begin = at // period * period
            until = min(end, begin + period)
            yield from self._once(at - begin, until - begin)
            at = until

    def _once(self, start, end):
        edges = [t for t, _ in self.steps[1:]] + [NEVER]
        at = start
        for (_, value), edge in zip(self.steps, edges):
            if at < min(edge, end):
                yield min(edge, end) - at, value
                at = min(edge, end)

    def integral(self, start, end, period):
        if period is not None and end - start > 2 * period:
            # Whole periods at once.
            whole = (end - start) // period
            return (whole * self.integral(Fraction(0), period, period) +
                    self.integral(start, end - whole * period, period))
        return sum((dt * v for dt, v in self.pieces(start, end, period)),
                   Fraction(0))


ZERO = Curve(["0:0"])


class Unit:
    """A GPU, or a MIG device (parent is set)."""

    def __init__(self, keys, flags=(), parent=None):
        self.keys, self.parent = keys, parent
        self.curves, self.lost = {}, NEVER
        self.mig = "mig" in flags

    def __getattr__(self, name):
        if name in CURVES:
            return self.curves.get(name, ZERO)
        raise AttributeError(name)

    def gpm(self):
        default = self.parent.keys.get("gpm", "yes") if self.parent else "yes"
        return self.keys.get("gpm", default) == "yes"

    def sources(self, kind):
        gpu = self.parent or self
        default = {"nvlink": "fields,gpm",
                   "pcie": "fields,throughput,gpm"}[kind]
        have = set(gpu.keys.get(kind, default).split(",")) - {"none"}
        if self.parent:
            # Only GPM knows parts of a GPU.
            have &= {"gpm"}
        return have if self.gpm() else have - {"gpm"}

    def lost_at(self):
        return (self.parent or self).lost


class Scenario:
    def __init__(self, text):
        self.origin, self.period = Fraction(0), None
        self.gpus, self.migs = [], []
        unit = None
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            key, rest = words[0], words[1:]
            if key in ("gpu", "mig"):
                keys = dict(w.split("=", 1) for w in rest if "=" in w)
                flags = [w for w in rest if "=" not in w]
                if key == "gpu":
                    unit = Unit(keys, flags)
                    self.gpus.append(unit)
                else:
                    unit = Unit(keys, (), self.gpus[-1])
                    self.migs.append(unit)
            elif key in CURVES:
                unit.curves[key] = Curve(rest)
            elif key == "lost":
                unit.lost = Fraction(rest[0])
            elif key == "origin":
                self.origin = Fraction(rest[0])
            elif key == "period":
                self.period = Fraction(rest[0])

    def find(self, minors, uuids):
        units = []
        for minor in minors:
            units += [g for g in self.gpus if int(g.keys["minor"]) == minor]
        for uuid in uuids:
            units += [m for m in self.migs if m.keys["uuid"] == uuid]
        if len(units) != len(minors) + len(uuids):
            raise SystemExit("truth.py: not every GPU is in the scenario")
        return units


def known(units, no_gpm, no_fields):
    """Which of sm, nvlink, pcie and energy all of them give."""
    def traffic(unit, kind):
        have = unit.sources(kind)
        have -= {"gpm"} if no_gpm else set()
        have -= {"fields", "v5"} if no_fields else set()
        return bool(have)

    return {
        "sm": not no_gpm and all(u.gpm() for u in units),
        "nvlink": all(traffic(u, "nvlink") for u in units),
        "pcie": all(traffic(u, "pcie") for u in units),
        "energy": all(not u.parent and u.keys.get("energy", "yes") == "yes"
                      for u in units),
    }


def truth(scenario, units, start, end, idle=1, no_gpm=False, no_fields=False):
    """start and end are seconds after the origin. What main() prints."""
    start, end, idle = Fraction(start), Fraction(end), Fraction(idle)
    if not units or end <= start:
        raise SystemExit("truth.py: no GPU, or no time")
    have = known(units, no_gpm, no_fields)
    if any(u.lost_at() <= start for u in units):
        have = dict.fromkeys(have, False)
    # Of each unit the time in which it was there.
    spans = [(u, start, min(end, u.lost_at())) for u in units]
    seconds = sum(b - a for _, a, b in spans)

    def total(name):
        return sum(getattr(u, name).integral(a, b, scenario.period)
                   for u, a, b in spans)

    def peak(name):
        return max(v for u, a, b in spans
                   for _, v in getattr(u, name).pieces(a, b, scenario.period))

    def idle_time():
        return sum(dt for u, a, b in spans
                   for dt, v in u.sm.pieces(a, b, scenario.period) if v < idle)

    out = {
        "sm_mean": have["sm"] and total("sm") / seconds,
        "sm_peak": have["sm"] and peak("sm"),
        "membw_mean": have["sm"] and total("membw") / seconds,
        "membw_peak": have["sm"] and peak("membw"),
        "nvlink_rx": have["nvlink"] and total("nvlink_rx"),
        "nvlink_tx": have["nvlink"] and total("nvlink_tx"),
        "pcie_rx": have["pcie"] and total("pcie_rx"),
        "pcie_tx": have["pcie"] and total("pcie_tx"),
        "energy_j": have["energy"] and total("power"),
        "idle_s": have["sm"] and idle_time(),
    }
    return {k: None if v is False else float(v) for k, v in out.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("scenario")
    p.add_argument("--gpus", default="", help="minor numbers, with commas")
    p.add_argument("--mig", action="append", default=[], metavar="UUID")
    p.add_argument("--from", dest="start", required=True, type=Fraction)
    p.add_argument("--to", dest="end", required=True, type=Fraction)
    p.add_argument("--idle", default=Fraction(1), type=Fraction)
    p.add_argument("--no-gpm", action="store_true")
    p.add_argument("--no-fields", action="store_true")
    p.add_argument("--relative", action="store_true")
    a = p.parse_args()
    with open(a.scenario, encoding="utf-8") as f:
        scenario = Scenario(f.read())
    units = scenario.find([int(m) for m in a.gpus.split(",") if m], a.mig)
    off = 0 if a.relative else scenario.origin
    json.dump(truth(scenario, units, a.start - off, a.end - off, a.idle,
                    a.no_gpm, a.no_fields), sys.stdout)
    print()


if __name__ == "__main__":
    main()
