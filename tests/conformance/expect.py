#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the variables of a step's ranks must be, and what differs.

Shares no code, table or parser with the product: everything follows from the
set of observations that the tasks themselves made (observe.py), from the raw
SLURM_* facts in them, and from what scontrol says of the nodes. The counts
are counted, not read.

    expect.py DIR --nodes FILE [options]

judges the observations in a folder; FILE has `scontrol -o show node`.
"""
import argparse
import glob
import json
import os
import re
import sys

FRAMEWORKS = ("torch", "jax", "horovod", "deepspeed", "accelerate",
              "lightning", "tf")
ON_TORCH = {"torch", "deepspeed", "accelerate", "lightning"}

# Names that Slurm, a shell or the login give to any task.
PLAIN = re.compile(
    r"SLURM_|SLURMD_|(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_ALL|LC_CTYPE|TERM|"
    r"PWD|OLDPWD|SHLVL|_|HOSTNAME|MAIL|TMPDIR|ENVIRONMENT|COLUMNS|LINES|"
    r"CUDA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|"
    r"ZE_AFFINITY_MASK|SRUN_DEBUG)$")

# The launch's own SLURM_ names that a program may see: options.
OPTION_NAMES = {"SLURM_DDP_" + n for n in (
    "LAUNCH", "EXPLAIN", "FRAMEWORKS", "MASTER_PORT", "MASTER_ADDR", "IFACE",
    "ABORT", "ABORT_SIGNAL", "GRACE", "EXIT_GRACE", "START_TIMEOUT",
    "NODE_TIMEOUT", "CONTROL", "REPORT_FILE", "BIND", "GPUS", "LIFECYCLE",
    "READY_TIMEOUT")}

# Never, whoever asks: the reasons stand in the contract.
NEVER = re.compile(r"TORCHELASTIC_(?!ERROR_FILE$)|OMPI_|PMIX_|PMI_|"
                   r"ACCELERATE_CPU_AFFINITY$|HOROVOD_GLOO_RENDEZVOUS_|"
                   r"HOROVOD_CONTROLLER$|HOROVOD_CPU_OPERATIONS$|"
                   r"JAX_LOCAL_DEVICE_IDS$|JAX_COORDINATOR_BIND_ADDRESS$|"
                   r"_SLURM_SPANK_OPTION_ddp_")


ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


class Facts:
    """One task: its environment and the raw facts in it."""

    def __init__(self, seen):
        self.seen = seen
        self.env = {}
        self.twice = set()
        for name, value in seen["environ"]:
            if name in self.env:
                self.twice.add(name)
            self.env[name] = value
        self.host = seen["hostname"]
        self.procid = self.number("SLURM_PROCID")
        self.localid = self.number("SLURM_LOCALID")
        self.nodeid = self.number("SLURM_NODEID")
        self.node = self.env.get("SLURMD_NODENAME", "?")

    def number(self, name):
        text = self.env.get(name, "")
        return int(text) if re.fullmatch(r"\d{1,9}", text) else -1

    def cores(self):
        """Physical cores among the CPUs it may use."""
        first = set()
        for cpu in self.seen["cpus"]:
            text = self.seen["siblings"].get(str(cpu)) or str(cpu)
            first.add(int(re.match(r"\d+", text).group()))
        return len(first)

    def gpus(self):
        text = self.env.get("CUDA_VISIBLE_DEVICES", "")
        if not text or text.startswith("NoDevFiles"):
            return 1
        return len(text.split(","))


class Asked:
    """What the step was asked for, beside what Slurm knows.

    count: tasks; layout: ranks of each node as "0,2/1,3", a node's name may
    stand before: "n4:0,1/n1:2"; user: variables that the tasks inherited;
    allow: names that may be there whatever their value; plain: what a task
    without a launch has too, as [name, value]; full: it was full mode;
    devices: indices of the GPUs that a rank sees, the first of which is its.
    """

    def __init__(self, **kw):
        self.frameworks = ("torch", "jax")
        self.addr = self.port = self.iface = self.count = self.layout = None
        self.user = {}
        self.allow = ()
        self.plain = ()
        self.srun_ports = None
        self.het = self.full = False
        self.devices = None
        for name, value in kw.items():
            if not hasattr(self, name):
                raise TypeError("Asked has no " + name)
            setattr(self, name, value)


def parse_nodes(text):
    """{name: (NodeAddr, NodeHostName)} of `scontrol -o show node`."""
    out = {}
    for line in text.splitlines():
        item = dict(p.partition("=")[::2] for p in line.split(" ") if "=" in p)
        if "NodeName" in item:
            out[item["NodeName"]] = (item["NodeAddr"], item["NodeHostName"])
    return out


def number_set(text):
    """"20000-20010,30000" as a list of pairs."""
    out = []
    for part in (text or "").split(","):
        if part:
            lo, _, hi = part.partition("-")
            out.append((int(lo), int(hi or lo)))
    return out


def endpoint(addr, port):
    return "[%s]:%s" % (addr, port) if ":" in addr else "%s:%s" % (addr, port)


# --- the facts themselves ----------------------------------------------------

class World:
    """The step as its tasks describe it together. A "place" is one node in
    one component of the step, and SLURM_NODEID numbers places."""

    def __init__(self, ranks, nodes):
        self.ranks = sorted(ranks, key=lambda r: r.procid)
        self.nodes = nodes
        self.places = {}
        for r in self.ranks:
            self.places.setdefault(r.nodeid, []).append(r)
        self.order = sorted(self.places,
                            key=lambda p: self.places[p][0].procid)
        self.size = len(self.ranks)

    def here(self, r):
        return self.places[r.nodeid]

    def node_rank(self, r):
        return self.order.index(r.nodeid)

    def cross(self, r):
        """Places that have this local id too, in order of their ranks."""
        return [p for p in self.order
                if any(x.localid == r.localid for x in self.places[p])]

    def address(self, r):
        return self.nodes[r.node][0]


def wrong_facts(w, asked):
    """Is this one whole step? Otherwise nothing else can be judged."""
    ids = [r.procid for r in w.ranks]
    if ids != list(range(w.size)):
        yield "SLURM_PROCID of the tasks: %s" % ids
        return
    if asked.count is not None and w.size != asked.count:
        yield "%d tasks were seen, %d asked for" % (w.size, asked.count)
    for place, here in w.places.items():
        names = {r.node for r in here}
        mine = ",".join(str(r.procid) for r in here)
        if len(names) != 1:
            yield "SLURM_NODEID %d is on %s" % (place, sorted(names))
        for i, r in enumerate(here):
            if r.env.get("SLURM_GTIDS") != mine:
                yield "rank %d: SLURM_GTIDS %s, seen %s" % (
                    r.procid, r.env.get("SLURM_GTIDS"), mine)
            if r.localid != i:
                yield "rank %d: SLURM_LOCALID %d, is number %d" % (
                    r.procid, r.localid, i)
            if r.node not in w.nodes:
                yield "rank %d: scontrol has no node %s" % (r.procid, r.node)
            elif r.host.split(".")[0] != w.nodes[r.node][1].split(".")[0]:
                yield "rank %d: host %s, NodeHostName %s" % (
                    r.procid, r.host, w.nodes[r.node][1])
    names = [w.places[p][0].node for p in w.places]
    if not asked.het and len(set(names)) != len(names):
        yield "a node has several SLURM_NODEID: %s" % names
    for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"):
        if len({r.env.get(name) for r in w.ranks}) != 1:
            yield "%s differs between ranks" % name
    if w.ranks[0].env.get("SLURM_STEP_NUM_TASKS") != str(w.size):
        yield "SLURM_STEP_NUM_TASKS %s, %d tasks were seen" % (
            w.ranks[0].env.get("SLURM_STEP_NUM_TASKS"), w.size)
    if asked.layout:
        yield from wrong_layout(w, asked.layout)


def wrong_layout(w, layout):
    """Did the row get the layout that it is about?"""
    want, got = [], []
    named = ":" in layout
    for part in layout.split("/"):
        node, _, ids = part.rpartition(":")
        want.append((node if named else "", ids))
    for here in w.places.values():
        got.append((here[0].node if named else "",
                    ",".join(str(r.procid) for r in here)))
    if sorted(want) != sorted(got):
        yield "layout %s, this row is about %s" % (
            "/".join("%s:%s" % g if named else g[1] for g in sorted(got)),
            layout)


# --- ports -------------------------------------------------------------------

def wrong_port(text, facts, asked):
    """Why nobody may be given this port; None if it is fine."""
    if not re.fullmatch(r"[1-9]\d{3,4}", text or "") or \
            not 1024 <= int(text) <= 65535:
        return "a port from 1024 to 65535"
    port = int(text)
    if asked.full:
        # Any that an agent holds is safe; whose it is the task cannot see.
        return None if facts.seen["held"] == text else \
            "a port that is held on rank 0's node"
    lo, hi = map(int, facts.seen["ephemeral"].split())
    if lo <= port <= hi:
        return "a port outside ip_local_port_range %d-%d" % (lo, hi)
    for lo, hi in number_set(facts.seen["reserved"]):
        if lo <= port <= hi:
            return "a port outside ip_local_reserved_ports %d-%d" % (lo, hi)
    if asked.srun_ports and asked.srun_ports[0] <= port <= asked.srun_ports[1]:
        return "a port outside SrunPortRange %d-%d" % asked.srun_ports
    return None


# --- variables ---------------------------------------------------------------

def threads(w, r):
    """Cores of the rank's CPU set; one that nothing bound shares the node's
    with its neighbours."""
    n, here = r.cores(), len(w.here(r))
    if here > 1 and len(r.seen["cpus"]) >= r.seen["online"]:
        n = max(n // here, 1)
    return n


def rendezvous_ids(w):
    """job.step; in a heterogeneous job the id of one of its jobs."""
    env = w.ranks[0].env
    jobs = [env["SLURM_JOB_ID"]] + [
        v for k, v in sorted(env.items())
        if re.fullmatch(r"SLURM_JOB_ID_HET_GROUP_\d+", k)]
    return ["%s.%s" % (j, env["SLURM_STEP_ID"]) for j in jobs]


def owned(w, r, asked, port):
    """{name: value} that the launch sets in rank r, but TF_CONFIG; a tuple
    where one of several values is right."""
    addr = asked.addr or w.address(w.ranks[0])
    here, nr = len(w.here(r)), w.node_rank(r)
    on = set(asked.frameworks)
    v = {"RANK": r.procid, "WORLD_SIZE": w.size, "LOCAL_RANK": r.localid,
         "LOCAL_WORLD_SIZE": here, "NODE_RANK": nr, "MASTER_ADDR": addr,
         "MASTER_PORT": port}
    if on & ON_TORCH:
        rdzv = w.ranks[0].env.get("PET_RDZV_ID")
        ids = rendezvous_ids(w)
        v.update({
            "GROUP_RANK": nr, "GROUP_WORLD_SIZE": len(w.places),
            "ROLE_NAME": "default", "ROLE_RANK": r.procid,
            "ROLE_WORLD_SIZE": w.size, "PET_NNODES": w.size,
            "PET_NODE_RANK": r.procid, "PET_NPROC_PER_NODE": r.gpus(),
            "PET_MASTER_ADDR": addr, "PET_MASTER_PORT": port,
            "PET_RDZV_ENDPOINT": endpoint(addr, port),
            "PET_RDZV_ID": rdzv if rdzv in ids else ids[0]})
    if "jax" in on:
        v.update({"JAX_COORDINATOR_ADDRESS": endpoint(addr, port),
                  "JAX_COORDINATOR_PORT": port})
    cross = w.cross(r)
    if "horovod" in on:
        v.update({"HOROVOD_HOSTNAME": r.node, "HOROVOD_RANK": r.procid,
                  "HOROVOD_SIZE": w.size, "HOROVOD_LOCAL_RANK": r.localid,
                  "HOROVOD_LOCAL_SIZE": here,
                  "HOROVOD_CROSS_RANK": cross.index(r.nodeid),
                  "HOROVOD_CROSS_SIZE": len(cross)})
    if "deepspeed" in on:
        v.update({"LOCAL_SIZE": here, "CROSS_RANK": cross.index(r.nodeid),
                  "CROSS_SIZE": len(cross)})
    return v


def defaults(w, r, asked):
    """{name: value} that the launch sets where the user set nothing."""
    v = {}
    if set(asked.frameworks) & ON_TORCH:
        v["OMP_NUM_THREADS"] = threads(w, r)
        if "NCCL_ASYNC_ERROR_HANDLING" not in asked.user:
            v["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = 1
    if asked.iface:
        v["NCCL_SOCKET_IFNAME"] = "=" + asked.iface
        v["GLOO_SOCKET_IFNAME"] = asked.iface
        if "horovod" in asked.frameworks:
            v["HOROVOD_GLOO_IFACE"] = asked.iface
    return v


def expected(w, r, asked, port):
    v = defaults(w, r, asked)
    v.update(asked.user)
    v.update(owned(w, r, asked, port))
    if asked.devices:
        v["DDP_LOCAL_DEVICE"] = asked.devices.partition(",")[0]
        if "jax" in asked.frameworks:
            v["JAX_LOCAL_DEVICE_IDS"] = asked.devices
    return {k: str(x) for k, x in v.items()}


class Found(list):
    """Differences, as text."""

    def add(self, r, name, want, got):
        self.append("rank %s (%s) %s: expected %s, found %s" % (
            r.procid, r.node, name, want, "nothing" if got is None else got))


def judge_tf(w, asked, port, found):
    """TF_CONFIG: the same workers in every rank, in rank order, at their
    nodes' addresses; the port is a matter of the local id alone."""
    ports, first = {}, None
    unheld = Asked(srun_ports=asked.srun_ports)	# nobody holds these
    for r in w.ranks:
        got = r.env.get("TF_CONFIG")
        try:
            conf = json.loads(got or "")
            workers = conf["cluster"]["worker"]
            task = conf["task"]
        except (ValueError, KeyError, TypeError):
            found.add(r, "TF_CONFIG", "JSON with cluster.worker and task", got)
            continue
        if sorted(conf) != ["cluster", "task"] or \
                list(conf["cluster"]) != ["worker"] or \
                task != {"type": "worker", "index": r.procid}:
            found.add(r, "TF_CONFIG", "worker %d and nothing else" % r.procid,
                      got)
        first = first or workers
        if workers != first:
            found.add(r, "TF_CONFIG", "the workers of rank 0", got)
        if len(workers) != w.size:
            found.add(r, "TF_CONFIG", "%d workers" % w.size, len(workers))
            continue
        for x, text in zip(w.ranks, workers):
            addr, _, p = str(text).rpartition(":")
            if endpoint(w.address(x), p) != text:
                found.add(r, "TF_CONFIG worker %d" % x.procid,
                          endpoint(w.address(x), "PORT"), text)
            if ports.setdefault(x.localid, p) != p:
                found.add(r, "TF_CONFIG worker %d" % x.procid, "port %s of "
                          "local rank %d" % (ports[x.localid], x.localid), p)
    for local, p in ports.items():
        why = wrong_port(p, w.ranks[0], unheld)
        if why:
            found.add(w.ranks[0], "TF_CONFIG local rank %d" % local, why, p)
    used = list(ports.values()) + [str(port)]
    if len(set(used)) != len(used):
        found.add(w.ranks[0], "TF_CONFIG", "a port of its own for each local "
                  "rank, none the master's", used)


def judge_error_files(w, asked, found):
    """Full mode's, for PyTorch: a folder for each node, a file a rank."""
    folders = {}
    for r in w.ranks:
        got = r.env.get(ERROR_FILE)
        m = re.fullmatch(r"(/(?:dev/shm|tmp)/ddp-agent-[A-Za-z0-9]{6})/(\d+)\.json",
                         got or "")
        if not m or m.group(2) != str(r.procid):
            found.add(r, ERROR_FILE, "DIR/%d.json" % r.procid, got)
        elif folders.setdefault(r.nodeid, m.group(1)) != m.group(1):
            found.add(r, ERROR_FILE, "in " + folders[r.nodeid], got)
    if len(set(folders.values())) != len(folders):
        found.add(w.ranks[0], ERROR_FILE, "a folder for each node",
                  sorted(folders.values()))


def judge_rest(r, want, asked, found):
    """Names that nobody asked for."""
    for name in sorted(r.env):
        if name in r.twice:
            found.add(r, name, "once", "twice")
        if name in want or name in asked.allow or \
                [name, r.env[name]] in asked.plain:
            continue
        if NEVER.match(name) or name.startswith("SLURM_DDP_") and \
                name not in OPTION_NAMES or not PLAIN.match(name):
            found.add(r, name, "nothing", r.env[name][:80])


def judge(observations, nodes, asked):
    """The differences between what the tasks saw and what they must see, one
    line each; an empty list is a pass. nodes: see parse_nodes()."""
    if not observations:
        return ["no task has been seen"]
    w = World([Facts(o) for o in observations], nodes)
    found = Found("facts: " + t for t in wrong_facts(w, asked))
    if found:
        return found
    port = w.ranks[0].env.get("MASTER_PORT")
    if asked.port:
        port = str(asked.port)
    else:
        why = wrong_port(port, w.ranks[0], asked)
        if why:
            found.add(w.ranks[0], "MASTER_PORT", why, port)
    files = asked.full and set(asked.frameworks) & ON_TORCH and \
        ERROR_FILE not in asked.user
    for r in w.ranks:
        want = expected(w, r, asked, port)
        for name, value in want.items():
            got = r.env.get(name)
            if got != value:
                found.add(r, name, value, got)
        if "tf" in asked.frameworks:
            want["TF_CONFIG"] = ""
        if files:
            want[ERROR_FILE] = ""
        judge_rest(r, want, asked, found)
    if "tf" in asked.frameworks:
        judge_tf(w, asked, port, found)
    if files:
        judge_error_files(w, asked, found)
    return found


def read(folder):
    out = []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path) as f:
            out.append(json.load(f))
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("dir")
    p.add_argument("--nodes", required=True)
    p.add_argument("--frameworks", default="torch,jax",
                   type=lambda s: s.split(","))
    for name in ("addr", "port", "iface", "layout"):
        p.add_argument("--" + name)
    p.add_argument("--count", type=int)
    p.add_argument("--het", action="store_true")
    p.add_argument("--full", action="store_true")
    p.add_argument("--user", action="append", default=[], metavar="NAME=VALUE")
    p.add_argument("--allow", action="append", default=[], metavar="NAME")
    p.add_argument("--srun-ports", metavar="LOW-HIGH",
                   type=lambda s: number_set(s)[0])
    args = vars(p.parse_args())
    folder, nodes = args.pop("dir"), args.pop("nodes")
    args["user"] = dict(u.partition("=")[::2] for u in args["user"])
    with open(nodes) as f:
        found = judge(read(folder), parse_nodes(f.read()), Asked(**args))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
