# SPDX-License-Identifier: Apache-2.0
"""The cells of the hang matrix: what breaks, where, and what shall come out."""
from dataclasses import dataclass, field

KILL, TERM, ABORT = 128 + 9, 128 + 15, 128 + 6
ANY = None
NEVER = -1


@dataclass
class Cell:
    launcher: str           # srun, mpirun, plain
    program: str            # life_mpi, life_nccl, life_mpi_nccl
    name: str
    args: str
    code: object = 0        # the first cause's exit code; ANY: whatever
    env: dict = field(default_factory=dict)
    from_async: bool = False    # the fault is the asynchronous error
    # ms for the library alone, where it is not --bound; NEVER: only who sees
    # the ranks from outside can know that one has gone.
    alone: object = None

    @property
    def title(self):
        return "%s/%s/%s" % (self.launcher, self.program, self.name)


# An asynchronous error on all ranks but the one that stalls.
ASYNC = {"FAKE_NCCL_ASYNC": ",".join("1500:6:%d" % r for r in range(8)
                                     if r != 1)}
# The library waits half of it for an abort that hangs.
SHORT = {"DDP_LIFECYCLE_TIMEOUT": "0.4"}
# A driver that lets no process go while its kernels wait.
DRIVER = {"FAKE_NCCL_EXIT_WAIT": "1"}

BOTH = [
    ("fine", "", 0),
    ("kill before id", "--at before-id --by kill", KILL),
    ("kill in init", "--at after-id --by kill", KILL),
    ("kill in NCCL", "--at nccl --by kill", KILL),
    ("kill in MPI", "--at mpi --by kill", KILL),
    ("kill between", "--at between --by kill", KILL),
    ("kill in destroy", "--at finalize --by kill", KILL),
    ("kill in MPI_Finalize", "--at mpi-finalize --by kill", KILL),
    ("kill rank 0 in NCCL", "--at nccl --by kill --rank 0", KILL),
    ("exit 7 in NCCL", "--at nccl --by _exit", 7),
    ("exit 7 in MPI", "--at mpi --by _exit", 7),
    ("exit 7 between", "--at between --by exit", 7),
    ("exit 0 between", "--at between --by exit --code 0", ANY),
    ("exit 0, all ranks", "--at between --by exit --code 0 --rank all", ANY),
    ("exit 0 in destroy", "--at finalize --by exit --code 0", ANY),
    ("abort() between", "--at between --by abort", ABORT),
    ("SIGTERM in NCCL", "--at nccl --by term", TERM),
    ("MPI_Abort between", "--at between --by mpiabort", 7),
    ("MPI_Abort in NCCL", "--at nccl --by mpiabort", 7),
    ("MPI_Abort in MPI", "--at mpi --by mpiabort", 7),
    ("MPI_Abort in init", "--at after-id --by mpiabort", 7),
    ("MPI_Abort, a thread in init",
     "--at after-id --by mpiabort --threaded", 7),
    ("MPI_Abort by two", "--at between --by mpiabort --two", 7),
    ("asynchronous error", "--at nccl --by stall --iterations 1000", ANY,
     ASYNC, True),
    ("exit 7 in NCCL, driver waits", "--at nccl --by exit", 7, DRIVER),
    ("MPI_Abort in NCCL, driver waits", "--at nccl --by mpiabort", 7, DRIVER),
    ("kill in NCCL, an abort hangs", "--at nccl --by kill", KILL,
     {"FAKE_NCCL_HANG": "ncclCommAbort:1:2", **SHORT}),
    ("kill in slow init", "--at after-id --by kill", KILL,
     {"FAKE_NCCL_SLOW": "ncclCommInitRank:300:2"}),
    ("init fails", "", 20, {"FAKE_NCCL_FAIL": "ncclCommInitRank:1:3"}),
    ("forgets destroy", "--forget", 0),
    ("aborts one of two", "--second", 0, {"FAKE_NCCL_REUSE": "1"}),
    ("fork, fine", "--children 2", 0),
    ("fork, kill in NCCL", "--children 2 --at nccl --by kill", KILL),
    ("fork, MPI_Abort in NCCL", "--children 2 --at nccl --by mpiabort", 7),
    ("fork, exit 0, all ranks",
     "--children 2 --at between --by exit --code 0 --rank all", ANY),
]
WITHOUT_NCCL = ("fine", "kill in MPI", "kill between", "kill in MPI_Finalize",
                "exit 7 in MPI", "exit 7 between", "exit 0 between",
                "exit 0, all ranks", "abort() between", "MPI_Abort between",
                "MPI_Abort in MPI", "MPI_Abort by two")
MPIRUN = ("fine", "kill in init", "kill in NCCL", "kill in MPI",
          "kill in destroy", "exit 7 between", "exit 0 between",
          "MPI_Abort in NCCL", "MPI_Abort by two", "asynchronous error")
PLAIN = ("fine", "kill in init", "kill in NCCL", "exit 7 between",
         "exit 7 in NCCL, driver waits", "forgets destroy",
         "exit 0, all ranks", "SIGTERM in NCCL", "asynchronous error",
         "aborts one of two", "fork, fine")


# A rank that ends with 0 is no failure to Slurm. Open MPI's peers see their
# connection to it break, and PMIx ends the step a second later; NCCL's wait,
# and so do MPICH's, whose PMI does not tell (WITH_PMI2).
# mpirun takes a second to end a job.
# Plain processes have nobody who would tell one that another has gone, or end
# one that stalls.
ALONE = {
    ("srun", "life_mpi_nccl", "exit 0 between"): 2500,
    ("srun", "life_mpi", "exit 0 between"): 2500,
    ("srun", "life_nccl", "exit 0 between"): NEVER,
    **{("mpirun", "life_mpi_nccl", name): 2500 for name in (
        "kill in init", "kill in NCCL", "kill in MPI", "kill in destroy",
        "exit 7 between", "exit 0 between")},
    ("plain", "life_nccl", "kill in init"): NEVER,
    ("plain", "life_nccl", "kill in NCCL"): NEVER,
    ("plain", "life_nccl", "exit 7 between"): NEVER,
    ("plain", "life_nccl", "exit 7 in NCCL, driver waits"): NEVER,
    ("plain", "life_nccl", "SIGTERM in NCCL"): NEVER,
    ("plain", "life_nccl", "asynchronous error"): NEVER,
}
WITH_PMI2 = {
    **ALONE,
    ("srun", "life_mpi_nccl", "exit 0 between"): NEVER,
    ("srun", "life_mpi_nccl", "exit 0 in destroy"): NEVER,
    ("srun", "life_mpi", "exit 0 between"): NEVER,
}


def cells(mpi="pmix"):
    """mpi: srun's --mpi."""
    out = []
    alone = WITH_PMI2 if mpi == "pmi2" else ALONE

    def add(launcher, program, rows):
        for name, args, code, *more in rows:
            cell = Cell(launcher, program, name, args, code, *more)
            cell.alone = alone.get((launcher, program, name))
            out.append(cell)

    add("srun", "life_mpi_nccl", BOTH)
    add("srun", "life_nccl", [c for c in BOTH if "MPI" not in c[0]])
    add("srun", "life_mpi", [c for c in BOTH if c[0] in WITHOUT_NCCL])
    add("mpirun", "life_mpi_nccl", [c for c in BOTH if c[0] in MPIRUN])
    add("plain", "life_nccl", [c for c in BOTH if c[0] in PLAIN])
    return out
