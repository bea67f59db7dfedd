#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C examples of the life-cycle library: they build as they say, and run
under mpirun. NCCL and CUDA are the fake's."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.abspath(os.environ["top_builddir"])
SRC = os.path.abspath(os.environ["top_srcdir"])
FAKES = os.path.join(TOP, "tests/fakes/libnccl")
EXAMPLES = os.path.join(SRC, "contrib/examples")
LIMIT = 120


def skip_all():
    for tool in ("mpicc", "mpirun"):
        if not shutil.which(tool):
            print(f"test_examples: skipped, needs {tool} (libopenmpi-dev)")
            sys.exit(77)
    if os.environ.get("SANITIZERS", "no") != "no":
        print("test_examples: skipped, MPI's library is not sanitized")
        sys.exit(77)


class Examples(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="life.", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, self.dir)
        shutil.copy(SRC + "/launcher/ddp_lifecycle.h", self.dir)
        # What programs include by NCCL's and CUDA's names.
        for name in ("nccl.h", "cuda_runtime.h"):
            with open(os.path.join(self.dir, name), "w") as f:
                f.write('#include "tests/fakes/fake_nccl.h"\n'
                        '#define ncclFloat ncclFloat32\n')

    def build(self, name, *libs):
        program = os.path.join(self.dir, name)
        libs_dir = os.path.join(TOP, ".libs")
        p = subprocess.run(
            ["mpicc", "-Wall", "-Wextra", "-Werror", "-I" + self.dir,
             "-I" + SRC, f"{EXAMPLES}/{name}.c", "-o", program,
             "-Wl,--no-as-needed", "-L" + libs_dir, "-lddp_lifecycle",
             "-Wl,-rpath," + libs_dir, *libs],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=LIMIT)
        self.assertEqual((p.returncode, p.stdout), (0, ""))
        return program

    def run_ranks(self, program, n=3):
        argv = ["mpirun", "--oversubscribe", "-n", str(n)]
        if os.getuid() == 0:
            argv.insert(1, "--allow-run-as-root")
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("SLURM_", "OMPI_", "PMIX_", "DDP_"))}
        p = subprocess.run(argv + [program], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, timeout=LIMIT, env=env)
        self.assertEqual(p.returncode, 0, p)
        return p.stdout

    def test_mpi(self):
        out = self.run_ranks(self.build("life_mpi"))
        self.assertEqual(out, "3 ranks are running\n"
                         "the sum of all ranks is 3\n")

    def test_mpi_and_nccl(self):
        fake = [os.path.join(FAKES, "libnccl.so.2"), "-Wl,-rpath," + FAKES]
        out = self.run_ranks(self.build("life_mpi_nccl", *fake))
        self.assertEqual(out, "3 ranks are running\nthe sum of ones is 3\n")


if __name__ == "__main__":
    skip_all()
    unittest.main()
