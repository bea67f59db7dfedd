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


# --- mistakes: each changes the plan, or what is said of it

def swap_cpus(plan):
    """The first two ranks, with other GPUs each, take each other's CPUs."""
    (g, c), (h, d), *rest = plan
    return [(g, d), (h, c)] + rest


def swap_gpus(plan):
    """The first and last rank exchange one GPU."""
    (g, c), *rest, (h, d) = plan
    return [(g[:-1] + h[-1:], c)] + rest + [(h[:-1] + g[-1:], d)]


def move_cpu(plan):
    """One CPU of the first rank goes to the second: a core is split."""
    (g, c), (h, d), *rest = plan
    one = frozenset([max(c)])
    return [(g, c - one), (h, d | one)] + rest


def move_core(request, plan):
    (g, c), (h, d), *rest = plan
    one = next(u for u in request.units if u & c)
    return [(g, c - one), (h, d | one)] + rest


def break_plan(what, request, plan):
    (g, c), *rest = plan
    last = len(plan) - 1
    if what == "overlap":
        return [(g, c | plan[last][1])] + rest
    if what == "move_gpu":
        return [(g + plan[last][0][:1], c)] + rest[:-1] + [
            (plan[last][0][1:], plan[last][1])]
    if what == "same_gpu":
        return [(g, c)] + [(g, d) for _, d in rest]
    if what == "reverse":
        return plan[::-1]
    if what == "lose_cpu":
        return [(g, c - {max(c)})] + rest
    if what == "disallowed":
        more = {p.os_index for p in request.topo.pus} - request.cpus
        return [(g, c | more)] + rest
    simple = {"swap_cpus": swap_cpus, "swap_gpus": swap_gpus,
              "move_cpu": move_cpu}
    if what == "move_core":
        return move_core(request, plan)
    return simple[what](plan) if what in simple else plan


def break_words(what, said):
    rank, gpus = said["ranks"][0], said["gpus"]
    if what == "foreign_gpu":
        rank["gpus"] = [i for i in range(len(gpus))
                        if i not in ARGS.kept][:1] or [len(gpus)]
    elif what in ("d1", "d2", "numa"):
        said[what] += 1
    elif what in ("shared", "optimal"):
        said[what] = not said[what]
    elif what == "rank_d1":
        rank["d1"] += 1
    elif what in ("rank_numa", "gpu_numa"):
        rank[what.replace("rank_", "")] = [77]
    elif what == "cores":
        rank["cores"] += 1
    elif what == "refused":
        rank["refused"] = None if rank["refused"] else "no"
    elif what == "bus":
        gpus[0]["bus"] = gpus[-1]["bus"]
    elif what == "no_key":
        del said["d2"]
    elif what == "random":
        said["topology"] = str(random.random())
    return said


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


def main():
    global ARGS
    parse, ARGS = arguments()
    topo = Topology(ARGS.input)
    gpus = None if ARGS.gpus is None else chosen(topo, ARGS.gpus, parse)
    n = ARGS.ntasks or max(1, len(topo.gpus if gpus is None else gpus))
    request = Request(topo, n, gpus, ARGS.cpus, ARGS.policy)
    ARGS.kept = {g.index for g in request.gpus}
    what = os.environ.get("DDP_STUB_BREAK", "")
    plan = (handed_out(request) if request.policy == "none"
            else best_plan(request))
    said = break_words(what, describe(request, break_plan(
        what, request, plan)))
    text = json.dumps(said)
    print(text[:-1] if what == "text" else text)
    refused = any(r["refused"] for r in said["ranks"])
    return int(refused) if what != "exit" else 1 - int(refused)


if __name__ == "__main__":
    sys.exit(main())
