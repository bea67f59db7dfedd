# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own store on the port that the agent of rank 0 holds.

For a machine with a PyTorch whose store is built on libuv, as PyPI's are and
Debian's is not. Slurm is played by tests/control/agent_harness.py: the agent
is the real one. Two ranks meet in the store, with libuv and without, at once
and after a second; then through init_process_group (gloo) with env://, as
training scripts do. No GPU is used.

    DDP_AGENT=…/ddp-agent DDP_GATE_HELPER=…/gate_helper \
        python3 tests/device/store.py
"""
import os
import shutil
import socket
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "control"))
import agent_harness as h  # noqa: E402

STORE = """
import datetime, os, sys, time
import torch.distributed as dist
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
time.sleep(float(sys.argv[2]))
limit = datetime.timedelta(seconds=60)
if sys.argv[1] == "group":
    os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    import torch
    dist.init_process_group("gloo", timeout=limit)
    t = torch.ones(3) * (rank + 1)
    dist.all_reduce(t)
    assert t.tolist() == [3.0] * 3, t
else:
    store = dist.TCPStore("127.0.0.1", port, 2, rank == 0, limit,
                          use_libuv=sys.argv[1] == "uv")
    assert store.libuvBackend == (sys.argv[1] == "uv")
    store.set(str(rank), "here")
    assert store.get(str(1 - rank)) == b"here"
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < 2:
        time.sleep(0.01)
end = time.monotonic() + 60
while not os.path.exists("seen") and time.monotonic() < end:
    time.sleep(0.05)
"""


class Store(unittest.TestCase):
    def setUp(self):
        self.ctl = h.Controller()
        self.addCleanup(self.ctl.close)

    def met(self, kind, late):
        """Two ranks; their exit states and what the agent said."""
        s = h.Step(self.ctl.text(), f"exec {sys.executable} store.py {kind} "
                   f"{late} 2>rank.$RANK")
        self.addCleanup(s.close)
        with open(os.path.join(s.dir, "store.py"), "w") as f:
            f.write(STORE)
        c = self.ctl.accept()
        c.handshake()
        c.next(h.READY)
        port = c.reserve().port
        self.assertTrue(port)
        with socket.socket() as sock, self.assertRaises(OSError):
            sock.bind(("", port))
        c.plan(port=port)
        notes, exits = [], {}
        while len(exits) < 2:
            m = c.next(h.NOTE, h.EXIT, limit=120)
            if m.type == h.NOTE:
                notes.append((m.kind, m.text))
                open(os.path.join(s.dir, "seen"), "w").close()
            else:
                exits[m.rank] = m.status
        said = []
        for rank in range(2):
            with open(os.path.join(s.dir, f"rank.{rank}"),
                      errors="replace") as f:
                said.append(f.read())
        self.assertEqual(exits, {0: 0, 1: 0}, said)
        self.assertEqual([n[0] for n in notes], [h.PORT_USED], notes)

    def test_met(self):
        for kind in ("uv", "plain", "group"):
            for late in (0, 1):
                with self.subTest(kind=kind, late=late):
                    self.met(kind, late)


if __name__ == "__main__":
    for need in (h.AGENT, h.HELPER):
        if not shutil.which(need):
            sys.exit(f"{need}: not found; set DDP_AGENT and DDP_GATE_HELPER")
    print(subprocess.run([sys.executable, "-c",
                          "import torch; print('torch', torch.__version__)"],
                         check=True, capture_output=True, text=True).stdout,
          end="")
    unittest.main(verbosity=2)
