"""What a rank does wrong once its fault file has appeared; imported by the training loop, never by us.

Only the ranks that the file names misbehave, each by itself: nobody tells the others, as in a real job.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


class Fault:
    """The fault file of a job: {"fault", "victims", "how", "at_step"}, read before every step until it is there.

    All ranks count the same steps, so that what a whole job does begins everywhere at once.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.name, self.how, self.victims, self.is_over = "", "", frozenset[int](), False

    def look(self, step: int) -> None:
        path = self.folder / "fault.json"
        if not self.name and path.exists() and step >= (said := json.loads(path.read_text()))["at_step"]:
            self.name, self.how, self.victims = said["fault"], said["how"], frozenset(said["victims"])
            (self.folder / f"met-{self.rank}").touch()

    def hits(self, name: str) -> bool:
        """Whether this rank misbehaves so."""
        return self.name == name and self.rank in self.victims

    def hits_anybody(self, name: str) -> bool:
        """Once: whether the job does so now."""
        if self.name != name or self.is_over:
            return False
        self.is_over = True
        return True

    def swallows(self, where: str) -> bool:
        """Once: whether an exception in front of this collective is raised and swallowed."""
        if self.is_over or not (self.hits("swallowed") and self.how == where):
            return False
        try:
            raise ValueError("loss is not finite")
        except ValueError:
            self.is_over = True
        return True


# ---- the listed faults --------------------------------------------------------------------------------------------------


def read_forever(fault: Fault) -> None:
    """Storage that does not answer."""
    if fault.how == "socket":
        ours, _theirs = socket.socketpair()
        ours.recv(1)
    elif fault.how == "pipe":
        reading, _writing = os.pipe()
        os.read(reading, 1)
    elif fault.how == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    else:
        time.sleep(10**6)


def before_collective(fault: Fault) -> None:
    """A rank that launches nothing: a lock nobody gives back, a condition nobody sets, a child that never ends."""
    if not fault.hits("launches_nothing"):
        return
    if fault.how == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif fault.how == "condition":
        condition = threading.Condition()
        with condition:
            condition.wait()
    elif fault.how == "queue":
        threading.Event().wait()
    elif fault.how == "loop":
        while not fault.is_over:
            time.sleep(0.05)
    else:
        compute_forever()


def compute_forever() -> None:
    """Work that never ends, at full speed but nicely to the rest of the machine."""
    os.nice(19)
    matrix = torch.ones(64, 64)
    while True:
        matrix = torch.tanh(matrix @ matrix)


def resized(fault: Fault, gradient: torch.Tensor) -> torch.Tensor:
    """Another size than the others have, larger or smaller."""
    if not fault.hits("mismatched_size"):
        return gradient
    return torch.ones(len(gradient) * 2 if fault.how == "larger" else len(gradient) // 2)


def save(fault: Fault, model: list[torch.Tensor], path: Path) -> None:
    """A checkpoint; a long one writes for as many seconds as the fault says."""
    until = time.monotonic() + (float(fault.how) if fault.name == "long_checkpoint" else 0.0)
    save_checkpoint(model, path)
    while time.monotonic() < until:
        save_checkpoint(model * 500, path)


def save_checkpoint(model: list[torch.Tensor], path: Path, *, is_stuck: bool = False) -> None:
    """is_stuck: to storage that does not answer."""
    torch.save([tensor.clone() for tensor in model], path)
    if is_stuck:
        reading, _writing = os.pipe()
        os.read(reading, 1)


# ---- hangs that are in no list ------------------------------------------------------------------------------------------


def unlisted(trainer: Any, norm: torch.Tensor) -> None:
    """The reduction over everybody, which some ranks do differently, or leave for something else."""
    fault, rank, size = trainer.fault, trainer.rank, trainer.size
    if fault.hits("barrier_instead"):
        dist.barrier()
    elif fault.hits("gathers_instead"):
        dist.all_gather([torch.zeros(1) for _ in range(size)], norm)
    elif fault.hits("other_type"):
        dist.all_reduce(norm.to(torch.float64))
    elif fault.hits("receives_forever"):
        dist.recv(torch.zeros(1), src=(rank + 1) % size, tag=9)
    elif fault.hits("leaves_early"):
        wait_for_the_end(rank)
    elif fault.hits("exits"):
        os._exit(0)
    elif fault.hits("raises"):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    elif fault.hits("long_save"):
        save_checkpoint(trainer.gradients, trainer.checkpoint, is_stuck=True)
    else:
        dist.all_reduce(norm)
    if fault.name == "wrong_root":
        dist.broadcast(norm, src=1 if fault.hits("wrong_root") else 0)


def wait_for_the_end(rank: int) -> None:
    """Its share of the samples was used up first, and it waits for the rest to finish."""
    dist.monitored_barrier() if rank % 2 else dist.barrier()
