#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays ddp-topo, slowly, for the tests of the tests: an exact plan, or one
with the mistake that DDP_STUB_BREAK names.

It takes its plan from the oracle's own search, traced back, so it proves
nothing about the product. It proves that the optimum the oracle names can be
reached by a plan, and that the checks see each mistake.
"""
import argparse
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from oracle import Request, Solver  # noqa: E402
from topo import Topology, format_list, parse_list  # noqa: E402


def unit_class(request, unit):
    return (tuple(request.unit_distance(unit, g) for g in request.gpus),
            request.topo.numa_of_cpus(unit))


def traced(request, solver, groups):
    """[(group, CPUs)] with the least (D1, U) of these groups."""
    def want(group):
        return tuple(sum(far[g.index] for g in group) for far in solver.far)
    groups = sorted(groups, key=want)
    pools = {}
    for unit in request.units:
        pools.setdefault(unit_class(request, unit), []).append(unit)
    pools = list(pools.values())        # in the solver's order of classes
    left, more, plan = solver.counts, solver.more, []
    wants = tuple(map(want, groups))
    counts = []
    for i, group in enumerate(groups):
        aim = solver._rest(wants[i:], left, more)
        counts.append(None)
        for extra in (0, 1):
            if not 0 <= more - extra <= len(groups) - i - 1:
                continue
            for taken, after, u in solver._take(left, solver.small + extra):
                d1, rest_u = solver._rest(wants[i + 1:], after, more - extra)
                d1 += sum(map(int.__mul__, wants[i], taken))
                if (d1, rest_u + u) == aim and counts[i] is None:
                    counts[i] = (taken, after, more - extra)
        taken, left, more = counts[i]
    # Units go out in rank order, so ranks alike get them in logical order.
    order = {g.index: i for i, g in
             enumerate(request.topo.gpu_order(request.gpus))}
    ranks = sorted(range(len(groups)), key=lambda i: min(
        (order[g.index] for g in groups[i]), default=0))
    for i in ranks:
        units = [u for pool, k in zip(pools, counts[i][0])
                 for u in [pool.pop(0) for _ in range(k)]]
        plan.append((groups[i], frozenset().union(*units)))
    # Of ranks with GPUs equally near, the first has the first cores.
    for alike in set(wants):
        places = [r for r, i in enumerate(ranks) if want(groups[i]) == alike]
        sets = sorted((plan[r][1] for r in places), key=lambda c: min(
            i for i, u in enumerate(request.units) if u & c))
        for r, cpus in zip(places, sets):
            plan[r] = (plan[r][0], cpus)
    return plan


def best_plan(request):
    n = request.n
    if not request.gpus and request.split != "shared":
        small, more = request.unit_shares()
        cut, plan = 0, []
        for r in range(n):
            size = small + (r < more)
            plan.append(((), frozenset().union(
                *request.units[cut:cut + size])))
            cut += size
        return plan
    if request.split == "shared":
        plans = ([(g, request.shared_cpus(g)) for g in groups]
                 for groups in request.groupings())
        plan = min(plans, key=request.cost)
        order = {g.index: i for i, g in
                 enumerate(request.topo.gpu_order(request.gpus))}
        return sorted(plan, key=lambda p: min(
            (order[g.index] for g in p[0]), default=0))
    solver = Solver(request)

    def cost(groups):
        d1, u = solver.best(groups)
        return (d1, sum(map(request.group_d2, groups)), u)
    # Many groupings cost the same; the first in the order of ranks wins.
    return traced(request, solver, min(request.groupings(), key=cost))


def handed_out(request):
    """Policy none: contiguous shares in the order given, nothing bound."""
    n, gpus = request.n, request.gpus
    if len(gpus) >= n:
        small, more = request.gpu_shares()
        cuts = [r * small + min(r, more) for r in range(n + 1)]
        lists = [gpus[cuts[r]:cuts[r + 1]] for r in range(n)]
    else:
        lists = [[gpus[r * len(gpus) // n]] if gpus else [] for r in range(n)]
    return [(tuple(one), request.cpus) for one in lists]


def describe(request, plan):
    topo = request.topo
    bound = request.policy != "none"
    ranks = []
    for i, (gpus, cpus) in enumerate(plan):
        refused = bound and request.refused(gpus, cpus)
        ranks.append({
            "rank": i, "gpus": [g.index for g in gpus],
            "cpus": format_list(cpus) if bound else None,
            "cores": sum(bool(c & cpus) for c in request.cores),
            "numa": sorted(topo.numa_of_cpus(cpus)),
            "gpu_numa": sorted(frozenset().union(
                *map(topo.numa_of_gpu, gpus))),
            "d1": request.rank_d1(gpus, cpus),
            "refused": "more NUMA nodes than needed" if refused else None})
    d1, d2, u = request.cost(plan)
    return {"version": 1, "topology": "stub", "ntasks": request.n,
            "policy": request.policy, "optimal": True, "d1": d1, "d2": d2,
            "numa": u, "shared": request.split == "shared",
            "gpus": [{"index": g.index, "bus": g.bus, "name": None,
                      "numa": sorted(topo.numa_of_gpu(g)),
                      "cpus": format_list(g.local.cpuset)}
                     for g in topo.gpus],
            "ranks": ranks, "nics": []}


# --- mistakes: in the plan, or in what is said of it

def exchange(plan, first, second):
    """The plan with other (GPUs, CPUs) for the first and the last rank."""
    return [first] + plan[1:-1] + [second]


def swap_cpus(request, plan):
    (g, c), (h, d) = plan[0], plan[-1]
    return exchange(plan, (g, d), (h, c))


def swap_gpus(request, plan):
    (g, c), (h, d) = plan[0], plan[-1]
    return exchange(plan, (g[:-1] + h[-1:], c), (h[:-1] + g[-1:], d))


def swap_core(request, plan):
    (g, c), (h, d) = plan[0], plan[-1]
    one = next(u for u in request.units if u & c)
    two = next(u for u in request.units if u & d)
    return exchange(plan, (g, c - one | two), (h, d - two | one))


def move_core(request, plan):
    (g, c), (h, d) = plan[0], plan[-1]
    one = next(u for u in request.units if u & c)
    return exchange(plan, (g, c - one), (h, d | one))


def split_core(request, plan):
    (g, c), (h, d) = plan[0], plan[-1]
    one = frozenset([max(c)])
    return exchange(plan, (g, c - one), (h, d | one))


def move_gpu(request, plan):
    (g, c), (h, d) = plan[0], plan[-1]
    return exchange(plan, (g + h[:1], c), (h[1:], d))


def overlap(request, plan):
    (g, c), (_, d) = plan[0], plan[-1]
    return [(g, c | d)] + plan[1:]


def lose_cpu(request, plan):
    g, c = plan[0]
    return [(g, c - {max(c)})] + plan[1:]


def no_cpu(request, plan):
    return [(plan[0][0], frozenset())] + plan[1:]


def disallowed(request, plan):
    g, c = plan[0]
    every = {p.os_index for p in request.topo.pus}
    return [(g, c | (every - request.cpus))] + plan[1:]


def same_gpu(request, plan):
    return [(plan[0][0], c) for _, c in plan]


def reverse(request, plan):
    return plan[::-1]


PLAN_MISTAKES = {f.__name__: f for f in (
    swap_cpus, swap_gpus, swap_core, move_core, split_core, move_gpu, overlap,
    lose_cpu, no_cpu, disallowed, same_gpu, reverse)}


def foreign_gpu(request, said):
    mine = {g.index for g in request.gpus}
    said["ranks"][0]["gpus"] = [next(
        i for i in range(len(mine) + 1) if i not in mine)]


def wrong(key, of_rank=False):
    """A number one too high, a list with another node, a flag turned."""
    def change(request, said):
        obj = said["ranks"][0] if of_rank else said
        old = obj[key]
        obj[key] = (not old if isinstance(old, bool) else
                    old + 1 if isinstance(old, int) else [77])
    return change


def wrong_refusal(request, said):
    rank = said["ranks"][0]
    rank["refused"] = None if rank["refused"] else "a reason"


def wrong_bus(request, said):
    said["gpus"][0]["bus"] = "0000:fe:00.0"


def no_gpu_list(request, said):
    said["gpus"] = []


def wrong_nic(request, said):
    said["nics"] = [{"name": "x0", "bus": "0000:fe:00.0", "numa": [0]}]


def missing_key(request, said):
    del said["d2"]


def one_rank_less(request, said):
    said["ranks"].pop()


def changing(request, said):
    said["topology"] = str(random.random())


WORD_MISTAKES = {f.__name__: f for f in (
    foreign_gpu, wrong_refusal, wrong_bus, no_gpu_list, wrong_nic,
    missing_key, one_rank_less, changing)}
for name in ("d1", "d2", "numa", "shared", "optimal", "version"):
    WORD_MISTAKES["wrong_" + name] = wrong(name)
for name in ("d1", "numa", "gpu_numa", "cores"):
    WORD_MISTAKES["wrong_rank_" + name] = wrong(name, True)


def arguments():
    parse = argparse.ArgumentParser()
    parse.add_argument("--input", required=True)
    parse.add_argument("--ntasks", type=int)
    parse.add_argument("--gpus")
    parse.add_argument("--cpus", type=parse_list)
    parse.add_argument("--policy", default="best-effort", choices=(
        "none", "best-effort", "restricted", "single-numa-node"))
    parse.add_argument("--json", action="store_true")
    args = parse.parse_args()
    if args.ntasks is not None and args.ntasks < 1:
        parse.error("--ntasks is at least 1")
    return parse, args


def chosen(topo, text, parse):
    by_bus = {g.bus: g for g in topo.gpus}
    found = []
    for part in (text or "").split(",") if text != "none" else ():
        if part in by_bus:
            found.append(by_bus[part])
            continue
        try:
            first, _, last = part.partition("-")
            found += [topo.gpus[i] for i in range(
                int(first), int(last or first) + 1)]
        except (ValueError, IndexError):
            parse.error(f"no GPU {part}")
    return found


def answer(request, what=""):
    """What is printed, and the exit code."""
    plan = (handed_out(request) if request.policy == "none"
            else best_plan(request))
    if what in PLAN_MISTAKES:
        plan = PLAN_MISTAKES[what](request, plan)
    said = describe(request, plan)
    if what in WORD_MISTAKES:
        WORD_MISTAKES[what](request, said)
    text = json.dumps(said)
    refused = any(r["refused"] for r in said["ranks"])
    return (text[:-1] if what == "cut_text" else text,
            int(refused) if what != "wrong_exit" else 1 - int(refused))


def main():
    parse, args = arguments()
    topo = Topology(args.input)
    gpus = None if args.gpus is None else chosen(topo, args.gpus, parse)
    n = args.ntasks or max(1, len(topo.gpus if gpus is None else gpus))
    text, rc = answer(Request(topo, n, gpus, args.cpus, args.policy),
                      os.environ.get("DDP_STUB_BREAK", ""))
    print(text)
    return rc


if __name__ == "__main__":
    sys.exit(main())
