"""Training programs as people have them, with the one line that has their stages recorded; prints what was recorded as JSON.

Run where torch is: python tests/nccl_instrument/hooked.py plain. Every stage takes a time of its own, so that a stage in
another's place is seen; the clock is one that goes on only where the program says so, so that the times are exact.
"""

from __future__ import annotations

import copy
import json
import pickle
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch.distributed.fsdp import fully_shard

from nccl_instrument import stage_hooks, stage_loop
from nccl_instrument.stages import Stages

WAIT, PREPARE, AHEAD, BACK, STEP, AFTER = 0.02, 0.005, 0.03, 0.04, 0.01, 0.015
STEPS = 6
NOW = [0]


def spend(seconds: float) -> None:
    NOW[0] += round(seconds * 1e9)


class Slow(torch.autograd.Function):
    """Its forward and its backward take their time."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        spend(AHEAD)
        return x.clone()

    @staticmethod
    def backward(_: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        spend(BACK)
        return grad


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, labels: Any = None) -> Any:
        made = Slow.apply(self.layer(x))
        return made if labels is None else {"loss": (made - labels).square().mean(), "logits": made}


class Optimizer(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        loss = closure() if closure else None  # Lightning's forward and backward
        spend(STEP)
        super().step()
        return loss


class Batches(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        spend(WAIT)
        return {"x": torch.ones(8), "labels": torch.zeros(8)}


def batches() -> Iterator[torch.Tensor]:
    for _ in range(STEPS):
        spend(WAIT)
        yield torch.ones(2, 8)


def alone() -> None:
    store = tempfile.mktemp()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)


def loop(model: Any, stages: Stages, *, accumulate: int = 1, evaluate: bool = False) -> None:
    optimizer = Optimizer(model.parameters(), lr=0.1)
    watched = stage_hooks.watch(batches(), model, optimizer, stages=stages)
    for number, batch in enumerate(watched, 1):
        model(batch).square().mean().backward()
        if number % accumulate:
            continue
        optimizer.step()
        optimizer.zero_grad()
        spend(AFTER)
        if evaluate:
            model.eval()
            with torch.no_grad():
                model(batch)
            model.train()


def plain(stages: Stages) -> None:
    loop(Model(), stages)


def accumulate(stages: Stages) -> None:
    loop(Model(), stages, accumulate=2)


def evaluate(stages: Stages) -> None:
    loop(Model(), stages, evaluate=True)


def scaled(stages: Stages) -> None:
    """Mixed precision: the third step's gradients are infinite, so that the scaler leaves the optimizer's step out."""
    model, scaler = Model(), torch.amp.GradScaler("cpu")
    optimizer = Optimizer(model.parameters(), lr=0.1)
    for number, batch in enumerate(stage_hooks.watch(batches(), model, optimizer, stages=stages), 1):
        loss = model(batch).square().mean() * (float("inf") if number == 3 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        spend(AFTER)


def prepared(stages: Stages) -> None:
    """A batch is worked on between fetching it and the forward, and comes from an iterator."""
    model = Model()
    optimizer = Optimizer(model.parameters(), lr=0.1)
    watched = stage_hooks.watch(batches(), model, optimizer, stages=stages)
    for _ in range(STEPS):
        batch = next(watched)
        spend(PREPARE)
        model(batch).square().mean().backward()
        optimizer.step()
        spend(AFTER)
    next(watched, None)


class Checkpointed(Model):
    """Its forward is run again in its backward, by a `backward` inside that one."""

    def forward(self, x: torch.Tensor, labels: Any = None) -> Any:
        return torch.utils.checkpoint.checkpoint(super().forward, x.requires_grad_(), use_reentrant=True)


def checkpointed(stages: Stages) -> None:
    loop(Checkpointed(), stages)


def closure(stages: Stages) -> None:
    """Forward and backward inside the optimizer's step, as LBFGS has them."""
    model = Model()
    optimizer = Optimizer(model.parameters(), lr=0.1)
    for batch in stage_hooks.watch(batches(), model, optimizer, stages=stages):

        def again(batch: torch.Tensor = batch) -> Any:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            return loss

        optimizer.step(again)
        spend(AFTER)


class Failing(Model):
    n = 0

    def forward(self, x: torch.Tensor, labels: Any = None) -> Any:
        self.n += 1
        if self.n == 3:
            spend(1.0)
            raise MemoryError
        return super().forward(x)


def failing(stages: Stages) -> None:
    """The third batch does not fit, and the program goes on with the next."""
    model = Failing()
    optimizer = Optimizer(model.parameters(), lr=0.1)
    for batch in stage_hooks.watch(batches(), model, optimizer, stages=stages):
        try:
            model(batch).square().mean().backward()
        except MemoryError:
            continue
        optimizer.step()
        spend(AFTER)


def again(stages: Stages) -> None:
    """Watched once per epoch, copied, and at last no more."""
    model = Model()
    optimizer = Optimizer(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(Batches(), batch_size=1)
    for _ in range(3):
        watched = stage_hooks.watch(data, model, optimizer, stages=stages)
        assert copy.copy(watched) is data and isinstance(pickle.loads(pickle.dumps(watched)), type(data))
        for batch in watched:
            model(**batch)["loss"].backward()
            optimizer.step()
            spend(AFTER)
    assert len(stage_loop._WATCHING) == 1
    stage_hooks.unwatch(model)
    assert not stage_loop._WATCHING and not model._forward_hooks and not optimizer._optimizer_step_post_hooks


def ddp(stages: Stages) -> None:
    alone()
    loop(torch.nn.parallel.DistributedDataParallel(Model()), stages)


def fsdp(stages: Stages) -> None:
    alone()
    model = Model()
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (1,)))
    loop(model, stages)


def megatron(stages: Stages) -> None:
    """Megatron's train_step: two microbatches, forward and backward in turn."""
    model = Model()

    def forward_backward(data: Iterator[torch.Tensor]) -> None:
        for _ in range(2):
            model(next(data)).square().mean().backward()

    data, run, optimizer = stage_hooks.watch_megatron(
        batches(), forward_backward, Optimizer(model.parameters(), lr=0.1), stages=stages
    )
    for _ in range(STEPS // 2):
        run(data)
        optimizer.step()
        spend(AFTER)
    run(iter([torch.ones(2, 8)] * 2))  # its start ends the step before


def lightning(stages: Stages) -> None:
    import lightning.pytorch as pl  # noqa: PLC0415

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any, _: int) -> Any:
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return Optimizer(self.parameters(), lr=0.1)

    class After(pl.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, *_: Any) -> None:
            spend(AFTER)

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[After(), stage_hooks.lightning(stages=stages)], **quiet
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(Batches(), batch_size=1))


def trainer(stages: Stages) -> None:
    import transformers  # noqa: PLC0415

    model = Model()
    args = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=1, num_train_epochs=1, report_to=[], use_cpu=True,
        save_strategy="no", logging_strategy="no", remove_unused_columns=False, disable_tqdm=True, max_grad_norm=0,
    )  # fmt: skip
    optimizer = Optimizer(model.parameters(), lr=0.1)
    made = transformers.Trainer(model, args, train_dataset=Batches(), optimizers=(optimizer, None))
    stage_hooks.watch_trainer(made, stages=stages).train()


def main(name: str) -> None:
    torch.set_num_threads(1)
    schema = stage_hooks.PIPELINE if name == "megatron" else stage_hooks.LOOP
    stages = Stages(schema, clock=lambda: NOW[0])
    globals()[name](stages)
    counts = {one: getattr(stages.counts, one) for one in stages.counts.__dataclass_fields__}
    records = [[*record.durations_ns, record.repeats, record.overlap_ns] for record in stages.take()]
    print("\n" + json.dumps({"stages": stages.schema.stages, "records": records, "counts": counts}))


if __name__ == "__main__":
    main(sys.argv[1])
