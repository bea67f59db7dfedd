#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fake NCCL does what the tests of the life-cycle library rely on."""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ranks import (ARGUMENT, INTERNAL, PROGRESS, REMOTE, SUCCESS,  # noqa: E402
                   SYSTEM, USAGE, Ranks)

# An abort must end a wait within this; sanitizers are slow.
ABORT_MS = 50 if not os.environ.get("DDP_NCCL_USER") else 1000


def timely(test):
    """A test of a time: on a machine that does other things too it may need
    a second or third try."""
    def tried(self):
        for last in False, False, True:
            try:
                return test(self)
            except AssertionError:
                if last:
                    raise
            self.kill()
            self.processes = []
            for name in os.listdir(self.dir):
                os.unlink(os.path.join(self.dir, name))
    return tried


class Works(Ranks):
    def check_sync(self, rank, which, value):
        self.assertEqual(self.word(rank, "sync", which).value, value)

    def test_collectives(self):
        n = 4
        self.run_ranks(["init allreduce:0 sync allreduce:1 sync allreduce:2 "
                        "sync allreduce:3 sync allreduce:4 sync broadcast:2 "
                        "sync reduce:1 sync allgather sync reducescatter sync "
                        "ring sync premul finalize destroy"] * n)
        each = [(r + 1) * 100000 + 1 for r in range(n)]
        total = sum(each)
        prod = 1
        for v in each:
            prod *= v
        prod = (prod + 2**63) % 2**64 - 2**63
        for r in range(n):
            for i, v in enumerate((total, prod, max(each), min(each),
                                   total // n, each[2])):
                self.check_sync(r, i, v)
            self.check_sync(r, 6, total if r == 1 else -1)
            self.check_sync(r, 7, each[0])
            self.check_sync(r, 8, total + n * 1000 * r)
            self.check_sync(r, 9, each[r - 1])
            self.assertEqual(self.word(r, "premul").value, 3 * total)
            self.assertTrue(all(w.rc == 0 for w in self.words(r)))
        self.assert_clean()

    def test_send_recv(self):
        self.run_ranks(["init send:1 sync recv:1 sync destroy",
                        "init recv:0 sync send:0 sync destroy"])
        self.check_sync(1, 0, 100001)
        self.check_sync(0, 1, 200001)
        self.assert_clean()

    def test_split_and_shrink(self):
        words = ("init split:2 allreduce sync destroy pop allreduce sync "
                 "%s destroy pop destroy")
        shrink = "shrink:1 allreduce sync"
        started = self.start([words % shrink,
                              "init split:2 allreduce sync destroy pop "
                              "allreduce sync destroy",
                              words % shrink, words % shrink])
        self.finish(started)
        for r in range(4):
            self.check_sync(r, 0, [400002, 600002][r % 2])
            self.check_sync(r, 1, 1000004)
            if r != 1:
                self.check_sync(r, 2, 800003)
        self.assert_clean()

    def test_init_all_in_one_process(self):
        self.run_ranks(["initall:3 abort push abort push abort"])
        self.assert_clean()

    def test_non_blocking(self):
        self.run_ranks(["initnb state allreduce sync finalize state destroy",
                        "sleep:100 initnb state allreduce sync finalize state "
                        "destroy"])
        for r in range(2):
            self.assertEqual(self.word(r, "initnb").rc, PROGRESS)
            self.assertEqual(self.word(r, "finalize").rc, PROGRESS)
            self.check_sync(r, 0, 300002)
        self.assertGreater(self.word(0, "state").ms, 80)
        self.assert_clean()

    def test_one_rank(self):
        self.run_ranks(["init allreduce sync broadcast sync ring sync "
                        "finalize destroy"])
        self.assertEqual([w.value for w in self.words(0)
                          if w.name == "sync"], [100001] * 3)
        self.assert_clean()

    def test_fork(self):
        self.run_ranks(["init fork allreduce sync fork destroy",
                        "init allreduce sync fork destroy"])
        self.assert_clean()

    def test_many_times(self):
        """Communicators are made and ended while others go on."""
        self.run_ranks(["init " + "split:1 allreduce sync destroy pop " * 20 +
                        "destroy"] * 3, {"FAKE_NCCL_REUSE": "1"})
        self.assert_clean()


class Waits(Ranks):
    """A peer that is missing is waited for, until an abort."""

    def waits(self, words, env=None):
        """Rank 0 waits in its last word; the rest is over."""
        started = self.start(words, env)
        for p in started[1:]:
            p.wait(self.LIMIT)
        done = len(words[0].split()) - 1
        self.until(lambda: len(self.words(0)) == done)
        time.sleep(0.4)
        self.assertIsNone(started[0].poll())
        self.assertEqual(len(self.words(0)), done)
        return started[0]

    def test_missing_in_init(self):
        self.waits(["init", "sleep:1"])
        self.assertEqual(self.words(0), [])

    def test_missing_in_collective(self):
        for word in "allreduce", "broadcast", "reduce", "allgather", "send:1":
            with self.subTest(word):
                self.waits(["init %s sync" % word, "init exit:3"])
                os.unlink(os.path.join(self.dir, "id"))
                self.kill()

    def test_dead_peer(self):
        self.waits(["init allreduce sync allreduce sync",
                    "init allreduce sync kill"])
        self.assertEqual(self.word(0, "sync").value, 300002)

    @timely
    def test_dead_peer_detected(self):
        started = self.start(
            ["init allreduce error abort sync", "init sleep:50 kill"],
            {"FAKE_NCCL_DETECT": "1"})
        self.finish(started, [0, -9])
        self.assertEqual(self.word(0, "error").value, REMOTE)
        self.assertLess(self.word(0, "abort").ms, ABORT_MS)

    def test_dead_in_init_detected(self):
        started = self.start(["sleep:200 init", "init", "init kill"],
                             {"FAKE_NCCL_DETECT": "1",
                              "FAKE_NCCL_FAIL": "ncclCommInitRankConfig:1:0"})
        self.until(lambda: started[0].poll() is not None)
        self.finish(started[:2])
        self.assertEqual(self.word(0, "init").rc, INTERNAL)
        self.assertEqual(self.word(1, "init").rc, REMOTE)

    def test_finalize_and_destroy_wait(self):
        for word in "finalize", "destroy":
            with self.subTest(word):
                self.waits(["init %s" % word, "init exit:3"])
                os.unlink(os.path.join(self.dir, "id"))
                self.kill()

    @timely
    def test_abort(self):
        for word in ("allreduce", "broadcast", "reduce", "allgather",
                     "reducescatter", "ring", "recv:1"):
            self.finish(self.start([
                "init %s sleep:50 query abort sync" % word,
                "init sleep:300 exit:0"]))
            os.unlink(os.path.join(self.dir, "id"))
            self.assertEqual(self.word(0, "query").rc, 600, word)
            self.assertLess(self.word(0, "abort").ms, ABORT_MS, word)
            self.assertLess(self.word(0, "sync").ms, ABORT_MS, word)
        self.assertEqual(self.misuses(), [])

    def abort_in(self, word, words, result):
        self.finish(self.start(words))
        self.assertEqual(self.word(0, word).rc, result)
        self.assertEqual(self.word(0, "abort-in-thread").rc, SUCCESS)
        ms = self.word(0, word).ms
        self.assertTrue(80 < ms < 100 + ABORT_MS, ms)
        self.assertEqual(self.misuses(), [])

    @timely
    def test_abort_from_another_thread(self):
        self.abort_in("sync", ["init abort-after:100 allreduce sync",
                               "init sleep:400 exit:0"], SUCCESS)

    @timely
    def test_abort_in_init(self):
        self.abort_in("init", ["abort-after:100 init", "sleep:1"], INTERNAL)

    def test_abort_in_mesh(self):
        """Two of three have met; the third never calls."""
        started = self.start(["abort-after:100 init join", "init", "exit:0"])
        self.until(lambda: started[0].poll() is not None)
        self.assertEqual(self.word(0, "init").rc, INTERNAL)
        self.assertEqual(self.misuses(), [])

    @timely
    def test_abort_in_finalize(self):
        self.abort_in("finalize", ["init abort-after:100 finalize",
                                   "init sleep:400 exit:0"], INTERNAL)

    @timely
    def test_abort_in_split(self):
        self.abort_in("split", ["init abort-after:100 split:1",
                                "init sleep:400 exit:0"], INTERNAL)

    @timely
    def test_abort_of_several(self):
        """On one stream: only all at once can be aborted."""
        self.finish(self.start([
            "init split:1 allreduce pop allreduce push abortall sync",
            "init split:1 sleep:300 exit:0"]))
        self.assertLess(self.word(0, "abortall").ms, ABORT_MS)
        self.assertEqual(self.misuses(), [])

    @timely
    def test_revoke(self):
        """What runs is ended; the rest then goes on without the dead."""
        started = self.start([
            "init allreduce sleep:300 revoke sync allreduce shrink:2 "
            "allreduce sync destroy pop destroy"] * 2 + ["init kill"])
        self.finish(started, [0, 0, -9])
        for r in range(2):
            self.assertLess(self.word(r, "revoke").ms, ABORT_MS)
            self.assertEqual(self.word(r, "allreduce", 1).rc, USAGE)
            self.assertEqual(self.word(r, "sync", 1).value, 300002)
        self.assertEqual(self.misuses(), [])

    def test_shrink_abort(self):
        started = self.start([
            "init allreduce sleep:300 shrinkabort:2 sync allreduce sync "
            "destroy pop abort"] * 2 + ["init kill"])
        self.finish(started, [0, 0, -9])
        self.assertEqual(self.word(0, "sync", 1).value, 300002)
        self.assertEqual(self.misuses(), [])


class Says(Ranks):
    """Misuses, and what a process leaves behind."""

    def misuse(self, words, what):
        self.run_ranks([words])
        self.assertEqual([(x.function, x.more) for x in self.misuses()], what)

    def test_misuses(self):
        for words, function, more in (
                ("init abort abort", "ncclCommAbort", "after abort"),
                ("init abort destroy", "ncclCommDestroy", "after abort"),
                ("init destroy destroy", "ncclCommDestroy", "after destroy"),
                ("init destroy abort", "ncclCommAbort", "after destroy"),
                ("init destroy allreduce", "ncclAllReduce", "after destroy"),
                ("init finalize allreduce destroy", "ncclAllReduce",
                 "after finalize"),
                ("init finalize finalize destroy", "ncclCommFinalize",
                 "after finalize")):
            with self.subTest(words):
                self.misuse(words, [(function, more)])
                os.unlink(self.log_path)

    def test_two_aborts_at_once(self):
        self.run_ranks(["init abort-after:50 abort-after:50 join join",
                        "init sleep:200 exit:0"])
        self.assertEqual(len(self.misuses()), 1)

    def test_in_a_child(self):
        self.run_ranks(["init fork:1 abort"])
        self.assertEqual(self.word(0, "fork").rc, USAGE)
        self.assertEqual([x.more for x in self.misuses()],
                         ["communicator of the parent process"])

    def test_different_operations(self):
        started = self.start(["init allreduce sync", "init allgather sync"])
        self.until(lambda: len(self.misuses()) == 2)
        self.assertEqual([p.poll() for p in started], [None, None])

    def test_left(self):
        self.run_ranks(["init allreduce sleep:50 exit:0",
                        "init sleep:200 exit:0"])
        self.assertEqual({(x.word, x.rank) for x in self.log() if x.word},
                         {("LEFT_WAITING", 0), ("LEFT_ALIVE", 1)})

    def test_exit_waits(self):
        started = self.start(["init allreduce sleep:50 exit:0",
                              "init exit:0"], {"FAKE_NCCL_EXIT_WAIT": "1"})
        started[1].wait(self.LIMIT)
        self.until(lambda: any(x.word == "LEFT_WAITING" for x in self.log()))
        time.sleep(0.3)
        self.assertIsNone(started[0].poll())


class Injects(Ranks):
    def test_fail(self):
        self.run_ranks(["init allreduce sync allreduce sync destroy"] * 2,
                       {"FAKE_NCCL_FAIL": "ncclAllReduce:2::2"})
        for r in range(2):
            self.assertEqual(self.word(r, "allreduce", 1).rc, SYSTEM)
            self.assertEqual(self.word(r, "sync").rc, 0)

    def test_fail_on_a_rank(self):
        self.run_ranks(["init reduce:7 destroy"] * 2,
                       {"FAKE_NCCL_FAIL": "ncclReduce:1:1:5,ncclSend:1"})
        self.assertEqual([self.word(r, "reduce").rc for r in range(2)],
                         [ARGUMENT, USAGE])

    def test_fail_without_communicator(self):
        started = self.start(["init"], {
            "FAKE_NCCL_FAIL": "ncclGetUniqueId:1:5", "FAKE_NCCL_RANK": "5"})
        self.finish(started, [90])

    def test_slow(self):
        self.run_ranks(["init destroy"] * 2,
                       {"FAKE_NCCL_SLOW": "ncclCommInitRankConfig:200:1"})
        for r in range(2):
            self.assertGreater(self.word(r, "init").ms, 150)

    def test_slow_ends_by_abort(self):
        started = self.start(["abort-after:50 init join", "exit:0"], {
            "FAKE_NCCL_SLOW": "ncclCommInitRankConfig:60000"})
        self.finish(started)

    def test_hang_in_abort(self):
        started = self.start(["init sleep:50 abort"] * 2, {
            "FAKE_NCCL_HANG": "ncclCommAbort:1:0"})
        self.finish(started[1:])
        self.assertIsNone(started[0].poll())
        self.assertTrue([x for x in self.log() if x.more == "hangs"])

    def test_async(self):
        self.run_ranks(["init allreduce error abort sync",
                        "init sleep:300 exit:0"],
                       {"FAKE_NCCL_ASYNC": "100:6:0"})
        self.assertEqual(self.word(0, "error").value, REMOTE)
        self.assertGreater(self.word(0, "error").ms, 50)

    def test_nonsense_is_refused(self):
        started = self.start(["init"], {"FAKE_NCCL_FAIL": "ncclSend:x"})
        self.finish(started, [99])


if __name__ == "__main__":
    unittest.main()
