# SPDX-License-Identifier: Apache-2.0
"""Writes topologies in hwloc's XML (version 2) from a few calls.

A normal object's CPUs and NUMA nodes follow from what is below it, so that a
fixture cannot contradict itself.
"""
import itertools
from xml.sax.saxutils import quoteattr

NVIDIA, AMD, INTEL, ASPEED, MELLANOX, PLX = (
    "10de", "1002", "8086", "1a03", "15b3", "10b5")
OSDEV = {"block": 0, "gpu": 1, "net": 2, "fabric": 3, "coproc": 5}


def mask(numbers):
    """hwloc's bitmap text."""
    value = sum(1 << i for i in numbers)
    words = []
    while value or not words:
        words.insert(0, f"0x{value & 0xffffffff:08x}")
        value >>= 32
    return ",".join(words)


class Node:
    """An object: normal ones, memory and I/O below it are kept apart."""

    def __init__(self, type_, **attr):
        self.kind = type_
        self.attr = attr
        self.parent = None
        self.normal, self.memory, self.io = [], [], []
        self.gp = None

    def add(self, child):
        where = {"NUMANode": self.memory, "Bridge": self.io,
                 "PCIDev": self.io, "OSDev": self.io}
        where.get(child.kind, self.normal).append(child)
        child.parent = self
        return child

    def below(self):
        yield self
        for child in self.memory + self.normal + self.io:
            yield from child.below()

    def cpus(self):
        return {o.attr["os_index"] for o in self.below() if o.kind == "PU"}

    # --- what stands below a normal object

    def numa(self, os_index, gb=16, **attr):
        return self.add(Node("NUMANode", os_index=os_index,
                             local_memory=gb << 30, **attr))

    def core(self, os_index, pus):
        core = self.add(Node("Core", os_index=os_index))
        for pu in pus:
            core.add(Node("PU", os_index=pu))
        return core

    # --- I/O

    def host_bridge(self, bus):
        domain, number = bus.split(":")[:2]
        return self.add(Node("Bridge", bridge_type="0-1", depth=0,
                             bridge_pci=f"{domain}:[{number}-{number}]"))

    def bridge(self, bus):
        depth, obj = 1, self
        while obj.attr.get("bridge_type") == "1-1":
            depth, obj = depth + 1, obj.parent
        domain, number = bus.split(":")[:2]
        return self.add(Node(
            "Bridge", bridge_type="1-1", depth=depth,
            bridge_pci=f"{domain}:[{number}-{number}]", pci_busid=bus,
            pci_type=f"0604 [{PLX}:8796] [0000:0000] 00",
            pci_link_speed="15.753846"))

    def pci(self, bus, cls, vendor, *osdevs, device="0001"):
        """osdevs: (type in OSDEV, name)."""
        dev = self.add(Node(
            "PCIDev", pci_busid=bus,
            pci_type=f"{cls} [{vendor}:{device}] [0000:0000] 00",
            pci_link_speed="15.753846"))
        for kind, name in osdevs:
            dev.add(Node("OSDev", name=name, osdev_type=OSDEV[kind]))
        return dev

    def find(self, name):
        return next(o for o in self.below() if o.attr.get("name") == name)


class Fixture:
    def __init__(self):
        self.root = Node("Machine", os_index=0)
        self.allowed = None
        self.matrices = []
        # CPUs that stand in an object's set though it has lost its PUs.
        self.lost = {}

    def links(self, objs, values, name="NVLinkBandwidth"):
        """A bandwidth matrix; values by pairs of positions, else 0."""
        self.matrices.append((objs, values, name))

    def _cpus(self, obj):
        if obj.kind != "NUMANode":
            return obj.cpus()
        return obj.attr.get("cpus", obj.parent.cpus())

    def _nodes(self, obj):
        """NUMA nodes below an object, or around it where there are none."""
        if obj.kind == "NUMANode":
            return {obj.attr["os_index"]}
        found = {o.attr["os_index"] for o in obj.below()
                 if o.kind == "NUMANode"}
        while obj and not found:
            obj = obj.parent
            found = {o.attr["os_index"] for o in obj.memory} if obj else set()
        return found

    def _open(self, obj):
        attr = {"type": obj.kind}
        if "os_index" in obj.attr:
            attr["os_index"] = obj.attr["os_index"]
        if obj.kind not in ("Bridge", "PCIDev", "OSDev"):
            cpus = mask(self._cpus(obj))
            attr["cpuset"] = attr["complete_cpuset"] = cpus
            lost = self.lost.get(id(obj))
            if lost:
                attr["complete_cpuset"] = mask(self._cpus(obj) | set(lost))
            if obj is self.root:
                attr["allowed_cpuset"] = (cpus if self.allowed is None
                                          else mask(self.allowed))
            nodes = mask(self._nodes(obj))
            attr["nodeset"] = attr["complete_nodeset"] = nodes
            if obj is self.root:
                attr["allowed_nodeset"] = nodes
        attr.update((k, v) for k, v in obj.attr.items()
                    if k not in ("os_index", "cpus"))
        attr["gp_index"] = obj.gp
        return " ".join(f"{k}={quoteattr(str(v))}" for k, v in attr.items())

    def _object(self, obj, indent, out):
        children = obj.memory + obj.normal + obj.io
        pad = " " * indent
        out.append(f"{pad}<object {self._open(obj)}"
                   + (">" if children else "/>"))
        for child in children:
            self._object(child, indent + 1, out)
        if children:
            out.append(f"{pad}</object>")

    @staticmethod
    def _rows(tag, words, out):
        """Numbers in lines, each with its length in characters."""
        for i in range(0, len(words), 10):
            text = " ".join(words[i:i + 10]) + " "
            out.append(f'  <{tag} length="{len(text)}">{text}</{tag}>')

    def _matrix(self, objs, values, name, out):
        n = len(objs)
        kinds = {o.kind for o in objs}
        one = len(kinds) == 1
        # From the OS, bandwidth; and whether the objects differ in type.
        kind = 1 + 8 + (0 if one else 16)
        head = (f'distances2 type="{kinds.pop()}" indexing="gp"' if one
                else "distances2hetero")
        tag = head.split()[0]
        out.append(f' <{head} nbobjs="{n}" kind="{kind}" name="{name}">')
        self._rows("indexes", [str(o.gp) if one else f"{o.kind}:{o.gp}"
                               for o in objs], out)
        flat = []
        for i, j in itertools.product(range(n), repeat=2):
            value = values.get((i, j), values.get((j, i), 0))
            flat.append("1000000" if i == j else str(value))
        self._rows("u64values", flat, out)
        out.append(f" </{tag}>")

    def xml(self):
        for i, obj in enumerate(self.root.below(), 1):
            obj.gp = i
        out = ['<?xml version="1.0" encoding="UTF-8"?>',
               '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
               '<topology version="2.0">']
        self._object(self.root, 1, out)
        for objs, values, name in self.matrices:
            self._matrix(objs, values, name, out)
        # Says that the CPU and memory sets of the file are real.
        for name in ("discovery.pu", "discovery.numa",
                     "discovery.disallowed_pu", "custom.exported_support"):
            out.append(f' <support name="{name}"/>')
        return "\n".join(out + ["</topology>", ""])
