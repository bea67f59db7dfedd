# SPDX-License-Identifier: Apache-2.0
"""What must hold of one plan that ddp-topo --json printed.

check() names every property that does not hold: a list of (property, text).
"""
import json

from topo import parse_list

MOST_RANKS = 8      # up to here the best plan is searched for
MOST_GPUS = 8

KEYS = {"version": int, "topology": str, "ntasks": int, "policy": str,
        "optimal": bool, "d1": int, "d2": int, "numa": int, "shared": bool,
        "gpus": list, "ranks": list, "nics": list}
RANK_KEYS = {"rank": int, "gpus": list, "cpus": str, "cores": int,
             "numa": list, "gpu_numa": list, "d1": int, "refused": str}
GPU_KEYS = {"index": int, "bus": str, "name": str, "numa": list, "cpus": str}
NIC_KEYS = {"name": str, "bus": str, "numa": list}
# Unknown is null: only where the thing can be unknown.
MAY_BE_NULL = {"refused", "name", "bus", "cpus"}
UNBOUND = {"d1", "d2", "numa", "cores", "optimal", "shared"}


class Checker:
    def __init__(self, request):
        self.request = request
        self.topo = request.topo
        self.problems = []
        self.bound = request.policy != "none"

    def say(self, prop, text):
        self.problems.append((prop, text))

    def expect(self, prop, what, got, want):
        if got != want:
            self.say(prop, f"{what} is {got}, not {want}")

    # --- the text

    def typed(self, obj, keys, where):
        for key, kind in keys.items():
            if not isinstance(obj, dict) or key not in obj:
                self.say("json", f"{where}: no \"{key}\"")
                continue
            value = obj[key]
            null = key in MAY_BE_NULL or not self.bound and key in UNBOUND
            if value is None and null:
                continue
            if not isinstance(value, kind) or (
                    kind is int and isinstance(value, bool)):
                self.say("json", f"{where}: \"{key}\" is {value!r}")

    def well_formed(self, text):
        try:
            plan = json.loads(text)
        except ValueError as e:
            self.say("json", f"not JSON: {e}")
            return None
        self.typed(plan, KEYS, "plan")
        if not self.problems:
            for name, keys in (("ranks", RANK_KEYS), ("gpus", GPU_KEYS),
                               ("nics", NIC_KEYS)):
                for i, one in enumerate(plan[name]):
                    self.typed(one, keys, f"{name}[{i}]")
        if not self.problems:
            self.expect("json", "version", plan["version"], 1)
            self.expect("json", "ntasks", plan["ntasks"], self.request.n)
            self.expect("json", "policy", plan["policy"],
                        self.request.policy)
            self.expect("json", "ranks", [r["rank"] for r in plan["ranks"]],
                        list(range(self.request.n)))
        return plan if not self.problems else None

    def devices(self, plan):
        """The GPUs and NICs listed are those of the node."""
        listed = [g["index"] for g in plan["gpus"]]
        missing = {g.index for g in self.request.gpus} - set(listed)
        if missing or len(listed) != len(set(listed)):
            self.say("devices", f"GPUs listed: {listed}, missing: {missing}")
        for one in plan["gpus"]:
            if not 0 <= one["index"] < len(self.topo.gpus):
                self.say("devices", f"no GPU has the index {one['index']}")
                continue
            gpu = self.topo.gpus[one["index"]]
            what = f"GPU {gpu.index}"
            self.expect("devices", f"{what}: bus", one["bus"], gpu.bus)
            self.expect("devices", f"{what}: numa", one["numa"],
                        sorted(self.topo.numa_of_gpu(gpu)))
            if parse_list(one["cpus"]) - gpu.local.cpuset:
                self.say("devices", f"{what}: cpus {one['cpus']} are not all "
                         "near it")
        buses = {o.attr["pci_busid"] for o in self.topo.objs
                 if o.type == "PCIDev" and o.attr["pci_type"][:2] == "02"}
        for nic in plan["nics"]:
            if nic["bus"] not in buses:
                self.say("devices", f"no NIC is at {nic['bus']}")

    # --- GPUs

    def gpu_lists(self, ranks):
        """The GPUs of each rank; None where one is foreign."""
        mine = {g.index: g for g in self.request.gpus}
        foreign = [(r["rank"], i) for r in ranks for i in r["gpus"]
                   if i not in mine]
        if foreign:
            self.say("foreign GPU", f"(rank, GPU): {foreign}")
            return None
        return [tuple(mine[i] for i in r["gpus"]) for r in ranks]

    def gpu_quotas(self, lists):
        n, g = self.request.n, len(self.request.gpus)
        small, more = self.request.gpu_shares()
        self.expect("GPU quota", "GPUs a rank, sorted",
                    sorted(map(len, lists)),
                    [small] * (n - more) + [small + 1] * more)
        users = {gpu.index: 0 for gpu in self.request.gpus}
        for gpu in (gpu for one in lists for gpu in one):
            users[gpu.index] += 1
        each, extra = divmod(n, g) if 0 < g < n else (1, 0)
        self.expect("GPU use", "ranks a GPU, sorted", sorted(users.values()),
                    [each] * (g - extra) + [each + 1] * extra)

    # --- CPUs

    def cpu_sets(self, ranks):
        sets = []
        for r in ranks:
            try:
                cpus = parse_list(r["cpus"])
            except ValueError:
                self.say("json", f"rank {r['rank']}: cpus {r['cpus']!r}")
                return None
            outside = cpus - self.request.cpus
            if outside:
                self.say("allowed CPUs", f"rank {r['rank']} has "
                         f"{sorted(outside)}, which are not allowed")
            if not cpus:
                self.say("allowed CPUs", f"rank {r['rank']} has no CPU")
            sets.append(cpus)
        return sets

    def cpu_quotas(self, plan, sets, lists):
        request = self.request
        shared = request.split == "shared"
        self.expect("shared", "shared", plan["shared"], shared)
        for r, cpus, gpus in zip(plan["ranks"], sets, lists):
            self.expect("cores", f"rank {r['rank']}: cores", r["cores"],
                        sum(bool(c & cpus) for c in request.cores))
            if shared:
                self.expect("shared", f"rank {r['rank']}: CPUs",
                            sorted(cpus), sorted(request.shared_cpus(gpus)))
        if shared:
            return
        for i, one in enumerate(sets):
            for j in range(i):
                if one & sets[j]:
                    self.say("overlap", f"ranks {j} and {i} share "
                             f"{sorted(one & sets[j])}")
        for unit in request.units:
            if any(unit & one and not unit <= one for one in sets):
                self.say("whole cores", f"the core with the PUs "
                         f"{sorted(unit)} is split")
        small, more = request.unit_shares()
        self.expect("CPU quota", f"{request.split}s a rank, sorted",
                    sorted(sum(bool(u & one) for u in request.units)
                           for one in sets),
                    [small] * (request.n - more) + [small + 1] * more)

    # --- what the plan says of itself, and whether it is the best

    def own_words(self, plan, bound):
        request, topo = self.request, self.topo
        for r, (gpus, cpus) in zip(plan["ranks"], bound):
            what = f"rank {r['rank']}: "
            self.expect("rank d1", what + "d1", r["d1"],
                        request.rank_d1(gpus, cpus))
            self.expect("rank numa", what + "numa", r["numa"],
                        sorted(topo.numa_of_cpus(cpus)))
            near = frozenset().union(*map(topo.numa_of_gpu, gpus))
            self.expect("rank numa", what + "gpu_numa", r["gpu_numa"],
                        sorted(near))
        cost = request.cost(bound)
        for name, value in zip(("d1", "d2", "numa"), cost):
            self.expect("total " + name, name, plan[name], value)
        return cost

    def best(self, plan, cost):
        if not self.request.gpus:
            return
        if self.request.n > MOST_RANKS or len(self.request.gpus) > MOST_GPUS:
            return
        best = self.request.optimum()
        for name, got, want in zip(("D1", "D2", "U"), cost, best):
            if got < want:
                self.say("oracle", f"{name} {cost} is below the optimum "
                         f"{best}: the oracle or the plan's check is wrong")
                return
            if got > want:
                self.say("optimum " + name, f"(D1, D2, U) is {cost}, and "
                         f"{best} is possible")
                return
        self.expect("optimal", "optimal", plan["optimal"], True)

    def numbering(self, lists, sets):
        """Ranks follow the order of their GPUs, then that of their cores."""
        place = {g.index: i for i, g in enumerate(
            self.request.topo.gpu_order(self.request.gpus))}
        units = self.request.units
        first = [next((i for i, u in enumerate(units) if u & one), -1)
                 for one in sets]
        keys = [min((place[g.index] for g in one), default=0)
                for one in lists]
        far = [[sum(self.request.unit_distance(u, g) for g in one)
                for u in units] for one in lists]
        for r in range(1, len(lists)):
            if keys[r] < keys[r - 1]:
                self.say("numbering", f"rank {r}'s first GPU stands before "
                         f"rank {r - 1}'s in the tree")
            elif (far[r] == far[r - 1] and first[r] < first[r - 1]
                  and self.request.split != "shared"):
                # The two could change CPUs for nothing.
                self.say("numbering", f"rank {r}'s cores are before rank "
                         f"{r - 1}'s, and their GPUs are equally near")
        if self.request.gpus or self.request.split == "shared":
            return
        joined = [i for one in sets for i, u in enumerate(units) if u & one]
        self.expect("numbering", "without GPUs, the cores in order of the "
                    "ranks", joined, list(range(len(units))))

    # --- policies

    def policy(self, plan, bound, rc):
        refused = [bool(self.request.refused(*one)) for one in bound]
        for r, want in zip(plan["ranks"], refused):
            got = r["refused"] is not None
            if got != want or r["refused"] == "":
                self.say("policy", f"rank {r['rank']} is "
                         f"{'' if got else 'not '}refused "
                         f"({r['refused']!r}), got NUMA nodes "
                         f"{sorted(self.request.places(*bound[r['rank']]))}")
        self.expect("exit code", "exit code", rc, int(any(refused)))

    def unbound(self, plan, lists, rc):
        """Policy none: shares in the order given, and no CPU is bound."""
        order = [g for one in lists for g in one]
        if len(self.request.gpus) < self.request.n:
            order = [g for i, g in enumerate(order)
                     if i == 0 or g is not order[i - 1]]
        self.expect("given order", "GPUs in order of the ranks",
                    [g.index for g in order],
                    [g.index for g in self.request.gpus])
        for r in plan["ranks"]:
            if parse_list(r["cpus"]) not in (frozenset(), self.request.cpus):
                self.say("given order", f"rank {r['rank']} is bound to "
                         f"{r['cpus']}")
            if r["refused"] is not None:
                self.say("policy", f"rank {r['rank']} is refused")
        self.expect("exit code", "exit code", rc, 0)


def check(request, text, rc, search=True):
    """search: whether the optimum is looked for, which large nodes forbid."""
    c = Checker(request)
    plan = c.well_formed(text)
    if plan is None:
        return c.problems + [("exit code", f"exit code {rc}")] * (rc > 1)
    c.devices(plan)
    lists = c.gpu_lists(plan["ranks"])
    if lists is None:
        return c.problems
    c.gpu_quotas(lists)
    if not c.bound:
        c.unbound(plan, lists, rc)
        return c.problems
    sets = c.cpu_sets(plan["ranks"])
    if sets is None:
        return c.problems
    c.cpu_quotas(plan, sets, lists)
    legal = not c.problems
    bound = list(zip(lists, sets))
    cost = c.own_words(plan, bound)
    c.policy(plan, bound, rc)
    # Only of a plan that keeps the rules can it be said how good it is.
    if legal:
        if search:
            c.best(plan, cost)
        c.numbering(lists, sets)
    return c.problems
