#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The oracle and the checks of binding plans, themselves tested.

Optima that are plain to see, a still simpler search on tiny nodes, and a
planner that makes each mistake once: the checks must name it.
"""
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check_plans  # noqa: E402
import fixtures  # noqa: E402
import plan_checks  # noqa: E402
import stub_topo  # noqa: E402
from fixture_xml import Fixture  # noqa: E402
from oracle import Request  # noqa: E402
from random_nodes import random_node, random_request  # noqa: E402
from topo import (Topology, format_list, parse_list,  # noqa: E402
                  parse_mask)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.paths = fixtures.write(cls.folder)
        cls.topos = {n: Topology(p) for n, p in cls.paths.items()}

    def saved(self, fixture, name="made"):
        path = os.path.join(self.folder, name + ".xml")
        with open(path, "w", encoding="ascii") as f:
            f.write(fixture.xml())
        return path


class Reading(Case):
    def test_sets(self):
        self.assertEqual(parse_mask("0x00000003,,0x80000001"),
                         {0, 31, 64, 65})
        self.assertEqual(parse_mask("0x0"), frozenset())
        self.assertEqual(parse_list("0-2,8"), {0, 1, 2, 8})
        self.assertEqual(format_list({8, 0, 1, 2}), "0-2,8")
        self.assertEqual(parse_list(""), frozenset())

    def test_what_is_a_gpu(self):
        def buses(name):
            return [g.bus for g in self.topos[name].gpus]
        self.assertEqual(buses("aspeed"), ["0000:05:00.0"])
        self.assertEqual(buses("amd_rsmi"), [
            "0000:41:00.0", "0000:45:00.0", "0000:c1:00.0", "0000:c5:00.0"])
        self.assertEqual(buses("intel_ze"), ["0000:02:00.0", "0000:03:00.0"])

    def test_bus_and_tree_order(self):
        gpus = self.topos["four_numa"].gpus
        self.assertEqual([g.pos for g in gpus], [3, 2, 1, 0])

    def test_distance_of_cpus(self):
        topo = self.topos["four_numa"]      # GPU 3 is on the first L3
        self.assertEqual([topo.distance(p, topo.gpus[3]) for p in (0, 4, 8)],
                         [0, 1, 2])
        topo = self.topos["cpuless"]
        self.assertEqual([topo.distance(0, g) for g in topo.gpus], [0, 1])
        # The package has the machine's CPUs: no growth.
        topo = self.topos["one_socket_two_numa_one_gpu"]
        self.assertEqual({topo.distance(p, topo.gpus[0]) for p in range(6)},
                         {0})

    def test_distance_of_gpus(self):
        topo = self.topos["eight_on_two"]
        near = [topo.gpu_distance(topo.gpus[0], g) for g in topo.gpus]
        # port, switch | bridge.. package on both sides | ..machine
        self.assertEqual(near, [0, 4, 8, 8, 10, 10, 10, 10])

    def test_links(self):
        def linked(name):
            topo = self.topos[name]
            return [(g.index, h.index) for g, h in
                    itertools.combinations(topo.gpus, 2)
                    if topo.linked(g, h)]
        self.assertEqual(linked("nvlink_pairs"), [(0, 2), (1, 3)])
        self.assertEqual(linked("nvlink_double"), [(0, 3), (1, 2)])
        self.assertEqual(len(linked("nvlink_switch")), 6)
        self.assertEqual(linked("eight_on_two"), [])
        topo = self.topos["nvlink_pairs"]
        self.assertEqual([g.index for g in topo.gpu_order(topo.gpus)],
                         [0, 2, 1, 3])

    def test_numa_nodes(self):
        topo = self.topos["gpu_memory"]
        self.assertEqual(sorted(n.os_index for n in topo.nodes), [0, 1])
        self.assertEqual([sorted(topo.numa_of_gpu(g)) for g in topo.gpus],
                         [[0], [1]])
        topo = self.topos["cpuless"]
        self.assertEqual(topo.numa_of_gpu(topo.gpus[1]), frozenset())


class Loads(Case):
    """hwloc itself must agree that the files are topologies."""

    def lstopo(self, path):
        done = subprocess.run(
            ["lstopo-no-graphics", "--if", "xml", "-i", path, "--of",
             "console", "-v", "--disallowed"], capture_output=True,
            text=True, timeout=20)
        self.assertEqual((done.returncode, done.stderr), (0, ""), path)
        topo = Topology(path)
        self.assertEqual(len(re.findall(r"\bPU L#", done.stdout)),
                         len(topo.pus))
        devices = re.findall(r"PCI L#\d+ \(busid=(\S+)", done.stdout)
        self.assertEqual(devices, [o.attr["pci_busid"] for o in topo.objs
                                   if o.type == "PCIDev"])

    @unittest.skipUnless(shutil.which("lstopo-no-graphics"),
                         "no lstopo-no-graphics")
    def test_files(self):
        for path in self.paths.values():
            self.lstopo(path)
        for seed in range(40):
            node = random_node(random.Random(seed))
            self.lstopo(self.saved(node, f"random{seed}"))


class Optimum(Case):
    def best(self, name, n, **words):
        return Request(self.topos[name], n, **words).optimum()

    def test_plain(self):
        # One GPU and two cores of its own socket each.
        self.assertEqual(self.best("eight_on_two", 8), (0, 0, 8))
        # Two of a switch each; then a socket each, pairs 4 4 8 8 8 8.
        self.assertEqual(self.best("eight_on_two", 4), (0, 16, 4))
        self.assertEqual(self.best("eight_on_two", 2), (0, 80, 2))
        # Four GPUs on six cores: one rank has both its cores far.
        self.assertEqual(self.best("six_uneven", 6), (2, 0, 6))
        # One has both: 8 far cores of 16, twice.
        self.assertEqual(self.best("smt2", 1, gpus=self.topos[
            "smt2"].gpus[:2]), (8, 4, 2))

    def test_cpuless(self):
        self.assertEqual(self.best("cpuless", 2), (2, 0, 2))

    def test_links_decide(self):
        self.assertEqual(self.best("nvlink_pairs", 2), (16, 0, 2))
        # The wide links lead to the other socket: that costs D1 first.
        self.assertEqual(self.best("nvlink_double", 2), (0, 8, 2))

    def test_uneven(self):
        # 5 + 5 cores, 3 ranks: without GPUs no optimum is asked for.
        request = Request(self.topos["no_gpu"], 3)
        self.assertEqual((request.split, len(request.units)), ("core", 10))
        self.assertEqual(request.unit_shares(), (3, 1))

    def test_split(self):
        topo = self.topos["restricted_cpus"]    # 6 cores, 10 PUs
        self.assertEqual([Request(topo, n).split for n in (6, 7, 10, 11)],
                         ["core", "pu", "pu", "shared"])
        self.assertEqual(Request(topo, 8).unit_shares(), (1, 2))

    def test_shared(self):
        topo = self.topos["cpuless"]
        request = Request(topo, 5)
        self.assertEqual(request.split, "shared")
        # No CPU is near GPU 1: all are its ranks'.
        self.assertEqual(request.shared_cpus((topo.gpus[1],)), {0, 1, 2, 3})
        # Two or three ranks on GPU 1, four far cores each.
        self.assertEqual(request.optimum(), (8, 0, 5))

    def naive(self, request):
        """Every rank for every unit, every list of GPUs for every rank."""
        n, units, best = request.n, request.units, None
        small, more = request.unit_shares()
        gpu_small, gpu_more = request.gpu_shares()
        sizes = [small] * (n - more) + [small + 1] * more
        splits = []
        for owner in itertools.product(range(n), repeat=len(units)):
            sets = [frozenset().union(*(u for u, o in zip(units, owner)
                                        if o == r)) for r in range(n)]
            if sorted(owner.count(r) for r in range(n)) == sizes:
                splits.append(sets)
        g = len(request.gpus)
        if g >= n:
            lists = [[tuple(x for x, o in zip(request.gpus, owner) if o == r)
                      for r in range(n)]
                     for owner in itertools.product(range(n), repeat=g)]
            lists = [x for x in lists if sorted(map(len, x)) == [gpu_small] * (
                n - gpu_more) + [gpu_small + 1] * gpu_more]
        else:
            lists = [[(x,) for x in row] for row in
                     itertools.product(request.gpus, repeat=n)]
            lists = [x for x in lists if all(
                x.count((gpu,)) in (n // g, n // g + (n % g > 0))
                for gpu in request.gpus)]
        for gpus in lists:
            for sets in splits:
                cost = request.cost(list(zip(gpus, sets)))
                best = cost if best is None else min(best, cost)
        return best

    def test_against_the_naive(self):
        tried = 0
        for seed in itertools.count():
            if tried == 40:
                break
            rng = random.Random(f"naive {seed}")
            topo = Topology(self.saved(random_node(rng), f"naive{seed}"))
            words, _ = random_request(rng, topo)
            request = Request(topo, **words)
            g, n, units = len(request.gpus), request.n, len(request.units)
            if (g == 0 or request.split == "shared" or n == 1
                    or n ** units * max(n ** g, g ** n) > 30000):
                continue
            tried += 1
            self.assertEqual(request.optimum(), self.naive(request),
                             (seed, words))


class Policies(Case):
    def refused(self, name, n, policy, **words):
        request = Request(self.topos[name], n, policy=policy, **words)
        return [request.refused(*one)
                for one in stub_topo.best_plan(request)]

    def test_all_fit(self):
        for policy in ("restricted", "single-numa-node", "best-effort"):
            self.assertEqual(self.refused("eight_on_two", 8, policy),
                             [False] * 8)

    def test_whole_node(self):
        # All GPUs need both nodes, which is no fault.
        self.assertEqual(self.refused("eight_on_two", 1, "restricted"),
                         [False])
        self.assertEqual(self.refused("eight_on_two", 1, "single-numa-node"),
                         [True])

    def test_uneven(self):
        # Somebody's cores are on both sockets, or far from its GPU.
        for policy in ("restricted", "single-numa-node"):
            self.assertIn(True, self.refused("six_uneven", 6, policy))

    def test_no_cpu_near(self):
        # GPU 1 has a socket with memory only, or with disallowed CPUs.
        for name in ("cpuless", "far_socket_only"):
            for policy in ("restricted", "single-numa-node"):
                self.assertEqual(self.refused(name, 2, policy),
                                 [False, True], (name, policy))

    def test_gpu_of_the_machine(self):
        # Near to both nodes: on no single one, and none is better.
        self.assertEqual(self.refused("intel_ze", 2, "single-numa-node"),
                         [True, True])
        self.assertEqual(self.refused("intel_ze", 2, "restricted"),
                         [False, False])

    def test_choice_of_cpus(self):
        # Both GPUs' near CPUs are left out; the node could do better.
        topo = self.topos["smt2"]
        words = dict(gpus=topo.gpus[:2], cpus=parse_list("4-7,12-15"))
        self.assertEqual(self.refused("smt2", 2, "restricted", **words),
                         [True, True])

    def test_what_was_left_out_counts(self):
        # One rank with GPUs, or cores, of both sockets: each socket has as
        # many, though not among those given.
        topo = self.topos["smt2"]
        for words in (dict(gpus=[topo.gpus[0], topo.gpus[2]]),
                      dict(gpus=topo.gpus[:1], cpus=parse_list("0,4"))):
            words.setdefault("cpus", parse_list("0-1"))
            self.assertEqual(self.refused("smt2", 1, "restricted", **words),
                             [True])


# Mistake: where it is made (fixture, ranks, policy), what must be named.
SEEN = {
    "swap_cpus": ("eight_on_two", 8, "best-effort", "optimum D1"),
    "swap_gpus": ("nvlink_pairs", 2, "best-effort", "optimum D2"),
    "swap_core": ("intel_ze", 2, "best-effort", "optimum U"),
    "move_core": ("smt2", 2, "best-effort", "CPU quota"),
    "split_core": ("smt2", 2, "best-effort", "whole cores"),
    "move_gpu": ("eight_on_two", 4, "best-effort", "GPU quota"),
    "overlap": ("eight_on_two", 4, "best-effort", "overlap"),
    "lose_cpu": ("smt2", 8, "best-effort", "whole cores"),
    "no_cpu": ("smt2", 8, "best-effort", "allowed CPUs"),
    "disallowed": ("restricted_cpus", 2, "best-effort", "allowed CPUs"),
    "same_gpu": ("smt2", 8, "best-effort", "GPU use"),
    "reverse": ("four_numa", 4, "best-effort", "numbering"),
    "foreign_gpu": ("smt2", 2, "best-effort", "foreign GPU"),
    "wrong_refusal": ("smt2", 2, "restricted", "policy"),
    "wrong_bus": ("smt2", 2, "best-effort", "devices"),
    "no_gpu_list": ("smt2", 2, "best-effort", "devices"),
    "wrong_nic": ("smt2", 2, "best-effort", "devices"),
    "missing_key": ("smt2", 2, "best-effort", "json"),
    "one_rank_less": ("smt2", 2, "best-effort", "json"),
    "wrong_version": ("smt2", 2, "best-effort", "json"),
    "cut_text": ("smt2", 2, "best-effort", "json"),
    "wrong_exit": ("smt2", 1, "single-numa-node", "exit code"),
    "wrong_d1": ("smt2", 2, "best-effort", "total d1"),
    "wrong_d2": ("smt2", 2, "best-effort", "total d2"),
    "wrong_numa": ("smt2", 2, "best-effort", "total numa"),
    "wrong_shared": ("smt2", 2, "best-effort", "shared"),
    "wrong_optimal": ("smt2", 2, "best-effort", "optimal"),
    "wrong_rank_d1": ("smt2", 2, "best-effort", "rank d1"),
    "wrong_rank_numa": ("smt2", 2, "best-effort", "rank numa"),
    "wrong_rank_gpu_numa": ("smt2", 2, "best-effort", "rank numa"),
    "wrong_rank_cores": ("smt2", 2, "best-effort", "cores"),
}
# The same mistakes where other rules hold.
ALSO = [
    ("lose_cpu", "cpuless", 5, "best-effort", "shared"),
    ("swap_core", "no_gpu", 3, "best-effort", "numbering"),
    ("reverse", "smt2", 8, "best-effort", "numbering"),
    ("reverse", "nvlink_pairs", 4, "best-effort", "numbering"),
    ("reverse", "eight_on_two", 3, "none", "given order"),
    ("reverse", "smt2", 8, "none", "given order"),
    ("move_gpu", "eight_on_two", 3, "none", "GPU quota"),
    ("wrong_refusal", "smt2", 2, "none", "policy"),
    ("wrong_refusal", "smt2", 1, "single-numa-node", "policy"),
    ("overlap", "restricted_cpus", 8, "best-effort", "overlap"),
    ("move_core", "restricted_cpus", 9, "best-effort", "allowed CPUs"),
]


class Mistakes(Case):
    def found(self, what, name, n, policy, gpus=None):
        topo = self.topos[name]
        request = Request(topo, n, gpus, policy=policy)
        text, rc = stub_topo.answer(request, what)
        return plan_checks.check(request, text, rc)

    def test_none_where_there_is_none(self):
        for name, n, policy, _ in SEEN.values():
            self.assertEqual(self.found("", name, n, policy), [])
        for _, name, n, policy, _ in ALSO:
            self.assertEqual(self.found("", name, n, policy), [])

    def test_each(self):
        for what, (name, n, policy, prop) in SEEN.items():
            gpus = (self.topos[name].gpus[1:] if what == "foreign_gpu"
                    else None)
            with self.subTest(what):
                self.assertIn(prop, [p for p, _ in self.found(
                    what, name, n, policy, gpus)])
        for what, name, n, policy, prop in ALSO:
            with self.subTest(what, name=name, policy=policy):
                self.assertIn(prop, [p for p, _ in self.found(
                    what, name, n, policy)])

    def test_all_are_tried(self):
        known = set(stub_topo.PLAN_MISTAKES) | set(stub_topo.WORD_MISTAKES)
        known |= {"cut_text", "wrong_exit"}
        self.assertEqual(known - set(SEEN), {"changing"})   # see Program


class Program(Case):
    """check_plans.py as it is run, on the stub."""

    def run_it(self, mistake="", *args, topo=None):
        env = dict(os.environ, DDP_STUB_BREAK=mistake,
                   DDP_TOPOLOGIES=self.folder,
                   DDP_TOPO=topo or os.path.join(HERE, "stub_topo.py"))
        self.keep = tempfile.mkdtemp(dir=self.folder)
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, "check_plans.py"), "--keep",
             self.keep, *args], env=env, capture_output=True, text=True,
            timeout=120)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def test_absent(self):
        rc, out = self.run_it(topo=os.path.join(HERE, "no-such-program"))
        self.assertEqual(rc, 77)
        self.assertIn("SKIP", out)

    def test_good(self):
        rc, out = self.run_it("", "--count", "15", "--only", "random,use")
        self.assertEqual((rc, os.listdir(self.keep)), (0, []), out)
        self.assertIn("1..2", out)

    def test_no_topologies(self):
        rc, out = self.run_it("", "--only", "tables")
        self.assertEqual(rc, 0)
        self.assertNotIn("not ok", out)
        self.assertIn("# SKIP no nvidiaDGX2.xml", out)

    def test_bad(self):
        for what in ("changing", "wrong_d1"):
            rc, out = self.run_it(what, "--count", "10", "--only", "random")
            self.assertEqual(rc, 1, out)
            kept = re.search(r"ddp-topo --input (\S+) ", out)[1]
            self.assertTrue(os.path.exists(kept), out)

    def test_tables(self):
        """The hand-made tables can be read, and a difference is seen."""
        names = os.listdir(os.path.join(HERE, "tables"))
        for name in (n for n in names if n != "README.md"):
            table = check_plans.read_table(os.path.join(HERE, "tables", name))
            self.assertTrue(table["cases"])
        case = {"d1": 0, "parts": [[0, 1], [2, 3]], "spread": [[2], [1, 1]],
                "any_of": [[{"gpus": [0, 1]}, {"gpus": [2, 3]}]],
                "refused": [[]]}
        plan = {"d1": 0, "d2": 1, "numa": 1, "shared": False,
                "optimal": True, "ranks": [
                    {"rank": r, "gpus": [2 * r, 2 * r + 1], "cpus": str(r),
                     "numa": [0], "refused": None} for r in range(2)]}
        found = check_plans.compare_table(case, plan, 0)
        self.assertEqual([t.split()[1] for _, t in found], ["ranks'"])
        case["spread"] = [[2], [2]]
        self.assertEqual(check_plans.compare_table(case, plan, 0), [])
        plan.update(d1=1, optimal=False)
        plan["ranks"][0].update(gpus=[0, 2], refused="no")
        self.assertEqual(len(check_plans.compare_table(case, plan, 1)), 6)


class Writing(Case):
    def test_disallowed_stay_in_the_sets(self):
        fix = Fixture()
        fixtures.socket(fix, 0, 0, 2)
        fix.allowed = {1}
        topo = Topology(self.saved(fix))
        self.assertEqual((topo.root.cpuset, topo.allowed), ({0, 1}, {1}))


if __name__ == "__main__":
    unittest.main()
