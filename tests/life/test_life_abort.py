#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libddp_lifecycle.so: aborts, errors, signals, the agent, the C functions."""
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from life_harness import (  # noqa: E402
    LIBRARY, LIFE, LIMIT, SANITIZED, AgentCase, Case)


class Abort(Case):
    def test_order_and_code(self):
        r = self.run_prog("mpi_init comm comm coll 0 mpi_abort 7")
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 7"), r)
        self.assertTrue(r.has("aborted 2", "MPI_Abort 7"), r)
        self.assertLess(r.seconds, 5 if SANITIZED else 1)

    def test_fortran(self):
        r = self.run_prog("f_init comm f_abort 9")
        self.assertEqual(r.rc, 9, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 9"), r)

    def test_exit_in_mpi_abort(self):
        r = self.run_prog("mpi_init comm mpi_abort 7", MINI_MPI_ABORT="exit")
        self.assertEqual(r.rc, 7, r)
        self.assertEqual(r.log.count("ncclCommAbort 1"), 1, r)

    def test_mpi_abort_hangs(self):
        r = self.run_prog("mpi_init comm mpi_abort 7", MINI_MPI_ABORT="hang",
                          DDP_LIFECYCLE_TIMEOUT="0.6")
        self.assertEqual(r.rc, 7, r)

    def test_nccl_abort_hangs(self):
        r = self.run_prog("mpi_init comm comm mpi_abort 7",
                          MINI_ABORT="hang", DDP_LIFECYCLE_TIMEOUT="0.6")
        self.assertEqual(r.rc, 7, r)
        self.assertIn("MPI_Abort 7", r.log, r)
        self.assertIn("2 NCCL communicators did not end", r.err, r)

    def test_one_hanging_does_not_hold_others(self):
        r = self.run_prog("mpi_init many 20 mpi_abort 7", MINI_ABORT="first",
                          DDP_LIFECYCLE_TIMEOUT="1")
        self.assertEqual(sum(x.startswith("aborted") for x in r.log), 19, r)
        self.assertEqual(r.rc, 7, r)

    def test_aborts_that_wait_for_each_other(self):
        """100 of them, more than the threads at once."""
        r = self.run_prog("mpi_init many 100 mpi_abort 7", MINI_ABORT="joint")
        self.assertEqual(sum(x.startswith("aborted") for x in r.log), 100, r)
        self.assertEqual(r.rc, 7, r)
        self.assertLess(r.seconds, 8, r)

    def test_two_threads_first_code(self):
        for _ in range(10):
            r = self.run_prog("mpi_init comm thread mpi_abort 7 mpi_abort 7")
            self.assertEqual(r.rc, 7, r)
            self.assertEqual(r.log.count("MPI_Abort 7"), 1, r)
            os.unlink(self.log)

    def test_first_of_two_codes(self):
        r = self.run_prog("mpi_init comm thread mpi_abort 7 sleep 100 "
                          "mpi_abort 9", MINI_MPI_ABORT="hang",
                          DDP_LIFECYCLE_TIMEOUT="1")
        self.assertEqual(r.rc, 7, r)
        self.assertNotIn("MPI_Abort 9", r.log, r)

    def test_while_a_collective_waits(self):
        r = self.run_prog("mpi_init comm thread coll 0 sleep 100 mpi_abort 7",
                          MINI_COLL="hang")
        self.assertEqual(r.rc, 7, r)
        self.assertNotIn("coll", r.out, "the failed call has returned")

    def test_while_another_thread_is_in_init(self):
        r = self.run_prog("mpi_init thread comm sleep 100 mpi_abort 7",
                          MINI_INIT="hang")
        self.assertEqual(r.rc, 7, r)
        self.assertLess(r.seconds, 5 if SANITIZED else 2)

    def test_init_returns_meanwhile(self):
        r = self.run_prog("mpi_init thread comm sleep 100 mpi_abort 7",
                          MINI_INIT="150")
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 7"), r)
        self.assertNotIn("comm 0", r.out, r)

    def test_exit_of_another_thread(self):
        r = self.run_prog("mpi_init comm thread mpi_abort 7 sleep 100 exit 3",
                          MINI_MPI_ABORT="hang", DDP_LIFECYCLE_TIMEOUT="1")
        self.assertEqual(r.rc, 7, r)

    def test_program_aborts_one_of_two(self):
        r = self.run_prog("mpi_init comm comm abort 0 abort 0 coll 1 "
                          "mpi_finalize")
        self.assertEqual(r.rc, 0, r)
        self.assertEqual(r.log.count("ncclCommAbort 1"), 1, r)
        self.assertIn("abort 0\nabort 4\ncoll 0", r.out, r)
        self.assertNotIn("ncclCommDestroy 1", r.log, r)
        self.assertIn("ncclCommDestroy 2", r.log, r)

    def test_without_mpi_init(self):
        r = self.run_prog("comm mpi_abort 7")
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 7"), r)


class Errors(Case):
    def test_asynchronous(self):
        r = self.run_prog("mpi_init comm comm coll 0 sleep 20000",
                          MINI_ASYNC="50")
        self.assertEqual(r.rc, 1, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 1"), r)
        self.assertIn("aborting: NCCL: asynchronous error 6", r.err, r)
        self.assertLess(r.seconds, 10 if SANITIZED else 1.5)

    def test_without_mpi(self):
        r = self.run_prog("comm sleep 20000", MINI_ASYNC="50")
        self.assertEqual(r.rc, 1, r)
        self.assertNotIn("MPI_Abort 1", r.log, r)

    def test_program_that_asks_may_go_on(self):
        r = self.run_prog("mpi_init comm async sleep 700 async abort 0 "
                          "mpi_finalize exit 5", MINI_ASYNC="300")
        self.assertEqual(r.rc, 5, r)
        self.assertIn("async 0\nasync 6\nabort 0", r.out, r)

    def test_not_asked_where_it_does_not_block(self):
        r = self.run_prog("mpi_init comm_config 0 sleep 500 exit 5",
                          MINI_ASYNC="0")
        self.assertEqual(r.rc, 5, r)

    def test_revoked_is_the_programs(self):
        r = self.run_prog("mpi_init comm revoke 0 sleep 500 abort 0 exit 5",
                          MINI_ASYNC="200")
        self.assertEqual(r.rc, 5, r)

    def test_hanging_abort_is_bounded(self):
        r = self.run_prog("comm sleep 20000", MINI_ASYNC="0",
                          MINI_ABORT="hang", DDP_LIFECYCLE_TIMEOUT="0.6")
        self.assertEqual(r.rc, 1, r)
        self.assertLess(r.seconds, 5)


class Signals(Case):
    def term(self, words, sig=signal.SIGTERM, after="ncclAllReduce 1", **env):
        p = self.start(words, **env)
        self.until_log(after)
        self.began = time.monotonic()
        p.send_signal(sig)
        return self.wait(p)

    def test_term_in_a_collective(self):
        for sig in (signal.SIGTERM, signal.SIGINT):
            r = self.term("mpi_init comm coll 0", sig, MINI_COLL="hang")
            self.assertEqual(r.rc, -sig, r)
            self.assertIn("aborted 1", r.log, r)
            self.assertNotIn("MPI_Abort 1", r.log, r)
            self.assertLess(r.seconds, 5 if SANITIZED else 1)
            os.unlink(self.log)

    def test_deadline(self):
        r = self.term("mpi_init comm coll 0", MINI_COLL="hang",
                      MINI_ABORT="hang", DDP_LIFECYCLE_TIMEOUT="0.6")
        self.assertEqual(r.rc, -signal.SIGTERM, r)
        self.assertLess(r.seconds, 5)

    def test_in_init(self):
        r = self.term("mpi_init comm", after="ncclCommInitRank",
                      MINI_INIT="hang")
        self.assertEqual(r.rc, -signal.SIGTERM, r)

    def test_in_finalize(self):
        r = self.term("mpi_init comm mpi_finalize", after="ncclCommFinalize",
                      MINI_FINALIZE="hang")
        self.assertEqual(r.rc, -signal.SIGTERM, r)
        self.assertIn("aborted 1", r.log, r)

    def test_mpi_alone(self):
        r = self.term("mpi_init sleep 20000", after="MPI_Init")
        self.assertEqual(r.rc, -signal.SIGTERM, r)

    def test_own_handler_before(self):
        r = self.term("handler 15 mpi_init comm coll 0", MINI_COLL="hang")
        self.assertEqual(r.rc, 33, r)
        self.assertIn("handler 15", r.out, r)

    def test_own_handler_later(self):
        r = self.term("mpi_init comm handler 15 coll 0", MINI_COLL="hang")
        self.assertEqual(r.rc, 33, r)
        self.assertIn("handler 15", r.out, r)

    def test_ignored(self):
        r = self.run_prog("ignore 15 mpi_init comm kill 15 sleep 200 "
                          "mpi_finalize exit 6")
        self.assertEqual(r.rc, 6, r)

    @unittest.skipIf(SANITIZED, "the race is what it is about")
    def test_program_closes_all_files(self):
        r = self.run_prog("mpi_init comm close_all kill 15 sleep 20000")
        self.assertEqual(r.rc, -signal.SIGTERM, r)
        os.unlink(self.log)
        r = self.run_prog("mpi_init comm close_all mpi_abort 7")
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 7"), r)

    def test_after_finalize(self):
        r = self.run_prog("mpi_init comm mpi_finalize kill 15 sleep 20000")
        self.assertEqual(r.rc, -signal.SIGTERM, r)


class Agent(AgentCase):
    def accept(self):
        c, _ = self.server.accept()
        c.settimeout(LIMIT)
        self.addCleanup(c.close)
        return c

    @staticmethod
    def lines(c):
        got = []
        while True:
            try:
                line = c.recv(1000)
            except ConnectionResetError:
                break
            if not line:
                break
            got.append(line.decode().rstrip("\n"))
        return got

    def test_states(self):
        p = self.start("mpi_init comm coll 0 mpi_finalize",
                       DDP_LIFECYCLE_SOCKET=self.name)
        c = self.accept()
        got = self.lines(c)
        self.wait(p)
        self.assertEqual(got, [
            f"life 1 {p.pid} 10000", "state starting", "state ready",
            "state starting", "state ready", "state running",
            "state stopping", "state gone"])

    def test_abort(self):
        p = self.start("mpi_init comm coll 0", MINI_COLL="hang",
                       DDP_LIFECYCLE_SOCKET=self.name)
        c = self.accept()
        self.until_log("ncclAllReduce")
        c.send(b"hello what\n")
        c.send(b"abort 300 no\n")
        c.send(b"abort 42 rank 3 has failed\n")
        got = self.lines(c)
        r = self.wait(p)
        self.assertEqual(r.rc, 42, r)
        self.assertTrue(r.has("aborted 1"), r)
        # The agents end the others: not killed while they still abort.
        self.assertNotIn("MPI_Abort 42", r.log, r)
        self.assertEqual(got[-3:], ["state aborting",
                                    "cause 42 rank 3 has failed",
                                    "state gone"])

    def test_agent_goes_away(self):
        p = self.start("mpi_init sleep 300 comm mpi_finalize exit 6",
                       DDP_LIFECYCLE_SOCKET=self.name)
        self.accept().close()
        r = self.wait(p)
        self.assertEqual(r.rc, 6, r)

    def test_no_agent(self):
        r = self.run_prog("mpi_init comm mpi_finalize exit 6",
                          DDP_LIFECYCLE_SOCKET="@nobody-" + self.name)
        self.assertEqual(r.rc, 6, r)
        self.assertIn("going on alone", r.err, r)

    def test_one_that_does_not_read(self):
        p = self.start("mpi_init " + "comm destroy 0 " * 3 + "exit 6",
                       DDP_LIFECYCLE_SOCKET=self.name)
        r = self.wait(p)
        self.assertEqual(r.rc, 6, r)


class Api(Case):
    def api(self, words, **env):
        return self.run_prog(words, "prog_api", preload=False, **env)

    def test_whole_life(self):
        r = self.api("ddp_state ddp_init ddp_state ddp_comm 5 ddp_ready 5 "
                     "ddp_state coll 0 ddp_finalize ddp_state")
        self.assertEqual(r.rc, 0, r)
        self.assertEqual(r.out.split(), "none 0 ddp_init 0 ready 2 ddp_comm 0 "
                         "ddp_ready 0 running 3 coll 0 ddp_finalize 0 "
                         "stopping 4".split(), r)
        self.assertTrue(r.has("MPI_Init_thread 3", "ncclGetUniqueId",
                              "ncclCommInitRank", "MPI_Barrier",
                              "ncclCommDestroy 1", "MPI_Finalize"), r)

    def test_abort(self):
        r = self.api("ddp_init ddp_comm 5 ddp_abort 9")
        self.assertEqual(r.rc, 9, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 9"), r)
        self.assertIn("aborting: as it was told", r.err, r)

    def test_abort_off(self):
        r = self.api("ddp_abort 9", DDP_LIFECYCLE="off")
        self.assertEqual(r.rc, 9, r)

    def test_comm_limit(self):
        r = self.api("ddp_init ddp_comm 1", MINI_INIT="hang")
        self.assertEqual(r.rc, 75, r)
        self.assertIn("making a NCCL communicator took longer", r.err, r)

    def test_ready_limit(self):
        r = self.api("ddp_init ddp_comm 5 ddp_ready 1",
                     MINI_MPI_BARRIER="hang")
        self.assertEqual(r.rc, 75, r)
        self.assertIn("the ready barrier took longer", r.err, r)

    def test_without_mpi(self):
        r = self.api("comm ddp_comm 1 ddp_ready 1 ddp_state ddp_finalize")
        self.assertIn("MPI is not initialised, and there is no agent", r.out, r)
        self.assertIn("or call MPI_Init() before)", r.out, r)
        self.assertIn("ncclAllReduce 1", r.log, r)
        self.assertIn("running 3\nddp_finalize 0", r.out, r)
        self.assertNotIn("MPI_Finalize", r.log, r)

    def test_linked_behind(self):
        r = self.run_prog("ddp_init ddp_finalize", "prog_behind", False)
        self.assertIn("link -lddp_lifecycle before MPI -1", r.out, r)

    def test_by_preload_too(self):
        r = self.run_prog("ddp_init ddp_comm 5 ddp_finalize")
        self.assertEqual(r.rc, 0, r)


class WhichMpi(Case):
    """MPI_COMM_WORLD and MPI_BYTE are the program's MPI's; mini_mpi.c says
    BAD of another's."""
    ABI = os.path.join(LIFE, "libs/libmpi_abi.so.1")
    STANDARD = {"MINI_MPI_WORLD": "0x101", "MINI_MPI_BYTE": "0x247"}

    def test_mpich(self):
        for version in ("MPICH Version:\t4.0.2", "MVAPICH2 Version: 2.3",
                        "Intel(R) MPI Library 2021.10 for Linux* OS",
                        "MPI VERSION    : CRAY MPICH version 8.1.29"):
            r = self.run_prog("mpi_init comm coll 0 sleep 20000",
                              "prog_mpich", MINI_ASYNC="50",
                              MINI_MPI_VERSION=version)
            self.assertEqual(r.rc, 1, r)
            self.assertTrue(r.has("aborted 1", "MPI_Abort 1"), r)
            os.unlink(self.log)

    def test_mpich_user_and_api(self):
        r = self.run_prog("mpi_init comm mpi_abort 7", "prog_mpich")
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 7"), r)
        os.unlink(self.log)
        r = self.run_prog("ddp_init ddp_comm 5 ddp_ready 5 ddp_finalize",
                          "prog_mpich")
        self.assertEqual(r.rc, 0, r)
        self.assertTrue(r.has("MPI_Bcast 132", "ncclCommDestroy 1",
                              "MPI_Finalize"), r)

    def test_standard(self):
        """By the file's name, before the one that it was linked with."""
        r = self.run_prog("mpi_init ddp_comm 5 sleep 20000", "prog_mpich",
                          MINI_ASYNC="50", **self.STANDARD,
                          LD_PRELOAD=LIBRARY + " " + self.ABI)
        self.assertEqual(r.rc, 1, r)
        self.assertTrue(r.has("MPI_Bcast 132", "aborted 1", "MPI_Abort 1"), r)

    def test_unknown(self):
        """It gets no handle; its program's own MPI_Abort is passed on."""
        unknown = {"MINI_MPI_VERSION": "Somebody's MPI 1.0",
                   "MINI_MPI_WORLD": "77"}
        r = self.run_prog("mpi_init comm sleep 20000", "prog_mpich",
                          MINI_ASYNC="50", **unknown)
        self.assertEqual(r.rc, 1, r)
        self.assertIn("aborted 1", r.log, r)
        self.assertNotIn("MPI_Abort", "".join(r.log), r)
        self.assertIn("this MPI (Somebody's MPI 1.0) is neither Open MPI nor "
                      "like MPICH", r.err, r)
        os.unlink(self.log)
        r = self.run_prog("mpi_init comm mpi_abort 7", "prog_mpich", **unknown)
        self.assertEqual(r.rc, 7, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 7"), r)
        os.unlink(self.log)
        r = self.run_prog("mpi_init ddp_comm 5 mpi_finalize", "prog_mpich",
                          **unknown)
        self.assertIn("of this MPI are not known", r.out, r)

    def test_another_one_is_loaded_besides(self):
        """Open MPI's names are there, but are not this program's MPI."""
        r = self.run_prog("mpi_init comm sleep 20000", "prog_mpich",
                          MINI_ASYNC="50",
                          LD_PRELOAD=LIBRARY + " " + os.path.join(
                              LIFE, "libs/libmpi.so.12") + " " + os.path.join(
                              LIFE, "libs/libmpi.so.40"))
        self.assertEqual(r.rc, 1, r)
        self.assertTrue(r.has("aborted 1", "MPI_Abort 1"), r)


if __name__ == "__main__":
    unittest.main()
