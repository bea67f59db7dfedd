#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What counts as right, of a step in an invented folder."""
import pathlib
import sys
import tempfile
import types
import unittest
from fractions import Fraction

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from expected import Stalls, Step, Want  # noqa: E402

SCENARIO = """origin 1000
gpu minor=0 bus=0000:10:00.0 uuid=GPU-zero
sm 0:50
membw 0:50
nvlink_rx 0:100
nvlink_tx 0:100
pcie_rx 0:100
pcie_tx 0:100
power 0:100
"""


class Expected(unittest.TestCase):
    def setUp(self):
        # pylint: disable=consider-using-with # as long as the test
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.dir = pathlib.Path(tmp.name)
        (self.dir / "scenario").write_text(SCENARIO, encoding="ascii")

    def stalls(self, *lines):
        path = self.dir / "stalls"
        path.write_text("".join(s + "\n" for s in lines), encoding="ascii")
        return Stalls(path)

    def joules(self, seconds, *lines):
        """(least, most) of a step that begins at 1010."""
        path = self.dir / "step"
        path.mkdir()
        (path / "n1.1").write_text(
            f"step 1.0\nrestart \nnode n1\nstep_gpus 0\njob_gpus \n"
            f"start 1010.0\nend {1010 + seconds}\n", encoding="ascii")
        options = types.SimpleNamespace(
            gpu_dir=self.dir, gpus={}, interval=Fraction(1), busy=False,
            idle=Fraction(1), absent=[], stalls=self.stalls(*lines))
        want = Want(Step(path), options)
        limits = want.columns()["TRESUsageInTot"]["energy"]
        return round(limits.lo, 3), round(limits.hi, 3)

    def test_no_stall_one_percent(self):
        self.assertEqual(self.joules(10), (989, 1011))

    def test_a_stall_elsewhere_changes_nothing(self):
        self.assertEqual(
            self.joules(10, "0 1009.0 1009.94", "1 1010.2 1019.9",
                        "0 1020.2 1021"), (989, 1011))

    def test_a_stall_at_the_beginning(self):
        self.assertEqual(self.joules(10, "0 1009.9 1010.1"),
                         (round(980 * .99 - 1, 3), round(1020 * 1.01 + 1, 3)))

    def test_a_stall_at_the_end(self):
        self.assertEqual(self.joules(10, "1 1019.99 1020.09"),
                         (round(990 * .99 - 1, 3), round(1010 * 1.01 + 1, 3)))

    def test_stalls_of_two_cpus_count_once_where_they_overlap(self):
        s = self.stalls("1 5.1 5.3", "0 5.0 5.2", "0 5.35 5.4")
        self.assertEqual(s.begin(Fraction("5.25")), Fraction("0.35"))
        self.assertEqual(s.begin(Fraction("5.5")), 0)

    def test_no_file_and_half_a_line(self):
        self.assertEqual(Stalls(self.dir / "none").end(Fraction(5)), 0)
        self.assertEqual(self.stalls("0 4.9 5.1", "0 5.").end(Fraction(5)),
                         Fraction("0.2"))


if __name__ == "__main__":
    unittest.main()
