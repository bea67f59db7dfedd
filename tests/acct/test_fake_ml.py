#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fake NVML beside what truth.py makes of the same scenario."""
import ctypes as C
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from fractions import Fraction

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ml  # noqa: E402
from truth import Scenario, truth  # noqa: E402

FAKES = os.environ.get("DDP_FAKES", "")
PARSER = os.environ.get("DDP_FAKE_ML_PARSE", "")
NEW = os.path.join(FAKES, "libnvidia-ml", "libnvidia-ml.so.1")
OLD = os.path.join(FAKES, "libnvidia-ml-old", "libnvidia-ml.so.1")
NOFIELDS = os.path.join(FAKES, "libnvidia-ml-nofields", "libnvidia-ml.so.1")
NOBODY = 65534

# Index 0, 1, 2 are minors 2, 0, 1.
THREE = """
origin %s
period 3.7
driver 550.1 nvml 12.550
gpu minor=2 bus=0000:10:00.0 uuid=GPU-two name="A name" # a comment
sm 0:90 0.4:10 2:55.5
membw 0:40 1:0
util 0:100 1:20
nvlink_rx 0:1e9 1:3e9
nvlink_tx 0:2e9
pcie_rx 0:1000000 0.3:5000000
pcie_tx 0:0 1.1:7e6
power 0:300 0.05:700
base pcie_rx 4294000000
base nvlink_rx 1024000
base energy 5000
gpu minor=0 bus=0000:81:00.0 uuid=GPU-zero nvlink=v5 pcie=fields
wrap pcie 64
sm 0:0.5
nvlink_rx 0:5e8
pcie_rx 0:123456789
base pcie_rx 10000000000
gpu minor=1 bus=0001:c1:1f.0 uuid=GPU-one gpm=no nvlink=none pcie=throughput energy=no util=no
sm 0:30
pcie_tx 0:50e6 1:20e6
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="fakeml.")
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.copies = 0

    def load(self, scenario, library=NEW):
        """The library with a scenario of its own, not initialised."""
        self.copies += 1
        folder = os.path.join(self.dir, str(self.copies))
        os.mkdir(folder)
        self.scenario = Scenario(scenario)
        return ml.Ml(library, folder, scenario)

    def up(self, scenario, library=NEW):
        m = self.load(scenario, library)
        self.assertEqual(m.code("Init_v2"), ml.OK)
        self.addCleanup(m.code, "Shutdown")
        return m

    def now(self):
        return time.time() - float(self.scenario.origin)

    def truth(self, minors, start, end, uuids=()):
        return truth(self.scenario, self.scenario.find(minors, uuids), start,
                     end)

    def code(self, code, function, *args, **kw):
        with self.assertRaises(ml.Error) as e:
            function(*args, **kw)
        self.assertEqual(e.exception.code, code)


def three():
    return THREE % repr(time.time() - 1.25)


class Identity(Case):
    def test_order(self):
        m = self.up(three())
        self.assertEqual(m.number("DeviceGetCount_v2"), 3)
        seen = [(m.number("DeviceGetMinorNumber", m.index(i)),
                 m.text("DeviceGetUUID", m.index(i)),
                 m.pci(m.index(i)).bus_id) for i in range(3)]
        self.assertEqual(seen, [(2, "GPU-two", b"00000000:10:00.0"),
                                (0, "GPU-zero", b"00000000:81:00.0"),
                                (1, "GPU-one", b"00000001:C1:1F.0")])
        pci = m.pci(m.index(2))
        self.assertEqual((pci.legacy, pci.domain, pci.bus, pci.device),
                         (b"0001:C1:1F.0", 1, 0xc1, 0x1f))
        self.assertEqual(m.text("DeviceGetName", m.index(0)), "A name")
        self.code(ml.INVALID, m.index, 3)

    def test_handles(self):
        m = self.up(three())
        one = m.index(2).value
        self.assertEqual(m.uuid("GPU-one").value, one)
        for bus in b"0001:c1:1f.0", b"00000001:C1:1F.0":
            self.assertEqual(
                m.handle("DeviceGetHandleByPciBusId_v2", bus).value, one)
        self.code(ml.NOT_FOUND, m.uuid, "GPU-none")
        self.code(ml.NOT_FOUND, m.handle, "DeviceGetHandleByPciBusId_v2",
                  b"0000:77:00.0")
        self.code(ml.INVALID, m.handle, "DeviceGetHandleByPciBusId_v2", b"x")
        self.code(ml.INVALID, m.number, "DeviceGetMinorNumber", C.c_void_p(8))

    def test_versions_and_generations(self):
        m = self.up(three())
        self.assertEqual(m.text("SystemGetDriverVersion"), "550.1")
        self.assertEqual(m.text("SystemGetNVMLVersion"), "12.550")
        self.assertEqual(m.code("SystemGetDriverVersion",
                                C.create_string_buffer(5), C.c_uint(5)),
                         ml.SIZE)
        # Hopper, Blackwell, Ampere
        self.assertEqual([m.number("DeviceGetArchitecture", m.index(i))
                          for i in range(3)], [9, 10, 7])

    def test_references(self):
        m = self.load(three())
        self.assertEqual(m.code("DeviceGetCount_v2", None), ml.UNINITIALIZED)
        self.assertEqual(m.code("Shutdown"), ml.UNINITIALIZED)
        m.call("Init_v2")
        m.call("InitWithFlags", C.c_uint(0))
        m.call("Shutdown")
        self.assertEqual(m.number("DeviceGetCount_v2"), 3)
        m.call("Shutdown")
        self.assertEqual(m.code("DeviceGetCount_v2", None), ml.UNINITIALIZED)
        # A new scenario is read with the next first reference.
        with open(os.path.join(os.path.dirname(m.path), "scenario"), "w") as f:
            f.write("gpu minor=7 bus=0:1:0.0 uuid=GPU-x\n")
        m.call("Init_v2")
        self.assertEqual(m.number("DeviceGetCount_v2"), 1)


class Values(Case):
    def counter(self, m, index, field, minor, key, scale=1, base=0, bits=64):
        """One counter beside the truth, between before and after the call."""
        before = self.now()
        f = m.fields(m.index(index), field)[0]
        after = self.now()
        self.assertEqual(f.code, ml.OK)
        low, high = (int((base + self.truth([minor], 0, t)[key]) * scale)
                     for t in (before - 1e-5, after + 1e-5))
        value = f.number()
        # What fits into it; low may be just below a wrap.
        value += (low >> bits << bits)
        if value < low - 1:
            value += 1 << bits
        self.assertLessEqual(low - 1, value)
        self.assertLessEqual(value, high + 1)
        self.assertAlmostEqual(f.stamp / 1e6, time.time(), delta=5)
        return f

    def test_counters(self):
        m = self.up(three())
        for _ in range(5):
            self.counter(m, 0, ml.ENERGY, 2, "energy_j", 1000, 5)
            self.counter(m, 0, ml.NVLINK_TX, 2, "nvlink_tx", 1 / 1024)
            self.counter(m, 0, ml.NVLINK_RX, 2, "nvlink_rx", 1 / 1024,
                         1024000)
            f = self.counter(m, 0, ml.PCIE_TX, 2, "pcie_tx", bits=32)
            self.assertEqual(f.type, 1)
            f = self.counter(m, 1, ml.PCIE_RX, 0, "pcie_rx", base=10 ** 10)
            self.assertEqual(f.type, 3)
            self.assertGreater(f.number(), 1 << 32)
            self.counter(m, 1, ml.NVLINK5_RX, 0, "nvlink_rx")
            self.counter(m, 1, ml.NVLINK5_TX, 0, "nvlink_tx")
            before = self.now()
            energy = m.energy(m.index(0)) / 1000 - 5
            self.assertAlmostEqual(
                energy, self.truth([2], 0, before)["energy_j"], delta=2)
            time.sleep(0.11)

    def test_wrap(self):
        m = self.up(three())
        base = 4294000000
        before = m.fields(m.index(0), ml.PCIE_RX)[0].number()
        # 1.25 s old: it has wrapped already, and goes on from there.
        self.assertLess(before, 20 << 20)
        self.counter(m, 0, ml.PCIE_RX, 2, "pcie_rx", base=base, bits=32)

        m = self.up("origin %r\ngpu minor=0 bus=0:1:0.0 uuid=u\n"
                    "pcie_rx 0:1e6\nbase pcie_rx 4293967296\n" % time.time())
        seen = []
        end = self.scenario.origin + Fraction(3, 2)
        while time.time() < end:
            seen.append(m.fields(m.index(0), ml.PCIE_RX)[0].number())
            time.sleep(0.001)
        self.assertGreater(max(seen), (1 << 32) - 1000000)
        # It wrapped after a second.
        self.assertLess(seen[-1], 10000000)

    def test_links(self):
        m = self.up(three())
        h = m.index(0)
        f = m.fields(h, ml.NVLINK_TX, scope=17)[0]
        every = m.fields(h, ml.NVLINK_TX)[0].number()
        self.assertAlmostEqual(f.number() * 18 / every, 1, delta=0.01)
        self.assertEqual(m.fields(h, ml.NVLINK_TX, scope=18)[0].code,
                         ml.INVALID)

    def test_unsupported(self):
        m = self.up(three())
        every = [ml.ENERGY, ml.NVLINK_TX, ml.NVLINK_RX, ml.PCIE_TX,
                 ml.PCIE_RX, ml.NVLINK5_TX, ml.NVLINK5_RX, 1, 99999]

        def good(index):
            return [f.id for f in m.fields(m.index(index), *every)
                    if f.code == ml.OK]
        self.assertEqual(good(0), [83, 138, 139, 197, 198])
        self.assertEqual(good(1), [83, 197, 198, 202, 204])
        self.assertEqual(good(2), [])
        self.code(ml.NOT_SUPPORTED, m.energy, m.index(2))
        self.code(ml.NOT_SUPPORTED, m.number, "DeviceGetPcieThroughput",
                  m.index(1), C.c_int(0))
        self.assertEqual(
            m.code("DeviceGetUtilizationRates", m.index(2),
                   (C.c_uint * 2)()), ml.NOT_SUPPORTED)

    def test_rates(self):
        m = self.up("gpu minor=0 bus=0:1:0.0 uuid=u\nutil 0:64\n"
                    "pcie_rx 0:5e6\npcie_tx 0:7e6\n")
        out = (C.c_uint * 2)()
        m.call("DeviceGetUtilizationRates", m.index(0), out)
        self.assertEqual(list(out), [64, 32])
        self.assertEqual([m.number("DeviceGetPcieThroughput", m.index(0),
                                   C.c_int(i)) for i in (0, 1)], [7000, 5000])
        self.code(ml.INVALID, m.number, "DeviceGetPcieThroughput", m.index(0),
                  C.c_int(2))

    def test_reset_and_lost(self):
        start = time.time()
        m = self.up("origin %r\ngpu minor=0 bus=0:1:0.0 uuid=u\n"
                    "power 0:1000\nbase energy 1000000\nreset 1\nlost 2\n"
                    "gpu minor=1 bus=0:2:0.0 uuid=v\n" % start)
        h = m.index(0)
        self.assertGreaterEqual(m.energy(h), 1000000)
        time.sleep(max(0, start + 1.01 - time.time()))
        self.assertLess(m.energy(h), 990000)
        time.sleep(max(0, start + 2.01 - time.time()))
        self.code(ml.LOST, m.energy, h)
        self.code(ml.LOST, m.sample, h)
        self.code(ml.LOST, m.index, 0)
        self.code(ml.LOST, m.fields, h, ml.ENERGY)
        self.assertEqual(m.energy(m.index(1)), 0)


class Gpm(Case):
    KEYS = {ml.SM: ("sm_mean", 1), ml.DRAM: ("membw_mean", 1),
            ml.G_PCIE_TX: ("pcie_tx", 1 << 20),
            ml.G_PCIE_RX: ("pcie_rx", 1 << 20),
            ml.G_NVLINK_RX: ("nvlink_rx", 1 << 20),
            ml.G_NVLINK_TX: ("nvlink_tx", 1 << 20)}

    def test_means(self):
        m = self.up(three())
        h = m.index(0)
        def sample():
            """A sample, when it was taken, and how sure that is."""
            before = self.now()
            out = m.sample(h)
            after = self.now()
            return out, (before + after) / 2, (after - before) / 2

        one, began, unsure = sample()
        for pause in 0.12, 0.35, 0.21, 0.6:
            time.sleep(pause)
            two, ended, unsure2 = sample()
            code, out = m.metrics(one, two, *self.KEYS)
            self.assertEqual(code, ml.OK)
            want = self.truth([2], began, ended)
            for (c, value), (key, unit) in zip(out, self.KEYS.values()):
                self.assertEqual(c, ml.OK)
                curve = self.scenario.gpus[0].curves[key.replace("_mean", "")]
                most = float(max(v for _, v in curve.steps)) / unit
                expect = want[key] / unit
                if unit > 1:
                    expect /= ended - began
                self.assertAlmostEqual(
                    value, expect, msg=key, delta=most * (
                        2 * (unsure + unsure2) / (ended - began) + 1e-4))
            one, began, unsure = two, ended, unsure2

    def test_exact(self):
        # Where nothing changes there is nothing to be uncertain about.
        m = self.up("gpu minor=0 bus=0:1:0.0 uuid=u\nsm 0:37.125\n"
                    "membw 0:11.5\nnvlink_rx 0:1048576e3\n"
                    "nvlink_tx 0:2097152e3\npcie_tx 0:3145728\n"
                    "pcie_rx 0:4194304\nutil 0:99\n")
        one = m.sample(m.index(0))
        time.sleep(0.11)
        code, out = m.metrics(one, m.sample(m.index(0)), 1, 2, 3, 10, 20, 21,
                              60, 61, 4)
        self.assertEqual(code, ml.OK)
        self.assertEqual([c for c, _ in out],
                         [ml.OK] * 8 + [ml.NOT_SUPPORTED])
        want = [99, 37.125, 37.125 / 2, 11.5, 3, 4, 1000, 2000]
        for (_, value), expect in zip(out, want):
            self.assertAlmostEqual(value, expect, places=6)
        self.assertEqual(out[8][1], -1)

    def test_periods(self):
        # Over several periods, whatever parts are at the ends.
        m = self.up("origin %r\nperiod 0.1\n" % time.time() + Parser.GPU +
                    "sm 0:100 0.05:0\n")
        one = m.sample(m.index(0))
        time.sleep(0.52)
        two = m.sample(m.index(0))
        value = m.metrics(one, two, ml.SM)[1][0][1]
        # At most half a period has been seen too much, or too little.
        self.assertAlmostEqual(value, 50, delta=5.1)

    def test_wrong_use(self):
        m = self.up(three())
        other = m.sample(m.index(1))
        for _ in range(20):
            start = time.monotonic()
            one, soon = m.sample(m.index(0)), m.sample(m.index(0))
            if time.monotonic() - start < 0.1:
                break
        code, out = m.metrics(one, soon, ml.SM)
        self.assertEqual((code, out), (ml.NO_DATA, [(ml.NO_DATA, -1)]))
        time.sleep(0.11)
        two = m.sample(m.index(0))
        for pair in (two, one), (one, one), (other, two), (one, C.c_void_p(1)):
            self.assertEqual(m.metrics(*pair, ml.SM),
                             (ml.INVALID, [(0, -1)]))
        self.assertEqual(m.metrics(one, two, ml.SM, version=2)[0], ml.VERSION)
        self.assertEqual(m.metrics(one, two, ml.SM)[0], ml.OK)
        empty = C.c_void_p()
        m.call("GpmSampleAlloc", C.byref(empty))
        self.assertEqual(m.metrics(empty, two, ml.SM)[0], ml.INVALID)
        m.call("GpmSampleFree", one)
        self.assertEqual(m.metrics(one, two, ml.SM)[0], ml.INVALID)
        self.assertEqual(m.code("GpmSampleFree", one), ml.INVALID)

    def test_without(self):
        m = self.up(three())
        for index, supported in (0, 1), (2, 0):
            s = ml.Support(1, 77)
            m.call("GpmQueryDeviceSupport", m.index(index), C.byref(s))
            self.assertEqual(s.supported, supported)
        self.code(ml.NOT_SUPPORTED, m.sample, m.index(2))
        # pcie=fields, nvlink=v5: not through GPM.
        one = m.sample(m.index(1))
        time.sleep(0.11)
        _, out = m.metrics(one, m.sample(m.index(1)), ml.SM, ml.G_PCIE_RX,
                           ml.G_NVLINK_RX)
        self.assertEqual([c for c, _ in out],
                         [ml.OK, ml.NOT_SUPPORTED, ml.NOT_SUPPORTED])


class Mig(Case):
    TEXT = """
gpu minor=0 bus=0:1:0.0 uuid=GPU-0 mig
sm 0:50
power 0:100
mig gi=7 ci=0 uuid=MIG-a
sm 0:80
membw 0:33
mig gi=3 ci=1 uuid=MIG-b gpm=no
gpu minor=1 bus=0:2:0.0 uuid=GPU-1
"""

    def test_devices(self):
        m = self.up(self.TEXT)
        gpu, a, b = m.uuid("GPU-0"), m.uuid("MIG-a"), m.uuid("MIG-b")
        mode = (C.c_uint * 2)()
        for handle, want in (gpu, 1), (m.uuid("GPU-1"), 0):
            m.call("DeviceGetMigMode", handle, C.byref(mode),
                   C.byref(mode, 4))
            self.assertEqual(list(mode), [want, want])
        for h, want in (gpu, 0), (a, 1), (b, 1):
            self.assertEqual(m.number("DeviceIsMigDeviceHandle", h), want)
        got = C.c_void_p()
        m.call("DeviceGetMigDeviceHandleByIndex", gpu, C.c_uint(1),
               C.byref(got))
        self.assertEqual(got.value, b.value)
        self.assertEqual(m.code("DeviceGetMigDeviceHandleByIndex", gpu,
                                C.c_uint(2), C.byref(got)), ml.NOT_FOUND)
        m.call("DeviceGetDeviceHandleFromMigDeviceHandle", a, C.byref(got))
        self.assertEqual(got.value, gpu.value)
        self.assertEqual([m.number("DeviceGetGpuInstanceId", h)
                          for h in (a, b)], [7, 3])
        self.assertEqual([m.number("DeviceGetComputeInstanceId", h)
                          for h in (a, b)], [0, 1])
        self.code(ml.INVALID, m.number, "DeviceGetGpuInstanceId", gpu)
        self.assertEqual(m.text("DeviceGetUUID", a), "MIG-a")

    def test_values(self):
        m = self.up(self.TEXT)
        gpu, a = m.uuid("GPU-0"), m.uuid("MIG-a")
        s = [m.sample(gpu, 7), m.sample(a), m.sample(gpu)]
        time.sleep(0.11)
        e = [m.sample(gpu, 7), m.sample(a), m.sample(gpu)]
        got = [m.metrics(x, y, ml.SM, ml.DRAM)[1] for x, y in zip(s, e)]
        for part in got[:2]:
            self.assertAlmostEqual(part[0][1], 80, places=5)
            self.assertAlmostEqual(part[1][1], 33, places=5)
        self.assertAlmostEqual(got[2][0][1], 50, places=5)
        self.assertEqual(m.metrics(s[0], e[2], ml.SM)[0], ml.INVALID)
        self.code(ml.NOT_SUPPORTED, m.sample, gpu, 3)
        self.code(ml.INVALID, m.sample, gpu, 1)
        self.code(ml.NOT_SUPPORTED, m.energy, a)
        self.assertEqual(m.fields(a, ml.PCIE_RX)[0].code, ml.NOT_SUPPORTED)
        self.assertEqual(m.code("DeviceGetUtilizationRates", gpu,
                                (C.c_uint * 2)()), ml.NOT_SUPPORTED)

    def test_truth(self):
        self.scenario = Scenario(self.TEXT)
        t = self.truth([], 0, 10, ["MIG-a"])
        self.assertEqual((t["sm_mean"], t["membw_peak"], t["energy_j"]),
                         (80, 33, None))
        self.assertIsNone(self.truth([], 0, 1, ["MIG-a", "MIG-b"])["sm_mean"])


class Rules(Case):
    def test_fail(self):
        log = os.path.join(self.dir, "log")
        m = self.up(three() + """
log %s
fail nvmlDeviceGetTotalEnergyConsumption code=999 at=3 count=2
fail nvmlDeviceGetMinorNumber code=15 gpu=1 at=2
fail nvmlGpmSampleAlloc code=20
""" % log)
        seen = [m.code("DeviceGetTotalEnergyConsumption", m.index(0),
                       C.byref(C.c_ulonglong())) for _ in range(6)]
        self.assertEqual(seen, [0, 0, 999, 999, 0, 0])
        seen = [m.code("DeviceGetMinorNumber", m.index(i),
                       C.byref(C.c_uint())) for i in (0, 1, 0, 1, 1, 0)]
        self.assertEqual(seen, [0, 0, 0, 15, 15, 0])
        self.code(20, m.sample, m.index(0))
        with open(log) as f:
            lines = f.read().splitlines()
        self.assertEqual(lines[0], "nvmlInit_v2")
        self.assertEqual(lines.count("nvmlDeviceGetMinorNumber 1"), 3)
        self.assertEqual(lines.count("nvmlDeviceGetMinorNumber 0"), 3)
        self.assertEqual(
            lines.count("nvmlDeviceGetTotalEnergyConsumption 0"), 6)
        self.assertEqual(lines[-1], "nvmlGpmSampleAlloc")

    def test_fail_init_once(self):
        m = self.load(three() + "fail nvmlInit_v2 code=9 count=1\n")
        self.assertEqual(m.code("Init_v2"), 9)
        self.assertEqual(m.code("DeviceGetCount_v2", None), ml.UNINITIALIZED)
        self.assertEqual(m.code("Init_v2"), ml.OK)
        m.call("Shutdown")

    def test_process_list_is_logged(self):
        log = os.path.join(self.dir, "log")
        m = self.up(three() + "log %s\n" % log)
        self.assertEqual(m.number("DeviceGetComputeRunningProcesses_v3",
                                  m.index(0)), 0)

        with open(log) as f:
            self.assertIn("nvmlDeviceGetComputeRunningProcesses_v3 0\n",
                          f.readlines())

    def test_slow_and_hang_a_while(self):
        m = self.up(three() + "slow nvmlDeviceGetMinorNumber ms=200 gpu=0\n"
                    "hang nvmlDeviceGetUUID at=2 seconds=0.5\n")

        def spent(function, *args):
            start = time.monotonic()
            function(*args)
            return time.monotonic() - start
        a, b = m.index(0), m.index(1)
        self.assertGreaterEqual(spent(m.number, "DeviceGetMinorNumber", a),
                                0.2)
        self.assertLess(spent(m.number, "DeviceGetMinorNumber", b), 0.2)
        times = [spent(m.text, "DeviceGetUUID", a) for _ in range(3)]
        self.assertGreaterEqual(times[1], 0.5)
        self.assertLess(max(times[0], times[2]), 0.5)

    def test_hang_for_ever(self):
        m = self.load(three() + "hang nvmlDeviceGetCount_v2\n")
        child = subprocess.Popen(
            [sys.executable, __file__, "--child", "count", m.path],
            stdout=subprocess.PIPE)
        try:
            self.assertEqual(child.stdout.readline(), b"init 0\n")
            with self.assertRaises(subprocess.TimeoutExpired):
                child.wait(0.5)
        finally:
            child.kill()
            self.assertEqual(child.wait(), -signal.SIGKILL)
            child.stdout.close()


class Places(Case):
    def child(self, *args, **kw):
        out = subprocess.run([sys.executable, __file__, "--child", *args],
                             capture_output=True, timeout=30, text=True, **kw)
        self.assertEqual(out.returncode, 0, out.stderr)
        return out.stdout

    def test_devdir(self):
        dev = os.path.join(self.dir, "dev")
        os.mkdir(dev)
        for minor, mode in (0, 0o666), (1, 0):
            path = os.path.join(dev, "nvidia%d" % minor)
            with open(path, "w"):
                pass
            os.chmod(path, mode)
        # Minor 2 has none: it is hidden only where opening is forbidden.
        m = self.load("devdir %s\n" % dev + three())
        self.assertEqual(self.child("list", m.path), "2 0\n")
        m = self.load(three())
        self.assertEqual(self.child("list", m.path), "2 0 1\n")

    def test_node(self):
        m = self.load(three())
        folder = os.path.dirname(m.path)
        with open(os.path.join(folder, "scenario.n1"), "w") as f:
            f.write("gpu minor=9 bus=0:1:0.0 uuid=GPU-n1\n")
        for label, want in (("1.0@n1", "9\n"), ("1.0@n2", "2 0 1\n"),
                            ("n1", "2 0 1\n"), ("1.0@../n1", "2 0 1\n"),
                            ("1.0@", "2 0 1\n")):
            self.assertEqual(self.child("list", m.path, "--label", label),
                             want, label)
        env = dict(os.environ, FAKE_ML_SCENARIO=folder + "/scenario.n1")
        self.assertEqual(self.child("list", m.path, env=env), "9\n")

    def test_variants(self):
        m = self.up(three(), OLD)
        self.assertTrue(m.has("nvmlDeviceGetFieldValues"))
        for name in ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc",
                     "nvmlGpmSampleGet", "nvmlGpmMigSampleGet",
                     "nvmlGpmMetricsGet", "nvmlGpmSampleFree"):
            self.assertFalse(m.has(name), name)
        self.assertGreater(m.energy(m.index(0)), 0)
        m = self.up(three(), NOFIELDS)
        self.assertFalse(m.has("nvmlDeviceGetFieldValues"))
        self.assertTrue(m.has("nvmlGpmMetricsGet"))


class Parser(Case):
    GPU = "gpu minor=0 bus=0:1:0.0 uuid=u\n"
    BAD = [
        "nonsense", "sm 0:1", "origin", "origin x", "origin 1 2",
        "origin nan", "period 0", "period -1", "devdir", "driver 1",
        "driver 1 nvml", "fail", "fail nvmlNone code=1",
        "fail nvmlInit_v2", "fail nvmlInit_v2 code=0",
        "fail nvmlInit_v2 code=1000", "fail nvmlInit_v2 code=1 at=0",
        "fail nvmlInit_v2 code=1 foo=1", "hang nvmlInit_v2 seconds=x",
        "slow nvmlInit_v2", "mig gi=1 ci=0 uuid=m", "lost 1", "base energy 1",
        "log /nonexistent/folder/log", 'gpu "minor=0',
        "gpu minor=0 bus=0:1:0.0", "gpu minor=x bus=0:1:0.0 uuid=u",
        "gpu minor=0 bus=0:1 uuid=u", "gpu minor=0 bus=0:1:0.0 uuid=",
        "gpu minor=0 bus=0:1:0.0 uuid=u what", "gpu minor=0 bus=0:1:0.0 "
        "uuid=u gpm=maybe", "gpu minor=0 bus=0:1:0.0 uuid=u pcie=v5",
        "gpu minor=0 bus=0:1:0.0 uuid=u nvlink=throughput",
        "gpu minor=0 bus=0:1:0.0 uuid=u nvlink=",
        "gpu minor=0 bus=0:1:0.0 uuid=" + "u" * 200,
        "gpu minor=0 bus=0:1:0.1 uuid=u", "gpu minor=0 bus=0:1:20.0 uuid=u",
        GPU + GPU, GPU + "gpu minor=0 bus=0:2:0.0 uuid=v", GPU + "sm",
        GPU + "sm 1", GPU + "sm 0:101", GPU + "sm 0:-1", GPU + "sm 0:nan",
        GPU + "sm 0:1 0:2", GPU + "sm 2:1 1:2", GPU + "sm 0:1\nsm 0:2",
        GPU + "sm x:1", GPU + "sm 0:1x", GPU + "sm 0:1 period 3",
        GPU + "sm 0:1\nperiod 3", "period 3\n" + GPU + "sm 0:1 4:2",
        GPU + "base sm 1", GPU + "base pcie_rx", GPU + "wrap pcie 16",
        GPU + "wrap nvlink 32", GPU + "lost", GPU + "lost x",
        GPU + "mig gi=1 ci=0", GPU + "mig gi=1 ci=0 uuid=u",
        GPU + "mig gi=1 ci=0 uuid=m\nmig gi=1 ci=0 uuid=n",
        GPU + "mig gi=1 ci=0 uuid=m\nbase energy 1",
        GPU + "".join("mig gi=%d ci=0 uuid=m%d\n" % (i, i) for i in range(8)),
        "".join("gpu minor=%d bus=0:1:0.0 uuid=u%d\n" % (i, i)
                for i in range(65)),
        "slow nvmlInit_v2 ms=1\n" * 65, GPU + "sm " + "0:1 " * 1100,
        "\0", "#" * ((1 << 20) + 1),
    ]
    GOOD = ["", "\n#\n", GPU, GPU + "mig gi=1 ci=0 uuid=m\nsm 0:1\n",
            "wrap pcie 64\n" + GPU + "wrap pcie 32", "log /dev/null",
            GPU + "\r\n", GPU + "sm " + " ".join(
                "%d:1" % i for i in range(1000))]

    def parse(self, text):
        """In a program of its own, built with sanitizers where this is."""
        path = os.path.join(self.dir, "s")
        with open(path, "w", errors="surrogateescape") as f:
            f.write(text)
        return subprocess.run([PARSER], capture_output=True, timeout=20,
                              env=dict(os.environ, FAKE_ML_SCENARIO=path))

    def test_bad(self):
        for text in self.BAD:
            out = self.parse(text)
            with self.subTest(text[:80]):
                self.assertEqual(out.returncode, 1, out.stderr)
                self.assertIn(b"fake libnvidia-ml: ", out.stderr)
                self.assertLess(len(out.stderr), 1000)

    def test_good(self):
        for text in self.GOOD:
            out = self.parse(text)
            self.assertEqual((out.returncode, out.stderr), (0, b""),
                             text[:80])

    def test_missing(self):
        m = self.load("")
        os.unlink(os.path.join(os.path.dirname(m.path), "scenario"))
        self.assertEqual(m.code("Init_v2"), ml.NO_DRIVER)

    def test_mutations(self):
        rng = random.Random(int(os.environ.get("DDP_SEED", "1")))
        base = three() + Mig.TEXT.replace("minor=0", "minor=5").replace(
            "GPU-", "G-").replace("minor=1", "minor=6")
        self.assertEqual(self.parse(base).returncode, 0)
        for _ in range(150):
            text = list(base)
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(len(text))
                text[at:at + rng.randrange(0, 9)] = rng.choice(
                    [":", " ", "\n", '"', "#", "=", ",", "-", "1e999",
                     "\x80", "9" * 40, "gpu ", "mig ", "sm "])
            out = self.parse("".join(text))
            self.assertIn(out.returncode, (0, 1),
                          ("".join(text), out.stderr))


class Truth(Case):
    """truth.py beside sums made by hand."""

    def test_sums(self):
        self.scenario = Scenario(
            "period 4\n"
            "gpu minor=0 bus=0:1:0.0 uuid=a\nsm 0:100 1:0\nmembw 1:10 3:20\n"
            "power 0:100\npcie_rx 0:0 2:8\n"
            "gpu minor=3 bus=0:2:0.0 uuid=b nvlink=none\nsm 0:50\n"
            "lost 6\n")
        t = self.truth([0], 0, 8)
        self.assertEqual((t["sm_mean"], t["sm_peak"], t["idle_s"]),
                         (25, 100, 6))
        self.assertEqual((t["membw_mean"], t["membw_peak"]), (12.5, 20))
        self.assertEqual((t["energy_j"], t["pcie_rx"], t["nvlink_tx"]),
                         (800, 32, 0))
        t = self.truth([0], 1.5, 3.5)
        self.assertEqual((t["sm_mean"], t["sm_peak"], t["idle_s"],
                          t["membw_mean"], t["pcie_rx"]), (0, 0, 2, 12.5, 12))
        # The second GPU counts for 6 of the 8 seconds.
        t = self.truth([0, 3], 0, 8)
        self.assertAlmostEqual(t["sm_mean"], (200 + 300) / 14)
        self.assertIsNone(t["nvlink_rx"])
        self.assertIsNone(self.truth([0, 3], 6, 8)["sm_mean"])

    def test_program(self):
        path = os.path.join(self.dir, "s")
        with open(path, "w") as f:
            f.write("origin 1000.5\n" + Parser.GPU + "sm 0:0.5 1:2\n")
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                               "truth.py")
        out = subprocess.check_output(
            [sys.executable, program, path, "--gpus", "0", "--from", "1000.5",
             "--to", "1002.5", "--idle", "2"], text=True, timeout=30)
        self.assertIn('"sm_mean": 1.25', out)
        self.assertIn('"idle_s": 1.0', out)
        out = subprocess.check_output(
            [sys.executable, program, path, "--gpus", "0", "--relative",
             "--from", "0", "--to", "2", "--no-gpm"], text=True, timeout=30)
        self.assertIn('"sm_mean": null', out)
        self.assertIn('"energy_j": 0.0', out)


def child(what, path):
    """In a process of its own: what it sees."""
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    lib = C.CDLL(path)
    print("init %d" % lib.nvmlInit_v2() if what == "count" else
          "" if lib.nvmlInit_v2() == 0 else "no init",
          end="\n" if what == "count" else "", flush=True)
    count = C.c_uint()
    lib.nvmlDeviceGetCount_v2(C.byref(count))
    minors = []
    for i in range(count.value):
        handle, minor = C.c_void_p(), C.c_uint()
        lib.nvmlDeviceGetHandleByIndex_v2(C.c_uint(i), C.byref(handle))
        lib.nvmlDeviceGetMinorNumber(handle, C.byref(minor))
        minors.append(str(minor.value))
    print(" ".join(minors))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:4])
        sys.exit(0)
    if not os.path.exists(NEW):
        sys.exit("run me through make check, which sets DDP_FAKES")
    unittest.main()
