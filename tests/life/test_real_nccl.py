#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libddp_lifecycle.so with NVIDIA's own libnccl.so.2, on a machine without a
GPU: its version and unique ids are had, and its init fails; the library must
pass both on, and keep nothing of a communicator that has never come to be.

The programs are those of the other tests; preloaded, the real library takes
the place of the one that they were linked with. DDP_NCCL_LIBRARY is its path,
where it is not found by itself.
"""
import glob
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from life_harness import LIBRARY, SANITIZED, UNSEEN, Case  # noqa: E402


def find():
    """A path, or None."""
    if os.environ.get("DDP_NCCL_LIBRARY"):
        return os.environ["DDP_NCCL_LIBRARY"]
    for pattern in ("/usr/local/cuda*/lib*/libnccl.so.2",
                    "/opt/cuda/lib*/libnccl.so.2", "/usr/lib/*/libnccl.so.2",
                    "/usr/lib64/libnccl.so.2", "/usr/local/lib/libnccl.so.2"):
        for path in sorted(glob.glob(pattern)):
            return path
    return None


REAL = find()
# Through ctypes, which resolves by dlsym: the version, and two unique ids.
ASK = """
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
version = ctypes.c_int()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0
ids = [ctypes.create_string_buffer(128) for _ in range(2)]
codes = [nccl.ncclGetUniqueId(i) for i in ids]
print(version.value, *codes, ids[0].raw != ids[1].raw)
"""


class Real(Case):
    # Over the loopback interface; nothing of a network is needed.
    ENV = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "",
           "CUDA_VISIBLE_DEVICES": "-1", "DDP_LIFECYCLE_VERBOSE": "1"}

    def run_real(self, words, library=True):
        return self.run_prog(words, **self.ENV, LD_PRELOAD=" ".join(
            ([LIBRARY] if library else []) + [REAL]))

    def codes(self, r):
        return [x.split()[1] for x in r.out.splitlines()
                if x.startswith("comm ")]

    def test_version_and_id_behind_its_back(self):
        seen = []
        for preload in (False, True):
            r = self.run_prog(["-c", ASK, REAL], sys.executable, preload,
                              **{**self.ENV, "DDP_LIFECYCLE_VERBOSE": "0"})
            self.assertEqual(r.rc, 0, r)
            seen.append(r.out)
            self.assertEqual(UNSEEN in r.err, preload, r)
        self.assertEqual(*seen)
        version, *rest = seen[0].split()
        self.assertGreater(int(version), 20000)
        self.assertEqual(rest, ["0", "0", "True"])

    def test_failed_init_leaves_nothing(self):
        plain = self.run_real("mpi_init comm comm mpi_finalize exit 5", False)
        r = self.run_real("mpi_init comm comm mpi_finalize exit 5")
        self.assertEqual(plain.rc, 5, plain)
        self.assertEqual(len(self.codes(plain)), 2, plain)
        self.assertNotIn("0", self.codes(plain), "there is a GPU?")
        self.assertEqual((r.rc, r.out), (plain.rc, plain.out))
        self.assertEqual(r.log[-2:], ["MPI_Init", "MPI_Finalize"], r)
        self.assertIn("starting", r.err, "its calls were not seen")
        for word in ("ending", "communicators left", "aborted", "destroyed",
                     "not seen"):
            self.assertNotIn(word, r.err, r)

    def test_failed_group_leaves_nothing(self):
        r = self.run_real("mpi_init group 2 mpi_finalize exit 5")
        self.assertEqual(r.rc, 5, r)
        for word in ("ending", "aborted", "destroyed"):
            self.assertNotIn(word, r.err, r)

    def test_abort_after_it(self):
        r = self.run_real("mpi_init comm mpi_abort 7")
        self.assertEqual(r.rc, 7, r)
        self.assertEqual(r.log, ["MPI_Init", "MPI_Abort 7"], r)
        self.assertNotIn("ncclCommAbort", r.err, r)

    def test_term_after_it(self):
        r = self.run_real("mpi_init comm kill 15 sleep 20000")
        self.assertEqual(r.rc, -15, r)


if __name__ == "__main__":
    if not REAL or not os.path.exists(REAL):
        print("test_real_nccl: skipped, no libnccl.so.2 here "
              "(DDP_NCCL_LIBRARY)")
        sys.exit(77)
    if glob.glob("/dev/nvidia[0-9]*"):
        print("test_real_nccl: skipped, for machines without a GPU "
              "(tests/device/life_nccl.py)")
        sys.exit(77)
    if SANITIZED:
        print("test_real_nccl: skipped, the real library is not sanitized")
        sys.exit(77)
    unittest.main()
