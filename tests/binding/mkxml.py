#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small topologies as hwloc XML, with PCI devices, which lstopo's synthetic
ones lack. `mkxml.py NAME` prints one (`mkxml.py here CPUS`), `mkxml.py` the
names."""
import sys
from xml.sax.saxutils import quoteattr


def bits(members):
    """hwloc's text of a set: words of 32 bits, the highest first."""
    value = sum(1 << m for m in set(members))
    words = []
    while value or not words:
        words.append("0x%08x" % (value & 0xffffffff))
        value >>= 32
    return ",".join(reversed(words))


class Topology:
    """Objects are added below a parent; sets are what the caller says."""

    def __init__(self, pus, nodes, allowed=None):
        self.gp = 0
        self.bus = {}
        self.distances = []
        self.root = self.obj(None, "Machine", os_index=0, pus=pus, nodes=nodes,
                             allowed_cpuset=bits(allowed if allowed is not None
                                                 else pus),
                             allowed_nodeset=bits(nodes))

    def obj(self, parent, type_, pus=None, nodes=None, **attrs):
        self.gp += 1
        if pus is not None:
            attrs["cpuset"] = attrs["complete_cpuset"] = bits(pus)
        if nodes is not None:
            attrs["nodeset"] = attrs["complete_nodeset"] = bits(nodes)
        o = {"type": type_, "attrs": dict(attrs, gp_index=self.gp),
             "children": []}
        if parent:
            parent["children"].append(o)
        return o

    def numa(self, parent, index, pus, subtype=None):
        kw = {"subtype": subtype} if subtype else {}
        return self.obj(parent, "NUMANode", pus, [index], os_index=index,
                        local_memory=1 << 30, **kw)

    def core(self, parent, index, pus, nodes):
        core = self.obj(parent, "Core", pus, nodes, os_index=index)
        for pu in pus:
            self.obj(core, "PU", [pu], nodes, os_index=pu)
        return core

    def bridge(self, parent, bus, domain=0, host=False):
        """A host bridge, or a PCI bridge (a switch's port)."""
        kw = {"bridge_pci": "%04x:[%02x-%02x]" % (domain, bus, bus),
              "bridge_type": "0-1" if host else "1-1", "depth": 0}
        if not host:
            kw.update(pci_busid="%04x:%02x:1f.0" % (domain, bus - 1),
                      pci_type="0604 [8086:2030] [0000:0000] 04",
                      pci_link_speed="0.000000")
        return self.obj(parent, "Bridge", **kw)

    def pci(self, parent, busid, class_="0302", vendor="10de", name="",
            os=()):
        kw = {"name": name} if name else {}
        dev = self.obj(parent, "PCIDev", pci_busid=busid,
                       pci_type="%s [%s:1db8] [0000:0000] a1" % (class_,
                                                                 vendor),
                       pci_link_speed="15.753846", **kw)
        for osname, kind in os:
            o = self.obj(dev, "OSDev", name=osname, osdev_type=kind)
            self.bus[osname] = o["attrs"]["gp_index"]
        return dev

    def links(self, names, matrix):
        """An NVLink matrix between OS devices."""
        n = len(names)
        index = " ".join("OSDev:%d" % self.bus[x] for x in names) + " "
        values = " ".join(str(v) for row in matrix for v in row) + " "
        self.distances.append(
            '  <distances2hetero nbobjs="%d" kind="25" '
            'name="NVLinkBandwidth">\n'
            '    <indexes length="%d">%s</indexes>\n'
            '    <u64values length="%d">%s</u64values>\n'
            '  </distances2hetero>\n' % (n, len(index), index, len(values),
                                         values))

    def text(self):
        out = ['<?xml version="1.0" encoding="UTF-8"?>\n'
               '<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
               '<topology version="2.0">\n']
        self.write(self.root, 1, out)
        out += self.distances
        out.append("</topology>\n")
        return "".join(out)

    def write(self, o, depth, out):
        attrs = "".join(" %s=%s" % (k, quoteattr(str(v)))
                        for k, v in o["attrs"].items())
        pad = "  " * depth
        if not o["children"]:
            out.append('%s<object type="%s"%s/>\n' % (pad, o["type"], attrs))
            return
        out.append('%s<object type="%s"%s>\n' % (pad, o["type"], attrs))
        for child in o["children"]:
            self.write(child, depth + 1, out)
        out.append("%s</object>\n" % pad)


def gpu(t, parent, bus, n, **kw):
    return t.pci(parent, "0000:%02x:00.0" % bus, name="Test GPU",
                 os=[("cuda%d" % n, 5), ("nvml%d" % n, 1)], **kw)


def sockets(numa, cores, smt=1, allowed=None):
    """Packages of one NUMA node each; PUs are numbered thread by thread."""
    total = numa * cores
    every = list(range(total * smt))
    t = Topology(every, range(numa), allowed)
    packages = []
    for i in range(numa):
        mine = [c + th * total for c in range(i * cores, (i + 1) * cores)
                for th in range(smt)]
        p = t.obj(t.root, "Package", mine, [i], os_index=i)
        t.numa(p, i, mine)
        for c in range(i * cores, (i + 1) * cores):
            t.core(p, c, [c + th * total for th in range(smt)], [i])
        packages.append(p)
    return t, packages


def eight():
    """8 GPUs, 2 sockets of 8 cores; two GPUs behind a switch; a NIC each."""
    t, packages = sockets(2, 8)
    for i, p in enumerate(packages):
        for s in range(2):
            first = 0x10 + 0x80 * i + 0x20 * s
            host = t.bridge(p, first, host=True)
            switch = t.bridge(host, first + 1)
            for g in range(2):
                gpu(t, switch, first + 2 + g, 4 * i + 2 * s + g)
        host = t.bridge(p, 0x60 + 0x80 * i, host=True)
        t.pci(host, "0000:%02x:00.0" % (0x60 + 0x80 * i), "0207", "15b3",
              os=[("ib%d" % i, 2), ("mlx5_%d" % i, 3)])
        t.pci(host, "0000:%02x:01.0" % (0x60 + 0x80 * i), "0300", "1a03")
    return t


def sixteen():
    """16 GPUs, 2 sockets of 24 cores; four trees of two switches each."""
    t, packages = sockets(2, 24)
    for n in range(16):
        tree, at = divmod(n, 4)
        if at == 0:
            host = t.bridge(packages[tree // 2], 0x10 + 0x20 * tree, host=True)
        if at % 2 == 0:
            switch = t.bridge(host, 0x11 + 0x20 * tree + 8 * (at // 2))
        gpu(t, switch, 0x12 + 0x20 * tree + 8 * (at // 2) + at % 2, n)
    return t


def eight_numa():
    """8 GPUs at 8 NUMA nodes of 8 cores, in 2 sockets."""
    t = Topology(range(64), range(8))
    for s in range(2):
        p = t.obj(t.root, "Package", range(32 * s, 32 * s + 32),
                  range(4 * s, 4 * s + 4), os_index=s)
        for i in range(4 * s, 4 * s + 4):
            mine = range(8 * i, 8 * i + 8)
            g = t.obj(p, "Group", mine, [i], kind=0, subkind=0)
            t.numa(g, i, mine)
            for c in mine:
                t.core(g, c, [c], [i])
            gpu(t, t.bridge(g, 0x10 + 0x10 * i, host=True), 0x10 + 0x10 * i, i)
    return t


def half_numa():
    """8 GPUs at L3 caches of 8 cores, two of which are a NUMA node."""
    t = Topology(range(64), range(4))
    p = t.obj(t.root, "Package", range(64), range(4), os_index=0)
    for i in range(4):
        mine = range(16 * i, 16 * i + 16)
        g = t.obj(p, "Group", mine, [i], kind=0, subkind=0)
        t.numa(g, i, mine)
        for half in range(2 * i, 2 * i + 2):
            cores = range(8 * half, 8 * half + 8)
            l3 = t.obj(g, "L3Cache", cores, [i], cache_size=1 << 25, depth=3,
                       cache_linesize=64, cache_associativity=16,
                       cache_type=0)
            for c in cores:
                t.core(l3, c, [c], [i])
            bus = 0x10 + 0x10 * half
            gpu(t, t.bridge(l3, bus, host=True), bus, half)
    return t


def four_numa():
    """4 GPUs, one socket of 4 NUMA nodes with 2 cores each."""
    t = Topology(range(8), range(4))
    p = t.obj(t.root, "Package", range(8), range(4), os_index=0)
    for i in range(4):
        mine = [2 * i, 2 * i + 1]
        g = t.obj(p, "Group", mine, [i], kind=0, subkind=0)
        t.numa(g, i, mine)
        for c in mine:
            t.core(g, c, [c], [i])
        # Bus ids fall while NUMA nodes rise.
        host = t.bridge(g, 0xc0 - 0x20 * i, host=True)
        gpu(t, host, 0xc1 - 0x20 * i, i)
    return t


def asymmetric():
    """6 GPUs: 4 at the first socket, 2 at the second; 6 cores each."""
    t, packages = sockets(2, 6)
    for n in range(6):
        bus = 0x10 + 0x10 * n
        host = t.bridge(packages[n // 4], bus, host=True)
        gpu(t, host, bus, n)
    return t


def remote():
    """2 GPUs: one at a socket, one at a NUMA node without CPUs."""
    t = Topology(range(4), range(2))
    p = t.obj(t.root, "Package", range(4), [0], os_index=0)
    t.numa(p, 0, range(4))
    for c in range(4):
        t.core(p, c, [c], [0])
    g = t.obj(t.root, "Group", [], [1], kind=0, subkind=0)
    t.numa(g, 1, [])
    gpu(t, t.bridge(p, 0x10, host=True), 0x10, 0)
    gpu(t, t.bridge(g, 0x20, host=True), 0x20, 1)
    return t


def smt():
    """2 GPUs, 2 sockets of 3 cores with 2 threads."""
    t, packages = sockets(2, 3, smt=2)
    for n in range(2):
        gpu(t, t.bridge(packages[n], 0x10 + n, host=True), 0x10 + n, n)
    return t


def restricted():
    """As smt, but CPUs 1, 2, 3 and 7 alone are allowed."""
    t, packages = sockets(2, 3, smt=2, allowed=[1, 2, 3, 7])
    for n in range(2):
        gpu(t, t.bridge(packages[n], 0x10 + n, host=True), 0x10 + n, n)
    return t


def linked():
    """As eight, with links 0-4, 1-5, 2-6 and 3-7, across the sockets."""
    t = eight()
    t.links(["nvml%d" % n for n in range(8)],
            [[50000 if abs(a - b) == 4 else 0 for b in range(8)]
             for a in range(8)])
    return t


def no_gpu():
    """2 sockets of 4 cores; a display and a NIC."""
    t, packages = sockets(2, 4)
    host = t.bridge(packages[0], 0x10, host=True)
    t.pci(host, "0000:10:00.0", "0300", "1a03")
    t.pci(host, "0000:11:00.0", "0200", "8086", os=[("eth0", 2)])
    return t


def here(cpus=2):
    """4 GPUs at 2 NUMA nodes, which share this machine's CPUs; those with
    the first bus ids are not next to the first CPUs."""
    t = Topology(range(cpus), range(2))
    half = cpus // 2
    for i, mine in enumerate((range(half), range(half, cpus))):
        p = t.obj(t.root, "Package", mine, [i], os_index=i)
        t.numa(p, i, mine)
        for c in mine:
            t.core(p, c, [c], [i])
        for n in range(2):
            bus = 0x20 - 0x10 * i + 0x20 * n
            gpu(t, t.bridge(p, bus, host=True), bus, 1 - i + 2 * n)
    return t


def apart(vendor, class_, osdevs):
    """4 GPUs at 2 sockets of 4 cores; osdevs(n): what the system calls the
    GPU with the n-th bus id."""
    t, packages = sockets(2, 4)
    for n in range(4):
        bus = 0x10 + 0x10 * n
        host = t.bridge(packages[(n + 1) % 2], bus, host=True)
        t.pci(host, "0000:%02x:00.0" % bus, class_, vendor, os=osdevs(n))
    return t


def amd():
    """4 GPUs of AMD's; those with odd numbers at the first socket."""
    return apart("1002", "0380", lambda n: [("renderD%d" % (128 + n), 1)])


def intel():
    """4 GPUs of Intel's, likewise."""
    return apart("8086", "0380", lambda n: [
        ("ze%d" % n, 5), ("renderD%d" % (128 + n), 1)])


ALL = {f.__name__: f for f in (eight, sixteen, eight_numa, half_numa,
                               four_numa, asymmetric, remote, smt,
                               restricted, linked, no_gpu, here, amd,
                               intel)}

if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in ALL:
        sys.stdout.write(ALL[sys.argv[1]]().text())
    elif len(sys.argv) == 3 and sys.argv[1] == "here":
        sys.stdout.write(here(int(sys.argv[2])).text())
    else:
        for name, make in ALL.items():
            print("%-12s %s" % (name, make.__doc__.splitlines()[0]))
