# SPDX-License-Identifier: Apache-2.0
"""How the programs of the hang matrix are started: srun on a dev cluster of
its own, mpirun, or plain processes."""
import os
import random
import shlex
import shutil
import string
import subprocess
import tempfile

# Open MPI takes the nodes of a dev cluster for different machines, but their
# shared memory has the same names; and they are all at the loopback interface.
# MPICH needs nothing: its UCX sees that it is one machine.
OPEN_MPI = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self",
            "OMPI_MCA_btl_tcp_if_include": "lo"}
DEVCLUSTER = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                          "..", "..", "contrib", "devcluster")


def clean_env(more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("FAKE_NCCL_", "SLURM_", "OMPI_", "PMIX_",
                                "LIFE_"))}
    env.update(OPEN_MPI)
    env.update(more)
    return env


class Srun:
    """4 nodes of a private Slurm; each cell is a step of 2 ranks a node. The
    cluster is one of its own, or one that is up (at)."""
    ranks = 8
    extra = ()

    def __init__(self, plugin, mpi="pmix", at=None):
        self.mpi, self.owned = mpi, not at
        # Not /tmp: a distribution root (devcluster --root) has its own one.
        self.dir = tempfile.mkdtemp(prefix="life.", dir=at + "/tmp" if at
                                    else "/var/tmp")
        os.chmod(self.dir, 0o755)
        self.cluster = at or os.path.join(self.dir, "c")
        if self.owned:
            self.up(plugin)
        self.env = {}
        for line in self.devcluster("env").splitlines():
            name, _, value = line[len("export "):].partition("=")
            self.env[name] = " ".join(shlex.split(value))

    def up(self, plugin):
        # Of its own: other clusters may live here. Short, see the README.
        prefix = "l" + "".join(random.choices(string.ascii_lowercase, k=3))
        # Slurm's PMIx plugin keeps a folder a step there, by a name that is
        # the same on all nodes.
        for n in range(1, 5):
            os.makedirs(os.path.join(self.dir, "%s%d" % (prefix, n)))
        self.devcluster("--nodes", "4", "--cpus", "4", "--gpus", "0",
                        "--no-gpu-acct", "--plugin", plugin,
                        "--node-prefix", prefix,
                        "--conf", "TmpFS=%s/%%n" % self.dir, "--conf",
                        "SchedulerParameters=batch_sched_delay=0,"
                        "sched_min_interval=0", "up")

    def devcluster(self, *args):
        return subprocess.run(
            [DEVCLUSTER, "--dir", self.cluster, *args], check=True, timeout=120,
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True).stdout

    def inside(self, *argv):
        """There: where the cluster has a root of its own, in that."""
        if self.env.get("DEVCLUSTER_ROOT"):
            return [DEVCLUSTER, "--dir", self.cluster, "run", "--", *argv]
        return list(argv)

    def command(self, cell, program, args, env, preload):
        mpi = "none" if cell.program == "life_nccl" else self.mpi
        more, extra = "", ()
        if preload is not None and self.extra:
            extra = self.extra
        elif preload:
            more = ",LD_PRELOAD=" + preload
        argv = self.inside("srun", "-K1", "-N4", "--ntasks-per-node=2",
                           "--export=ALL" + more, "--mpi=" + mpi, *extra,
                           program)
        return [argv + args], clean_env({**self.env, **env})

    def cleanup(self):
        """After a cell that hung: nothing may stay in the queue."""
        env = clean_env(self.env)
        out = subprocess.run(self.inside("squeue", "-h", "-o", "%A"), env=env,
                             text=True, stdout=subprocess.PIPE,
                             timeout=30).stdout
        for job in out.split():
            subprocess.run(self.inside("scancel", job), env=env, timeout=30)

    def close(self):
        if self.owned:
            self.devcluster("down")
        shutil.rmtree(self.dir, True)


class Mpirun:
    ranks = 4
    dir = "/var/tmp"

    def command(self, cell, program, args, env, preload):
        argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                str(self.ranks)]
        for name in sorted(env):
            argv += ["-x", name]
        if preload:
            argv += ["-x", "LD_PRELOAD=" + preload]
        return [argv + [program] + args], clean_env(env)

    def cleanup(self):
        pass

    def close(self):
        pass


class Plain:
    """Nobody looks after them: what the program does by itself. The exit
    code is that of the rank that broke."""
    ranks = 4
    dir = "/var/tmp"

    def command(self, cell, program, args, env, preload):
        env = clean_env({**env, "LIFE_NRANKS": str(self.ranks)})
        if preload:
            env["LD_PRELOAD"] = preload
        return [["env", "LIFE_RANK=%d" % r, program] + args
                for r in range(self.ranks)], env

    def cleanup(self):
        pass

    def close(self):
        pass
