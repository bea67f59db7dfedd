#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ddp-gpu-sampler with a fake NVML, beside the truth about its scenario."""
import os
import signal
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import truth  # noqa: E402
from sampler_run import (DONE, FAILED, METRICS, SAMPLER,  # noqa: E402
                         SAMPLING, Folder, Sampler)

# Two GPUs whose order is not that of their minors. The loads stay for longer
# than two intervals, so that the peak is that of the curve.
TWO = """
gpu minor=3 bus=0000:10:00.0 uuid=GPU-three {0}
sm 0:40 1:80 1.7:10
membw 0:10 1.2:30
util 0:100
nvlink_rx 0:1e9 1:5e9
nvlink_tx 0:2e9
pcie_rx 0:3e9
pcie_tx 0:9e9 1.5:20e9
power 0:300 1:700
gpu minor=1 bus=0000:20:00.0 uuid=GPU-one {0}
sm 0:0 0.9:60
membw 0:0 0.9:50
util 0:0 0.9:70
nvlink_rx 0:7e9
nvlink_tx 0:0
pcie_rx 0:1e8
pcie_tx 0:0
power 0:80
"""
MIG = """
gpu minor=0 bus=0000:10:00.0 uuid=GPU-zero mig {0}
sm 0:99
mig gi=1 ci=0 uuid=MIG-a {1}
sm 0:20 1.1:50
membw 0:5
mig gi=2 ci=0 uuid=MIG-b
sm 0:90
"""


def run(scenario, gpus=("minor=1", "minor=3"), seconds=2.3, kind="", **kw):
    """A whole run: (folder, exit status, last values)."""
    folder = Folder(scenario, kind)
    sampler = Sampler(gpus, folder.library, **kw)
    try:
        time.sleep(seconds)
        code, values = sampler.finish()
        folder.seen = folder.calls()
        return folder, code, values, sampler.said()
    finally:
        sampler.close()
        folder.remove()


class Truth(unittest.TestCase):
    """Integrals, on several kinds of GPUs and drivers at once."""

    CASES = {
        "plain": dict(scenario=TWO.format("")),
        "min": dict(scenario=TWO.format(""), interval=100),
        "by uuid and pci": dict(scenario=TWO.format(""), gpus=(
            "uuid=GPU-one", "pci=0000:10:00.0")),
        "one": dict(scenario=TWO.format(""), gpus=("minor=3",)),
        "old driver": dict(scenario=TWO.format(""), kind="-old"),
        "no fields": dict(scenario=TWO.format(""), kind="-nofields"),
        "no gpm": dict(scenario=TWO.format("gpm=no")),
        "nvlink 5": dict(scenario=TWO.format("nvlink=v5")),
        "nothing": dict(scenario=TWO.format(
            "gpm=no nvlink=none pcie=none energy=no util=no")),
        "no nvlink": dict(scenario=TWO.format("nvlink=none")),
        "sampled": dict(scenario=TWO.format("gpm=no pcie=throughput")),
        "wraps": dict(scenario=TWO.format("pcie=fields,throughput") +
                      "base pcie_rx 4294960000\nbase pcie_tx 4294967295\n"
                      "base energy 9e15\n"),
        "lost": dict(scenario=TWO.format("") + "lost 1.4\n"),
        "slow": dict(scenario=TWO.format("") +
                     "slow nvmlGpmSampleGet ms=3\n"),
        "errors": dict(scenario=TWO.format("") +
                       "fail nvmlGpmMetricsGet code=999 at=3 count=3\n"
                       "fail nvmlDeviceGetFieldValues code=999 at=6 "
                       "count=2\n"
                       "fail nvmlDeviceGetTotalEnergyConsumption code=10 "
                       "at=4 count=2\n"),
        "mig": dict(scenario=MIG.format("", ""), gpus=("uuid=MIG-a",)),
        "mig without gpm": dict(scenario=MIG.format("", "gpm=no"),
                                gpus=("uuid=MIG-a",)),
        "mig before hopper": dict(scenario=MIG.format("gpm=no", ""),
                                  gpus=("uuid=MIG-a",)),
    }

    @classmethod
    def setUpClass(cls):
        with ThreadPoolExecutor(6) as pool:
            jobs = {name: pool.submit(run, **kw)
                    for name, kw in cls.CASES.items()}
            cls.done = {name: job.result() for name, job in jobs.items()}

    def check(self, name, slack=1):
        """Against truth.py, with slack times what is allowed; the values."""
        kw = self.CASES[name]
        folder, code, values, said = self.done[name]
        self.assertEqual((code, values.state), (0, DONE), said)
        self.assertEqual(said, "")
        gpus = kw.get("gpus", ("minor=1", "minor=3"))
        if "pci=0000:10:00.0" in gpus:
            gpus = ("minor=1", "minor=3")
        scenario = truth.Scenario(folder.text(kw["scenario"]))
        units = scenario.find([int(g[6:]) for g in gpus if g[:6] == "minor="],
                              [g[5:] for g in gpus if g[:5] == "uuid="])
        start, end = (t - folder.origin for t in values.window())
        want = truth.truth(scenario, units, start, end,
                           no_gpm=kw.get("kind") == "-old",
                           no_fields=kw.get("kind") == "-nofields")
        if gpus[0].startswith("uuid=MIG"):
            # Links are the GPU's, not the instance's.
            want.update(dict.fromkeys(("nvlink_rx", "nvlink_tx", "pcie_rx",
                                       "pcie_tx")))
        for metric in "sm", "membw":
            self.near(values.ins.get(metric), want[metric + "_mean"], slack)
            self.near(values.outs.get(metric), want[metric + "_peak"], 1e-6)
        for metric in "nvlink", "pcie":
            self.near(values.ins.get(metric), want[metric + "_rx"],
                      rel=0.01 * slack)
            self.near(values.outs.get(metric), want[metric + "_tx"],
                      rel=0.01 * slack)
        self.near(values.ins.get("energy"), want["energy_j"],
                  rel=0.01 * slack)
        if want["idle_s"] is not None:
            # An interval is idle as a whole, or not at all.
            self.near(values.ins.get("idle"), want["idle_s"], 0.25)
        return values

    def near(self, got, want, off=0.0, rel=0.0):
        if want is None:
            self.assertIsNone(got)
        else:
            self.assertIsNotNone(got)
            self.assertLessEqual(abs(got - want), max(off, rel * want),
                                 (got, want))

    def text(self, name, *parts):
        text = self.check(name).text
        for part in parts:
            self.assertIn(part, text)

    def test_plain(self):
        self.text("plain", "SM: GPM;", "NVLink: NVML fields 138/139;",
                  "PCIe: GPM;", "energy: NVML;", "idle: SM activity",
                  "driver 580.95")
        for name in ("min", "by uuid and pci", "one", "wraps", "slow",
                     "errors"):
            with self.subTest(name):
                self.check(name)

    def test_interval_of_gpm(self):
        v = self.check("min")
        self.assertLessEqual(v.readings, (v.last - v.first) * 1e-9 / 0.105 + 2)
        self.assertGreater(v.readings, 15)

    def test_without_gpm(self):
        for name in ("old driver", "no gpm"):
            with self.subTest(name):
                self.text(name, "SM: unknown", "by samples of 20 ms",
                          "idle: kernel-active time")
                # By busy time at the readings: 0.9 s of one GPU.
                self.near(self.done[name][2].ins["idle"], 0.9, 0.25)

    def test_other_sources(self):
        self.text("no fields", "NVLink: GPM", "PCIe: GPM")
        self.text("nvlink 5", "NVLink: NVML fields 202/204")
        self.text("no nvlink", "NVLink: unknown")

    def test_nothing(self):
        values = self.check("nothing")
        self.assertEqual((values.ins, values.outs), ({}, {}))

    def test_sampled(self):
        values = self.done["sampled"][2]
        self.assertIn("PCIe: NVML samples of 20 ms", values.text)
        # Steps of the curve lie between samples: no better than this.
        seconds = (values.last - values.first) * 1e-9
        self.near(values.ins["pcie"], 3.1e9 * seconds, rel=0.01)

    def test_lost(self):
        # Its last interval nobody knows: 0.2 of 1.4 s.
        values = self.check("lost", slack=15)
        self.assertEqual([g["lost"] for g in values.gpus], [1, 0])
        self.assertIn("lost: minor=1", values.text)

    def test_mig(self):
        values = self.check("mig")
        self.assertEqual(set(values.ins), {"sm", "membw", "idle"})
        calls = {c.split()[0] for c in self.done["mig"][0].seen}
        self.assertNotIn("nvmlDeviceGetFieldValues", calls)
        for name in ("mig without gpm", "mig before hopper"):
            with self.subTest(name):
                values = self.check(name)
                self.assertEqual((values.ins, values.outs), ({}, {}))


class Life(unittest.TestCase):
    """How it starts, ends, and what it holds."""

    def start(self, scenario=TWO.format(""), gpus=("minor=3", "minor=1"),
              **kw):
        folder = Folder(scenario)
        self.addCleanup(folder.remove)
        kw.setdefault("library", folder.library)
        sampler = Sampler(gpus, **kw)
        sampler.folder = folder
        self.addCleanup(sampler.close)
        return sampler

    def test_calls(self):
        """4 a reading and GPU, whatever else NVML could be asked."""
        s = self.start()
        first = s.until(lambda v: v.readings >= 4)
        calls = s.folder.calls()
        last = s.until(lambda v: v.readings >= first.readings + 5)
        more = s.folder.calls()[len(calls):]
        n = last.readings - first.readings
        names = sorted({c.split()[0] for c in more})
        self.assertEqual(names, ["nvmlDeviceGetFieldValues",
                                 "nvmlDeviceGetTotalEnergyConsumption",
                                 "nvmlGpmMetricsGet", "nvmlGpmSampleGet"])
        for name in names:
            self.assertAlmostEqual(
                sum(c.split()[0] == name for c in more), 2 * n, delta=4)
        self.assertFalse([c for c in s.folder.calls() if "Process" in c])

    def test_wanted(self):
        s = self.start(want=("energy",))
        values = s.until(lambda v: v.readings >= 4)
        self.assertEqual(set(values.ins), {"energy"})
        calls = {c.split()[0] for c in s.folder.calls()}
        self.assertFalse(calls & {"nvmlGpmSampleGet", "nvmlGpmMetricsGet",
                                  "nvmlDeviceGetFieldValues",
                                  "nvmlDeviceGetUtilizationRates",
                                  "nvmlDeviceGetPcieThroughput"})

    def test_wakes_once(self):
        s = self.start(interval=100)
        first = s.until(lambda v: v.readings >= 3)
        before = self.status(s, "voluntary_ctxt_switches")
        last = s.until(lambda v: v.readings >= first.readings + 10)
        after = self.status(s, "voluntary_ctxt_switches")
        self.assertLessEqual(int(after) - int(before),
                             last.readings - first.readings + 3)

    def status(self, s, key):
        with open(f"/proc/{s.pid}/status") as f:
            for line in f:
                if line.startswith(key + ":"):
                    return line.split(":", 1)[1].strip()
        raise AssertionError(key)

    def test_holds_nothing(self):
        high = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, high)
        s = self.start()
        s.until(lambda v: v.readings >= 2)
        self.assertEqual(s.told_pid(), s.pid)
        if os.getuid() == 0:
            self.assertEqual(self.status(s, "Uid"), "\t".join(["65533"] * 4))
            self.assertEqual(self.status(s, "Gid"), "\t".join(["65533"] * 4))
            self.assertEqual(self.status(s, "Groups"), "")
            for caps in "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
                self.assertEqual(int(self.status(s, caps), 16), 0, caps)
            # Not dumpable: its files in /proc are root's.
            self.assertEqual(os.stat(f"/proc/{s.pid}/status").st_uid, 0)
            self.assertEqual(os.readlink(f"/proc/{s.pid}/cwd"), "/")
            fds = {int(f) for f in os.listdir(f"/proc/{s.pid}/fd")}
            # And the log of the fake.
            self.assertLessEqual(fds, {0, 1, 2, 3, 4, 5})
        self.assertEqual(self.status(s, "NoNewPrivs"), "1")
        with open(f"/proc/{s.pid}/oom_score_adj") as f:
            self.assertEqual(f.read().strip(), "0")
        with open(f"/proc/{s.pid}/limits") as f:
            limits = f.read()
        self.assertRegex(limits, r"Max core file size +0 +0 ")
        self.assertRegex(limits, r"Max open files +\d{1,3} +\d{1,3} ")

    def test_ends_with_the_socket(self):
        s = self.start()
        s.until(lambda v: v.readings >= 2)
        before = time.monotonic()
        s.control.close()
        self.assertEqual(s.wait(), 1)
        self.assertLess(time.monotonic() - before, 0.5)
        self.assertEqual(s.read().state, SAMPLING)

    def test_hangs(self):
        """A call that never returns: nothing more comes, all before is kept,
        and it goes when nobody listens."""
        s = self.start(TWO.format("") + "hang nvmlGpmSampleGet at=7\n")
        s.until(lambda v: v.readings == 3)
        s.control.send(b"F")
        time.sleep(0.7)
        values = s.read()
        self.assertEqual((values.state, values.readings), (SAMPLING, 3))
        self.assertIn("sm", values.ins)
        before = time.monotonic()
        s.control.close()
        self.assertEqual(s.wait(), 1)
        self.assertLess(time.monotonic() - before, 0.5)

    def test_killed(self):
        s = self.start(interval=100)
        s.until(lambda v: v.readings >= 3)
        s.process.kill()
        self.assertEqual(s.wait(), -signal.SIGKILL)
        values = s.read()
        self.assertEqual(values.state, SAMPLING)
        self.assertEqual(set(values.ins), set(METRICS))

    def test_stopped(self):
        """No burst after a stop; GPM and counters cover it."""
        s = self.start(interval=100)
        first = s.until(lambda v: v.readings >= 3)
        s.process.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        s.process.send_signal(signal.SIGCONT)
        time.sleep(0.33)
        code, values = s.finish()
        self.assertEqual((code, values.state), (0, DONE))
        self.assertLess(values.readings - first.readings, 8)
        scenario = truth.Scenario(s.folder.text(TWO.format("")))
        start, end = (t - s.folder.origin for t in values.window())
        want = truth.truth(scenario, scenario.find([1, 3], []), start, end)
        self.assertLess(abs(values.ins["sm"] - want["sm_mean"]), 1)
        self.assertLess(abs(values.ins["energy"] / want["energy_j"] - 1), .01)

    def test_ends_early(self):
        """Too short for GPM: unknown, not wrong."""
        s = self.start(interval=60000)
        s.until(lambda v: v.readings == 1)
        time.sleep(0.05)
        code, values = s.finish()
        self.assertEqual((code, values.state, values.readings), (0, DONE, 2))
        self.assertNotIn("sm", values.ins)
        self.assertIn("energy", values.ins)

    def test_asked_at_once(self):
        s = self.start()
        code, values = s.finish()
        self.assertEqual((code, values.state), (0, DONE))
        self.assertLessEqual(values.readings, 2)

    def test_strange_words(self):
        s = self.start(interval=60000)
        s.until(lambda v: v.readings == 1)
        for word in b"x", b"\0", b"f", b"x" * 1000:
            s.control.send(word)
        time.sleep(0.2)
        self.assertEqual(s.read().readings, 1)
        self.assertEqual(s.finish()[0], 0)


class Refused(unittest.TestCase):
    """It says what is wrong, in its memory, and ends."""

    def fails(self, *parts, scenario=TWO.format(""), gpus=("minor=1",),
              change=None, **kw):
        folder = Folder(scenario)
        self.addCleanup(folder.remove)
        if change:
            change(folder)
        kw.setdefault("library", folder.library)
        s = Sampler(gpus, **kw)
        self.addCleanup(s.close)
        self.assertEqual(s.wait(), 2, s.said())
        values = s.read()
        self.assertEqual(values.state, FAILED)
        self.assertEqual((values.ins, values.outs), ({}, {}))
        for part in parts:
            self.assertIn(part, values.text)
        self.assertNotIn("\n", values.text)

    def test_no_gpu(self):
        self.fails("minor=7", "2", gpus=("minor=7",))

    def test_no_driver(self):
        self.fails("NVML does not start", "nvidia-smi", scenario=TWO.format(
            "") + "fail nvmlInit_v2 code=9\n")

    def test_no_library(self):
        self.fails("none.so", "DdpGpuLibrary", library="/usr/lib/none.so")
        self.fails("absolute", library="libnvidia-ml.so.1")
        self.fails("file", library="/usr/lib")

    def test_no_nvml(self):
        def other(folder):
            with open("/proc/self/maps") as f:
                libc = next(line.split()[-1] for line in f if "/libc" in line)
            os.unlink(folder.library)
            with open(libc, "rb") as src, open(folder.library, "wb") as dst:
                dst.write(src.read())
        self.fails("nvmlInit_v2", change=other)

    def test_open_library(self):
        self.fails("others than root may write", change=lambda f: os.chmod(
            f.library, 0o666))
        self.fails("others than root may write", change=lambda f: os.chmod(
            f.path, 0o777))

    @unittest.skipIf(os.getuid(), "needs root")
    def test_foreign_library(self):
        self.fails("does not belong to root", change=lambda f: os.chown(
            f.path, 4711, 0))
        self.fails("does not belong to root", change=lambda f: os.chown(
            f.library, 4711, 0))

    def test_arguments(self):
        for args in ([], ["--help"], ["--want", "sm"],
                     ["--want", "sm", "--gpu", "minor=x\n"]):
            self.fails("ddp-gpu-sampler: ", args=args)

    def test_no_memory(self):
        """Started by hand it says so."""
        r = subprocess.run([SAMPLER], capture_output=True, timeout=10)
        self.assertEqual(r.returncode, 2)
        self.assertIn(b"accounting plugin", r.stderr)


if __name__ == "__main__":
    unittest.main()
