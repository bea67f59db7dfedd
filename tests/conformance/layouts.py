# SPDX-License-Identifier: Apache-2.0
"""The rows of the table: one function a layout.

A row starts steps through its Cell (cell.py) and says what it has started;
what the variables must be it does not know. The shell text of a row has:
  $W          the cell's folder
  ${N[1]}     the nodes' names
  ${OPTS[@]}  srun's options for the launch (none for the shim)
  ${RUN[@]}   the program of a task, up to the folder for its observation
  launch DIR [srun's arguments]
"""
from cell import Skip

ROWS = []
ALL = ("torch", "jax", "horovod", "deepspeed", "accelerate", "lightning", "tf")
NO_TF = ALL[:-1]


class Row:
    def __init__(self, name, fn, ci, cluster, columns, refuses, limit):
        self.name, self.fn, self.ci, self.cluster = name, fn, ci, cluster
        self.columns, self.refuses, self.limit = columns, refuses, limit


def row(name, ci=False, cluster="main", columns=None, refuses=None, limit=60):
    """ci: also without --all. columns: {column: why it has no such cell}.
    refuses: {column: why a refusal is the right answer there}."""
    def add(fn):
        ROWS.append(Row(name, fn, ci, cluster, columns or {}, refuses or {},
                        limit))
        return fn
    return add


def simple(name, args, count, layout=None, ci=False, **kw):
    """A row of one srun."""
    @row(name, ci=ci)
    def _(c):
        c.launch(args, count=count, layout=layout, **kw)


# --- distributions -----------------------------------------------------------

simple("one task", "-n1", 1, "0", ci=True)
simple("one node, 4 tasks", "-N1 -n4", 4, "0,1,2,3")
simple("block", "-N2 -n4 --ntasks-per-node=2 -m block", 4, "0,1/2,3", ci=True)
simple("block:cyclic", "-N2 -n4 --ntasks-per-node=2 -m block:cyclic", 4,
       "0,1/2,3")
simple("cyclic", "-N2 -n4 --ntasks-per-node=2 -m cyclic", 4, "0,2/1,3",
       ci=True)
simple("cyclic, 3 nodes", "-N3 -n8 --exclusive -m cyclic", 8,
       "0,3,6/1,4,7/2,5")
simple("cyclic:block", "-N2 -n6 --ntasks-per-node=3 -m cyclic:block", 6,
       "0,2,4/1,3,5")
simple("plane=2", "-N2 -n6 --exclusive -m plane=2", 6, "0,1,4,5/2,3", ci=True)
simple("plane=3 of 7", "-N2 -n7 --exclusive -m plane=3", 7,
       "0,1,2,6/3,4,5")
# On 22.05 this is {0,1,3,4,5} and {2}.
simple("plane=2, Slurm's choice", "-N2 -n6 -m plane=2", 6, ci=True)
simple("pack, no pack", "-N3 -n6 --ntasks-per-node=2 -m *,NoPack", 6,
       "0,1/2,3/4,5")
simple("tasks and -c 2", "-N2 -n4 --ntasks-per-node=2 -c 2", 4, "0,1/2,3")
simple("uneven 4,1", "-N2 -n5 --ntasks-per-node=4", 5, ci=True)
simple("uneven 2(x3),1", "-N4 -n7 --ntasks-per-node=2", 7)
simple("uneven, Slurm's choice", "-N3 -n10", 10)
simple("more tasks than CPUs (-O)", "-N2 -n20 -O", 20, ci=True)
simple("one CPU, 6 tasks (--overcommit)", "-N1 -n6 --overcommit", 6,
       "0,1,2,3,4,5")


def arbitrary(name, order, layout, ci=False):
    """SLURM_HOSTFILE with one line a task."""
    @row("arbitrary " + name, ci=ci)
    def _(c):
        hosts = "".join(c.names[i] + "\n" for i in order)
        c.write("hosts", hosts)
        c.launch("-n%d -m arbitrary" % len(order), count=len(order),
                 layout=layout, before='export SLURM_HOSTFILE=$W/hosts',
                 allow=("SLURM_HOSTFILE",))


arbitrary("4,4,1", [4, 4, 1], "{4}:0,1/{1}:2", ci=True)
arbitrary("3,2,1", [3, 2, 1], "{3}:0/{2}:1/{1}:2")
arbitrary("in order", [1, 1, 2, 2], "{1}:0,1/{2}:2,3")
arbitrary("interleaved 2,1,2,3,1", [2, 1, 2, 3, 1],
          "{2}:0,2/{1}:1,4/{3}:3", ci=True)
arbitrary("uneven 5,3,3,3,3,1", [5, 3, 3, 3, 3, 1],
          "{5}:0/{3}:1,2,3,4/{1}:5")


# --- parts of an allocation --------------------------------------------------

@row("in salloc", ci=True)
def _(c):
    c.salloc("-N2 -n4 --ntasks-per-node=2", "launch a", "launch b")
    c.judge("a", count=4, layout="0,1/2,3")
    c.judge("b", count=4, layout="0,1/2,3")
    c.differ("a", "b")


@row("in salloc, -E")
def _(c):
    # -E keeps srun's number of nodes and tasks out of the environment.
    c.salloc("-N2 -n4 --ntasks-per-node=2", "launch a -E -N1 -n2",
             "launch b -n3")
    c.judge("a", count=2, layout="0,1")
    c.judge("b", count=3)


@row("subset -w", ci=True)
def _(c):
    c.salloc("-N4 -n8 --ntasks-per-node=2 -w ${N[1]},${N[2]},${N[3]},${N[4]}",
             "launch a -N1 -n1 -w ${N[4]}",
             "launch b -N2 -n4 -w ${N[2]},${N[3]}")
    c.judge("a", count=1, layout="{4}:0")
    c.judge("b", count=4, layout="{2}:0,1/{3}:2,3")


@row("subset -x", ci=True)
def _(c):
    c.salloc("-N3 -n6 --ntasks-per-node=2 -w ${N[1]},${N[2]},${N[3]}",
             "launch a -N2 -n4 -x ${N[1]}")
    c.judge("a", count=4, layout="{2}:0,1/{3}:2,3")


@row("subset -r", ci=True)
def _(c):
    c.salloc("-N3 -n6 --ntasks-per-node=2 -w ${N[1]},${N[2]},${N[3]}",
             "launch a -N2 -n4 -r 1")
    c.judge("a", count=4, layout="{2}:0,1/{3}:2,3")


@row("--exact", ci=True)
def _(c):
    c.salloc("-N2 -n4 --ntasks-per-node=2", "launch a --exact -N2 -n2")
    c.judge("a", count=2, layout="0/1")


@row("--overlap", ci=True)
def _(c):
    # The outer step holds every CPU while the inner one runs.
    c.salloc("-N2 -n4 --ntasks-per-node=2",
             "mkdir -pm 777 $W/b",
             "launch a --overlap --until $W/b 3 & launch b --overlap -N2 -n3",
             "wait $!")
    c.judge("a", count=4, layout="0,1/2,3")
    c.judge("b", count=3)
    c.differ("a", "b")


@row("two steps at once", ci=True)
def _(c):
    c.salloc("-N2 -n8 --ntasks-per-node=4", "mkdir -pm 777 $W/a $W/b",
             "launch a --exact -N2 -n4 --until $W/b 4 & p=$!",
             "launch b --exact -N2 -n4 --until $W/a 4",
             "wait $p")
    c.judge("a", count=4, layout="0,1/2,3")
    c.judge("b", count=4, layout="0,1/2,3")
    c.differ("a", "b")


@row("two jobs at once")
def _(c):
    c.sh("mkdir -pm 777 $W/a $W/b",
         "launch a -N2 -n2 --until $W/b 2 & p=$!",
         "launch b -N2 -n2 --until $W/a 2", "wait $p")
    c.judge("a", count=2, layout="0/1")
    c.judge("b", count=2, layout="0/1")
    c.differ("a", "b")


# --- batch -------------------------------------------------------------------

@row("in sbatch", ci=True)
def _(c):
    c.sbatch("-N2 -n4 --ntasks-per-node=2", "launch a", "launch b -n2 -N1")
    c.judge("a", count=4, layout="0,1/2,3")
    c.judge("b", count=2, layout="0,1")
    c.differ("a", "b")


@row("sbatch --ddp-launch", ci=True,
     columns={"shim": "an option that the plugin adds to sbatch"})
def _(c):
    c.sbatch("-N2 -n4 --ntasks-per-node=2 %s "
             "--ddp-frameworks=" % c.launch_words()[0][0] + ",".join(ALL),
             'mkdir -pm 777 $W/a && srun "${RUN[@]}" $W/a',
             "[[ -z ${RANK+x}${MASTER_PORT+x} ]]")
    c.judge("a", count=4, layout="0,1/2,3")


@row("array of three", ci=True, limit=90)
def _(c):
    c.sbatch("--array=0-2 -N2 -n3 --ntasks-per-node=2",
             "launch a$SLURM_ARRAY_TASK_ID", jobs=3)
    for i in range(3):
        c.judge("a%d" % i, count=3)
    if c.value("a2", "SLURM_ARRAY_JOB_ID") != c.value("a2", "SLURM_JOB_ID"):
        c.fail("the last element has not the array's own id")


@row("requeue", ci=True, limit=90)
def _(c):
    c.sbatch("--requeue -N2 -n2 --ntasks-per-node=1",
             "if [[ -z ${SLURM_RESTART_COUNT-} ]]; then launch a; "
             ": >$W/again; sleep 60; fi", "launch b", requeue="again")
    c.judge("a", count=2, layout="0/1")
    c.judge("b", count=2, layout="0/1")
    if c.value("b", "SLURM_RESTART_COUNT") != "1":
        c.fail("SLURM_RESTART_COUNT is not 1")
    c.differ("a", "b")


# --- heterogeneous -----------------------------------------------------------
#
# Slurm never puts two components of a job or step on one node. The tasks wait
# for each other, as those of a training do.

HET = dict(frameworks=NO_TF, het=True)
MEET = '"${RUN[@]}" $W/a --until $W/a %d'


@row("het job, salloc, groups 0,1", ci=True)
def _(c):
    c.salloc("-n1 -w ${N[1]} : -N2 -n3 -w ${N[2]},${N[3]}",
             "launch a --until $W/a 4 --het-group=0,1", **HET)
    c.judge("a", count=4, layout="{1}:0/{2}:1,2/{3}:3", **HET)


@row("het job, group 0 on a later node", ci=True)
def _(c):
    c.salloc("-n2 -N1 -w ${N[4]} : -N2 -n3 -w ${N[1]},${N[2]}",
             "launch a --until $W/a 5 --het-group=0,1", **HET)
    c.judge("a", count=5, layout="{4}:0,1/{1}:2,3/{2}:4", **HET)


@row("het job, group 1 alone", ci=True)
def _(c):
    c.salloc("-n1 -w ${N[3]} : -N2 -n3 -w ${N[1]},${N[2]}",
             "launch a --until $W/a 3 --het-group=1",
             "launch b --until $W/b 1 --het-group=0",
             frameworks=NO_TF)
    c.judge("a", count=3, layout="{1}:0,1/{2}:2", **HET)
    c.judge("b", count=1, layout="{3}:0", **HET)


@row("het job, three groups, two of them")
def _(c):
    c.salloc("-n1 -w ${N[3]} : -n2 -N1 -w ${N[2]} : -N1 -n1 -w ${N[1]}",
             "launch a --until $W/a 2 --het-group=0,2",
             "launch b --until $W/b 4 --het-group=0-2", **HET)
    c.judge("a", count=2, layout="{3}:0/{1}:1", **HET)
    c.judge("b", count=4, layout="{3}:0/{2}:1,2/{1}:3", **HET)


@row("het job, sbatch", limit=90)
def _(c):
    c.sbatch("-n1 -w ${N[2]} : -N2 -n4 --ntasks-per-node=2 -w ${N[4]},${N[5]}",
             "launch a --until $W/a 5 --het-group=0,1", **HET)
    c.judge("a", count=5, layout="{2}:0/{4}:1,2/{5}:3,4", **HET)


@row("het job, srun ':'", ci=True)
def _(c):
    c.sh('mkdir -pm 777 $W/a',
         'srun "${OPTS[@]}" -n1 -w ${N[3]} ' + MEET % 4 + ' : '
         '"${OPTS[@]}" -N2 -n3 -w ${N[1]},${N[2]} ' + MEET % 4, **HET)
    c.judge("a", count=4, layout="{3}:0/{1}:1,2/{2}:3", **HET)


@row("het step of one allocation", ci=True)
def _(c):
    c.salloc("-N3 -n9 --ntasks-per-node=3 -w ${N[1]},${N[2]},${N[3]}",
             'mkdir -pm 777 $W/a',
             'srun "${OPTS[@]}" -N1 -n2 -w ${N[2]} ' + MEET % 5 + ' : '
             '"${OPTS[@]}" -N2 -n3 -w ${N[1]},${N[3]} ' + MEET % 5, **HET)
    c.judge("a", count=5, layout="{2}:0,1/{1}:2,3/{3}:4", **HET)


@row("het step, cyclic part")
def _(c):
    c.salloc("-N3 -n12 --ntasks-per-node=4 -w ${N[1]},${N[2]},${N[3]}",
             'mkdir -pm 777 $W/a',
             'srun "${OPTS[@]}" -N1 -n1 -w ${N[3]} ' + MEET % 5 + ' : '
             '"${OPTS[@]}" -N2 -n4 --ntasks-per-node=2 -m cyclic '
             '-w ${N[1]},${N[2]} ' + MEET % 5, **HET)
    c.judge("a", count=5, layout="{3}:0/{1}:1,3/{2}:2,4", **HET)


NO_HET_TF = ("srun tells the nodes of its choices before it knows how many "
             "tasks there are, and so how many ports")


@row("het step and tf", refuses={"plugin": NO_HET_TF, "stateless": NO_HET_TF})
def _(c):
    c.sh('mkdir -pm 777 $W/a',
         'srun "${OPTS[@]}" -n1 -w ${N[3]} ' + MEET % 2 + ' : '
         '"${OPTS[@]}" -n1 -w ${N[1]} ' + MEET % 2, het=True)
    c.judge("a", count=2, het=True)


# --- how the program is started ----------------------------------------------

@row("--multi-prog", ci=True)
def _(c):
    c.sh('mkdir -pm 777 $W/a',
         'printf "0 %s\\n1-2 %s\\n* %s\\n" "${RUN[*]} $W/a" "${RUN[*]} $W/a" '
         '"${RUN[*]} $W/a" >$W/prog',
         'srun -N2 -n4 --ntasks-per-node=2 "${OPTS[@]}" --multi-prog $W/prog')
    c.judge("a", count=4, layout="0,1/2,3")


@row("--pty", ci=True)
def _(c):
    c.script("inside", "launch a --pty -N2 -n3")
    c.sh('"${TERMINAL[@]}" bash $W/inside')
    c.judge("a", count=3)
    if [True, True, True] not in c.ttys("a"):
        c.fail("no task had a terminal")


@row("-l, -u, --output")
def _(c):
    c.sh("launch a -l -N2 -n2", "launch b -u -N2 -n2",
         "launch c -N2 -n2 --output=$W/out-%t --error=$W/err-%t")
    for w in "abc":
        c.judge(w, count=2, layout="0/1")


@row("nested srun in a task", ci=True)
def _(c):
    # The inner step inherits everything of the outer rank.
    c.script("task", 'w=$1', '"${OBSERVE[@]}" $w',
             'if [[ $SLURM_PROCID == 1 ]]; then mkdir -pm 777 $W/inner',
             'launch inner --overlap -N2 -n3 --ntasks-per-node=2 -w '
             '${N[1]},${N[2]}', 'fi')
    c.salloc("-N2 -n4 --ntasks-per-node=2 -w ${N[1]},${N[2]}",
             "mkdir -pm 777 $W/outer",
             'srun "${OPTS[@]}" -N2 -n2 --ntasks-per-node=1 --overlap '
             '"${SHIM[@]}" bash $W/task $W/outer')
    c.judge("outer", count=2, layout="{1}:0/{2}:1")
    # Set, so it stays: the inner launch cannot know who has set it.
    c.judge("inner", count=3, user={
        "OMP_NUM_THREADS": c.value("outer", "OMP_NUM_THREADS", "1")})
    c.differ("outer", "inner")


def devices(c, ids):
    """The plugin places; the shim alone leaves all to Slurm."""
    return {} if c.column == "shim" else {"devices": ids}


@row("GPUs, --gpus-per-node")
def _(c):
    c.launch("-N2 -n2 --ntasks-per-node=1 --gpus-per-node=3", count=2,
             layout="0/1", **devices(c, "0,1,2"))
    if len(c.value("a", "CUDA_VISIBLE_DEVICES").split(",")) != 3:
        c.fail("the step has not three GPUs")


@row("GPUs, --gpus-per-task")
def _(c):
    c.launch("-N2 -n4 --ntasks-per-node=2 --gpus-per-task=1", count=4,
             layout="0,1/2,3", **devices(c, "0"))


TOO_LATE = "taskset would come after the plugin; see the unit tests"


@row("bound to one CPU", columns={"plugin": TOO_LATE, "stateless": TOO_LATE})
def _(c):
    c.sh('mkdir -pm 777 $W/a',
         'srun -N1 -n1 taskset -c 0 "${RUN[@]}" $W/a')
    c.judge("a", count=1)
    if c.value("a", "OMP_NUM_THREADS") != "1":
        c.fail("one CPU, OMP_NUM_THREADS is not 1")


# --- the environment ---------------------------------------------------------

MESS = {"RANK": "55", "WORLD_SIZE": "77", "LOCAL_RANK": "9",
        "LOCAL_WORLD_SIZE": "9", "NODE_RANK": "3", "MASTER_ADDR": "nowhere",
        "MASTER_PORT": "1", "GROUP_RANK": "8", "ROLE_RANK": "8",
        "PET_NNODES": "99", "PET_RDZV_ID": "x", "JAX_COORDINATOR_PORT": "2",
        "JAX_COORDINATOR_ADDRESS": "nowhere:1", "HOROVOD_RANK": "7",
        "CROSS_SIZE": "6", "LOCAL_SIZE": "6", "TF_CONFIG": "{}"}


def exports(names):
    return "; ".join("export %s='%s'" % kv for kv in names.items())


@row("--export=ALL", ci=True)
def _(c):
    user = {"FOO": "bar", "OMP_NUM_THREADS": "3"}
    c.launch("-N2 -n2 --export=ALL", count=2, before=exports(user), user=user)


@row("--export=NONE", ci=True)
def _(c):
    c.launch("-N2 -n3 --ntasks-per-node=2 --export=NONE", count=3,
             before=exports({"FOO": "bar", "OMP_NUM_THREADS": "3"}))


@row("--export=VAR=x", ci=True)
def _(c):
    c.launch("-N2 -n2 --export=FOO=baz", count=2,
             before=exports({"FOO": "bar", "BAR": "x"}), user={"FOO": "baz"})


@row("--export=list", ci=True)
def _(c):
    c.launch("-N2 -n2 --export=FOO,OMP_NUM_THREADS,PATH", count=2,
             before=exports({"FOO": "bar", "BAR": "x", "OMP_NUM_THREADS": "5"}),
             user={"FOO": "bar", "OMP_NUM_THREADS": "5"})


@row("--export=ALL,RANK=55", ci=True)
def _(c):
    c.launch("-N2 -n3 --ntasks-per-node=2 --export=ALL," + ",".join(
        "%s=%s" % kv for kv in MESS.items()), count=3)


@row("SLURM_EXPORT_ENV=NONE")
def _(c):
    c.launch("-N2 -n2", count=2,
             before="export SLURM_EXPORT_ENV=NONE FOO=bar")


# A step without a launch, to know what the login environment has.
PLAIN = 'mkdir -pm 777 $W/plain; srun -n1 "${OBSERVE[@]}" $W/plain'


@row("sbatch --export=NONE", limit=90)
def _(c):
    # Slurm then asks for the user's login environment: root has one.
    c.sbatch("--export=NONE -N2 -n3 --ntasks-per-node=2", PLAIN, "launch a",
             before="export FOO=bar RANK=7", user="root")
    c.judge("a", count=3, plain=c.without("plain"))


@row("sbatch --export=NIL", limit=90)
def _(c):
    if c.version < (24, 11):
        raise Skip("sbatch has no --export=NIL before 24.11")
    c.sbatch("--export=NIL -N2 -n3 --ntasks-per-node=2",
             "export SLURM_CONF=$CONF", "launch a",
             before="export FOO=bar RANK=7")
    c.judge("a", count=3)


@row("sbatch --export=ALL,RANK=55", limit=90)
def _(c):
    # 26.05 asks for the login environment here too.
    c.sbatch("--export=ALL,RANK=55,FOO=x -N2 -n3 --ntasks-per-node=2",
             PLAIN, "launch a", user="root")
    c.judge("a", count=3, user={"FOO": "x"}, plain=c.without("plain"))


@row("inherited values", ci=True)
def _(c):
    user = {"OMP_NUM_THREADS": "7", "NCCL_ASYNC_ERROR_HANDLING": "0",
            "NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth7"}
    c.launch("-N2 -n3 --ntasks-per-node=2", count=3,
             before=exports({**MESS, **user}), user=user)


@row("--task-prolog", ci=True)
def _(c):
    c.write("prolog", "#!/bin/sh\necho export FROM_PROLOG=yes\n", 0o755)
    c.launch("-N2 -n3 --ntasks-per-node=2 --task-prolog=$W/prolog", count=3,
             user={"FROM_PROLOG": "yes"})


# --- what is asked of the launch ---------------------------------------------

@row("default frameworks", ci=True)
def _(c):
    c.launch("-N2 -n3 --ntasks-per-node=2", count=3, frameworks=None)


for _fw in ALL:
    @row("only " + _fw, ci=_fw in ("tf", "horovod"))
    def _(c, fw=_fw):
        c.launch("-N2 -n3 --ntasks-per-node=2", count=3, frameworks=(fw,))


@row("another framework's names inherited")
def _(c):
    user = {"HOROVOD_RANK": "7", "TF_CONFIG": "{}", "PET_NNODES": "9"}
    c.launch("-N2 -n2", count=2, frameworks=("jax",), before=exports(user),
             user=user)


@row("port and address given", ci=True)
def _(c):
    c.launch("-N2 -n3 --ntasks-per-node=2", count=3, port=c.free_port(),
             addr="127.0.0.1")


@row("interface given")
def _(c):
    c.launch("-N2 -n3 --ntasks-per-node=2", count=3, iface="lo")


# --- other clusters ----------------------------------------------------------

@row("odd node names, TaskProlog", ci=True, cluster="odd")
def _(c):
    prolog = {"FROM_PROLOG": "yes"}
    n = len(c.names) - 1
    c.launch("-N%d -n%d --ntasks-per-node=2" % (n, 2 * n - 1),
             count=2 * n - 1, user=prolog)
    c.launch("-N2 -n4 --ntasks-per-node=2 -m cyclic "
             "-w rack0_blade1,rack1_blade0", count=4, user=prolog, world="b",
             layout="rack0_blade1:0,2/rack1_blade0:1,3")


@row("odd node names, arbitrary", cluster="odd")
def _(c):
    order = ["rack1_blade1", "b04-10", "rack0_blade0", "b04-10",
             "gpu-compute-on-demand-dy-g4dnxlarge-2"]
    c.write("hosts", "".join(n + "\n" for n in order))
    c.launch("-n5 -m arbitrary", count=5, user={"FROM_PROLOG": "yes"},
             before="export SLURM_HOSTFILE=$W/hosts",
             layout="rack1_blade1:0/b04-10:1,3/rack0_blade0:2/"
             "gpu-compute-on-demand-dy-g4dnxlarge-2:4")


@row("odd node names, het step", cluster="odd")
def _(c):
    user = {"FROM_PROLOG": "yes"}
    c.sh('mkdir -pm 777 $W/a',
         'srun "${OPTS[@]}" -n1 -w node100 ' + MEET % 4 + ' : '
         '"${OPTS[@]}" -N2 -n3 -w rack0_blade1,alpha ' + MEET % 4, **HET)
    c.judge("a", count=4, user=user, **HET)


@row("64 nodes x 4 tasks", cluster="big", limit=180)
def _(c):
    c.launch("-N64 -n256 --ntasks-per-node=4", count=256)


@row("64 nodes x 4 tasks, cyclic", cluster="big", limit=180)
def _(c):
    c.launch("-N64 -n256 --ntasks-per-node=4 -m cyclic", count=256)
