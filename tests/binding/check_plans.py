#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges the plans of ddp-topo; prints TAP.

    DDP_TOPO=PATH check_plans.py [--count N] [--seed S] [--keep DIR]

The parts: the written fixtures, the hand-made tables of real machines, wrong
use, what was found before, and random nodes. The real machines are looked for in DDP_TOPOLOGIES, or
in ../shared/topologies beside the checkout. N is 300, 10,000 where DDP_LONG is
set, and 100 where SANITIZERS are: those take their time. A failed case is kept in DIR, and
printed with its command. Exit code 77: there is no ddp-topo to run.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import fixtures  # noqa: E402
import plan_checks  # noqa: E402
from oracle import Request  # noqa: E402
from random_nodes import random_node, random_request  # noqa: E402
from topo import Topology, parse_list  # noqa: E402

POLICIES = ("best-effort", "restricted", "single-numa-node", "none")
REQUESTS_A_NODE = 5     # random requests on one random node
AGAIN = 10              # every so many cases, the plan is made twice
SHOWN = 5               # failed cases printed in full
# Seeds of nodes, and numbers of ranks: 7.1797 has a GPU that is near no CPU,
# and fewer CPUs than ranks; it cost less in a group than alone.
FOUND = [("7.1797", 6)]
LIMIT = 20              # seconds for one plan


class Runner:
    def __init__(self, program, keep):
        self.program = program
        self.keep = keep
        self.number = self.failed = self.kept = self.cases = 0

    # --- TAP

    def line(self, what, problems, skip=None):
        self.number += 1
        self.failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {self.number} - {what}"
              + (f" # SKIP {skip}" if skip else ""))
        for text in problems[:SHOWN]:
            for part in text.splitlines():
                print("#   " + part)
        if len(problems) > SHOWN:
            print(f"#   and {len(problems) - SHOWN} more failed cases")
        sys.stdout.flush()

    # --- one case

    def call(self, path, args):
        command = [self.program, "--input", path, *args, "--json"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return "", f"no end within {LIMIT} s", 124
        return (done.stdout.decode("utf-8", "replace"),
                done.stderr.decode("utf-8", "replace"), done.returncode)

    def report(self, path, args, problems, err):
        """Text of a failed case; its XML is kept."""
        self.kept += 1
        kept = path
        if self.keep and self.kept <= 50:
            os.makedirs(self.keep, exist_ok=True)
            kept = os.path.join(self.keep, f"{self.kept:03d}-"
                                + os.path.basename(path))
            with open(path, "rb") as src, open(kept, "wb") as dst:
                dst.write(src.read())
        lines = [" ".join(["ddp-topo", "--input", kept, *args, "--json"])]
        lines += [f"  {prop}: {text}" for prop, text in problems]
        if err.strip():
            lines.append("  it said: " + err.strip()[:300])
        return "\n".join(lines)

    def judge(self, path, request, args, again=False, search=True):
        """"" or what is wrong; the plan printed too."""
        self.cases += 1
        out, err, rc = self.call(path, args)
        problems = plan_checks.check(request, out, rc, search)
        if again and self.call(path, args)[::2] != (out, rc):
            problems.append(("deterministic", "a second run differs"))
        if problems:
            return self.report(path, args, problems, err), out, rc
        return "", out, rc

    # --- the parts

    def fixtures(self, folder):
        for name, path in fixtures.write(folder).items():
            topo = Topology(path)
            failed = []
            for n in (1, 3, 5, 9) if usual_count() < 300 else (
                    1, 2, 3, 4, 5, 6, 7, 9):
                for policy in POLICIES:
                    request = Request(topo, n, policy=policy)
                    args = ["--ntasks", str(n), "--policy", policy]
                    failed.append(self.judge(path, request, args,
                                             n == 3)[0])
            default = Request(topo, max(1, len(topo.gpus)))
            failed.append(self.judge(path, default, [])[0])
            self.line(f"fixture {name}", [f for f in failed if f])

    def wrong_use(self, folder):
        path = os.path.join(folder, "smt2.xml")
        bad = []
        for args in (["--ntasks", "0"], ["--ntasks", "x"], ["--ntasks", "-1"],
                     ["--policy", "any"], ["--gpus", "4"],
                     ["--gpus", "0000:77:00.0"], ["--cpus", "x"],
                     ["--no-such-option"]):
            out, err, rc = self.call(path, args)
            if rc != 2 or not err.strip():
                bad.append(self.report(path, args, [
                    ("usage", f"exit code {rc}, not 2 with a message")], err))
        self.line("wrong use is told from a refusal", bad)

    def tables(self, folder):
        names = sorted(os.listdir(os.path.join(HERE, "tables")))
        for name in (n for n in names if n != "README.md"):
            table = read_table(os.path.join(HERE, "tables", name))
            path = os.path.join(folder, table["file"])
            for case in table["cases"]:
                what = f"table {name[:-3]}: {' '.join(case['args'])}"
                if not os.path.exists(path):
                    self.line(what, [], f"no {table['file']} in DDP_TOPOLOGIES"
                              " or ../shared/topologies")
                    continue
                self.line(what, self.table_case(path, case))

    def table_case(self, path, case):
        topo = Topology(path)
        request = Request(topo, case["ntasks"],
                          policy=case.get("policy", "best-effort"))
        # What is best there was found by hand, and a search takes minutes.
        failed, out, rc = self.judge(path, request, case["args"], True, False)
        problems = []
        try:
            problems = compare_table(case, json.loads(out), rc)
        except (ValueError, KeyError, TypeError) as e:
            problems = [("table", f"not comparable: {e!r}")]
        found = [failed] if failed else []
        if problems:
            found.append(self.report(path, case["args"], problems, ""))
        return found

    def found(self, folder):
        """What the random part has found once, and was mended since."""
        for seed, n in FOUND:
            path = os.path.join(folder, f"random-{seed}.xml")
            with open(path, "w", encoding="ascii") as f:
                f.write(random_node(random.Random(seed)).xml())
            text = self.judge(path, Request(Topology(path), n),
                              ["--ntasks", str(n)])[0]
            self.line(f"node {seed}, {n} ranks", [text] if text else [])

    def random(self, count, seed, folder):
        failed, done, node = [], 0, 0
        while done < count:
            # One seed a node: a failed one can be made again alone.
            rng = random.Random(f"{seed}.{node}")
            path = os.path.join(folder, f"random-{seed}.{node}.xml")
            with open(path, "w", encoding="ascii") as f:
                f.write(random_node(rng).xml())
            topo = Topology(path)
            for _ in range(min(REQUESTS_A_NODE, count - done)):
                words, args = random_request(rng, topo)
                text = self.judge(path, Request(topo, **words), args,
                                  done % AGAIN == 0)[0]
                if text:
                    failed.append(text)
                done += 1
            os.unlink(path)
            node += 1
        self.line(f"{count} random cases, seed {seed}", failed)


def read_table(path):
    with open(path, encoding="utf-8") as f:
        blocks = re.findall(r"^```json\n(.*?)^```", f.read(), re.S | re.M)
    if len(blocks) != 1:
        raise ValueError(f"{path}: {len(blocks)} blocks of JSON, not one")
    return json.loads(blocks[0])


def compare_rank(want, got):
    """Whether a rank of the plan is the one of the table."""
    return (set(want["gpus"]) == set(got["gpus"])
            and ("cpus" not in want
                 or parse_list(want["cpus"]) == parse_list(got["cpus"]))
            and ("numa" not in want or want["numa"] == got["numa"]))


def compare_table(case, plan, rc):
    """Where a plan differs from a table's case; see tables/README.md."""
    problems = []
    for key in ("d1", "d2", "numa", "shared", "optimal"):
        want = case.get(key, True if key == "optimal" else None)
        if want is not None and plan[key] != want:
            problems.append(("table", f"{key} is {plan[key]}, not {want}"))
    want = case.get("exit", 0)
    if rc != want:
        problems.append(("table", f"exit code {rc}, not {want}"))
    ranks = plan["ranks"]
    if "any_of" in case and not any(
            len(one) == len(ranks) and all(map(compare_rank, one, ranks))
            for one in case["any_of"]):
        problems.append(("table", "ranks are none of those expected: "
                         + json.dumps([[r["gpus"], r["cpus"], r["numa"]]
                                       for r in ranks])))
    if "parts" in case:
        spread = sorted(sorted(filter(None, (len(set(r["gpus"]) & set(part))
                                             for part in case["parts"])))
                        for r in ranks)
        if spread != sorted(map(sorted, case["spread"])):
            problems.append(("table", f"the ranks' GPUs are spread {spread} "
                             f"over {case['parts']}"))
    refused = [r["rank"] for r in ranks if r["refused"] is not None]
    if "refused" in case and refused not in case["refused"]:
        problems.append(("table", f"refused are {refused}, not one of "
                         f"{case['refused']}"))
    return problems


def usual_count():
    """Random cases: as many as there is time for."""
    if os.environ.get("SANITIZERS", "no") not in ("", "no"):
        return 100
    return 10000 if os.environ.get("DDP_LONG") else 300


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--count", type=int, default=usual_count())
    parse.add_argument("--seed", default="1")
    parse.add_argument("--keep", default="binding-failed")
    parse.add_argument("--only", default="fixtures,use,tables,found,random")
    opts = parse.parse_args()
    program = os.environ.get("DDP_TOPO", "")
    if not os.access(program, os.X_OK):
        print(f"1..0 # SKIP DDP_TOPO is \"{program}\": no program")
        return 77
    runner = Runner(os.path.abspath(program), opts.keep)
    only = opts.only.split(",")
    real = os.environ.get("DDP_TOPOLOGIES") or os.path.join(
        HERE, "..", "..", "..", "shared", "topologies")
    with tempfile.TemporaryDirectory() as folder:
        if "fixtures" in only:
            runner.fixtures(folder)
        if "use" in only:
            fixtures.write(folder)
            runner.wrong_use(folder)
        if "tables" in only:
            runner.tables(real)
        if "found" in only:
            runner.found(folder)
        if "random" in only:
            runner.random(opts.count, opts.seed, folder)
    print(f"1..{runner.number}")
    print(f"# {runner.cases} plans judged")
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
