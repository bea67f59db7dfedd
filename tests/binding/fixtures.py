#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small nodes with GPUs, written as hwloc XML, for the binding plan's tests.

    fixtures.py DIR     writes DIR/NAME.xml for every one of them

Each function returns a Fixture; the comment says what the node is for.
"""
import os
import sys

from fixture_xml import (AMD, ASPEED, INTEL, MELLANOX, NVIDIA, Fixture, Node)

NAMED = {}


def named(function):
    NAMED[function.__name__] = function
    return function


def socket(fix, index, first_core, cores, threads=1, stride=0, numa=True):
    """A package with one L3 and, unless told, one NUMA node. A core's second
    PU has its number plus the stride."""
    package = fix.root.add(Node("Package", os_index=index))
    if numa:
        package.numa(index)
    cache = package.add(Node("L3Cache", cache_size=1 << 25, depth=3,
                             cache_linesize=64, cache_associativity=16,
                             cache_type=0))
    for c in range(first_core, first_core + cores):
        cache.core(c, [c + t * stride for t in range(threads)])
    return package


def nvidia(place, bus, number):
    """A GPU of class 3D, seen through CUDA and NVML."""
    return place.pci(bus, "0302", NVIDIA, ("coproc", f"cuda{number}"),
                     ("gpu", f"nvml{number}"))


def switch(place, domain, buses, first):
    """A host bridge and a switch with one GPU a port."""
    top = place.host_bridge(f"{domain}:{buses[0] - 2:02x}")
    top = top.bridge(f"{domain}:{buses[0] - 2:02x}:00.0")
    for i, bus in enumerate(buses):
        port = top.bridge(f"{domain}:{buses[0] - 1:02x}:{i:02x}.0")
        nvidia(port, f"{domain}:{bus:02x}:00.0", first + i)


@named
def eight_on_two():
    """Two sockets of 8 cores; on each two switches with two GPUs."""
    fix = Fixture()
    for s in range(2):
        package = socket(fix, s, 8 * s, 8)
        for k in range(2):
            base = 0x10 + 0x80 * s + 0x20 * k
            switch(package, "0000", [base, base + 1], 4 * s + 2 * k)
    return fix


@named
def four_numa():
    """Two sockets with two NUMA nodes each, a GPU on every node. The bus
    numbers run against the tree, so bus order is not tree order."""
    fix = Fixture()
    for s in range(2):
        package = fix.root.add(Node("Package", os_index=s))
        for k in range(2):
            n = 2 * s + k
            cache = package.add(Node(
                "L3Cache", cache_size=1 << 24, depth=3, cache_linesize=64,
                cache_associativity=16, cache_type=0))
            cache.numa(n)
            for c in range(4 * n, 4 * n + 4):
                cache.core(c, [c])
            bus = f"0000:{0xc1 - 0x40 * n:02x}"
            port = cache.host_bridge(bus[:-2] + f"{0xc0 - 0x40 * n:02x}")
            nvidia(port.bridge(bus[:-2] + f"{0xc0 - 0x40 * n:02x}:01.0"),
                   bus + ":00.0", n)
    return fix


@named
def six_uneven():
    """Six GPUs, four on one socket and two on the other."""
    fix = Fixture()
    first, second = socket(fix, 0, 0, 6), socket(fix, 1, 6, 6)
    switch(first, "0000", [0x10, 0x11], 0)
    switch(first, "0000", [0x20, 0x21], 2)
    switch(second, "0000", [0x90, 0x91], 4)
    return fix


@named
def cpuless():
    """The second GPU is on a socket that has memory and no CPU."""
    fix = Fixture()
    socket(fix, 0, 0, 4)
    nvidia(fix.root.normal[0].host_bridge("0000:01").bridge("0000:01:01.0"),
           "0000:02:00.0", 0)
    package = fix.root.add(Node("Package", os_index=1))
    package.numa(1)
    fix.lost[id(package)] = fix.lost[id(package.memory[0])] = range(4, 8)
    nvidia(package.host_bridge("0000:81").bridge("0000:81:01.0"),
           "0000:82:00.0", 1)
    return fix


@named
def gpu_memory():
    """GPU memory as NUMA nodes: one with its socket's CPUs in its set, one
    with no CPU, and neither may be bound to."""
    fix = Fixture()
    for s in range(2):
        package = socket(fix, s, 4 * s, 4)
        nvidia(package.host_bridge(f"{s:04x}:01")
               .bridge(f"{s:04x}:01:00.0"), f"{s:04x}:02:00.0", s)
    fix.root.normal[0].numa(8, subtype="GPUMemory")
    fix.root.normal[1].numa(9, subtype="GPUMemory", cpus=set())
    return fix


@named
def smt2():
    """Two sockets of 4 cores with two threads, numbered n and n + 8."""
    fix = Fixture()
    for s in range(2):
        switch(socket(fix, s, 4 * s, 4, threads=2, stride=8), "0000",
               [0x10 + 0x80 * s, 0x11 + 0x80 * s], 2 * s)
    return fix


@named
def restricted_cpus():
    """SMT as above, but a set with holes is allowed: single threads of some
    cores, both of others, more on the second socket."""
    fix = smt2()
    fix.allowed = {1, 2, 3, 4, 6, 7, 10, 12, 14, 15}
    return fix


@named
def far_socket_only():
    """Two sockets, a GPU on each, and no CPU of the second is allowed."""
    fix = Fixture()
    for s in range(2):
        nvidia(socket(fix, s, 4 * s, 4).host_bridge(f"0000:{s}1")
               .bridge(f"0000:{s}1:01.0"), f"0000:{s}2:00.0", s)
    fix.allowed = {0, 1, 2, 3}
    return fix


@named
def amd_rsmi():
    """AMD accelerators, class 0380: three with rsmi and one of which only
    the render node is seen. A fifth shows nothing and is none."""
    fix = Fixture()
    for s in range(2):
        package = socket(fix, s, 4 * s, 4)
        for k in range(2):
            n = 2 * s + k
            bus = f"0000:{0xc1 - 0x80 * s + 4 * k:02x}"
            dev = ("gpu", f"rsmi{n}") if n < 3 else ("gpu", "renderD131")
            package.host_bridge(bus[:-1] + "0").bridge(
                bus[:-1] + f"0:0{k + 1}.0").pci(
                bus + ":00.0", "0380", AMD, dev)
    fix.root.normal[1].io[0].bridge("0000:40:05.0").pci(
        "0000:48:00.0", "0380", AMD)
    return fix


@named
def aspeed():
    """One NVIDIA GPU, and display devices that are no GPUs: a management
    chip, a VGA device of each vendor without a sign that it computes."""
    fix = Fixture()
    package = socket(fix, 0, 0, 4)
    top = package.host_bridge("0000:01")
    top.bridge("0000:01:00.0").pci("0000:02:00.0", "0300", ASPEED,
                                   ("gpu", "card0"))
    top.bridge("0000:01:01.0").pci("0000:03:00.0", "0300", NVIDIA)
    top.bridge("0000:01:02.0").pci("0000:04:00.0", "0300", INTEL,
                                   ("gpu", "card1"), ("gpu", "renderD128"))
    top.bridge("0000:01:03.0").pci("0000:05:00.0", "0300", NVIDIA,
                                   ("coproc", "cuda0"))
    top.bridge("0000:01:04.0").pci("0000:06:00.0", "0207", MELLANOX,
                                   ("net", "ib0"), ("fabric", "mlx5_0"))
    return fix


@named
def intel_ze():
    """Two Intel GPUs seen through Level Zero below the machine itself: near
    to all CPUs, on no single NUMA node."""
    fix = Fixture()
    socket(fix, 0, 0, 4)
    socket(fix, 1, 4, 4)
    top = fix.root.host_bridge("0000:01")
    for i in range(2):
        top.bridge(f"0000:01:0{i}.0").pci(
            f"0000:0{2 + i}:00.0", "0380", INTEL, ("coproc", f"ze{i}"))
    return fix


@named
def nvlink_pairs():
    """One socket with four GPUs, and one with none. Links join the GPUs of
    different switches: 0 with 2 and 1 with 3; each has a link to the socket
    too, which joins no GPUs."""
    fix = Fixture()
    package = socket(fix, 0, 0, 8)
    socket(fix, 1, 8, 8)
    switch(package, "0000", [0x10, 0x11], 0)
    switch(package, "0000", [0x20, 0x21], 2)
    objs = [fix.root.find(f"nvml{i}") for i in range(4)] + [package]
    fix.links(objs, {(0, 2): 50000, (1, 3): 50000, (0, 4): 25000,
                     (1, 4): 25000, (2, 4): 25000, (3, 4): 25000})
    return fix


@named
def nvlink_double():
    """Every pair has a link; 0 with 3 and 1 with 2 have two, and only the
    wider ones count."""
    fix = Fixture()
    switch(socket(fix, 0, 0, 4), "0000", [0x10, 0x11], 0)
    switch(socket(fix, 1, 4, 4), "0000", [0x90, 0x91], 2)
    objs = [fix.root.find(f"nvml{i}") for i in range(4)]
    pairs = {(i, j): 25000 for i in range(4) for j in range(i)}
    pairs.update({(3, 0): 50000, (2, 1): 50000})
    fix.links(objs, pairs)
    return fix


@named
def nvlink_switch():
    """All pairs are joined alike: every GPU is next to every other."""
    fix = Fixture()
    switch(socket(fix, 0, 0, 4), "0000", [0x10, 0x11], 0)
    switch(socket(fix, 1, 4, 4), "0000", [0x90, 0x91], 2)
    objs = [fix.root.find(f"nvml{i}") for i in range(4)]
    fix.links(objs, {(i, j): 300000 for i in range(4) for j in range(i)})
    return fix


@named
def no_gpu():
    """Two sockets of 5 cores, two threads a core, and a NIC."""
    fix = Fixture()
    for s in range(2):
        socket(fix, s, 5 * s, 5, threads=2, stride=10)
    fix.root.normal[0].host_bridge("0000:01").bridge("0000:01:00.0").pci(
        "0000:02:00.0", "0200", MELLANOX, ("net", "eth0"))
    return fix


@named
def one_socket_two_numa_one_gpu():
    """Two NUMA nodes in one socket, the only GPU at the socket itself."""
    fix = Fixture()
    package = fix.root.add(Node("Package", os_index=0))
    for n in range(2):
        cache = package.add(Node(
            "L3Cache", cache_size=1 << 24, depth=3, cache_linesize=64,
            cache_associativity=16, cache_type=0))
        cache.numa(n)
        for c in range(3 * n, 3 * n + 3):
            cache.core(c, [c])
    nvidia(package.host_bridge("0000:01").bridge("0000:01:00.0"),
           "0000:02:00.0", 0)
    return fix


def write(folder):
    """Writes all named fixtures; {name: path}."""
    os.makedirs(folder, exist_ok=True)
    paths = {}
    for name, make in NAMED.items():
        paths[name] = os.path.join(folder, name + ".xml")
        with open(paths[name], "w", encoding="ascii") as f:
            f.write(make().xml())
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("use: fixtures.py DIR")
    for path in write(sys.argv[1]).values():
        print(path)
