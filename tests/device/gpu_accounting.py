#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The sampler on a real GPU, beside known loads. For a machine with one GPU
(Hopper or later) and nvcc; by hand:

    contrib/build && top_builddir=_build/slurm-… python3 tests/device/gpu_accounting.py

Expected: each line ends in "ok".
    busy P %         gpusm within 3 points of P (whole SMs), idle time near 0
    idle             gpusm 0, gpuidle the whole time, energy as at rest
    copy in, out     ic/pcie within 10 % of the bytes that were copied (PCIe's
                     own headers are counted too), the other direction small
    cost             what NVML's calls take; no check
Then what was not seen for want of a second GPU: NVLink.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TOP, "tests", "acct"))
from sampler_run import TOP as BUILD, Sampler  # noqa: E402

failed = 0


def check(what, ok, seen):
    global failed
    failed += not ok
    print(f"{what:34} {seen:50} {'ok' if ok else 'FAILED'}", flush=True)


def nvcc():
    for path in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if path and os.path.exists(path):
            return path
    print("skipped: no nvcc")
    sys.exit(77)


def build(tmp):
    load = os.path.join(tmp, "gpu_load")
    subprocess.run([nvcc(), "-O1", "-o", load,
                    os.path.join(HERE, "gpu_load.cu")], check=True)
    cost = os.path.join(tmp, "nvml_cost")
    subprocess.run(["cc", "-O1", "-I" + TOP, "-I" + BUILD, "-o", cost,
                    os.path.join(HERE, "nvml_cost.c"), "-ldl"], check=True)
    return load, cost


def measured(load, *args):
    """(what the load says of itself, the sampler's values)."""
    s = Sampler(["minor=0"], interval=200)
    try:
        s.until(lambda t: t.readings >= 2)
        began = s.read()
        out = subprocess.run([load, *args], check=True, text=True,
                             capture_output=True, timeout=60).stdout.split()
        time.sleep(0.3)
        code, values = s.finish()
        assert code == 0, s.said() or values.text
        values.began = began
        return [float(x) for x in out], values
    finally:
        s.close()


def share(values, loaded, seconds):
    """The mean over the load's own time: outside of it the GPU is idle."""
    whole = (values.last - values.first) * 1e-9
    return values.ins["sm"] * whole / seconds


def main():
    if not os.path.exists("/dev/nvidia0"):
        print("skipped: no /dev/nvidia0")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as tmp:
        load, cost = build(tmp)
        for percent in (100, 50, 25):
            (begin, end, blocks, sms), v = measured(
                load, "busy", str(percent), "4")
            want = 100 * blocks / sms
            got = share(v, "sm", end - begin)
            check(f"busy {percent} % of {sms:.0f} SMs",
                  abs(got - want) <= 3 and v.ins["idle"] <
                  (v.last - v.first) * 1e-9 - (end - begin) + 1,
                  f"gpusm {got:.1f}, peak {v.outs['sm']:.1f}, wanted "
                  f"{want:.1f}")
        print(v.text)
        _, v = measured(load, "idle", "3")
        whole = (v.last - v.first) * 1e-9
        check("idle", v.ins["sm"] < 2 and v.ins["idle"] > 0.7 * whole,
              f"gpusm {v.ins['sm']:.2f}, idle {v.ins['idle']:.2f} of "
              f"{whole:.2f} s, {v.ins['energy'] / whole:.0f} W")
        for way, mine, other in (("in", "ins", "outs"),
                                 ("out", "outs", "ins")):
            (_, _, n, _), v = measured(load, way, "2e9", "20")
            got = getattr(v, mine)["pcie"]
            back = getattr(v, other)["pcie"]
            check(f"copy {way}", abs(got / n - 1) < 0.1 and back < n / 10,
                  f"{got / 1e9:.2f} GB of {n / 1e9:.2f}, other way "
                  f"{back / 1e9:.2f}")
        subprocess.run([cost])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
