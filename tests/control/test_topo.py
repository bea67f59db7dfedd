#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ddp-topo on small topologies: what it plans, shows, accepts and refuses."""
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "binding"))
import mkxml  # noqa: E402

TOPO = os.environ.get("DDP_TOPO", "")


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="topo.")
        cls.addClassCleanup(shutil.rmtree, cls.dir, True)
        for name, make in mkxml.ALL.items():
            with open(os.path.join(cls.dir, name), "w") as f:
                f.write(make().text())

    def run_topo(self, name, *args, **env):
        args = [TOPO] + (["--input", os.path.join(self.dir, name)]
                         if name else []) + list(args)
        return subprocess.run(args, capture_output=True, timeout=30,
                              env=dict(os.environ, LC_ALL="C", **env))

    def plan(self, name, *args, code=0):
        out = self.run_topo(name, "--json", *args)
        self.assertEqual(out.returncode, code, out.stderr)
        return json.loads(out.stdout)

    def ranks(self, plan, *keys):
        return [tuple(r[k] for k in keys) if len(keys) > 1 else r[keys[0]]
                for r in plan["ranks"]]

    def fails(self, code, name, *args, **env):
        """One line on stderr, at least, and no plan."""
        out = self.run_topo(name, *args, **env)
        self.assertEqual(out.returncode, code, (args, out.stderr))
        self.assertIn(b"ddp-topo", out.stderr)
        return out.stderr.decode()


class Plans(Case):
    def test_eight(self):
        p = self.plan("eight")
        self.assertEqual((p["version"], p["ntasks"], p["policy"]),
                         (1, 8, "best-effort"))
        self.assertTrue(p["optimal"])
        self.assertFalse(p["shared"])
        self.assertEqual((p["d1"], p["d2"], p["numa"]), (0, 0, 8))
        self.assertEqual(self.ranks(p, "gpus"), [[n] for n in range(8)])
        self.assertEqual(self.ranks(p, "cpus"),
                         ["%d-%d" % (2 * n, 2 * n + 1) for n in range(8)])
        self.assertEqual(p["gpus"][4], {
            "index": 4, "bus": "0000:92:00.0", "name": "Test GPU",
            "numa": [1], "cpus": "8-15"})
        self.assertEqual([n["name"] for n in p["nics"]],
                         ["ib0", "mlx5_0", "ib1", "mlx5_1"])
        self.assertEqual(p["nics"][3]["numa"], [1])

    def test_pairs_behind_a_switch(self):
        p = self.plan("eight", "--ntasks", "4")
        self.assertEqual(self.ranks(p, "gpus"),
                         [[0, 1], [2, 3], [4, 5], [6, 7]])
        # GPU, switch, GPU: two edges a pair.
        self.assertEqual((p["d1"], p["d2"]), (0, 8))

    def test_links(self):
        """Pairs over a link cross the sockets. CPUs come first: with 4 ranks
        a linked pair would be far from half its CPUs. With 1 rank all pairs
        are in it, and the four links count 0."""
        p = self.plan("linked", "--ntasks", "4")
        self.assertEqual(p["d1"], 0)
        # Within a socket: 2 edges behind a switch.
        self.assertEqual(p["d2"], 8)
        one = self.plan("eight", "--ntasks", "1")["d2"]
        across = 2 * 4  # GPU, switch, host bridge, package, machine
        self.assertEqual(self.plan("linked", "--ntasks", "1")["d2"],
                         one - 4 * across)
        # Ranks with linked GPUs follow each other.
        self.assertEqual(self.ranks(self.plan("linked"), "gpus"),
                         [[0], [4], [1], [5], [2], [6], [3], [7]])

    def test_bus_order_is_not_tree_order(self):
        p = self.plan("four_numa")
        self.assertEqual([g["bus"][5:7] for g in p["gpus"]],
                         ["61", "81", "a1", "c1"])
        self.assertEqual(self.ranks(p, "gpus", "cpus", "numa"),
                         [([3], "0-1", [0]), ([2], "2-3", [1]),
                          ([1], "4-5", [2]), ([0], "6-7", [3])])

    def test_sixteen(self):
        """5 ranks on 16 GPUs: 3 GPUs a rank and one with 4 do not fit the
        sockets (8 = 3 + 3 + 2), so one rank is in both; 9 or 10 of 48 cores
        each. tests/unit/check_bind.c counts that D1 is 13."""
        p = self.plan("sixteen", "--ntasks", "5")
        self.assertTrue(p["optimal"])
        self.assertEqual((p["d1"], p["numa"]), (13, 6))
        for n, d2 in ((16, 0), (8, 8 * 2), (4, 4 * (2 * 2 + 4 * 4))):
            p = self.plan("sixteen", "--ntasks", str(n))
            self.assertEqual((p["d1"], p["d2"], p["numa"]), (0, d2, n))
            self.assertEqual([g for r in p["ranks"] for g in r["gpus"]],
                             list(range(16)))

    def test_every_number(self):
        """Proven for all numbers of ranks on nodes that exist."""
        for name in ("sixteen", "eight_numa", "half_numa"):
            for n in list(range(1, 17)) + [64]:
                with self.subTest(name=name, n=n):
                    p = self.plan(name, "--ntasks", str(n))
                    self.assertTrue(p["optimal"])

    def test_below_numa(self):
        p = self.plan("half_numa")
        self.assertEqual((p["d1"], p["numa"]), (0, 8))
        p = self.plan("half_numa", "--ntasks", "4")
        # Half of a rank's 16 cores are 1 from each of its GPUs.
        self.assertEqual((p["d1"], p["numa"]), (4 * 16, 4))
        self.assertEqual(self.ranks(p, "gpus"),
                         [[0, 1], [2, 3], [4, 5], [6, 7]])

    def test_asymmetric(self):
        """4 + 2 GPUs, 6 + 6 cores: 6 ranks of 2, one of the 4 is far."""
        p = self.plan("asymmetric")
        self.assertEqual((p["d1"], p["numa"]), (2, 6))
        self.assertEqual(sum(r["gpu_numa"] != r["numa"]
                             for r in p["ranks"]), 1)

    def test_remote_gpu(self):
        p = self.plan("remote")
        self.assertEqual(p["gpus"][1]["numa"], [])
        self.assertIsNone(p["gpus"][1]["cpus"])
        self.assertEqual(self.ranks(p, "d1"), [0, 2])

    def test_smt(self):
        p = self.plan("smt")
        self.assertEqual(self.ranks(p, "cpus", "cores"),
                         [("0-2,6-8", 3), ("3-5,9-11", 3)])
        # By PU: more ranks than cores.
        p = self.plan("smt", "--ntasks", "12")
        self.assertEqual(sorted(int(c) for c in self.ranks(p, "cpus")),
                         list(range(12)))
        self.assertEqual(p["d1"], 0)

    def test_restricted_cpus(self):
        p = self.plan("restricted")
        self.assertEqual(self.ranks(p, "cpus"), ["1-2,7", "3"])
        p = self.plan("restricted", "--ntasks", "5")
        self.assertTrue(p["shared"])
        self.assertEqual(self.ranks(p, "cpus"), ["1-2,7"] * 3 + ["3"] * 2)

    def test_no_gpu(self):
        p = self.plan("no_gpu")
        self.assertEqual((p["ntasks"], p["gpus"]), (1, []))
        p = self.plan("no_gpu", "--ntasks", "3")
        self.assertEqual(self.ranks(p, "cpus"), ["0-2", "3-5", "6-7"])
        self.assertEqual(self.ranks(p, "gpus"), [[], [], []])

    def test_selection(self):
        p = self.plan("eight", "--gpus", "6,0-1,92:00.0", "--cpus", "0-9")
        self.assertEqual([g["index"] for g in p["gpus"]], [6, 0, 1, 4])
        self.assertEqual(sorted(self.ranks(p, "gpus")), [[0], [1], [4], [6]])
        p = self.plan("eight", "--gpus", "none")
        self.assertEqual((p["ntasks"], p["gpus"]), (1, []))

    def test_this_machine(self):
        # Libraries that hwloc loads for devices leak at their end.
        asan = os.environ.get("ASAN_OPTIONS", "")
        out = self.run_topo(None, "--json", ASAN_OPTIONS=asan +
                            (":" if asan else "") + "detect_leaks=0")
        self.assertEqual(out.returncode, 0, out.stderr)
        p = json.loads(out.stdout)
        self.assertEqual(p["topology"], "machine")
        self.assertEqual(len(p["ranks"]), p["ntasks"])

    def test_same_again(self):
        a = self.run_topo("asymmetric", "--json", "--ntasks", "5").stdout
        b = self.run_topo("asymmetric", "--json", "--ntasks", "5").stdout
        self.assertEqual(a, b)


class Policies(Case):
    def test_none(self):
        p = self.plan("eight", "--policy", "none", "--gpus", "7,0-6",
                      "--ntasks", "4")
        # In the order given, also within a rank.
        self.assertEqual(self.ranks(p, "gpus"),
                         [[7, 0], [1, 2], [3, 4], [5, 6]])
        self.assertEqual((p["d1"], p["optimal"]), (None, None))

    def test_single_numa_node(self):
        self.plan("eight", "--policy", "single-numa-node")
        p = self.plan("eight", "--policy", "single-numa-node", "--ntasks",
                      "1", code=1)
        self.assertIn("2 NUMA nodes", p["ranks"][0]["refused"])
        p = self.plan("remote", "--policy", "single-numa-node", code=1)
        self.assertIsNone(p["ranks"][0]["refused"])
        self.assertTrue(p["ranks"][1]["refused"])

    def test_restricted(self):
        # All of the node needs all of its NUMA nodes.
        self.plan("eight", "--policy", "restricted", "--ntasks", "1")
        p = self.plan("eight", "--policy", "restricted", "--cpus", "0-7",
                      code=1)
        self.assertEqual([bool(r["refused"]) for r in p["ranks"]],
                         [False] * 4 + [True] * 4)

    def test_message(self):
        out = self.run_topo("eight", "--policy", "restricted", "--cpus",
                            "0-7", "--gpus", "1-7", "--ntasks", "7")
        lines = out.stderr.decode().splitlines()
        self.assertEqual(out.returncode, 1)
        self.assertIn("rank 3 is refused by the policy restricted: got GPU 4 "
                      "(NUMA 1) and CPUs of NUMA 0", lines[0])
        self.assertIn("needs 1", lines[0])
        self.assertIn("best-effort", lines[-1])

    def test_message_is_cut(self):
        out = self.run_topo("eight", "--policy", "single-numa-node",
                            "--ntasks", "16", "--cpus", "8", "--no-drawing")
        lines = out.stderr.decode().splitlines()
        self.assertEqual(out.returncode, 1)
        self.assertEqual(sum("is refused" in x for x in lines), 4)
        self.assertRegex(lines[4], "and 4 more ranks")


class Calls(Case):
    def test_wrong(self):
        for args in (["--ntasks", "0"], ["--ntasks", "x"],
                     ["--ntasks", "99999999"], ["--policy", "strict"],
                     ["--gpus", "8"], ["--gpus", "0-8"], ["--gpus", "0,0"],
                     ["--gpus", ""], ["--gpus", "1,"], ["--gpus", "ff:00.0"],
                     ["--gpus", "2-1"], ["--gpus", "-1"],
                     ["--cpus", "x"], ["--cpus", ""], ["--cpus", "1,"],
                     ["--cpus", "0-99999999999"], ["--cpus", "100"],
                     ["--frobnicate"], ["more"]):
            with self.subTest(args):
                self.fails(2, "eight", *args)
        self.fails(2, "no_gpu", "--gpus", "0")

    def test_no_file(self):
        self.assertIn("No such file", self.fails(1, "absent"))
        self.assertIn("folder", self.fails(1, "."))

    def test_help_and_version(self):
        self.assertIn(b"--ntasks", self.run_topo(None, "--help").stdout)
        self.assertRegex(self.run_topo(None, "--version").stdout,
                         rb"^ddp-topo \d")


class Broken(Case):
    def broken(self, text):
        with open(os.path.join(self.dir, "broken"), "wb") as f:
            f.write(text)
        out = self.run_topo("broken", "--json")
        self.assertIn(out.returncode, (0, 1), out.stderr)
        if out.returncode:
            self.assertEqual(out.stderr.count(b"ddp-topo: "), 1, out.stderr)
            self.assertEqual(out.stdout, b"")
        else:
            json.loads(out.stdout)
        return out.returncode

    def test_no_topology(self):
        for text in (b"", b"x", b"<topology", b"<?xml version='1.0'?><a/>",
                     b"<topology version=\"2.0\"></topology>",
                     b"\0" * 4096, b"{}"):
            with self.subTest(text[:20]):
                self.assertEqual(self.broken(text), 1)

    def test_cut(self):
        text = mkxml.eight().text().encode()
        for i in range(0, len(text) - 20, len(text) // 40):
            with self.subTest(i):
                self.broken(text[:i])

    def test_no_sets(self):
        """hwloc crashes on objects without sets; ddp-topo does not."""
        text = mkxml.eight().text()
        for type_ in ("Package", "NUMANode", "Core", "PU"):
            at = text.index('<object type="%s"' % type_)
            cut = re.sub(r' (complete_)?(cpu|node)set="[^"]*"', "",
                         text[at:at + 400])
            with self.subTest(type_):
                self.broken((text[:at] + cut + text[at + 400:]).encode())

    def test_changed(self):
        """Bytes and lines that have gone astray."""
        rng = random.Random(7)
        text = mkxml.linked().text().encode()
        for _ in range(60):
            lines = text.split(b"\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            new = bytearray(b"\n".join(lines))
            new[rng.randrange(len(new))] = rng.choice(b'0fx",:<>/ ')
            self.broken(bytes(new))

    def test_odd_devices(self):
        text = mkxml.eight().text()
        for old, new in (("0000:12:00.0", "nonsense"), ("0302", "9999"),
                         ('osdev_type="5"', 'osdev_type="77"'),
                         ("Test GPU", "&#233;&lt;" * 300)):
            with self.subTest(new[:20]):
                self.broken(text.replace(old, new).encode())

    def test_odd_links(self):
        text = mkxml.linked().text()
        for old, new in (('nbobjs="8" kind="25"', 'nbobjs="9999" kind="25"'),
                         ("OSDev:", "PU:"), ("50000", "-1")):
            with self.subTest(new):
                self.broken(text.replace(old, new).encode())


class Shows(Case):
    def text(self, name, *args, **env):
        out = self.run_topo(name, *args, **env)
        self.assertEqual(out.returncode, 0, out.stderr)
        return out.stdout

    def test_drawing(self):
        ascii_ = self.text("eight").decode("ascii").splitlines()
        box = [x for x in ascii_ if x[0] in "+|"]
        self.assertEqual({len(x) for x in box}, {79})
        self.assertIn("+- Package 0 ---", box[0])
        both = "\n".join(box)
        for word in ("NUMA 1: CPU 8-15", "rank 7: CPU 14-15",
                     "GPU 6 0000:b2:00.0: rank 6", "NIC mlx5_1"):
            self.assertIn(word, both)
        self.assertNotIn(b"Package", self.text("eight", "--no-drawing"))

    def test_drawing_utf8(self):
        out = subprocess.run(
            [TOPO, "--input", os.path.join(self.dir, "eight")],
            capture_output=True, timeout=30,
            env=dict(os.environ, LC_ALL="C.UTF-8"))
        self.assertIn("┌─ Package 0 ─", out.stdout.decode())

    def test_drawing_wraps(self):
        t, packages = mkxml.sockets(2, 24, smt=2)
        with open(os.path.join(self.dir, "large"), "w") as f:
            f.write(t.text())
        cpus = ",".join(str(c) for c in range(0, 96, 2))
        out = self.text("large", "--ntasks", "1", "--cpus", cpus).decode()
        box = [x for x in out.splitlines() if x[0] in "+|"]
        self.assertEqual({len(x) for x in box}, {79})
        self.assertIn("|   rank 0: CPU 0,2,4,6,8,10,12,14,   |", out)
        self.assertIn("|     16,18,20,22,48,", out)

    def test_svg(self):
        if not shutil.which("lstopo") and \
           not shutil.which("lstopo-no-graphics"):
            self.skipTest("lstopo is not installed")
        svg = os.path.join(self.dir, "a.svg")
        self.text("eight", "--svg", svg)
        with open(svg) as f:
            picture = f.read()
        self.assertIn("<svg", picture)
        for n in range(8):
            self.assertIn("rank %d<" % n, picture)

    def test_svg_without_lstopo(self):
        said = self.fails(1, "eight", "--svg", "/dev/null",
                          PATH=self.dir)
        self.assertIn("apt-get install hwloc", said)

    def test_svg_lstopo_fails(self):
        bad = os.path.join(self.dir, "lstopo")
        with open(bad, "w") as f:
            f.write("#!/bin/sh\nexit 3\n")
        os.chmod(bad, stat.S_IRWXU)
        self.addCleanup(os.unlink, bad)
        said = self.fails(1, "eight", "--svg", "/dev/null", PATH=self.dir)
        self.assertIn("lstopo failed", said)


class Properties(Case):
    def test_shares(self):
        """Nothing twice, nothing foreign, even shares, for many requests."""
        rng = random.Random(5)
        for name in mkxml.ALL:
            for n in range(1, 13, 2):
                cpus = sorted(rng.sample(range(8), 5))
                p = self.plan(name, "--ntasks", str(n), "--cpus",
                              ",".join(map(str, cpus))) \
                    if name not in ("remote", "restricted") else \
                    self.plan(name, "--ntasks", str(n))
                self.check(p)

    def check(self, p):
        gpus = [g for r in p["ranks"] for g in r["gpus"]]
        have = [g["index"] for g in p["gpus"]]
        self.assertTrue(set(gpus) <= set(have))
        if len(have) >= p["ntasks"]:
            self.assertEqual(sorted(gpus), sorted(have))
        if not p["shared"]:
            seen = []
            for r in p["ranks"]:
                for part in r["cpus"].split(","):
                    a, _, b = part.partition("-")
                    seen += range(int(a), int(b or a) + 1)
            self.assertEqual(len(seen), len(set(seen)))
        self.assertTrue(p["optimal"])


class Documents(unittest.TestCase):
    """doc/binding.md shows what ddp-topo says of saved machines."""

    DOC = os.path.join(HERE, "..", "..", "doc", "binding.md")
    SAVED = os.environ.get("DDP_TOPOLOGIES", os.path.join(
        HERE, "..", "..", "..", "shared", "topologies"))

    def test_machines(self):
        if not os.path.isdir(self.SAVED):
            self.skipTest("no saved machines in " + self.SAVED)
        with open(self.DOC) as f:
            text = f.read().split("## Real machines")[1]
        blocks = re.findall(r"^(\d+) ranks:\n\n((?:    .*\n?)+)", text, re.M)
        self.assertGreater(len(blocks), 6)
        for ranks, block in blocks:
            want = [line[4:] for line in block.splitlines()]
            name = want[0].split(":")[0]
            out = subprocess.run([TOPO, "--input", name, "--ntasks", ranks],
                                 capture_output=True, timeout=30,
                                 cwd=self.SAVED,
                                 env=dict(os.environ, LC_ALL="C.UTF-8"))
            self.assertEqual(out.stdout.decode().splitlines(), want)


if __name__ == "__main__":
    if not TOPO:
        print("DDP_TOPO, the program to test, is not set")
        sys.exit(77)
    unittest.main()
