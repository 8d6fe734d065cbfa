"""Two ranks over live gloo that do not record alike: python tests/nccl_instrument/gathering.py FOLDER schema|steps|leaves.

Prints a line of JSON for each: whether it gathers, its counts, and whether its loop came to its end. Run where torch is.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from nccl_instrument import stage_gather
from nccl_instrument.stage_schema import BACKWARD, DEFAULT, FORWARD
from nccl_instrument.stages import Stages

STEPS, WINDOW = 35, 10


def run(folder: str, how: str, rank: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "DIOGENES_JOB": "job"}
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    is_odd = rank == 1
    stages = Stages(DEFAULT.accumulated(4) if is_odd and how == "schema" else DEFAULT, role=f"part{rank}")
    steps = 2 * WINDOW if is_odd and how == "steps" else WINDOW
    gather = stage_gather.open_gather(stages, Path(folder), steps=steps, timeout_s=5)
    for _ in range(STEPS - 12 if is_odd and how == "leaves" else STEPS):
        with stages.step():
            with stages.stage(FORWARD):
                time.sleep(0.002)
            with stages.stage(BACKWARD):
                if how != "leaves":
                    dist.all_reduce(torch.ones(8))
    told = {"rank": rank, "gathers": gather is not None, "failed": stages.counts.gathers_failed}
    if gather is not None and how == "schema":
        gather.close(20.0)
    os.write(1, (json.dumps({**told, "steps": stages.counts.steps}) + "\n").encode())
    os._exit(0)


if __name__ == "__main__":
    ranks = [multiprocessing.get_context("fork").Process(target=run, args=(*sys.argv[1:3], rank)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(int(any(process.exitcode for process in ranks)))
