#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Port clashes of 10,000 concurrent steps whose rank 0 is on one node.

Beside the formulas that today's launchers publish. A clash is a step whose
port another step has already; what is counted is steps less different ports.
"first" is our first candidate, for steps that start at the very same moment;
"ours" is what a launch does: it looks, and takes the next candidate where
somebody listens. The published formulas do not look. Ours are computed by the
product's code (port_table.c), the others by what their authors wrote.

Fails where a launch would clash more often than the best published formula,
and where our first candidates do and are worse than chance for so many ports:
for ids without any pattern only the number of ports counts, and two formulas
take more than are safe.
"""
import pathlib
import random
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
N = 10000
MAX_JOB = 0x03ffffff	# Slurm's MaxJobId


def submitit(job):
    return random.Random(str(job)).randint(20000, 60000)


FORMULAS = {
    "enroot": lambda j: j % 4536 + 61000,
    "submitit": submitit,
    "Lightning": lambda j: int(str(j)[-4:]) + 15000,
    "idr_torch": lambda j: 10000 + j % 20000,
    "JAX": lambda j: j % 4096 + 61440,
    "torchrun": lambda j: 29500,
}


# --- which steps run at once: N triples (job, step, restart) -----------------

def consecutive(rng):
    first = rng.randrange(1, MAX_JOB - N)
    return [(first + i, 0, 0) for i in range(N)]


def random_ids(rng):
    return [(j, 0, 0) for j in rng.sample(range(1, MAX_JOB), N)]


def busy_window(rng):
    """Half of the last 20,000 jobs still run."""
    first = rng.randrange(1, MAX_JOB - 2 * N)
    return [(first + j, 0, 0) for j in rng.sample(range(2 * N), N)]


def many_steps(jobs):
    def make(rng):
        first = rng.randrange(1, MAX_JOB - jobs)
        return [(first + j, s, 0) for j in range(jobs)
                for s in range(N // jobs)]
    return make


def arrays(rng):
    """100 arrays of 100 elements, other jobs in between."""
    out, job = [], rng.randrange(1, MAX_JOB // 2)
    for _ in range(100):
        out += [(job + i, 0, 0) for i in range(100)]
        job += 100 + rng.randrange(1, 2000)
    return out


def array_steps(rng):
    """10 arrays of 100 elements, each with 10 steps."""
    out, job = [], rng.randrange(1, MAX_JOB // 2)
    for _ in range(10):
        out += [(job + i, s, 0) for i in range(100) for s in range(10)]
        job += 100 + rng.randrange(1, 2000)
    return out


def requeues(rng):
    """2,000 jobs, and what their former runs have left behind."""
    first = rng.randrange(1, MAX_JOB - N)
    return [(first + j, 0, r) for j in range(N // 5) for r in range(5)]


def stride(by, steps):
    """Job ids that differ by a multiple of what formulas divide by."""
    def make(rng):
        first = rng.randrange(1, 20000)
        return [(first + i * by, s, 0) for i in range(N // steps)
                for s in range(steps)]
    return make


PATTERNS = [
    ("consecutive jobs", consecutive),
    ("half of the last 20,000 jobs", busy_window),
    ("random job ids", random_ids),
    ("1 job, 10,000 steps", many_steps(1)),
    ("10 jobs, 1,000 steps each", many_steps(10)),
    ("1,000 jobs, 10 steps each", many_steps(1000)),
    ("100 arrays of 100", arrays),
    ("10 arrays of 100, 10 steps each", array_steps),
    ("2,000 jobs, 5 runs each", requeues),
    ("job ids 4096 apart", stride(4096, 1)),
    ("job ids 10,000 apart, 2 steps", stride(10000, 2)),
    ("job ids 20,000 apart, 4 steps", stride(20000, 4)),
]


# --- ours --------------------------------------------------------------------

def build(folder):
    """The product's core and port_table.c into a program."""
    (folder / "config.h").write_text("")
    subprocess.run(
        ["gcc", "-std=gnu11", "-O2", "-I", str(folder), "-I",
         str(TOP), "-o", str(folder / "port_table"),
         str(HERE / "port_table.c"), *map(str, sorted(TOP.glob("core/*.c")))],
        check=True, timeout=120)
    return folder / "port_table"


def candidates(program, triples):
    """(ports in the pool, list of candidates of each triple)"""
    text = "".join("%d %d %d\n" % t for t in triples)
    out = subprocess.run([str(program)], input=text, capture_output=True,
                         text=True, check=True, timeout=60).stdout
    pool, _, rest = out.partition("\n")
    rows = [list(map(int, line.split())) for line in rest.splitlines()]
    if len(rows) != len(triples):
        sys.exit("port_table: %d lines for %d steps" % (len(rows),
                                                        len(triples)))
    return int(pool), rows


def looked(rows):
    """Clashes of steps that start one after the other and look."""
    held, clashes = set(), 0
    for row in rows:
        port = next((p for p in row if p not in held), row[0])
        clashes += port in held
        held.add(port)
    return clashes


def chance(n, m):
    """Clashes to expect of n steps that draw from m ports."""
    return n - m * (1 - (1 - 1 / m) ** n)


def main():
    worse = []
    names = ["ours", "first"] + list(FORMULAS)
    with tempfile.TemporaryDirectory(prefix="ddp-ports.") as tmp:
        program = build(pathlib.Path(tmp))
        pool, _ = candidates(program, [])
        print("port clashes among %d concurrent steps; our pool: %d ports, "
              "by chance %d" % (N, pool, chance(N, pool)))
        print("%-32s" % "" + "".join("%10s" % n for n in names))
        for title, make in PATTERNS:
            triples = make(random.Random(title))
            if len(set(triples)) != N:
                sys.exit("%s: not %d steps" % (title, N))
            _, rows = candidates(program, triples)
            counts = [looked(rows), N - len({r[0] for r in rows})]
            counts += [N - len({f(j) for j, _, _ in triples})
                       for f in FORMULAS.values()]
            print("%-32s" % title + "".join("%10d" % c for c in counts))
            best = min(counts[2:])
            if counts[0] > best:
                worse.append("%s: %d clashes, the best formula has %d" % (
                    title, counts[0], best))
            if counts[1] > best and counts[1] > 1.05 * chance(N, pool):
                worse.append("%s: first candidates clash %d times, the best "
                             "formula's %d, chance %d" % (
                                 title, counts[1], best, chance(N, pool)))
    for line in worse:
        print("FAIL " + line)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
