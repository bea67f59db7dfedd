#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Are the environments of a step's ranks one distributed world?

Reads the dumps that launch.bash's $RANK_DUMP program wrote (NAME.env: the rank's
environ, NAME.cpus: a line of its /proc status) and works out what each
variable must be from what slurmstepd told each task (SLURM_PROCID,
SLURMD_NODENAME, ...), from counting the dumps, and from `scontrol -o show
node`. Nothing of the plugin is used. Prints each difference; exit code 1 if
there is one.
"""
import argparse
import glob
import os
import re
import sys

TORCH_OWNED = """GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK
    ROLE_WORLD_SIZE PET_NNODES PET_NPROC_PER_NODE PET_NODE_RANK
    PET_MASTER_ADDR PET_MASTER_PORT PET_RDZV_ENDPOINT PET_RDZV_ID""".split()
TORCH_SOFT = ["OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"]
JAX_OWNED = ["JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT"]
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
BASE_OWNED = """RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK
    MASTER_ADDR MASTER_PORT""".split()


class Rank:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            raw = f.read().decode("utf-8", "surrogateescape")
        self.pairs = [kv.partition("=")[::2] for kv in raw.split("\0") if kv]
        self.env = dict(self.pairs)
        self.node = self.env["SLURMD_NODENAME"]
        self.procid = int(self.env["SLURM_PROCID"])
        self.localid = int(self.env["SLURM_LOCALID"])
        with open(path[:-4] + ".cpus") as f:
            self.cpus = cpu_list(f.read().split(":")[1].strip())


def cpu_list(text):
    out = set()
    for part in text.split(","):
        lo, _, hi = part.partition("-")
        out |= set(range(int(lo), int(hi or lo) + 1))
    return out


def cores(cpus):
    """Physical cores among the CPUs."""
    seen = set()
    for cpu in cpus:
        path = ("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list"
                % cpu)
        try:
            with open(path) as f:
                seen.add(min(cpu_list(f.read().strip())))
        except OSError:
            seen.add(cpu)
    return len(seen)


def threads(rank, here):
    """Cores of the rank; those of an unbound rank are shared on its node."""
    n = cores(rank.cpus)
    if here > 1 and len(rank.cpus) >= os.sysconf("SC_NPROCESSORS_ONLN"):
        n = max(n // here, 1)
    return n


def gpus(rank):
    text = rank.env.get("CUDA_VISIBLE_DEVICES", "")
    if not text or text.startswith("NoDevFiles"):
        return 1
    return len(text.split(","))


def endpoint(addr, port):
    return ("[%s]:%s" if ":" in addr else "%s:%s") % (addr, port)


def expected(rank, ranks, port, args):
    """All variables of a rank but MASTER_PORT, which only the plugin knows:
    a dictionary, None where it must be unset."""
    lowest = {}
    for r in ranks:
        lowest[r.node] = min(r.procid, lowest.get(r.node, r.procid))
    order = sorted(lowest, key=lowest.get)
    here = sum(r.node == rank.node for r in ranks)
    addr = args.addr or args.node_addr[order[0]]
    world = {
        "RANK": rank.procid, "WORLD_SIZE": len(ranks),
        "LOCAL_RANK": rank.localid, "LOCAL_WORLD_SIZE": here,
        "NODE_RANK": order.index(rank.node),
        "MASTER_ADDR": addr, "MASTER_PORT": port,
    }
    torch = {
        "GROUP_RANK": order.index(rank.node), "GROUP_WORLD_SIZE": len(order),
        "ROLE_NAME": "default", "ROLE_RANK": rank.procid,
        "ROLE_WORLD_SIZE": len(ranks),
        "PET_NNODES": len(ranks), "PET_NPROC_PER_NODE": gpus(rank),
        "PET_NODE_RANK": rank.procid,
        "PET_MASTER_ADDR": addr, "PET_MASTER_PORT": port,
        "PET_RDZV_ENDPOINT": endpoint(addr, port),
        "PET_RDZV_ID": "%s.%s" % (rank.env["SLURM_JOB_ID"],
                                  rank.env["SLURM_STEP_ID"]),
        "OMP_NUM_THREADS": threads(rank, here),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
    }
    jax = {"JAX_COORDINATOR_ADDRESS": endpoint(addr, port),
           "JAX_COORDINATOR_PORT": port}
    iface = {"NCCL_SOCKET_IFNAME": None, "GLOO_SOCKET_IFNAME": None}
    for name, table in (("torch", torch), ("jax", jax)):
        on = name in args.frameworks
        world.update((k, v if on else None) for k, v in table.items())
    world.update(iface)
    # Never the launch's business, or only the machinery's.
    world.update(dict.fromkeys((
        "SLURM_DDP_PLAN", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_USE_AGENT_STORE", "ACCELERATE_CPU_AFFINITY",
        "OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")))
    for item in args.set:
        name, _, value = item.partition("=")
        world[name] = value
    for name in args.unset:
        world[name] = None
    return {k: None if v is None else str(v) for k, v in world.items()}


def wrong_ids(ranks, args):
    """Do the dumps themselves make sense? Otherwise nothing else counts."""
    if sorted(r.procid for r in ranks) != list(range(len(ranks))):
        yield "SLURM_PROCID: %s" % sorted(r.procid for r in ranks)
    if args.layout:
        got = {}
        for r in ranks:
            got.setdefault(r.node, []).append(r.procid)
        got = sorted(sorted(ids) for ids in got.values())
        want = sorted([int(i) for i in node.split(",")]
                      for node in args.layout.split("/"))
        if got != want:
            yield "the step's layout is %s, this test wants %s" % (got, want)
    for r in ranks:
        mine = sorted(x.procid for x in ranks if x.node == r.node)
        if r.env["SLURM_GTIDS"] != ",".join(map(str, mine)):
            yield "%s: SLURM_GTIDS=%s, dumps of the node: %s" % (
                r.path, r.env["SLURM_GTIDS"], mine)
        if mine.index(r.procid) != r.localid:
            yield "%s: SLURM_LOCALID=%s" % (r.path, r.localid)


def differences(ranks, args):
    port = ranks[0].env.get("MASTER_PORT", "")
    if args.port and port != args.port:
        yield "MASTER_PORT is %r, not %s" % (port, args.port)
    if not re.fullmatch("[1-9][0-9]{3,4}", port) or int(port) > 65535:
        yield "MASTER_PORT is %r" % port
    for r in ranks:
        names = [k for k, _ in r.pairs]
        for k, want in sorted(expected(r, ranks, port, args).items()):
            got = r.env.get(k)
            if names.count(k) > 1:
                yield "rank %d: %s is there twice" % (r.procid, k)
            if got != want:
                yield "rank %d on %s: %s is %r, must be %r" % (
                    r.procid, r.node, k, got, want)


def wrong_error_files(ranks, args):
    """TORCHELASTIC_ERROR_FILE: full mode's, for PyTorch; a folder a node."""
    full = args.mode == "full" or not args.mode and \
        ERROR_FILE in ranks[0].env
    folders = {}
    for r in ranks:
        got = r.env.get(ERROR_FILE)
        if not full or "torch" not in args.frameworks:
            if got is not None:
                yield "rank %d: %s is %r" % (r.procid, ERROR_FILE, got)
            continue
        m = re.fullmatch(r"(/(?:dev/shm|tmp)/ddp-agent-[A-Za-z0-9]{6})/%d\.json"
                         % r.procid, got or "")
        if not m:
            yield "rank %d: %s is %r" % (r.procid, ERROR_FILE, got)
        elif folders.setdefault(r.node, m.group(1)) != m.group(1):
            yield "node %s has two folders of error files" % r.node
    if len(set(folders.values())) != len(folders):
        yield "nodes share a folder of error files"


def added(ranks, plain):
    """Names that a launch adds to what a plain srun gives."""
    before = set().union(*(p.env for p in plain))
    return sorted(set().union(*(r.env for r in ranks)) - before)


def wrong_names(ranks, plain, args):
    want = set(BASE_OWNED)
    if "torch" in args.frameworks:
        want |= set(TORCH_OWNED) | set(TORCH_SOFT)
        if args.mode != "stateless":
            want.add(ERROR_FILE)
    if "jax" in args.frameworks:
        want |= set(JAX_OWNED)
    got = added(ranks, plain)
    if got != sorted(want):
        yield "names beyond plain srun's: %s, must be %s" % (got,
                                                            sorted(want))
    gone = set().union(*(p.env for p in plain)) - set().union(
        *(r.env for r in ranks))
    if gone:
        yield "plain srun also sets %s" % sorted(gone)


def read_ranks(folder):
    return sorted((Rank(p) for p in glob.glob(folder + "/*.env")),
                  key=lambda r: r.procid)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("dir")
    p.add_argument("--nodes", help="output of scontrol -o show node")
    p.add_argument("--print", metavar="NAME", help="print a variable by rank")
    p.add_argument("--layout", help="as 0,2/1,3: the ranks of each node")
    p.add_argument("--count", type=int, help="number of ranks")
    p.add_argument("--frameworks", default="torch,jax",
                   type=lambda s: s.split(","))
    p.add_argument("--addr", help="MASTER_ADDR that was asked for")
    p.add_argument("--port", help="MASTER_PORT that was asked for")
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    p.add_argument("--unset", action="append", default=[], metavar="NAME")
    p.add_argument("--mode", choices=("full", "stateless"),
                   help="without: either, but all ranks the same")
    p.add_argument("--plain", help="dumps of the same step without a launch")
    return p.parse_args()


def main():
    args = parse_args()
    ranks = read_ranks(args.dir)
    if args.print:
        for r in ranks:
            if args.print in r.env:
                print(r.procid, r.env[args.print])
        return 0
    with open(args.nodes) as f:
        args.node_addr = dict(re.findall(
            r"^NodeName=(\S+) .*?\bNodeAddr=(\S+)", f.read(), re.M))
    if not ranks or args.count and len(ranks) != args.count:
        wrong = ["%d ranks have written" % len(ranks)]
    else:
        wrong = list(wrong_ids(ranks, args))
        wrong += differences(ranks, args)
        wrong += wrong_error_files(ranks, args)
        if args.plain:
            wrong += wrong_names(ranks, read_ranks(args.plain), args)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
