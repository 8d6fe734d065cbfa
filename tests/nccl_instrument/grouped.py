"""Two ranks over gloo whose models are wrapped in every way: python tests/nccl_instrument/grouped.py FOLDER. Rank 0 prints as
JSON of which it is known that all ranks reduce together. Run where torch is."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from nccl_instrument.stage_loop import is_one_group


def run(folder: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    alone = [dist.new_group([one]) for one in (0, 1)][rank]
    sharded = torch.nn.Linear(4, 4)
    fully_shard(sharded, mesh=dist.init_device_mesh("cpu", (2,)))
    models = {
        "bare": torch.nn.Linear(4, 4), "ddp": DistributedDataParallel(torch.nn.Linear(4, 4)),
        "ddp of one": DistributedDataParallel(torch.nn.Linear(4, 4), process_group=alone),
        "fsdp": FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu")), "fsdp2": sharded,
    }  # fmt: skip
    if rank == 0:
        os.write(1, (json.dumps({name: is_one_group(model) for name, model in models.items()}) + "\n").encode())
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    ranks = [multiprocessing.get_context("fork").Process(target=run, args=(sys.argv[1], rank)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(int(any(process.exitcode for process in ranks)))
