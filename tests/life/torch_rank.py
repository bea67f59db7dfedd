# SPDX-License-Identifier: Apache-2.0
"""torch_rank.py RANK NRANKS FILE [WORDS of prog.c]: a rank of PyTorch.

Trains over gloo with two workers that load data, then lets prog.c's words run
in this process (the library LATE), with the workers of a second loader alive.
"wait" as the only word waits to be killed.
"""
import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.tensor([float(i), float(i * i)])


rank, n, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + path, rank=rank,
                        world_size=n)
total = torch.zeros(2)
for batch in DataLoader(Squares(), batch_size=4, num_workers=2):
    total += batch.sum(0) * (rank + 1)
dist.all_reduce(total)
print("sum", total.tolist(), flush=True)
dist.barrier()
if sys.argv[4:] == ["wait"]:
    print("waiting", flush=True)
    time.sleep(100)
if len(sys.argv) > 4:
    late = ctypes.CDLL(os.environ["LATE"])
    words = [b"prog"] + [w.encode() for w in sys.argv[4:]]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    # The communicator is there when the workers are forked, and when they go.
    late.prog_run(len(words), argv)
    count = sum(len(b) for b in DataLoader(Squares(), num_workers=2,
                                           batch_size=4))
    more = (ctypes.c_char_p * 4)(b"prog", b"coll", b"0", None)
    late.prog_run(3, more)
    print("loaded", count, flush=True)
dist.destroy_process_group()
