#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What GPU accounting costs, by counts that are the same on a busy machine:
calls of the driver, instructions of a poll, context switches, resident memory.
(Instructions of a reading: check_sampler_cost.) The limits are about twice what was counted when
they were set."""
import os
import re
import shutil
import subprocess
import sys
import time
import unittest
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from sampler_run import TOP, Folder, Sampler  # noqa: E402

GPUS = 8
SCENARIO = "".join(
    f"gpu minor={i} bus=0000:{16 + i:02x}:00.0 uuid=GPU-{i} gpm=yes "
    f"nvlink=fields pcie=gpm energy=yes util=yes\n"
    f"sm 0:{10 * i}\nmembw 0:{5 * i}\nnvlink_rx 0:1e9\nnvlink_tx 0:2e9\n"
    f"pcie_rx 0:1e8\npcie_tx 0:1e8\npower 0:{100 * i}\n"
    for i in range(GPUS))
ARGS = [f"minor={i}" for i in range(GPUS)]

# instructions
POLL_LIMIT = 5000	# get_data() for one task


def callgrind(out, argv, *options):
    return ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out,
            *options, *argv]


class Cost(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(SCENARIO)

    def tearDown(self):
        self.folder.remove()

    def readings(self, n):
        s = Sampler(ARGS, self.folder.library, interval=200)
        try:
            s.until(lambda t: t.readings >= n, 60)
            code, values = s.finish(30)
            self.assertEqual(code, 0, s.said())
            return values.readings
        finally:
            s.close()

    def test_calls_of_the_driver(self):
        n = self.readings(6)
        with open(self.folder.log) as f:
            calls = Counter(f.read().split("\n"))
        each = Counter()
        for line, count in calls.items():
            if line.split()[1:] == ["3"]:
                each[line.split()[0]] += count
        print(f"{n} readings; calls for one GPU: {dict(each)}")
        self.assertEqual(each["nvmlGpmSampleGet"], n)
        self.assertEqual(each["nvmlDeviceGetTotalEnergyConsumption"], n)
        # One more at the start: which fields are there?
        self.assertIn(each["nvmlDeviceGetFieldValues"], (n, n + 1))
        every = Counter(k.split()[0] for k in calls.elements() if k)
        # Two samples make one interval; no call beyond the readings' own.
        self.assertLessEqual(every["nvmlGpmMetricsGet"], n * GPUS)
        self.assertGreaterEqual(every["nvmlGpmMetricsGet"], (n - 2) * GPUS)
        calls_each = sum(every[f] for f in (
            "nvmlGpmSampleGet", "nvmlGpmMetricsGet",
            "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetTotalEnergyConsumption",
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetPcieThroughput")) / GPUS
        # And, once, what the GPU has.
        self.assertLessEqual(calls_each, 4 * n + 2)
        self.assertFalse([f for f in every if "RunningProcesses" in f])

    def test_instructions_of_a_poll(self):
        program = os.path.join(TOP, "tests", "cost", "acct_cost")
        run = subprocess.run(
            callgrind("/dev/null", [program, "8", "100"],
                      "--toggle-collect=acct_watch_data",
                      "--toggle-collect=acct_watch_part"),
            capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        total = int(re.search(r"Collected : (\d+)", run.stderr)[1])
        print(f"a poll of one task: {total / 800:.0f} instructions "
              f"(limit {POLL_LIMIT})")
        self.assertGreater(total, 800)
        self.assertLess(total / 800, POLL_LIMIT)

    def test_wakeups_and_memory(self):
        s = Sampler(ARGS, self.folder.library, interval=200)
        try:
            first = s.until(lambda t: t.readings >= 2)
            before, _ = self.status(s.pid)
            time.sleep(2)
            after, rss = self.status(s.pid)
            last = s.read()
            n = last.readings - first.readings
            print(f"{after - before} context switches for {n} readings; "
                  f"{rss} kB resident")
            self.assertGreater(n, 3)
            # One wait a reading; the fake's log may wait for the disk.
            self.assertLessEqual(after - before, 2 * n + 5)
            self.assertLess(rss, 8192)
        finally:
            s.close()

    @staticmethod
    def status(pid):
        with open(f"/proc/{pid}/status") as f:
            text = f.read()
        return (int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", text,
                              re.M)[1]),
                int(re.search(r"^VmRSS:\s*(\d+)", text, re.M)[1]))


if __name__ == "__main__":
    if os.environ.get("SANITIZERS", "no") != "no":
        print("skipped: sanitizers count too")
        sys.exit(77)
    if not shutil.which("valgrind"):
        print("skipped: needs valgrind")
        sys.exit(77)
    unittest.main(verbosity=2)
