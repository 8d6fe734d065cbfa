"""A training loop of real PyTorch over gloo: tensor- and data-parallel groups, a loader, checkpoints, and one fault on call.

Started once per rank with torchrun's variables in the environment. A step loads a batch on the first rank of each tensor
group, broadcasts it there, reduces activations in the tensor group, gradients and statistics in two data-parallel groups,
and the norm over everybody. The fault is read from a file that appears while it trains; what follows is up to PyTorch.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import misbehaviour
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from nccl_instrument import recorder

LAYERS = 2
HIDDEN = 256


class Tokens(Dataset[torch.Tensor]):
    """Made-up samples; the loader's fault is met in here, as in a dataset that reads from storage."""

    def __init__(self, fault: misbehaviour.Fault) -> None:
        self.fault = fault

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, at: int) -> torch.Tensor:
        self.fault.look(step=10**9)  # workers are ahead, and began before the file was there
        if self.fault.hits("data_loader"):
            misbehaviour.read_forever(self.fault)
        return torch.full((HIDDEN,), float(at % 97))


class Trainer:
    """One rank: its groups, its loader, its step."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.rank, self.size, self.tp = dist.get_rank(), dist.get_world_size(), chosen.tp
        self.fault = misbehaviour.Fault(Path(chosen.control), self.rank)
        self.step_s, self.checkpoint = chosen.step_s, Path(chosen.control) / "model.pt"
        self.checkpoint_every = chosen.checkpoint_every
        self.tp_group, self.dp_group, self.stats_group = self._groups()
        self.source = self.rank - self.rank % self.tp
        self.gradients = [torch.ones(HIDDEN * (1 + layer)) for layer in range(LAYERS)]
        self.activations = torch.ones(HIDDEN)
        self.n_done = 0
        self.statistics = torch.ones(16)
        workers = chosen.workers if self.rank == self.source else 0
        self.batches = iter(
            DataLoader(Tokens(misbehaviour.Fault(self.fault.folder, self.rank)), batch_size=4, num_workers=workers)
        )

    def _groups(self) -> tuple[Any, Any, Any]:
        """Every rank makes every group, in one order, and keeps its own."""
        mine: dict[str, Any] = {}
        for first in range(0, self.size, self.tp):
            members = list(range(first, first + self.tp))
            self._keep(mine, "tp", members, f"tp{first // self.tp}")
        for column in range(self.tp):
            members = list(range(column, self.size, self.tp))
            self._keep(mine, "dp", members, f"dp{column}")
            self._keep(mine, "stats", members, f"stats{column}")
        return mine["tp"], mine["dp"], mine["stats"]

    def _keep(self, mine: dict[str, Any], kind: str, members: list[int], name: str) -> None:
        made = dist.new_group(members, group_desc=name)
        if self.rank in members:
            mine[kind] = made

    def train(self, steps: int) -> None:
        for step in range(steps):
            self.fault.look(step)
            batch = self.load_batch()
            self.forward_step(batch)
            self.backward_step()
            self.optimizer_step()
            if step % self.checkpoint_every == self.checkpoint_every - 1 or self.fault.hits_anybody("long_checkpoint"):
                self.save_checkpoint()
            self.n_done = step + 1
            if self.rank == 0 and step % 20 == 0:
                (self.checkpoint.parent / "step").write_text(str(step))

    def load_batch(self) -> torch.Tensor:
        batch = torch.zeros(4, HIDDEN)
        if self.rank == self.source:
            batch = next(self.batches)
        dist.broadcast(batch, src=self.source, group=self.tp_group)
        return batch

    def forward_step(self, batch: torch.Tensor) -> None:
        for layer in range(LAYERS):
            self.compute(batch)
            if layer == LAYERS - 1:
                misbehaviour.before_collective(self.fault)
            if not (layer == 0 and self.fault.swallows("tp")):
                dist.all_reduce(self.activations, group=self.tp_group)
        self.activations.div_(self.tp)

    def backward_step(self) -> None:
        for layer in reversed(range(LAYERS)):
            self.compute(self.activations)
            if layer == 0 and self.fault.swallows("dp"):
                continue
            gradient = misbehaviour.resized(self.fault, self.gradients[layer])
            dist.all_reduce(gradient, group=self.dp_group)
            gradient.div_(self.size // self.tp)

    def optimizer_step(self) -> None:
        pair = [(self.gradients[0], self.dp_group), (self.statistics, self.stats_group)]
        for tensor, group in reversed(pair) if self.fault.hits("opposite_order") else pair:
            dist.all_reduce(tensor, group=group)
            tensor.div_(self.size // self.tp)
        if self.fault.swallows("world"):
            return
        norm = torch.ones(1)
        misbehaviour.unlisted(self, norm)

    def save_checkpoint(self) -> None:
        if self.rank == 0:
            misbehaviour.save(self.fault, self.gradients, self.checkpoint)
        dist.barrier()

    def compute(self, tensor: torch.Tensor) -> None:
        """Stands for what a GPU would do: the host waits, and works a little."""
        torch.relu(tensor * 1.01)
        time.sleep(self.step_s / (2 * LAYERS))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--control", required=True, help="folder of the fault file and the checkpoint")
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=10**6)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    return parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    chosen = arguments()
    dist.init_process_group("gloo")
    trainer = Trainer(chosen)
    recorder.start(steps=lambda: trainer.n_done)
    trainer.train(chosen.steps)


if __name__ == "__main__":
    main()
