#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libddp_lifecycle.so: orderly ends, forks, late libraries, and where it is inert."""
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from life_harness import (  # noqa: E402
    LATE, LIBRARY, LIFE, LIMIT, NCCL, SANITIZED, SRC, UNSEEN, Case)


class Finalize(Case):
    def test_leftovers_end_before_mpi(self):
        r = self.run_prog("mpi_init comm comm coll 0 mpi_finalize")
        self.assertEqual(r.rc, 0, r)
        for n in "12":
            self.assertTrue(r.has(f"ncclCommFinalize {n}",
                                  f"ncclCommDestroy {n}", "MPI_Finalize"), r)

    def test_nothing_left_nothing_done(self):
        r = self.run_prog("mpi_init comm finalize 0 destroy 0 mpi_finalize")
        self.assertEqual(r.log, ["MPI_Init", "ncclGetUniqueId",
                                 "ncclCommInitRank", "ncclCommFinalize 1",
                                 "ncclCommDestroy 1", "MPI_Finalize"], r)

    def test_finalized_by_the_program(self):
        r = self.run_prog("mpi_init comm finalize 0 mpi_finalize")
        self.assertEqual(r.log.count("ncclCommFinalize 1"), 1, r)
        self.assertTrue(r.has("ncclCommDestroy 1", "MPI_Finalize"), r)

    def test_late_destroy_is_not_a_second_one(self):
        r = self.run_prog("mpi_init comm mpi_finalize destroy 0 abort 0 "
                          "async coll 0")
        self.assertEqual(r.log.count("ncclCommDestroy 1"), 1, r)
        self.assertNotIn("ncclCommAbort 1", r.log, r)
        self.assertIn("destroy 0\nabort 0\nasync 0\ncoll 5", r.out, r)

    def test_stuck_one_is_aborted(self):
        r = self.run_prog("mpi_init comm mpi_finalize exit 4",
                          MINI_FINALIZE="hang", DDP_LIFECYCLE_TIMEOUT="0.4")
        self.assertTrue(r.has("ncclCommFinalize 1", "ncclCommAbort 1",
                              "MPI_Finalize"), r)
        self.assertNotIn("ncclCommDestroy 1", r.log, r)
        self.assertEqual(r.rc, 4, r)
        self.assertIn("did not end within 400 ms", r.err, r)
        self.assertLess(r.seconds, 5)

    def test_stuck_destroy_is_left(self):
        r = self.run_prog("mpi_init comm mpi_finalize",
                          MINI_DESTROY="hang", DDP_LIFECYCLE_TIMEOUT="0.4")
        self.assertTrue(r.has("ncclCommDestroy 1", "MPI_Finalize"), r)
        self.assertNotIn("ncclCommAbort 1", r.log, r)
        self.assertEqual(r.rc, 0, r)

    def test_many(self):
        r = self.run_prog("mpi_init many 200 split 3 split -1 mpi_finalize")
        self.assertEqual(sum(x.startswith("ncclCommDestroy") for x in r.log),
                         201, r)
        self.assertEqual(r.log[-1], "MPI_Finalize")

    def test_group(self):
        r = self.run_prog("mpi_init group 5 mpi_finalize")
        self.assertEqual(sum(x.startswith("ncclCommDestroy") for x in r.log),
                         5, r)

    def test_again_after_finalize(self):
        r = self.run_prog("mpi_init comm mpi_finalize comm coll 1 destroy 1")
        self.assertIn("coll 0\ndestroy 0", r.out, r)
        self.assertIn("ncclCommDestroy 2", r.log, r)

    def test_fortran(self):
        r = self.run_prog("f_init comm f_finalize")
        self.assertTrue(r.has("ncclCommDestroy 1", "MPI_Finalize"), r)


class Exit(Case):
    def test_after_success(self):
        r = self.run_prog("mpi_init comm coll 0")
        self.assertEqual(r.rc, 0, r)
        self.assertTrue(r.has("ncclCommFinalize 1", "ncclCommDestroy 1"), r)
        self.assertNotIn("MPI_Finalize", r.log, r)

    def test_after_failure(self):
        r = self.run_prog("mpi_init comm coll 0 exit 5")
        self.assertEqual(r.rc, 5, r)
        self.assertIn("aborted 1", r.log, r)
        self.assertNotIn("ncclCommFinalize 1", r.log, r)

    def test_bounded(self):
        for code, env in ((0, "MINI_FINALIZE"), (5, "MINI_ABORT")):
            r = self.run_prog(f"comm exit {code}", **{env: "hang"},
                              DDP_LIFECYCLE_TIMEOUT="0.4")
            self.assertEqual(r.rc, code, r)
            self.assertLess(r.seconds, 5)

    def test_signal_meanwhile(self):
        p = self.start("comm exit 5", MINI_ABORT="hang")
        self.until_log("ncclCommAbort")
        p.terminate()
        r = self.wait(p)
        self.assertEqual(r.rc, -signal.SIGTERM, r)

    def test_in_a_thread(self):
        r = self.run_prog("mpi_init comm thread exit 5 sleep 20000")
        self.assertEqual(r.rc, 5, r)
        self.assertIn("aborted 1", r.log, r)


class Fork(Case):
    def test_child_owns_nothing(self):
        r = self.run_prog("mpi_init comm fork exit 3")
        self.assertIn("child 3", r.out, r)
        self.assertEqual(len(r.pids), 1, "the child has called something")
        self.assertTrue(r.has("ncclCommDestroy 1"), r)

    def test_child_is_killed(self):
        """Its signal must not reach the parent through the pipe."""
        r = self.run_prog("mpi_init comm fork_kill 15 sleep 200 coll 0 "
                          "mpi_finalize exit 4")
        self.assertIn("child 143", r.out, r)
        self.assertIn("coll 0", r.out, r)
        self.assertEqual(r.rc, 4, r)

    @unittest.skipIf(os.environ.get("SANITIZERS") == "thread",
                     "TSan does not support threads after fork")
    def test_child_may_start_anew(self):
        r = self.run_prog("mpi_init fork comm coll 0 kill 15 sleep 20000")
        self.assertIn("child 143", r.out, r)
        self.assertIn("aborted 1", r.log, r)


class Late(Case):
    """NCCL and MPI come with a library that is opened RTLD_LOCAL."""

    def test_finalize(self):
        r = self.run_prog([LATE, "mpi_init", "comm", "coll", "0",
                           "mpi_finalize"], "late")
        self.assertTrue(r.has("ncclCommDestroy 1", "MPI_Finalize"), r)

    def test_abort(self):
        r = self.run_prog([LATE, "mpi_init", "comm", "mpi_abort", "7"], "late")
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 7"), r)

    def test_resolved_by_dlsym_is_said(self):
        r = self.run_prog(["sym", NCCL], "late")
        self.assertEqual(r.rc, 0, r)
        self.assertEqual(r.err.strip(), UNSEEN)

    def test_linked_but_unused_is_not(self):
        r = self.run_prog(["open", LATE], "late")
        self.assertEqual((r.rc, r.err), (0, ""), r)

    def test_nothing_at_all(self):
        r = self.run_prog(["open"], "late")
        self.assertEqual((r.rc, r.err), (0, ""), r)

    @unittest.skipIf(SANITIZED, "it reads what lies between variables")
    def test_inside_another_library(self):
        libs = os.path.join(LIFE, "libs")
        for names, said in (("", ""), ("libinside.so", ""),
                            ("libcuda.so.1", ""),
                            ("libcuda.so.1 libinside.so", UNSEEN)):
            p = " ".join([LIBRARY] + [f"{libs}/{x}" for x in names.split()])
            r = self.run_prog("", "mpi_only", LD_PRELOAD=p)
            self.assertEqual((r.rc, r.err.strip()), (0, said), names)

    def test_off(self):
        r = self.run_prog("mpi_init comm mpi_finalize", DDP_LIFECYCLE="off")
        self.assertEqual((r.rc, r.err), (0, ""), r)
        self.assertNotIn("ncclCommDestroy 1", r.log, r)
        r = self.run_prog(["sym", NCCL], "late", DDP_LIFECYCLE="off")
        self.assertEqual(r.err, "", r)


class Inert(Case):
    def calls(self, argv, **env):
        if not shutil.which("strace"):
            self.skipTest("needs strace")
        out = os.path.join(self.dir, "strace")
        p = subprocess.run(["strace", "-f", "-o", out, "-E",
                            "LD_PRELOAD=" + LIBRARY] + argv,
                           env=self.environ(False, env), timeout=LIMIT,
                           stdin=subprocess.DEVNULL, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if not os.path.exists(out) or "PTRACE" in p.stderr:
            self.skipTest("strace may not trace here")
        with open(out) as f:
            return p, f.read()

    def assert_inert(self, text):
        # By the calls' names: paths may have any word in them.
        calls = re.findall(r"^\d+ +(\w+\((?:SIGTERM)?)", text, re.M)
        self.assertIn("execve(", calls)
        for call in calls:
            self.assertNotRegex(call, r"clone|^socket|pipe|eventfd|fork|"
                                "sigaction.SIGTERM")

    @unittest.skipIf(SANITIZED, "the sanitizer's library starts things itself")
    def test_neither_mpi_nor_nccl(self):
        p, text = self.calls(["/bin/true"],
                             DDP_LIFECYCLE_SOCKET="@nobody")
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        self.assertIn("libddp_lifecycle", text)
        self.assert_inert(text)

    @unittest.skipIf(SANITIZED, "the sanitizer's library starts things itself")
    def test_linked_but_unused(self):
        p, text = self.calls([os.path.join(LIFE, "prog")])
        self.assertEqual((p.returncode, p.stderr), (0, ""))
        self.assert_inert(text)

    def test_static(self):
        still = os.path.join(LIFE, "still")
        if not os.path.exists(still):
            self.skipTest("no static C library")
        r = self.run_prog("", still)
        self.assertEqual((r.rc, r.out, r.err), (0, "still here\n", ""))

    def setuid_copy(self, name):
        os.chmod(self.dir, 0o755)
        copy = os.path.join(self.dir, name)
        built = os.path.join(LIFE, ".libs", name)
        shutil.copy(built if os.path.exists(built)
                    else os.path.join(LIFE, name), copy)
        os.chmod(copy, 0o4755)
        return copy

    @unittest.skipIf(SANITIZED, "a sanitizer does not run setuid")
    def test_setuid(self):
        """The linker refuses what LD_PRELOAD names there; a program that is
        linked with the library has it, and it is off."""
        if os.getuid():
            self.skipTest("needs root")
        env = self.environ(True, {"DDP_LIFECYCLE_VERBOSE": "1"})
        words = "ddp_init comm coll 0 ddp_state exit 5".split()
        for name, off in (("prog", None), ("prog_api", True)):
            copy = self.setuid_copy(name)
            for user, inert in (("65534", True), ("0", False)):
                p = subprocess.run(
                    ["setpriv", "--reuid=" + user, "--clear-groups", copy] +
                    (words if off else words[1:4] + words[-2:]),
                    env=env, timeout=LIMIT, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)
                log = self.read_log()
                os.unlink(self.log)
                self.assertEqual(p.returncode, 5, p)
                self.assertIn("coll 0", p.stdout, p)
                # Its end after a failure is that they are aborted.
                self.assertEqual("aborted 1" in log, not inert, p)
                self.assertEqual("life" in p.stderr, not inert, p)
                if off:
                    self.assertEqual("switched off" in p.stdout, inert, p)
                    self.assertEqual("none 0" in p.stdout, inert, p)


class Abi(unittest.TestCase):
    def test_nccl_h(self):
        cc = os.environ.get("CC", "cc").split()
        dirs = [d for d in ("/usr/include", "/usr/local/include",
                            "/usr/local/cuda/include",
                            *sorted(f"/usr/local/{d}/include" for d in
                                    os.listdir("/usr/local")
                                    if d.startswith("cuda")))
                if os.path.exists(d)]
        has = [d for d in dirs if os.path.exists(d + "/nccl.h")]
        cuda = [d for d in dirs if os.path.exists(d + "/cuda_runtime.h")]
        if not has or not cuda:
            self.skipTest("no nccl.h with CUDA's headers")
        p = subprocess.run(cc + ["-std=gnu11", "-fsyntax-only", "-I" + SRC,
                                 "-isystem", has[0], "-isystem", cuda[0],
                                 SRC + "/tests/life/life_abi.c"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, timeout=300)
        self.assertEqual((p.returncode, p.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
