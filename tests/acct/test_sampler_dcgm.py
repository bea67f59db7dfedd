#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ddp-gpu-sampler --source dcgm with a fake libdcgm."""
import os
import shutil
import tempfile
import time
import unittest

from sampler_run import (DONE, FAILED, FAKES, METRICS, SAMPLING,
                         Sampler)

LOADS = ("gpus=3 sm=0.4 dram=0.2 prx=1e9 ptx=2e9 nrx=3e9 ntx=4e9 watt=500")


class Dcgm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="sampler.", dir="/var/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.dir, True)
        os.chmod(cls.dir, 0o755)
        cls.library = os.path.join(cls.dir, "libdcgm.so.4")
        shutil.copy(os.path.join(FAKES, "libdcgm", "libdcgm.so.4"),
                    cls.library)
        os.chmod(cls.library, 0o755)

    def start(self, fake=LOADS, gpus=("minor=10", "minor=12"), **kw):
        log = tempfile.NamedTemporaryFile(dir=self.dir)
        self.addCleanup(log.close)
        os.chmod(log.name, 0o666)
        kw.setdefault("library", self.library)
        s = Sampler(gpus, extra=("--source", "dcgm"), environ={
            "FAKE_DCGM": fake, "FAKE_DCGM_LOG": log.name}, **kw)
        s.log = log
        self.addCleanup(s.close)
        return s

    def near(self, got, want, rel=0.01):
        self.assertLessEqual(abs(got - want), rel * want, (got, want))

    def test_integrals(self):
        s = self.start()
        time.sleep(2.3)
        code, v = s.finish()
        self.assertEqual((code, v.state), (0, DONE), s.said())
        self.assertEqual(set(v.ins), set(METRICS))
        self.assertIn("DCGM's host engine; SM: DCGM; DRAM: DCGM; NVLink: "
                      "DCGM; PCIe: DCGM; energy: DCGM; idle: SM activity",
                      v.text)
        self.near(v.ins["sm"], 40)
        self.near(v.outs["sm"], 40)
        self.near(v.ins["membw"], 20)
        # Known from its second value to its last: whole intervals.
        seconds = v.ins["energy"] / 1000
        self.assertGreater(seconds, 1.7)
        self.assertLess(seconds, 2.3)
        self.near(v.ins["pcie"], 2e9 * seconds)
        self.near(v.outs["pcie"], 4e9 * seconds)
        self.near(v.ins["nvlink"], 6e9 * seconds)
        self.near(v.outs["nvlink"], 8e9 * seconds)
        self.assertAlmostEqual(v.ins["idle"], 0)
        s.log.seek(0)
        calls = s.log.read().decode().split()
        self.assertEqual(calls[-2:], ["dcgmDisconnect", "dcgmShutdown"])
        # One a reading and GPU, and one each to find three GPUs.
        self.assertEqual(calls.count("dcgmEntitiesGetLatestValues"),
                         2 * v.readings + 3)

    def test_changing(self):
        s = self.start(LOADS + " step=1.2")
        time.sleep(2.4)
        _, v = s.finish()
        # 1.2 s at 40, the same at 20; a value may be 0.2 s old.
        self.near(v.ins["sm"], 30, 0.1)
        self.near(v.outs["sm"], 40)

    def test_watched_before(self):
        """What others had measured is before this step."""
        s = self.start(LOADS + " ago=1")
        time.sleep(1.3)
        _, v = s.finish()
        seconds = (v.last - v.first) * 1e-9
        self.near(v.ins["sm"], 40)
        self.assertLessEqual(v.ins["pcie"], 2e9 * (seconds + 0.05))
        self.assertLessEqual(v.ins["energy"], 1000 * seconds)

    def test_which_gpu(self):
        for gpus in (("uuid=GPU-2",), ("pci=0000:12:00.0",)):
            v = self.start(gpus=gpus).until(lambda v: "sm" in v.ins)
            self.assertEqual(v.state, SAMPLING)
        s = self.start(gpus=("minor=10", "minor=17"))
        v = s.until(lambda v: v.readings > 4)
        self.assertEqual(v.ins, {})
        self.assertEqual([g["lost"] for g in v.gpus], [0, 1])

    def test_blank(self):
        for field, metric in (1005, "membw"), (1010, "pcie"):
            s = self.start(LOADS + f" blank={field}")
            v = s.until(lambda v: v.readings > 4)
            self.assertNotIn(metric, v.ins)
            self.assertEqual(set(METRICS) - set(v.ins), {metric})

    def test_not_all_at_once(self):
        s = self.start(LOADS + " most=4")
        v = s.until(lambda v: v.readings > 4)
        self.assertEqual(set(v.ins), {"sm", "membw", "energy", "idle"})
        self.assertIn("PCIe: unknown", v.text)

    def test_lost(self):
        s = self.start(LOADS + " lost=0.9")
        v = s.until(lambda v: v.gpus[0]["lost"])
        self.assertEqual(v.gpus[1]["lost"], 0)
        self.near(v.ins["sm"], 40)

    def fails(self, *parts, **kw):
        s = self.start(**kw)
        self.assertEqual(s.wait(), 2)
        v = s.read()
        self.assertEqual(v.state, FAILED)
        for part in parts:
            self.assertIn(part, v.text)

    def test_refused(self):
        self.fails("host engine", "nvidia-dcgm", fake=LOADS + " down=1")
        self.fails("minor=3", "MIG", gpus=("minor=3",))
        self.fails("measures none", "passes", fake=LOADS + " most=0.5")
        self.fails("DdpGpuLibrary", library="/usr/lib/none.so")
        self.fails("not DCGM", library=self.other())

    def other(self):
        path = os.path.join(self.dir, "other.so")
        shutil.copy(os.path.join(FAKES, "libnvidia-ml", "libnvidia-ml.so.1"),
                    path)
        return path


if __name__ == "__main__":
    unittest.main()
