# SPDX-License-Identifier: Apache-2.0
"""Random nodes and requests for the binding plan's tests, by seed.

1-4 packages, 1-4 NUMA nodes, 1-8 cores on each, 1-2 PUs a core, 0-7 GPUs
anywhere at or above an L3, other devices between them, sometimes links. Most
are small: what the exhaustive search needs grows fast with the cores.
"""
from fixture_xml import (AMD, ASPEED, INTEL, MELLANOX, NVIDIA, Fixture, Node)
from topo import format_list


def part_of(rng, pus):
    """A part of the PUs, more often a large one."""
    least = rng.choice((1, 1 + len(pus) // 2, 1 + len(pus) // 2))
    return rng.sample(pus, rng.randint(least, len(pus)))


def cache():
    return Node("L3Cache", cache_size=1 << 24, depth=3, cache_linesize=64,
                cache_associativity=16, cache_type=0)


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.fix = Fixture()
        self.domain = 0

    def chance(self, p):
        return self.rng.random() < p

    # --- CPUs and memory

    def leaf_plan(self):
        """[(package, NUMA node, cores)] of each L3, from the left."""
        rng = self.rng
        packages = rng.choice((1, 1, 2, 2, 2, 3, 4))
        # Either one NUMA node for all, or at least one for each package.
        nodes = (1 if self.chance(0.1) else
                 min(4, packages + rng.choice((0, 0, 1, 2))))
        most = rng.choice((2, 3, 4, 6, 8, 8))
        if nodes > 2 and self.chance(0.7):
            most = min(most, 4)
        if nodes < packages:
            return [(p, 0, rng.randint(1, most)) for p in range(packages)]
        home = sorted(list(range(packages))
                      + [rng.randrange(packages)
                         for _ in range(nodes - packages)])
        leaves = []
        for node, package in enumerate(home):
            cores = rng.randint(1, most)
            if cores > 1 and self.chance(0.25):     # two L3 on the node
                first = rng.randint(1, cores - 1)
                leaves += [(package, node, first),
                           (package, node, cores - first)]
            else:
                leaves.append((package, node, cores))
        return leaves

    def cpus(self):
        """Packages, groups, L3 and cores. A NUMA node hangs on the smallest
        object that has all its cores, a group where two L3 share one."""
        leaves = self.leaf_plan()
        total = sum(c for _, _, c in leaves)
        threads = [self.rng.choice((1, 1, 2)) for _ in leaves]
        if self.chance(0.5):
            threads = [threads[0]] * len(leaves)
        apart = self.chance(0.5)        # second PUs numbered after all first
        numbers = self.rng.sample(range(8), 4)      # NUMA numbers with gaps
        numbers.sort()
        root, first = self.fix.root, 0
        one_node = len({n for _, n, _ in leaves}) == 1
        many = len({p for p, _, _ in leaves}) > 1
        if one_node and many:
            root.numa(numbers[0])
        core = pu = 0
        packages, groups, with_memory = {}, {}, set()
        for (p, n, cores), width in zip(leaves, threads):
            if p not in packages:
                packages[p] = root.add(Node("Package", os_index=p))
            place = packages[p]
            alone = len({m for q, m, _ in leaves if q == p}) == 1
            if not alone and sum(m == n for _, m, _ in leaves) > 1:
                if n not in groups:
                    groups[n] = place.add(Node("Group", kind=1001,
                                               subkind=0))
                place = groups[n]
            elif not alone:
                place = place.add(cache())
            if n not in with_memory and not (one_node and many):
                with_memory.add(n)
                place.numa(numbers[n])
            if place.kind != "L3Cache":
                place = place.add(cache())
            for _ in range(cores):
                if apart:
                    pus = [core + t * total for t in range(width)]
                else:
                    pus = [pu + t for t in range(width)]
                place.core(core, pus)
                core, pu = core + 1, pu + width
        pus = sorted(root.cpus())
        if self.chance(0.3):
            self.fix.allowed = set(part_of(self.rng, pus))

    # --- devices

    def free_bus(self):
        """Devices take random buses of random domains, so that bus order
        and tree order differ; none twice."""
        while True:
            domain = self.rng.choice((0, 0, 0, 1, 0x10))
            bus = f"{domain:04x}:{self.rng.randint(1, 255):02x}"
            if bus not in self.taken:
                self.taken.add(bus)
                return bus

    def place(self):
        """Where the next device goes: below a host bridge, new or not, and
        a random number of bridges."""
        rng = self.rng
        if self.spots and self.chance(0.5):
            spot = rng.choice(self.spots)
        else:
            spot = rng.choice(self.homes).host_bridge(self.free_bus())
            self.spots.append(spot)
        for _ in range(rng.choice((0, 1, 1, 2))):
            spot = spot.bridge(self.free_bus() + ":00.0")
            self.spots.append(spot)
        return spot

    def gpu(self, number, link):
        """One GPU; its OS device, if any."""
        bus = self.free_bus() + ":00.0"
        kind = "nv" if link else self.rng.choice(
            ("nv", "nv", "nv", "bare", "vga", "amd", "render", "intel"))
        place = self.place()
        if kind == "nv":
            dev = place.pci(bus, "0302", NVIDIA, ("coproc", f"cuda{number}"),
                            ("gpu", f"nvml{number}"))
            return dev.io[-1]
        if kind == "bare":
            place.pci(bus, "0302", NVIDIA)
        elif kind == "vga":
            place.pci(bus, "0300", NVIDIA, ("coproc", f"opencl0d{number}"))
        elif kind == "amd":
            place.pci(bus, "0380", AMD, ("gpu", f"rsmi{number}"))
        elif kind == "render":
            place.pci(bus, "0380", AMD, ("gpu", f"card{number}"),
                      ("gpu", f"renderD{128 + number}"))
        else:
            place.pci(bus, "0380", INTEL, ("coproc", f"ze{number}"))
        return None

    def other(self, number):
        bus = self.free_bus() + ":00.0"
        kind = self.rng.choice(("nic", "nic", "aspeed", "vga", "amd"))
        place = self.place()
        if kind == "nic":
            place.pci(bus, "0207", MELLANOX, ("net", f"ib{number}"),
                      ("fabric", f"mlx5_{number}"))
        elif kind == "aspeed":
            place.pci(bus, "0300", ASPEED, ("gpu", f"card9{number}"))
        elif kind == "vga":
            place.pci(bus, "0300", INTEL, ("gpu", f"renderD19{number}"))
        else:
            place.pci(bus, "0380", AMD)

    def devices(self):
        rng = self.rng
        self.homes = [o for o in self.fix.root.below() if o.kind in
                      ("Package", "Group", "L3Cache")]
        if self.chance(0.2):
            self.homes.append(self.fix.root)
        if self.chance(0.1):    # a socket that has lost its CPUs
            index = 1 + max(o.attr["os_index"] for o in self.homes
                            if o.kind == "Package")
            empty = self.fix.root.add(Node("Package", os_index=index))
            empty.numa(8 + index)
            most = max(self.fix.root.cpus()) + 1
            lost = range(most, most + 2)
            self.fix.lost[id(empty)] = lost
            self.fix.lost[id(empty.memory[0])] = lost
            self.homes.append(empty)
        self.spots, self.taken = [], set()
        count = rng.choice((0, 1, 2, 2, 3, 3, 4, 4, 4, 5, 6, 7))
        link = count > 1 and self.chance(0.3)
        gpus = []
        for i in range(count):
            if self.chance(0.2):
                self.other(i)
            gpus.append(self.gpu(i, link))
        if link:
            self.links(gpus)

    def links(self, gpus):
        rng = self.rng
        some = gpus if self.chance(0.7) else rng.sample(
            gpus, rng.randint(2, len(gpus)))
        values = rng.choice(((0, 0, 25000), (0, 25000, 50000),
                             (25000, 50000), (25000,)))
        pairs = {(i, j): rng.choice(values)
                 for i in range(len(some)) for j in range(i)}
        objs = list(some)
        name = "NVLinkBandwidth"
        if self.chance(0.3):    # with a socket, the types differ
            package = next(o for o in self.homes if o.kind == "Package")
            pairs.update({(i, len(objs)): 75000 for i in range(len(objs))})
            objs.append(package)
            if self.chance(0.3):
                name = "Fabric"
        self.fix.links(objs, pairs, name)


def random_node(rng):
    maker = Maker(rng)
    maker.cpus()
    maker.devices()
    return maker.fix


def gpu_argument(rng, gpus):
    """A list of GPUs as --gpus takes it: numbers, ranges or bus ids."""
    style = rng.choice(("index", "range", "bus"))
    if style == "bus":
        return ",".join(g.bus for g in gpus)
    if style == "range":
        # Runs that rise as written: the order stays the one chosen.
        parts = []
        for g in gpus:
            if parts and parts[-1][1] == g.index - 1:
                parts[-1][1] = g.index
            else:
                parts.append([g.index, g.index])
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
    return ",".join(str(g.index) for g in gpus)


def random_request(rng, topo):
    """Keywords of a Request, and the arguments that say the same."""
    args, gpus, cpus = [], list(topo.gpus), None
    if gpus and rng.random() < 0.4:
        if rng.random() < 0.15:
            gpus = []
            args += ["--gpus", "none"]
        else:
            gpus = rng.sample(gpus, rng.randint(1, len(gpus)))
            if rng.random() < 0.5:
                gpus.sort(key=lambda g: g.index)
            args += ["--gpus", gpu_argument(rng, gpus)]
    if rng.random() < 0.3:
        # Some that are not allowed may be asked for, but not only those.
        pus = sorted(p.os_index for p in topo.pus)
        cpus = frozenset(part_of(rng, pus)
                         + [rng.choice(sorted(topo.allowed))])
        args += ["--cpus", format_list(cpus)]
    n = max(1, len(gpus))
    if rng.random() < 0.7:
        n = rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 12, 16))
        args += ["--ntasks", str(n)]
    policy = rng.choice(("best-effort",) * 5 + ("restricted",) * 2
                        + ("single-numa-node",) * 2 + ("none",))
    if policy != "best-effort" or rng.random() < 0.3:
        args += ["--policy", policy]
    return dict(ntasks=n, gpus=gpus, cpus=cpus, policy=policy), args
