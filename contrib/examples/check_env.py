#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the launch variables of each rank, one line a rank.

    srun -N2 --ntasks-per-node=2 --ddp-launch python3 check_env.py

Needs Python 3 and nothing else.  Exits 1 if a variable that every launch
sets is missing (shown as "-") or is not what it should be.
"""

import os
import sys

NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
           "NODE_RANK", "MASTER_PORT")
ORDER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK",
         "MASTER_ADDR", "MASTER_PORT")


def main():
    good = bool(os.environ.get("MASTER_ADDR"))
    good = good and all(os.environ.get(name, "").isdigit()
                        for name in NUMBERS)
    line = " ".join("%s=%s" % (name, os.environ.get(name, "-"))
                    for name in ORDER)
    # One write, so that the lines of several ranks do not mix.
    sys.stdout.write("%s: %s\n" % (
        os.environ.get("SLURMD_NODENAME") or os.uname().nodename, line))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
