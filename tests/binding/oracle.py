# SPDX-License-Identifier: Apache-2.0
"""What the best plan of a request costs, by trying all of them.

A plan is judged by (D1, D2, U), compared in this order:
  D1  distance of each rank's cores to each of its GPUs, summed
  D2  distance of the GPUs of one rank among each other, summed
  U   NUMA nodes that each rank's CPUs touch, summed over the ranks
The search below is exhaustive but for two steps that change no result, which
are argued where they stand. It knows no heuristic and no bound.
"""
import functools
import itertools

UNKNOWN_PLACE = -1      # where a GPU is that is near no NUMA node with CPUs


class Request:
    """Ranks, GPUs in the order given, allowed CPUs, on one topology."""

    def __init__(self, topo, ntasks, gpus=None, cpus=None,
                 policy="best-effort"):
        self.topo = topo
        self.n = ntasks
        self.gpus = list(topo.gpus if gpus is None else gpus)
        self.cpus = topo.allowed if cpus is None else topo.allowed & cpus
        self.policy = policy
        self.cores = [c & self.cpus for c in topo.cores if c & self.cpus]
        if len(self.cores) >= ntasks:
            self.split, self.units = "core", self.cores
        elif len(self.cpus) >= ntasks:
            # PUs in the logical order of their cores.
            self.split = "pu"
            self.units = [frozenset([p]) for c in self.cores
                          for p in sorted(c)]
        else:
            self.split, self.units = "shared", self.cores

    # --- shares

    def gpu_shares(self):
        """(GPUs of a rank, how many ranks have one more)."""
        g = len(self.gpus)
        return divmod(g, self.n) if g >= self.n else (min(g, 1), 0)

    def unit_shares(self):
        """(units of a rank, how many ranks have one more)."""
        return divmod(len(self.units), self.n)

    def shared_cpus(self, gpus):
        """The CPUs of a rank where there are fewer CPUs than ranks."""
        nodes = {i for g in gpus for i in self.topo.numa_of_gpu(g)}
        near = frozenset().union(*(n.cpuset for n in self.topo.nodes
                                   if n.os_index in nodes))
        return near & self.cpus or self.cpus

    # --- the cost of a plan: [(GPUs, CPUs)], one a rank

    def unit_distance(self, unit, gpu):
        return self.topo.distance(min(unit), gpu)

    def rank_d1(self, gpus, cpus):
        return sum(self.unit_distance(u, g) for u in self.units if u & cpus
                   for g in gpus)

    def group_d2(self, gpus):
        return sum(self.topo.gpu_distance(g, h)
                   for g, h in itertools.combinations(gpus, 2))

    def cost(self, plan):
        return (sum(self.rank_d1(g, c) for g, c in plan),
                sum(self.group_d2(g) for g, _ in plan),
                sum(len(self.topo.numa_of_cpus(c)) for _, c in plan))

    # --- all groups of GPUs

    def groupings(self):
        """Every way to give GPUs to ranks, ranks not told apart."""
        g, n = len(self.gpus), self.n
        if g == 0:
            yield [()] * n
        elif g < n:
            each, more = divmod(n, g)
            for extra in itertools.combinations(range(g), more):
                yield [(gpu,) for i, gpu in enumerate(self.gpus)
                       for _ in range(each + (i in extra))]
        else:
            yield from self._partitions(0, [])

    def _partitions(self, i, groups):
        """Set partitions of the GPUs into n groups, sizes even: each GPU
        joins a group that is there or opens the next one."""
        small, more = self.gpu_shares()
        if i == len(self.gpus):
            if sorted(map(len, groups)) == \
                    [small] * (self.n - more) + [small + 1] * more:
                yield [tuple(x) for x in groups]
            return
        for group in groups:
            if len(group) < small + (more > 0):
                group.append(self.gpus[i])
                yield from self._partitions(i + 1, groups)
                group.pop()
        if len(groups) < self.n:
            groups.append([self.gpus[i]])
            yield from self._partitions(i + 1, groups)
            groups.pop()

    # --- the optimum

    def optimum(self):
        """The smallest (D1, D2, U) of any plan."""
        best = None
        solver = Solver(self)
        for groups in self.groupings():
            if self.split == "shared":
                cost = self.cost([(g, self.shared_cpus(g)) for g in groups])
            else:
                d1, u = solver.best(groups)
                cost = (d1, sum(map(self.group_d2, groups)), u)
            # D2 is fixed by the groups: the least (D1, U) of these groups is
            # also the least (D1, D2, U) of them.
            best = cost if best is None else min(best, cost)
        return best

    # --- policies

    def places_of_gpu(self, gpu):
        return self.topo.numa_of_gpu(gpu) or frozenset([UNKNOWN_PLACE])

    def places(self, gpus, cpus):
        """All NUMA nodes that a rank's CPUs and GPUs are on."""
        return self.topo.numa_of_cpus(cpus).union(
            *(self.places_of_gpu(g) for g in gpus))

    @functools.lru_cache(maxsize=None)
    def needed(self, gpus, units):
        """The fewest NUMA nodes of the whole node, with all of it free, that
        have so many GPUs and cores (or PUs, where those are split)."""
        topo = self.topo
        whole = (topo.cores if self.split != "pu" else
                 [frozenset([p.os_index]) for p in topo.pus])
        cpu_places = [topo.numa_of_cpus(u) for u in whole]
        gpu_places = [self.places_of_gpu(g) for g in topo.gpus]
        everything = sorted(frozenset().union(*cpu_places, *gpu_places))
        for size in range(len(everything) + 1):
            for some in map(frozenset,
                            itertools.combinations(everything, size)):
                if (sum(p <= some for p in gpu_places) >= gpus
                        and sum(p <= some for p in cpu_places) >= units):
                    return size
        raise ValueError("more than the whole node has")

    def refused(self, gpus, cpus):
        """Whether the policy refuses a rank that has these."""
        got = len(self.places(gpus, cpus))
        if self.policy == "restricted":
            units = sum(bool(u & cpus) for u in self.units)
            return got > self.needed(len(gpus), units)
        return self.policy == "single-numa-node" and got > 1


class Solver:
    """The least (D1, U) over all ways to hand units to given groups.

    Units with equal distances to all GPUs and on the same NUMA nodes differ
    in nothing that D1 or U sees. So it is enough to try, rank by rank, every
    count of units of each such class; the units of all ranks together are
    all units. What the later ranks can reach depends only on what is left to
    them, not on how the earlier ones took it: results are kept by that.
    (D1, U) is added up over the ranks in both places, and the order of pairs
    is kept by adding, so the least of the whole is found part by part.
    """

    def __init__(self, request):
        self.request = request
        classes = {}
        for unit in request.units:
            key = (tuple(request.unit_distance(unit, g)
                         for g in request.gpus),
                   request.topo.numa_of_cpus(unit))
            classes[key] = classes.get(key, 0) + 1
        self.far = [dict(zip((g.index for g in request.gpus), far))
                    for far, _ in classes]
        self.nodes = [nodes for _, nodes in classes]
        self.counts = tuple(classes.values())
        self.small, self.more = request.unit_shares()
        self._known = {}
        self._ways = {}

    def best(self, groups):
        # Of a group, D1 sees the sum of distances from each class; the
        # order of the ranks does not matter as any may have one unit more.
        wants = sorted(tuple(sum(far[g.index] for g in group)
                             for far in self.far) for group in groups)
        return self._rest(tuple(wants), self.counts, self.more)

    def _rest(self, wants, left, more):
        """The least (D1, U) of the ranks `wants` with the units `left`, of
        which `more` ranks have one unit more than the others."""
        if not wants:
            return (0, 0)
        key = (wants, left, more)
        if key not in self._known:
            found = []
            for extra in (0, 1):
                if more - extra < 0 or more - extra > len(wants) - 1:
                    continue
                for taken, after, u in self._take(left, self.small + extra):
                    d1, rest_u = self._rest(wants[1:], after, more - extra)
                    d1 += sum(map(int.__mul__, wants[0], taken))
                    found.append((d1, rest_u + u))
            self._known[key] = min(found)
        return self._known[key]

    def _take(self, left, count):
        """Every (taken, left after, NUMA nodes touched) for `count` units."""
        key = (left, count)
        if key not in self._ways:
            ways = []
            for taken in self._counts(left, count):
                touched = frozenset().union(
                    *(n for n, k in zip(self.nodes, taken) if k))
                after = tuple(map(int.__sub__, left, taken))
                ways.append((taken, after, len(touched)))
            self._ways[key] = ways
        return self._ways[key]

    def _counts(self, left, count):
        if not left:
            if count == 0:
                yield ()
            return
        for k in range(min(left[0], count) + 1):
            for rest in self._counts(left[1:], count - k):
                yield (k,) + rest
