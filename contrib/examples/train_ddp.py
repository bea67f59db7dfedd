#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small network with PyTorch DistributedDataParallel (DDP).

The smallest complete DDP program worth copying: it makes its own data,
trains for a few seconds, and proves at the end that every process holds the
same network.  Start one process a GPU (or a CPU core):

    srun -N2 --ntasks-per-node=2 --ddp-launch python3 train_ddp.py

How it fits together:

* Each process is a "rank".  The launcher gives it RANK, WORLD_SIZE,
  LOCAL_RANK, MASTER_ADDR and MASTER_PORT; nothing else is read here, and
  nothing about Slurm.
* init_process_group(init_method="env://") reads them.  Rank 0 listens on
  MASTER_ADDR:MASTER_PORT, the others call it there, and from then on they
  know each other.
* Every rank makes the same data from the same seed; DistributedSampler hands
  each of them a different share of it.
* Each rank starts with different random weights, on purpose.  DDP copies rank
  0's to all at the start and averages the gradients in every step, so at the
  end all must be the same, bit for bit.
* The last line is a checksum of the weights, compared across the ranks.

The exit code is 0 only if the loss fell and the weights are equal everywhere.
It uses NCCL where PyTorch sees GPUs, else Gloo on the CPU.  PyTorch 1.13 or
later; NumPy is not needed.  Without a launcher, for a try with two processes:

    export MASTER_ADDR=127.0.0.1 MASTER_PORT=23456 WORLD_SIZE=2
    RANK=1 LOCAL_RANK=1 python3 train_ddp.py &
    RANK=0 LOCAL_RANK=0 python3 train_ddp.py
"""

import argparse
import datetime
import hashlib
import os
import sys
import warnings

# NumPy is not used here; PyTorch warns when it is not installed.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler
except ImportError as err:
    sys.exit("train_ddp: %s: this example needs PyTorch (Debian and Ubuntu: "
             "apt-get install python3-torch, and run it with "
             "/usr/bin/python3)" % err)

FEATURES = 16


def parse_args():
    parser = argparse.ArgumentParser(
        description="Small PyTorch DDP training on data it makes itself.")
    parser.add_argument("--epochs", type=int, default=5,
                        help="passes over the data (default: %(default)s)")
    parser.add_argument("--size", type=int, default=4096,
                        help="samples in the data set (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64,
                        help="samples a rank and step (default: %(default)s)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"),
                        default="auto",
                        help="where to train (default: a GPU if there is one)")
    args = parser.parse_args()
    if args.epochs < 2:
        parser.error("--epochs must be at least 2: with fewer no loss can "
                     "be seen to fall")
    if args.size < 1 or args.batch < 1:
        parser.error("--size and --batch must be at least 1")
    return args


def launch_number(name):
    """The launch variable `name` as a number, or an end with the reason."""
    text = os.environ.get(name)
    if text is None:
        sys.exit("train_ddp: %s is not set: start this program with a "
                 "launcher, for example srun --ddp-launch python3 "
                 "train_ddp.py" % name)
    if not text.isdigit():
        sys.exit("train_ddp: %s is '%s', not a number: the launch is not "
                 "complete on this node" % (name, text))
    return int(text)


def choose_device(wanted, local_rank):
    """The device of this rank: GPU number LOCAL_RANK, or the CPU."""
    if wanted == "cpu" or (wanted == "auto"
                           and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        sys.exit("train_ddp: --device=cuda, but PyTorch sees no GPU here: "
                 "ask for GPUs (srun --gpus-per-node=N) and use a PyTorch "
                 "that was built with CUDA")
    seen = torch.cuda.device_count()
    if local_rank >= seen:
        sys.exit("train_ddp: LOCAL_RANK is %d, but this process sees only %d "
                 "GPU(s): ask for as many GPUs a node as tasks (srun "
                 "--gpus-per-node=N --ntasks-per-node=N) and let every task "
                 "see all of them (no --gpus-per-task, no --gpu-bind), or "
                 "use --device=cpu" % (local_rank, seen))
    return torch.device("cuda", local_rank)


def init_group(backend, rank):
    """Meet the other ranks at MASTER_ADDR:MASTER_PORT."""
    options = dict(backend=backend, init_method="env://",
                   timeout=datetime.timedelta(seconds=120))
    try:
        dist.init_process_group(**options)
    except RuntimeError as err:
        # PyTorch 2.4 and later ask for libuv even where they were built
        # without it, as Debian's are; USE_LIBUV=0 is the documented answer.
        # Nothing has been opened yet, so a second try is safe.
        if "libuv" not in str(err) or "USE_LIBUV" in os.environ:
            raise
        os.environ["USE_LIBUV"] = "0"
        if rank == 0:
            print("note: this PyTorch was built without libuv; going on with "
                  "USE_LIBUV=0", flush=True)
        dist.init_process_group(**options)


def make_data(size):
    """The same noisy, curved function of FEATURES inputs on every rank."""
    gen = torch.Generator().manual_seed(20240229)
    inputs = torch.randn(size, FEATURES, generator=gen)
    weights = torch.randn(FEATURES, 1, generator=gen) / FEATURES ** 0.5
    noise = 0.05 * torch.randn(size, 1, generator=gen)
    return TensorDataset(inputs, torch.tanh(inputs @ weights) + noise)


def make_model(rank, device):
    torch.manual_seed(1000 + rank)      # different on every rank, see above
    net = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(),
                        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    net.to(device)
    if device.type == "cuda":
        return DistributedDataParallel(net, device_ids=[device.index])
    return DistributedDataParallel(net)


def train_epoch(model, optimizer, loader, device):
    """One pass; returns the mean loss over the samples of all ranks."""
    total = torch.zeros(2, device=device)       # sum of losses, samples
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()                 # DDP averages the gradients here
        optimizer.step()
        total[0] += loss.detach() * len(inputs)
        total[1] += len(inputs)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def checksum(model):
    """SHA-256 of all weights, as 32 bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(model.module.state_dict().items()):
        flat = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
        digest.update(name.encode())
        digest.update(bytes(flat.tolist()))
    return digest.digest()


def gather_checksums(model, device):
    """The checksum of every rank's weights, in rank order, as text."""
    mine = torch.tensor(list(checksum(model)), dtype=torch.uint8,
                        device=device)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return [bytes(sum_.tolist()).hex()[:16] for sum_ in every]


def verdict(losses, sums):
    """What is wrong with the result, or None."""
    if not losses[-1] < 0.99 * losses[0]:       # nor may it be NaN
        return "the loss did not fall: %.6f at first, %.6f at last" % (
            losses[0], losses[-1])
    if len(set(sums)) != 1:
        return "the weights differ: " + " ".join(
            "rank %d %s" % pair for pair in enumerate(sums))
    return None


def train(args, rank, device):
    """Train; returns the loss of each epoch and all ranks' checksums.

    A function of its own so that the model is freed when it returns, before
    the process group is: if DDP is the last to hold the group, PyTorch can
    wait for itself at the end (seen with 1.13 and Gloo).
    """
    data = make_data(args.size)
    sampler = DistributedSampler(data, shuffle=True, seed=7)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    model = make_model(rank, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)        # another order in every epoch
        losses.append(train_epoch(model, optimizer, loader, device))
        if rank == 0:
            print("epoch %d/%d loss %.6f" % (epoch + 1, args.epochs,
                                             losses[-1]), flush=True)
    return losses, gather_checksums(model, device)


def main():
    args = parse_args()
    rank = launch_number("RANK")
    world = launch_number("WORLD_SIZE")
    device = choose_device(args.device, launch_number("LOCAL_RANK"))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    init_group("nccl" if device.type == "cuda" else "gloo", rank)
    if rank == 0:
        print("world size %d, %s on %s, PyTorch %s" % (
            dist.get_world_size(), dist.get_backend(), device.type,
            torch.__version__), flush=True)

    losses, sums = train(args, rank, device)
    dist.destroy_process_group()
    wrong = verdict(losses, sums)       # the same answer on every rank
    if rank == 0 and wrong is None:
        print("checksum %s equal on %d ranks" % (sums[0], world), flush=True)
    elif rank == 0:
        print("train_ddp: FAILED: " + wrong, file=sys.stderr, flush=True)
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())
