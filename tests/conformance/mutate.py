# SPDX-License-Identifier: Apache-2.0
"""Does the judge see every fault? Takes worlds that it passes, changes one
thing at a time, and counts what it notices."""
import copy
import json
import os
import re

import expect

FORBIDDEN = {
    "SLURM_DDP_PLAN": "v=1", "SLURM_DDP_CHANNEL": "v=1", "SLURM_DDP_HET": "v=1", "SLURM_DDP_KEY": "x",
    "TORCHELASTIC_RUN_ID": "1", "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "0", "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_MCA_orte_hnp_uri": "x", "PMIX_RANK": "0", "PMI_RANK": "0",
    "ACCELERATE_CPU_AFFINITY": "1", "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": "1234", "NCCL_SOCKET_IFNAME": "eth0",
    "GLOO_SOCKET_IFNAME": "eth0", "JAX_LOCAL_DEVICE_IDS": "0",
    "NCCL_DEBUG": "INFO", "_SLURM_SPANK_OPTION_ddp_ddp_launch": "full"}

LAUNCH = re.compile(
    r"RANK$|WORLD_SIZE$|LOCAL_|NODE_RANK$|MASTER_|GROUP_|ROLE_|PET_|JAX_|"
    r"HOROVOD_|CROSS_|TF_CONFIG$|OMP_NUM_THREADS$|TORCH_|NCCL_SOCKET_|"
    r"GLOO_SOCKET_|TORCHELASTIC_ERROR_FILE$")


def launch_names(seen):
    return sorted({k for k, _ in seen["environ"] if LAUNCH.match(k)})


def get(seen, name):
    return dict(seen["environ"]).get(name)


def put(seen, name, value):
    """Change, add or (None) remove a variable of one observation."""
    seen["environ"] = [kv for kv in seen["environ"] if kv[0] != name]
    if value is not None:
        seen["environ"].append([name, value])


def values(world, i, name, nodes):
    """Other values for one variable of one rank: (what, value)."""
    old = get(world[i], name)
    yield "removed", None
    yield "empty", ""
    if name != "TF_CONFIG":		# JSON may end in blanks
        yield "with a blank", old + " "
    yield "sentinel", "spank_ddp.so-not-loaded-on-this-node"
    if re.fullmatch(r"\d+", old):
        yield "+1", str(int(old) + 1)
        yield "negative", "-1"
        yield "leading zero", "0" + old
    for j, other in enumerate(world):
        theirs = get(other, name)
        if j != i and theirs is not None and theirs != old:
            yield "of rank of file %d" % j, theirs
            break
    if name == "TF_CONFIG":
        yield from tf_values(old)
        return
    addr = get(world[i], "MASTER_ADDR")
    if addr and addr in old:
        for new in sorted({a for a, _ in nodes.values()} - {addr})[:2]:
            yield "other host", old.replace(addr, new)
        if addr != "127.0.0.1":
            yield "loopback", old.replace(addr, "127.0.0.1")
    port = get(world[i], "MASTER_PORT")
    if port and port in old:
        for new in ("29500", "40000", "80", "65536", str(int(port) + 1)):
            if new != port:
                yield "port " + new, old.replace(port, new)


def tf_values(text):
    conf = json.loads(text)
    workers = conf["cluster"]["worker"]
    yield "not JSON", text[:-1]
    for what in ("index", "type", "order", "fewer", "port", "host", "chief"):
        new = copy.deepcopy(conf)
        w = new["cluster"]["worker"]
        if what == "index":
            new["task"]["index"] += 1
        elif what == "type":
            new["task"]["type"] = "chief"
        elif what == "order":
            w.reverse()
        elif what == "fewer":
            w.pop()
        elif what == "port":
            w[-1] = w[-1].rpartition(":")[0] + ":1"
        elif what == "host":
            w[-1] = "elsewhere:" + w[-1].rpartition(":")[2]
        else:
            new["cluster"]["chief"] = [workers[0]]
        if new != conf:
            yield "tf " + what, json.dumps(new)


def one_rank(world, asked, nodes):
    """Faults of a single variable of a single rank."""
    for i, seen in enumerate(world):
        for name in launch_names(seen):
            if name in asked.user and get(seen, name) == asked.user[name]:
                continue
            for what, value in values(world, i, name, nodes):
                new = list(world)
                new[i] = copy.deepcopy(seen)
                put(new[i], name, value)
                yield "rank of file %d: %s %s" % (i, name, what), new
            new = list(world)
            new[i] = copy.deepcopy(seen)
            new[i]["environ"].append([name, get(seen, name)])
            yield "rank of file %d: %s twice" % (i, name), new
        for name, value in FORBIDDEN.items():
            if get(seen, name) is not None or name in asked.user:
                continue
            new = list(world)
            new[i] = copy.deepcopy(seen)
            put(new[i], name, value)
            yield "rank of file %d: %s invented" % (i, name), new


def replaced_everywhere(world, old, new):
    """A fault on which all ranks and variables agree."""
    out = copy.deepcopy(world)
    for seen in out:
        for kv in seen["environ"]:
            if LAUNCH.match(kv[0]):
                kv[1] = re.sub(r"(?<![\d.])%s(?!\d)" % re.escape(old), new,
                               kv[1])
    return out


def all_ranks(world, asked, nodes):
    """Faults that all ranks share: nothing contradicts anything else."""
    port, addr = get(world[0], "MASTER_PORT"), get(world[0], "MASTER_ADDR")
    for new in ("40000", "80", "99999", "0", "x"):
        yield "MASTER_PORT %s everywhere" % new, \
            replaced_everywhere(world, port, new)
    if asked.srun_ports:
        yield "MASTER_PORT in SrunPortRange everywhere", \
            replaced_everywhere(world, port, str(asked.srun_ports[0]))
    for new in sorted({a for a, _ in nodes.values()} - {addr})[:3] + [
            "127.0.0.2", "localhost"]:
        yield "MASTER_ADDR %s everywhere" % new, \
            replaced_everywhere(world, addr, new)
    for name in ("WORLD_SIZE", "ROLE_WORLD_SIZE", "PET_NNODES", "HOROVOD_SIZE",
                 "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"):
        if get(world[0], name) is None or name in asked.user:
            continue
        new = copy.deepcopy(world)
        for seen in new:
            put(seen, name, str(int(get(seen, name)) + 1))
        yield "%s one more everywhere" % name, new
    for names in (("RANK",), ("NODE_RANK", "GROUP_RANK"), ("LOCAL_RANK",)):
        have = [get(s, names[0]) for s in world]
        if len(set(have)) < 2:
            continue
        new = copy.deepcopy(world)
        for seen, value in zip(new, have[1:] + have[:1]):
            for name in names:
                if get(seen, name) is not None:
                    put(seen, name, value)
        if [get(s, names[0]) for s in new] != have:
            yield "%s turned by one" % names[0], new
    if len(world) > 1:
        for i in range(len(world)):
            yield "task of file %d missing" % i, world[:i] + world[i + 1:]
    yield "a task twice", world + [world[0]]


def run(worlds, say=print):
    """worlds: [(name, observations, Asked, nodes)]. Returns (caught, total,
    names of what went unnoticed)."""
    caught, total, missed = 0, 0, []
    for name, world, asked, nodes in worlds:
        if expect.judge(world, nodes, asked):
            missed.append("%s: the judge does not pass the original" % name)
            total += 1
            continue
        mine = 0
        for make in (one_rank, all_ranks):
            for what, new in make(world, asked, nodes):
                mine += 1
                if expect.judge(new, nodes, asked):
                    caught += 1
                else:
                    missed.append("%s: %s" % (name, what))
        total += mine
        say("  mutations of %-40s %6d" % (name, mine))
    return caught, total, missed


# --- recorded worlds ---------------------------------------------------------

KEEP = re.compile(r"SLURM_(PROCID|LOCALID|NODEID|GTIDS|JOB_ID|STEP_ID|"
                  r"STEP_NUM_TASKS|JOB_ID_HET_GROUP_\d+)$|SLURMD_NODENAME$")


def anonymous(name, world, asked, nodes):
    """A record for the tree: the facts and the launch's variables, nothing of
    the machine but addresses of its test cluster."""
    out = copy.deepcopy(world)
    for seen in out:
        seen["hostname"] = "host"
        seen["environ"] = [kv for kv in seen["environ"]
                           if KEEP.match(kv[0]) or LAUNCH.match(kv[0]) or
                           kv[0] in asked.user or kv[0] in asked.allow]
    asked = dict(vars(asked), plain=[])
    return {"name": name, "asked": asked, "tasks": out,
            "nodes": {n: [a, "host"] for n, (a, _) in nodes.items()}}


def load(folder):
    """The recorded worlds of a folder, as run() wants them."""
    for path in sorted(os.listdir(folder)):
        if not path.endswith(".json"):
            continue
        with open(os.path.join(folder, path)) as f:
            rec = json.load(f)
        asked = expect.Asked(**rec["asked"])
        if asked.srun_ports:
            asked.srun_ports = tuple(asked.srun_ports)
        yield rec["name"], rec["tasks"], asked, {
            n: tuple(v) for n, v in rec["nodes"].items()}
