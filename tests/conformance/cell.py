# SPDX-License-Identifier: Apache-2.0
"""One cell of the table: a row, a column, a cluster. Runs what the row says
and collects what the judge finds."""
import os
import pathlib
import shlex
import shutil
import tempfile
import traceback

import cluster as clusters
import expect

PYTHON = "/usr/bin/python3"
# Before Slurm 23.02.5 two threads of a het srun draw the same first port of
# SrunPortRange: both bind it, one listens, and the other's socket, bound
# already, gets no port of the range. One plain het srun in 250 ends so, with
# these words, and its row is run once more.
PORT_RACE = "sock_bind_listen_range: all ports in range"
ALL = expect.FRAMEWORKS


class Skip(Exception):
    """The cell cannot be, and the text says why."""


class Failed(Exception):
    """No use in going on with this cell."""


class Refused(Exception):
    """The launch said no, with a reason."""


PREAMBLE = """set -u
W=%(folder)s CONF=%(conf)s
N=('' %(names)s)
OBSERVE=(%(python)s -IS %(observe)s)
TERMINAL=(%(python)s -IS -c 'import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))')
launch()
{
	local d=$W/$1 until=() args=()
	shift
	while (($#)); do
		if [[ $1 == --until ]]; then
			until=("$1" "$2" "$3")
			shift 3
		else
			args+=("$1")
			shift
		fi
	done
	mkdir -pm 777 "$d"
	srun "${args[@]}" "${OPTS[@]}" "${RUN[@]}" "$d" "${until[@]}"
}
"""

WORDS = """OPTS=(%s)
SHIM=(%s)
RUN=("${SHIM[@]}" "${OBSERVE[@]}")
"""


class Cell:
    def __init__(self, column, cl, row, folder):
        """column: "plugin", which is full mode, "stateless" or "shim"; cl: the running Cluster."""
        self.column, self.cl, self.row = column, cl, row
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(mode=0o777)
        self.folder.chmod(0o1777)
        self.names = [""] + cl.names
        self.version = tuple(map(int, cl.version.split(".")))
        self.found = []
        self.worlds = {}

    # --- what a row says ---------------------------------------------------

    def fail(self, text):
        self.found.append(text)

    def write(self, name, text, mode=0o644):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)

    def free_port(self):
        return clusters.free_ports(1)

    def launch_words(self, frameworks=ALL, port=None, addr=None, iface=None):
        """(srun's options, words before the program)"""
        given = {"frameworks": frameworks and ",".join(frameworks),
                 "master-port": port, "master-addr": addr, "iface": iface}
        given = {k: v for k, v in given.items() if v}
        if self.column != "shim":
            mode = "--ddp-launch" + ("=stateless" if self.column == "stateless"
                                     else "")
            return ([mode] +
                    ["--ddp-%s=%s" % kv for kv in given.items()], [])
        return [], ([self.cl.tmp + "/ddp-launch"] +
                    ["--%s=%s" % kv for kv in given.items()])

    def preamble(self, **launch):
        opts, shim = self.launch_words(**launch)
        text = PREAMBLE % {
            "folder": self.folder, "python": PYTHON,
            "conf": self.cl.dir + "/etc/slurm.conf",
            "names": " ".join(map(shlex.quote, self.names[1:])),
            "observe": self.cl.tmp + "/observe.py"}
        return text + WORDS % (" ".join(map(shlex.quote, opts)),
                               " ".join(map(shlex.quote, shim)))

    def script(self, name, *lines, **launch):
        self.write(name, "#!/bin/bash\n" + self.preamble(**launch) +
                   "\n".join(lines) + "\n", 0o755)
        return str(self.folder / name)

    def sh(self, *lines, het=False, before="", user=clusters.USER, **launch):
        """Run lines; any of them failing is the cell's failure."""
        path = self.script("script", "set -e", before, *lines, **launch)
        self.done(self.cl.user_run("/bin/bash", path, limit=self.row.limit,
                                   user=user))

    def done(self, r):
        if r.rc == 0:
            return
        if r.rc != 124 and "ddp: error: " in r.out + r.err:
            raise Refused(r.tail())
        raise Failed("exit code %d%s\n%s" % (
            r.rc, ", time limit" if r.rc == 124 else "", r.tail()))

    def launch(self, args, world="a", before="", frameworks=ALL, port=None,
               addr=None, iface=None, **judge):
        """One step: srun ARGS with the launch; then judge it."""
        asked = dict(frameworks=frameworks, port=port, addr=addr, iface=iface)
        self.sh("set -f", "launch %s %s" % (world, args), before=before,
                **asked)
        asked["frameworks"] = frameworks or ("torch", "jax")
        self.judge(world, **asked, **judge)

    def salloc(self, args, *lines, het=False, **launch):
        """lines run inside an allocation."""
        inner = self.script("inside", "set -e", *lines, **launch)
        self.sh("salloc -Q %s bash %s" % (args, inner), **launch)

    def sbatch(self, args, *lines, jobs=1, requeue=None, before="", het=False,
               user=clusters.USER, **launch):
        """lines are a batch script; waits for `jobs` jobs of it. requeue: the
        file that says that the first one wants to be requeued."""
        inner = self.script(
            "batch", "trap 'echo $? >$W/rc.$SLURM_JOB_ID' EXIT",
            "set -e", *lines, **launch)
        self.sh("sbatch --parsable -o $W/out.%%j %s %s >$W/job" % (
            args, inner), before=before, user=user, **launch)
        job = (self.folder / "job").read_text().split(";")[0].strip()
        if requeue:
            self.requeue(job, requeue)
        codes = lambda: [p for p in self.folder.glob("rc.*") if p.read_text()]
        if not clusters.wait_until(self.row.limit,
                                   lambda: len(codes()) >= jobs):
            raise Failed("the batch job did not end\n%s\n%s" % (
                self.outputs(), self.cl.root_run("squeue").out))
        if any(p.read_text().strip() != "0" for p in codes()):
            self.done(clusters.Result(1, self.outputs(), ""))

    def requeue(self, job, sign):
        if not clusters.wait_until(self.row.limit,
                                   (self.folder / sign).exists):
            raise Failed("the first run did not come\n" + self.outputs())
        r = self.cl.user_run("scontrol", "requeue", job)
        if r.rc:
            raise Failed("scontrol requeue: " + r.tail())
        pending = lambda: self.cl.root_run(
            "squeue", "-h", "-j", job, "-o", "%T").out.strip() == "PENDING"
        if not clusters.wait_until(30, pending):
            raise Failed("the requeued job is not pending")
        for p in self.folder.glob("rc.*"):
            p.unlink()
        # Slurm would hold it back for two minutes, until the revoked credential
        # is out of date; one made in a later second is enough.
        self.cl.root_run("scontrol", "update", "JobId=" + job,
                         "StartTime=now+3")

    def outputs(self):
        return "\n".join(p.read_text(errors="replace")[-1500:]
                         for p in sorted(self.folder.glob("out.*")))

    # --- judging -------------------------------------------------------------

    def judge(self, world, layout=None, frameworks=ALL, **asked):
        asked.setdefault("srun_ports", self.cl.srun_ports)
        asked.setdefault("plain", self.cl.plain)
        asked.setdefault("full", self.column == "plugin")
        asked = expect.Asked(
            layout=layout and layout.format(*self.names),
            frameworks=frameworks, **asked)
        seen = expect.read(self.folder / world)
        self.worlds[world] = (seen, asked)
        nodes = expect.parse_nodes(self.cl.nodes_text)
        self.found += ["%s: %s" % (world, d)
                       for d in expect.judge(seen, nodes, asked)]

    def without(self, world):
        """For judge(plain=): what a step without a launch has seen."""
        seen = expect.read(self.folder / world)
        if len(seen) != 1:
            raise Failed("the step without a launch was not seen")
        return beside_slurm(seen[0])

    def value(self, world, name, rank="0"):
        for seen in self.worlds[world][0]:
            env = dict(seen["environ"])
            if env.get("SLURM_PROCID") == rank:
                return env.get(name, "")
        return ""

    def ttys(self, world):
        return [seen["tty"] for seen in self.worlds[world][0]]

    def differ(self, one, other):
        """Two steps, two ports."""
        a, b = (self.value(w, "MASTER_PORT") for w in (one, other))
        if a == b:
            self.fail("steps %s and %s have the same MASTER_PORT %s" % (
                one, other, a))


def run_cell(column, cl, row, folder):
    """(state, details, cell): state is ok, FAIL, refuses or skip."""
    result = run_once(column, cl, row, folder)
    if result[0] == "FAIL" and PORT_RACE in result[1] and \
            result[2].version < (23, 2) and cl.clear():
        print("  again    %s: Slurm's race for a port of SrunPortRange" %
              row.name, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        result = run_once(column, cl, row, folder)
    return result


def run_once(column, cl, row, folder):
    if column in row.columns:
        return "skip", row.columns[column], None
    cell = Cell(column, cl, row, folder)
    may_refuse = row.refuses.get(column)
    try:
        row.fn(cell)
    except Skip as e:
        return "skip", str(e), None
    except Refused as e:
        if may_refuse:
            return "refuses", may_refuse, None
        cell.found.append("refused:\n%s" % e)
    except Failed as e:
        cell.found.append(str(e))
    except clusters.Broken:
        raise
    except Exception:  # a row's own fault is no reason to lose the others
        cell.found.append(traceback.format_exc())
    if may_refuse and not cell.found:
        cell.found.append("should be refused: " + may_refuse)
    if not cell.found and not cell.worlds:
        cell.found.append("the row has judged nothing")
    return ("FAIL" if cell.found else "ok"), "\n".join(cell.found), cell


def beside_slurm(seen):
    """[[name, value]] of a task without a launch, less SLURM_*."""
    return [kv for kv in seen["environ"] if not kv[0].startswith("SLURM")]


def plain_names(cl):
    """What any task has here beside SLURM_*."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=cl.tmp))
    folder.chmod(0o777)
    r = cl.user_run("srun", "-n1", PYTHON, "-IS", cl.tmp + "/observe.py",
                    str(folder))
    seen = expect.read(folder)
    if r.rc or len(seen) != 1:
        raise clusters.Broken("a plain srun: " + r.tail())
    return beside_slurm(seen[0])


def prepare(cl, shim):
    """The programs of the tasks, where every node finds them."""
    for path in [clusters.HERE / "observe.py"] + ([shim] if shim else []):
        to = pathlib.Path(cl.tmp, path.name)
        to.write_bytes(path.read_bytes())
        to.chmod(0o755)
    os.chmod(cl.tmp, 0o1777)
