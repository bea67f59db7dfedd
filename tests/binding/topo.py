# SPDX-License-Identifier: Apache-2.0
"""A saved topology, read without hwloc, and the distances on it.

For the tests of the binding plan only. Shares no code with the product and
none with hwloc: the XML is walked as it stands, disallowed PUs included, so a
mistake in the product's use of hwloc cannot hide here.
"""
import re
import xml.etree.ElementTree as ET

IO_TYPES = ("Bridge", "PCIDev", "OSDev")
VENDORS = {0x10de: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel"}
COMPUTE = ("cuda", "nvml", "rsmi", "opencl", "ze")
OSDEV_GPU, OSDEV_COPROC = "1", "5"
BANDWIDTH, HETEROGENEOUS = 8, 16        # bits of a distance matrix's kind


def parse_mask(text):
    """hwloc's bitmap text: 32-bit words, the highest first, empty is 0."""
    value = 0
    for word in (text or "0x0").split(","):
        if "f..." in word:
            raise ValueError(f"an infinite set: {text}")
        value = value << 32 | (int(word, 16) if word else 0)
    return frozenset(i for i in range(value.bit_length()) if value >> i & 1)


def parse_list(text):
    """hwloc's list text "0-3,8" as a set."""
    found = set()
    for part in filter(None, (text or "").split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def format_list(numbers):
    runs = []
    for i in sorted(numbers):
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


class Obj:
    """One object; io: it is a bridge or a device."""

    def __init__(self, element, parent):
        self.attr = element.attrib
        self.type = element.get("type")
        self.io = self.type in IO_TYPES
        self.parent = parent
        self.os_index = int(element.get("os_index", -1))
        self.cpuset = None if self.io else parse_mask(element.get("cpuset"))
        self.children = [Obj(c, self) for c in element.findall("object")]

    def walk(self):
        """This object and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def chain(self):
        """This object and its ancestors up to the root."""
        obj = self
        while obj:
            yield obj
            obj = obj.parent

    def ancestor(self, kind):
        return next((o for o in self.chain() if o.type == kind), None)


def bus_key(bus):
    return tuple(int(x, 16) for x in re.split("[:.]", bus))


def is_gpu(obj):
    """Display class, a vendor of GPUs, and a sign that it computes."""
    if obj.type != "PCIDev":
        return False
    m = re.match(r"([0-9a-f]{4}) \[([0-9a-f]{4}):", obj.attr["pci_type"])
    cls, vendor = int(m[1], 16), int(m[2], 16)
    if cls >> 8 != 0x03 or vendor not in VENDORS:
        return False
    if cls == 0x0302:
        return True
    for dev in obj.children:
        name = re.match("[a-z]+", dev.attr.get("name", "") + " ")
        name = name[0] if name else ""
        if (dev.attr.get("osdev_type") in (OSDEV_GPU, OSDEV_COPROC)
                and name in COMPUTE):
            return True
        if (VENDORS[vendor] == "AMD" and cls == 0x0380
                and dev.attr.get("name", "").startswith("renderD")):
            return True
    return False


class Gpu:
    """A GPU: index in bus order, position in tree order, locality."""

    def __init__(self, obj, position):
        self.obj = obj
        self.bus = obj.attr["pci_busid"]
        self.pos = position
        self.index = None
        self.local = next(o for o in obj.chain() if not o.io)


class Topology:
    def __init__(self, path):
        doc = ET.parse(path).getroot()
        self.root = Obj(doc.find("object"), None)
        self.objs = list(self.root.walk())
        self.by_gp = {o.attr.get("gp_index"): o for o in self.objs}
        self.pus = [o for o in self.objs if o.type == "PU"]
        self.nodes = [o for o in self.objs if o.type == "NUMANode"
                      and o.cpuset and o.attr.get("subtype") != "GPUMemory"]
        allowed = self.root.attr.get("allowed_cpuset")
        self.allowed = (parse_mask(allowed) if allowed
                        else self.root.cpuset)
        self.allowed &= frozenset(p.os_index for p in self.pus)
        found = [o for o in self.objs if is_gpu(o)]
        self.gpus = sorted((Gpu(o, i) for i, o in enumerate(found)),
                           key=lambda g: bus_key(g.bus))
        for i, gpu in enumerate(self.gpus):
            gpu.index = i
        self.matrices = [self._gpu_matrix(e) for e in doc
                         if e.tag in ("distances2", "distances2hetero")
                         and self._is_link_matrix(e)]
        # Cores in logical order: all PUs, whether allowed or not. A PU that
        # no core holds stands for one.
        cores = {}
        for pu in self.pus:
            cores.setdefault(id(pu.ancestor("Core") or pu), []).append(
                pu.os_index)
        self.cores = [frozenset(c) for c in cores.values()]
        self._distance = {}

    # --- CPUs and GPUs

    def distance(self, pu, gpu):
        """Growths of the cpuset from the GPU's locality up to the PU."""
        key = (pu, gpu.index)
        if key not in self._distance:
            seen = gpu.local.cpuset
            growths = 0
            for obj in gpu.local.chain():
                # A NUMA node is a side branch; as a locality it has the
                # parent's place, and only its own set is looked at.
                if obj.cpuset > seen:
                    growths += 1
                    seen = obj.cpuset
                if pu in seen:
                    break
            else:
                raise ValueError(f"PU {pu} is not below the root")
            self._distance[key] = growths
        return self._distance[key]

    def numa_of_cpus(self, cpus):
        """OS indices of the counted NUMA nodes that some CPUs touch."""
        return frozenset(n.os_index for n in self.nodes if n.cpuset & cpus)

    def numa_of_gpu(self, gpu):
        return self.numa_of_cpus(gpu.local.cpuset)

    # --- GPUs among each other

    @staticmethod
    def _is_link_matrix(element):
        kind = int(element.get("kind"))
        return bool(kind & BANDWIDTH and (
            element.get("name") == "NVLinkBandwidth" or kind & HETEROGENEOUS))

    def _gpu_matrix(self, element):
        """{(g, h): bandwidth} of two GPUs' indices, g < h."""
        names = " ".join(e.text for e in element.findall("indexes")).split()
        values = [int(v) for e in element.findall("u64values")
                  for v in e.text.split()]
        owner = {id(g.obj): g.index for g in self.gpus}
        rows = []
        for name in names:
            kind, _, number = name.rpartition(":")
            obj = self._matrix_object(element, kind, number)
            # A matrix may name a GPU by an OS device below it.
            rows.append(next((owner[id(o)] for o in obj.chain()
                              if id(o) in owner), None) if obj else None)
        found = {}
        for i, g in enumerate(rows):
            for j, h in enumerate(rows):
                if g is None or h is None or g == h:
                    continue
                pair = (min(g, h), max(g, h))
                value = values[i * len(rows) + j]
                found[pair] = max(found.get(pair, 0), value)
        return found

    def _matrix_object(self, element, kind, number):
        if element.get("indexing") == "os":
            kind = kind or element.get("type")
            return next((o for o in self.objs if o.type == kind
                         and o.os_index == int(number)), None)
        return self.by_gp.get(number)

    def linked(self, g, h):
        """Whether a bandwidth matrix gives g and h a direct link."""
        pair = (min(g.index, h.index), max(g.index, h.index))
        for matrix in self.matrices:
            value = matrix.get(pair, 0)
            if value == 0:
                continue
            if value > min(matrix.values()) or len(set(matrix.values())) == 1:
                return True
        return False

    def gpu_distance(self, g, h):
        """0 over a link; else edges up to the common ancestor, both sides."""
        if g.index == h.index or self.linked(g, h):
            return 0
        above = {id(o): i for i, o in enumerate(g.obj.chain())}
        for i, obj in enumerate(h.obj.chain()):
            if id(obj) in above:
                return above[id(obj)] + i
        raise ValueError("two GPUs with no common ancestor")

    def gpu_order(self, gpus):
        """The GPUs in the order that ranks are numbered by: tree order, with
        all that links join put where the first of them stands."""
        rest = sorted(gpus, key=lambda g: g.pos)
        order = []
        while rest:
            joined = [rest.pop(0)]
            for member in joined:       # grows while it is walked
                near = [g for g in rest if self.linked(member, g)]
                joined += near
                rest = [g for g in rest if g not in near]
            order += sorted(joined, key=lambda g: g.pos)
        return order
